"""Lines of standard input, for a command that must be able to end while it waits for a line."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from threading import Semaphore, Thread
from typing import BinaryIO

from controller.errors import EnvironmentFault
from proto.limits import MESSAGE_BYTES_MAX

#: A longer line is cut, and is the last.
LINE_BYTES_MAX = MESSAGE_BYTES_MAX
#: Lines read ahead of the calls of ``line``.
LINES_AHEAD = 1000


class StandardInput:
    """Standard input, read by a daemon thread: the command can end while the thread waits for a line."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._free_lines = Semaphore(LINES_AHEAD)
        self._stream = _stream()
        Thread(target=self._read, daemon=True, name="standard-input").start()

    async def line(self) -> bytes:
        """The next line with its newline; empty at the end of the input. Do not call it after that, nor after a line of
        more than LINE_BYTES_MAX."""
        line = await self._lines.get()
        self._free_lines.release()
        return line

    def _read(self) -> None:
        line = b"\n"
        with suppress(RuntimeError):  # The loop is closed: the command has ended.
            while line and len(line) <= LINE_BYTES_MAX:
                self._free_lines.acquire()
                line = self._stream.readline(LINE_BYTES_MAX + 1)
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _stream() -> BinaryIO:
    """Standard input with its own buffer: at exit the interpreter waits for a reader of ``sys.stdin``, or aborts.

    Raises EnvironmentFault if standard input is closed.
    """
    if sys.stdin is None:
        raise EnvironmentFault("standard input is closed: give the records as arguments")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:
        return sys.stdin.buffer
