"""Requests that wait: a produce for its records to be committed, a fetch for something to read.

Everything runs on one event loop; to wake is to complete a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from broker_stub.control.requests import Key
from proto import common_pb2 as codes


class FetchWaiters:
    """Fetches that found too little, woken when any of their partitions changes."""

    def __init__(self) -> None:
        # In the order they came: a set's would differ from run to run.
        self._by_key: dict[Key, dict[asyncio.Future[None], None]] = {}

    def enter(self, keys: Iterable[Key]) -> asyncio.Future[None]:
        """A future that is done at the next change of any of these; must be given to `leave`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for key in keys:
            self._by_key.setdefault(key, {})[future] = None
        return future

    def leave(self, keys: Iterable[Key], future: asyncio.Future[None]) -> None:
        for key in keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(future, None)
                if not waiting:
                    del self._by_key[key]

    def wake(self, key: Key) -> None:
        """Something happened to a partition: records, a high watermark, a role."""
        for future in self._by_key.get(key, ()):
            if not future.done():
                future.set_result(None)


class AckWaiters:
    """Writes to all in-sync replicas, waiting for the high watermark to pass them."""

    def __init__(self) -> None:
        self._by_key: dict[Key, list[tuple[int, asyncio.Future[codes.ErrorCode]]]] = {}

    def enter(self, key: Key, next_offset: int) -> asyncio.Future[codes.ErrorCode]:
        """A future of the outcome; it is done when everything before ``next_offset`` is committed, or never will
        be by us."""
        future: asyncio.Future[codes.ErrorCode] = asyncio.get_running_loop().create_future()
        self._by_key.setdefault(key, []).append((next_offset, future))
        return future

    def committed(self, key: Key, high_watermark: int, outcome: Callable[[], codes.ErrorCode]) -> None:
        """The high watermark moved; ``outcome`` is asked once if anybody waited for that."""
        waiting = self._by_key.get(key)
        if not waiting:
            return
        remaining = [(offset, future) for offset, future in waiting if offset > high_watermark]
        if len(remaining) == len(waiting):
            return
        result = outcome()
        for offset, future in waiting:
            if offset <= high_watermark and not future.done():
                future.set_result(result)
        self._keep(key, remaining)

    def fail(self, key: Key, error: codes.ErrorCode) -> None:
        """Nobody's write will be committed by us any more: we lead no longer, or the disk failed."""
        for _, future in self._by_key.pop(key, ()):
            if not future.done():
                future.set_result(error)

    def leave(self, key: Key, future: asyncio.Future[codes.ErrorCode]) -> None:
        """Stop waiting."""
        self._keep(key, [item for item in self._by_key.get(key, ()) if item[1] is not future])

    def _keep(self, key: Key, waiting: list[tuple[int, asyncio.Future[codes.ErrorCode]]]) -> None:
        if waiting:
            self._by_key[key] = waiting
        else:
            self._by_key.pop(key, None)
