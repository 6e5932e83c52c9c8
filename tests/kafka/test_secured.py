"""Secured clusters of unmodified brokers: TLS, SASL, ACLs, and znodes with owners."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from controller.core.requests.errors import ErrorCode
from controller.embedded_kafka import jars
from controller.embedded_kafka.tools import KafkaTools, Tool
from controller.runtime.config import split_address
from controller.runtime.kafka.connection import Connection, ConnectionFailedError, Plaintext
from controller.runtime.kafka.security.setup import client_security
from controller.runtime.kafka.topic_ids import uuid_bytes
from proto.gen.kafka.allocate_producer_ids_request import AllocateProducerIdsRequest
from proto.gen.kafka.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from proto.gen.kafka.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.create_topics_request import CreatableTopic, CreateTopicsRequest
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from proto.kafka.apis import Message
from tests.kafka.cluster import FIRST_CONTROLLER_ID, Controller, KafkaCluster
from tests.kafka.conftest import running
from tests.kafka.load import Load
from tests.kafka.security import Security
from tests.kafka.znodes import snapshot
from tests.support.runtime.secured_zookeeper import secured_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

OURS = FIRST_CONTROLLER_ID


class Secured:
    """Starts one cluster of two brokers, on a ZooKeeper of its own if the znodes are to have owners."""

    def __init__(self, folder: Path, zookeeper: str, stack: ExitStack) -> None:
        self._folder, self._zookeeper, self._stack = folder, zookeeper, stack

    def __call__(self, security: Security, **arguments: Any) -> KafkaCluster:
        zookeeper = self._zookeeper
        if security.zookeeper_acl:
            zookeeper = self._stack.enter_context(secured_zookeeper(self._folder / "zookeeper"))
        if security.mechanism.startswith("SCRAM") and security.sasl:
            security.users_in_zookeeper(zookeeper)
        wanted: dict[str, Any] = {
            "versions": dict.fromkeys((1, 2), jars.NEWEST),
            **security.cluster(),
            **arguments,
        }
        wanted["properties"] = {
            "offsets.topic.replication.factor": "2",
            **wanted["properties"],
        }
        return self._stack.enter_context(running(self._folder / "kafka", zookeeper, **wanted))


@pytest.fixture
def make_secured(tmp_path: Path, zookeeper: str) -> Iterator[Secured]:
    with ExitStack() as stack:
        yield Secured(tmp_path, zookeeper, stack)


def allow(
    cluster: KafkaCluster,
    user: str,
    *granted: tuple[ResourceType, str, AclOperation],
    pattern: ResourcePatternType,
) -> None:
    """Add ACLs at a broker, as the cluster's own client; only while a broker is controller: librdkafka asks it."""
    acls = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in granted
    ]
    admin = cluster.admin()
    for added in admin.create_acls(acls, request_timeout=30).values():
        added.result(30)


def prepared(cluster: KafkaCluster, controller: str = "controller", loader: str = "loader") -> None:
    """Our controllers' user and the load's may do what they have to, and the topic of the load exists."""
    kinds, may = ResourceType, AclOperation
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    cluster_wide = (kinds.BROKER, "kafka-cluster")
    allow(
        cluster,
        controller,
        (*cluster_wide, may.CLUSTER_ACTION),
        (*cluster_wide, may.DESCRIBE_CONFIGS),
        pattern=literal,
    )
    asked = [(kinds.TOPIC, "t", may.READ), (kinds.TOPIC, "t", may.WRITE), (kinds.GROUP, "t", may.READ)]
    allow(cluster, loader, *asked, pattern=prefixed)
    cluster.create_topic("t", 4, 2)


def take_over(cluster: KafkaCluster, count: int) -> None:
    former = cluster.brokers[cluster.controller_id()]
    cluster.add_controllers(count)
    cluster.until("Resigned", lambda: "Resigned" in former.controller_log.read_text())


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    state = cluster.states(topic)[topic, 0]
    assert state is not None
    return state.leader


def active(cluster: KafkaCluster) -> Controller:
    return cluster.controllers[cluster.controller_id()]


def kafka_port(controller: Controller) -> int:
    return split_address(str(controller.settings["kafka_listen"]))[1]


