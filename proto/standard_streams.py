"""The standard streams of a program: none is closed, what cannot be written ends a command in one line, and no daemon
ends because nobody reads what it says."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EROFS

#: What a file system says that takes no more.
_UNWRITABLE = (ENOSPC, EDQUOT, EFBIG, EIO, EROFS)


@contextmanager
def standard_streams(program: str) -> Iterator[None]:
    """Around the whole of a program: its streams are open, and where it could not write, it says so and ends with exit
    code 1. Commands handle the files that they name, and click a reader that is gone."""
    _open_closed_streams()
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
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
    """Standard error as a daemon's log. What it does not take is lost: its disk is full, or nobody reads it.

    Nothing is buffered: at the end the interpreter would try again, and make an error of its exit code.
    """

    def write(self, text: str, /) -> int:
        left = text.encode(errors="backslashreplace")
        with suppress(OSError):
            while left:
                left = left[os.write(sys.stderr.fileno(), left) :]
        return len(text)
