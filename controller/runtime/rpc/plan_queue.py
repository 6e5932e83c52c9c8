"""One plan at a time, in a thread: the event loop goes on, and who asks for too much waits or is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event
from typing import TypeVar

from controller.errors import ControllerError

T = TypeVar("T")

#: Callers that may wait for the one whose plan is being made.
WAITING_MAX = 4
#: The thread lets others run so long after having run so long itself: one interpreter serves both.
RUN_S, PAUSE_S = 0.005, 0.001


class BusyError(ControllerError):
    """Too many wait already."""


class AbandonedError(ControllerError):
    """Nobody waits for the plan any more, or this controller does not lead any more."""


class PlanQueue:
    """Used on one event loop."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait to be the one that plans. Raises BusyError when WAITING_MAX wait already."""
        if self._one_at_a_time.locked() and self.waiting >= WAITING_MAX:
            raise BusyError(f"a plan is being made, and {self.waiting} more wait: ask again later")
        self.waiting += 1
        try:
            await self._one_at_a_time.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._one_at_a_time.release()

    async def think(self, work: Callable[[Callable[[], None]], T], over: Callable[[], bool]) -> T:
        """Have ``work`` done in a thread; within ``turn``.

        ``work`` is given what it has to call again and again: that lets the event loop run, and raises AbandonedError
        once the caller is cancelled or ``over`` says so. A cancelled caller waits for that: never do two threads plan.
        """
        cancelled = Event()
        ran_since = time.monotonic()

        def give_way() -> None:
            nonlocal ran_since
            if cancelled.is_set() or over():
                raise AbandonedError("the plan was abandoned: nobody waits for it, or the term is over")
            if time.monotonic() - ran_since > RUN_S:
                time.sleep(PAUSE_S)
                ran_since = time.monotonic()

        thread = asyncio.ensure_future(asyncio.to_thread(work, give_way))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()
            raise
