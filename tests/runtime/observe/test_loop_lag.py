"""How long the rounds of the event loop take."""

from __future__ import annotations

import asyncio
from contextlib import closing
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller.runtime.observe import loop_lag
from controller.runtime.observe.loop_lag import (
    LOGGED_FROM_S,
    UNHURRIED_AT_ONCE,
    UNHURRIED_REST,
    WINDOW_S,
    Pause,
    Rounds,
    measure,
    unhurried,
)
from controller.runtime.observe.metrics import LoopMetrics
from tests.provers.sim.environment import loop


class Clocks:
    """The clock, and the processor time of this thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.cpu_s = 100.0, 5.0
        told = SimpleNamespace(monotonic=lambda: self.now_s, thread_time=lambda: self.cpu_s)
        monkeypatch.setattr(loop_lag, "time", told)


def waited(rounds: Rounds, clocks: Clocks, seconds: float) -> None:
    """Time that is spent in the selector is no pause."""
    rounds.select(0)
    clocks.now_s += seconds
    rounds._began_s = clocks.now_s


def test_the_longest_round_is_told_by_the_clock_and_by_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    rounds, registry = Rounds(), CollectorRegistry()
    rounds.show(registry)
    for seconds, cpu_s in ((0.01, 0.01), (0.2, 0.02), (0.05, 0.05)):
        clocks.now_s += seconds
        clocks.cpu_s += cpu_s
        rounds.select(0)
    assert rounds.longest() == pytest.approx(Pause(0.2, 0.05))
    name = "partition_controller_event_loop_pause_seconds"
    assert registry.get_sample_value(name, {"clock": "elapsed"}) == pytest.approx(0.2)
    assert registry.get_sample_value(name, {"clock": "cpu"}) == pytest.approx(0.05)
    rounds.close()


def test_pauses_are_told_for_as_long_as_docs_say_and_looked_for_as_often_as_they_must_not_be() -> None:
    """docs/operations.md: the last 15 to 30 seconds. docs/performance.md: no pause of more than 50 ms."""
    assert (WINDOW_S, loop_lag.INTERVAL_S) == (15.0, 0.05)


def test_a_pause_is_forgotten_after_two_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    rounds = Rounds()
    clocks.now_s += 0.2
    rounds.select(0)
    waited(rounds, clocks, WINDOW_S)
    clocks.now_s += 0.1
    rounds.select(0)
    assert rounds.longest().elapsed == pytest.approx(0.2), "that of the window before"
    waited(rounds, clocks, WINDOW_S)
    assert rounds.longest().elapsed == pytest.approx(0.1)
    waited(rounds, clocks, 2 * WINDOW_S)
    assert rounds.longest() == Pause()
    rounds.close()


def test_a_long_pause_is_told_of_for_two_windows() -> None:
    rounds = loop_lag.Rounds()
    with closing(rounds):
        rounds._longest = loop_lag.Pause(5.0, 1.0)
        rounds._turn(rounds._window_ends_s)
        assert rounds._before == loop_lag.Pause(5.0, 1.0)
        rounds._longest = loop_lag.Pause(4.0, 1.0)
        rounds._turn(rounds._window_ends_s + loop_lag.WINDOW_S)
        assert rounds._before == loop_lag.Pause()


async def test_who_does_not_hurry_leaves_most_of_the_time_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, rests = 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(loop_lag, "time", SimpleNamespace(perf_counter=lambda: now_s))
    monkeypatch.setattr(loop_lag, "asyncio", SimpleNamespace(sleep=sleep))
    found = []
    async for some in unhurried(range(3 * UNHURRIED_AT_ONCE)):
        found += some
        now_s += 0.5
    assert found == list(range(3 * UNHURRIED_AT_ONCE))
    assert rests == [0.5 * UNHURRIED_REST] * 3


def test_how_late_the_loop_is_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, late_s = CollectorRegistry(), iter([0.0, 0.3, 0.1, 2.0, 0.0])
    sleep = asyncio.sleep

    async def late(seconds: float) -> None:
        if (more_s := next(late_s, None)) is None:
            raise asyncio.CancelledError
        await sleep(seconds + more_s)

    async def run() -> None:
        here = SimpleNamespace(get_running_loop=asyncio.get_running_loop, sleep=late)
        monkeypatch.setattr(loop_lag, "asyncio", here)
        with pytest.raises(asyncio.CancelledError):
            await measure(LoopMetrics(registry), lambda: "TopicChange")

    with capture_logs() as logs:
        loop.run(run())
    name = "partition_controller_event_loop_lag"
    assert registry.get_sample_value(f"{name}_seconds_count") == 5
    assert registry.get_sample_value(f"{name}_seconds_sum") == pytest.approx(2.4)
    assert registry.get_sample_value(f"{name}_max_seconds") == pytest.approx(2.0)
    told = [(line["seconds"], line["handled"]) for line in logs if line["seconds"] > LOGGED_FROM_S]
    assert told[-1] == (2.0, "TopicChange")
    assert len(told) == len(logs) == sum(s > LOGGED_FROM_S for s in (0.3, 0.1, 2.0))
