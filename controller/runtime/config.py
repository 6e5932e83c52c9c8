"""Settings: flag over environment over file over default, each with its source, each validated.

Kafka's settings keep Kafka's names with underscores (reference, section 15.1).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from controller.errors import ConfigError

ENV_PREFIX = "PARTITION_CONTROLLER_"

Parse = Callable[[object], Any]


class _NotAllowedError(ValueError):
    """Carries what would be allowed."""


def _integer(low: int, high: int) -> Parse:
    allowed = f"a whole number from {low} to {high}"

    def parse(value: object) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,12}", str(value).strip()):
            raise _NotAllowedError(allowed)
        number = int(str(value))
        if not low <= number <= high:
            raise _NotAllowedError(allowed)
        return number

    return parse


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise _NotAllowedError("true or false")
    return text == "true"


def _host_port(value: object) -> str:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", str(value).strip())
    if match is None or int(match[2]) > 65535:
        raise _NotAllowedError("HOST:PORT with a port from 0 (any free one) to 65535")
    return str(value).strip()


def _host(value: object) -> str:
    text = str(value).strip()
    if not re.fullmatch(r"|[A-Za-z0-9._-]+|[0-9a-fA-F:.]+", text):
        raise _NotAllowedError("a host name or address without a port, or nothing")
    return text


def connect_string(value: object) -> str:
    """ZooKeeper servers and chroot, tidied. Raises ValueError with what is allowed."""
    host_port = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?"
    match = re.fullmatch(rf"(?P<hosts>{host_port}(,{host_port})*)(/[^/\s]+)*/?", str(value).strip())
    if match is None or any(int(port) > 65535 for port in re.findall(r":(\d+)(?=,|$)", match["hosts"])):
        raise _NotAllowedError("HOST:PORT[,HOST:PORT...][/chroot] with ports up to 65535")
    return str(value).strip().rstrip("/")


def _path(value: object) -> Path:
    text = str(value).strip()
    if not isinstance(value, str | Path) or not text or "\0" in text:
        raise _NotAllowedError("a path")
    return Path(text)


def _choice(*names: str) -> Parse:
    def parse(value: object) -> str:
        text = str(value).strip().lower()
        if text not in names:
            raise _NotAllowedError(f"one of {', '.join(names)}")
        return text

    return parse


def _setting(default: object, parse: Parse, text: str) -> Any:
    return field(default=default, metadata={"parse": parse, "help": text})


@dataclass(frozen=True)
class Settings:
    """The effective settings of one controller. ``sources`` says where each came from."""

    controller_id: int = _setting(1, _integer(0, 2**31 - 1), "this controller's id")
    zookeeper: str = _setting("127.0.0.1:2181", connect_string, "ZooKeeper servers and chroot")
    grpc_listen: str = _setting("127.0.0.1:9190", _host_port, "address of the gRPC services")
    advertised_host: str = _setting(
        "", _host, "host under which others reach this controller, if not the one it listens on"
    )
    http_listen: str = _setting(
        "127.0.0.1:9191", _host_port, "address of /live, /ready, /leader, /metrics, /state"
    )
    state_log_dir: Path = _setting("state-log", _path, "where the state-change log is written")  # noqa: RUF009
    session_timeout_ms: int = _setting(
        18_000, _integer(1000, 600_000), "ZooKeeper session timeout (zookeeper.session.timeout.ms)"
    )
    connection_timeout_ms: int = _setting(
        18_000, _integer(100, 600_000), "how long one attempt to connect may take"
    )
    request_timeout_ms: int = _setting(
        30_000, _integer(100, 600_000), "how long a broker may take to answer (controller.socket.timeout.ms)"
    )
    message_bytes_max: int = _setting(
        1_048_576, _integer(10_000, 60_000_000), "control requests are split to stay below this, bytes"
    )
    unclean_leader_election_enable: bool = _setting(
        False, _boolean, "let out-of-sync replicas lead when nobody else can; loses records"
    )
    delete_topic_enable: bool = _setting(True, _boolean, "carry out topic deletions")
    reassignment_concurrent_moves_max: int = _setting(
        0, _integer(0, 10**9), "partitions that may be copying to new replicas at once; 0: any number"
    )
    reassignment_concurrent_moves_per_broker_max: int = _setting(
        0, _integer(0, 10**9), "the same, of those that one broker takes part in; 0: any number"
    )
    auto_leader_rebalance_enable: bool = _setting(
        True, _boolean, "return leadership to preferred replicas (auto.leader.rebalance.enable)"
    )
    leader_imbalance_check_interval_seconds: int = _setting(
        300, _integer(1, 10**7), "time between two checks of the balance of leaders"
    )
    leader_imbalance_per_broker_percentage: int = _setting(
        10, _integer(0, 100), "share of lost leaderships of a broker above which they are returned to it"
    )
    leader_rebalance_leaders_per_second: int = _setting(
        2000, _integer(0, 10**7), "leaderships returned in a second while rebalancing; 0: all at once"
    )
    maintenance_offline_brokers_percentage: int = _setting(
        50,
        _integer(0, 100),
        "share of known brokers gone at which the controller enters maintenance; 0: never",
    )
    maintenance_offline_brokers_min: int = _setting(
        3, _integer(1, 10**6), "brokers that must be gone at least for that"
    )
    maintenance_healthy_seconds: int = _setting(
        30, _integer(0, 10**6), "seconds with less than half as many gone before it leaves maintenance again"
    )
    state_log_rotate_bytes: int = _setting(64 * 2**20, _integer(4096, 2**40), "rotate the log at this size")
    state_log_rotate_seconds: int = _setting(3600, _integer(1, 10**7), "rotate the log at this age")
    state_log_files_kept: int = _setting(100, _integer(1, 10**6), "rotated logs that are kept")
    history_records_max: int = _setting(
        100_000, _integer(1000, 1_000_000), "newest records kept in memory for pctl history and watch"
    )
    log_level: str = _setting(
        "info", _choice("debug", "info", "warning", "error"), "least level that is logged"
    )
    log_format: str = _setting("json", _choice("json", "console"), "JSON lines or text for people")
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)


def split_address(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """``HOST:PORT``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def setting_fields() -> list[tuple[str, object, str]]:
    """(name, default, help) of every setting."""
    return [(f.name, f.default, f.metadata["help"]) for f in fields(Settings) if f.name != "sources"]


