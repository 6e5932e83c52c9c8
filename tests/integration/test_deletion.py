"""Topics deleted between real processes: under load, with a broker away, with the controller killed, made again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from broker_stub.client.errors import ClientError
from broker_stub.client.producer import Producer
from controller.core import znode_paths
from controller.playground.cluster import Playground
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from tests.integration.conftest import StartCluster, read_records

pytestmark = pytest.mark.slow

KEPT, DOOMED = "kept", "doomed"


def folders(cluster: Playground, topic: str, broker_id: int) -> list[Path]:
    """What a broker's data directory holds of a topic."""
    return sorted(cluster.data_dir(broker_id).glob(f"{topic}-*"))


def in_sync(cluster_state: ClusterState, brokers: int = 3) -> bool:
    return (
        len(cluster_state.brokers) == brokers
        and bool(cluster_state.partitions)
        and not any(p.under_replicated() for p in cluster_state.partitions)
    )


async def create(cluster: Playground, session: Session, *names: str, partitions: int = 3) -> None:
    """Topics at replication factor 3, every replica in sync, and on its broker's disk."""
    await cluster.until(session, "all brokers", lambda s: len(s.brokers) == 3)
    for name in names:
        await cluster.create_topic(session, name, (partitions, 3), {"min.insync.replicas": "2"})
    await cluster.until(
        session,
        "all in sync",
        # A new partition is in sync before its brokers have heard of it.
        lambda s: set(names) <= set(s.topics) and in_sync(s) and whole(cluster, names, partitions),
    )


def whole(cluster: Playground, names: Sequence[str], partitions: int) -> bool:
    """Whether every broker has every folder."""
    return all(len(folders(cluster, name, b)) == partitions for name in names for b in (1, 2, 3))


async def mark(session: Session, *names: str) -> None:
    """What an operator's tool does."""
    for name in names:
        await session.create(f"{znode_paths.DELETE_TOPICS}/{name}", b"")


async def until_gone(cluster: Playground, session: Session, *names: str, dead: str = "") -> None:
    """No znode is left of the topics, and no folder. ``dead``: a process that was killed on purpose."""

    def gone(cluster_state: ClusterState) -> bool:
        return not cluster_state.deleting and not set(names) & set(cluster_state.topics)

    await cluster.until(session, "the topics are deleted", gone, ignore=[dead])
    for name in names:
        assert name not in await session.children(znode_paths.TOPIC_CONFIGS)
        for broker_id in (1, 2, 3):
            assert folders(cluster, name, broker_id) == []


async def produce(
    cluster: Playground, session: Session, flowing: asyncio.Event, ended: asyncio.Event
) -> None:
    """Write to the doomed topic for as long as it can be done; ``flowing``: a record was acknowledged."""
    cluster_state, _ = await cluster.until(session, "seen", lambda _: True)
    addresses = [
        f"{b.control_endpoint.host}:{b.control_endpoint.port}" for b in cluster_state.brokers.values()
    ]
    acknowledged = 0
    async with Producer(addresses, delivery_timeout_ms=1000) as producer:
        while not ended.is_set():
            with suppress(ClientError):
                await producer.send(DOOMED, acknowledged % 3, [(None, b"x" * 100)])
                acknowledged += 1
                flowing.set()


async def test_deleted_under_load(start_cluster: StartCluster, session: Session) -> None:
    """Its brokers stay up, other topics lose nothing, and what is written to it meanwhile leaves no folder."""
    cluster = start_cluster(controllers=1)
    await create(cluster, session, KEPT, DOOMED)
    workload = WorkloadCheck(cluster, KEPT, 3)
    await workload.start()
    flowing, ended = asyncio.Event(), asyncio.Event()
    load = asyncio.create_task(produce(cluster, session, flowing, ended))
    await flowing.wait()
    await mark(session, DOOMED)
    await until_gone(cluster, session, DOOMED)
    await asyncio.sleep(1.0)
    ended.set()
    await load
    await until_gone(cluster, session, DOOMED)
    records = read_records(cluster.state_logs / "controller-1")
    assert [r["to"] for r in records if r["kind"] == "topic" and r["topic"] == DOOMED] == [
        "deleting",
        "deleted",
    ]
    assert (await workload.verdict(session)).ok


