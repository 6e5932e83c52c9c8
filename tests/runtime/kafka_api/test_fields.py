"""Each field of an answer in its place, who may ask for what, and a connection's own rules: without sockets."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.core.model import Partition
from controller.core.requests.errors import ErrorCode
from controller.core.requests.reassignment import ListPartitionReassignmentsReply, Ongoing
from controller.core.requests.topics import TopicCreated
from controller.runtime.kafka_api import server as server_module
from controller.runtime.kafka_api.admission import Slot
from controller.runtime.kafka_api.api_table import SERVED, SERVED_VERSIONS
from controller.runtime.kafka_api.apis import configs, topics
from controller.runtime.kafka_api.call import Call
from controller.runtime.kafka_api.memory_pool import MemoryPool
from controller.runtime.kafka_api.server import KafkaServer, _Connection, _HangUpError
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
from proto.gen.kafka.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.create_acls_request import AclCreation, CreateAclsRequest
from proto.gen.kafka.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from proto.gen.kafka.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from proto.gen.kafka.describe_log_dirs_request import DescribeLogDirsRequest
from proto.gen.kafka.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from proto.gen.kafka.find_coordinator_request import FindCoordinatorRequest
from proto.gen.kafka.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.kafka.apis import ApiKey, encode_request
from proto.security.authorization import Operation, topic
from tests.runtime.kafka_api.conftest import ID_OF_T, SOMEBODY, Asked

# --- brokers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_a_proposal_is_answered_with_the_state_that_came_of_it(asked: Asked, version: int) -> None:
    named: Any = {"topic_name": "t"} if version < 2 else {"topic_id": ID_OF_T}
    for _ in range(3):
        known = asked.rig.partition("t").leadership
        assert known is not None
        data = PartitionData(0, known.leader_epoch, [1], [BrokerState(1, -1)], 0, known.partition_epoch)
        epoch = asked.cluster.brokers[1].epoch
        answer = await asked.ask(
            AlterPartitionRequest(1, epoch, [TopicData(partitions=[data], **named)]), version
        )
        ((told,),) = [each.partitions for each in answer.topics]
        state = asked.rig.partition("t").leadership
        assert state is not None
        assert told.error_code == ErrorCode.NONE
        assert (told.leader_id, told.leader_epoch, told.partition_epoch, told.isr) == (
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            list(state.isr),
        )
        assert state.partition_epoch != state.leader_epoch


async def test_refused_proposals_are_counted_by_their_error(asked: Asked) -> None:
    data = [PartitionData(number, 0, [1], [BrokerState(1, -1)]) for number in (7, 8, 9)]
    epoch = asked.cluster.brokers[1].epoch
    await asked.ask(AlterPartitionRequest(1, epoch, [TopicData(topic_id=ID_OF_T, partitions=data)]))
    counted = asked.daemon.metrics.altered_partitions.labels("UNKNOWN_TOPIC_OR_PARTITION")
    assert counted._value.get() == 3


async def test_a_broker_of_before_epochs_names_none(asked: Asked) -> None:
    for version in (0, 1, 2):
        await asked.ask(ControlledShutdownRequest(9, 5), version)
    assert [request.broker_epoch for request in asked.requests] == [None, None, 5]


async def test_producer_ids_are_given_to_who_speaks_for_the_broker(asked: Asked) -> None:
    request = AllocateProducerIdsRequest(1, asked.cluster.brokers[1].epoch)
    assert (await asked.ask(request)).producer_id_len > 0
    asked.authorizer.brokers_only = True
    answer = await asked.ask(request)
    assert (answer.error_code, answer.producer_id_len) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0)


# --- the cluster -----------------------------------------------------------------------------------------------


async def test_no_topics_are_none_but_in_version_0(asked: Asked) -> None:
    async def listed(names: list[str] | None, version: int) -> list[str]:
        given = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = await asked.ask(MetadataRequest(given), version)
        return sorted(each.name for each in answer.topics)

    assert [await listed([], 0), await listed([], 1), await listed(None, 1)] == [["t", "u"], [], ["t", "u"]]


async def test_who_asks_for_all_sees_what_it_may_without_a_word(asked: Asked) -> None:
    asked.authorizer.allowed = (  # type: ignore[method-assign]
        lambda principal, operation, resource: resource != topic("t")
    )
    with capture_logs() as logs:
        answer = await asked.ask(MetadataRequest(None))
    assert ([each.name for each in answer.topics], logs) == (["u"], [])


async def test_partitions_without_a_state_are_not_told_and_replicas_of_who_is_gone_are_offline(
    asked: Asked,
) -> None:
    known = asked.cluster.topics["t"]
    known.partitions[1] = Partition(known, 1, (1, 2))
    del asked.cluster.brokers[2]
    answer = await asked.ask(MetadataRequest([MetadataRequestTopic(name="t")]))
    ((told,),) = [each.partitions for each in answer.topics]
    assert (told.partition_index, told.replica_nodes, told.offline_replicas) == (0, [1, 2], [2])
    asked.cluster.offline_dirs = {1: {known.partitions[0]}}
    answer = await asked.ask(MetadataRequest([MetadataRequestTopic(name="t")]))
    assert answer.topics[0].partitions[0].offline_replicas == [1, 2], "a failed disk is offline, too"


async def test_each_api_is_offered_up_to_its_newest_version(asked: Asked) -> None:
    answer = await asked.ask(ApiVersionsRequest())
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
        key: (offered[0], offered[-1]) for key, offered in SERVED_VERSIONS.items()
    }


# --- what brokers answer ---------------------------------------------------------------------------------------


async def test_configurations_are_asked_for_as_the_caller_asked(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwarded: list[Any] = []

    async def forward(_: Call[Any], request: Any, node: int | None = None) -> None:
        forwarded.append((request.include_synonyms, request.include_documentation, node))

    monkeypatch.setattr(Call, "forward", forward)
    for synonyms, documentation in ((True, False), (False, True)):
        resources = [DescribeConfigsResource(2, "t")]
        assert await asked.ask(DescribeConfigsRequest(resources, synonyms, documentation)) is None
    assert forwarded == [(True, False, None), (False, True, None)]


def test_only_ascii_digits_name_a_broker() -> None:
    named = {
        name: configs._node(DescribeConfigsResource(4, name)) for name in ("1", "", "x", "\u00b2", "1" * 11)
    }
    assert named == {"1": 1, "": None, "x": None, "\u00b2": None, "1" * 11: None}


async def test_each_that_is_denied_is_answered_once(asked: Asked) -> None:
    asked.authorizer.allowing = False
    found = await asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "a"]))
    assert [each.key for each in found.coordinators] == ["a", "b"]
    created = await asked.ask(CreateAclsRequest([AclCreation(), AclCreation()]))
    assert [each.error_code for each in created.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    altered = await asked.ask(
        AlterUserScramCredentialsRequest(
            [ScramCredentialDeletion("a", 1), ScramCredentialDeletion("b", 1)],
            [ScramCredentialUpsertion("a", 2, 8192, b"salt", bytes(64))],
        )
    )
    assert [each.user for each in altered.results] == ["a", "b"]


async def test_who_may_ask_for_directories_is_told_of_one_that_is_empty(asked: Asked) -> None:
    (directory,) = (await asked.ask(DescribeLogDirsRequest(None))).results
    assert (directory.error_code, directory.topics) == (ErrorCode.NONE, [])
    asked.authorizer.allowing = False
    answer = await asked.ask(DescribeLogDirsRequest(None))
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


# --- elections and moves ---------------------------------------------------------------------------------------


async def test_brokers_have_heard_of_an_election_when_it_is_answered(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []

    async def brokers_hear(_: Call[Any], timeout_ms: int) -> None:
        heard.append(timeout_ms)

    monkeypatch.setattr(Call, "brokers_hear", brokers_hear)
    await asked.ask(ElectLeadersRequest(0, [TopicPartitions("t", [0])], 77))
    assert heard == [77]


async def test_moves_are_listed_as_they_were_asked_for(asked: Asked) -> None:
    named: list[Any] = []

    async def core(request: Any) -> ListPartitionReassignmentsReply:
        named.append(request.partitions)
        return ListPartitionReassignmentsReply(ErrorCode.NONE, [Ongoing("t", 0, (1, 2, 3), (3,), (1,))])

    asked.term.ask = core
    some = [ListPartitionReassignmentsTopics("t", [0, 1])]
    for topics_ in (None, [], some):
        answer = await asked.ask(ListPartitionReassignmentsRequest(1000, topics_))
    assert named == [None, [], [("t", 0), ("t", 1)]]
    ((ongoing,),) = [each.partitions for each in answer.topics]
    assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == ([1, 2, 3], [3], [1])


async def test_moves_that_fail_as_a_whole_are_answered_so(asked: Asked) -> None:
    asked.leads = False
    request = AlterPartitionReassignmentsRequest(
        1000, [ReassignableTopic("t", [ReassignablePartition(0, [1, 2])])]
    )
    answer = await asked.ask(request)
    assert (answer.error_code, answer.responses) == (ErrorCode.NOT_CONTROLLER, [])


# --- topics ----------------------------------------------------------------------------------------------------


def codes(results: Any) -> dict[str, ErrorCode]:
    return {each.name: ErrorCode(each.error_code) for each in results}


async def test_topics_are_created_altered_and_deleted_by_who_may(asked: Asked) -> None:
    asked.authorizer.denied = {Operation.CREATE, Operation.ALTER, Operation.DELETE}
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    created = await asked.ask(CreateTopicsRequest([CreatableTopic("new", 1, 1)], 0))
    grown = await asked.ask(CreatePartitionsRequest([CreatePartitionsTopic("t", 3)], 0))
    deleted = await asked.ask(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=0))
    assert codes(created.topics) == {"new": denied}
    assert codes(grown.results) == codes(deleted.responses) == {"t": denied}
    assert set(asked.cluster.topics) == {"t", "u"}


async def test_answers_of_deletions_belong_to_their_topics(asked: Asked) -> None:
    asked.authorizer.allowed = (  # type: ignore[method-assign]
        lambda principal, operation, resource: operation is not Operation.DELETE or resource != topic("t")
    )
    names = [DeleteTopicState(name) for name in ("t", "nope", "u")]
    answer = await asked.ask(DeleteTopicsRequest(names, timeout_ms=0))
    assert list((codes(answer.responses) | {"u": None}).items()) == [
        ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", None),
    ]
    assert [len(request.topics) for request in asked.requests] == [2]


async def test_what_a_new_topic_leaves_open_is_set_unless_its_replicas_are_given(asked: Asked) -> None:
    asked.daemon.settings = replace(asked.daemon.settings, num_partitions=5, default_replication_factor=2)
    given = [CreatableReplicaAssignment(0, [1, 2]), CreatableReplicaAssignment(1, [2])]
    request = CreateTopicsRequest(
        [CreatableTopic("open", -1, -1), CreatableTopic("given", -1, -1, given)], 0, validate_only=True
    )
    await asked.ask(request)
    ((open_, assigned),) = [request.topics for request in asked.requests]
    assert (open_.partitions, open_.replication_factor) == (5, 2)
    assert (assigned.partitions, assigned.replication_factor) == (None, None)
    assert assigned.assignment == {0: (1, 2), 1: (2,)}


async def test_a_partition_of_a_new_topic_is_assigned_once(asked: Asked) -> None:
    twice = [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(0, [2])]
    answer = await asked.ask(CreateTopicsRequest([CreatableTopic("new", -1, -1, twice)], 0))
    assert codes(answer.topics) == {"new": ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def test_a_topic_s_factor_is_that_of_its_widest_partition() -> None:
    made = TopicCreated("t", ErrorCode.NONE, assignment={0: (1,), 1: (1, 2), 2: (2,)})
    told = topics._created(made, {})
    assert (told.num_partitions, told.replication_factor) == (3, 2)


async def test_new_partitions_are_waited_for_until_they_are_led_unless_it_is_a_trial(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[bool] = []

    async def wait_for(_: Call[Any], condition: Any, timeout_ms: int) -> bool:
        assert timeout_ms == 77
        known = asked.cluster.topics["t"]
        last = known.partitions[max(known.partitions)]
        there, last.leadership = last.leadership, None
        waited.append(condition(asked.term))
        last.leadership = there
        waited.append(condition(asked.term))
        return True

    monkeypatch.setattr(Call, "wait_for", wait_for)
    for trial in (True, False):
        request = CreatePartitionsRequest([CreatePartitionsTopic("t", 3)], 77, validate_only=trial)
        assert codes((await asked.ask(request)).results) == {"t": ErrorCode.NONE}
        assert waited == ([] if trial else [False, True])


# --- a connection ----------------------------------------------------------------------------------------------


def connection(asked: Asked, **parts: Any) -> Any:
    given = {"security": None, "admission": None, "reader": None, "writer": None, **parts}
    slot = Slot("127.0.0.1", 0.0, lambda: None)
    reader, writer = given["reader"], given["writer"]
    return _Connection(
        asked.controller, given["security"], given["admission"], slot, "", reader, writer, MemoryPool(0)
    )


async def test_a_request_has_a_beginning(asked: Asked) -> None:
    for size, fits in ((7, False), (8, True)):
        reader = asyncio.StreamReader()
        reader.feed_data(struct.pack("!i", size) + struct.pack("!hhi", ApiKey.METADATA, 0, 1)[:size])
        reader.feed_eof()
        if fits:
            assert len(await connection(asked, reader=reader)._frame(True)) == 8
        else:
            with pytest.raises(_HangUpError, match="must have 8"):
                await connection(asked, reader=reader)._frame(True)


async def test_an_idle_connection_is_closed_once_it_is_idle_for_too_long(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CROWDED_IDLE_S", 0.0)
    looks = [False, False, True]
    admission = SimpleNamespace(idle_too_long=lambda *_: looks.pop(0))
    with pytest.raises(TimeoutError):
        await connection(asked, admission=admission, reader=asyncio.StreamReader())._size()
    assert looks == []


async def test_who_is_not_known_yet_hears_of_versions_alone(asked: Asked) -> None:
    stranger: Any = SimpleNamespace(principal=None, ask_versions=lambda: True)
    at = connection(asked)
    answer, close_after_s = await at._answer(stranger, encode_request(ApiVersionsRequest(), 3, 1, "c"))
    assert (len(answer) > 0, close_after_s) == (True, None)
    with pytest.raises(_HangUpError, match="METADATA before authentication"):
        await at._answer(stranger, encode_request(MetadataRequest(None), 9, 1, "c"))


async def test_a_bug_is_answered_with_an_error_that_is_counted(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: Any) -> Any:
        raise ZeroDivisionError

    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    row = SERVED[key]
    monkeypatch.setitem(SERVED, key, replace(row, handle=broken))
    request = AlterPartitionReassignmentsRequest(1000, [])
    response = await connection(asked)._handled(key, asked.call(request))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    counted = asked.daemon.metrics.requests.labels(key.name, "UNKNOWN_SERVER_ERROR")
    assert counted._value.get() == 1


async def test_who_is_known_is_no_stranger_in_a_crowd(asked: Asked) -> None:
    at = connection(asked)
    seen: list[bool] = []

    async def accept() -> Any:
        return SimpleNamespace(principal=SOMEBODY)

    async def exchange(_: Any) -> bool:
        seen.append(at._slot.authenticated)
        return False

    at._accept, at._exchange = accept, exchange
    await at.serve()
    assert seen == [True]


async def test_a_connection_that_has_no_place_is_not_served(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[str] = []
    transport = SimpleNamespace(abort=lambda: aborted.append("aborted"))
    writer: Any = SimpleNamespace(get_extra_info=lambda _: ("127.0.0.1", 1), transport=transport)
    at: Any = KafkaServer(asked.controller, None)  # type: ignore[arg-type]
    at._admission = SimpleNamespace(enter=lambda slot: [slot])
    await at._accepted("", None, writer)
    assert (aborted, at._connections) == (["aborted"], {})


async def test_each_address_has_its_listener(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []

    async def start_server(accepted: Any, host: str, port: int) -> Any:
        begun.append((accepted.args, host, port))
        socket = SimpleNamespace(getsockname=lambda: (host, 5555))
        return SimpleNamespace(sockets=[socket])

    monkeypatch.setattr(asyncio, "start_server", start_server)
    at = KafkaServer(asked.controller, None)  # type: ignore[arg-type]
    for listener in ("INTERNAL", "EXTERNAL"):
        assert await at.start("h", 0, listener) == 5555
    assert [args for args, _, _ in begun] == [("INTERNAL",), ("EXTERNAL",)]
