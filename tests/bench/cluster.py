"""A cluster for figures: data made by bulk writes, acceptors, a real controller process, and raw baselines."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr
from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import Session
from tests.support.ports import free_port

BROKERS = int(os.environ.get("BROKERS", "6"))
REPLICATION = 3
BATCH = 1000


def replicas_of(number: int) -> tuple[int, ...]:
    """Spread so that each broker leads a sixth and every pair of brokers shares partitions."""
    first = number % BROKERS
    step = 1 + (number // BROKERS) % (BROKERS - 1)
    second = (first + step) % BROKERS
    third = next(
        b % BROKERS for b in range(second + 1, second + BROKERS) if b % BROKERS not in (first, second)
    )
    return (first, second, third)


def topic(name: str, partitions: int, first: int) -> TopicInfo:
    assignment = {n: replicas_of(first + n) for n in range(partitions)}
    return TopicInfo(name, f"{abs(hash(name)):021d}"[:21] + "A", assignment, {}, {}, -1, 0)


@contextmanager
def loop_session(connect: str) -> Iterator[tuple[asyncio.AbstractEventLoop, Session]]:
    """A session of our own on a private loop, for populating and for the raw way of doing things."""
    loop = asyncio.new_event_loop()

    async def make() -> Session:
        session = Session(connect, 60_000, lambda _: None, ZooKeeperMetrics(CollectorRegistry()))
        await session.start(30)
        return session

    session = loop.run_until_complete(make())
    try:
        yield loop, session
    finally:
        loop.run_until_complete(session.close())
        loop.close()


async def pipelined(session: Session, multis: list[list[bytes]], window: int = 6) -> None:
    """Send multis, a few in flight, in order."""
    gate = asyncio.Semaphore(window)

    async def one(ops: list[bytes]) -> None:
        async with gate:
            await session.multi(ops)

    await asyncio.gather(*(one(ops) for ops in multis))


async def populate(session: Session, prefix: str, topics: int, partitions: int) -> None:
    """Topics with states as a healthy cluster has them: preferred leaders, full ISRs."""
    for path in znode_paths.PERSISTENT:
        await session.ensure(path)
    pack = session.packed_path
    multis: list[list[bytes]] = []
    ops: list[bytes] = []
    for index in range(topics):
        info = topic(f"{prefix}-{index:05d}", partitions, index * partitions)
        base = znode_paths.topic_path(info.name)
        ops.append(jute.op_create(pack(base), codecs.encode_topic(info)))
        ops.append(jute.op_create(pack(f"{base}/partitions"), b""))
        for number, replicas in info.partitions.items():
            state = LeaderAndIsr(replicas[0], (index * 7 + number) % 50, replicas, 0, 1)
            ops.append(jute.op_create(pack(f"{base}/partitions/{number}"), b""))
            ops.append(jute.op_create(pack(f"{base}/partitions/{number}/state"), codecs.encode_state(state)))
        if len(ops) > BATCH:
            multis.append(ops)
            ops = []
    multis.append(ops)
    await pipelined(session, [m for m in multis if m])


def all_states(prefix: str, topics: int, partitions: int) -> list[str]:
    return [znode_paths.state_path(f"{prefix}-{i:05d}", n) for i in range(topics) for n in range(partitions)]


async def state_versions(session: Session, prefix: str, topics: int, partitions: int) -> list[int]:
    nodes = await session.bulk_get(all_states(prefix, topics, partitions))
    return [node.version for node in nodes if isinstance(node, jute.Node)]


async def restore(session: Session, prefix: str, topics: int, partitions: int) -> None:
    """Preferred leaders and full ISRs again, as if every follower had caught up."""
    pack = session.packed_path
    ops = []
    for n, path in enumerate(all_states(prefix, topics, partitions)):
        replicas = replicas_of(n)
        state = LeaderAndIsr(replicas[0], n % 50, replicas, 0, 1)
        ops.append(jute.op_set(pack(path), codecs.encode_state(state), -1))
    await pipelined(session, [ops[i : i + BATCH] for i in range(0, len(ops), BATCH)])


async def raw_scan(session: Session, paths: list[str]) -> float:
    """The roofline of a failover: read and decode every state, nothing else. Seconds."""
    began = time.perf_counter()
    packed = [session.packed_path(path) for path in paths]
    count = 0
    async for nodes in session.bulk_get_chunks(packed):
        for node in nodes:
            assert isinstance(node, jute.Node)
            codecs.decode_state("t", 0, node.data, node.version)
            count += 1
    assert count == len(paths)
    return time.perf_counter() - began


async def raw_sets(session: Session, root: str, count: int) -> float:
    """The roofline of a broker failure: as many fenced bulk writes of states, versions known. Seconds."""
    pack = session.packed_path
    await session.ensure(root)
    paths = [pack(f"{root}/n{n:06d}") for n in range(count)]
    data = codecs.encode_state(LeaderAndIsr(1, 4, (1, 2, 3), 0, 7))
    await pipelined(
        session, [[jute.op_create(p, data) for p in paths[i : i + BATCH]] for i in range(0, count, BATCH)]
    )
    fence = await _fence(session)
    began = time.perf_counter()
    await pipelined(
        session,
        [[fence, *(jute.op_set(p, data, 0) for p in paths[i : i + BATCH])] for i in range(0, count, BATCH)],
    )
    return time.perf_counter() - began


async def raw_creates(session: Session, root: str, topics: int, partitions: int) -> float:
    """The roofline of topic creation: the same znodes by fenced bulk creates. Seconds."""
    pack = session.packed_path
    await session.ensure(root)
    fence = await _fence(session)
    data = codecs.encode_state(LeaderAndIsr(1, 0, (1, 2, 3), 0, 7))
    began = time.perf_counter()
    multis = []
    for index in range(topics):
        base = f"{root}/t{index}"
        ops = [fence, jute.op_create(pack(base), b""), jute.op_create(pack(f"{base}/partitions"), b"")]
        for number in range(partitions):
            ops.append(jute.op_create(pack(f"{base}/partitions/{number}"), b""))
            ops.append(jute.op_create(pack(f"{base}/partitions/{number}/state"), data))
        multis.append(ops)
    await pipelined(session, multis)
    return time.perf_counter() - began


def plain_scan(connect: str, paths: list[str]) -> float:
    """The plain way: kazoo's own single reads, pipelined. Seconds for these paths."""
    client = KazooClient(connect)
    client.start(20)
    began = time.perf_counter()
    for start in range(0, len(paths), BATCH):
        for answer in [client.get_async(path) for path in paths[start : start + BATCH]]:
            data, stat = answer.get()
            codecs.decode_state("t", 0, data, stat.version)
    took = time.perf_counter() - began
    client.stop()
    client.close()
    return took


