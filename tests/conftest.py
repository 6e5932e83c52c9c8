"""Fixtures every test may use: a real ZooKeeper, once a session, with a fresh chroot for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller.runtime.embedded_zookeeper import EmbeddedZooKeeper

_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a real server; ``PARTITION_CONTROLLER_TEST_ZOOKEEPER`` names another one to use."""
    if given := os.environ.get("PARTITION_CONTROLLER_TEST_ZOOKEEPER"):
        yield given
        return
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as embedded:
        yield embedded.connect_string


@pytest.fixture
def zookeeper(zookeeper_server: str) -> str:
    """Connect string with a chroot of this test's own, already created."""
    chroot = f"/test-{os.getpid()}-{next(_chroots)}"
    client = KazooClient(zookeeper_server)
    client.start(20)
    client.ensure_path(chroot)
    client.stop()
    client.close()
    return f"{zookeeper_server}{chroot}"


@pytest.fixture
def zk(zookeeper: str) -> Iterator[KazooClient]:
    """An independent client in this test's chroot: the operator's hands."""
    client = KazooClient(zookeeper)
    client.start(20)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def state_log_dir(tmp_path: Path) -> Path:
    return tmp_path / "state-log"
