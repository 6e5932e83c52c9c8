"""A broker that comes back with an empty data directory is out of sync before anyone elects it (docs/adr/0017)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.cli.operator import pctl
from tests.support.runtime.clusters import broker_command, brokers, controller, has_said
from tests.support.runtime.programs import Program, program

pytestmark = pytest.mark.slow


def data(connect: str, *arguments: str) -> Any:
    return json.loads(pctl(connect, "-o", "json", *arguments).stdout)


@contextmanager
def again(connect: str, directory: Path, broker_id: int) -> Iterator[Program]:
    with program(broker_command(connect, broker_id), directory, name=f"broker-{broker_id}-again") as started:
        started.until(partial(has_said, started, "registered"))
        yield started


def leader(zk: KazooClient, topic: str) -> int:
    return int(json.loads(zk.get(f"/brokers/topics/{topic}/partitions/0/state")[0])["leader"])


def test_the_only_replica_comes_back_empty(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    with controller(zookeeper, tmp_path) as running:
        with brokers(zookeeper, tmp_path, 1) as (first,):
            assert pctl(zookeeper, "topics", "create", "t", "--replica-assignment", "1").exit_code == 0
            first.process.kill()
            first.process.wait()
        with again(zookeeper, tmp_path, 1) as second:
            running.until(lambda: leader(zk, "t") == 1)
            second.process.kill()
            second.process.wait()
        running.until(lambda: leader(zk, "t") == -1)
        shutil.rmtree(tmp_path / "data-1")
        with again(zookeeper, tmp_path, 1):
            running.until(lambda: "came back" in data(zookeeper, "explain", "partition", "t", "0")["summary"])
            assert leader(zk, "t") == -1
            (row,) = data(zookeeper, "partitions", "--topic", "t")
            assert "only an unclean election helps" in row["why"]
            assert pctl(zookeeper, "elect", "unclean", "--partition", "t-0", "--yes").exit_code == 0
            running.until(lambda: leader(zk, "t") == 1)


def test_a_leader_loses_its_disk_while_nobody_is_the_controller(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with brokers(zookeeper, tmp_path, 2) as (first, _):
        with controller(zookeeper, tmp_path):
            assert pctl(zookeeper, "topics", "create", "t", "--replica-assignment", "1:2").exit_code == 0
        assert leader(zk, "t") == 1
        first.process.kill()
        first.process.wait()
        shutil.rmtree(tmp_path / "data-1")
        with again(zookeeper, tmp_path, 1), controller(zookeeper, tmp_path) as running:
            running.until(lambda: leader(zk, "t") == 2)
            running.until(lambda: data(zookeeper, "partitions", "--topic", "t")[0]["isr"] == [2, 1])
