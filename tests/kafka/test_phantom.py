"""Brokers that create topics by themselves take our controller for one of them: its id never keeps a replica."""

from __future__ import annotations

import re
import time
from functools import partial
from subprocess import CompletedProcess

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load
from tests.support.kafka.tools import Tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID
AUTOMATIC = {"auto.create.topics.enable": "true", "default.replication.factor": "3", "num.partitions": "4"}
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
#: What our controller records of a repair.
REPAIRED = b"a controller's id was among the replicas"
TOO_FEW = b"one on a controller's id, and only 2 brokers are registered"
#: Leaves a moment in which nobody leads.
PATIENT = {"session_timeout_ms": 12_000}


def ask_for(cluster: KafkaCluster, topic: str) -> None:
    """A producer asks once for the metadata of a topic, which brokers then create."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.list_topics(topic, timeout=10)


def ask_for_group(cluster: KafkaCluster) -> Consumer:
    """A member of a group asks for its coordinator as long as it is not closed."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first"})
    consumer.subscribe(["t"])
    consumer.poll(0.1)
    return consumer


def phantoms(cluster: KafkaCluster) -> list[tuple[str, int, list[int]]]:
    """Partitions whose assignment or state names an id that is no broker's."""
    named = []
    for topic in cluster.zk.get_children("/brokers/topics"):
        for number, replicas in cluster.assignment(topic).items():
            state = cluster.states(topic)[topic, number]
            ids = [*replicas, *(state.isr if state else [])]
            if set(ids) - cluster.brokers.keys():
                named.append((topic, number, ids))
    return named


def settled(cluster: KafkaCluster, *topics: str) -> bool:
    return all(cluster.assignment(t) for t in topics) and cluster.led() and cluster.in_sync()


def recorded(cluster: KafkaCluster, words: bytes) -> int:
    """How often the state logs of our controllers say so."""
    return sum(
        file.read_bytes().count(words)
        for controller in cluster.controllers.values()
        for file in controller.state_log.rglob("*")
        if file.is_file()
    )


def write(cluster: KafkaCluster, topic: str, *, transactional: bool = False) -> None:
    """A short load that must end well."""
    with Load(cluster, topic, writers=1, readers=1, transactional=transactional) as load:
        load.until("acknowledged records", lambda: load.acknowledged() > 20)
        outcome = load.finish()
    assert outcome.ok, outcome


@pytest.mark.parametrize("racks", [{}, {1: "a", 2: "b", 3: "c"}], ids=["without-racks", "with-racks"])
def test_the_first_group_transaction_and_automatic_topic(
    make_kafka: MakeCluster, racks: dict[int, str]
) -> None:
    cluster = make_kafka(
        properties=AUTOMATIC,
        per_broker={id_: {"broker.rack": rack} for id_, rack in racks.items()},
        controllers_wanted=1,
    )
    topics = ("t", "u", OFFSETS, TRANSACTIONS)
    for topic in topics[:2]:
        ask_for(cluster, topic)
    cluster.until("the topics", lambda: settled(cluster, *topics[:2]))
    write(cluster, "t")
    write(cluster, "u", transactional=True)
    cluster.until("all topics", lambda: settled(cluster, *topics))
    assert not phantoms(cluster)
    for topic in topics:
        assert all(len(replicas) == 3 for replicas in cluster.assignment(topic).values()), topic
    # Else nothing was shown: with four nodes for three replicas, our id was among them.
    assert recorded(cluster, REPAIRED) >= 3


def test_racks_of_some_brokers_only(make_kafka: MakeCluster) -> None:
    """Brokers then create no topic by themselves, whoever is controller. A controller of Kafka's creates none either,
    ours takes a broker without a rack as one in a rack of its own."""
    cluster = make_kafka(properties=AUTOMATIC, per_broker={1: {"broker.rack": "a"}})
    ask_for(cluster, "before")
    cluster.until("the refusal", lambda: refused(cluster, "before"))
    theirs = create_by_tool(cluster)
    assert theirs.returncode != 0, theirs
    assert "UnknownServerException" in theirs.stderr
    cluster.add_controllers(1)
    ask_for(cluster, "after")
    cluster.until("the refusal", lambda: refused(cluster, "after"))
    assert cluster.zk.get_children("/brokers/topics") == []
    ours = create_by_tool(cluster)
    assert ours.returncode == 0, ours
    assert set(cluster.assignment("x")[0]) == {1, 2, 3}


