"""Unmodified Kafka brokers under our controller, under load, with every record checked."""

from __future__ import annotations

import pytest

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


def leader_of(cluster: KafkaCluster, topic: str, number: int = 0) -> int:
    state = cluster.states(topic)[topic, number]
    assert state is not None
    return state.leader


def full_isrs(cluster: KafkaCluster) -> None:
    cluster.until("full ISRs", lambda: cluster.in_sync("t"))


def test_a_live_controller_is_taken_over_and_a_leader_killed(make_kafka: MakeCluster) -> None:
    cluster = make_kafka()
    cluster.create_topic("t", 6, 3, config={"min.insync.replicas": "2"})
    elected = len(cluster.elections_by_brokers())
    former = cluster.brokers[cluster.controller_id()]
    with Load(cluster, "t", writers=2, readers=2) as load:
        load.run_for(1)
        take_over(cluster)
        cluster.until("Resigned", lambda: "Resigned" in former.controller_log.read_text())
        load.run_for(1)
        victim = leader_of(cluster, "t")
        cluster.brokers[victim].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        load.run_for(1)
        cluster.restart(victim)
        full_isrs(cluster)
        assert cluster.brokers[victim].stop()
        assert (
            "Controlled shutdown request returned successfully"
            in cluster.brokers[victim].server_log.read_text()
        )
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        cluster.restart(victim)
        full_isrs(cluster)
        load.run_for(1)
        outcome = load.finish()
    assert outcome.ok, outcome
    # The session timeout is 6 s, and the producers' own retries take a second.
    assert outcome.longest_gap_s < 10, outcome
    assert len(cluster.elections_by_brokers()) == elected


@pytest.mark.kafka_long
def test_a_standby_takes_over_and_no_broker_becomes_controller(make_kafka: MakeCluster) -> None:
    cluster = make_kafka()
    cluster.create_topic("t", 3, 3)
    take_over(cluster, count=2)
    elected = len(cluster.elections_by_brokers())
    with Load(cluster, "t", writers=2, readers=1) as load:
        for end in ("kill", "freeze", "stop"):
            epoch, active = cluster.controller_epoch(), cluster.controller_id()
            getattr(cluster.controllers[active], end)()
            cluster.until("the standby", lambda active=active: cluster.controller_id() not in (-1, active))  # type: ignore[misc]
            assert cluster.controller_id() >= OURS
            assert cluster.controller_epoch() == epoch + 1
            if end == "freeze":
                cluster.controllers[active].thaw()
            else:
                cluster.controllers[active].start()
            load.run_for(3)
            cluster.until(
                "a standby",
                lambda active=active: cluster.zk.exists(f"/controllers/ids/{active}"),  # type: ignore[misc]
            )
            assert cluster.controller_epoch() == epoch + 1
        victim = leader_of(cluster, "t")
        cluster.brokers[victim].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        cluster.restart(victim)
        full_isrs(cluster)
        outcome = load.finish()
    assert outcome.ok, outcome
    assert len(cluster.elections_by_brokers()) == elected


@pytest.mark.kafka_long
def test_kafkas_own_controller_goes_on_when_all_of_ours_are_gone(make_kafka: MakeCluster) -> None:
    cluster = make_kafka()
    cluster.create_topic("t", 3, 3)
    take_over(cluster)
    with Load(cluster, "t", writers=2, readers=1) as load:
        ours = cluster.controllers[OURS]
        ours.stop()
        cluster.until("a broker", lambda: cluster.controller_id() in cluster.brokers)
        ours.start()
        cluster.until("our controller", lambda: cluster.controller_id() == OURS)
        ours.freeze()
        cluster.until("a broker", lambda: cluster.controller_id() in cluster.brokers)
        victim = leader_of(cluster, "t")
        cluster.brokers[victim].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        epoch = cluster.controller_epoch()
        load.run_for(1)
        ours.thaw()
        cluster.restart(victim)
        cluster.until("our claim", lambda: cluster.controller_id() == OURS, 30)
        assert cluster.controller_epoch() > epoch
        full_isrs(cluster)
        outcome = load.finish()
    assert outcome.ok, outcome
