"""The newest records of this controller's state-change log, kept in memory: for history, watching and explanations.

What is kept are the core's batches, expanded only when somebody looks: keeping one costs about nothing while the
controller decides. Their rows hold values that no longer change; of a partition only its name is ever read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from controller.core.effects import LogBatch
from controller.core.model import Topic
from controller.runtime.observe import records
from controller.runtime.observe.history_filter import Filter
from proto.statelog.writer import envelope

#: Rows looked at in one go, about 3 ms of work where all of them match.
ROWS_AT_ONCE = 500
#: What a batch's rows become, where that is known beforehand.
_KINDS = {
    "partition": frozenset({"partition"}),
    "replica": frozenset({"replica"}),
    "leadership": frozenset({"leader", "isr"}),
    "reject": frozenset({"reject"}),
}
#: Batches that tell of a partition's leadership; the last field of a row is what it was from then on.
_STATES = ("partition", "leadership")


class Entry(msgspec.Struct, gc=False):
    """A batch, when and under which controller epoch it was recorded. ``before``: records ever kept until then."""

    batch: LogBatch
    ts_us: int
    controller_epoch: int
    before: int


class About(NamedTuple):
    """What last changed a partition: the event, its controller epoch, when, and the partition epoch it led to (-1
    where there was no leadership yet)."""

    event_id: int
    cause: str
    controller_epoch: int
    ts_us: int
    partition_epoch: int


class _Named(NamedTuple):
    """A partition of a term that is over: what records tell of it."""

    topic: Topic
    number: int


class Recent:
    """At most ``records_max`` records, of all terms of controller ``node`` in this process."""

    def __init__(self, node: int, records_max: int) -> None:
        self._node, self._records_max = node, records_max
        #: By number, without gaps, from ``_first`` on.
        self._entries: dict[int, Entry] = {}
        self._first = 0
        self._total = 0
        self._encoder = msgspec.json.Encoder()
        self._waiting = 0
        self._grown = asyncio.Event()

    def add(self, batch: LogBatch, controller_epoch: int, ts_us: int) -> None:
        """Keep a batch, and forget the oldest beyond the limit."""
        count, rows = records.count_of(batch), len(batch.rows)
        if rows == 0:
            return
        self._total += count
        if count > self._records_max:
            # Of itself it keeps the newest rows.
            kept = self._records_max * rows // count
            batch = LogBatch(batch.kind, batch.rows[rows - kept :], batch.reason, batch.cause, batch.event_id)
        before = self._total - records.count_of(batch)
        self._entries[self._first + len(self._entries)] = Entry(batch, ts_us, controller_epoch, before)
        while self._total - self._entries[self._first].before > self._records_max:
            del self._entries[self._first]
            self._first += 1
        self._wake()

    def settle(self) -> None:
        """The term is over: let go of its partitions, so that its memory is free, and wake who waits for more."""
        names: dict[str, Topic] = {}
        for entry in self._entries.values():
            batch = entry.batch
            if batch.kind != "record" and any(_holds_model(row) for row in batch.rows):
                rows = [_settled(row, names) for row in batch.rows]
                entry.batch = LogBatch(batch.kind, rows, batch.reason, batch.cause, batch.event_id)
        self._wake()

    @property
    def forgotten(self) -> int:
        """Records that were kept once, at most: a change of leadership counts as two."""
        return self._entries[self._first].before if self._entries else 0

    @property
    def oldest_us(self) -> int:
        """When the oldest one was recorded, microseconds since 1970; 0 where there is none."""
        return self._entries[self._first].ts_us if self._entries else 0

    def last_about(self, topic: str, partition: int) -> About | None:
        """The newest record of a change of a partition's state or leadership; None where none is remembered."""
        for number in range(self._first + len(self._entries) - 1, self._first - 1, -1):
            entry = self._entries[number]
            batch = entry.batch
            if batch.kind not in _STATES:
                continue
            for row in reversed(batch.rows):
                if row[0].number == partition and row[0].topic.name == topic:
                    epoch = row[-1].partition_epoch if row[-1] is not None else -1
                    return About(batch.event_id, batch.cause, entry.controller_epoch, entry.ts_us, epoch)
        return None

    def backwards(self, wanted: Filter) -> Iterator[list[str]]:
        """Lines of records that pass, newest first, in portions (empty ones too) of about equal work."""
        looked = 0
        found: list[str] = []
        number = self._first + len(self._entries) - 1
        while (entry := self._entries.get(number)) is not None:
            end = len(entry.batch.rows)
            while end > 0:
                start = max(end - ROWS_AT_ONCE, 0)
                found += reversed(self._lines(entry, wanted, start, end))
                looked, end = looked + (end - start), start
                if looked >= ROWS_AT_ONCE:
                    yield found
                    looked, found = 0, []
            number -= 1
        yield found

    def follow(self, wanted: Filter, *, since_epoch: int | None = None) -> Follower:
        """Follow what is added from now on; ``since_epoch``: from the first record of that controller epoch on."""
        number = self._first + len(self._entries)
        while since_epoch is not None and (entry := self._entries.get(number - 1)) is not None:
            if entry.controller_epoch < since_epoch:
                break
            number -= 1
        return Follower(self, wanted, number)

    async def growth(self) -> None:
        """Wait for the next record, or the end of the term."""
        self._waiting += 1
        try:
            await self._grown.wait()
        finally:
            self._waiting -= 1

    def _wake(self) -> None:
        if self._waiting:
            self._grown.set()
            self._grown = asyncio.Event()

    def _lines(self, entry: Entry, wanted: Filter, start: int, end: int) -> list[str]:
        """Lines of those rows of an entry, in order."""
        if not wanted.covers(entry.ts_us, entry.controller_epoch):
            return []
        batch = entry.batch
        kinds = _KINDS.get(batch.kind)
        if kinds is not None and wanted.kinds and wanted.kinds.isdisjoint(kinds):
            return []
        rows: Sequence[Any] = batch.rows[start:end]
        if wanted.topic and kinds is not None:
            rows = [row for row in rows if row[0] and wanted.names(row[0].topic.name, row[0].number)]
        if not rows:
            return []
        head = envelope(
            "controller", self._node, entry.ts_us, entry.controller_epoch, batch.event_id, batch.cause
        )
        expanded = records.expand(LogBatch(batch.kind, rows, batch.reason, batch.cause, batch.event_id))
        return [
            self._encoder.encode({**head, **record}).decode()
            for record in expanded
            if wanted.takes_all or wanted.passes(record)
        ]


