"""The health of partitions: from their stored state, the registered brokers and failed disks."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from controller.core.model import BrokerIds
from controller.core.znode_paths import state_path
from controller.planning.snapshot import Key, Snapshot, min_isr_of
from controller.planning.store import Store


@dataclass(frozen=True)
class PartitionHealth:
    """One partition. ``in_sync``: members of the ISR that are online, that is registered and not on a failed disk;
    ``leader``: -1 if it is not online."""

    topic: str
    partition: int
    replicas: BrokerIds
    leader: int
    in_sync: BrokerIds
    min_isr: int

    @property
    def offline(self) -> bool:
        return self.leader < 0

    @property
    def under_min_isr(self) -> bool:
        return len(self.in_sync) < self.min_isr

    @property
    def under_replicated(self) -> bool:
        return not set(self.replicas) <= set(self.in_sync)


@dataclass
class Health:
    """All partitions that are not being deleted. ``unreadable``: those whose state does not decode; they are in no
    other field. ``leaders``: number of partitions led, by broker."""

    partitions: dict[Key, PartitionHealth] = field(default_factory=dict)
    unreadable: list[Key] = field(default_factory=list)
    leaders: dict[int, int] = field(default_factory=dict)

    @property
    def offline(self) -> list[Key]:
        return sorted(k for k, p in self.partitions.items() if p.offline)

    @property
    def under_min_isr(self) -> list[Key]:
        return sorted(k for k, p in self.partitions.items() if p.under_min_isr)

    @property
    def under_replicated(self) -> list[Key]:
        return sorted(k for k, p in self.partitions.items() if p.under_replicated)

    @property
    def safe(self) -> bool:
        """Nothing is offline or below min.insync.replicas."""
        return not any(p.offline or p.under_min_isr for p in self.partitions.values())


class Gauge:
    """Measures stores made from one snapshot. Raises PlanError for an invalid ``min.insync.replicas``."""

    def __init__(self, snapshot: Snapshot, min_isr_default: int) -> None:
        self._min_isr = {name: min_isr_of(snapshot, name, min_isr_default) for name in snapshot.topics}

    def measure(self, store: Store) -> Health:
        health = Health(leaders=dict.fromkeys(sorted(store.brokers), 0))
        registered: Set[int] = store.brokers.keys()
        simple = not store.offline_dirs
        for name, info in store.topics.items():
            if name in store.deletions:
                continue
            for number, replicas in info.partitions.items():
                key = (name, number)
                if state_path(*key) in store.problems:
                    health.unreadable.append(key)
                    continue
                state = store.states.get(key)
                isr = state.isr if state else ()
                if simple:
                    in_sync = tuple([b for b in isr if b in registered])
                else:
                    in_sync = tuple([b for b in isr if store.is_online(key, b)])
                leader = state.leader if state and store.is_online(key, state.leader) else -1
                if leader >= 0:
                    health.leaders[leader] += 1
                # Of as many as there are, as brokers count it (LeaderAndIsr.spare).
                min_isr = min(self._min_isr.get(name, 1), len(replicas))
                health.partitions[key] = PartitionHealth(name, number, replicas, leader, in_sync, min_isr)
        return health


def margin(partitions: Mapping[Key, PartitionHealth], brokers: int) -> int:
    """How many of ``brokers``, whichever they are, may fail before a healthy partition is offline or below
    min.insync.replicas."""
    spare = [len(p.in_sync) - p.min_isr for p in partitions.values() if not p.offline and not p.under_min_isr]
    return min([brokers, *spare])
