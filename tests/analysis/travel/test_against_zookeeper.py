"""A real cluster's past, rebuilt from its logs, is what ZooKeeper held at those moments."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from controller.analysis import open_logs
from controller.analysis.travel.moments import shown
from controller.analysis.travel.state import partitions_expected
from controller.runtime.zookeeper.session import Session
from tests.analysis.conftest import at_once
from tests.integration.conftest import StartCluster, create, session, start_cluster

__all__ = ["session", "start_cluster"]
pytestmark = [pytest.mark.long, pytest.mark.slow]

ROOT = "/playground"
Partitions = dict[tuple[str, int], tuple[int, int, list[int], int, list[int]]]


class Snapshot(NamedTuple):
    """``partitions``: leader, leader epoch, ISR, version of the znode, replicas."""

    controller: int
    epoch: int
    brokers: set[int]
    partitions: Partitions


def snapshot(zk: KazooClient) -> Snapshot:
    def read(path: str) -> tuple[Any, Any]:
        data, stat = zk.get(f"{ROOT}{path}")
        return json.loads(data), stat

    partitions: Partitions = {}
    for topic in zk.get_children(f"{ROOT}/brokers/topics"):
        assigned, _ = read(f"/brokers/topics/{topic}")
        for number, replicas in assigned["partitions"].items():
            state, stat = read(f"/brokers/topics/{topic}/partitions/{number}/state")
            told = (state["leader"], state["leader_epoch"], state["isr"], stat.version, replicas)
            partitions[topic, int(number)] = told
    brokers = {int(broker) for broker in zk.get_children(f"{ROOT}/brokers/ids")}
    return Snapshot(
        read("/controller")[0]["brokerid"], int(zk.get(f"{ROOT}/controller_epoch")[0]), brokers, partitions
    )


def quiet(zk: KazooClient, reached: Callable[[Snapshot], bool]) -> tuple[str, Snapshot]:
    """A moment around which nothing changed for half a second, and what ZooKeeper held then."""
    deadline, problem = time.monotonic() + 60, "no exception"
    while time.monotonic() < deadline:
        try:
            before = snapshot(zk)
            time.sleep(0.25)
            now = shown(time.time_ns() // 1000)
            time.sleep(0.25)
            if reached(before) and snapshot(zk) == before:
                return now, before
        except Exception as error:  # noqa: BLE001  (a znode that is not there yet, or not any more)
            problem = repr(error)
            time.sleep(0.1)
    raise AssertionError(f"it was never quiet: {problem}")


def in_sync(replicas: dict[int, list[int]]) -> Callable[[Snapshot], bool]:
    return lambda s: all(
        ("t", n) in s.partitions
        and s.partitions["t", n][4] == ids
        and set(s.partitions["t", n][2]) == set(ids)
        for n, ids in replicas.items()
    )


async def test_leaders_isrs_replicas_brokers_and_controller_are_those_that_zookeeper_held(
    spark: SparkSession,
    start_cluster: StartCluster,
    session: Session,
    zk: KazooClient,
) -> None:
    first, moved = {0: [1, 2], 1: [2, 3], 2: [3, 1]}, {0: [3, 1], 1: [2, 3], 2: [3, 1]}
    cluster = start_cluster(controllers=2, brokers=3)
    active, _ = await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == 3)
    await create(session, "t", first)
    moments = [quiet(zk, in_sync(first))]

    cluster.members["broker-3"].kill()
    moments.append(
        quiet(zk, lambda s: s.brokers == {1, 2} and all(3 not in p[2] for p in s.partitions.values()))
    )
    cluster.members[f"controller-{active}"].kill()
    successor, _ = await cluster.active(session, other_than=active)
    moments.append(quiet(zk, lambda s: s.controller == successor))

    cluster.members["broker-3"].start()
    moments.append(quiet(zk, in_sync(first)))
    wanted = [{"topic": "t", "partition": n, "replicas": ids} for n, ids in moved.items()]
    request = json.dumps({"version": 1, "partitions": wanted}).encode()
    zk.create(f"{ROOT}/admin/reassign_partitions", request)
    done = in_sync(moved)
    moments.append(quiet(zk, lambda s: done(s) and not zk.exists(f"{ROOT}/admin/reassign_partitions")))

    await create(session, "u", {0: [1]})
    moments.append(quiet(zk, lambda s: ("u", 0) in s.partitions))
    zk.create(f"{ROOT}/admin/delete_topics/t")
    moments.append(quiet(zk, lambda s: s.partitions.keys() == {("u", 0)}))
    cluster.stop()

    with open_logs(cluster.state_logs) as logs:
        partitions = at_once({when: logs.state_at(when) for when, _ in moments})
        brokers = at_once({when: logs.brokers_at(when) for when, _ in moments})
        for when, true in moments:
            cut = logs.cut(when)
            assert (cut.term.node, cut.term.epoch) == (true.controller, true.epoch), when
            assert partitions_expected(logs.records, cut, logs.corrections) == len(true.partitions), when
            rebuilt = {
                (row.topic, row.partition): (
                    row.leader, row.leader_epoch, row.isr, row.partition_epoch, row.replicas
                )
                for row in partitions[when]
            }  # fmt: skip
            assert rebuilt == true.partitions, when
            assert {row.broker for row in brokers[when] if row.live} == true.brokers, when
        assert not any(logs.corrections.values()) or max(map(abs, logs.corrections.values())) < 1_000_000
