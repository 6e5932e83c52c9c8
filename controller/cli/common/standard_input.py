"""Lines of standard input, for a command that must be able to end while none comes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from threading import Semaphore, Thread
from typing import BinaryIO

from controller.errors import EnvironmentFault

#: Lines read before ``line`` is called for them.
LINES_AHEAD = 1000


class StandardInput:
    """Read by a thread that the command does not wait for: at a terminal a line may never come."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._free_lines = Semaphore(LINES_AHEAD)
        self._stream = _stream()
        Thread(target=self._read, daemon=True, name="standard-input").start()

    async def line(self) -> bytes:
        """The next one with its end; empty at the end of all. Not to be called after that."""
        line = await self._lines.get()
        self._free_lines.release()
        return line

    def _read(self) -> None:
        line = b"\n"
        with suppress(RuntimeError):  # the loop is closed: the command is over
            while line:
                self._free_lines.acquire()
                line = self._stream.readline()
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _stream() -> BinaryIO:
    """Through a buffer of our own: the interpreter's end waits for whoever reads through its own, or aborts.

    Raises EnvironmentFault where there is none.
    """
    if sys.stdin is None:
        raise EnvironmentFault("standard input is closed: give the records as arguments")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:
        return sys.stdin.buffer
