"""Who gets in where: every RPC of the four services, asked by everybody, at a controller and a broker as they run.

An RPC without a row in ``ROWS`` fails the test, and so does a row that no RPC has.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from kazoo.client import KazooClient

from broker_stub.log import batches
from proto.gen import admin_service_pb2 as admin
from proto.gen import broker_control_pb2 as control
from proto.gen import broker_data_pb2 as data
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as brokers
from proto.gen import history_pb2
from proto.gen import inspection_pb2 as inspection
from proto.gen import maintenance_pb2 as maintenance
from proto.security.tokens import line_of, new_token
from tests.support.ports import free_port
from tests.support.runtime.certificates import Authority
from tests.support.runtime.programs import BIN, Program, program

pytestmark = pytest.mark.slow

SERVICES = {
    "AdminService": admin.DESCRIPTOR.services_by_name["AdminService"],
    "ControllerService": brokers.DESCRIPTOR.services_by_name["ControllerService"],
    "BrokerControl": control.DESCRIPTOR.services_by_name["BrokerControl"],
    "BrokerData": data.DESCRIPTOR.services_by_name["BrokerData"],
}
#: Nobody else: "root" may all, by a token.
ROOT = "root"
#: With a certificate of our authority.
CERTIFIED = ("stranger", "reader", "changer", "loser", "user", "broker-1", "broker-2", "controller-1")
#: No connection comes about: no certificate, one of another authority, one that is expired.
SHUT_OUT = ("nobody", "foreign", "expired")
#: A certificate of ours, and a token of nobody's.
FORGED = "forged"
EVERYBODY = (*SHUT_OUT, FORGED, ROOT, *CERTIFIED)
RULES = """
brokers = ["User:CN=broker-{id}"]
controllers = ["User:CN=controller-*"]
[[allow]]
principals = ["User:CN=reader"]
operations = ["DESCRIBE", "DESCRIBE_CONFIGS"]
resources = ["cluster", "topic:*", "group:*"]
[[allow]]
principals = ["User:CN=changer", "User:CN=loser"]
operations = ["ALTER", "CREATE", "ALTER_CONFIGS"]
resources = ["cluster", "topic:*"]
[[allow]]
principals = ["User:CN=loser"]
operations = ["DELETE", "LOSE_DATA"]
resources = ["cluster", "topic:*"]
[[allow]]
principals = ["User:CN=user"]
operations = ["READ", "WRITE"]
resources = ["topic:t", "group:g"]
[[deny]]
principals = ["User:CN=user"]
operations = ["ALL"]
resources = ["topic:t"]
hosts = ["192.0.2.1"]
"""
DENIED = {
    codes.CLUSTER_AUTHORIZATION_FAILED,
    codes.TOPIC_AUTHORIZATION_FAILED,
    codes.GROUP_AUTHORIZATION_FAILED,
}
TOPIC: dict[str, Any] = {"topic": "t", "partition": 0}
#: Who may change may see.
SEE = {"reader", "changer", "loser"}
CHANGE, LOSE, NOBODY = {"changer", "loser"}, {"loser"}, set[str]()
CONFIG = admin.ConfigResource(resource_type=admin.TOPIC, resource_name="absent")


def altering(name: str, value: str) -> admin.AlterConfigsRequest:
    entry = admin.AlterConfigsResource(
        resource=CONFIG, configs=[admin.AlterableConfig(name=name, value=value)]
    )
    return admin.AlterConfigsRequest(resources=[entry], validate_only=True)


class Row(NamedTuple):
    """A request, and who beside ROOT is let in with it. What it asks for changes nothing."""

    method: str
    let_in: set[str]
    request: Message | None = None


ROWS: Mapping[str, list[Row]] = {
    "AdminService": [
        *(
            Row(method, SEE)
            for method in (
                "DescribeCluster", "ListPartitionReassignments", "DescribeFeatures", "DescribeMaintenance", "Plan",
                "CheckStoppable", "ListHistory", "Watch", "Explain", "ListQuarantine", "DescribeReplicas", "Audit",
            )
        ),
        *(
            Row(method, CHANGE)
            for method in (
                "AlterPartitionReassignments", "UpdateFeatures", "SetPause", "SetMaintenance", "SetDrain", "SetFreeze",
                "CancelShutdown", "ResignController", "ClaimController", "DryRun", "WithdrawStopApproval",
                "ReleaseQuarantine",
            )
        ),
        Row(
            "CreateTopics",
            CHANGE,
            admin.CreateTopicsRequest(topics=[admin.CreatableTopic(name="absent")], validate_only=True),
        ),
        Row(
            "CreatePartitions",
            CHANGE,
            admin.CreatePartitionsRequest(topics=[admin.NewPartitions(name="absent", count=2)]),
        ),
        Row(
            "DeleteTopics",
            LOSE,
            admin.DeleteTopicsRequest(topics=[admin.DeletableTopic(name="absent")], reason="a test"),
        ),
        Row("ElectLeaders", CHANGE, admin.ElectLeadersRequest(all_partitions=True)),
        Row(
            "ElectLeaders",
            LOSE,
            admin.ElectLeadersRequest(election_type=admin.UNCLEAN, all_partitions=True, reason="a test"),
        ),
        Row("AlterConfigs", CHANGE, altering("retention.ms", "1")),
        Row("AlterConfigs", LOSE, altering("unclean.leader.election.enable", " TRUE")),
        Row("DescribeConfigs", {"reader", "changer", "loser"}, admin.DescribeConfigsRequest(resources=[CONFIG])),
        Row("ForgetBroker", LOSE, maintenance.ForgetBrokerRequest(broker_id=999, author="ann", reason="a test")),
        Row("ApproveStop", CHANGE),
        Row("ApproveStop", LOSE, inspection.ApproveStopRequest(override=True)),
        Row("DescribeTopics", {*SEE, "user"}, inspection.DescribeTopicsRequest(topics=["t"])),
        Row("Explain", {*SEE, "user"}, inspection.ExplainRequest(deletion="t")),
    ],
    "ControllerService": [
        Row("AlterPartition", {"broker-1"}, brokers.AlterPartitionRequest(broker_id=1)),
        Row("ControlledShutdown", {"broker-1"}, brokers.ControlledShutdownRequest(broker_id=1, broker_epoch=7)),
        Row("ControlledShutdown", {"broker-2"}, brokers.ControlledShutdownRequest(broker_id=2, broker_epoch=7)),
        Row("AllocateProducerIds", {"broker-1"}, brokers.AllocateProducerIdsRequest(broker_id=1)),
        Row("AlterPartition", NOBODY, brokers.AlterPartitionRequest(broker_id=9)),
    ],
    "BrokerControl": [
        Row("LeaderAndIsr", {"controller-1"}),
        Row("StopReplica", {"controller-1"}),
        Row("UpdateMetadata", {"controller-1"}),
        Row("DescribeState", {"controller-1"}),
    ],
    "BrokerData": [
        Row(
            "Produce",
            {"user"},
            data.ProduceRequest(
                acks=1, partitions=[data.ProducePartition(**TOPIC, records=batches.encode([(b"k", b"v")], 1))]
            ),
        ),
        Row("Fetch", {"user"}, data.FetchRequest(max_bytes=1, partitions=[data.FetchPartition(**TOPIC)])),
        Row(
            "Fetch",
            {"broker-1"},
            data.FetchRequest(replica_id=1, max_bytes=1, partitions=[data.FetchPartition(**TOPIC)]),
        ),
        Row(
            "ListOffsets",
            {*SEE, "user"},
            data.ListOffsetsRequest(partitions=[data.ListOffsetsPartition(**TOPIC, timestamp=-1)]),
        ),
        Row(
            "ListOffsets",
            {"broker-2"},
            data.ListOffsetsRequest(replica_id=2, partitions=[data.ListOffsetsPartition(**TOPIC)]),
        ),
        Row(
            "OffsetsForLeaderEpoch",
            {*SEE, "user"},
            data.OffsetsForLeaderEpochRequest(partitions=[data.OffsetForLeaderEpochPartition(**TOPIC)]),
        ),
        Row(
            "OffsetsForLeaderEpoch",
            {"broker-1"},
            data.OffsetsForLeaderEpochRequest(
                replica_id=1, partitions=[data.OffsetForLeaderEpochPartition(**TOPIC)]
            ),
        ),
        Row("Metadata", {*SEE, "user"}, data.MetadataRequest(topics=["t"])),
        Row("FindCoordinator", {"reader", "user"}, data.FindCoordinatorRequest(group_id="g")),
        Row("JoinGroup", {"user"}, data.JoinGroupRequest(group_id="g")),
        Row("SyncGroup", {"user"}, data.SyncGroupRequest(group_id="g")),
        Row("Heartbeat", {"user"}, data.HeartbeatRequest(group_id="g")),
        Row("LeaveGroup", {"user"}, data.LeaveGroupRequest(group_id="g")),
        Row("OffsetCommit", {"user"}, data.OffsetCommitRequest(group_id="g", offsets=[data.CommittedOffset(**TOPIC)])),
        Row(
            "OffsetFetch",
            {"reader", "user"},
            data.OffsetFetchRequest(group_id="g", partitions=[data.TopicPartition(**TOPIC)]),
        ),
    ],
}  # fmt: skip
#: These answer with what the caller may see, and deny nobody.
SHOWING = {"ListTopicDeletions"}
EACH = [(service, row) for service, rows in ROWS.items() for row in rows]


class Cluster(NamedTuple):
    """``addresses``: by service."""

    folder: Path
    addresses: Mapping[str, str]
    tokens: Mapping[str, str]

    def files(self, who: str) -> tuple[Path, Path]:
        return self.folder / f"{who}.pem", self.folder / f"{who}.key"


def issue(folder: Path) -> None:
    ours = Authority(folder)
    for who in (*CERTIFIED, FORGED, ROOT):
        ours.issue(who)
    ours.issue("expired", days=(-2, -1))
    foreign = Authority(folder / "other", "another authority")
    for made, name in zip(foreign.issue("foreign"), ("foreign.pem", "foreign.key"), strict=True):
        made.rename(folder / name)


def secured(prefix: str, folder: Path, who: str) -> dict[str, str]:
    """Settings in the environment."""
    settings = {
        "SSL_CERTIFICATE": str(folder / f"{who}.pem"),
        "SSL_KEY": str(folder / f"{who}.key"),
        "SSL_CA": str(folder / "ca.pem"),
        "AUTHORIZER_FILE": str(folder / "authorizer.toml"),
        "BEARER_TOKENS_FILE": str(folder / "tokens"),
        "SUPER_USERS": f"User:{ROOT}",
        "SESSION_TIMEOUT_MS": "6000",
    }
    return {prefix + name: value for name, value in settings.items()}


@pytest.fixture(scope="module")
def cluster(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller and a broker that leads t-0, both with TLS and rules."""
    folder = tmp_path_factory.mktemp("secured")
    issue(folder)
    token = new_token()
    (folder / "authorizer.toml").write_text(RULES)
    (folder / "tokens").write_text(line_of(ROOT, token))
    (folder / "tokens").chmod(0o600)
    client = KazooClient(zookeeper_server)
    client.start(20)
    chroot = "/access-matrix"
    client.delete(chroot, recursive=True)
    client.create(f"{chroot}/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]}}', makepath=True)
    ports = [free_port() for _ in range(3)]
    controller, http, broker = (f"127.0.0.1:{port}" for port in ports)
    connect = zookeeper_server + chroot
    as_controller = [str(BIN / "partition-controller"), "run", f"--zookeeper={connect}",
        f"--grpc-listen={controller}", f"--http-listen={http}", f"--state-log-dir={folder / 'log'}"]  # fmt: skip
    as_broker = [str(BIN / "broker-stub"), "run", "--broker-id=1", f"--zookeeper={connect}", f"--listen={broker}",
        f"--data-dir={folder / 'data'}"]  # fmt: skip
    with ExitStack() as stack:

        def start(command: list[str], changes: dict[str, str], name: str) -> Program:
            return stack.enter_context(program(command, folder, changes, name))

        start(as_controller, secured("PARTITION_CONTROLLER_", folder, "controller-1"), "controller")
        leading = start(as_broker, secured("BROKER_STUB_", folder, "broker-1"), "broker")
        state = f"{chroot}/brokers/topics/t/partitions/0/state"
        leading.until(lambda: client.exists(state) is not None and '"replicas changed"' in leading.said())
        addresses = {"AdminService": controller, "ControllerService": controller}
        yield Cluster(
            folder, {**addresses, "BrokerControl": broker, "BrokerData": broker}, {ROOT: token, FORGED: "no"}
        )
    client.stop()
    client.close()


@asynccontextmanager
async def asking(cluster: Cluster, service: str, who: str) -> AsyncIterator[grpc.aio.Channel]:
    certificate, key = cluster.files(who)
    mine = () if who == "nobody" else (key.read_bytes(), certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials((cluster.folder / "ca.pem").read_bytes(), *mine)
    if (token := cluster.tokens.get(who)) is not None:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token)
        )
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(cluster.addresses[service], credentials, options=options) as channel:
        yield channel


