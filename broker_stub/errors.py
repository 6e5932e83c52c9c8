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

from proto.texts import is_secret

#: Characters of a setting's value that its error repeats.
_VALUE_CHARS_MAX = 300


class BrokerError(Exception):
    """Base of the broker's own exceptions. ``exit_code`` is the exit code of the process."""

    exit_code = 1


class SettingError(BrokerError):
    """A setting is unusable. ``source`` is where its value came from (flag, environment variable, file)."""

    exit_code = 2

    def __init__(self, key: str, value: object, allowed: str, source: str = "") -> None:
        self.key, self.value, self.allowed, self.source = key, value, allowed, source
        origin = f" (from {source})" if source else ""
        shown = "[hidden]" if is_secret(key) else repr(value)
        if len(shown) > _VALUE_CHARS_MAX:
            shown = f"{shown[:_VALUE_CHARS_MAX]}... ({len(shown)} characters)"
        super().__init__(f"{key} = {shown}{origin}: must be {allowed}")


class StorageFault(BrokerError):  # noqa: N818  (a fault of the environment, not of a call)
    """The data directory cannot be used; the message names the path and the reason."""


class DirectoryInUse(StorageFault):
    """Another broker has locked the data directory."""


class RegistrationFault(BrokerError):  # noqa: N818
    """ZooKeeper is unreachable, or another broker is registered with our id."""


class ListenFault(BrokerError):  # noqa: N818
    """The listen address is in use or does not belong to this host."""
