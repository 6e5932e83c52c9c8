"""Whether something of a process grows, from what was read of it over time. Pure.

A process that has just started fills caches; a fault makes a step, and more may stay taken after it. Neither is a leak:
what grows does so all the time. So readings of the beginning are left out, the slope is the median of all slopes
between two moments (Theil and Sen), and each third of the time must be higher than the one before it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import pairwise
from typing import NamedTuple


class Quantity(StrEnum):
    """What is read, with its unit."""

    MEMORY = "memory, MB"
    DESCRIPTORS = "file descriptors"
    THREADS = "threads"
    #: The speed at which logs grow: their size grows anyway.
    LOG = "log, KB a second"
    LATENCY = "latency, ms"


class Allowance(NamedTuple):
    """Growth over the judged time that is still none: the larger of an amount, and a share of the median."""

    amount: float
    share: float


ALLOWED: dict[Quantity, Allowance] = {
    Quantity.MEMORY: Allowance(8, 0.06),
    Quantity.DESCRIPTORS: Allowance(8, 0.1),
    Quantity.THREADS: Allowance(4, 0.1),
    Quantity.LOG: Allowance(2, 0.5),
    Quantity.LATENCY: Allowance(5, 0.7),
}
#: A process is judged when it has been watched for so long after its beginning, seconds.
JUDGED_MIN_S = 300.0
#: The share of a process's life that is its beginning, and at least so many seconds.
BEGINNING_SHARE, BEGINNING_MIN_S = 0.2, 60.0
#: Readings are put together until there are no more: faults of seconds vanish in medians.
MOMENTS_MAX = 60


class Reading(NamedTuple):
    at_s: float
    value: float


class Verdict(Enum):
    FLAT = "does not grow"
    GROWS = "GROWS"
    TOO_SHORT = "too short to tell"


@dataclass(frozen=True)
class Trend:
    """``first``, ``last``: medians of the first and the last third. ``slope``: an hour. ``span_s``: how long it was
    judged."""

    verdict: Verdict
    first: float = 0.0
    last: float = 0.0
    slope: float = 0.0
    span_s: float = 0.0


def judge(readings: Sequence[Reading], allowed: Allowance, judged_min_s: float = JUDGED_MIN_S) -> Trend:
    """``readings``: of one process, in order."""
    if not readings:
        return Trend(Verdict.TOO_SHORT)
    began_s, ended_s = readings[0].at_s, readings[-1].at_s
    beginning_s = max(BEGINNING_MIN_S, BEGINNING_SHARE * (ended_s - began_s))
    settled = [reading for reading in readings if reading.at_s >= began_s + beginning_s]
    moments = _moments(settled)
    span_s = settled[-1].at_s - settled[0].at_s if settled else 0.0
    if span_s < judged_min_s or len(moments) < 6:
        return Trend(Verdict.TOO_SHORT, span_s=span_s)
    slope = _slope(moments)
    growth = slope * span_s
    thirds = _thirds([moment.value for moment in moments])
    limit = max(allowed.amount, allowed.share * statistics.median(moment.value for moment in moments))
    steady = all(after - before > growth / 6 for before, after in pairwise(thirds))
    verdict = Verdict.GROWS if growth > limit and steady else Verdict.FLAT
    return Trend(verdict, thirds[0], thirds[-1], slope * 3600, span_s)


def _moments(readings: Sequence[Reading]) -> list[Reading]:
    size = -(-len(readings) // MOMENTS_MAX)
    parts = [readings[n : n + size] for n in range(0, len(readings), size or 1)]
    return [
        Reading(statistics.fmean(r.at_s for r in part), statistics.median(r.value for r in part))
        for part in parts
    ]


def _slope(moments: Sequence[Reading]) -> float:
    """A second."""
    return statistics.median(
        (later.value - earlier.value) / (later.at_s - earlier.at_s)
        for n, earlier in enumerate(moments)
        for later in moments[n + 1 :]
    )


def _thirds(values: Sequence[float]) -> list[float]:
    third = len(values) / 3
    return [statistics.median(values[round(n * third) : round((n + 1) * third)]) for n in range(3)]
