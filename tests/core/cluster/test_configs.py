"""Configuration: what is noticed, what is asked for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.cluster.configs import KEPT_US, entity_problem, purge_due
from controller.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNCLEAN
from controller.core.effects import NotifyConfig, WriteNode
from controller.core.handlers import not_controller
from controller.core.records import UncleanElectionEnabled
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
)
from controller.core.requests.errors import ErrorCode
from controller.core.znode_paths import SETTINGS
from controller.core.znode_sizes import ZNODE_BYTES_MAX
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import CONFIG_CHANGED, World, state

TOPIC, BROKER = ConfigScope.TOPIC, ConfigScope.BROKER
T = ConfigResource(TOPIC, "t")
#: Of the harness's clock, with each stimulus.
STEP_US = 1000


def leaderless(*topics: str) -> MachineHarness:
    """Topics with replicas 1 (dead, the only one in sync) and 2 (alive, out of sync)."""
    world = World(2)
    for name in topics:
        world.create_topic(name, {0: [1, 2]})
        world.put_state(name, 0, state(-1, [1], 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def alter(
    rig: MachineHarness, resource: ConfigResource, validate_only: bool = False, **changes: str | None
) -> Any:
    """One resource; dots in keys are written as underscores."""
    listed = [ConfigChange(key.replace("_", "."), value) for key, value in changes.items()]
    (reply,) = rig.ask(AlterConfigs([ConfigAlteration(resource, listed)], validate_only))
    assert reply.error is ErrorCode.NONE
    return reply.resources[0]


def test_a_configuration_that_is_too_large_can_be_made_smaller() -> None:
    rig = MachineHarness.active(World(1))
    rig.world.create_topic("t", {0: [1]})
    rig.run()
    large = {"a": "x" * ZNODE_BYTES_MAX, "b": "x" * 9}
    rig.world.put_node("/config/topics/t", large)
    refused = alter(rig, T, c="y")
    assert (refused.error, "must take at most" in refused.message) == (ErrorCode.INVALID_CONFIG, True)
    assert alter(rig, T, b=None).error is ErrorCode.NONE
    assert rig.world.nodes["/config/topics/t"].value == {"a": large["a"]}


def test_a_secret_of_a_key_that_nobody_knows_is_not_shown() -> None:
    rig = MachineHarness.active(World(1))
    rig.world.create_topic("t", {0: [1]})
    rig.world.put_node("/config/topics/t", {"of.others.password": "x", "of.others": "y"})
    rig.run()
    (reply,) = rig.ask(DescribeConfigs([T]))
    shown = {entry.key: entry.value for entry in reply.resources[0].entries}
    assert shown == {"of.others.password": "[hidden]", "of.others": "y"}


# --- old notifications -------------------------------------------------------------------------------------


def test_old_notifications_are_removed_by_the_controller() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]})
    left_by_others = world.notify_config("topics/t")
    rig = MachineHarness.active(world)
    assert not purge_due(rig.cluster, rig.now_us)
    rig.now_us += KEPT_US // 2
    assert alter(rig, T, retention_ms="1").error is ErrorCode.NONE
    rig.run()
    (ours,) = [path for path in world.notifications if path != left_by_others]
    # The first one is old now.
    rig.now_us += KEPT_US // 2
    assert purge_due(rig.cluster, rig.now_us)
    world.events.append(CONFIG_CHANGED)
    rig.run()
    assert list(world.notifications) == [ours]
    assert list(rig.cluster.config_changes_seen) == [ours]
    assert not purge_due(rig.cluster, rig.now_us)


def test_a_notification_that_is_due_is_removed_at_that_moment() -> None:
    """Else the look that found it due would be for nothing."""
    rig = MachineHarness.active(World(1))
    rig.world.notify_config("topics/t")
    rig.run()
    (since_us,) = rig.cluster.config_changes_seen.values()
    rig.now_us = since_us + KEPT_US - STEP_US
    assert not purge_due(rig.cluster, rig.now_us)
    assert purge_due(rig.cluster, rig.now_us + STEP_US)
    rig.world.events.append(CONFIG_CHANGED)
    rig.run()
    assert list(rig.world.notifications) == []


def test_an_old_notification_is_acted_on_when_first_seen_and_only_then() -> None:
    """However long nobody looked."""
    rig = leaderless("t")
    rig.world.put_node("/config/topics/t", {UNCLEAN: "true"})
    rig.world.notify_config("topics/t")
    rig.now_us += 10 * KEPT_US
    rig.run()
    assert rig.stored("t") == (2, 6, [2])
    assert len(rig.world.notifications) == 1


def test_what_cannot_be_removed_is_tried_again_after_as_long() -> None:
    world = World(1)
    path = world.notify_config("topics/t")
    world.damage(path)
    rig = MachineHarness.active(world)
    rig.now_us += KEPT_US
    rig.fate = lambda _: Fate.LOST
    world.events.append(CONFIG_CHANGED)
    rig.run()
    assert list(world.notifications) == [path]
    assert not purge_due(rig.cluster, rig.now_us)
    rig.fate = lambda _: Fate.ANSWERED
    rig.now_us += KEPT_US
    assert purge_due(rig.cluster, rig.now_us)
    world.events.append(CONFIG_CHANGED)
    rig.run()
    assert world.notifications == []


# --- what is noticed ---------------------------------------------------------------------------------------


def test_a_topic_permits_an_unclean_leader() -> None:
    rig = leaderless("t", "u", "v")
    rig.world.put_node("/config/topics/t", {UNCLEAN: "true"})
    # Of three that are told of together the first permits nothing, and the second does not decode.
    rig.world.put_node("/config/topics/v", {UNCLEAN: "false"})
    rig.world.notify_config("topics/v")
    rig.world.put_node("/config/topics/u", {UNCLEAN: "true"})
    rig.world.damage("/config/topics/u")
    rig.world.notify_config("topics/u")
    rig.world.notify_config("topics/t")
    rig.run()
    assert rig.stored("t") == (2, 6, [2])
    assert rig.stored("u")[0] == -1
    assert [record.reason for record in rig.recorded(UncleanElectionEnabled)] == ["for topic t"]
    rig.check_converged()


def test_nobody_is_elected_for_a_topic_that_is_being_deleted() -> None:
    world = leaderless("t").world
    world.mark_for_deletion("t")
    rig = MachineHarness(world, epoch=2).failover()
    rig.forget()
    world.put_node("/config/topics/t", {UNCLEAN: "true"})
    world.notify_config("topics/t")
    rig.run()
    assert rig.commits() == []


@pytest.mark.parametrize("config", [{}, {UNCLEAN: "false"}, {"retention.ms": "1"}])
def test_of_a_topic_that_permits_nothing_nothing_is_said(config: dict[str, str]) -> None:
    rig = leaderless("t")
    rig.world.put_node("/config/topics/t", config)
    rig.world.notify_config("topics/t")
    rig.run()
    assert (rig.stored("t")[0], rig.recorded(UncleanElectionEnabled)) == (-1, [])


def test_a_default_that_was_mended_is_no_problem_any_more() -> None:
    rig = leaderless("t")
    # One that does not decode changes nothing.
    for value, problems, permits in (("true", 0, True), ("maybe", 1, True), ("false", 0, False)):
        rig.world.put_node("/config/brokers/<default>", {UNCLEAN: value})
        rig.world.notify_config("brokers/<default>")
        rig.run()
        assert (len(rig.cluster.problems), rig.cluster.unclean_default) == (problems, permits)


def test_the_default_of_all_brokers_permits_it() -> None:
    rig = leaderless("t", "u")
    rig.world.put_node("/config/topics/u", {UNCLEAN: "false"})
    rig.world.put_node("/config/brokers/<default>", {UNCLEAN: "true"})
    rig.world.notify_config("brokers/<default>")
    rig.run()
    assert rig.stored("t") == (2, 6, [2])
    assert rig.stored("u")[0] == -1
    # A topic that forbids it no more has the default.
    rig.world.put_node("/config/topics/u", {})
    rig.world.notify_config("topics/u")
    rig.run()
    assert rig.stored("u") == (2, 6, [2])
    # Said again it is no flip; taken back it holds for the next death.
    rig.forget()
    rig.world.notify_config("brokers/<default>")
    rig.run()
    assert (rig.commits(), rig.rejects()) == ([], [])
    rig.world.put_node("/config/brokers/<default>", {})
    rig.world.notify_config("brokers/<default>")
    rig.run()
    assert rig.cluster.unclean_default is None


def test_a_change_nobody_told_of_is_found_at_failover() -> None:
    """Another's tool wrote the configuration, and ended before it could tell."""
    rig = leaderless("t")
    rig.world.put_node("/config/brokers/<default>", {UNCLEAN: "true"})
    rig.run()
    assert rig.stored()[0] == -1
    assert MachineHarness(rig.world, epoch=2).failover().stored() == (2, 6, [2])


