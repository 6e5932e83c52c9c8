"""How late the event loop runs what is due, its longest pauses, and how long work makes none: while one handler works,
nothing else does, nor is the lease renewed."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from controller.runtime.observe.metrics import GaugeSource, LoopMetrics

log = structlog.get_logger(__name__)
T = TypeVar("T")

#: Time between measurements.
INTERVAL_S = 0.05
#: Longer delays are logged, with the event that was processed.
LOGGED_FROM_S = 1.0
#: The longest pause that is told of is that of this time, or of the one before.
WINDOW_S = 15.0
#: Shorter rounds of the loop are not looked at more closely.
SHORT_S = 0.001
#: Partitions that are looked at in one turn: some milliseconds.
AT_ONCE = 5000
#: The same, where nobody waits for it: below a millisecond; and how many times as long others have their turn.
UNHURRIED_AT_ONCE, UNHURRIED_REST = 2000, 3


class Pause(NamedTuple):
    """What one round of the event loop took, seconds: by the clock, and of the processor by the loop's own thread. The
    difference is what other threads and processes took."""

    elapsed: float = 0.0
    cpu: float = 0.0

    def longer(self, other: Pause) -> Pause:
        return Pause(max(self.elapsed, other.elapsed), max(self.cpu, other.cpu))


class Rounds(selectors.DefaultSelector):
    """The selector of an event loop: from one answer to the next question the loop runs what is due, and nobody else
    gets a turn. So each such round is a pause for all others, which is measured whole, and not by samples."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s, self._cpu_s = time.monotonic(), time.thread_time()
        self._window_ends_s = self._began_s + WINDOW_S
        self._longest = self._before = Pause()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        now_s = time.monotonic()
        if now_s - self._began_s > SHORT_S:
            took = Pause(now_s - self._began_s, time.thread_time() - self._cpu_s)
            self._turn(now_s)
            self._longest = self._longest.longer(took)
        found = super().select(timeout)
        self._began_s, self._cpu_s = time.monotonic(), time.thread_time()
        return found

    def longest(self) -> Pause:
        """The longest pause of the last ``WINDOW_S`` seconds, and of up to as many before."""
        self._turn(time.monotonic())
        return self._before.longer(self._longest)

    def _turn(self, now_s: float) -> None:
        if now_s >= self._window_ends_s:
            recent = now_s < self._window_ends_s + WINDOW_S
            self._before, self._longest = self._longest if recent else Pause(), Pause()
            self._window_ends_s = now_s + WINDOW_S

    def show(self, registry: CollectorRegistry) -> None:
        """Register a gauge of the longest pause."""
        GaugeSource(self._gauges, registry)

    def _gauges(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        for clock, seconds in self.longest()._asdict().items():
            yield (
                "partition_controller_event_loop_pause_seconds",
                "Longest round of the event loop in the last 15 to 30 seconds, by the clock and of its thread's CPU.",
                {"clock": clock},
                seconds,
            )


async def in_turns(items: Iterable[T], at_once: int = AT_ONCE) -> AsyncIterator[list[T]]:
    """The items in lists of at most so many; between two, others have their turn, and may change what is iterated."""
    rest = iter(items)
    while some := list(islice(rest, at_once)):
        yield some
        await asyncio.sleep(0)


async def unhurried(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """As ``in_turns``, for what nobody waits for: others have most of the time. A request takes several rounds of the
    event loop, and in each of them it waits for one list."""
    rest = iter(items)
    while some := list(islice(rest, UNHURRIED_AT_ONCE)):
        began_s = time.perf_counter()
        yield some
        await asyncio.sleep(UNHURRIED_REST * (time.perf_counter() - began_s))


async def given_way(handler: Generator[object, None, T]) -> T:
    """The result of a handler of the core that asks for nothing; others have their turn at each of its pauses."""
    try:
        while True:
            next(handler)
            await asyncio.sleep(0)
    except StopIteration as over:
        result: T = over.value
        return result


async def measure(metrics: LoopMetrics, event: Callable[[], str]) -> None:
    """Measure until cancelled. ``event``: the name of the event that is being processed, empty between events."""
    loop = asyncio.get_running_loop()
    longest_s = 0.0
    while True:
        processed = event()
        due = loop.time() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        lag_s = max(loop.time() - due, 0.0)
        metrics.lag_seconds.observe(lag_s)
        if lag_s > longest_s:
            longest_s = lag_s
            metrics.lag_max_seconds.set(lag_s)
        if lag_s > LOGGED_FROM_S:
            log.warning("event_loop_late", seconds=round(lag_s, 2), handled=event() or processed)
