"""``python -m tests.provers.sim``: run seeds of the simulator, or replay one.

python -m tests.provers.sim --seeds 2000             seeds from 1 to 2000, on all cores
python -m tests.provers.sim --seeds 2001:3001        from 2001 on, below 3001
python -m tests.provers.sim --seed 17                one, with its whole story
python -m tests.provers.sim --seed 17 --keep 2,5     only these of its actions
python -m tests.provers.sim --seeds 50 --coverage    what of the product these reach, and which branches they do not
python -m tests.provers.sim --planted NAME ...       with a fault in the product (tests.provers.sim.planted)
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NoReturn

from tests.provers.sim.batches import Run, runs
from tests.provers.sim.plans import shrink
from tests.provers.sim.plans.plan import plan
from tests.provers.sim.planted import planting
from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.simulate import Outcome, simulate


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def _parse_seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    return range(int(first), int(end)) if colon else range(1, int(text) + 1)


#: Of so many seeds one is run twice, mostly in two processes: what it does must depend on nothing but the seed.
RUN_TWICE_EVERY = 20
NOT_TWICE = "not the same run twice"
#: How often it is printed how far it is, seconds.
PROGRESS_S = 20.0
#: As of a program that Ctrl-C ended.
EXIT_INTERRUPTED = 130


def _with_twins(seeds: Sequence[int]) -> list[int]:
    return [seed for given in seeds for seed in [given] * (2 if given % RUN_TWICE_EVERY == 0 else 1)]


class _Tally:
    """What has been found so far."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.failed: dict[int, Run] = {}
        self.totals = Counter[str]()
        self.settled: list[float] = []
        self._traces: dict[int, str] = {}

    def add(self, run: Run) -> bool:
        """Whether it is the first failure of its seed. A seed that runs twice must have the same trace twice."""
        twin = self._traces.get(run.seed)
        if twin is None:
            self._traces[run.seed] = run.trace
            self.totals.update(run.figures)
            self.settled.append(run.settled_s)
        elif twin == run.trace:
            return False
        else:
            run.violations.insert(0, f"{NOT_TWICE}: trace {twin}, then {run.trace}")
        if not run.violations or run.seed in self.failed:
            return False
        self.failed[run.seed] = run
        return True

    def line(self) -> str:
        done, took_s = len(self._traces), time.monotonic() - self.began
        return f"{done} seeds in {took_s:.0f} s ({done / took_s:.1f} a second): {len(self.failed)} failed"


@contextmanager
def _progress(line: Callable[[], str]) -> Iterator[None]:
    """Prints it now and then, whether or not anything comes to an end meanwhile."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(PROGRESS_S):
            print(line(), flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_many(seeds: Sequence[int], processes: int, failures_max: int) -> int:
    """All seeds; the exit code. Each failure is printed with what replays it, the first ones also made short.

    KeyboardInterrupt ends it with what has been found until then.
    """
    tally = _Tally()
    interrupted = None
    try:
        with _progress(tally.line), closing(runs(_with_twins(seeds), processes)) as found:
            for run in found:
                if tally.add(run):
                    _print_failure(run)
                    if len(tally.failed) >= failures_max:
                        break
    except KeyboardInterrupt as error:
        interrupted = str(error) or "Ctrl-C"
    print((f"ended by {interrupted} after " if interrupted else "") + tally.line())
    if tally.settled:
        print("in all: " + ", ".join(f"{count:,} {name}" for name, count in tally.totals.items()))
        print(
            f"settled after faults: median {statistics.median(tally.settled):.1f}, "
            f"longest {max(tally.settled):.1f} virtual s"
        )
    if not interrupted:
        for run in [run for run in tally.failed.values() if NOT_TWICE not in run.violations[0]][:3]:
            _print_short(run)
    return EXIT_INTERRUPTED if interrupted else int(bool(tally.failed))


def _interrupt(signum: int, _: object) -> NoReturn:
    """Once: what comes while everything ends changes nothing."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(signum).name)


def _planted() -> str:
    name = planting.planted()
    return f" --planted {name}" if name else ""


def _print_failure(run: Run) -> None:
    print(f"seed {run.seed} failed at commit {_commit()}: {run.violations[0]}")
    print(f"  replay: python -m tests.provers.sim{_planted()} --seed {run.seed}", flush=True)


def _print_short(run: Run) -> None:
    kind, whole = shrink.kind_of(run.violations[0]), plan(run.seed)

    def fails(outcome: Outcome) -> bool:
        return any(shrink.kind_of(violation) == kind for violation in outcome.violations)

    kept = shrink.shrink(whole, fails)
    numbers = ",".join(map(str, kept)) or "none"
    print(
        f"seed {run.seed} made short: python -m tests.provers.sim{_planted()} --seed {run.seed} --keep {numbers}"
    )
    print(shrink.describe([whole.actions[number] for number in kept]), flush=True)


def replay(seed: int, kept: Sequence[int] | None) -> int:
    """One seed with all that happens; the exit code."""
    chosen = plan(seed)
    if kept is not None:
        chosen = shrink.keep(chosen, kept)
    outcome = simulate(chosen, telling=True)
    print(f"seed {seed}: {chosen.options}")
    print("\n".join(outcome.story))
    print(f"trace {outcome.trace}, settled after {outcome.settled_s:.2f} virtual s, {outcome.figures}")
    for violation in outcome.violations:
        print(f"VIOLATED {violation}")
    return 1 if outcome.violations else 0


def _with_planted(name: str, parser: argparse.ArgumentParser, given: list[str]) -> NoReturn:
    """Begins anew as a process that has imported nothing of the product yet."""
    if name not in FAULTS:
        parser.error(f"no such fault: {name}; known: {', '.join(FAULTS)}")
    other = argparse.ArgumentParser(allow_abbrev=False)
    other.add_argument("--planted")
    rest = other.parse_known_args(given)[1]
    os.execv(sys.executable, [sys.executable, "-m", "tests.provers.sim.planted.run", name, *rest])


def _with_coverage(seeds: range) -> NoReturn:
    """Begins anew, like the above: what runs at the import of the product is to be counted."""
    span = f"{seeds.start}:{seeds.stop}"
    os.execv(sys.executable, [sys.executable, "-m", "tests.provers.sim.reached", span])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.provers.sim", description=__doc__)
    parser.add_argument("--seeds", type=_parse_seeds, default=range(1, 201), metavar="COUNT|FIRST:END")
    parser.add_argument("--seed", type=int, help="replay this one, telling all that happens")
    parser.add_argument("--keep", help="only these of the seed's actions: numbers from 0 on, or none")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    parser.add_argument("--planted", metavar="NAME", help="with this fault in the product")
    parser.add_argument(
        "--coverage", action="store_true", help="report what these seeds reach, in one process"
    )
    given = sys.argv[1:] if arguments is None else list(arguments)
    chosen = parser.parse_args(given)
    if chosen.planted is not None:
        _with_planted(chosen.planted, parser, given)
    if chosen.coverage:
        _with_coverage(chosen.seeds)
    if chosen.seed is None:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, _interrupt)
        return run_many(chosen.seeds, chosen.processes, chosen.failures)
    kept = None
    if chosen.keep is not None:
        kept = [] if chosen.keep == "none" else [int(number) for number in chosen.keep.split(",")]
    return replay(chosen.seed, kept)


if __name__ == "__main__":
    sys.exit(main())
