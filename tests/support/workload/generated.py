"""Runs in which nothing went wrong, generated: a history, and the logs that explain it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from controller.workload.checker import ReplicaLog, Stored, StoredBatch
from controller.workload.history import Content, History, Key, Read, Write

LEADER = 1
BROKERS = (1, 2, 3)


@dataclass(frozen=True)
class Run:
    """A correct run: every replica of a partition has this log."""

    history: History
    logs: dict[Key, ReplicaLog]

    def replicated(self) -> dict[Key, dict[int, ReplicaLog]]:
        return {key: dict.fromkeys(BROKERS, log) for key, log in self.logs.items()}

    @property
    def leaders(self) -> dict[Key, int]:
        return dict.fromkeys(self.logs, LEADER)

    def without_reads(self) -> Run:
        return replace(self, history=self.history._replace(reads=()))


def content(writer: int, sequence: int) -> Content:
    return Content(writer, sequence, zlib.crc32(b"%d-%d" % (writer, sequence)))


def log_of(contents: list[Content], sizes: list[int] | None = None, start: int = 0) -> ReplicaLog:
    """A log with these records in batches of these sizes."""
    batches, records, offset = [], [], start
    remaining = list(contents)
    for size in [*(sizes or []), *[1] * len(contents)]:
        taken, remaining = remaining[:size], remaining[size:]
        if not taken:
            break
        digest = zlib.crc32(repr(taken).encode()).to_bytes(4, "big")
        batches.append(StoredBatch(offset, offset + len(taken), 0, digest))
        records += [Stored(offset + n, 0, item) for n, item in enumerate(taken)]
        offset += len(taken)
    return ReplicaLog(start, offset, tuple(batches), tuple(records))


@st.composite
def runs(draw: st.DrawFn, acknowledged_min: int = 1) -> Run:
    """Writers send in turn over partitions; retries leave copies, given-up records may land late or never."""
    partitions = draw(st.integers(1, 3))
    writers = draw(st.integers(1, 3))
    laid: dict[Key, list[Content]] = {("t", number): [] for number in range(partitions)}
    planned: list[tuple[int, int, Key, int, bool, int]] = []
    late: list[tuple[Key, Content]] = []
    sequences = dict.fromkeys(range(writers), 0)
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(0, writers - 1),
                st.integers(0, partitions - 1),
                st.integers(1, 3),  # attempts
                st.integers(0, 3),  # copies
                st.sampled_from([True, True, True, False]),  # acknowledged
            ),
            min_size=acknowledged_min,
            max_size=25,
        )
    )
    for index, (writer, partition, attempts, copies, drawn_acked) in enumerate(steps):
        key = ("t", partition)
        acked = drawn_acked or index < acknowledged_min
        item = content(writer, sequences[writer])
        landed = min(copies, attempts)
        if acked:
            laid[key] += [item] * max(landed, 1)
        else:
            late += [(key, item)] * landed
        planned.append((writer, sequences[writer], key, attempts, acked, landed))
        sequences[writer] += 1
    for key, item in late:
        laid[key].insert(draw(st.integers(0, len(laid[key]))), item)
    sizes = draw(st.lists(st.integers(1, 4), max_size=10))
    logs = {key: log_of(items, sizes) for key, items in laid.items()}
    writes = [
        Write(
            writer,
            sequence,
            *key,
            content(writer, sequence).crc,
            attempts,
            # The last copy is the one that was acknowledged.
            max(s.offset for s in logs[key].records if s.content == content(writer, sequence))
            if acked
            else None,
        )
        for writer, sequence, key, attempts, acked, _ in planned
    ]
    reads = []
    for key, log in logs.items():
        for reader in range(draw(st.integers(0, 2))):
            read_to = draw(st.integers(0, log.end_offset))
            for stored in log.records[:read_to]:
                water = draw(st.integers(stored.offset + 1, log.end_offset))
                reads.append(Read(reader, *key, stored.offset, *stored.content, water, 0))
    return Run(History(tuple(writes), tuple(reads)), logs)
