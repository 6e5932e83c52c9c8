"""Inputs as large, as repetitive or as odd as ZooKeeper and the wire can hold: leadership stays, others are served."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire
from proto.gen.admin_service_pb2_grpc import AdminServiceStub
from proto.gen.controller_service_pb2_grpc import ControllerServiceStub
from tests.support.runtime.programs import BIN, Program, program, run_to_end

pytestmark = pytest.mark.slow

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
#: One that an event of half a minute would exceed.
SESSION_TIMEOUT_MS = 6000


class Attacked:
    """A controller as a process, three registered brokers that take nothing, and a stranger at ZooKeeper."""

    def __init__(self, running: Program, zookeeper: KazooClient) -> None:
        self.running, self.zookeeper = running, zookeeper
        for broker_id in (1, 2, 3):
            self.register(str(broker_id), 1)
        running.until(lambda: '"event": "ready"' in running.said())
        self.grpc, self.http = (self._said(name) for name in ("grpc", "http"))
        self.topic("t", {"0": [1, 2, 3]})
        self.until_led("t")

    def _said(self, name: str) -> str:
        found = re.search(rf'"{name}": "([^"]+)"', self.running.said())
        assert found is not None
        return found[1]

    def register(self, name: str, port: int) -> None:
        fields = {"version": 5, "endpoints": [f"GRPC://127.0.0.1:{port}"], "host": None, "port": -1}
        self.zookeeper.create(
            f"/brokers/ids/{name}", json.dumps(fields).encode(), ephemeral=True, makepath=True
        )

    def topic(self, name: str, partitions: dict[str, list[int]], **fields: Any) -> int:
        data = json.dumps({"partitions": partitions, **fields}, separators=(",", ":")).encode()
        self.zookeeper.create(f"/brokers/topics/{name}", data, makepath=True)
        return len(data)

    def until_led(self, name: str, number: int = 0) -> None:
        path = f"/brokers/topics/{name}/partitions/{number}/state"
        self.running.until(lambda: self.zookeeper.exists(path) is not None, 120)

    def check(self, canary: str = "canary") -> None:
        """A new topic is led, by the one controller that has led all the time."""
        self.topic(canary, {"0": [1]})
        self.until_led(canary)
        assert self.running.said().count('"event": "ready"') == 1, "leadership was lost"

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.http}/state", timeout=30) as answer:
            return dict(json.load(answer)["term"])

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.grpc, options=UNLIMITED)

    def describe(self) -> Any:
        with self.channel() as channel:
            return AdminServiceStub(channel).DescribeCluster(pb.DescribeClusterRequest(), timeout=30)

    def alter(self, numbers: Iterator[int] | range | list[int]) -> Any:
        epoch = self.zookeeper.get("/brokers/ids/1")[1].czxid
        request = wire.AlterPartitionRequest(broker_id=1, broker_epoch=epoch)
        for number in numbers:
            request.partitions.add(topic="t", partition=number, new_isr=[1, 2])
        with self.channel() as channel:
            return ControllerServiceStub(channel).AlterPartition(request, timeout=60)


@pytest.fixture
def attacked(tmp_path: Path, zookeeper: str) -> Iterator[Attacked]:
    command = [
        str(BIN / "partition-controller"),
        "run",
        f"--zookeeper={zookeeper}",
        "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        "--state-log-dir=log",
        f"--session-timeout-ms={SESSION_TIMEOUT_MS}",
    ]
    stranger = KazooClient(zookeeper)
    stranger.start()
    try:
        with program(command, tmp_path) as running:
            yield Attacked(running, stranger)
    finally:
        stranger.stop()
        stranger.close()


def test_a_topic_with_twelve_thousand_replicas_of_one_partition(attacked: Attacked) -> None:
    attacked.topic("wide", {"0": list(range(12_000))})
    attacked.check()
    why = attacked.state()["problems"]["/brokers/topics/wide"]
    assert why == "partitions.0: names 12000 brokers, must name at most 1000"


def test_a_topic_znode_full_of_replicas(attacked: Attacked) -> None:
    size = attacked.topic("wide", {str(n): list(range(1000)) for n in range(230)})
    assert size > 850_000
    attacked.check()
    attacked.until_led("wide", 229)
    assert attacked.state()["problems"] == {}
    assert attacked.state()["maintenance"]["entered"] is None


def test_a_reassignment_to_thousands_of_brokers_that_there_are_not(attacked: Attacked) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": list(range(10_000))}
    data = json.dumps({"version": 1, "partitions": [entry]}).encode()
    attacked.zookeeper.create("/admin/reassign_partitions", data, makepath=True)
    attacked.running.until(lambda: attacked.zookeeper.exists("/admin/reassign_partitions") is None, 60)
    attacked.check()
    stored = json.loads(attacked.zookeeper.get("/brokers/topics/t")[0])
    assert stored["partitions"] == {"0": [1, 2, 3]}
    assert "10000 replicas: must be at most 1000" in attacked.running.said()


@pytest.mark.long
def test_one_partition_fifty_thousand_times_in_one_alter_partition(attacked: Attacked) -> None:
    answer = attacked.alter([0] * 50_000)
    assert answer.error_code == codes.NONE
    told = [entry.error_code for entry in answer.partitions]
    assert told[:2] == [codes.NONE, codes.INVALID_REQUEST]
    assert set(told[1:]) == {codes.INVALID_REQUEST}
    attacked.check()


def test_a_hundred_thousand_unknown_partitions_in_one_alter_partition(attacked: Attacked) -> None:
    answer = attacked.alter(range(1, 100_001))
    assert {entry.error_code for entry in answer.partitions} == {codes.UNKNOWN_TOPIC_OR_PARTITION}
    assert attacked.alter(range(100_001)).error_code == codes.INVALID_REQUEST
    attacked.check()


@pytest.mark.long
def test_a_creation_of_ten_thousand_topics_that_is_only_validated(attacked: Attacked) -> None:
    topics = [
        pb.CreatableTopic(name=f"n{n}", num_partitions=100, replication_factor=3) for n in range(10_000)
    ]
    with attacked.channel() as channel:
        request = pb.CreateTopicsRequest(topics=topics, validate_only=True)
        answer = AdminServiceStub(channel).CreateTopics(request, timeout=120)
    assert len(answer.topics) == 10_000
    assert {entry.error_code for entry in answer.topics} == {codes.NONE, codes.POLICY_VIOLATION}
    attacked.check()


@pytest.mark.parametrize("name", ["01", "+1", "00"])
def test_another_spelling_of_a_live_brokers_id(attacked: Attacked, name: str) -> None:
    attacked.register(name, 9)
    attacked.check()
    brokers = {b.broker_id: [e.port for e in b.endpoints] for b in attacked.describe().brokers}
    assert brokers == {1: [1], 2: [1], 3: [1]}
    assert f"/brokers/ids/{name}" in attacked.state()["problems"]


def test_a_registration_that_clients_must_not_be_told(attacked: Attacked) -> None:
    fields: dict[str, Any] = {"version": 5, "endpoints": ["GRPC://h:1"] * 20_000, "host": None, "port": -1}
    attacked.zookeeper.create("/brokers/ids/7", json.dumps(fields).encode())
    fields["endpoints"] = [f"GRPC://{'h' * 300_000}:1"]
    attacked.zookeeper.create("/brokers/ids/8", json.dumps(fields).encode())
    fields.update(endpoints=["GRPC://h:1"], rack="r\x1b[31m")
    attacked.zookeeper.create("/brokers/ids/9", json.dumps(fields).encode())
    attacked.check()
    described = attacked.describe()
    assert [b.broker_id for b in described.brokers] == [1, 2, 3]
    assert sorted(described.problems) == ["/brokers/ids/7", "/brokers/ids/8", "/brokers/ids/9"]
    assert described.ByteSize() < 5000


def test_a_topic_id_that_is_none_or_anothers(attacked: Attacked) -> None:
    attacked.topic("long", {"0": [1]}, topic_id="x" * 300_000)
    attacked.topic("none", {"0": [1]}, topic_id="not base64!!")
    with attacked.channel() as channel:
        AdminServiceStub(channel).CreateTopics(
            pb.CreateTopicsRequest(
                topics=[pb.CreatableTopic(name="first", num_partitions=1, replication_factor=1)]
            )
        )
    stored = json.loads(attacked.zookeeper.get("/brokers/topics/first")[0])
    attacked.topic("second", {"0": [1]}, topic_id=stored["topic_id"])
    attacked.topic("twice", {"0": [1], "00": [2]})
    attacked.check()
    problems = attacked.state()["problems"]
    assert problems.keys() == {f"/brokers/topics/{name}" for name in ("long", "none", "second", "twice")}
    assert "is the id of topic first" in problems["/brokers/topics/second"]


def test_thousands_of_unreadable_topics_come_and_go(attacked: Attacked) -> None:
    for n in range(3000):
        attacked.zookeeper.create_async(f"/brokers/topics/bad{n}", b"[]")
    attacked.check("canary1")
    attacked.running.until(lambda: attacked.state()["problems_count"] == 3000, 60)
    assert len(attacked.state()["problems"]) == 100
    assert len(attacked.describe().problems) == 100
    assert attacked.describe().problem_count == 3000
    for n in range(3000):
        attacked.zookeeper.delete_async(f"/brokers/topics/bad{n}")
    attacked.check("canary2")
    attacked.running.until(lambda: attacked.state()["problems_count"] == 0, 60)


@pytest.mark.long
def test_tables_of_pctl_with_a_value_of_300_kilobytes(
    attacked: Attacked, tmp_path: Path, zookeeper: str
) -> None:
    config = json.dumps({"version": 1, "config": {"retention.ms": "1", "note": "x" * 300_000}}).encode()
    attacked.zookeeper.create("/config/topics/t", config, makepath=True)
    attacked.topic("many", {"0": list(range(1000))})
    attacked.until_led("many")
    for verb in (
        ["topics", "list"],
        ["topics", "describe", "many"],
        ["topics", "describe", "t"],
        ["brokers"],
    ):
        ended = run_to_end([str(BIN / "pctl"), f"--zookeeper={zookeeper}", *verb], tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert max(map(len, ended.stdout.splitlines())) < 5000


def test_a_data_directory_for_zookeeper_that_is_none(tmp_path: Path) -> None:
    command = [str(BIN / "partition-controller"), "zookeeper", "--port=0", "--data-dir=/dev/null"]
    ended = run_to_end(command, tmp_path)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
