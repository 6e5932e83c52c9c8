"""Which file of a directory is which log taken before: rotation renames and gzips files, so a name tells little.

A log is told by its first line, which no two logs share, and by the last bytes taken of it. Imports no Spark.
"""

from __future__ import annotations

import hashlib
import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from controller.analysis.intake.screening import LINE_BYTES_MAX, TOO_LONG
from controller.analysis.local_files import FILE_PATTERNS, LogFile

#: The log that is written.
_OPEN_LOG = FILE_PATTERNS[0]
_CHUNK_BYTES = 1 << 20
#: A first line longer than this is told by its beginning.
_HEAD_BYTES_MAX = 64 << 10
#: Last bytes taken that are compared before more is taken.
MARK_BYTES = 4096


class TakenFile(msgspec.Struct):
    """What the lake knows of a log file.

    ``id``: in the rows. ``path``, ``size``, ``mtime_ns``: of the file when it was last seen. ``head``: digest of its
    first line (empty: it had none yet). ``taken``: bytes of its content (inflated) that are in the lake; ``mark``:
    digest of the last MARK_BYTES of them. ``pending``: bytes of an unfinished last line. Then as `quality.FileRow`.
    """

    id: str
    path: str
    size: int = 0
    mtime_ns: int = 0
    head: str = ""
    taken: int = 0
    mark: str = ""
    pending: int = 0
    lines: int = 0
    ok: int = 0
    torn: int = 0
    malformed: int = 0
    newer_schema: int = 0
    problem: str | None = None
    role: str | None = None
    node: int | None = None
    first_us: int | None = None
    last_us: int | None = None

    @classmethod
    def new(cls, path: str, head: str) -> TakenFile:
        return cls(uuid.uuid4().hex[:16], path, head=head)


@dataclass(frozen=True)
class SeenFile:
    """A log file that is there now. ``head``: as `TakenFile`; ``problem``: it cannot be read."""

    path: str
    size: int
    mtime_ns: int
    head: str
    problem: str | None = None

    @property
    def log(self) -> LogFile:
        return LogFile(self.path, self.size)

    @property
    def finished(self) -> bool:
        return _is_finished(self.path)

    def unchanged_since(self, known: TakenFile) -> bool:
        return (self.path, self.size, self.mtime_ns) == (known.path, known.size, known.mtime_ns)


class DamagedGzipError(Exception):
    """A gzip file ends early or cannot be inflated; what came before the damage is read."""


class LongLineError(DamagedGzipError):
    """A line is too long to be taken, in any file; what came before its last part is read."""


def seen(files: Sequence[LogFile], known: Sequence[TakenFile]) -> list[SeenFile]:
    """The files as they are now, without vanished ones (rotation) and those that are beside their plain file: the
    writer deletes that next."""
    paths = {file.path for file in files}
    unchanged = {(one.path, one.size, one.mtime_ns): one.head for one in known}
    found = []
    for file in files:
        if file.gzipped and file.path.removesuffix(".gz") in paths:
            continue
        try:
            status = os.stat(file.shown)
            told = (file.path, status.st_size, status.st_mtime_ns)
            before = unchanged.get(told)
            found.append(SeenFile(*told, head(file) if before is None else before))
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"unreadable: {error.strerror or error}"
            found.append(SeenFile(file.path, file.size, 0, "", problem))
    return found


