"""A real ZooKeeper of short ticks that nobody else uses."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from controller.embedded_zookeeper.ensemble import JUTE_MAXBUFFER, ZooKeeperServer
from tests.provers.sim.zookeeper import Options
from tests.support.ports import free_port

TICK_MS = 100
#: What the server below is configured with.
REAL_OPTIONS = Options(tick_ms=TICK_MS, session_timeout_min_ms=2 * TICK_MS, request_bytes_max=JUTE_MAXBUFFER)
START_MAX_S = 60.0


@pytest.fixture(scope="session")
def real_options() -> Options:
    return REAL_OPTIONS


@pytest.fixture(scope="session")
def real_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Its client port. Transactions of others would show in every zxid."""
    server = ZooKeeperServer(free_port(), tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS, heap_mb=256)
    server.start()
    try:
        deadline = time.monotonic() + START_MAX_S
        while not server.serving():
            assert server.running(), "ZooKeeper did not start"
            assert time.monotonic() < deadline, "ZooKeeper did not start in time"
            time.sleep(0.05)
        yield server.client_port
    finally:
        server.stop()
