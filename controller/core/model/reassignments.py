"""Ongoing and queued reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controller.core.model.broker_ids import BrokerIds
from controller.core.model.topics import Partition
from controller.core.reasons import Reason


class Ineligible(msgspec.Struct, frozen=True):
    """Why a deletion of a topic or a stray replica is *ineligible* (reference, section 7.1), or why a queued
    reassignment could not begin.

    ``retry_at_us``: when it is tried again, on the driver's clock; None: a deletion only once a broker or disk is back,
    a reassignment with the next one that may begin.
    """

    reason: Reason
    retry_at_us: int | None = None

    def is_due(self, now_us: int) -> bool:
        """Whether the time to try again has come."""
        return self.retry_at_us is not None and self.retry_at_us <= now_us


class Reassignments:
    """Ongoing and queued reassignments, and stray replicas still to be deleted (KIP-455)."""

    def __init__(self) -> None:
        #: Ongoing reassignments: partition to original replicas, preferred first; empty where unknown.
        self.ongoing: dict[Partition, BrokerIds] = {}
        #: Reassignments that wait for the concurrency limit, oldest first: partition to target replicas.
        self.queued: dict[Partition, BrokerIds] = {}
        #: Queued ones that could not begin.
        self.stalled: dict[Partition, Ineligible] = {}
        #: Why the last step of an ongoing reassignment failed.
        self.problems: dict[Partition, Reason] = {}
        #: Stray replicas, by broker: outside the assignment, and their deletion is not confirmed.
        self.strays: dict[Partition, dict[int, Ineligible]] = {}
        #: Reassignments whose new replicas are in sync, to be finished.
        self.in_sync: dict[Partition, None] = {}
        #: Partitions whose topic znode still names deleted stray replicas, and since when, on the driver's clock.
        self.confirmed: dict[Partition, int] = {}
        #: How often a broker refused to delete a stray replica.
        self.refusals: dict[tuple[Partition, int], int] = {}
        #: Partitions whose topic znode, just read, records a reassignment or stray replicas.
        self.restored: list[Partition] = []
        #: (topic, partition) of reassignments that will not be finished; the legacy znode may still list them.
        self.abandoned: set[tuple[str, int]] = set()

    def strays_of(self, partition: Partition) -> BrokerIds:
        """Brokers that may still hold a stray replica of a partition."""
        return tuple(self.strays.get(partition, ())) if self.strays else ()

    def keep_stray(self, partition: Partition, broker_id: int, held: Ineligible) -> None:
        self.strays.setdefault(partition, {})[broker_id] = held

    def drop_stray(self, partition: Partition, broker_id: int) -> bool:
        """Remove a stray replica that was deleted or is assigned again; False if it was not known as one."""
        self.refusals.pop((partition, broker_id), None)
        known = self.strays.get(partition, {})
        if known.pop(broker_id, None) is None:
            return False
        if not known:
            del self.strays[partition]
        return True

    def dequeue(self, partition: Partition) -> None:
        """A queued reassignment, if there is one, has begun or is dropped."""
        self.queued.pop(partition, None)
        self.stalled.pop(partition, None)

    def in_turn(self) -> list[Partition]:
        """The queued ones, oldest first, without those that are to be tried later."""
        held = {p for p, stalled in self.stalled.items() if stalled.retry_at_us is not None}
        return [p for p in self.queued if p not in held]

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions whose topic vanished."""
        gone = set(partitions)
        moving = gone & (self.ongoing.keys() | self.queued.keys())
        self.abandoned.update((p.topic.name, p.number) for p in moving)
        for by_partition in (
            self.ongoing,
            self.queued,
            self.stalled,
            self.problems,
            self.strays,
            self.in_sync,
            self.confirmed,
        ):
            for partition in gone & by_partition.keys():
                del by_partition[partition]
        for replica in [r for r in self.refusals if r[0] in gone]:
            del self.refusals[replica]
