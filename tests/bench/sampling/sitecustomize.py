"""Put on PYTHONPATH, it samples the process: which thread used the processor meanwhile, and on what.

SAMPLES names the file: a JSON line for each sample, ``[seconds since 1970, {work: CPU seconds since the last}]``.
A thread's CPU is the kernel's; what it is spent on is the innermost of its frames that is in ``WORK``.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

EVERY_S = 0.004
GARBAGE, NATIVE, REST = "garbage collection", "gRPC's own threads", "event loop and the rest"
#: The first that a frame's file has in it.
WORK = {
    "controller/core/": "decisions",
    "controller/runtime/push/": "control requests",
    "proto/gen/": "control requests",
    "/grpc/": "control requests",
    "observe/loop_lag": REST,
    "controller/runtime/observe/": "state-change log",
    "proto/statelog/": "state-change log",
    "controller/runtime/zookeeper/": "ZooKeeper, our part",
    "/kazoo/": "ZooKeeper, kazoo",
}


def work_of(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        for part, work in WORK.items():
            if part in name:
                return work
        frame = frame.f_back
    return REST


class Sampler:
    """A signal looks at the main thread, wherever it is; another thread would mostly find it where it lets others run.
    Other threads have one kind of work each."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._main = threading.get_native_id()
        self._spent = defaultdict[str, float](float)
        self._main_s = self._collected_s = self._began_s = 0.0

    def collecting(self, phase: str, _: dict[str, int]) -> None:
        """Called around each garbage collection, in its thread."""
        if phase == "start":
            self._began_s = time.thread_time()
        elif threading.get_native_id() == self._main:
            self._collected_s += time.thread_time() - self._began_s

    def looked_at(self, _: int, frame: FrameType | None) -> None:
        """Called in the main thread, each time that the process has used EVERY_S of CPU."""
        cpu_s, garbage_s = time.thread_time(), self._collected_s
        self._spent[GARBAGE] += garbage_s
        self._spent[work_of(frame)] += cpu_s - self._main_s - garbage_s
        self._main_s, self._collected_s = cpu_s, 0.0

    def run(self) -> None:
        others, before = {threading.get_native_id(), self._main}, dict[int, float]()
        with open(self._path, "w", buffering=1) as out:
            while True:
                time.sleep(EVERY_S)
                frames = sys._current_frames()
                stacks = {t.native_id: frames.get(t.ident or 0) for t in threading.enumerate()}
                used = self._used()
                spent, self._spent = self._spent, defaultdict[str, float](float)
                for thread, cpu_s in used.items():
                    if thread not in others and (more := cpu_s - before.get(thread, 0.0)) > 0:
                        spent[work_of(stacks[thread]) if thread in stacks else NATIVE] += more
                before = used
                out.write(json.dumps([time.time(), spent]) + "\n")

    def _used(self) -> dict[int, float]:
        """Seconds of CPU by thread."""
        found: dict[int, float] = {}
        for task in Path("/proc/self/task").iterdir():
            try:
                found[int(task.name)] = int((task / "schedstat").read_bytes().split()[0]) / 1e9
            except OSError:
                continue
        return found


if (path := os.environ.get("SAMPLES")) and "controller.cli.main" in sys.orig_argv:
    sampler = Sampler(path)
    gc.callbacks.append(sampler.collecting)
    signal.signal(signal.SIGPROF, sampler.looked_at)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    threading.Thread(target=sampler.run, daemon=True, name="sampler").start()
