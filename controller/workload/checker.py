"""The checker: compares the brokers' responses to clients with the replicas' logs at the end. Pure.

Call it when the workload has stopped and the replicas have caught up. Kinds of findings:

===================  =========================================================================================
lost                 an acknowledged record is nowhere in the leader's log
moved                an acknowledged record is in the leader's log at another offset than acknowledged
duplicated           the leader's log has more copies of a record than requests that could have appended it
reordered            the first copy of a writer's acknowledged record comes before that of an earlier one
read uncommitted     a reader got a record that is missing or different now, or at or beyond the high watermark
diverged             replicas differ in bytes at offsets that both have, end at different offsets, or are unreadable
invented             the leader's log has a record in the name of a writer that never sent it there
===================  =========================================================================================

At-least-once delivery allows copies: they are counted, and are a finding only beyond the client's own retries.
A record that was given up may be appended late, so its order is not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from controller.workload.history import Content, History, Key, Read, Write


class Kind(StrEnum):
    LOST = "lost"
    MOVED = "moved"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    READ_UNCOMMITTED = "read uncommitted"
    DIVERGED = "diverged"
    INVENTED = "invented"


class Stored(NamedTuple):
    """A record in a replica's log."""

    offset: int
    leader_epoch: int
    content: Content


class StoredBatch(NamedTuple):
    """A batch in a replica's log: its offsets, and a digest of its bytes, header included."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    digest: bytes


@dataclass(frozen=True)
class ReplicaLog:
    """One replica's log, from ``start_offset`` to ``end_offset`` (exclusive). ``problem``: why reading it stopped."""

    start_offset: int = 0
    end_offset: int = 0
    batches: Sequence[StoredBatch] = ()
    records: Sequence[Stored] = ()
    problem: str = ""


#: By partition, the logs of its replicas by broker id.
Logs = Mapping[Key, Mapping[int, ReplicaLog]]


class Finding(NamedTuple):
    """One error. ``writer``, ``sequence`` -1: no record of a workload's writer; ``offset`` -1: none."""

    kind: Kind
    topic: str
    partition: int
    offset: int
    writer: int
    sequence: int
    evidence: str

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}" + (f"@{self.offset}" if self.offset >= 0 else "")
        who = f", record {self.sequence} of writer {self.writer}" if self.writer >= 0 else ""
        return f"{self.kind}: {where}{who}: {self.evidence}"


@dataclass
class Verdict:
    """Findings, and counts of what was checked. ``ok``: there are no findings, and records were checked."""

    findings: list[Finding] = field(default_factory=list)
    acknowledged: int = 0
    unacknowledged: int = 0
    extra_copies: int = 0
    reads: int = 0
    partitions: int = 0
    replicas: int = 0
    batches: int = 0
    not_checked: int = 0
    longest_write_us: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings and self.acknowledged > self.not_checked and self.partitions > 0

    def count(self, kind: Kind) -> int:
        return sum(finding.kind is kind for finding in self.findings)

    def line(self) -> str:
        """The verdict as one line of text."""
        checked = (
            f"{self.acknowledged:,} acknowledged records and {self.reads:,} reads against {self.replicas} replicas "
            f"of {self.partitions} partitions"
        )
        if self.findings:
            counts = Counter(str(finding.kind) for finding in self.findings)
            return "BAD: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()) + f" ({checked})"
        left = f"; {self.not_checked} below the start of the log, not checked" if self.not_checked else ""
        if not self.ok:
            return f"NOTHING CHECKED: {checked}{left}"
        copies = f"; {self.extra_copies} copies by retries" if self.extra_copies else ""
        return (
            f"GOOD: nothing lost, reordered, duplicated or read too early; replicas equal byte for byte "
            f"({checked}{copies}{left})"
        )


