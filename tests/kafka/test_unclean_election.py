"""Unclean leader election on a live cluster: by the topic's configuration, and by Kafka's tool."""

from __future__ import annotations

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load
from tests.support.kafka.tools import Tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

CONFIGURED, ELECTED = "configured", "elected"


def run(cluster: KafkaCluster, tool: Tool, *arguments: str) -> None:
    done = cluster.tools.run(tool, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def leaders(cluster: KafkaCluster) -> dict[str, tuple[int, list[int]]]:
    return {
        topic: (state.leader, state.isr)
        for (topic, _), state in cluster.states(CONFIGURED, ELECTED, "safe").items()
        if state is not None
    }


def test_a_replica_that_lags_leads_when_it_is_allowed_to(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(controllers_wanted=1)
    for topic in (CONFIGURED, ELECTED):
        cluster.create_topic(topic, assignment=[[1, 2]])
    cluster.create_topic("safe", assignment=[[3, 2]])
    with Load(cluster, "safe", writers=1, readers=1) as load:
        # The ISR shrinks to the last replica, which then goes, too.
        assert cluster.brokers[2].stop()
        cluster.until("ISRs of one", lambda: leaders(cluster)[ELECTED] == (1, [1]))
        assert cluster.brokers[1].stop()
        cluster.await_gone(1)
        cluster.restart(2)
        load.run_for(2)
        assert leaders(cluster)[CONFIGURED] == leaders(cluster)[ELECTED] == (-1, [1])
        run(cluster, Tool.CONFIGS, "--entity-type", "topics", "--entity-name", CONFIGURED, "--alter",
            "--add-config", "unclean.leader.election.enable=true")  # fmt: skip
        cluster.until("a leader", lambda: leaders(cluster)[CONFIGURED] == (2, [2]))
        assert leaders(cluster)[ELECTED] == (-1, [1])
        run(
            cluster,
            Tool.LEADER_ELECTION,
            "--election-type",
            "unclean",
            "--topic",
            ELECTED,
            "--partition",
            "0",
        )
        cluster.until("a leader", lambda: leaders(cluster)[ELECTED] == (2, [2]))
        cluster.restart(1)
        cluster.until("full ISRs", lambda: cluster.in_sync())
        outcome = load.finish()
    assert outcome.ok, outcome
    for topic in (CONFIGURED, ELECTED):
        with Load(cluster, topic, writers=1, readers=0) as load:
            load.run_for(0.5)
            assert load.finish().ok
