"""Requests that a broker answers for our callers: authorised here, forwarded to one, and whose addresses are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.model import Broker, Cluster, Endpoint
from controller.core.requests.errors import ErrorCode
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka_api.api_table import SERVED, SERVED_VERSIONS
from controller.runtime.kafka_api.call import FORWARDED, FORWARDED_CHANGES, Call, Controller
from proto.gen.kafka.alter_configs_request import AlterConfigsRequest
from proto.gen.kafka.alter_configs_request import AlterConfigsResource as Replaced
from proto.gen.kafka.alter_configs_response import AlterConfigsResourceResponse as Altered
from proto.gen.kafka.alter_configs_response import AlterConfigsResponse
from proto.gen.kafka.create_acls_request import AclCreation, CreateAclsRequest
from proto.gen.kafka.create_acls_response import AclCreationResult, CreateAclsResponse
from proto.gen.kafka.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from proto.gen.kafka.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from proto.gen.kafka.describe_acls_request import DescribeAclsRequest
from proto.gen.kafka.describe_acls_response import DescribeAclsResponse
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from proto.gen.kafka.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from proto.gen.kafka.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from proto.gen.kafka.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from proto.gen.kafka.find_coordinator_request import FindCoordinatorRequest
from proto.gen.kafka.find_coordinator_response import Coordinator, FindCoordinatorResponse
from proto.gen.kafka.incremental_alter_configs_request import AlterConfigsResource as Changed
from proto.gen.kafka.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from proto.gen.kafka.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from proto.kafka.apis import APIS, ApiKey, RequestHeader
from proto.security.authorization import (
    CLUSTER,
    AnyBroker,
    Operation,
    Principal,
    Resource,
    ResourceType,
    topic,
)
from tests.support.runtime.kafka_peer import KafkaPeer, response

SOMEBODY = Principal("somebody", "ipv4:127.0.0.1:1")
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OWN_ID = 9001


class Rights(AnyBroker):
    """Allows what is listed."""

    def __init__(self) -> None:
        self.granted: set[tuple[Operation, Resource]] = set()

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        assert principal == SOMEBODY
        return (operation, resource) in self.granted


class Forwarding:
    """A controller with two brokers, which are peers under the test's thumb."""

    def __init__(self, directory: Path, *peers: KafkaPeer) -> None:
        self.daemon = Daemon(Settings(state_log_dir=directory, controller_id=OWN_ID))
        self.rights = Rights()
        self.daemon.authorizer, self.daemon.acls = self.rights, None
        self.controller = Controller(self.daemon, SERVED_VERSIONS)
        self.cluster = Cluster(controller_id=OWN_ID)
        self.peers = {peer.id: peer for peer in peers}
        self.cluster.brokers.update({peer.id: peer.incarnation for peer in peers})

    def allow(self, operation: Operation, *resources: Resource) -> None:
        self.rights.granted |= {(operation, resource) for resource in resources}

    async def ask(self, request: Any, version: int | None = None, listener: str = "") -> Any:
        version = request.VERSIONS[-1] if version is None else version
        call = Call(self.controller, version, request, SOMEBODY, listener)
        answer = await SERVED[ApiKey(request.API_KEY)].handle(call)
        if answer is not None:
            answer.encode(version)
        return answer

    def received(self, *peers: int) -> list[Any]:
        return [
            request
            for id_ in peers or self.peers
            for header, request in self.peers[id_].received
            if header.api_key != ApiKey.API_VERSIONS
        ]


def answers_of(peer: KafkaPeer, header: RequestHeader, request: Any) -> Any:
    """What a broker says that allows everything but ``denied``. A topic's name ``bad`` has bad values."""

    def error(name: str) -> int:
        if name == "denied":
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_CONFIG if name == "bad" else ErrorCode.NONE

    match request:
        case DescribeConfigsRequest():
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(0, f"by {peer.id}", r.resource_type, r.resource_name)
                    for r in request.resources
                ]
            )
        case AlterConfigsRequest():
            rows = [
                (error(r.resource_name), None, r.resource_type, r.resource_name) for r in request.resources
            ]
            return AlterConfigsResponse(responses=[Altered(*row) for row in rows])
        case IncrementalAlterConfigsRequest():
            rows = [
                (error(r.resource_name), None, r.resource_type, r.resource_name) for r in request.resources
            ]
            return IncrementalAlterConfigsResponse(
                responses=[AlterConfigsResourceResponse(*row) for row in rows]
            )
        case FindCoordinatorRequest() if header.api_version >= 4:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key, 2, "inside", 1) for key in request.coordinator_keys]
            )
        case FindCoordinatorRequest():
            return FindCoordinatorResponse(0, 0, None, 2, "inside", 1)
        case CreateAclsRequest():
            return CreateAclsResponse(results=[AclCreationResult(0, None)])
        case DeleteAclsRequest():
            return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(0, None)])
    return APIS[ApiKey(header.api_key)].response()