def load(
    flags: Mapping[str, object | None],
    config_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Effective settings. ``flags`` holds those given on the command line, None where not.

    Raises ConfigError naming the key, its value, its source and what is allowed; unknown keys in the file and
    unknown ``PARTITION_CONTROLLER_`` variables are errors too, since a typo would silently change nothing.
    """
    in_file = _read_file(config_file) if config_file is not None else {}
    known = {name for name, _, _ in setting_fields()}
    for key in in_file:
        if key not in known:
            raise ConfigError(
                key, in_file[key], f"one of the keys {', '.join(sorted(known))}", str(config_file)
            )
    for variable, value in environ.items():
        name = variable.removeprefix(ENV_PREFIX).lower()
        if variable.startswith(ENV_PREFIX) and not name.startswith("test_") and name not in known:
            raise ConfigError(variable, value, "a known setting", "environment")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in fields(Settings):
        if setting.name == "sources":
            continue
        variable = ENV_PREFIX + setting.name.upper()
        if flags.get(setting.name) is not None:
            raw, source = flags[setting.name], "flag"
        elif variable in environ:
            raw, source = environ[variable], f"environment {variable}"
        elif setting.name in in_file:
            raw, source = in_file[setting.name], f"file {config_file}"
        else:
            raw, source = setting.default, "default"
        try:
            values[setting.name] = setting.metadata["parse"](raw)
        except _NotAllowedError as error:
            raise ConfigError(setting.name, raw, str(error), source) from None
        sources[setting.name] = source
    settings = Settings(**values, sources=sources)
    _check_together(settings)
    return settings


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("config", str(path), f"a readable TOML file ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("config", str(path), f"valid TOML ({error})") from None


def _check_together(settings: Settings) -> None:
    listening = (settings.grpc_listen, settings.http_listen)
    if listening[0] == listening[1] and not listening[0].endswith(":0"):
        raise ConfigError("http_listen", settings.http_listen, "another address than grpc_listen")


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """(name, value, source) of every setting, as ``check-config`` prints it."""
    return [
        (name, _show(getattr(settings, name)), settings.sources.get(name, "default"))
        for name, _, _ in setting_fields()
    ]


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
