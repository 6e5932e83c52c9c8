"""The original's system tests (``fault_cases.jsonl``) on real brokers: clean ends, bounces, failed disks, moves.

Rows with the same scenario share a cluster and its load; the workload's checker has the last word: every acknowledged
record is read. Rows about a paused broker and a follower that falls behind are in integration/test_replication.py.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_stub.client.consumer import Consumer
from broker_stub.client.producer import Producer
from controller.client import admin
from controller.core import znode_paths
from controller.core.model import LeaderAndIsr
from controller.playground.cluster import Playground
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from tests.integration.conftest import StartCluster, read_records, start_cluster
from tests.provers.durability.kills import BROKERS, TOPIC, begin, whole
from tests.support.reference_rows import load

__all__ = ["start_cluster"]

pytestmark = pytest.mark.slow

ROWS = load("fault_cases.jsonl")
#: Rows that are not run, and why.
ELSEWHERE = {
    "K248": "a broker of a protocol before 1.0 halts when it loses a disk, as controllers could not be told: there is "
    "one protocol, and controllers are told",
    "K569": "3,400,000 records through eight brokers within ten minutes: that measures the brokers, which are "
    "stand-ins here; controllers are measured with a hundred times as many partitions by make bench",
}


def now_us() -> int:
    return time.time_ns() // 1000


def found(cluster_state: ClusterState, topic: str, number: int = 0) -> LeaderAndIsr:
    """A partition's state; one without has no leader and nobody in sync."""
    for partition in cluster_state.partitions:
        if (partition.topic, partition.partition) == (topic, number) and partition.state is not None:
            return partition.state
    return LeaderAndIsr(-1, -1, (), -1, -1)


def in_sync(cluster_state: ClusterState) -> bool:
    """Everything, everywhere."""
    return bool(cluster_state.partitions) and not any(p.under_replicated() for p in cluster_state.partitions)


def addresses(cluster_state: ClusterState) -> list[str]:
    return [f"{b.control_endpoint.host}:{b.control_endpoint.port}" for b in cluster_state.brokers.values()]


async def served(cluster_state: ClusterState, topic: str, count: int) -> int:
    """Write records to partition 0 and read them back; its latest offset."""
    key = (topic, 0)
    async with Producer(addresses(cluster_state)) as producer:
        first = await producer.send(topic, 0, [(None, f"{n}".encode()) for n in range(count)])
    async with Consumer(addresses(cluster_state)) as consumer:
        await consumer.assign({key: first})
        read: list[Any] = []
        async with asyncio.timeout(30):
            while len(read) < count:
                read += await consumer.poll(500)
        assert [record.offset for record in read] == list(range(first, first + count))
        return await consumer.list_offset(key, -1)


# --- clean ends, bounces, clients ------------------------------------------------------------------------------


@pytest.mark.long
async def test_bounces_a_controllers_end_and_a_client_that_is_cut_off(start_cluster: StartCluster) -> None:
    """K576 without a fault, then K558, K560 and K579, one after the other under the same load."""
    cluster = start_cluster(brokers=BROKERS)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        workload = await begin(cluster, session)
        await workload.wait_for_writes(0, "the start")
        for _ in range(ROWS["K558"]["when"]["times"]):
            cluster_state, _ = await cluster.until(session, "in sync", whole)
            leader = cluster.members[f"broker-{found(cluster_state, TOPIC).leader}"]
            bounced_us = now_us()
            await asyncio.to_thread(leader.stop)
            leader.start()
        await cluster.until(session, "every replica in sync", whole)
        await workload.wait_for_writes(bounced_us, "the last clean bounce of a leader")

        active, _ = await cluster.active(session)
        stopped_us = now_us()
        await asyncio.to_thread(cluster.members[f"controller-{active}"].stop)
        assert (await cluster.active(session, other_than=active))[0] != active
        await workload.wait_for_writes(stopped_us, "the clean end of the controller")

        # Its connections stay, and nothing comes through them: as behind a filter that drops every packet.
        client = cluster.members["workload"]
        client.signal(signal.SIGSTOP)
        await asyncio.sleep(4.0)
        client.signal(signal.SIGCONT)
        await workload.wait_for_writes(now_us(), "the client's return")
        verdict = await workload.verdict(session)
        assert verdict.ok
        assert verdict.acknowledged > 100


# --- failed disks ------------------------------------------------------------------------------------------------

OTHER = "other"


def fail_disk(cluster: Playground, broker: int, number: int) -> Path:
    """What holds one replica of the topic is lost, and cannot be made again: a plain file is in the folder's place."""
    folder = cluster.data_dir(broker) / f"{TOPIC}-{number}"
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    return folder


