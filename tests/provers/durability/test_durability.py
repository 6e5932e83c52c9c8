"""Acknowledged records and failing brokers: nothing is lost, and where something must be lost it is seen."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.playground.cluster import Playground
from controller.playground.verdict import BadVerdictError, WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.workload.checker import Kind
from tests.integration.conftest import StartCluster, start_cluster
from tests.provers.durability.kills import BROKERS, TOPIC, begin, kill_brokers, whole

__all__ = ["start_cluster"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_kill_9_of_each_broker_under_load_loses_nothing(
    rounds: int, start_cluster: StartCluster
) -> None:
    """RF 3, min ISR 2. The long form is ``make kills ROUNDS=50``."""
    verdict = await kill_brokers(start_cluster(brokers=BROKERS), rounds=rounds, seed=1)
    assert verdict.ok
    assert verdict.acknowledged > 30 * rounds


@pytest.mark.long
async def test_everything_killed_at_once_under_load_loses_nothing(start_cluster: StartCluster) -> None:
    """Controllers and brokers, in one moment: what was acknowledged is in the logs."""
    cluster = start_cluster(brokers=BROKERS)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        workload = await begin(cluster, session)
        await asyncio.sleep(1.0)
        everybody = [member for name, member in cluster.members.items() if name != "workload"]
        for member in everybody:
            member.signal(signal.SIGKILL)
        killed_us = time.time_ns() // 1000
        for member in everybody:
            member.kill()
            member.start()
        await workload.wait_for_writes(killed_us, "the end of everything")
        await cluster.until(session, "every replica in sync", whole)
        assert (await workload.verdict(session)).ok


@pytest.mark.long
async def test_a_frozen_leader_wakes_up_deposed_and_loses_nothing(start_cluster: StartCluster) -> None:
    """It sleeps through its session: others lead, it still thinks that it does, and what it says then counts for
    nothing."""
    cluster = start_cluster(brokers=BROKERS)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        workload = await begin(cluster, session)
        frozen = cluster.members["broker-1"]
        frozen.signal(signal.SIGSTOP)
        frozen_us = time.time_ns() // 1000
        await cluster.until(session, "others lead", lambda s: 1 not in s.brokers)
        await workload.wait_for_writes(frozen_us, "the freeze")
        frozen.signal(signal.SIGCONT)
        await cluster.until(session, "every replica in sync", whole)
        assert (await workload.verdict(session)).ok


@pytest.mark.long
async def test_data_flows_while_zookeeper_is_away(tmp_path: Path) -> None:
    """Leaders and followers need no ZooKeeper as long as nothing changes; what was acknowledged meanwhile stays."""
    with EmbeddedZooKeeper(tmp_path / "own-zookeeper", heap_mb=256, force_sync=False) as zookeeper:
        cluster = Playground(tmp_path / "cluster", 2, BROKERS, zookeeper.connect_string, 10_000)
        cluster.start()
        try:
            async with cluster_reader.connected(cluster.connect, 20_000) as session:
                workload = await begin(cluster, session)
                for server in zookeeper.servers:
                    server.kill(signal.SIGSTOP)
                stopped_us = time.time_ns() // 1000
                await workload.wait_for_writes(stopped_us, "ZooKeeper froze")
                await asyncio.sleep(4.0)
                for server in zookeeper.servers:
                    server.kill(signal.SIGCONT)
                await cluster.until(session, "every replica in sync", whole)
                assert (await workload.verdict(session)).ok
        finally:
            cluster.stop()


def _isr(cluster_state: ClusterState, partition: int = 0) -> list[int]:
    states = [p.state for p in cluster_state.partitions if (p.topic, p.partition) == (TOPIC, partition)]
    return sorted(states[0].isr) if states and states[0] is not None else []


def _leader(cluster_state: ClusterState) -> int:
    return next(
        (p.state.leader for p in cluster_state.partitions if p.topic == TOPIC and p.state is not None), -1
    )


@pytest.mark.long
async def test_an_unclean_election_loses_records_and_the_checker_sees_it(
    start_cluster: StartCluster,
) -> None:
    """RF 2, min ISR 1, unclean election on: the last in-sync replica dies, and one that lags is made leader."""
    cluster = start_cluster(brokers=2)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.until(session, "both brokers", lambda s: len(s.brokers) == 2)
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        await cluster.create_topic(session, TOPIC, {0: (1, 2)}, configs)
        await cluster.until(session, "both in sync", lambda s: _isr(s) == [1, 2])
        workload = WorkloadCheck(cluster, TOPIC, partitions=1)
        await workload.start()

        cluster.members["broker-2"].kill()
        await cluster.until(session, "broker 1 alone", lambda s: _isr(s) == [1])
        await workload.wait_for_writes(time.time_ns() // 1000, "broker 1 was alone")
        cluster.members["broker-1"].kill()
        cluster.members["broker-2"].start()
        await cluster.until(session, "the one that lags leads", lambda s: _leader(s) == 2)
        cluster.members["broker-1"].start()
        await cluster.until(session, "both in sync again", lambda s: _isr(s) == [1, 2])

        with pytest.raises(BadVerdictError) as caught:
            await workload.verdict(session)
    assert Kind.LOST in str(caught.value) or "lost" in str(caught.value)
