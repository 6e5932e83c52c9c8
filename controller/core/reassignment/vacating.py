"""Assignments without some brokers, or with brokers exchanged: as few replicas as possible move, each takes the place
of the one it replaces in the order of preference.

Where a replica goes: to a rack that the partition does not use yet, then to the broker with the least load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from controller.core.model import Broker, BrokerIds
from controller.core.partitions.replica_placement import PlacementError

Key = tuple[str, int]
#: Bytes of each partition's replica; absent or 0: unknown.
Sizes = Mapping[Key, int]


class Load:
    """Replicas, preferred leaderships and bytes by broker."""

    def __init__(self, assignments: Mapping[Key, BrokerIds], sizes: Sizes) -> None:
        self._sizes = sizes
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        for key, replicas in assignments.items():
            for place, broker_id in enumerate(replicas):
                self.add(key, broker_id, place)

    def add(self, key: Key, broker_id: int, place: int, sign: int = 1) -> None:
        """``place``: 0 for the preferred leader. ``sign`` -1 removes it."""
        self.replicas[broker_id] += sign
        self.leaders[broker_id] += sign * (place == 0)
        self.bytes[broker_id] += sign * self._sizes.get(key, 0)


def vacated(
    current: Mapping[Key, BrokerIds],
    leaving: Collection[int],
    brokers: Collection[Broker],
    *,
    sizes: Sizes | None = None,
    avoided: Collection[int] = (),
    preferred: Sequence[int] = (),
) -> dict[Key, BrokerIds]:
    """New replicas of the partitions that have one on a ``leaving`` broker.

    ``brokers``: those that are registered. ``avoided`` ones (drained) get replicas only where no other can take them.
    ``preferred`` ones get all that they do not hold yet. Raises PlacementError where too few brokers are left.
    """
    gone = frozenset(leaving)
    racks = {b.id: b.rack for b in brokers if b.id not in gone}
    load = Load(current, sizes or {})
    changed: dict[Key, BrokerIds] = {}
    # The largest first: the small ones then fill the gaps.
    for key in sorted(
        (k for k, ids in current.items() if gone.intersection(ids)), key=lambda k: -(sizes or {}).get(k, 0)
    ):
        replicas = list(current[key])
        for place, broker_id in enumerate(replicas):
            if broker_id not in gone:
                continue
            used = [racks.get(b) for b in replicas if b != broker_id]
            free = [b for b in racks if b not in replicas]
            if not free:
                raise PlacementError(
                    f"{key[0]}-{key[1]}: no broker is left for one of its {len(replicas)} replicas: "
                    f"{len(racks)} brokers stay"
                )

            def fitness(b: int, used: list[str | None] = used, place: int = place) -> tuple[float, ...]:
                crowded = racks[b] is not None and racks[b] in used
                return (
                    b not in preferred, b in avoided, crowded,
                    load.bytes[b], load.replicas[b], load.leaders[b] if place == 0 else 0, b,
                )  # fmt: skip

            replicas[place] = min(free, key=fitness)
            load.add(key, broker_id, place, -1)
            load.add(key, replicas[place], place)
        changed[key] = tuple(replicas)
    return changed


def swapped(current: Mapping[Key, BrokerIds], one: int, other: int) -> dict[Key, BrokerIds]:
    """New replicas of the partitions on exactly one of two brokers, or on both in another order: each has what the
    other had."""
    names = {one: other, other: one}
    after = {key: tuple(names.get(b, b) for b in ids) for key, ids in current.items()}
    return {key: ids for key, ids in after.items() if ids != current[key]}
