"""Answers of the server of Kafka's protocol, without sockets and without ZooKeeper."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from controller.core.model import Broker, Endpoint, FeatureRange, Topic
from controller.core.requests.errors import ErrorCode
from controller.core.requests.features import UpgradeType
from controller.core.requests.topics import TopicCreated
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.topic_ids import uuid_text
from controller.runtime.kafka_api import admission
from controller.runtime.kafka_api import call as call_module
from controller.runtime.kafka_api.api_table import SERVED, SERVED_VERSIONS, Served
from controller.runtime.kafka_api.apis import cluster as cluster_apis
from controller.runtime.kafka_api.apis import topics as topics_module
from controller.runtime.kafka_api.call import FORWARDED, FORWARDED_CHANGES, Call, Controller
from proto.gen.kafka.alter_configs_request import AlterConfigsRequest
from proto.gen.kafka.alter_configs_request import AlterConfigsResource as AlteredConfigs
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
from proto.gen.kafka.api_versions_response import FinalizedFeatureKey, SupportedFeatureKey
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from proto.gen.kafka.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from proto.gen.kafka.describe_acls_request import DescribeAclsRequest
from proto.gen.kafka.describe_acls_response import DescribeAclsResponse
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from proto.gen.kafka.describe_log_dirs_request import DescribeLogDirsRequest
from proto.gen.kafka.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from proto.gen.kafka.incremental_alter_configs_request import AlterConfigsResource as IncrementalConfigs
from proto.gen.kafka.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from proto.gen.kafka.list_groups_request import ListGroupsRequest
from proto.gen.kafka.list_groups_response import ListGroupsResponse
from proto.gen.kafka.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from proto.gen.kafka.list_transactions_request import ListTransactionsRequest
from proto.gen.kafka.list_transactions_response import ListTransactionsResponse
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.gen.kafka.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from proto.kafka.apis import APIS, ApiKey, encode_request
from proto.security.authorization import LOGGED_DENIALS_MAX, Operation
from tests.runtime.kafka_api.conftest import HUNG_UP, ID_OF_T, Asked
from tests.support.runtime.kafka_callers import calling, kafka_server


class LookedUp(dict[str, Topic]):
    """Topics that are only looked up by name: to go through all of them is an error."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics are looked at")

    values = items = keys = __iter__  # type: ignore[assignment]


def by_id(*ids: bytes) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(topic_id=each, name=None) for each in ids]


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


async def test_no_id_makes_the_controller_look_at_all_topics(asked: Asked) -> None:
    asked.cluster.topics = LookedUp(asked.cluster.topics)
    answer = await asked.ask(MetadataRequest(by_id(b"1" * 16, b"2" * 16, ID_OF_T)))
    assert [each.error_code for each in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
    ]


async def test_versions_come_with_features_that_all_brokers_support_and_the_finalized_levels(
    asked: Asked,
) -> None:
    own = {1: FeatureRange("f", 1, 5), 2: FeatureRange("f", 2, 7)}
    for broker_id, feature in own.items():
        asked.cluster.brokers[broker_id] = Broker(
            broker_id, 1, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), features=(feature,)
        )
    asked.cluster.features = {"f": 4}
    answer = await asked.ask(ApiVersionsRequest())
    assert answer.supported_features == [SupportedFeatureKey("f", 2, 5)]
    assert answer.finalized_features == [FinalizedFeatureKey("f", 4, 4)]


async def test_a_topic_is_answered_once_however_often_it_is_named(asked: Asked) -> None:
    named = await asked.ask(MetadataRequest(by_name("t", "nope", "t", "u", "nope", "t")))
    assert [each.name for each in named.topics] == ["t", "nope", "u"]
    found = await asked.ask(MetadataRequest(by_id(*[ID_OF_T, b"x" * 16] * 100)))
    assert [each.topic_id for each in found.topics] == [ID_OF_T, b"x" * 16]


