"""Moves that tools ask for by /admin/reassign_partitions (reference, section 8.2): what of it is left, and when."""

from __future__ import annotations

from controller.core.context import CoreSettings
from controller.core.effects import Commit, ReassignmentRequest, SetReassignment, SetState, SetTopic
from controller.core.events import Event, EventKind, StatesCheck
from controller.core.handlers import event_of
from controller.core.records import ReassignmentStep, Rejection
from controller.core.requests.operator import SetFreeze, SetPause
from controller.core.znode_paths import REASSIGN_PARTITIONS, topic_path
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import (
    active,
    ask,
    assigned,
    check_moved,
    join,
    listed,
    writes,
)

RETRY = Event(EventKind.TOPIC_DELETION_RETRY)
T = ("t", 0)


def test_the_znode_goes_when_all_of_it_is_done() -> None:
    rig = active(1, 2, t=[[1], [1]])
    rig.world.ask_reassignment({T: [2], ("t", 1): [2]})
    rig.run()
    join(rig, [1, 2])
    assert listed(rig) == (("t", 1, (2,)),)
    join(rig, [1, 2], number=1)
    assert not listed(rig)
    check_moved(rig, T, [2])
    rig.world.ask_reassignment({T: [1]})
    rig.run()
    assert assigned(rig) == ([1, 2], [1], [2])


def test_a_list_of_nothing_goes() -> None:
    """As long as it is there, no tool can write another."""
    rig = active(1, t=[[1]])
    rig.world.put_watched(REASSIGN_PARTITIONS, ReassignmentRequest((), 0))
    rig.run()
    assert rig.world.reassignment is None


def test_a_move_that_a_tool_lists_as_another_one_ends_is_made() -> None:
    rig = active(1, 2, 3, t=[[1]])
    rig.world.ask_reassignment({T: [2]})
    rig.run()

    def fate(commit: Commit) -> Fate:
        if any(isinstance(w, SetTopic) for w in commit.writes) and listed(rig) == (("t", 0, (2,)),):
            rig.world.ask_reassignment({T: [3]})
        return Fate.ANSWERED

    rig.fate = fate
    join(rig, [1, 2])
    assert listed(rig) == (("t", 0, (3,)),)
    join(rig, [2, 3])
    check_moved(rig, T, [3])


