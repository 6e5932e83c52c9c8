"""Processes that end with the one that started them, however that ends; and whether one is there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: A shell script that executes the command in its arguments. Its background process kills the process group when
#: standard input ends, because then the parent has ended, perhaps by SIGKILL. The group's id cannot be reused while
#: that process is in it. PR_SET_PDEATHSIG is no substitute: it depends on the parent's thread, and is Linux only.
_ENDS_WITH_ITS_PARENT = """\
exec 3<&0 </dev/null
{ read -r _ <&3; kill -9 0; } >/dev/null 2>&1 &
exec "$@" 3<&-
"""


def launch(
    command: Sequence[str],
    output: Path,
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own; what it prints is appended to ``output``.

    ``launcher`` precedes it, such as a program that enters a network namespace. Raises OSError.
    """
    script = [*launcher, "/bin/sh", "-c", _ENDS_WITH_ITS_PARENT, "sh"]
    with output.open("ab") as out:
        return subprocess.Popen(
            [*script, *command],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=environment,
        )


def release(process: subprocess.Popen[bytes] | None) -> None:
    """End the background process beside a process that has ended."""
    if process is not None and process.stdin is not None:
        process.stdin.close()


def is_running(process: int) -> bool:
    """Whether there is a process of that id, anybody's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
