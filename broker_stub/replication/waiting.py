"""Waiting requests: produce requests wait until their records are committed, fetch requests for enough records.

Used on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from broker_stub.control.requests import Key
from proto.gen import common_pb2 as codes


class WaitingFetch:
    """A fetch of the partitions ``keys`` that found too few bytes, and the partitions that changed since."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = keys
        self._changed: dict[Key, None] = {}
        self._woken = asyncio.Event()

    def wake(self, key: Key) -> None:
        self._changed[key] = None
        self._woken.set()

    async def changed(self, deadline: float) -> Iterable[Key]:
        """Wait for a change. Returns the changed partitions, or none at the ``deadline`` (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._woken.wait()
        except TimeoutError:
            return ()
        changed, self._changed = self._changed, {}
        self._woken.clear()
        return changed


class FetchWaiters:
    """Waiting fetches; a change of any of their partitions wakes them."""

    def __init__(self) -> None:
        # A dict, not a set: the wake-up order must be the same in every run.
        self._by_key: dict[Key, dict[WaitingFetch, None]] = {}

    def enter(self, keys: Sequence[Key]) -> WaitingFetch:
        """Start waiting for changes of these partitions. The caller must pass the result to `leave`."""
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
        """A partition changed: new records, high watermark or role."""
        for fetch in self._by_key.get(key, ()):
            fetch.wake(key)


class AckWaiters:
    """Writes with acks=all that wait for the high watermark."""

    def __init__(self) -> None:
        # In the order of their offsets: a leader's log only grows, and losing leadership fails all of them.
        self._by_key: dict[Key, dict[asyncio.Future[codes.ErrorCode], int]] = {}

    def enter(self, key: Key, next_offset: int) -> asyncio.Future[codes.ErrorCode]:
        """A future with NONE when everything before ``next_offset`` is committed, or an error when this broker cannot
        commit it. It waits no more once it is done or cancelled: a caller may be cancelled before it awaits it."""
        future: asyncio.Future[codes.ErrorCode] = asyncio.get_running_loop().create_future()
        future.add_done_callback(partial(self._leave, key))
        self._by_key.setdefault(key, {})[future] = next_offset
        return future

    def committed(self, key: Key, high_watermark: int) -> None:
        """The high watermark moved: complete the writes before it."""
        for future, next_offset in self._by_key.get(key, {}).items():
            if next_offset > high_watermark:
                return
            _complete(future, codes.NONE)

    def fail(self, key: Key, error: codes.ErrorCode) -> None:
        """Fail all waiting writes: this broker no longer leads the partition, or the disk failed."""
        for future in self._by_key.pop(key, {}):
            _complete(future, error)

    def _leave(self, key: Key, future: asyncio.Future[codes.ErrorCode]) -> None:
        waiting = self._by_key.get(key)
        if waiting is not None:
            waiting.pop(future, None)
            if not waiting:
                del self._by_key[key]


def _complete(future: asyncio.Future[codes.ErrorCode], outcome: codes.ErrorCode) -> None:
    if not future.done():
        future.set_result(outcome)
