"""Load by librdkafka on a real cluster, and the check of every record: idempotent or transactional producers, a group.

The records carry their writer and number, so that ``controller.workload.checker`` compares what was acknowledged and
what was read with the partitions' logs at the end: records as a consumer gets them, batches from the brokers' folders.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from controller.workload import checker
from controller.workload.checker import ReplicaLog, Stored, StoredBatch
from controller.workload.history import Begun, Ended, Key, Line, Read, collect, content_of, value_of
from tests.kafka.cluster import KafkaCluster

#: Length of an unpadded value; room for the name.
VALUE_BYTES = 100
DRAIN_S = 120.0
#: Records in one transaction.
TRANSACTION = 10
_PARTITION_EOF = -191
#: Kafka's record batch, version 2: base offset, length, leader epoch, magic, crc, attributes, last offset delta.
_BATCH = struct.Struct(">qiibIhi")
#: Bytes of a batch that its length does not count.
_LENGTH_END = 12


def now_us() -> int:
    return time.time_ns() // 1000


class Writer(threading.Thread):
    """Sends records one after another to all partitions in turn until it is told to stop."""

    def __init__(
        self,
        number: int,
        topic: str,
        partitions: int,
        rate: float,
        settings: Mapping[str, Any],
        transactional: bool,
    ) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.number, self.topic, self.partitions, self.rate = number, topic, partitions, rate
        self.transactional = transactional
        self.lines: list[Line] = []
        #: Monotonic times of acknowledgements.
        self.acknowledged: list[float] = []
        self.errors: list[str] = []
        self.transactions = {"committed": 0, "aborted": 0, "unknown": 0}
        self._open: dict[int, Ended] = {}
        self._stop_asked = threading.Event()
        self._settings = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": 120_000,
            "topic.metadata.refresh.interval.ms": 10_000,
            **(
                {"transactional.id": f"{topic}-{number}", "transaction.timeout.ms": 120_000}
                if transactional
                else {}
            ),
            **settings,
        }

    def finish(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        try:
            producer = Producer(self._settings)
            if self.transactional:
                self._transactions(producer)
            else:
                self._records(producer)
        except (KafkaException, BufferError) as error:
            self.errors.append(f"writer {self.number} ended: {error}")

    def _records(self, producer: Producer) -> None:
        sequence, began = 0, time.monotonic()
        while not self._stop_asked.is_set():
            self._send(producer, sequence)
            sequence += 1
            producer.poll(max(began + sequence / self.rate - time.monotonic(), 0))
        if left := producer.flush(DRAIN_S):
            self.errors.append(f"writer {self.number}: {left} records without an answer")

    def _transactions(self, producer: Producer) -> None:
        """Transactions of TRANSACTION records, every tenth aborted on purpose."""
        _again(lambda: producer.init_transactions(DRAIN_S))
        sequence, count = 0, 0
        while not self._stop_asked.is_set():
            producer.begin_transaction()
            self._open = {}
            for _ in range(TRANSACTION):
                self._send(producer, sequence)
                sequence += 1
                producer.poll(1 / self.rate)
            count += 1
            outcome = self._end(producer, commit=count % 10 != 0)
            self.transactions[outcome] += 1
            for ended in self._open.values():
                # What was aborted must never be seen; of an unknown outcome, each record may be there once.
                attempts = 0 if outcome == "aborted" else 1
                offset = ended.offset if outcome == "committed" else None
                self.lines.append(
                    Ended(ended.writer, ended.sequence, attempts, ended.at_us, offset, ended.error)
                )

    def _end(self, producer: Producer, *, commit: bool) -> str:
        # What is aborted must have reached the log, else it proves nothing.
        producer.flush(DRAIN_S)
        try:
            if commit:
                _again(lambda: producer.commit_transaction(DRAIN_S))
                return "committed"
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                self.errors.append(f"writer {self.number}: commit: {error}")
                raise
            self.errors.append(f"writer {self.number}: commit refused, aborted: {error}")
        _again(lambda: producer.abort_transaction(DRAIN_S))
        return "aborted"

    def _send(self, producer: Producer, sequence: int) -> None:
        partition = sequence % self.partitions
        value = value_of(self.number, sequence, VALUE_BYTES)
        crc = content_of(value).crc
        self.lines.append(Begun(self.number, sequence, self.topic, partition, crc, now_us()))

        def delivered(error: KafkaError | None, message: Message) -> None:
            at_us = now_us()
            if error is None:
                self.acknowledged.append(time.monotonic())
                ended = Ended(self.number, sequence, 1, at_us, message.offset())
            else:
                self.errors.append(f"record {sequence} of writer {self.number}: {error}")
                ended = Ended(self.number, sequence, 1, at_us, None, str(error))
            if self.transactional:
                self._open[sequence] = ended
            else:
                self.lines.append(ended)

        while True:
            try:
                producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
                return
            except BufferError:
                producer.poll(0.1)


def _again(call: Any) -> None:
    """Call until it does not ask to be called again."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            time.sleep(0.1)


