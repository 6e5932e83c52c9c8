"""Topic deletion (reference, section 7.1): from a marker below ``/admin/delete_topics`` until nothing is left.

A topic asked to be deleted is *queued*; its deletion is *started* once its brokers were told; it is *ineligible*, here
called held, while a replica cannot be deleted, and the reason is kept in words. Better than the original (design,
section 1, points 7 and 11):

- A topic under reassignment waits, and lives on, until that is done: nothing in it is treated as being deleted.
- A request for a topic whose znode does not decode waits until it does.
- What a broker refused is tried again after a pause, also when it refused a request as a whole.
- Only an unreachable replica holds a deletion up: a broker that is leaving can still delete its own.
- A state that cannot be written, or is gone, holds nothing up: the topic is to go anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from controller.core.commits import BATCH_WRITES
from controller.core.context import FollowUp, Procedure, Turn
from controller.core.effects import DeleteNode, ReadPendingDeletions, Unsettled
from controller.core.model import Cluster, Held, Partition, PartitionState, ReplicaState, Topic
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.partitions.replica_state_machine import Replica
from controller.core.topics.changes import topics_changed
from controller.core.topics.znode_deletion import DELETIONS_PATH, erase

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, SUCCESSFUL = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL
INELIGIBLE = ReplicaState.DELETION_INELIGIBLE
_NO_PARTITION = PartitionState.NON_EXISTENT

#: Pauses between attempts at a deletion that a broker refused: they double up to the longest.
RETRY_FIRST_US, RETRY_MAX_US = 10_000_000, 600_000_000
_NOT_NOW = "no deletion begins while the controller is "


@dataclass(frozen=True)
class StopReport:
    """What one broker incarnation answered to a StopReplica that asked for deletion: partitions deleted, and
    partitions not deleted with the error's name."""

    broker_id: int
    broker_epoch: int
    deleted: Sequence[Partition]
    failed: Sequence[tuple[Partition, str]] = ()

    @property
    def size(self) -> int:
        """Partitions named."""
        return len(self.deleted) + len(self.failed)


# --- requests to delete ----------------------------------------------------------------------------------


def load(turn: Turn) -> Procedure[int]:
    """Failover, steps 6 and 7: what is queued, and which of it is held; carried out by ``resume`` (step 12).

    Topics that are gone already were half deleted by a predecessor: what is left of them goes, too. Returns the
    number of requests.
    """
    names: Sequence[str] = yield from turn.read(ReadPendingDeletions())
    if not turn.settings.delete_topic_enable:
        yield from _refuse(turn, names, "topic deletion is disabled (delete_topic_enable)")
        return len(names)
    cluster = turn.cluster
    for name in names:
        # Whoever led before may have begun: such a topic must not live on while it waits.
        _request(turn, name, begun=True)
    for name in sorted(cluster.topics_to_delete):
        absent = [r for r in _replicas(cluster, [name]) if not cluster.is_online(*r)]
        if absent:
            _hold(turn, name, absent, "not online when this controller took over")
    return len(names)


def requested(turn: Turn) -> Procedure[None]:
    """TopicDeletion: markers of topics that do not exist go, the others are queued."""
    names: Sequence[str] = yield from turn.read(ReadPendingDeletions())
    cluster = turn.cluster
    _withdrawn(turn, names)
    if not turn.settings.delete_topic_enable:
        yield from _refuse(turn, names, "topic deletion is disabled (delete_topic_enable)")
        return
    fresh = [name for name in names if not cluster.deletion_requested(name)]
    if not all(_exists(cluster, name) for name in fresh):
        # Created and marked before we looked at either: the topic is there by now, if it ever was.
        yield from topics_changed(turn)
    yield from _refuse(turn, [n for n in fresh if not _exists(cluster, n)], "no such topic")
    for name in fresh:
        if _exists(cluster, name):
            _request(turn, name)
    yield from admit(turn)
    yield from resume(turn)


def admit(turn: Turn) -> Procedure[None]:
    """Queue the waiting topics that need not wait any more: moved, readable again, or gone.

    Their markers are looked at first: somebody who wipes a topic by hand and creates it anew removes that, too, and
    the news of it may come last.
    """
    waiting = turn.cluster.deletions_waiting
    if not waiting:
        return
    _withdrawn(turn, (yield from turn.read(ReadPendingDeletions())))
    admitted = []
    for name in list(waiting):
        _request(turn, name)
        if name not in waiting:
            admitted.append(name)
    if admitted:
        yield from resume(turn, admitted)


