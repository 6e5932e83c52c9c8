"""A first look at a file's bytes: whether it holds nothing but records of our writers, so that Spark's own JSON scan
reads it right, without a second look at every line. It takes a fraction of that scan's time. Imports no Spark.

Spark's scan does not see what follows a record in its line, nor whether a value was a string. Both show in the counts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

_CHUNK_BYTES = 1 << 20
#: Longer lines are no records of ours, and a few of them would fill Spark's memory: they are left out and told of.
LINE_BYTES_MAX = 16 << 20
TOO_LONG = f"a line of more than {LINE_BYTES_MAX >> 20} MiB"
#: What every record begins with. Quotes in JSON strings are escaped, so neither occurs inside one.
_START = b'{"schema"'
#: Between the name of a field and its value, if that is a string.
_TEXT = b'":"'


@dataclass(frozen=True)
class FileCheck:
    """What a look at all bytes of a file told: its size (inflated), its problem as a whole (None if intact), its
    number of lines and of string values in them. ``usual``: each line is a record or a torn one, as far as bytes
    tell."""

    size: int
    problem: str | None = None
    lines: int = 0
    texts: int = 0
    usual: bool = False


class _Screen:
    """Takes the bytes of one file, in order."""

    def __init__(self) -> None:
        self.size = self.lines = self.texts = 0
        self.usual = True
        self._line_bytes, self._too_long = 0, False
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def take(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._measure(chunk)
        if not self.usual:
            return
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._keep(chunk)
            return
        self._rest.append(chunk[:cut])
        self._look(b"".join(self._rest))
        self._rest, self._rest_bytes = [], 0
        self._keep(chunk[cut:])

    def done(self, problem: str | None = None) -> FileCheck:
        if self.usual and self._rest_bytes:
            self._look(b"".join(self._rest) + b"\n")
        if problem is None and self._too_long:
            problem = f"{TOO_LONG} was left out"
        return FileCheck(self.size, problem, self.lines, self.texts, self.usual)

    def _measure(self, chunk: bytes) -> None:
        """A line within a chunk is never too long."""
        first = chunk.find(b"\n")
        self._line_bytes += len(chunk) if first < 0 else first
        if self._line_bytes >= LINE_BYTES_MAX:
            self._too_long, self.usual = True, False
        if first >= 0:
            self._line_bytes = len(chunk) - chunk.rfind(b"\n") - 1

    def _keep(self, rest: bytes) -> None:
        self._rest.append(rest)
        self._rest_bytes += len(rest)

    def _look(self, block: bytes) -> None:
        """At whole lines."""
        lines, starts = block.count(b"\n"), block.count(_START)
        beginnings = block.count(b"\n" + _START) + block.startswith(_START)
        if not lines == starts == beginnings == block.count(b"}\n") or not _is_text(block):
            self._look_at_each(block.split(b"\n")[:-1])
            return
        self.lines += lines
        self.texts += block.count(_TEXT)

    def _look_at_each(self, lines: list[bytes]) -> None:
        for line in lines:
            torn = b"}" not in line
            one = line.startswith(_START) and line.count(_START) == 1 and (torn or line.endswith(b"}"))
            self.usual = self.usual and one and _is_text(line)
            self.lines += 1
            self.texts += 0 if torn else line.count(_TEXT)


def screen(chunks: Iterable[bytes]) -> FileCheck:
    """Look at a plain file."""
    screened = _Screen()
    for chunk in chunks:
        screened.take(chunk)
    return screened.done()


def inflate(chunks: Iterable[bytes]) -> FileCheck:
    """Inflate a gzip file (of one or more members) and look at what is in it, keeping a few lines at a time."""
    screened, member, begun = _Screen(), zlib.decompressobj(wbits=31), False
    try:
        for piece in chunks:
            chunk = piece
            while chunk:
                begun = True
                screened.take(member.decompress(chunk, _CHUNK_BYTES))
                chunk = member.unconsumed_tail
                if member.eof:
                    chunk = member.unused_data
                    member, begun = zlib.decompressobj(wbits=31), False
    except zlib.error as error:
        return screened.done(f"damaged gzip: {error}")
    return screened.done("truncated gzip" if begun else None)


def check_local_file(path: str) -> FileCheck:
    """Look at a file of this machine, gzipped if its name says so."""
    look = inflate if path.endswith(".gz") else screen
    try:
        with open(path, "rb") as source:
            return look(iter(lambda: source.read(_CHUNK_BYTES), b""))
    except OSError as error:
        return FileCheck(0, f"unreadable: {error.strerror or error}")


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