@pytest.mark.parametrize("entity", ["topics/other", "brokers/1", "clients/c", "users/u"])
def test_what_is_no_concern_of_ours_changes_nothing(entity: str) -> None:
    rig = leaderless("t")
    rig.world.notify_config(entity)
    rig.run()
    assert (rig.commits(), rig.rejects()) == ([], [])


def test_a_malformed_notification_is_named_and_hides_no_other() -> None:
    rig = leaderless("t")
    rig.world.put_node("/config/topics/t", {UNCLEAN: "true"})
    bad = rig.world.notify_config("?")
    rig.world.unreadable[bad] = "entity_path: must be TYPE/NAME"
    rig.world.notify_config("topics/t")
    rig.run()
    assert rig.cluster.problems[bad] == "entity_path: must be TYPE/NAME"
    assert rig.stored()[0] == 2
    # A name that sorts after every real one must not make the controller deaf.
    rig.world.watched["/config/changes/zzz"] = "topics/none"
    rig.world.create_topic("u", {0: [1, 2]})
    del rig.world.watched[bad]
    rig.world.notify_config("topics/none")
    rig.run()
    assert bad not in rig.cluster.problems


@pytest.mark.parametrize("value", ["maybe", ""])
def test_a_default_that_is_no_boolean_is_named_and_changes_nothing(value: str) -> None:
    rig = leaderless("t")
    rig.world.put_node("/config/brokers/<default>", {UNCLEAN: value})
    rig.world.notify_config("brokers/<default>")
    rig.run()
    assert "true or false" in rig.cluster.problems["/config/brokers/<default>"]
    assert rig.stored()[0] == -1


