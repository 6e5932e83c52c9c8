"""Generates balanced assignments for existing partitions on given brokers, with as few moved replicas as possible.

In order of priority: each partition spans as many racks as possible; all brokers hold equally many replicas, or equally
many bytes; replicas stay where they are; leaderships are as even as the replicas allow.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping

from controller.core.model import Broker, BrokerIds
from controller.core.partitions.replica_placement import PlacementError

Key = tuple[str, int]
#: Bytes are not levelled by less than this share of the mean of all brokers: that would copy much for little.
TOLERANCE = 0.05


def generate(
    current: Mapping[Key, BrokerIds],
    brokers: Collection[Broker],
    *,
    rack_aware: bool = True,
    replication_factor: int | None = None,
    avoided: Collection[int] = (),
    sizes: Mapping[Key, int] | None = None,
) -> dict[Key, BrokerIds]:
    """New replicas, preferred leader first, by (topic, partition).

    ``brokers`` are used, all others are vacated. ``avoided`` brokers (drained ones) keep their replicas, and get new
    ones only where no other broker can take them. Each partition keeps its number of replicas unless
    ``replication_factor`` is given. ``sizes``: bytes of each partition's replica; brokers then hold equally many bytes,
    within ``TOLERANCE``, instead of replicas. Raises PlacementError when there are too few brokers.
    """
    plan = _Plan(brokers, rack_aware, frozenset(avoided), sizes)
    for key, replicas in current.items():
        wanted = len(replicas) if replication_factor is None else replication_factor
        if not 1 <= wanted <= len(plan.racks):
            raise PlacementError(
                f"{key[0]}-{key[1]}: {wanted} replicas: must be from 1 to the number of brokers, {len(plan.racks)}"
            )
        plan.keep(key, replicas, wanted)
    plan.fill()
    plan.level()
    before = {key: ids[0] for key, ids in current.items() if ids}
    leaders = _leaders(plan.placed, before, plan.racks, plan.avoided)
    return {
        key: (leaders[key], *(b for b in _ordered(current[key], ids) if b != leaders[key]))
        for key, ids in plan.placed.items()
    }


def _ordered(before: BrokerIds, after: Collection[int]) -> list[int]:
    """Replicas that stay, in their former order, then the new ones."""
    return [b for b in before if b in after] + sorted(b for b in after if b not in before)


class _Plan:
    """The replicas of each partition as a set; completed and levelled step by step."""

    def __init__(
        self,
        brokers: Collection[Broker],
        rack_aware: bool,
        avoided: frozenset[int],
        sizes: Mapping[Key, int] | None,
    ) -> None:
        self.avoided = avoided
        self.sizes = sizes
        #: Rack by broker id; a broker without one counts as its own rack.
        self.racks = {
            b.id: b.rack if rack_aware and b.rack is not None else f"broker {b.id}" for b in brokers
        }
        self.rack_count = len(set(self.racks.values()))
        self.placed: dict[Key, set[int]] = {}
        self.wanted: dict[Key, int] = {}
        self.load: Counter[int] = Counter(dict.fromkeys(self.racks, 0))
        self.held: dict[int, dict[Key, None]] = {b: {} for b in self.racks}

    def keep(self, key: Key, replicas: BrokerIds, wanted: int) -> None:
        """Keep present replicas: first one in each rack, then more if there are fewer racks than replicas."""
        self.placed[key], self.wanted[key] = set(), wanted
        useful = [b for b in replicas if b in self.racks]
        spread = min(wanted, self.rack_count)
        first: dict[str, int] = {}
        for broker_id in useful:
            first.setdefault(self.racks[broker_id], broker_id)
        for broker_id in list(first.values())[:wanted]:
            self._add(key, broker_id)
        spare = wanted - spread
        for broker_id in [b for b in useful if b not in self.placed[key]][:spare]:
            if len(self.placed[key]) < wanted:
                self._add(key, broker_id)

    def fill(self) -> None:
        """Add missing replicas: in unused racks first, on the brokers with fewest replicas."""
        for key, placed in self.placed.items():
            while len(placed) < self.wanted[key]:
                free = [b for b in self.racks if b not in placed]
                used = Counter(self.racks[b] for b in placed)

                def fitness(b: int, used: Counter[str] = used) -> tuple[bool, bool, int, int, int]:
                    rack = used[self.racks[b]]
                    return b in self.avoided, rack > 0, self.load[b], rack, b

                self._add(key, min(free, key=fitness))

    def level(self) -> None:
        """Move single replicas from the brokers with most to those with fewest, as far as racks allow."""
        moved = True
        while moved:
            moved = any(
                self._relieve(source) for source in sorted(self.racks, key=lambda b: (-self.load[b], b))
            )

    def _relieve(self, source: int) -> bool:
        """Move one replica of this broker to the allowed broker with fewest; False if none is possible or needed."""
        for target in sorted(self.racks, key=lambda b: (self.load[b], b)):
            excess = self.load[source] - self.load[target]
            if excess < 2 or (self.sizes and excess <= TOLERANCE * self.load.total() / len(self.load)):
                return False
            if target in self.avoided:
                continue
            for key in self._largest_first(source):
                if self._weight(key) < excess and self._may_move(key, source, target):
                    self._remove(key, source)
                    self._add(key, target)
                    return True
        return False

    def _weight(self, key: Key) -> int:
        """What a replica adds to its broker's load; one of unknown or no size counts as a byte."""
        return max(self.sizes.get(key, 0), 1) if self.sizes else 1

    def _largest_first(self, source: int) -> list[Key]:
        held = list(self.held[source])
        return sorted(held, key=self._weight, reverse=True) if self.sizes else held

    def _may_move(self, key: Key, source: int, target: int) -> bool:
        placed = self.placed[key]
        if target in placed:
            return False
        others = [self.racks[b] for b in placed if b != source]
        return self.racks[target] not in others or self.racks[source] in others

    def _add(self, key: Key, broker_id: int) -> None:
        self.placed[key].add(broker_id)
        self.load[broker_id] += self._weight(key)
        self.held[broker_id][key] = None

    def _remove(self, key: Key, broker_id: int) -> None:
        self.placed[key].remove(broker_id)
        self.load[broker_id] -= self._weight(key)
        del self.held[broker_id][key]


