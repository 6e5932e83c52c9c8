"""Requests for reassignments, by API and by the legacy znode, and their responses (reference, section 8.2).

The newest request wins. A request by API first removes its partitions from the znode, because at failover the znode
takes precedence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from controller.core.context import SLICE_MAX, EventContext, Handler, Pause
from controller.core.effects import ReadReassignment
from controller.core.effects import ReassignmentRequest as Listed
from controller.core.model import REPLICAS_MAX, BrokerIds, Cluster, Partition, members
from controller.core.names import ids_shown
from controller.core.reasons import Reason
from controller.core.reassignment import concurrency
from controller.core.reassignment.admin_znode import delete_malformed, remove_listed, trim
from controller.core.reassignment.assignment import (
    Assignment,
    assignment_of,
    origin_of,
    target_of,
    target_problem,
)
from controller.core.reassignment.phases import cancel, drops_isr, reassign
from controller.core.requests.errors import ErrorCode
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    Ongoing,
    PartitionReassignment,
    ReassignmentAnswer,
)
from controller.core.znode_paths import REASSIGN_PARTITIONS

Key = tuple[str, int]
#: Partitions of one request examined between yields.
EXAMINED_MAX = SLICE_MAX
Refusal = tuple[ErrorCode, str]
_UNKNOWN: Refusal = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")


# --- the API ---------------------------------------------------------------------------------------------


def alter_reassignments(
    context: EventContext, serial: int, request: AlterPartitionReassignments
) -> Handler[None]:
    """AlterPartitionReassignments (KIP-455): answers per partition, once the reassignments are durable."""
    refused: dict[int, Refusal] = {}
    wanted: dict[Partition, BrokerIds] = {}
    cancelled: dict[Partition, None] = {}
    named: dict[Key, None] = {}
    check = Validation(context.cluster)
    for position, asked in enumerate(request.reassignments):
        if position % EXAMINED_MAX == EXAMINED_MAX - 1:
            yield Pause.YIELD
        key = (asked.topic, asked.partition)
        if key in named:
            refused[position] = ErrorCode.INVALID_REQUEST, "named twice in one request"
            continue
        named[key] = None
        partition, refusal = check.of(asked)
        if refusal is not None or partition is None:
            refused[position] = refusal or _UNKNOWN
            continue
        if asked.replicas is None:
            cancelled[partition] = None
        else:
            wanted[partition] = asked.replicas
    accepted = {(p.topic.name, p.number) for p in (*wanted, *cancelled)}
    if accepted:
        yield from trim(context, lambda key, _: key in accepted)
    failed = yield from reassign(context, wanted)
    failed.update((yield from cancel(context, cancelled)))
    _record(context, [(request.reassignments[n], refusal) for n, refusal in refused.items()])
    answers = [
        _answer(context.cluster, asked, refused.get(n), failed)
        for n, asked in enumerate(request.reassignments)
    ]
    context.reply(serial, AlterPartitionReassignmentsReply(ErrorCode.NONE, answers))


def _mixed(cluster: Cluster) -> bool:
    """Whether some brokers cannot replicate from others: only then is it asked for each partition."""
    return bool(cluster.strangers(cluster.brokers))


class Validation:
    """``validate`` for the partitions of one request: thousands have one of few assignments, ISRs and targets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._mixed = cluster, _mixed(cluster)
        self._alike: dict[tuple[object, ...], Refusal | None] = {}

    def of(self, asked: PartitionReassignment) -> tuple[Partition | None, Refusal | None]:
        """The partition, and why the request for it is refused."""
        cluster, partition = self._cluster, self._cluster.partition(asked.topic, asked.partition)
        if partition is None or self._has_own_rules(partition):
            return partition, validate(cluster, asked, mixed=self._mixed)
        known = partition.leadership
        state = (known.leader, known.isr) if known is not None else None
        key = asked.replicas, partition.replicas, partition.adding, partition.removing, state
        if key not in self._alike:
            self._alike[key] = validate(cluster, asked, mixed=self._mixed)
        return partition, self._alike[key]

    def _has_own_rules(self, partition: Partition) -> bool:
        """Whether more is looked at than its assignment and ISR."""
        cluster, known = self._cluster, self._cluster.reassignments
        return (
            bool(cluster.offline_dirs)
            or partition in known.ongoing
            or partition in known.queued
            or partition in known.strays
            or cluster.deletion_requested(partition.topic.name)
        )