@pytest.mark.parametrize("in_one_topic", [False, True])
@pytest.mark.parametrize("version", [0, 3])
async def test_of_a_partition_that_is_named_twice_the_last_proposal_counts(
    asked: Asked, version: int, in_one_topic: bool
) -> None:
    """As in Kafka, whose controller puts the proposals into a map, and the answers by topic."""
    topic = {"topic_name": "t"} if version < 2 else {"topic_id": ID_OF_T}
    known = asked.rig.partition("t").leadership
    assert known is not None

    def proposal(leader_epoch: int, number: int = 0) -> TopicData:
        data = PartitionData(
            partition_index=number,
            leader_epoch=leader_epoch,
            partition_epoch=known.partition_epoch,
            new_isr=[1, 2],
        )
        if version >= 3:
            data.new_isr_with_epochs = [BrokerState(1, 1), BrokerState(2, 1)]
        return TopicData(partitions=[data], **topic)

    proposals = [proposal(-9), proposal(9, 7), proposal(0)]
    if in_one_topic:
        proposals = [TopicData(partitions=[p for each in proposals for p in each.partitions], **topic)]
    answer = await asked.ask(AlterPartitionRequest(1, asked.cluster.brokers[1].epoch, proposals), version)
    (told,) = answer.topics
    assert [(p.partition_index, p.error_code) for p in told.partitions] == [
        (0, ErrorCode.NONE),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_credentials_are_altered_by_the_numbers_of_kafka_s_mechanisms(asked: Asked) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion("a", 1),
            ScramCredentialDeletion("b", 2),
            ScramCredentialDeletion("c", 3),
        ],
        upsertions=[ScramCredentialUpsertion("d", 1, 8192, b"salt", bytes(32))],
    )
    await asked.ask(request)
    assert [(each.user, each.mechanism) for each in asked.requests[-1].alterations] == [
        ("a", "SCRAM-SHA-256"),
        ("b", "SCRAM-SHA-512"),
        ("c", None),
        ("d", "SCRAM-SHA-256"),
    ]


async def test_few_denials_of_one_request_are_logged(asked: Asked) -> None:
    asked.authorizer.allowing = False
    with structlog.testing.capture_logs() as logged:
        await asked.ask(MetadataRequest(by_name(*[f"n{n}" for n in range(100)])))
        assert len(logged) == LOGGED_DENIALS_MAX
    with structlog.testing.capture_logs() as logged:
        await asked.ask(DeleteTopicsRequest(topic_names=["t", "u"] * 10), 5)
        assert sorted(each["resource"] for each in logged) == ["topic 't'", "topic 'u'"]


@pytest.mark.parametrize("version", [10, 11])
async def test_unknown_ids_are_answered_in_versions_whose_names_are_never_null(
    asked: Asked, version: int
) -> None:
    answer = await asked.ask(MetadataRequest(by_id(b"x" * 16)), version)
    assert [(each.error_code, each.name) for each in answer.topics] == [(ErrorCode.UNKNOWN_TOPIC_ID, "")]
    answer.encode(version)


async def test_a_leader_that_is_gone_is_none(asked: Asked) -> None:
    """As of Kafka's brokers: clients would look among the brokers for one that is not there."""
    request = MetadataRequest(by_name("t"))
    (led,) = (await asked.ask(request)).topics[0].partitions
    asked.cluster.brokers.pop(1)
    (partition,) = (await asked.ask(request)).topics[0].partitions
    assert (led.error_code, led.leader_id) == (ErrorCode.NONE, 1)
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        led.leader_epoch,
    )
    assert (partition.replica_nodes, partition.offline_replicas) == ([1, 2], [1])


async def test_topics_whose_deletion_has_begun_are_not_listed(asked: Asked) -> None:
    asked.cluster.topics_deletion_started.add("u")
    assert [each.name for each in (await asked.ask(MetadataRequest(None))).topics] == ["t"]
    asked.cluster.topics["t"].deleted = True
    assert (await asked.ask(MetadataRequest(None))).topics == []


