"""kafka-tools 0.1.9 of LinkedIn, unchanged, on a cluster of ours: each module of ``kafka-assigner`` that asks only
ZooKeeper, and what it did as seen from outside.

kafka-assigner reads brokers, topics and retention from ZooKeeper and makes its plan, but lets two programs of Kafka's
write it. These come with a Kafka and are not here: ``kafka_scripts.py`` stands for them, see there. So these tests show
that kafka-assigner understands our znodes and that what it asks for is done; that Kafka's own programs write what the
stand-ins write is taken from their documentation.

Not applicable: ``balance``, which wants the sizes of partitions by ssh, JMX or a Kafka exporter's figures, and
``kafka-protocol``, which speaks Kafka's wire protocol to brokers. Ours speak gRPC.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.embedded_zookeeper.ensemble import find_java
from tests.support.cli.operator import Operator
from tests.tools import kafka_scripts
from tests.tools.installation import Tool
from tests.tools.topic import Topic, topic

pytestmark = pytest.mark.slow

#: Broker 4 has nothing.
BEFORE = [[1, 2], [2, 3], [3, 1], [1, 3]]

Assign = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def assign(kafka_tools: Tool, cluster: Operator, tmp_path: Path) -> Assign:
    """kafka-assigner; it must succeed."""
    kafka_scripts.write_scripts(tmp_path)
    # It looks for the java that Kafka's programs would need.
    java_home = str(Path(find_java()).parents[1])

    def assign(*arguments: str) -> subprocess.CompletedProcess[str]:
        where = [f"--zookeeper={cluster.cluster.connect}", f"--tools-path={tmp_path}"]
        ended = kafka_tools.run("kafka-assigner", *where, *arguments, environment={"JAVA_HOME": java_home})
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    return assign


@pytest.fixture
def orders(assign: Assign, cluster: Operator) -> Iterator[Topic]:
    with topic(cluster, "orders", BEFORE) as created:
        yield created


def test_it_reads_the_cluster(assign: Assign, orders: Topic, cluster: Operator) -> None:
    """Without --execute nothing changes."""
    cluster.ok("config", "set", "--topic=orders", "retention.ms=86400000", "--yes")
    ended = assign("--output-json", "--leadership", "remove", "--brokers", "1")
    seen = json.loads(ended.stdout)
    before, after = seen["before"], seen["after"]
    registered = json.loads(cluster.zk.get("/brokers/ids/2")[0])
    assert (before["brokers"]["2"]["hostname"], before["brokers"]["2"]["port"]) == (
        registered["host"],
        registered["port"],
    )
    assert before["topics"]["orders"]["retention"] == 86400000
    assert {n: p["replicas"] for n, p in before["topics"]["orders"]["partitions"].items()} == {
        str(n): ids for n, ids in enumerate(BEFORE)
    }
    assert all(1 not in p["replicas"] for p in after["topics"]["orders"]["partitions"].values())
    assert orders.replicas == dict(enumerate(BEFORE))


def test_remove_empties_a_broker(assign: Assign, orders: Topic) -> None:
    assign("--execute", "--skip-ple", "remove", "--brokers", "1", "--to_brokers", "4", "3")
    orders.moved(orders.replicas)
    assert orders.load()[1] == 0
    assert sum(orders.load().values()) == 8


def test_moves_go_in_batches(assign: Assign, orders: Topic) -> None:
    """One at a time; it waits for each."""
    said = assign(
        "--execute", "--skip-ple", "--moves=1", "remove", "--brokers", "1", "--to_brokers", "4"
    ).stderr
    assert "Number of batches: 3" in said
    orders.moved({n: [4 if id_ == 1 else id_ for id_ in ids] for n, ids in enumerate(BEFORE)})


def test_replication_factor(assign: Assign, orders: Topic) -> None:
    for factor in (3, 1):
        assign("--execute", "--skip-ple", "set-replication-factor", "-t", "orders", "-r", str(factor))
        orders.moved(orders.replicas)
        assert {len(ids) for ids in orders.replicas.values()} == {factor}


def test_clone_and_trim(assign: Assign, orders: Topic) -> None:
    assign("--execute", "clone", "--brokers", "1", "--to_broker", "4")
    orders.moved({0: [4, 1, 2], 1: [2, 3], 2: [3, 4, 1], 3: [4, 1, 3]})
    orders.led_by({0: 4, 1: 2, 2: 3, 3: 4})
    assign("--execute", "trim", "--brokers", "1")
    orders.moved({0: [4, 2], 1: [2, 3], 2: [3, 4], 3: [4, 3]})


def test_reorder_and_elect_change_leaders(assign: Assign, orders: Topic, cluster: Operator) -> None:
    cluster.ok("elect", "leader", "3", "--partition=orders-1", "--partition=orders-3")
    orders.led_by({0: 1, 1: 3, 2: 3, 3: 3})
    assign("--execute", "elect")
    orders.led_by({number: ids[0] for number, ids in enumerate(BEFORE)})
    assign("--execute", "reorder")
    orders.led_by({number: ids[0] for number, ids in orders.replicas.items()})
    orders.readable()
