"""A cluster of real processes in the test's own chroot, and what tests ask of it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.core import znode_paths
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session

StartCluster = Callable[..., Playground]


@pytest.fixture
def start_cluster(tmp_path: Path, zookeeper: str) -> Iterator[StartCluster]:
    """Start controllers and brokers; everything is ended with the test."""
    started: list[Playground] = []

    def start(
        controllers: int = 2, brokers: int = 3, connect: str = zookeeper, session_timeout_ms: int = 3000
    ) -> Playground:
        directory = tmp_path / f"cluster-{len(started)}"
        cluster = Playground(directory, controllers, brokers, connect, session_timeout_ms)
        started.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.stop()


@pytest_asyncio.fixture
async def session(zookeeper: str) -> AsyncIterator[Session]:
    """A session in the chroot that clusters of this test use."""
    async with cluster_reader.connected(f"{zookeeper}/playground", 20_000) as connected:
        yield connected


async def create(session: Session, name: str, assignment: dict[int, list[int]]) -> None:
    """An operator's hand: a topic by its znode."""
    data = {"version": 3, "partitions": {str(n): ids for n, ids in assignment.items()}}
    await session.create(znode_paths.topic_path(name), json.dumps(data).encode())


def http_answer(address: str, path: str) -> tuple[int, str]:
    """Status and content."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def http_addresses(cluster: Playground) -> dict[int, str]:
    """Where each controller serves HTTP, from its own log: ZooKeeper may be away."""
    found = {}
    for name, member in cluster.members.items():
        if name.startswith("controller-"):
            for line in member.log_path.read_text().splitlines():
                if (row := json.loads(line)).get("event") == "listening":
                    found[int(name.split("-")[1])] = row["http"]
    return found


def read_records(directory: Path) -> list[dict[str, Any]]:
    """All state-change records below a directory, in file order."""
    records = []
    for path in sorted(directory.rglob("state-change.jsonl")):
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue  # torn by a kill: the report counts those
    return records