def refused(cluster: KafkaCluster, topic: str) -> bool:
    said = rf"CreatableTopic\(name='{topic}'.*\n.*Not all brokers have rack information"
    return any(re.search(said, broker.server_log.read_text()) for broker in cluster.brokers.values())


def create_by_tool(cluster: KafkaCluster) -> CompletedProcess[str]:
    arguments = ["--create", "--topic", "x", "--partitions", "1", "--replication-factor", "3"]
    return cluster.tools.run(Tool.TOPICS, *arguments)


def test_with_fewer_brokers_than_replicas_no_topic_stays(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(properties=AUTOMATIC, controllers_wanted=1)
    cluster.create_topic("t", 2, 2)
    assert cluster.brokers[3].stop()
    cluster.await_gone(3)
    # Each broker creates topics from its own metadata.
    for id_ in (1, 2):
        cluster.until(f"broker {id_} to hear that broker 3 is gone", partial(knows_no, cluster, id_, 3))
    with pytest.raises(KafkaException, match=r"LEADER_NOT_AVAILABLE|UNKNOWN_TOPIC|INVALID_REPLICATION"):
        raise_error(cluster, "auto")
    consumer = ask_for_group(cluster)
    ends = time.monotonic() + 8
    while time.monotonic() < ends:
        consumer.poll(0.05)
        assert not consumer.assignment()
        # A topic may be there for a moment, but never gets a state.
        for topic in {OFFSETS, "auto"} & set(cluster.zk.get_children("/brokers/topics")):
            assert not any(cluster.states(topic).values())
    assert recorded(cluster, TOO_FEW), "brokers refused by themselves"
    cluster.restart(3)
    ask_for(cluster, "auto")
    began = time.monotonic()
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < began + 60
    consumer.close()
    cluster.until("all topics", lambda: settled(cluster, "t", OFFSETS, "auto"))
    assert not phantoms(cluster)
    assert all(len(replicas) == 3 for replicas in cluster.assignment(OFFSETS).values())
    write(cluster, "auto")


def knows_no(cluster: KafkaCluster, asked: int, gone: int) -> bool:
    address = f"127.0.0.1:{cluster.brokers[asked].listeners['PLAINTEXT']}"
    return gone not in AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).brokers


def raise_error(cluster: KafkaCluster, topic: str) -> None:
    error = (
        Producer({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=10).topics[topic].error
    )
    assert error is not None
    raise KafkaException(error)


def assigned_to_us(cluster: KafkaCluster) -> Consumer:
    """Freeze our controller, and have brokers assign replicas of the first group's topic to it."""
    cluster.controllers[OURS].freeze()
    consumer = ask_for_group(cluster)
    cluster.until("an assignment to our id", lambda: phantoms(cluster))
    assert not any(cluster.states(OFFSETS).values())
    return consumer


def test_a_standby_repairs_what_was_assigned_to_a_killed_controller(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(properties=AUTOMATIC, controllers_wanted=1, controller_settings=PATIENT)
    cluster.create_topic("t", 2, 3)
    cluster.add_controllers(1)
    elected = len(cluster.elections_by_brokers())
    consumer = assigned_to_us(cluster)
    cluster.controllers[OURS].kill()
    cluster.until("the standby", lambda: cluster.controller_id() == OURS + 1)
    cluster.until("all topics", lambda: settled(cluster, "t", OFFSETS))
    consumer.close()
    assert not phantoms(cluster)
    assert recorded(cluster, REPAIRED)
    write(cluster, "t")
    assert len(cluster.elections_by_brokers()) == elected


def test_what_kafkas_own_controller_made_of_it_is_repaired_later(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(properties=AUTOMATIC, controllers_wanted=1, controller_settings=PATIENT)
    cluster.create_topic("t", 2, 3)
    consumer = assigned_to_us(cluster)
    cluster.controllers[OURS].kill()
    cluster.until("a broker", lambda: cluster.controller_id() in cluster.brokers)
    cluster.until("leaders", lambda: cluster.led())
    consumer.close()
    # Kafka takes our id for a broker that is down: one replica less is in sync, and all goes on.
    assert phantoms(cluster)
    with Load(cluster, "t", writers=1, readers=1) as load:
        load.run_for(1)
        cluster.controllers[OURS].start()
        cluster.until("our controller", lambda: cluster.controller_id() == OURS)
        cluster.until("the repair", lambda: not phantoms(cluster) and settled(cluster, "t", OFFSETS))
        outcome = load.finish()
    assert outcome.ok, outcome
