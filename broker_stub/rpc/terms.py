"""Looks at ZooKeeper for who the controller is: few, however many requests wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker_stub.control.gates import ControllerTerm
from broker_stub.errors import BrokerError

#: Requests that wait for a look, and the time between two looks, seconds: whoever makes epochs up gets no more.
WAITING_MAX = 100
PAUSE_S = 0.1


class TermUnavailable(BrokerError):  # noqa: N818  (a fault of the environment)
    """Who the controller is cannot be read now."""


class Terms:
    """``read(look)`` looks at ZooKeeper, within a limited time; ``look`` is the number for the result. It raises
    BrokerError.

    Must be created inside the running loop.
    """

    def __init__(self, read: Callable[[int], Awaitable[ControllerTerm]]) -> None:
        self._read = read
        self._looks = self._waiting = 0
        self._ended_at = float("-inf")
        self._running: asyncio.Task[ControllerTerm | BrokerError] | None = None
        #: The one that has not begun: whoever asks now may share it.
        self._next: asyncio.Task[ControllerTerm | BrokerError] | None = None

    async def look(self) -> ControllerTerm:
        """What a look finds that begins after this call. Raises TermUnavailable."""
        if self._waiting == WAITING_MAX:
            raise TermUnavailable(f"{WAITING_MAX} requests wait for a look at the controller epoch already")
        if self._next is None:
            self._next = asyncio.create_task(self._look(self._running), name="look-at-controller")
        self._waiting += 1
        try:
            found = await asyncio.shield(self._next)
        finally:
            self._waiting -= 1
        if isinstance(found, BrokerError):
            raise TermUnavailable(f"the controller epoch cannot be looked at: {found}")
        return found

    async def _look(
        self, before: asyncio.Task[ControllerTerm | BrokerError] | None
    ) -> ControllerTerm | BrokerError:
        if before is not None:
            await asyncio.wait([before])
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(self._ended_at + PAUSE_S - loop.time(), 0))
        self._running, self._next = self._next, None
        self._looks += 1
        try:
            return await self._read(self._looks)
        except BrokerError as error:
            return error
        finally:
            self._ended_at = loop.time()
            self._running = None
