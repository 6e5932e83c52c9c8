"""``make bench-peers``: our controller and Kafka 3.9.1's own in ZooKeeper mode, one after the other, in one table.

The same for both: a fresh ZooKeeper server of the same kind and fsync setting, the same topics, six brokers that speak
Kafka's protocol and acknowledge at once (``tests.kafka.side_by_side.acceptors``), the same requests. Kafka's controller
lives in a seventh broker, which has no replicas. Times of writes are those that ZooKeeper put on the znodes, never
those of a poll; each is taken only once all states were read and found as they should be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr
from controller.embedded_kafka import jars
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper, four_letter_word
from controller.maven import UnreachableFault
from controller.runtime.zookeeper import codecs
from proto.gen.kafka.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from proto.gen.kafka.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from proto.gen.kafka.alter_partition_request import AlterPartitionRequest, PartitionData, TopicData
from proto.gen.kafka.alter_partition_response import AlterPartitionResponse
from tests.bench import cluster
from tests.bench.changes import moved, name_of, nothing_moves
from tests.bench.cluster import BROKERS, Acceptors, ControllerProcess, loop_session
from tests.bench.succession import at_s
from tests.kafka.cluster import FIRST_CONTROLLER_ID, ports
from tests.kafka.requests import ask
from tests.support.kafka.brokers import Broker

PARTITIONS = 50
#: A tenth of the partitions is created, deleted and reassigned.
CHANGED_SHARE = 0.1
PREFIX = "a"
#: So long without a write, or without a request to a broker, means that all is done; whether it is, is looked at then.
QUIET_S = 2.0
#: Kafka reassigns one partition after another, 10,000 in some minutes.
TIMEOUT_S = 3600.0
SESSION_TIMEOUT_MS = 30_000
#: The last version that names topics, not their ids.
ALTER_PARTITION_VERSION = 1
_LOST = 0
_ELECTED = re.compile(r"^\[(.{23})\].*successfully elected as the controller", re.MULTILINE)
_READY = re.compile(r"^\[(.{23})\].*Ready to serve as the new controller", re.MULTILINE)
Key = tuple[str, int]
T = TypeVar("T")
#: Wide where it goes to a file.
console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 150)


class Taken(NamedTuple):
    """When a controller was elected, and when it was ready: seconds since the epoch."""

    elected_s: float
    ready_s: float


class Figure(NamedTuple):
    """``cpu_s``: user and system time of the controller's process until everything was quiet again; ``load``: of the
    machine then, over the last minute."""

    seconds: float
    cpu_s: float
    load: float


class Contestant(Protocol):
    """A controller under test."""

    address: str

    def start(self) -> Taken:
        """Launch it, the only one, and wait until it leads."""

    def stand_by(self, partitions: int) -> None:
        """Have a controller that runs and is ready to be elected."""

    def succeed(self, zk: KazooClient) -> Taken:
        """Let that one be elected."""

    def pid(self) -> int:
        """Of the process that leads, or is about to lead."""

    def stop(self) -> None: ...


class Ours:
    """A process of ours, and another that stands by."""

    def __init__(self, connect: str, directory: Path, **settings: int) -> None:
        """``settings``: others than the defaults, by our names."""
        self._connect, self._directory, self._settings = connect, directory, settings
        self._running: list[ControllerProcess] = []
        self.address = ""

    def _launch(self) -> ControllerProcess:
        id_ = FIRST_CONTROLLER_ID + len(self._running)
        self.address = f"127.0.0.1:{ports(1)[0]}"
        process = ControllerProcess(
            self._connect,
            self._directory / f"ours-{id_}",
            controller_id=id_,
            kafka_takeover="exclusive",
            kafka_listen=self.address,
            **self._settings,
        )
        self._running.append(process)
        return process

    def start(self) -> Taken:
        return _taken(self._launch())

    def stand_by(self, partitions: int) -> None:
        self._launch().wait_warm(partitions)

    def succeed(self, zk: KazooClient) -> Taken:
        del zk
        self._running[-2].stop()
        return _taken(self._running[-1])

    def pid(self) -> int:
        return self._running[-1].process.pid

    def stop(self) -> None:
        for process in self._running:
            process.process.kill()
            process.process.wait()


def _taken(process: ControllerProcess) -> Taken:
    process.wait_for("ControllerFailover", timeout_s=TIMEOUT_S)
    # The record is written a little later.
    _until("the failover's record", lambda: any(r["to"] == "ready" for r in process.records("failover")))
    elected = next(at_s(r) for r in process.records("controller") if r["to"] == "active")
    return Taken(elected, next(at_s(r) for r in process.records("failover") if r["to"] == "ready"))


class Kafkas:
    """Kafka's controller in a broker without replicas. Its JVM is not kept small."""

    def __init__(self, connect: str, directory: Path, **settings: int) -> None:
        """``settings``: as of ``Ours``."""
        self._broker = Broker(
            100,
            connect,
            directory / "kafka",
            {"PLAINTEXT": ports(1)[0]},
            properties={
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                "auto.leader.rebalance.enable": "false",
            }
            | {name.replace("_", "."): str(value).lower() for name, value in settings.items()},
            heap_mb=4096,
            jvm_options=("-Xms512m", "-XX:+UseG1GC"),
        )
        self.address = self._broker.address

    def start(self) -> Taken:
        self._broker.start()
        return self._failover(1)

    def stand_by(self, partitions: int) -> None:
        """The same process: its code is compiled by now."""

    def succeed(self, zk: KazooClient) -> Taken:
        zk.delete(znode_paths.CONTROLLER)
        return self._failover(2)

    def _failover(self, count: int) -> Taken:
        log = self._broker.controller_log

        def ready() -> bool:
            self._broker.check()
            return log.exists() and len(_READY.findall(log.read_text(errors="replace"))) >= count

        _until("Kafka's failover", ready)
        text = log.read_text(errors="replace")
        return Taken(_logged_s(_ELECTED.findall(text)[-1]), _logged_s(_READY.findall(text)[-1]))

    def pid(self) -> int:
        assert self._broker.process is not None
        return self._broker.process.pid

    def stop(self) -> None:
        self._broker.kill()


