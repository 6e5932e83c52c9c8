"""The log of one replica on disk: segments, leader epochs, recovery point.

Durability. An append is one write and survives a kill of the process. A power failure loses what was not
flushed; other replicas have it, as in Kafka. Truncations are synced at once: otherwise truncated batches could
reappear after a power failure and be taken for valid ones.

``flush`` writes the file ``leader-epoch-checkpoint`` before it moves the recovery point; so does a truncation that
removes an epoch from the file. Batches carry their epochs, so recovery needs the file only for flushed segments.
An epoch without a batch is never written: after a restart this replica leads only in a newer epoch, which starts
at the same offset and replaces the empty one. So a request that gives fifty thousand partitions a leader
writes no checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from broker_stub.log import batches, checks
from broker_stub.log.checkpoints import LEADER_EPOCHS, write_epochs
from broker_stub.log.errors import LogFault
from broker_stub.log.files import FilePool, sync_directory
from broker_stub.log.interface import Appended, EpochEnd, LogConfig, TimestampOffset
from broker_stub.log.recovery import Recovered, recover
from broker_stub.log.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class PartitionLog:
    """A ``Log`` in an existing folder; the first append creates the first file. Used by one thread at a time.

    After a LogFault of a change, ``failure`` holds the reason. Every later change then raises LogFault with it;
    reads still work as far as the disk allows.
    """

    __slots__ = (
        "_closed", "_config", "_directory_dirty", "_end", "_epochs", "_files", "_folder",
        "_recovery_point", "_saved_epochs", "_segments", "_start", "failure", "problems",
    )  # fmt: skip

    def __init__(self, folder: Path, config: LogConfig, files: FilePool | None, recovery_point: int) -> None:
        """Called by ``open``."""
        self._folder, self._config = folder, config
        self._files = FilePool(2) if files is None else files
        try:
            self._take(recover(folder, recovery_point, self._files), recovery_point)
            if self._saved_epochs is None:
                self._save_epochs()
        except OSError as error:
            if files is None:
                self._files.close()
            raise LogFault(f"{folder}: cannot be opened: {error}") from error
        #: Why the log refuses changes; empty: it accepts them.
        self.failure = ""
        self._closed = False

    def _take(self, recovered: Recovered, recovery_point: int) -> None:
        #: Each defect that recovery found, with the file and what it did.
        self.problems = recovered.problems
        self._segments = recovered.segments
        self._epochs = recovered.epochs
        self._saved_epochs = recovered.saved
        self._start = self._segments[0].base_offset if self._segments else 0
        self._end = recovered.end_offset
        self._recovery_point = max(min(recovery_point, self._end), self._start)
        self._directory_dirty = self._recovery_point < self._end

    @classmethod
    def open(
        cls, path: Path, config: LogConfig, recovery_point: int, files: FilePool | None = None
    ) -> PartitionLog:
        """Recover the replica in ``path``. Everything below ``recovery_point`` was flushed.

        The caller persists ``recovery_point`` after flushes and after truncations, which lower it. A recovery point
        above the log's end is reported as data loss.

        ``files``: shared by the logs of a broker to limit the number of open files; without it this log opens at
        most two. Raises LogFault when the folder cannot be read or repaired.
        """
        return cls(path, config, files, recovery_point)

    @property
    def path(self) -> Path:
        return self._folder

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def log_end_offset(self) -> int:
        return self._end

    @property
    def recovery_point(self) -> int:
        """Every record below this offset is on stable storage."""
        return self._recovery_point

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @contextlib.contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """Raise LogFault if an earlier change failed. Record an OSError or LogFault of this change as ``failure``."""
        if self.failure:
            raise LogFault(self.failure)
        try:
            yield
        except OSError as error:
            self.failure = f"{self._folder}: {what}: {error}"
            raise LogFault(self.failure) from error
        except LogFault as error:
            self.failure = str(error)
            raise

    def append_as_leader(self, records: bytes, leader_epoch: int) -> Appended:
        checks.leader_epoch(leader_epoch, self._epochs.latest_epoch)
        found = checks.for_leader(records, self._config.message_max_bytes)
        stamped, placed = batches.stamp(records, found, self._end, leader_epoch)
        return self._store(stamped, placed)

    def append_as_follower(self, records: bytes) -> Appended:
        latest = self._epochs.latest_epoch
        found = checks.for_follower(records, self._end, -1 if latest is None else latest)
        if not found:
            return Appended(self._end, self._end)
        return self._store(memoryview(records)[found[0].start :], found)

    def _store(self, data: bytearray | memoryview, found: Sequence[batches.Batch]) -> Appended:
        first = self._end
        with self._changing("append"):
            segment = self._segment_for(len(data))
            try:
                segment.append(data, found)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(segment.fd(), segment.size)
                raise
            if not self._segments or segment is not self._segments[-1]:
                self._segments.append(segment)
                self._directory_dirty = True
            for batch in found:
                if batch.leader_epoch != self._epochs.latest_epoch:
                    self._epochs.assign(batch.leader_epoch, batch.base_offset)
            self._end = found[-1].next_offset
        if self._end - self._recovery_point >= self._config.flush_interval_messages:
            self.flush()
        return Appended(first, self._end)

    def _segment_for(self, length: int) -> Segment:
        """The last segment if it is empty or ``length`` bytes fit, else a new one."""
        if self._segments:
            active = self._segments[-1]
            if not active.size or active.size + length <= self._config.segment_bytes:
                return active
        return Segment(self._folder, self._end, self._files)

    def read(self, offset: int, max_bytes: int, upto_offset: int) -> bytes:
        self._refuse_when_closed()
        checks.readable(offset, self._start, self._end)
        upto_offset = min(upto_offset, self._end)
        taken: list[bytes] = []
        size, at_end = 0, True
        try:
            while offset < upto_offset and at_end and (not taken or size < max_bytes):
                segment = self._segments[self._at(offset)]
                data, at_end = segment.read(offset, max_bytes - size, upto_offset, at_least_one=not taken)
                taken.append(data)
                size += len(data)
                offset = segment.next_offset
        except OSError as error:
            raise LogFault(f"{self._folder}: read at offset {offset}: {error}") from error
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise LogFault(f"{self._folder}: the log is closed")

    def _at(self, offset: int) -> int:
        """Index of the segment that holds ``offset``, which must be in the log."""
        return bisect_right(self._segments, offset, key=_BASE_OFFSET) - 1

    def truncate_to(self, offset: int) -> bool:
        if offset < self._start:
            self.truncate_fully_and_start_at(offset)
            return True
        removed = offset < self._end
        if removed:
            with self._changing(f"truncation to offset {offset}"):
                self._remove_from(offset)
        self._epochs.truncate_from_end(self._end)
        if any(entry.start_offset >= self._end for entry in self._saved_epochs or ()):
            with self._changing(f"truncation to offset {offset}"):
                self._save_epochs()
        return removed

    def _remove_from(self, offset: int) -> None:
        """Truncate before the batch that holds ``offset``. The last segment goes first: a kill then leaves no gap."""
        at = self._at(offset)
        batch = self._segments[at].locate(offset)
        files_removed = False
        while len(self._segments) > at + 1 or (
            len(self._segments) == at + 1 and batch.start == 0 and (at or not self._start)
        ):
            self._segments.pop().remove()
            files_removed = True
        if files_removed:
            # Else a power cut may leave the files behind a shorter one, which would be taken for whole.
            sync_directory(self._folder)
        if len(self._segments) > at:
            self._segments[at].truncate(batch)
        self._end = batch.base_offset
        self._recovery_point = min(self._recovery_point, self._end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        with self._changing(f"truncation to start at offset {offset}"):
            while self._segments:
                self._segments.pop().remove()
            if offset:
                first = Segment(self._folder, offset, self._files)
                first.create()
                self._segments.append(first)
            sync_directory(self._folder)
            self._start = self._end = self._recovery_point = offset
            self._epochs.clear()
            self._save_epochs()

    def assign_epoch_start(self, epoch: int) -> None:
        checks.leader_epoch(epoch, self._epochs.latest_epoch)
        self._epochs.assign(epoch, self._end)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._epochs.end_offset_for(epoch, self._end)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self._epochs.epoch_for_offset(offset)

    def offset_for_timestamp(self, timestamp_ms: int, upto_offset: int) -> TimestampOffset | None:
        self._refuse_when_closed()
        try:
            for segment in self._segments:
                if (found := segment.find_timestamp(timestamp_ms)) is not None:
                    return found if found.offset < upto_offset else None
        except OSError as error:
            raise LogFault(f"{self._folder}: search for a timestamp: {error}") from error
        return None

    def flush(self) -> None:
        if self._recovery_point == self._end:
            return
        with self._changing("flush"):
            for segment in self._segments:
                if segment.next_offset > self._recovery_point:
                    os.fdatasync(segment.fd())
            if self._directory_dirty:
                sync_directory(self._folder)
                self._directory_dirty = False
            self._save_epochs()
            self._recovery_point = self._end

    def _save_epochs(self) -> None:
        """Write the epochs that have batches, unless the file already holds exactly these."""
        entries = tuple(entry for entry in self._epochs.entries if entry.start_offset < self._end)
        if entries != self._saved_epochs:
            write_epochs(self._folder / LEADER_EPOCHS, entries)
            self._saved_epochs = entries

    def close(self, *, flush: bool = True) -> None:
        """Close the files; every later change is refused. Raises LogFault when the flush failed.

        ``flush`` false: the replica is about to be deleted.
        """
        try:
            if flush and not self.failure:
                self.flush()
        finally:
            self._closed = True
            self.failure = self.failure or f"{self._folder}: the log is closed"
            for segment in self._segments:
                segment.close()
