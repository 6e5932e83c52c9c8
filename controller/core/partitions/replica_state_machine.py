"""The replica state machine: seven states, their legal transitions and effects (reference, section 4).

Input is a list of (partition, broker id). Only Offline writes to ZooKeeper: the replica leaves the ISR and, if it
leads, loses leadership. The replicas of a partition that go offline in one event need one write (reference, section
14, point 4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

from controller.core.commits import StateChange, refresh, take_effect, write_states
from controller.core.context import SLICE_MAX, EventContext, Handler, Pause, slices
from controller.core.model import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    SHARED_LENGTH_MAX,
    BrokerIds,
    LeaderAndIsr,
    Partition,
    ReplicaState,
    members,
    shared_states,
    uniform_states,
    with_state,
)
from controller.core.partitions import leader_election, lost_data
from controller.core.reasons import NewerController, Reason
from controller.core.records import Rejection, ReplicaTransition

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, SUCCESSFUL = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL
INELIGIBLE, NON_EXISTENT = ReplicaState.DELETION_INELIGIBLE, ReplicaState.NON_EXISTENT

#: Legal transitions: target to the states it may be reached from (reference, section 4.1, 2.3 - 3.9).
VALID_PREVIOUS: dict[ReplicaState, frozenset[ReplicaState]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE, INELIGIBLE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE, INELIGIBLE}),
    STARTED: frozenset({OFFLINE}),
    SUCCESSFUL: frozenset({STARTED}),
    INELIGIBLE: frozenset({OFFLINE, STARTED}),
    NON_EXISTENT: frozenset({SUCCESSFUL}),
}

Replica = tuple[Partition, int]


def states(replicas: Iterable[Replica]) -> Iterator[tuple[Replica, ReplicaState]]:
    """Each replica with its state. A partition with many replicas is looked up once for those that follow each
    other."""
    wide: Partition | None = None
    known: dict[int, ReplicaState] = {}
    for replica in replicas:
        partition, broker_id = replica
        if len(partition.replicas) + len(partition.departing) <= SHARED_LENGTH_MAX:
            yield replica, partition.replica_state(broker_id)
            continue
        if partition is not wide:
            wide, known = partition, partition.states_by_broker()
        yield replica, known.get(broker_id, NON_EXISTENT)


def in_states(replicas: Iterable[Replica], wanted: Collection[ReplicaState]) -> list[Replica]:
    """Those of the replicas that are in one of these states."""
    return [replica for replica, state in states(replicas) if state in wanted]


def legal(context: EventContext, replicas: Iterable[Replica], target: ReplicaState) -> list[Replica]:
    """The replicas with a legal transition to ``target``; each other one is refused with a record."""
    previous = VALID_PREVIOUS[target]
    allowed = []
    for replica, state in states(replicas):
        if state in previous:
            allowed.append(replica)
        else:
            _refuse(context, replica, state, target)
    return allowed


def _refuse(context: EventContext, replica: Replica, state: ReplicaState, target: ReplicaState) -> None:
    partition, broker_id = replica
    previous = sorted(s.value for s in VALID_PREVIOUS[target])
    why = f"replica {broker_id}: {target.value} is only reached from {previous}"
    context.reject("ILLEGAL_TRANSITION", why, partition, state.value, target.value)


def _move(
    context: EventContext, replicas: Iterable[Replica], target: ReplicaState, reason: str
) -> list[Replica]:
    """``legal`` and ``_set``, with one look at each replica; those with a legal transition. ``target``: one that is
    never reached from itself."""
    previous = VALID_PREVIOUS[target]
    records: list[ReplicaTransition] = []
    allowed: list[Replica] = []
    others: list[Replica] = []
    for replica in replicas:
        partition, broker_id = replica
        assigned, departing = partition.replicas, partition.departing
        if len(assigned) + len(departing) > SHARED_LENGTH_MAX:
            others.append(replica)
            continue
        if broker_id in assigned:
            index = assigned.index(broker_id)
            before = partition.replica_states
            state = before[index]
            if state in previous:
                partition.replica_states = with_state(before, index, target)
        elif (state := departing.get(broker_id, NON_EXISTENT)) is NON_EXISTENT:
            others.append(replica)
            continue
        elif state in previous:
            partition.set_departing({broker_id: target})
        if state not in previous:
            _refuse(context, replica, state, target)
            continue
        allowed.append(replica)
        records.append(ReplicaTransition(partition, broker_id, state, target))
    context.log(records, reason)
    if others:
        fit = legal(context, others, target)
        _set(context, fit, target, reason)
        allowed += fit
    return allowed


def _set(context: EventContext, replicas: Iterable[Replica], target: ReplicaState, reason: str) -> None:
    """Change states in memory and log them; an untracked replica outside the assignment joins it."""
    records: list[ReplicaTransition] = []
    wide: dict[Partition, list[int]] = {}
    for partition, broker_id in replicas:
        if len(partition.replicas) + len(partition.departing) > SHARED_LENGTH_MAX:
            wide.setdefault(partition, []).append(broker_id)
            continue
        assigned = partition.replicas
        if broker_id not in assigned:
            if (departing := partition.departing.get(broker_id)) is not None:
                partition.set_departing({broker_id: target})
                if departing is not target:
                    records.append(ReplicaTransition(partition, broker_id, departing, target))
                continue
            partition.assign((*assigned, broker_id), partition.adding, partition.removing)
            assigned = partition.replicas
        states = partition.replica_states
        index = assigned.index(broker_id)
        previous = states[index]
        if previous is not target:
            partition.replica_states = with_state(states, index, target)
            records.append(ReplicaTransition(partition, broker_id, previous, target))
    for partition, ids in wide.items():
        records.extend(_set_wide(partition, ids, target))
    context.log(records, reason)


def _set_wide(partition: Partition, ids: Sequence[int], target: ReplicaState) -> list[ReplicaTransition]:
    """As ``_set``, for replicas of one partition with many: they change together."""
    before = partition.states_by_broker()
    untracked = [b for b in dict.fromkeys(ids) if b not in before]
    if untracked:
        partition.assign((*partition.replicas, *untracked), partition.adding, partition.removing)
    changed = [b for b in dict.fromkeys(ids) if before.get(b, NON_EXISTENT) is not target]
    partition.set_states(changed, target)
    return [ReplicaTransition(partition, b, before.get(b, NON_EXISTENT), target) for b in changed]


def to_new(context: EventContext, replicas: Iterable[Replica]) -> None:
    """Set replicas to New; where the partition has leadership, queue LeaderAndIsr with isNew for the replica."""
    allowed: list[Replica] = []
    pushed: list[tuple[list[int], Partition]] = []
    for partition, broker_id in legal(context, replicas, NEW):
        leadership = partition.leadership
        if leadership is not None:
            if leadership.leader == broker_id:
                context.reject(
                    "ILLEGAL_TRANSITION",
                    f"replica {broker_id} is the leader: it cannot be new",
                    partition,
                    NON_EXISTENT.value,
                    NEW.value,
                )
                continue
            pushed.append(([broker_id], partition))
        allowed.append((partition, broker_id))
    context.push_leadership(pushed, is_new=True)
    context.push_metadata([p for _, p in pushed])
    _set(context, allowed, NEW, "created")


def to_online(
    context: EventContext, replicas: Iterable[Replica], reason: str, registered: bool = False
) -> None:
    """Set replicas to Online; queue LeaderAndIsr, except from New or where the partition has no leadership.

    ``registered``: they are all replicas of brokers that have registered, which may know what they are told.
    """
    allowed = legal(context, replicas, ONLINE)
    by_broker: dict[int, list[Partition]] = {}
    for (partition, broker_id), state in states(allowed):
        if state is not NEW and partition.leadership is not None:
            by_broker.setdefault(broker_id, []).append(partition)
    for broker_id, partitions in by_broker.items():
        (context.push_whole_leadership if registered else context.push_leadership_all)(broker_id, partitions)
        context.push_metadata(partitions)
    _set(context, allowed, ONLINE, reason)


def to_offline(
    context: EventContext, replicas: Iterable[Replica], reason: str, *, for_good: bool = True
) -> Handler[dict[Partition, Reason]]:
    """Stop replicas, remove them from their ISRs, notify the other replicas (reference, section 4.3).

    Not ``for_good``: only those are stopped whose removal raised the leader epoch, as they can be started again.
    Returns the partitions whose state could not be written, with the reason; their replicas keep their state.
    """
    leaving: dict[Partition, frozenset[int]] = {}
    allowed: list[Replica] = []
    for some in slices(replicas, SLICE_MAX):
        allowed += (fit := legal(context, some, OFFLINE))
        for partition, broker_id in fit:
            others = leaving.get(partition)
            leaving[partition] = _only(broker_id) if others is None else others | {broker_id}
        yield Pause.YIELD
    without_leadership = [p for p in leaving if p.leadership is None]
    # Metadata of a partition without leadership is empty, but the broker list must still go out (KAFKA-6650).
    if without_leadership:
        context.push_brokers()
    removal = _Removal(context, leaving)
    failed = yield from write_states(context, removal.decisions(), removal.applied, removal.decide)
    # Where the cached state needs no write, it may be outdated: a leader can add a follower to its ISR.
    unsure = [p for p in context.unnotified(leaving) if p.leadership is not None and p not in failed]
    changed = yield from refresh(context, unsure)
    yield from lost_data.take_out(context, changed)
    failed.update(
        (yield from write_states(context, map(removal.decide, changed), removal.applied, removal.decide))
    )
    failed.update(removal.failed)
    # Also without a write the replica is offline, and the others must be notified.
    for leavers in slices(leaving, SLICE_MAX):
        context.push_metadata([p for p in context.unnotified(leavers) if not context.cluster.is_deleting(p)])
        yield Pause.YIELD
    context.log(
        [Rejection("CONFLICT", str(why), p, ONLINE.value, OFFLINE.value) for p, why in failed.items()]
    )
    # A partition under deletion needs no state: a failed write must not block its deletion.
    deleting = context.cluster.is_deleting
    for some in slices(allowed, SLICE_MAX):
        fit = [r for r in some if r[0] not in failed or deleting(r[0])] if failed else some
        _set(context, fit, OFFLINE, reason)
        yield Pause.YIELD
    # Queued last, so that no later LeaderAndIsr replaces it; it is sent last anyway. What is to be deleted is told so
    # with the same request.
    stopped = allowed if for_good else [r for r in allowed if r[0] in removal.written]
    for some in slices(stopped, SLICE_MAX):
        context.push_stop(some, delete=False)
        if not deleting(some[-1][0]):
            yield Pause.YIELD
    return failed


@lru_cache(1000)
def _only(broker_id: int) -> frozenset[int]:
    """Shared by the thousands of partitions that lose one replica each."""
    return frozenset((broker_id,))


class _Removal:
    """Replicas leaving the ISRs of many partitions."""

    def __init__(self, context: EventContext, leaving: dict[Partition, frozenset[int]]) -> None:
        self.context, self.leaving = context, leaving
        self.epoch = context.cluster.controller_epoch
        self.live = context.cluster.live_ids()
        self.failed: dict[Partition, Reason] = {}
        self.written: set[Partition] = set()
        self.deleting = context.cluster.is_deleting
        #: Of partitions with the same replicas, leader and ISR, that lose the same: the next leader and ISR, and the
        #: replicas that stay.
        self._alike: dict[tuple[object, ...], tuple[int, BrokerIds, BrokerIds]] = {}

    def decide(self, partition: Partition) -> StateChange | None:
        """The state without the leaving replicas; None when no change is needed."""
        current = partition.leadership
        if current is None:
            return None
        if current.controller_epoch > self.epoch:
            self.failed[partition] = NewerController(current.controller_epoch, self.epoch)
            return None
        leaving = self.leaving[partition]
        if current.leader not in leaving and leaving.isdisjoint(current.isr):
            return None
        leader, isr, others = self._without(partition, current, leaving)
        if leader == current.leader and isr == current.isr:
            return None
        new = current.successor(leader, isr, self.epoch, current.recovery)
        return StateChange(partition, current, new, () if self.deleting(partition) else others)

    def _without(
        self, partition: Partition, current: LeaderAndIsr, leaving: frozenset[int]
    ) -> tuple[int, BrokerIds, BrokerIds]:
        """The next leader and ISR, and the replicas that stay."""
        cluster, replicas = self.context.cluster, partition.replicas
        key = replicas, current.leader, current.isr, leaving
        found = None if cluster.offline_dirs else self._alike.get(key)
        if found is None:
            online = cluster.online_set(partition, self.live)
            staying = tuple([b for b in replicas if b not in leaving])
            found = (*leader_election.remove_from_isr(current, leaving, replicas, online), staying)
            self._alike[key] = found
        return found

    def decisions(self) -> Iterator[StateChange | None]:
        return map(self.decide, self.leaving)

    def applied(self, batch: list[StateChange]) -> None:
        self.written.update(change.partition for change in batch)
        take_effect(self.context, batch, "isr_change")


def to_deletion_started(context: EventContext, replicas: Iterable[Replica]) -> None:
    context.push_stop(_move(context, replicas, STARTED, "told to delete"), delete=True)


def to_deletion_successful(
    context: EventContext, replicas: Iterable[Replica], reason: str = "deleted by its broker"
) -> None:
    _move(context, replicas, SUCCESSFUL, reason)


def to_deletion_ineligible(context: EventContext, replicas: Iterable[Replica], reason: str) -> None:
    _move(context, replicas, INELIGIBLE, reason)


def to_undeleted(context: EventContext, replicas: Iterable[Replica], reason: str) -> None:
    """Set replicas that counted as deleted, perhaps without their broker's word, back to Ineligible: their broker can
    be asked. Not a transition of the original, where each deletion is confirmed."""
    _set(context, in_states(replicas, (SUCCESSFUL,)), INELIGIBLE, reason)


def to_non_existent(context: EventContext, replicas: Iterable[Replica], reason: str = "deleted") -> None:
    """Remove replicas from the assignment, its adding and removing sets, and the states."""
    gone: dict[Partition, list[int]] = {}
    for partition, broker_id in _move(context, replicas, NON_EXISTENT, reason):
        if (
            broker_id in partition.replicas
            or broker_id in partition.adding
            or broker_id in partition.removing
        ):
            gone.setdefault(partition, []).append(broker_id)
    for partition, listed in gone.items():
        if tuple(listed) == partition.replicas:
            partition.assign(())
            continue
        ids = members(tuple(listed))
        partition.assign(
            tuple([b for b in partition.replicas if b not in ids]),
            tuple([b for b in partition.adding if b not in ids]),
            tuple([b for b in partition.removing if b not in ids]),
        )


def startup(context: EventContext, partitions: Iterable[Partition]) -> Handler[None]:
    """Set initial states (section 4.4): online replicas become Online and get LeaderAndIsr; the others become
    Ineligible, then Offline. ``partitions``: those whose replicas are not Online already.

    Online replicas are not logged one by one: the failover's record has their number.
    """
    cluster = context.cluster
    live = cluster.live_ids()
    healthy = not cluster.offline_dirs
    offline: list[Replica] = []
    for count, partition in enumerate(partitions):
        if count % (2 * SLICE_MAX) == 2 * SLICE_MAX - 1:
            yield Pause.YIELD
        replicas = partition.replicas
        if healthy and live.issuperset(replicas):
            partition.replica_states = uniform_states(ONLINE, len(replicas))
            continue
        up = frozenset(cluster.online_replicas(partition))
        partition.replica_states = shared_states(tuple([ONLINE if b in up else INELIGIBLE for b in replicas]))
        offline.extend((partition, b) for b in replicas if b not in up)
    context.push_everything()
    yield Pause.YIELD
    if offline:
        yield from to_offline(context, offline, "found offline at failover")


def stop_leader_epoch(partition: Partition, deleting: bool) -> int:
    """Leader epoch of a StopReplica: -2 while its topic is queued for deletion, else cached, else -1."""
    if deleting:
        return LEADER_DURING_DELETE
    return partition.leadership.leader_epoch if partition.leadership else NO_EPOCH
