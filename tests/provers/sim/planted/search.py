"""Which seed finds which planted fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.provers.sim.batches import runs
from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.planted.fault import Fault

SEEDS_MAX = 2000
VIOLATION_CHARS = 160


class Found(NamedTuple):
    """``seed``: the first that fails; None: none of those tried. ``took_s``: CPU time of all tried."""

    fault: Fault
    seed: int | None
    violation: str
    took_s: float


def first_violation(name: str | None, seeds: Sequence[int]) -> tuple[int | None, str, float]:
    """The first of these seeds that fails because of this fault, what it violates, and what it took, CPU s.

    A seed that fails without the fault, too, says nothing of it.
    """
    took_s = 0.0
    for run in runs(seeds, 1, name):
        took_s += run.took_s
        if run.violations and (name is None or first_violation(None, [run.seed])[0] is None):
            return run.seed, run.violations[0], took_s
    return None, "", took_s


def search(seeds: Mapping[str, Sequence[int]], processes: int) -> Iterator[Found]:
    """Each fault by itself, with its ``seeds`` in turn until one fails; several side by side, told in the order given.

    Raises StaleFaultError at once: a pool replaces processes that cannot begin, for ever.
    """
    for name in seeds:
        FAULTS[name].planted_in(FAULTS[name].source())

    def one(name: str) -> Found:
        return Found(FAULTS[name], *first_violation(name, seeds[name]))

    with ThreadPoolExecutor(processes) as threads:
        yield from threads.map(one, seeds)


def in_short(violation: str) -> str:
    """One line without the moment."""
    text = violation.split("\n")[0]
    moment, _, what = text.partition(" s: ")
    text = what if moment.replace(".", "").isdigit() else text
    return text if len(text) <= VIOLATION_CHARS else text[: VIOLATION_CHARS - 3].rsplit(" ", 1)[0] + " ..."
