"""Forgotten brokers: deletions go on without them, and what they still hold is deleted should they return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.backoff import RETRY_FIRST_US
from controller.core.events import Event, EventKind
from controller.core.model import Forgotten
from controller.core.records import Rejection
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import ForgetBroker
from controller.core.topics import forgotten
from controller.core.znode_paths import FORGOTTEN
from tests.support.core.deletions import active, check_gone
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World

FORGET = ForgetBroker(2, "burned", "ann", 7)


def ask(rig: MachineHarness, request: ForgetBroker) -> Any:
    (reply,) = rig.ask(request)
    return reply


def waiting() -> tuple[World, MachineHarness]:
    """Topic t is to be deleted, and broker 2, which has a replica of both partitions, is gone."""
    world, rig = active(1, 2, 3, t=[[1, 2], [2, 3]], other=[[2, 1]])
    world.broker_down(2)
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    assert "t" in world.topics
    return world, rig


def test_a_deletion_goes_on_without_it_and_it_cleans_up_when_it_returns() -> None:
    world, rig = waiting()
    assert ask(rig, FORGET).error is ErrorCode.NONE
    check_gone(world, rig, "t")
    held = world.nodes[FORGOTTEN].value
    assert held == {2: Forgotten("burned", "ann", 7, {"t": (0, 1)})}
    assert world.folders[2] >= {("t", 0), ("t", 1)}
    rig.forget()
    world.broker_up(2)
    rig.run()
    assert [line for line in rig.lines("SR") if line.startswith("2 ")] == [
        "2 SR t-0 epoch -2 delete",
        "2 SR t-1 epoch -2 delete",
    ]
    assert world.folders[2] == {("other", 0)}
    assert world.nodes[FORGOTTEN].value == {}
    rig.check_converged()


def test_deletions_that_wait_for_another_go_on_waiting() -> None:
    world, rig = active(1, 2, 3, 4, t=[[1, 2]], other=[[1, 4]])
    for broker_id in (2, 4):
        world.broker_down(broker_id)
    rig.run()
    for topic in ("t", "other"):
        world.mark_for_deletion(topic)
    rig.run()
    held = rig.cluster.deletions_ineligible["other"]
    assert ask(rig, FORGET).error is ErrorCode.NONE
    check_gone(world, rig, "t")
    assert rig.cluster.deletions_ineligible["other"] is held


def test_later_deletions_do_not_wait_for_it_either_and_the_next_controller_knows() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    rig = MachineHarness(world, epoch=2).failover()
    world.mark_for_deletion("other")
    rig.run()
    check_gone(world, rig, "other")
    assert world.nodes[FORGOTTEN].value[2].replicas == {"t": (0, 1), "other": (0,)}
    world.broker_up(2)
    rig = MachineHarness(world, epoch=3).failover()
    assert world.folders[2] == set()
    assert world.nodes[FORGOTTEN].value == {}


def test_a_partition_that_it_has_again_is_not_deleted() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    world.broker_up(2)
    rig.run()
    assert ("t", 0) in world.folders[2]
    assert ("t", 1) not in world.folders[2]
    assert world.nodes[FORGOTTEN].value == {}


def test_a_stray_of_a_topic_made_again_is_told_as_that() -> None:
    """Not as what is left of the former topic: with that it would be deleted under a topic that is there."""
    world, rig = waiting()
    ask(rig, FORGET)
    world.create_topic("t", {0: [1, 3]})
    world.edit_topic("t", stray={0: (2,)})
    world.broker_up(2)
    rig = MachineHarness(world, epoch=2).failover()
    told = [line for line in rig.lines("SR") if line.startswith("2 ") and line.endswith("delete")]
    assert sorted(told) == ["2 SR t-0 epoch 0 delete", "2 SR t-1 epoch -2 delete"]


def test_nothing_is_deleted_that_is_not_remembered_first() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    world.mark_for_deletion("other")
    rig.fate = lambda commit: Fate.LOST if any(FORGOTTEN in str(w) for w in commit.writes) else Fate.ANSWERED
    rig.run()
    assert "other" in world.topics
    assert "could not be stored" in str(rig.cluster.deletions_ineligible["other"].reason)


def test_marks_that_somebody_removed_are_written_again_with_what_the_brokers_hold() -> None:
    world, rig = active(1, 2, 3, 4, t=[[1, 2], [2, 3]], other=[[4, 1]])
    world.broker_down(2, 4)
    rig.run()
    for broker_id in (4, 2):
        ask(rig, ForgetBroker(broker_id, "burned", "ann", 7))
    world.mark_for_deletion("t")
    rig.run()
    del world.nodes[FORGOTTEN]
    world.mark_for_deletion("other")
    rig.run()
    check_gone(world, rig, "other")
    held = {b: mark.replicas for b, mark in world.nodes[FORGOTTEN].value.items()}
    assert held == {2: {"t": (0, 1)}, 4: {"other": (0,)}}


def test_a_broker_that_goes_again_before_it_has_answered_stays_forgotten() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    rig.hold_stops = True
    world.broker_up(2)
    rig.run()
    world.broker_down(2)
    rig.stops.clear()
    rig.hold_stops = False
    world.mark_for_deletion("other")
    rig.run()
    check_gone(world, rig, "other")
    assert world.nodes[FORGOTTEN].value[2].replicas == {"t": (0, 1), "other": (0,)}


@pytest.mark.parametrize("confirmed", [False, True])
def test_one_that_is_back_before_the_topic_is_deleted_deletes_its_replicas_with_it(confirmed: bool) -> None:
    world, rig = active(1, 2, 3, t=[[1, 2], [2, 3]], other=[[2, 1]])
    world.broker_down(2, 3)
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    ask(rig, FORGET)
    rig.stop_error = lambda broker, _: "" if confirmed or broker != 2 else "UNKNOWN_SERVER_ERROR"
    world.broker_up(2)
    rig.forget()
    rig.run()
    assert "t" in world.topics
    # What the others have deleted is not asked for again.
    assert {line.split()[0] for line in rig.lines("SR")} == {"2"}
    assert world.nodes[FORGOTTEN].value == {}
    world.broker_up(3)
    rig.run()
    if not confirmed:
        assert "t" in world.topics
        assert "replica 2 of t-0" in str(rig.cluster.deletions_ineligible["t"].reason)
        return
    check_gone(world, rig, "t")
    assert world.folders[2] == {("other", 0)}
    rig.check_converged()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ForgetBroker(1, "why", "ann", 7), ErrorCode.POLICY_VIOLATION),
        (ForgetBroker(9, "why", "ann", 7), ErrorCode.BROKER_NOT_AVAILABLE),
        (ForgetBroker(2, "", "ann", 7), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_live_or_unknown_broker_and_a_missing_reason_are_refused(
    request_: ForgetBroker, error: ErrorCode
) -> None:
    world, rig = waiting()
    assert ask(rig, request_).error is error
    assert FORGOTTEN not in world.nodes
    assert "t" in world.topics


def test_of_two_forgotten_brokers_each_is_remembered_with_its_own_replicas() -> None:
    world, rig = active(1, 2, 3, 4, t=[[1, 2], [2, 3]], other=[[4, 1]], both=[[2, 4, 1]])

    def held() -> dict[int, Any]:
        return {b: mark.replicas for b, mark in world.nodes[FORGOTTEN].value.items()}

    world.broker_down(2, 4)
    rig.run()
    for broker_id in (4, 2):
        assert ask(rig, ForgetBroker(broker_id, "burned", "ann", 7)).error is ErrorCode.NONE
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")
    assert held() == {2: {"t": (0, 1)}, 4: {}}
    world.mark_for_deletion("both")
    rig.run()
    assert held() == {2: {"t": (0, 1), "both": (0,)}, 4: {"both": (0,)}}


def test_what_is_remembered_stays_when_a_topic_of_the_name_is_deleted_again_or_the_broker_forgotten_again() -> (
    None
):
    world, rig = waiting()
    ask(rig, FORGET)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")
    assert world.nodes[FORGOTTEN].value[2].replicas == {"t": (0, 1)}
    assert ask(rig, ForgetBroker(2, "drowned", "bob", 8)).error is ErrorCode.NONE
    assert world.nodes[FORGOTTEN].value == {2: Forgotten("drowned", "bob", 8, {"t": (0, 1)})}


def test_a_controller_that_takes_over_waits_for_no_forgotten_broker() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    world.watches.clear()
    world.mark_for_deletion("other")
    world.events.clear()
    rig = MachineHarness(world, epoch=2).failover()
    check_gone(world, rig, "other")
    assert world.nodes[FORGOTTEN].value[2].replicas == {"t": (0, 1), "other": (0,)}


def test_it_is_remembered_until_it_has_deleted_all() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    rig.hold_stops = True
    world.broker_up(2)
    rig.run()
    former = [replace(report, broker_epoch=report.broker_epoch - 1) for report in rig.stops]
    now, rig.stops = rig.stops, former
    rig.answer_stops()
    world.events.append(Event(EventKind.DELETION_PROGRESS))
    rig.run()
    assert list(world.nodes[FORGOTTEN].value) == [2]
    rig.stops = now
    rig.answer_stops()
    rig.run()
    assert world.nodes[FORGOTTEN].value == {}


def test_one_that_is_back_and_holds_nothing_is_a_broker_like_others_at_once() -> None:
    world, rig = active(1, 2, other=[[2, 1]])
    world.broker_down(2)
    rig.run()
    assert ask(rig, FORGET).error is ErrorCode.NONE
    world.broker_up(2)
    rig.run()
    assert world.nodes[FORGOTTEN].value == {}


def test_it_is_told_of_what_one_that_is_back_cannot_delete() -> None:
    world, rig = waiting()
    ask(rig, FORGET)
    rig.forget()
    rig.stop_error = lambda _, key: "KAFKA_STORAGE_ERROR" if key == ("t", 1) else ""
    world.broker_up(2)
    rig.run()
    assert [(r.partition.topic.name, r.partition.number) for r in rig.recorded(Rejection) if r.partition] == [
        ("t", 1)
    ]
    assert world.nodes[FORGOTTEN].value[2].replicas == {"t": (0, 1)}


def test_that_it_is_back_is_recorded_later_where_somebody_else_writes_all_the_time() -> None:
    """Otherwise it would count as forgotten until the next controller."""
    world, rig = waiting()
    ask(rig, FORGET)
    rig.fate = lambda effect: Fate.LOST if FORGOTTEN in str(effect.writes) else Fate.ANSWERED
    world.broker_up(2)
    rig.run()
    assert 2 in world.nodes[FORGOTTEN].value
    assert not forgotten.record_due(rig.cluster, rig.now_us)
    rig.now_us += RETRY_FIRST_US
    assert forgotten.record_due(rig.cluster, rig.now_us)
    rig.fate = lambda _: Fate.ANSWERED
    world.events.append(Event(EventKind.TOPIC_DELETION_RETRY))
    rig.run()
    assert world.nodes[FORGOTTEN].value == {}
    assert not forgotten.record_due(rig.cluster, rig.now_us + RETRY_FIRST_US)
