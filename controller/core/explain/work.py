"""Explains why a topic is not deleted yet, why a reassignment is not complete, and what restricts the controller.

As in ``partitions``: pure functions; each explanation is data with ``words``, and names what would change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.core.context import CoreSettings, unclean_default
from controller.core.explain.partitions import back_in_sync
from controller.core.model import NO_LEADER, BrokerIds, Cluster, Partition, ReplicaState
from controller.core.names import counted, counted_are, first_few, ids_shown
from controller.core.reassignment.assignment import assignment_of
from controller.core.reassignment.concurrency import pending_reasons
from controller.core.topics.deletion_status import DeletionPhase, DeletionStatus, deletions
from controller.core.znode_paths import BROKER_DEFAULTS, topic_path

#: The phase of a deletion or reassignment that was not requested.
NONE = "none"
#: Partitions named in one line; the rest is counted.
_NAMED_MAX = 10

_REPLICA_WORDS = {
    ReplicaState.DELETION_STARTED: "was told to delete it and has not answered yet",
    ReplicaState.DELETION_INELIGIBLE: "could not delete it",
}


@dataclass(frozen=True)
class WorkExplanation:
    """A deletion or a reassignment. ``phase``: for programs. ``summary``: one sentence. ``waits_for``: each unfinished
    step, and why. ``changes``: what would change it."""

    subject: str
    phase: str
    summary: str
    waits_for: tuple[str, ...]
    changes: tuple[str, ...]

    def words(self) -> list[str]:
        return [
            f"{self.subject}: {self.summary}",
            *(f"waits for: {text}" for text in self.waits_for),
            *(f"would change it: {text}" for text in self.changes),
        ]


# --- deletions -----------------------------------------------------------------------------------------------


def explain_topic_deletion(cluster: Cluster, settings: CoreSettings, topic: str) -> WorkExplanation | None:
    """The progress of a topic's deletion; None where neither the topic nor a deletion of it is known."""
    status = next((d for d in deletions(cluster) if d.topic == topic), None)
    if status is not None:
        waits = tuple(_replicas_left(cluster, topic))
        changes = tuple(_deletion_changes(cluster, status))
        return WorkExplanation(topic, status.phase.value, _deletion_summary(status), waits, changes)
    problem = cluster.problems.get(topic_path(topic))
    if topic not in cluster.topics and problem is None:
        return None
    summary = "no deletion of it is known"
    if problem is not None:
        summary += f", and its znode is unreadable: {problem}"
    change = f"pctl topics delete {topic} asks for it"
    if not settings.delete_topic_enable:
        change = "delete_topic_enable = true in the controllers' settings: until then no deletion is accepted"
    return WorkExplanation(topic, NONE, summary, (), (change,))


def _deletion_summary(status: DeletionStatus) -> str:
    left = f"{counted_are(status.replicas_left, 'replica')} not known to be deleted"
    match status.phase:
        case DeletionPhase.WAITING:
            return f"it is to be deleted, later: {status.reason}"
        case DeletionPhase.QUEUED:
            return f"it is queued for deletion, and no broker was told yet; {left}"
        case DeletionPhase.STARTED:
            return f"it is being deleted: brokers were notified; {left}"
        case DeletionPhase.INELIGIBLE:
            return f"its deletion is held up: {status.reason}; {left}"


def _replicas_left(cluster: Cluster, topic: str) -> Iterator[str]:
    """A line for each broker and reason, with the partitions whose replica it still has."""
    found: dict[tuple[int, str], list[Partition]] = {}
    known = cluster.topics.get(topic)
    for partition in known.partitions.values() if known else ():
        for broker_id, state in zip(partition.replicas, partition.replica_states, strict=True):
            if state is not ReplicaState.DELETION_SUCCESSFUL:
                why = _why_not_deleted(cluster, partition, broker_id, state)
                found.setdefault((broker_id, why), []).append(partition)
    for (broker_id, why), partitions in sorted(found.items(), key=lambda item: item[0]):
        yield f"broker {broker_id}, which {why}: {_names(partitions)}"


def _why_not_deleted(cluster: Cluster, partition: Partition, broker_id: int, state: ReplicaState) -> str:
    if broker_id not in cluster.brokers:
        return "is not registered"
    if partition in cluster.offline_dirs.get(broker_id, ()):
        return "has it on a disk that failed"
    begun = partition.topic.name in cluster.topics_deletion_started | cluster.deletions_ineligible.keys()
    return _REPLICA_WORDS.get(state, "has not deleted it" if begun else "was not told to delete it yet")


def _deletion_changes(cluster: Cluster, status: DeletionStatus) -> Iterator[str]:
    name = status.topic
    match status.phase:
        case DeletionPhase.WAITING:
            moving = cluster.reassigning(name)
            if moving:
                yield f"the reassignment of {_names(moving)} ends, or is taken back: pctl reassign cancel"
            if topic_path(name) in cluster.problems:
                yield f"{topic_path(name)} is repaired: the controller watches it"
            if not moving and topic_path(name) not in cluster.problems:
                yield "the controller, which checks again with the next change of the topic or of a reassignment"
        case DeletionPhase.QUEUED:
            yield "the controller, which sends StopReplica in one of its next events"
        case DeletionPhase.STARTED | DeletionPhase.INELIGIBLE:
            yield from _repairs(cluster, name)
            if status.retry_at_us is not None:
                yield "it is retried automatically, after a pause that grows with every refusal"


