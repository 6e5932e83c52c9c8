"""Topics and configuration: messages to the core's values and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.core.model import BrokerIds
from controller.core.requests.configs import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
    DescribeConfigsReply,
)
from controller.core.requests.topics import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    Expansion,
    NewTopic,
)
from proto.gen import admin_service_pb2 as pb

_SCOPES = {pb.TOPIC: ConfigScope.TOPIC, pb.BROKER: ConfigScope.BROKER, pb.CONTROLLER: ConfigScope.CONTROLLER}
_TYPES = {scope: number for number, scope in _SCOPES.items()}


class BadRequestError(ValueError):
    """A field has a value that the core cannot represent; the message names the field and what is allowed."""


def _lists(assignment: Mapping[int, BrokerIds]) -> dict[int, pb.ReplicaList]:
    return {number: pb.ReplicaList(broker_ids=ids) for number, ids in assignment.items()}


# --- creation and expansion --------------------------------------------------------------------------------


def read_creation(request: pb.CreateTopicsRequest) -> CreateTopics:
    """-1 means that the number is not given, as in Kafka."""
    return CreateTopics(
        [
            NewTopic(
                topic.name,
                None if topic.num_partitions == -1 else topic.num_partitions,
                None if topic.replication_factor == -1 else topic.replication_factor,
                {number: tuple(ids.broker_ids) for number, ids in topic.assignments.items()},
                dict(topic.configs),
            )
            for topic in request.topics
        ],
        request.validate_only,
    )


def show_creation(reply: CreateTopicsReply) -> pb.CreateTopicsResponse:
    return pb.CreateTopicsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        topics=[
            pb.CreatedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=topic.error.value,  # type: ignore[arg-type]
                error_message=topic.message,
                assignments=_lists(topic.assignment),
            )
            for topic in reply.topics
        ],
    )


def read_expansion(request: pb.CreatePartitionsRequest) -> CreatePartitions:
    return CreatePartitions(
        [
            Expansion(topic.name, topic.count, tuple(tuple(ids.broker_ids) for ids in topic.assignments))
            for topic in request.topics
        ],
        request.validate_only,
    )


def show_expansion(reply: CreatePartitionsReply) -> pb.CreatePartitionsResponse:
    return pb.CreatePartitionsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        results=[
            pb.CreatePartitionsResult(
                name=topic.name,
                error_code=topic.error.value,  # type: ignore[arg-type]
                error_message=topic.message,
                assignments=_lists(topic.assignment),
            )
            for topic in reply.topics
        ],
    )


# --- configuration -----------------------------------------------------------------------------------------


def _resource(asked: pb.ConfigResource) -> ConfigResource:
    scope = _SCOPES.get(asked.resource_type)
    if scope is None:
        raise BadRequestError(
            f"resource_type = {asked.resource_type}: must be 2 TOPIC, 4 BROKER or 100 CONTROLLER"
        )
    return ConfigResource(scope, asked.resource_name)


def _shown(resource: ConfigResource) -> pb.ConfigResource:
    return pb.ConfigResource(resource_type=_TYPES[resource.scope], resource_name=resource.name)


def read_alteration(request: pb.AlterConfigsRequest) -> AlterConfigs:
    """Raises BadRequestError."""

    def change(config: Any) -> ConfigChange:
        return ConfigChange(config.name, config.value if config.HasField("value") else None)

    return AlterConfigs(
        [ConfigAlteration(_resource(r.resource), [change(c) for c in r.configs]) for r in request.resources],
        request.validate_only,
        not request.unknown_keys_too,
    )


def show_alteration(reply: AlterConfigsReply) -> pb.AlterConfigsResponse:
    return pb.AlterConfigsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        responses=[
            pb.AlterConfigsResult(
                resource=_shown(r.resource),
                error_code=r.error.value,  # type: ignore[arg-type]
                error_message=r.message,
                unknown_keys=r.unknown,
            )
            for r in reply.resources
        ],
    )


def read_description(request: pb.DescribeConfigsRequest) -> DescribeConfigs:
    """Raises BadRequestError."""
    return DescribeConfigs([_resource(resource) for resource in request.resources])


def show_description(reply: DescribeConfigsReply) -> pb.DescribeConfigsResponse:
    return pb.DescribeConfigsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        results=[
            pb.DescribeConfigsResult(
                resource=_shown(r.resource),
                error_code=r.error.value,  # type: ignore[arg-type]
                error_message=r.message,
                configs=[
                    pb.DescribedConfig(
                        name=entry.key,
                        value=entry.value,
                        source=entry.source,
                        known=entry.known,
                        problem=entry.problem,
                    )
                    for entry in r.entries
                ],
            )
            for r in reply.resources
        ],
    )
