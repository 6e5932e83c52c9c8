"""Many seeds on all cores."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

from tests.provers.sim.plans.plan import plan
from tests.provers.sim.planted import planting
from tests.provers.sim.simulate import simulate

#: Runs that one process makes before another takes its place.
RUNS_A_PROCESS = 200


class Run(NamedTuple):
    seed: int
    violations: list[str]
    trace: str
    settled_s: float
    took_s: float
    figures: dict[str, int]


def _run(seed: int) -> Run:
    began = time.process_time()
    try:
        outcome = simulate(plan(seed))
    except Exception as error:  # noqa: BLE001  (a finding, of the simulator itself: named with its seed)
        return Run(seed, [f"the simulator failed: {type(error).__name__}: {error}"], "", 0.0, 0.0, {})
    took_s = time.process_time() - began
    return Run(seed, outcome.violations, outcome.trace, outcome.settled_s, took_s, outcome.figures)


def runs(seeds: Sequence[int], processes: int, planted: str | None = None) -> Generator[Run, None, None]:
    """``planted``: the fault that the product is to have; None: the one that it has here, if any."""
    context = multiprocessing.get_context("spawn")
    fault = (planted or planting.planted(),)
    with context.Pool(processes, planting.prepare, fault, maxtasksperchild=RUNS_A_PROCESS) as pool:
        yield from pool.imap_unordered(_run, seeds, chunksize=1)
