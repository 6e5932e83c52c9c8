"""``pctl partitions``: each partition's leader, epochs and in-sync replicas, and why one is unavailable or
under-replicated."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import click

from controller.cli.common.cluster_state import (
    fail_without_cluster,
    fail_without_readable_topic,
    note_left_out,
    note_problems,
)
from controller.cli.common.lists import names as list_of_names
from controller.cli.common.options import Listing, Options, on_cluster
from controller.cli.common.output import note, print_rows
from controller.cli.common.replica_problems import ReplicaProblems, replica_problems
from controller.cli.common.requests import ask
from controller.cli.computed.from_brokers import or_from_brokers, partitions_told
from controller.core.model import without_data
from controller.core.names import INTERNAL_TOPICS
from controller.planning.restrictions import attribution_text
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2

PARTITION_COLUMNS = (
    "topic",
    "partition",
    "leader",
    "leader_epoch",
    "replicas",
    "isr",
    "min_isr",
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
    help="also each replica's size and lag, and failed disks, which the controller asks of the brokers",
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


def why(cluster_state: ClusterState, partition: PartitionInfo) -> str:
    """Why a partition is unavailable or under-replicated, as text; empty if it is neither."""
    state, registered = partition.state, cluster_state.brokers.keys()
    offline = [b for b in partition.replicas if b not in registered]
    if (state is None or state.leader < 0) and cluster_state.is_deleting(partition.topic):
        return "its topic is being deleted"
    if state is None:
        return f"no state yet: replicas {offline} are offline" if offline else "no state yet"
    if state.leader < 0:
        alive = [b for b in state.isr if b in registered]
        if not alive:
            return f"no member of the ISR {list(state.isr)} is alive"
        if without_data(cluster_state.brokers, state).issuperset(state.isr):
            return (
                f"the ISR {list(state.isr)} came back without the data it had: only an unclean election helps"
            )
        paused = attribution_text(cluster_state.maintenance.paused)
        held = f"elections are paused {paused}" if paused else "no new leader is elected yet"
        return f"{', '.join(map(str, alive))} of the ISR {list(state.isr)} is alive, but {held}"
    if state.leader not in registered:
        return f"its leader {state.leader} is offline, and no new leader is elected yet"
    lagging = [b for b in partition.replicas if b not in state.isr]
    if lagging:
        return f"out of sync: {', '.join(f'{b} (offline)' if b in offline else str(b) for b in lagging)}"
    return ""


def partition_row(
    cluster_state: ClusterState,
    partition: PartitionInfo,
    problems: ReplicaProblems = MappingProxyType({}),
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
        "min_isr": min(cluster_state.min_isr(partition.topic), len(partition.replicas)),
        "partition_epoch": state.partition_epoch if state else None,
        "controller_epoch": state.controller_epoch if state else None,
        "recovery": ("RECOVERING" if state.recovery else "RECOVERED") if state else None,
        "why": "; ".join(filter(None, [why(cluster_state, partition), *known])),
    }


@click.command(cls=Listing)
@click.option(
    "--topic", "topics", multiple=True, callback=list_of_names, help="only this topic; may be repeated"
)
@click.option("--unavailable", is_flag=True, help="only partitions without a leader")
@click.option("--under-replicated", is_flag=True, help="only partitions with a replica out of sync")
@click.option(
    "--under-min-isr", is_flag=True, help="only partitions with fewer in sync than min.insync.replicas"
)
@click.option(
    "--at-min-isr", is_flag=True, help="only partitions with just as many in sync as min.insync.replicas"
)
@click.option("--internal", is_flag=True, help="also partitions of internal topics; they are always searched")
@sizes_option
@click.pass_obj
@or_from_brokers(partitions_told)
@on_cluster
async def partitions(
    options: Options,
    session: Session,
    topics: tuple[str, ...],
    unavailable: bool,
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    internal: bool,
    sizes: bool,
) -> None:
    """List partitions: leader, epochs, ISR, and why one is unavailable, under-replicated, or refused by a broker."""
    cluster_state = await cluster_reader.look(session, topics=topics or None, configs=True)
    await fail_without_cluster(options.zookeeper, session, cluster_state)
    for name in topics:
        fail_without_readable_topic(cluster_state, name)
    spare = {id(p): p.spare_in_sync(cluster_state.min_isr(p.topic)) for p in cluster_state.partitions}
    found = [
        p
        for p in cluster_state.partitions
        if (not unavailable or not cluster_state.is_led(p))
        and (not under_replicated or p.under_replicated())
        and (not under_min_isr or (spare[id(p)] or 0) < 0)
        and (not at_min_isr or spare[id(p)] == 0)
    ]
    searched = bool(topics) or unavailable or under_replicated or under_min_isr or at_min_isr
    shown = found if internal or searched else [p for p in found if p.topic not in INTERNAL_TOPICS]
    problems = await replica_problems(options, cluster_state, topics)
    rows = [partition_row(cluster_state, p, problems) for p in shown]
    if sizes:
        await add_sizes(options, session, rows, topics)
    print_rows(rows, PARTITION_COLUMNS + SIZE_COLUMNS * sizes, options.output)
    note_left_out(len(found) - len(shown), "partition")
    note_problems(cluster_state)
