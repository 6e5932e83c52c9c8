"""Everything three brokers can be in."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.provers.model.machines import Ids

BROKERS: Ids = (1, 2, 3)
#: The whole of it, not the short form: ``make model``.
WHOLE = os.environ.get("MODEL") == "whole"


class Situation(NamedTuple):
    """Of brokers. Leaving ones are registered, and so are those whose disk with the partition failed."""

    registered: frozenset[int]
    leaving: frozenset[int]
    failed_disks: frozenset[int]


#: What one broker can be: registered, leaving, disk failed.
_ONE = [(False, False, False), *itertools.product([True], [False, True], [False, True])]


def situations(disks: bool = True) -> Iterator[Situation]:
    """All of them: 125, or 27 without failed disks."""
    for all_ in itertools.product(_ONE, repeat=len(BROKERS)):
        if disks or not any(one[2] for one in all_):
            sets = [frozenset(b for b, one in zip(BROKERS, all_, strict=True) if one[i]) for i in range(3)]
            yield Situation(*sets)


def subsets(ids: Iterable[int]) -> list[Ids]:
    """Every subset, in the order given."""
    every = tuple(ids)
    return [c for size in range(len(every) + 1) for c in itertools.combinations(every, size)]


def ordered_subsets(ids: Iterable[int]) -> list[Ids]:
    """Every non-empty subset in every order."""
    every = tuple(ids)
    return [p for size in range(1, len(every) + 1) for p in itertools.permutations(every, size)]


#: Every assignment of one to three replicas; and one of each up to renaming brokers.
ASSIGNMENTS = ordered_subsets(BROKERS)
CANONICAL: list[Ids] = [(1,), (1, 2), (1, 2, 3)]
