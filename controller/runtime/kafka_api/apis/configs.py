"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-339).

This node has no configuration: what concerns it is answered empty, or accepted without effect, because tools that
remove throttles ask every node to. Brokers keep all others: what the caller may do is forwarded to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka_api.call import Call
from proto.gen.kafka.alter_configs_request import AlterConfigsRequest
from proto.gen.kafka.alter_configs_response import AlterConfigsResourceResponse as Altered
from proto.gen.kafka.alter_configs_response import AlterConfigsResponse
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest
from proto.gen.kafka.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from proto.gen.kafka.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from proto.gen.kafka.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from proto.kafka.apis import Message
from proto.security.authorization import Operation

#: Kafka's numbers of resource types (ConfigResource.Type).
_TOPIC, _BROKER, _BROKER_LOGGER = 2, 4, 8


class _Resource(Protocol):
    resource_type: int
    resource_name: str


R = TypeVar("R", bound=_Resource)
#: A result for a resource: error, message, type and name.
Result = Callable[[int, str | None, int, str], Any]


async def describe_configs(call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse | None:
    asked = call.request

    def request(part: list[Any]) -> Message:
        return DescribeConfigsRequest(part, asked.include_synonyms, asked.include_documentation)

    results = await _results(
        call, asked.resources, Operation.DESCRIBE_CONFIGS, DescribeConfigsResult, request, lambda r: r.results
    )
    return None if results is None else DescribeConfigsResponse(results=results)


async def alter_configs(call: Call[AlterConfigsRequest]) -> AlterConfigsResponse | None:
    asked = call.request

    def request(part: list[Any]) -> Message:
        return AlterConfigsRequest(part, asked.validate_only)

    results = await _results(
        call, asked.resources, Operation.ALTER_CONFIGS, Altered, request, lambda r: r.responses
    )
    return None if results is None else AlterConfigsResponse(responses=results)


async def incremental_alter_configs(
    call: Call[IncrementalAlterConfigsRequest],
) -> IncrementalAlterConfigsResponse | None:
    asked = call.request

    def request(part: list[Any]) -> Message:
        return IncrementalAlterConfigsRequest(part, asked.validate_only)

    results = await _results(
        call,
        asked.resources,
        Operation.ALTER_CONFIGS,
        AlterConfigsResourceResponse,
        request,
        lambda r: r.responses,
    )
    return None if results is None else IncrementalAlterConfigsResponse(responses=results)


async def _results(
    call: Call[Any],
    resources: Sequence[R],
    operation: Operation,
    result: Result,
    request: Callable[[list[R]], Message],
    results_of: Callable[[Any], list[Any]],
) -> list[Any] | None:
    """The results of all resources, in any order; None: no broker answered."""
    results: list[Any] = []
    #: Resources by the broker that must be asked; None: any.
    parts: dict[int | None, list[R]] = {}
    own = call.controller.daemon.settings.controller_id
    for r in resources:
        error, node = _refusal(call, operation, r), _node(r)
        if error is not ErrorCode.NONE:
            results.append(result(error, "not authorized", r.resource_type, r.resource_name))
        elif node == own:
            results.append(result(ErrorCode.NONE, None, r.resource_type, r.resource_name))
        else:
            parts.setdefault(node, []).append(r)
    for node, part in parts.items():
        answer = await call.forward(request(part), node)
        if answer is None:
            return None
        results += results_of(answer)
    return results


def _refusal(call: Call[Any], operation: Operation, resource: _Resource) -> ErrorCode:
    if resource.resource_type == _TOPIC:
        allowed = call.may_topic(operation, resource.resource_name)
        return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if call.may(operation) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _node(resource: _Resource) -> int | None:
    """The node that alone can answer; None: any broker can, as for a topic or the brokers' common configuration."""
    name = resource.resource_name
    known = resource.resource_type in (_BROKER, _BROKER_LOGGER) and name.isascii() and name.isdigit()
    return int(name) if known and len(name) <= 10 else None
