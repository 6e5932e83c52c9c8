"""``pctl reassign``: reassignment of partitions through the active controller (KIP-455)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from google.protobuf.message import Message

from controller.cli.common.attribution import reason_option
from controller.cli.common.cluster_state import (
    fail_without_brokers,
    fail_without_readable_topic,
    fail_without_topics,
)
from controller.cli.common.confirmation import confirm, dry_run_option, nothing_to_do, yes_option
from controller.cli.common.lists import broker_ids
from controller.cli.common.lists import names as list_of_names
from controller.cli.common.options import FILE, PARTITION, Listing, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import Row, fail, note, print_rows
from controller.cli.common.progress import Progress, follow, no_wait_option
from controller.cli.common.reassignment_files import (
    Key,
    PlanError,
    parse_replicas,
    read_names,
    read_plan,
    write_plan,
)
from controller.cli.common.requests import SAFETY, ask, refusals, report
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.cli.pctl.moving.load import current_assignment, note_copied, print_load, sizes_of, targets
from controller.cli.pctl.moving.throttle import lift, limit_steps, throttle_option, throttled
from controller.core.effects import TopicInfo
from controller.core.model import BrokerIds
from controller.core.names import INTERNAL_TOPICS, counted
from controller.core.partitions.replica_placement import PlacementError
from controller.core.reassignment.assignment import Assignment, target_problem
from controller.core.reassignment.generator import generate
from controller.exit_codes import EXIT_FAILED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2

Wanted = Mapping[Key, BrokerIds]
#: None: cancel the partition's reassignment.
Changes = Mapping[Key, BrokerIds | None]
MOVE_SAFETY = SAFETY | {"INVALID_REPLICA_ASSIGNMENT"}
_PLANNED_COLUMNS = ("topic", "partition", "leader", "isr", "replicas", "new_replicas", "adding", "removing")
_ONGOING_COLUMNS = ("topic", "partition", "replicas", "adding", "removing", "queued", "why")
_FILE = click.argument("plan", required=False, type=FILE, metavar="[FILE]")
_TOPIC = click.option("--topic", help="with --partition: one partition instead of FILE")
_PARTITION = click.option("--partition", type=PARTITION, help="partition of --topic")


@click.group(cls=Verbs)
def reassign() -> None:
    """Reassign partitions to other replicas: generate, execute, list, cancel, verify."""


def _named(plan: Path | None, topic: str | None, partition: int | None) -> list[Key]:
    """The partitions of a file or of the options."""
    one = topic is not None and partition is not None
    if (plan is None) != one or (plan is not None and (topic, partition) != (None, None)):
        raise click.UsageError("name a FILE, or --topic and --partition")
    if plan is not None:
        return read_names(plan)
    assert topic is not None
    assert partition is not None
    return [(topic, partition)]


def _wanted(plan: Path | None, topic: str | None, partition: int | None, replicas: str | None) -> Wanted:
    """Target replicas by partition, of a file or of the options."""
    keys = _named(plan, topic, partition)
    if (plan is None) != (replicas is not None):
        raise click.UsageError("--replicas: must be given with --topic and --partition, and not with FILE")
    if plan is not None:
        return read_plan(plan)
    assert replicas is not None
    ids = parse_replicas(replicas)
    if problem := target_problem(ids):
        raise PlanError(f"--replicas: {problem}")
    return {keys[0]: ids}


async def _read_topics(session: Session, keys: Iterable[Key]) -> ClusterState:
    """Read the topics of these partitions; ends the program if a partition does not exist."""
    keys = list(keys)
    cluster_state = await cluster_reader.look(session, topics=sorted({topic for topic, _ in keys}))
    for topic, number in keys:
        if topic not in cluster_state.topics or number not in cluster_state.topics[topic].partitions:
            fail(f"no partition {topic}-{number}")
    return cluster_state


# --- execute -----------------------------------------------------------------------------------------------


@reassign.command("execute", cls=Verb)
@_FILE
@_TOPIC
@_PARTITION
@click.option("--replicas", help="target broker ids, preferred leader first: 1,2,3")
@reason_option(required=False)
@throttle_option
@yes_option
@dry_run_option
@no_wait_option("the reassignments are completed")
@click.pass_obj
@on_cluster
async def execute(
    options: Options,
    session: Session,
    plan: Path | None,
    topic: str | None,
    partition: int | None,
    replicas: str | None,
    reason: str | None,
    throttle: int | None,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Reassign partitions to the replicas in FILE (format of kafka-reassign-partitions) or in the options."""
    wanted = _wanted(plan, topic, partition, replicas)
    cluster_state = await _read_topics(session, wanted)
    rows = _planned(cluster_state, wanted)
    if not dry_run or options.output == "table":
        print_rows(rows, _PLANNED_COLUMNS, options.output)
    if dry_run:
        await _dry_run(options, session, wanted, rows, limit_steps(cluster_state, wanted, throttle))
    confirm(f"Reassign {counted(len(wanted), 'partition')}?", yes=yes)
    if throttle is not None:
        await throttled(options, session, cluster_state, wanted, throttle)
    code, accepted = await send_changes(options, session, wanted, reason or "")
    accepted_targets = {key: ids for key, ids in wanted.items() if key in accepted}
    if accepted_targets and no_wait:
        note(
            f"the reassignment of {counted(len(accepted_targets), 'partition')} goes on; see pctl reassign list"
        )
    elif accepted_targets:
        await _wait(options, session, accepted_targets)
    if throttle is not None and not (accepted_targets and no_wait):
        code = await _lift(options, session, wanted) or code
    sys.exit(code)