async def without(cluster: Playground, session: Session, broker: int, number: int) -> LeaderAndIsr:
    """Wait until a broker is neither leader nor in sync; it stays registered and its process runs."""

    def left(cluster_state: ClusterState) -> bool:
        state = found(cluster_state, TOPIC, number)
        return (
            state.leader not in (-1, broker) and broker not in state.isr and broker in cluster_state.brokers
        )

    cluster_state, _ = await cluster.until(session, f"{TOPIC}-{number} does without broker {broker}", left)
    cluster.members[f"broker-{broker}"].check()
    # The topic on the good disk is as it was.
    assert broker in found(cluster_state, OTHER).isr
    return found(cluster_state, TOPIC, number)


async def consumed(cluster: Playground, session: Session) -> None:
    """No notification of a failed disk is left."""
    async with asyncio.timeout(20):
        while await session.children(znode_paths.LOG_DIR_NOTIFICATIONS):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def bounce(cluster: Playground, session: Session, broker: int) -> None:
    member = cluster.members[f"broker-{broker}"]
    await asyncio.to_thread(member.stop)
    member.start()
    await cluster.until(
        session, "back", lambda s: len(s.brokers) == BROKERS and broker in found(s, OTHER).isr
    )


async def alone(cluster: Playground, session: Session, broker: int) -> None:
    """As the only live broker it still serves what is on its good disk."""
    others = [member for name, member in cluster.members.items() if name.startswith("broker-")]
    others.remove(cluster.members[f"broker-{broker}"])
    for member in others:
        await asyncio.to_thread(member.kill)
    cluster_state, _ = await cluster.until(
        session,
        "the other topic is led by the last broker",
        lambda s: list(s.brokers) == [broker] and found(s, OTHER).leader == broker,
    )
    await served(cluster_state, OTHER, 10)
    for member in others:
        member.start()


