"""Requests that wait: a produce for its records to be committed, a fetch for something to read.

Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from broker_stub.control.requests import Key
from proto.gen import common_pb2 as codes


class WaitingFetch:
    """One fetch that found too little in its partitions ``keys``, and which of them changed since it looked."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = keys
        self._changed: dict[Key, None] = {}
        self._woken = asyncio.Event()

    def wake(self, key: Key) -> None:
        self._changed[key] = None
        self._woken.set()

    async def changed(self, deadline: float) -> Iterable[Key]:
        """The partitions that changed, as soon as any did; none at the ``deadline`` (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._woken.wait()
        except TimeoutError:
            return ()
        changed, self._changed = self._changed, {}
        self._woken.clear()
        return changed


class FetchWaiters:
    """Fetches that found too little, woken when any of their partitions changes."""

    def __init__(self) -> None:
        # In the order they came: a set's would differ from run to run.
        self._by_key: dict[Key, dict[WaitingFetch, None]] = {}

    def enter(self, keys: Sequence[Key]) -> WaitingFetch:
        """From now on every change of these counts; must be given to `leave`."""
        fetch = WaitingFetch(keys)
        for key in keys:
            self._by_key.setdefault(key, {})[fetch] = None
        return fetch

    def leave(self, fetch: WaitingFetch) -> None:
        for key in fetch.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(fetch, None)
                if not waiting:
                    del self._by_key[key]

    def wake(self, key: Key) -> None:
        """Something happened to a partition: records, a high watermark, a role."""
        for fetch in self._by_key.get(key, ()):
            fetch.wake(key)


class AckWaiters:
    """Writes to all in-sync replicas, waiting for the high watermark to pass them."""

    def __init__(self) -> None:
        # In the order of their offsets: a leader's log only grows, and who leads no longer fails them all.
        self._by_key: dict[Key, dict[asyncio.Future[codes.ErrorCode], int]] = {}

    def enter(self, key: Key, next_offset: int) -> asyncio.Future[codes.ErrorCode]:
        """A future of the outcome; it is done when everything before ``next_offset`` is committed, or never will
        be by us. Must be given to `leave`."""
        future: asyncio.Future[codes.ErrorCode] = asyncio.get_running_loop().create_future()
        self._by_key.setdefault(key, {})[future] = next_offset
        return future

    def committed(self, key: Key, high_watermark: int) -> None:
        """The high watermark moved."""
        for future, next_offset in self._by_key.get(key, {}).items():
            if next_offset > high_watermark:
                return
            _settle(future, codes.NONE)

    def fail(self, key: Key, error: codes.ErrorCode) -> None:
        """Nobody's write will be committed by us any more: we lead no longer, or the disk failed."""
        for future in self._by_key.pop(key, {}):
            _settle(future, error)

    def leave(self, key: Key, future: asyncio.Future[codes.ErrorCode]) -> None:
        """Stop waiting."""
        waiting = self._by_key.get(key)
        if waiting is not None:
            waiting.pop(future, None)
            if not waiting:
                del self._by_key[key]


def _settle(future: asyncio.Future[codes.ErrorCode], outcome: codes.ErrorCode) -> None:
    if not future.done():
        future.set_result(outcome)
