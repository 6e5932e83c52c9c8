"""Progress while Spark works: lines of text, or a `Meter` from which a bar is drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from controller.analysis.local_files import LogFile, has_scheme

if TYPE_CHECKING:
    from pyspark import SparkContext

Progress = Callable[[str], None]

#: Seconds between two lines on a running stage; a shorter job prints none.
INTERVAL_S = 3.0
#: Seconds between two looks for a bar.
BAR_INTERVAL_S = 0.5
#: Bytes of a log file from which the length of a line is estimated.
_SAMPLE_BYTES = 1 << 16


class Phase(StrEnum):
    """What the job does, in order."""

    SPARK = "starting Spark"
    READ = "reading"
    TABLES = "tables"
    PAGE = "page"


#: Shares of the time, measured for a million lines.
_SHARES = {Phase.SPARK: 0.08, Phase.READ: 0.52, Phase.TABLES: 0.34, Phase.PAGE: 0.06}


@dataclass(frozen=True)
class Reading:
    """How far a job is. ``done``: of the whole, from 0 to 1. ``left_s``: seconds left at this pace, None: too early to
    tell. ``lines_s``: lines read a second, None: not known."""

    phase: Phase
    done: float
    left_s: float | None
    lines_s: float | None


class Meter:
    """Takes lines of progress, as any `Progress`, and measures. ``on_change`` is called from two threads."""

    def __init__(
        self, say: Progress, on_change: Callable[[Reading], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._on_change, self._clock = say, on_change, clock
        self._begun_s = self._read_s = clock()
        self._phase, self._within = Phase.SPARK, 0.0
        self._steps = (0, 1)
        self._lines: float | None = None

    def __call__(self, line: str) -> None:
        self._say(line)

    def enter(self, phase: Phase, lines: float | None = None) -> None:
        """The job begins a phase. ``lines``: how many there are to read, if that is known or estimated."""
        if phase is Phase.READ:
            self._read_s = self._clock()
        self._phase, self._within, self._steps = phase, 0.0, (0, 1)
        self._lines = self._lines if lines is None else lines
        self._changed()

    def step(self, done: int, of: int) -> None:
        """So many equal steps of the phase are done."""
        self._steps = (done, of)
        self._within = max(self._within, done / of)
        self._changed()

    def tasks(self, done: int, of: int) -> None:
        """So many of Spark's tasks are done of what it does now."""
        steps, of_steps = self._steps
        self._within = max(self._within, (steps + done / max(of, 1)) / of_steps)
        self._changed()

    def reading(self) -> Reading:
        place = list(Phase).index(self._phase)
        before = sum(_SHARES[phase] for phase in list(Phase)[:place])
        within = min(self._within, 1.0)
        done = before + _SHARES[self._phase] * within
        now_s = self._clock()
        left_s = (now_s - self._begun_s) * (1 - done) / done if done >= _SHARES[Phase.SPARK] else None
        lines_s, taken_s = None, now_s - self._read_s
        if self._lines is not None and self._phase is not Phase.SPARK and taken_s > 0:
            read = within if self._phase is Phase.READ else 1.0
            lines_s = self._lines * read / taken_s
        return Reading(self._phase, done, left_s, lines_s)

    def _changed(self) -> None:
        self._on_change(self.reading())


def entered(progress: Progress, phase: Phase, lines: float | None = None) -> None:
    """`Meter.enter`, where somebody measures."""
    if isinstance(progress, Meter):
        progress.enter(phase, lines)


def stepped(progress: Progress, done: int, of: int) -> None:
    """`Meter.step`, where somebody measures."""
    if isinstance(progress, Meter):
        progress.step(done, of)


def estimated_lines(files: Sequence[LogFile]) -> float | None:
    """How many lines files have, from their sizes and the first lines of one; None if none can be looked at."""
    for file in files:
        if not file.gzipped and file.size and not has_scheme(file.shown):
            # It may be rotated away meanwhile.
            with suppress(OSError), open(file.shown, "rb") as opened:
                sample = opened.read(_SAMPLE_BYTES)
                if lines := sample.count(b"\n"):
                    return sum(file.size for file in files) * lines / len(sample)
    return None


@contextmanager
def stage_progress(context: SparkContext, progress: Progress) -> Iterator[None]:
    """Tell ``progress`` every few seconds how many tasks of each running stage are done, from a separate thread: by
    lines, or by `Meter.tasks`."""
    done = threading.Event()
    interval_s = BAR_INTERVAL_S if isinstance(progress, Meter) else INTERVAL_S
    watcher = threading.Thread(
        target=_watch, args=(context, progress, done, interval_s), name="spark-progress", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(context: SparkContext, progress: Progress, done: threading.Event, interval_s: float) -> None:
    printed, running = "", set[int]()
    tracker = context.statusTracker()
    while not done.wait(interval_s):
        before, running = running, set(tracker.getActiveStageIds())
        for stage in sorted(running & before):  # Only stages that run for more than one interval.
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            if isinstance(progress, Meter):
                progress.tasks(info.numCompletedTasks, info.numTasks)
                continue
            line = f"  stage {stage}: {info.numCompletedTasks}/{info.numTasks} tasks"
            if line != printed:
                progress(line)
                printed = line
