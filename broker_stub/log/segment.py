"""One file of a log: whole batches back to back, with a sparse index in memory."""

from __future__ import annotations

import errno
import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from broker_stub.log import batches
from broker_stub.log.batches import Batch, BatchError
from broker_stub.log.checks import sequence_problem
from broker_stub.log.errors import LogFault
from broker_stub.log.files import FilePool
from broker_stub.log.interface import TimestampOffset

SUFFIX = ".log"
#: Bytes between two index entries: a read steps through at most this much to find its batch.
INDEX_INTERVAL_BYTES = 4096
NO_TIMESTAMP = -(2**63)
_CHUNK_BYTES = 256 * 1024
_OFFSET_MAX = 2**63 - 1
_NAME = re.compile(r"[0-9]{20}\.log", re.ASCII)


def file_name(base_offset: int) -> str:
    return f"{base_offset:020d}{SUFFIX}"


def parse_file_name(name: str) -> int | None:
    """The base offset in a segment's file name; None when it is not one."""
    if not _NAME.fullmatch(name):
        return None
    base_offset = int(name.removesuffix(SUFFIX))
    return base_offset if base_offset <= _OFFSET_MAX else None


def walk(
    fd: int, start: int, end: int, next_offset: int, latest_epoch: int, *, check: bool
) -> Iterator[tuple[Batch, bytes]]:
    """Every batch of a file from ``start`` to ``end``, with its bytes (complete only if ``check``).

    ``start`` and ``end`` of the batches are positions in the file. Offsets must continue from ``next_offset``
    without a gap, and epochs must not fall below ``latest_epoch``. ``check``: verify checksums; otherwise only
    headers are read. Raises BatchError at the first bad batch, OSError.
    """
    chunk, origin = b"", start
    position, length = start, 0
    while position < end:
        if position + batches.HEADER_BYTES > origin + len(chunk):
            wanted = _CHUNK_BYTES if check or length < _CHUNK_BYTES // 4 else batches.HEADER_BYTES
            chunk, origin = os.pread(fd, min(wanted, end - position), position), position
        try:
            batch = batches.read_header(chunk, position - origin)
            length = batch.end - batch.start
            if position + length > end:
                raise BatchError(f"batch has {length} bytes, {end - position} are left: cut short")
            if check and batch.end > len(chunk):
                chunk, origin = os.pread(fd, max(_CHUNK_BYTES, length), position), position
                batch = batches.read_header(chunk)
                if batch.end > len(chunk):
                    raise BatchError(f"batch has {length} bytes, {len(chunk)} could be read: cut short")
            if check:
                batches.verify(chunk, batch)
            if problem := sequence_problem(batch, next_offset, latest_epoch):
                raise BatchError(problem)
        except BatchError as error:
            raise BatchError(error.reason, position) from error
        at = batch.start
        yield batch._replace(start=position, end=position + length), chunk[at : at + length]
        position += length
        next_offset, latest_epoch = batch.next_offset, batch.leader_epoch


