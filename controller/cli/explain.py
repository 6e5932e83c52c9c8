"""``pctl explain``: why it is as it is, from ZooKeeper alone: it answers when no controller lives."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from controller.cli import snapshots
from controller.cli.output import fail, print_data
from controller.cli.verbs import Options, Verbs, on_cluster
from controller.core.explanation import (
    BrokerExplanation,
    ControllerExplanation,
    PartitionExplanation,
    explain_broker,
    explain_controller,
    explain_deletion,
    explain_move,
    explain_partition,
    kept_from,
)
from controller.planning.executor import Executor
from controller.planning.snapshot import Snapshot
from controller.runtime import inspection, znodes
from controller.runtime.zookeeper import Session

NUMBER = click.IntRange(0, znodes.INT_MAX)


@click.group(cls=Verbs)
def explain() -> None:
    """Why a partition, a broker or the controller is as it is, and what would change it."""


@explain.command("partition")
@click.argument("topic")
@click.argument("partition", type=NUMBER)
@click.option(
    "--unclean-default", is_flag=True, help="the controllers run with unclean_leader_election_enable = true"
)
@click.pass_obj
@on_cluster
async def explain_partition_verb(
    options: Options, session: Session, topic: str, partition: int, unclean_default: bool
) -> None:
    """Its state, each election rule, which replica fails which, and what would change it."""
    seen, snapshot = await snapshots.look(session)
    found = snapshots.cluster_of(snapshot).partition(topic, partition)
    if found is None:
        path = znodes.topic_path(topic)
        fail(
            f"{path}: {seen.problems[path]}" if path in seen.problems else f"no partition {topic}-{partition}"
        )
    explained = explain_partition(
        snapshots.cluster_of(snapshot),
        found,
        unclean_allowed=snapshots.unclean_allowed(snapshot, topic, unclean_default),
        controller_active=seen.controller_id >= 0,
    )
    _show(options, replace(explained, notes=_what_holds_it(snapshot, topic, partition)))


def _what_holds_it(snapshot: Snapshot, topic: str, number: int) -> tuple[str, ...]:
    """Deletion and reassignment, as a controller that takes over now finds them."""
    executor = Executor(snapshot)
    cluster = executor.machine.cluster
    partition = cluster.partition(topic, number)
    if partition is None:
        return ()
    return (*explain_deletion(cluster, topic), *explain_move(cluster, executor.machine.settings, partition))


@explain.command("broker")
@click.argument("broker", type=NUMBER)
@click.pass_obj
@on_cluster
async def explain_broker_verb(options: Options, session: Session, broker: int) -> None:
    """Whether it is there, what it leads, and what it lacks."""
    _, snapshot = await snapshots.look(session)
    _show(options, explain_broker(snapshots.cluster_of(snapshot), broker))


@explain.command("controller")
@click.pass_obj
@on_cluster
async def explain_controller_verb(options: Options, session: Session) -> None:
    """Who it is, since which epoch, and who would be next."""
    seen = await inspection.look(session, topics=(), states=False)
    candidates = [c.controller_id for c in seen.controllers]
    explained = explain_controller(seen.controller_id, seen.controller_epoch, candidates)
    _show(options, replace(explained, notes=tuple(kept_from(seen.maintenance))))


def _show(
    options: Options, explained: PartitionExplanation | BrokerExplanation | ControllerExplanation
) -> None:
    if options.output == "table":
        for line in explained.words():
            click.echo(line)
    else:
        print_data({**asdict(explained), "words": explained.words()}, options.output)
