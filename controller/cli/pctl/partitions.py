"""``pctl partitions``: each partition's leader, epochs and in-sync replicas, and why one is unavailable or
under-replicated."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import click

from controller.cli.common.cluster_state import fail_without_topics, note_problems
from controller.cli.common.options import Listing, Options, on_cluster
from controller.cli.common.output import note, print_rows
from controller.cli.common.replica_problems import ReplicaProblems, replica_problems
from controller.cli.common.requests import ask
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2

PARTITION_COLUMNS = (
    "topic",
    "partition",
    "leader",
    "leader_epoch",
    "replicas",
    "isr",
    "partition_epoch",
    "controller_epoch",
    "recovery",
    "why",
)


#: What brokers say of each replica, in the order of ``replicas``.
SIZE_COLUMNS = ("size_bytes", "offset_lag", "failed_disks")
sizes_option = click.option(
    "--sizes",
    is_flag=True,
    help="also each replica's size and lag, and failed disks, which the controller asks of Kafka brokers",
)


async def add_sizes(
    options: Options, session: Session, rows: Sequence[dict[str, Any]], topics: Sequence[str]
) -> None:
    """Fill SIZE_COLUMNS of these topics' rows, with None for what is not known. Raises RequestFailedError."""
    answer = await ask(
        options, session, "DescribeReplicas", inspection_pb2.DescribeReplicasRequest(topics=topics)
    )
    for silent in answer.silent:
        note(f"pctl: broker {silent.broker} does not say what is on its disks: {silent.why}")
    known = {(p.topic, p.partition): {r.broker: r for r in p.replicas} for p in answer.partitions}
    for row in rows:
        found = known.get((row["topic"], row["partition"]), {})
        for name in ("size_bytes", "offset_lag"):
            row[name] = [
                getattr(found[b], name) if b in found and getattr(found[b], name) >= 0 else None
                for b in row["replicas"]
            ]
        row["failed_disks"] = [b for b, replica in found.items() if replica.on_failed_disk]


def why(partition: PartitionInfo, registered: Sequence[int]) -> str:
    """Why a partition is unavailable or under-replicated, as text; empty if it is neither."""
    state = partition.state
    offline = [b for b in partition.replicas if b not in registered]
    if state is None:
        return f"no state yet: replicas {offline} are offline" if offline else "no state yet"
    if state.leader < 0:
        return f"no member of the ISR {list(state.isr)} is alive"
    if state.leader not in registered:
        return f"its leader {state.leader} is offline, and no new leader is elected yet"
    lagging = [b for b in partition.replicas if b not in state.isr]
    if lagging:
        return f"out of sync: {', '.join(f'{b} (offline)' if b in offline else str(b) for b in lagging)}"
    return ""


def partition_row(
    partition: PartitionInfo, registered: Sequence[int], problems: ReplicaProblems = MappingProxyType({})
) -> dict[str, Any]:
    """``problems``: what brokers refuse or hold otherwise than told."""
    state = partition.state
    known = problems.get((partition.topic, partition.partition), [])
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": state.leader if state else None,
        "leader_epoch": state.leader_epoch if state else None,
        "replicas": list(partition.replicas),
        "isr": list(state.isr) if state else None,
        "partition_epoch": state.partition_epoch if state else None,
        "controller_epoch": state.controller_epoch if state else None,
        "recovery": ("RECOVERING" if state.recovery else "RECOVERED") if state else None,
        "why": "; ".join(filter(None, [why(partition, registered), *known])),
    }


@click.command(cls=Listing)
@click.option("--topic", "topics", multiple=True, help="only this topic; may be repeated")
@click.option("--unavailable", is_flag=True, help="only partitions without a leader")
@click.option("--under-replicated", is_flag=True, help="only partitions with a replica out of sync")
@sizes_option
@click.pass_obj
@on_cluster
async def partitions(
    options: Options,
    session: Session,
    topics: tuple[str, ...],
    unavailable: bool,
    under_replicated: bool,
    sizes: bool,
) -> None:
    """List partitions: leader, epochs, ISR, and why one is unavailable, under-replicated, or refused by a broker."""
    cluster_state = await cluster_reader.look(session, topics=topics or None)
    fail_without_topics(cluster_state, topics)
    registered = list(cluster_state.brokers)
    chosen = [
        p
        for p in cluster_state.partitions
        if (not unavailable or not p.available or (p.state is not None and p.state.leader not in registered))
        and (not under_replicated or p.under_replicated())
    ]
    problems = await replica_problems(options, cluster_state, topics)
    rows = [partition_row(p, registered, problems) for p in chosen]
    if sizes:
        await add_sizes(options, session, rows, topics)
    print_rows(rows, PARTITION_COLUMNS + SIZE_COLUMNS * sizes, options.output)
    note_problems(cluster_state)
