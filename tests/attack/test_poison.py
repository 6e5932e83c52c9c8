"""What raises in every controller that meets it is left out by all of them, and everything else goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.cli.operator import pctl
from tests.support.runtime.clusters import broker_command, brokers, controller, http
from tests.support.runtime.programs import BIN, Program, program, run_to_end

pytestmark = pytest.mark.slow

#: Each raises for one subject, wherever it is met.
TOPIC = """
from controller.core.topics import changes
original = changes.add_topic
def planted(context, info, *rest):
    if info.name == "poison":
        raise ZeroDivisionError("planted")
    return original(context, info, *rest)
changes.add_topic = planted
"""
BROKER = """
from controller.core.context import EventContext
original = EventContext.add_broker
def planted(self, broker):
    if broker.id == 3:
        raise KeyError("planted")
    return original(self, broker)
EventContext.add_broker = planted
"""
PUSH = """
from controller.runtime.push import entries as module
original = module.leader_and_isr
def planted(partition, *rest):
    if partition.topic.name == "poison":
        raise TypeError("planted")
    return original(partition, *rest)
module.leader_and_isr = planted
"""
REQUEST = """
from controller.core.topics import create_topics as module
original = module.create_topics
def planted(context, serial, request):
    if any(topic.name == "poison" for topic in request.topics):
        raise ValueError("planted")
    yield from original(context, serial, request)
module.create_topics = planted
"""
ALTER_PARTITION = """
from controller.core.isr import alter_partition as module
original = module.evaluate
def planted(cluster, partition, *rest):
    if partition.topic.name == "poison":
        raise IndexError("planted")
    return original(cluster, partition, *rest)
module.evaluate = planted
"""
DECODER = """
from controller.runtime.zookeeper import codecs
original = codecs.decode_state
def planted(topic, *rest):
    if topic == "poison":
        raise RuntimeError("planted")
    return original(topic, *rest)
codecs.decode_state = planted
"""
REBALANCE = """
from controller.core.elections import preferred_leader_balance as module
def planted(context):
    raise AssertionError("planted")
    yield
module.rebalance = planted
"""


#: Not in the first term, which is there before anything else is.
FAILOVER = """
from controller.core.elections import elect_leaders as module
original = module.process_preferred_znode
def planted(context):
    if context.cluster.controller_epoch > 1 and context.cause == "ControllerFailover":
        raise OSError("planted")
    return (yield from original(context))
module.process_preferred_znode = planted
"""
#: In a step that no controller leads without: on what the cluster has, not on what this step looks for.
STARTUP = """
from controller.core.partitions import partition_state_machine as module
original = module.startup
def planted(context, partitions):
    for partition in context.cluster.partitions():
        if partition.topic.name == "poison":
            raise OSError("planted")
    return (yield from original(context, partitions))
