"""What operators and brokers ask for, 10,000 partitions at once: deletion, preferred election, controlled shutdown,
reassignment. Each against raw fenced writes of as many partition states, in the same run, taken in turn.

Acceptors stand for the brokers: they answer at once, and what a leader says of its followers is said here.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console
from rich.table import Table

from controller.client import admin
from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr
from controller.runtime.zookeeper import cluster_reader, codecs, jute
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as brokers_pb
from proto.limits import MESSAGE_LIMITS
from tests.bench import cluster
from tests.bench.cluster import BROKERS, Acceptors, ControllerProcess, replicas_of

FIGURES = ("deletion", "election", "shutdown", "reassignment")
#: 60,000 partitions in all, of which each broker leads 10,000; what is changed are 10,000 of them.
TOPICS, PARTITIONS, CHANGED_TOPICS = 1200, 50, 200
CHANGED = CHANGED_TOPICS * PARTITIONS
RUNS = 3
PREFIX = "a"
POLL_S = 0.005
ANSWER_TIMEOUT_S = 120.0
_SERVICE = "/partition_controller.v1.ControllerService/"
console = Console(soft_wrap=True)


def name_of(index: int, prefix: str = PREFIX) -> str:
    return f"{prefix}-{index:05d}"


@dataclass
class Bench:
    """A controller that leads, with every broker told, and an operator's session."""

    session: Session
    controller: ControllerProcess
    endpoint: str

    async def ask(self, method: str, request: Any) -> Any:
        return await admin.ask(self.endpoint, method, request, ANSWER_TIMEOUT_S)

    async def call(self, method: str, request: Any, response: Any) -> Any:
        """As a broker asks."""
        async with grpc.aio.insecure_channel(self.endpoint, options=MESSAGE_LIMITS) as channel:
            call: Any = channel.unary_unary(_SERVICE + method)
            return response.FromString(await call(request.SerializeToString(), timeout=ANSWER_TIMEOUT_S))

    async def quiet(self) -> None:
        await asyncio.to_thread(self.controller.wait_quiet)

    async def epochs(self) -> dict[int, int]:
        """Of the registered brokers."""
        seen = await cluster_reader.look(self.session, topics=())
        return {id_: b.epoch for id_, b in seen.brokers.items()}

    async def raw(self, count: int) -> float:
        """The roofline: fenced writes of so many states. Seconds."""
        return await cluster.raw_sets(self.session, f"/raw-{time.monotonic_ns()}", count)


@asynccontextmanager
async def serving(connect: str, directory: Path) -> AsyncIterator[Bench]:
    """Brokers, a controller that has taken over and told them everything."""
    acceptors = await asyncio.to_thread(Acceptors, connect)
    controller = ControllerProcess(connect, directory)
    try:
        await asyncio.to_thread(controller.wait_for, "ControllerFailover")
        async with cluster_reader.connected(connect, 60_000) as session:
            seen = await cluster_reader.look(session, topics=())
            bench = Bench(session, controller, seen.controller_endpoint)
            await bench.quiet()
            yield bench
    finally:
        controller.stop()
        acceptors.stop()


class Timings:
    """Of one figure: seconds measured, and seconds the raw way took for as many states."""

    def __init__(self, figure: str) -> None:
        self._figure = figure
        self._measured: list[float] = []
        self._raw: list[float] = []
        console.print(f"{figure}:")

    def add(self, measured_s: float, raw_s: float, what: str = "") -> None:
        self._measured.append(measured_s)
        self._raw.append(raw_s)
        console.print(f"  run {len(self._raw)}: {measured_s:.2f} s, raw {raw_s:.2f} s{what}")

    def row(self, rows: Table, count: int, limit: str) -> None:
        measured, raw = statistics.median(self._measured), statistics.median(self._raw)
        ratio = statistics.median(m / r for m, r in zip(self._measured, self._raw, strict=True))
        rows.add_row(
            self._figure,
            f"{measured:.2f} s, {count / measured:,.0f} partitions/s",
            f"{raw:.2f} s raw fenced writes",
            f"{ratio:.1f}",
            limit,
        )


def measure(connect: str, directory: Path, wanted: Iterable[str], rows: Table) -> None:
    """Those of FIGURES that are wanted, in a chroot of their own."""
    asyncio.run(_measure(connect, directory, frozenset(wanted), rows))


