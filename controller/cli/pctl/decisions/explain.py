"""``pctl explain``: reasons for a state, from the active controller, or from ZooKeeper if no controller answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from controller.cli.common.options import BROKER, PARTITION, Options, Verbs, offline, on_cluster
from controller.cli.common.output import fail, print_data
from controller.client import admin, last_address
from controller.core import znode_paths
from proto.gen import common_pb2
from proto.gen import inspection_pb2 as pb

if TYPE_CHECKING:
    # Imported where ZooKeeper is asked: mostly the last controller answers.
    from controller.planning.snapshot import Snapshot
    from controller.runtime.zookeeper.session import Session

    FromZooKeeper = Callable[[Session], Awaitable[dict[str, Any]]]

CONTROLLER = "controller"


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
@offline
@click.pass_obj
def explain_partition_verb(
    options: Options, topic: str, partition: int, unclean_default: bool, offline: bool
) -> None:
    """Show its state, each election rule, which replica fails which rule, and what would change it."""

    async def from_zookeeper(session: Session) -> dict[str, Any]:
        from controller.cli.computed import explanations, snapshots

        cluster_state, snapshot = await snapshots.read_snapshot(session, unclean_default=unclean_default)
        active = cluster_state.controller_id >= 0
        found = explanations.of_partition(snapshot, topic, partition, controller_active=active)
        return found or _no_partition(snapshot, topic, partition)

    request = pb.ExplainRequest(partition=common_pb2.PartitionName(topic=topic, partition=partition))
    _show(options, request, from_zookeeper, offline)


def _no_partition(snapshot: Snapshot, topic: str, partition: int) -> NoReturn:
    path = znode_paths.topic_path(topic)
    problem = snapshot.problems.get(path)
    fail(f"no partition {topic}-{partition}" if problem is None else f"{path}: {problem}")


@explain.command("broker")
@click.argument("broker", type=BROKER)
@click.option("--all", "every", is_flag=True, help="each partition, not one line for each topic and deficit")
@offline
@click.pass_obj
def explain_broker_verb(options: Options, broker: int, every: bool, offline: bool) -> None:
    """Show whether it is registered, what it leads, where it is out of sync, and what operators set for it."""

    async def from_zookeeper(session: Session) -> dict[str, Any]:
        from controller.cli.computed import explanations, snapshots

        _, snapshot = await snapshots.read_snapshot(session)
        return explanations.of_broker(snapshot, broker)

    _show(options, pb.ExplainRequest(broker=broker), from_zookeeper, offline, every)


@explain.command("controller")
@offline
@click.pass_obj
def explain_controller_verb(options: Options, offline: bool) -> None:
    """Show which controller is active, since which epoch, its settings, and the other candidates."""

    async def from_zookeeper(session: Session) -> dict[str, Any]:
        from controller.cli.computed import explanations
        from controller.runtime.zookeeper import cluster_reader

        return explanations.of_controller(await cluster_reader.look(session, topics=()))

    _show(options, pb.ExplainRequest(controller=True), from_zookeeper, offline)


@explain.command("deletion")
@click.argument("topic")
@offline
@click.pass_obj
def explain_deletion_verb(options: Options, topic: str, offline: bool) -> None:
    """Show why a topic is not deleted yet: which brokers still have which replicas, and what would change it."""

    async def from_zookeeper(session: Session) -> dict[str, Any]:
        from controller.cli.computed import explanations, snapshots

        _, snapshot = await snapshots.read_snapshot(session)
        found = explanations.of_deletion(snapshot, topic)
        return found or fail(f"no topic {topic!r}: it is deleted, or never existed")

    _show(options, pb.ExplainRequest(deletion=topic), from_zookeeper, offline)


@explain.command("reassignment")
@click.argument("topic")
@click.argument("partition", type=PARTITION)
@offline
@click.pass_obj
def explain_reassignment_verb(options: Options, topic: str, partition: int, offline: bool) -> None:
    """Show why a reassignment is not completed yet: which target is not in sync, and what would change it."""

    async def from_zookeeper(session: Session) -> dict[str, Any]:
        from controller.cli.computed import explanations, snapshots

        _, snapshot = await snapshots.read_snapshot(session)
        found = explanations.of_reassignment(snapshot, topic, partition)
        return found or _no_partition(snapshot, topic, partition)

    request = pb.ExplainRequest(reassignment=common_pb2.PartitionName(topic=topic, partition=partition))
    _show(options, request, from_zookeeper, offline)


def _show(
    options: Options,
    request: pb.ExplainRequest,
    from_zookeeper: FromZooKeeper,
    offline: bool,
    every: bool = False,
) -> None:
    """``every``: print each of the broker's deficits, too."""
    answer = None if offline else asyncio.run(_from_last(options, request))
    if answer is not None:
        _print(options, {"source": CONTROLLER, **msgspec.json.decode(answer.explanation)}, every)
    else:
        _found_by_zookeeper(options, request, from_zookeeper, offline, every)


async def _from_last(options: Options, request: pb.ExplainRequest) -> Any | None:
    """The answer of the controller that was active last; None: whoever is active now has to be looked for."""
    endpoint = last_address.last(options.zookeeper)
    if not endpoint:
        return None
    try:
        return await admin.ask(endpoint, "Explain", request, options.timeout_s, options.tls)
    except admin.RefusedError as error:
        if error.error != "OPERATION_NOT_ATTEMPTED":
            fail(error.message)
    except admin.NoAnswerError:
        pass
    return None


@on_cluster
async def _found_by_zookeeper(
    options: Options,
    session: Session,
    request: pb.ExplainRequest,
    from_zookeeper: FromZooKeeper,
    offline: bool,
    every: bool,
) -> None:
    from controller.cli.computed import snapshots

    data = await snapshots.from_controller_or_zookeeper(
        options, session, "Explain", request, "explanation", partial(from_zookeeper, session), offline=offline
    )
    _print(options, data, every)


def _print(options: Options, data: Mapping[str, Any], every: bool) -> None:
    if options.output == "table":
        for line in data["words"]:
            click.echo(line)
        for line in data["lacks"] if every else ():
            click.echo(f"  {line}")
    else:
        print_data(data, options.output)
