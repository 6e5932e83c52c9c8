"""Secured clusters of unmodified brokers: TLS, SASL, ACLs, and znodes with owners."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin._scram import ScramMechanism as LibrdkafkaMechanism

from controller.cli.main import main as controller_main
from controller.cli.pctl.main import main as pctl
from controller.core.requests.errors import ErrorCode
from controller.embedded_kafka import jars
from controller.runtime.config import split_address
from controller.runtime.kafka.connection import Connection, ConnectionFailedError
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.kafka.security.scram import ScramMechanism, make_credential, parse_credential
from controller.runtime.kafka.security.setup import client_security
from controller.runtime.kafka.topic_ids import uuid_bytes
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
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.create_acls_request import AclCreation, CreateAclsRequest
from proto.gen.kafka.create_topics_request import CreatableTopic, CreateTopicsRequest
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from proto.gen.kafka.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from proto.kafka.apis import Message
from tests.kafka.cluster import FIRST_CONTROLLER_ID, Controller, KafkaCluster
from tests.kafka.conftest import running
from tests.kafka.load import Load
from tests.kafka.requests import every_acl
from tests.kafka.security import Security, password_of
from tests.kafka.side_by_side.znodes import snapshot
from tests.support.kafka.tools import KafkaTools, Tool
from tests.support.runtime.certificates import Authority
from tests.support.runtime.secured_zookeeper import secured_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

OURS = FIRST_CONTROLLER_ID


class Secured:
    """Starts one cluster of two brokers, on a ZooKeeper of its own if the znodes are to have owners."""

    def __init__(self, folder: Path, zookeeper: str, stack: ExitStack) -> None:
        self._folder, self._zookeeper, self._stack = folder, zookeeper, stack

    def __call__(self, security: Security, **arguments: Any) -> KafkaCluster:
        zookeeper = self._zookeeper
        if security.zookeeper_acl:
            zookeeper = self._stack.enter_context(secured_zookeeper(self._folder / "zookeeper"))
        if security.mechanism.startswith("SCRAM") and security.sasl:
            security.users_in_zookeeper(zookeeper)
        wanted: dict[str, Any] = {
            "versions": dict.fromkeys((1, 2), jars.NEWEST),
            **security.cluster(),
            **arguments,
        }
        wanted["properties"] = {
            "offsets.topic.replication.factor": "2",
            **wanted["properties"],
        }
        return self._stack.enter_context(running(self._folder / "kafka", zookeeper, **wanted))


@pytest.fixture
def make_secured(tmp_path: Path, zookeeper: str) -> Iterator[Secured]:
    with ExitStack() as stack:
        yield Secured(tmp_path, zookeeper, stack)


def allow(
    cluster: KafkaCluster,
    principal: str,
    *granted: tuple[ResourceType, str, AclOperation],
    pattern: ResourcePatternType,
) -> None:
    """Add ACLs, as the cluster's own client; librdkafka asks the controller."""
    acls = [
        AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in granted
    ]
    admin = cluster.admin_that_knows_the_controller()
    for added in admin.create_acls(acls, request_timeout=30).values():
        added.result(30)


def prepared(cluster: KafkaCluster, security: Security) -> None:
    """Our controllers' user and the load's may do what they have to, and the topic of the load exists."""
    kinds, may = ResourceType, AclOperation
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    cluster_wide = (kinds.BROKER, "kafka-cluster")
    allow(
        cluster,
        security.principal("controller"),
        (*cluster_wide, may.CLUSTER_ACTION),
        (*cluster_wide, may.DESCRIBE_CONFIGS),
        # For what it forwards.
        (*cluster_wide, may.DESCRIBE),
        (*cluster_wide, may.ALTER),
        pattern=literal,
    )
    asked = [(kinds.TOPIC, "t", may.READ), (kinds.TOPIC, "t", may.WRITE), (kinds.GROUP, "t", may.READ)]
    allow(cluster, security.principal("loader"), *asked, pattern=prefixed)
    cluster.create_topic("t", 4, 2)


def take_over(cluster: KafkaCluster, count: int) -> None:
    former = cluster.brokers[cluster.controller_id()]
    cluster.add_controllers(count)
    cluster.until("Resigned", lambda: "Resigned" in former.controller_log.read_text())
    # Then it has done its failover, and answers others than NOT_CONTROLLER.
    cluster.admin_that_knows_the_controller()


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    state = cluster.states(topic)[topic, 0]
    assert state is not None
    return state.leader


def active(cluster: KafkaCluster) -> Controller:
    return cluster.controllers[cluster.controller_id()]


