"""The exceptions that the broker raises deliberately.

::

    BrokerError
    ├── SettingError          a setting is unusable: names key, value and what is allowed; exit 2
    ├── StorageFault          the data directory cannot be used at all; exit 1
    ├── RegistrationFault     this broker cannot be registered in ZooKeeper; exit 1
    └── ListenFault           the gRPC address cannot be bound; exit 1

Any other exception that reaches the top is a bug: the broker dumps its state and exits 1.
"""

from __future__ import annotations

#: Characters: a library's message about outside data may quote the data.
_TEXT_MAX = 300


def one_line(error: Exception) -> str:
    """A library's message about outside data, shortened and escaped to fit into one printable line."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    text = str(error)
    if len(text) > _TEXT_MAX:
        # Keep the end: msgspec names the place of the error there.
        text = f"{text[: _TEXT_MAX // 2]} ... {text[-_TEXT_MAX // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class BrokerError(Exception):
    """Base of the broker's own exceptions. ``exit_code`` is the exit code of the process."""

    exit_code = 1


class SettingError(BrokerError):
    """A setting is unusable. ``source`` is where its value came from (flag, environment variable, file)."""

    exit_code = 2

    def __init__(self, key: str, value: object, allowed: str, source: str = "") -> None:
        self.key, self.value, self.allowed, self.source = key, value, allowed, source
        origin = f" (from {source})" if source else ""
        shown = repr(value)
        lower = key.lower()
        if (
            any(word in lower for word in ("password", "secret", "token", "credential"))
            and "_file" not in lower
        ):
            shown = "[hidden]"
        if len(shown) > _TEXT_MAX:
            shown = f"{shown[:_TEXT_MAX]}... ({len(shown)} characters)"
        super().__init__(f"{key} = {shown}{origin}: must be {allowed}")


class StorageFault(BrokerError):  # noqa: N818  (a fault of the environment, not of a call)
    """The data directory cannot be used; the message names the path and the reason."""


class DirectoryInUse(StorageFault):
    """Another broker has locked the data directory."""


class RegistrationFault(BrokerError):  # noqa: N818
    """ZooKeeper is unreachable, or another broker is registered with our id."""


class ListenFault(BrokerError):  # noqa: N818
    """The listen address is in use or does not belong to this host."""
