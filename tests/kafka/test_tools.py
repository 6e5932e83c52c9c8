"""Kafka's own tools on a cluster that our controller leads: through brokers, and through us."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import running
from tests.kafka.load import Load
from tests.support.kafka.tools import KafkaTools, Tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

OURS = FIRST_CONTROLLER_ID


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: str) -> Iterator[KafkaCluster]:
    """Three brokers that our controller leads."""
    with running(
        tmp_path_factory.mktemp("kafka"), f"{zookeeper_server}/tools", controllers_wanted=1
    ) as cluster:
        cluster.until("our controller", lambda: cluster.controller_id() == OURS)
        yield cluster


@pytest.fixture(
    params=[pytest.param("brokers", marks=pytest.mark.kafka_long), pytest.param("us", marks=pytest.mark.long)]
)
def tools(request: pytest.FixtureRequest, kafka: KafkaCluster) -> KafkaTools:
    if request.param == "brokers":
        return kafka.tools
    return KafkaTools(str(kafka.controllers[OURS].settings["kafka_listen"]), kafka.directory / "tools-us")


def run(tools: KafkaTools, tool: Tool, *arguments: str) -> str:
    began = time.monotonic()
    done = tools.run(tool, *arguments)
    shown = done.stdout + done.stderr
    print(f"{time.monotonic() - began:.1f} s {tool} {' '.join(arguments)}\n{shown}")
    assert done.returncode == 0, shown
    return shown


def test_topics_are_created_altered_described_and_deleted(kafka: KafkaCluster, tools: KafkaTools) -> None:
    name = f"topic-{tools.bootstrap.count(',')}"
    run(tools, Tool.TOPICS, "--create", "--topic", name, "--partitions", "2", "--replication-factor", "3",
        "--config", "retention.ms=60000")  # fmt: skip
    assert "retention.ms=60000" in run(tools, Tool.TOPICS, "--describe", "--topic", name)
    run(tools, Tool.TOPICS, "--alter", "--topic", name, "--partitions", "4")
    assert len(kafka.assignment(name)) == 4
    assert name in run(tools, Tool.TOPICS, "--list").split()
    run(tools, Tool.CONFIGS, "--entity-type", "topics", "--entity-name", name, "--alter", "--add-config",
        "min.insync.replicas=2")  # fmt: skip
    assert "min.insync.replicas=2" in run(
        tools, Tool.CONFIGS, "--entity-type", "topics", "--entity-name", name, "--describe"
    )
    assert f'"{name}-3"' in run(tools, Tool.LOG_DIRS, "--describe", "--topic-list", name)
    run(tools, Tool.TOPICS, "--delete", "--topic", name)
    assert name not in run(tools, Tool.TOPICS, "--list").split()
    kafka.until("the deletion", lambda: not kafka.zk.exists(f"/brokers/topics/{name}"))
    kafka.until(
        "the folders' end",
        lambda: not [f for b in kafka.brokers.values() for d in b.data_dirs for f in d.glob(f"{name}-?")],
    )


@pytest.mark.kafka_long
def test_a_reassignment_with_data_moves_it(kafka: KafkaCluster, tools: KafkaTools, tmp_path: Path) -> None:
    name = f"moved-{tools.bootstrap.count(',')}"
    kafka.create_topic(name, assignment=[[1, 2], [2, 1]])
    with Load(kafka, name, rate=200) as load:
        load.run_for(1)
        plan = {"version": 1, "partitions": [
            {"topic": name, "partition": 0, "replicas": [3, 1]}, {"topic": name, "partition": 1, "replicas": [2, 3]},
        ]}  # fmt: skip
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(plan))
        run(tools, Tool.REASSIGN_PARTITIONS, "--reassignment-json-file", str(file), "--execute",
            "--throttle", "10000000")  # fmt: skip
        kafka.until("the reassignment", lambda: kafka.assignment(name) == {0: [3, 1], 1: [2, 3]})
        shown = run(tools, Tool.REASSIGN_PARTITIONS, "--reassignment-json-file", str(file), "--verify")
        assert shown.count("is completed") == 2, shown
        kafka.until("full ISRs", lambda: kafka.in_sync(name))
        run(tools, Tool.LEADER_ELECTION, "--election-type", "preferred", "--all-topic-partitions")
        assert {key: s.leader for key, s in kafka.states(name).items() if s} == {(name, 0): 3, (name, 1): 2}
        load.run_for(1)
        outcome = load.finish()
    assert outcome.ok, outcome
    kafka.until("the folder's end", lambda: not (kafka.brokers[2].data_dirs[0] / f"{name}-0").exists())


@pytest.mark.kafka_long
def test_groups_and_producers(kafka: KafkaCluster, tools: KafkaTools) -> None:
    name = f"java-{tools.bootstrap.count(',')}"
    kafka.create_topic(name, 2, 3)
    shown = run(
        tools, Tool.PRODUCER_PERFORMANCE, "--topic", name, "--num-records", "500", "--record-size", "100",
        "--throughput", "-1",
    )  # fmt: skip
    assert "500 records sent" in shown
    shown = run(
        tools, Tool.CONSOLE_CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "500",
        "--group", f"g-{name}",
    )  # fmt: skip
    assert name in run(tools, Tool.CONSUMER_GROUPS, "--describe", "--group", f"g-{name}")
    assert f"g-{name}" in run(tools, Tool.CONSUMER_GROUPS, "--list")
    assert "No partition reassignments" in run(tools, Tool.REASSIGN_PARTITIONS, "--list")
    assert "AlterPartition" in run(tools, Tool.BROKER_API_VERSIONS)
