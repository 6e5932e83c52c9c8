"""The broker's settings: flag, else environment variable, else default; checked all at once.

Those that Kafka has keep Kafka's names, with underscores, and its defaults.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from broker_stub.errors import SettingError
from broker_stub.group.settings import GroupSettings
from broker_stub.log.batches import HEADER_BYTES
from broker_stub.storage import parse_folder_name
from proto.settings import Schema, integer, parsed

ENV_PREFIX = "BROKER_STUB_"
_SHORT_MAX = 2**15 - 1
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
#: Records in one message: the rest of its 64 MiB is for what goes with them.
_CARRIED_BYTES_MAX = 60 * 1024 * 1024
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  (recognised, not bound)
_RELEASES = tuple(
    f"{major}.{minor}"
    for major, minors in enumerate((range(10, 12), range(2), range(9), range(10)))
    for minor in minors
)
#: A path that is made from another setting.
DERIVED = Path()
#: The broker id of a broker that is given one.
GENERATED = -1


def parse_host_port(text: str, port_min: int) -> tuple[str, int]:
    """``host:port``, or ``[v6 address]:port``. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(text)
    if not colon or not _plain(host) or not (port.isascii() and port.isdigit()):
        raise ValueError(text)
    if not port_min <= int(port) <= 65535:
        raise ValueError(text)
    return host, int(port)


def _listen(text: str) -> tuple[str, int]:
    return parse_host_port(text, port_min=0)


def _plain(text: str) -> bool:
    return bool(text) and text.isprintable() and not any(c.isspace() or c in "/," for c in text)


def _host(text: str) -> str:
    if not _plain(text):
        raise ValueError(text)
    return text


