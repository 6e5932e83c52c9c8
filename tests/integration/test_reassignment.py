"""Partitions with data move between real brokers under load: by Kafka's znode, through a kill -9, taken back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from controller.core import znode_paths
from controller.playground.cluster import Playground
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from tests.integration.conftest import StartCluster, read_records

pytestmark = pytest.mark.slow

TOPIC = "t"
BEFORE = {0: [1, 2], 1: [2, 3]}


async def begin(cluster: Playground, session: Session) -> WorkloadCheck:
    """A topic with data and load, on brokers 1, 2 and 3 of four."""
    await cluster.until(session, "all brokers", lambda s: len(s.brokers) == 4)
    await cluster.create_topic(session, TOPIC, BEFORE, {"min.insync.replicas": "2"})
    await cluster.until(session, "all in sync", lambda s: placed_at(s, BEFORE))
    workload = WorkloadCheck(cluster, TOPIC, len(BEFORE))
    await workload.start()
    await workload.wait_for_writes(0, "the start")
    return workload


def placed_at(cluster_state: ClusterState, wanted: Mapping[int, Sequence[int]]) -> bool:
    """Exactly these replicas, all in sync, the preferred one leading or another of them."""
    found = {p.partition: p for p in cluster_state.partitions if p.topic == TOPIC}
    return set(found) == set(wanted) and all(
        found[n].replicas == tuple(ids)
        and (state := found[n].state) is not None
        and set(state.isr) == set(ids)
        and state.leader in ids
        for n, ids in wanted.items()
    )


async def ask(session: Session, wanted: Mapping[int, Sequence[int]]) -> None:
    """As kafka-reassign-partitions --zookeeper does."""
    listed = [{"topic": TOPIC, "partition": n, "replicas": ids} for n, ids in wanted.items()]
    data = json.dumps({"version": 1, "partitions": listed}).encode()
    await session.create(znode_paths.REASSIGN_PARTITIONS, data)


async def eventually(so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def gone(session: Session) -> None:
    """Wait for the request node to go, as tools do."""

    async def absent() -> bool:
        return await session.exists(znode_paths.REASSIGN_PARTITIONS) is None

    await eventually(absent)


async def assigned(session: Session) -> dict[str, object]:
    data, _ = await session.get(znode_paths.topic_path(TOPIC))
    fields: dict[str, object] = json.loads(data)
    return fields


async def only_at(cluster: Playground, session: Session, wanted: Mapping[int, Sequence[int]]) -> None:
    """No folder of a partition but at its replicas, and nothing left to do in the topic znode."""

    kafkas = {"version", "topic_id", "partitions", "adding_replicas", "removing_replicas"}

    async def tidy() -> bool:
        return set(await assigned(session)) == kafkas and all(
            (cluster.data_dir(b) / f"{TOPIC}-{n}").exists() == (b in ids)
            for n, ids in wanted.items()
            for b in range(1, 5)
        )

    await eventually(tidy)
    fields = await assigned(session)
    assert (fields["adding_replicas"], fields["removing_replicas"]) == ({}, {})


async def test_partitions_move_under_load(start_cluster: StartCluster, session: Session) -> None:
    cluster = start_cluster(controllers=1, brokers=4)
    workload = await begin(cluster, session)
    after = {0: [3, 4], 1: [4, 2]}
    await ask(session, after)
    await gone(session)
    await cluster.until(session, "moved", lambda s: placed_at(s, after))
    await only_at(cluster, session, after)
    await workload.wait_for_writes(0, "the move")
    assert (await workload.verdict(session)).ok
    records = read_records(cluster.state_logs / "controller-1")
    assert {r["to"] for r in records if r["kind"] == "reassignment"} == {"moving", "moved"}


@pytest.mark.long
async def test_the_controller_is_killed_in_the_middle(start_cluster: StartCluster, session: Session) -> None:
    cluster = start_cluster(controllers=2, brokers=4)
    workload = await begin(cluster, session)
    active, _ = await cluster.active(session)
    # A dead target keeps the move in its middle until the controller is gone.
    cluster.members["broker-4"].kill()
    await cluster.until(session, "broker 4 is gone", lambda s: len(s.brokers) == 3, ignore=["broker-4"])
    after = {0: [3, 4], 1: [4, 2]}
    await ask(session, after)

    async def recorded() -> bool:
        return bool((await assigned(session)).get("adding_replicas"))

    await eventually(recorded)
    killed = ["broker-4", f"controller-{active}"]
    cluster.members[killed[1]].kill()
    await cluster.active(session, other_than=active)
    assert await session.exists(znode_paths.REASSIGN_PARTITIONS) is not None
    cluster.members["broker-4"].start()
    await gone(session)
    await cluster.until(session, "moved", lambda s: placed_at(s, after), ignore=killed)
    await only_at(cluster, session, after)
    cluster.members[killed[1]].start()
    assert (await workload.verdict(session)).ok


async def test_a_move_that_cannot_end_is_taken_back(start_cluster: StartCluster, session: Session) -> None:
    """The legacy way: the request is replaced by the assignment as it was."""
    cluster = start_cluster(controllers=1, brokers=4)
    workload = await begin(cluster, session)
    cluster.members["broker-4"].kill()
    await cluster.until(session, "broker 4 is gone", lambda s: len(s.brokers) == 3, ignore=["broker-4"])
    await ask(session, {0: [4, 3]})

    async def copying() -> bool:
        """Replica 3 does, replica 4 cannot."""
        return (cluster.data_dir(3) / f"{TOPIC}-0").exists()

    await eventually(copying)
    await session.delete(znode_paths.REASSIGN_PARTITIONS)
    await ask(session, BEFORE)
    await gone(session)
    await cluster.until(session, "as before", lambda s: placed_at(s, BEFORE), ignore=["broker-4"])
    cluster.members["broker-4"].start()
    await only_at(cluster, session, BEFORE)
    assert (await workload.verdict(session)).ok
