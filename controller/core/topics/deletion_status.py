"""The status of topic deletions, for metrics and operators (reference, sections 7.1 and 11.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, StrEnum

from controller.core.model import Cluster, ReplicaState
from controller.core.reasons import Reason


class Recorded(StrEnum):
    """What the state-change log says of a topic."""

    KNOWN = "known"
    WAITING = "waiting for deletion"
    DELETING = "deleting"
    INELIGIBLE = "ineligible for deletion"


class DeletionPhase(Enum):
    """The phase of a topic's deletion; the values are for operators."""

    WAITING = (
        "waiting"  #: not queued yet: it is under reassignment, its znode is unreadable, or work is suspended
    )
    QUEUED = "queued"  #: about to begin
    STARTED = "started"  #: StopReplica is queued for its brokers
    INELIGIBLE = "ineligible"  #: blocked; a retry or a returning broker may resume it


@dataclass(frozen=True)
class DeletionStatus:
    """The deletion of one topic. ``reason``: why it waits, if it does. ``replicas_left``: replicas not confirmed
    deleted. ``retry_at_us``: the time of the next retry, on the driver's clock; None: no retry is scheduled."""

    topic: str
    phase: DeletionPhase
    reason: Reason | None = None
    replicas_left: int = 0
    replicas_ineligible: int = 0
    retry_at_us: int | None = None


def recorded_as(cluster: Cluster, name: str) -> Recorded:
    """What the state-change log says of a topic now: the last record's ``to``, and the next one's ``from``."""
    if name in cluster.deletions_ineligible:
        return Recorded.INELIGIBLE
    if name in cluster.topics_to_delete:
        return Recorded.DELETING
    return Recorded.WAITING if name in cluster.deletions_waiting else Recorded.KNOWN


def deletions(cluster: Cluster) -> list[DeletionStatus]:
    """All waiting or queued deletions, sorted by topic name."""
    waiting = cluster.deletions_waiting
    return [_status(cluster, name) for name in sorted(cluster.topics_to_delete | waiting.keys())]


def _status(cluster: Cluster, name: str) -> DeletionStatus:
    topic = cluster.topics.get(name)
    states = Counter(
        state for p in (topic.partitions.values() if topic else ()) for state in p.replica_states
    )
    left = states.total() - states[ReplicaState.DELETION_SUCCESSFUL]
    ineligible = states[ReplicaState.DELETION_INELIGIBLE]
    if name not in cluster.topics_to_delete:
        return DeletionStatus(name, DeletionPhase.WAITING, cluster.deletions_waiting[name], left)
    held = cluster.deletions_ineligible.get(name)
    if held is not None:
        return DeletionStatus(name, DeletionPhase.INELIGIBLE, held.reason, left, ineligible, held.retry_at_us)
    phase = DeletionPhase.STARTED if name in cluster.topics_deletion_started else DeletionPhase.QUEUED
    return DeletionStatus(name, phase, None, left, ineligible)