def _planned(cluster_state: ClusterState, wanted: Wanted) -> list[dict[str, Any]]:
    """Rows of the present state, the target replicas, and adding and removing replicas of the topic znode."""
    states = {(p.topic, p.partition): p.state for p in cluster_state.partitions}
    rows = []
    for (topic, number), replicas in wanted.items():
        now = current_assignment(cluster_state.topics[topic], number)
        then = now.reassign_to(replicas)
        state = states.get((topic, number))
        rows.append(
            {
                "topic": topic,
                "partition": number,
                "leader": state.leader if state else None,
                "isr": list(state.isr) if state else None,
                "replicas": list(now.replicas),
                "new_replicas": list(replicas),
                "adding": list(then.adding),
                "removing": list(then.removing),
            }
        )
    return rows


async def _dry_run(
    options: Options,
    session: Session,
    wanted: Changes,
    rows: Sequence[Row],
    before: Sequence[tuple[str, Message]] = (),
) -> NoReturn:
    """Print all writes until completion; ends the program with the exit code of the request. ``before``: other requests
    that come first."""
    moves = ("AlterPartitionReassignments", changes_request(wanted))
    trial = await run_on_copy(options, session, *before, moves)
    print_dry_run(options, trial, partitions=rows)
    answers = trial.answers[-1].responses
    sys.exit(report(refusals((f"{r.topic}-{r.partition}", r) for r in answers), MOVE_SAFETY))


async def send_changes(
    options: Options, session: Session, wanted: Changes, reason: str
) -> tuple[int, set[Key]]:
    """Request reassignments. Returns the exit code and the accepted partitions."""
    request = changes_request(wanted)
    request.reason = reason
    answer = await ask(options, session, "AlterPartitionReassignments", request)
    code = report(refusals((f"{r.topic}-{r.partition}", r) for r in answer.responses), MOVE_SAFETY)
    return code, {(r.topic, r.partition) for r in answer.responses if not r.error_code}


def changes_request(wanted: Changes) -> pb.AlterPartitionReassignmentsRequest:
    return pb.AlterPartitionReassignmentsRequest(
        partitions=[
            pb.ReassignablePartition(
                topic=topic,
                partition=number,
                replicas=None if ids is None else pb.ReplicaList(broker_ids=ids),
            )
            for (topic, number), ids in wanted.items()
        ]
    )


async def _wait(options: Options, session: Session, wanted: Mapping[Key, BrokerIds]) -> None:
    progress = await follow(
        options, "partitions are reassigned", partial(_progress, options, session, list(wanted))
    )
    if progress.left:
        why = f" ({'; '.join(progress.reasons)})" if progress.reasons else ""
        fail(
            f"after {options.timeout_s:g} s {progress.left} of {len(wanted)} partitions are still being "
            f"reassigned{why}; it continues in the background, see pctl reassign list"
        )
    cluster_state = await _read_topics(session, wanted)
    different = [
        f"{topic}-{number} has {list(now)}"
        for (topic, number), ids in wanted.items()
        if (now := cluster_state.topics[topic].partitions[number]) != ids
    ]
    if different:
        fail(f"cancelled or replaced while waiting: {'; '.join(different[:10])}")


async def _progress(options: Options, session: Session, keys: Sequence[Key]) -> Progress:
    ongoing = await ongoing_moves(options, session, keys)
    reasons = [f"{m.topic}-{m.partition}: {'; '.join(m.reasons) or 'about to be completed'}" for m in ongoing]
    return Progress(len(ongoing), len(keys), tuple(reasons))