def test_entries_that_cannot_be_moved_are_taken_out_with_their_reason() -> None:
    rig = active(1, 2, t=[[1], [1], [1], [1], [1]])
    rig.world.ask_reassignment(
        {
            T: [2], ("t", 1): [], ("t", 2): [2, 2], ("t", 3): [-1], ("t", 4): [2**31],
            ("t", 5): [1], ("t", 6): [1], ("x", 0): [1],
        }
    )  # fmt: skip
    rig.run()
    assert listed(rig) == (("t", 0, (2,)),)
    assert sorted(rig.rejects()) == [
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REPLICA_ASSIGNMENT",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    named = [r.partition.number for r in rig.recorded(Rejection) if r.partition is not None]
    assert sorted(named) == [1, 2, 3, 4], "the history of a partition shows why it does not move"


def test_what_does_not_decode_is_recorded_and_removed_and_the_watch_stays_armed() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.ask_reassignment({T: [2]})
    rig.world.unreadable[REASSIGN_PARTITIONS] = "Expected `object`"
    rig.run()
    assert rig.world.reassignment is None
    assert "MALFORMED" in rig.rejects()
    assert rig.cluster.problems == {}
    rig.world.ask_reassignment({T: [2]})
    rig.run()
    assert assigned(rig) == ([2, 1], [2], [1])


def test_what_does_not_decode_and_cannot_be_removed_is_left_for_the_next_look() -> None:
    rig = active(1, 2, t=[[1]])
    rig.fate = lambda _: Fate.LOST
    rig.world.ask_reassignment({T: [2]})
    rig.world.unreadable[REASSIGN_PARTITIONS] = "Expected `object`"
    rig.run()
    assert rig.rejects() == ["MALFORMED", "CONFLICT"]
    assert rig.world.reassignment is not None


def test_a_request_that_takes_the_place_of_nonsense_is_followed() -> None:
    """A tool writes it after the nonsense was read."""
    rig = active(1, 2, t=[[1]])

    def replaced(effect: Commit) -> Fate:
        if isinstance(effect.writes[0], SetReassignment) and REASSIGN_PARTITIONS in rig.world.unreadable:
            rig.world.ask_reassignment({T: [2]})
        return Fate.ANSWERED

    rig.fate = replaced
    rig.world.put_watched(REASSIGN_PARTITIONS, ReassignmentRequest((("x", 0, (1,)),), 3))
    rig.world.unreadable[REASSIGN_PARTITIONS] = "Expected `object`"
    rig.run()
    assert rig.rejects() == ["MALFORMED", "CONFLICT"]
    assert assigned(rig) == ([2, 1], [2], [1]), "it has begun"


def test_what_a_tool_asks_while_its_former_request_is_taken_back_is_the_newest() -> None:
    rig = active(1, 2, 3, t=[[1]])
    rig.ask(SetPause(True, "r", "ann"))
    rig.world.ask_reassignment({T: [2]})
    changed: list[Commit] = []

    def meanwhile(effect: Commit) -> Fate:
        if isinstance(effect.writes[0], SetReassignment) and not changed:
            changed.append(effect)
            rig.world.ask_reassignment({T: [3]})
        return Fate.ANSWERED

    rig.fate = meanwhile
    ask(rig, {T: [1, 2]})
    rig.run()
    assert changed
    assert assigned(rig)[0][0] == 3, "the tool's, not what was asked before by RPC"


def test_a_topic_that_somebody_writes_all_the_time_does_not_hold_up_others() -> None:
    rig = active(1, 2, busy=[[1]], t=[[1]])

    def written(effect: Commit) -> Fate:
        if any(isinstance(write, SetTopic) and write.info.name == "busy" for write in effect.writes):
            rig.world.edit_topic("busy")
            return Fate.LOST
        return Fate.ANSWERED

    rig.fate = written
    ask(rig, {("busy", 0): [2], T: [2]})
    rig.run()
    assert assigned(rig) == ([2, 1], [2], [1]), "it has begun"


def test_a_move_whose_leader_epoch_could_not_be_written_begins_at_the_check_of_stored_states() -> None:
    rig = active(1, 2, t=[[1]])
    rig.fate = lambda c: Fate.LOST if any(isinstance(w, SetState) for w in c.writes) else Fate.ANSWERED
    assert ask(rig, {("t", 0): [1, 2]}) == {"t-0": "NONE"}
    assert (rig.partition().adding, rig.stored()) == ((2,), (1, 0, [1]))
    rig.fate = lambda _: Fate.ANSWERED
    rig.world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
    rig.run()
    assert rig.stored() == (1, 1, [1])
    assert ("t", 0) in rig.received[2].replicas
    assert not rig.cluster.reassignments.problems


def test_a_move_that_waits_and_cannot_be_taken_back_waits_on() -> None:
    rig = active(1, 2, t=[[1]])
    rig.ask(SetFreeze(True, "r", "ann", 10**15))
    ask(rig, {T: [2]})
    rig.fate = lambda effect: Fate.LOST if isinstance(effect.writes[0], SetTopic) else Fate.ANSWERED
    assert ask(rig, {T: None}) == {"t-0": "UNKNOWN_SERVER_ERROR"}
    assert rig.cluster.reassignments.queued == {rig.partition(*T): (2,)}
    rig.fate = lambda _: Fate.ANSWERED
    assert ask(rig, {T: None}) == {"t-0": "NONE"}
    assert rig.cluster.reassignments.queued == {}


def test_a_list_that_cannot_be_made_shorter_is_told_of() -> None:
    rig = active(1, 2, t=[[1]])
    rig.fate = lambda effect: Fate.LOST if isinstance(effect.writes[0], SetReassignment) else Fate.ANSWERED
    rig.world.ask_reassignment({T: [1]})
    rig.run()
    assert "CONFLICT" in rig.rejects()
    assert listed(rig)


def test_while_paused_the_znode_keeps_what_waits() -> None:
    rig = active(1, 2, 3, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1], [1]])
    ask(rig, {("t", 1): [2]})
    rig.ask(SetPause(True, "r", "ann"))
    rig.world.ask_reassignment({T: [2], ("t", 2): [1]})
    rig.run()
    assert listed(rig) == (("t", 0, (2,)),)
    rig.world.ask_reassignment({T: [2]})
    rig.forget()
    rig.run()
    assert not rig.recorded(ReassignmentStep), "it is known already"


def test_a_move_whose_end_is_recorded_after_its_topic_s_deletion_has_begun_leaves_the_list() -> None:
    rig = active(1, 2, 3, t=[[1]])
    rig.world.ask_reassignment({T: [2]})
    rig.run()
    rig.world.mark_for_deletion("t")
    rig.run()
    rig.hold_stops = True
    rig.world.damage(topic_path("t"))
    join(rig, [1, 2])
    rig.world.mend(topic_path("t"))
    rig.world.bounce(3)
    rig.run()
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    assert rig.world.topics == {}
    assert rig.world.reassignment is None


def test_an_empty_list_is_removed() -> None:
    rig = active(1, t=[[1]])
    rig.world.ask_reassignment({T: [1]})
    rig.run()
    assert rig.world.reassignment is None
    assert rig.world.topics["t"].version == 0


def test_by_znode_a_dead_target_is_waited_for() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.broker_down(2)
    rig.run()
    rig.world.ask_reassignment({T: [2]})
    rig.run()
    assert assigned(rig) == ([2, 1], [2], [1])
    assert rig.stored() == (1, 1, [1])
    rig.forget()
    rig.world.broker_up(2)
    rig.run()
    assert "2 LISR t-0 leader 1 epoch 2 isr [1] new" in rig.lines("LISR")
    join(rig, [1, 2])
    check_moved(rig, T, [2])
    assert rig.world.reassignment is None


def test_a_request_by_api_takes_its_partitions_out_of_the_znode_first() -> None:
    rig = active(1, 2, 3, t=[[1], [1]])
    rig.world.ask_reassignment({T: [2], ("t", 1): [2]})
    rig.run()
    rig.forget()
    ask(rig, {T: [3]})
    assert writes(rig)[0] == "znode 1"
    assert assigned(rig) == ([3, 1], [3], [1])
    ask(rig, {("t", 1): None})
    assert rig.world.reassignment is None
    check_moved(rig, ("t", 1), [1])


def test_at_failover_the_znode_wins() -> None:
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [2]})
    rig.world.watches.clear()
    rig.world.ask_reassignment({T: [3]})
    successor = MachineHarness(rig.world, epoch=2).failover()
    assert assigned(successor) == ([3, 1], [3], [1])
