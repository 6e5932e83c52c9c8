"""The newest state-change records of this controller, kept in memory for history, watching and explanations.

The core's batches are kept as they are and formatted only when they are read, so keeping one costs almost nothing.
Their records hold values that no longer change; of a partition only its name is read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple, get_args

import msgspec

from controller.core.model import Topic
from controller.core.records import (
    LeadershipChange,
    LogBatch,
    NamedPartition,
    PartitionTransition,
    StateRecord,
)
from controller.runtime.observe import records
from controller.runtime.observe.history_filter import Filter
from controller.runtime.observe.trace_ids import NOT_TRACED, TraceIds
from controller.runtime.observe.traces import Traces
from proto.statelog.writer import StateLogWriter, envelope

#: Records read in one portion: about 3 ms of work when all of them match.
RECORDS_AT_ONCE = 500
#: Record classes that hold a partition.
_OF_A_PARTITION = tuple(kind for kind in get_args(StateRecord) if "partition" in kind.__struct_fields__)


class Entry(msgspec.Struct, gc=False):
    """A batch with its time and controller epoch. ``before``: how many records were ever kept before it."""

    batch: LogBatch
    ts_us: int
    controller_epoch: int
    before: int


class About(NamedTuple):
    """The last change of a partition: the event, its controller epoch, its time, and the partition epoch that it led
    to (-1: no leadership yet)."""

    event_id: int
    cause: str
    controller_epoch: int
    ts_us: int
    partition_epoch: int


class _Named(NamedTuple):
    """The name of a partition, in place of the partition of a term that has ended."""

    topic: Topic
    number: int


class Recent:
    """At most ``records_max`` records, of all terms of controller ``node`` in this process."""

    def __init__(self, node: int, records_max: int, trace_ids: TraceIds = NOT_TRACED) -> None:
        self._node, self._records_max = node, records_max
        self.trace_ids = trace_ids
        #: Entries by sequence number, without gaps, from ``_first`` on.
        self._entries: dict[int, Entry] = {}
        self._first = 0
        self._total = 0
        self._encoder = msgspec.json.Encoder()
        self._waiting = 0
        self._grown = asyncio.Event()

    def add(self, batch: LogBatch, controller_epoch: int, ts_us: int) -> None:
        """Keep a batch, and drop the oldest ones beyond the limit."""
        count, size = records.count_of(batch), len(batch.records)
        self._total += count
        if count > self._records_max:
            # The batch alone exceeds the limit: keep its newest records.
            kept = self._records_max * size // count
            batch = msgspec.structs.replace(batch, records=batch.records[size - kept :])
        before = self._total - records.count_of(batch)
        self._entries[self._first + len(self._entries)] = Entry(batch, ts_us, controller_epoch, before)
        while self._total - self._entries[self._first].before > self._records_max:
            del self._entries[self._first]
            self._first += 1
        self._wake()

    def end_term(self) -> None:
        """Replace the ended term's partitions by their names, which frees its model, and wake waiting followers."""
        names: dict[str, Topic] = {}
        for entry in self._entries.values():
            if any(_holds_model(record) for record in entry.batch.records):
                detached = [_detached(record, names) for record in entry.batch.records]
                entry.batch = msgspec.structs.replace(entry.batch, records=detached)
        self._wake()

    @property
    def forgotten(self) -> int:
        """Upper bound of the number of records dropped so far: a leadership change counts as two."""
        return self._entries[self._first].before if self._entries else 0

    @property
    def oldest_us(self) -> int:
        """Time of the oldest record, microseconds since 1970; 0: there is none."""
        return self._entries[self._first].ts_us if self._entries else 0

    def last_about(self, topic: str, partition: int) -> About | None:
        """The newest kept change of a partition's state or leadership; None: none is kept."""
        for number in range(self._first + len(self._entries) - 1, self._first - 1, -1):
            entry = self._entries[number]
            batch = entry.batch
            for change in reversed(batch.records):
                if not isinstance(change, LeadershipChange | PartitionTransition):
                    break
                if change.partition.number == partition and change.partition.topic.name == topic:
                    state = change.new if isinstance(change, LeadershipChange) else change.leadership
                    epoch = state.partition_epoch if state is not None else -1
                    return About(batch.event_id, batch.cause, entry.controller_epoch, entry.ts_us, epoch)
        return None

    @property
    def total(self) -> int:
        """How many records were ever kept."""
        return self._total

    def backwards(self, wanted: Filter, at_once: int = RECORDS_AT_ONCE) -> Iterator[list[str]]:
        """Lines of records that pass, newest first, in portions of about equal work, that of ``at_once`` records; a
        portion may be empty."""
        looked = 0
        found: list[str] = []
        number = self._first + len(self._entries) - 1
        while (entry := self._entries.get(number)) is not None:
            end = len(entry.batch.records)
            while end > 0:
                start = max(end - at_once, 0)
                found += reversed(self._lines(entry, wanted, start, end))
                looked, end = looked + (end - start), start
                if looked >= at_once:
                    yield found
                    looked, found = 0, []
            number -= 1
        yield found

    def entries(self, controller_epoch: int) -> Iterator[Entry]:
        """Kept batches of one controller epoch, newest first; new ones may come, and old ones go, meanwhile."""
        number = self._first + len(self._entries) - 1
        while (entry := self._entries.get(number)) is not None and entry.controller_epoch >= controller_epoch:
            if entry.controller_epoch == controller_epoch:
                yield entry
            number -= 1

    def follow(self, wanted: Filter, *, since_epoch: int | None = None) -> Follower:
        """Follow records added from now on; ``since_epoch``: from the first record of that controller epoch on."""
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
        """The lines of records ``start`` to ``end`` of an entry that pass, in order."""
        if not wanted.covers(entry.ts_us, entry.controller_epoch):
            return []
        batch = entry.batch
        if wanted.kinds and wanted.kinds.isdisjoint(records.kinds_of(batch)):
            return []
        some = batch.records[start:end]
        if wanted.topic and issubclass(batch.kind, _OF_A_PARTITION):
            some = [r for r in some if (p := _partition_of(r)) and wanted.names(p.topic.name, p.number)]
        if not some:
            return []
        head = envelope(
            "controller",
            self._node,
            entry.ts_us,
            entry.controller_epoch,
            batch.event_id,
            batch.cause,
            self.trace_ids.of(entry.controller_epoch, batch.event_id),
        )
        expanded = records.expand(msgspec.structs.replace(batch, records=some))
        return [
            self._encoder.encode({**head, **record}).decode()
            for record in expanded
            if wanted.takes_all or wanted.passes(record)
        ]


