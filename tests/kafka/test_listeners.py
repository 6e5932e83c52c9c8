"""Layouts of the brokers' listeners: our controller finds the brokers, and brokers and tools find our controller."""

from __future__ import annotations

import pytest

from controller.embedded_kafka.tools import KafkaTools, Tool
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID


def tools_on(cluster: KafkaCluster, listener: str) -> KafkaTools:
    bootstrap = ",".join(f"127.0.0.1:{broker.listeners[listener]}" for broker in cluster.brokers.values())
    return KafkaTools(bootstrap, cluster.directory / f"tools-{listener}")


@pytest.mark.parametrize(
    ("names", "control_plane"),
    [
        (["PLAINTEXT"], False),
        (["EXTERNAL", "INTERNAL"], False),
        (["EXTERNAL", "INTERNAL", "CONTROL"], True),
    ],
    ids=["one", "two", "control-plane"],
)
def test_each_layout_is_led(make_kafka: MakeCluster, names: list[str], control_plane: bool) -> None:
    inter_broker = names[min(1, len(names) - 1)]
    cluster = make_kafka(
        listeners=names,
        properties={
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": inter_broker,
            "replica.lag.time.max.ms": "3000",
            **({"control.plane.listener.name": "CONTROL"} if control_plane else {}),
        },
        controller_settings={
            "kafka_inter_broker_listener_name": inter_broker,
            "kafka_control_plane_listener_name": "CONTROL" if control_plane else "",
        },
    )
    # A frozen former controller is asked until the request times out, also under Kafka's own.
    victim = next(id_ for id_ in cluster.brokers if id_ != cluster.controller_id())
    cluster.add_controllers(1)
    elected = len(cluster.elections_by_brokers())
    for name in names[:2]:
        done = tools_on(cluster, name).run(
            Tool.TOPICS, "--create", "--topic", f"by-{name}", "--partitions", "3", "--replication-factor", "3"
        )
        assert done.returncode == 0, done.stdout + done.stderr
    topic = f"by-{names[0]}"
    cluster.until("states", lambda: cluster.led(topic) and cluster.in_sync(topic))
    with Load(cluster, topic, writers=1, readers=1) as load:
        load.run_for(0.5)
        cluster.brokers[victim].freeze()
        # Before the session's end: only leaders can shrink it, and only by AlterPartition.
        cluster.until(
            "shrunk ISRs by AlterPartition",
            lambda: any(
                s and s.leader != victim and victim not in s.isr and s.leader_epoch == 0
                for s in cluster.states(topic).values()
            ),
        )
        cluster.brokers[victim].thaw()
        cluster.until("full ISRs", lambda: cluster.in_sync(topic))
        assert cluster.brokers[victim].stop()
        log = cluster.brokers[victim].server_log.read_text()
        assert "Controlled shutdown request returned successfully" in log
        cluster.until("new leaders", lambda: cluster.led(topic, without=[victim]))
        cluster.restart(victim)
        outcome = load.finish()
    assert outcome.ok, outcome
    assert len(cluster.elections_by_brokers()) == elected
