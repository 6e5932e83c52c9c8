"""The short form of the fuzzing: each target with a few hundred inputs, those that once failed, and the harness itself.

``make fuzz`` is the long form, and finds new inputs by coverage (docs/testing.md).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.provers.fuzz import __main__ as long_form
from tests.provers.fuzz import harness, hunt
from tests.provers.fuzz.harness import (
    Crash,
    Outcome,
    Target,
    UnclearError,
    attempt,
    quiet,
    require_clear,
    shortest,
)
from tests.provers.fuzz.hunt import Tally, by_hypothesis
from tests.provers.fuzz.registry import MODULES, find, shares

REGRESSIONS = [
    json.loads(line) for line in Path(__file__).with_name("regressions.jsonl").read_text().splitlines()
]
#: The profile of the run may want fewer, or many more.
PART = settings().max_examples / 100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def require(target: Target, data: bytes) -> None:
    result = attempt(target, data)
    if isinstance(result, Crash):
        raise AssertionError(f"{result.traceback}\n{result.replay()}")


@pytest.mark.parametrize("name", MODULES)
def test_a_few_hundred_inputs(name: str) -> None:
    target = find(name)

    @settings(max_examples=int(target.quick * PART), suppress_health_check=list(HealthCheck))
    @given(target.strategy())
    def run(data: bytes) -> None:
        require(target, data)

    try:
        run()
    finally:
        target.end()


@pytest.mark.parametrize("name", MODULES)
def test_samples_are_no_crashes_and_some_are_valid(name: str) -> None:
    target = find(name)
    try:
        results = [attempt(target, seed) for seed in target.seeds]
    finally:
        target.end()
    assert [result.traceback for result in results if isinstance(result, Crash)] == []
    assert Outcome.VALID in results


@pytest.mark.parametrize("row", REGRESSIONS, ids=lambda row: f"{row['target']}: {row['was']}"[:70])
def test_inputs_that_once_failed(row: dict[str, str]) -> None:
    target = find(row["target"])
    try:
        require(target, bytes.fromhex(row["input"]))
    finally:
        target.end()


# --- the harness finds what there is to find ---------------------------------------------------------------------


class TypedError(Exception):
    """What the planted codec below raises on purpose."""


def _codec(data: bytes) -> Outcome:
    """Takes ``v<digits>``; with four faults."""
    if b"\xff" in data:
        raise KeyError("planted crash")
    while data[:1] == b"L":
        pass
    if data[:1] == b"G":
        held.append(bytearray(64 * 2**20))
    if data[:1] != b"v":
        require_clear("must begin with v" if data[:1] != b"w" else "cannot be")
        return Outcome.REFUSED
    return Outcome.VALID


held: list[bytearray] = []
PLANTED = Target("planted", _codec, [b"v1", b"w1", b"vv"])


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(harness, "HANG_CPU_S", 0.2)
    monkeypatch.setattr(harness, "GROWTH_MAX", 16 * 2**20)
    yield
    held.clear()


@pytest.mark.parametrize(
    ("data", "signature"),
    [
        (b"v1\xff", "KeyError in tests/provers/fuzz/test_fuzz.py: _codec"),
        (b"wrong", "UnclearError: "),
        (b"L", "HangError in tests/provers/fuzz/"),
        (b"G", "GrowthError in tests/provers/fuzz/"),
    ],
)
def test_each_kind_of_fault_is_told(strict: None, data: bytes, signature: str) -> None:
    result = attempt(PLANTED, data)
    assert isinstance(result, Crash)
    assert result.signature.startswith(signature)
    assert result.replay() == f"python -m tests.provers.fuzz --target planted --input {data.hex()}"
    assert attempt(PLANTED, b"v") is Outcome.VALID


def test_growth_is_told_after_a_higher_peak(strict: None) -> None:
    # What the allocator kept of earlier tests can serve the first of them.
    for _ in range(3):
        bytearray(256 * 2**20)
        result = attempt(PLANTED, b"G")
        if isinstance(result, Crash):
            break
    assert isinstance(result, Crash)
    assert result.signature.startswith("GrowthError in tests/provers/fuzz/")


def test_a_run_finds_planted_faults_and_makes_them_short(strict: None) -> None:
    tally = Tally(PLANTED, 300)
    by_hypothesis(tally, 1)
    assert tally.inputs == 300
    kinds = {signature.split(" ")[0].rstrip(":"): crash for signature, crash in tally.crashes.items()}
    assert {"KeyError", "UnclearError"} <= set(kinds)
    assert shortest(PLANTED, kinds["KeyError"]).data == b"\xff"
    assert shortest(PLANTED, kinds["UnclearError"]).data == b"w"


def test_a_target_that_always_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> Outcome:
        raise ValueError("always")

    monkeypatch.setattr(hunt, "CRASHES_MAX", 5)
    tally = Tally(Target("fails", fails, [b"x"]), 100)
    by_hypothesis(tally, 1)
    assert (tally.crashed, len(tally.crashes)) == (5, 1)


@pytest.mark.parametrize(
    ("message", "clear"),
    [
        ("n = 7: must be from 1 to 5", True),
        ("Expected `int`, got `str` - at `$.n`", True),
        ("n is wrong", False),
        ("must be\nso", False),
        ("must be \x1b[2J", False),
        ("must be " + "x" * 2000, False),
        ("", False),
    ],
)
def test_what_is_clear(message: str, clear: bool) -> None:
    if clear:
        require_clear(message)
        require_clear(f"/path: {message}", "/path")
        with pytest.raises(UnclearError, match="does not name"):
            require_clear(message, "/path")
    else:
        with pytest.raises(UnclearError):
            require_clear(message)


def test_every_target_gets_its_share() -> None:
    found = shares(1_000_000, list(MODULES))
    assert sum(found.values()) >= 1_000_000
    assert min(found.values()) >= 5000
    for engine in (None, "hypothesis"):
        planned = list(long_form.plan(10_000, 1, list(MODULES), engine))
        assert sum(work.inputs for work in planned) >= 10_000
        assert {work.engine for work in planned} <= {engine or "atheris", "hypothesis"}


def test_a_crash_fails_the_run_and_says_how_to_try_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worker(wanted: long_form.Work) -> dict[str, Any]:
        crashes = [[wanted.target, "00ff", "KeyError in x", "Traceback"]] * (wanted.target == "jute")
        counts = {"valid": wanted.inputs, "refused": 0, "crashed": 0, "seconds": 1.0}
        return {"target": wanted.target, **counts, "crashes": crashes}

    monkeypatch.setattr(long_form, "run_worker", worker)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert long_form.fuzz(1000, 1, ["znodes", "jute"], 1, None) == 1
    said = capsys.readouterr().out
    assert "atheris is not installed" in said
    assert "python -m tests.provers.fuzz --target jute --input 00ff" in said
    assert long_form.fuzz(1000, 1, ["znodes"], 1, None) == 0


@pytest.mark.slow
def test_a_worker_runs_and_a_dead_one_is_told() -> None:
    found = long_form.run_worker(long_form.Work("jute", "hypothesis", 300, 1))
    assert found["valid"] + found["refused"] == 300
    assert found["crashes"] == []
    dead = long_form.run_worker(long_form.Work("no-such-target", "hypothesis", 300, 1))
    assert "KeyError: 'no-such-target'" in dead["crashes"][0][3]
