"""A cluster that is at work: what it costs while nothing happens, and how soon a controller reacts while much does.

Topics are created, leaders change ISRs, and brokers are restarted one after the other, with an active controller and a
standby. Latencies are from the moment that something is asked for, or from the time that ZooKeeper gave a znode, to the
answer, or to the last broker's acknowledgement. Pauses are those that the controller's event loop measured itself.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from controller.core import znode_paths
from controller.core.model import LeaderAndIsr
from controller.runtime.zookeeper import cluster_reader, codecs, jute
from controller.runtime.zookeeper.session import Session
from proto.gen import controller_service_pb2 as pb
from proto.limits import MESSAGE_LIMITS
from tests.bench import cluster
from tests.bench.cluster import BROKERS, Acceptors, ControllerProcess, replicas_of

#: Each phase.
SECONDS = int(os.environ.get("PHASE_SECONDS", "30"))
PREFIX, PARTITIONS = "a", 50
#: Of brokers; all of a hundred take long.
RESTARTS = min(int(os.environ.get("RESTARTS", "10")), BROKERS)
TOPICS_PER_S, TOPIC_PARTITIONS = 100, 3
CHANGES_PER_S = 1000
#: What goes on while brokers are restarted.
MEANWHILE_TOPICS_PER_S, MEANWHILE_CHANGES_PER_S = 5, 50
#: Partitions of one leader whose followers have caught up, in one request.
CAUGHT_UP = 500
#: A pause is told of for so long: two windows of the probe.
PAUSE_TOLD_S = 30.0
#: For how long a broker that came or went does not count.
MOVED_S = 60.0
#: ``controlled.shutdown.max.retries``.
SHUTDOWN_ATTEMPTS = 3
#: Prometheus asks that often.
SCRAPE_S = 15.0
QUIET_S = 1800.0
_SERVICE = "/partition_controller.v1.ControllerService/"
_PAUSE = 'partition_controller_event_loop_pause_seconds{{clock="{}"}}'
_QUEUED = "kafka_controller_controllerchannelmanager_totalqueuesize"
_BROKER_CHANGES = 'kafka_controller_controllerstats_rateandtime_seconds_count{state="BrokerChange"}'
console = Console(soft_wrap=True)


class Spent(NamedTuple):
    """Of a controller's CPU, seconds: in all, of its decisions, of the thread that writes the state-change log; and
    that log's megabytes."""

    cpu_s: float
    decisions_s: float
    log_s: float
    log_mb: float

    @classmethod
    def of(cls, controller: ControllerProcess) -> Spent:
        metric = controller.metric
        return cls(
            controller.cpu_s(),
            metric("partition_controller_decision_cpu_seconds_total"),
            metric("partition_controller_state_log_cpu_seconds"),
            metric("partition_controller_state_log_bytes") / 1e6,
        )

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))

    def told(self, what: str) -> None:
        console.print(
            f"  {what}: CPU {self.cpu_s:.1f} s, of it decisions {self.decisions_s:.2f} s, state-change log"
            f" {self.log_s:.2f} s for {self.log_mb:.1f} MB"
        )


@dataclass
class Watched:
    """A controller in a phase: its CPU, and its longest pauses by the clock and of its own work."""

    controller: ControllerProcess
    cpu_s: float = 0.0
    log: Spent = field(init=False)

    def __post_init__(self) -> None:
        self.log = Spent.of(self.controller)

    pauses: dict[str, float] = field(default_factory=lambda: {"elapsed": 0.0, "cpu": 0.0})

    def look(self) -> None:
        for clock, longest in self.pauses.items():
            self.pauses[clock] = max(longest, self.controller.metric(_PAUSE.format(clock)))


@asynccontextmanager
async def watched(*controllers: ControllerProcess) -> AsyncIterator[list[Watched]]:
    """The CPU that they take, as a share of one processor, and their pauses; what was before is forgotten."""
    await asyncio.sleep(PAUSE_TOLD_S)
    found = [Watched(c) for c in controllers]

    async def scrape() -> None:
        while True:
            await asyncio.sleep(SCRAPE_S)
            for each in found:
                await asyncio.to_thread(each.look)

    before, began = [c.cpu_s() for c in controllers], time.monotonic()
    scraping = asyncio.create_task(scrape())
    try:
        yield found
    finally:
        scraping.cancel()
        took = time.monotonic() - began
        for each, cpu in zip(found, before, strict=True):
            each.cpu_s = (each.controller.cpu_s() - cpu) / took
            await asyncio.to_thread(each.look)