def validate(cluster: Cluster, asked: PartitionReassignment, *, mixed: bool) -> Refusal | None:
    """Why a request for one partition is refused, in the original's order: replicas first, then the partition.

    A dead target is refused only where it would be added. ``replicas`` None cancels, also a reassignment that delays
    the deletion of its topic.
    """
    partition = cluster.partition(asked.topic, asked.partition)
    frees = asked.replicas is None and asked.topic not in cluster.topics_to_delete
    unknown = cluster.deletion_requested(asked.topic) and not frees
    if asked.replicas is not None:
        if problem := target_problem(asked.replicas):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
        origin = members(origin_of(partition)) if partition is not None else ()
        added = [b for b in asked.replicas if b not in origin]
        live = cluster.live_ids() if added else ()
        dead = [b for b in added if b not in live]
        if dead:
            why = f"{ids_shown(dead)} are not live brokers: cannot be added"
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    if partition is None:
        return _UNKNOWN
    if unknown:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its topic is being deleted"
    known = cluster.reassignments
    if asked.replicas is None and partition not in known.ongoing and partition not in known.queued:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned"
    return _unsafe(cluster, partition, asked.replicas, mixed=mixed)


def _unsafe(
    cluster: Cluster, partition: Partition, target: Sequence[int] | None, *, mixed: bool
) -> Refusal | None:
    if mixed and (why := cluster.strangers(dict.fromkeys([*partition.replicas, *(target or ())]))):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    now = assignment_of(partition)
    original = cluster.reassignments.ongoing.get(partition, ())
    plan = now.cancelled(original) if target is None else now.reassign_to(target)
    if problem := _too_wide(cluster, partition, plan):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
    if target is None and cluster.deletion_requested(partition.topic.name):
        # Its records are to go; who refuses would make its deletion wait for a move that may never end.
        return None
    if why := drops_isr(partition, plan):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    if _loses_its_leader(cluster, partition, plan.replicas):
        assert partition.leadership is not None
        leader, isr = partition.leadership.leader, ids_shown(partition.leadership.isr)
        why = f"it removes the leader {leader}, and none of {ids_shown(plan.replicas)} in the ISR {isr} is online"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
    return None


def _too_wide(cluster: Cluster, partition: Partition, plan: Assignment) -> str:
    """What would be too many for the topic's znode, as text: replicas during the reassignment, or stray ones."""
    if len(plan.replicas) > REPLICAS_MAX:
        return f"{len(plan.replicas)} replicas while it is reassigned: must be at most {REPLICAS_MAX}"
    strays = cluster.reassignments.strays.get(partition, {})
    if strays and (count := len({*strays, *partition.replicas}.difference(plan.target))) > REPLICAS_MAX:
        return f"{count} replicas to be deleted: must be at most {REPLICAS_MAX}"
    return ""


def _loses_its_leader(cluster: Cluster, partition: Partition, replicas: BrokerIds) -> bool:
    """Whether a partition with an online leader would have none with these replicas."""
    known = partition.leadership
    if known is None or known.leader in replicas or not cluster.is_online(partition, known.leader):
        return False
    in_sync = members(known.isr)
    return not any(b in in_sync and cluster.is_online(partition, b) for b in replicas)


def _answer(
    cluster: Cluster, asked: PartitionReassignment, refusal: Refusal | None, failed: dict[Partition, Reason]
) -> ReassignmentAnswer:
    if refusal is None:
        partition = cluster.partition(asked.topic, asked.partition)
        if partition is None:
            refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its topic was deleted meanwhile"
        elif partition in failed:
            refusal = ErrorCode.UNKNOWN_SERVER_ERROR, str(failed[partition])
    error, message = refusal or (ErrorCode.NONE, "")
    return ReassignmentAnswer(asked.topic, asked.partition, error, message)


def _record(context: EventContext, refused: Iterable[tuple[PartitionReassignment, Refusal]]) -> None:
    for asked, (error, why) in refused:
        partition = context.cluster.partition(asked.topic, asked.partition)
        context.reject(error.name, f"reassignment of {asked.topic}-{asked.partition}: {why}", partition)