def alterations(version: int) -> AlterPartitionRequest:
    proposed = [PartitionData(partition_index=0), PartitionData(partition_index=9)]
    if version < 2:
        return AlterPartitionRequest(1, 1, [TopicData("t", partitions=proposed)])
    return AlterPartitionRequest(
        1, 1, [TopicData(topic_id=i, partitions=proposed) for i in (ID_OF_T, b"x" * 16)]
    )


def deletions(version: int) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=["t", "nope"])
    named = [DeleteTopicState("t"), DeleteTopicState("u", b"u" * 16)]
    return DeleteTopicsRequest([*named, DeleteTopicState(None, b"x" * 16), DeleteTopicState(None, b"u" * 16)])


@pytest.mark.parametrize("topics", [None, by_name("t", "u")], ids=["all", "named"])
async def test_others_have_their_turn_while_metadata_is_collected(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, topics: Any
) -> None:
    monkeypatch.setattr(cluster_apis, "TOPICS_AT_ONCE", 1)
    turns = list[int]()

    async def other() -> None:
        turns.append(len(turns))

    task = asyncio.create_task(other())
    assert [each.name for each in (await asked.ask(MetadataRequest(topics))).topics] == ["t", "u"]
    assert turns == [0]
    await task

    async def resigns() -> None:
        monkeypatch.setattr(Controller, "term", None)

    task = asyncio.create_task(resigns())
    assert await asked.ask(MetadataRequest(topics)) is None
    await task


def metadata(version: int) -> MetadataRequest:
    return MetadataRequest([*by_name("t", "nope"), *(by_id(ID_OF_T, b"x" * 16) if version >= 10 else ())])


OWN = (4, "1")
#: Requests that get as far as results of single topics, partitions and resources.
SAMPLES: dict[ApiKey, Callable[[int], Any]] = {
    ApiKey.METADATA: metadata,
    ApiKey.ALTER_PARTITION: alterations,
    ApiKey.CREATE_TOPICS: lambda _: CreateTopicsRequest(
        [
            CreatableTopic("a", 2, 2, [], [CreatableTopicConfig("retention.ms", "1")]),
            CreatableTopic("b", 1, 9),
        ]
    ),
    ApiKey.CREATE_PARTITIONS: lambda _: CreatePartitionsRequest(
        [CreatePartitionsTopic("t", 2), CreatePartitionsTopic("nope", 2)]
    ),
    ApiKey.DELETE_TOPICS: deletions,
    ApiKey.ELECT_LEADERS: lambda _: ElectLeadersRequest(0, [TopicPartitions("t", [0, 0, 9])]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda _: AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("t", [ReassignablePartition(0, [2, 1]), ReassignablePartition(9, [2])])]
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _: ListPartitionReassignmentsRequest(),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda _: AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion("nobody", 2), ScramCredentialDeletion("nobody", 9)]
    ),
    ApiKey.UPDATE_FEATURES: lambda _: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("f", 1)]),
    ApiKey.DESCRIBE_CONFIGS: lambda _: DescribeConfigsRequest([DescribeConfigsResource(*OWN, None)]),
    ApiKey.ALTER_CONFIGS: lambda _: AlterConfigsRequest([AlteredConfigs(*OWN)]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda _: IncrementalAlterConfigsRequest([IncrementalConfigs(*OWN)]),
}


@pytest.mark.parametrize("state", ["denied", "not the controller", "carried out", "failed"])
@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
async def test_every_answer_can_be_said_in_every_version(asked: Asked, key: ApiKey, state: str) -> None:
    asked.authorizer.allowing = state != "denied"
    asked.leads = state != "not the controller"
    for version in APIS[key].versions:
        request = SAMPLES.get(key, lambda _, key=key: APIS[key].request())(version)
        # What a version cannot say is not asked in it.
        call = asked.call(type(request).decode(request.encode(version), version), version)
        answer = SERVED[key].fail(key, call) if state == "failed" else await SERVED[key].handle(call)
        if answer is None:
            # Allowed, but there is no broker to ask.
            assert key in FORWARDED | FORWARDED_CHANGES
            assert state != "denied"
            continue
        assert type(answer).decode(answer.encode(version), version) is not None


