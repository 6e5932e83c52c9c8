"""A log without a disk, for deciding about replication with nothing else running."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from broker_stub.log import batches, checks
from broker_stub.log.epochs import LeaderEpochCache
from broker_stub.log.interface import Appended, EpochEnd, LogConfig, TimestampOffset

_BASE_OFFSET = attrgetter("base_offset")


class MemoryLog:
    """A ``Log`` in memory; a test of both proves it equal to ``PartitionLog``.

    ``flushed_offset`` is where the last flush ended: what would survive a power cut.
    """

    def __init__(self, config: LogConfig | None = None) -> None:
        self._config = config or LogConfig()
        self._batches: list[batches.Batch] = []
        self._bytes: list[bytes] = []
        self._epochs = LeaderEpochCache()
        self._start = self._end = self.flushed_offset = 0

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def log_end_offset(self) -> int:
        return self._end

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self._bytes))

    def append_as_leader(self, records: bytes, leader_epoch: int) -> Appended:
        checks.leader_epoch(leader_epoch, self.latest_epoch)
        found = checks.for_leader(records, self._config.message_max_bytes)
        stamped, placed = batches.stamp(records, found, self._end, leader_epoch)
        return self._store(bytes(stamped), placed)

    def append_as_follower(self, records: bytes) -> Appended:
        latest = -1 if self.latest_epoch is None else self.latest_epoch
        return self._store(records, checks.for_follower(records, self._end, latest))

    def _store(self, data: bytes, found: list[batches.Batch]) -> Appended:
        first = self._end
        for batch in found:
            self._batches.append(batch)
            self._bytes.append(data[batch.start : batch.end])
            self._epochs.assign(batch.leader_epoch, batch.base_offset)
            self._end = batch.next_offset
        if self._end - self.flushed_offset >= self._config.flush_interval_messages:
            self.flush()
        return Appended(first, self._end)

    def read(self, offset: int, max_bytes: int, upto_offset: int) -> bytes:
        checks.readable(offset, self._start, self._end)
        taken: list[bytes] = []
        size = 0
        for position in range(self._at(offset), len(self._batches)):
            data = self._bytes[position]
            too_much = bool(taken) and size + len(data) > max_bytes
            if too_much or self._batches[position].next_offset > upto_offset:
                break
            taken.append(data)
            size += len(data)
        return b"".join(taken)

    def _at(self, offset: int) -> int:
        """Position of the batch that holds ``offset``, or where it would come."""
        if offset >= self._end:
            return len(self._batches)
        return max(bisect_right(self._batches, offset, key=_BASE_OFFSET) - 1, 0)

    def truncate_to(self, offset: int) -> bool:
        if offset < self._start:
            self.truncate_fully_and_start_at(offset)
            return True
        first = self._at(offset)
        removed = first < len(self._batches)
        if removed:
            self._end = self._batches[first].base_offset
            del self._batches[first:], self._bytes[first:]
        self._epochs.truncate_from_end(self._end)
        self.flushed_offset = min(self.flushed_offset, self._end)
        return removed

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._batches.clear()
        self._bytes.clear()
        self._epochs.clear()
        self._start = self._end = self.flushed_offset = offset

    def assign_epoch_start(self, epoch: int) -> None:
        checks.leader_epoch(epoch, self.latest_epoch)
        self._epochs.assign(epoch, self._end)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._epochs.end_offset_for(epoch, self._end)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self._epochs.epoch_for_offset(offset)

    def offset_for_timestamp(self, timestamp_ms: int, upto_offset: int) -> TimestampOffset | None:
        for batch, data in zip(self._batches, self._bytes, strict=True):
            if batch.max_timestamp >= timestamp_ms:
                for record in batches.decode(data, check=False):
                    if record.offset >= upto_offset:
                        return None
                    if record.timestamp >= timestamp_ms:
                        return TimestampOffset(record.timestamp, record.offset, record.leader_epoch)
        return None

    def flush(self) -> None:
        self.flushed_offset = self._end
