"""Progress while Spark works: a line every few seconds on each running stage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext

Progress = Callable[[str], None]

#: Seconds between two lines on a running stage; a shorter job prints none.
INTERVAL_S = 3.0


@contextmanager
def stage_progress(
    context: SparkContext, progress: Progress, interval_s: float = INTERVAL_S
) -> Iterator[None]:
    """Call ``progress`` every few seconds with the tasks done of each running stage, from a separate thread."""
    done = threading.Event()
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
            line = f"  stage {stage}: {info.numCompletedTasks}/{info.numTasks} tasks"
            if line != printed:
                progress(line)
                printed = line
