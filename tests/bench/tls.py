"""What TLS costs: the same cluster twice, plain and by mutual TLS, taken in turn: writing, pushes, failover."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.client import admin
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from tests.bench import throughput

BROKERS, CONTROLLERS = 3, 2
#: Of a topic that is created, whose leaders are pushed; three replicas each.
PARTITIONS = 2_000
WRITTEN_PARTITIONS = 20
RUNS = 3
console = Console(soft_wrap=True)


async def produced(cluster: Playground, session: Session, topic: str) -> float:
    """Seconds until so many batches are acknowledged by all."""
    found = await cluster_reader.look(session, topics=())
    endpoints = [broker.control_endpoint for broker in found.brokers.values()]
    addresses = [f"{endpoint.host}:{endpoint.port}" for endpoint in endpoints]
    return await throughput.produce(addresses, topic, WRITTEN_PARTITIONS, cluster.tls)


async def created(cluster: Playground, session: Session, topic: str) -> float:
    """Seconds from a request for a topic until nothing of it waits to be pushed."""
    began = time.perf_counter()
    await cluster.create_topic(session, topic, (PARTITIONS, BROKERS))
    await acknowledged(cluster, session)
    return time.perf_counter() - began


async def failed_over(cluster: Playground, session: Session) -> float:
    """Seconds from SIGTERM to the active controller until nothing waits to be pushed by the next one."""
    active, _ = await cluster.active(session)
    member = cluster.members[f"controller-{active}"]
    began = time.perf_counter()
    member.signal(signal.SIGTERM)
    await cluster.active(session, other_than=active)
    await acknowledged(cluster, session)
    took_s = time.perf_counter() - began
    await asyncio.to_thread(member.stop)
    member.start()
    # A controller that is starting takes a core from the next measurement.
    await asyncio.sleep(5)
    return took_s


async def acknowledged(cluster: Playground, session: Session) -> None:
    """Every partition that there is has a leader, and nothing waits to be pushed."""
    while True:
        found = await cluster_reader.look(session, states=False)
        partitions = sum(len(topic.partitions) for topic in found.topics.values())
        answer = await admin.describe_cluster(found.controller_endpoint, 5.0, cluster.tls)
        if (
            not isinstance(answer, str)
            and not answer.error_code
            and len(answer.brokers) == BROKERS
            and sum(broker.leader_count for broker in answer.brokers) == partitions
            and not any(broker.pending_pushes for broker in answer.brokers)
        ):
            return
        await asyncio.sleep(0.005)


def cpu_s(cluster: Playground) -> float:
    """Of the cluster's processes and of this one, so far: a busy machine does not change it much."""
    ticks = 0
    for member in cluster.members.values():
        assert member.process is not None
        fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


async def measured(clusters: dict[str, Playground]) -> dict[tuple[str, str], list[float]]:
    """Seconds by figure and cluster."""
    times: dict[tuple[str, str], list[float]] = {}
    for cluster in clusters.values():
        async with cluster_reader.connected(cluster.connect, 20_000) as session:
            await cluster.active(session)
            await cluster.until(session, "brokers", lambda found: len(found.brokers) == BROKERS)
            await cluster.create_topic(session, "written", (WRITTEN_PARTITIONS, BROKERS))
            await acknowledged(cluster, session)
    for run in range(RUNS):
        for kind, cluster in clusters.items():
            async with cluster_reader.connected(cluster.connect, 20_000) as session:
                for figure, work in (
                    ("produce", produced(cluster, session, "written")),
                    ("pushes", created(cluster, session, f"pushed-{run}")),
                    ("hand-over", failed_over(cluster, session)),
                ):
                    before_s = cpu_s(cluster)
                    took_s = await work
                    times.setdefault((figure, kind), []).append(took_s)
                    if figure != "hand-over":  # which ends a process
                        times.setdefault((f"{figure}, CPU", kind), []).append(cpu_s(cluster) - before_s)
                    console.print(f"  run {run + 1}, {kind}: {figure} {took_s:.2f} s")
    return times


def measure(connect: str, directory: Path, rows: Table) -> None:
    """``connect``: a ZooKeeper without chroot, for both clusters."""
    clusters = {
        kind: Playground(
            directory / f"tls-{kind}", CONTROLLERS, BROKERS, f"{connect}/{kind}", secure=kind == "secured"
        )
        for kind in ("plain", "secured")
    }
    try:
        for cluster in clusters.values():
            cluster.start()
        times = asyncio.run(measured(clusters))
    finally:
        for cluster in clusters.values():
            cluster.stop()
    for figure in ("produce", "produce, CPU", "pushes", "pushes, CPU", "hand-over"):
        plain, secured = (statistics.median(times[figure, kind]) for kind in ("plain", "secured"))
        rows.add_row(
            f"TLS: {figure}", f"{secured:.2f} s", f"{plain:.2f} s without", f"{secured / plain:.2f}", ""
        )
