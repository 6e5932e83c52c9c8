"""A look at a file's bytes: which lines begin and end as records, what is wrong with the whole. Imports no Spark."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_CHUNK_BYTES = 4 << 20
#: Longer lines are no records of ours, and a few of them would fill Spark's memory: they are left out and told of.
LINE_BYTES_MAX = 16 << 20
TOO_LONG = f"a line of more than {LINE_BYTES_MAX >> 20} MiB"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Compressed bytes, of which those before a damage are inflated.
_DAMAGED_BYTES = 1 << 8


@dataclass(frozen=True)
class FileCheck:
    """What a look at all bytes of a file told: its size (inflated), its problem as a whole (None if intact), and its
    ``lines``, without those left out and one that a damage cut. Not ``readable``: nothing is known."""

    size: int
    problem: str | None = None
    lines: int = 0
    readable: bool = True


class Block(NamedTuple):
    """Lines of a file, one after the other. ``records``: those that begin and end as one, each with its newline, so
    that no record can go over two of them; ``numbers``: theirs, within this block, from 0; ``odd``: the others, by
    number."""

    records: bytes
    numbers: Sequence[int]
    odd: Mapping[int, bytes]

    @property
    def lines(self) -> int:
        return len(self.numbers) + len(self.odd)


#: Takes each block.
Take = Callable[[Block], None]


def _taken(_: Block) -> None:
    pass


class _Screen:
    """Takes the bytes of one file, in order."""

    def __init__(self, take: Take) -> None:
        self._give = take
        self.size = self.lines = 0
        self._begun = self._too_long = False
        #: In a line that is too long.
        self._leaving_out = False
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def take(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._leaving_out:
            end = chunk.find(b"\n")
            if end < 0:
                return
            self._leaving_out, chunk = False, chunk[end + 1 :]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            self._rest.append(chunk[:cut])
            self._look(b"".join(self._rest))
            self._rest, self._rest_bytes = [], 0
        self._keep(chunk[cut:])

    def done(self, problem: str | None = None) -> FileCheck:
        if self._rest_bytes and problem is None:
            self._look(b"".join(self._rest) + b"\n")
        if problem is None and self._too_long:
            problem = f"{TOO_LONG} was left out"
        return FileCheck(self.size, problem, self.lines)

    def _keep(self, rest: bytes) -> None:
        self._rest.append(rest)
        self._rest_bytes += len(rest)
        if self._rest_bytes >= LINE_BYTES_MAX:
            self._too_long = self._leaving_out = True
            self._rest, self._rest_bytes = [], 0

    def _look(self, block: bytes) -> None:
        """At whole lines. Only the first may be too long: the others are within a chunk."""
        if not self._begun:
            self._begun, block = True, block.removeprefix(_BYTE_ORDER_MARK)
        if (first := block.find(b"\n")) >= LINE_BYTES_MAX:
            self._too_long, block = True, block[first + 1 :]
        looked_at = _divided(block)
        self.lines += looked_at.lines
        if looked_at.lines:
            self._give(looked_at)


def _divided(block: bytes) -> Block:
    lines = block.count(b"\n")
    ends = block.startswith(b"{") and block.endswith(b"}\n")
    if ends and block.count(b"}\n{") == lines - 1 and _is_text(block):
        return Block(block, range(lines), {})
    records: dict[int, bytes] = {}
    odd: dict[int, bytes] = {}
    for number, line in enumerate(block.split(b"\n")[:-1]):
        whole = line.startswith(b"{") and line.endswith(b"}") and _is_text(line)
        (records if whole else odd)[number] = line
    return Block(b"".join(line + b"\n" for line in records.values()), list(records), odd)


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
                begun, before = True, member.copy()
                try:
                    inflated = member.decompress(chunk, _CHUNK_BYTES)
                except zlib.error as error:
                    for at in range(0, len(chunk), _DAMAGED_BYTES):
                        screened.take(before.decompress(chunk[at : at + _DAMAGED_BYTES]))
                    raise error
                screened.take(inflated)
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
        return FileCheck(0, f"unreadable: {error}", readable=False)


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
