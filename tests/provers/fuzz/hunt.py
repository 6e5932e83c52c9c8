"""Trying many inputs on one target: what came of them, and the two engines that make them."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.provers.fuzz.harness import Crash, Outcome, Target, attempt, shortest
from tests.provers.fuzz.mutation import BYTES_MAX

#: Nothing more is learnt from a target that fails so often.
CRASHES_MAX = 300
#: Of one run of Hypothesis: it remembers what it has tried.
_EXAMPLES = 5000


@dataclass
class Tally:
    """What became of so many inputs. ``crashes``: the shortest of each signature."""

    target: Target
    inputs_max: int
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    crashes: dict[str, Crash] = field(default_factory=dict)
    crashed: int = 0
    began: float = field(default_factory=monotonic)

    @property
    def inputs(self) -> int:
        return sum(self.counts.values()) + self.crashed

    @property
    def over(self) -> bool:
        return self.inputs >= self.inputs_max or self.crashed >= CRASHES_MAX

    def take(self, data: bytes) -> None:
        """Try one input."""
        result = attempt(self.target, data)
        if isinstance(result, Outcome):
            self.counts[result] += 1
            return
        self.crashed += 1
        known = self.crashes.get(result.signature)
        if known is None or len(result.data) < len(known.data):
            self.crashes[result.signature] = result

    def finish(self) -> dict[str, object]:
        """As JSON has it, the crashes as short as they get."""
        seconds = monotonic() - self.began
        found = [shortest(self.target, crash) for crash in self.crashes.values()]
        self.target.end()
        return {
            "target": self.target.name,
            **{outcome.value: count for outcome, count in self.counts.items()},
            "crashed": self.crashed,
            "seconds": seconds,
            "crashes": [[c.target, c.data.hex(), c.signature, c.traceback] for c in found],
        }


def by_hypothesis(tally: Tally, seed_number: int) -> None:
    """Structured strategies, mutated seeds, and bytes."""
    for round_number in range(10 * (1 + tally.inputs_max // _EXAMPLES)):
        if tally.over:
            return

        @seed(seed_number * 1_000_003 + round_number)
        @settings(
            max_examples=min(tally.inputs_max - tally.inputs, _EXAMPLES),
            phases=[Phase.generate],
            derandomize=False,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(tally.target.strategy())
        def run(data: bytes) -> None:
            if not tally.over:
                tally.take(data)

        run()


def by_atheris(tally: Tally, seed_number: int, done: Callable[[Tally], None]) -> None:
    """Guided by the branches that are reached, from valid samples on; never returns: ``done`` is called before the end.

    The code under test must have been imported under ``atheris.instrument_imports``.
    """
    import atheris

    target = tally.target

    def one(data: bytes) -> None:
        tally.take(data)
        if tally.over:
            done(tally)
            # libFuzzer has no other end that is no crash.
            atexit._run_exitfuncs()
            os._exit(0)

    def mutate(data: bytes, size_max: int, number: int) -> bytes:
        rng = Random(number)
        if rng.randrange(4) == 0:
            return bytes(atheris.Mutate(data, size_max))
        # What reaches new branches is mostly refused: valid samples keep the run from staying on the surface.
        base = data if rng.randrange(2) else rng.choice(target.seeds)
        return target.mutate(base, rng)[:size_max]

    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        for number, sample in enumerate(target.seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(sample)
        flags = (f"-seed={seed_number}", f"-max_len={BYTES_MAX}", "-len_control=0", "-verbosity=0")
        limits = (
            "-timeout=300",
            "-report_slow_units=1000",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={corpus}/",
        )
        atheris.Setup([sys.argv[0], *flags, *limits, corpus], one, custom_mutator=mutate)
        atheris.Fuzz()
