"""Reassignment of partitions (KIP-455; reference, section 8.2), re-entrant at every step.

A move is recorded in the topic znode (U), its new replicas are told to copy (A), and once all targets are in the
ISR the old ones go (B), the final assignment being written last: whoever takes over at any point goes on from what
is stored. Better than the original:

- Cancelling restores the order of replicas (design, section 1, point 8).
- A replica that leaves the assignment stays recorded until its broker has deleted it (point 7), so that neither a
  refused deletion nor a failover leaves a stray log, or a member of the ISR that is not assigned.
- A move whose targets cannot take over keeps its old replicas, and says why.
- What would drop every member of the ISR is refused: it would lose what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from controller.core.commits import StateChange, refresh, write_states
from controller.core.context import FollowUp, Procedure, Turn
from controller.core.model import NO_LEADER, BrokerIds, Partition, PartitionState, ReplicaState
from controller.core.partitions import leader_election, partition_state_machine, replica_state_machine
from controller.core.partitions.replica_state_machine import Replica
from controller.core.reassignment import concurrency, stray_replicas
from controller.core.reassignment.admin_znode import remove_abandoned, remove_listed
from controller.core.reassignment.assignment import Assignment, assignment_of
from controller.core.reassignment.topic_znode import Entry, entry_of, write_entries
from controller.core.topics import deletion

#: Moves finished in one event: those who ask meanwhile wait for about so many.
FINISHED_MAX = 10_000
NEW, ONLINE, NON_EXISTENT = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.NON_EXISTENT
OFFLINE = ReplicaState.OFFLINE
#: Any replica that stays may lead what is led by one that goes.
_HAND_OVER = leader_election.ElectionKind(
    leader_election.Strategy.OFFLINE, occasion=leader_election.Strategy.REASSIGN.value
)


# --- beginning, overriding, cancelling -------------------------------------------------------------------


def reassign(turn: Turn, wanted: Mapping[Partition, BrokerIds]) -> Procedure[dict[Partition, str]]:
    """Move partitions to these replicas, or let them wait where a cap forbids more moves now.

    A newer request replaces an older one. Partitions that have these replicas already get their state anew: one
    leader epoch more, told to all. Returns what could not even be recorded, with the reason in words.
    """
    cluster = turn.cluster
    plans: dict[Partition, Assignment] = {}
    waiting: dict[Partition, BrokerIds] = {}
    idle: list[Partition] = []
    queued: list[dict[str, object]] = []
    room = concurrency.Room(cluster, turn.settings)
    for partition in concurrency.by_urgency(cluster, wanted):
        target = wanted[partition]
        plan = assignment_of(partition).reassign_to(target)
        if plan == assignment_of(partition) and partition not in cluster.moves.under_way:
            idle.append(partition)
        elif why := room.why_wait(partition, plan):
            waiting[partition] = target
            if cluster.moves.queued.get(partition) != target:
                queued.append(_row(partition, "queued", f"to {list(target)}: {why}"))
        else:
            room.take(partition, plan)
            plans[partition] = plan
    turn.log("record", queued)
    failed = yield from _enqueue(turn, waiting)
    failed.update((yield from _dequeue(turn, idle)))
    plans.update((p, assignment_of(p)) for p in idle if p not in failed)
    failed.update((yield from _begin(turn, plans)))
    return failed


def cancel(turn: Turn, partitions: Iterable[Partition]) -> Procedure[dict[Partition, str]]:
    """Take moves back, running or waiting. Returns what could not be recorded, with the reason in words."""
    under_way = turn.cluster.moves.under_way
    partitions = list(partitions)
    failed = yield from _dequeue(turn, [p for p in partitions if p not in under_way])
    running = {p: assignment_of(p).cancelled(under_way[p]) for p in partitions if p in under_way}
    failed.update((yield from _begin(turn, running)))
    if partitions:
        yield from start_queued(turn)
    return failed


def drops_isr(partition: Partition, plan: Assignment) -> bool:
    """Whether an assignment would leave nobody who has all that was acknowledged."""
    known = partition.leadership
    return not plan.replicas or (known is not None and not set(plan.replicas) & set(known.isr))


def _enqueue(turn: Turn, waiting: Mapping[Partition, BrokerIds]) -> Procedure[dict[Partition, str]]:
    cluster = turn.cluster
    entries = {p: entry_of(cluster, p)._replace(queued=target) for p, target in waiting.items()}
    failed = yield from write_entries(turn, entries)
    cluster.moves.queued.update((p, target) for p, target in waiting.items() if p not in failed)
    return failed


def _dequeue(turn: Turn, partitions: Iterable[Partition]) -> Procedure[dict[Partition, str]]:
    """These stay as they are: a move that waited will not begin."""
    cluster = turn.cluster
    dropped = [p for p in partitions if p in cluster.moves.queued]
    failed = yield from write_entries(turn, {p: entry_of(cluster, p)._replace(queued=()) for p in dropped})
    for partition in dropped:
        if partition not in failed:
            del cluster.moves.queued[partition]
            turn.log("record", [_row(partition, "cancelled", "its move was waiting")])
    return failed


def start_queued(turn: Turn) -> Procedure[None]:
    """Begin waiting moves, as many as there is room for; those that became impossible are dropped, with a word. None
    begins while the controller is paused or in maintenance."""
    cluster = turn.cluster
    if not cluster.moves.queued or cluster.maintenance.why_held():
        return
    room = concurrency.Room(cluster, turn.settings)
    plans: dict[Partition, Assignment] = {}
    dropped: list[Partition] = []
    for partition in concurrency.by_urgency(cluster, list(cluster.moves.queued)):
        plan = assignment_of(partition).reassign_to(cluster.moves.queued[partition])
        if cluster.deletion_requested(partition.topic.name):
            turn.reject("UNKNOWN_TOPIC_OR_PARTITION", "its move was waiting: its topic is deleted", partition)
            dropped.append(partition)
            cluster.moves.abandoned.add((partition.topic.name, partition.number))
        elif not room.why_wait(partition, plan):
            room.take(partition, plan)
            plans[partition] = plan
    yield from _dequeue(turn, dropped)
    yield from remove_abandoned(turn)
    for partition, why in (yield from _begin(turn, plans)).items():
        cluster.moves.queued.pop(partition, None)
        turn.reject("UNKNOWN_SERVER_ERROR", f"its move was waiting and cannot begin: {why}", partition)


def _begin(turn: Turn, plans: Mapping[Partition, Assignment]) -> Procedure[dict[Partition, str]]:
    """Phase U, then A or B. Returns what could not be recorded."""
    if not plans:
        return {}
    failed = yield from _update(turn, plans)
    yield from advance(turn, [p for p in plans if p not in failed])
    return failed


def _update(turn: Turn, plans: Mapping[Partition, Assignment]) -> Procedure[dict[Partition, str]]:
    """U: the topic znode, memory, and an end to replicas that an earlier move added in vain."""
    known = turn.cluster.moves
    entries: dict[Partition, Entry] = {}
    originals: dict[Partition, BrokerIds] = {}
    for partition, plan in plans.items():
        original = known.under_way.get(partition, partition.replicas) if plan.being_reassigned else ()
        originals[partition] = original
        gone = [b for b in partition.replicas if b not in plan.replicas]
        left = [b for b in known.leftover_of(partition) if b not in plan.replicas]
        entry = Entry(*plan, original, (), tuple(dict.fromkeys((*left, *gone))))
        if entry != entry_of(turn.cluster, partition):
            entries[partition] = entry
    failed = yield from write_entries(turn, entries)
    unneeded: list[Replica] = []
    begun: list[dict[str, object]] = []
    for partition, plan in plans.items():
        if partition in failed:
            continue
        known.queued.pop(partition, None)
        known.under_way[partition] = originals[partition]
        gone = [b for b in partition.replicas if b not in plan.replicas]
        begun.append(_row(partition, "moving" if plan.being_reassigned else "settling", _in_words(plan)))
        partition.reassign(*plan)
        for broker_id in plan.replicas:
            known.drop_leftover(partition, broker_id)
        unneeded.extend((partition, b) for b in gone)
    turn.log("record", begun)
    led = [p for p, b in unneeded if p.leadership is not None and p.leadership.leader == b]
    if led:
        yield from partition_state_machine.to_online(turn, led, _HAND_OVER)
    yield from stray_replicas.stop(turn, unneeded)
    return failed


# --- going on --------------------------------------------------------------------------------------------


def advance(turn: Turn, partitions: Sequence[Partition]) -> Procedure[None]:
    """onPartitionReassignment: phase A for what is not complete, phase B for what is."""
    partitions = [p for p in partitions if p in turn.cluster.moves.under_way]
    if not partitions:
        return
    for partition in partitions:
        turn.cluster.moves.problems.pop(partition, None)
    fresh = [p for p in partitions if p.leadership is None and p.state is PartitionState.NEW]
    if fresh:
        # Never initialised: the new replicas are as good as the old ones.
        _tell_new(turn, fresh)
        yield from partition_state_machine.to_online(turn, fresh, leader_election.OFFLINE)
    complete = yield from _complete(turn, partitions)
    done = set(complete)
    copying = [p for p in partitions if p not in done]
    yield from _copy(turn, copying)
    if complete:
        yield from _finish(turn, complete)


def isr_changed(turn: Turn, partitions: Iterable[Partition]) -> None:
    """Leave it to ``finish_in_sync`` to finish moves that waited for these in-sync sets."""
    known = turn.cluster.moves
    ready = [p for p in partitions if p in known.under_way and _in_sync(p)]
    if ready:
        known.in_sync.update(dict.fromkeys(ready))
        turn.later(FollowUp.MOVES)


def finish_in_sync(turn: Turn) -> Procedure[None]:
    """PartitionReassignmentIsrChange: moves that came into sync by several reports are finished together, each topic
    znode being written once; of very many some, the others after what waits by now."""
    waiting = turn.cluster.moves.in_sync
    ready: list[Partition] = []
    for topic in dict.fromkeys(p.topic for p in waiting):
        if len(ready) >= FINISHED_MAX:
            turn.later(FollowUp.MOVES)
            break
        ready.extend(p for p in topic.partitions.values() if p in waiting)
    for partition in ready:
        del waiting[partition]
    yield from completed_by_isr(turn, ready)


def completed_by_isr(turn: Turn, partitions: Iterable[Partition]) -> Procedure[None]:
    """Moves whose targets are in sync are finished, the others are left as they are."""
    under_way = turn.cluster.moves.under_way
    candidates = [p for p in partitions if p in under_way and _in_sync(p)]
    if candidates:
        complete = yield from _complete(turn, candidates)
        if complete:
            yield from _finish(turn, complete)


def brokers_started(turn: Turn, ids: Iterable[int]) -> Procedure[None]:
    """Moves with one of these brokers among their targets go on (section 6, Startup step 6); what these brokers
    were told to delete in vain they are told again, and what waited may begin."""
    came = frozenset(ids)
    known = turn.cluster.moves
    stuck = [p for p in known.under_way if p in known.problems or came & set(assignment_of(p).target)]
    yield from advance(turn, stuck)
    yield from stray_replicas.retry(turn, came)
    yield from start_queued(turn)


def released(turn: Turn) -> Procedure[None]:
    """The controller is not paused, or not in maintenance, any more: what was ready to finish finishes, what waited may
    begin."""
    yield from completed_by_isr(turn, list(turn.cluster.moves.under_way))
    yield from start_queued(turn)


def resume_recalled(turn: Turn) -> Procedure[None]:
    """Topics became known after the failover: go on with what their znodes record."""
    known = turn.cluster.moves
    recalled, known.recalled = known.recalled, []
    if recalled:
        yield from stray_replicas.retry_of(turn, recalled)
        yield from advance(turn, recalled)
        yield from start_queued(turn)


def resume(turn: Turn, begun: Collection[Partition] = ()) -> Procedure[int]:
    """Failover: go on with everything recorded that the legacy znode did not begin just now. Returns how many."""
    recorded = [p for p in turn.cluster.moves.under_way if p not in begun]
    turn.cluster.moves.recalled = []
    yield from stray_replicas.retry(turn, None)
    yield from advance(turn, recorded)
    yield from start_queued(turn)
    return len(recorded) + len(begun)


def _in_sync(partition: Partition) -> bool:
    plan, known = assignment_of(partition), partition.leadership
    if not plan.being_reassigned:
        return True
    return known is not None and bool(plan.target) and set(plan.target) <= set(known.isr)


def _complete(turn: Turn, partitions: Sequence[Partition]) -> Procedure[list[Partition]]:
    """Those whose targets are all in the ISR as it is stored now, one of them able to lead, or leading already while
    elections are paused."""
    yield from refresh(turn, [p for p in partitions if p.leadership is not None and _moving(p)])
    paused = turn.cluster.maintenance.paused is not None
    return [
        p
        for p in partitions
        if _in_sync(p)
        and (not p.removing or _target_online(turn, p))
        and not (paused and p.leadership is not None and concurrency.needs_leader(turn.cluster, p))
    ]


def _moving(partition: Partition) -> bool:
    return bool(partition.adding or partition.removing)


def _target_online(turn: Turn, partition: Partition) -> bool:
    return any(turn.cluster.is_online(partition, b) for b in assignment_of(partition).target)


def _copy(turn: Turn, partitions: Sequence[Partition]) -> Procedure[None]:
    """A: a new leader epoch for all, the adding replicas told to begin."""
    led = [p for p in partitions if p.leadership is not None]
    failed = yield from _bump(turn, led)
    for partition, why in failed.items():
        turn.cluster.moves.problems[partition] = f"its leader epoch could not be raised: {why}"
    _tell_new(turn, partitions)


def _tell_new(turn: Turn, partitions: Iterable[Partition]) -> None:
    fresh = [(p, b) for p in partitions for b in p.adding if p.replica_state(b) is NON_EXISTENT]
    replica_state_machine.to_new(turn, fresh)


def _bump(turn: Turn, partitions: Sequence[Partition]) -> Procedure[dict[Partition, str]]:
    """The same leader and ISR at the next leader epoch; told to all replicas, as new to those being added."""
    epoch = turn.cluster.controller_epoch
    newer: dict[Partition, str] = {}

    def decide(partition: Partition) -> StateChange | None:
        current = partition.leadership
        assert current is not None
        if current.controller_epoch > epoch:
            newer[partition] = f"written by controller epoch {current.controller_epoch}, newer than ours"
            return None
        new = current.successor(current.leader, current.isr, epoch, current.recovery)
        return StateChange(partition, current, new)

    def applied(batch: list[StateChange]) -> None:
        for change in batch:
            partition = change.partition
            partition.leadership = change.new
            turn.push_leadership(assignment_of(partition).origin, partition)
            turn.push_leadership(partition.adding, partition, is_new=True)
        turn.push_metadata([c.partition for c in batch])
        turn.log("leadership", [(c.partition, c.old, c.new) for c in batch], "reassignment")

    failed = yield from write_states(turn, map(decide, partitions), applied, decide)
    return {**failed, **newer}


# --- B: finishing ----------------------------------------------------------------------------------------


def _finish(turn: Turn, partitions: Sequence[Partition]) -> Procedure[None]:
    """B, in the reference's order, for many partitions side by side."""
    known = turn.cluster.moves
    before = {p: assignment_of(p) for p in partitions}
    caught_up = [(p, b) for p in partitions for b in p.adding if _has_joined(turn, p, b)]
    replica_state_machine.to_online(turn, caught_up, "caught up")
    for partition, plan in before.items():
        partition.reassign(plan.target)
    held = yield from _settle_leaders(turn, before)
    yield from _give_up(turn, before, held)
    going = {p: plan.removing for p, plan in before.items() if p not in held}
    stuck = yield from stray_replicas.out_of_isr(turn, going)
    yield from _give_up(turn, before, stuck)
    done = [p for p in going if p not in stuck]
    stray_replicas.delete(turn, [(p, b) for p in done for b in before[p].removing])
    failed = yield from write_entries(
        turn, {p: entry_of(turn.cluster, p)._replace(original=()) for p in done}
    )
    for partition, why in failed.items():
        known.problems[partition] = why
        turn.reject("CONFLICT", f"the assignment it was moved to could not be recorded: {why}", partition)
    done = [p for p in done if p not in failed]
    yield from remove_listed(turn, {(p.topic.name, p.number): p.replicas for p in done})
    for partition in done:
        known.under_way.pop(partition, None)
        known.problems.pop(partition, None)
    turn.log("record", [_row(p, "moved", f"replicas {list(p.replicas)}") for p in done])
    turn.push_metadata(done)
    yield from deletion.admit(turn)
    yield from start_queued(turn)


