"""An event loop whose time jumps: whenever nothing can run, it is the time of the next timer at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

#: Time does not begin at nought, where "never" and "at once" could be taken for each other, seconds.
BEGINNING_S = 1000.0


class StalledError(Exception):
    """Nothing can run and no timer is set: what is awaited will never come."""


class _NeverWaiting(selectors.SelectSelector):
    """Looks whether something is there, and lets the time pass that it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = BEGINNING_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StalledError("nothing can run, and no timer is set")
            self.now_s += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual time; the same program takes the same course each time.

    Nothing in it may wait for another thread or for the outside: that would take no time at all.
    """

    def __init__(self) -> None:
        self._never_waiting = _NeverWaiting()
        super().__init__(self._never_waiting)

    def time(self) -> float:
        return self._never_waiting.now_s


class Clock:
    """Stands for the ``time`` module in the modules under simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._as_of_s: float | None = None

    def monotonic(self) -> float:
        return self._loop.time() if self._as_of_s is None else self._as_of_s

    def monotonic_ns(self) -> int:
        return round(self.monotonic() * 1e9)

    @contextmanager
    def as_of(self, moment_s: float) -> Iterator[None]:
        """Run something later that looked at the clock earlier."""
        self._as_of_s = moment_s
        try:
            yield
        finally:
            self._as_of_s = None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
