"""The server of Kafka's protocol, on a real ZooKeeper and over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from structlog.testing import capture_logs

from controller.core.requests.errors import ErrorCode
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.security.scram import ScramMechanism, make_credential, parse_credential
from controller.runtime.kafka.topic_ids import uuid_bytes, uuid_text
from controller.runtime.kafka_api.api_table import SERVED
from controller.runtime.kafka_api.call import FORWARDED, FORWARDED_CHANGES
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
from proto.gen.kafka.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from proto.gen.kafka.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from proto.gen.kafka.describe_cluster_request import DescribeClusterRequest
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from proto.gen.kafka.describe_log_dirs_request import DescribeLogDirsRequest
from proto.gen.kafka.elect_leaders_request import ElectLeadersRequest
from proto.gen.kafka.find_coordinator_request import FindCoordinatorRequest
from proto.gen.kafka.init_producer_id_request import InitProducerIdRequest
from proto.gen.kafka.list_groups_request import ListGroupsRequest
from proto.gen.kafka.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.gen.kafka.metadata_response import MetadataResponse
from proto.kafka.apis import APIS, ApiKey, decode_response, encode_request
from proto.security.authorization import AnyBroker, Operation, Principal, Resource, ResourceType
from tests.support.runtime.callers import Active
from tests.support.runtime.certificates import Authority
from tests.support.runtime.handshakes import counting_handshakes
from tests.support.runtime.kafka_callers import active, calling, kafka_server
from tests.support.runtime.pushes import FakeBroker, carried_out
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

ONE_TOPIC = {"t": '{"0":[1,2]}'}
HUNG_UP = (asyncio.IncompleteReadError, ConnectionError)


class Denying(AnyBroker):
    """Denies operations on resources of these types."""

    def __init__(self, *denied: tuple[Operation, ResourceType]) -> None:
        self._denied = denied

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        del principal
        return (operation, resource.type) not in self._denied


def brokers() -> tuple[FakeBroker, FakeBroker]:
    both = FakeBroker(1), FakeBroker(2)
    for broker in both:
        broker.answer = carried_out
    return both


def proposal(leading: Active, isr: list[int], version: int) -> AlterPartitionRequest:
    """What the leader of t-0 proposes, as this version says it."""
    partition = leading.partition()
    state = partition.leadership
    assert state is not None
    data = PartitionData(
        partition_index=0, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
    )
    if version >= 3:
        data.new_isr_with_epochs = [BrokerState(broker_id) for broker_id in isr]
    else:
        data.new_isr = isr
    topic = TopicData(partitions=[data])
    if version >= 2:
        topic.topic_id = uuid_bytes(partition.topic.id)
    else:
        topic.topic_name = "t"
    epoch = leading.term.machine.cluster.brokers[1].epoch
    return AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=[topic])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_a_leader_shrinks_its_isr(
    zookeeper: str, zk: KazooClient, tmp_path: Path, version: int
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (leading, caller, _):
        response = await caller.call(proposal(leading, [1], version), version)
        assert response.error_code == ErrorCode.NONE
        ((topic,),) = [response.topics]
        ((partition,),) = [topic.partitions]
        assert (partition.error_code, partition.leader_id, partition.isr) == (ErrorCode.NONE, 1, [1])
        assert leading.stored() == (1, 0, [1], partition.partition_epoch)


async def test_partitions_of_several_topics_are_answered_where_they_were_asked(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    topics = {**ONE_TOPIC, "u": '{"0":[1,2],"1":[1,2]}'}
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=topics) as (leading, caller, _):
        request = proposal(leading, [1], 3)
        unknown = TopicData(topic_id=b"x" * 16, partitions=[PartitionData(partition_index=7)])
        request.topics = [unknown, *request.topics, unknown]
        response = await caller.call(request)
        answers = [
            (topic.topic_id, [(p.partition_index, p.error_code) for p in topic.partitions])
            for topic in response.topics
        ]
        known = request.topics[1].topic_id
        missing = (b"x" * 16, [(7, ErrorCode.UNKNOWN_TOPIC_ID)])
        # Kafka's protocol: of a partition that is named twice the last counts.
        assert answers == [missing, (known, [(0, ErrorCode.NONE)])]


async def test_a_broker_that_stops_and_one_that_wants_producer_ids(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (leading, caller, _):
        epoch = leading.term.machine.cluster.brokers[1].epoch
        first = await caller.call(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        second = await caller.call(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
        assert second.producer_id_start == 1000
        stale = await caller.call(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch - 1))
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        stopped = await caller.call(ControlledShutdownRequest(broker_id=1, broker_epoch=epoch))
        assert (stopped.error_code, stopped.remaining_partitions) == (ErrorCode.NONE, [])
        assert leading.stored()[0] == 2


async def test_topics_are_created_grown_and_deleted(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers()) as (leading, caller, _):
        wanted = [
            CreatableTopic("a", 3, 2, [], [CreatableTopicConfig("retention.ms", "1000")]),
            CreatableTopic("b", -1, -1, [CreatableReplicaAssignment(0, [2, 1])]),
            CreatableTopic("c", 1, 3),
            CreatableTopic("d", 1, 1),
            CreatableTopic("d", 1, 1),
            CreatableTopic("e", -1, -1),
        ]
        response = await caller.call(CreateTopicsRequest(wanted, 10_000))
        found = {t.name: (t.error_code, t.num_partitions, t.replication_factor) for t in response.topics}
        assert found == {
            "a": (ErrorCode.NONE, 3, 2),
            "b": (ErrorCode.NONE, 1, 2),
            "c": (ErrorCode.INVALID_REPLICATION_FACTOR, -1, -1),
            "d": (ErrorCode.INVALID_REQUEST, -1, -1),
            "e": (ErrorCode.NONE, 1, 1),
        }
        cluster = leading.term.machine.cluster
        assert uuid_text(response.topics[0].topic_id) == cluster.topics["a"].id
        assert all(p.leadership for p in cluster.topics["a"].partitions.values())
        grown = await caller.call(
            CreatePartitionsRequest([CreatePartitionsTopic("a", 5), CreatePartitionsTopic("z", 5)], 10_000)
        )
        assert [(t.name, t.error_code) for t in grown.results] == [
            ("a", ErrorCode.NONE),
            ("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert len(cluster.topics["a"].partitions) == 5
        gone = DeleteTopicsRequest(
            topics=[DeleteTopicState("a"), DeleteTopicState(None, uuid_bytes(cluster.topics["b"].id))],
            timeout_ms=10_000,
        )
        deleted = await caller.call(gone)
        assert [(t.name, t.error_code) for t in deleted.responses] == [("a", 0), ("b", 0)]
        again = await caller.call(DeleteTopicsRequest(topic_names=["nope"], timeout_ms=1000), 5)
        assert again.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_nobody_can_lead_in_time_is_answered_with_a_timeout(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers()) as (leading, caller, _):
        cluster = leading.term.machine.cluster
        cluster.shutting_down.update(cluster.brokers)
        response = await caller.call(CreateTopicsRequest([CreatableTopic("a", 1, 1)], 100))
        assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "a" in cluster.topics


async def test_elections_and_reassignments(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (leading, caller, _):
        elected = await caller.call(ElectLeadersRequest(0, None, 1000))
        assert (elected.error_code, elected.replica_election_results) == (ErrorCode.NONE, [])
        assert (await caller.call(ElectLeadersRequest(9, None, 1000))).error_code == ErrorCode.INVALID_REQUEST
        move = ReassignableTopic("t", [ReassignablePartition(0, [2, 1]), ReassignablePartition(5, [2])])
        answer = await caller.call(AlterPartitionReassignmentsRequest(1000, [move]))
        codes = [p.error_code for p in answer.responses[0].partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        listed = await caller.call(ListPartitionReassignmentsRequest(1000))
        assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])
        assert leading.partition().replicas == (2, 1)


async def test_metadata_names_this_controller_among_the_nodes(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (leading, caller, port):
        everything = await caller.call(MetadataRequest(None))
        assert everything.controller_id == 1
        assert (1, "127.0.0.1", port) in [(b.node_id, b.host, b.port) for b in everything.brokers]
        (topic,) = everything.topics
        assert (topic.name, uuid_text(topic.topic_id)) == ("t", leading.partition().topic.id)
        ((partition,),) = [topic.partitions]
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1, 2], [1, 2])
        named = await caller.call(MetadataRequest([MetadataRequestTopic(name="nope")]))
        assert [t.error_code for t in named.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (await caller.call(MetadataRequest([]))).topics == []
        old = await caller.call(MetadataRequest([]), 0)
        assert [t.name for t in old.topics] == ["t"]
        cluster = await caller.call(DescribeClusterRequest())
        assert cluster.controller_id == 1
        assert cluster.cluster_id == leading.term.machine.cluster.cluster_id


async def test_librdkafka_reads_our_metadata(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """Its request for all topics has bytes that do not belong there."""
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (_, _, port):
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        found = await asyncio.to_thread(client.list_topics, timeout=10)
        assert found.controller_id == 1
        assert list(found.topics) == ["t"]


async def test_each_listener_has_an_address_of_its_own(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with (
        active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (leading, _, _),
        kafka_server(leading.daemon, "INTERNAL", "EXTERNAL"),
    ):
        addresses = leading.daemon.kafka_addresses
        assert len(set(addresses.values())) == 2
        for _, port in addresses.values():
            async with calling(port) as caller:
                found = await caller.call(MetadataRequest(None))
                assert [b.port for b in found.brokers if b.node_id == found.controller_id] == [port]
                cluster = await caller.call(DescribeClusterRequest())
                assert [b.port for b in cluster.brokers if b.broker_id == cluster.controller_id] == [port]


async def test_every_served_api_is_advertised_and_answers_in_each_of_its_versions(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (_, caller, port):
        listed = await caller.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        ranges = {k.api_key: (k.min_version, k.max_version) for k in listed.api_keys}
        assert ranges == {key: (APIS[key].versions[0], APIS[key].versions[-1]) for key in SERVED}
        # Nobody to forward to: these brokers are led by gRPC. Without resources there is nothing to forward.
        configs = {ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
        for key in SERVED.keys() - ((FORWARDED | FORWARDED_CHANGES) - configs):
            for version in APIS[key].versions:
                async with calling(port) as another:
                    response = await another.call(APIS[key].request(), version)
                    assert type(response) is APIS[key].response


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path) as (_, caller, _):
        await caller.send(struct.pack("!ihhihb", 11, ApiKey.API_VERSIONS, 99, 5, -1, 0))
        frame = await caller.frame()
        assert struct.unpack_from("!ih", frame) == (5, ErrorCode.UNSUPPORTED_VERSION)
        response = APIS[ApiKey.API_VERSIONS].response.decode(frame[4:], 0)
        assert len(response.api_keys) == len(SERVED)  # type: ignore[attr-defined]


FOREIGN = DescribeConfigsRequest([DescribeConfigsResource(2, "t", None)])
OTHER_NODE = DescribeConfigsRequest([DescribeConfigsResource(4, "2", None)])


@pytest.mark.parametrize(
    "request_",
    [FOREIGN, OTHER_NODE, FindCoordinatorRequest("g"), InitProducerIdRequest()],
    ids=["topic", "node", "coordinator", "not served"],
)
async def test_what_no_broker_answers_is_hung_up_on(
    zookeeper: str, zk: KazooClient, tmp_path: Path, request_: DescribeConfigsRequest
) -> None:
    async with active(zookeeper, zk, tmp_path) as (_, caller, _):
        with pytest.raises(HUNG_UP):
            await caller.call(request_, 3)


async def test_tools_that_ask_every_node_get_empty_answers(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path) as (_, caller, _):
        own = await caller.call(DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)]))
        assert [(r.error_code, r.configs) for r in own.results] == [(ErrorCode.NONE, [])]
        assert (await caller.call(ListGroupsRequest())).groups == []
        (directory,) = (await caller.call(DescribeLogDirsRequest())).results
        assert (directory.error_code, directory.topics) == (ErrorCode.NONE, [])


GARBAGE = {
    "huge": struct.pack("!i", 2**31 - 1),
    "negative": struct.pack("!i", -5),
    "empty": struct.pack("!i", 0),
    "short header": struct.pack("!ih", 2, 3),
    "unknown api": struct.pack("!ihhih", 10, 999, 0, 1, -1),
    "array beyond the end": struct.pack("!ihhih", 14, ApiKey.METADATA, 1, 1, -1) + struct.pack("!i", 2**30),
    "nothing but noise": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
}


@pytest.mark.parametrize("noise", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_connection_and_no_other(
    zookeeper: str, zk: KazooClient, tmp_path: Path, noise: bytes
) -> None:
    async with active(zookeeper, zk, tmp_path) as (_, caller, port):
        async with calling(port) as bad:
            await bad.send(noise)
            with pytest.raises(HUNG_UP):
                await bad.frame()
        assert (await caller.call(ListGroupsRequest())).error_code == ErrorCode.NONE


async def test_bytes_behind_a_request_are_not_looked_at(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path, topics=ONE_TOPIC) as (_, caller, _port):
        frame = encode_request(MetadataRequest(None), 12, 7, "c") + bytes(3)
        await caller.send(struct.pack(">i", len(frame)) + frame)
        correlation_id, response = decode_response(ApiKey.METADATA, 12, await caller.frame())
        assert isinstance(response, MetadataResponse)
        assert (correlation_id, [topic.name for topic in response.topics]) == (7, ["t"])


async def test_a_controller_that_is_not_active_answers_so_or_hangs_up(tmp_path: Path) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port:
            async with calling(port) as caller:
                altered = await caller.call(AlterPartitionRequest(broker_id=1, broker_epoch=1))
                assert altered.error_code == ErrorCode.NOT_CONTROLLER
                created = await caller.call(CreateTopicsRequest([CreatableTopic("a", 1, 1)], 1000))
                assert [t.error_code for t in created.topics] == [ErrorCode.NOT_CONTROLLER]
            async with calling(port) as caller:
                with pytest.raises(HUNG_UP):
                    await caller.call(MetadataRequest(None))
    finally:
        daemon.state_log.close()


async def test_what_is_denied_is_not_carried_out(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (leading, caller, _):
        leading.daemon.authorizer = Denying(
            (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
            (Operation.CREATE, ResourceType.CLUSTER),
            (Operation.CREATE, ResourceType.TOPIC),
            (Operation.DELETE, ResourceType.TOPIC),
            (Operation.ALTER, ResourceType.CLUSTER),
        )
        before = leading.stored()
        altered = await caller.call(proposal(leading, [1], 3))
        assert altered.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        created = await caller.call(CreateTopicsRequest([CreatableTopic("a", 1, 1)], 1000))
        assert created.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        deleted = await caller.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000))
        assert deleted.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elected = await caller.call(ElectLeadersRequest(0, None, 1000))
        assert elected.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        (user,) = (await caller.call(scram_of("alice", "secret"))).results
        assert (user.user, user.error_code) == ("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert zk.exists("/config/users/alice") is None
        assert leading.stored() == before
        assert "a" not in leading.term.machine.cluster.topics


def scram_of(user: str, password: str) -> AlterUserScramCredentialsRequest:
    """As Kafka's tool sends it: SCRAM-SHA-512, which is number 2, with the password salted."""
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), b"salt", 5000)
    return AlterUserScramCredentialsRequest([], [ScramCredentialUpsertion(user, 2, 5000, b"salt", salted)])


