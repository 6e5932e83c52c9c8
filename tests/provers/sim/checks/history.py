"""What clients of one run sent, were told and read, and its judgement: at once where it can be, else at the end.

In the vocabulary of `controller.workload`, whose checker judges the end. Records have values of their own, and the
brokers' disks tell where each was appended: so a record belongs to one topic id, whatever topic of that name the client
thought it was writing to, or reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_stub.log import batches
from broker_stub.replication.service import OFFSETS_TOPIC
from controller.workload import checker, history
from controller.workload.checker import Finding, Kind, ReplicaLog, Stored, StoredBatch, Verdict
from controller.workload.history import Content, Key, Read, Write, content_of, value_of
from proto.gen import broker_data_pb2 as wire
from tests.provers.sim.zookeeper.tree import NodeCreated, NodeDeleted, Transaction
from tests.support.broker.memory_log import MemoryLog
from tests.support.workload import second_judge

VALUE_BYTES = 24
OFFSET_COMMIT = "/OffsetCommit"
TOPICS, TO_BE_DELETED = "/brokers/topics/", "/admin/delete_topics/"


class Place(NamedTuple):
    """An offset of one topic; one of the same name that came later has another id ("" for none)."""

    topic_id: str
    partition: int
    offset: int


class FinalPartition(NamedTuple):
    """A partition when all has settled. ``logs``: those of its in-sync members, by broker id."""

    topic: str
    topic_id: str
    partition: int
    leader: int
    logs: Mapping[int, MemoryLog]


@dataclass(eq=False)
class _Record:
    """One record. ``offset`` None: not acknowledged, so it may be there or not."""

    writer: int
    sequence: int
    key: Key
    acks: int
    content: Content
    begun_us: int
    ended_us: int = 0
    offset: int | None = None
    topic_id: str | None = None


@dataclass(eq=False)
class _Commits:
    """What a group committed for one partition: the numbers only grow, and each is told from the others."""

    acknowledged: int | None = None
    sent: int = -1
    #: The topic was deleted after lower ones were sent: they are gone with it, acknowledged or not.
    first_valid: int = 0
    #: When requests with a number first and last reached a broker.
    first_arrival: dict[int, int] = field(default_factory=dict)
    last_arrival: dict[int, int] = field(default_factory=dict)


class History:
    """``now_us``: the time of what happens. ``topic_ids(name)``: the id of the topic that has that name now."""

    def __init__(self, now_us: Callable[[], int], topic_ids: Callable[[str], str | None]) -> None:
        self._now_us, self._topic_ids = now_us, topic_ids
        self.findings: list[Finding | str] = []
        self._records: dict[Content, _Record] = {}
        self._sequences: dict[int, int] = {}
        self._appended: dict[Content, dict[tuple[Key, int], str]] = {}
        #: What somebody was told is there for good.
        self._committed: dict[Place, Content] = {}
        self._reads: list[tuple[str, Read]] = []
        self._excused: set[tuple[str, int]] = set()
        self._groups_excused = False
        self._commits: dict[tuple[str, Key], _Commits] = {}
        self._deleting: set[str] = set()
        self._arrivals = 0

    def __repr__(self) -> str:
        return (
            f"{len(self._records)} sent, {self.acknowledged} acknowledged, {len(self._reads)} read, "
            f"{self.offsets_acknowledged} partitions' offsets committed, {len(self.findings)} findings"
        )

    @property
    def acknowledged(self) -> int:
        return sum(record.offset is not None for record in self._records.values())

    @property
    def offsets_acknowledged(self) -> int:
        return sum(commits.acknowledged is not None for commits in self._commits.values())

    @property
    def reads(self) -> int:
        return len(self._reads)

    def excuse(self, topic: str, topic_id: str, partition: int) -> None:
        """A fault may have cost this partition records that were acknowledged: an unclean election, all disks."""
        self._excused.add((topic_id, partition))
        self._groups_excused = self._groups_excused or topic == OFFSETS_TOPIC

    # records

    def appended(self, key: Key, topic_id: str | None, first_offset: int, records: bytes) -> None:
        """A leader has appended a client's records: told by its disk."""
        for number, record in enumerate(batches.decode(records, check=False)):
            places = self._appended.setdefault(content_of(record.value), {})
            places[key, first_offset + number] = topic_id or f"none yet of {key[0]}"

    def sending(self, writer: int, key: Key, acks: int) -> bytes:
        """The value of the writer's next record."""
        sequence = self._sequences[writer] = self._sequences.get(writer, -1) + 1
        value = value_of(writer, sequence, VALUE_BYTES)
        content = content_of(value)
        self._records[content] = _Record(writer, sequence, key, acks, content, self._now_us())
        return value

    def sent(self, value: bytes, offset: int) -> None:
        """It was acknowledged."""
        record = self._records[content_of(value)]
        record.offset, record.ended_us = offset, self._now_us()
        record.topic_id = self._appended.get(record.content, {}).get((record.key, offset))
        if record.topic_id is None:
            self._found(
                Kind.INVENTED, record.key, offset, record.content, "acknowledged where none was appended"
            )
        elif record.acks == -1:
            self._commit(
                record.key, Place(record.topic_id, record.key[1], offset), record.content, "acknowledged"
            )

    def read(self, reader: int, key: Key, offset: int, value: bytes | None, high_watermark: int) -> None:
        """A reader was given a record."""
        content = content_of(value)
        topic_id = self._appended.get(content, {}).get((key, offset))
        if topic_id is None:
            self._found(
                Kind.INVENTED, key, offset, content, f"reader {reader} got it where none was appended"
            )
            return
        at_us = self._now_us()
        self._reads.append((topic_id, Read(reader, *key, offset, *content, high_watermark, at_us)))
        if offset >= high_watermark:
            self._found(
                Kind.READ_UNCOMMITTED, key, offset, content, f"got under the high watermark {high_watermark}"
            )
        self._commit(key, Place(topic_id, key[1], offset), content, f"given to reader {reader}")

    def truncated(self, key: Key, read_to: int, end_offset: int) -> None:
        """A reader was told that the log ends below what it has read."""
        topic_id = self._topic_ids(key[0])
        lost = self._committed.get(Place(topic_id or "", key[1], max(read_to - 1, 0)))
        if topic_id is not None and lost is not None:
            evidence = f"read to {read_to}, and the log now ends at {end_offset}"
            if not self._is_excused(topic_id, key[1]):
                self._found(Kind.LOST, key, read_to - 1, lost, evidence)

    def _commit(self, key: Key, place: Place, content: Content, how: str) -> None:
        known = self._committed.setdefault(place, content)
        if known != content and not self._is_excused(place.topic_id, place.partition):
            self._found(Kind.MOVED, key, place.offset, known, f"{content} was {how} in its place")

    def _is_excused(self, topic_id: str, partition: int) -> bool:
        return (topic_id, partition) in self._excused

    def _found(self, kind: Kind, key: Key, offset: int, content: Content, evidence: str) -> None:
        self.findings.append(Finding(kind, *key, offset, content.writer, content.sequence, evidence))

    # groups

    def request_arrived(self, _caller: str, _server: str, method: str, request: bytes) -> None:
        """For ``Wires.on_request``: which commits reach a broker, and in which order."""
        if not method.endswith(OFFSET_COMMIT):
            return
        parsed = wire.OffsetCommitRequest.FromString(request)
        self._arrivals += 1
        for item in parsed.offsets:
            commits = self._commits_of(parsed.group_id, (item.topic, item.partition))
            commits.first_arrival.setdefault(item.offset, self._arrivals)
            commits.last_arrival[item.offset] = self._arrivals

    def _commits_of(self, group: str, key: Key) -> _Commits:
        return self._commits.setdefault((group, key), _Commits())

    def committing(self, group: str, key: Key) -> int:
        """The next number to commit."""
        commits = self._commits_of(group, key)
        commits.sent += 1
        return commits.sent

    def offset_committed(self, group: str, key: Key, number: int) -> None:
        """A commit was acknowledged."""
        commits = self._commits_of(group, key)
        if number >= commits.first_valid and key[0] not in self._deleting:
            commits.acknowledged = max(number, -1 if commits.acknowledged is None else commits.acknowledged)

    def last_acknowledged(self, group: str, key: Key) -> int | None:
        """To be taken before offsets are fetched."""
        return self._commits_of(group, key).acknowledged

    def offset_fetched(self, group: str, key: Key, number: int | None, acknowledged: int | None) -> None:
        """The coordinator said so; ``acknowledged`` before it was asked. An older commit may have come late."""
        commits = self._commits_of(group, key)
        if self._groups_excused or acknowledged is None or acknowledged < commits.first_valid:
            return
        problem = ""
        if number is None:
            problem = "none"
        elif number > commits.sent:
            problem = f"{number}, which was never sent"
        elif number < acknowledged and commits.last_arrival[number] < commits.first_arrival[acknowledged]:
            problem = f"{number}"
        if problem:
            self.findings.append(
                f"committed offset lost: group {group} has {problem} for {key[0]}-{key[1]}, "
                f"and {acknowledged} was acknowledged"
            )

    def went_back(self) -> None:
        """ZooKeeper was restored from a backup: what was to be deleted is not any more."""
        self._deleting.clear()

    def agreed(self, transaction: Transaction) -> None:
        """For ``Ensemble.on_agreed``: the offsets of a topic go as soon as it is to be deleted."""
        for change in transaction.changes:
            if isinstance(change, NodeCreated | NodeDeleted) and change.path.startswith(TO_BE_DELETED):
                topic = change.path.removeprefix(TO_BE_DELETED)
                if isinstance(change, NodeCreated):
                    self._deleting.add(topic)
                else:
                    self._deleting.discard(topic)
                self._offsets_deleted(topic)
            elif isinstance(change, NodeDeleted) and change.path.startswith(TOPICS):
                self._offsets_deleted(change.path.removeprefix(TOPICS))

    def _offsets_deleted(self, topic: str) -> None:
        for (_, key), commits in self._commits.items():
            if key[0] == topic:
                commits.acknowledged, commits.first_valid = None, commits.sent + 1

    # the end

    def check_final(self, partitions: Iterable[FinalPartition]) -> Verdict:
        """Judge what is left in the logs of the topics that exist; its findings are among `findings` then.

        Copies are not judged: the network delivers twice.
        """
        present = {
            (p.topic, p.partition): p for p in partitions if not self._is_excused(p.topic_id, p.partition)
        }
        reader = _LogReader()
        logs = {
            key: {id_: reader.read(log) for id_, log in p.logs.items()} for key, p in sorted(present.items())
        }
        leaders = {key: p.leader for key, p in present.items()}
        topic_ids = {key: p.topic_id for key, p in present.items()}
        writes = tuple(self._writes(topic_ids))
        reads = tuple(
            read for topic_id, read in self._reads if topic_ids.get((read.topic, read.partition)) == topic_id
        )
        whole = history.History(writes, reads)
        verdict = checker.check(whole, logs, leaders)
        self.findings += verdict.findings
        others = second_judge.objections(whole, logs)
        if bool(others) != bool(verdict.findings):
            self.findings.append(f"the judges disagree: {verdict.findings[:1]} and {others[:1]}")
        return verdict

    def _writes(self, topic_ids: Mapping[Key, str]) -> Iterable[Write]:
        """Only what was acknowledged by all is a promise, and only if it is about the topic that is there."""
        for record in self._records.values():
            topic_id = topic_ids.get(record.key)
            if topic_id is None:
                continue
            promised = record.acks == -1 and record.topic_id == topic_id
            offset = record.offset if promised else None
            yield Write(
                record.writer,
                record.sequence,
                *record.key,
                record.content.crc,
                None,
                offset,
                record.begun_us,
                record.ended_us,
            )


class _LogReader:
    """Reads logs; what several replicas have alike is looked into once."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[Stored]] = {}

    def read(self, log: MemoryLog) -> ReplicaLog:
        found: list[StoredBatch] = []
        records: list[Stored] = []
        start, end = log.log_start_offset, log.log_end_offset
        # Also of a log that its broker has closed.
        written = MemoryLog.read(log, start, 1 << 62, end)
        for batch in batches.iterate(written, check=False):
            data = written[batch.start : batch.end]
            found.append(StoredBatch(batch.base_offset, batch.next_offset, batch.leader_epoch, data))
            known = self._known.get(data)
            if known is None:
                known = self._known[data] = [
                    Stored(record.offset, record.leader_epoch, content_of(record.value))
                    for record in batches.decode(data, check=False)
                ]
            records += known
        return ReplicaLog(start, end, found, records)
