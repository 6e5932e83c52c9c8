"""The history of a workload: sends and reads of its clients with their results, stored as JSON lines.

The value of a record contains its writer and its sequence number, so that a reader, or the log, identifies it.
Times are microseconds since 1970.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedWriter
from itertools import takewhile
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from controller.errors import MalformedError

Key = tuple[str, int]
_VALUE = re.compile(rb"w(\d{1,9})-(\d{1,18})-")
Count = Annotated[int, Meta(ge=0)]


class Content(NamedTuple):
    """The record that a value belongs to, and the CRC-32 of the value; ``writer`` -1: not a workload's record."""

    writer: int
    sequence: int
    crc: int

    def __str__(self) -> str:
        name = f"record {self.sequence} of writer {self.writer}" if self.writer >= 0 else "a foreign record"
        return f"{name} (crc {self.crc:#010x})"


def value_of(writer: int, sequence: int, size: int) -> bytes:
    """The value of a writer's record: its name, padded to ``size`` bytes; longer if the name is longer."""
    name = b"w%d-%d-" % (writer, sequence)
    pattern = b"%x" % (writer * 1_000_003 + sequence)
    padding = max(size - len(name), 0)
    return name + (pattern * (padding // len(pattern) + 1))[:padding]


def content_of(value: bytes | None) -> Content:
    """The record that a value belongs to."""
    data = value or b""
    crc = zlib.crc32(data)
    match = _VALUE.match(data)
    return Content(int(match[1]), int(match[2]), crc) if match else Content(-1, -1, crc)


class Begun(msgspec.Struct, tag="begun", tag_field="what", frozen=True):
    """A writer is about to send a record."""

    writer: Count
    sequence: Count
    topic: str
    partition: Count
    crc: int
    at_us: int


class Ended(msgspec.Struct, tag="ended", tag_field="what", frozen=True, omit_defaults=True):
    """A send has ended. ``offset`` None: not acknowledged. ``attempts``: requests that may have appended it."""

    writer: Count
    sequence: Count
    attempts: Count
    at_us: int
    offset: Count | None = None
    error: str = ""


class Read(msgspec.Struct, tag="read", tag_field="what", frozen=True):
    """A reader got a record. ``high_watermark``: of the same response."""

    reader: Count
    topic: str
    partition: Count
    offset: Count
    writer: int
    sequence: int
    crc: int
    high_watermark: int
    at_us: int

    @property
    def content(self) -> Content:
        return Content(self.writer, self.sequence, self.crc)


class Noted(msgspec.Struct, tag="noted", tag_field="what", frozen=True):
    """A message of a reader or writer for people; the checker ignores it."""

    text: str
    at_us: int


Line = Begun | Ended | Read | Noted
_decoder = msgspec.json.Decoder(Line)


class Write(NamedTuple):
    """One record as its writer knows it.

    ``attempts``: requests that may have appended it, None: unknown, because the writer was killed.
    ``offset`` None: not acknowledged, so the log may have it or not. ``ended_us`` 0: the send has not ended.
    """

    writer: int
    sequence: int
    topic: str
    partition: int
    crc: int
    attempts: int | None
    offset: int | None
    begun_us: int = 0
    ended_us: int = 0

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def content(self) -> Content:
        return Content(self.writer, self.sequence, self.crc)


class History(NamedTuple):
    """The history of one or more runs: records in the order of sends, and reads in the order of reading."""

    writes: tuple[Write, ...] = ()
    reads: tuple[Read, ...] = ()
    notes: tuple[Noted, ...] = ()


class HistoryFile:
    """Appends lines; after ``flush`` they survive a kill of the process."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _cut_torn_end(path)
        self._file: BufferedWriter = path.open("ab")

    def add(self, line: Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _cut_torn_end(path: Path) -> None:
    """Remove an unfinished last line of a killed process: the next line would be appended to it."""
    with path.open("rb+") as file:
        whole = 0
        for line in file:
            if line.endswith(b"\n"):
                whole += len(line)
        file.truncate(whole)


def load(path: Path) -> History:
    """Read a history file; an unfinished last line (of a killed process) is left out.

    Raises OSError, and MalformedError with file, line and problem.
    """
    return collect(_lines(path))


def _lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return
            yield _decode(f"{path}:{number}", text)


def _decode(where: str, text: bytes) -> Line:
    try:
        line: Line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(where, f"{error} (line begins {text[:80]!r})") from None
    return line


class Tail:
    """Reads new lines of a history file that another process writes. Raises what ``load`` raises."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def new_lines(self) -> list[Line]:
        """Complete lines appended since the last call; none while the file does not exist."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            # What follows an unfinished line is its rest: the writer has gone on meanwhile.
            found = list(takewhile(lambda text: text.endswith(b"\n"), file))
        self._position += sum(map(len, found))
        return [_decode(str(self._path), text) for text in found]


def collect(lines: Iterable[Line]) -> History:
    """Join Begun and Ended lines to writes. Raises MalformedError for an Ended without its Begun, and for a second
    Begun."""
    writes: dict[tuple[int, int], Write] = {}
    reads: list[Read] = []
    notes: list[Noted] = []
    for line in lines:
        match line:
            case Begun():
                name = (line.writer, line.sequence)
                if name in writes:
                    raise MalformedError(
                        "history", f"writer {line.writer}: record {line.sequence} was begun twice"
                    )
                writes[name] = Write(*name, line.topic, line.partition, line.crc, None, None, line.at_us)
            case Ended():
                name = (line.writer, line.sequence)
                if name not in writes:
                    raise MalformedError(
                        "history", f"writer {line.writer}: record {line.sequence} ended but never began"
                    )
                writes[name] = writes[name]._replace(
                    attempts=line.attempts, offset=line.offset, ended_us=line.at_us
                )
            case Read():
                reads.append(line)
            case Noted():
                notes.append(line)
    return History(tuple(writes.values()), tuple(reads), tuple(notes))
