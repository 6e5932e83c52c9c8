"""Load by librdkafka on a real cluster, and the check of every record: idempotent or transactional producers, a group.

The records carry their writer and number, so that ``controller.workload.checker`` compares what was acknowledged and
what was read with the partitions' logs at the end: records as a consumer gets them, batches from the brokers' folders.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from controller.workload import checker
from controller.workload.checker import ReplicaLog, Stored
from controller.workload.history import Ended, Key, Line, collect, content_of
from controller.workload.kafka_clients import DRAIN_S, Reader, Writer
from controller.workload.kafka_replicas import read_replica
from tests.kafka.cluster import KafkaCluster

_PARTITION_EOF = -191


@dataclass
class Outcome:
    """What a load saw, after the check. ``unread``: acknowledged records that no member of the group got."""

    verdict: checker.Verdict
    longest_gap_s: float
    errors: list[str] = field(default_factory=list)
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
        #: The history of all clients; they append from their threads.
        self.lines: list[Line] = []
        self.writers = [
            Writer(number, topic, self.partitions, rate, base, self.lines.append, transactional=transactional)
            for number in range(1, writers + 1)
        ]
        self.readers = [Reader(number, topic, base, self.lines.append) for number in range(1, readers + 1)]

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
        sent = {
            (line.writer, line.sequence)
            for line in self.lines
            if isinstance(line, Ended) and line.offset is not None
        }
        unread = self._await_readers(sent) if self.readers else 0
        self.__exit__()
        if replicas:
            self.cluster.until("full ISRs", lambda: self.cluster.in_sync(self.topic))
        history = collect(self.lines)
        verdict = checker.check(history, self._logs(replicas=replicas), self._leaders())
        return Outcome(
            verdict,
            max((self._longest_gap(writer) for writer in self.writers), default=0.0),
            [*stuck, *(error for writer in self.writers for error in writer.errors)],
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
        return read_replica(folders[0]) if folders else ReplicaLog(problem="no folder")

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