def _withdrawn(turn: Turn, markers: Sequence[str]) -> None:
    """A waiting topic whose marker is gone lives on."""
    waiting = turn.cluster.deletions_waiting
    present = frozenset(markers)
    for name in [name for name in waiting if name not in present]:
        del waiting[name]
        _record(turn, name, "waiting for deletion", "known", "its marker was removed")


def released(turn: Turn) -> Procedure[None]:
    """The controller is neither paused nor in maintenance any more: what had to wait for that begins."""
    yield from admit(turn)
    yield from _release(turn, turn.cluster.topics_to_delete - turn.cluster.topics_deletion_started)


def _exists(cluster: Cluster, name: str) -> bool:
    return name in cluster.topics or f"/brokers/topics/{name}" in cluster.problems


def _refuse(turn: Turn, names: Sequence[str], why: str) -> Procedure[None]:
    """Delete markers that nothing will come of."""
    for start in range(0, len(names), BATCH_WRITES):
        batch = names[start : start + BATCH_WRITES]
        error = "UNKNOWN_TOPIC_OR_PARTITION" if why == "no such topic" else "TOPIC_DELETION_DISABLED"
        rows = [(None, error, "", "", f"{DELETIONS_PATH}/{name}: {why}") for name in batch]
        turn.log("reject", rows)
        outcome = yield from turn.commit([DeleteNode(f"{DELETIONS_PATH}/{name}") for name in batch])
        if isinstance(outcome, Unsettled):
            turn.reject("CONFLICT", f"{DELETIONS_PATH}: markers could not be deleted: {outcome.reason}")


def _request(turn: Turn, name: str, *, begun: bool = False) -> None:
    """Queue a topic, or let it wait. ``begun``: perhaps brokers were told already."""
    cluster = turn.cluster
    path = f"/brokers/topics/{name}"
    moving = cluster.reassigning(name)
    held = cluster.maintenance.why_held()
    if held and name in cluster.topics and not begun:
        why = _NOT_NOW + held
    elif moving:
        why = f"{moving[0].name} is being reassigned" + _and_more(len(moving))
    elif name not in cluster.topics and path in cluster.problems:
        why = f"its znode is unreadable: {cluster.problems[path]}"
    else:
        before = "waiting for deletion" if cluster.deletions_waiting.pop(name, None) is not None else "known"
        cluster.topics_to_delete.add(name)
        _record(turn, name, before, "deleting")
        return
    if cluster.deletions_waiting.get(name) != why:
        cluster.deletions_waiting[name] = why
        _record(turn, name, "known", "waiting for deletion", why)


def _record(turn: Turn, name: str, before: str, after: str, reason: str = "") -> None:
    row = {"kind": "topic", "topic": name, "from": before, "to": after}
    turn.log("record", [{**row, "reason": reason} if reason else row])


# --- carrying out ----------------------------------------------------------------------------------------


def resume(turn: Turn, names: Iterable[str] | None = None) -> Procedure[None]:
    """resumeDeletions, for all queued topics or for some: complete, try again, begin. None begins while the controller
    is paused or in maintenance."""
    cluster = turn.cluster
    held = cluster.maintenance.why_held()
    queued = cluster.topics_to_delete
    done: list[str] = []
    again: list[str] = []
    eligible: list[str] = []
    for name in sorted(queued if names is None else queued & set(names)):
        states = _states(cluster.topics.get(name))
        if states <= {SUCCESSFUL}:
            done.append(name)
        elif held and name not in cluster.topics_deletion_started:
            _hold_for(turn, name, _NOT_NOW + held, retry=False)
        elif STARTED not in states:
            if INELIGIBLE in states:
                again.append(name)
            if name not in cluster.deletions_held:
                eligible.append(name)
    failed = [r for r in _replicas(cluster, again) if r[0].replica_state(r[1]) is INELIGIBLE]
    if failed:
        yield from replica_state_machine.to_offline(turn, failed, "its deletion is to be tried again")
    if eligible:
        yield from _begin(turn, eligible)
    if done:
        for name, why in (yield from erase(turn, done)).items():
            _hold_for(turn, name, why, retry=True)


def _states(topic: Topic | None) -> set[ReplicaState]:
    """The states of all replicas of a topic."""
    distinct = {p.replica_states for p in topic.partitions.values()} if topic else set()
    return {state for states in distinct for state in states}


