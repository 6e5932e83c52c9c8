"""Reassignment of partitions (KIP-455; reference, section 8.2), re-entrant at every step.

Phase U records a reassignment in the topic znode. Phase A notifies the new replicas, which begin to copy. Once all
targets are in the ISR, phase B removes the old replicas and writes the final assignment last. So a new controller can
continue at any point from what is stored.

- Cancelling restores the order of replicas (reference, section 14, point 8).
- A removed replica stays recorded until its broker has deleted it (point 7).
- A reassignment whose targets cannot take over keeps its old replicas and reports why.
- A reassignment that would drop every ISR member is refused: it would lose acknowledged records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from controller.core.backoff import RETRY_FIRST_US
from controller.core.commits import FOUND, refresh
from controller.core.context import EventContext, FollowUp, Handler
from controller.core.model import (
    NO_EPOCH,
    NO_LEADER,
    BrokerIds,
    Cluster,
    Ineligible,
    Partition,
    PartitionState,
    ReplicaState,
)
from controller.core.names import ids_shown
from controller.core.partitions import leader_election, partition_state_machine, replica_state_machine
from controller.core.partitions.leader_epochs import raise_leader_epochs
from controller.core.partitions.replica_state_machine import Replica
from controller.core.reasons import Reason
from controller.core.reassignment import concurrency, stray_replicas
from controller.core.reassignment.admin_znode import remove_listed
from controller.core.reassignment.assignment import Assignment, assignment_of, origin_of, rest, target_of
from controller.core.reassignment.reasons import EpochNotRaised, InSyncLeftOut, TargetLeftIsr
from controller.core.reassignment.topic_znode import Entry, entry_of, write_entries
from controller.core.records import ReassignmentStep

#: Reassignments finished in one event: bounds how long other events wait.
FINISHED_MAX = 10_000
NEW, ONLINE, NON_EXISTENT = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.NON_EXISTENT
OFFLINE = ReplicaState.OFFLINE
#: Any staying replica may take over from a leader that is removed.
_HAND_OVER = leader_election.ElectionKind(
    leader_election.Strategy.OFFLINE, trigger=leader_election.Strategy.REASSIGN.value
)


# --- beginning, overriding, cancelling -------------------------------------------------------------------


def reassign(
    context: EventContext, wanted: Mapping[Partition, BrokerIds]
) -> Handler[dict[Partition, Reason]]:
    """Begin reassignments to these replicas, or queue them where a concurrency limit is reached.

    A newer request replaces an older one. Partitions that have these replicas already get a new leader epoch, sent to
    all replicas. Returns the partitions whose reassignment could not be recorded, with the reason.
    """
    cluster = context.cluster
    plans: dict[Partition, Assignment] = {}
    waiting: dict[Partition, BrokerIds] = {}
    idle: list[Partition] = []
    queued: list[ReassignmentStep] = []
    limit = concurrency.ConcurrencyLimit(cluster, context.settings)
    ongoing = cluster.reassignments.ongoing
    alike: dict[tuple[BrokerIds, ...], tuple[Assignment, bool]] = {}
    for partition in concurrency.by_urgency(cluster, wanted):
        target = wanted[partition]
        key = target, partition.replicas, partition.adding, partition.removing
        if (found := alike.get(key)) is None:
            now = assignment_of(partition)
            plan = now.reassign_to(target)
            found = alike[key] = plan, plan == now
        plan, is_so = found
        if is_so and partition not in ongoing:
            idle.append(partition)
        elif (why := limit.why_wait(partition, plan)) is not None:
            waiting[partition] = target
            if cluster.reassignments.queued.get(partition) != target:
                queued.append(ReassignmentStep(partition, "queued", f"to {ids_shown(target)}: {why}"))
        else:
            limit.take(partition, plan)
            plans[partition] = plan
    failed = yield from _enqueue(context, waiting)
    context.log([step for step in queued if step.partition not in failed])
    failed.update((yield from _dequeue(context, idle)))
    # Their state is pushed anew; without a leader, while elections are paused, there is nothing to push.
    paused = cluster.maintenance.paused is not None
    plans.update(
        (p, assignment_of(p))
        for p in idle
        if p not in failed
        and not (paused and p.leadership is not None and concurrency.needs_leader(cluster, p))
    )
    not_begun = yield from _begin(context, plans)
    if not_begun:
        # What waits was queued behind them.
        yield from start_queued(context)
    failed.update(not_begun)
    return failed


def cancel(context: EventContext, partitions: Iterable[Partition]) -> Handler[dict[Partition, Reason]]:
    """Cancel ongoing or queued reassignments. Returns the partitions where that could not be recorded, with the
    reason."""
    ongoing = context.cluster.reassignments.ongoing
    partitions = list(partitions)
    failed = yield from _dequeue(context, [p for p in partitions if p not in ongoing])
    running = {p: assignment_of(p).cancelled(ongoing[p]) for p in partitions if p in ongoing}
    # Nothing is to be copied: they finish at once, and what waits begins.
    failed.update((yield from _begin(context, running)))
    return failed


def drops_isr(partition: Partition, plan: Assignment) -> str:
    """Why an assignment without any ISR member may not be, as text; empty: it has one."""
    known = partition.leadership
    if plan.replicas and (known is None or set(plan.replicas) & set(known.isr)):
        return ""
    isr = ids_shown(known.isr) if known is not None else "[]"
    return f"none of {ids_shown(plan.replicas)} is in the ISR {isr}: acknowledged records would be lost"


def _enqueue(
    context: EventContext, waiting: Mapping[Partition, BrokerIds]
) -> Handler[dict[Partition, Reason]]:
    cluster = context.cluster
    entries = {p: entry_of(cluster, p)._replace(queued=target) for p, target in waiting.items()}
    failed = yield from write_entries(context, entries)
    for partition, target in waiting.items():
        if partition not in failed:
            cluster.reassignments.dequeue(partition)
            cluster.reassignments.queued[partition] = target
    return failed


def _dequeue(context: EventContext, partitions: Iterable[Partition]) -> Handler[dict[Partition, Reason]]:
    """Drop queued reassignments: these partitions keep their assignment."""
    cluster = context.cluster
    dropped = [p for p in partitions if p in cluster.reassignments.queued]
    failed = yield from write_entries(context, {p: entry_of(cluster, p)._replace(queued=()) for p in dropped})
    for partition in dropped:
        if partition not in failed:
            cluster.reassignments.dequeue(partition)
            context.log([ReassignmentStep(partition, "cancelled", "its move was waiting")])
    return failed


def start_queued(context: EventContext) -> Handler[None]:
    """Begin queued reassignments up to the concurrency limit; those that became impossible are dropped and logged. None
    begins while the controller is paused or in maintenance mode.

    One that cannot be recorded waits on, as its topic's znode says: it is tried again after a while, and holds up no
    others."""
    known = context.cluster.reassignments
    while known.in_turn() and context.cluster.maintenance.suspension is None:
        plans, dropped = _startable(context)
        yield from _dequeue(context, dropped)
        failed = yield from _begin(context, plans)
        for partition, why in failed.items():
            before = known.stalled.get(partition)
            if before is None or before.reason != why:
                refusal = f"its move is waiting and cannot begin: {why}"
                context.reject("UNKNOWN_SERVER_ERROR", refusal, partition)
            known.stalled[partition] = Ineligible(why, context.now_us + RETRY_FIRST_US)
        if not failed:
            return


def _startable(context: EventContext) -> tuple[dict[Partition, Assignment], list[Partition]]:
    """The queued reassignments that may begin now, and those that became impossible."""
    cluster = context.cluster
    known = cluster.reassignments
    limit = concurrency.ConcurrencyLimit(cluster, context.settings)
    plans: dict[Partition, Assignment] = {}
    dropped: list[Partition] = []
    for partition in concurrency.by_urgency(cluster, known.in_turn()):
        plan = assignment_of(partition).reassign_to(known.queued[partition])
        if cluster.deletion_requested(partition.topic.name):
            context.reject(
                "UNKNOWN_TOPIC_OR_PARTITION", "its move was waiting: its topic is deleted", partition
            )
            dropped.append(partition)
            known.abandoned.add((partition.topic.name, partition.number))
        elif lost := drops_isr(partition, plan):
            # The ISR has shrunk since it was asked for, to replicas that the move in between was to add.
            context.reject("INVALID_REPLICA_ASSIGNMENT", f"its move was waiting: {lost}", partition)
            dropped.append(partition)
        elif limit.why_wait(partition, plan) is None:
            limit.take(partition, plan)
            plans[partition] = plan
    return plans, dropped


def stalled_due(cluster: Cluster, now_us: int) -> list[Partition]:
    """Queued reassignments that could not begin, and are to be tried again."""
    return [p for p, stalled in cluster.reassignments.stalled.items() if stalled.is_due(now_us)]


def retry_stalled(context: EventContext) -> Handler[None]:
    stalled = context.cluster.reassignments.stalled
    due = stalled_due(context.cluster, context.now_us)
    for partition in due:
        stalled[partition] = Ineligible(stalled[partition].reason)
    if due:
        yield from start_queued(context)


def _begin(context: EventContext, plans: Mapping[Partition, Assignment]) -> Handler[dict[Partition, Reason]]:
    """Phase U, then A or B. Returns the partitions that could not be recorded, with the reason."""
    if not plans:
        return {}
    failed = yield from _losing(context, plans)
    safe = {p: plan for p, plan in plans.items() if p not in failed}
    failed.update((yield from _update(context, safe)))
    yield from advance(context, [p for p in safe if p not in failed])
    return failed


def _losing(context: EventContext, plans: Mapping[Partition, Assignment]) -> Handler[dict[Partition, Reason]]:
    """Those that leave out every ISR member by now: a leader that writes its ISR itself tells of it seconds later. Not
    those of topics whose records are to be deleted."""
    requested = context.cluster.deletion_requested
    leaving = [
        p for p, plan in plans.items() if rest(p.replicas, plan.replicas) and not requested(p.topic.name)
    ]
    yield from refresh(context, leaving, FOUND)
    return {p: InSyncLeftOut(why) for p in leaving if (why := drops_isr(p, plans[p]))}


def _update(context: EventContext, plans: Mapping[Partition, Assignment]) -> Handler[dict[Partition, Reason]]:
    """U: write the topic znode, update memory, and stop replicas of an earlier reassignment that are not needed."""
    known = context.cluster.reassignments
    entries: dict[Partition, Entry] = {}
    originals: dict[Partition, BrokerIds] = {}
    for partition, plan in plans.items():
        original = known.ongoing.get(partition, partition.replicas) if plan.being_reassigned else ()
        originals[partition] = original
        gone = rest(partition.replicas, plan.replicas)
        left = rest(known.strays_of(partition), plan.replicas)
        entry = Entry(*plan, original, (), tuple(dict.fromkeys((*left, *gone))) if left else gone)
        if entry != entry_of(context.cluster, partition):
            entries[partition] = entry
    failed = yield from write_entries(context, entries)
    unneeded: list[Replica] = []
    begun: list[ReassignmentStep] = []
    for partition, plan in plans.items():
        if partition in failed:
            continue
        known.dequeue(partition)
        known.ongoing[partition] = originals[partition]
        gone = rest(partition.replicas, plan.replicas)
        to = "moving" if plan.being_reassigned else "settling"
        begun.append(ReassignmentStep(partition, to, _plan_text(plan), plan.replicas))
        partition.reassign(*plan)
        for broker_id in plan.replicas if known.strays or known.refusals else ():
            known.drop_stray(partition, broker_id)
        unneeded.extend((partition, b) for b in gone)
    context.log(begun)
    led = [p for p, b in unneeded if p.leadership is not None and p.leadership.leader == b]
    if led:
        yield from partition_state_machine.to_online(context, led, _HAND_OVER)
    yield from stray_replicas.stop(context, unneeded)
    return failed


# --- continuing ------------------------------------------------------------------------------------------


def advance(context: EventContext, partitions: Sequence[Partition]) -> Handler[None]:
    """onPartitionReassignment: phase B for partitions whose targets are in sync, phase A for the others."""
    partitions = [p for p in partitions if p in context.cluster.reassignments.ongoing]
    if not partitions:
        return
    for partition in partitions:
        context.cluster.reassignments.problems.pop(partition, None)
    fresh = [p for p in partitions if p.leadership is None and p.state is PartitionState.NEW]
    if fresh:
        # Never initialised: there is nothing to copy, so any online replica may become the first leader.
        _notify_new(context, fresh)
        yield from partition_state_machine.to_online(context, fresh, leader_election.OFFLINE)
    complete = yield from _complete(context, partitions)
    done = set(complete)
    copying = [p for p in partitions if p not in done]
    yield from _copy(context, copying)
    # One that was alone in sync when it left, and is assigned again.
    yield from partition_state_machine.elect_from_live_isr(context, copying)
    if complete:
        yield from _finish(context, complete)


def begin_again(context: EventContext, partitions: Iterable[Partition]) -> Handler[None]:
    """Of these, the reassignments of which brokers were not told, as no leader epoch could be written."""
    problems = context.cluster.reassignments.problems
    untold = [p for p in partitions if isinstance(problems.get(p), EpochNotRaised)]
    yield from advance(context, untold)


def isr_changed(context: EventContext, partitions: Iterable[Partition]) -> None:
    """Defer reassignments that waited for these ISRs to ``finish_in_sync``."""
    known = context.cluster.reassignments
    ready = [p for p in partitions if p in known.ongoing and _in_sync(p)]
    if ready:
        known.in_sync.update(dict.fromkeys(ready))
        context.later(FollowUp.REASSIGNMENTS)


def finish_in_sync(context: EventContext) -> Handler[None]:
    """PartitionReassignmentIsrChange: finish reassignments whose targets are in sync together, with one write per
    topic znode. Beyond ``FINISHED_MAX`` the rest is deferred to another event."""
    waiting = context.cluster.reassignments.in_sync
    ready: list[Partition] = []
    for topic in dict.fromkeys(p.topic for p in waiting):
        if len(ready) >= FINISHED_MAX:
            context.later(FollowUp.REASSIGNMENTS)
            break
        ready.extend(p for p in topic.partitions.values() if p in waiting)
    for partition in ready:
        del waiting[partition]
    yield from completed_by_isr(context, ready)


def completed_by_isr(context: EventContext, partitions: Iterable[Partition]) -> Handler[None]:
    """Finish the reassignments whose targets are in sync; the others stay unchanged."""
    ongoing = context.cluster.reassignments.ongoing
    candidates = [p for p in partitions if p in ongoing and _in_sync(p)]
    if candidates:
        complete = yield from _complete(context, candidates)
        if complete:
            yield from _finish(context, complete)


def brokers_started(context: EventContext, ids: Iterable[int]) -> Handler[None]:
    """Advance reassignments with one of these brokers among their targets (section 6, Startup step 6), send these
    brokers unconfirmed deletions again, and begin queued reassignments."""
    came = frozenset(ids)
    known = context.cluster.reassignments
    stuck = [p for p in known.ongoing if p in known.problems or not came.isdisjoint(target_of(p))]
    yield from advance(context, stuck)
    yield from stray_replicas.retry(context, came)
    yield from start_queued(context)


def resumed(context: EventContext) -> Handler[None]:
    """After a pause or maintenance mode ended: finish reassignments in sync, begin queued ones."""
    yield from completed_by_isr(context, list(context.cluster.reassignments.ongoing))
    yield from start_queued(context)


def resume_restored(context: EventContext) -> Handler[None]:
    """Resume reassignments recorded in topic znodes that were read after the failover."""
    known = context.cluster.reassignments
    restored, known.restored = known.restored, []
    if restored:
        yield from stray_replicas.retry_of(context, restored)
        yield from advance(context, restored)
        yield from start_queued(context)


def resume(context: EventContext, begun: Collection[Partition] = ()) -> Handler[int]:
    """Failover: resume all recorded reassignments that the legacy znode did not just begin. Returns the number of
    both."""
    recorded = [p for p in context.cluster.reassignments.ongoing if p not in begun]
    context.cluster.reassignments.restored = []
    yield from stray_replicas.retry(context, None)
    yield from advance(context, recorded)
    yield from start_queued(context)
    return len(recorded) + len(begun)


def _in_sync(partition: Partition) -> bool:
    if not _moving(partition):
        return True
    known, target = partition.leadership, target_of(partition)
    return known is not None and bool(target) and _covers(known.isr, target)


@lru_cache(1000)
def _covers(isr: BrokerIds, target: BrokerIds) -> bool:
    return frozenset(isr).issuperset(target)


def _complete(context: EventContext, partitions: Sequence[Partition]) -> Handler[list[Partition]]:
    """The partitions whose targets are all in the ISR, as stored now, with one able to lead; while elections are
    paused, a target must lead already."""
    yield from refresh(context, [p for p in partitions if p.leadership is not None and _moving(p)])
    paused = context.cluster.maintenance.paused is not None
    return [
        p
        for p in partitions
        if _in_sync(p)
        and (not p.removing or _target_online(context, p))
        and not (paused and p.leadership is not None and concurrency.needs_leader(context.cluster, p))
    ]


def _moving(partition: Partition) -> bool:
    return bool(partition.adding or partition.removing)


def _target_online(context: EventContext, partition: Partition) -> bool:
    return any(context.cluster.is_online(partition, b) for b in target_of(partition))


def _copy(context: EventContext, partitions: Sequence[Partition]) -> Handler[None]:
    """A: a new leader epoch for all replicas; the adding replicas begin to copy."""
    led = [p for p in partitions if p.leadership is not None]
    failed = yield from _bump(context, led)
    for partition, why in failed.items():
        context.cluster.reassignments.problems[partition] = EpochNotRaised(why)
    _notify_new(context, partitions)


def _notify_new(context: EventContext, partitions: Iterable[Partition]) -> None:
    adding = [(p, b) for p in partitions for b in p.adding]
    fresh = [r for r, state in replica_state_machine.states(adding) if state is NON_EXISTENT]
    replica_state_machine.to_new(context, fresh)


def _bump(context: EventContext, partitions: Sequence[Partition]) -> Handler[dict[Partition, Reason]]:
    """Write the same leader and ISR at the next leader epoch, and queue LeaderAndIsr for all replicas (isNew for those
    being added)."""

    def push(written: list[Partition]) -> None:
        context.push_leadership([(origin_of(p), p) for p in written])
        context.push_leadership([(p.adding, p) for p in written if p.adding], is_new=True)

    floors = dict.fromkeys(partitions, NO_EPOCH)
    return (yield from raise_leader_epochs(context, floors, "reassignment", push))


# --- B: finishing ----------------------------------------------------------------------------------------


def _finish(context: EventContext, partitions: Sequence[Partition]) -> Handler[None]:
    """B, in the reference's order, for many partitions together."""
    known = context.cluster.reassignments
    before = {p: assignment_of(p) for p in partitions}
    adding = [(p, b) for p in partitions for b in p.adding]
    caught_up = [r for r, state in replica_state_machine.states(adding) if _has_joined(context, r, state)]
    replica_state_machine.to_online(context, caught_up, "caught up")
    for partition, plan in before.items():
        partition.reassign(plan.target)
    held = yield from _settle_leaders(context, before)
    yield from _give_up(context, before, held)
    going = {p: plan.removing for p, plan in before.items() if p not in held}
    stuck = yield from stray_replicas.out_of_isr(context, going)
    yield from _give_up(context, before, stuck)
    done = [p for p in going if p not in stuck]
    stray_replicas.delete(context, [(p, b) for p in done for b in before[p].removing])
    # What is complete has no original replicas.
    failed = yield from write_entries(context, {p: entry_of(context.cluster, p, ongoing={}) for p in done})
    for partition, why in failed.items():
        known.problems[partition] = why
        context.reject("CONFLICT", f"its final assignment could not be recorded: {why}", partition)
    done = [p for p in done if p not in failed]
    yield from remove_listed(context, {(p.topic.name, p.number): p.replicas for p in done})
    for partition in done:
        known.ongoing.pop(partition, None)
        known.problems.pop(partition, None)
    context.log([ReassignmentStep(p, "moved", f"replicas {ids_shown(p.replicas)}", p.replicas) for p in done])
    context.push_metadata(done)
    if any(p.topic.name in context.cluster.deletions_waiting for p in done):
        context.later(FollowUp.DELETIONS)
    yield from start_queued(context)


