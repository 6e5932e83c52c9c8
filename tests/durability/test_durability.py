"""Acknowledged records and failing brokers: nothing is lost, and where something must be lost it is seen."""

from __future__ import annotations

import asyncio

import pytest

from controller.cli.judgement import BadVerdictError, Judgement
from controller.cli.topics import create_topic, plan_topic
from controller.runtime import inspection
from controller.runtime.inspection import Seen
from controller.workload.checker import Kind
from tests.durability.kills import BROKERS, TOPIC, kill_brokers
from tests.integration.conftest import StartCluster, start_cluster

__all__ = ["start_cluster"]

pytestmark = pytest.mark.slow


async def test_kill_9_of_each_broker_under_load_loses_nothing(start_cluster: StartCluster) -> None:
    """RF 3, min ISR 2. The long form is ``make kills ROUNDS=50``."""
    verdict = await kill_brokers(start_cluster(brokers=BROKERS), rounds=3, seed=1)
    assert verdict.ok
    assert verdict.acknowledged > 100


def _isr(seen: Seen, partition: int = 0) -> list[int]:
    states = [p.state for p in seen.partitions if (p.topic, p.partition) == (TOPIC, partition)]
    return sorted(states[0].isr) if states and states[0] is not None else []


def _leader(seen: Seen) -> int:
    return next((p.state.leader for p in seen.partitions if p.topic == TOPIC and p.state is not None), -1)


async def test_an_unclean_election_loses_records_and_the_checker_sees_it(
    start_cluster: StartCluster,
) -> None:
    """RF 2, min ISR 1, unclean election on: the last in-sync replica dies, and one that lags is made leader."""
    cluster = start_cluster(brokers=2)
    async with inspection.connected(cluster.connect, 20_000) as session:
        seen, _ = await cluster.until(session, "both brokers", lambda s: len(s.brokers) == 2)
        configs = ("min.insync.replicas=1", "unclean.leader.election.enable=true")
        await create_topic(session, plan_topic(seen, TOPIC, None, None, "1:2", configs))
        await cluster.until(session, "both in sync", lambda s: _isr(s) == [1, 2])
        judgement = Judgement(cluster, TOPIC, partitions=1)
        await judgement.start()

        cluster.members["broker-2"].kill()
        await cluster.until(session, "broker 1 alone", lambda s: _isr(s) == [1])
        await asyncio.sleep(1.5)
        cluster.members["broker-1"].kill()
        cluster.members["broker-2"].start()
        await cluster.until(session, "the one that lags leads", lambda s: _leader(s) == 2)
        cluster.members["broker-1"].start()
        await cluster.until(session, "both in sync again", lambda s: _isr(s) == [1, 2])

        with pytest.raises(BadVerdictError) as caught:
            await judgement.verdict(session)
    assert Kind.LOST in str(caught.value) or "lost" in str(caught.value)