module.startup = planted
"""
#: A new process each time: without a pause these take most of the processor.
PRODUCE_EVERY_S = 1.0


@dataclass
class Cluster:
    zookeeper: str
    directory: Path
    zk: KazooClient
    controllers: list[Program]
    brokers: list[Program]
    produced: list[int] = field(default_factory=list)

    def pctl(self, *arguments: str, timeout_s: int = 30) -> Any:
        return pctl(self.zookeeper, "--timeout", str(timeout_s), *arguments)

    def ok(self, *arguments: str) -> str:
        result = self.pctl(*arguments)
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    def cluster(self) -> Any:
        return json.loads(self.ok("-o", "json", "cluster"))

    def epoch(self) -> int:
        return int(self.zk.get("/controller_epoch")[0])

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 90
        while not reached():
            assert time.monotonic() < deadline, "\n".join(c.said()[-3000:] for c in self.controllers)
            time.sleep(0.2)

    def leader(self) -> Program:
        return next(c for c in self.controllers if http(c, "/ready").startswith("ready: active"))


@contextmanager
def started(
    zookeeper: str, zk: KazooClient, directory: Path, planted: str, *, warm: bool = True
) -> Iterator[Cluster]:
    """Three controllers with the same fault, three brokers, and a producer on a topic that is none of its business.
    Not ``warm``: a failover adds each topic, also one that a standby could have had in memory."""
    changes = {} if warm else {"PARTITION_CONTROLLER_WARM_STANDBY": "false"}
    with ExitStack() as stack:
        controllers = [
            stack.enter_context(controller(zookeeper, directory, n, planted, changes)) for n in (1, 2, 3)
        ]
        running = Cluster(zookeeper, directory, zk, controllers, [])
        running.brokers = stack.enter_context(brokers(zookeeper, directory, 2))
        running.ok("topics", "create", "good", "--partitions", "2", "--replication-factor", "2")
        done = Event()

        def produce() -> None:
            command = [str(BIN / "pctl"), f"--zookeeper={zookeeper}", "produce", "good", "x"]
            while not running.produced or not done.wait(PRODUCE_EVERY_S):
                running.produced.append(run_to_end(command, directory).returncode)

        producer = Thread(target=produce)
        producer.start()
        try:
            yield running
        finally:
            done.set()
            producer.join()
        assert running.produced
        assert set(running.produced) == {0}
        for one in controllers:
            assert one.terminate() == 0


# How the subject is met; each returns the elections that it asks for itself.


def topic_by_hand(running: Cluster) -> int:
    """A topic that nobody asked a controller for."""
    data = {"version": 3, "topic_id": "A" * 22, "partitions": {"0": [1, 2]}}
    running.zk.create("/brokers/topics/poison", json.dumps(data).encode())
    return 0


def failover(running: Cluster) -> int:
    """Only a failover reads the states of topics that were there before."""
    topic_by_hand(running)
    running.until(lambda: running.zk.exists("/brokers/topics/poison/partitions/0/state") is not None)
    running.zk.delete("/controller")
    return 1


def another_term(running: Cluster) -> int:
    """The active controller is deposed."""
    running.zk.delete("/controller")
    return 1


def asks_for_poison(running: Cluster) -> int:
    """As somebody who tries again and again."""
    said: list[str] = []

    def refused() -> bool:
        said.append(running.pctl("topics", "create", "poison", timeout_s=3).output)
        return "in quarantine, because it raised before: request/CreateTopics-" in said[-1]

    running.until(refused)
    assert "ValueError: planted" in said[-1]
    return 0


def nothing(running: Cluster) -> int:
    """The timer does it."""
    return 0


@pytest.mark.parametrize(
    ("planted", "meet", "name"),
    [
        pytest.param(TOPIC, topic_by_hand, "topic/poison", id="topic", marks=pytest.mark.long),
        pytest.param(PUSH, topic_by_hand, "topic/poison", id="push"),
        pytest.param(DECODER, failover, "topic/poison", id="decoder", marks=pytest.mark.long),
        pytest.param(STARTUP, failover, "topic/poison", id="failover of a topic", marks=pytest.mark.long),
        pytest.param(
            FAILOVER,
            another_term,
            "event/ReplicaLeaderElection",
            id="part of failover",
            marks=pytest.mark.long,
        ),
        pytest.param(REQUEST, asks_for_poison, "request/CreateTopics", id="request", marks=pytest.mark.long),
        pytest.param(
            REBALANCE, nothing, "event/AutoPreferredReplicaLeaderElection", id="timer", marks=pytest.mark.long
        ),
    ],
)
def test_what_raises_twice_is_left_out(
    planted: str, meet: Callable[[Cluster], int], name: str, zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with started(zookeeper, zk, tmp_path, planted, warm=planted is not TOPIC) as running:
        # The first term's epoch is 1; a timer's poison may be met before anybody looks.
        before = 1 + meet(running)
        running.until(lambda: len(running.cluster()["in_quarantine"]) == 1)
        running.until(lambda: running.cluster().get("controller_answers") == "yes")
        (found,) = running.cluster()["in_quarantine"]
        assert found.startswith(name)
        assert running.epoch() == before + 2
        said = http(running.leader(), "/ready")
        assert f"in quarantine: {name}" in said
        assert "partition_controller_quarantined 1.0" in http(running.leader(), "/metrics")
        (row,) = json.loads(running.ok("-o", "json", "quarantine", "list"))
        assert (row["name"], row["state"], row["times"]) == (found, "left out", 2)
        assert len(list(tmp_path.glob("log-*/crash-*.json"))) == 2
        # Everything else goes on.
        running.ok("topics", "create", "after", "--replication-factor", "2")
        running.ok("produce", "after", "x")
        assert running.epoch() == before + 2


def test_a_broker_that_raises_counts_as_not_registered(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    third = program(broker_command(zookeeper, 3), tmp_path, name="broker-3")
    with started(zookeeper, zk, tmp_path, BROKER) as running, third:
        running.until(lambda: running.cluster()["in_quarantine"] == ["broker/3"])
        running.until(lambda: running.cluster().get("controller_answers") == "yes")
        epoch = running.epoch()
        states = {row["broker"]: row["state"] for row in json.loads(running.ok("-o", "json", "brokers"))}
        assert states == {1: ["ready"], 2: ["ready"], 3: ["ignored"]}
        running.ok("topics", "create", "after", "--partitions", "6", "--replication-factor", "2")
        assert running.epoch() == epoch


def test_a_proposal_that_raises_costs_its_topic_only(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    with started(zookeeper, zk, tmp_path, ALTER_PARTITION) as running:
        running.ok("topics", "create", "poison", "--replica-assignment", "1:2")
        running.brokers[1].terminate()
        # Its leader wants it back in the in-sync set.
        with program(broker_command(zookeeper, 2), tmp_path, name="broker-2-again"):
            running.until(lambda: running.cluster()["in_quarantine"] == ["topic/poison"])
            running.until(lambda: running.cluster().get("controller_answers") == "yes")
            running.until(lambda: running.cluster()["under_replicated_partitions"] == 1)
            row = json.loads(running.ok("-o", "json", "quarantine", "list"))[0]
            assert (row["event"], row["detail"]) == ("AlterPartitionReceived", "poison-0")


def test_what_is_released_is_taken_in_again(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    fixed = tmp_path / "fixed"
    planted = TOPIC.replace(
        'info.name == "poison"', f'info.name == "poison" and not Path({str(fixed)!r}).exists()'
    )
    with started(zookeeper, zk, tmp_path, "from pathlib import Path\n" + planted, warm=False) as running:
        topic_by_hand(running)
        running.until(lambda: running.cluster()["in_quarantine"] == ["topic/poison"])
        running.until(lambda: running.cluster().get("controller_answers") == "yes")
        refused = running.pctl("quarantine", "release", "topic/other", "--reason", "no such", "--yes")
        assert refused.exit_code == 1
        assert "nothing is in quarantine as 'topic/other'" in refused.output

        fixed.touch()
        running.ok(
            "quarantine", "release", "topic/poison", "--reason", "mended in 0.2", "--author", "eve", "--yes"
        )
        running.until(lambda: "poison" in running.ok("-o", "json", "topics", "list"))
        running.until(lambda: running.cluster().get("controller_answers") == "yes")
        assert running.cluster()["in_quarantine"] == []
        running.ok("produce", "poison", "x")
        said = "".join(one.said() for one in running.controllers)
        assert "eve released topic/poison from quarantine: mended in 0.2" in said
