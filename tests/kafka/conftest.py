"""Clusters of real Kafka brokers for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.embedded_kafka import jars
from controller.maven import UnreachableFault
from tests.kafka.cluster import KafkaCluster

MakeCluster = Callable[..., KafkaCluster]


def require(version: str) -> None:
    """Skip the test when these jars cannot be fetched."""
    try:
        jars.KAFKA.fetch(version)
    except UnreachableFault as fault:
        pytest.skip(str(fault).splitlines()[0])


@contextmanager
def running(directory: Path, zookeeper: str, **arguments: Any) -> Iterator[KafkaCluster]:
    """A started cluster (arguments: KafkaCluster's); its processes are ended whatever happens."""
    cluster = KafkaCluster(directory, zookeeper, **arguments)
    for version in {jars.NEWEST, *cluster.versions.values()}:
        require(version)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def make_kafka(tmp_path: Path, zookeeper: str) -> Iterator[MakeCluster]:
    """Starts a cluster (arguments: KafkaCluster's); its processes are ended after the test."""
    with ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(running(tmp_path / "kafka", zookeeper, **arguments))