@pytest.mark.long
async def test_failed_disks_of_a_leader_and_of_followers(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K571 and K243 on a leader, K572 on a follower, K574 on a follower that is bounced; min ISR of the other is 1.

    A log here is one file: it fails when it is written to, and never by rolling.
    """
    monkeypatch.setenv("BROKER_STUB_REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS", "300")
    cluster = start_cluster(controllers=1, brokers=BROKERS)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        workload = await begin(cluster, session, partitions=3)
        cluster_state, _ = await cluster.until(session, "all brokers", whole)
        await cluster.create_topic(session, OTHER, (1, BROKERS), {"min.insync.replicas": "1"})
        cluster_state, _ = await cluster.until(session, "in sync", in_sync)

        leader, led = found(cluster_state, TOPIC, 0).leader, 0
        failed_us = now_us()
        places = [fail_disk(cluster, leader, led)]
        state = await without(cluster, session, leader, led)
        await consumed(cluster, session)
        await workload.wait_for_writes(failed_us, "the disk of a leader failed")
        replicas = [
            (r["replica"], r["to"])
            for r in read_records(cluster.state_logs / "controller-1")
            if r["kind"] == "replica" and (r["topic"], r["partition"]) == (TOPIC, led)
        ]
        assert (leader, "OfflineReplica") == replicas[-1]

        # The same broker stays a follower elsewhere, and the second failure is another broker's.
        number = next(n for n in (1, 2) if found(cluster_state, TOPIC, n).leader != state.leader)
        follower = next(
            b
            for b in found(cluster_state, TOPIC, number).isr
            if b != found(cluster_state, TOPIC, number).leader
        )
        before = found(cluster_state, TOPIC, number)
        failed_us = now_us()
        places.append(fail_disk(cluster, follower, number))
        state = await without(cluster, session, follower, number)
        assert state.leader == before.leader
        await workload.wait_for_writes(failed_us, "the disk of a follower failed")

        await bounce(cluster, session, follower)
        await without(cluster, session, follower, number)
        await workload.wait_for_writes(now_us(), "the bounce of that follower")
        await alone(cluster, session, leader)

        for place in places:
            place.unlink()
        for broker in {leader, follower}:
            await bounce(cluster, session, broker)
        await cluster.until(session, "every replica in sync", lambda s: whole(s) and in_sync(s))
        assert (await workload.verdict(session)).ok


# --- moves -------------------------------------------------------------------------------------------------------


def placed(cluster_state: ClusterState, topic: str) -> dict[int, list[int]]:
    """Replicas of partitions that are at rest: in sync, led by one of them."""
    ours: list[PartitionInfo] = [p for p in cluster_state.partitions if p.topic == topic]
    info = cluster_state.topics.get(topic)
    if info is None or info.adding or info.removing:
        return {}
    return {
        p.partition: list(p.replicas)
        for p in ours
        if p.state is not None and set(p.state.isr) == set(p.replicas) and p.state.leader in p.replicas
    }


async def move(session: Session, topic: str, wanted: Mapping[int, Sequence[int]]) -> None:
    """By API."""
    cluster_state = await cluster_reader.look(session, topics=())
    request = pb.AlterPartitionReassignmentsRequest(
        partitions=[
            pb.ReassignablePartition(topic=topic, partition=n, replicas=pb.ReplicaList(broker_ids=ids))
            for n, ids in wanted.items()
        ]
    )
    answer = await admin.ask(cluster_state.controller_endpoint, "AlterPartitionReassignments", request, 20.0)
    assert [entry.error_message for entry in answer.responses] == [""] * len(wanted)


async def _made(cluster: Playground, session: Session, topic: str, replicas: Sequence[int]) -> ClusterState:
    """A topic of one partition."""
    await cluster.create_topic(session, topic, {0: replicas})
    cluster_state, _ = await cluster.until(session, topic, lambda s: placed(s, topic) == {0: list(replicas)})
    return cluster_state


async def _moves_of_data(cluster: Playground, session: Session) -> None:
    """High watermarks come along; by API and by znode, where the peer's own data says which."""
    by_znode, by_api = "moved-by-znode", "moved-by-api"
    count = 100
    cluster_state = await _made(cluster, session, by_znode, [1])
    assert await served(cluster_state, by_znode, count) == count
    listed = [{"topic": by_znode, "partition": 0, "replicas": [2, 3]}]
    data = json.dumps({"version": 1, "partitions": listed}).encode()
    await session.create(znode_paths.REASSIGN_PARTITIONS, data)
    cluster_state, _ = await cluster.until(
        session, "moved by znode", lambda s: placed(s, by_znode) == {0: [2, 3]}
    )
    assert found(cluster_state, by_znode).leader == 2
    async with asyncio.timeout(20):
        while await session.exists(znode_paths.REASSIGN_PARTITIONS) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await served(cluster_state, by_znode, 1) == count + 1

    cluster_state = await _made(cluster, session, by_api, [1, 2])
    assert await served(cluster_state, by_api, count) == count
    # A frozen target stands for the throttle: the move goes on for as long as it takes.
    target = cluster.members["broker-4"]
    target.signal(signal.SIGSTOP)
    try:
        await move(session, by_api, {0: [4, 2]})
        assert await served(cluster_state, by_api, count) == 2 * count
        cluster_state = await cluster_reader.look(session)
        assert cluster_state.topics[by_api].adding == {0: (4,)}
    finally:
        target.signal(signal.SIGCONT)
    cluster_state, _ = await cluster.until(
        session, "moved by API", lambda s: placed(s, by_api) == {0: [4, 2]}
    )
    assert await served(cluster_state, by_api, 1) == 2 * count + 1


@pytest.mark.long
async def test_moves_keep_their_data_and_go_on_through_bounces(start_cluster: StartCluster) -> None:
    """K313 and K329 (latest offsets), K316 and K347 (produce and consume meanwhile), K565 (a shuffle, and bounces)."""
    cluster = start_cluster(controllers=1, brokers=4, session_timeout_ms=10_000)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.until(session, "all brokers", lambda s: len(s.brokers) == 4)
        await _moves_of_data(cluster, session)

        count = 20
        lists = [[1 + (n + i) % 4 for i in range(3)] for n in range(count)]
        await cluster.create_topic(session, TOPIC, dict(enumerate(lists)), {"min.insync.replicas": "3"})
        await cluster.until(session, "the topic", lambda s: len(placed(s, TOPIC)) == count)
        workload = WorkloadCheck(cluster, TOPIC, count)
        await workload.start()
        wanted = {n: [1 + (b + 1 + n % 2) % 4 for b in ids] for n, ids in enumerate(lists)}
        began = time.monotonic()
        await move(session, TOPIC, wanted)
        for broker in (1, 3):
            member = cluster.members[f"broker-{broker}"]
            await asyncio.to_thread(member.stop)
            member.start()
        await cluster.until(session, "shuffled", lambda s: placed(s, TOPIC) == wanted)
        cluster.say(f"{count} partitions moved in {time.monotonic() - began:.1f} s, two brokers bounced")
        await workload.wait_for_writes(now_us(), "the shuffle")
        assert (await workload.verdict(session)).ok
