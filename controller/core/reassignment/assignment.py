"""The assignment algebra of reassignments (KIP-455; reference, section 8.1): pure sets and orders of broker ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from controller.core.model import BROKER_ID_MAX, BrokerIds, Partition

#: Broker ids that one message repeats.
IDS_SHOWN_MAX = 20


class Assignment(NamedTuple):
    """The replicas of one partition: all of them, preferred first, and which of them come and go."""

    replicas: BrokerIds
    adding: BrokerIds = ()
    removing: BrokerIds = ()

    @property
    def origin(self) -> BrokerIds:
        """Replicas without those being added: what was there before, though perhaps in another order."""
        return tuple([b for b in self.replicas if b not in self.adding]) if self.adding else self.replicas

    @property
    def target(self) -> BrokerIds:
        """Replicas without those being removed: what will be there, in that order."""
        return tuple([b for b in self.replicas if b not in self.removing]) if self.removing else self.replicas

    @property
    def being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Sequence[int]) -> Assignment:
        """The assignment on its way to ``target``: the target first, then what has to go."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return Assignment(
            replicas,
            tuple([b for b in replicas if b not in origin]),
            tuple([b for b in replicas if b not in target]),
        )

    def cancelled(self, original: Sequence[int] = ()) -> Assignment:
        """Back to what was before, in the order of ``original`` if it names the same brokers (reference,
        section 14, point 8); the original controller leaves the order to chance."""
        origin = self.origin
        return self.reassign_to(original if sorted(original) == sorted(origin) else origin)


def assignment_of(partition: Partition) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


def ids_shown(ids: Sequence[int]) -> str:
    """Broker ids in a message; of very many only the first."""
    more = f" and {len(ids) - IDS_SHOWN_MAX} more" if len(ids) > IDS_SHOWN_MAX else ""
    return f"{list(ids[:IDS_SHOWN_MAX])}{more}"


def target_problem(target: Sequence[int]) -> str:
    """Why a list of broker ids is nothing to reassign to, in words; empty when it is fine."""
    if not target:
        return "the replica list is empty: must name at least one broker"
    times = Counter(target)
    if duplicates := sorted(b for b in times if times[b] > 1):
        return f"replicas {ids_shown(target)}: broker ids must be distinct, {ids_shown(duplicates)} are not"
    if wrong := [b for b in target if not 0 <= b <= BROKER_ID_MAX]:
        allowed = f"must be from 0 to {BROKER_ID_MAX}, {ids_shown(wrong)} are not"
        return f"replicas {ids_shown(target)}: broker ids {allowed}"
    return ""