def changes_asked(cluster: KafkaCluster) -> dict[str, tuple[Message, int, int]]:
    """Requests that would be carried out if they came from a broker or from an administrator: by name, each with its
    version and the code with which Kafka denies it."""
    state = cluster.states("t")["t", 0]
    assert state is not None
    registered, znode = cluster.zk.exists(f"/brokers/ids/{state.leader}"), cluster.json("/brokers/topics/t")
    version = cluster.zk.exists("/brokers/topics/t/partitions/0/state").version
    smaller = PartitionData(
        0, state.leader_epoch, [], [BrokerState(state.leader, registered.czxid)], 0, version
    )
    cluster_denied, topic_denied = (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    topic_id = uuid_bytes(znode["topic_id"])
    alter = AlterPartitionRequest(state.leader, registered.czxid, [TopicData("", topic_id, [smaller])])
    move = ReassignableTopic("t", [ReassignablePartition(0, [state.leader])])
    return {
        "AlterPartition": (alter, 3, cluster_denied),
        "ControlledShutdown": (ControlledShutdownRequest(state.leader, registered.czxid), 3, cluster_denied),
        "AllocateProducerIds": (
            AllocateProducerIdsRequest(state.leader, registered.czxid),
            0,
            cluster_denied,
        ),
        "CreateTopics": (CreateTopicsRequest([CreatableTopic("stolen", 1, 1)]), 7, topic_denied),
        "DeleteTopics": (DeleteTopicsRequest([DeleteTopicState("t")], [], 5000), 6, topic_denied),
        "AlterPartitionReassignments": (AlterPartitionReassignmentsRequest(5000, [move]), 0, cluster_denied),
    }


def code_of(response: Any) -> int:
    """Its error, or that of its only entry."""
    if hasattr(response, "error_code"):
        return int(response.error_code)
    entries = response.topics if hasattr(response, "topics") else response.responses
    return int(entries[0].error_code)


async def denied(cluster: KafkaCluster, security: Security, user: str) -> None:
    """Who logs in but is allowed nothing gets Kafka's code for everything that he asks for."""
    connection = Connection("stranger", client_security(security.settings(user)), 20)
    await connection.open("127.0.0.1", kafka_port(active(cluster)))
    try:
        for name, (request, version, expected) in changes_asked(cluster).items():
            assert code_of(await connection.request(request, version)) == expected, name
    finally:
        await connection.close()


async def refused(cluster: KafkaCluster, security: Any, why: str) -> None:
    """Who cannot prove who he is gets no answer to any request."""
    for request, version, _ in changes_asked(cluster).values():
        connection = Connection("nobody", security, 20)

        async def ask() -> None:
            await connection.open("127.0.0.1", kafka_port(active(cluster)))  # noqa: B023
            await connection.request(request, version)  # noqa: B023

        with pytest.raises(ConnectionFailedError, match=why):
            await ask()
        await connection.close()


async def strangers(cluster: KafkaCluster, security: Security) -> None:
    """Nothing changes, whoever asks, and our log tells of each."""
    before, log = snapshot(cluster.zk), active(cluster).log
    await denied(cluster, security, "stranger")
    said = log.read_text()
    assert said.count('"event": "denied"') >= 6, said[-3000:]
    assert "User:stranger" in said
    wrong = client_security(security.settings("alice", "wrong"))
    await refused(cluster, wrong, "refused us with error 58")
    assert "authentication_failed" in log.read_text()
    # Over TLS, but without a login.
    nobody = client_security(security.settings("alice"))
    silent = type(nobody)(nobody.protocol, nobody.contexts, None)
    await refused(cluster, silent, "closed the connection")
    assert "before authentication" in log.read_text()
    await refused(cluster, Plaintext(), "closed the connection|reset|bytes")
    assert "TLS" in log.read_text()
    after = snapshot(cluster.zk)
    assert {path: data for path, data in after.items() if before.get(path) != data} == {}


def test_scram_over_tls_with_acls_and_owned_znodes(make_secured: Secured, tmp_path: Path) -> None:
    security = Security(tmp_path / "security", zookeeper_acl=True)
    cluster = make_secured(security)
    prepared(cluster)
    with Load(cluster, "t", writers=2, readers=1, settings=security.client("loader")) as load:
        load.run_for(0.5)
        take_over(cluster, 2)
        asyncio.run(strangers(cluster, security))
        victim = leader_of(cluster, "t")
        cluster.brokers[victim].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        cluster.restart(victim)
        # By AlterPartition, which its leader asks of us.
        cluster.until("full ISRs", lambda: cluster.in_sync("t"))
        outcome = load.finish()
    assert outcome.ok, outcome
    owners = {acl.id.id for acl in cluster.zk.get_acls("/brokers/topics/t/partitions/0/state")[0]}
    assert owners == {"kafka", "anyone"}


def tool_of(cluster: KafkaCluster, security: Security, user: str) -> KafkaTools:
    return KafkaTools(cluster.bootstrap, cluster.directory / f"tools-{user}", security.tools_client(user))


def ran(tools: KafkaTools, tool: Tool, *arguments: str) -> str:
    done = tools.run(tool, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
