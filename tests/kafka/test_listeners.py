"""Layouts of the brokers' listeners: our controller finds the brokers, and brokers and tools find our controller."""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster, ports
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load
from tests.support.kafka.tools import KafkaTools, Tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID


def bootstrap(cluster: KafkaCluster, listener: str) -> str:
    return ",".join(f"127.0.0.1:{broker.listeners[listener]}" for broker in cluster.brokers.values())


def nodes(address: str) -> dict[int, int]:
    """Ports by node, as metadata names them."""
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10)
    return {id_: node.port for id_, node in found.brokers.items()}


def shown(address: str, expected: dict[int, int]) -> bool:
    return nodes(address) == expected


def started(make_kafka: MakeCluster, names: list[str], addresses: dict[str, int]) -> tuple[KafkaCluster, int]:
    """A cluster that our controller leads, and a broker that was not the controller before."""
    inter_broker = names[min(1, len(names) - 1)]
    control_plane = "CONTROL" if "CONTROL" in names else ""
    cluster = make_kafka(
        listeners=names,
        properties={
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": inter_broker,
            "replica.lag.time.max.ms": "3000",
            **({"control.plane.listener.name": control_plane} if control_plane else {}),
        },
        controller_settings={
            "kafka_inter_broker_listener_name": inter_broker,
            "kafka_control_plane_listener_name": control_plane,
            "kafka_listen": ",".join(
                f"{name}://127.0.0.1:{port}" if name else f"127.0.0.1:{port}"
                for name, port in addresses.items()
            ),
        },
    )
    other = next(id_ for id_ in cluster.brokers if id_ != cluster.controller_id())
    cluster.add_controllers(1)
    return cluster, other


@pytest.mark.parametrize(
    "names", [["PLAINTEXT"], ["EXTERNAL", "INTERNAL"], ["EXTERNAL", "INTERNAL", "CONTROL"]]
)
def test_each_layout_is_led(make_kafka: MakeCluster, names: list[str]) -> None:
    clients = names[:2]
    addresses = dict(zip(clients if len(clients) > 1 else [""], ports(len(clients)), strict=True))
    # A frozen former controller would be asked until the request times out, also under Kafka's own.
    cluster, victim = started(make_kafka, names, addresses)
    elected = len(cluster.elections_by_brokers())
    for name in clients:
        expected = {id_: broker.listeners[name] for id_, broker in cluster.brokers.items()}
        expected[OURS] = port = addresses.get(name) or addresses[""]
        cluster.until("metadata", partial(shown, bootstrap(cluster, name), expected))
        assert nodes(f"127.0.0.1:{port}") == expected
        for address, topic in ((bootstrap(cluster, name), f"by-{name}"), (f"127.0.0.1:{port}", f"us-{name}")):
            done = KafkaTools(address, cluster.directory / "tools").run(
                Tool.TOPICS, "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3"
            )
            assert done.returncode == 0, done.stdout + done.stderr
    topic = f"by-{clients[0]}"
    cluster.until("states", lambda: cluster.led(topic) and cluster.in_sync(topic))
    with Load(cluster, topic, writers=1, readers=1) as load:
        load.run_for(0.5)
        cluster.brokers[victim].freeze()
        # A leader does this, by AlterPartition: the controller raises leader epochs when it does.
        cluster.until("shrunk ISRs", lambda: shrunk(cluster, topic, victim))
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


def shrunk(cluster: KafkaCluster, topic: str, victim: int) -> bool:
    states = [s for s in cluster.states(topic).values() if s is not None]
    return any(s.leader != victim and victim not in s.isr and s.leader_epoch == 0 for s in states)


def test_with_one_address_clients_of_another_listener_do_not_see_us(make_kafka: MakeCluster) -> None:
    cluster, _ = started(make_kafka, ["EXTERNAL", "INTERNAL"], {"": ports(1)[0]})
    cluster.until("metadata", lambda: OURS in nodes(bootstrap(cluster, "INTERNAL")))
    assert nodes(bootstrap(cluster, "EXTERNAL")).keys() == cluster.brokers.keys()
