"""Moves that wait and cannot begin when it is their turn, and those behind them."""

from __future__ import annotations

import pytest

from controller.core.backoff import RETRY_FIRST_US
from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetTopic
from controller.core.events import Event, EventKind
from controller.core.reassignment.phases import stalled_due
from controller.core.records import Rejection
from controller.core.requests.topics import DeleteTopics, TopicRef
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import active, ask, check_moved, join, ongoing, reasons

RETRY = Event(EventKind.TOPIC_DELETION_RETRY)
T = ("t", 0)


def losing(rig: MachineHarness, topic: str) -> None:
    """Writes of this topic's znode do not land."""

    def fate(commit: Commit) -> Fate:
        lost = any(isinstance(w, SetTopic) and w.info.name == topic for w in commit.writes)
        return Fate.LOST if lost else Fate.ANSWERED

    rig.fate = fate


def test_a_waiting_move_that_cannot_begin_waits_on_says_why_and_holds_up_no_other() -> None:
    """So its topic's znode says, which the next controller would follow."""
    one = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, settings=one, t=[[1]], u=[[1]], v=[[1]])
    ask(rig, {T: [2], ("u", 0): [2], ("v", 0): [2]})
    losing(rig, "u")
    rig.forget()
    join(rig, [1, 2])
    check_moved(rig, T, [2])
    (refused,) = rig.recorded(Rejection)
    assert refused.partition is rig.partition("u")
    assert refused.reason.startswith("its move is waiting and cannot begin")
    assert [ongoing(rig)[name].queued for name in ("u-0", "v-0")] == [True, False]
    assert "could not be written in 10 attempts" in reasons(rig, "u-0")[1]
    join(rig, [1, 2], "v")
    assert ongoing(rig)["u-0"].queued, "it is not tried with each move that ends"
    # Tried again in vain it is not said again; and then it begins.
    for healed in (False, True):
        assert not stalled_due(rig.cluster, rig.now_us)
        rig.now_us += RETRY_FIRST_US
        assert stalled_due(rig.cluster, rig.now_us) == [rig.partition("u")]
        if healed:
            rig.fate = lambda _commit: Fate.ANSWERED
        rig.world.events.append(RETRY)
        rig.run()
        assert ongoing(rig)["u-0"].queued is not healed
    assert len(rig.recorded(Rejection)) == 1
    assert not rig.cluster.reassignments.stalled
    join(rig, [1, 2], "u")
    check_moved(rig, ("u", 0), [2])


def test_those_behind_one_whose_topic_is_deleted_begin_with_it_dropped() -> None:
    one = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, settings=one, t=[[1]], u=[[1]], v=[[1]])
    ask(rig, {T: [2], ("u", 0): [2], ("v", 0): [2]})
    rig.hold_stops = True
    rig.ask(DeleteTopics([TopicRef("u")]))
    join(rig, [1, 2])
    listed = ongoing(rig)
    assert (list(listed), listed["v-0"].queued) == (["v-0"], False)


@pytest.mark.parametrize("how", ["cancelled", "to another"])
def test_a_stalled_move_may_be_cancelled_or_asked_for_anew(how: str) -> None:
    one = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, 3, settings=one, t=[[1]], u=[[1]])
    ask(rig, {T: [2], ("u", 0): [2]})
    losing(rig, "u")
    join(rig, [1, 2])
    assert rig.cluster.reassignments.stalled
    rig.fate = lambda _commit: Fate.ANSWERED
    ask(rig, {("u", 0): None if how == "cancelled" else [3]})
    known = rig.cluster.reassignments
    assert (known.stalled, known.problems, known.queued) == ({}, {}, {})
    assert list(ongoing(rig)) == ([] if how == "cancelled" else ["u-0"])


def test_a_move_that_cannot_begin_leaves_its_place_to_those_behind_it() -> None:
    one = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, settings=one, t=[[1]], u=[[1]])
    losing(rig, "t")
    answers = ask(rig, {T: [2], ("u", 0): [2]})
    assert answers == {"t-0": "UNKNOWN_SERVER_ERROR", "u-0": "NONE"}
    assert not ongoing(rig)["u-0"].queued


def test_a_topic_that_vanishes_in_the_midst_of_its_move_leaves_its_place_to_others() -> None:
    one = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, settings=one, t=[[1]], u=[[1]])
    ask(rig, {T: [2], ("u", 0): [2]})
    assert ongoing(rig)["u-0"].queued
    rig.world.delete_topic("t")
    rig.run()
    assert not ongoing(rig)["u-0"].queued