class Follower:
    """One reader of what is added: it holds a position and nothing else, however slow it is."""

    def __init__(self, recent: Recent, wanted: Filter, number: int) -> None:
        self._recent, self._wanted = recent, wanted
        self._number, self._row = number, 0
        entry = recent._entries.get(number)
        #: Records passed so far, of all that were ever kept.
        self._passed = recent._total if entry is None else entry.before

    @property
    def behind(self) -> bool:
        """Whether there is something that was not taken yet."""
        return self._number < self._recent._first + len(self._recent._entries)

    def take(self) -> tuple[list[str], int]:
        """The next lines that pass, of some rows; and how many records were forgotten before they were taken."""
        recent, missed, looked = self._recent, 0, 0
        if self._number < recent._first:
            self._number, self._row = recent._first, 0
        lines: list[str] = []
        while looked < ROWS_AT_ONCE and (entry := recent._entries.get(self._number)) is not None:
            if self._row == 0:
                missed += entry.before - self._passed
            rows = len(entry.batch.rows)
            end = min(self._row + ROWS_AT_ONCE - looked, rows)
            lines += recent._lines(entry, self._wanted, self._row, end)
            self._passed = entry.before + records.count_of(entry.batch) * end // rows
            looked, self._row = looked + (end - self._row), end
            if end == rows:
                self._number, self._row = self._number + 1, 0
        return lines, missed


def _holds_model(row: Any) -> bool:
    return row[0] is not None and not isinstance(row[0], _Named)


def _settled(row: Any, names: dict[str, Topic]) -> tuple[Any, ...]:
    if not _holds_model(row):
        return tuple(row)
    name = row[0].topic.name
    topic = names.get(name) or names.setdefault(name, Topic(name))
    return (_Named(topic, row[0].number), *row[1:])
