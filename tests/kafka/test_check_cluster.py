"""``check-cluster`` on real brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from controller.cli.main import main
from controller.embedded_kafka import jars
from tests.kafka.cluster import KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.side_by_side.znodes import snapshot

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


def checked(cluster: KafkaCluster, *arguments: str, **settings: str) -> tuple[int, dict[str, Any]]:
    environment = {f"PARTITION_CONTROLLER_{name.upper()}": value for name, value in settings.items()}
    result = CliRunner(env=environment).invoke(
        main, ["check-cluster", f"--zookeeper={cluster.zookeeper}", "-o", "json", *arguments]
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def problems(answer: dict[str, Any]) -> list[tuple[str, int]]:
    return [(f["check"], f["broker"]) for f in answer["findings"] if f["level"] in ("warning", "blocker")]


@pytest.mark.kafka_long
def test_versions_of_brokers_are_told_apart(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(
        versions={1: "3.9.1", 2: "3.6.2", 3: "3.3.2", 4: "2.8.2"},
        properties={"inter.broker.protocol.version": "2.8"},
    )
    before = snapshot(cluster.zk)
    code, answer = checked(cluster, "--controller-id=9001")
    assert {b["broker"]: b["version"] for b in answer["brokers"]} == {1: "3.9", 2: "3.6", 3: "3.3", 4: "2.8"}
    assert {b["inter_broker_protocol_version"] for b in answer["brokers"]} <= {"2.8", "2.8-IV1"}
    assert (code, answer["can_be_led"], problems(answer)) == (0, True, [])
    code, answer = checked(cluster, "--controller-id=2")
    assert (code, problems(answer)) == (3, [("controller id", -1)])
    assert snapshot(cluster.zk) == before


@pytest.mark.kafka_long
def test_listeners_and_a_broker_that_is_frozen(make_kafka: MakeCluster) -> None:
    names = ["EXTERNAL", "INTERNAL", "CONTROL"]
    cluster = make_kafka(
        versions=dict.fromkeys((1, 2), jars.NEWEST),
        listeners=names,
        properties={
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "INTERNAL",
            "control.plane.listener.name": "CONTROL",
        },
    )
    code, answer = checked(cluster, "--controller-id=9001")
    assert code == 3
    assert problems(answer) == [
        ("listeners", -1),
        ("listeners", 1),
        ("listeners", 2),
        ("control plane", 1),
        ("control plane", 2),
    ]
    settings = {
        "kafka_inter_broker_listener_name": "INTERNAL",
        "kafka_control_plane_listener_name": "CONTROL",
    }
    code, answer = checked(cluster, "--controller-id=9001", **settings)
    assert (code, problems(answer)) == (0, [("listeners", -1)])
    settings["kafka_listen"] = "INTERNAL://127.0.0.1:9192,EXTERNAL://127.0.0.1:9193"
    assert checked(cluster, "--controller-id=9001", **settings)[0] == 0
    cluster.brokers[2].freeze()
    code, answer = checked(cluster, "--controller-id=9001", connection_timeout_ms="1500", **settings)
    assert (code, problems(answer)) == (0, [("brokers", 2)])
