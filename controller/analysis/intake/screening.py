"""A look at a file's bytes: whether it holds nothing but lines of our writers, whole or torn. Imports no Spark."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_CHUNK_BYTES = 4 << 20
#: Longer lines are no records of ours, and a few of them would fill Spark's memory: they are left out and told of.
LINE_BYTES_MAX = 16 << 20
TOO_LONG = f"a line of more than {LINE_BYTES_MAX >> 20} MiB"
#: What every record begins with. Quotes in JSON strings are escaped, so that it does not occur inside one.
_START = b'{"schema"'


@dataclass(frozen=True)
class FileCheck:
    """What a look at all bytes of a file told: its size (inflated), its problem as a whole (None if intact).
    ``usual``: the file is intact and each line a record or a torn one, as far as bytes and the one who was given them
    tell; then ``lines`` is their number."""

    size: int
    problem: str | None = None
    lines: int = 0
    usual: bool = False


class Block(NamedTuple):
    """Lines of a file, one after the other. ``records``: those that begin and end as one, each with its newline;
    ``numbers``: theirs, within this block, from 0; ``torn``: number and text of the others."""

    records: bytes
    numbers: Sequence[int]
    torn: Sequence[tuple[int, bytes]]


#: Takes each block; says whether its lines are usual, as far as it can tell.
Take = Callable[[Block], bool]


def _taken(_: Block) -> bool:
    return True


class _Screen:
    """Takes the bytes of one file, in order."""

    def __init__(self, take: Take) -> None:
        self._give = take
        self.size = self.lines = 0
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
        usual = self.usual and problem is None
        return FileCheck(self.size, problem, self.lines if usual else 0, usual)

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
        lines = block.count(b"\n")
        if lines == block.count(b"}\n") and _is_text(block):
            self._take(Block(block, range(lines), ()))
            return
        records: list[tuple[int, bytes]] = []
        torn: list[tuple[int, bytes]] = []
        for number, line in enumerate(block.split(b"\n")[:-1]):
            is_torn = b"}" not in line
            begun = line.startswith(_START) and line.count(_START) == 1
            if not (begun if is_torn else line.endswith(b"}")) or not _is_text(line):
                self.usual = False
                return
            (torn if is_torn else records).append((number, line))
        whole = b"".join(line + b"\n" for _, line in records)
        self._take(Block(whole, [number for number, _ in records], torn))

    def _take(self, block: Block) -> None:
        self.lines += len(block.numbers) + len(block.torn)
        self.usual = self._give(block)


def screen(chunks: Iterable[bytes], take: Take = _taken) -> FileCheck:
    """Look at a plain file."""
    screened = _Screen(take)
    for chunk in chunks:
        screened.take(chunk)
    return screened.done()


def inflate(chunks: Iterable[bytes], take: Take = _taken) -> FileCheck:
    """Inflate a gzip file (of one or more members) and look at what is in it, keeping a few lines at a time."""
    screened, member, begun = _Screen(take), zlib.decompressobj(wbits=31), False
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


def check_local_file(path: str, take: Take = _taken) -> FileCheck:
    """Look at a file of this machine, gzipped if its name says so. Raises what ``take`` raises."""
    look = inflate if path.endswith(".gz") else screen
    try:
        return look(_chunks(path), take)
    except _ReadError as error:
        return FileCheck(0, f"unreadable: {error}")


class _ReadError(Exception):
    """A file could not be read: not an error of whoever takes its lines."""


def _chunks(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise _ReadError(error.strerror or error) from error


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
