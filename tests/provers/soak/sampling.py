"""What processes take, read from outside: from ``/proc``, their logs' sizes, and their own metrics."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.provers.soak.judge import ALLOWED, JUDGED_MIN_S, Quantity, Reading, Trend, Verdict, judge

#: Sums and counts of what an event of a controller takes: its wait, and its processing.
_WAITED = "kafka_controller_controllereventmanager_eventqueuetime_seconds"
_PROCESSED = "kafka_controller_controllerstats_rateandtime_seconds"
_ANSWER_S = 5.0


class Watched(NamedTuple):
    """A process. ``logs``: files and folders; ``http``: HOST:PORT of its metrics, empty: it has none; ``java``: its
    memory grows up to its heap's limit, which says nothing."""

    name: str
    pid: int
    logs: tuple[Path, ...] = ()
    http: str = ""
    java: bool = False


class Life(NamedTuple):
    """One process from its start to its end: the next one of the same name is another. ``pid`` 0: of no one process."""

    name: str
    pid: int


class Total(NamedTuple):
    """A total so far, and when it was read."""

    at_s: float
    value: float
    events: float = 0.0


@dataclass
class Sampler:
    """``watched`` names the processes that are there now."""

    watched: Callable[[], Iterable[Watched]]
    clock: Callable[[], float] = time.monotonic
    readings: dict[tuple[Life, Quantity], list[Reading]] = field(default_factory=dict)
    _totals: dict[tuple[Life, Quantity], Total] = field(default_factory=dict)

    def sample(self) -> None:
        """Read everything once. A process that ends meanwhile is left out."""
        for one in self.watched():
            life = Life(one.name, one.pid)
            with suppress(OSError, KeyError):
                self._of_process(life, one.java)
            self._speed(life, log_bytes(one.logs) / 1024)
            if one.http:
                with suppress(OSError, ValueError):
                    self._latency(life, metrics(one.http))

    def add(self, life: Life, quantity: Quantity, value: float, at_s: float | None = None) -> None:
        at_s = self.clock() if at_s is None else at_s
        self.readings.setdefault((life, quantity), []).append(Reading(at_s, value))

    def trends(self, judged_min_s: float = JUDGED_MIN_S) -> dict[tuple[Life, Quantity], Trend]:
        return {
            key: judge(readings, ALLOWED[key[1]], judged_min_s) for key, readings in self.readings.items()
        }

    def _of_process(self, life: Life, java: bool) -> None:
        proc = Path(f"/proc/{life.pid}")
        lines = (proc / "status").read_text().splitlines()
        status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        descriptors = len(os.listdir(proc / "fd"))
        if not java:
            self.add(life, Quantity.MEMORY, int(status["VmRSS"][0]) / 1024)
        self.add(life, Quantity.THREADS, int(status["Threads"][0]))
        self.add(life, Quantity.DESCRIPTORS, descriptors)

    def _speed(self, life: Life, kilobytes: float) -> None:
        key, now_s = (life, Quantity.LOG), self.clock()
        before = self._totals.get(key)
        self._totals[key] = Total(now_s, kilobytes)
        # Less than before: old files were removed.
        if before is not None and kilobytes >= before.value and now_s > before.at_s:
            self.add(life, Quantity.LOG, (kilobytes - before.value) / (now_s - before.at_s), now_s)

    def _latency(self, life: Life, found: Mapping[str, float]) -> None:
        """Of the events since the last look: waiting and processing, on average."""
        key, now_s = (life, Quantity.LATENCY), self.clock()
        spent_s = found.get(f"{_WAITED}_sum", 0.0) + found.get(f"{_PROCESSED}_sum", 0.0)
        events = found.get(f"{_WAITED}_count", 0.0)
        before = self._totals.get(key)
        self._totals[key] = Total(now_s, spent_s, events)
        if before is not None and events > before.events:
            self.add(
                life, Quantity.LATENCY, 1000 * (spent_s - before.value) / (events - before.events), now_s
            )


def metrics(http: str) -> dict[str, float]:
    """Of a process, by name; those with labels are added up. Raises OSError, ValueError."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=_ANSWER_S) as answer:
        lines = answer.read().decode().splitlines()
    found: dict[str, float] = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


def log_bytes(paths: Iterable[Path]) -> int:
    """Of files, and of all files in folders."""
    total = 0
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else (path,):
            with suppress(OSError):
                total += file.stat().st_size
    return total


def growing(trends: Mapping[tuple[Life, Quantity], Trend]) -> list[str]:
    """What grows, in words."""
    return [
        f"{life.name} (pid {life.pid}): {quantity.value}: {trend.first:.1f} to {trend.last:.1f},"
        f" {trend.slope:+.1f} an hour"
        for (life, quantity), trend in trends.items()
        if trend.verdict is Verdict.GROWS
    ]
