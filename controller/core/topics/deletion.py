"""Topic deletion (reference, section 7.1): from a marker below ``/admin/delete_topics`` to the deletion of the znodes.

A topic with a marker is *queued*; its deletion is *started* once StopReplica is queued for its brokers; it is
*ineligible* while a replica cannot be deleted. Reference, section 14, points 7 and 11:

- A topic under reassignment waits until that is complete; until then it is not treated as being deleted.
- A request for a topic whose znode does not decode waits until it does.
- A refused deletion is retried after a pause, also when the broker refused a whole request.
- Only an unreachable replica makes a topic ineligible: a broker that is shutting down can still delete its replica.
- A partition state that cannot be written, or was deleted, does not block the deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from controller.core.backoff import retry_pause_us
from controller.core.commits import BATCH_WRITES
from controller.core.context import EventContext, FollowUp, Handler, Pause, slices
from controller.core.effects import DeleteNode, ReadPendingDeletions, Unconfirmed
from controller.core.events import StopReport
from controller.core.model import Cluster, Ineligible, PartitionState, ReplicaState, Topic, members
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.partitions.replica_state_machine import Replica
from controller.core.reasons import Reason, Refused
from controller.core.records import BrokerChange, Rejection, ReplicaTransition, TopicChange
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import ForgetBroker, OperatorReply, attribution_problem
from controller.core.topics import forgotten
from controller.core.topics.changes import topics_changed
from controller.core.topics.deletion_status import Recorded, recorded_as
from controller.core.topics.reasons import (
    BeingReassigned,
    NotRemembered,
    ReplicaNotDeleted,
    Suspended,
    Unreachable,
    ZnodeUnreadable,
)
from controller.core.topics.znode_deletion import delete_znodes
from controller.core.znode_paths import DELETE_TOPICS, deletion_path, topic_path

#: Partitions, of at least one topic, whose deletion begins in one event: brokers delete them while the next ones begin.
BEGUN_MAX = 2000
NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, SUCCESSFUL = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL
INELIGIBLE = ReplicaState.DELETION_INELIGIBLE
_NO_PARTITION = PartitionState.NON_EXISTENT
#: Errors for refused markers, and their messages.
_REFUSALS = {
    ErrorCode.TOPIC_DELETION_DISABLED: "topic deletion is disabled (delete_topic_enable)",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic",
}


# --- requests to delete ----------------------------------------------------------------------------------


def load(context: EventContext) -> Handler[int]:
    """Failover, steps 6 and 7: queue the marked topics, and set those with offline replicas ineligible. ``resume``
    (step 12) continues.

    A marked topic without a znode was partly deleted by an earlier controller: its other znodes are deleted, too.
    Returns the number of markers.
    """
    names = yield from context.read(ReadPendingDeletions())
    if not context.settings.delete_topic_enable:
        yield from _refuse(context, names, ErrorCode.TOPIC_DELETION_DISABLED)
        return len(names)
    cluster = context.cluster
    for name in names:
        # An earlier controller may have started the deletion, so the topic must not wait as a live one.
        _request(context, name, begun=True)
    for name in sorted(cluster.topics_to_delete):
        absent = [
            r
            for r in _replicas(cluster, [name])
            if not cluster.is_online(*r) and not _written_off(cluster, r)
        ]
        if absent:
            _hold(context, name, absent, Unreachable.AT_FAILOVER)
    return len(names)


def requested(context: EventContext) -> Handler[None]:
    """TopicDeletion: delete markers of topics that do not exist, queue the others."""
    names = yield from context.read(ReadPendingDeletions())
    cluster = context.cluster
    _withdrawn(context, names)
    if not context.settings.delete_topic_enable:
        yield from _refuse(context, names, ErrorCode.TOPIC_DELETION_DISABLED)
        return
    fresh = [name for name in names if not cluster.deletion_requested(name)]
    if not all(_exists(cluster, name) for name in fresh):
        # The topic and its marker may both be new: read topics before the marker is refused.
        yield from topics_changed(context)
    absent = [name for name in fresh if not _exists(cluster, name)]
    yield from _refuse(context, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for name in fresh:
        if _exists(cluster, name):
            _request(context, name)
    yield from admit(context)
    yield from resume(context)


def admit(context: EventContext) -> Handler[None]:
    """Queue the waiting topics that need not wait any more: reassigned, readable again, or vanished.

    Their markers are read first: an operator who deletes a topic by hand and creates it again deletes the marker, too,
    and the event for that may come last.
    """
    waiting = context.cluster.deletions_waiting
    if not waiting:
        return
    _withdrawn(context, (yield from context.read(ReadPendingDeletions())))
    admitted = []
    for name in list(waiting):
        _request(context, name)
        if name not in waiting:
            admitted.append(name)
    if admitted:
        yield from resume(context, admitted)


def _withdrawn(context: EventContext, markers: Sequence[str]) -> None:
    """Cancel the deletion of waiting topics whose marker was deleted."""
    waiting = context.cluster.deletions_waiting
    present = frozenset(markers)
    for name in [name for name in waiting if name not in present]:
        del waiting[name]
        _record(context, name, Recorded.WAITING, Recorded.KNOWN, "its marker was removed")


def resumed(context: EventContext) -> Handler[None]:
    """Begin the deletions that waited for the end of a pause or of maintenance mode."""
    yield from admit(context)
    yield from _release(context, context.cluster.topics_to_delete - context.cluster.topics_deletion_started)


def _exists(cluster: Cluster, name: str) -> bool:
    return name in cluster.topics or topic_path(name) in cluster.problems


def _refuse(context: EventContext, names: Sequence[str], error: ErrorCode) -> Handler[None]:
    """Log and delete refused markers."""
    for start in range(0, len(names), BATCH_WRITES):
        batch = names[start : start + BATCH_WRITES]
        context.log([Rejection(error.name, f"{deletion_path(name)}: {_REFUSALS[error]}") for name in batch])
        outcome = yield from context.commit([DeleteNode(deletion_path(name)) for name in batch])
        if isinstance(outcome, Unconfirmed):
            context.reject("CONFLICT", f"{DELETE_TOPICS}: markers could not be deleted: {outcome.reason}")


def _request(context: EventContext, name: str, *, begun: bool = False) -> None:
    """Queue a topic, or let it wait. ``begun``: its deletion may have started already."""
    cluster = context.cluster
    path = topic_path(name)
    moving = cluster.reassigning(name)
    suspension = cluster.maintenance.suspension
    why: Reason
    if suspension is not None and name in cluster.topics and not begun:
        why = Suspended(suspension)
    elif moving:
        why = BeingReassigned(moving[0].name, len(moving))
    elif name not in cluster.topics and path in cluster.problems:
        why = ZnodeUnreadable(cluster.problems[path])
    else:
        before = recorded_as(cluster, name)
        cluster.deletions_waiting.pop(name, None)
        cluster.topics_to_delete.add(name)
        _record(context, name, before, Recorded.DELETING)
        return
    if cluster.deletions_waiting.get(name) != why:
        before = recorded_as(cluster, name)
        cluster.deletions_waiting[name] = why
        _record(context, name, before, Recorded.WAITING, str(why))


def _record(context: EventContext, name: str, before: Recorded, after: Recorded, reason: str = "") -> None:
    context.log([TopicChange(name, before, after, reason)])


# --- carrying out ----------------------------------------------------------------------------------------


def resume(context: EventContext, names: Iterable[str] | None = None) -> Handler[None]:
    """resumeDeletions, for all queued topics or for some: complete, retry or begin. None begins while the controller
    is paused or in maintenance mode. Beyond ``BEGUN_MAX`` partitions the rest begins in another event."""
    cluster = context.cluster
    suspension = cluster.maintenance.suspension
    queued = cluster.topics_to_delete
    done: list[str] = []
    again: list[str] = []
    eligible: list[str] = []
    for name in sorted(queued if names is None else queued & set(names)):
        states = _states(cluster.topics.get(name))
        if states <= {SUCCESSFUL}:
            done.append(name)
        elif suspension is not None and name not in cluster.topics_deletion_started:
            _hold_for(context, name, Suspended(suspension), retry=False)
        elif STARTED not in states:
            if INELIGIBLE in states:
                again.append(name)
            if name not in cluster.deletions_ineligible:
                eligible.append(name)
    failed = replica_state_machine.in_states(_replicas(cluster, again), (INELIGIBLE,))
    if failed:
        yield from replica_state_machine.to_offline(context, failed, "its deletion is to be tried again")
    if eligible:
        now = _first(cluster, eligible)
        if len(now) < len(eligible):
            cluster.deletions_to_resume.update(eligible[len(now) :])
            context.later(FollowUp.DELETIONS)
        yield from _begin(context, now)
    if done:
        yield from _finish(context, done)


def _first(cluster: Cluster, names: Sequence[str]) -> Sequence[str]:
    """As many topics as have ``BEGUN_MAX`` partitions, but at least one."""
    partitions = 0
    for position, name in enumerate(names):
        partitions += len(cluster.topics[name].partitions)
        if position and partitions > BEGUN_MAX:
            return names[:position]
    return names


def _finish(context: EventContext, names: Sequence[str]) -> Handler[None]:
    """Delete the znodes of topics whose replicas are deleted; first what forgotten brokers may hold is remembered."""
    if failure := (yield from forgotten.remember(context, names)):
        for name in names:
            _hold_for(context, name, NotRemembered(failure), retry=True)
        return
    for name, why in (yield from delete_znodes(context, names)).items():
        _hold_for(context, name, why, retry=True)


def _states(topic: Topic | None) -> set[ReplicaState]:
    """The states of all replicas of a topic."""
    distinct = {p.replica_states for p in topic.partitions.values()} if topic else set()
    return {state for states in distinct for state in states}


def _replicas(cluster: Cluster, names: Iterable[str]) -> list[Replica]:
    """All replicas of topics; a vanished topic has none."""
    topics = [topic for name in names if (topic := cluster.topics.get(name)) is not None]
    return [(p, b) for topic in topics for p in topic.partitions.values() for b in p.replicas]


def _begin(context: EventContext, names: Sequence[str]) -> Handler[None]:
    """onTopicDeletion: queue metadata for all brokers, then stop and delete every reachable replica."""
    cluster = context.cluster
    partitions = [p for name in names for p in cluster.topics[name].partitions.values()]
    _adopt_strays(context, frozenset(names))
    first = [p for p in partitions if p.state is not _NO_PARTITION]
    # Before the partitions become Offline, so that they never count as offline partitions.
    cluster.topics_deletion_started.update(names)
    partition_state_machine.to_offline(context, first, "its topic is being deleted")
    partition_state_machine.to_non_existent(context, first)
    context.push_metadata(partitions)
    reachable: list[Replica] = []
    dead: list[Replica] = []
    lost: list[Replica] = []
    for replica, state in replica_state_machine.states(_replicas(cluster, names)):
        if state is not SUCCESSFUL:
            found = reachable if cluster.is_reachable(*replica) else dead
            (lost if _written_off(cluster, replica) else found).append(replica)
    running = replica_state_machine.in_states([*dead, *lost], (NEW, ONLINE))
    yield from replica_state_machine.to_offline(context, [*reachable, *running], "its topic is being deleted")
    replica_state_machine.to_deletion_started(context, [*reachable, *lost])
    replica_state_machine.to_deletion_successful(context, lost, forgotten.NOT_AWAITED)
    if dead:
        _set_ineligible(context, dead, Unreachable.NOT_ONLINE)
    if settled := [name for name in _named(lost) if _states(cluster.topics[name]) <= {SUCCESSFUL}]:
        cluster.deletions_to_resume.update(settled)
        context.later(FollowUp.DELETIONS)


def _written_off(cluster: Cluster, replica: Replica) -> bool:
    return forgotten.is_written_off(cluster, replica[1])


def forget_broker(context: EventContext, serial: int, request: ForgetBroker) -> Handler[None]:
    """Forget a broker that will not return: deletions that wait for it go on.

    INVALID_REQUEST without reason or author, POLICY_VIOLATION for a broker that is registered, BROKER_NOT_AVAILABLE for
    one that no partition names.
    """
    cluster, broker_id = context.cluster, request.broker_id
    refusal: tuple[ErrorCode, str] | None = None
    if (problem := attribution_problem(request.reason, request.author)) is not None:
        refusal = ErrorCode.INVALID_REQUEST, problem
    elif broker_id in cluster.brokers:
        refusal = (
            ErrorCode.POLICY_VIOLATION,
            f"broker {broker_id} is registered: it can delete its replicas itself",
        )
    elif not (yield from _has_replica(context, broker_id)):
        refusal = ErrorCode.BROKER_NOT_AVAILABLE, f"no partition has a replica on broker {broker_id}"
    elif failure := (yield from forgotten.store(context, request)):
        refusal = ErrorCode.UNKNOWN_SERVER_ERROR, failure
    if refusal is not None:
        context.reject(refusal[0].name, refusal[1])
        context.reply(serial, OperatorReply(*refusal))
        return
    context.log([BrokerChange(broker_id, "forgotten", reason=f"{request.author}: {request.reason}")])
    yield from _release(context, _named(_unfinished(cluster, [broker_id])))
    context.reply(serial, OperatorReply(ErrorCode.NONE))


def _adopt_strays(context: EventContext, names: frozenset[str]) -> None:
    """Include stray replicas in the deletion of their topic."""
    reassignments = context.cluster.reassignments
    adopted: list[ReplicaTransition] = []
    for partition in [p for p in reassignments.strays if p.topic.name in names]:
        strays = reassignments.strays_of(partition)
        for broker_id in strays:
            reassignments.drop_stray(partition, broker_id)
        assigned = members(partition.replicas)
        if outside := [b for b in strays if b not in assigned]:
            if partition in reassignments.ongoing:
                # Its end is not recorded yet, and the legacy znode lists other replicas than it has from now on.
                reassignments.abandoned.add((partition.topic.name, partition.number))
            before = partition.states_by_broker()
            partition.assign((*partition.replicas, *outside), partition.adding, partition.removing)
            partition.set_states(outside, OFFLINE)
            adopted += [
                ReplicaTransition(partition, b, was, OFFLINE)
                for b in outside
                if (was := before.get(b, ReplicaState.NON_EXISTENT)) is not OFFLINE
            ]
    context.log(adopted, "its broker has not deleted it yet")


def _set_ineligible(context: EventContext, replicas: Sequence[Replica], why: Unreachable | Refused) -> None:
    """Set replicas and their topics ineligible."""
    legal = replica_state_machine.in_states(replicas, (OFFLINE, STARTED))
    replica_state_machine.to_deletion_ineligible(context, legal, str(why))
    by_topic: dict[str, list[Replica]] = {}
    for replica in replicas:
        by_topic.setdefault(replica[0].topic.name, []).append(replica)
    for name, held in by_topic.items():
        _hold(context, name, held, why)


def _hold(context: EventContext, name: str, replicas: Sequence[Replica], why: Unreachable | Refused) -> None:
    partition, broker_id = replicas[0]
    reason = ReplicaNotDeleted(broker_id, partition.name, why, len(replicas))
    # Without a reachable replica a retry is useless before a broker or disk is back.
    retry = any(
        state not in (SUCCESSFUL, STARTED) and context.cluster.is_reachable(*replica)
        for replica, state in replica_state_machine.states(_replicas(context.cluster, [name]))
    )
    _hold_for(context, name, reason, retry=retry)


def _hold_for(context: EventContext, name: str, reason: Reason, *, retry: bool) -> None:
    """Set a topic ineligible; with ``retry``, until a pause has passed."""
    cluster = context.cluster
    known = cluster.deletions_ineligible.get(name)
    retry_at: int | None = None
    if retry:
        count = cluster.deletions_ineligible_count.get(name, 0)
        cluster.deletions_ineligible_count[name] = count + 1
        retry_at = context.now_us + retry_pause_us(count)
    before = recorded_as(cluster, name)
    cluster.deletions_ineligible[name] = Ineligible(reason, retry_at)
    if known is None or known.reason != reason:
        _record(context, name, before, Recorded.INELIGIBLE, str(reason))


def _release(context: EventContext, names: Iterable[str]) -> Handler[None]:
    """Make topics eligible again, and resume their deletion."""
    names = [name for name in names if name in context.cluster.topics_to_delete]
    for name in names:
        if context.cluster.deletions_ineligible.pop(name, None) is not None:
            _record(context, name, Recorded.INELIGIBLE, Recorded.DELETING, "it is tried again")
    if names:
        yield from resume(context, names)


# --- responses, brokers and disks ------------------------------------------------------------------------


def answered(context: EventContext, reports: Sequence[StopReport]) -> None:
    """TopicDeletionStopReplicaResponseReceived, from known incarnations and for replicas in deletion. The next steps
    are deferred to ``progressed``, so that many topics finish together."""
    cluster = context.cluster
    if not cluster.topics_deletion_started:
        return
    # A replica may be told twice, as a stray one and with its topic, and both be answered by now.
    deleted: dict[Replica, None] = {}
    refused: dict[Replica, str] = {}
    touched: dict[str, None] = {}
    for report in reports:
        broker = cluster.brokers.get(report.broker_id)
        if broker is None or broker.epoch != report.broker_epoch:
            continue
        answers = [*report.deleted, *(p for p, _ in report.failed)]
        # Not one of a former or later topic of the name.
        topics = {t for t in dict.fromkeys([p.topic for p in answers]) if cluster.topics.get(t.name) is t}
        awaited = [p for p in report.deleted if p.topic in topics and p.replica_state(broker.id) is STARTED]
        deleted.update(dict.fromkeys([(p, broker.id) for p in awaited]))
        touched.update(dict.fromkeys([p.topic.name for p in awaited]))
        for partition, error in report.failed:
            if partition.topic in topics and partition.replica_state(broker.id) is STARTED:
                refused[partition, broker.id] = error
                touched[partition.topic.name] = None
    replica_state_machine.to_deletion_successful(context, deleted)
    failed: dict[str, list[Replica]] = {}
    for replica, error in refused.items():
        if replica not in deleted:
            failed.setdefault(error, []).append(replica)
    for error, replicas in failed.items():
        _set_ineligible(context, replicas, Refused(error))
    settled = [name for name in touched if STARTED not in _states(cluster.topics[name])]
    if settled:
        cluster.deletions_to_resume.update(settled)
        context.later(FollowUp.DELETIONS)


def progressed(context: EventContext) -> Handler[None]:
    """Resume topics with responses for all their replicas: delete their znodes, or set them ineligible until a
    retry."""
    names, context.cluster.deletions_to_resume = context.cluster.deletions_to_resume, set()
    if names:
        yield from resume(context, names)


def brokers_started(context: EventContext, ids: Collection[int]) -> Handler[None]:
    """Brokers started (section 6, Startup step 7): resume deletions that may have waited for them, or that have gone
    on without them, as they were forgotten."""
    forgotten.returned(context, ids)
    back = context.cluster.forgotten.keys() & set(ids)
    queued = _replicas(context.cluster, sorted(context.cluster.topics_to_delete)) if back else ()
    replica_state_machine.to_undeleted(context, [r for r in queued if r[1] in back], forgotten.BACK)
    yield from _release(context, _named(_unfinished(context.cluster, ids)))


def brokers_failed(context: EventContext, ids: Collection[int]) -> Handler[None]:
    """Brokers failed (section 6, Failure step 5)."""
    unfinished = _unfinished(context.cluster, ids)
    yield from replicas_failed(context, unfinished, Unreachable.BROKER_GONE)
    # A forgotten one that was back for a while.
    yield from _release(context, _named(r for r in unfinished if _written_off(context.cluster, r)))


def replicas_failed(context: EventContext, replicas: Sequence[Replica], why: Unreachable) -> Handler[None]:
    """failReplicaDeletion: replicas of queued topics became unreachable."""
    if not replicas:
        return
    running = replica_state_machine.in_states(replicas, (NEW, ONLINE))
    if running:
        yield from replica_state_machine.to_offline(context, running, why.value)
        led = {p: None for p, _ in running if p.leadership is not None and p.leadership.leader < 0}
        partition_state_machine.to_offline(context, list(led), f"leader: {why}")
    _set_ineligible(context, replicas, why)
    yield from resume(context, _named(replicas))


def replicas_back(context: EventContext, replicas: Sequence[Replica]) -> Handler[None]:
    """Disks of replicas of queued topics are healthy again."""
    yield from _release(context, _named(replicas))


def _has_replica(context: EventContext, broker_id: int) -> Handler[bool]:
    """Whether a partition has a replica on the broker, also one that is still to be deleted."""
    strays_of = context.cluster.reassignments.strays_of
    for some in slices(context.cluster.partitions()):
        if any(broker_id in p.replicas or broker_id in strays_of(p) for p in some):
            return True
        yield Pause.YIELD
    return False


def _unfinished(cluster: Cluster, ids: Collection[int]) -> list[Replica]:
    """Replicas of queued topics on these brokers that are not known to be deleted."""
    return [
        replica
        for replica, state in replica_state_machine.states(
            r for r in _replicas(cluster, sorted(cluster.topics_to_delete)) if r[1] in ids
        )
        if state is not SUCCESSFUL
    ]


def _named(replicas: Iterable[Replica]) -> dict[str, None]:
    return {partition.topic.name: None for partition, _ in replicas}


# --- pauses ----------------------------------------------------------------------------------------------


def retry_due(cluster: Cluster, now_us: int) -> bool:
    """Whether ``retry`` has work to do."""
    held = any(h.is_due(now_us) for h in cluster.deletions_ineligible.values())
    if held or cluster.maintenance.suspension is not None:
        return held
    return any(not cluster.reassigning(n) and n in cluster.topics for n in cluster.deletions_waiting)


def retry(context: EventContext) -> Handler[None]:
    """TopicDeletionRetry: retry ineligible topics whose pause has passed."""
    yield from admit(context)
    held = context.cluster.deletions_ineligible
    yield from _release(context, [n for n, h in held.items() if h.is_due(context.now_us)])
