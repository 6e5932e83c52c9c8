"""``pctl explain``: reasons for a state, from the active controller, or from ZooKeeper if no controller answers."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from controller.cli.common.options import BROKER, PARTITION, Options, Verbs, on_cluster
from controller.cli.common.output import fail, print_data
from controller.cli.computed import snapshots
from controller.core import znode_paths
from controller.planning.snapshot import Snapshot
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
    help="without a controller's answer: assume unclean_leader_election_enable = true",
)
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_partition_verb(
    options: Options, session: Session, topic: str, partition: int, unclean_default: bool, offline: bool
) -> None:
    """Show its state, each election rule, which replica fails which rule, and what would change it."""

    async def from_zookeeper() -> dict[str, Any]:
        from controller.cli.computed import explanations

        cluster_state, snapshot = await snapshots.read_snapshot(session, unclean_default=unclean_default)
        active = cluster_state.controller_id >= 0
        found = explanations.of_partition(snapshot, topic, partition, controller_active=active)
        return found or _no_partition(snapshot, topic, partition)

    request = pb.ExplainRequest(partition=common_pb2.PartitionName(topic=topic, partition=partition))
    await _show(options, session, request, from_zookeeper, offline)


def _no_partition(snapshot: Snapshot, topic: str, partition: int) -> NoReturn:
    path = znode_paths.topic_path(topic)
    problem = snapshot.problems.get(path)
    fail(f"no partition {topic}-{partition}" if problem is None else f"{path}: {problem}")


@explain.command("broker")
@click.argument("broker", type=BROKER)
@click.option("--all", "every", is_flag=True, help="each partition, not one line for each topic and deficit")
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_broker_verb(
    options: Options, session: Session, broker: int, every: bool, offline: bool
) -> None:
    """Show whether it is registered, what it leads, where it is out of sync, and what operators set for it."""

    async def from_zookeeper() -> dict[str, Any]:
        from controller.cli.computed import explanations

        _, snapshot = await snapshots.read_snapshot(session)
        return explanations.of_broker(snapshot, broker)

    await _show(options, session, pb.ExplainRequest(broker=broker), from_zookeeper, offline, every)


@explain.command("controller")
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_controller_verb(options: Options, session: Session, offline: bool) -> None:
    """Show which controller is active, since which epoch, its settings, and the other candidates."""

    async def from_zookeeper() -> dict[str, Any]:
        from controller.cli.computed import explanations

        return explanations.of_controller(await cluster_reader.look(session, topics=(), states=False))

    await _show(options, session, pb.ExplainRequest(controller=True), from_zookeeper, offline)


@explain.command("deletion")
@click.argument("topic")
@snapshots.offline
@click.pass_obj
@on_cluster
async def explain_deletion_verb(options: Options, session: Session, topic: str, offline: bool) -> None:
    """Show why a topic is not deleted yet: which brokers still have which replicas, and what would change it."""

    async def from_zookeeper() -> dict[str, Any]:
        from controller.cli.computed import explanations

        _, snapshot = await snapshots.read_snapshot(session)
        found = explanations.of_deletion(snapshot, topic)
        return found or fail(f"no topic {topic!r}: it is deleted, or never existed")

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
        from controller.cli.computed import explanations

        _, snapshot = await snapshots.read_snapshot(session)
        found = explanations.of_reassignment(snapshot, topic, partition)
        return found or _no_partition(snapshot, topic, partition)

    request = pb.ExplainRequest(reassignment=common_pb2.PartitionName(topic=topic, partition=partition))
    await _show(options, session, request, from_zookeeper, offline)


async def _show(
    options: Options,
    session: Session,
    request: pb.ExplainRequest,
    from_zookeeper: Any,
    offline: bool,
    every: bool = False,
) -> None:
    """``every``: print each of the broker's deficits, too."""
    data = await snapshots.from_controller_or_zookeeper(
        options, session, "Explain", request, "explanation", from_zookeeper, offline=offline
    )
    if options.output == "table":
        for line in data["words"]:
            click.echo(line)
        for line in data["lacks"] if every else ():
            click.echo(f"  {line}")
    else:
        print_data(data, options.output)
