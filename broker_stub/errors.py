"""What the broker raises on purpose.

::

    BrokerError
    ├── SettingError          a setting is unusable: names key, value and what is allowed; exit 2
    ├── StorageFault          the data directory cannot be used at all; exit 1
    ├── RegistrationFault     this broker cannot be registered in ZooKeeper; exit 1
    └── ListenFault           the gRPC address cannot be listened on; exit 1

Anything outside this tree that reaches the top is a bug: state is dumped and the process exits 1.
"""

from __future__ import annotations

#: Of what a library says about outside data, which it may quote.
_WORDS_MAX = 300


def in_words(error: Exception) -> str:
    """What a library says about outside data, as part of one printable line."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    text = str(error)
    if len(text) > _WORDS_MAX:
        # The place comes last.
        text = f"{text[: _WORDS_MAX // 2]} ... {text[-_WORDS_MAX // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class BrokerError(Exception):
    """Base of everything the broker raises on purpose. ``exit_code`` is what the process ends with."""

    exit_code = 1


class SettingError(BrokerError):
    """A setting is unusable. ``source`` says where it came from (flag, environment variable, file)."""

    exit_code = 2

    def __init__(self, key: str, value: object, allowed: str, source: str = "") -> None:
        self.key, self.value, self.allowed, self.source = key, value, allowed, source
        origin = f" (from {source})" if source else ""
        shown = repr(value)
        if len(shown) > _WORDS_MAX:
            shown = f"{shown[:_WORDS_MAX]}... ({len(shown)} characters)"
        super().__init__(f"{key} = {shown}{origin}: must be {allowed}")


class StorageFault(BrokerError):  # noqa: N818  (a fault of the surroundings, not of a call)
    """The data directory cannot be used; the message names the path and the reason."""


class RegistrationFault(BrokerError):  # noqa: N818
    """ZooKeeper is unreachable, or another broker holds our id."""


class ListenFault(BrokerError):  # noqa: N818
    """The listen address is taken or not ours."""
