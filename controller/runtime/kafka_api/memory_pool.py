"""What long requests and responses may take of memory and threads: callers are strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager


class MemoryPool:
    """So many bytes of requests are decoded and not yet answered. Others wait, in their order (as in KIP-72)."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()
        #: Of who makes a response about all topics of a large cluster, until it is encoded.
        self.everything = asyncio.Lock()
        #: The threads of the loop's own are for names of brokers, their answers and passwords.
        self.worker = ThreadPoolExecutor(1, "kafka-messages")

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        async with self._turn:
            while size > self._left:
                self._freed.clear()
                await self._freed.wait()
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            self._freed.set()
