"""Brokers killed one after the other while records are written: the load, the rounds, the verdict."""

from __future__ import annotations

import asyncio
import time
from random import Random

from controller.core.model import LeaderAndIsr
from controller.playground.cluster import Playground
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from controller.workload.checker import Verdict

TOPIC = "durable"
BROKERS = 3
#: How long a killed broker stays away, seconds: sometimes its session outlives that, sometimes not.
AWAY_S = (0.0, 6.0)


async def begin(
    cluster: Playground, session: Session, partitions: int = 6, rate: float = 100.0
) -> WorkloadCheck:
    """All brokers are there, the topic (RF 3, min ISR 2) is led, the load is on: ``rate`` records a second."""
    await cluster.until(session, "all brokers", lambda s: len(s.brokers) == BROKERS)
    await cluster.create_topic(session, TOPIC, (partitions, BROKERS), {"min.insync.replicas": "2"})
    await cluster.until(session, "the topic is led", whole)
    workload = WorkloadCheck(cluster, TOPIC, partitions, rate)
    await workload.start()
    return workload


def whole(cluster_state: ClusterState) -> bool:
    """Every replica of the topic is in its ISR, and every leader is registered."""
    ours = [p for p in cluster_state.partitions if p.topic == TOPIC]
    return (
        bool(ours)
        and len(cluster_state.brokers) == BROKERS
        and all(isinstance(p.state, LeaderAndIsr) and len(p.state.isr) == len(p.replicas) for p in ours)
        and all(p.state.leader in cluster_state.brokers for p in ours if p.state is not None)
    )


async def kill_brokers(cluster: Playground, rounds: int, seed: int, partitions: int = 6) -> Verdict:
    """Kill -9 one broker a round under load, wait until all replicas are in sync again. Raises BadVerdictError."""
    random = Random(seed)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        workload = await begin(cluster, session, partitions)
        for number in range(rounds):
            victim = 1 + (number % BROKERS)
            member = cluster.members[f"broker-{victim}"]
            await asyncio.sleep(random.uniform(0.1, 1.0))
            began = time.monotonic()
            killed_us = time.time_ns() // 1000
            member.kill()
            await asyncio.sleep(random.uniform(*AWAY_S))
            member.start()
            await cluster.until(session, f"round {number + 1}: every replica in sync", whole)
            await workload.wait_for_writes(killed_us, f"kill -9 of broker {victim}")
            cluster.say(
                f"round {number + 1} of {rounds}: broker {victim} back after {time.monotonic() - began:.1f} s"
            )
        return await workload.verdict(session)
