"""Sessions for tests: opened, watched, and expired from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable

from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper.session import ConnectionState, Session

#: How long a test waits for what must happen.
PATIENCE_S = 30.0


@asynccontextmanager
async def opened(
    connect: str, timeout_ms: int = 20_000, *, use_multi_read: bool = True
) -> AsyncIterator[tuple[Session, list[ConnectionState]]]:
    """A session, and the list its connection changes are appended to."""
    changes: list[ConnectionState] = []
    session = Session(
        connect,
        timeout_ms,
        changes.append,
        ZooKeeperMetrics(CollectorRegistry()),
        use_multi_read=use_multi_read,
    )
    try:
        await session.start(PATIENCE_S)
        yield session, changes
    finally:
        await session.close()


async def until(
    reached: Callable[[], bool | Awaitable[bool]], what: str, timeout_s: float = PATIENCE_S
) -> None:
    """Look again and again until it is so; fails the test when it never is."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = reached()
        if isawaitable(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for: {what}"
        await asyncio.sleep(0.01)


def client_id(session: Session) -> tuple[int, bytes]:
    """Id and password, which kazoo tells only while connected."""
    known: tuple[int, bytes] | None = session._client.client_id
    assert known is not None
    return known


def expire(connect: str, known: tuple[int, bytes]) -> None:
    """End a session at the server, from another client that knows its id and password."""
    thief = KazooClient(connect.partition("/")[0], client_id=known)
    thief.start(PATIENCE_S)
    thief.stop()
    thief.close()
