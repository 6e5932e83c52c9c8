"""pctl at a terminal, answered by a person."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.runtime.programs import BIN


@contextmanager
def typing(connect: str, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """pctl with a terminal as its standard input: where to type, and the process; whatever happens, it is ended."""
    keyboard, terminal = pty.openpty()
    command = [str(BIN / "pctl"), f"--zookeeper={connect}", *arguments]
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield keyboard, process
    finally:
        process.kill()
        process.communicate()
        os.close(keyboard)
        os.close(terminal)


def at_a_terminal(connect: str, says: str, *arguments: str) -> tuple[int, str]:
    """Run pctl with a terminal as its standard input on which a line is typed; exit code, and all it printed."""
    with typing(connect, *arguments) as (keyboard, process):
        os.write(keyboard, f"{says}\n".encode())
        printed, _ = process.communicate(timeout=60)
        return process.returncode, printed.decode()