def _has_joined(context: EventContext, replica: Replica, state: ReplicaState) -> bool:
    """Whether an adding replica becomes Online now. It is Offline, not New, if it was to be deleted before."""
    return state is NEW or (state is OFFLINE and context.cluster.is_online(*replica))


def _settle_leaders(
    context: EventContext, before: Mapping[Partition, Assignment]
) -> Handler[dict[Partition, Reason]]:
    """B3: a leader among the targets, at a new leader epoch.

    Returns the reassignments that have to wait, with the reason; not those that neither add nor remove a replica.
    """
    cluster = context.cluster
    elect, keep = [], []
    for partition in before:
        leader = partition.leadership.leader if partition.leadership else NO_LEADER
        led = leader in partition.replicas and cluster.is_online(partition, leader)
        # A drained leader hands over to another target where one can lead; else the election keeps it.
        if led and (leader not in cluster.maintenance.drained or cluster.maintenance.paused is not None):
            keep.append(partition)
        elif partition.leadership is not None:
            elect.append(partition)
    failed: dict[Partition, Reason] = {}
    if elect:
        failed.update(
            (yield from partition_state_machine.to_online(context, elect, leader_election.REASSIGN))
        )
    failed.update((yield from _bump(context, keep)))
    for partition in before:
        known = partition.leadership
        if partition not in failed and known and not set(partition.replicas) <= set(known.isr):
            failed[partition] = TargetLeftIsr(known.isr)
    leaderless = [
        p
        for p in before
        if p.leadership and p.leadership.leader == NO_LEADER and p.state is PartitionState.ONLINE
    ]
    if leaderless:
        partition_state_machine.to_offline(
            context, leaderless, "its leader's replica is not assigned any more"
        )
    return {p: why for p, why in failed.items() if before[p].being_reassigned}


def _give_up(
    context: EventContext, before: Mapping[Partition, Assignment], held: Mapping[Partition, Reason]
) -> Handler[None]:
    """Restore the stored assignment: the reassignment keeps its old replicas and is tried again later."""
    if not held:
        return
    for partition, why in held.items():
        partition.reassign(*before[partition])
        context.cluster.reassignments.problems[partition] = why
        context.reject("REASSIGNMENT_HELD_UP", f"its move cannot be finished now: {why}", partition)
    # The replicas have been sent the final assignment already.
    yield from _copy(context, list(held))


@lru_cache(1000)
def _plan_text(plan: Assignment) -> str:
    return f"replicas {ids_shown(plan.replicas)}, adding {ids_shown(plan.adding)}, removing {ids_shown(plan.removing)}"
