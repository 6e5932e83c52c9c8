"""The state-change log: its writer, shared by controllers and brokers (format: docs/state-change-log.md).

``append`` only queues records; a separate thread encodes and writes them. Records that cannot be written (disk
full, queue limit) are counted in ``dropped``, said at once in the daemon's own log, and reported by a ``log`` record
when writing works again. A rotation that fails is tried again as long as it is due, and reported once for each reason.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from errno import EINVAL
from pathlib import Path
from typing import IO, Any

import msgspec

from proto.statelog.schema import SCHEMA_VERSION, TRACE_ID

FILE_NAME = "state-change.jsonl"
#: Names of rotated files have the time when they were closed.
_STAMP = "%Y%m%dT%H%M%S.%fZ"
#: Records encoded before the thread yields: it shares the interpreter with the controller's decisions.
_SLICE_RECORDS = 200
#: Wait for further records before some are written.
GATHER_S = 0.01

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Rotation:
    """Size and age at which a log file is closed, renamed and gzipped, and number of rotated files kept."""

    bytes_max: int = 64 * 1024 * 1024
    seconds_max: float = 3600.0
    files_kept: int = 100


@dataclass(frozen=True)
class _Entry:
    ts_us: int
    controller_epoch: int
    event_id: int
    cause: str
    records: Iterable[Record]
    count: int
    trace_id: str = ""


def _log() -> Any:
    # Not imported above: tools that only need a timestamp start faster.
    import structlog

    return structlog.get_logger(__name__)


def format_ts(ts_us: int) -> str:
    """RFC 3339 in UTC with microseconds, from microseconds since 1970."""
    return datetime.fromtimestamp(ts_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def envelope(
    role: str, node: int, ts_us: int, controller_epoch: int, event_id: int, cause: str, trace_id: str = ""
) -> dict[str, Any]:
    """The first fields of every record. ``trace_id``: empty: the event has none."""
    fields = {
        "schema": SCHEMA_VERSION,
        "ts": format_ts(ts_us),
        "role": role,
        "node": node,
        "controller_epoch": controller_epoch,
        "event_id": event_id,
        "cause": cause,
    }
    return fields | {TRACE_ID: trace_id} if trace_id else fields


class StateLogWriter:
    """Writes one node's state-change log. Thread-safe.

    ``directory`` is created if absent; OSError is raised if nothing can be written there. ``role`` is "controller" or
    "broker", ``node`` its id. At most ``queue_max`` records are queued in memory.
    """

    def __init__(
        self,
        directory: Path,
        role: str,
        node: int,
        rotation: Rotation = Rotation(),
        queue_max: int = 1_000_000,
    ) -> None:
        self.directory, self.role, self.node = directory, role, node
        self.written = 0
        self.dropped = 0
        self.bytes_written = 0
        #: Seconds of the processor that the writing thread took so far.
        self.cpu_s = 0.0
        self._rotation, self._queue_max = rotation, queue_max
        self._queue: deque[_Entry] = deque()
        self._queued = 0
        self._unreported: tuple[int, str] = (0, "")
        #: Why nothing can be written, as the daemon's own log has it; empty: it can.
        self._not_written = ""
        #: Why the last rotation failed, and whether a record says so.
        self._not_rotated: tuple[str, bool] = ("", True)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closing = False
        #: Set while the owner makes decisions: the writer then sleeps between slices.
        self.owner_busy = False
        self._encoder = msgspec.json.Encoder()
        self._file: IO[bytes] | None = None
        self._opened_at = 0.0
        #: Lines in the open file since it was opened.
        self._in_file = 0
        directory.mkdir(parents=True, exist_ok=True)
        # On a read-only file system an existing directory says nothing.
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"\n")
            file.flush()
        _check_regular(directory / FILE_NAME)
        self._thread = threading.Thread(target=self._run, name="state-log", daemon=True)
        self._thread.start()

    def append(
        self,
        records: Iterable[Record],
        *,
        cause: str,
        controller_epoch: int = -1,
        event_id: int = 0,
        count: int = 1,
        ts_us: int | None = None,
        trace_id: str = "",
    ) -> None:
        """Queue records (``kind`` and its fields; the envelope is added here). Never blocks, never raises.

        ``records`` may be lazy: the writer's thread consumes it, so it must read only values that no longer
        change. ``count``: number of records that it yields, for the queue limit.
        """
        stamp = time.time_ns() // 1000 if ts_us is None else ts_us
        with self._lock:
            if self._closing or self._queued + count > self._queue_max:
                self._drop(count, "closed" if self._closing else f"queue limit of {self._queue_max} records")
                return
            self._queue.append(_Entry(stamp, controller_epoch, event_id, cause, records, count, trace_id))
            self._queued += count
            self._idle.clear()
        self._wake.set()

    @property
    def not_written(self) -> str:
        """Why nothing can be written at present; empty: it can."""
        return self._not_written

    @property
    def queued(self) -> int:
        """Records waiting to be written."""
        return self._queued

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all queued records are written to the file (not synced); False after ``timeout_s``."""
        return self._idle.wait(timeout_s)

    def close(self, timeout_s: float = 30.0) -> None:
        """Write queued records, close the file and end the thread."""
        with self._lock:
            self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        self._unreported = (self._unreported[0] + count, why)

    def _run(self) -> None:
        while True:
            self._wake.wait(1.0)
            self._wake.clear()
            if self._queue and not self._closing:
                # Others follow: a thread that begins anew for each record takes more than the record does.
                time.sleep(GATHER_S)
            while self._queue:
                self._write_some()
                self._rotate_if_due()
            self._leave_moved_file()
            self._rotate_if_due()
            self._report()
            with self._lock:
                if not self._queue:
                    self._idle.set()
                    if self._closing:
                        break
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_some(self) -> None:
        """Write the next batches, small ones together: a write takes several system calls."""
        lines: list[bytes] = []
        taken = 0
        while self._queue and taken < _SLICE_RECORDS:
            entry = self._queue.popleft()
            taken += entry.count
            self._encode(entry, lines)
        if lines:
            self._write_or_drop(lines)
        self.cpu_s = time.thread_time()
        with self._lock:
            self._queued -= taken

    def _encode(self, entry: _Entry, lines: list[bytes]) -> None:
        """Add the lines of a batch; as often as there are enough, they are written."""
        envelope = self._envelope(entry)
        made = 0
        try:
            for record in entry.records:
                lines.append(self._encoder.encode({**envelope, **record}))
                made += 1
                if len(lines) >= _SLICE_RECORDS:
                    self._write_or_drop(lines)
                    lines.clear()
                    # A sleep releases the interpreter; a longer one leaves most of the time to a busy owner.
                    time.sleep(0.025 if self.owner_busy and self._queued < self._queue_max // 2 else 0)
        except Exception as error:  # noqa: BLE001  (a bug of the caller: this thread reports it and continues)
            with self._lock:
                self._drop(max(entry.count - made, 1), f"a record could not be encoded: {error!r}")

    def _envelope(self, entry: _Entry) -> dict[str, Any]:
        return envelope(
            self.role,
            self.node,
            entry.ts_us,
            entry.controller_epoch,
            entry.event_id,
            entry.cause,
            entry.trace_id,
        )

    def _write_or_drop(self, lines: list[bytes]) -> None:
        lost, why = self._write_lines(lines)
        if lost:
            with self._lock:
                self._drop(lost, why)

    def _write_lines(self, lines: list[bytes]) -> tuple[int, str]:
        """Write lines. Returns how many, from the end, were not written, and why."""
        data = b"\n".join(lines) + b"\n"
        rest = memoryview(data)
        self._leave_moved_file()
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            while rest:
                # A nearly full disk accepts a part; the next write then fails.
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._abandon_file()
            landed = data.count(b"\n", 0, len(data) - len(rest))
            self.written += landed
            return len(lines) - landed, str(error.strerror or error)
        finally:
            self.bytes_written += len(data) - len(rest)
        self.written += len(lines)
        self._in_file += len(lines)
        return 0, ""

    def _leave_moved_file(self) -> None:
        """Begin a new file if the open one was removed or renamed: nobody would find what is written to it."""
        if self._file is None:
            return
        try:
            there = os.stat(self.directory / FILE_NAME)
        except OSError:
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._file.fileno())):
            with self._lock:
                self._drop(self._in_file, f"{FILE_NAME} was removed or renamed with them in it")
            self._abandon_file()

    def _open(self) -> None:
        path = self.directory / FILE_NAME
        # Not what it is in: a disk that is gone must not be taken for an empty one.
        self.directory.mkdir(exist_ok=True)
        self._in_file = 0
        _check_regular(path)
        self._end_torn_line(path)
        self._file = path.open("ab", buffering=0)
        self._opened_at = time.monotonic()

    @staticmethod
    def _end_torn_line(path: Path) -> None:
        """End a last line that a killed process left unfinished: our first line would be appended to it."""
        if not path.exists() or path.stat().st_size == 0:
            return
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")

    def _abandon_file(self) -> None:
        if self._file is not None:
            # The lines are already counted: a failed close loses no more.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _report(self) -> None:
        """Write what became of earlier records and rotations, which nobody has been told."""
        with self._lock:
            count, why = self._unreported
            self._unreported = (0, "")
        if count and self._write_report({"to": "dropped", "count": count, "reason": why}):
            self._not_written = ""
            _log().warning("state_log_records_lost", count=count, why=why)
        elif count:
            with self._lock:
                # The report itself does not count as lost; the next report includes records lost since.
                self._unreported = (self._unreported[0] + count, why)
            if why != self._not_written:
                self._not_written = why
                _log().error("state_log_not_written", directory=str(self.directory), why=why)
        why, said = self._not_rotated
        if not said:
            self._not_rotated = (why, self._write_report({"to": "rotation_failed", "reason": why}))

    def _write_report(self, fields: Record) -> bool:
        """Write a ``log`` record; whether it could be written."""
        entry = _Entry(time.time_ns() // 1000, -1, 0, "StateLog", (), 0)
        line = self._encoder.encode({**self._envelope(entry), "kind": "log", **fields})
        return self._write_lines([line])[0] == 0

    def _rotate_if_due(self) -> None:
        if self._file is None:
            return
        age_s = time.monotonic() - self._opened_at
        try:
            size = self._file.tell()
            if size == 0 or (size < self._rotation.bytes_max and age_s < self._rotation.seconds_max):
                return
            self._abandon_file()
            stamp = _next_stamp(path.name for path in self.directory.glob("state-change.*.jsonl*"))
            (self.directory / FILE_NAME).rename(self.directory / f"state-change.{stamp}.jsonl")
            # Includes files whose rotation failed or was killed.
            for rotated in sorted(self.directory.glob("state-change.*.jsonl")):
                _compress(rotated)
            for old in sorted(self.directory.glob("state-change.*.jsonl.gz"))[: -self._rotation.files_kept]:
                old.unlink()
            self._not_rotated = ("", True)
        except OSError as error:
            if (why := str(error.strerror or error)) != self._not_rotated[0]:
                self._not_rotated = (why, False)


def _check_regular(path: Path) -> None:
    """Raises OSError: a pipe would hold up whoever opens or writes it, and end the process late."""
    if path.exists() and not path.is_file():
        raise OSError(EINVAL, "not a regular file", str(path))


def _next_stamp(names: Iterable[str]) -> str:
    """Now, but after those of all rotated files, so that names stay in order when the wall clock is put back: the first
    ones are deleted first."""
    now = datetime.fromtimestamp(time.time_ns() // 1000 / 1e6, UTC)
    newest = max((n.removeprefix("state-change.").partition(".jsonl")[0] for n in names), default="")
    with suppress(ValueError):
        now = max(now, datetime.strptime(newest, _STAMP).replace(tzinfo=UTC) + timedelta(microseconds=1))
    return now.strftime(_STAMP)


def _compress(path: Path) -> None:
    """Gzip a file. An unfinished one has a name that readers ignore."""
    part = path.with_name(f"{path.name}.gz.part")
    try:
        with path.open("rb") as source, gzip.open(part, "wb", compresslevel=5) as target:
            shutil.copyfileobj(source, target, 1 << 18)
    except OSError:
        # It would fill the disk that new records need.
        part.unlink(missing_ok=True)
        raise
    part.rename(path.with_name(f"{path.name}.gz"))
    path.unlink()
