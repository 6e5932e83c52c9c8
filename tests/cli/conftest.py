"""One small cluster of real processes for all tests of pctl."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from controller.cli.playground import Playground
from controller.runtime import inspection
from tests.cli.operator import Operator


@pytest.fixture(scope="session")
def operator(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of a running cluster: one controller, three brokers."""
    base = f"{zookeeper_server}/pctl-{os.getpid()}"
    cluster = Playground(tmp_path_factory.mktemp("cluster") / "run", 1, 3, base)
    hands = KazooClient(cluster.connect)
    try:
        cluster.start()
        asyncio.run(_complete(cluster))
        hands.start(20)
        yield Operator(cluster, hands)
    finally:
        hands.stop()
        hands.close()
        cluster.stop()


async def _complete(cluster: Playground) -> None:
    async with inspection.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "all brokers", lambda seen: len(seen.brokers) == 3)
