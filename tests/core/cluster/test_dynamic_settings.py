"""Dynamic settings of controllers: precedence, refusals, what is edited by hand, and that they take effect at once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from controller.core.cluster.dynamic_settings import PATH, STATIC
from controller.core.config_keys import CONTROLLER_KEYS
from controller.core.context import CoreSettings
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
)
from controller.core.requests.errors import ErrorCode
from controller.runtime.config import Settings
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

MOVES = "reassignment_concurrent_moves_max"
PERCENTAGE = "leader_imbalance_per_broker_percentage"


def active() -> MachineHarness:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2], 1: [2, 1]})
    return MachineHarness.active(world, settings=CoreSettings(leader_imbalance_per_broker_percentage=5))


def alter(rig: MachineHarness, name: str, **changes: str | None) -> Any:
    resource = ConfigResource(ConfigScope.CONTROLLER, name)
    changed = [ConfigChange(key, value) for key, value in changes.items()]
    (reply,) = rig.ask(AlterConfigs([ConfigAlteration(resource, changed)]))
    (answer,) = reply.resources
    return answer


def described(rig: MachineHarness, name: str) -> dict[str, tuple[str, str]]:
    (reply,) = rig.ask(DescribeConfigs([ConfigResource(ConfigScope.CONTROLLER, name)]))
    (answer,) = reply.resources
    assert answer.error is ErrorCode.NONE
    return {e.key: (e.value, e.source) for e in answer.entries}


def test_its_own_id_holds_before_the_default_and_that_before_the_rest() -> None:
    rig = active()
    own = str(rig.cluster.controller_id)
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 5
    assert described(rig, own)[PERCENTAGE] == ("5", STATIC)
    alter(rig, "", **{PERCENTAGE: "20", MOVES: "3"})
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 20
    alter(rig, own, **{PERCENTAGE: "30"})
    alter(rig, "55", **{PERCENTAGE: "99"})
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 30
    assert described(rig, own)[PERCENTAGE] == ("30", f"controllers/{own}")
    assert described(rig, own)[MOVES] == ("3", "controllers/<default>")
    assert described(rig, "55") == {
        PERCENTAGE: ("99", "controllers/55"),
        MOVES: ("3", "controllers/<default>"),
    }
    rig = MachineHarness(rig.world, epoch=2, settings=CoreSettings()).failover()
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 30, "the next controller knows"
    alter(rig, own, **{PERCENTAGE: None})
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 20
    alter(rig, "", **{PERCENTAGE: None, MOVES: None})
    assert rig.machine.settings == CoreSettings()
    assert rig.world.nodes[PATH].value == {"55": {PERCENTAGE: "99"}}


@pytest.mark.parametrize(
    ("name", "key", "value", "error", "words"),
    [
        ("", MOVES, "-1", ErrorCode.INVALID_CONFIG, "must be a whole number from 0 to 1000000000"),
        ("", "auto_leader_rebalance_enable", "yes", ErrorCode.INVALID_CONFIG, "must be true or false"),
        ("", "zookeeper", "x", ErrorCode.INVALID_CONFIG, "'zookeeper' is not known for controllers"),
        ("", "reassignment_concurrent_moves", "1", ErrorCode.INVALID_CONFIG, f"similar: {MOVES}"),
        ("x", MOVES, "1", ErrorCode.INVALID_REQUEST, "must be a controller id, or empty for all controllers"),
    ],
)
def test_refusals_name_what_is_allowed(name: str, key: str, value: str, error: ErrorCode, words: str) -> None:
    rig = active()
    answer = alter(rig, name, **{key: value})
    assert answer.error is error
    assert words in answer.message
    assert PATH not in rig.world.nodes


def test_a_raised_limit_lets_waiting_reassignments_begin() -> None:
    from tests.support.core.reassignments import ask, ongoing

    rig = active()
    alter(rig, "", **{MOVES: "1"})
    ask(rig, {("t", 0): (3, 2), ("t", 1): (3, 1)})
    assert sorted(m.queued for m in ongoing(rig).values()) == [False, True]
    alter(rig, "", **{MOVES: "2"})
    assert [m.queued for m in ongoing(rig).values()] == [False, False]


def test_one_bad_value_edited_by_hand_hides_no_other() -> None:
    rig = active()
    rig.world.put_node(PATH, {"<default>": {MOVES: "lots", PERCENTAGE: "7", "spaceship": "1"}})
    rig.run()
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 7
    assert "lots" in rig.cluster.problems[PATH] or "spaceship" in rig.cluster.problems[PATH]
    rig.world.put_node(PATH, {})
    rig.run()
    assert PATH not in rig.cluster.problems


def test_unknown_keys_of_topics_are_refused_where_only_known_ones_may_be() -> None:
    rig = active()
    resource = ConfigResource(ConfigScope.TOPIC, "t")
    typo = [ConfigAlteration(resource, [ConfigChange("retention.msec", "1")])]
    (reply,) = rig.ask(AlterConfigs(typo, known_only=True))
    assert reply.resources[0].error is ErrorCode.INVALID_CONFIG
    assert "'retention.msec' is not known for topics; similar: retention.ms" in reply.resources[0].message
    (reply,) = rig.ask(AlterConfigs(typo))
    assert reply.resources[0].error is ErrorCode.NONE
    # What is there can be deleted.
    gone = [ConfigAlteration(resource, [ConfigChange("retention.msec", None)])]
    (reply,) = rig.ask(AlterConfigs(gone, known_only=True))
    assert reply.resources[0].error is ErrorCode.NONE


def test_ranges_are_those_of_the_file() -> None:
    """Of numbers: what one refuses the other does, too. The others are switches."""
    hints = get_type_hints(Settings, include_extras=True)
    names = {field.name for field in fields(CoreSettings)}
    for key, check in CONTROLLER_KEYS.items():
        assert key in names
        limits: Any = getattr(hints[key], "__metadata__", [None])[0]
        if limits.ge is None:
            assert type(getattr(CoreSettings(), key)) is bool, "and how is a text parsed and shown?"
            assert [check(word) is None for word in ("true", "false", "2")] == [True, True, False]
            continue
        low, high = limits.ge, limits.le
        assert [check(str(n)) is None for n in (low - 1, low, high, high + 1)] == [
            False,
            True,
            True,
            False,
        ], key


def test_what_was_edited_by_hand_and_may_not_be_is_named_and_not_in_force() -> None:
    rig = active()
    for wrong in ("-1", "1000000001"):
        rig.world.put_watched(PATH, {"<default>": {MOVES: wrong, PERCENTAGE: "7", "listeners": "1"}})
        rig.run()
        assert rig.cluster.dynamic == {PERCENTAGE: 7}
        assert list(rig.cluster.problems) == [PATH]


def test_settings_that_cannot_be_read_are_a_problem_and_change_nothing() -> None:
    rig = active()
    rig.world.put_node(PATH, {"<default>": {PERCENTAGE: "7"}})
    rig.run()
    rig.world.damage(PATH)
    rig.run()
    assert PATH in rig.cluster.problems
    assert rig.machine.settings.leader_imbalance_per_broker_percentage == 7
