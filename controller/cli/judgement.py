"""A workload beside a playground's failures, and the verdict on it when they are over."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

from controller.cli.cluster import Member, Playground, PlaygroundError
from controller.runtime.inspection import Seen
from controller.runtime.zookeeper import Session
from controller.workload import checker, history, replicas
from controller.workload.checker import Logs, Verdict

WORKLOAD = "workload"
#: Longer than the workload itself waits for what is under way.
STOP_TIMEOUT_S = 75.0
SETTLE_TIMEOUT_S = 30.0
SETTLE_PAUSE_S = 0.2
FINDINGS_SHOWN = 10
_COUNTS = re.compile(r"(\d+) acknowledged, (\d+) given up, (\d+) read")


class BadVerdictError(PlaygroundError):
    """The checker found what must not be, or had nothing to judge."""


class Judgement:
    """Writers and readers on one topic from ``start`` to ``verdict``."""

    def __init__(self, playground: Playground, topic: str, rate: float = 200.0) -> None:
        self._playground, self._topic = playground, topic
        self._history = playground.directory / "workload-history.jsonl"
        self._told = (0, 0, 0)
        command = [
            str(Path(sys.executable).parent / "partition-controller"),
            "workload",
            f"--zookeeper={playground.connect}",
            f"--topic={topic}",
            f"--history={self._history}",
            f"--rate={rate:g}",
            "--writers=3",
            "--readers=2",
        ]
        self._member = Member(WORKLOAD, command, playground.directory / f"{WORKLOAD}.log")

    async def start(self) -> None:
        """Begin to write and read; returns when the first records are acknowledged and read."""
        self._playground.members[WORKLOAD] = self._member
        self._member.start()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while 0 in (self._counts()[0], self._counts()[2]):
            self._member.check()
            if time.monotonic() > deadline:
                raise PlaygroundError(
                    f"nothing was written and read within {STOP_TIMEOUT_S:g} s; see {self._member.log_path}"
                )
            await asyncio.sleep(0.05)
        self._playground.say(
            f"3 writers (acks=all) and 2 readers are at work on topic {self._topic}", "green"
        )

    def _counts(self) -> tuple[int, int, int]:
        """Acknowledged, given up, and read so far, as last told."""
        try:
            found = _COUNTS.findall(self._member.log_path.read_text(errors="replace"))
        except FileNotFoundError:
            return 0, 0, 0
        acknowledged, given_up, read = map(int, found[-1]) if found else (0, 0, 0)
        return acknowledged, given_up, read

    def tell(self) -> None:
        """What the writers achieved since this was last told. Raises PlaygroundError when the workload ended."""
        self._member.check()
        now = self._counts()
        acknowledged, given_up, read = (new - old for new, old in zip(now, self._told, strict=True))
        self._told = now
        self._playground.say(
            f"  writers went on: {acknowledged} records acknowledged, {given_up} given up, {read} read", "dim"
        )

    async def verdict(self, session: Session) -> Verdict:
        """Stop the load, wait until replicas are in sync and equally long, and judge. Raises BadVerdictError."""
        say = self._playground.say
        say("stop the load")
        await asyncio.to_thread(self._member.stop, STOP_TIMEOUT_S)
        del self._playground.members[WORKLOAD]
        seen, took = await self._playground.until(session, "every replica in sync", self._in_sync)
        say(f"  every replica is in sync after {took:.2f} s")
        told = history.load(self._history)
        judged = checker.check(told, await self._settled(seen), self._leaders(seen))
        copies = f", {judged.extra_copies} copies by retries" if judged.extra_copies else ""
        say(
            f"  {judged.acknowledged:,} records acknowledged, {judged.unacknowledged} given up{copies}; the longest a "
            f"write took was {judged.longest_write_us / 1e6:.2f} s; {judged.batches:,} batches compared"
        )
        for finding in judged.findings[:FINDINGS_SHOWN]:
            say(f"  {finding}", "red")
        say(f"verdict: {judged.line()}", "bold green" if judged.ok else "bold red")
        if not judged.ok:
            raise BadVerdictError(judged.line())
        return judged

    def _in_sync(self, seen: Seen) -> bool:
        ours = [p for p in seen.partitions if p.topic == self._topic]
        return bool(ours) and not any(
            p.under_replicated() or p.state is None or p.state.leader not in seen.brokers for p in ours
        )

    def _leaders(self, seen: Seen) -> dict[tuple[str, int], int]:
        return {
            (p.topic, p.partition): p.state.leader
            for p in seen.partitions
            if p.topic == self._topic and p.state is not None
        }

    async def _settled(self, seen: Seen) -> Logs:
        """The logs once all replicas of a partition end alike; after a while as they are, to be judged so."""
        assigned = {(p.topic, p.partition): p.replicas for p in seen.partitions if p.topic == self._topic}
        brokers = {id_ for ids in assigned.values() for id_ in ids}
        data_dirs = {id_: self._playground.data_dir(id_) for id_ in brokers}
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            logs = await asyncio.to_thread(replicas.read_logs, data_dirs, assigned)
            if not replicas.unsettled(logs) or time.monotonic() > deadline:
                return logs
            await asyncio.sleep(SETTLE_PAUSE_S)