def _replicas(cluster: Cluster, names: Iterable[str]) -> list[Replica]:
    """All replicas of topics; a topic that is gone has none."""
    topics = [topic for name in names if (topic := cluster.topics.get(name)) is not None]
    return [(p, b) for topic in topics for p in topic.partitions.values() for b in p.replicas]


def _begin(turn: Turn, names: Sequence[str]) -> Procedure[None]:
    """onTopicDeletion: metadata goes everywhere, then every reachable replica is stopped and deleted."""
    cluster = turn.cluster
    partitions = [p for name in names for p in cluster.topics[name].partitions.values()]
    _adopt_leftovers(cluster, frozenset(names))
    first = [p for p in partitions if p.state is not _NO_PARTITION]
    # Started before they are Offline: they never count as offline partitions.
    cluster.topics_deletion_started.update(names)
    partition_state_machine.to_offline(turn, first, "its topic is being deleted")
    partition_state_machine.to_non_existent(turn, first)
    turn.push_metadata(partitions)
    reachable: list[Replica] = []
    dead: list[Replica] = []
    for replica in _replicas(cluster, names):
        if replica[0].replica_state(replica[1]) is not SUCCESSFUL:
            (reachable if cluster.is_reachable(*replica) else dead).append(replica)
    running = [r for r in dead if r[0].replica_state(r[1]) in (NEW, ONLINE)]
    yield from replica_state_machine.to_offline(turn, [*reachable, *running], "its topic is being deleted")
    replica_state_machine.to_deletion_started(turn, reachable)
    if dead:
        _set_ineligible(turn, dead, "its broker or disk is not online")


def _adopt_leftovers(cluster: Cluster, names: frozenset[str]) -> None:
    """Replicas that a reassignment took away, and that are not known to be deleted, go with their topic."""
    moves = cluster.moves
    for partition in [p for p in moves.leftovers if p.topic.name in names]:
        for broker_id in moves.leftover_of(partition):
            moves.drop_leftover(partition, broker_id)
            if broker_id not in partition.replicas:
                partition.assign((*partition.replicas, broker_id), partition.adding, partition.removing)
                partition.set_replica_state(broker_id, OFFLINE)


def _set_ineligible(turn: Turn, replicas: Sequence[Replica], why: str) -> None:
    """Mark replicas and hold their topics."""
    legal = [r for r in replicas if r[0].replica_state(r[1]) in (OFFLINE, STARTED)]
    replica_state_machine.to_deletion_ineligible(turn, legal, why)
    by_topic: dict[str, list[Replica]] = {}
    for replica in replicas:
        by_topic.setdefault(replica[0].topic.name, []).append(replica)
    for name, held in by_topic.items():
        _hold(turn, name, held, why)


def _hold(turn: Turn, name: str, replicas: Sequence[Replica], why: str) -> None:
    partition, broker_id = replicas[0]
    reason = f"replica {broker_id} of {partition.name}: {why}{_and_more(len(replicas))}"
    # What nobody can reach is not tried again before its broker or disk is back.
    retry = any(
        turn.cluster.is_reachable(p, b) and p.replica_state(b) not in (SUCCESSFUL, STARTED)
        for p, b in _replicas(turn.cluster, [name])
    )
    _hold_for(turn, name, reason, retry=retry)


def _hold_for(turn: Turn, name: str, reason: str, *, retry: bool) -> None:
    """Mark a topic ineligible; it is tried again after a pause if that can help."""
    cluster = turn.cluster
    known = cluster.deletions_held.get(name)
    retry_at: int | None = None
    if retry:
        count = cluster.deletions_held_count.get(name, 0)
        cluster.deletions_held_count[name] = count + 1
        retry_at = turn.now_us + min(RETRY_FIRST_US << min(count, 10), RETRY_MAX_US)
    cluster.deletions_held[name] = Held(reason, retry_at)
    if known is None or known.reason != reason:
        _record(turn, name, "deleting", "ineligible for deletion", reason)


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _release(turn: Turn, names: Iterable[str]) -> Procedure[None]:
    """Something changed for the better: these topics are eligible again."""
    names = [name for name in names if name in turn.cluster.topics_to_delete]
    for name in names:
        turn.cluster.deletions_held.pop(name, None)
    if names:
        yield from resume(turn, names)


# --- what happens meanwhile ------------------------------------------------------------------------------