@pytest.fixture
async def forwarding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Forwarding]:
    peers = [await KafkaPeer(id_).start() for id_ in (1, 2)]
    for peer in peers:
        peer.versions |= {key: APIS[key].versions[-1] for key in FORWARDED | FORWARDED_CHANGES}

        async def answer(header: RequestHeader, request: Any, peer: KafkaPeer = peer) -> bytes | None:
            if header.api_key == ApiKey.API_VERSIONS:
                return await peer.carry_out(header, request)
            return response(header, answers_of(peer, header, request))

        peer.answer = answer
    found = Forwarding(tmp_path, *peers)
    term = SimpleNamespace(
        machine=SimpleNamespace(cluster=found.cluster), kafka=SimpleNamespace(apis={}), brokers_informed=True
    )
    monkeypatch.setattr(Controller, "term", term)
    yield found
    for peer in peers:
        await peer.stop()
    found.daemon.state_log.close()


def codes(results: list[Any]) -> dict[str, int]:
    return {each.resource_name: each.error_code for each in results}


async def test_configurations_are_described_by_who_has_them(forwarding: Forwarding) -> None:
    asked = [(TOPIC, "t"), (BROKER, "1"), (BROKER, "2"), (BROKER, str(OWN_ID)), (TOPIC, "secret")]
    forwarding.allow(Operation.DESCRIBE_CONFIGS, CLUSTER, topic("t"))
    answer = await forwarding.ask(DescribeConfigsRequest([DescribeConfigsResource(*r, None) for r in asked]))
    assert codes(answer.results) == {
        **dict.fromkeys(["t", "1", "2", str(OWN_ID)], ErrorCode.NONE),
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    said = {r.resource_name: r.error_message for r in answer.results}
    assert (said["1"], said["2"], said[str(OWN_ID)]) == ("by 1", "by 2", None)
    assert {r.resource_name for request in forwarding.received() for r in request.resources} == {
        "t",
        "1",
        "2",
    }


@pytest.mark.parametrize("incremental", [False, True])
async def test_only_what_the_caller_may_alter_is_forwarded(forwarding: Forwarding, incremental: bool) -> None:
    names = [(TOPIC, "t"), (TOPIC, "bad"), (TOPIC, "other"), (BROKER, "1"), (BROKER, str(OWN_ID))]
    request: Any = (
        IncrementalAlterConfigsRequest([Changed(*name) for name in names], True)
        if incremental
        else AlterConfigsRequest([Replaced(*name) for name in names], True)
    )
    forwarding.allow(Operation.ALTER_CONFIGS, topic("t"), topic("bad"))
    answer = await forwarding.ask(request)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert codes(answer.responses) == {
        "t": ErrorCode.NONE,
        "bad": ErrorCode.INVALID_CONFIG,
        "other": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "1": denied,
        str(OWN_ID): denied,
    }
    (forwarded,) = forwarding.received()
    assert [r.resource_name for r in forwarded.resources] == ["t", "bad"]
    assert forwarded.validate_only


CLUSTER_REQUESTS = [
    (DescribeAclsRequest(), Operation.DESCRIBE, DescribeAclsResponse(), lambda a: a.error_code),
    (
        CreateAclsRequest([AclCreation(2, "t", 3, "User:a", "*", 3, 3)]),
        Operation.ALTER,
        CreateAclsResponse(results=[AclCreationResult(0, None)]),
        lambda a: a.results[0].error_code,
    ),
    (
        DeleteAclsRequest([DeleteAclsFilter(2, None, 3, None, None, 3, 3)]),
        Operation.ALTER,
        DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(0, None)]),
        lambda a: a.filter_results[0].error_code,
    ),
    (
        DescribeUserScramCredentialsRequest(None),
        Operation.DESCRIBE,
        DescribeUserScramCredentialsResponse(),
        lambda a: a.error_code,
    ),
]