def check(history: History, logs: Logs, leaders: Mapping[Key, int] | None = None) -> Verdict:
    """Check a history. ``leaders``: broker whose log is the reference; without one, the longest replica's log is."""
    verdict = Verdict(reads=len(history.reads), partitions=len(logs))
    verdict.replicas = sum(len(replicas) for replicas in logs.values())
    verdict.acknowledged = sum(write.offset is not None for write in history.writes)
    verdict.unacknowledged = len(history.writes) - verdict.acknowledged
    verdict.longest_write_us = max(
        (write.ended_us - write.begun_us for write in history.writes if write.offset is not None), default=0
    )
    writes: dict[Key, list[Write]] = {}
    for write in history.writes:
        writes.setdefault(write.key, []).append(write)
    reads: dict[Key, list[Read]] = {}
    for read in history.reads:
        reads.setdefault((read.topic, read.partition), []).append(read)
    for key in sorted({*writes, *reads, *logs}):
        replicas = logs.get(key, {})
        truth = _Truth.of(replicas, (leaders or {}).get(key))
        written = writes.get(key, [])
        verdict.findings += _lost(key, written, truth, replicas, verdict)
        verdict.findings += _copies(key, written, truth, verdict)
        verdict.findings += _reordered(key, written, truth)
        verdict.findings += _read_uncommitted(key, reads.get(key, []), truth)
        verdict.findings += _diverged(key, replicas, truth.broker)
        verdict.batches += sum(len(log.batches) for log in replicas.values())
    return verdict


@dataclass(frozen=True)
class _Truth:
    """The reference log of a partition, by offset and by record."""

    broker: int
    log: ReplicaLog
    at: Mapping[int, Stored]
    offsets: Mapping[Content, Sequence[int]]

    @staticmethod
    def of(replicas: Mapping[int, ReplicaLog], leader: int | None) -> _Truth:
        broker = leader if leader in replicas else None
        if broker is None:
            broker = max(replicas, key=lambda id_: (replicas[id_].end_offset, -id_), default=-1)
        log = replicas.get(broker, ReplicaLog())
        offsets: dict[Content, list[int]] = {}
        for stored in log.records:
            offsets.setdefault(stored.content, []).append(stored.offset)
        return _Truth(broker, log, {stored.offset: stored for stored in log.records}, offsets)

    def what_is_at(self, offset: int) -> str:
        if stored := self.at.get(offset):
            return f"there is {stored.content} of leader epoch {stored.leader_epoch}"
        if offset >= self.log.end_offset:
            return f"the log ends at {self.log.end_offset}"
        return "there is no record"


def _lost(
    key: Key, writes: Sequence[Write], truth: _Truth, replicas: Mapping[int, ReplicaLog], verdict: Verdict
) -> Iterator[Finding]:
    elsewhere: dict[int, set[tuple[int, Content]]] | None = None
    for write in writes:
        if write.offset is None:
            continue
        if write.offset < truth.log.start_offset:
            verdict.not_checked += 1
            continue
        stored = truth.at.get(write.offset)
        if stored is not None and stored.content == write.content:
            continue
        evidence = (
            f"acknowledged at {write.offset}, where in broker {truth.broker} {truth.what_is_at(write.offset)}"
        )
        if found := truth.offsets.get(write.content):
            yield _finding(Kind.MOVED, key, write, write.offset, f"{evidence}; it is at {_list(found)}")
            continue
        if elsewhere is None:
            elsewhere = {
                id_: {(stored.offset, stored.content) for stored in log.records}
                for id_, log in replicas.items()
            }
        holders = [id_ for id_, held in sorted(elsewhere.items()) if (write.offset, write.content) in held]
        others = f"; only {_list(holders)} has it" if holders else "; no replica has it there"
        yield _finding(Kind.LOST, key, write, write.offset, evidence + others)


def _copies(key: Key, writes: Sequence[Write], truth: _Truth, verdict: Verdict) -> Iterator[Finding]:
    sent = {write.content: write for write in writes}
    for content, offsets in truth.offsets.items():
        write = sent.get(content)
        if write is None:
            if content.writer >= 0:
                yield Finding(
                    Kind.INVENTED,
                    *key,
                    offsets[0],
                    content.writer,
                    content.sequence,
                    f"{content} was never sent here",
                )
            continue
        allowed = write.attempts
        if allowed is not None and len(offsets) > allowed:
            evidence = f"{len(offsets)} copies, at {_list(offsets)}; {allowed} requests could have landed"
            yield _finding(Kind.DUPLICATED, key, write, offsets[-1], evidence)
        else:
            verdict.extra_copies += len(offsets) - 1


