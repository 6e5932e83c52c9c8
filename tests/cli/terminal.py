"""pctl at a terminal, answered by a person."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.runtime.programs import BIN


def at_a_terminal(connect: str, says: str, *arguments: str) -> tuple[int, str]:
    """Run pctl with a terminal as its standard input on which a line is typed; exit code, and all it printed."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, f"{says}\n".encode())
        done = subprocess.run(
            [str(BIN / "pctl"), f"--zookeeper={connect}", *arguments],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
    finally:
        os.close(keyboard)
        os.close(terminal)
    return done.returncode, done.stdout.decode()
