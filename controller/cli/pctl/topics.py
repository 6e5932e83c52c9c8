"""``pctl topics``: list and describe topics; create, alter and delete them through the active controller."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from controller.cli.common.attribution import ask_with_reason, reason_option
from controller.cli.common.cluster_state import (
    fail_without_cluster,
    fail_without_readable_topic,
    fail_without_topics,
    note_left_out,
    note_problems,
)
from controller.cli.common.confirmation import confirm, dry_run_option, yes_allowed, yes_option
from controller.cli.common.lists import names as list_of_names
from controller.cli.common.options import Listing, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import fail, note, print_rows
from controller.cli.common.progress import Progress, follow, no_wait_option
from controller.cli.common.replica_problems import replica_problems
from controller.cli.common.requests import ask, refusals, report
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.cli.computed.from_brokers import or_from_brokers, topics_told
from controller.cli.pctl.config import parse_configs
from controller.cli.pctl.partitions import (
    PARTITION_COLUMNS,
    SIZE_COLUMNS,
    add_sizes,
    partition_row,
    sizes_option,
    why,
)
from controller.client.admin import RequestFailedError
from controller.core.model import BrokerIds
from controller.core.names import INTERNAL_TOPICS, counted, counted_are
from controller.core.partitions.replica_placement import PlacementError, parse_assignment
from controller.core.znode_paths import topic_path
from controller.runtime.zookeeper import cluster_reader, codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import inspection_pb2


@click.group(cls=Verbs)
def topics() -> None:
    """List, describe, create, alter and delete topics."""


@topics.command("list", cls=Listing)
@click.option("--internal", is_flag=True, help="also internal topics")
@click.pass_obj
@or_from_brokers(topics_told)
@on_cluster
async def topics_list(options: Options, session: Session, internal: bool) -> None:
    """List topics."""
    cluster_state = await cluster_reader.look(session)
    await fail_without_cluster(options.zookeeper, session, cluster_state)
    shown = {n: info for n, info in cluster_state.topics.items() if internal or n not in INTERNAL_TOPICS}
    by_topic: dict[str, list[PartitionInfo]] = {}
    for partition in cluster_state.partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    rows = [
        {
            "topic": name,
            "id": info.topic_id,
            "partitions": len(info.partitions),
            "replication_factor": max((len(r) for r in info.partitions.values()), default=0),
            "unavailable": sum(not cluster_state.is_led(p) for p in by_topic.get(name, ())),
            "under_replicated": sum(p.under_replicated() for p in by_topic.get(name, ())),
            "deleting": name in cluster_state.deleting,
        }
        for name, info in sorted(shown.items())
    ]
    columns = (
        "topic",
        "id",
        "partitions",
        "replication_factor",
        "unavailable",
        "under_replicated",
        "deleting",
    )
    print_rows(rows, columns, options.output)
    note_left_out(len(cluster_state.topics) - len(shown), "topic")
    note_problems(cluster_state)


@topics.command("describe", cls=Listing)
@click.argument("topic")
@sizes_option
@click.pass_obj
@on_cluster
async def topics_describe(options: Options, session: Session, topic: str, sizes: bool) -> None:
    """Describe the partitions of one topic."""
    cluster_state = await cluster_reader.look(session, topics=[topic], configs=True)
    fail_without_readable_topic(cluster_state, topic)
    problems = await replica_problems(options, cluster_state, [topic])
    rows = [partition_row(cluster_state, p, problems) for p in cluster_state.partitions]
    if sizes:
        await add_sizes(options, session, rows, [topic])
    print_rows(rows, PARTITION_COLUMNS + SIZE_COLUMNS * sizes, options.output)
    note_problems(cluster_state)


# --- create, alter ---------------------------------------------------------------------------------------


_no_wait = no_wait_option("every partition has a leader that has acknowledged it")


@topics.command("create", cls=Verb)
@click.argument("topic")
@click.option("--partitions", "count", type=click.IntRange(1, 200_000), help="number of partitions")
@click.option("--replication-factor", type=click.IntRange(1, 1000))
@click.option("--replica-assignment", help="instead of both: broker ids of each partition, 1:2:3,2:3:1")
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
    """Create a topic and wait until every partition has a leader that has acknowledged it."""
    by_hand = {} if replica_assignment is None else _by_hand(replica_assignment)
    if by_hand and (count, replication_factor) != (None, None):
        raise click.UsageError("--replica-assignment: leave out --partitions and --replication-factor")
    wanted = pb.CreatableTopic(
        name=topic,
        num_partitions=count or -1,
        replication_factor=replication_factor or -1,
        assignments=by_hand,
        configs=parse_configs(configs),
    )
    request = pb.CreateTopicsRequest(topics=[wanted])
    if dry_run:
        trial = await run_on_copy(options, session, ("CreateTopics", request))
        _created(topic, trial.answers[0])
        print_dry_run(options, trial)
        return
    assignment = _created(topic, await ask(options, session, "CreateTopics", request))
    if not no_wait:
        await wait_for_leaders(options, session, topic, sorted(assignment))
    replicas = counted(max(map(len, assignment.values()), default=0), "replica")
    note(f"created topic {topic} with {counted(len(assignment), 'partition')} of {replicas}")
    if not by_hand and (count, replication_factor) == (None, None):
        note("these are the defaults: see --partitions and --replication-factor")


def _created(topic: str, response: Any) -> dict[int, BrokerIds]:
    """The assignment of the topic that is (or would be) created; ends the program if it is refused."""
    (answer,) = response.topics
    if answer.error_code:
        fail(answer.error_message)
    if answer.error_message:
        note(f"topic {topic}: {answer.error_message}")
    return _assignment(answer.assignments)


def _by_hand(text: str) -> dict[int, pb.ReplicaList]:
    try:
        assignment = parse_assignment(text)
    except PlacementError as error:
        fail(str(error))
    for number, ids in assignment.items():
        if max(ids) > codecs.INT_MAX:
            fail(f"replica assignment of partition {number}: broker ids must be at most {codecs.INT_MAX}")
    return {number: pb.ReplicaList(broker_ids=ids) for number, ids in assignment.items()}


def _assignment(lists: Mapping[int, Any]) -> dict[int, BrokerIds]:
    return {number: tuple(lists[number].broker_ids) for number in sorted(lists)}


@topics.command("alter", cls=Verb)
@click.argument("topic")
@click.option(
    "--partitions",
    "count",
    type=click.IntRange(1, 200_000),
    required=True,
    help="new total number of partitions",
)
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
    """Add partitions to a topic. Keys then map to other partitions, and partitions cannot be removed again."""
    by_hand = {} if replica_assignment is None else _by_hand(replica_assignment)
    wanted = pb.NewPartitions(name=topic, count=count, assignments=list(by_hand.values()))
    if dry_run:
        request = pb.CreatePartitionsRequest(topics=[wanted])
        trial = await run_on_copy(options, session, ("CreatePartitions", request))
        (answer,) = trial.answers[0].results
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
            print_dry_run(options, trial, partitions=rows)
            return
        confirm(f"Add {counted(len(added), 'partition')} to the {min(added)} of {topic}?", yes=yes)
        # Request the shown assignment, even if another broker has registered since.
        wanted.ClearField("assignments")
        wanted.assignments.extend(pb.ReplicaList(broker_ids=ids) for ids in added.values())
        request = pb.CreatePartitionsRequest(topics=[wanted])
        (answer,) = (await ask(options, session, "CreatePartitions", request)).results
    if code := report(refusals([(topic, answer)])):
        sys.exit(code)
    if not no_wait:
        await wait_for_leaders(options, session, topic, sorted(answer.assignments))
    note(f"topic {topic} has {counted(count, 'partition')}")


async def wait_for_leaders(options: Options, session: Session, topic: str, numbers: Sequence[int]) -> None:
    """Return when their leaders have acknowledged that they lead; end with the reasons after ``--timeout``, and at once
    when the topic is deleted."""

    async def unacknowledged() -> list[str]:
        answer = await ask(
            options, session, "DescribeTopics", inspection_pb2.DescribeTopicsRequest(topics=[topic])
        )
        (described,) = answer.topics
        if described.error_code:
            return [f"{topic}: {described.error_message}"]
        known = {p.partition: p for p in described.partitions}
        reasons = {n: _leader_problem(known.get(n)) for n in numbers}
        return [f"{topic}-{n} ({why_})" for n, why_ in reasons.items() if why_]

    async def progress() -> Progress:
        cluster_state = await cluster_reader.look(session, topics=[topic])
        unread = topic_path(topic) in cluster_state.problems
        if topic in cluster_state.deleting or not (unread or cluster_state.topics):
            fail(f"topic {topic} is being deleted, or is deleted already: somebody else asked for that")
        known = {p.partition: p for p in cluster_state.partitions}
        reasons = [
            f"{topic}-{n} ({why(cluster_state, known[n]) if n in known else 'its topic does not name it'})"
            for n in numbers
            if n not in known or not cluster_state.is_led(known[n])
        ]
        # The controller knows more than ZooKeeper: whether the leaders have been told.
        reasons = reasons or await unacknowledged()
        return Progress(len(reasons), len(numbers), tuple(reasons))

    last = await follow(options, "partitions have leaders that know it", progress)
    if last.left:
        fail(
            f"topic {topic} is there, but after {options.timeout_s:g} s {last.left} of its partitions have no "
            f"leader that has acknowledged it: {', '.join(last.reasons[:5])}; see pctl partitions --unavailable"
            " and pctl brokers",
        )


def _leader_problem(described: Any) -> str:
    """Why a partition has no leader that acknowledged it; empty: it has. ``described``: None if it does not exist."""
    if described is None:
        return "the controller does not know it yet"
    if described.error_code:
        return "the controller knows no leader yet"
    return str(described.leader_problem)


# --- delete ----------------------------------------------------------------------------------------------


_DELETED_COLUMNS = ("topic", "id", "partitions", "replicas", "brokers", "size", "unavailable", "deleting")


@topics.command("delete", cls=Verb)
@click.argument("names", nargs=-1, required=True, callback=list_of_names, metavar="TOPIC...")
@reason_option(required=False)
@yes_option
@dry_run_option
@no_wait_option("they are deleted")
@click.pass_obj
@on_cluster
async def delete_topics(
    options: Options,
    session: Session,
    names: tuple[str, ...],
    reason: str | None,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Delete topics with all their records. This cannot be undone."""
    names = tuple(dict.fromkeys(names))
    cluster_state = await cluster_reader.look(session, topics=names)
    fail_without_topics(cluster_state, names)
    # A cluster has as many partitions as topics may be named.
    gone = Counter(p.topic for p in cluster_state.partitions if not cluster_state.is_led(p))
    present = [_topic_row(cluster_state, name, gone[name]) for name in names]
    await _add_sizes(options, session, present)
    request = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=name) for name in names])
    if not dry_run or options.output == "table":
        print_rows(present, _DELETED_COLUMNS, options.output)
    if dry_run:
        trial = await run_on_copy(options, session, ("DeleteTopics", request))
        print_dry_run(options, trial, topics=present)
        sys.exit(report(refusals((entry.name, entry) for entry in trial.answers[0].responses)))
    confirm(f"Delete {counted(len(names), 'topic')} with all records?", yes=yes)
    answer = await ask_with_reason(options, session, "DeleteTopics", request, reason, yes=yes)
    refused = refusals((entry.name, entry) for entry in answer.responses)
    code = report(refused)
    refused_names = {one.name for one in refused}
    accepted = [name for name in names if name not in refused_names]
    if accepted and no_wait:
        note(f"{counted_are(len(accepted), 'topic')} being deleted")
    elif accepted:
        await _wait_until_deleted(options, session, accepted)
    sys.exit(code)


