"""The broker's settings: flag, else environment variable, else default; checked all at once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from broker_stub.errors import SettingError
from broker_stub.storage import parse_folder_name

ENV_PREFIX = "BROKER_STUB_"
_INT_MAX = 2**31 - 1
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  (recognised, not bound)


class Setting(NamedTuple):
    """One setting as the command line shows it. ``default`` None: there is none, or it is derived."""

    name: str
    help: str
    default: str | None = None
    required: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()


SETTINGS = (
    Setting("broker_id", "This broker's id: 0 or more, one of its own in the cluster.", required=True),
    Setting("zookeeper", "ZooKeeper: HOST:PORT[,HOST:PORT...][/chroot].", required=True),
    Setting("listen", "Address of the gRPC services, HOST:PORT; port 0: any free one.", required=True),
    Setting("data_dir", "Directory of the hosted partitions.", required=True),
    Setting("rack", "Rack to register; none if left out."),
    Setting(
        "advertised_host", "Host to register. Default: the listen host, or this machine's name for 0.0.0.0."
    ),
    Setting("state_log_dir", "Directory of state-change.jsonl. Default: DATA_DIR/state-log."),
    Setting("session_timeout_ms", "ZooKeeper session timeout, ms.", "18000"),
    Setting("connection_timeout_ms", "How long the first connection to ZooKeeper may take, ms.", "30000"),
    Setting("log_format", "Daemon log on stderr: json or console.", "json"),
    Setting("log_level", "Least level logged: debug, info, warning or error.", "info"),
)


@dataclass(frozen=True)
class Settings:
    """Checked settings of ``broker-stub run``. Names ending in ``_ms`` are milliseconds."""

    broker_id: int
    zookeeper: str
    listen_host: str
    listen_port: int
    data_dir: Path
    rack: str | None
    advertised_host: str
    state_log_dir: Path
    session_timeout_ms: int
    connection_timeout_ms: int
    log_format: str
    log_level: str


class _Values:
    """The raw values, each with where it came from."""

    def __init__(self, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> None:
        self._flags, self._environ = flags, environ

    def text(self, name: str) -> tuple[str | None, str]:
        setting = next(s for s in SETTINGS if s.name == name)
        if (flag := self._flags.get(name)) is not None:
            return flag, setting.flag
        if (value := self._environ.get(setting.env)) is not None:
            return value, setting.env
        if setting.required:
            raise SettingError(name, None, f"given, by {setting.flag} or {setting.env}")
        return setting.default, "default"

    def read(self, name: str, allowed: str, convert: Callable[[str], Any]) -> Any:
        """The converted value, None where there is none. ``convert`` raises ValueError for a bad one."""
        text, source = self.text(name)
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError:
            raise SettingError(name, text, allowed, source) from None

    def integer(self, name: str, lowest: int, highest: int) -> int:
        def convert(text: str) -> int:
            if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
                raise ValueError
            return int(text)

        value: int = self.read(name, f"an integer from {lowest} to {highest}", convert)
        return value

    def choice(self, name: str, *allowed: str) -> str:
        def convert(text: str) -> str:
            if text not in allowed:
                raise ValueError
            return text

        value: str = self.read(name, "one of " + ", ".join(allowed), convert)
        return value


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


def load(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """The settings in effect. Raises SettingError for the first unusable or missing one."""
    values = _Values(flags, environ)
    host, port = values.read(
        "listen", "HOST:PORT, port 0 to 65535 (0: any free one)", lambda text: parse_host_port(text, 0)
    )
    data_dir: Path = values.read("data_dir", "a path", _path)
    state_log_dir: Path = values.read("state_log_dir", "a path", _path) or data_dir / "state-log"
    if state_log_dir == data_dir or (
        state_log_dir.parent == data_dir and parse_folder_name(state_log_dir.name)
    ):
        raise SettingError(
            "state_log_dir", str(state_log_dir), f"no place for a partition's folder of {data_dir}"
        )
    default_host = socket.getfqdn() if host in _WILDCARDS else host
    return Settings(
        broker_id=values.integer("broker_id", 0, _INT_MAX),
        zookeeper=values.read("zookeeper", "HOST:PORT[,HOST:PORT...][/chroot]", _connect_string),
        listen_host=host,
        listen_port=port,
        data_dir=data_dir,
        rack=values.read("rack", "one or more printable characters", _rack),
        advertised_host=values.read("advertised_host", "a host name or address", _word) or default_host,
        state_log_dir=state_log_dir,
        session_timeout_ms=values.integer("session_timeout_ms", 100, 3_600_000),
        connection_timeout_ms=values.integer("connection_timeout_ms", 1, 3_600_000),
        log_format=values.choice("log_format", "json", "console"),
        log_level=values.choice("log_level", "debug", "info", "warning", "error"),
    )


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like ours and are not: most often a misspelt name."""
    known = {setting.env for setting in SETTINGS}
    return sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)
