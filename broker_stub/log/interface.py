"""The log of one replica as replication sees it: ``PartitionLog`` is one, on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: No such epoch or offset, in answers about leader epochs (KIP-101).
UNDEFINED = -1
FLUSH_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's ``log.segment.bytes``, ``message.max.bytes`` and ``log.flush.interval.messages``, its defaults.

    ``message_max_bytes`` bounds one batch, header included. After ``flush_interval_messages`` records since
    the last flush an append flushes before it returns.
    """

    segment_bytes: int = 1 << 30
    message_max_bytes: int = 1_048_588
    flush_interval_messages: int = FLUSH_NEVER


class Appended(NamedTuple):
    """Offsets that an append gave or took: from ``first_offset`` to before ``next_offset``. Equal: none."""

    first_offset: int
    next_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the first offset after it; (-1, -1) when nothing is known."""

    epoch: int
    end_offset: int


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms since 1970), offset and leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


class Log(Protocol):
    """One replica's log, used by one thread at a time. Every error is a ``LogError`` and changes nothing."""

    @property
    def log_start_offset(self) -> int:
        """The first offset kept."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch that has records or was assigned a start; None in a log without any."""
        ...

    def append_as_leader(self, records: bytes, leader_epoch: int) -> Appended:
        """Check whole batches as a client sent them, give them offsets and the epoch, store them: all or none.

        Raises CorruptMessage, InvalidRecord (also without any batch), MessageTooLarge, OutOfSequence when
        ``leader_epoch`` is below ``latest_epoch``, LogFault.
        """
        ...

    def append_as_follower(self, records: bytes) -> Appended:
        """Store whole batches as the leader has them, byte for byte: all or none.

        Batches that end at or below ``log_end_offset`` were sent again and are skipped. Raises
        CorruptMessage, InvalidRecord, OutOfSequence (a gap, an overlap, an epoch going back), LogFault.
        """
        ...

    def read(self, offset: int, max_bytes: int, upto_offset: int) -> bytes:
        """Whole batches from the one that holds ``offset`` on, as long as they end at or below ``upto_offset``.

        At most ``max_bytes``, but at least one batch where there is one. The first batch may begin below
        ``offset``. Empty at the end. Raises OffsetOutOfRange, LogFault.
        """
        ...

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that ends above ``offset``, one that holds it included; was anything removed?

        Leader epochs that begin at or above the new end are forgotten, also when no batch was removed: this
        replica may have led without writing. Raises LogFault.
        """
        ...

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log then starts and ends at ``offset``. Raises LogFault."""
        ...

    def assign_epoch_start(self, epoch: int) -> None:
        """A leader's term begins at the log's end. Raises OutOfSequence when ``epoch`` is below the latest."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where the largest epoch not above ``epoch`` ends (KIP-101, KIP-279): see ``LeaderEpochCache``."""
        ...

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch of the record at ``offset``; None below the first known one."""
        ...

    def offset_for_timestamp(self, timestamp_ms: int, upto_offset: int) -> TimestampOffset | None:
        """The first record below ``upto_offset`` that is at or after the timestamp. Raises LogFault."""
        ...

    def flush(self) -> None:
        """Everything appended is on stable storage when this returns. Raises LogFault."""
        ...