async def ongoing_moves(options: Options, session: Session, keys: Sequence[Key]) -> Sequence[Any]:
    """Ongoing reassignments of these partitions; without ``keys``, all of them."""
    request = pb.ListPartitionReassignmentsRequest(
        partitions=[common_pb2.PartitionName(topic=topic, partition=number) for topic, number in keys]
    )
    answer = await ask(options, session, "ListPartitionReassignments", request)
    found: Sequence[Any] = answer.partitions
    return found


# --- list, cancel ------------------------------------------------------------------------------------------


@reassign.command("list", cls=Listing)
@click.option(
    "--topic", "topics", multiple=True, callback=list_of_names, help="only this topic; may be repeated"
)
@click.pass_obj
@on_cluster
async def list_reassignments(options: Options, session: Session, topics: tuple[str, ...]) -> None:
    """List ongoing reassignments, and why each is not completed yet."""
    cluster_state = await cluster_reader.look(session, topics=topics, states=False)
    fail_without_topics(cluster_state, topics)
    rows = [
        {
            "topic": entry.topic,
            "partition": entry.partition,
            "replicas": list(entry.replicas),
            "adding": list(entry.adding_replicas),
            "removing": list(entry.removing_replicas),
            "queued": entry.queued,
            "why": "; ".join(entry.reasons),
        }
        for entry in await ongoing_moves(options, session, [])
        if not topics or entry.topic in topics
    ]
    print_rows(rows, _ONGOING_COLUMNS, options.output)