def match(
    files: Sequence[SeenFile],
    known: Sequence[TakenFile],
    continues: Callable[[SeenFile, TakenFile], bool],
    still_there: Callable[[str], bool],
) -> list[tuple[SeenFile, TakenFile | None]]:
    """Each file with what is known of it, None if it is new.

    A file is a known one if it has its first line and its last taken bytes: the one of the same name, else one that is
    no longer where it was. A copy beside its original is a file of its own. One that cannot be read, or of which
    nothing was taken, is told by its name. ``continues``: compares the last bytes taken. ``still_there``: whether a
    path exists that is not among the files.
    """
    by_path = {one.path: one for one in known}
    chosen: dict[str, TakenFile] = {}
    for file in files:
        same = by_path.get(file.path)
        if same is not None and same.taken and file.head == same.head and continues(file, same):
            chosen[file.path] = same
    listed, used = {file.path for file in files}, {one.id for one in chosen.values()}
    by_head: dict[str, list[TakenFile]] = {}
    for one in sorted(known, key=lambda one: -one.taken):
        if one.head and one.id not in used and (one.path in listed or not still_there(one.path)):
            by_head.setdefault(one.head, []).append(one)
    for file in files:
        if file.path in chosen:
            continue
        for one in by_head.get(file.head, ()) if file.head else ():
            if one.id not in used and continues(file, one):
                chosen[file.path] = one
                used.add(one.id)
                break
    for file in files:
        same = by_path.get(file.path)
        # There is nothing to compare.
        if same is not None and same.id not in used and (not same.taken or file.problem is not None):
            chosen.setdefault(file.path, same)
    return [(file, chosen.get(file.path)) for file in files]


def continues(file: SeenFile, known: TakenFile) -> bool:
    """Whether the file has, where taking stopped, what was taken last."""
    if file.unchanged_since(known):
        return True
    length = min(MARK_BYTES, known.taken)
    got = b""
    try:
        for chunk in content(file.log, known.taken - length):
            got += chunk
            if len(got) >= length:
                break
    except (DamagedGzipError, OSError):
        pass
    return len(got) >= length and mark_of(got[:length]) == known.mark


def content(file: LogFile, start: int) -> Iterator[bytes]:
    """The content from a byte on, a piece at a time, inflated.

    Raises DamagedGzipError after what could be inflated, LongLineError, OSError.
    """
    line_bytes = 0
    for chunk in _pieces(file, start):
        first = chunk.find(b"\n")
        line_bytes += len(chunk) if first < 0 else first
        if line_bytes >= LINE_BYTES_MAX:
            raise LongLineError(TOO_LONG)
        if first >= 0:
            line_bytes = len(chunk) - chunk.rfind(b"\n") - 1
        yield chunk


def _pieces(file: LogFile, start: int) -> Iterator[bytes]:
    with open(file.shown, "rb") as source:
        if not file.gzipped:
            source.seek(start)
            yield from iter(lambda: source.read(_CHUNK_BYTES), b"")
            return
        skip = start
        for chunk in _inflated(iter(lambda: source.read(_CHUNK_BYTES), b"")):
            if skip < len(chunk):
                yield chunk[skip:]
            skip = max(0, skip - len(chunk))


def mark_of(last: bytes) -> str:
    """The digest of the last bytes taken."""
    return hashlib.sha256(last[-MARK_BYTES:]).hexdigest()[:32]


def _is_finished(path: str) -> bool:
    """Whether nobody writes the file any more: only the open log has the plain name."""
    return not path.endswith(f"/{_OPEN_LOG}")


def _inflated(chunks: Iterator[bytes]) -> Iterator[bytes]:
    member, begun = zlib.decompressobj(wbits=31), False
    try:
        for piece in chunks:
            rest = piece
            while rest:
                begun = True
                inflated = member.decompress(rest, _CHUNK_BYTES)
                if inflated:
                    yield inflated
                rest = member.unconsumed_tail
                if member.eof:
                    rest = member.unused_data
                    member, begun = zlib.decompressobj(wbits=31), False
    except zlib.error as error:
        raise DamagedGzipError(f"damaged gzip: {error}") from None
    if begun:
        raise DamagedGzipError("truncated gzip")


def head(file: LogFile) -> str:
    """The digest of the first line; empty if it has not ended in a log that is still written."""
    got = b""
    try:
        for chunk in content(file, 0):
            got += chunk
            if b"\n" in chunk or len(got) >= _HEAD_BYTES_MAX:
                break
    except DamagedGzipError:
        pass
    line, ended, _ = got.partition(b"\n")
    if not got or (not ended and len(got) < _HEAD_BYTES_MAX and not _is_finished(file.path)):
        return ""
    return hashlib.sha256(line[:_HEAD_BYTES_MAX]).hexdigest()[:32]