class Follower:
    """One reader of new records. It holds only a position, so a slow reader needs no more memory."""

    def __init__(self, recent: Recent, wanted: Filter, number: int) -> None:
        self._recent, self._wanted = recent, wanted
        self._number, self._record = number, 0
        entry = recent._entries.get(number)
        #: The number of records, of all ever kept, that lie before the position.
        self._passed = recent._total if entry is None else entry.before

    @property
    def behind(self) -> bool:
        """Whether there are records that were not taken yet."""
        return self._number < self._recent._first + len(self._recent._entries)

    def take(self) -> tuple[list[str], int]:
        """The next portion of lines that pass, and how many records were dropped before they could be taken."""
        recent, missed, looked = self._recent, 0, 0
        if self._number < recent._first:
            self._number, self._record = recent._first, 0
        lines: list[str] = []
        while looked < RECORDS_AT_ONCE and (entry := recent._entries.get(self._number)) is not None:
            if self._record == 0:
                missed += entry.before - self._passed
            size = len(entry.batch.records)
            end = min(self._record + RECORDS_AT_ONCE - looked, size)
            lines += recent._lines(entry, self._wanted, self._record, end)
            self._passed = entry.before + records.count_of(entry.batch) * end // size
            looked, self._record = looked + (end - self._record), end
            if end == size:
                self._number, self._record = self._number + 1, 0
        return lines, missed


class Journal:
    """Writes each batch to the state-change log and to memory with the same time, so that both have the same lines.
    ``traces``: None: nothing is traced."""

    def __init__(self, log: StateLogWriter, recent: Recent, traces: Traces | None = None) -> None:
        self.log, self.recent, self.traces = log, recent, traces

    def record(self, batch: LogBatch, controller_epoch: int) -> None:
        """Neither blocks nor raises. The batch must not be changed afterwards."""
        ts_us = time.time_ns() // 1000
        self.log.append(
            records.expand(batch),
            cause=batch.cause,
            controller_epoch=controller_epoch,
            event_id=batch.event_id,
            count=records.count_of(batch),
            ts_us=ts_us,
            trace_id=self.recent.trace_ids.of(controller_epoch, batch.event_id),
        )
        self.recent.add(batch, controller_epoch, ts_us)
        if self.traces is not None:
            self.traces.recorded(batch, controller_epoch)


def _partition_of(record: StateRecord) -> NamedPartition | None:
    found: NamedPartition | None = getattr(record, "partition", None)
    return found


def _holds_model(record: StateRecord) -> bool:
    partition = _partition_of(record)
    return partition is not None and not isinstance(partition, _Named)


def _detached(record: StateRecord, names: dict[str, Topic]) -> StateRecord:
    partition = _partition_of(record)
    if partition is None or isinstance(partition, _Named):
        return record
    name = partition.topic.name
    topic = names.get(name) or names.setdefault(name, Topic(name))
    return msgspec.structs.replace(record, partition=_Named(topic, partition.number))