def _rack(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(text)
    return text


def _features(text: str) -> tuple[tuple[str, int, int], ...]:
    """Features as (name, lowest version, highest version), by name."""
    found: dict[str, tuple[str, int, int]] = {}
    for part in text.split(",") if text else ():
        name, _, versions = part.partition("=")
        low, _, high = versions.partition("-")
        numbers = all(n.isascii() and n.isdigit() and len(n) <= 5 for n in (low, high))
        if not _plain(name) or name in found or not numbers:
            raise ValueError(text)
        if not (int(low) <= int(high) <= _SHORT_MAX and int(high) > 0):
            raise ValueError(text)
        found[name] = (name, int(low), int(high))
    return tuple(found[name] for name in sorted(found))


def _connect_string(text: str) -> str:
    servers, slash, chroot = text.partition("/")
    for server in servers.split(","):
        parse_host_port(server, port_min=1)
    if slash and (not chroot or chroot.endswith("/") or "//" in chroot or not chroot.isprintable()):
        raise ValueError(text)
    return text


def _release(text: str) -> str:
    if text not in _RELEASES:
        raise ValueError(text)
    return text


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """Who the broker is, whom it talks to, and where it keeps things. ``_ms``: milliseconds, here and below."""

    # fmt: off
    broker_id: Annotated[
        int,
        integer(
            GENERATED,
            _INT_MAX,
            "This broker's id: 0 or more, one of its own in the cluster. -1: that of its data directory, or a new one "
            "from ZooKeeper.",
        ),
    ]
    zookeeper: Annotated[str, parsed(_connect_string, "HOST:PORT[,HOST:PORT...][/chroot]",
        "ZooKeeper: HOST:PORT[,HOST:PORT...][/chroot].")]
    listen: Annotated[tuple[str, int], parsed(_listen, "HOST:PORT, port 0 to 65535 (0: any free one)",
        "Address to serve gRPC on, HOST:PORT; port 0: any free one.")]
    data_dir: Annotated[Path, Meta(description="Directory of the hosted partitions.")]
    rack: Annotated[str | None, parsed(_rack, "one or more printable characters",
        "Rack to register; none if left out.")] = None
    supported_features: Annotated[
        tuple[tuple[str, int, int], ...],
        parsed(
            _features,
            f"NAME=MIN-MAX[,...] with versions from 0 to {_SHORT_MAX}, each name once",
            "Features to register with the versions supported; the broker itself does nothing with them.",
        ),
    ] = ()
    advertised_host: Annotated[str, parsed(_host, "a host name or address",
        "Host to register. Default: the listen host, or this machine's name for 0.0.0.0.")] = ""
    state_log_dir: Annotated[Path,
        Meta(description="Directory of state-change.jsonl. Default: DATA_DIR/state-log.")] = DERIVED
    session_timeout_ms: Annotated[int, integer(100, 3_600_000, "ZooKeeper session timeout, ms.")] = 18_000
    connection_timeout_ms: Annotated[int, integer(1, 3_600_000,
        "How long the first connection to ZooKeeper may take, ms.")] = 30_000
    inter_broker_protocol_version: Annotated[
        str,
        parsed(
            _release,
            f"one of {', '.join(_RELEASES)}",
            "Kafka release whose protocol the brokers speak. Below 2.7 leaders write ISR changes to ZooKeeper"
            " themselves, and followers ask where epochs end before they fetch.",
        ),
    ] = "3.9"
    log_format: Annotated[Literal["json", "console"],
        Meta(description="Daemon log on stderr: json or console.")] = "json"
    log_level: Annotated[Literal["debug", "info", "warning", "error"],
        Meta(description="Least level logged: debug, info, warning or error.")] = "info"
    # fmt: on

    @property
    def alter_partition_supported(self) -> bool:
        """Leaders change the ISR through the controller, and not in ZooKeeper (KIP-497)."""
        return _RELEASES.index(self.inter_broker_protocol_version) >= _RELEASES.index("2.7")

    @property
    def truncation_on_fetch(self) -> bool:
        """Followers learn from the fetch itself where they diverge (KIP-595)."""
        return self.alter_partition_supported


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How a log is written and what it takes."""

    # fmt: off
    log_segment_bytes: Annotated[int, integer(HEADER_BYTES, _INT_MAX,
        "Size at which a log begins a new segment, bytes.")] = 2**30
    log_flush_interval_messages: Annotated[int, integer(1, _LONG_MAX,
        "Records after which a log is flushed to the disk.")] = _LONG_MAX
    log_flush_interval_ms: Annotated[int | None, integer(0, _LONG_MAX,
        "Longest time that a record stays unflushed, ms. Default: never by time.")] = None
    message_max_bytes: Annotated[int, integer(HEADER_BYTES, _CARRIED_BYTES_MAX,
        "Largest record batch taken, bytes.")] = 1_048_588
    # fmt: on


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Leaders, followers and the ISR."""

    # fmt: off
    replica_lag_time_max_ms: Annotated[int, integer(1, _INT_MAX,
        "A follower that has not caught up for so long leaves the ISR, ms.")] = 30_000
    replica_high_watermark_checkpoint_interval_ms: Annotated[int, integer(1, _INT_MAX,
        "How often high watermarks are written to the disk, ms.")] = 5_000
    replica_fetch_wait_max_ms: Annotated[int, integer(0, _INT_MAX,
        "Longest wait of a follower's fetch for records, ms; <= replica_lag_time_max_ms.")] = 500
    replica_fetch_min_bytes: Annotated[int, integer(0, _INT_MAX, "Bytes that a follower's fetch waits for.")] = 1
    replica_fetch_max_bytes: Annotated[int, integer(0, _CARRIED_BYTES_MAX,
        "Bytes of one partition that a follower fetches at once; a larger batch still comes, whole.")] = 1_048_576
    replica_fetch_response_max_bytes: Annotated[int, integer(0, _CARRIED_BYTES_MAX,
        "Bytes that a follower fetches at once; a larger first batch still comes, whole.")] = 10_485_760
    replica_fetch_backoff_ms: Annotated[int, integer(0, _INT_MAX, "Pause after a failed fetch, ms.")] = 1_000
    min_insync_replicas: Annotated[int, integer(1, _INT_MAX,
        "ISR size that acks=all needs, where the topic's configuration gives none.")] = 1
    # fmt: on


@dataclass(frozen=True, kw_only=True)
class ShutdownSettings:
    """Controlled shutdown (reference, section 6)."""

    # fmt: off
    controlled_shutdown_enable: Annotated[bool,
        Meta(description="Hand leadership over before stopping: true or false.")] = True
    controlled_shutdown_max_retries: Annotated[int, integer(1, _INT_MAX, "How often the controller is asked.")] = 3
    controlled_shutdown_retry_backoff_ms: Annotated[int, integer(0, _INT_MAX,
        "Pause before the controller is asked again, ms.")] = 5_000
    # fmt: on


@dataclass(frozen=True, kw_only=True)
class Settings(GroupSettings, ShutdownSettings, ReplicationSettings, LogSettings, ProcessSettings):
    """Checked settings of ``broker-stub run``; a part of the broker takes the group that concerns it.

    Fields are in the order of the bases from the last to the first.
    """


_SCHEMA = Schema(Settings, ENV_PREFIX, SettingError)
SETTINGS = _SCHEMA.settings
unknown_variables = _SCHEMA.unknown_variables


def load(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """The settings in effect. Raises SettingError for the first unusable or missing one."""
    values, _ = _SCHEMA.load(flags, environ)
    data_dir: Path = values["data_dir"].absolute()
    state_log_dir = (
        data_dir / "state-log" if values["state_log_dir"] is DERIVED else values["state_log_dir"].absolute()
    )
    values.update(data_dir=data_dir, state_log_dir=state_log_dir)
    if state_log_dir == data_dir or (
        state_log_dir.parent == data_dir and parse_folder_name(state_log_dir.name)
    ):
        raise SettingError(
            "state_log_dir", str(state_log_dir), f"no place for a partition's folder of {data_dir}"
        )
    host, _ = values["listen"]
    values["advertised_host"] = values["advertised_host"] or (
        socket.getfqdn() if host in _WILDCARDS else host
    )
    # A leader that lets a fetch wait for longer would take the waiting follower for a lagging one.
    for lower, upper in (
        ("replica_fetch_wait_max_ms", "replica_lag_time_max_ms"),
        ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    ):
        if values[lower] > values[upper]:
            raise SettingError(lower, values[lower], f"at most {upper} ({values[upper]})")
    return Settings(**values)
