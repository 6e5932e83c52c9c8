"""One chaos run: the cluster, the load, the operators, the episodes, and what is judged of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.workload.checker import Verdict
from controller.workload.history import History
from proto.security.grpc_channels import GrpcTls
from tests.provers.chaos import processes, verdicts
from tests.provers.chaos.apply import Faults, away, now_us
from tests.provers.chaos.network import Network
from tests.provers.chaos.nodes import SESSION_TIMEOUT_MS, Nodes
from tests.provers.chaos.operators import ControllerRequest, Operators, explain
from tests.provers.chaos.plan import Episode, Kind
from tests.provers.chaos.recovery import REGISTERED, WAIT_S, Eye, recover
from tests.provers.chaos.secured import keep_rotating
from tests.provers.chaos.verdicts import Distribution, Finding, Leaderless, Played, What

TOPIC, PARTITIONS, RATE = "events", 8, 100.0
#: What recovery is held against, seconds: sessions of the dead must expire, and two seconds are for the rest.
LIMIT_S = SESSION_TIMEOUT_MS / 1000 + 2.0
_WATCH_S = 0.3


@dataclass
class Outcome:
    """All that a run found."""

    played: list[Played] = field(default_factory=list)
    asked: list[ControllerRequest] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    records: Verdict = field(default_factory=Verdict)
    leaderless: list[Leaderless] = field(default_factory=list)
    #: Of each episode and partition of the load, the longest a record took to be acknowledged, seconds.
    writes: list[float] = field(default_factory=list)
    state_changes: int = 0
    torn_lines: int = 0
    #: How often all certificates were replaced.
    rotations: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings

    def count(self, what: What) -> int:
        return sum(finding.what is what for finding in self.findings)

    @property
    def led_again(self) -> Distribution:
        return Distribution.of(one.took_s for one in self.leaderless if one.counted)


@dataclass
class Run:
    """``rate``: records a second; ``beside``: what else goes on from the first record on, until it is told to stop."""

    nodes: Nodes
    plan: Iterable[Episode]
    seed: int
    rate: float = RATE
    beside: Sequence[Callable[[asyncio.Event], Coroutine[None, None, None]]] = ()
    outcome: Outcome = field(default_factory=Outcome)
    faults: Faults = field(init=False)
    eye: Eye = field(init=False)
    operators: Operators = field(init=False)

    def say(self, text: str, style: str = "") -> None:
        self.nodes.playground.say(text, style)

    async def play(self) -> Outcome:
        """Everything from start to end. Raises PlaygroundError, EnvironmentFault where there was nothing to judge."""
        self.faults = Faults(self.nodes)
        try:
            await self.nodes.start()
            connect = self.nodes.playground.connect
            self.eye = Eye(connect, self.nodes.access)
            eye = Eye(connect, self.nodes.access)
            self.operators = Operators(eye, Random(self.seed), TOPIC, self.nodes.tls)
            records, history = await self._live(connect)
        finally:
            # Blocks, and relays must serve meanwhile.
            await asyncio.to_thread(self.nodes.stop)
            await self.nodes.network.close()
        self._check_all(records, history)
        return self.outcome

    async def _live(self, connect: str) -> tuple[Verdict, History]:
        async with cluster_reader.connected(connect, 30_000, access=self.nodes.access) as session:
            begun = await recover(self.nodes, self.eye, WAIT_S)
            self.say(f"the cluster is whole: {begun}")
            settings = {"min.insync.replicas": "2"}
            await self.nodes.playground.create_topic(session, TOPIC, (PARTITIONS, 3), settings)
            workload = WorkloadCheck(self.nodes.playground, TOPIC, PARTITIONS, self.rate)
            await workload.start()
        stop = asyncio.Event()
        background = [
            asyncio.create_task(self.operators.work(stop), name="operators"),
            asyncio.create_task(self._look_after(stop), name="service manager"),
            *(asyncio.create_task(also(stop)) for also in self.beside),
        ]
        if self.nodes.secure:
            rotating = keep_rotating(self.nodes.playground, stop)
            background.append(asyncio.create_task(self._count_rotations(rotating), name="certificates"))
        try:
            for episode in self.plan:
                await self._episode(episode)
                for task in background:
                    if task.done():
                        task.result()
        finally:
            stop.set()
            await asyncio.gather(*background)
        await self._settle()
        async with cluster_reader.connected(connect, 30_000, access=self.nodes.access) as session:
            return await workload.check(session)

    async def _count_rotations(self, rotating: Coroutine[None, None, int]) -> None:
        self.outcome.rotations = await rotating
        self.say(f"authority and certificates were replaced {self.outcome.rotations} times")

    async def _look_after(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.to_thread(self.nodes.look_after)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_S):
                    await stop.wait()

    async def _episode(self, episode: Episode) -> None:
        await asyncio.sleep(episode.pause_s)
        self.operators.episode = episode.number
        cluster_state = await self.eye.look()
        active = f"controller-{cluster_state.controller_id if cluster_state and cluster_state.controller_id > 0 else 1}"
        played = Played(episode.number, "", now_us())
        self.outcome.played.append(played)
        meant = []
        for fault in episode.faults:
            meant.append(self.faults.meant(fault, active))
            played.name = "; ".join(map(str, meant))
            self.say(f"episode {episode.number}: {meant[-1]}", "yellow")
            await asyncio.to_thread(self.faults.begin, meant[-1], episode.number)
        await asyncio.sleep(episode.hold_s)
        await asyncio.to_thread(self.faults.heal, tuple(meant))
        played.healed_us = now_us()
        played.recovery = await recover(self.nodes, self.eye, LIMIT_S)
        played.recovered_us = now_us()
        within = played.recovery.within
        self.say(f"  healed after {episode.hold_s} s; whole: {played.recovery}", "green" if within else "red")
        if not within:
            self.say(f"  at {LIMIT_S:g} s: {'; '.join(played.recovery.lacking[:4])}", "red")

    async def _settle(self) -> None:
        """Give all that was asked for its time, then see what is left of it."""
        self.say("operators stop; what they asked for has its time")
        deadline = time.monotonic() + WAIT_S
        while True:
            cluster_state = await self.eye.look()
            left = (
                verdicts.stuck(self.operators.asked, cluster_state, {}) if cluster_state is not None else []
            )
            if (cluster_state is not None and not left) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        self.outcome.asked = self.operators.asked
        await self.operators.eye.close()
        await self.eye.close()
        if cluster_state is None:
            self.outcome.findings.append(
                Finding(What.STUCK, "ZooKeeper does not answer at the end", now_us())
            )
        else:
            why = await _explanations(cluster_state, self.nodes.tls)
            self.outcome.findings += verdicts.stuck(self.operators.asked, cluster_state, why)

    def _check_all(self, records: Verdict, history: History) -> None:
        out = self.outcome
        self.check_records(records, history)
        for one in out.played:
            if one.recovery is not None and one.recovery.took_s is None:
                words = f"not whole {WAIT_S:g} s after healing: {'; '.join(one.recovery.lacking[:5])}"
                out.findings.append(Finding(What.RECOVERY, words, one.healed_us, one.number, one.name))
        skews = self.faults.skews
        directory = self.nodes.directory
        lines, out.torn_lines = processes.state_changes(self.nodes.playground.state_logs, skews)
        out.state_changes = len(lines)
        out.findings += verdicts.two_masters(lines)
        out.findings += processes.in_logs(directory, skews)
        for ended in self.nodes.ended:
            words = f"{ended.name} ended by itself with {ended.returncode}"
            out.findings.append(Finding(What.PROCESSES, words, ended.at_us))
        out.findings = [one for one in out.findings if not processes.of_full_disks(one, self.faults.struck)]
        out.leaderless = verdicts.leaderless(lines, away(self.faults.struck, self._registered()), now_us())
        out.writes = longest_writes(history, out.played)
        out.findings = [verdicts.attributed(finding, out.played) for finding in out.findings]

    def check_records(self, records: Verdict, history: History) -> None:
        """A record's moment is when its writer was told that it is safe."""
        self.outcome.records = records
        ended = {(write.writer, write.sequence): write.ended_us for write in history.writes}
        for found in records.findings:
            at_us = ended.get((found.writer, found.sequence), 0)
            self.outcome.findings.append(Finding(What.RECORDS, str(found), at_us))
        if not records.ok and not records.findings:
            self.outcome.findings.append(Finding(What.RECORDS, records.line()))

    def _registered(self) -> dict[int, int]:
        return {
            one.number: one.healed_us + round(one.recovery.reached.get(REGISTERED, WAIT_S) * 1e6)
            for one in self.outcome.played
            if one.recovery is not None
        }


async def _explanations(cluster_state: ClusterState, tls: GrpcTls | None) -> dict[str, str]:
    found = {topic: await explain(cluster_state, tls, deletion=topic) for topic in cluster_state.deleting}
    for topic, info in cluster_state.topics.items():
        for number in {*info.adding, *info.removing, *info.queued}:
            found[f"{topic}-{number}"] = await explain(cluster_state, tls, reassignment=(topic, number))
    return found


def longest_writes(history: History, played: Sequence[Played]) -> list[float]:
    """Of each episode and partition, seconds."""
    longest: dict[tuple[int, int], int] = {}
    for write in history.writes:
        if write.offset is None:
            continue
        for one in played:
            if one.began_us <= write.begun_us < one.recovered_us:
                key = (one.number, write.partition)
                longest[key] = max(longest.get(key, 0), write.ended_us - write.begun_us)
    return [took / 1e6 for took in longest.values()]


async def play(
    plan: Sequence[Episode], seed: int, network: Network, directory: Path, *, secure: bool = False
) -> Outcome:
    own_clocks = any(fault.kind in (Kind.CLOCK, Kind.JUMP) for one in plan for fault in one.faults)
    return await Run(Nodes(directory, network, secure, own_clocks), plan, seed).play()
