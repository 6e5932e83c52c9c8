"""What ``partition-controller workload`` does with librdkafka before its first record."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.cimpl import NewTopic

from controller.errors import EnvironmentFault
from controller.workload import kafka_clients
from tests.kafka.conftest import MakeCluster

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]


def test_it_waits_for_a_broker_that_has_not_heard_of_the_topic(
    make_kafka: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_kafka(versions={1: "3.9.1"}, properties={"auto.create.topics.enable": "false"})
    settings = {"bootstrap.servers": cluster.bootstrap}
    admin, topic = cluster.admin_that_knows_the_controller(), NewTopic("late", 3, 1)
    threading.Timer(1.0, lambda: admin.create_topics([topic])["late"].result(30)).start()
    assert kafka_clients.partitions_of(settings, "late") == 3
    monkeypatch.setattr(kafka_clients, "HEARD_S", 0.5)
    with pytest.raises(EnvironmentFault, match=r"topic absent: .*UNKNOWN_TOPIC_OR_PART"):
        kafka_clients.partitions_of(settings, "absent")
