"""Topics and configuration asked for over real gRPC of a controller on a real ZooKeeper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from proto.gen import admin_service_pb2 as pb
from tests.support.runtime.admins import ask, error_name, errors
from tests.support.runtime.callers import controller
from tests.support.runtime.pushes import FakeBroker

pytestmark = pytest.mark.slow

TOPICS = {"t": '{"0":[1,2]}'}


def new(name: str, partitions: int = -1, factor: int = -1, **fields: Any) -> pb.CreatableTopic:
    return pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def replicas(*lists: list[int]) -> dict[int, pb.ReplicaList]:
    return {number: pb.ReplicaList(broker_ids=ids) for number, ids in enumerate(lists)}


def topic_znode(zk: KazooClient, name: str) -> Any:
    return json.loads(zk.get(f"/brokers/topics/{name}")[0])


async def test_creation_is_refused_topic_by_topic(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        zk.create("/brokers/topics/a_b", b'{"version":1,"partitions":{"0":[1]}}')
        request = pb.CreateTopicsRequest(
            topics=[
                new("twice"),
                new("twice"),
                new(""),
                new("t"),
                new("n1", 0, 9),
                new("n2", 1, 3),
                new("n3", assignments=replicas([1, 1])),
                new("n4", 1, assignments=replicas([1, 2])),
                new("n5", configs={"min.insync.replicas": "none"}),
            ]
        )
        answer = await ask(active.daemon.grpc_endpoint, "CreateTopics", request)
        assert errors(answer.topics) == [
            "INVALID_REQUEST",
            "INVALID_REQUEST",
            "INVALID_TOPIC_EXCEPTION",
            "TOPIC_ALREADY_EXISTS",
            "INVALID_PARTITIONS",
            "INVALID_REPLICATION_FACTOR",
            "INVALID_REPLICA_ASSIGNMENT",
            "INVALID_REQUEST",
            "INVALID_CONFIG",
        ]
        assert all(topic.error_message for topic in answer.topics)
        assert sorted(zk.get_children("/brokers/topics")) == ["a_b", "t"]
        assert not zk.exists("/config/topics/n5")


async def test_a_topic_is_stored_with_its_configuration_when_answered_and_led_soon(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        endpoint = active.daemon.grpc_endpoint
        dry = pb.CreateTopicsRequest(topics=[new("n", 4, 2)], validate_only=True)
        (placed,) = (await ask(endpoint, "CreateTopics", dry)).topics
        assert (placed.error_code, placed.topic_id, len(placed.assignments)) == (0, "", 4)
        assert not zk.exists("/brokers/topics/n")
        zk.create("/config/topics/n", b"junk left behind", makepath=True)
        made = pb.CreateTopicsRequest(topics=[new("n", 4, 2, configs={"retention.ms": "7"})])
        (created,) = (await ask(endpoint, "CreateTopics", made)).topics
        stored = topic_znode(zk, "n")
        assert (created.error_code, created.topic_id) == (0, stored["topic_id"])
        assert stored["partitions"] == {str(n): list(r.broker_ids) for n, r in created.assignments.items()}
        assert json.loads(zk.get("/config/topics/n")[0])["config"] == {"retention.ms": "7"}
        # The next request is answered after the leaders were elected.
        again = (await ask(endpoint, "CreateTopics", made)).topics
        assert errors(again) == ["TOPIC_ALREADY_EXISTS"]
        assert [active.stored("n", n)[0] for n in range(4)] == [
            stored["partitions"][str(n)][0] for n in range(4)
        ]


async def test_expansion(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    topics = {**TOPICS, "moving": '{"0":[9,1]},"adding_replicas":{"0":[9]}'}
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=topics) as active:
        endpoint = active.daemon.grpc_endpoint
        request = pb.CreatePartitionsRequest(
            topics=[
                pb.NewPartitions(name="nope", count=2),
                pb.NewPartitions(name="moving", count=2),
                pb.NewPartitions(name="t", count=1),
            ]
        )
        answer = await ask(endpoint, "CreatePartitions", request)
        assert errors(answer.results) == [
            "UNKNOWN_TOPIC_OR_PARTITION",
            "REASSIGNMENT_IN_PROGRESS",
            "INVALID_PARTITIONS",
        ]
        bad = pb.NewPartitions(name="t", count=2, assignments=[pb.ReplicaList(broker_ids=[1, 9])])
        answer = await ask(endpoint, "CreatePartitions", pb.CreatePartitionsRequest(topics=[bad]))
        assert errors(answer.results) == ["INVALID_REPLICA_ASSIGNMENT"]
        more = pb.NewPartitions(name="t", count=3)
        dry = pb.CreatePartitionsRequest(topics=[more], validate_only=True)
        (result,) = (await ask(endpoint, "CreatePartitions", dry)).results
        assert sorted(result.assignments) == [1, 2]
        assert list(topic_znode(zk, "t")["partitions"]) == ["0"]
        (result,) = (
            await ask(endpoint, "CreatePartitions", pb.CreatePartitionsRequest(topics=[more]))
        ).results
        added = {str(n): list(r.broker_ids) for n, r in result.assignments.items()}
        assert topic_znode(zk, "t")["partitions"] == {"0": [1, 2], **added}
        await ask(endpoint, "CreatePartitions", dry)
        assert [active.stored("t", n)[0] for n in (1, 2)] == [added["1"][0], added["2"][0]]


def config(kind: int, name: str, **values: str | None) -> pb.AlterConfigsResource:
    configs = [pb.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    return pb.AlterConfigsResource(
        resource=pb.ConfigResource(resource_type=kind, resource_name=name),  # type: ignore[arg-type]
        configs=configs,
    )


async def test_configuration(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        endpoint = active.daemon.grpc_endpoint
        for request in (
            pb.AlterConfigsRequest(resources=[config(9, "t", retention_ms="1")]),
            pb.AlterConfigsRequest(resources=[config(pb.UNKNOWN_RESOURCE, "t")]),
        ):
            answer = await ask(endpoint, "AlterConfigs", request)
            assert error_name(answer.error_code) == "INVALID_REQUEST"
            assert "must be 2 TOPIC, 4 BROKER or 100 CONTROLLER" in answer.error_message
        refused = pb.AlterConfigsRequest(
            resources=[
                config(pb.TOPIC, "nope", retention_ms="1"),
                config(pb.TOPIC, "a b", retention_ms="1"),
                config(pb.TOPIC, "t", retention_ms="x"),
                config(pb.BROKER, "x", any_key="1"),
            ]
        )
        answer = await ask(endpoint, "AlterConfigs", refused)
        assert errors(answer.responses) == [
            "UNKNOWN_TOPIC_OR_PARTITION",
            "INVALID_TOPIC_EXCEPTION",
            "INVALID_CONFIG",
            "INVALID_REQUEST",
        ]
        good = [config(pb.TOPIC, "t", retention_ms="5", of_others="kept")]
        await ask(endpoint, "AlterConfigs", pb.AlterConfigsRequest(resources=good, validate_only=True))
        assert not zk.exists("/config/topics/t")
        answer = await ask(endpoint, "AlterConfigs", pb.AlterConfigsRequest(resources=good))
        assert errors(answer.responses) == ["INVALID_CONFIG"]
        forced = pb.AlterConfigsRequest(resources=good, unknown_keys_too=True)
        answer = await ask(endpoint, "AlterConfigs", forced)
        assert [(r.error_code, list(r.unknown_keys)) for r in answer.responses] == [(0, ["of.others"])]
        assert json.loads(zk.get("/config/topics/t")[0])["config"] == {
            "retention.ms": "5",
            "of.others": "kept",
        }
        gone = pb.AlterConfigsRequest(resources=[config(pb.TOPIC, "t", of_others=None)])
        await ask(endpoint, "AlterConfigs", gone)
        described = pb.DescribeConfigsRequest(resources=[good[0].resource, refused.resources[0].resource])
        answer = await ask(endpoint, "DescribeConfigs", described)
        assert errors(answer.results) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
        (entry,) = answer.results[0].configs
        assert (entry.name, entry.value, entry.source, entry.known) == ("retention.ms", "5", "topics/t", True)
