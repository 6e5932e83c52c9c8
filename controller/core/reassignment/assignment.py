"""The assignment algebra of reassignments (KIP-455; reference, section 8.1): sets and orders of broker ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from controller.core.model import BROKER_ID_MAX, REPLICAS_MAX, BrokerIds, Partition, members
from controller.core.names import ids_shown


class Assignment(NamedTuple):
    """All replicas of one partition, preferred first, and those of them being added and removed."""

    replicas: BrokerIds
    adding: BrokerIds = ()
    removing: BrokerIds = ()

    @property
    def origin(self) -> BrokerIds:
        """Replicas without those being added: the original ones, perhaps in another order."""
        if not self.adding:
            return self.replicas
        adding = members(self.adding)
        return tuple([b for b in self.replicas if b not in adding])

    @property
    def target(self) -> BrokerIds:
        """Replicas without those being removed: the final ones, in order."""
        if not self.removing:
            return self.replicas
        removing = members(self.removing)
        return tuple([b for b in self.replicas if b not in removing])

    @property
    def being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Sequence[int]) -> Assignment:
        """The assignment during a reassignment to ``target``: the target first, then the replicas to remove."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        before, after = members(origin), members(tuple(target))
        return Assignment(
            replicas,
            tuple([b for b in replicas if b not in before]),
            tuple([b for b in replicas if b not in after]),
        )

    def cancelled(self, original: Sequence[int] = ()) -> Assignment:
        """The assignment that restores the origin, in the order of ``original`` if it names the same brokers
        (reference, section 14, point 8)."""
        origin = self.origin
        return self.reassign_to(original if sorted(original) == sorted(origin) else origin)


def assignment_of(partition: Partition) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


def target_problem(target: Sequence[int]) -> str:
    """Why a list of broker ids is not a valid target, as text; empty when it is valid."""
    if not target:
        return "the replica list is empty: must name at least one broker"
    if len(target) > REPLICAS_MAX:
        return f"{len(target)} replicas: must be at most {REPLICAS_MAX}"
    times = Counter(target)
    if duplicates := sorted(b for b in times if times[b] > 1):
        return f"replicas {ids_shown(target)}: broker ids must be distinct, {ids_shown(duplicates)} are not"
    if wrong := [b for b in target if not 0 <= b <= BROKER_ID_MAX]:
        allowed = f"must be from 0 to {BROKER_ID_MAX}, {ids_shown(wrong)} are not"
        return f"replicas {ids_shown(target)}: broker ids {allowed}"
    return ""
