"""What tools ask of every node. This one has no log directories, groups or transactions."""

from __future__ import annotations

from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka_api.call import Call
from proto.gen.kafka.describe_log_dirs_request import DescribeLogDirsRequest
from proto.gen.kafka.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
from proto.gen.kafka.list_groups_request import ListGroupsRequest
from proto.gen.kafka.list_groups_response import ListGroupsResponse
from proto.gen.kafka.list_transactions_request import ListTransactionsRequest
from proto.gen.kafka.list_transactions_response import ListTransactionsResponse
from proto.security.authorization import Operation


async def describe_log_dirs(call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """One directory without a name and without partitions: Kafka's client takes an empty list for a denial."""
    if not call.may(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult()])


async def list_groups(call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    """Everybody may ask: who may describe no group is shown none, and gets no error."""
    del call
    return ListGroupsResponse()


async def list_transactions(call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    """Everybody may ask, as for ``list_groups``."""
    del call
    return ListTransactionsResponse()
