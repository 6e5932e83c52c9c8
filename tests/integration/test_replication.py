"""Replication between real brokers when something goes wrong with one: disks, versions, shutdowns, bad input."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import grpc
import grpc.aio
import pytest

from broker_stub.client.errors import ClientError
from broker_stub.client.producer import Producer
from controller.core import znode_paths
from controller.playground.cluster import Playground
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2 as codes
from tests.integration.conftest import StartCluster, read_records
from tests.support.paths import take_away

pytestmark = pytest.mark.slow

TOPIC = "t"


def of_topic(cluster_state: ClusterState) -> list[PartitionInfo]:
    return [p for p in cluster_state.partitions if p.topic == TOPIC]


def in_sync(cluster_state: ClusterState, brokers: int = 3) -> bool:
    """All registered, every replica in its ISR."""
    ours = of_topic(cluster_state)
    return (
        len(cluster_state.brokers) == brokers and bool(ours) and not any(p.under_replicated() for p in ours)
    )


def leaders(cluster_state: ClusterState) -> list[int]:
    return [p.state.leader for p in of_topic(cluster_state) if p.state is not None]


async def begin(cluster: Playground, session: Session, partitions: int = 3) -> WorkloadCheck:
    """A topic with load on it; min ISR 2."""
    await cluster.until(session, "all brokers", lambda s: len(s.brokers) == 3)
    await cluster.create_topic(session, TOPIC, (partitions, 3), {"min.insync.replicas": "2"})
    await cluster.until(session, "all in sync", in_sync)
    workload = WorkloadCheck(cluster, TOPIC, partitions)
    await workload.start()
    return workload


async def test_isr_changes_by_notification(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before AlterPartition leaders write the ISR themselves and tell the controller by znode (section 8.4)."""
    monkeypatch.setenv("BROKER_STUB_INTER_BROKER_PROTOCOL_VERSION", "2.6")
    cluster = start_cluster(controllers=1)
    workload = await begin(cluster, session)
    cluster.members["broker-3"].kill()
    await cluster.until(session, "two are left", lambda s: len(s.brokers) == 2)
    cluster.members["broker-3"].start()
    await cluster.until(session, "broker 3 is in sync again", in_sync)

    def heard() -> bool:
        records = read_records(cluster.state_logs / "controller-1")
        return any(r["cause"] == "IsrChangeNotification" for r in records)

    async with asyncio.timeout(30):
        while not heard() or await session.children(znode_paths.ISR_NOTIFICATIONS):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (await workload.verdict(session)).ok


