"""``pctl topics create`` and ``pctl topics alter``: placed, judged and written by the active controller."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from controller.cli.common import dry_run as trial
from controller.cli.common.confirmation import (
    Progress,
    ask,
    confirm,
    dry_run_option,
    follow,
    no_wait_option,
    refusals,
    report,
    yes_allowed,
    yes_option,
)
from controller.cli.common.options import Options, Verb, on_cluster
from controller.cli.common.output import fail, note, print_rows
from controller.cli.pctl.config import parse_configs
from controller.cli.pctl.partitions import why
from controller.core.model import BrokerIds
from controller.core.partitions.replica_placement import PlacementError, parse_assignment
from controller.runtime.zookeeper import cluster_reader, codecs
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb

_no_wait = no_wait_option("every partition has a leader")


@click.command("create", cls=Verb)
@click.argument("topic")
@click.option("--partitions", "count", type=click.IntRange(1, 200_000), help="how many")
@click.option("--replication-factor", type=click.IntRange(1, 1000))
@click.option("--replica-assignment", help="broker ids of each partition instead: 1:2:3,2:3:1")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="topic configuration; may be repeated"
)
@yes_allowed
@dry_run_option
@_no_wait
@click.pass_obj
@on_cluster
async def create_topic(
    options: Options,
    session: Session,
    topic: str,
    count: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Create a topic and wait until all its partitions have leaders."""
    by_hand = {} if replica_assignment is None else _by_hand(replica_assignment)
    if by_hand and (count, replication_factor) != (None, None):
        raise click.UsageError(
            "--replica-assignment says it all: leave out --partitions and --replication-factor"
        )
    wanted = pb.CreatableTopic(
        name=topic,
        num_partitions=count or -1,
        replication_factor=replication_factor or -1,
        assignments=by_hand,
        configs=parse_configs(configs),
    )
    request = pb.CreateTopicsRequest(topics=[wanted])
    if dry_run:
        made = await trial.tried(options, session, ("CreateTopics", request))
        _created(topic, made.answers[0])
        trial.show(options, made)
        return
    assignment = _created(topic, await ask(options, session, "CreateTopics", request))
    if not no_wait:
        await wait_for_leaders(options, session, topic, sorted(assignment))
    note(f"created topic {topic} with {len(assignment)} partitions")


def _created(topic: str, response: Any) -> dict[int, BrokerIds]:
    """The assignment of a topic that is (or would be) created; ends the program where it is not."""
    (answer,) = response.topics
    if answer.error_code:
        fail(answer.error_message)
    if answer.error_message:
        note(f"topic {topic}: {answer.error_message}")
    return _assignment(answer.assignments)


def _by_hand(text: str) -> dict[int, pb.ReplicaList]:
    assignment = parse_assignment(text)
    for number, ids in assignment.items():
        if max(ids) > codecs.INT_MAX:
            raise PlacementError(
                f"replica assignment of partition {number}: broker ids must be at most {codecs.INT_MAX}"
            )
    return {number: pb.ReplicaList(broker_ids=ids) for number, ids in assignment.items()}


def _assignment(lists: Mapping[int, Any]) -> dict[int, BrokerIds]:
    return {number: tuple(lists[number].broker_ids) for number in sorted(lists)}


@click.command("alter", cls=Verb)
@click.argument("topic")
@click.option("--partitions", "count", type=click.IntRange(1, 200_000), required=True, help="how many in all")
@click.option("--replica-assignment", help="broker ids of each new partition: 1:2:3,2:3:1")
@yes_option
@dry_run_option
@_no_wait
@click.pass_obj
@on_cluster
async def alter_topic(
    options: Options,
    session: Session,
    topic: str,
    count: int,
    replica_assignment: str | None,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Add partitions to a topic. Keys go to other partitions then, and none can be taken away again."""
    by_hand = {} if replica_assignment is None else _by_hand(replica_assignment)
    wanted = pb.NewPartitions(name=topic, count=count, assignments=list(by_hand.values()))
    if dry_run:
        request = pb.CreatePartitionsRequest(topics=[wanted])
        made = await trial.tried(options, session, ("CreatePartitions", request))
        (answer,) = made.answers[0].results
    else:
        request = pb.CreatePartitionsRequest(topics=[wanted], validate_only=True)
        (answer,) = (await ask(options, session, "CreatePartitions", request)).results
    if not answer.error_code:
        added = _assignment(answer.assignments)
        rows = [{"topic": topic, "partition": n, "replicas": list(ids)} for n, ids in added.items()]
        if not dry_run or options.output == "table":
            print_rows(rows, ("topic", "partition", "replicas"), options.output)
        if answer.error_message:
            note(f"topic {topic}: {answer.error_message}")
        if dry_run:
            trial.show(options, made, partitions=rows)
            return
        confirm(
            f"Add {len(added)} partition{'s' * (len(added) > 1)} to the {min(added)} of {topic}?", yes=yes
        )
        # As shown, whoever registers meanwhile.
        wanted.ClearField("assignments")
        wanted.assignments.extend(pb.ReplicaList(broker_ids=ids) for ids in added.values())
        request = pb.CreatePartitionsRequest(topics=[wanted])
        (answer,) = (await ask(options, session, "CreatePartitions", request)).results
    if code := report(refusals([(topic, answer)])):
        sys.exit(code)
    if not no_wait:
        await wait_for_leaders(options, session, topic, sorted(answer.assignments))
    note(f"topic {topic} has {count} partitions")


async def wait_for_leaders(options: Options, session: Session, topic: str, numbers: Sequence[int]) -> None:
    """Return when these partitions are led; fails with the reason of each that is not in time."""

    async def progress() -> Progress:
        seen = await cluster_reader.look(session, topics=[topic])
        known = {p.partition: p for p in seen.partitions if p.partition in numbers}
        held = [
            f"{topic}-{n} ({why(known[n], list(seen.brokers)) if n in known else 'its topic is gone'})"
            for n in numbers
            if n not in known or not known[n].available
        ]
        return Progress(len(held), len(numbers), tuple(held))

    last = await follow(options, "partitions have leaders", progress)
    if last.left:
        fail(
            f"topic {topic} is written, but after {options.timeout_s:g} s {last.left} of its partitions have no "
            f"leader: {', '.join(last.held[:5])}; see pctl partitions --unavailable",
        )
