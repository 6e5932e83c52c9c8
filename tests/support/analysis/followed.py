"""A log that a node writes and rotates, and the process that follows it into a lake."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.analysis.records import record, text
from tests.support.paths import ROOT


class Node:
    """Writes a log as a node does. Each record has an event id of its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory, self.log = directory, directory / "state-change.jsonl"
        self.written = 0

    def write(self, count: int) -> None:
        with self.log.open("ab") as file:
            for _ in range(count):
                self.written += 1
                fields = record("replica", self.written % 3000, topic="t", partition=1, to="x")
                file.write(text(fields | {"event_id": self.written}).encode() + b"\n")

    def rotate(self) -> None:
        rotated = self.directory / f"state-change.20260114T101500.{self.written:06}Z.jsonl"
        self.log.rename(rotated)
        self.write(1)
        packed = Path(f"{rotated}.gz")
        part = Path(f"{packed}.part")
        part.write_bytes(gzip.compress(rotated.read_bytes()))
        part.rename(packed)
        rotated.unlink()

    def each_once(self) -> Counter[int]:
        return Counter(range(1, self.written + 1))


def follow(logs: Path, lake: Path | str, changes: Mapping[str, str] = {}) -> subprocess.Popen[str]:
    """A process beside the logs, where it also leaves Spark's log."""
    # No archive of classes: writing one takes longer than the test.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": "/dev/null", **changes}
    command = [
        sys.executable,
        "-m",
        "controller.cli.pctl.main",
        "lake",
        "follow",
        str(logs),
        "--lake",
        str(lake),
    ]
    command += ["--every", "0.2"]
    return subprocess.Popen(command, cwd=logs.parent, env=environment, stdout=subprocess.PIPE, text=True)


def until(reached: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait; the test's own time limit ends a wait in vain."""
    while not reached():
        assert process.poll() is None
        time.sleep(0.005)