async def _measure(connect: str, directory: Path, wanted: frozenset[str], rows: Table) -> None:
    async with cluster_reader.connected(connect, 60_000) as session:
        await cluster.populate(session, PREFIX, TOPICS, PARTITIONS)
        if "deletion" in wanted:
            for run in range(RUNS):
                await cluster.populate(session, f"gone-{run}", CHANGED_TOPICS, PARTITIONS)
        await session.create(znode_paths.CONTROLLER_EPOCH, b"1")
    if "deletion" in wanted:
        await deletion(connect, directory, rows)
    if "election" in wanted:
        await election(connect, directory, rows)
    if "shutdown" in wanted:
        await shutdown(connect, directory, rows)
    if "reassignment" in wanted:
        await reassignment(connect, directory, rows)


# --- deletion --------------------------------------------------------------------------------------------


async def deletion(connect: str, directory: Path, rows: Table) -> None:
    """From the request until the last marker is gone."""
    times = Timings(f"deletion, {CHANGED_TOPICS} topics x {PARTITIONS} partitions")
    async with serving(connect, directory / "deletion") as bench:
        for run in range(RUNS):
            names = [name_of(index, f"gone-{run}") for index in range(CHANGED_TOPICS)]
            request = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=name) for name in names])
            began = time.perf_counter()
            answer = await bench.ask("DeleteTopics", request)
            while await bench.session.children(znode_paths.DELETE_TOPICS):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            took = time.perf_counter() - began
            assert not any(entry.error_code for entry in answer.responses)
            await bench.quiet()
            times.add(took, await bench.raw(CHANGED))
    times.row(rows, CHANGED, "30")


# --- preferred election ----------------------------------------------------------------------------------