async def test_passwords_of_users_are_stored_as_kafka_stores_them(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers(), topics=ONE_TOPIC) as (_, caller, _):
        (user,) = (await caller.call(scram_of("al ice", "secret"))).results
        assert (user.user, user.error_code, user.error_message) == ("al ice", ErrorCode.NONE, None)
        stored = json.loads(zk.get("/config/users/al%20ice")[0])["config"]["SCRAM-SHA-512"]
        credential = parse_credential(ScramMechanism.SHA_512, stored)
        assert credential == make_credential(ScramMechanism.SHA_512, "secret", 5000, b"salt")
        (note,) = zk.get_children("/config/changes")
        told = json.loads(zk.get(f"/config/changes/{note}")[0])
        assert told == {"version": 2, "entity_path": "users/al%20ice"}
        unknown = AlterUserScramCredentialsRequest([ScramCredentialDeletion("al ice", 3)], [])
        (user,) = (await caller.call(unknown)).results
        assert user.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


async def test_bytes_after_a_request_are_not_looked_at(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """As librdkafka sends AlterUserScramCredentials, and as brokers read it."""
    async with active(zookeeper, zk, tmp_path) as (_, caller, _):
        body = encode_request(ListGroupsRequest(), 4, 7, "test") + b"\0"
        await caller.send(struct.pack("!i", len(body)) + body)
        assert struct.unpack_from("!i", await caller.frame()) == (7,)


@asynccontextmanager
async def secured(tmp_path: Path) -> AsyncIterator[int]:
    """The port of a listener with TLS."""
    authority = Authority(tmp_path / "ca")
    certfile, keyfile = authority.issue("controller")
    settings = Settings(
        state_log_dir=tmp_path / "log",
        kafka_security_protocol="SSL",
        kafka_ssl_certificate=certfile,
        kafka_ssl_key=keyfile,
        kafka_ssl_ca=authority.cafile,
    )
    daemon = Daemon(settings)
    try:
        async with kafka_server(daemon) as port:
            yield port
    finally:
        daemon.state_log.close()


async def test_who_does_not_speak_tls_is_logged(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with secured(tmp_path) as port, calling(port) as caller:
            with pytest.raises(HUNG_UP):
                await caller.call(ListGroupsRequest())
            await until(lambda: any(line["event"] == "refused" for line in logs), "a line")
    (why,) = [line["why"] for line in logs if line["event"] == "refused"]
    assert why.startswith("TLS: ")


@pytest.mark.parametrize("said", [b"no TLS\r\n", b""], ids=["nonsense", "end"])
async def test_a_handshake_that_failed_is_freed(tmp_path: Path, said: bytes) -> None:
    async with secured(tmp_path) as port:
        with counting_handshakes() as handshakes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: handshakes() == 1, "a handshake")
            writer.write(said)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            await until(lambda: handshakes() == 0, "its memory to be free")


async def test_a_bug_in_a_handler_is_answered_with_an_error(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with active(zookeeper, zk, tmp_path, *brokers()) as (leading, caller, _):
        monkeypatch.setattr(type(leading.term), "ask", None)
        response = await caller.call(AlterPartitionRequest(broker_id=1, broker_epoch=1))
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_topic_ids_are_the_same_in_both_forms() -> None:
    assert uuid_text(bytes(16)) == ""
    assert uuid_bytes("") == bytes(16)
    data = bytes(range(200, 216))
    assert uuid_bytes(uuid_text(data)) == data
    assert uuid_bytes("no topic id") == bytes(16)
