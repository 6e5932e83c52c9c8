"""One timer for many deadlines that change often, mostly to a later time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Item = TypeVar("_Item", bound=Hashable)


class DeadlineTimer(Generic[_Item]):
    """Calls ``on_due(item)`` once when its deadline has passed. Used on the event loop; times are ms of ``clock_ms``.

    Only a deadline that moves to an earlier time adds a heap entry. If the deadline has moved to a later time when
    an entry comes up, the item gets a new entry.
    """

    def __init__(self, clock_ms: Callable[[], int], on_due: Callable[[_Item], None]) -> None:
        self._clock_ms, self._on_due = clock_ms, on_due
        #: Deadline by item, and time of the item's valid heap entry.
        self._deadlines: dict[_Item, int] = {}
        self._entry_at: dict[_Item, int] = {}
        self._heap: list[tuple[int, int, _Item]] = []
        self._order = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at_ms = 0

    def set(self, item: _Item, deadline_ms: int | None) -> None:
        """Set the item's deadline; None: remove it."""
        if deadline_ms is None:
            self._deadlines.pop(item, None)
            return
        self._deadlines[item] = deadline_ms
        self._push(item, deadline_ms)
        self._arm()

    def run_due(self) -> None:
        """Call ``on_due`` for all items that are due. The timer does so automatically; simulated clocks call this."""
        now_ms = self._clock_ms()
        due: list[_Item] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, item = heapq.heappop(self._heap)
            if self._entry_at.get(item) != at_ms:
                continue
            del self._entry_at[item]
            deadline_ms = self._deadlines.get(item)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[item]
                due.append(item)
            else:
                self._push(item, deadline_ms)
        for item in due:
            self._on_due(item)
        self._arm()

    def close(self) -> None:
        """Remove all deadlines."""
        self._deadlines.clear()
        self._entry_at.clear()
        self._heap.clear()
        self._arm()

    def _push(self, item: _Item, at_ms: int) -> None:
        if at_ms < self._entry_at.get(item, at_ms + 1):
            self._entry_at[item] = at_ms
            heapq.heappush(self._heap, (at_ms, next(self._order), item))

    def _arm(self) -> None:
        if self._handle is not None:
            if self._heap and self._handle_at_ms <= self._heap[0][0]:
                return
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._handle_at_ms = self._heap[0][0]
            delay_s = max(self._handle_at_ms - self._clock_ms(), 0) / 1000
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self.run_due()