async def outcome(channel: grpc.aio.Channel, service: str, row: Row) -> str:
    """``in``, ``denied``, or gRPC's status of a call that got no answer."""
    method = SERVICES[service].methods_by_name[row.method]
    message = (row.request or GetMessageClass(method.input_type)()).SerializeToString()
    path = f"/{SERVICES[service].full_name}/{row.method}"
    try:
        if method.server_streaming:
            stream: Any = channel.unary_stream(path)
            call = stream(message, timeout=20)
            answered = await call.read()
            call.cancel()
            if answered is grpc.aio.EOF:
                return str(await call.code())
        else:
            unary: Any = channel.unary_unary(path)
            answered = await unary(message, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    answer = GetMessageClass(method.output_type).FromString(answered)
    return "denied" if DENIED.intersection(errors(answer)) else "in"


def errors(message: Any) -> Iterator[int]:
    """All error codes in an answer."""
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in value if field.is_repeated else [value]:
                yield from errors(inner)


def expected(who: str, row: Row) -> str:
    if who in SHUT_OUT:
        return "UNAVAILABLE"
    if who == FORGED:
        return "UNAUTHENTICATED"
    return "in" if who == ROOT or who in row.let_in else "denied"


def test_every_rpc_has_a_row() -> None:
    for service, descriptor in SERVICES.items():
        rows = {row.method for row in ROWS[service]} | (SHOWING if service == "AdminService" else set())
        assert rows == {method.name for method in descriptor.methods}, service


async def test_who_asked_for_what_is_recorded(cluster: Cluster) -> None:
    """In the log of the controller: who, from where, why, and the outcome; also without a valid token.

    It comes first: the others' denials are more than are recorded one by one.
    """
    wanted = admin.DeleteTopicsRequest(topics=[admin.DeletableTopic(name="gone")], reason="a try")
    for who in ("loser", "changer", FORGED):
        async with asking(cluster, "AdminService", who) as channel:
            await outcome(channel, "AdminService", Row("DeleteTopics", NOBODY, wanted))
    history = "/partition_controller.v1.AdminService/ListHistory"
    async with asking(cluster, "AdminService", "reader") as channel:
        call: Any = channel.unary_unary(history)
        asked = history_pb2.ListHistoryRequest(filter=history_pb2.HistoryFilter(kinds=["request"]))
        answer = history_pb2.ListHistoryResponse.FromString(await call(asked.SerializeToString(), timeout=20))
    records = [json.loads(line) for line in answer.records][-3:]
    shown = [(r["principal"], r["address"], r.get("subject"), r.get("reason"), r["error"]) for r in records]
    assert shown == [
        ("User:CN=loser", "127.0.0.1", "gone", "a try", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("User:CN=changer", "127.0.0.1", "gone", "a try", "TOPIC_AUTHORIZATION_FAILED"),
        ("User:ANONYMOUS", "127.0.0.1", None, None, "UNAUTHENTICATED"),
    ]


@pytest.mark.parametrize("who", EVERYBODY)
@pytest.mark.parametrize("service", SERVICES)
async def test_who_gets_in(cluster: Cluster, service: str, who: str) -> None:
    async with asking(cluster, service, who) as channel:
        found = [(row.method, row.request, await outcome(channel, service, row)) for row in ROWS[service]]
    assert found == [(row.method, row.request, expected(who, row)) for row in ROWS[service]]


@pytest.mark.parametrize("who", ["stranger", "broker-2"])
async def test_control_requests_of_strangers_do_nothing(cluster: Cluster, who: str) -> None:
    """Three requests, sent straight to a broker: lead under a far epoch, delete the folder, a picture of another
    cluster. They would lock the real controller out."""
    header: dict[str, Any] = {"controller_id": 99, "controller_epoch": 2**31 - 1, "broker_epoch": -1}
    state = control.LeaderAndIsrPartitionState(
        topic="t", partition=0, leader=1, leader_epoch=2**31 - 2, isr=[1], replicas=[1]
    )
    stopped = control.StopReplicaPartitionState(
        topic="t", partition=0, leader_epoch=2**31 - 2, delete_partition=True
    )
    rows = [
        Row("LeaderAndIsr", NOBODY, control.LeaderAndIsrRequest(**header, partition_states=[state])),
        Row("StopReplica", NOBODY, control.StopReplicaRequest(**header, partition_states=[stopped])),
        Row("UpdateMetadata", NOBODY, control.UpdateMetadataRequest(**header, ends_snapshot=True)),
    ]
    async with asking(cluster, "BrokerControl", who) as channel:
        assert [await outcome(channel, "BrokerControl", row) for row in rows] == ["denied"] * 3
    assert (cluster.folder / "data" / "t-0").is_dir()
    produce = next(row for row in ROWS["BrokerData"] if row.method == "Produce")
    async with asking(cluster, "BrokerData", "user") as channel:
        assert await outcome(channel, "BrokerData", produce) == "in"
    records = (cluster.folder / "data" / "state-log" / "state-change.jsonl").read_text()
    assert f'"kind":"request","to":"StopReplica","principal":"User:CN={who}","address":"127.0.0.1"' in records


async def test_what_may_lose_data_takes_a_reason(cluster: Cluster) -> None:
    losing: list[tuple[str, Message]] = [
        ("DeleteTopics", admin.DeleteTopicsRequest(topics=[admin.DeletableTopic(name="absent")])),
        ("ElectLeaders", admin.ElectLeadersRequest(election_type=admin.UNCLEAN, all_partitions=True)),
    ]
    async with asking(cluster, "AdminService", "loser") as channel:
        for method, request in losing:
            call: Any = channel.unary_unary(f"/partition_controller.v1.AdminService/{method}")
            kind = GetMessageClass(SERVICES["AdminService"].methods_by_name[method].output_type)
            answer: Any = kind.FromString(await call(request.SerializeToString(), timeout=20))
            assert (answer.error_code, answer.error_message[:7]) == (codes.POLICY_VIOLATION, "reason:")