async def test_an_unclean_election_takes_the_right_to_lose_data(asked: Asked) -> None:
    asked.authorizer.denied = {Operation.LOSE_DATA}
    denied = await asked.ask(ElectLeadersRequest(1, [TopicPartitions("t", [0])]))
    assert (denied.error_code, asked.requests) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    preferred = await asked.ask(ElectLeadersRequest(0, [TopicPartitions("t", [0])]))
    assert preferred.error_code == ErrorCode.NONE


async def test_elections_of_no_partition_are_not_those_of_all(asked: Asked) -> None:
    for named in ([], None, [TopicPartitions("t", [0, 1])]):
        await asked.ask(ElectLeadersRequest(0, named))
    assert [request.partitions for request in asked.requests] == [[], None, [("t", 0), ("t", 1)]]


async def test_a_reassignment_to_nobody_is_a_cancellation_and_no_other(asked: Asked) -> None:
    parts = [ReassignablePartition(0, None), ReassignablePartition(1, []), ReassignablePartition(2, [2])]
    topics = [ReassignableTopic("t", parts), ReassignableTopic("u", [ReassignablePartition(0, [1, 2])])]
    answer = await asked.ask(AlterPartitionReassignmentsRequest(topics=topics))
    (request,) = asked.requests
    assert [(p.topic, p.partition, p.replicas) for p in request.reassignments] == [
        ("t", 0, None), ("t", 1, ()), ("t", 2, (2,)), ("u", 0, (1, 2)),
    ]  # fmt: skip
    assert [
        (each.name, [(p.partition_index, p.error_code) for p in each.partitions]) for each in answer.responses
    ] == [
        (
            "t",
            [
                (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
                (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
                (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        ),
        ("u", [(0, ErrorCode.NONE)]),
    ]


@pytest.mark.parametrize(
    ("version", "update", "meant"),
    [
        (0, FeatureUpdateKey("f", 1, allow_downgrade=True), UpgradeType.SAFE_DOWNGRADE),
        (0, FeatureUpdateKey("f", 1), UpgradeType.UPGRADE),
        (1, FeatureUpdateKey("f", 1, upgrade_type=3), UpgradeType.UNSAFE_DOWNGRADE),
        (1, FeatureUpdateKey("f", 1, upgrade_type=9), None),
    ],
)
async def test_how_a_feature_may_change(
    asked: Asked, version: int, update: FeatureUpdateKey, meant: UpgradeType | None
) -> None:
    await asked.ask(UpdateFeaturesRequest(feature_updates=[update], validate_only=version == 1), version)
    (request,) = asked.requests
    assert ([each.upgrade_type for each in request.updates], request.validate_only) == ([meant], version == 1)


async def test_nobody_speaks_for_a_broker_that_the_authorizer_does_not_take_it_for(asked: Asked) -> None:
    asked.authorizer.brokers_only = True
    answer = await asked.ask(alterations(3), 3)
    assert (answer.error_code, asked.requests) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_a_controller_whose_lease_is_over_answers_nothing_as_the_active_one(tmp_path: Path) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    remaining_s = 0.0
    session = SimpleNamespace(lease_remaining_s=lambda: remaining_s)
    daemon.term = SimpleNamespace(machine=SimpleNamespace(ready=True), session=session)  # type: ignore[assignment]
    controller = Controller(daemon, SERVED_VERSIONS)
    assert controller.term is None
    remaining_s = 1.0
    assert controller.term is daemon.term
    daemon.state_log.close()


async def test_version_0_of_elections_says_an_error_for_each_partition(asked: Asked) -> None:
    asked.authorizer.allowing = False
    answer = await asked.ask(ElectLeadersRequest(0, [TopicPartitions("t", [0, 1, 0])]), 0)
    ((topic,),) = [answer.replica_election_results]
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [(p.partition_id, p.error_code) for p in topic.partition_result] == [(0, denied), (1, denied)]


async def test_who_may_see_no_group_and_no_transaction_is_shown_none(asked: Asked) -> None:
    asked.authorizer.allowing = False
    assert await asked.ask(ListGroupsRequest()) == ListGroupsResponse()
    assert await asked.ask(ListTransactionsRequest()) == ListTransactionsResponse()
    directories = await asked.ask(DescribeLogDirsRequest())
    assert (directories.error_code, directories.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_an_answer_that_cannot_be_encoded_is_hung_up_on_and_logged(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_to_be_said(call: Call[Any]) -> ListGroupsResponse:
        del call
        return ListGroupsResponse(error_code=2**40)

    monkeypatch.setitem(SERVED, ApiKey.LIST_GROUPS, Served(not_to_be_said, lambda *_: None, False))
    with structlog.testing.capture_logs() as logged:
        async with kafka_server(asked.daemon) as port, calling(port) as caller:
            with pytest.raises(HUNG_UP):
                await caller.call(ListGroupsRequest(), 3)
    (said,) = [each for each in logged if each["event"] == "response_not_encoded"]
    assert (said["api"], said["version"]) == ("LIST_GROUPS", 3)


class Clock:
    """Time that only passes in pauses."""

    def __init__(self) -> None:
        self.now, self.pauses = 1000.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(call_module, "time", clock)
    monkeypatch.setattr(call_module, "asyncio", clock)
    return clock


@pytest.mark.parametrize("timeout_ms", [60_000, 2**31 - 1])
async def test_no_caller_waits_longer_than_a_minute_and_looks_less_and_less_often(
    asked: Asked, clock: Clock, timeout_ms: int
) -> None:
    call = asked.call(CreateTopicsRequest())
    assert not await call.wait_for(lambda _: False, timeout_ms)
    assert sum(clock.pauses) == pytest.approx(60)
    assert clock.pauses[:3] == [0.01, 0.02, 0.04]
    assert max(clock.pauses) == 0.25
    assert len(clock.pauses) < 250


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_caller_that_does_not_wait_gets_one_look(asked: Asked, clock: Clock, timeout_ms: int) -> None:
    call = asked.call(CreateTopicsRequest())
    assert not await call.wait_for(lambda _: False, timeout_ms)
    assert await call.wait_for(lambda _: True, timeout_ms)
    assert clock.pauses == []


@pytest.mark.parametrize(("timeout_ms", "waits_s"), [(0, 0), (400, 0.4), (60_000, 1)])
async def test_brokers_are_given_a_moment_to_hear_and_no_longer_than_the_caller_waits(
    asked: Asked, clock: Clock, timeout_ms: int, waits_s: float
) -> None:
    asked.term.brokers_informed = False
    await asked.call(CreateTopicsRequest()).brokers_hear(timeout_ms)
    assert sum(clock.pauses) == pytest.approx(waits_s)


async def test_nothing_is_waited_for_once_the_caller_has_gone(asked: Asked, clock: Clock) -> None:
    call = replace(asked.call(CreateTopicsRequest()), gone=lambda: len(clock.pauses) == 3)
    assert not await call.wait_for(lambda _: False, 60_000)
    assert len(clock.pauses) == 3


async def test_a_connection_that_the_caller_closed_ends_its_wait(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.get_running_loop().create_future()

    async def waiting(call: Call[Any]) -> ListGroupsResponse:
        ended.set_result(await call.wait_for(lambda _: False, 60_000))
        return ListGroupsResponse()

    monkeypatch.setitem(SERVED, ApiKey.LIST_GROUPS, Served(waiting, lambda *_: None, False))
    async with kafka_server(asked.daemon) as port, calling(port) as caller:
        frame = encode_request(ListGroupsRequest(), 0, 1, "c")
        await caller.send(struct.pack("!i", len(frame)) + frame)
        caller.close()
        async with asyncio.timeout(20):
            assert await ended is False


# --- single answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text", "said"),
    [
        (ErrorCode.NONE, "x", None),
        (ErrorCode.INVALID_REQUEST, "x", "x"),
        (ErrorCode.INVALID_REQUEST, "", None),
    ],
)
def test_only_errors_have_a_message(error: ErrorCode, text: str, said: str | None) -> None:
    assert call_module.message_of(error, text) == said


async def test_who_may_not_speak_for_a_broker_is_logged(asked: Asked) -> None:
    for brokers_only, denied in ((True, [2]), (False, [])):
        asked.authorizer.brokers_only = brokers_only
        with structlog.testing.capture_logs() as logged:
            assert asked.call(ListGroupsRequest()).may_act_as(2) is not brokers_only
        assert [line["as_broker"] for line in logged if line["event"] == "denied"] == denied


@pytest.mark.parametrize(
    ("version", "name", "error"),
    [(5, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (6, None, ErrorCode.UNKNOWN_TOPIC_ID)],
)
async def test_a_topic_without_a_name_has_null_where_it_may(
    asked: Asked, version: int, name: str | None, error: ErrorCode
) -> None:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[""])
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, b"x" * 16)])
    (answer,) = (await asked.ask(request, version)).responses
    assert (answer.name, answer.error_code) == (name, error)


async def test_nothing_is_waited_for_without_a_term(
    asked: Asked, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controller, "term", None)
    assert not await asked.call(ListGroupsRequest()).wait_for(lambda _: True, 60_000)
    assert clock.pauses == []


async def test_a_whole_request_fails_with_the_core_s_error(asked: Asked) -> None:
    asked.leads = False
    for request in (
        ElectLeadersRequest(0, [TopicPartitions("t", [0])]),
        ListPartitionReassignmentsRequest(),
        AlterPartitionReassignmentsRequest(),
    ):
        assert (await asked.ask(request)).error_code == ErrorCode.NOT_CONTROLLER
    stopping = await asked.ask(ControlledShutdownRequest(1, 1))
    assert stopping.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    (topic,) = (await asked.ask(DeleteTopicsRequest(topic_names=["t"]), 5)).responses
    assert (topic.name, topic.error_code) == ("t", ErrorCode.NOT_CONTROLLER)


async def test_elections_are_answered_by_topic(asked: Asked) -> None:
    named = [TopicPartitions("t", [0, 7]), TopicPartitions("u", [0])]
    answer = await asked.ask(ElectLeadersRequest(0, named))
    found = {
        topic.topic: [(p.partition_id, p.error_code, bool(p.error_message)) for p in topic.partition_result]
        for topic in answer.replica_election_results
    }
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    assert found == {
        "t": [(0, not_needed, True), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)],
        "u": [(0, not_needed, True)],
    }
    assert answer.error_code == ErrorCode.NONE
    asked.authorizer.allowing = False
    denied = await asked.ask(ElectLeadersRequest(0, [TopicPartitions("t", [0])]))
    ((result,),) = (topic.partition_result for topic in denied.replica_election_results)
    assert (result.error_code, result.error_message) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)


async def test_a_broker_that_stops_hears_what_nobody_else_can_lead(asked: Asked) -> None:
    epochs = {id_: broker.epoch for id_, broker in asked.cluster.brokers.items()}
    await asked.ask(ControlledShutdownRequest(1, epochs[1]))
    answer = await asked.ask(ControlledShutdownRequest(2, epochs[2]))
    remaining = sorted((p.topic_name, p.partition_index) for p in answer.remaining_partitions)
    assert (answer.error_code, remaining) == (ErrorCode.NONE, [("t", 0), ("u", 0)])


async def test_a_refused_proposal_has_defaults_for_a_state_as_from_kafka(asked: Asked) -> None:
    proposals = [PartitionData(partition_index=9, leader_epoch=0, new_isr=[1], partition_epoch=0)]
    topic = TopicData(topic_id=ID_OF_T, partitions=proposals)
    request = AlterPartitionRequest(1, asked.cluster.brokers[1].epoch, [topic])
    ((found,),) = (t.partitions for t in (await asked.ask(request, 2)).topics)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found.leader_id, found.leader_epoch, found.isr, found.partition_epoch) == (0, 0, [], 0)