class KafkaAcceptors(Acceptors):
    module = "tests.kafka.side_by_side.acceptors"

    def told(self) -> Mapping[str, Mapping[str, Any]]:
        """By broker what it was told, where they hold it."""
        found: Mapping[str, Mapping[str, Any]] = json.loads(self._answer("told"))
        return found

    def until_quiet(self) -> float:
        """When the last control request came, seconds since the epoch."""
        requests, last_s = self.command("")
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S:
            time.sleep(0.1)
            now, last_s = self.command("")
            if now != requests:
                requests, quiet_since = now, time.monotonic()
        return last_s


def zxid(port: int) -> str:
    """The last write of the server on a port, as its ``srvr`` tells it."""
    answer = four_letter_word(port, "srvr")
    return next((line for line in answer.splitlines() if line.startswith("Zxid")), "")


class Node(NamedTuple):
    """A znode's data, and when it was last written, seconds since the epoch."""

    data: bytes
    written_s: float
    version: int
    czxid: int


class Bench:
    """One contestant, and everything that it is measured by."""

    def __init__(
        self, contestant: Contestant, zookeeper: EmbeddedZooKeeper, acceptors: KafkaAcceptors, topics: int
    ) -> None:
        self._contestant, self._acceptors = contestant, acceptors
        self._port = zookeeper.servers[0].client_port
        self._topics = topics
        self._changed = max(1, round(topics * CHANGED_SHARE))
        self.zk = KazooClient(zookeeper.connect_string, timeout=60)
        self.zk.start(30)

    def run(self) -> dict[str, Figure]:
        """Every figure, in the order of the table."""
        figures: dict[str, Figure] = {}
        steps: Sequence[Callable[[], dict[str, float]]] = (
            self._cold,
            self._again,
            self._create,
            self._reassign,
            self._delete,
            self._lose_a_broker,
        )
        for step in steps:
            if step == self._again:
                self._contestant.stand_by(self._topics * PARTITIONS)
            # A process that begins to lead when it begins counts from its beginning.
            before_s = 0.0 if step == self._cold else cluster.cpu_seconds(self._contestant.pid())
            found = step()
            self._settle()
            used_s = cluster.cpu_seconds(self._contestant.pid()) - before_s
            for name, seconds in found.items():
                figures[name] = figure = Figure(seconds, used_s, os.getloadavg()[0])
                console.print(f"  {name}: {seconds:.2f} s, CPU {used_s:.1f} s, load {figure.load:.0f}")
        return figures

    # figures

    def _cold(self) -> dict[str, float]:
        taken = self._contestant.start()
        confirmed_s = self._acceptors.until_quiet()
        return {
            "cold failover, elected to ready": taken.ready_s - taken.elected_s,
            "cold failover, elected to brokers' last answer": max(confirmed_s, taken.ready_s)
            - taken.elected_s,
        }

    def _again(self) -> dict[str, float]:
        taken = self._contestant.succeed(self.zk)
        confirmed_s = self._acceptors.until_quiet()
        return {
            "failover to one that runs, elected to ready": taken.ready_s - taken.elected_s,
            "failover to one that runs, to last answer": max(confirmed_s, taken.ready_s) - taken.elected_s,
        }

    def _create(self) -> dict[str, float]:
        """All topic znodes in one transaction, until the last state znode is written."""
        infos = [cluster.topic(name, PARTITIONS, n * PARTITIONS) for n, name in enumerate(self._new())]
        transaction = self.zk.transaction()
        for info in infos:
            transaction.create(znode_paths.topic_path(info.name), codecs.encode_topic(info))
        _committed(transaction.commit())
        began_s = self._read([znode_paths.topic_path(infos[0].name)])[0].written_s
        keys = [(info.name, n) for info in infos for n in info.partitions]

        def states() -> list[Node] | None:
            found = self._read_all([znode_paths.state_path(*key) for key in keys])
            written = [node for node in found if node is not None]
            return written if len(written) == len(keys) else None

        return {f"creation, {len(keys):,} partitions": _last_write(self._until(states)) - began_s}

    def _reassign(self) -> dict[str, float]:
        """One replica of each partition goes elsewhere. From the request until all have begun, and from the leaders'
        word that the new replicas are in sync until all are done; what leaders need in between is not counted."""
        targets = {key: moved(cluster.replicas_of(n)) for n, key in enumerate(self._keys(self._changed))}
        topics = [name_of(n) for n in range(self._changed)]
        began_s = time.time()
        answer = ask(self._contestant.address, _reassignment(targets), 0, TIMEOUT_S)
        assert isinstance(answer, AlterPartitionReassignmentsResponse)
        assert not answer.error_code, answer
        assert not [p for t in answer.responses for p in t.partitions if p.error_code]
        started = self._until(lambda: self._assignments(topics, lambda info: len(info.adding) == PARTITIONS))
        states = self._states(list(targets))
        begun_s = max(_last_write(started), _last_write(states.values())) - began_s
        self._acceptors.until_quiet()
        again_s = time.time()
        self._catch_up(targets)
        done = self._until(lambda: self._assignments(topics, nothing_moves))
        ended_s = max(_last_write(done), _last_write(self._states(list(targets)).values())) - again_s
        return {f"reassignment, {len(targets):,} partitions": begun_s + ended_s}

    def _delete(self) -> dict[str, float]:
        """The topics that were created; from the last request until the last of them is gone, by a watch."""
        transaction = self.zk.transaction()
        for name in self._new():
            transaction.create(f"{znode_paths.DELETE_TOPICS}/{name}")
        began_s = time.time()
        _committed(transaction.commit())
        changed = threading.Event()
        while self.zk.get_children(znode_paths.DELETE_TOPICS, watch=lambda _: changed.set()):
            assert changed.wait(TIMEOUT_S)
            changed.clear()
        took_s = time.time() - began_s
        assert not set(self._new()) & set(self.zk.get_children(znode_paths.TOPICS))
        return {f"deletion, {self._changed * PARTITIONS:,} partitions": took_s}

    def _lose_a_broker(self) -> dict[str, float]:
        keys = list(self._keys(self._topics))
        led = {key for key, node in self._states(keys).items() if _decoded(node).leader == _LOST}
        began_s = time.time()
        self._acceptors.command(f"drop {_LOST}")

        def whole() -> dict[Key, Node] | None:
            found = self._states(keys)
            states = [_decoded(node) for node in found.values()]
            return found if all(s.leader >= 0 and _LOST not in (s.leader, *s.isr) for s in states) else None

        after = self._until(whole)
        return {
            f"broker lost, last of {len(led):,} leaders": _last_write(after[key] for key in led) - began_s,
            "broker lost, last write": _last_write(after.values()) - began_s,
        }

    # means

    def _new(self) -> list[str]:
        return [name_of(n, "new") for n in range(self._changed)]

    def _keys(self, topics: int) -> Iterable[Key]:
        return ((name_of(n // PARTITIONS), n % PARTITIONS) for n in range(topics * PARTITIONS))

    def _read_all(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for start in range(0, len(paths), cluster.BATCH):
            for answer in [self.zk.get_async(path) for path in paths[start : start + cluster.BATCH]]:
                answer.wait(TIMEOUT_S)
                if not answer.successful():
                    found.append(None)
                    continue
                data, stat = answer.get()
                found.append(Node(data, stat.mtime / 1000, stat.version, stat.czxid))
        return found

    def _read(self, paths: Sequence[str]) -> list[Node]:
        found = [node for node in self._read_all(paths) if node is not None]
        assert len(found) == len(paths)
        return found

    def _states(self, keys: Sequence[Key]) -> dict[Key, Node]:
        return dict(zip(keys, self._read([znode_paths.state_path(*key) for key in keys]), strict=True))

    def _assignments(self, topics: Sequence[str], reached: Callable[[TopicInfo], bool]) -> list[Node] | None:
        nodes = self._read([znode_paths.topic_path(name) for name in topics])
        infos = [
            codecs.decode_topic(name, node.data, node.czxid, node.version)
            for name, node in zip(topics, nodes, strict=True)
        ]
        return nodes if all(map(reached, infos)) else None

    def _catch_up(self, targets: dict[Key, list[int]]) -> None:
        """What leaders say once the new replicas have everything: a request each, all at once."""
        by_leader: dict[int, dict[str, list[PartitionData]]] = {}
        for (topic, number), node in self._states(list(targets)).items():
            state = _decoded(node)
            isr = list(dict.fromkeys([*state.isr, *targets[topic, number]]))
            said = PartitionData(number, state.leader_epoch, isr, partition_epoch=node.version)
            by_leader.setdefault(state.leader, {}).setdefault(topic, []).append(said)
        epochs = {id_: self._read([znode_paths.broker_path(id_)])[0].czxid for id_ in by_leader}

        def say(leader: int) -> None:
            topics = [TopicData(name, partitions=said) for name, said in by_leader[leader].items()]
            request = AlterPartitionRequest(leader, epochs[leader], topics)
            answer = ask(self._contestant.address, request, ALTER_PARTITION_VERSION, TIMEOUT_S)
            assert isinstance(answer, AlterPartitionResponse)
            assert not answer.error_code, answer
            assert not [p for t in answer.topics for p in t.partitions if p.error_code], answer

        with ThreadPoolExecutor(len(by_leader)) as pool:
            list(pool.map(say, by_leader))

    def _settle(self) -> None:
        """Until nothing was written for a while."""
        last, since = zxid(self._port), time.monotonic()
        while time.monotonic() - since < QUIET_S:
            time.sleep(0.1)
            if (now := zxid(self._port)) != last:
                last, since = now, time.monotonic()

    def _until(self, reached: Callable[[], T | None]) -> T:
        """Look whenever nothing was written for a while, until what is looked for is there."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self._settle()
            if (found := reached()) is not None:
                return found
        raise TimeoutError("not reached in time; see the controller's logs")

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()


def _committed(results: Iterable[object]) -> None:
    if failed := [result for result in results if isinstance(result, Exception)]:
        raise failed[0]


def _last_write(nodes: Iterable[Node]) -> float:
    return max(node.written_s for node in nodes)


def _decoded(node: Node) -> LeaderAndIsr:
    return codecs.decode_state("t", 0, node.data, node.version)


def _reassignment(targets: dict[Key, list[int]]) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in targets.items():
        topics.setdefault(topic, []).append(ReassignablePartition(number, replicas))
    entries = [ReassignableTopic(name, moved) for name, moved in topics.items()]
    return AlterPartitionReassignmentsRequest(int(TIMEOUT_S * 1000), entries)


def _logged_s(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007  (the log is in local time)


def _until(what: str, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def measure(
    make: Callable[[str, Path], Contestant], directory: Path, topics: int, *, fsync: bool
) -> dict[str, Figure]:
    """One contestant on a ZooKeeper server of its own."""
    with EmbeddedZooKeeper(directory / "zookeeper", heap_mb=3072, force_sync=fsync) as zookeeper:
        connect = zookeeper.connect_string
        with loop_session(connect) as (loop, session):
            loop.run_until_complete(cluster.populate(session, PREFIX, topics, PARTITIONS))
            loop.run_until_complete(session.create(znode_paths.CONTROLLER_EPOCH, b"1"))
        acceptors = KafkaAcceptors(connect)
        contestant = make(connect, directory)
        try:
            bench = Bench(contestant, zookeeper, acceptors, topics)
            figures = bench.run()
            bench.close()
        finally:
            contestant.stop()
            acceptors.stop()
        return figures


def table(found: dict[str, list[dict[str, Figure]]], title: str) -> Table:
    """Medians. ``found``: the runs of each contestant, ours first."""
    ours, kafkas = found.values()
    heads = (
        "figure",
        "Kafka 3.9.1",
        "this project",
        "ratio",
        "CPU: Kafka",
        "this project",
        "load: Kafka",
        "ours",
    )
    rows = Table(*heads, title=title)
    for name in ours[0]:
        theirs, own = (_median([run[name] for run in runs]) for runs in (kafkas, ours))
        rows.add_row(
            name,
            f"{theirs.seconds:.2f} s",
            f"{own.seconds:.2f} s",
            f"{theirs.seconds / own.seconds:.1f}" if own.seconds > 0 else "",
            f"{theirs.cpu_s:.1f} s",
            f"{own.cpu_s:.1f} s",
            f"{theirs.load:.0f}",
            f"{own.load:.0f}",
        )
    return rows


def _median(figures: Sequence[Figure]) -> Figure:
    """Of each field by itself."""
    return Figure(*(statistics.median(column) for column in zip(*figures, strict=True)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.side_by_side.peers", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="in units of 100,000 partitions")
    parser.add_argument("--runs", type=int, default=1, help="of each; medians are shown")
    parser.add_argument("--fsync", action="store_true", help="ZooKeeper syncs each write to its disk")
    options = parser.parse_args(arguments)
    topics = round(2000 * options.scale)
    if topics < 1 or options.runs < 1:
        parser.error("--scale must be at least 0.0005 (one topic of 50 partitions), --runs at least 1")
    try:
        jars.KAFKA.fetch(jars.NEWEST)
    except UnreachableFault as fault:
        console.print(f"SKIPPED: nothing was measured, Kafka's jars are not there. {fault}", markup=False)
        return 0
    found: dict[str, list[dict[str, Figure]]] = {"this project": [], "Kafka 3.9.1": []}
    makers: dict[str, Callable[[str, Path], Contestant]] = {"this project": Ours, "Kafka 3.9.1": Kafkas}
    for run in range(options.runs):
        for name, make in makers.items():
            console.print(f"run {run + 1}, {name}:")
            with tempfile.TemporaryDirectory(prefix="pc-peers-") as directory:
                found[name].append(measure(make, Path(directory), topics, fsync=options.fsync))
    title = (
        f"{topics * PARTITIONS:,} partitions, {BROKERS} brokers, fsync {'on' if options.fsync else 'off'},"
        f" median of {options.runs}"
    )
    console.print(table(found, title))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