def answered(turn: Turn, reports: Sequence[StopReport]) -> None:
    """TopicDeletionStopReplicaResponseReceived: only of known incarnations, for replicas still to be deleted. What
    comes of it is left to ``progressed``, so that many topics end together."""
    cluster = turn.cluster
    if not cluster.topics_deletion_started:
        return
    deleted: list[Replica] = []
    failed: dict[str, list[Replica]] = {}
    for report in reports:
        broker = cluster.brokers.get(report.broker_id)
        if broker is None or broker.epoch != report.broker_epoch:
            continue
        deleted.extend((p, broker.id) for p in report.deleted if _awaited(cluster, p, broker.id))
        for partition, error in report.failed:
            if _awaited(cluster, partition, broker.id):
                failed.setdefault(error, []).append((partition, broker.id))
    replica_state_machine.to_deletion_successful(turn, deleted)
    for error, replicas in failed.items():
        _set_ineligible(turn, replicas, f"its broker answered {error}")
    touched = _named([*deleted, *(replica for replicas in failed.values() for replica in replicas)])
    settled = [name for name in touched if STARTED not in _states(cluster.topics[name])]
    if settled:
        cluster.deletions_answered.update(settled)
        turn.later(FollowUp.DELETIONS)


def progressed(turn: Turn) -> Procedure[None]:
    """Every replica of these topics was answered for: they are erased, or tried again in time."""
    names, turn.cluster.deletions_answered = turn.cluster.deletions_answered, set()
    if names:
        yield from resume(turn, names)


def _awaited(cluster: Cluster, partition: Partition, broker_id: int) -> bool:
    """Whether an answer about this very partition still matters."""
    return (
        partition.topic.name in cluster.topics_deletion_started
        and cluster.partition(partition.topic.name, partition.number) is partition
        and partition.replica_state(broker_id) is STARTED
    )


def brokers_started(turn: Turn, ids: Collection[int]) -> Procedure[None]:
    """Brokers came (section 6, Startup step 7): deletions that may have waited for them go on."""
    yield from _release(turn, _named(_unfinished(turn.cluster, ids)))


def brokers_failed(turn: Turn, ids: Collection[int]) -> Procedure[None]:
    """Brokers went (section 6, Failure step 5)."""
    yield from replicas_failed(turn, _unfinished(turn.cluster, ids), "its broker is gone")


def replicas_failed(turn: Turn, replicas: Sequence[Replica], why: str) -> Procedure[None]:
    """failReplicaDeletion: replicas of queued topics cannot be reached any more, or not for now."""
    if not replicas:
        return
    running = [r for r in replicas if r[0].replica_state(r[1]) in (NEW, ONLINE)]
    if running:
        yield from replica_state_machine.to_offline(turn, running, why)
        led = {p: None for p, _ in running if p.leadership is not None and p.leadership.leader < 0}
        partition_state_machine.to_offline(
            turn, [p for p in led if p.state is not _NO_PARTITION], f"leader: {why}"
        )
    _set_ineligible(turn, replicas, why)
    yield from resume(turn, _named(replicas))


def replicas_back(turn: Turn, replicas: Sequence[Replica]) -> Procedure[None]:
    """Disks of replicas of queued topics are healthy again."""
    yield from _release(turn, _named(replicas))


def _unfinished(cluster: Cluster, ids: Collection[int]) -> list[Replica]:
    """Replicas of queued topics on these brokers that are not known to be deleted."""
    return [
        (p, b)
        for p, b in _replicas(cluster, sorted(cluster.topics_to_delete))
        if b in ids and p.replica_state(b) is not SUCCESSFUL
    ]


def _named(replicas: Iterable[Replica]) -> dict[str, None]:
    return {partition.topic.name: None for partition, _ in replicas}


# --- pauses ----------------------------------------------------------------------------------------------


def retry_due(cluster: Cluster, now_us: int) -> bool:
    """Whether ``retry`` has something to do."""
    held = any(h.retry_at_us is not None and h.retry_at_us <= now_us for h in cluster.deletions_held.values())
    if held or cluster.maintenance.why_held():
        return held
    return any(not cluster.reassigning(n) and n in cluster.topics for n in cluster.deletions_waiting)


def retry(turn: Turn) -> Procedure[None]:
    """TopicDeletionRetry: what was held long enough is tried again."""
    yield from admit(turn)
    held = turn.cluster.deletions_held
    due = [n for n, h in held.items() if h.retry_at_us is not None and h.retry_at_us <= turn.now_us]
    yield from _release(turn, due)
