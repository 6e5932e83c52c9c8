"""Requests of Kafka's protocol that librdkafka's admin client lacks, sent to a cluster's controller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from controller.runtime.kafka.connection import Connection
from controller.runtime.kafka.security.client import ClientSecurity
from proto.gen.kafka.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from proto.gen.kafka.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from proto.gen.kafka.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from proto.gen.kafka.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from proto.kafka.apis import Message
from tests.kafka.cluster import KafkaCluster

#: Kafka's ``ConfigResource.Type.TOPIC``.
_TOPIC = 2


def ask(address: str, request: Message, version: int, timeout_s: float = 30.0) -> Message:
    """The answer of the node at HOST:PORT. Raises ConnectionFailedError."""

    async def asked() -> Message:
        connection = Connection("tests", ClientSecurity(), timeout_s)
        host, _, port = address.rpartition(":")
        try:
            await connection.open(host, int(port))
            return await connection.request(request, version)
        finally:
            await connection.close()

    return asyncio.run(asked())


def controller_address(cluster: KafkaCluster) -> str:
    """Where whoever is controller takes requests."""
    id_ = cluster.controller_id()
    if id_ in cluster.brokers:
        return cluster.brokers[id_].address
    return str(cluster.controllers[id_].settings["kafka_listen"])


def alter_topic(cluster: KafkaCluster, topic: str, config: Mapping[str, str]) -> None:
    """IncrementalAlterConfigs at a broker: sets these keys. Fails on any error."""
    entries = [AlterableConfig(name, 0, value) for name, value in config.items()]
    asked = IncrementalAlterConfigsRequest(
        [AlterConfigsResource(_TOPIC, topic, entries)], validate_only=False
    )
    address = next(broker.address for broker in cluster.brokers.values() if broker.running())
    answer = ask(address, asked, 0)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert [response.error_code for response in answer.responses] == [0], answer


def reassign(cluster: KafkaCluster, targets: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
    """AlterPartitionReassignments: the replicas wanted by (topic, partition), None cancels. Fails on any error."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in targets.items():
        wanted = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(ReassignablePartition(number, wanted))
    asked = AlterPartitionReassignmentsRequest(
        timeout_ms=20_000, topics=[ReassignableTopic(name, entries) for name, entries in topics.items()]
    )
    answer = ask(controller_address(cluster), asked, 0)
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    errors = [(t.name, p) for t in answer.responses for p in t.partitions if p.error_code]
    assert not answer.error_code, answer
    assert not errors, errors


def every_acl() -> AclBindingFilter:
    """For librdkafka's admin client."""
    # Its type does not say that None stands for all.
    unset: Any = None
    return AclBindingFilter(
        ResourceType.ANY,
        unset,
        ResourcePatternType.ANY,
        unset,
        unset,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
