"""Restarts of brokers under transactional producers and Kafka's own, and moves of data that outlive our controllers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from controller.workload.kafka_replicas import read_replica
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load
from tests.support.kafka.tools import KafkaTools, Tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID
#: By itself, Kafka's verifiable producer gives up at the first error.
KEEP_TRYING = {
    "retries": "2147483647",
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.timeout.ms": "120000",
}


class JavaProducer:
    """Kafka's VerifiableProducer, a process that sends 50 numbers a second until it is ended."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.topic, self.cluster = topic, cluster
        tools = KafkaTools(cluster.bootstrap, cluster.directory / "java-producer", KEEP_TRYING)
        command = tools.command(
            Tool.VERIFIABLE_PRODUCER, "--topic", topic, "--throughput", "50", "--acks", "-1"
        )
        self._out = cluster.directory / "java-producer.out"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def said(self, name: str) -> list[dict[str, Any]]:
        lines = self._out.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in found if line.get("name") == name]

    def acknowledged(self) -> int:
        return len(self.said("producer_send_success"))

    def check(self) -> None:
        """End it: it had no error, and what was acknowledged is where it was said to be, once."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(130)
        assert not self.said("producer_send_error")
        sent = {(s["partition"], s["offset"]): s["value"] for s in self.said("producer_send_success")}
        assert len(sent) > 100
        stored = consumed(self.cluster, self.topic)
        assert {place: stored.get(place) for place in sent} == sent
        assert len(set(stored.values())) == len(stored)


@contextmanager
def java_producer(cluster: KafkaCluster, topic: str) -> Iterator[JavaProducer]:
    producer = JavaProducer(cluster, topic)
    try:
        cluster.until("the first records", producer.acknowledged)
        yield producer
    finally:
        producer.process.kill()
        producer.process.wait()


def consumed(cluster: KafkaCluster, topic: str) -> dict[tuple[int, int], str]:
    """Values by partition and offset."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "check", **cluster.client})
    partitions = [TopicPartition(topic, number) for number in cluster.assignment(topic)]
    ends = {p.partition: consumer.get_watermark_offsets(p, timeout=10)[1] for p in partitions}
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    found: dict[tuple[int, int], str] = {}

    def read() -> bool:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            found[message.partition() or 0, message.offset() or 0] = (message.value() or b"").decode()
        return len(found) >= sum(ends.values())

    cluster.until("all records", read)
    consumer.close()
    return found


def test_a_killed_leader_and_a_rolling_restart(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(controllers_wanted=1)
    for topic in ("transactions", "java"):
        cluster.create_topic(topic, 3, 3, config={"min.insync.replicas": "2"})
    elected = len(cluster.elections_by_brokers())
    with Load(cluster, "transactions", transactional=True) as load, java_producer(cluster, "java") as java:
        load.run_for(1)
        state = cluster.states("transactions")["transactions", 0]
        assert state is not None
        cluster.brokers[state.leader].kill()
        cluster.until("new leaders", lambda: cluster.led(without=[state.leader]))
        load.run_for(1)
        cluster.restart(state.leader)
        cluster.until("full ISRs", cluster.in_sync)
        for id_, broker in cluster.brokers.items():
            assert broker.stop()
            assert "Controlled shutdown request returned successfully" in broker.server_log.read_text()
            assert cluster.led(without=[id_])
            cluster.restart(id_)
            cluster.until("full ISRs", cluster.in_sync)
        load.run_for(1)
        java.check()
        outcome = load.finish()
    assert outcome.ok, outcome
    assert outcome.transactions["committed"] > 10, outcome
    # The session timeout is 6 s, and the producer's own retries take some seconds.
    assert outcome.longest_gap_s < 15, outcome
    assert len(cluster.elections_by_brokers()) == elected


def execute(cluster: KafkaCluster, file: Path, replicas: dict[int, list[int]]) -> None:
    """Begin to move ``moved`` and ``bulk``, at a rate that leaves time to interrupt it."""
    plan = {"version": 1, "partitions": [
        {"topic": topic, "partition": number, "replicas": ids}
        for topic in ("moved", "bulk") for number, ids in replicas.items()
    ]}  # fmt: skip
    file.write_text(json.dumps(plan))
    done = cluster.tools.run(Tool.REASSIGN_PARTITIONS, "--reassignment-json-file", str(file), "--execute",
        "--throttle", "50000")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "adding_replicas" in cluster.zk.get("/brokers/topics/bulk")[0].decode()
    assert cluster.json("/brokers/topics/bulk")["adding_replicas"]


def moved(cluster: KafkaCluster, replicas: dict[int, list[int]]) -> bool:
    return all(
        cluster.assignment(topic) == replicas
        and not cluster.json(f"/brokers/topics/{topic}")["adding_replicas"]
        and cluster.in_sync(topic)
        for topic in ("moved", "bulk")
    )


def folders(cluster: KafkaCluster) -> dict[int, list[int]]:
    """The brokers that have a folder, by partition of ``bulk``."""
    return {
        number: [id_ for id_, b in cluster.brokers.items() if (b.data_dirs[0] / f"bulk-{number}").exists()]
        for number in (0, 1)
    }


def test_a_move_is_finished_by_a_standby_and_one_by_kafkas_own_controller(
    make_kafka: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_kafka(controllers_wanted=1)
    cluster.add_controllers(1)
    here, there = {0: [1, 2], 1: [2, 1]}, {0: [3, 1], 1: [2, 3]}
    for topic in ("moved", "bulk"):
        cluster.create_topic(topic, assignment=list(here.values()))
    done = cluster.tools.run(Tool.PRODUCER_PERFORMANCE, "--topic", "bulk", "--num-records", "500",
        "--record-size", "1000", "--throughput", "-1")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    elected = len(cluster.elections_by_brokers())
    with Load(cluster, "moved", writers=1, readers=1) as load:
        execute(cluster, tmp_path / "there.json", there)
        cluster.controllers[OURS].kill()
        assert not moved(cluster, there)
        cluster.until("the standby", lambda: cluster.controller_id() == OURS + 1)
        cluster.until("the move", lambda: moved(cluster, there))
        assert len(cluster.elections_by_brokers()) == elected
        cluster.until("the folders' end", lambda: folders(cluster) == {0: [1, 3], 1: [2, 3]})
        execute(cluster, tmp_path / "here.json", here)
        cluster.controllers[OURS + 1].kill()
        assert not moved(cluster, here)
        cluster.until("a broker", lambda: cluster.controller_id() in cluster.brokers)
        cluster.until("the move", lambda: moved(cluster, here))
        cluster.until("the folders' end", lambda: folders(cluster) == {0: [1, 2], 1: [1, 2]})
        outcome = load.finish()
    assert outcome.ok, outcome
    ends = [
        {read_replica(cluster.brokers[id_].data_dirs[0] / f"bulk-{number}").end_offset for id_ in (1, 2)}
        for number in (0, 1)
    ]
    assert all(len(end) == 1 for end in ends)
    assert sum(max(end) for end in ends) == 500
