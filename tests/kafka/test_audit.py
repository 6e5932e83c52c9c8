"""`pctl audit` of real Kafka brokers: what somebody else told them is found, named, and told right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from controller.runtime.kafka.topic_ids import uuid_bytes
from proto.gen.kafka.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from proto.gen.kafka.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from proto.gen.kafka.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from proto.kafka.apis import Message
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import running
from tests.kafka.requests import ask
from tests.support.cli.operator import pctl

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

OURS = FIRST_CONTROLLER_ID
LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA = 7, 8, 4


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: str) -> Iterator[KafkaCluster]:
    with running(
        tmp_path_factory.mktemp("kafka"),
        f"{zookeeper_server}/audit",
        versions=dict.fromkeys((1, 2), "3.9.1"),
        controllers_wanted=1,
        # Only pctl looks.
        controller_settings={"audit_interval_seconds": 3600},
    ) as cluster:
        cluster.create_topic("t", 2, 2)
        yield cluster


class Audited(NamedTuple):
    exit_code: int
    answer: dict[str, Any]

    @property
    def problems(self) -> list[tuple[object, ...]]:
        return [(p["partition"], p["broker"], p["kind"]) for p in self.answer["problems"]]


def audit(cluster: KafkaCluster) -> Audited:
    done = pctl(cluster.zookeeper, "-o", "json", "audit")
    return Audited(done.exit_code, json.loads(done.stdout))


def equal(cluster: KafkaCluster) -> bool:
    found = audit(cluster)
    return found.exit_code == 0 and all(b["verdict"] == "equal" for b in found.answer["brokers"])


class Forged(NamedTuple):
    """What a forged control request to the follower of t-0 needs: it looks as if our controller sent it."""

    follower: int
    leader: int
    replicas: list[int]
    state: dict[str, Any]
    partition_epoch: int
    topic_id: bytes
    epochs: tuple[int, int]
    address: str

    def send(self, request: Message, version: int) -> None:
        answer = ask(self.address, request, version)
        assert answer.error_code == 0, answer  # type: ignore[attr-defined]


def forged(cluster: KafkaCluster) -> Forged:
    state = cluster.json("/brokers/topics/t/partitions/0/state")
    replicas = cluster.assignment("t")[0]
    (follower,) = set(replicas) - {state["leader"]}
    registration = cluster.zk.exists(f"/brokers/ids/{follower}")
    stat = cluster.zk.exists("/brokers/topics/t/partitions/0/state")
    assert registration is not None
    assert stat is not None
    return Forged(
        follower,
        state["leader"],
        replicas,
        state,
        # A broker skips requests with a lower one than it knows.
        stat.version,
        uuid_bytes(cluster.json("/brokers/topics/t")["topic_id"]),
        (cluster.controller_epoch(), registration.czxid),
        cluster.brokers[follower].address,
    )


def test_brokers_that_hold_what_they_were_told_are_equal(kafka: KafkaCluster) -> None:
    kafka.until("equality", lambda: equal(kafka))
    found = audit(kafka)
    assert (found.exit_code, found.problems, found.answer["findings"]) == (0, [], [])


def test_metadata_that_somebody_else_sent_is_found_and_told_right(kafka: KafkaCluster) -> None:
    kafka.until("equality", lambda: equal(kafka))
    it = forged(kafka)
    wrong = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=it.epochs[0], leader=it.follower,
        leader_epoch=it.state["leader_epoch"], isr=[it.follower], zk_version=99, replicas=it.replicas,
    )  # fmt: skip
    alive = []
    for broker in kafka.brokers.values():
        host, port = broker.address.split(":")
        alive.append(
            UpdateMetadataBroker(
                broker.broker_id, endpoints=[UpdateMetadataEndpoint(int(port), host, "PLAINTEXT", 0)]
            )
        )
    it.send(
        UpdateMetadataRequest(OURS, controller_epoch=it.epochs[0], broker_epoch=it.epochs[1],
            topic_states=[UpdateMetadataTopicState("t", it.topic_id, [wrong])], live_brokers=alive),
        UPDATE_METADATA,
    )  # fmt: skip
    found = audit(kafka)
    assert (found.exit_code, found.problems) == (1, [(0, it.follower, "metadata differs")])
    (finding,) = found.answer["findings"]
    assert finding == {
        "kind": "metadata differs", "broker": it.follower, "partitions": 1, "topics": "t (1)",
    }  # fmt: skip
    kafka.until("equality", lambda: equal(kafka))


def test_a_follower_that_was_made_leader_under_a_newer_leader_epoch_is_found_and_fenced(
    kafka: KafkaCluster,
) -> None:
    kafka.until("equality", lambda: equal(kafka))
    it = forged(kafka)
    stolen = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=it.epochs[0], leader=it.follower,
        leader_epoch=it.state["leader_epoch"] + 1, isr=[it.follower],
        partition_epoch=it.partition_epoch, replicas=it.replicas,
    )  # fmt: skip
    it.send(
        LeaderAndIsrRequest(OURS, controller_epoch=it.epochs[0], broker_epoch=it.epochs[1],
            topic_states=[LeaderAndIsrTopicState("t", it.topic_id, [stolen])]),
        LEADER_AND_ISR,
    )  # fmt: skip
    found = audit(kafka)
    assert (found.exit_code, found.problems) == (1, [(0, it.follower, "replica differs")])
    assert "a leader epoch above" in found.answer["problems"][0]["what"]
    kafka.until("equality", lambda: equal(kafka))
    now = kafka.json("/brokers/topics/t/partitions/0/state")
    assert now["leader"] == it.leader
    assert now["leader_epoch"] > it.state["leader_epoch"] + 1


def test_a_replica_that_somebody_else_deleted_is_found_and_made_again(kafka: KafkaCluster) -> None:
    kafka.until("equality", lambda: equal(kafka))
    it = forged(kafka)
    stop = StopReplicaPartitionState(0, it.state["leader_epoch"], True)
    it.send(
        StopReplicaRequest(OURS, controller_epoch=it.epochs[0], broker_epoch=it.epochs[1],
            topic_states=[StopReplicaTopicState("t", [stop])]),
        STOP_REPLICA,
    )  # fmt: skip
    found = audit(kafka)
    assert (found.exit_code, found.problems) == (1, [(0, it.follower, "replica differs")])
    assert "holds nothing" in found.answer["problems"][0]["what"]
    kafka.until("equality", lambda: equal(kafka))
    kafka.until("full ISRs", lambda: kafka.in_sync("t"))