def _topic_row(cluster_state: ClusterState, name: str, unavailable: int) -> dict[str, Any]:
    """A topic as a row, with its size not known."""
    info = cluster_state.topics.get(name)
    replicas = [b for ids in info.partitions.values() for b in ids] if info else []
    return {
        "topic": name,
        "id": info.topic_id if info else None,
        "partitions": len(info.partitions) if info else None,
        "replicas": len(replicas) if info else None,
        "brokers": sorted(set(replicas)),
        "size": "unknown",
        "unavailable": unavailable,
        "deleting": name in cluster_state.deleting,
    }


async def _add_sizes(options: Options, session: Session, rows: list[dict[str, Any]]) -> None:
    """Bytes of all replicas together, where every one's broker says its size."""
    request = inspection_pb2.DescribeReplicasRequest(topics=[row["topic"] for row in rows])
    try:
        answer = await ask(options, session, "DescribeReplicas", request)
    except RequestFailedError:
        return
    found: dict[str, list[int]] = {}
    for p in answer.partitions:
        found.setdefault(p.topic, []).extend(r.size_bytes for r in p.replicas)
    for row in rows:
        sizes = found.get(row["topic"], [])
        if sizes and min(sizes) >= 0:
            row["size"] = sum(sizes)


async def _wait_until_deleted(options: Options, session: Session, names: list[str]) -> None:
    progress = await follow(
        options, "topics are deleted", partial(_deletion_progress, options, session, names)
    )
    if progress.left:
        why = f" ({'; '.join(progress.reasons)})" if progress.reasons else ""
        fail(
            f"after {options.timeout_s:g} s {progress.left} of {len(names)} topics are still there{why}; "
            "their deletion continues in the background"
        )


async def _deletion_progress(options: Options, session: Session, names: list[str]) -> Progress:
    """A topic is deleted when its marker is: the marker is deleted last."""
    left = set(names) & set((await cluster_reader.look(session, topics=())).deleting)
    if not left:
        return Progress(0, len(names))
    answer = await ask(options, session, "ListTopicDeletions", pb.ListTopicDeletionsRequest())
    reasons = [
        f"{d.name}: {d.pending_reason or 'waits for its brokers'}"
        # None is known of a topic that does not decode.
        + (f", {counted(d.replicas_left, 'replica')} left" if d.replicas_left else "")
        for d in answer.topics
        if d.name in left
    ]
    return Progress(len(left), len(names), tuple(reasons))