async def test_a_lagging_follower_leaves_the_isr_and_returns(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K564 and K578: long before its session expires leaders shrink the ISR by lag time, and writes go on."""
    monkeypatch.setenv("BROKER_STUB_REPLICA_LAG_TIME_MAX_MS", "1500")
    cluster = start_cluster(controllers=1, session_timeout_ms=40_000)
    workload = await begin(cluster, session)
    follower = cluster.members["broker-3"]
    follower.signal(signal.SIGSTOP)
    frozen_us = time.time_ns() // 1000

    def left(cluster_state: ClusterState) -> bool:
        led = [p.state for p in of_topic(cluster_state) if p.state is not None and p.state.leader != 3]
        return 3 in cluster_state.brokers and bool(led) and all(3 not in state.isr for state in led)

    cluster_state, _ = await cluster.until(session, "the leaders took broker 3 out", left)
    assert all(p.state is not None and p.state.leader_epoch == 0 for p in of_topic(cluster_state)), (
        "no election was needed"
    )
    follower.signal(signal.SIGCONT)
    await cluster.until(session, "broker 3 is in sync again", in_sync)
    await workload.wait_for_writes(frozen_us, "the freeze")
    records = read_records(cluster.state_logs / "controller-1")
    assert {r["reason"] for r in records if r["kind"] == "isr" and r["cause"] == "AlterPartitionReceived"}
    assert (await workload.verdict(session)).ok


async def test_sigterm_hands_leadership_over_before_the_broker_goes(
    start_cluster: StartCluster, session: Session
) -> None:
    """K556: a leader ends cleanly under load."""
    cluster = start_cluster(controllers=1)
    workload = await begin(cluster, session, partitions=6)
    cluster_state, _ = await cluster.until(session, "broker 1 leads", lambda s: 1 in leaders(s))
    led = leaders(cluster_state).count(1)
    process = cluster.members["broker-1"].process
    assert process is not None
    await asyncio.to_thread(cluster.members["broker-1"].stop)
    assert process.returncode == 0
    # No session had to expire: with the process the registration and its leaderships are gone.
    cluster_state, _ = await cluster.until(session, "seen", lambda _: True)
    assert 1 not in cluster_state.brokers
    assert 1 not in leaders(cluster_state)
    assert -1 not in leaders(cluster_state)
    records = read_records(cluster.state_logs / "controller-1")
    moves = [r for r in records if r["kind"] == "leader" and r.get("reason") == "controlled_shutdown"]
    assert len(moves) == led
    assert all(r["from"] == "1" for r in moves)

    cluster.members["broker-1"].start()
    await cluster.until(session, "broker 1 is in sync again", in_sync)
    assert "log recovered" not in cluster.members["broker-1"].log_path.read_text(), (
        "a clean end needs no checks"
    )
    assert (await workload.verdict(session)).ok


@pytest.mark.long
async def test_a_removed_log_folder_costs_one_replica(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partial disk failure: that replica is offline, its leadership moves, the broker's others stay (section 8.5)."""
    monkeypatch.setenv("BROKER_STUB_REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS", "300")
    cluster = start_cluster(controllers=1)
    workload = await begin(cluster, session)
    cluster_state, _ = await cluster.until(session, "seen", in_sync)
    victim = of_topic(cluster_state)[0]
    assert victim.state is not None
    broker = victim.state.leader
    take_away(cluster.data_dir(broker) / f"{TOPIC}-{victim.partition}")

    def moved(now: ClusterState) -> bool:
        state = next(p.state for p in of_topic(now) if p.partition == victim.partition)
        return state is not None and state.leader not in (-1, broker) and broker not in state.isr

    cluster_state, _ = await cluster.until(session, "the leadership has moved", moved)
    assert broker in cluster_state.brokers
    others = [p for p in of_topic(cluster_state) if p.partition != victim.partition and p.state is not None]
    assert all(p.state is not None and broker in p.state.isr for p in others)
    await workload.wait_for_writes(0, "the folder's removal")

    await asyncio.to_thread(cluster.members[f"broker-{broker}"].stop)
    cluster.members[f"broker-{broker}"].start()
    await cluster.until(session, "the replica is filled anew", in_sync)
    assert (await workload.verdict(session)).ok


def damage(data_dir: Path) -> None:
    """Flip bits in the middle of every log, tear its end, and write nonsense over every checkpoint."""
    for log in data_dir.glob(f"{TOPIC}-*/*.log"):
        content = bytearray(log.read_bytes())
        for position in range(len(content) // 2, len(content) // 2 + 64):
            content[position] ^= 0xFF
        log.write_bytes(content[:-7])
    for checkpoint in [*data_dir.glob("*-checkpoint"), *data_dir.glob(f"{TOPIC}-*/leader-epoch-checkpoint")]:
        checkpoint.write_bytes(os.urandom(100))


async def test_a_damaged_replica_is_cut_and_filled_from_the_leader(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_STUB_REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS", "300")
    cluster = start_cluster(controllers=1)
    workload = await begin(cluster, session)
    await asyncio.sleep(1.0)
    cluster.members["broker-2"].kill()
    damage(cluster.data_dir(2))
    await cluster.until(session, "two are left", lambda s: len(s.brokers) == 2)
    cluster.members["broker-2"].start()
    await cluster.until(session, "broker 2 is in sync again", in_sync)
    log = cluster.members["broker-2"].log_path.read_text()
    assert "log recovered" in log
    assert "replication-offset-checkpoint" in log
    assert (await workload.verdict(session)).ok


async def test_bad_input_is_refused_by_name_and_harms_nobody(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1)
    workload = await begin(cluster, session)
    cluster_state, _ = await cluster.until(session, "seen", in_sync)
    addresses = [
        f"{b.control_endpoint.host}:{b.control_endpoint.port}" for b in cluster_state.brokers.values()
    ]
    async with Producer(addresses, delivery_timeout_ms=2000) as producer:
        with pytest.raises(ClientError) as caught:
            await producer.send(TOPIC, 0, [(None, b"x" * 2_000_000)])
        assert caught.value.code == codes.MESSAGE_TOO_LARGE
        assert "message_max_bytes" in str(caught.value)
        with pytest.raises(ClientError) as caught:
            await producer.send(TOPIC, 99, [(None, b"x")])
        assert caught.value.code in (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.LEADER_NOT_AVAILABLE)
    for address in addresses:
        async with grpc.aio.insecure_channel(address) as channel:
            for method in ("Produce", "Fetch", "JoinGroup", "OffsetCommit", "Metadata"):
                path = f"/partition_controller.v1.BrokerData/{method}"
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"\xff\xff\xff\xffgarbage", timeout=5)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await workload.verdict(session)).ok