class Reader(threading.Thread):
    """A member of a consumer group that notes all it gets."""

    def __init__(self, number: int, topic: str, settings: Mapping[str, Any]) -> None:
        super().__init__(name=f"reader-{number}", daemon=True)
        self.number, self.topic = number, topic
        self.lines: list[Read] = []
        self.errors: list[str] = []
        self.seen: set[tuple[int, int]] = set()
        self._stop_asked = threading.Event()
        self._settings = {
            "group.id": f"{topic}-group",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            **settings,
        }

    def finish(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self.topic])
        try:
            while not self._stop_asked.is_set():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                if error := message.error():
                    self.errors.append(f"reader {self.number}: {error}")
                    continue
                self._got(message)
        finally:
            consumer.close()

    def _got(self, message: Message) -> None:
        content = content_of(message.value())
        offset = message.offset() or 0
        self.seen.add((content.writer, content.sequence))
        # A client is not told the high watermark: the record is taken to be below it.
        self.lines.append(
            Read(self.number, self.topic, message.partition() or 0, offset, *content, offset + 1, now_us())
        )


@dataclass
class Outcome:
    """What a load saw, after the check. ``unread``: acknowledged records that no member of the group got."""

    verdict: checker.Verdict
    longest_gap_s: float
    errors: list[str] = field(default_factory=list)
    reader_errors: list[str] = field(default_factory=list)
    unread: int = 0
    transactions: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Nothing lost, duplicated, reordered or unread; no producer was told of an error."""
        return self.verdict.ok and not self.errors and not self.unread

    def __str__(self) -> str:
        findings = "".join(f"\n  {finding}" for finding in self.verdict.findings[:10])
        return (
            f"{self.verdict.line()}; longest gap between acknowledgements {self.longest_gap_s:.2f} s; "
            f"{self.unread} unread; transactions {self.transactions}; errors {self.errors[:5]}{findings}"
        )


class Load:
    """Producers and a consumer group on one topic, which must exist. Use as a context, then call ``finish``."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        *,
        writers: int = 1,
        readers: int = 1,
        rate: float = 50,
        transactional: bool = False,
        bootstrap: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """``rate``: records a second of each writer; ``settings``: of all clients, such as security."""
        self.cluster, self.topic = cluster, topic
        self.partitions = len(cluster.assignment(topic))
        base = {"bootstrap.servers": bootstrap or cluster.bootstrap, **cluster.client, **(settings or {})}
        self._base = base
        self.writers = [
            Writer(number, topic, self.partitions, rate, base, transactional)
            for number in range(1, writers + 1)
        ]
        self.readers = [Reader(number, topic, base) for number in range(1, readers + 1)]

    def __enter__(self) -> Load:
        for thread in (*self.readers, *self.writers):
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        threads: list[Writer | Reader] = [*self.writers, *self.readers]
        for thread in threads:
            thread.finish()
        for thread in threads:
            thread.join(2 * DRAIN_S)

    def acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers)

    def run_for(self, seconds: float) -> None:
        """Let it run, and a moment longer until something more was acknowledged."""
        time.sleep(seconds)
        before = self.acknowledged()
        self.until("a further acknowledgement", lambda: self.acknowledged() > before)

    def until(self, what: str, reached: Callable[[], object]) -> float:
        """As ``KafkaCluster.until``; fails at once when a writer has ended."""

        def checked() -> object:
            ended = [error for writer in self.writers if not writer.is_alive() for error in writer.errors]
            assert not ended, f"{ended}; waiting for {what}"
            return reached()

        return self.cluster.until(what, checked)

    def finish(self, *, replicas: bool = True) -> Outcome:
        """Stop the writers, let the group read the rest, and check everything.

        ``replicas``: also compare the replicas' batches byte for byte, after waiting for full ISRs.
        """
        for writer in self.writers:
            writer.finish()
        for writer in self.writers:
            writer.join(2 * DRAIN_S)
        stuck = [f"{writer.name} did not end" for writer in self.writers if writer.is_alive()]
        lines = [line for writer in self.writers for line in writer.lines]
        sent = {
            (line.writer, line.sequence)
            for line in lines
            if isinstance(line, Ended) and line.offset is not None
        }
        unread = self._await_readers(sent) if self.readers else 0
        self.__exit__()
        if replicas:
            self.cluster.until("full ISRs", lambda: self.cluster.in_sync(self.topic))
        history = collect([*lines, *(line for reader in self.readers for line in reader.lines)])
        verdict = checker.check(history, self._logs(replicas=replicas), self._leaders())
        return Outcome(
            verdict,
            max((self._longest_gap(writer) for writer in self.writers), default=0.0),
            [*stuck, *(error for writer in self.writers for error in writer.errors)],
            [error for reader in self.readers for error in reader.errors],
            unread,
            {
                name: sum(w.transactions[name] for w in self.writers)
                for name in ("committed", "aborted", "unknown")
            },
        )

    def _await_readers(self, sent: set[tuple[int, int]]) -> int:
        deadline = time.monotonic() + DRAIN_S
        while True:
            missing = len(sent - set().union(*(reader.seen for reader in self.readers)))
            if not missing or time.monotonic() > deadline:
                return missing
            time.sleep(0.2)

    @staticmethod
    def _longest_gap(writer: Writer) -> float:
        times = sorted(writer.acknowledged)
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _leaders(self) -> dict[Key, int]:
        return {
            key: state.leader for key, state in self.cluster.states(self.topic).items() if state is not None
        }

    def _logs(self, *, replicas: bool) -> dict[Key, dict[int, ReplicaLog]]:
        leaders = self._leaders()
        found: dict[Key, dict[int, ReplicaLog]] = {}
        for number in range(self.partitions):
            key = (self.topic, number)
            records = self._consumed(number)
            logs: dict[int, ReplicaLog] = {}
            if replicas:
                self.cluster.until(f"replicas of {key} of one length", partial(self._one_end, key))
                logs = {
                    id_: self._on_disk(id_, number) for id_ in self.cluster.assignment(self.topic)[number]
                }
            leader = logs.get(leaders[key], ReplicaLog(0, max((r.offset for r in records), default=-1) + 1))
            logs[leaders[key]] = ReplicaLog(
                leader.start_offset, leader.end_offset, leader.batches, records, leader.problem
            )
            found[key] = logs
        return found

    def _one_end(self, key: Key) -> bool:
        return (
            len({self._on_disk(id_, key[1]).end_offset for id_ in self.cluster.assignment(key[0])[key[1]]})
            == 1
        )

    def _on_disk(self, broker_id: int, partition: int) -> ReplicaLog:
        name = f"{self.topic}-{partition}"
        folders = [
            path / name for path in self.cluster.brokers[broker_id].data_dirs if (path / name).is_dir()
        ]
        return batches_on_disk(folders[0]) if folders else ReplicaLog(problem="no folder")

    def _consumed(self, partition: int) -> Sequence[Stored]:
        """All committed records of a partition, read from its beginning."""
        consumer = Consumer(
            {
                **self._base,
                "group.id": f"{self.topic}-check",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        found: list[Stored] = []
        try:
            consumer.assign([TopicPartition(self.topic, partition, 0)])
            deadline = time.monotonic() + DRAIN_S
            while True:
                message = consumer.poll(1.0)
                assert time.monotonic() < deadline, (
                    f"{self.topic}-{partition} was not read within {DRAIN_S:g} s"
                )
                if message is None:
                    continue
                if error := message.error():
                    if error.code() == _PARTITION_EOF:
                        return found
                    continue
                found.append(
                    Stored(message.offset() or 0, message.leader_epoch() or 0, content_of(message.value()))
                )
        finally:
            consumer.close()


def batches_on_disk(folder: Path) -> ReplicaLog:
    """A replica's batches from its segments (Kafka's format, version 2), without records; those may be compressed."""
    found: list[StoredBatch] = []
    for segment in sorted(folder.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + _BATCH.size <= len(data):
            base, length, epoch, magic, _, _, last = _BATCH.unpack_from(data, at)
            end = at + _LENGTH_END + length
            if magic != 2 or length <= 0 or end > len(data):
                break
            digest = hashlib.blake2b(data[at:end], digest_size=16).digest()
            found.append(StoredBatch(base, base + last + 1, epoch, digest))
            at = end
    if not found:
        return ReplicaLog()
    return ReplicaLog(found[0].base_offset, found[-1].next_offset, found)
