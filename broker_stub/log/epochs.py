"""The start offset of each leader epoch (KIP-101, KIP-279). Pure: the log writes it to disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from broker_stub.log.interface import UNDEFINED, EpochEnd


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record; the log's end if it has no record yet."""

    epoch: int
    start_offset: int


_EPOCH = attrgetter("epoch")
_START = attrgetter("start_offset")


class LeaderEpochCache:
    """Entries with strictly increasing epochs and start offsets. Behaves like Kafka's LeaderEpochFileCache."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Raises ValueError when an entry is negative or not above the one before it."""
        self._entries: list[EpochEntry] = []
        for entry in entries:
            if problem := self.problem_with(entry):
                raise ValueError(problem)
            self._entries.append(entry)

    def problem_with(self, entry: EpochEntry) -> str:
        """Why ``entry`` cannot follow the last one; empty when it can."""
        last = self._entries[-1] if self._entries else EpochEntry(UNDEFINED, UNDEFINED)
        if entry.epoch <= last.epoch:
            return f"epoch is {entry.epoch}: must be above {last.epoch}"
        if entry.start_offset <= last.start_offset:
            return f"start offset is {entry.start_offset}: must be above {last.start_offset}"
        return ""

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Set the start offset of ``epoch``. Raises ValueError when one is negative.

        Assigning the latest epoch again changes nothing unless it starts earlier. Entries that are not below the
        new one in both epoch and offset are removed: they have no records.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset}: both must be 0 or more")
        if self._entries:
            latest = self._entries[-1]
            if latest.epoch == epoch and latest.start_offset <= start_offset:
                return
        while self._entries and (
            self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch not above ``epoch``, and the first offset after it.

        The latest epoch ends at the log's end. An epoch above the latest is unknown: (-1, -1). For an epoch below
        the first entry the result is that epoch and the first start offset: earlier records no longer exist.
        """
        if epoch < 0 or not self._entries or epoch > self._entries[-1].epoch:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == self._entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._entries, epoch, key=_EPOCH)
        floor = self._entries[above - 1].epoch if above else epoch
        return EpochEnd(floor, self._entries[above].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that was current at ``offset``; None below the first entry."""
        above = bisect_right(self._entries, offset, key=_START)
        return self._entries[above - 1].epoch if above else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or above ``end_offset``."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def clear(self) -> None:
        self._entries.clear()
