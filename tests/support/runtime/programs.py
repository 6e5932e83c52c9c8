"""Our commands as processes, always ended, and what they said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from tests.support.paths import ROOT
from tests.support.runtime import forks

BIN = Path(sys.executable).parent


def environment(changes: Mapping[str, str] = {}) -> dict[str, str]:
    """Ours without settings of the product's, so that a developer's own do not count."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PARTITION_CONTROLLER_", "PCTL_"))}
    return {**ours, "PYTHONPATH": str(ROOT), **changes}


@dataclass
class Program:
    """A process of ours and the file with all it said."""

    process: subprocess.Popen[bytes] | forks.Forked
    output: Path

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def until(self, reached: Callable[[], bool], timeout_s: float = 40) -> None:
        """Look again and again; fails when the process ends or the time is up."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.said()}"
            assert time.monotonic() < deadline, f"waited in vain: {self.said()}"
            time.sleep(0.02)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def program(
    command: list[str], directory: Path, changes: Mapping[str, str] = {}, name: str = "program"
) -> Iterator[Program]:
    """Start a command; whatever happens, it is ended."""
    output = directory / f"{name}.out"
    with output.open("wb") as out:
        process = forks.start(command, cwd=directory, env=environment(changes), stdout=out, stderr=out)
    try:
        yield Program(process, output)
    finally:
        process.kill()
        process.wait()


def run_to_end(
    command: list[str], directory: Path, changes: Mapping[str, str] = {}, timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    with TemporaryFile() as out, TemporaryFile() as err:
        process = forks.start(command, cwd=directory, env=environment(changes), stdout=out, stderr=err)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
            process.wait()
        said = [(stream.seek(0), stream.read().decode())[1] for stream in (out, err)]
    return subprocess.CompletedProcess(command, code, *said)
