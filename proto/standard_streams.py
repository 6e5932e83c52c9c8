"""The standard streams of a program: none is closed, what cannot be written ends a command in one line, and no daemon
ends or waits because nobody reads what it says."""

from __future__ import annotations

import atexit
import io
import json
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EROFS

#: What a file system says that takes no more.
UNWRITABLE = (ENOSPC, EDQUOT, EFBIG, EIO, EROFS)
#: Bytes of a log that wait for its reader; more is left out.
BEHIND_MAX = 1 << 20
#: How long the end of a program waits for that reader.
_END_S = 1.0


@contextmanager
def standard_streams(program: str) -> Iterator[None]:
    """Around the whole of a program: its streams are open, and where it could not write, it says so and ends with exit
    code 1. Commands handle the files that they name, and click a reader that is gone."""
    _open_closed_streams()
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        # Else the end of the program would try to print what is left, and fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        StandardError().write(f"{program}: {error.filename or 'write error'}: {error.strerror}\n")
        sys.exit(1)


def _open_closed_streams() -> None:
    """Open those on the null device that the program was started without. Standard input stays None: it has nothing.

    Else the next files and connections get their numbers, and what a library writes to standard error goes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def is_interactive() -> bool:
    """Standard input is a terminal, where somebody can answer."""
    return sys.stdin is not None and sys.stdin.isatty()


class StandardError(io.TextIOBase):
    """Standard error as a daemon's log, for which nothing waits. What it does not take is lost: its disk is full, or
    its reader has ended. While a reader that is there does not read, lines wait for it in a thread of their own.

    Else nothing is buffered: at the end the interpreter would try again, and make an error of its exit code.
    """

    def __init__(self) -> None:
        # A finalizer may log in the midst of a line.
        self._lock = threading.RLock()
        self._behind: deque[bytes] = deque()
        self._bytes = self._left_out = 0
        self._catching_up: threading.Thread | None = None

    def write(self, text: str, /) -> int:
        line = text.encode(errors="backslashreplace")
        with self._lock:
            if self._catching_up is not None:
                self._wait(line)
            elif left := _taken(line, 0):
                thread = threading.Thread(target=self._catch_up, name="standard-error", daemon=True)
                # No thread begins any more at the end of the interpreter.
                with suppress(RuntimeError):
                    thread.start()
                    self._catching_up = thread
                    self._wait(left)
                    atexit.register(self._end)
        return len(text)

    def _wait(self, line: bytes) -> None:
        if self._bytes + len(line) > BEHIND_MAX:
            self._left_out += 1
            return
        if self._left_out:
            told = {"event": "log_lines_left_out", "level": "warning", "count": self._left_out}
            line = json.dumps(told).encode() + b"\n" + line
            self._left_out = 0
        self._behind.append(line)
        self._bytes += len(line)

    def _catch_up(self) -> None:
        while (line := self._next()) is not None:
            _taken(line, None)

    def _next(self) -> bytes | None:
        with self._lock:
            if not self._behind and self._left_out:
                self._wait(b"")
            if not self._behind:
                atexit.unregister(self._end)
                self._catching_up = None
                return None
            line = self._behind.popleft()
            self._bytes -= len(line)
            return line

    def _end(self) -> None:
        """The end of the program: its last lines, if they are read by now."""
        if (thread := self._catching_up) is not None:
            thread.join(_END_S)


def _taken(text: bytes, wait_ms: int | None) -> bytes:
    """Write what standard error takes. What is left is what it would not have taken within that time; None: nothing.

    It is asked, as whoever else writes there would get what is set for it (O_NONBLOCK).
    """
    try:
        descriptor, asking = sys.stderr.fileno(), select.poll()
        asking.register(descriptor, select.POLLOUT)
        while text and asking.poll(wait_ms):
            text = text[os.write(descriptor, text[: select.PIPE_BUF]) :]
    except OSError:
        return b""
    return text