def _has_joined(turn: Turn, partition: Partition, broker_id: int) -> bool:
    """Whether a replica that was being added is Online from now on; Offline is one that was to be deleted before."""
    state = partition.replica_state(broker_id)
    return state is NEW or (state is OFFLINE and turn.cluster.is_online(partition, broker_id))


def _settle_leaders(turn: Turn, before: Mapping[Partition, Assignment]) -> Procedure[dict[Partition, str]]:
    """B3: a leader among the targets, at a new leader epoch. Returns the moves that have to wait, with the reason;
    an assignment that nobody is moved out of is final all the same."""
    cluster = turn.cluster
    elect, keep = [], []
    for partition in before:
        leader = partition.leadership.leader if partition.leadership else NO_LEADER
        led = leader in partition.replicas and cluster.is_online(partition, leader)
        # A drained leader hands over where somebody can take over; the same one is elected anew where not.
        if led and (leader not in cluster.maintenance.drained or cluster.maintenance.paused is not None):
            keep.append(partition)
        elif partition.leadership is not None:
            elect.append(partition)
    failed: dict[Partition, str] = {}
    if elect:
        failed.update((yield from partition_state_machine.to_online(turn, elect, leader_election.REASSIGN)))
    failed.update((yield from _bump(turn, keep)))
    for partition in before:
        known = partition.leadership
        if partition not in failed and known and not set(partition.replicas) <= set(known.isr):
            failed[partition] = f"a target left the ISR {list(known.isr)} meanwhile"
    leaderless = [
        p
        for p in before
        if p.leadership and p.leadership.leader == NO_LEADER and p.state is PartitionState.ONLINE
    ]
    if leaderless:
        partition_state_machine.to_offline(turn, leaderless, "its leader's replica is not assigned any more")
    return {p: why for p, why in failed.items() if before[p].being_reassigned}


def _give_up(
    turn: Turn, before: Mapping[Partition, Assignment], held: Mapping[Partition, str]
) -> Procedure[None]:
    """Back to the assignment that is stored: the move waits for its next chance with its old replicas."""
    if not held:
        return
    for partition, why in held.items():
        partition.reassign(*before[partition])
        turn.cluster.moves.problems[partition] = why
        turn.reject("REASSIGNMENT_HELD_UP", f"its move cannot be finished now: {why}", partition)
    # They were told of the final assignment already.
    yield from _copy(turn, list(held))


def _in_words(plan: Assignment) -> str:
    return f"replicas {list(plan.replicas)}, adding {list(plan.adding)}, removing {list(plan.removing)}"


def _row(partition: Partition, to: str, reason: str) -> dict[str, object]:
    """A record of a move."""
    return {
        "kind": "reassignment",
        "topic": partition.topic.name,
        "partition": partition.number,
        "to": to,
        "reason": reason,
    }
