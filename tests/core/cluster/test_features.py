"""Features: what is finalized, who is left out by it, and who may change it (KIP-584; reference, 3.1 and 8.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.cluster.features import missing, supported_by_all
from controller.core.effects import FeatureAnswer, PutFeature
from controller.core.explain.brokers import explain_broker
from controller.core.handlers import not_controller
from controller.core.model import FeatureRange
from controller.core.records import FeatureChange
from controller.core.requests.errors import ErrorCode
from controller.core.requests.features import (
    DescribeFeatures,
    DescribeFeaturesReply,
    FeatureUpdate,
    UpdateFeatures,
    UpdateFeaturesReply,
    UpgradeType,
)
from tests.core.test_failover import led
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import BROKER_CHANGE, World, a_broker

UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def ranges(**features: tuple[int, int]) -> tuple[FeatureRange, ...]:
    return tuple(FeatureRange(name, low, high) for name, (low, high) in sorted(features.items()))


def finalized(version: int = 0, **levels: int) -> FeatureAnswer:
    return FeatureAnswer(True, version, ranges(**{name: (level, level) for name, level in levels.items()}))


def supporting(world: World, broker_id: int, **features: tuple[int, int]) -> None:
    """It is registered with these (again, in the same incarnation, if it was)."""
    broker = world.brokers[broker_id]
    world.brokers[broker_id] = msgspec.structs.replace(broker, features=ranges(**features))


def a_world(**features: tuple[int, int]) -> World:
    """Brokers 1 and 2 that support the same; nothing finalized."""
    world = World(1, 2)
    for broker_id in world.brokers:
        supporting(world, broker_id, **features)
    return world


def remove_feature(world: World) -> None:
    world.feature = None


def update(
    rig: MachineHarness, *updates: tuple[str, int, UpgradeType | None], validate_only: bool = False
) -> list[str]:
    """The error of each."""
    (reply,) = rig.ask(UpdateFeatures([FeatureUpdate(*u) for u in updates], validate_only))
    assert reply.error is ErrorCode.NONE
    assert [r.name for r in reply.results] == [name for name, _, _ in updates]
    assert all(bool(r.message) == (r.error is not ErrorCode.NONE) for r in reply.results)
    return [r.error.name for r in reply.results]


def messages(rig: MachineHarness, *updates: tuple[str, int, UpgradeType | None]) -> list[str]:
    (reply,) = rig.ask(UpdateFeatures([FeatureUpdate(*u) for u in updates]))
    return [r.message for r in reply.results]


# --- failover --------------------------------------------------------------------------------------------------


def test_an_absent_znode_is_created_with_what_every_broker_supports_at_its_highest() -> None:
    world = a_world(f=(1, 3), g=(2, 4))
    supporting(world, 2, f=(1, 2), g=(5, 6), h=(1, 1))
    remove_feature(world)
    rig = MachineHarness.active(world)
    assert world.feature == finalized(f=2)
    assert rig.cluster.features == {"f": 2}
    assert sorted(rig.cluster.brokers) == [1, 2]


def test_a_disabled_one_is_enabled_with_nothing() -> None:
    world = a_world(f=(1, 3))
    world.feature = FeatureAnswer(False, 4, ranges(f=(2, 2)))
    rig = MachineHarness.active(world)
    assert world.feature == FeatureAnswer(True, 5)
    assert rig.cluster.features == {}
    assert rig.recorded(FeatureChange) == [FeatureChange("f", 2, 0)]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LANDED])
def test_a_creation_without_an_answer_is_read_back(fate: Fate) -> None:
    world = a_world(f=(1, 3))
    remove_feature(world)
    rig = MachineHarness(world)
    fates = iter([fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.failover()
    assert world.feature == finalized(f=3)
    assert rig.cluster.features == {"f": 3}
    puts = [w for c in rig.commits() for w in c.writes if isinstance(w, PutFeature)]
    assert len(puts) == (1 if fate is Fate.LANDED else 2)


def test_a_creation_that_never_lands_does_not_stop_the_failover() -> None:
    world = a_world(f=(1, 3))
    remove_feature(world)
    rig = MachineHarness(world)
    rig.fate = lambda c: Fate.LOST if isinstance(c.writes[0], PutFeature) else Fate.ANSWERED
    rig.failover()
    assert rig.cluster.features == {}
    assert "CONFLICT" in rig.rejects()


# --- who is left out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [{}, {"f": (1, 2)}, {"f": (4, 5)}])
def test_a_broker_that_lacks_a_finalized_level_is_ignored_at_failover(features: Any) -> None:
    world = a_world(f=(1, 3))
    led(world, "t", {0: [2, 1]})
    supporting(world, 2, **features)
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    assert list(rig.cluster.brokers) == [1]
    assert rig.stored()[0] == 1
    problem = rig.cluster.problems["/brokers/ids/2"]
    assert problem.startswith("the broker is ignored: it does not support feature f at level 3 (it ")
    assert "INCOMPATIBLE_FEATURES" in rig.rejects()
    assert problem in explain_broker(rig.cluster, 2).summary


def test_a_new_broker_is_ignored_until_it_supports_what_is_finalized() -> None:
    world = a_world(f=(1, 3))
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    world.broker_up(3)
    rig.run()
    assert 3 not in rig.cluster.brokers
    assert "/brokers/ids/3" in rig.cluster.problems
    world.broker_down(3)
    rig.run()
    assert rig.cluster.problems == {}
    world.broker_up(3)
    supporting(world, 3, f=(3, 3))
    rig.run()
    assert 3 in rig.cluster.brokers
    assert rig.cluster.problems == {}


def test_a_broker_that_comes_back_without_the_feature_is_dead() -> None:
    world = a_world(f=(1, 3))
    led(world, "t", {0: [2, 1]})
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    assert rig.stored()[0] == 2
    world.bounce(2)
    rig.run()
    assert list(rig.cluster.brokers) == [1]
    assert rig.stored()[0] == 1


def test_one_that_stops_supporting_it_in_place_goes_on_and_is_shown() -> None:
    world = a_world(f=(1, 3))
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    supporting(world, 2, f=(1, 2))
    world.damage("/brokers/ids/1")
    world.events.append(BROKER_CHANGE)
    rig.run()
    assert rig.cluster.problems["/brokers/ids/1"] == "field x: expected int"
    assert rig.cluster.brokers[2].features == ranges(f=(1, 2))
    assert "will be ignored once it registers again" in rig.cluster.problems["/brokers/ids/2"]


def test_a_lower_level_lets_the_ignored_in_at_once() -> None:
    world = a_world(f=(1, 3))
    supporting(world, 2, f=(1, 2))
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    assert list(rig.cluster.brokers) == [1]
    assert update(rig, ("f", 2, SAFE)) == ["NONE"]
    assert sorted(rig.cluster.brokers) == [1, 2]
    assert rig.cluster.problems == {}


# --- UpdateFeatures --------------------------------------------------------------------------------------------

#: With f finalized at 2 and supported from 1 to 3 by both brokers, g supported and not finalized, h by one only.
JUDGED: list[tuple[tuple[str, int, UpgradeType | None], str]] = [
    (("", 3, None), "name is empty"),
    (("f", 3, None), "upgrade_type"),
    (("nope", 0, SAFE), "nothing to take away"),
    (("g", 0, UNSAFE), "nothing to take away"),
    (("f", 0, UPGRADE), "must be at least 1"),
    (("f", -7, UPGRADE), "must be at least 1"),
    (("f", 2, UPGRADE), "at level 2 already"),
    (("f", 2, SAFE), "at level 2 already"),
    (("f", 1, UPGRADE), "takes a downgrade"),
    (("f", 3, SAFE), "takes an upgrade"),
    (("f", 3, UNSAFE), "takes an upgrade"),
    (("f", 4, UPGRADE), "not supported by brokers 1, 2"),
    (("h", 1, UPGRADE), "not supported by brokers 2"),
    (("nope", 1, UPGRADE), "not supported by brokers 1, 2"),
    (("f", 2**31 - 1, UPGRADE), "not supported by brokers 1, 2"),
    (("f", 3, UPGRADE), ""),
    (("f", 1, SAFE), ""),
    (("f", 1, UNSAFE), ""),
    (("f", 0, SAFE), ""),
    (("f", -1, UNSAFE), ""),
    (("g", 2, UPGRADE), ""),
    (("g", 2, SAFE), ""),
]


@pytest.mark.parametrize(("asked", "says"), JUDGED, ids=str)
def test_each_update_is_judged_in_kafka_s_order(asked: Any, says: str) -> None:
    world = a_world(f=(1, 3), g=(2, 2))
    supporting(world, 1, f=(1, 3), g=(2, 2), h=(1, 1))
    world.feature = finalized(f=2)
    rig = MachineHarness.active(world)
    error = "INVALID_REQUEST" if says else "NONE"
    assert update(rig, asked, validate_only=True) == [error]
    assert world.feature == finalized(f=2)
    (message,) = messages(rig, asked)
    assert says in message
    assert (message == "") is (says == "")
    assert (world.feature == finalized(f=2)) is bool(says)


def test_the_valid_ones_are_written_at_once_and_the_others_told() -> None:
    world = a_world(f=(1, 3), g=(1, 2), h=(1, 1))
    world.feature = finalized(version=6, f=2, h=1)
    rig = MachineHarness.active(world)
    errors = update(
        rig, ("f", 3, UPGRADE), ("g", 9, UPGRADE), ("h", 0, SAFE), ("g", 0, SAFE), ("x", 1, UPGRADE)
    )
    assert errors == ["NONE", "INVALID_REQUEST", "NONE", "INVALID_REQUEST", "INVALID_REQUEST"]
    assert world.feature == finalized(version=7, f=3)
    assert [list(c.writes) for c in rig.commits()] == [[PutFeature(6, {"f": 3})]]
    assert rig.recorded(FeatureChange) == [FeatureChange("f", 2, 3), FeatureChange("h", 1, 0)]


def test_one_named_twice_is_not_carried_out() -> None:
    world = a_world(f=(1, 3))
    rig = MachineHarness.active(world)
    assert update(rig, ("f", 3, UPGRADE), ("f", 2, UPGRADE)) == ["INVALID_REQUEST"] * 2
    assert messages(rig, ("f", 3, UPGRADE), ("f", 0, UPGRADE)) == [
        "it is named more than once",
        "level 0: must be at least 1; a feature is taken away by a downgrade to 0",
    ]
    assert world.feature == finalized()


def test_what_a_broker_lacks_is_named_in_order() -> None:
    broker = msgspec.structs.replace(a_broker(1, 1), features=ranges(b=(1, 2)))
    assert missing(broker, {"b": 3, "a": 1, "c": 1}) == (
        "feature a at level 1 (it does not know it), feature b at level 3 (it supports 1 to 2), "
        "feature c at level 1 (it does not know it)"
    )


def test_without_brokers_nothing_is_supported() -> None:
    assert supported_by_all([]) == {}
    rig = MachineHarness.active(World())
    assert messages(rig, ("f", 1, UPGRADE)) == ["no broker is registered that supports it"]


def test_brokers_in_shutdown_count() -> None:
    world = a_world(f=(1, 3))
    supporting(world, 2, f=(1, 2))
    rig = MachineHarness.active(world)
    rig.cluster.shutting_down.add(2)
    assert update(rig, ("f", 3, UPGRADE)) == ["INVALID_REQUEST"]


def test_an_unsafe_downgrade_leaves_brokers_behind_and_says_so() -> None:
    world = a_world(f=(2, 3))
    supporting(world, 1, f=(1, 3))
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    assert update(rig, ("f", 1, SAFE)) == ["INVALID_REQUEST"]
    assert update(rig, ("f", 1, UNSAFE)) == ["NONE"]
    assert sorted(rig.cluster.brokers) == [1, 2]
    assert "will be ignored once it registers again" in rig.cluster.problems["/brokers/ids/2"]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LANDED])
def test_a_write_without_an_answer_is_read_back(fate: Fate) -> None:
    world = a_world(f=(1, 3))
    rig = MachineHarness.active(world)
    fates = iter([fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    assert update(rig, ("f", 3, UPGRADE)) == ["NONE"]
    assert world.feature == finalized(version=1, f=3)
    assert len(rig.commits()) == (1 if fate is Fate.LANDED else 2)


def test_another_writer_in_between_is_judged_anew() -> None:
    world = a_world(f=(1, 3), g=(1, 3))
    rig = MachineHarness.active(world)
    rivals = iter([finalized(version=1, f=3)])

    def fate(_: object) -> Fate:
        for rival in rivals:
            world.feature = rival
        return Fate.ANSWERED

    rig.fate = fate
    assert update(rig, ("f", 3, UPGRADE), ("g", 2, UPGRADE)) == ["INVALID_REQUEST", "NONE"]
    assert world.feature == finalized(version=2, f=3, g=2)


def test_a_write_that_never_lands_fails_what_was_valid() -> None:
    world = a_world(f=(1, 3))
    rig = MachineHarness.active(world)
    rig.fate = lambda _: Fate.LOST
    assert update(rig, ("f", 3, UPGRADE), ("f2", 3, UPGRADE)) == ["FEATURE_UPDATE_FAILED", "INVALID_REQUEST"]
    assert rig.cluster.features == {}


def test_what_somebody_switched_off_in_the_next_version_is_no_write_of_ours() -> None:
    world = a_world(f=(1, 3))
    rig = MachineHarness.active(world)

    def fate(_: object) -> Fate:
        world.feature = FeatureAnswer(False, 1, ranges(f=(3, 3)))
        return Fate.LOST

    rig.fate = fate
    assert update(rig, ("f", 3, UPGRADE)) == ["FEATURE_UPDATE_FAILED"]
    assert rig.cluster.features == {}
    # Nor if nothing was to be left of it.
    world.feature = finalized(f=3)
    rig = MachineHarness.active(world)
    rig.fate = fate
    assert update(rig, ("f", 0, UNSAFE)) != ["NONE"]


def test_an_unreadable_znode_is_not_written_over() -> None:
    world = a_world(f=(1, 3))
    rig = MachineHarness.active(world)
    world.unreadable["/feature"] = "not JSON"
    assert update(rig, ("f", 3, UPGRADE), ("", 3, UPGRADE)) == ["FEATURE_UPDATE_FAILED", "INVALID_REQUEST"]
    assert rig.commits() == []
    assert rig.cluster.problems == {"/feature": "not JSON"}
    world.unreadable["/feature"] = "no map"
    (reply,) = rig.ask(DescribeFeatures())
    assert (reply.error, reply.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, "/feature: no map")
    assert rig.cluster.problems == {"/feature": "no map"}
    del world.unreadable["/feature"]
    assert update(rig, ("f", 3, UPGRADE)) == ["NONE"]
    assert rig.cluster.problems == {}


def test_one_that_somebody_removed_is_created_again() -> None:
    world = a_world(f=(1, 3))
    rig = MachineHarness.active(world)
    remove_feature(world)
    (reply,) = rig.ask(DescribeFeatures())
    assert (reply.finalized, reply.epoch) == ((), -1)
    fates = iter([Fate.LANDED])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.forget()
    assert update(rig, ("f", 2, UPGRADE)) == ["NONE"]
    assert world.feature == finalized(f=2)
    assert len(rig.commits()) == 1, "though nobody said that it had landed"


# --- questions -------------------------------------------------------------------------------------------------


def test_what_is_finalized_and_supported_is_described() -> None:
    world = a_world(a=(1, 1), f=(1, 3), g=(1, 1))
    supporting(world, 2, a=(1, 1), f=(2, 5))
    world.feature = FeatureAnswer(True, 8, ranges(a=(1, 1), f=(1, 2))[::-1])
    (reply,) = MachineHarness.active(world).ask(DescribeFeatures())
    finalized_, supported = ranges(a=(1, 1), f=(1, 2)), ranges(a=(1, 1), f=(2, 3))
    assert reply == DescribeFeaturesReply(ErrorCode.NONE, "", finalized_, supported, 8)
    rig = MachineHarness.active(world)
    for enabled in (True, False):
        world.feature = FeatureAnswer(enabled, 0, ranges(f=(1, 2)))
        (reply,) = rig.ask(DescribeFeatures())
        assert (reply.finalized, reply.epoch) == (ranges(f=(1, 2)) if enabled else (), 0)


def test_who_waits_when_the_controller_goes_is_answered() -> None:
    assert not_controller(UpdateFeatures([])) == UpdateFeaturesReply(ErrorCode.NOT_CONTROLLER)
    assert not_controller(DescribeFeatures()) == DescribeFeaturesReply(ErrorCode.NOT_CONTROLLER)


some_ranges = st.dictionaries(
    st.sampled_from("fgh"), st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted), max_size=3
)


@given(st.lists(some_ranges, min_size=1, max_size=4), st.sampled_from("fgh"), st.integers(1, 5))
def test_supported_by_all_is_what_nobody_lacks(
    brokers: list[Mapping[str, tuple[int, int]]], name: str, level: int
) -> None:
    registered = [
        msgspec.structs.replace(a_broker(n, 1), features=ranges(**{k: (v[0], v[1]) for k, v in own.items()}))
        for n, own in enumerate(brokers)
    ]
    common = supported_by_all(registered).get(name)
    everybody = all(missing(broker, {name: level}) is None for broker in registered)
    assert everybody is (common is not None and common.min <= level <= common.max)
