"""The next bytes of logs, set aside in files that no longer change, for Spark to read. Imports no Spark.

A piece is named after its log and where it begins in it, so that Spark's rows tell both.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from controller.analysis.lake import identity
from controller.analysis.lake.identity import DamagedGzipError, LongLineError, SeenFile, TakenFile
from controller.analysis.local_files import LogFile, nothing_found, walk_local

#: Bytes of log (inflated) that one commit takes, about; a gzip file is taken whole.
BATCH_BYTES = 1 << 30
_READ_UNTIL = "; what came before the damage was read"
_CHUNK_BYTES = 1 << 20


class Piece(msgspec.Struct):
    """Bytes of one log that have been set aside. ``name``: of the file in the spool, empty if there are no new bytes;
    ``start``: where they begin; ``lines``: in them, if they were counted; ``after``: what will be known of the log,
    but for counts of lines."""

    name: str
    start: int
    lines: int | None
    after: TakenFile


class Spool:
    """Pieces in ``directory``, which only this program uses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: Whether the last `fill` left something for the next.
        self.full = False

    def clear(self) -> None:
        """Forget the pieces: what was not committed is in the logs still."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def fill(self, log_dirs: Sequence[Path | str], known: Sequence[TakenFile]) -> list[Piece]:
        """Set aside the next bytes of the logs in and below the directories, about BATCH_BYTES; none if there is
        nothing new.

        An unfinished last line of a log that is still written is left for the next time. Raises ReportError if there
        is no log at all.
        """
        logs = {file.path: file for log_dir in map(str, log_dirs) for file in walk_local(log_dir)}
        if not logs:
            raise nothing_found(log_dirs)
        files = identity.seen([logs[path] for path in sorted(logs)], known)
        matched = identity.match(
            files, known, identity.continues, lambda path: os.path.exists(LogFile(path, 0).shown)
        )
        pieces, left = [], BATCH_BYTES
        self.full = False
        for file, taken in matched:
            if self.full or left <= 0:
                self.full = True
                break
            if taken is None or not file.unchanged_since(taken):
                piece = self._set_aside(file, taken or TakenFile.new(file.path, file.head), left)
                if piece is not None and piece.after != taken:
                    pieces.append(piece)
                    left -= piece.after.taken - piece.start
        return pieces

    def _set_aside(self, file: SeenFile, known: TakenFile, bytes_max: int) -> Piece | None:
        """None if the file is another one by now (rotation): the next look finds it."""
        after = msgspec.structs.replace(
            known,
            path=file.path,
            size=file.size,
            mtime_ns=file.mtime_ns,
            head=file.head or known.head,
            problem=None,
        )
        if file.problem is not None:
            after.problem = f"{file.problem}{_READ_UNTIL}"
            return Piece("", known.taken, None, after)
        try:
            if file.log.gzipped and known.taken == 0:
                return self._link(file, after)
            return self._copy(file, after, bytes_max)
        except FileNotFoundError:
            return None

    def _link(self, file: SeenFile, after: TakenFile) -> Piece | None:
        """A gzip file of which nothing has been taken, for Spark to inflate."""
        path = self.directory / f"{after.id}-0.jsonl.gz"
        try:
            os.link(file.log.shown, path)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(file.log.shown, path)
        aside = LogFile(f"file:{path}", file.size)
        size = lines = 0
        last = b""
        try:
            for piece in identity.content(aside, 0):
                size, lines = size + len(piece), lines + piece.count(b"\n")
                last = (last + piece)[-identity.MARK_BYTES :]
        except LongLineError:
            # Spark must not meet it.
            path.unlink()
            return self._copy(file, after, BATCH_BYTES)
        except DamagedGzipError as error:
            after.problem = f"{error}{_READ_UNTIL}"
        if identity.head(aside) != after.head or not size:
            path.unlink()
            return None if size else Piece("", 0, None, after)
        after.taken, after.mark = size, identity.mark_of(last)
        # Of a damaged file Spark may read a little less.
        return Piece(path.name, 0, None if after.problem else lines + (not last.endswith(b"\n")), after)

    def _copy(self, file: SeenFile, after: TakenFile, bytes_max: int) -> Piece | None:
        start, name = after.taken, f"{after.id}-{after.taken}.jsonl"
        path, before, whole = self.directory / name, b"", True
        compared = min(identity.MARK_BYTES, start)
        with path.open("wb") as target:
            try:
                for piece in identity.content(file.log, start - compared):
                    missing = compared - len(before)
                    before += piece[:missing]
                    target.write(piece[missing:])
                    if target.tell() >= bytes_max and b"\n" in piece:
                        whole = False
                        break
            except DamagedGzipError as error:
                after.problem = f"{error}{_READ_UNTIL}"
        size = path.stat().st_size
        end, lines = _lines_in(path)
        if whole and file.finished and end < size:
            end, lines = size, lines + 1
        os.truncate(path, end)
        same = identity.mark_of(before) == after.mark if start else not end or self._begins(path, file)
        if not same or not end:
            path.unlink()
        if not same:
            return None
        after.pending = size - end if whole else 0
        if end:
            after.taken = start + end
            after.mark = identity.mark_of(before + _tail(path))
        if not whole:
            # There is more to take: no unchanged file.
            after.mtime_ns, self.full = 0, True
        return Piece(name if end else "", start, lines, after)

    def _begins(self, path: Path, file: SeenFile) -> bool:
        """Whether the piece has the first line of the file."""
        return identity.head(LogFile(f"file:{path}", 0)) == file.head


def _lines_in(path: Path) -> tuple[int, int]:
    """Bytes of whole lines, and how many these are."""
    end = lines = position = 0
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            lines += chunk.count(b"\n")
            last = chunk.rfind(b"\n")
            if last >= 0:
                end = position + last + 1
            position += len(chunk)
    return end, lines


def _tail(path: Path) -> bytes:
    with path.open("rb") as source:
        source.seek(max(0, path.stat().st_size - identity.MARK_BYTES))
        return source.read()
