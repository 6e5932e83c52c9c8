"""The assignment algebra of reassignments (KIP-455; reference, section 8.1): sets and orders of broker ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from controller.core.model import (
    BROKER_ID_MAX,
    REPLICAS_MAX,
    SHARED_LENGTH_MAX,
    BrokerIds,
    Partition,
    members,
)
from controller.core.names import ids_shown

#: Results kept for each of the functions of assignments, which repeat endlessly.
_SHARED_MAX = 10_000


class Assignment(NamedTuple):
    """All replicas of one partition, preferred first, and those of them being added and removed."""

    replicas: BrokerIds
    adding: BrokerIds = ()
    removing: BrokerIds = ()

    @property
    def origin(self) -> BrokerIds:
        """Replicas without those being added: the original ones, perhaps in another order."""
        return rest(self.replicas, self.adding)

    @property
    def target(self) -> BrokerIds:
        """Replicas without those being removed: the final ones, in order."""
        return rest(self.replicas, self.removing)

    @property
    def being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Sequence[int]) -> Assignment:
        """The assignment during a reassignment to ``target``: the target first, then the replicas to remove."""
        origin, final = self.origin, tuple(target)
        short = len(origin) + len(final) <= SHARED_LENGTH_MAX
        return (_shared_between if short else _between)(origin, final)

    def cancelled(self, original: Sequence[int] = ()) -> Assignment:
        """The assignment that restores the origin, in the order of ``original`` if it names the same brokers
        (reference, section 14, point 8)."""
        origin = self.origin
        return self.reassign_to(original if sorted(original) == sorted(origin) else origin)


def rest(ids: BrokerIds, others: BrokerIds) -> BrokerIds:
    """The ids without the others, in order."""
    if not others:
        return ids
    return (_shared_rest if len(ids) + len(others) <= SHARED_LENGTH_MAX else _rest)(ids, others)


def _rest(ids: BrokerIds, others: BrokerIds) -> BrokerIds:
    left_out = members(others)
    return tuple([b for b in ids if b not in left_out])


def _between(origin: BrokerIds, target: BrokerIds) -> Assignment:
    replicas = tuple(dict.fromkeys((*target, *origin)))
    before, after = members(origin), members(target)
    return Assignment(
        replicas,
        tuple([b for b in replicas if b not in before]),
        tuple([b for b in replicas if b not in after]),
    )


_shared_rest, _shared_between = lru_cache(_SHARED_MAX)(_rest), lru_cache(_SHARED_MAX)(_between)


def assignment_of(partition: Partition) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


def origin_of(partition: Partition) -> BrokerIds:
    """``assignment_of(partition).origin``, for those who ask about very many."""
    return rest(partition.replicas, partition.adding)


def target_of(partition: Partition) -> BrokerIds:
    """``assignment_of(partition).target``, for those who ask about very many."""
    return rest(partition.replicas, partition.removing)


def target_problem(target: Sequence[int]) -> str:
    """Why a list of broker ids is not a valid target, as text; empty when it is valid."""
    if not target:
        return "the replica list is empty: must name at least one broker"
    if len(target) > REPLICAS_MAX:
        return f"{len(target)} replicas: must be at most {REPLICAS_MAX}"
    if len(set(target)) < len(target):
        times = Counter(target)
        duplicates = sorted(b for b in times if times[b] > 1)
        return f"replicas {ids_shown(target)}: broker ids must be distinct, {ids_shown(duplicates)} are not"
    if wrong := [b for b in target if not 0 <= b <= BROKER_ID_MAX]:
        allowed = f"must be from 0 to {BROKER_ID_MAX}, {ids_shown(wrong)} are not"
        return f"replicas {ids_shown(target)}: broker ids {allowed}"
    return ""