@reassign.command("cancel", cls=Verb)
@_FILE
@_TOPIC
@_PARTITION
@click.option("--all", "everything", is_flag=True, help="every ongoing reassignment")
@yes_option
@dry_run_option
@no_wait_option("the old replicas are restored")
@click.pass_obj
@on_cluster
async def cancel(
    options: Options,
    session: Session,
    plan: Path | None,
    topic: str | None,
    partition: int | None,
    everything: bool,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Cancel reassignments: partitions return to their old replicas. A throttle that execute left is removed."""
    if everything and (plan, topic, partition) != (None, None, None):
        raise click.UsageError("--all: leave out FILE, --topic and --partition")
    keys = [] if everything else _named(plan, topic, partition)
    await _read_topics(session, keys)
    ongoing = await ongoing_moves(options, session, keys)
    known = await cluster_reader.look(session, topics=sorted({m.topic for m in ongoing}), states=False)
    if not ongoing:
        nothing_to_do(options, "none of the partitions is being reassigned", dry_run=dry_run)
        return
    rows = [
        {
            "topic": entry.topic,
            "partition": entry.partition,
            "replicas": list(entry.replicas),
            "keeps": _kept(known.topics.get(entry.topic), entry),
            "drops": list(entry.adding_replicas),
        }
        for entry in ongoing
    ]
    if not dry_run or options.output == "table":
        print_rows(rows, ("topic", "partition", "replicas", "keeps", "drops"), options.output)
    ends: Changes = {(m.topic, m.partition): None for m in ongoing}
    if dry_run:
        await _dry_run(options, session, ends, rows)
    confirm(f"Cancel {counted(len(ongoing), 'reassignment')}?", yes=yes)
    code, accepted = await send_changes(options, session, ends, "cancelled")
    if accepted and not no_wait:
        progress = await follow(
            options,
            "partitions have their old replicas",
            partial(_progress, options, session, sorted(accepted)),
        )
        if progress.left:
            fail(
                f"after {options.timeout_s:g} s not all partitions have their old replicas: "
                f"{'; '.join(progress.reasons)}"
            )
    if accepted:
        code = await _lift(options, session, accepted, accepted) or code
    sys.exit(code)


async def _lift(options: Options, session: Session, named: Iterable[Key], done: Collection[Key] = ()) -> int:
    """Remove the throttle of the topics named, unless others than ``done`` are being reassigned."""
    ongoing = await ongoing_moves(options, session, [])
    return await lift(options, session, {topic for topic, _ in named}, done, ongoing)


def _kept(info: TopicInfo | None, entry: Any) -> list[int]:
    """The replicas that a cancellation restores, in their order before the reassignment."""
    now = Assignment(tuple(entry.replicas), tuple(entry.adding_replicas), tuple(entry.removing_replicas))
    original = info.original.get(entry.partition, ()) if info is not None else ()
    return list(now.cancelled(original).target)


# --- generate, verify --------------------------------------------------------------------------------------


@reassign.command("generate", cls=Verb)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    callback=list_of_names,
    help="only this topic; may be repeated [default: all]",
)
@click.option(
    "--brokers",
    multiple=True,
    callback=broker_ids,
    help="place replicas only on these brokers: 1,2,3 [default: all registered]",
)
@click.option(
    "--replication-factor", type=click.IntRange(1, 1000), help="new number of replicas [default: unchanged]"
)
@click.option("--ignore-racks", is_flag=True, help="do not spread replicas over racks")
@click.option(
    "--by",
    type=click.Choice(["replicas", "bytes"]),
    help="what is to be even among brokers [default: bytes if brokers tell the size of every partition]",
)
@click.option(
    "--include-internal",
    "internal",
    is_flag=True,
    help="also internal topics, which are left out unless named",
)
@click.pass_obj
@on_cluster
async def generate_plan(
    options: Options,
    session: Session,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    replication_factor: int | None,
    ignore_racks: bool,
    by: str | None,
    internal: bool,
) -> None:
    """Print a plan that spreads partitions evenly and moves as few replicas as possible. Changes nothing.

    Standard error shows what brokers hold before and after. pctl reassign execute --throttle carries it out.
    """
    cluster_state = await cluster_reader.look(session, topics=topics or None, states=False)
    for name in topics:
        fail_without_readable_topic(cluster_state, name)
    chosen = list(brokers or cluster_state.brokers)
    fail_without_brokers(cluster_state, chosen, "--brokers: ")
    current = targets(cluster_state, () if internal else set(INTERNAL_TOPICS) - set(topics))
    sizes = {} if by == "replicas" else await sizes_of(options, session, topics)
    unknown = [f"{name}-{number}" for name, number in current if (name, number) not in sizes]
    if by == "bytes" and unknown:
        fail(f"the size of {counted(len(unknown), 'partition')} is not known: {', '.join(unknown[:5])}")
    try:
        planned = generate(
            current,
            [cluster_state.brokers[id_] for id_ in dict.fromkeys(chosen)],
            rack_aware=not ignore_racks,
            replication_factor=replication_factor,
            avoided=cluster_state.maintenance.drained,
            sizes=None if unknown else sizes,
        )
    except PlacementError as error:
        fail(str(error))
    changed = {key: ids for key, ids in planned.items() if ids != current[key]}
    if not changed:
        note("nothing to do: the partitions are spread as evenly as they can be")
        return
    fresh = {b for key, ids in changed.items() for b in ids if b not in current[key]}
    for id_ in sorted(fresh & cluster_state.maintenance.drained.keys()):
        attribution = cluster_state.maintenance.drained[id_]
        note(
            f"broker {id_} is drained ({attribution.author}: {attribution.reason}) but gets replicas: "
            "there are too few other brokers"
        )
    print_load(options, cluster_state, current, changed, sizes, err=True)
    note_copied(current, changed, sizes)
    note("plan to undo it:")
    note(write_plan({key: current[key] for key in changed}))
    click.echo(write_plan(changed))


@reassign.command("verify", cls=Verb)
@click.argument("plan", type=FILE, metavar="FILE")
@click.pass_obj
@on_cluster
async def verify(options: Options, session: Session, plan: Path) -> None:
    """Check whether every partition in FILE has the replicas given there. Exit code 1 if one does not; if all have, a
    throttle that execute left is removed."""
    wanted = read_plan(plan)
    cluster_state = await cluster_reader.look(
        session, topics=sorted({topic for topic, _ in wanted}), states=False
    )
    ongoing = {(m.topic, m.partition): m for m in await ongoing_moves(options, session, list(wanted))}
    rows = []
    for key, ids in wanted.items():
        info = cluster_state.topics.get(key[0])
        now = info.partitions.get(key[1]) if info else None
        status = _status(now, ids, ongoing.get(key))
        rows.append({"topic": key[0], "partition": key[1], "replicas": now, "wanted": ids, **status})
    print_rows(rows, ("topic", "partition", "replicas", "wanted", "status", "why"), options.output)
    if any(row["status"] != "complete" for row in rows):
        sys.exit(EXIT_FAILED)
    sys.exit(await _lift(options, session, wanted))


def _status(now: BrokerIds | None, wanted: BrokerIds, entry: Any) -> dict[str, str]:
    """``entry``: the controller's entry for its reassignment, None if there is none."""
    if now is None:
        return {"status": "unknown", "why": "no such partition"}
    if entry is not None:
        return {"status": "in progress", "why": "; ".join(entry.reasons)}
    if now == wanted:
        return {"status": "complete", "why": ""}
    return {"status": "not done", "why": "it has other replicas and is not being reassigned"}