def list_reassignments(
    context: EventContext, serial: int, request: ListPartitionReassignments
) -> Handler[None]:
    """ListPartitionReassignments: ongoing and queued reassignments with reasons; unknown partitions are omitted."""
    context.reply(serial, ListPartitionReassignmentsReply(ErrorCode.NONE, ongoing(context, request)))
    yield Pause.YIELD


def ongoing(context: EventContext, request: ListPartitionReassignments) -> list[Ongoing]:
    """The reassignments, each once, in the order of the request, or sorted by topic and partition."""
    cluster = context.cluster
    known = cluster.reassignments
    if request.partitions is None:
        every = {(p.topic.name, p.number): p for p in (*known.ongoing, *known.queued)}
        found: list[Partition | None] = [every[key] for key in sorted(every)]
    else:
        found = [cluster.partition(*key) for key in dict.fromkeys(request.partitions)]
    listed = []
    running = concurrency.ConcurrencyLimit(cluster, context.settings)
    for partition in found:
        if partition is None or not (partition in known.queued or assignment_of(partition).being_reassigned):
            continue
        now = assignment_of(partition)
        waiting = partition not in known.ongoing
        plan = now.reassign_to(known.queued[partition]) if waiting else now
        reasons = concurrency.pending_reasons(cluster, context.settings, partition, running)
        listed.append(Ongoing(partition.topic.name, partition.number, *plan, waiting, tuple(reasons)))
    return listed


# --- the legacy znode ------------------------------------------------------------------------------------


def process_znode(context: EventContext) -> Handler[Collection[Partition]]:
    """Begin the reassignments listed in ``/admin/reassign_partitions`` and arm its watch.

    Dead targets are allowed here: the reassignment waits for them. Invalid entries are removed, each logged with its
    reason. Returns the partitions whose reassignment was begun or queued.
    """
    while True:
        found = yield from context.read(ReadReassignment())
        if found is None:
            context.solved(REASSIGN_PARTITIONS)
            return ()
        if isinstance(found, Listed):
            break
        if not (yield from delete_malformed(context, found)):
            return ()
    context.solved(REASSIGN_PARTITIONS)
    cluster = context.cluster
    finished: set[Key] = set()
    wanted: dict[Partition, BrokerIds] = {}
    mixed = _mixed(cluster)
    for position, (topic, number, replicas) in enumerate(found.entries):
        if position % EXAMINED_MAX == EXAMINED_MAX - 1:
            yield Pause.YIELD
        why = _entry_problem(cluster, topic, number, replicas, mixed=mixed)
        if why is not None:
            finished.add((topic, number))
            context.reject(
                why[0].name,
                f"{REASSIGN_PARTITIONS}: {topic}-{number}: {why[1]}",
                cluster.partition(topic, number),
            )
            continue
        partition = cluster.partition(topic, number)
        assert partition is not None
        if not _known(cluster, partition, replicas):
            wanted[partition] = replicas
    for partition, why_not in (yield from reassign(context, wanted)).items():
        finished.add((partition.topic.name, partition.number))
        context.reject("UNKNOWN_SERVER_ERROR", f"{REASSIGN_PARTITIONS}: {why_not}", partition)
    if cluster.maintenance.paused is not None:
        # Present replicas without a leader: nothing is to be done, so nothing will end it later.
        known = cluster.reassignments
        idle = [p for p in wanted if p not in known.ongoing and p not in known.queued]
        yield from remove_listed(context, {(p.topic.name, p.number): wanted[p] for p in idle})
    if finished or not found.entries:
        yield from trim(context, lambda key, _: key in finished)
    return wanted.keys()


def _entry_problem(
    cluster: Cluster, topic: str, number: int, replicas: BrokerIds, *, mixed: bool
) -> Refusal | None:
    partition = cluster.partition(topic, number)
    if partition is None:
        return _UNKNOWN
    if cluster.deletion_requested(topic) and partition not in cluster.reassignments.ongoing:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its topic is being deleted"
    if problem := target_problem(replicas):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
    return _unsafe(cluster, partition, replicas, mixed=mixed)


def _known(cluster: Cluster, partition: Partition, replicas: BrokerIds) -> bool:
    """Whether this reassignment is ongoing or queued already."""
    known = cluster.reassignments
    if (queued := known.queued.get(partition)) is not None:
        return queued == replicas
    return partition in known.ongoing and target_of(partition) == replicas
