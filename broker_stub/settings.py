"""The broker's settings: flag, else environment variable, else default; checked all at once.

A field of one of the groups below is a setting: its name, what it takes, its default, what it means. Those
that Kafka has keep Kafka's names, with underscores, and its defaults.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from broker_stub.errors import SettingError
from broker_stub.log.batches import HEADER_BYTES
from broker_stub.storage import parse_folder_name

ENV_PREFIX = "BROKER_STUB_"
_SHORT_MAX = 2**15 - 1
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
#: Records in one message: the rest of its 64 MiB is for what goes with them.
_CARRIED_BYTES_MAX = 60 * 1024 * 1024
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  (recognised, not bound)
_RELEASES = tuple(
    (major, minor)
    for major, minors in enumerate((range(10, 12), range(2), range(9), range(10)))
    for minor in minors
)


class Kind(NamedTuple):
    """What a setting takes. ``convert`` raises ValueError for text that is not ``allowed``."""

    allowed: str
    convert: Callable[[str], Any]


class Setting(NamedTuple):
    """One setting as the command line shows it. ``default`` None: there is none, or it is derived."""

    name: str
    kind: Kind
    help: str
    default: str | None = None
    required: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()


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


def _plain(text: str) -> bool:
    return bool(text) and text.isprintable() and not any(c.isspace() or c in "/," for c in text)


def _word(text: str) -> str:
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


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text).absolute()


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _release(text: str) -> tuple[int, int]:
    release = next((r for r in _RELEASES if text == f"{r[0]}.{r[1]}"), None)
    if release is None:
        raise ValueError(text)
    return release


def _integer(lowest: int, highest: int = _INT_MAX) -> Kind:
    def convert(text: str) -> int:
        # The length is looked at first: int() refuses thousands of digits with an error of its own.
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and lowest <= int(text) <= highest):
            raise ValueError(text)
        return int(text)

    return Kind(f"an integer from {lowest} to {highest}", convert)


def _broker_id(text: str) -> int:
    return GENERATED if text == str(GENERATED) else _integer(0).convert(text)


#: The broker id of a broker that is given one.
GENERATED = -1
_BROKER_ID = Kind(f"an integer from 0 to {_INT_MAX}, or -1", _broker_id)


def _choice(*allowed: str) -> Kind:
    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return Kind("one of " + ", ".join(allowed), convert)


_PATH = Kind("a path", _path)
_CONNECT = Kind("HOST:PORT[,HOST:PORT...][/chroot]", _connect_string)
_LISTEN = Kind("HOST:PORT, port 0 to 65535 (0: any free one)", lambda text: parse_host_port(text, 0))
_TRUTH = Kind("true or false", _truth)
_RELEASE = Kind("one of " + ", ".join(f"{major}.{minor}" for major, minor in _RELEASES), _release)


def _setting(kind: Kind, default: str, help_text: str) -> Any:
    metadata = {"kind": kind, "help": help_text, "default": default}
    return field(default=kind.convert(default), metadata=metadata)


def _optional(kind: Kind, help_text: str) -> Any:
    return field(default=None, metadata={"kind": kind, "help": help_text})


def _given(kind: Kind, help_text: str, required: bool = True) -> Any:
    """One without a default; if not ``required``, `load` derives what is left out."""
    return field(metadata={"kind": kind, "help": help_text, "required": required})


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """Who the broker is, whom it talks to, and where it keeps things. ``_ms``: milliseconds, here and below."""

    broker_id: int = _given(
        _BROKER_ID,
        "This broker's id: 0 or more, one of its own in the cluster. -1: that of its data directory, or a new one "
        "from ZooKeeper.",
    )
    zookeeper: str = _given(_CONNECT, "ZooKeeper: HOST:PORT[,HOST:PORT...][/chroot].")
    listen: tuple[str, int] = _given(_LISTEN, "Address to serve gRPC on, HOST:PORT; port 0: any free one.")
    data_dir: Path = _given(_PATH, "Directory of the hosted partitions.")  # noqa: RUF009  (makes a field)
    rack: str | None = _optional(
        Kind("one or more printable characters", _rack), "Rack to register; none if left out."
    )
    supported_features: tuple[tuple[str, int, int], ...] = _setting(
        Kind(f"NAME=MIN-MAX[,...] with versions from 0 to {_SHORT_MAX}, each name once", _features),
        "",
        "Features to register with the versions supported; the broker itself does nothing with them.",
    )
    advertised_host: str = _given(
        Kind("a host name or address", _word),
        "Host to register. Default: the listen host, or this machine's name for 0.0.0.0.",
        required=False,
    )
    state_log_dir: Path = _given(  # noqa: RUF009  (makes a field)
        _PATH, "Directory of state-change.jsonl. Default: DATA_DIR/state-log.", required=False
    )
    session_timeout_ms: int = _setting(_integer(100, 3_600_000), "18000", "ZooKeeper session timeout, ms.")
    connection_timeout_ms: int = _setting(
        _integer(1, 3_600_000), "30000", "How long the first connection to ZooKeeper may take, ms."
    )
    inter_broker_protocol_version: tuple[int, int] = _setting(
        _RELEASE,
        "3.9",
        "Kafka release whose protocol the brokers speak. Below 2.7 leaders write ISR changes to ZooKeeper"
        " themselves, and followers ask where epochs end before they fetch.",
    )
    log_format: str = _setting(_choice("json", "console"), "json", "Daemon log on stderr: json or console.")
    log_level: str = _setting(
        _choice("debug", "info", "warning", "error"),
        "info",
        "Least level logged: debug, info, warning or error.",
    )

    @property
    def listen_host(self) -> str:
        return self.listen[0]

    @property
    def listen_port(self) -> int:
        return self.listen[1]

    @property
    def alter_partition_supported(self) -> bool:
        """Leaders change the ISR through the controller, and not in ZooKeeper (KIP-497)."""
        return self.inter_broker_protocol_version >= (2, 7)

    @property
    def truncation_on_fetch(self) -> bool:
        """Followers learn from the fetch itself where they diverge (KIP-595)."""
        return self.inter_broker_protocol_version >= (2, 7)


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How a log is written and what it takes."""

    log_segment_bytes: int = _setting(
        _integer(HEADER_BYTES), "1073741824", "Size at which a log begins a new segment, bytes."
    )
    log_flush_interval_messages: int = _setting(
        _integer(1, _LONG_MAX), str(_LONG_MAX), "Records after which a log is flushed to the disk."
    )
    log_flush_interval_ms: int | None = _optional(
        _integer(0, _LONG_MAX), "Longest time that a record stays unflushed, ms. Default: never by time."
    )
    message_max_bytes: int = _setting(
        _integer(HEADER_BYTES, _CARRIED_BYTES_MAX), "1048588", "Largest record batch taken, bytes."
    )


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Leaders, followers and the ISR."""

    replica_lag_time_max_ms: int = _setting(
        _integer(1), "30000", "A follower that has not caught up for so long leaves the ISR, ms."
    )
    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        _integer(1), "5000", "How often high watermarks are written to the disk, ms."
    )
    replica_fetch_wait_max_ms: int = _setting(
        _integer(0), "500", "Longest wait of a follower's fetch for records, ms; <= replica_lag_time_max_ms."
    )
    replica_fetch_min_bytes: int = _setting(_integer(0), "1", "Bytes that a follower's fetch waits for.")
    replica_fetch_max_bytes: int = _setting(
        _integer(0, _CARRIED_BYTES_MAX),
        "1048576",
        "Bytes of one partition that a follower fetches at once; a larger batch still comes, whole.",
    )
    replica_fetch_response_max_bytes: int = _setting(
        _integer(0, _CARRIED_BYTES_MAX),
        "10485760",
        "Bytes that a follower fetches at once; a larger first batch still comes, whole.",
    )
    replica_fetch_backoff_ms: int = _setting(_integer(0), "1000", "Pause after a failed fetch, ms.")
    min_insync_replicas: int = _setting(
        _integer(1), "1", "ISR size that acks=all needs, where the topic's configuration gives none."
    )


@dataclass(frozen=True, kw_only=True)
class ShutdownSettings:
    """Controlled shutdown (reference, section 6)."""

    controlled_shutdown_enable: bool = _setting(
        _TRUTH, "true", "Hand leadership over before stopping: true or false."
    )
    controlled_shutdown_max_retries: int = _setting(_integer(1), "3", "How often the controller is asked.")
    controlled_shutdown_retry_backoff_ms: int = _setting(
        _integer(0), "5000", "Pause before the controller is asked again, ms."
    )


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The group coordinator and its topic, ``__consumer_offsets``."""

    offsets_topic_num_partitions: int = _setting(
        _integer(1), "50", "Partitions of __consumer_offsets; not to be changed once it exists."
    )
    offsets_topic_replication_factor: int = _setting(
        _integer(1, 32767), "3", "Replicas of __consumer_offsets."
    )
    offsets_commit_timeout_ms: int = _setting(
        _integer(1), "5000", "How long a commit waits for the replicas of __consumer_offsets, ms."
    )
    offset_metadata_max_bytes: int = _setting(
        _integer(0), "4096", "Largest metadata of a committed offset, bytes."
    )
    group_min_session_timeout_ms: int = _setting(
        _integer(1), "6000", "Shortest session timeout of a member, ms; <= group_max_session_timeout_ms."
    )
    group_max_session_timeout_ms: int = _setting(
        _integer(1), "1800000", "Longest session timeout of a member, ms."
    )
    group_initial_rebalance_delay_ms: int = _setting(
        _integer(0), "3000", "How long an empty group waits for more members before it is balanced, ms."
    )