class Segment:
    """The batches from ``base_offset`` to before ``next_offset``. Methods raise OSError, or LogFault for damage.

    The index holds, about every 4 KiB, a batch's offset and position and the newest timestamp before it. For a
    segment from `known` it is built when first needed.
    """

    __slots__ = (
        "_files", "_indexed", "_max_timestamp", "_newest_before", "_next_entry", "_offsets", "_positions",
        "base_offset", "next_offset", "path", "size",
    )  # fmt: skip

    def __init__(self, folder: Path, base_offset: int, files: FilePool) -> None:
        """A segment without batches; the first append, or `create`, creates the file."""
        self.path = folder / file_name(base_offset)
        self.base_offset = self.next_offset = base_offset
        self.size = 0
        self._files = files
        self._clear_index()

    def _clear_index(self) -> None:
        self._indexed = True
        self._max_timestamp = NO_TIMESTAMP
        self._next_entry = 0
        self._offsets, self._positions, self._newest_before = array("q"), array("q"), array("q")

    @classmethod
    def known(cls, folder: Path, base_offset: int, size: int, next_offset: int, files: FilePool) -> Segment:
        """A segment that needs no check: its batches are read only when first needed."""
        segment = cls(folder, base_offset, files)
        segment.size, segment.next_offset, segment._indexed = size, next_offset, False
        return segment

    def fd(self) -> int:
        return self._files.fd(self.path)

    def create(self) -> None:
        """Create the file before there is a batch: its name then tells the log start offset."""
        self._files.fd(self.path, create=True)

    def append(self, data: bytes | bytearray | memoryview, found: Sequence[Batch]) -> None:
        """Append batches in one write. After an error the file may hold part of them; this object holds none."""
        fd = self._files.fd(self.path, create=not self.size and not self.path.exists())
        written = os.pwrite(fd, data, self.size)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes written", str(self.path))
        shift = self.size - found[0].start
        for batch in found:
            self.note(batch, batch.start + shift)
        self.size += len(data)

    def note(self, batch: Batch, position: int) -> None:
        """Add the batch at ``position`` to the index; called for every batch in order."""
        if position >= self._next_entry:
            self._offsets.append(batch.base_offset)
            self._positions.append(position)
            self._newest_before.append(self._max_timestamp)
            self._next_entry = position + INDEX_INTERVAL_BYTES
        if batch.max_timestamp > self._max_timestamp:
            self._max_timestamp = batch.max_timestamp
        self.next_offset = batch.next_offset

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp, ms since 1970; ``NO_TIMESTAMP`` without batches."""
        self._build_index()
        return self._max_timestamp

    def _build_index(self) -> None:
        if self._indexed:
            return
        expected = self.next_offset
        self._clear_index()
        try:
            for batch in self._headers(0, self.size, self.base_offset):
                self.note(batch, batch.start)
            if self.next_offset != expected:
                raise self._damage(self.size, f"ends at offset {self.next_offset}: must be {expected}")
        except BaseException:
            self._indexed, self.next_offset = False, expected
            raise

    def _headers(self, start: int, end: int, next_offset: int) -> Iterator[Batch]:
        try:
            for batch, _ in walk(self.fd(), start, end, next_offset, -1, check=False):
                yield batch
        except BatchError as error:
            raise self._damage(error.position, error.reason) from error

    def _damage(self, position: int, reason: str) -> LogFault:
        return LogFault(f"{self.path} at {position}: {reason}")

    def read(
        self, offset: int, max_bytes: int, upto_offset: int, *, at_least_one: bool
    ) -> tuple[bytes, bool]:
        """Whole batches as in ``Log.read``, and whether they reach the end of this segment.

        ``offset`` is in this segment and below ``upto_offset``.
        """
        self._build_index()
        entry = bisect_right(self._offsets, offset) - 1
        floor = self._positions[entry]
        stop = self.size
        if upto_offset < self.next_offset:
            stop = self._position_of(bisect_left(self._offsets, upto_offset))
        wanted = min(stop - floor, self._position_of(entry + 1) - floor + max(max_bytes, 0))
        window = os.pread(self.fd(), wanted, floor)
        try:
            if len(window) < wanted:
                raise BatchError(f"only {len(window)} of {wanted} bytes could be read: cut short")
            start, end = self._cut(window, floor, offset, max_bytes, upto_offset, at_least_one=at_least_one)
        except BatchError as error:
            raise self._damage(floor + error.position, error.reason) from error
        return window[start:end], floor + end == self.size

    def _cut(
        self, window: bytes, floor: int, offset: int, max_bytes: int, upto_offset: int, *, at_least_one: bool
    ) -> tuple[int, int]:
        """Start and end, within ``window``, of the batches that ``read`` returns.

        ``window`` holds the file's bytes from position ``floor`` on. It begins at a batch and reaches at least
        ``max_bytes`` past the start of the batch with ``offset``, or the last batch that may be read.
        """
        start = 0
        _, next_offset, end = batches.read_span(window, start)
        while next_offset <= offset:
            start = end
            _, next_offset, end = batches.read_span(window, start)
        if next_offset > upto_offset or (end - start > max_bytes and not at_least_one):
            return start, start
        limit = min(start + max_bytes, len(window))
        if end >= limit or (floor + limit == self.size and upto_offset >= self.next_offset):
            return start, max(end, limit)
        # Skip ahead to the last index entry within both limits.
        entry = (
            min(bisect_right(self._positions, floor + limit), bisect_right(self._offsets, upto_offset)) - 1
        )
        end = max(self._positions[entry] - floor, end)
        while end + batches.HEADER_BYTES <= limit:
            _, next_offset, following = batches.read_span(window, end)
            if following > limit or next_offset > upto_offset:
                break
            end = following
        return start, end

    def _position_of(self, entry: int) -> int:
        return self._positions[entry] if entry < len(self._positions) else self.size

    def locate(self, offset: int) -> Batch:
        """The batch that holds ``offset``, which must be in this segment."""
        self._build_index()
        entry = bisect_right(self._offsets, offset) - 1
        for batch in self._headers(self._positions[entry], self.size, self._offsets[entry]):
            if batch.next_offset > offset:
                return batch
        raise self._damage(self.size, f"no batch holds offset {offset}")

    def truncate(self, batch: Batch) -> None:
        """Durably truncate the file before a batch that ``locate`` returned."""
        fd = self.fd()
        os.ftruncate(fd, batch.start)
        os.fdatasync(fd)
        self.size = batch.start
        kept = bisect_left(self._positions, batch.start)
        if kept == 0:
            self._clear_index()
            self.next_offset = self.base_offset
            return
        last = kept - 1
        offset, position, newest = self._offsets[last], self._positions[last], self._newest_before[last]
        del self._offsets[last:], self._positions[last:], self._newest_before[last:]
        self._max_timestamp, self._next_entry = newest, position
        for header in self._headers(position, self.size, offset):
            self.note(header, header.start)

    def remove(self) -> None:
        self._files.forget(self.path)
        os.unlink(self.path)

    def close(self) -> None:
        self._files.forget(self.path)

    def find_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a timestamp. Reads only headers and the records of one batch."""
        if self.max_timestamp < timestamp_ms:
            return None
        entry = max(bisect_left(self._newest_before, timestamp_ms) - 1, 0)
        for batch in self._headers(self._positions[entry], self.size, self._offsets[entry]):
            if batch.max_timestamp >= timestamp_ms:
                return self._first_record(batch, timestamp_ms)
        return None

    def _first_record(self, batch: Batch, timestamp_ms: int) -> TimestampOffset | None:
        data = os.pread(self.fd(), batch.end - batch.start, batch.start)
        try:
            for record in batches.decode(data):
                if record.timestamp >= timestamp_ms:
                    return TimestampOffset(record.timestamp, record.offset, record.leader_epoch)
        except BatchError as error:
            raise self._damage(batch.start + error.position, error.reason) from error
        return None