async def test_what_is_denied_of_acls_is_nothing_else(asked: Asked) -> None:
    asked.authorizer.allowing = False
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await asked.ask(DescribeAclsRequest()) == DescribeAclsResponse(0, denied, "not authorized")


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_topic_is_created_only_if_it_is_named_once(asked: Asked, times: int) -> None:
    topics = [CreatableTopic("new", 1, 1)] * times
    (answer,) = (await asked.ask(CreateTopicsRequest(topics=topics, validate_only=True))).topics
    error = ErrorCode.NONE if times == 1 else ErrorCode.INVALID_REQUEST
    assert (answer.name, answer.error_code, len(asked.requests[0].topics)) == ("new", error, times == 1)


async def test_only_what_was_begun_is_waited_for(asked: Asked, clock: Clock) -> None:
    asked.term.brokers_informed = False
    answer = await asked.ask(DeleteTopicsRequest(topic_names=["absent"], timeout_ms=60_000), 5)
    assert [r.error_code for r in answer.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert clock.pauses == []
    asked.term.brokers_informed = True
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 3)], timeout_ms=60_000)
    assert [r.error_code for r in (await asked.ask(grown)).results] == [ErrorCode.NONE]
    assert clock.pauses == [], "each new partition has a leader already"
    asked.change = asked.cluster.topics.clear
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 4)], timeout_ms=60_000)
    assert [r.error_code for r in (await asked.ask(grown)).results] == [ErrorCode.NONE]
    assert clock.pauses == [], "it was deleted at once"