_GROUPS = (ProcessSettings, LogSettings, ReplicationSettings, ShutdownSettings, GroupSettings)
SETTINGS = tuple(Setting(row.name, **row.metadata) for group in _GROUPS for row in fields(group))


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings, LogSettings, ReplicationSettings, ShutdownSettings, GroupSettings):
    """Checked settings of ``broker-stub run``; a part of the broker takes the group that concerns it."""


def load(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """The settings in effect. Raises SettingError for the first unusable or missing one."""
    values = {setting.name: _read(setting, flags, environ) for setting in SETTINGS}
    data_dir: Path = values["data_dir"]
    state_log_dir = values["state_log_dir"] = values["state_log_dir"] or data_dir / "state-log"
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


def _read(setting: Setting, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Any:
    """The converted value, None where there is none."""
    given = ((flags.get(setting.name), setting.flag), (environ.get(setting.env), setting.env))
    text, source = next((item for item in given if item[0] is not None), (setting.default, "default"))
    if text is None and setting.required:
        raise SettingError(setting.name, None, f"given, by {setting.flag} or {setting.env}")
    if text is None:
        return None
    try:
        return setting.kind.convert(text)
    except ValueError:
        raise SettingError(setting.name, text, setting.kind.allowed, source) from None


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like ours and are not: most often a misspelt name."""
    known = {setting.env for setting in SETTINGS}
    return sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)
