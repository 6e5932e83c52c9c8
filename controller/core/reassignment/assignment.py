"""The assignment algebra of reassignments (KIP-455; reference, section 8.1): sets and orders of broker ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from controller.core.model import BROKER_ID_MAX, BrokerIds, Partition

#: Broker ids shown in one message.
IDS_SHOWN_MAX = 20


class Assignment(NamedTuple):
    """All replicas of one partition, preferred first, and those of them being added and removed."""

    replicas: BrokerIds
    adding: BrokerIds = ()
    removing: BrokerIds = ()

    @property
    def origin(self) -> BrokerIds:
        """Replicas without those being added: the original ones, perhaps in another order."""
        return tuple([b for b in self.replicas if b not in self.adding]) if self.adding else self.replicas

    @property
    def target(self) -> BrokerIds:
        """Replicas without those being removed: the final ones, in order."""
        return tuple([b for b in self.replicas if b not in self.removing]) if self.removing else self.replicas

    @property
    def being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Sequence[int]) -> Assignment:
        """The assignment during a reassignment to ``target``: the target first, then the replicas to remove."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return Assignment(
            replicas,
            tuple([b for b in replicas if b not in origin]),
            tuple([b for b in replicas if b not in target]),
        )

    def cancelled(self, original: Sequence[int] = ()) -> Assignment:
        """The assignment that restores the origin, in the order of ``original`` if it names the same brokers
        (reference, section 14, point 8)."""
        origin = self.origin
        return self.reassign_to(original if sorted(original) == sorted(origin) else origin)


def assignment_of(partition: Partition) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


def ids_shown(ids: Sequence[int]) -> str:
    """Broker ids for a message; only the first ``IDS_SHOWN_MAX``."""
    more = f" and {len(ids) - IDS_SHOWN_MAX} more" if len(ids) > IDS_SHOWN_MAX else ""
    return f"{list(ids[:IDS_SHOWN_MAX])}{more}"


def target_problem(target: Sequence[int]) -> str:
    """Why a list of broker ids is not a valid target, as text; empty when it is valid."""
    if not target:
        return "the replica list is empty: must name at least one broker"
    times = Counter(target)
    if duplicates := sorted(b for b in times if times[b] > 1):
        return f"replicas {ids_shown(target)}: broker ids must be distinct, {ids_shown(duplicates)} are not"
    if wrong := [b for b in target if not 0 <= b <= BROKER_ID_MAX]:
        allowed = f"must be from 0 to {BROKER_ID_MAX}, {ids_shown(wrong)} are not"
        return f"replicas {ids_shown(target)}: broker ids {allowed}"
    return ""
