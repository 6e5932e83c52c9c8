"""What a user sees while Spark works: now and then a line on the running stage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext

Progress = Callable[[str], None]

#: Between two lines on a running stage; a job shorter than this is silent.
INTERVAL_S = 3.0


@contextmanager
def stage_progress(
    context: SparkContext, progress: Progress, interval_s: float = INTERVAL_S
) -> Iterator[None]:
    """Tell ``progress`` every few seconds how far the running stages are, from a thread of its own."""
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
    notified, running = "", set[int]()
    tracker = context.statusTracker()
    while not done.wait(interval_s):
        before, running = running, set(tracker.getActiveStageIds())
        for stage in sorted(running & before):  # a stage is worth a line once it has lasted a while
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            line = f"  stage {stage}: {info.numCompletedTasks}/{info.numTasks} tasks"
            if line != notified:
                progress(line)
                notified = line
