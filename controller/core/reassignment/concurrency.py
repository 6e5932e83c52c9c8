"""Which reassignments may run now, which wait, and why one is not complete: pure decisions on the cluster state.

Limits on concurrent reassignments, in total and per broker involved, bound the load of copying. Partitions that have
lost a replica go first. Reassignments that copy nothing never wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.core.context import CoreSettings
from controller.core.model import NO_LEADER, Cluster, Partition, Suspension, SuspensionKind, members
from controller.core.reasons import Reason
from controller.core.reassignment.assignment import Assignment, assignment_of, origin_of, target_of
from controller.core.reassignment.reasons import (
    BrokerAbsent,
    BrokerLimit,
    ElectionsSuspended,
    NeverLed,
    NextInLine,
    NoSource,
    NoTarget,
    NoTargetOnline,
    OutOfSync,
    Queued,
    StrayLeft,
    TargetOutOfSync,
    TotalLimit,
)


def lost_replicas(cluster: Cluster, partition: Partition) -> list[int]:
    """Replicas that are not online, without those being added."""
    return [b for b in origin_of(partition) if not cluster.is_online(partition, b)]


def by_urgency(cluster: Cluster, partitions: Iterable[Partition]) -> list[Partition]:
    """Partitions that have lost a replica first, else in the order given."""
    found = list(partitions)
    live, healthy = cluster.live_ids(), not cluster.offline_dirs
    if healthy and all(map(live.issuperset, {p.replicas for p in found})):
        return found
    return sorted(
        found, key=lambda p: (healthy and live.issuperset(p.replicas)) or not lost_replicas(cluster, p)
    )


class ConcurrencyLimit:
    """The concurrency limits, and the reassignments that count towards them."""

    def __init__(self, cluster: Cluster, settings: CoreSettings) -> None:
        self._ongoing = cluster.reassignments.ongoing
        self._frozen = cluster.maintenance.frozen
        self._total_max = settings.reassignment_concurrent_moves_max
        self._broker_max = settings.reassignment_concurrent_moves_per_broker_max
        self._copying: set[Partition] = set()
        self._per_broker: Counter[int] = Counter()
        if self._total_max or self._broker_max:
            for partition in cluster.reassignments.ongoing:
                self.take(partition, assignment_of(partition))

    def take(self, partition: Partition, plan: Assignment) -> None:
        """Count a reassignment; one that copies nothing does not count."""
        if not self._total_max and not self._broker_max:
            return
        if plan.adding and partition not in self._copying:
            self._copying.add(partition)
            self._per_broker.update(_taking_part(plan))

    def why_wait(
        self, partition: Partition, plan: Assignment
    ) -> TotalLimit | BrokerLimit | Suspension | None:
        """Why a reassignment may not begin yet; None when it may."""
        if self._frozen is not None and partition not in self._ongoing:
            return self._frozen
        if not (self._total_max or self._broker_max) or not plan.adding or partition in self._copying:
            return None
        if self._total_max and len(self._copying) >= self._total_max:
            return TotalLimit(len(self._copying), self._total_max)
        for broker_id in _taking_part(plan):
            count = self._per_broker[broker_id]
            if self._broker_max and count >= self._broker_max:
                return BrokerLimit(broker_id, count, self._broker_max)
        return None


def _taking_part(plan: Assignment) -> frozenset[int]:
    """Brokers that get or lose a replica."""
    return frozenset((*plan.adding, *plan.removing))


def pending_reasons(
    cluster: Cluster, settings: CoreSettings, partition: Partition, running: ConcurrencyLimit | None = None
) -> list[Reason]:
    """Why the reassignment of a partition is not complete yet; empty without one. ``running``: for one who asks about
    many partitions.

    Covers a queued reassignment, targets outside the ISR, a missing leader, a failed step, and stray replicas.
    """
    reassignments = cluster.reassignments
    reasons: list[Reason] = []
    if (queued := reassignments.queued.get(partition)) is not None:
        plan = assignment_of(partition).reassign_to(queued)
        running = running or ConcurrencyLimit(cluster, settings)
        limit = cluster.maintenance.suspension or running.why_wait(partition, plan)
        reasons.append(Queued(queued, limit or NextInLine()))
        if (stalled := reassignments.stalled.get(partition)) is not None:
            reasons.append(stalled.reason)
    if partition in reassignments.ongoing:
        reasons.extend(_waiting_for(cluster, partition) or _paused(cluster, partition))
        if (problem := reassignments.problems.get(partition)) is not None:
            reasons.append(problem)
    reasons.extend(
        StrayLeft(broker_id, held.reason if broker_id in cluster.brokers else BrokerAbsent())
        for broker_id, held in reassignments.strays.get(partition, {}).items()
    )
    return reasons


def _waiting_for(cluster: Cluster, partition: Partition) -> list[Reason]:
    leadership = partition.leadership
    target = target_of(partition)
    if leadership is None:
        return [NeverLed()]
    if not target:
        return [NoTarget()]
    isr, in_sync = leadership.isr, members(leadership.isr)
    reasons: list[Reason] = [
        TargetOutOfSync(b, isr, _why_outside(cluster, partition, b)) for b in target if b not in in_sync
    ]
    if reasons and leadership.leader == NO_LEADER:
        reasons.append(NoSource())
    if not reasons and not any(cluster.is_online(partition, b) for b in target):
        reasons.append(NoTargetOnline(target))
    return reasons


def needs_leader(cluster: Cluster, partition: Partition) -> bool:
    """Whether none of its targets is an online leader."""
    leader = partition.leadership.leader if partition.leadership is not None else NO_LEADER
    return leader not in target_of(partition) or not cluster.is_online(partition, leader)


def _paused(cluster: Cluster, partition: Partition) -> list[Reason]:
    suspension = cluster.maintenance.suspension
    if suspension is None or suspension.kind is not SuspensionKind.PAUSED:
        return []
    return [ElectionsSuspended(suspension)] if needs_leader(cluster, partition) else []


def _why_outside(cluster: Cluster, partition: Partition, broker_id: int) -> OutOfSync:
    if broker_id not in cluster.brokers:
        return OutOfSync.BROKER_ABSENT
    if broker_id in cluster.shutting_down:
        return OutOfSync.SHUTTING_DOWN
    if not cluster.is_online(partition, broker_id):
        return OutOfSync.DISK_FAILED
    return OutOfSync.COPYING
