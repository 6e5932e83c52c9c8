"""The simulator's short form, and that it does what the long one relies on: ``make sim SEEDS=20000``."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.provers.sim import __main__ as sim
from tests.provers.sim.batches import Run
from tests.provers.sim.plans import shrink
from tests.provers.sim.plans.plan import AIM, APART, FAULTS, MOMENTS, OPERATIONS, TAMPERING, Plan, plan
from tests.provers.sim.simulate import Outcome, simulate
from tests.support.paths import ROOT

#: Few: they cost as much as a small test of processes.
SHORT = range(1, int(os.environ.get("SIM_SEEDS", "10")) + 1)


@functools.cache
def known(seed: int) -> Outcome:
    """What this process found when it ran the seed first."""
    return simulate(plan(seed))


@pytest.mark.slow
def test_seeds() -> None:
    figures: dict[str, int] = {}
    for seed in SHORT:
        outcome = known(seed)
        assert not outcome.violations, f"python -m tests.provers.sim --seed {seed}: {outcome.violations[0]}"
        for name, count in outcome.figures.items():
            figures[name] = figures.get(name, 0) + count
    # That nothing went wrong must not be because nothing happened.
    seeds = len(SHORT)
    assert figures["controller epochs"] > 1.2 * seeds
    assert figures["acknowledged records"] > 10 * seeds
    assert figures["reads"] > 5 * seeds
    assert figures["granted"] > seeds


@pytest.mark.slow
def test_seeds_of_a_cluster_whose_brokers_would_elect_a_controller() -> None:
    epochs = 0
    for seed in range(1, 5):
        known = plan(seed)
        outcome = simulate(replace(known, options=replace(known.options, takeover=True)))
        assert not outcome.violations, f"seed {seed}: {outcome.violations[0]}"
        epochs += outcome.figures["controller epochs"]
    assert epochs > 8


_TRACES = """
from tests.provers.sim import test_simulator
test_simulator.print_traces()
"""


def print_traces() -> None:
    for seed in (4, 11):
        outcome = known(seed)
        print(seed, outcome.trace, outcome.settled_s, sorted(outcome.figures.items()))


@pytest.mark.slow
def test_a_seed_is_the_same_run_in_every_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Also in one that has run others before."""
    another = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command = [sys.executable, "-c", _TRACES]
    environment = os.environ | {"PYTHONHASHSEED": another}
    alone = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    print_traces()
    assert capsys.readouterr().out == alone
    assert len(alone.splitlines()) == 2


def test_a_story_ends_in_the_same_trace_told_or_not() -> None:
    with_story, without = simulate(plan(3), telling=True), known(3)
    assert with_story.trace == without.trace
    assert with_story.story
    assert not without.story


def test_plans_vary_and_each_is_its_seeds_own() -> None:
    plans = [plan(seed) for seed in range(300)]
    assert plans == [plan(seed) for seed in range(300)]
    kinds = {action.kind for chosen in plans for action in chosen.actions}
    assert kinds == FAULTS.keys() | APART.keys() | TAMPERING.keys() | OPERATIONS.keys() | {AIM}
    assert {a.arguments[0] for p in plans for a in p.actions if a.kind == AIM} == set(MOMENTS)
    assert len({chosen.options for chosen in plans}) == 300
    # Swarm: each kind of thing is in many runs, and missing from many.
    for name in FAULTS:
        share = sum(name in chosen.options.faults for chosen in plans) / 300
        assert 0.2 < share < 0.8, name


def test_a_failure_is_made_as_short_as_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = next(p for p in map(plan, range(100)) if len(p.actions) >= 12)
    needed = {chosen.actions[3], chosen.actions[9]}

    def pretend(tried: Plan) -> Outcome:
        failed = needed <= set(tried.actions)
        return Outcome(tried, ["1.0 s: both of them are there"] if failed else [])

    monkeypatch.setattr(shrink, "simulate", pretend)
    kept = shrink.shrink(chosen, lambda outcome: bool(outcome.violations))
    assert kept == (3, 9)
    assert set(shrink.keep(chosen, kept).actions) == needed


@pytest.mark.parametrize(("second", "code"), [("one", 0), ("another", 1)])
def test_a_seed_that_takes_two_courses_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], second: str, code: int
) -> None:
    asked: list[int] = []

    def pretended(seeds: Sequence[int], _processes: int) -> Iterator[Run]:
        asked.extend(seeds)
        traces = iter(["one", second])
        for seed in seeds:
            yield Run(seed, [], next(traces) if seed == 20 else "", 1.0, 0.2, {"reads": 1})

    monkeypatch.setattr(sim, "runs", pretended)
    assert sim.run_many(range(19, 22), 1, 10) == code
    assert asked == [19, 20, 20, 21]
    said = capsys.readouterr().out
    assert "3 seeds in " in said
    assert "in all: 3 reads" in said
    assert ("seed 20 failed" in said and "not the same run twice" in said) == bool(code)


def test_how_far_it_is_is_printed_while_a_seed_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []

    def pretended(*_: object) -> Iterator[Run]:
        yield Run(1, [], "", 1.0, 0.2, {})
        deadline = time.monotonic() + 20
        while "1 seeds in " not in "".join(printed) and time.monotonic() < deadline:
            time.sleep(0.01)
            printed.append(capsys.readouterr().out)
        yield Run(2, [], "", 1.0, 0.2, {})

    monkeypatch.setattr(sim, "runs", pretended)
    monkeypatch.setattr(sim, "PROGRESS_S", 0.01)
    assert sim.run_many(range(1, 3), 1, 10) == 0
    assert "1 seeds in " in "".join(printed)


def test_what_ends_early_says_what_it_has_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretended(*_: object) -> Iterator[Run]:
        yield Run(1, [], "", 1.0, 0.2, {"reads": 1})
        yield Run(2, ["1.0 s: broken"], "", 1.0, 0.2, {"reads": 1})
        raise KeyboardInterrupt("SIGTERM")

    monkeypatch.setattr(sim, "runs", pretended)
    assert sim.run_many(range(1, 9), 1, 10) == sim.EXIT_INTERRUPTED
    said = capsys.readouterr().out
    assert "ended by SIGTERM after 2 seeds in " in said
    assert "1 failed" in said
    assert "seed 2 failed" in said


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_ends_it_without_a_traceback(signum: signal.Signals) -> None:
    code = (
        "import sys, tests.provers.sim.__main__ as sim; sim.PROGRESS_S = 0.2; "
        "sys.exit(sim.main(['--seeds', '100000', '--processes', '2']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if not line.startswith("0 seeds"):
                break
        os.killpg(process.pid, signum)  # as a terminal or a service manager does: all of its processes
        rest = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == sim.EXIT_INTERRUPTED, rest
    assert f"ended by {signum.name} after " in rest
    assert "Traceback" not in rest


def test_violations_of_one_kind_are_told_apart_from_others() -> None:
    one = shrink.kind_of("3.500 s: t0-1: leader epoch 4 has two leaders: 1, then 2")
    assert one == shrink.kind_of("9.125 s: t1-0: leader epoch 17 has two leaders: 3, then 1")
    assert one != shrink.kind_of("3.500 s: t0-1: the ISR is empty")