def _reordered(key: Key, writes: Sequence[Write], truth: _Truth) -> Iterator[Finding]:
    """Records of a writer that are not in the order of their sequence numbers. ``writes``: in any order."""
    furthest: dict[int, tuple[int, int]] = {}
    for write in sorted(writes, key=lambda write: (write.writer, write.sequence)):
        found = truth.offsets.get(write.content)
        if write.offset is None or not found:
            continue
        first = min(found)
        before = furthest.get(write.writer)
        if before is not None and first < before[0]:
            evidence = f"stands at {first}, and the earlier record {before[1]} at {before[0]}"
            yield _finding(Kind.REORDERED, key, write, first, evidence)
        else:
            furthest[write.writer] = (first, write.sequence)


def _read_uncommitted(key: Key, reads: Sequence[Read], truth: _Truth) -> Iterator[Finding]:
    for read in reads:
        evidence = ""
        if read.offset >= read.high_watermark:
            evidence = f"reader {read.reader} got it under the high watermark {read.high_watermark}"
        elif read.offset >= truth.log.start_offset:
            stored = truth.at.get(read.offset)
            if stored is None or stored.content != read.content:
                evidence = (
                    f"reader {read.reader} got {read.content}, and in broker {truth.broker} "
                    f"{truth.what_is_at(read.offset)}"
                )
        if evidence:
            yield Finding(Kind.READ_UNCOMMITTED, *key, read.offset, read.writer, read.sequence, evidence)


def _diverged(key: Key, replicas: Mapping[int, ReplicaLog], reference: int) -> Iterator[Finding]:
    """Compare every replica with the reference only: equality is transitive."""
    ours = replicas.get(reference)
    for id_, log in sorted(replicas.items()):
        if log.problem:
            yield Finding(Kind.DIVERGED, *key, log.end_offset, -1, -1, f"broker {id_}: {log.problem}")
        elif ours is not None and id_ != reference and not ours.problem:
            yield from _differs(key, reference, ours, id_, log)


def _differs(key: Key, our_id: int, ours: ReplicaLog, their_id: int, theirs: ReplicaLog) -> Iterator[Finding]:
    """At most one finding for a pair of replicas: the first difference."""
    start, end = max(ours.start_offset, theirs.start_offset), min(ours.end_offset, theirs.end_offset)
    left = {b.base_offset: b for b in ours.batches if start <= b.base_offset < end}
    right = {b.base_offset: b for b in theirs.batches if start <= b.base_offset < end}
    for base in sorted(left.keys() | right.keys()):
        a, b = left.get(base), right.get(base)
        if a != b:
            evidence = f"broker {our_id} has {_batch(a)}, broker {their_id} has {_batch(b)}"
            yield Finding(Kind.DIVERGED, *key, base, *_named(base, ours, theirs), evidence)
            return
    if ours.end_offset != theirs.end_offset:
        evidence = f"broker {our_id} ends at {ours.end_offset}, broker {their_id} at {theirs.end_offset}"
        yield Finding(Kind.DIVERGED, *key, end, -1, -1, evidence)


def _named(offset: int, *logs: ReplicaLog) -> tuple[int, int]:
    for log in logs:
        for stored in log.records:
            if stored.offset == offset:
                return stored.content.writer, stored.content.sequence
    return -1, -1


def _batch(batch: StoredBatch | None) -> str:
    if batch is None:
        return "no batch that begins there"
    return f"a batch to {batch.next_offset} of leader epoch {batch.leader_epoch} with digest {batch.digest.hex()[:12]}"


def _finding(kind: Kind, key: Key, write: Write, offset: int, evidence: str) -> Finding:
    return Finding(kind, *key, offset, write.writer, write.sequence, evidence)


def _list(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