def _leaders(
    placed: Mapping[Key, Collection[int]],
    before: Mapping[Key, int],
    brokers: Iterable[int],
    avoided: Collection[int],
) -> dict[Key, int]:
    """Choose a leader for each partition, as evenly as possible.

    Leaderships are handed over along chains until no chain leads to a broker with at least two fewer. Former leaders
    stay where that is as even. Avoided brokers lead nothing new that another replica can lead.
    """
    leaders = {
        key: before[key] if before.get(key) in ids else min(ids, key=lambda b: (b in avoided, b))
        for key, ids in placed.items()
    }
    led: dict[int, dict[Key, None]] = {b: {} for b in brokers}
    for key, leader in leaders.items():
        led[leader][key] = None
    improved = True
    while improved:
        improved = False
        for source in sorted(led, key=lambda b: (-len(led[b]), b)):
            path = _handover(source, led, placed, avoided)
            if path:
                for key, receiver in path:
                    del led[leaders[key]][key]
                    led[receiver][key] = None
                    leaders[key] = receiver
                improved = True
                break
    return leaders


def _handover(
    source: int,
    led: Mapping[int, Mapping[Key, None]],
    placed: Mapping[Key, Collection[int]],
    avoided: Collection[int],
) -> list[tuple[Key, int]]:
    """The shortest chain of (partition, new leader) from a broker to one with at least two fewer leaderships."""
    came: dict[int, tuple[int, Key]] = {}
    queue = deque([source])
    while queue:
        giver = queue.popleft()
        for key in led[giver]:
            for receiver in placed[key]:
                if receiver == source or receiver in came or receiver in avoided:
                    continue
                came[receiver] = (giver, key)
                if len(led[source]) - len(led[receiver]) >= 2:
                    return _chain(receiver, source, came)
                queue.append(receiver)
    return []


def _chain(receiver: int, source: int, came: Mapping[int, tuple[int, Key]]) -> list[tuple[Key, int]]:
    chain = []
    while receiver != source:
        giver, key = came[receiver]
        chain.append((key, receiver))
        receiver = giver
    return chain
