"""A `ClusterStore` in a session of its own on a real server, and an operator's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kazoo.client import KazooClient

from broker_stub.zookeeper.client import ClusterStore

CHANGES = "/config/changes"


class Opened:
    """A store with a client of its own, as the registrar would hand it over."""

    def __init__(self, store: ClusterStore, client: KazooClient, bugs: list[BaseException]) -> None:
        self.store, self.client, self.bugs = store, client, bugs

    async def disconnected(self) -> None:
        await until(lambda: not self.store._connected.is_set())


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not probe():  # noqa: ASYNC110  (the probes look at other processes)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(connect: str, timeout_s: float = 30.0) -> AsyncIterator[Opened]:
    bugs: list[BaseException] = []
    store = ClusterStore(bugs.append, timeout_s)
    client = KazooClient(connect, timeout=10.0)
    await asyncio.to_thread(client.start, 20)
    store.session(client)
    await until(store._connected.is_set)
    try:
        yield Opened(store, client, bugs)
    finally:
        await store.close()
        await asyncio.to_thread(client.stop)
        client.close()
    assert bugs == []


async def put(zk: KazooClient, path: str, data: bytes) -> None:
    """Create, or set, with the parents."""
    await asyncio.to_thread(zk.ensure_path, path)
    await asyncio.to_thread(zk.set, path, data)


async def change(zk: KazooClient, data: bytes) -> None:
    await asyncio.to_thread(zk.create, f"{CHANGES}/config_change_", data, sequence=True, makepath=True)