def kafka_port(controller: Controller) -> int:
    return split_address(str(controller.settings["kafka_listen"]))[1]


def changes_asked(cluster: KafkaCluster) -> dict[str, tuple[Message, int, int]]:
    """Requests that would be carried out if they came from a broker or from an administrator: by name, each with its
    version and the code with which Kafka denies it."""
    state = cluster.states("t")["t", 0]
    assert state is not None
    registered, znode = cluster.zk.exists(f"/brokers/ids/{state.leader}"), cluster.json("/brokers/topics/t")
    version = cluster.zk.exists("/brokers/topics/t/partitions/0/state").version
    smaller = PartitionData(
        0, state.leader_epoch, [], [BrokerState(state.leader, registered.czxid)], 0, version
    )
    cluster_denied, topic_denied = (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    topic_id = uuid_bytes(znode["topic_id"])
    alter = AlterPartitionRequest(state.leader, registered.czxid, [TopicData("", topic_id, [smaller])])
    move = ReassignableTopic("t", [ReassignablePartition(0, [state.leader])])
    return {
        "AlterPartition": (alter, 3, cluster_denied),
        "ControlledShutdown": (ControlledShutdownRequest(state.leader, registered.czxid), 3, cluster_denied),
        "AllocateProducerIds": (
            AllocateProducerIdsRequest(state.leader, registered.czxid),
            0,
            cluster_denied,
        ),
        "CreateTopics": (CreateTopicsRequest([CreatableTopic("stolen", 1, 1)]), 7, topic_denied),
        "DeleteTopics": (DeleteTopicsRequest([DeleteTopicState("t")], [], 5000), 6, topic_denied),
        "AlterPartitionReassignments": (AlterPartitionReassignmentsRequest(5000, [move]), 0, cluster_denied),
        "IncrementalAlterConfigs": (
            IncrementalAlterConfigsRequest(
                [AlterConfigsResource(2, "t", [AlterableConfig("retention.ms", 0, "1")])]
            ),
            1,
            topic_denied,
        ),
        "CreateAcls": (
            CreateAclsRequest([AclCreation(2, "t", 3, "User:stranger", "*", 3, 3)]),
            3,
            cluster_denied,
        ),
    }


def code_of(response: Any) -> int:
    """Its error, or that of its only entry."""
    if hasattr(response, "error_code"):
        return int(response.error_code)
    names = ("topics", "responses", "results")
    entries = next(getattr(response, name) for name in names if hasattr(response, name))
    return int(entries[0].error_code)


async def denied(cluster: KafkaCluster, security: Security, user: str) -> None:
    """Who logs in but is allowed nothing gets Kafka's code for everything that he asks for."""
    connection = Connection("stranger", client_security(security.settings(user)), 20)
    await connection.open("127.0.0.1", kafka_port(active(cluster)))
    try:
        for name, (request, version, expected) in changes_asked(cluster).items():
            assert code_of(await connection.request(request, version)) == expected, name
    finally:
        await connection.close()


async def refused(cluster: KafkaCluster, security: Any, why: str) -> None:
    """Who cannot prove who he is gets no answer to any request."""
    for request, version, _ in changes_asked(cluster).values():
        connection = Connection("nobody", security, 20)

        async def ask() -> None:
            await connection.open("127.0.0.1", kafka_port(active(cluster)))  # noqa: B023
            await connection.request(request, version)  # noqa: B023

        with pytest.raises(ConnectionFailedError, match=why):
            await ask()
        await connection.close()


async def strangers(cluster: KafkaCluster, security: Security) -> None:
    """Nothing changes, whoever asks, and our log tells of each."""
    before, log = snapshot(cluster.zk), active(cluster).log
    await denied(cluster, security, "stranger")
    said = log.read_text()
    assert said.count('"event": "denied"') >= 8, said[-3000:]
    assert security.principal("stranger") in said
    wrong = client_security(security.settings("alice", "wrong"))
    await refused(cluster, wrong, "refused us with error 58")
    assert "authentication_failed" in log.read_text()
    # Over TLS, but without a login.
    nobody = client_security(security.settings("alice"))
    silent = type(nobody)(nobody.protocol, nobody.contexts, None)
    await refused(cluster, silent, "closed the connection")
    assert "before authentication" in log.read_text()
    await refused(cluster, ClientSecurity(), "closed the connection|reset|bytes")
    assert "TLS" in log.read_text()
    after = snapshot(cluster.zk)
    assert {path: data for path, data in after.items() if before.get(path) != data} == {}


@pytest.mark.long
def test_strangers_get_nothing_on_a_cluster_with_tls_scram_acls_and_owned_znodes(
    make_secured: Secured, tmp_path: Path
) -> None:
    security = Security(tmp_path / "security", zookeeper_acl=True)
    cluster = make_secured(security)
    prepared(cluster, security)
    with Load(cluster, "t", writers=2, readers=1, settings=security.client("loader")) as load:
        load.run_for(0.5)
        take_over(cluster, 1)
        asyncio.run(strangers(cluster, security))
        stopped(cluster)
        outcome = load.finish()
    assert outcome.ok, outcome
    owners = {acl.id.id for acl in cluster.zk.get_acls("/brokers/topics/t/partitions/0/state")[0]}
    assert owners == {"kafka", "anyone"}


def tools_of(cluster: KafkaCluster, security: Security, user: str, password: str | None = None) -> KafkaTools:
    client = security.tools_client(user, password)
    return KafkaTools(cluster.bootstrap, cluster.directory / f"tools-{user}", client)


def ran(tools: KafkaTools, tool: Tool, *arguments: str) -> str:
    done = tools.run(tool, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def created(cluster: KafkaCluster, security: Security) -> AsyncGenerator[int, None]:
    """The code that our controller answers alice, again and again, who would create the topic mine."""
    connection = Connection("alice", client_security(security.settings("alice")), 20)
    await connection.open("127.0.0.1", kafka_port(active(cluster)))
    wanted = CreateTopicsRequest([CreatableTopic("mine", 1, 1)], 5000, True)
    try:
        while True:
            yield code_of(await connection.request(wanted, 7))
            await asyncio.sleep(0.02)
    finally:
        await connection.close()


async def allowed_after(cluster: KafkaCluster, security: Security, change: Callable[[], object]) -> float:
    """How long after an ACL was written it counts for us, seconds."""
    changing = asyncio.create_task(asyncio.to_thread(change))
    async with aclosing(created(cluster, security)) as codes:
        assert await anext(codes) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async for code in codes:
            if code == 0:
                break
        allowed = time.time()
    await changing
    return allowed - float(cluster.zk.exists("/kafka-acl/Topic/mine").mtime) / 1000


async def answered(cluster: KafkaCluster, security: Security, user: str, password: str) -> None:
    """Whether broker 1 and our controller let a user in. Raises ConnectionFailedError."""
    for port in (cluster.brokers[1].listeners[security.protocol], kafka_port(active(cluster))):
        connection = Connection(user, client_security(security.settings(user, password)), 20)
        await connection.open("127.0.0.1", port)
        await connection.close()


def our_logins(cluster: KafkaCluster, security: Security, tmp_path: Path) -> None:
    """What a broker refuses us, said with its address; and a credential that Kafka's tool stored is as ours."""
    address = ("127.0.0.1", cluster.brokers[1].listeners[security.protocol])
    foreign = Authority(tmp_path / "foreign", "another authority").cafile
    wrong = {
        "PLAIN": (
            security.settings("alice", mechanism="PLAIN"),
            "does not offer PLAIN; it offers SCRAM-SHA-512",
        ),
        "password": (security.settings("alice", "wrong"), "refused us with error 58"),
        "authority": (security.settings("alice", cafile=foreign), "certificate verify failed"),
    }
    for settings, why in wrong.values():
        with pytest.raises(ConnectionFailedError, match=f"{address[0]}:{address[1]}: .*{why}"):
            asyncio.run(Connection("us", client_security(settings), 20).open(*address))
    value = "SCRAM-SHA-256=[password=x],SCRAM-SHA-512=[iterations=8192,password=of its own]"
    ran(
        cluster.tools,
        Tool.CONFIGS,
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "by tool",
        "--add-config",
        value,
    )
    text = cluster.json("/config/users/by%20tool")["config"]["SCRAM-SHA-512"]
    found = parse_credential(ScramMechanism.SHA_512, text)
    assert make_credential(ScramMechanism.SHA_512, "of its own", 8192, found.salt) == found


def grpc_allowed(cluster: KafkaCluster) -> None:
    """An ACL for callers without a name lets pctl in, from here."""
    change = (
        "--allow-principal",
        "User:ANONYMOUS",
        "--allow-host",
        "127.0.0.1",
        "--operation",
        "Alter",
        "--cluster",
    )
    ran(cluster.tools, Tool.ACLS, "--add", *change)
    asked = ["maintenance", "pause", "--reason=test", "--yes"]

    def done() -> bool:
        return CliRunner(env={"PCTL_ZOOKEEPER": cluster.zookeeper}).invoke(pctl, asked).exit_code == 0

    cluster.until("pctl to be allowed", done, 10)
    result = CliRunner(env={"PCTL_ZOOKEEPER": cluster.zookeeper}).invoke(
        pctl, ["maintenance", "resume", "--reason=test", "--yes"]
    )
    assert result.exit_code == 0, result.output


def by_tools(cluster: KafkaCluster, security: Security) -> None:
    """Kafka's tools on a cluster that we lead: ACLs count here within a second, passwords at brokers and here."""
    alice = tools_of(cluster, security, "alice")
    asked = ("--create", "--topic", "mine", "--partitions", "2", "--replication-factor", "2")
    done = alice.run(Tool.TOPICS, *asked)
    assert done.returncode
    assert "TopicAuthorizationException" in done.stdout + done.stderr
    change = ("--allow-principal", "User:alice", "--operation", "Create", "--topic", "mine")
    after_s = asyncio.run(
        allowed_after(cluster, security, lambda: ran(cluster.tools, Tool.ACLS, "--add", *change))
    )
    assert after_s < 1, f"the ACL counted {after_s:.1f} s after it was written"
    ran(alice, Tool.TOPICS, *asked)
    cluster.until("topic mine", lambda: cluster.in_sync("mine"))
    new = "another, better = secrét"
    value = f"SCRAM-SHA-512=[iterations=8192,password={new.replace(',', '')}]"
    user = ("--entity-type", "users", "--entity-name", "alice")
    ran(cluster.tools, Tool.CONFIGS, "--alter", *user, "--add-config", value)
    stored = cluster.json("/config/users/alice")["config"]["SCRAM-SHA-512"]
    assert stored.endswith(",iterations=8192")
    new = new.replace(",", "")
    cluster.until("the new password at a broker", lambda: lets_in(cluster, security, new), 10)
    with pytest.raises(ConnectionFailedError, match="refused us"):
        asyncio.run(answered(cluster, security, "alice", password_of("alice")))
    ran(cluster.tools, Tool.CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    assert cluster.json("/config/users/alice")["config"] == {}
    late = replace(
        tools_of(cluster, security, "alice", "wrong"), bootstrap=f"127.0.0.1:{kafka_port(active(cluster))}"
    )
    done = late.run(Tool.TOPICS, "--list")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in done.stdout + done.stderr
    with pytest.raises(ConnectionFailedError, match="refused us"):
        asyncio.run(answered(cluster, security, "alice", new))


def by_librdkafka(cluster: KafkaCluster, security: Security) -> None:
    """Its client asks the controller alone, and sends a byte too many."""
    admin = cluster.admin_that_knows_the_controller()
    info = ScramCredentialInfo(LibrdkafkaMechanism.SCRAM_SHA_512, 5000)
    altered = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("alice", info, b"by librdkafka")]
    )
    altered["alice"].result(30)
    cluster.until("the new password at a broker", lambda: lets_in(cluster, security, "by librdkafka"), 10)
    # What ours forwards, brokers judge once more: by the rights of our controller's user.
    before = len(admin.describe_acls(every_acl()).result(30))
    own = (ResourceType.TOPIC, "of-carol", AclOperation.READ)
    allow(cluster, security.principal("carol"), own, pattern=ResourcePatternType.LITERAL)
    cluster.until("the new ACL", lambda: len(admin.describe_acls(every_acl()).result(30)) == before + 1)
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        next(iter(admin.describe_configs([ConfigResource("topic", "t")]).values())).result(30)
    assert '"event": "forwarding_denied"' in active(cluster).log.read_text()


def lets_in(cluster: KafkaCluster, security: Security, password: str) -> bool:
    try:
        asyncio.run(answered(cluster, security, "alice", password))
    except ConnectionFailedError:
        return False
    return True


def environment_of(settings: Mapping[str, object], prefix: str = "PARTITION_CONTROLLER_") -> dict[str, str]:
    return {f"{prefix}{name.upper()}": str(value) for name, value in settings.items()}


def by_ours(cluster: KafkaCluster, security: Security) -> None:
    """check-cluster and pctl, with the brokers' identity in ZooKeeper."""
    settings = environment_of(security.controller_settings())
    asked = ["check-cluster", f"--zookeeper={cluster.zookeeper}", "-o", "json", "--controller-id=9009"]
    result = CliRunner(env=settings).invoke(controller_main, asked)
    found = json.loads(result.stdout)
    assert (result.exit_code, found["can_be_led"]) == (0, True), result.stdout
    assert {b["inter_broker_protocol_version"] for b in found["brokers"]} == {"3.9-IV0"}
    checks = {(f["check"], f["level"]) for f in found["findings"]}
    assert ("authorizer", "note") in checks
    assert ("zookeeper.set.acl", "warning") in checks
    # Without the authorizer everybody could change everything.
    open_ = {**settings, "PARTITION_CONTROLLER_KAFKA_AUTHORIZER": "none"}
    result = CliRunner(env=open_).invoke(controller_main, asked)
    assert result.exit_code == 3
    login = {
        "PCTL_ZOOKEEPER": cluster.zookeeper,
        "PCTL_ZOOKEEPER_SASL_USERNAME": "kafka",
        "PCTL_ZOOKEEPER_SASL_PASSWORD_FILE": str(
            security.zookeeper_settings()["zookeeper_sasl_password_file"]
        ),
    }
    result = CliRunner(env=login).invoke(pctl, ["-o", "json", "brokers"])
    assert [row["broker"] for row in json.loads(result.stdout)] == [1, 2]
    # Who calls over gRPC has no name, and no ACL names him.
    result = CliRunner(env=login).invoke(
        pctl, ["topics", "create", "theirs", "--partitions=1", "--replication-factor=1"]
    )
    assert result.exit_code == 1, result.output
    assert "User:ANONYMOUS may not CREATE" in result.output
    assert "neither certificate nor token" in result.output


@pytest.mark.kafka_long
def test_everything_on_a_secured_cluster(make_secured: Secured, tmp_path: Path) -> None:
    security = Security(tmp_path / "security", zookeeper_acl=True)
    cluster = make_secured(security)
    prepared(cluster, security)
    our_logins(cluster, security, tmp_path)
    elected = len(cluster.elections_by_brokers())
    with Load(cluster, "t", writers=2, readers=1, settings=security.client("loader")) as load:
        load.run_for(0.5)
        take_over(cluster, 2)
        by_ours(cluster, security)
        by_tools(cluster, security)
        by_librdkafka(cluster, security)
        grpc_allowed(cluster)
        epoch, leading = cluster.controller_epoch(), cluster.controller_id()
        cluster.controllers[leading].kill()
        cluster.until("the standby", lambda: cluster.controller_id() not in (-1, leading))
        assert cluster.controller_epoch() == epoch + 1
        cluster.controllers[leading].start()
        load.run_for(1)
        asyncio.run(strangers(cluster, security))
        killed(cluster)
        stopped(cluster)
        outcome = load.finish()
    assert outcome.ok, outcome
    assert len(cluster.elections_by_brokers()) == elected


def killed(cluster: KafkaCluster) -> None:
    """A leader dies, and comes back."""
    victim = leader_of(cluster, "t")
    cluster.brokers[victim].kill()
    cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
    cluster.restart(victim)
    # By AlterPartition, which the leaders ask of us.
    cluster.until("full ISRs", lambda: cluster.in_sync("t"))


def stopped(cluster: KafkaCluster) -> None:
    """A leader is stopped in order, and comes back."""
    victim = leader_of(cluster, "t")
    assert cluster.brokers[victim].stop()
    said = cluster.brokers[victim].server_log.read_text()
    assert "Controlled shutdown request returned successfully" in said
    cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
    cluster.restart(victim)
    cluster.until("full ISRs", lambda: cluster.in_sync("t"))


#: Who the users are on each cluster: by certificate principals are subjects, or what rules make of them.
WAYS = {
    "mutual TLS": ("SSL", "", ""),
    "mutual TLS with rules": ("SSL", "", "RULE:^CN=(.*?),OU=ops$/$1/L,DEFAULT"),
    "PLAIN": ("SASL_PLAINTEXT", "PLAIN", ""),
}


@pytest.mark.kafka_long
@pytest.mark.parametrize("way", WAYS)
def test_other_ways_to_authenticate(way: str, make_secured: Secured, tmp_path: Path) -> None:
    protocol, mechanism, rules = WAYS[way]
    security = Security(tmp_path / "security", protocol=protocol, mechanism=mechanism, rules=rules)
    cluster = make_secured(security)
    prepared(cluster, security)
    with Load(cluster, "t", writers=2, readers=1, settings=security.client("loader")) as load:
        load.run_for(0.5)
        take_over(cluster, 1)
        asyncio.run(denied(cluster, security, "stranger"))
        assert f"{security.principal('stranger')}" in active(cluster).log.read_text()
        if security.sasl:
            wrong = client_security(security.settings("alice", "wrong"))
            asyncio.run(refused(cluster, wrong, "refused us with error 58"))
        else:
            contexts = client_security(security.settings("stranger", certified=False))
            asyncio.run(refused(cluster, contexts, "certificate required|closed the connection|reset"))
        stopped(cluster)
        outcome = load.finish()
    assert outcome.ok, outcome
