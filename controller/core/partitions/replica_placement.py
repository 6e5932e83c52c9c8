"""Placement of new replicas, and checks of topic creation (reference, section 7)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from controller.core.model import REPLICAS_MAX, Broker, BrokerIds


class PlacementError(ValueError):
    """The request cannot be fulfilled; the message names the broken rule."""


def assign_replicas(
    brokers: Collection[Broker], partitions: int, replication_factor: int, start: int = 0, first: int = 0
) -> dict[int, BrokerIds]:
    """Place partitions, numbered from ``first`` on: partition number to broker ids, preferred leader first.

    The result equals that of Kafka's AdminUtils with the start index ``start``. Leaders rotate over all brokers.
    Followers go to other racks first; their shift grows with each rotation, so that no two brokers share all their
    partitions. Raises PlacementError.
    """
    if partitions < 1:
        raise PlacementError(f"partitions = {partitions}: must be at least 1")
    if not brokers:
        raise PlacementError(
            f"replication factor = {replication_factor}: there is no broker to place replicas on"
        )
    if not 1 <= replication_factor <= len(brokers):
        raise PlacementError(
            f"replication factor = {replication_factor}: must be from 1 to the number of brokers, {len(brokers)}"
        )
    ring = _interleaved(brokers)
    racks = len({_place(broker) for broker in ring})
    shift = start
    placed = {}
    for number in range(first, first + partitions):
        if number > 0 and number % len(ring) == 0:
            shift += 1
        placed[number] = _replicas(ring, number + start, shift * racks, replication_factor, racks)
    return placed


def avoiding(
    brokers: Collection[Broker], avoided: Collection[int], replication_factor: int
) -> tuple[list[Broker], list[int]]:
    """The brokers for new replicas: all but the avoided ones. If these are fewer than the replication factor, avoided
    ones are added, lowest ids first. Also returns the ids of the avoided brokers used."""
    wanted = [b for b in brokers if b.id not in avoided]
    others = sorted((b for b in brokers if b.id in avoided), key=lambda b: b.id)
    taken = others[: max(replication_factor - len(wanted), 0)] if replication_factor > 0 else others
    return [*wanted, *taken], [b.id for b in taken]


def start_after(brokers: Collection[Broker], leader: int) -> int:
    """The start index for partitions added to a topic whose partition 0 has this preferred leader: the leader's
    position in the sorted broker ids, or that of the next higher id, else 0."""
    ids = sorted(broker.id for broker in brokers)
    return bisect_left(ids, leader) % max(len(ids), 1)


def _place(broker: Broker) -> tuple[str, int]:
    """The broker's rack; a broker without one counts as its own rack."""
    return (broker.rack, -1) if broker.rack else ("", broker.id)


def _interleaved(brokers: Collection[Broker]) -> list[Broker]:
    """Brokers ordered so that neighbours are in different racks as far as possible."""
    racks: dict[tuple[str, int], list[Broker]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(_place(broker), []).append(broker)
    ring: list[Broker] = []
    queues = [racks[rack] for rack in sorted(racks)]
    while queues:
        ring.extend(queue.pop(0) for queue in queues)
        queues = [queue for queue in queues if queue]
    return ring


def _replicas(ring: Sequence[Broker], position: int, shift: int, count: int, racks: int) -> BrokerIds:
    """A leader and the next brokers from ``shift`` after it on; a used rack only when all racks are used."""
    size = len(ring)
    chosen = [ring[position % size]]
    used = {_place(chosen[0])}
    step = shift
    while len(chosen) < count:
        broker = ring[(position + 1 + step % (size - 1)) % size]
        step += 1
        if broker not in chosen and (len(used) == racks or _place(broker) not in used):
            chosen.append(broker)
            used.add(_place(broker))
    return tuple([b.id for b in chosen])


def parse_assignment(text: str) -> dict[int, BrokerIds]:
    """``1:2,2:3`` (kafka-topics --replica-assignment): replicas of partition 0, of partition 1, ...

    Raises PlacementError.
    """
    assignment = {}
    for number, part in enumerate(text.split(",")):
        try:
            assignment[number] = tuple(int(id_) for id_ in part.split(":"))
        except ValueError:
            raise PlacementError(
                f"replica assignment {part!r} of partition {number}: must be broker ids like 1:2:3"
            ) from None
    check_assignment(assignment)
    return assignment


def check_assignment(assignment: Mapping[int, BrokerIds]) -> None:
    """Raises PlacementError unless the replication factor is uniform and ids are distinct and not negative."""
    factors = {len(replicas) for replicas in assignment.values()}
    if len(factors) != 1 or 0 in factors:
        raise PlacementError(
            "replica assignment: every partition must have the same number of replicas, at least 1"
        )
    if (factor := max(factors)) > REPLICAS_MAX:
        raise PlacementError(
            f"replica assignment: {factor} replicas of a partition: must be at most {REPLICAS_MAX}"
        )
    for number, replicas in assignment.items():
        if len(set(replicas)) != len(replicas) or any(id_ < 0 for id_ in replicas):
            raise PlacementError(
                f"replica assignment of partition {number}: broker ids must be distinct, not negative"
            )
