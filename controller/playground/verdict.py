"""A workload that runs during a playground's failures, and the check of its records afterwards."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from controller.playground.cluster import WAIT_S, Member, Playground, PlaygroundError
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from controller.workload import checker, history, kafka_replicas, replicas
from controller.workload.checker import Logs, Verdict
from controller.workload.history import History

WORKLOAD = "workload"
#: Longer than the workload itself waits for unfinished sends.
STOP_TIMEOUT_S = 75.0
SETTLE_TIMEOUT_S = 30.0
SETTLE_PAUSE_S = 0.2
FINDINGS_SHOWN = 10


class _Ack(NamedTuple):
    """An acknowledged record: its partition, and the times of its send and its acknowledgement."""

    partition: int
    begun_us: int
    ended_us: int


@dataclass
class _Counts:
    """Counts of the history since the last report. ``begun``: partition and start of unfinished sends, by writer
    and sequence."""

    begun: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    acks: list[_Ack] = field(default_factory=list)
    given_up: int = 0
    read: int = 0

    def add(self, line: history.Line) -> None:
        match line:
            case history.Begun():
                self.begun[line.writer, line.sequence] = (line.partition, line.at_us)
            case history.Ended():
                partition, begun_us = self.begun.pop((line.writer, line.sequence))
                if line.offset is None:
                    self.given_up += 1
                else:
                    self.acks.append(_Ack(partition, begun_us, line.at_us))
            case history.Read():
                self.read += 1


class BadVerdictError(PlaygroundError):
    """The checker found errors, or had nothing to check."""


class WorkloadCheck:
    """Writers and readers on one topic from ``start`` to ``verdict``."""

    def __init__(self, playground: Playground, topic: str, partitions: int, rate: float = 50.0) -> None:
        self._playground, self._topic, self._partitions = playground, topic, partitions
        self._history = playground.directory / "workload-history.jsonl"
        self._tail, self._counts = history.Tail(self._history), _Counts()
        command = [
            str(Path(sys.executable).parent / "partition-controller"),
            "workload",
            *playground.workload_flags(),
            f"--topic={topic}",
            f"--history={self._history}",
            f"--rate={rate:g}",
            "--writers=3",
            "--readers=2",
        ]
        log = playground.directory / f"{WORKLOAD}.log"
        self._member = Member(WORKLOAD, command, log, playground.operator_environment)

    async def start(self) -> None:
        """Start writing and reading. Returns when every partition has acknowledged a record and one was read."""
        self._playground.members[WORKLOAD] = self._member
        self._member.start()
        await self._until(
            "was acknowledged and read", lambda: self._unwritten(0) == [] and self._counts.read > 0
        )
        self._playground.say(
            f"3 writers (acks=all) and 2 readers are at work on topic {self._topic}", "green"
        )

    async def wait_for_writes(self, since_us: int, event: str) -> None:
        """Wait until each partition has acknowledged a record sent after an event, and print how long that took.

        ``since_us``: time of the event, microseconds since 1970. Raises PlaygroundError if the workload has ended or
        a partition accepts no writes.
        """
        await self._until("was acknowledged", lambda: self._unwritten(since_us) == [])
        firsts: dict[int, int] = {}
        for ack in self._counts.acks:
            if ack.begun_us >= since_us:
                firsts.setdefault(ack.partition, ack.ended_us)
        took_s = (max(firsts.values()) - since_us) / 1e6
        counts, self._counts = self._counts, _Counts(self._counts.begun)
        self._playground.say(
            f"  writes to all {self._partitions} partitions of {self._topic} are acknowledged {took_s:.2f} s after "
            f"{event}; {len(counts.acks)} acknowledged since the last report, {counts.given_up} given up",
            "cyan",
        )

    def _unwritten(self, since_us: int) -> list[int]:
        """Partitions that have acknowledged no record sent since then."""
        written = {ack.partition for ack in self._counts.acks if ack.begun_us >= since_us}
        return [number for number in range(self._partitions) if number not in written]

    async def _until(self, what: str, reached: Callable[[], bool]) -> None:
        """Read the history until ``reached`` is true."""
        deadline = time.monotonic() + WAIT_S
        while not reached():
            self._member.check()
            if time.monotonic() > deadline:
                raise PlaygroundError(
                    f"not every partition of {self._topic} {what} within {WAIT_S:g} s; see {self._member.log_path}"
                )
            await asyncio.sleep(0.05)
            for line in self._tail.new_lines():
                self._counts.add(line)

    async def verdict(self, session: Session) -> Verdict:
        """Stop the workload and check its records. Raises BadVerdictError."""
        verdict, _ = await self.check(session)
        if not verdict.ok:
            raise BadVerdictError(verdict.line())
        return verdict

    async def check(self, session: Session) -> tuple[Verdict, History]:
        """Stop the workload, wait until replicas are in sync and end at equal offsets, and check. Returns the verdict
        and the history."""
        say = self._playground.say
        say("stop the load")
        await asyncio.to_thread(self._member.stop, STOP_TIMEOUT_S)
        del self._playground.members[WORKLOAD]
        cluster_state, took = await self._playground.until(session, "every replica in sync", self._in_sync)
        say(f"  every replica is in sync after {took:.2f} s")
        recorded = history.load(self._history)
        verdict = checker.check(
            recorded, await self._logs_once_equal(cluster_state), self._leaders(cluster_state)
        )
        copies = f", {verdict.extra_copies} copies by retries" if verdict.extra_copies else ""
        say(
            f"  {verdict.acknowledged:,} records acknowledged, {verdict.unacknowledged} given up{copies}; the longest "
            f"a write took was {verdict.longest_write_us / 1e6:.2f} s; {verdict.batches:,} batches compared"
        )
        for finding in verdict.findings[:FINDINGS_SHOWN]:
            say(f"  {finding}", "red")
        say(f"verdict: {verdict.line()}", "bold green" if verdict.ok else "bold red")
        return verdict, recorded

    def _in_sync(self, cluster_state: ClusterState) -> bool:
        ours = [p for p in cluster_state.partitions if p.topic == self._topic]
        return bool(ours) and all(cluster_state.is_led(p) and not p.under_replicated() for p in ours)

    def _leaders(self, cluster_state: ClusterState) -> dict[tuple[str, int], int]:
        return {
            (p.topic, p.partition): p.state.leader
            for p in cluster_state.partitions
            if p.topic == self._topic and p.state is not None
        }

    async def _logs_once_equal(self, cluster_state: ClusterState) -> Logs:
        """The logs when all replicas of each partition end at one offset; after SETTLE_TIMEOUT_S as they are."""
        assigned = {
            (p.topic, p.partition): p.replicas for p in cluster_state.partitions if p.topic == self._topic
        }
        brokers = {id_ for ids in assigned.values() for id_ in ids}
        data_dirs = {id_: self._playground.data_dir(id_) for id_ in brokers}
        read = (kafka_replicas if self._playground.kafka else replicas).read_replica
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            logs = await asyncio.to_thread(replicas.read_logs, data_dirs, assigned, read)
            if not replicas.unconfirmed(logs) or time.monotonic() > deadline:
                return logs
            await asyncio.sleep(SETTLE_PAUSE_S)
