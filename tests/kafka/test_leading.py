"""Unmodified Kafka brokers under our controller, under load, with every record checked."""

from __future__ import annotations

import pytest

from controller.embedded_kafka.tools import Tool
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

OURS = FIRST_CONTROLLER_ID


def take_over(cluster: KafkaCluster, count: int = 1) -> None:
    """Start controllers of ours beside a cluster that a broker leads, and wait until one of them leads."""
    for id_ in range(OURS, OURS + count):
        cluster.controllers[id_] = cluster.make_controller(id_)
        cluster.controllers[id_].start()
    cluster.until("our controller", lambda: cluster.controller_id() >= OURS)


def test_a_live_controller_is_taken_over_and_a_leader_killed(make_kafka: MakeCluster) -> None:
    cluster = make_kafka()
    cluster.create_topic("t", 6, 3, config={"min.insync.replicas": "2"})
    elected = len(cluster.elections_by_brokers())
    former = cluster.brokers[cluster.controller_id()]
    with Load(cluster, "t", writers=2, readers=2) as load:
        load.run_for(2)
        take_over(cluster)
        cluster.until("Resigned", lambda: "Resigned" in former.controller_log.read_text())
        load.run_for(2)
        victim = cluster.states("t")["t", 0].leader
        cluster.brokers[victim].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        load.run_for(2)
        cluster.restart(victim)
        cluster.until("full ISRs", lambda: cluster.in_sync("t"))
        assert cluster.brokers[victim].stop()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        cluster.restart(victim)
        cluster.until("full ISRs", lambda: cluster.in_sync("t"))
        load.run_for(1)
        outcome = load.finish()
    assert outcome.ok, outcome
    print(outcome)
    assert len(cluster.elections_by_brokers()) == elected
    done = cluster.tools.run(Tool.TOPICS, "--describe", "--topic", "t")
    assert done.returncode == 0, done.stderr
    print(done.stdout)