@pytest.mark.parametrize(
    ("request_", "operation", "said", "error"), CLUSTER_REQUESTS, ids=lambda v: type(v).__name__
)
async def test_acls_and_users_take_a_right_on_the_cluster(
    forwarding: Forwarding, request_: Any, operation: Operation, said: Any, error: Any
) -> None:
    forwarding.allow(Operation.READ, CLUSTER)
    assert error(await forwarding.ask(request_)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert forwarding.received() == []
    forwarding.allow(operation, CLUSTER)
    assert await forwarding.ask(request_) == said
    assert forwarding.received() == [request_]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("kind", "type_", "denied"),
    [
        (0, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_coordinators_have_their_address_on_the_clients_listener(
    forwarding: Forwarding, version: int, kind: int, type_: ResourceType, denied: ErrorCode
) -> None:
    inside = forwarding.cluster.brokers[2].endpoints
    forwarding.cluster.brokers[2] = Broker(2, 1, (*inside, Endpoint("OUTSIDE", "PLAINTEXT", "far", 7)))
    forwarding.allow(Operation.DESCRIBE, Resource(type_, "g"))

    async def ask(key: str, listener: str) -> Any:
        one = FindCoordinatorRequest(key, kind) if version < 4 else FindCoordinatorRequest("", kind, [key])
        answer = await forwarding.ask(one, version, listener)
        return answer if version < 4 else answer.coordinators[0]

    for listener, address in (("OUTSIDE", ("far", 7)), ("", (inside[0].host, inside[0].port))):
        found = await ask("g", listener)
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 2, *address)
    assert (await ask("g", "NOWHERE")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked = len(forwarding.received())
    assert (await ask("h", "")).error_code == denied
    assert len(forwarding.received()) == asked


async def test_another_broker_is_asked_when_one_is_not_reached(forwarding: Forwarding) -> None:
    forwarding.allow(Operation.DESCRIBE, CLUSTER)
    await forwarding.peers[1].stop()
    for _ in range(4):
        assert await forwarding.ask(DescribeAclsRequest()) == DescribeAclsResponse()
    await forwarding.peers[2].stop()
    assert await forwarding.ask(DescribeAclsRequest()) is None


async def test_a_change_without_an_answer_is_not_made_twice(forwarding: Forwarding) -> None:
    for peer in forwarding.peers.values():

        async def silent(header: RequestHeader, request: Any, peer: KafkaPeer = peer) -> bytes | None:
            return await peer.carry_out(header, request) if header.api_key == ApiKey.API_VERSIONS else None

        peer.answer = silent
    forwarding.allow(Operation.ALTER, CLUSTER)
    assert await forwarding.ask(CreateAclsRequest()) is None
    assert len(forwarding.received()) == 1


async def test_clients_are_told_versions_that_brokers_speak_too(forwarding: Forwarding) -> None:
    term: Any = forwarding.controller.term
    term.kafka.apis = dict.fromkeys((ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.METADATA), range(2))
    told = forwarding.controller.advertised()
    assert told[ApiKey.DESCRIBE_ACLS] == told[ApiKey.CREATE_ACLS] == range(2)
    assert told[ApiKey.METADATA] == SERVED_VERSIONS[ApiKey.METADATA]
    forwarding.allow(Operation.DESCRIBE, CLUSTER)
    for peer in forwarding.peers.values():
        peer.versions[ApiKey.DESCRIBE_ACLS] = 1
    assert await forwarding.ask(DescribeAclsRequest(), 1) is not None
    assert await forwarding.ask(DescribeAclsRequest(), 3) is None


async def test_a_denial_of_our_own_user_is_not_the_callers(forwarding: Forwarding) -> None:
    forwarding.allow(Operation.ALTER_CONFIGS, topic("t"), topic("denied"))
    assert (
        await forwarding.ask(AlterConfigsRequest([Replaced(TOPIC, "t"), Replaced(TOPIC, "denied")])) is None
    )
    assert await forwarding.ask(AlterConfigsRequest([Replaced(TOPIC, "t")])) is not None


async def test_of_several_coordinators_some_may_be_seen(forwarding: Forwarding) -> None:
    forwarding.allow(Operation.DESCRIBE, Resource(ResourceType.GROUP, "g"))
    answer = await forwarding.ask(FindCoordinatorRequest("", 0, ["h", "g"]))
    assert {c.key: (c.error_code, c.node_id) for c in answer.coordinators} == {
        "g": (0, 2),
        "h": (ErrorCode.GROUP_AUTHORIZATION_FAILED, -1),
    }
    assert [request.coordinator_keys for request in forwarding.received()] == [["g"]]


async def test_loggers_are_asked_of_their_broker(forwarding: Forwarding) -> None:
    forwarding.allow(Operation.DESCRIBE_CONFIGS, CLUSTER)
    named = [(BROKER_LOGGER, "2"), (BROKER_LOGGER, "1")]
    answer = await forwarding.ask(DescribeConfigsRequest([DescribeConfigsResource(*r, None) for r in named]))
    assert {r.resource_name: r.error_message for r in answer.results} == {"1": "by 1", "2": "by 2"}