async def test_a_new_topic_is_not_done_before_all_its_partitions_are_led(asked: Asked, clock: Clock) -> None:
    new = CreateTopicsRequest([CreatableTopic("new", 2, 1)], 60_000)
    asked.change = lambda: setattr(asked.rig.partition("new", 1), "leadership", None)
    (answer,) = (await asked.ask(new)).topics
    assert (answer.error_code, bool(clock.pauses)) == (ErrorCode.REQUEST_TIMED_OUT, True)


async def test_of_several_new_topics_only_those_without_a_leader_timed_out(
    asked: Asked, clock: Clock
) -> None:
    new = CreateTopicsRequest([CreatableTopic("new", 2, 1), CreatableTopic("led", 1, 1)], 100)
    asked.change = lambda: setattr(asked.rig.partition("new", 1), "leadership", None)
    answer = await asked.ask(new)
    assert {t.name: t.error_code for t in answer.topics} == {
        "new": ErrorCode.REQUEST_TIMED_OUT,
        "led": ErrorCode.NONE,
    }
    assert clock.pauses


async def test_of_several_deletions_only_those_that_nobody_heard_of_timed_out(
    asked: Asked, clock: Clock
) -> None:
    """The brokers hear of t's, and not of u's."""

    known = dict(asked.cluster.topics)

    def heard() -> None:
        asked.cluster.topics.update(known)
        asked.cluster.topics_deletion_started = {"t"}

    asked.change = heard
    answer = await asked.ask(DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=100), 5)
    assert {r.name: r.error_code for r in answer.responses} == {
        "t": ErrorCode.NONE,
        "u": ErrorCode.REQUEST_TIMED_OUT,
    }
    assert clock.pauses


