"""What brokers answer, for clients that do not ask another node when they are hung up on, as librdkafka.

Authorised here as Kafka does (``kafka.server.AclApis``, ``kafka.server.KafkaApis``), then forwarded to a broker.
"""

from __future__ import annotations

from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka.endpoints import clients_endpoint
from controller.runtime.kafka_api.call import Call
from proto.gen.kafka.create_acls_request import CreateAclsRequest
from proto.gen.kafka.create_acls_response import AclCreationResult, CreateAclsResponse
from proto.gen.kafka.delete_acls_request import DeleteAclsRequest
from proto.gen.kafka.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from proto.gen.kafka.describe_acls_request import DescribeAclsRequest
from proto.gen.kafka.describe_acls_response import DescribeAclsResponse
from proto.gen.kafka.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from proto.gen.kafka.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from proto.gen.kafka.find_coordinator_request import FindCoordinatorRequest
from proto.gen.kafka.find_coordinator_response import Coordinator, FindCoordinatorResponse
from proto.kafka.apis import Message
from proto.security.authorization import Operation, Resource, ResourceType

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not authorized"
#: From this version on FindCoordinator asks for several keys (KIP-699).
_SEVERAL_KEYS = 4
#: Kafka's numbers of a coordinator's kinds (FindCoordinatorRequest.CoordinatorType).
_COORDINATED = {
    0: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


async def describe_acls(call: Call[DescribeAclsRequest]) -> Message | None:
    if not call.may(Operation.DESCRIBE):
        return DescribeAclsResponse(0, *_DENIED)
    return await call.forward(call.request)


async def create_acls(call: Call[CreateAclsRequest]) -> Message | None:
    if not call.may(Operation.ALTER):
        return CreateAclsResponse(results=[AclCreationResult(*_DENIED) for _ in call.request.creations])
    return await call.forward(call.request)


async def delete_acls(call: Call[DeleteAclsRequest]) -> Message | None:
    if not call.may(Operation.ALTER):
        results = [DeleteAclsFilterResult(*_DENIED) for _ in call.request.filters]
        return DeleteAclsResponse(filter_results=results)
    return await call.forward(call.request)


async def describe_scram_credentials(call: Call[DescribeUserScramCredentialsRequest]) -> Message | None:
    if not call.may(Operation.DESCRIBE):
        return DescribeUserScramCredentialsResponse(0, *_DENIED)
    return await call.forward(call.request)


async def find_coordinator(call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse | None:
    """Coordinators at their addresses on the client's listener, where the broker gives those on its own."""
    request = call.request
    kind = _COORDINATED.get(request.key_type)
    if kind is None:
        return None
    several = call.version >= _SEVERAL_KEYS
    refused = [
        Coordinator(key, -1, "", -1, kind[1], "not authorized")
        for key in (dict.fromkeys(request.coordinator_keys) if several else [request.key])
        if not call.may(Operation.DESCRIBE, Resource(kind[0], key))
    ]
    if refused and not several:
        return FindCoordinatorResponse(0, kind[1], "not authorized", -1, "", -1)
    keys = {each.key for each in refused}
    allowed = [key for key in request.coordinator_keys if key not in keys]
    if several and not allowed:
        return FindCoordinatorResponse(coordinators=refused)
    answer = await call.forward(FindCoordinatorRequest(request.key, request.key_type, allowed))
    if not isinstance(answer, FindCoordinatorResponse):
        return None
    for found in answer.coordinators if several else [answer]:
        if not found.error_code:
            _at_the_clients_listener(call, found)
    answer.coordinators += refused
    return answer


def no_coordinators(call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """The response to a request that a bug stopped."""
    if call.version >= _SEVERAL_KEYS:
        return FindCoordinatorResponse()
    return FindCoordinatorResponse(0, ErrorCode.UNKNOWN_SERVER_ERROR, None, -1, "", -1)


def _at_the_clients_listener(
    call: Call[FindCoordinatorRequest], found: Coordinator | FindCoordinatorResponse
) -> None:
    term = call.controller.term
    broker = term.machine.cluster.brokers.get(found.node_id) if term is not None else None
    endpoint = (
        clients_endpoint(broker, call.controller.listeners, call.listener) if broker is not None else None
    )
    if endpoint is None:
        found.error_code, found.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "not known here"
        found.node_id, found.host, found.port = -1, "", -1
    else:
        found.host, found.port = endpoint.host, endpoint.port
