"""The interface of one replica's log. ``PartitionLog`` (on disk) implements it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: In responses about leader epochs (KIP-101): there is no such epoch or offset.
UNDEFINED = -1
FLUSH_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's ``log.segment.bytes``, ``message.max.bytes`` and ``log.flush.interval.messages``, with its defaults.

    ``message_max_bytes`` limits one batch, header included. An append flushes before it returns when
    ``flush_interval_messages`` records were appended since the last flush.
    """

    segment_bytes: int = 1 << 30
    message_max_bytes: int = 1_048_588
    flush_interval_messages: int = FLUSH_NEVER


class Appended(NamedTuple):
    """The offsets of appended records: ``first_offset`` to ``next_offset`` - 1. Equal: nothing was appended."""

    first_offset: int
    next_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the first offset after it; (-1, -1): unknown."""

    epoch: int
    end_offset: int


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms since 1970), offset and leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


class Log(Protocol):
    """One replica's log, used by one thread at a time. Methods raise only ``LogError``; the log is then unchanged."""

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of all batches together."""
        ...

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch that has records or a start offset; None: the log has no epoch."""
        ...

    def append_as_leader(self, records: bytes, leader_epoch: int) -> Appended:
        """Check whole batches from a client, set their offsets and epoch, and store all of them or none.

        Raises CorruptMessage, InvalidRecord (also when ``records`` is empty), MessageTooLarge, OutOfSequence (when
        ``leader_epoch`` is below ``latest_epoch``), LogFault.
        """
        ...

    def append_as_follower(self, records: bytes) -> Appended:
        """Store whole batches byte for byte as the leader has them: all of them or none.

        Leading batches that end at or below ``log_end_offset`` are duplicates and skipped. Raises
        CorruptMessage, InvalidRecord, OutOfSequence (a gap, an overlap, a decreasing epoch), LogFault.
        """
        ...

    def read(self, offset: int, max_bytes: int, upto_offset: int) -> bytes:
        """Whole batches that end at or below ``upto_offset``, starting with the batch that holds ``offset``.

        At most ``max_bytes``, but at least one batch if there is one. The first batch may begin below
        ``offset``. Empty at the log's end. Raises OffsetOutOfRange, LogFault.
        """
        ...

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that ends above ``offset``, including one that holds it. True if a batch was removed.

        Leader epochs that begin at or above the new end are removed too, even when no batch is: this
        replica may have been leader without appending. Raises LogFault.
        """
        ...

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all batches; the empty log then starts and ends at ``offset``. Raises LogFault."""
        ...

    def assign_epoch_start(self, epoch: int) -> None:
        """Start leader epoch ``epoch`` at the log's end. Raises OutOfSequence when it is below the latest."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The end of the largest epoch not above ``epoch`` (KIP-101, KIP-279): see ``LeaderEpochCache``."""
        ...

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch of the record at ``offset``; None before the first known epoch."""
        ...

    def offset_for_timestamp(self, timestamp_ms: int, upto_offset: int) -> TimestampOffset | None:
        """The first record at or after the timestamp, if it is below ``upto_offset``; else None. Raises LogFault."""
        ...

    def flush(self) -> None:
        """Write everything appended to stable storage. Raises LogFault."""
        ...
