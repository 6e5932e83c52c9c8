"""Brokers of older releases, older inter.broker.protocol.version and several releases under our controller."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from controller.embedded_kafka import jars
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster, ports
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load
from tests.kafka.requests import reassign
from tests.support.runtime.programs import program

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID
#: Up to 3.x, and since.
SHUT_DOWN = re.compile("Controlled shutdown (succeeded|request returned successfully)")


def protocol(version: str) -> dict[str, str]:
    return {"inter.broker.protocol.version": version}


CLUSTERS: Mapping[str, tuple[list[str], dict[str, str]]] = {
    "3.6": (["3.6.2"] * 2, {}),
    "3.3": (["3.3.2"] * 2, {}),
    "2.8": (["2.8.2"] * 2, {}),
    "mixed": ([jars.NEWEST, "3.6.2", "3.3.2"], protocol("3.3")),
    "old-and-new": ([jars.NEWEST, "2.8.2"], protocol("2.8")),
    "protocol-2.6": ([jars.NEWEST] * 2, protocol("2.6")),
    "protocol-2.8": ([jars.NEWEST] * 2, protocol("2.8")),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_brokers_are_led(make_kafka: MakeCluster, name: str) -> None:
    """Taken over, killed, restarted, stopped, their partitions moved, all under load."""
    releases, properties = CLUSTERS[name]
    cluster = make_kafka(
        versions=dict(enumerate(releases, 1)),
        properties={
            **properties,
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
        },
    )
    replicas = len(releases)
    cluster.create_topic("t", 4, replicas)
    elected = len(cluster.elections_by_brokers())
    with Load(cluster, "t", writers=2, readers=1) as load:
        load.run_for(1)
        cluster.add_controllers(1)
        load.run_for(1)
        for victim in cluster.brokers:
            _killed_and_back(cluster, victim)
        for victim in cluster.brokers:
            _stopped_and_back(cluster, victim)
        _created_moved_and_deleted(cluster, has_ids=name != "protocol-2.6")
        load.run_for(1)
        outcome = load.finish()
    assert outcome.ok, outcome
    assert outcome.longest_gap_s < 15, outcome
    assert len(cluster.elections_by_brokers()) == elected
    # The znode that tells old brokers our address is gone with us, and Kafka's own controller leads on.
    cluster.controllers[OURS].stop()
    cluster.until("a broker", lambda: cluster.controller_id() in cluster.brokers)
    assert {int(name) for name in cluster.zk.get_children("/brokers/ids")} == set(cluster.brokers)
    cluster.create_topic("after", 1, replicas)


def _killed_and_back(cluster: KafkaCluster, victim: int) -> None:
    cluster.brokers[victim].kill()
    cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
    cluster.restart(victim)
    cluster.until("full ISRs", lambda: cluster.in_sync("t"))


def _stopped_and_back(cluster: KafkaCluster, victim: int) -> None:
    assert not SHUT_DOWN.search(cluster.brokers[victim].server_log.read_text())
    assert cluster.brokers[victim].stop()
    assert SHUT_DOWN.search(cluster.brokers[victim].server_log.read_text())
    assert cluster.led("t", without=[victim])
    cluster.restart(victim)
    cluster.until("full ISRs", lambda: cluster.in_sync("t"))


def _created_moved_and_deleted(cluster: KafkaCluster, *, has_ids: bool) -> None:
    cluster.create_topic("u", assignment=[[1], [2]])
    assert ("topic_id" in cluster.json("/brokers/topics/u")) == has_ids
    wanted = {0: [2], 1: [2, 1]}
    reassign(cluster, {("u", number): replicas for number, replicas in wanted.items()})
    cluster.until("the reassignment", lambda: cluster.assignment("u") == wanted)
    cluster.until("full ISRs", lambda: cluster.in_sync("u"))
    admin = cluster.admin()
    admin.delete_topics(["u"])["u"].result(60)
    cluster.until("the deletion", lambda: not cluster.zk.exists("/brokers/topics/u"))
    cluster.until(
        "the folders' end",
        lambda: not [f for b in cluster.brokers.values() for d in b.data_dirs for f in d.glob("u-?")],
    )


def test_brokers_of_both_kinds(make_kafka: MakeCluster, tmp_path: Path) -> None:
    """Kafka brokers and brokers led by gRPC in one cluster: each topic is on brokers of one kind."""
    cluster = make_kafka(
        versions=dict.fromkeys((1, 2), jars.NEWEST),
        properties={"offsets.topic.replication.factor": "2"},
        controllers_wanted=1,
    )
    with ExitStack() as stubs:
        for id_, port in zip((11, 12), ports(2), strict=True):
            command = [
                *(
                    sys.executable,
                    "-c",
                    "from broker_stub.cli import main; main()",
                    "run",
                    f"--broker-id={id_}",
                ),
                *(f"--zookeeper={cluster.zookeeper}", f"--listen=127.0.0.1:{port}"),
                f"--data-dir={tmp_path / f'stub-{id_}'}",
            ]
            stubs.enter_context(program(command, tmp_path, name=f"stub-{id_}"))
        cluster.until("the others", lambda: set(cluster.zk.get_children("/brokers/ids")) >= {"11", "12"})
        cluster.create_topic("kafkas", assignment=[[1, 2], [2, 1]])
        cluster.create_topic("others", assignment=[[11, 12], [12, 11]])
        for arguments in ({"assignment": [[1, 11]]}, {"partitions": 1, "replication": 2}):
            with pytest.raises(KafkaException, match="cannot replicate from each other"):
                cluster.create_topic("both", **arguments)
        with pytest.raises(AssertionError, match="cannot replicate from each other"):
            reassign(cluster, {("kafkas", 0): [1, 11]})
        # Neither Kafka's clients nor its brokers, which create topics of their own, know the others.
        assert set(cluster.admin().list_topics(timeout=10).brokers) == {1, 2, OURS}
        with Load(cluster, "kafkas") as load:
            load.run_for(1)
            cluster.brokers[1].kill()
            cluster.until("new leaders", lambda: cluster.led(without=[1]))
            cluster.restart(1)
            cluster.until("full ISRs", lambda: cluster.in_sync("kafkas"))
            outcome = load.finish()
        assert outcome.ok, outcome
        offsets = cluster.assignment("__consumer_offsets")
        assert {id_ for replicas in offsets.values() for id_ in replicas} == {1, 2}
    cluster.until(
        "the others' end",
        lambda: {state.leader for state in cluster.states("others").values() if state} == {-1},
    )
    assert cluster.led("kafkas")
