"""Leaks that are planted in readings are found; what is none is not called one."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from tests.provers.soak.judge import ALLOWED, Quantity, Reading, Verdict, judge

HOUR = 3600.0
EVERY_S = 10.0


def readings(value: Callable[[float], float], seconds: float = HOUR) -> list[Reading]:
    """``value``: by the seconds since the beginning."""
    return [Reading(1e9 + n * EVERY_S, value(n * EVERY_S)) for n in range(int(seconds / EVERY_S) + 1)]


def verdict(quantity: Quantity, value: Callable[[float], float], seconds: float = HOUR) -> Verdict:
    return judge(readings(value, seconds), ALLOWED[quantity]).verdict


def noise(size: float) -> Callable[[], float]:
    random = Random(7)
    return lambda: random.uniform(-size, size)


@pytest.mark.parametrize("seconds", [HOUR / 3, HOUR, 8 * HOUR])
def test_memory_that_grows_by_a_mebibyte_a_minute_is_found(seconds: float) -> None:
    shaken = noise(3.0)
    assert verdict(Quantity.MEMORY, lambda s: 100 + s / 60 + shaken(), seconds) is Verdict.GROWS


@pytest.mark.parametrize("seconds", [HOUR / 3, HOUR, 8 * HOUR])
def test_memory_that_is_shaken_is_not(seconds: float) -> None:
    shaken = noise(15.0)
    assert verdict(Quantity.MEMORY, lambda _: 100 + shaken(), seconds) is Verdict.FLAT


def test_a_slow_leak_shows_when_the_time_is_long() -> None:
    slowly: Callable[[float], float] = lambda s: 100 + 5 * s / HOUR  # noqa: E731
    assert verdict(Quantity.MEMORY, slowly, HOUR) is Verdict.FLAT
    assert verdict(Quantity.MEMORY, slowly, 4 * HOUR) is Verdict.GROWS


def test_a_descriptor_that_is_not_closed_once_a_minute_is_found() -> None:
    assert verdict(Quantity.DESCRIPTORS, lambda s: 40 + s // 60, HOUR / 3) is Verdict.GROWS


def test_a_thread_that_stays_every_five_minutes_is_found() -> None:
    assert verdict(Quantity.THREADS, lambda s: 20 + s // 300) is Verdict.GROWS


def test_latency_that_drifts_is_found_and_peaks_are_not() -> None:
    assert verdict(Quantity.LATENCY, lambda s: 4 + s / 150) is Verdict.GROWS
    assert verdict(Quantity.LATENCY, lambda s: 4000 if s % 60 == 0 else 4) is Verdict.FLAT


def test_a_step_is_no_leak() -> None:
    assert verdict(Quantity.MEMORY, lambda s: 100 if s < HOUR / 2 else 160) is Verdict.FLAT


def test_what_a_process_takes_in_its_beginning_is_no_leak() -> None:
    filling: Callable[[float], float] = lambda s: 100 + 60 * (1 - math.exp(-s / 120))  # noqa: E731
    assert verdict(Quantity.MEMORY, filling) is Verdict.FLAT


def test_waves_are_no_leak() -> None:
    """As of a garbage collector."""
    assert verdict(Quantity.MEMORY, lambda s: 200 + s % 600 / 10) is Verdict.FLAT


def test_what_shrinks_does_not_grow() -> None:
    found = judge(readings(lambda s: 300 - s / 60), ALLOWED[Quantity.MEMORY])
    assert found.verdict is Verdict.FLAT
    assert found.slope == pytest.approx(-60)


def test_the_slope_is_of_an_hour_and_the_ends_are_medians() -> None:
    found = judge(readings(lambda s: 100 + s / 60), ALLOWED[Quantity.MEMORY])
    assert found.slope == pytest.approx(60)
    assert found.first < found.last
    # The beginning is left out.
    assert found.span_s == pytest.approx(0.8 * HOUR)
    assert found.first > 112


@pytest.mark.parametrize("seconds", [0, 60, 300])
def test_minutes_do_not_tell(seconds: float) -> None:
    assert verdict(Quantity.MEMORY, lambda s: 100 + s, seconds) is Verdict.TOO_SHORT


def test_nothing_read_does_not_tell() -> None:
    assert judge([], ALLOWED[Quantity.MEMORY]).verdict is Verdict.TOO_SHORT