def _repairs(cluster: Cluster, topic: str) -> Iterator[str]:
    known = cluster.topics.get(topic)
    partitions = list(known.partitions.values()) if known else []
    left = [
        b
        for p in partitions
        for b, state in zip(p.replicas, p.replica_states, strict=True)
        if state is not ReplicaState.DELETION_SUCCESSFUL
    ]
    ids = sorted(set(left))
    if gone := [b for b in ids if b not in cluster.brokers]:
        yield f"brokers {_ids(gone)} return and delete theirs; else they are forgotten (pctl brokers forget)"
    failed = [b for b in ids if not cluster.offline_dirs.get(b, set()).isdisjoint(partitions)]
    if failed:
        yield f"the failed disks of brokers {_ids(failed)} are repaired or replaced, and these restarted"
    if notified := [b for b in ids if b not in gone and b not in failed]:
        yield f"brokers {_ids(notified)} answer that theirs are deleted"


# --- reassignments -------------------------------------------------------------------------------------------


def explain_reassignment(cluster: Cluster, settings: CoreSettings, partition: Partition) -> WorkExplanation:
    """The progress of a partition's reassignment: ongoing, queued, complete except for stray replicas, or none."""
    reassignments = cluster.reassignments
    reasons = tuple(map(str, pending_reasons(cluster, settings, partition)))
    changes = tuple(_move_changes(cluster, settings, partition))
    if partition in reassignments.ongoing or partition.adding or partition.removing:
        phase = "ongoing"
        target = assignment_of(partition).target
        both = f"adding {ids_shown(partition.adding)}, removing {ids_shown(partition.removing)}"
        summary = f"it is moving to {ids_shown(target)}: {both}"
        if partition in reassignments.queued:
            summary += f"; after that to {ids_shown(reassignments.queued[partition])}"
    elif partition in reassignments.queued:
        phase = "queued"
        summary = f"its move to {ids_shown(reassignments.queued[partition])} waits in the queue"
    elif partition in reassignments.strays:
        phase = "stray_replicas"
        summary = f"it has moved; brokers {_ids(reassignments.strays_of(partition))} are still to delete what they have"
    else:
        phase, summary = NONE, f"it is not being reassigned; its replicas are {ids_shown(partition.replicas)}"
    return WorkExplanation(partition.name, phase, summary, reasons, changes)


def _move_changes(cluster: Cluster, settings: CoreSettings, partition: Partition) -> Iterator[str]:
    reassignments = cluster.reassignments
    where = f"--topic {partition.topic.name} --partition {partition.number}"
    moving = partition in reassignments.ongoing or bool(partition.adding or partition.removing)
    state = partition.leadership
    if moving and state is None:
        yield "a replica that comes online: the partition was never led"
    elif moving and state is not None:
        if state.leader == NO_LEADER:
            yield f"a leader to copy from: pctl explain partition {partition.topic.name} {partition.number}"
        for broker_id in partition.replicas:
            if broker_id not in state.isr and broker_id not in partition.removing:
                yield back_in_sync(cluster, partition, broker_id, state.leader)
    if partition in reassignments.queued:
        yield (
            "a move that ends and makes room, or a larger reassignment_concurrent_moves_max "
            f"({settings.reassignment_concurrent_moves_max or 'none'}) or reassignment_concurrent_moves_per_broker_max "
            f"({settings.reassignment_concurrent_moves_per_broker_max or 'none'})"
        )
    for broker_id in reassignments.strays_of(partition):
        does = "deletes it" if broker_id in cluster.brokers else "returns and deletes it"
        yield f"broker {broker_id} {does}; StopReplica is sent again at failover and when it returns"
    if moving or partition in reassignments.queued:
        yield f"pctl reassign cancel {where} takes it back"
    elif partition not in reassignments.strays:
        yield f"pctl reassign execute {where} --replicas ... moves it"


# --- the controller -------------------------------------------------------------------------------------------


def controller_notes(cluster: Cluster, settings: CoreSettings) -> tuple[str, ...]:
    """The controller's settings, and its current restrictions."""

    def on(value: bool) -> str:
        return "on" if value else "off"

    def cap(value: int) -> str:
        return str(value) if value else "no cap"

    unclean = on(unclean_default(settings, cluster))
    source = "its setting" if cluster.unclean_default is None else BROKER_DEFAULTS
    maintenance = cluster.maintenance
    notes = [
        f"unclean elections of topics without their own setting: {unclean} (by {source})",
        f"topic deletion: {on(settings.delete_topic_enable)}",
        f"moves at once: {cap(settings.reassignment_concurrent_moves_max)}, per broker: "
        f"{cap(settings.reassignment_concurrent_moves_per_broker_max)}",
        f"leadership returns automatically: {on(settings.auto_leader_rebalance_enable)}, above "
        f"{settings.leader_imbalance_per_broker_percentage} % of a broker's partitions",
    ]
    if (suspension := maintenance.suspension) is not None:
        notes.append(f"automatic work is suspended: {suspension}")
    for broker_id, mark in sorted(maintenance.drained.items()):
        notes.append(f"broker {broker_id} is kept free of leaderships by {mark.author}: {mark.reason}")
    if cluster.shutting_down:
        notes.append(f"in controlled shutdown: brokers {_ids(sorted(cluster.shutting_down))}")
    for broker_id, lost in sorted(cluster.offline_dirs.items()):
        notes.append(f"broker {broker_id} has {counted(len(lost), 'replica')} on failed disks")
    return tuple(notes)


def _names(partitions: Iterable[Partition]) -> str:
    return first_few([p.name for p in partitions], _NAMED_MAX)


def _ids(broker_ids: Iterable[int] | BrokerIds) -> str:
    return ", ".join(map(str, broker_ids))
