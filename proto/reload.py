"""What a daemon reads again on SIGHUP: each part that holds something from a file registers how."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Reloaded(NamedTuple):
    """The outcome for one part. ``error``: why it goes on with what it had; None: it has read its files again."""

    name: str
    error: Exception | None


class Reloads:
    """The parts of one process, in the order of their registration."""

    def __init__(self) -> None:
        self._parts: dict[str, Callable[[], None]] = {}

    def on_reload(self, name: str, callback: Callable[[], None]) -> None:
        """Have ``callback`` called at each reload. ``name``: for the log; a later one of that name replaces it.

        The callback runs on the event loop: it reads small files and does nothing else that takes time. It raises if
        something is not valid, and has then changed nothing.
        """
        self._parts[name] = callback

    def reload(self) -> list[Reloaded]:
        """Call every callback, also after one that raised."""
        return [Reloaded(name, _error_of(callback)) for name, callback in list(self._parts.items())]


def _error_of(callback: Callable[[], None]) -> Exception | None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001  (whatever it is, the process goes on with what it had)
        return error
    return None