async def test_a_broker_that_is_away_deletes_its_own_when_it_returns(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1)
    await create(cluster, session, KEPT, DOOMED)
    cluster.members["broker-3"].kill()
    await cluster.until(session, "two are left", lambda s: len(s.brokers) == 2, ignore=["broker-3"])
    await mark(session, DOOMED)

    def held() -> bool:
        records = read_records(cluster.state_logs / "controller-1")
        return any(r["kind"] == "topic" and r["to"] == "ineligible for deletion" for r in records)

    async with asyncio.timeout(30):
        while folders(cluster, DOOMED, 1) or folders(cluster, DOOMED, 2) or not held():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert len(folders(cluster, DOOMED, 3)) == 3
    assert DOOMED in await session.children(znode_paths.TOPICS)
    cluster.members["broker-3"].start()
    await until_gone(cluster, session, DOOMED)
    await cluster.until(session, "the other one is in sync", in_sync)


@pytest.mark.long
async def test_the_controller_is_killed_in_the_middle(start_cluster: StartCluster, session: Session) -> None:
    cluster = start_cluster(controllers=2, session_timeout_ms=2000)
    names = [f"{DOOMED}-{n}" for n in range(12)]
    await create(cluster, session, KEPT)
    await create(cluster, session, *names, partitions=6)
    active, _ = await cluster.active(session)
    # A broker that does not answer for a while: the deletion cannot be over before the kill.
    cluster.members["broker-2"].signal(signal.SIGSTOP)
    await mark(session, *names)
    victim = f"controller-{active}"

    def begun() -> bool:
        records = read_records(cluster.state_logs / victim)
        return any(r["kind"] == "replica" and r["to"] == "ReplicaDeletionStarted" for r in records)

    async with asyncio.timeout(30):
        while not begun():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    cluster.members[victim].kill()
    cluster.members["broker-2"].signal(signal.SIGCONT)
    cluster_state, _ = await cluster.until(session, "seen", lambda _: True, ignore=[victim])
    assert sorted(cluster_state.deleting) == sorted(names)
    assert sorted(set(names) & set(cluster_state.topics)) == sorted(names)
    await cluster.active(session, other_than=active)
    await until_gone(cluster, session, *names, dead=victim)

    def ended() -> bool:
        records = read_records(cluster.state_logs / f"controller-{3 - active}")
        return any(r["kind"] == "topic" and r["to"] == "deleted" for r in records)

    # Records are written a moment after what they tell of.
    async with asyncio.timeout(30):
        while not ended():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    cluster.members[victim].start()
    await cluster.until(session, "the other topic is well", in_sync)


async def test_made_again_at_once(start_cluster: StartCluster, session: Session) -> None:
    """As soon as the marker is gone the name is free, and the new topic is a new one in every respect."""
    cluster = start_cluster(controllers=1)
    await create(cluster, session, DOOMED)
    addresses = []
    ids = []
    for _ in range(5):
        cluster_state, _ = await cluster.until(session, "in sync", in_sync)
        ids.append(cluster_state.topics[DOOMED].topic_id)
        addresses = [
            f"{b.control_endpoint.host}:{b.control_endpoint.port}" for b in cluster_state.brokers.values()
        ]
        async with Producer(addresses) as producer:
            # A log that began anew begins at offset 0.
            for number in range(3):
                assert await producer.send(DOOMED, number, [(None, b"x")]) == 0
        await mark(session, DOOMED)
        while DOOMED in await session.children(znode_paths.DELETE_TOPICS):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await cluster.create_topic(session, DOOMED, (3, 3))
        await cluster.until(
            session, "made", lambda s: DOOMED in s.topics and in_sync(s) and whole(cluster, [DOOMED], 3)
        )
    cluster_state, _ = await cluster.until(session, "in sync", in_sync)
    assert len({*ids, cluster_state.topics[DOOMED].topic_id}) == 6
    for broker_id in (1, 2, 3):
        for folder in folders(cluster, DOOMED, broker_id):
            assert cluster_state.topics[DOOMED].topic_id in (folder / "partition.metadata").read_text()
