"""Runs one plan at a time, in a thread, so that the event loop continues. Further callers wait, or are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Event
from typing import TypeVar

from controller.errors import ControllerError

T = TypeVar("T")

#: Callers that may wait while a plan is being made.
WAITING_MAX = 4
#: After each RUN_S the thread sleeps PAUSE_S, because it shares the interpreter with the event loop.
RUN_S, PAUSE_S = 0.005, 0.001


class BusyError(ControllerError):
    """Too many callers wait already."""


class AbandonedError(ControllerError):
    """The plan's caller was cancelled, or the term is over."""


class PlanQueue:
    """Used on one event loop."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the right to plan. Raises BusyError when WAITING_MAX callers wait already."""
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

    async def run(self, work: Callable[[Callable[[], None]], T], over: Callable[[], bool]) -> T:
        """Run ``work`` in a thread; call within ``turn``.

        ``work`` must often call its argument, which yields to the event loop, and raises AbandonedError once the
        caller is cancelled or ``over`` returns True. A cancelled caller waits for that, so two threads never plan.
        """
        cancelled = Event()
        ran_since = time.monotonic()

        def give_way() -> None:
            nonlocal ran_since
            if cancelled.is_set() or over():
                raise AbandonedError("the plan was abandoned: its caller is gone, or the term is over")
            if time.monotonic() - ran_since > RUN_S:
                time.sleep(PAUSE_S)
                ran_since = time.monotonic()

        thread = asyncio.ensure_future(asyncio.to_thread(work, give_way))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            cancelled.set()
            while not thread.done():
                # Cancelled again, as when the server stops: the thread still plans.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()
            raise