class Log:
    """What a controller's state-change log says from now on."""

    def __init__(self, controller: ControllerProcess) -> None:
        self._path = controller.log_path.parent / "state-log" / "state-change.jsonl"
        self._start = self._path.stat().st_size

    def records(self) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._start)
            return [json.loads(line) for line in file]


class Acks(NamedTuple):
    """The acknowledgements of UpdateMetadata by one broker, in order: events, and times."""

    events: list[int]
    times: list[float]


def told_s(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By topic: when the last broker acknowledged metadata that has its first leaders. Brokers that went or came
    shortly before, or meanwhile, do not count: they have other things to be told first."""
    acks: dict[int, Acks] = {}
    events: dict[str, tuple[int, float]] = {}
    moved: dict[int, list[float]] = {}
    for r in records:
        at = datetime.fromisoformat(r["ts"]).timestamp()
        if r["kind"] == "leader":
            events.setdefault(r["topic"], (r["event_id"], at))
        elif r["kind"] == "broker":
            moved.setdefault(r["replica"], []).append(at)
        elif r["kind"] == "ack" and r["to"] == "UpdateMetadata":
            known = acks.setdefault(r["replica"], Acks([], []))
            known.events.append(r["event_id"])
            known.times.append(at)
    found = {}
    for topic, (event, at) in events.items():
        found[topic] = 0.0
        for broker_id, known in acks.items():
            first = bisect_left(known.events, event)
            told = known.times[first] if first < len(known.events) else 0.0
            if not any(at - MOVED_S < m < told for m in moved.get(broker_id, ())):
                found[topic] = max(found[topic], told)
    return found


class Brokers:
    """Leaders that propose ISRs, each with one request under way, as brokers have (KIP-497)."""

    def __init__(self, session: Session, endpoint: str) -> None:
        self._session = session
        self._channel = grpc.aio.insecure_channel(endpoint, options=MESSAGE_LIMITS)
        self.epochs: dict[int, int] = {}
        self.latencies: list[float] = []
        self.refused = 0

    async def look(self) -> None:
        seen = await cluster_reader.look(self._session, topics=())
        self.epochs = {id_: b.epoch for id_, b in seen.brokers.items()}

    async def call(self, method: str, request: Any, response: Any) -> Any:
        call: Any = self._channel.unary_unary(_SERVICE + method)
        return response.FromString(await call(request.SerializeToString(), timeout=QUIET_S))

    async def alter(self, leader: int, altered: list[Any]) -> Any:
        request = pb.AlterPartitionRequest(
            broker_id=leader, broker_epoch=self.epochs.get(leader, -1), partitions=altered
        )
        return await self.call("AlterPartition", request, pb.AlterPartitionResponse)

    async def states(self, keys: Sequence[tuple[str, int]]) -> list[LeaderAndIsr]:
        nodes = await self._session.bulk_get([znode_paths.state_path(*key) for key in keys])
        return [
            codecs.decode_state(*key, node.data, node.version)
            for key, node in zip(keys, nodes, strict=True)
            if isinstance(node, jute.Node)
        ]

    async def change(self, keys: Sequence[tuple[str, int]], per_s: int, until_s: float) -> None:
        """Followers fall behind and catch up, evenly spread; each change waits for its leader's request before."""
        states = dict(zip(keys, await self.states(keys), strict=True))
        waiting: dict[int, list[tuple[tuple[str, int], float]]] = {}
        sending: dict[int, asyncio.Task[None]] = {}

        async def send(leader: int) -> None:
            while due := waiting.pop(leader, None):
                answer = await self.alter(leader, [_other_isr(key, states[key]) for key, _ in due])
                now = time.monotonic()
                self.latencies += [now - at for _, at in due]
                self.refused += len(due) if answer.error_code else 0
                for p in answer.partitions:
                    key = p.topic, p.partition
                    if p.error_code:
                        self.refused += 1
                        (states[key],) = await self.states([key])
                    else:
                        states[key] = LeaderAndIsr(
                            p.leader, p.leader_epoch, tuple(p.isr), p.partition_epoch, 0
                        )
            del sending[leader]

        began, number = time.monotonic(), 0
        while (now := time.monotonic()) < until_s:
            while number < (now - began) * per_s:
                key = keys[number % len(keys)]
                due = began + number / per_s
                number += 1
                leader = states[key].leader
                waiting.setdefault(leader, []).append((key, due))
                if leader not in sending:
                    sending[leader] = asyncio.create_task(send(leader))
            await asyncio.sleep(0.005)
        await asyncio.gather(*sending.values())

    async def caught_up(self, broker_id: int, keys: Sequence[tuple[str, int]]) -> None:
        """Leaders take a broker into the ISRs again."""
        by_leader: dict[int, list[Any]] = {}
        # In parts: what else is asked meanwhile must not wait for this process.
        for start in range(0, len(keys), CAUGHT_UP):
            part = keys[start : start + CAUGHT_UP]
            for key, state in zip(part, await self.states(part), strict=True):
                if broker_id not in state.isr and state.leader >= 0:
                    proposal = _proposal(key, state, [*state.isr, broker_id])
                    by_leader.setdefault(state.leader, []).append(proposal)

        async def tell(leader: int, altered: list[Any]) -> None:
            for start in range(0, len(altered), CAUGHT_UP):
                await self.alter(leader, altered[start : start + CAUGHT_UP])

        await asyncio.gather(*(tell(leader, altered) for leader, altered in by_leader.items()))

    async def close(self) -> None:
        await self._channel.close()


def _proposal(key: tuple[str, int], state: LeaderAndIsr, isr: Sequence[int]) -> Any:
    return pb.AlterPartitionState(
        topic=key[0],
        partition=key[1],
        leader_epoch=state.leader_epoch,
        new_isr=isr,
        partition_epoch=state.partition_epoch,
    )


def _other_isr(key: tuple[str, int], state: LeaderAndIsr) -> Any:
    """Without its last follower, or with all that are assigned."""
    full = _replicas_of(key)
    isr = [b for b in full if b != (full[2] if state.leader != full[2] else full[1])]
    return _proposal(key, state, isr if len(state.isr) == len(full) else full)


def _replicas_of(key: tuple[str, int]) -> tuple[int, ...]:
    """Of a partition that was there, or was created since."""
    prefix, _, number = key[0].rpartition("-")
    return replicas_of(int(number) * (PARTITIONS if prefix == PREFIX else 1) + key[1])


async def create(client: KazooClient, prefix: str, per_s: int, until_s: float) -> list[str]:
    """Topics at a rate, as a tool creates them; their names."""
    names: list[str] = []
    began = time.monotonic()
    while (now := time.monotonic()) < until_s:
        while len(names) < (now - began) * per_s:
            name = f"{prefix}-{len(names):05d}"
            info = cluster.topic(name, TOPIC_PARTITIONS, len(names))
            client.create_async(znode_paths.topic_path(name), codecs.encode_topic(info))
            names.append(name)
        await asyncio.sleep(0.005)
    return names


def created_s(client: KazooClient, names: Iterable[str]) -> dict[str, float]:
    """When ZooKeeper created the topics."""
    asked = {name: client.exists_async(znode_paths.topic_path(name)) for name in names}
    return {name: answer.get().ctime / 1000 for name, answer in asked.items()}


@dataclass
class Bench:
    """An active controller with everything told, and a standby that has everything in memory."""

    client: KazooClient
    brokers: Brokers
    acceptors: Acceptors
    active: ControllerProcess
    standby: ControllerProcess
    keys: list[tuple[str, int]]
    rows: Table

    async def quiet(self) -> None:
        """Every broker has answered what was to be told."""
        while await asyncio.to_thread(self.active.metric, _QUEUED):  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def log_written(self) -> None:
        while await asyncio.to_thread(self.active.metric, "partition_controller_state_log_queued"):  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    def latencies(self, what: str, found: Sequence[float], limit: str) -> None:
        ordered = sorted(found)
        p99, p50 = ordered[len(ordered) * 99 // 100], statistics.median(ordered)
        self.rows.add_row(
            f"{what}, p99 of {len(found):,}",
            f"{p99:.3f} s",
            f"{p50:.3f} s p50; {ordered[-1]:.3f} s",
            "",
            limit,
        )
        console.print(f"  {what}: p50 {p50:.3f} s, p99 {p99:.3f} s, longest {ordered[-1]:.3f} s, {_load()}")

    def pauses(self, what: str, found: Sequence[Watched]) -> None:
        Spent.of(found[0].controller).since(found[0].log).told(what)
        for name, each in zip(("active", "standby"), found, strict=True):
            clock, cpu = each.pauses["elapsed"], each.pauses["cpu"]
            self.rows.add_row(
                f"{what}: longest pause of the {name}",
                f"{cpu:.3f} s",
                f"{clock:.3f} s by the clock",
                "",
                "0.05 s",
            )
            console.print(
                f"  {what}: {name} takes {100 * each.cpu_s:.1f} % of a processor, longest pause {1000 * cpu:.0f} ms"
                f" ({1000 * clock:.0f} ms by the clock), {_load()}"
            )


def _load() -> str:
    return f"load {os.getloadavg()[0]:.0f}"


def measure(connect: str, directory: Path, topics: int, rows: Table) -> None:
    """``topics`` of 50 partitions each are there."""
    base = _empty_mb(connect, directory)
    acceptors = Acceptors(connect)
    active = ControllerProcess(connect, directory / "steady-active")
    standby = None
    try:
        active.wait_for("ControllerFailover", timeout_s=600)
        active.wait_quiet(600)
        Spent.of(active).told("failover, everything told")
        standby = ControllerProcess(connect, directory / "steady-standby", controller_id=2)
        count = topics * PARTITIONS
        standby.wait_warm(count)
        keys = [(f"{PREFIX}-{t:05d}", n) for t in range(topics) for n in range(PARTITIONS)]
        asyncio.run(_phases(connect, acceptors, active, standby, keys, rows))
        for name, process in (("active", active), ("standby", standby)):
            now, peak = process.memory_mb()
            kb = (now - base) * 1024 / count
            what = f"memory of the {name}, {count:,} partitions"
            rows.add_row(what, f"{now:.0f} MB", "KB a partition, beyond an empty one's", f"{kb:.2f}", "0.6")
            console.print(
                f"  {what}: {now:.0f} MB, peak {peak:.0f} MB, empty {base:.0f} MB: {kb:.2f} KB each"
            )
    finally:
        for each in (active, standby):
            if each is not None:
                each.stop()
        acceptors.stop()


def _empty_mb(connect: str, directory: Path) -> float:
    """Memory of a controller without partitions."""
    empty = ControllerProcess(connect + "-empty", directory / "steady-empty")
    empty.wait_for("ControllerFailover")
    time.sleep(2)
    found = empty.memory_mb()[0]
    empty.stop()
    return found


async def _phases(
    connect: str,
    acceptors: Acceptors,
    active: ControllerProcess,
    standby: ControllerProcess,
    keys: list[tuple[str, int]],
    rows: Table,
) -> None:
    client = KazooClient(connect, timeout=60)
    await asyncio.to_thread(client.start, 30)
    async with cluster_reader.connected(connect, 60_000) as session:
        seen = await cluster_reader.look(session, topics=())
        brokers = Brokers(session, seen.controller_endpoint)
        bench = Bench(client, brokers, acceptors, active, standby, keys, rows)
        try:
            await brokers.look()
            await bench.quiet()
            await bench.log_written()
            await idle(bench)
            await creations(bench)
            await isr_changes(bench)
            await restarts(bench)
        finally:
            await brokers.close()
            client.stop()
            client.close()


async def idle(bench: Bench) -> None:
    async with watched(bench.active, bench.standby) as found:
        await asyncio.sleep(2 * SECONDS)
    bench.pauses("idle", found)
    for name, each in zip(("active", "standby"), found, strict=True):
        bench.rows.add_row(f"idle, CPU of the {name}", f"{60 * each.cpu_s:.2f} s", "a minute", "", "")


async def creations(bench: Bench) -> None:
    log = Log(bench.active)
    async with watched(bench.active, bench.standby) as found:
        names = await create(bench.client, "new", TOPICS_PER_S, time.monotonic() + SECONDS)
        await asyncio.sleep(2)
        await bench.quiet()
    bench.keys += [(name, number) for name in names for number in range(TOPIC_PARTITIONS)]
    await bench.log_written()
    bench.latencies(f"creation of {TOPICS_PER_S} topics a second, told", _took(bench, log, names), "0.1 s")
    bench.pauses("creations", found)


def _took(bench: Bench, log: Log, names: Sequence[str]) -> list[float]:
    told, created = told_s(log.records()), created_s(bench.client, names)
    return [told[name] - created[name] for name in names]


async def isr_changes(bench: Bench) -> None:
    brokers = bench.brokers
    brokers.latencies, brokers.refused = [], 0
    # Of all topics, and no partition again before its last answer.
    keys = bench.keys[:: max(len(bench.keys) // (20 * CHANGES_PER_S), 1)]
    async with watched(bench.active, bench.standby) as found:
        await brokers.change(keys, CHANGES_PER_S, time.monotonic() + SECONDS)
        await bench.quiet()
    bench.latencies(f"{CHANGES_PER_S:,} ISR changes a second, answered", brokers.latencies, "0.1 s")
    if brokers.refused:
        console.print(f"  refused: {brokers.refused:,}")
    bench.pauses("ISR changes", found)


async def restarts(bench: Bench) -> None:
    """Brokers one after the other: asked to go, gone, back, told everything, and in sync again."""
    brokers, active = bench.brokers, bench.active
    brokers.latencies, brokers.refused = [], 0
    log = Log(active)
    until_s = time.monotonic() + QUIET_S
    hosted: dict[int, list[tuple[str, int]]] = {}
    for key in bench.keys:
        for replica in _replicas_of(key):
            hosted.setdefault(replica, []).append(key)
    # A collection of all these would hold up the requests that are timed.
    gc.collect()
    gc.freeze()
    async with watched(bench.active, bench.standby) as found:
        meanwhile = asyncio.create_task(
            brokers.change(bench.keys[::97], MEANWHILE_CHANGES_PER_S, until_s), name="changes"
        )
        creating = asyncio.create_task(_while_restarting(bench, until_s))
        took: list[float] = []
        cpu_before = _cpu(bench)
        for broker_id in range(RESTARTS):
            began = time.monotonic()
            await _restart(bench, broker_id, hosted[broker_id])
            took.append(time.monotonic() - began)
        cpu = [(now - then) / RESTARTS for now, then in zip(_cpu(bench), cpu_before, strict=True)]
        for task in (meanwhile, creating):
            task.cancel()
        await asyncio.gather(meanwhile, creating, return_exceptions=True)
        await bench.quiet()
    await bench.log_written()
    console.print(
        f"  {RESTARTS} restarts of {BROKERS} brokers, {statistics.median(took):.1f} s each; CPU of each: active"
        f" {cpu[0]:.1f} s, standby {cpu[1]:.1f} s, ZooKeeper, brokers and clients {cpu[2]:.1f} s"
    )
    bench.latencies("ISR changes while brokers are restarted, answered", brokers.latencies, "0.1 s")
    told = told_s(log.records())
    created = created_s(bench.client, (name for name in told if name.startswith("meanwhile")))
    bench.latencies(
        "creation of topics while brokers are restarted, told",
        [told[name] - at for name, at in created.items() if told[name]],
        "0.1 s",
    )
    bench.pauses("restarts", found)


def _cpu(bench: Bench) -> tuple[float, float, float]:
    """Of the active, the standby, and all others, seconds."""
    active, standby = bench.active.cpu_s(), bench.standby.cpu_s()
    return active, standby, cluster.together_cpu_s() - active - standby


async def _while_restarting(bench: Bench, until_s: float) -> None:
    await create(bench.client, "meanwhile", MEANWHILE_TOPICS_PER_S, until_s)


async def _restart(bench: Bench, broker_id: int, hosted: Sequence[tuple[str, int]]) -> None:
    brokers, active = bench.brokers, bench.active
    # As often as brokers ask that nobody else could lead for.
    for _ in range(SHUTDOWN_ATTEMPTS):
        request = pb.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=brokers.epochs[broker_id])
        answer = await brokers.call("ControlledShutdown", request, pb.ControlledShutdownResponse)
        if not answer.remaining_partitions:
            break
    for command in ("drop", "start"):
        handled = await asyncio.to_thread(active.metric, _BROKER_CHANGES)
        await asyncio.to_thread(bench.acceptors.command, f"{command} {broker_id}")
        while await asyncio.to_thread(active.metric, _BROKER_CHANGES) == handled:  # noqa: ASYNC110
            await asyncio.sleep(0.25)
    await brokers.look()
    await bench.quiet()
    await brokers.caught_up(broker_id, hosted)