async def election(connect: str, directory: Path, rows: Table) -> None:
    """From the request that names 10,000 partitions until its answer, which is when all are durable."""
    times = Timings(f"preferred election, {CHANGED:,} partitions")
    keys = [(name_of(n // PARTITIONS), n % PARTITIONS, replicas_of(n)) for n in range(CHANGED)]
    preferred = _election_of(keys, pb.PREFERRED)
    async with serving(connect, directory / "election") as bench:
        for _ in range(RUNS):
            for leader in range(BROKERS):
                away = [key for key in keys if key[2][1] == leader]
                await _elected(bench, _election_of(away, pb.CHOSEN, leader))
            await bench.quiet()
            began = time.perf_counter()
            await _elected(bench, preferred)
            took = time.perf_counter() - began
            await bench.quiet()
            times.add(took, await bench.raw(CHANGED))
    times.row(rows, CHANGED, "5")


def _election_of(keys: Sequence[tuple[str, int, Any]], kind: Any, leader: int | None = None) -> Any:
    partitions = [common_pb2.PartitionName(topic=topic, partition=number) for topic, number, _ in keys]
    return pb.ElectLeadersRequest(election_type=kind, topic_partitions=partitions, leader=leader)


async def _elected(bench: Bench, request: Any) -> None:
    answer = await bench.ask("ElectLeaders", request)
    assert len(answer.results) == len(request.topic_partitions)
    assert not any(entry.error_code for entry in answer.results)


# --- controlled shutdown ---------------------------------------------------------------------------------


async def shutdown(connect: str, directory: Path, rows: Table) -> None:
    """From a broker's request until the answer that it may go: 10,000 leaders, 20,000 followers."""
    leaders = TOPICS * PARTITIONS // BROKERS
    times = Timings(f"controlled shutdown, {leaders:,} leaders, {3 * leaders:,} replicas")
    written = 0
    for run in range(RUNS):
        async with serving(connect, directory / f"shutdown-{run}") as bench:
            before = await cluster.state_versions(bench.session, PREFIX, TOPICS, PARTITIONS)
            epoch = (await bench.epochs())[0]
            request = brokers_pb.ControlledShutdownRequest(broker_id=0, broker_epoch=epoch)
            began = time.perf_counter()
            answer = await bench.call("ControlledShutdown", request, brokers_pb.ControlledShutdownResponse)
            took = time.perf_counter() - began
            assert answer.error_code == 0
            assert not answer.remaining_partitions
            await bench.quiet()
            after = await cluster.state_versions(bench.session, PREFIX, TOPICS, PARTITIONS)
            written = sum(a != b for a, b in zip(before, after, strict=True))
            times.add(took, await bench.raw(written), f", {written:,} states")
        async with cluster_reader.connected(connect, 60_000) as session:
            await cluster.restore(session, PREFIX, TOPICS, PARTITIONS)
    times.row(rows, written, "5")


# --- reassignment ----------------------------------------------------------------------------------------


async def reassignment(connect: str, directory: Path, rows: Table) -> None:
    """One replica of each partition goes elsewhere; no cap on concurrent moves.

    From the request until its answer, and from the leaders' word that the new replicas are in sync until every
    topic znode is final and every old replica known to be deleted. What the leaders need in between is not counted.
    """
    times = Timings(f"reassignment, {CHANGED:,} partitions, one replica each")
    async with serving(connect, directory / "reassignment") as bench:
        epochs = await bench.epochs()
        for run in range(RUNS):
            numbers = range(run * CHANGED, (run + 1) * CHANGED)
            targets = {(name_of(n // PARTITIONS), n % PARTITIONS): moved(replicas_of(n)) for n in numbers}
            request = pb.AlterPartitionReassignmentsRequest(
                partitions=[
                    pb.ReassignablePartition(
                        topic=topic, partition=number, replicas=pb.ReplicaList(broker_ids=ids)
                    )
                    for (topic, number), ids in targets.items()
                ]
            )
            began = time.perf_counter()
            answer = await bench.ask("AlterPartitionReassignments", request)
            begun = time.perf_counter() - began
            assert not any(entry.error_code for entry in answer.responses)
            await bench.quiet()
            caught_up = await _caught_up(bench.session, targets, epochs)
            began = time.perf_counter()
            await asyncio.gather(
                *(bench.call("AlterPartition", r, brokers_pb.AlterPartitionResponse) for r in caught_up)
            )
            await _final(bench.session, sorted({topic for topic, _ in targets}))
            ended = time.perf_counter() - began
            await bench.quiet()
            what = f" (begun {begun:.2f} s, ended {ended:.2f} s)"
            times.add(begun + ended, await bench.raw(CHANGED), what)
    times.row(rows, CHANGED, "80")


def moved(replicas: Sequence[int]) -> list[int]:
    """Another broker instead of the last."""
    return [*replicas[:-1], next(b for b in range(BROKERS) if b not in replicas)]


async def _caught_up(
    session: Session, targets: dict[tuple[str, int], list[int]], epochs: dict[int, int]
) -> list[Any]:
    """What leaders say once the new replicas have everything: a request each."""
    paths = [znode_paths.state_path(topic, number) for topic, number in targets]
    proposals: dict[int, list[Any]] = {}
    for ((topic, number), target), node in zip(targets.items(), await session.bulk_get(paths), strict=True):
        assert isinstance(node, jute.Node)
        state: LeaderAndIsr = codecs.decode_state(topic, number, node.data, node.version)
        proposals.setdefault(state.leader, []).append(
            brokers_pb.AlterPartitionState(
                topic=topic,
                partition=number,
                leader_epoch=state.leader_epoch,
                new_isr=dict.fromkeys([*state.isr, *target]),
                partition_epoch=state.partition_epoch,
            )
        )
    return [
        brokers_pb.AlterPartitionRequest(broker_id=leader, broker_epoch=epochs[leader], partitions=altered)
        for leader, altered in proposals.items()
    ]


async def _final(session: Session, topics: Sequence[str]) -> None:
    """Until nothing of a move is recorded in any of the topics' znodes any more."""
    left = [znode_paths.topic_path(topic) for topic in topics]
    while left:
        # One is looked at until it is done, then all: that costs the server least.
        if _is_final((await session.bulk_get(left[-1:]))[0]):
            nodes = await session.bulk_get(left)
            left = [path for path, node in zip(left, nodes, strict=True) if not _is_final(node)]
        else:
            await asyncio.sleep(POLL_S)


def _is_final(node: jute.Node | int) -> bool:
    assert isinstance(node, jute.Node)
    return nothing_moves(codecs.decode_topic("t", node.data, node.czxid, node.version))


def nothing_moves(info: TopicInfo) -> bool:
    return not (info.adding or info.removing or info.original or info.stray)