# --- what is asked for -------------------------------------------------------------------------------------


def test_keys_are_set_and_deleted_with_their_notification_in_one_batch() -> None:
    rig = leaderless("t")
    assert alter(rig, T, retention_ms="1000", cleanup_policy="compact").error is ErrorCode.NONE
    (commit,) = rig.commits()
    config = {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert list(commit.writes) == [WriteNode("/config/topics/t", config, None), NotifyConfig("topics/t")]
    alter(rig, T, retention_ms=None, min_insync_replicas="2")
    assert rig.world.nodes["/config/topics/t"].value == {
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
    }
    # What is so already is neither written nor told.
    rig.forget()
    alter(rig, T, retention_ms=None)
    assert rig.commits() == []


def test_permission_by_request_elects_at_once() -> None:
    rig = leaderless("t")
    assert alter(rig, T, unclean_leader_election_enable="true").error is ErrorCode.NONE
    assert rig.stored() == (2, 6, [2])


def test_validation_alone_writes_nothing() -> None:
    rig = leaderless("t")
    assert alter(rig, T, True, retention_ms="1").error is ErrorCode.NONE
    assert alter(rig, T, True, retention_ms="x").error is ErrorCode.INVALID_CONFIG
    assert rig.commits() == []


def test_every_problem_is_named_at_once_and_nothing_is_written() -> None:
    rig = leaderless("t")
    answer = alter(
        rig, T, retention_ms="-2", segment_bytes="13", cleanup_policy="compact", min_insync_replicas=""
    )
    assert answer.error is ErrorCode.INVALID_CONFIG
    for name in ("retention.ms = '-2'", "segment.bytes = '13'", "min.insync.replicas = ''"):
        assert name in answer.message
    assert rig.commits() == []
    assert "INVALID_CONFIG" in rig.rejects()


def test_unknown_keys_of_brokers_are_kept_also_where_only_known_ones_of_topics_may_be() -> None:
    rig = leaderless("t")
    change = ConfigAlteration(ConfigResource(BROKER, "2"), [ConfigChange("my.key", "1")])
    (reply,) = rig.ask(AlterConfigs([change], known_only=True))
    assert reply.resources[0].error is ErrorCode.NONE


def test_unknown_keys_are_kept_and_said_to_be_unknown() -> None:
    rig = leaderless("t")
    answer = alter(rig, T, my_key="anything", retention_ms="1")
    assert (answer.error, answer.unknown) == (ErrorCode.NONE, ("my.key",))
    assert rig.world.nodes["/config/topics/t"].value["my.key"] == "anything"


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (ConfigResource(TOPIC, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ConfigResource(TOPIC, ""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ConfigResource(TOPIC, "none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(BROKER, "x"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(BROKER, "-1"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(BROKER, "7"), ErrorCode.NONE),
        (ConfigResource(BROKER), ErrorCode.NONE),
    ],
)
def test_which_resources_there_are(resource: ConfigResource, error: ErrorCode) -> None:
    rig = leaderless("t")
    answer = alter(rig, resource, min_insync_replicas="1")
    assert answer.error is error
    (described,) = rig.ask(DescribeConfigs([resource]))
    assert described.resources[0].error is error
    assert (rig.commits() != []) is (error is ErrorCode.NONE)


def test_what_is_named_twice_is_refused() -> None:
    rig = leaderless("t")
    once = ConfigAlteration(T, [ConfigChange("retention.ms", "1")])
    (reply,) = rig.ask(AlterConfigs([once, once]))
    assert [r.error for r in reply.resources] == [ErrorCode.INVALID_REQUEST] * 2
    twice = ConfigAlteration(T, [ConfigChange("retention.ms", "1"), ConfigChange("retention.ms", None)])
    (reply,) = rig.ask(AlterConfigs([twice]))
    assert reply.resources[0].error is ErrorCode.INVALID_REQUEST
    assert rig.commits() == []


def test_one_bad_resource_hides_no_other() -> None:
    rig = leaderless("t", "u")
    changes = [ConfigChange("retention.ms", "5")]
    rig.world.put_node("/config/topics/t", {})
    rig.world.unreadable["/config/topics/t"] = "config: expected object"
    resources = [T, ConfigResource(TOPIC, "u")]
    (reply,) = rig.ask(AlterConfigs([ConfigAlteration(r, changes) for r in resources]))
    assert [r.error for r in reply.resources] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert "/config/topics/t: config" in reply.resources[0].message


@pytest.mark.parametrize("fate", [Fate.LANDED, Fate.LOST])
def test_a_lost_answer_is_settled_by_reading_back(fate: Fate) -> None:
    rig = leaderless("t")
    fates = iter([fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    assert alter(rig, T, retention_ms="1").error is ErrorCode.NONE
    assert rig.world.nodes["/config/topics/t"].value == {"retention.ms": "1"}
    assert len([p for p in rig.world.notifications if "/config/changes/" in p]) == 1


def test_what_is_described() -> None:
    rig = leaderless("t")
    rig.world.put_node("/config/brokers/<default>", {"num.io.threads": "8", "message.max.bytes": "9"})
    rig.world.put_node("/config/brokers/2", {"x": "y", "num.io.threads": "0"})
    (reply,) = rig.ask(DescribeConfigs([ConfigResource(BROKER, "2"), T]))
    broker, topic = reply.resources
    assert [(e.key, e.value, e.source, e.known) for e in broker.entries] == [
        ("num.io.threads", "0", "brokers/2", True),
        ("x", "y", "brokers/2", False),
        ("message.max.bytes", "9", "brokers/<default>", True),
    ]
    assert [bool(e.problem) for e in broker.entries] == [True, False, False]
    assert topic.entries == ()


def test_what_does_not_decode_is_described_as_that_and_permits_nothing() -> None:
    rig = leaderless("t")
    for path in ("/config/topics/t", "/config/brokers/<default>"):
        rig.world.put_node(path, {UNCLEAN: "true"})
        rig.world.unreadable[path] = "config: expected object"
    (reply,) = rig.ask(DescribeConfigs([T]))
    assert reply.resources[0].error is ErrorCode.INVALID_CONFIG
    rig.world.notify_config("brokers/<default>")
    rig.run()
    assert "/config/brokers/<default>" in rig.cluster.problems
    assert rig.stored("t")[0] == -1


def test_of_no_controller_the_default_is_described_with_what_is_wrong_with_it() -> None:
    rig = leaderless("t")
    rig.world.put_node(SETTINGS, {"<default>": {"leader_imbalance_per_broker_percentage": "101"}})
    (reply,) = rig.ask(DescribeConfigs([ConfigResource(ConfigScope.CONTROLLER, "")]))
    ((entry,),) = [described.entries for described in reply.resources]
    assert (entry.key, entry.value, entry.source) == (
        "leader_imbalance_per_broker_percentage", "101", "controllers/<default>",
    )  # fmt: skip
    assert "must be" in entry.problem


@pytest.mark.parametrize(
    ("entity", "problem"),
    [
        ("topics/t", None),
        ("brokers/7", None),
        ("brokers/<default>", None),
        ("users/ann", None),
        ("clients/app", None),
        ("ips/10.0.0.1", None),
        ("topics/a b", "a b"),
        ("brokers/ann", "must name a broker id or <default>"),
        ("topics/", "must be TYPE/NAME"),
        ("planets/7", "must be TYPE/NAME"),
    ],
)
def test_what_a_notification_may_be_about(entity: str, problem: str | None) -> None:
    """Of Kafka's ``ConfigType.all``, and kept as by its ``ZkNodeChangeNotificationListener``."""
    assert KEPT_US == 15 * 60 * 1_000_000
    found = entity_problem(entity)
    assert found is None if problem is None else found is not None and problem in found


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("retention.ms", ["-1", "0", " 5 ", str(2**63 - 1)], ["-2", "", "1.5", str(2**63), "१"]),
        ("min.cleanable.dirty.ratio", ["0", "0.5", "1", "1.0"], ["1.1", "-0.1", "x", "1e-1"]),
        ("cleanup.policy", ["delete", "compact", "compact, delete"], ["", "drop", "delete;compact"]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1", "0:1,1:2"], ["0", "a:b", "0:1,"]),
        ("message.timestamp.type", ["CreateTime"], ["createtime", ""]),
        (UNCLEAN, ["true", "FALSE"], ["1", "", "yes"]),
        ("segment.bytes", ["14", str(2**31 - 1)], ["13", str(2**31)]),
    ],
)
def test_values_of_known_keys(key: str, good: list[str], bad: list[str]) -> None:
    assert [TOPIC_KEYS[key](value) for value in good] == [None] * len(good)
    assert all(TOPIC_KEYS[key](value) for value in bad)


@pytest.mark.parametrize("keys", [TOPIC_KEYS, BROKER_KEYS])
def test_every_refusal_says_what_is_allowed(keys: Any) -> None:
    for key, check in keys.items():
        assert (check("\0nonsense") or "must be").startswith("must be"), key


def test_nobody_is_left_without_an_answer() -> None:
    assert not_controller(AlterConfigs([])).error is ErrorCode.NOT_CONTROLLER
    assert not_controller(DescribeConfigs([])).error is ErrorCode.NOT_CONTROLLER


def test_a_notification_is_acted_on_once() -> None:
    rig = leaderless("t")
    rig.world.notify_config("topics/t")
    rig.run()
    rig.world.put_node("/config/topics/t", {UNCLEAN: "true"})
    rig.forget()
    rig.world.events.append(CONFIG_CHANGED)
    rig.run()
    assert "ReadNodes" not in rig.reads()
    assert rig.stored("t")[0] == -1


def test_a_default_that_forbids_what_was_forbidden_elects_nobody() -> None:
    rig = leaderless("t")
    rig.world.put_node("/config/brokers/<default>", {UNCLEAN: "false"})
    rig.world.notify_config("brokers/<default>")
    rig.run()
    assert rig.recorded(UncleanElectionEnabled) == []
