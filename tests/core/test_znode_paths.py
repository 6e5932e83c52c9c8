"""Paths are part of the contract: Kafka's by its ``ZkData`` (3.9), ours by docs/reference.md."""

from __future__ import annotations

import re

import pytest

from controller.core import znode_paths
from tests.support.paths import DOCS

#: By the name that we have for it.
KAFKAS = {
    "CONTROLLER": "/controller",
    "CONTROLLER_EPOCH": "/controller_epoch",
    "CLUSTER": "/cluster",
    "CLUSTER_ID": "/cluster/id",
    "BROKERS": "/brokers",
    "BROKER_IDS": "/brokers/ids",
    "TOPICS": "/brokers/topics",
    "FEATURE": "/feature",
    "PRODUCER_IDS": "/latest_producer_id_block",
    "CONFIG": "/config",
    "TOPIC_CONFIGS": "/config/topics",
    "BROKER_CONFIGS": "/config/brokers",
    "BROKER_DEFAULTS": "/config/brokers/<default>",
    "CONFIG_CHANGES": "/config/changes",
    "CONFIG_CHANGE": "/config/changes/config_change_",
    "DELETE_TOPICS": "/admin/delete_topics",
    "PREFERRED_ELECTION": "/admin/preferred_replica_election",
    "REASSIGN_PARTITIONS": "/admin/reassign_partitions",
    "ISR_NOTIFICATIONS": "/isr_change_notification",
    "LOG_DIR_NOTIFICATIONS": "/log_dir_event_notification",
    "DELEGATION_TOKENS": "/delegation_token/tokens",
    "TOKEN_CHANGES": "/delegation_token/token_changes",
    "TOKEN_CHANGE": "/delegation_token/token_changes/token_change_",
    "ACLS": "/kafka-acl",
    "PREFIXED_ACLS": "/kafka-acl-extended/prefixed",
    "CONSUMERS": "/consumers",
}
#: ``ZkData.SecureRootPaths``, and all of ours.
SECURED = """
/admin /brokers /cluster /config /controller /controller_epoch /controllers /delegation_token /feature
/isr_change_notification /kafka-acl /kafka-acl-changes /kafka-acl-extended /kafka-acl-extended-changes
/latest_producer_id_block /log_dir_event_notification /migration
"""
#: ``ZkData.PersistentZkPaths``, and the parent of our candidates.
PERSISTENT = """
/admin/delete_topics /brokers/ids /brokers/seqid /brokers/topics /config/brokers /config/changes /config/clients
/config/ips /config/topics /config/users /consumers /controllers/ids /isr_change_notification
/latest_producer_id_block /log_dir_event_notification
"""


@pytest.mark.parametrize(("name", "path"), KAFKAS.items())
def test_paths_are_kafkas(name: str, path: str) -> None:
    assert getattr(znode_paths, name) == path


def test_paths_of_several_are_kafkas() -> None:
    assert znode_paths.ACL_CHANGES == ("/kafka-acl-changes", "/kafka-acl-extended-changes")
    assert sorted(znode_paths.SECURED_ROOTS) == SECURED.split()
    assert sorted(znode_paths.PERSISTENT) == PERSISTENT.split()
    assert znode_paths.user_entity("a.B-9_z") == "users/a.B-9_z"
    assert znode_paths.user_entity("*~^ é") == "users/%2A%7E%5E%20%C3%A9"


def test_ours_are_documented() -> None:
    """By the first column of the table of znodes."""
    rows = re.findall(
        r"^\| (`/controllers/[^|]+)\|", (DOCS / "reference.md").read_text("utf-8"), re.MULTILINE
    )
    listed = [path for row in rows for path in re.findall(r"`(/controllers/\w+)", row)]
    ours = {name: path for name, path in vars(znode_paths).items() if str(path).startswith("/controllers/")}
    assert sorted(listed) == sorted(ours.values())
    assert ours["CONTROLLER_IDS"].endswith("/ids")
    for name in ours.keys() - {"CONTROLLER_IDS", "TERM_HISTORY"}:
        assert ours[name] == f"/controllers/{name.lower()}"


def test_paths_are_told_apart() -> None:
    """Whose name begins as another's is not below it; below a child is no child; a state has a number."""
    assert [znode_paths.is_below("/a", path) for path in ("/a/b", "/a/b/c", "/a", "/ab/c")] == [
        True,
        True,
        False,
        False,
    ]
    assert [znode_paths.child_of("/a", path) for path in ("/a/b", "/a/b/c", "/a", "/ab/c")] == [
        "b",
        None,
        None,
        None,
    ]
    topics = "/brokers/topics"
    below = [f"{topics}/t", f"{topics}/t/partitions/3", topics, "/brokers/topicsx/t"]
    assert [znode_paths.topic_of(path) for path in below] == ["t", "t", None, None]
    states = {
        f"{topics}/t/partitions/3/state": ("t", 3),
        f"{topics}/t/partitions/x/state": None,
        f"{topics}/t/partitions/3": None,
        f"{topics}/t/partitions/3/other": None,
        "/other/t/partitions/3/state": None,
    }
    assert {path: znode_paths.partition_of(path) for path in states} == states


def test_paths_of_one_topic() -> None:
    assert znode_paths.topic_path("t") == "/brokers/topics/t"
    assert znode_paths.partitions_path("t") == "/brokers/topics/t/partitions"
    assert znode_paths.partition_path("t", 3) == "/brokers/topics/t/partitions/3"
    assert znode_paths.state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert znode_paths.state_path("t", 3, "/kafka/brokers/topics") == (
        "/kafka/brokers/topics/t/partitions/3/state"
    )
    assert znode_paths.topic_config_path("t") == znode_paths.config_path("topics/t") == "/config/topics/t"
    assert znode_paths.deletion_path("t") == "/admin/delete_topics/t"