async def test_a_deleted_topic_that_somebody_creates_anew_at_once_is_not_waited_for(
    asked: Asked, clock: Clock
) -> None:
    """Both happen between two looks: a producer that creates topics does not wait for long."""
    new = Topic("t", uuid_text(b"n" * 16), 9, 0)
    asked.change = lambda: asked.cluster.topics.update(t=new)
    (answer,) = (await asked.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5)).responses
    assert (answer.error_code, clock.pauses) == (ErrorCode.NONE, [])


def test_secrets_of_a_new_topic_s_configuration_are_not_sent_back() -> None:
    configs = {"ssl.keystore.password": "hunter2", "retention.ms": "1"}
    created = TopicCreated("new", ErrorCode.NONE, topic_id=uuid_text(ID_OF_T), assignment={0: (1,)})
    result = topics_module._created(created, configs)
    assert [(c.name, c.value, c.is_sensitive) for c in result.configs or ()] == [
        ("ssl.keystore.password", None, True),
        ("retention.ms", "1", False),
    ]


async def test_of_a_topic_by_id_nobody_learns_more_than_it_may(asked: Asked) -> None:
    asked.authorizer.denied = {Operation.DESCRIBE}
    (shown,) = (await asked.ask(MetadataRequest(by_id(ID_OF_T)))).topics
    assert (shown.error_code, shown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    deletion = DeleteTopicsRequest([DeleteTopicState(None, ID_OF_T)])
    (hidden,) = (await asked.ask(deletion)).responses
    assert (hidden.error_code, hidden.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    asked.authorizer.denied = {Operation.DELETE}
    (known,) = (await asked.ask(deletion)).responses
    assert (known.error_code, known.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")


async def test_each_user_is_told_that_this_is_not_the_controller(asked: Asked) -> None:
    asked.leads = False
    answer = await asked.ask(
        AlterUserScramCredentialsRequest([ScramCredentialDeletion("a", 1), ScramCredentialDeletion("b", 1)])
    )
    assert [(r.user, r.error_code) for r in answer.results] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]


async def test_clients_see_brokers_at_the_addresses_of_their_own_listener(asked: Asked) -> None:
    endpoints = (Endpoint("INSIDE", "PLAINTEXT", "near", 1), Endpoint("OUTSIDE", "PLAINTEXT", "far", 2))
    asked.cluster.brokers[1] = Broker(1, 1, endpoints)
    asked.cluster.brokers[2] = Broker(2, 1, endpoints[:1])
    asked.daemon.kafka_addresses = {"INSIDE": ("here", 3), "OUTSIDE": ("there", 4)}
    for listener, seen in (
        ("INSIDE", [("near", 1), ("near", 1), ("here", 3)]),
        ("OUTSIDE", [("far", 2), ("there", 4)]),
    ):
        call = replace(asked.call(MetadataRequest([])), listener=listener)
        answer = await SERVED[ApiKey.METADATA].handle(call)
        assert [(b.host, b.port) for b in answer.brokers] == seen


async def test_the_audit_log_hears_of_each_answer_and_which_of_them_change_something(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = list[tuple[str, bool]]()

    def answered(method: str, *about: Any, changes: bool) -> None:
        heard.append((method, changes))

    monkeypatch.setattr(asked.daemon.audit_log, "answered", answered)
    async with kafka_server(asked.daemon) as port, calling(port) as caller:
        await caller.call(ListGroupsRequest())
        await caller.call(CreateTopicsRequest([CreatableTopic("new", 1, 1)]))
    assert heard == [("ListGroups", False), ("CreateTopics", True)]


@pytest.mark.parametrize("is_broker", [False, True])
async def test_who_only_says_that_it_is_a_broker_keeps_no_broker_s_place(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, is_broker: bool
) -> None:
    monkeypatch.setattr(admission, "PER_ADDRESS_MAX", 1)
    asked.authorizer.brokers_only = not is_broker
    async with kafka_server(asked.daemon) as port, calling(port) as first:
        await first.call(AlterPartitionRequest(1, 1))
        async with calling(port) as second:
            await second.call(ListGroupsRequest())
            async with calling(port) as third:
                await third.call(ListGroupsRequest())
                if is_broker:
                    await first.call(AlterPartitionRequest(1, 1))
                else:
                    with pytest.raises(HUNG_UP):
                        await first.call(AlterPartitionRequest(1, 1))