async def _fence(session: Session) -> bytes:
    _, stat = await session.get(znode_paths.CONTROLLER_EPOCH)
    return jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), stat.version)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def together_cpu_s() -> float:
    """Of this process and all that it has started and that still run: servers, brokers, controllers."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return time.process_time() + sum(cpu_seconds(int(pid)) for pid in children)


class Acceptors:
    """The broker side, in a process of its own."""

    module = "tests.bench.acceptors"

    def __init__(
        self,
        connect: str,
        *,
        first: int = 0,
        count: int = BROKERS,
        timeout_s: float = 30.0,
        hold: bool = False,
    ) -> None:
        """``count`` brokers from id ``first`` on. ``hold``: they keep what they are told, and can say it."""
        command = [sys.executable, "-m", self.module, connect, str(first), str(count), str(timeout_s)]
        self._process = subprocess.Popen(
            [*command, "hold"] if hold else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"

    def command(self, text: str) -> tuple[float, float]:
        """(bytes, requests) accepted so far."""
        first, second = self._answer(text).split()
        return float(first), float(second)

    def _answer(self, text: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def kill(self) -> None:
        """As a crash: their sessions end when they time out."""
        self._process.kill()
        self._process.wait(20)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


class ControllerProcess:
    """The real daemon; what it did is read from its own log."""

    def __init__(
        self, connect: str, directory: Path, *, session_timeout_ms: int = 30_000, **settings: object
    ) -> None:
        """``settings``: others than the defaults, by name."""
        directory.mkdir(parents=True)
        self.log_path = directory / "daemon.log"
        self.http = f"127.0.0.1:{free_port()}"
        with self.log_path.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "controller.cli.main"),
                    "run",
                    f"--zookeeper={connect}",
                    "--grpc-listen=127.0.0.1:0",
                    f"--http-listen={self.http}",
                    f"--state-log-dir={directory / 'state-log'}",
                    f"--session-timeout-ms={session_timeout_ms}",
                ],
                stderr=out,
                # Leaders that return by themselves would be written in the middle of a measurement; a log in several
                # files would be harder to read.
                env=os.environ
                | {
                    "PARTITION_CONTROLLER_AUTO_LEADER_REBALANCE_ENABLE": "false",
                    "PARTITION_CONTROLLER_STATE_LOG_ROTATE_BYTES": str(2**40),
                }
                | {f"PARTITION_CONTROLLER_{name.upper()}": str(value) for name, value in settings.items()},
            )

    def events(self) -> list[dict[str, Any]]:
        lines = self.log_path.read_text().splitlines()
        return [row for line in lines if (row := json.loads(line)).get("event") == "event_processed"]

    def wait_for(self, handled: str, count: int = 1, timeout_s: float = 120.0) -> dict[str, Any]:
        """The ``count``-th processed event of a kind."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = [event for event in self.events() if event["handled"] == handled]
            if len(found) >= count:
                return found[count - 1]
            if self.process.poll() is not None:
                raise RuntimeError(f"the controller ended: {self.log_path.read_text()[-2000:]}")
            time.sleep(0.02)
        raise TimeoutError(f"no {handled} event: {self.log_path.read_text()[-2000:]}")

    def wait_quiet(self, timeout_s: float = 120.0) -> None:
        """Until every push is acknowledged and the state log is written."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            asked_at = time.monotonic()
            state = self.state()
            # Looking at very many partitions takes the controller's time: most of it must be left to it.
            pause_s = max(0.05, 5 * (time.monotonic() - asked_at))
            pending = sum(b["pending"] for b in state["term"]["brokers"].values())
            if pending == 0 and state["state_log"]["queued"] == 0:
                return
            time.sleep(pause_s)
        raise TimeoutError("pushes were not acknowledged in time")

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.http}/state", timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def metric(self, name: str) -> float:
        """One without labels; 0 before it is known, and while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Of its state-change log."""
        lines = (self.log_path.parent / "state-log" / "state-change.jsonl").read_text().splitlines()
        return [row for line in lines if (row := json.loads(line))["kind"] == kind]

    def phases_ms(self) -> dict[str, float]:
        """Where the failover's time went, from the state-change log."""
        records = map(json.loads, (self.log_path.parent / "state-log" / "state-change.jsonl").open())
        return {r["to"]: round(r["duration_us"] / 1000) for r in records if r["kind"] == "failover"}

    def memory_mb(self) -> tuple[float, float]:
        """(now, peak) resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        values = {
            line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")
        }
        return int(values["VmRSS"]) / 1024, int(values["VmHWM"]) / 1024

    def cpu_s(self) -> float:
        """User and system time so far."""
        return cpu_seconds(self.process.pid)

    def wait_warm(self, partitions: int, timeout_s: float = 1200.0) -> None:
        """Until it has everything in memory, and the digests of all of it: 20,000 states a second are read, and as many
        hashed, where nothing else is at work."""
        deadline = time.monotonic() + timeout_s
        while not self._is_warm(partitions):
            if time.monotonic() > deadline:
                raise TimeoutError("the standby has not read all states in time")
            time.sleep(0.5)

    def _is_warm(self, partitions: int) -> bool:
        if self.metric("partition_controller_standby_states") < partitions:
            return False
        time.sleep(2)  # the last read is followed by the mirror's being complete
        return self.metric("partition_controller_standby_undigested_topics") == 0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
