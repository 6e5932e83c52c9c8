"""Each operation of librdkafka's admin client with our controller as its only bootstrap server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions, NewTopic

from proto.gen.kafka.find_coordinator_request import FindCoordinatorRequest
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import running
from tests.kafka.requests import ask, every_acl

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID
WAIT_S = 30.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: str) -> Iterator[KafkaCluster]:
    with running(
        tmp_path_factory.mktemp("kafka"),
        f"{zookeeper_server}/admin-client",
        versions=dict.fromkeys((1, 2), "3.9.1"),
        properties={
            "offsets.topic.replication.factor": "2",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
        controllers_wanted=1,
        controller_settings={"kafka_authorizer": "acl", "kafka_super_users": "User:ANONYMOUS"},
    ) as cluster:
        yield cluster


@pytest.fixture
def admin(kafka: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": str(kafka.controllers[OURS].settings["kafka_listen"])})


def only(futures: Any) -> Any:
    (future,) = futures.values()
    return future.result(WAIT_S)


def setting(kind: str, name: str, key: str, value: str) -> ConfigResource:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(kind, name, incremental_configs=[entry])


def test_topics_are_created_expanded_and_deleted(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("a", 2, 2)]))
    only(admin.create_partitions([NewPartitions("a", 3)]))
    assert len(only(admin.describe_topics(Topics(["a"]))).partitions) == 3
    assert {node.id for node in admin.describe_cluster().result(WAIT_S).nodes} == {1, 2, OURS}
    only(admin.delete_topics(["a"]))


def test_configurations_are_changed_and_checked(kafka: KafkaCluster, admin: AdminClient) -> None:
    kafka.create_topic("b", 1, 2)
    only(admin.incremental_alter_configs([setting("topic", "b", "retention.ms", "60000")]))
    assert kafka.json("/config/topics/b")["config"] == {"retention.ms": "60000"}
    kafka.until(
        "the new value at brokers",
        lambda: only(admin.describe_configs([ConfigResource("topic", "b")]))["retention.ms"].value == "60000",
    )
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        only(admin.incremental_alter_configs([setting("topic", "b", "retention.ms", "soon")]))
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        only(admin.describe_configs([ConfigResource("topic", "nope")]))
    only(admin.incremental_alter_configs([setting("broker", "1", "log.cleaner.threads", "1")]))
    assert only(admin.describe_configs([ConfigResource("broker", "1")]))["broker.id"].value == "1"
    assert only(admin.describe_configs([ConfigResource("broker", str(OURS))])) == {}
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        only(admin.alter_configs([ConfigResource("topic", "b", set_config={"retention.ms": "70000"})]))
    assert kafka.json("/config/topics/b")["config"] == {"retention.ms": "70000"}


def test_acls_and_users(kafka: KafkaCluster, admin: AdminClient) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        "b",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    every = every_acl()
    only(admin.create_acls([acl]))
    # Another broker may be asked.
    kafka.until("the ACL", lambda: admin.describe_acls(every).result(WAIT_S) == [acl])
    assert only(admin.delete_acls([every])) == [acl]
    password = UserScramCredentialUpsertion(
        "u", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"pw", b"salt"
    )
    only(admin.alter_user_scram_credentials([password]))
    assert only(admin.describe_user_scram_credentials(["u"])).user == "u"
    everybody: Any = admin.describe_user_scram_credentials()
    assert set(everybody.result(WAIT_S)) == {"u"}


def test_offsets_of_groups_are_changed_and_listed(kafka: KafkaCluster, admin: AdminClient) -> None:
    kafka.create_topic("c", 1, 2)
    # The first question creates __consumer_offsets, for which librdkafka's admin client waits 0.3 s only.
    address = str(kafka.controllers[OURS].settings["kafka_listen"])
    question: Any = FindCoordinatorRequest("g")
    kafka.until("a coordinator", lambda: not ask(address, question, 3).error_code)  # type: ignore[attr-defined]
    committed = ConsumerGroupTopicPartitions("g", [TopicPartition("c", 0, 0)])
    only(admin.alter_consumer_group_offsets([committed]))
    found = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]))
    assert [(p.topic, p.offset) for p in found.topic_partitions] == [("c", 0)]
    assert only(admin.describe_consumer_groups(["g"])).group_id == "g"
    assert "g" in {group.group_id for group in admin.list_consumer_groups().result(WAIT_S).valid}
    only(admin.delete_consumer_groups(["g"]))
