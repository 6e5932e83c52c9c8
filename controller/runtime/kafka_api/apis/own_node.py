"""What tools ask of every node. This one has no configuration, log directories, groups or transactions.

A request about another node or resource is not answered (None): the caller is hung up on and asks a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka_api.call import Call
from proto.gen.kafka.alter_configs_request import AlterConfigsRequest
from proto.gen.kafka.alter_configs_response import AlterConfigsResourceResponse as Altered
from proto.gen.kafka.alter_configs_response import AlterConfigsResponse
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest
from proto.gen.kafka.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from proto.gen.kafka.describe_log_dirs_request import DescribeLogDirsRequest
from proto.gen.kafka.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
from proto.gen.kafka.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from proto.gen.kafka.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from proto.gen.kafka.list_groups_request import ListGroupsRequest
from proto.gen.kafka.list_groups_response import ListGroupsResponse
from proto.gen.kafka.list_transactions_request import ListTransactionsRequest
from proto.gen.kafka.list_transactions_response import ListTransactionsResponse
from proto.security.authorization import Operation

#: Kafka's numbers of the resource types BROKER and BROKER_LOGGER (ConfigResource.Type).
_OF_A_BROKER = frozenset({4, 8})


class _Resource(Protocol):
    resource_type: int
    resource_name: str


def _all_ours(call: Call[object], resources: Sequence[_Resource]) -> bool:
    own = str(call.controller.daemon.settings.controller_id)
    return all(r.resource_type in _OF_A_BROKER and r.resource_name == own for r in resources)


def _error(call: Call[object], operation: Operation) -> tuple[int, str | None]:
    if call.may(operation):
        return ErrorCode.NONE, None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not authorized"


async def describe_configs(call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse | None:
    if not _all_ours(call, call.request.resources):
        return None
    error, message = _error(call, Operation.DESCRIBE_CONFIGS)
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error,
                error_message=message,
                resource_type=r.resource_type,
                resource_name=r.resource_name,
            )
            for r in call.request.resources
        ]
    )


async def alter_configs(call: Call[AlterConfigsRequest]) -> AlterConfigsResponse | None:
    """Accepted without effect: tools that remove throttles ask every node to."""
    if not _all_ours(call, call.request.resources):
        return None
    error, message = _error(call, Operation.ALTER_CONFIGS)
    return AlterConfigsResponse(
        responses=[Altered(error, message, r.resource_type, r.resource_name) for r in call.request.resources]
    )


async def incremental_alter_configs(
    call: Call[IncrementalAlterConfigsRequest],
) -> IncrementalAlterConfigsResponse | None:
    """As ``alter_configs``."""
    if not _all_ours(call, call.request.resources):
        return None
    error, message = _error(call, Operation.ALTER_CONFIGS)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, message, r.resource_type, r.resource_name)
            for r in call.request.resources
        ]
    )


async def describe_log_dirs(call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """One directory without a name and without partitions: Kafka's client takes an empty list for a denial."""
    error, _ = _error(call, Operation.DESCRIBE)
    return DescribeLogDirsResponse(error_code=error, results=[] if error else [DescribeLogDirsResult()])


async def list_groups(call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    """To everybody: who may describe no group is shown none, and gets no error."""
    del call
    return ListGroupsResponse()


async def list_transactions(call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    """As ``list_groups``."""
    del call
    return ListTransactionsResponse()
