"""``pctl explain``: reasons for a state, from the active controller, or from ZooKeeper if no controller answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import click

from controller.cli.common import snapshots
from controller.cli.common.options import BROKER, PARTITION, Options, Verbs, on_cluster
from controller.cli.common.output import fail, print_data
from controller.core import znode_paths
from controller.core.explain.partitions import (
    explain_broker,
    explain_controller,
    explain_deletion,
    explain_move,
    explain_partition,
)
from controller.core.explain.work import explain_reassignment, explain_topic_deletion
from controller.planning.context import cluster_of
from controller.planning.executor import Executor
from controller.planning.snapshot import Snapshot, unclean_allowed
from controller.runtime.rpc.translate.plan_data import explanation_data
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2
from proto.gen import inspection_pb2 as pb


@click.group(cls=Verbs)
def explain() -> None:
    """Explain the state of a partition, a broker, the controller, a deletion or a reassignment."""


@explain.command("partition")
@click.argument("topic")
@click.argument("partition", type=PARTITION)
@click.option(
    "--unclean-default",
    is_flag=True,
    help="assume unclean_leader_election_enable = true if no controller answers",
)
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_partition_verb(
    options: Options, session: Session, topic: str, partition: int, unclean_default: bool, offline: bool
) -> None:
    """Show its state, each election rule, which replica fails which rule, and what would change it."""

    async def from_zookeeper() -> dict[str, Any]:
        cluster_state, snapshot = await snapshots.read_snapshot(session, unclean_default=unclean_default)
        cluster = cluster_of(snapshot)
        found = cluster.partition(topic, partition)
        if found is None:
            _no_partition(snapshot, topic, partition)
        explained = explain_partition(
            cluster,
            found,
            unclean_allowed=unclean_allowed(snapshot, topic),
            controller_active=cluster_state.controller_id >= 0,
        )
        notes = _pending_work_notes(snapshot, topic, partition)
        return explanation_data(replace(explained, notes=notes))

    request = pb.ExplainRequest(partition=common_pb2.PartitionName(topic=topic, partition=partition))
    await _show(options, session, request, from_zookeeper, offline)


def _no_partition(snapshot: Snapshot, topic: str, partition: int) -> NoReturn:
    path = znode_paths.topic_path(topic)
    problem = snapshot.problems.get(path)
    fail(f"no partition {topic}-{partition}" if problem is None else f"{path}: {problem}")


def _pending_work_notes(snapshot: Snapshot, topic: str, number: int) -> tuple[str, ...]:
    """Notes on the topic's deletion and the partition's reassignment, as a new controller would find them."""
    executor = Executor(snapshot)
    cluster = executor.machine.cluster
    partition = cluster.partition(topic, number)
    if partition is None:
        return ()
    return (*explain_deletion(cluster, topic), *explain_move(cluster, executor.machine.settings, partition))


@explain.command("broker")
@click.argument("broker", type=BROKER)
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_broker_verb(options: Options, session: Session, broker: int, offline: bool) -> None:
    """Show whether it is registered, what it leads, where it is out of sync, and what operators set for it."""

    async def from_zookeeper() -> dict[str, Any]:
        _, snapshot = await snapshots.read_snapshot(session)
        return explanation_data(explain_broker(cluster_of(snapshot), broker))

    await _show(options, session, pb.ExplainRequest(broker=broker), from_zookeeper, offline)


@explain.command("controller")
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_controller_verb(options: Options, session: Session, offline: bool) -> None:
    """Show which controller is active, since which epoch, its settings, and the other candidates."""

    async def from_zookeeper() -> dict[str, Any]:
        cluster_state = await cluster_reader.look(session, topics=(), states=False)
        candidates = [c.controller_id for c in cluster_state.controllers]
        known = explain_controller(cluster_state.controller_id, cluster_state.controller_epoch, candidates)
        suspension = cluster_state.maintenance.suspension
        notes = (f"the controllers start no automatic work: {suspension}",) if suspension else ()
        return explanation_data(replace(known, notes=notes))

    await _show(options, session, pb.ExplainRequest(controller=True), from_zookeeper, offline)


@explain.command("deletion")
@click.argument("topic")
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_deletion_verb(options: Options, session: Session, topic: str, offline: bool) -> None:
    """Show why a topic is not deleted yet: which brokers still have which replicas, and what would change it."""

    async def from_zookeeper() -> dict[str, Any]:
        _, snapshot = await snapshots.read_snapshot(session)
        machine = Executor(snapshot).machine
        found = explain_topic_deletion(machine.cluster, machine.settings, topic)
        if found is None:
            fail(f"no topic {topic!r}: it is deleted, or never existed")
        return explanation_data(found)

    await _show(options, session, pb.ExplainRequest(deletion=topic), from_zookeeper, offline)


@explain.command("reassignment")
@click.argument("topic")
@click.argument("partition", type=PARTITION)
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_reassignment_verb(
    options: Options, session: Session, topic: str, partition: int, offline: bool
) -> None:
    """Show why a reassignment is not completed yet: which target is not in sync, and what would change it."""

    async def from_zookeeper() -> dict[str, Any]:
        _, snapshot = await snapshots.read_snapshot(session)
        machine = Executor(snapshot).machine
        found = machine.cluster.partition(topic, partition)
        if found is None:
            _no_partition(snapshot, topic, partition)
        return explanation_data(explain_reassignment(machine.cluster, machine.settings, found))

    request = pb.ExplainRequest(reassignment=common_pb2.PartitionName(topic=topic, partition=partition))
    await _show(options, session, request, from_zookeeper, offline)


async def _show(
    options: Options, session: Session, request: pb.ExplainRequest, from_zookeeper: Any, offline: bool
) -> None:
    data = await snapshots.from_controller_or_zookeeper(
        options, session, "Explain", request, "explanation", from_zookeeper, offline=offline
    )
    if options.output == "table":
        for line in data["words"]:
            click.echo(line)
    else:
        print_data(data, options.output)
