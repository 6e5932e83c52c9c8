"""Moves that wait: for room under a cap, for brokers and disks, for replicas to be deleted; and why, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.core.backoff import RETRY_FIRST_US
from controller.core.context import CoreSettings, Pause
from controller.core.effects import Commit, SetState, SetTopic, Write
from controller.core.events import Event, EventKind
from controller.core.model import ReplicaState
from controller.core.reassignment import alter_reassignments, concurrency, stray_replicas
from controller.core.reassignment.assignment import Assignment
from controller.core.reassignment.phases import drops_isr
from controller.core.reassignment.reasons import Notified
from controller.core.reassignment.topic_znode import Entry, entry_of, write_entries
from controller.core.records import ReassignmentStep, Rejection
from controller.core.requests.operator import SetDrain, SetPause
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import (
    active,
    ask,
    assigned,
    check_moved,
    copy_all,
    join,
    ongoing,
    reasons,
    request,
)
from tests.support.core.world import state

RETRY = Event(EventKind.TOPIC_DELETION_RETRY)
T = ("t", 0)


# --- caps ------------------------------------------------------------------------------------------------


def test_a_cap_lets_moves_wait_visibly_and_survives_a_failover() -> None:
    settings = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, settings=settings, t=[[1], [1], [1]])
    ask(rig, {("t", n): [2] for n in range(3)})
    listed = ongoing(rig)
    assert [listed[f"t-{n}"].queued for n in range(3)] == [False, True, True]
    assert listed["t-1"].adding == (2,)
    assert reasons(rig, "t-1") == (
        "the move to [2] waits: 1 move is ongoing, and reassignment_concurrent_moves_max is 1",
    )
    assert ("t", 1) not in rig.world.folders.get(2, set())
    successor = MachineHarness(rig.world, epoch=2, settings=settings).failover()
    assert [ongoing(successor)[f"t-{n}"].queued for n in range(3)] == [False, True, True]
    ask(successor, {("t", 1): None})
    assert list(ongoing(successor)) == ["t-0", "t-2"]
    copy_all(successor)
    for number, target in ((0, 2), (1, 1), (2, 2)):
        check_moved(successor, ("t", number), [target])


def test_recovery_comes_before_balancing() -> None:
    rig = active(1, 2, 3, 4, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1], [1, 2]])
    rig.world.broker_down(2)
    rig.run()
    ask(rig, {T: [3], ("t", 1): [4], ("t", 2): [1, 4]})
    assert [ongoing(rig)[f"t-{n}"].queued for n in range(3)] == [True, True, False]
    ask(rig, {("t", 2): None})
    assert [k for k, o in ongoing(rig).items() if not o.queued] == ["t-0"]


def test_a_cap_per_broker() -> None:
    rig = active(
        1, 2, 3, 4, settings=CoreSettings(reassignment_concurrent_moves_per_broker_max=1), t=[[1], [1], [3]]
    )
    ask(rig, {T: [2], ("t", 1): [2], ("t", 2): [4]})
    assert [ongoing(rig)[f"t-{n}"].queued for n in range(3)] == [False, True, False]
    assert "broker" in reasons(rig, "t-1")[0]


# --- what is left over -----------------------------------------------------------------------------------


def test_a_refused_deletion_is_tried_again_until_done() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.stop_error = lambda *_: "KAFKA_STORAGE_ERROR"
    join(rig, [1, 2])
    assert assigned(rig) == ([2], [], [])
    found = concurrency.pending_reasons(rig.cluster, rig.settings, rig.partition())
    assert list(map(str, found)) == [
        "replica 1 is not known to be deleted: its broker answered KAFKA_STORAGE_ERROR"
    ]
    assert rig.world.topics["t"].stray == {0: (1,)}
    assert rig.rejects() == ["KAFKA_STORAGE_ERROR"]
    rig.forget()
    rig.stop_error = lambda *_: ""
    rig.world.events.append(RETRY)
    rig.run()
    assert rig.lines() == []
    rig.now_us += 11_000_000
    rig.world.events.append(RETRY)
    rig.run()
    assert rig.lines("SR") == ["1 SR t-0 epoch 3 delete"]
    check_moved(rig, T, [2])


def test_a_deletion_refused_again_and_again_is_tried_ever_more_rarely() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.stop_error = lambda *_: "KAFKA_STORAGE_ERROR"
    join(rig, [1, 2])
    pauses_s = []
    for _ in range(4):
        ((_, held),) = rig.cluster.reassignments.strays[rig.partition()].items()
        assert held.retry_at_us is not None
        pauses_s.append(round((held.retry_at_us - rig.now_us) / 10**6))
        rig.now_us = held.retry_at_us
        rig.world.events.append(RETRY)
        rig.run()
    assert pauses_s == [10, 20, 40, 80]


def test_deletions_are_recorded_some_time_after_the_first_answer_whoever_else_answers() -> None:
    rig = active(1, 2, 3, 4, t=[[1, 2, 3]])
    ask(rig, {T: [4]})
    rig.hold_stops = True
    join(rig, [1, 2, 3, 4])
    answers = {report.broker_id: report for report in rig.stops}
    assert sorted(answers) == [1, 2, 3]
    for broker_id in (1, 2):
        assert rig.world.topics["t"].stray == {0: (1, 2, 3)}
        rig.stops = [answers[broker_id]]
        rig.answer_stops()
        rig.run()
        rig.now_us += 600_000
    rig.world.events.append(RETRY)
    rig.run()
    assert rig.world.topics["t"].stray == {0: (3,)}


def test_a_broker_away_is_told_when_it_returns_by_whoever_leads_then() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.world.broker_down(2)
    rig.run()
    ask(rig, {T: [1]})
    assert assigned(rig) == ([1], [], [])
    found = concurrency.pending_reasons(rig.cluster, rig.settings, rig.partition())
    assert list(map(str, found)) == ["replica 2 is not known to be deleted: its broker is not registered"]
    successor = MachineHarness(rig.world, epoch=2).failover()
    assert rig.world.topics["t"].stray == {0: (2,)}
    rig.world.broker_up(2)
    successor.run()
    assert successor.lines("SR")[-1].startswith("2 SR t-0")
    check_moved(successor, T, [1])


def test_a_replica_that_comes_back_is_not_deleted() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    ask(rig, {T: [1]})
    ask(rig, {T: [1, 2]})
    rig.stops.clear()
    assert rig.world.topics["t"].stray == {}
    rig.now_us += 10**9
    rig.world.events.append(RETRY)
    rig.forget()
    rig.run()
    assert rig.lines("SR") == []
    copy_all(rig)
    check_moved(rig, T, [1, 2])


# --- what goes wrong -------------------------------------------------------------------------------------


def test_a_move_whose_targets_cannot_lead_keeps_its_old_replicas() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.world.broker_down(2)
    rig.run()
    rig.world.shrink_or_grow("t", 0, [1, 2])
    rig.world.notify_isr(T)
    rig.run()
    assert assigned(rig) == ([2, 1], [2], [1])
    assert rig.stored()[0] == 1
    assert rig.rejects() == [], "it is not even tried"
    rig.world.broker_up(2)
    rig.run()
    copy_all(rig)
    check_moved(rig, T, [2])


def test_an_expansion_in_the_same_moment_is_kept() -> None:
    rig = active(1, 2, t=[[1]])
    grown: list[bool] = []

    def fate(commit: Commit) -> Fate:
        if isinstance(commit.writes[0], SetTopic) and not grown:
            grown.append(True)
            rig.world.expand_topic("t", {1: [2]})
        return Fate.ANSWERED

    rig.fate = fate
    ask(rig, {T: [2]})
    assert assigned(rig) == ([2, 1], [2], [1])
    assert rig.stored(number=1) == (2, 0, [2])


def test_a_topic_that_went_meanwhile_is_answered() -> None:
    rig = active(1, 2, t=[[1]], u=[[1]])

    def fate(commit: Commit) -> Fate:
        if isinstance(commit.writes[0], SetTopic) and "t" in rig.world.topics:
            rig.world.delete_topic("t")
        return Fate.ANSWERED

    rig.fate = fate
    assert ask(rig, {T: [2], ("u", 0): [2]}) == {"t-0": "UNKNOWN_SERVER_ERROR", "u-0": "NONE"}
    assert assigned(rig, "u") == ([2, 1], [2], [1])


def test_a_partition_that_never_had_a_leader_is_moved_to_live_brokers() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.broker_down(1)
    rig.run()
    rig.world.create_topic("n", {0: [1]})
    rig.run()
    assert ("n", 0) not in rig.world.states
    ask(rig, {("n", 0): [2]})
    rig.run()
    assert rig.stored("n")[0] == 2
    assert assigned(rig, "n") == ([2], [], [])
    assert rig.partition("n").replica_state(2) is ReplicaState.ONLINE


def test_a_waiting_move_is_dropped_without_touching_the_partition() -> None:
    rig = active(1, 2, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1], [1]])
    ask(rig, {("t", n): [2] for n in range(3)})
    before = rig.world.states[("t", 1)]
    rig.forget()
    assert ask(rig, {("t", 1): None, ("t", 2): [1]}) == {"t-1": "NONE", "t-2": "NONE"}
    assert rig.world.states[("t", 1)] == before
    assert list(ongoing(rig)) == ["t-0"]
    assert rig.world.topics["t"].queued == {}


def test_a_waiting_move_that_would_lose_the_last_in_sync_replica_by_now_is_dropped() -> None:
    rig = active(1, 2, t=[[1, 2]])
    world = rig.world
    world.edit_topic("t", adding={0: (2,)}, original={0: (1,)}, queued={0: (1,)})
    world.put_state("t", 0, state(2, (2,), 1, 1))
    successor = MachineHarness(world, epoch=2).failover()
    successor.run()
    assert (world.topics["t"].partitions[0], world.topics["t"].queued) == ((1, 2), {})
    assert (world.states[T].leader, world.states[T].isr) == (2, (2,))
    (refused,) = successor.recorded(Rejection)
    assert "none of [1] is in the ISR [2]: acknowledged records would be lost" in refused.reason


def test_cancelling_makes_room() -> None:
    rig = active(1, 2, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {("t", n): [2] for n in range(2)})
    ask(rig, {T: None})
    assert [(name, move.queued) for name, move in ongoing(rig).items()] == [("t-1", False)]


def test_a_waiting_move_of_a_topic_that_is_deleted_is_dropped() -> None:
    rig = active(1, 2, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1]], u=[[1]])
    ask(rig, {T: [2], ("u", 0): [2]})
    rig.world.mark_for_deletion("u")
    rig.run()
    assert "u" not in rig.world.topics
    copy_all(rig)
    check_moved(rig, T, [2])


def test_room_left_by_a_topic_that_is_deleted_goes_to_the_next_at_once() -> None:
    settings = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, settings=settings, u=[[1], [1]], v=[[1]])
    ask(rig, {("u", 0): [2], ("u", 1): [2], ("v", 0): [2]})
    rig.world.mark_for_deletion("u")
    rig.run()
    assert [name for name, move in ongoing(rig).items() if move.queued] == ["u-1", "v-0"]
    waiting = rig.partition("u", 1)
    join(rig, [1, 2], "u")
    assert not ongoing(rig)["v-0"].queued
    told = [(r.error, r.partition) for r in rig.recorded(Rejection)]
    assert told == [("UNKNOWN_TOPIC_OR_PARTITION", waiting)]


def test_a_target_whose_disk_is_back_is_told_again() -> None:
    rig = active(1, 2, t=[[1]], filler=[[2]])
    ask(rig, {T: [2]})
    rig.world.lost[2] = {T}
    rig.world.notify_log_dir(2)
    rig.run()
    assert reasons(rig) == ("target 2 is not in the ISR [1]: its disk failed",)
    rig.world.lost[2].clear()
    rig.forget()
    rig.world.notify_log_dir(2)
    rig.run()
    assert any(line.startswith("2 LISR t-0 leader 1") and line.endswith("new") for line in rig.lines("LISR"))
    copy_all(rig)
    check_moved(rig, T, [2])


def test_at_failover_a_move_gets_one_leader_epoch_whoever_asked() -> None:
    rig = active(1, 2, t=[[1], [1]])
    ask(rig, {T: [2]})
    rig.world.watches.clear()
    rig.world.ask_reassignment({("t", 1): [2]})
    before = [rig.world.states[("t", n)].leader_epoch for n in range(2)]
    MachineHarness(rig.world, epoch=2).failover()
    after = [rig.world.states[("t", n)].leader_epoch for n in range(2)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]


def test_sets_written_by_hand_that_make_no_sense() -> None:
    """Strangers in them are ignored, and a partition is not emptied; both can be put right."""
    rig = active(1, 2, t=[[1], [1]])
    rig.world.edit_topic("t", adding={0: (7,)}, removing={0: (8,), 1: (1,)}, stray={0: (1, 2)})
    successor = MachineHarness(rig.world, epoch=2).failover()
    assert [line for line in successor.lines("SR") if "delete" in line] == ["2 SR t-0 epoch 0 delete"]
    listed = ongoing(successor)
    assert list(listed) == ["t-1"]
    assert successor.stored()[1] == 0, "t-0 is not even taken for a move that is over already"
    assert tuple(map(str, listed["t-1"].reasons)) == (
        "all of its replicas are being removed: reassign it again, or cancel",
    )
    ask(successor, {("t", 1): None})
    assert assigned(successor, number=1) == ([1], [], [])
    partition = successor.partition(number=1)
    partition.leadership = None
    assert drops_isr(partition, Assignment(()))
    assert not drops_isr(partition, Assignment((2,)))


def test_a_target_that_leaves_the_isr_as_it_is_to_lead_leaves_the_move_as_it_was() -> None:
    """The leader, in notification mode, drops the target between the look and the election."""
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.world.shrink_or_grow("t", 0, [1, 2])
    rig.world.notify_isr(T)
    dropped: list[bool] = []

    def fate(commit: Commit) -> Fate:
        write = commit.writes[0]
        if isinstance(write, SetState) and write.new.leader == 2 and not dropped:
            dropped.append(True)
            rig.world.shrink_or_grow("t", 0, [1])
        return Fate.ANSWERED

    rig.fate = fate
    rig.run()
    assert dropped
    partition = rig.partition()
    assert (partition.replicas, partition.adding, partition.removing) == ((2, 1), (2,), (1,))
    assert assigned(rig) == ([2, 1], [2], [1])
    assert (rig.stored()[0], rig.stored()[2]) == (1, [1])
    assert "REASSIGNMENT_HELD_UP" in rig.rejects()
    assert any("no eligible leader" in reason for reason in reasons(rig))
    assert list(rig.received[1].replicas[T].replicas) == [2, 1]
    copy_all(rig)
    check_moved(rig, T, [2])


def test_a_target_that_cannot_lead_any_more_does_not_lead_the_finished_move() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    ask(rig, {("t", 0): [1, 3]})
    assert rig.stored()[0] == 1
    rig.cluster.shutting_down.add(1)
    rig.world.shrink_or_grow("t", 0, [1, 2, 3])
    rig.world.notify_isr(("t", 0))
    rig.run()
    assert rig.stored()[0] == 3


def test_all_targets_are_in_sync_when_the_old_replicas_go() -> None:
    """The leader, in notification mode, drops one of them between the look and the election."""
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [2, 3]})
    rig.world.shrink_or_grow("t", 0, [1, 2, 3])
    rig.world.notify_isr(T)
    dropped: list[bool] = []

    def fate(commit: Commit) -> Fate:
        write = commit.writes[0]
        if isinstance(write, SetState) and write.new.leader == 2 and not dropped:
            dropped.append(True)
            rig.world.shrink_or_grow("t", 0, [1, 2])
        return Fate.ANSWERED

    rig.fate = fate
    rig.run()
    assert assigned(rig) == ([2, 3, 1], [2, 3], [1])
    assert rig.stored()[::2] == (2, [1, 2])
    assert "REASSIGNMENT_HELD_UP" in rig.rejects()
    # All replicas are told of all replicas again, one of which still copies.
    for broker_id in (1, 2, 3):
        assert list(rig.received[broker_id].replicas[T].replicas) == [2, 3, 1]
    copy_all(rig)
    check_moved(rig, T, [2, 3])


def test_whether_targets_are_in_sync_is_read_again_first() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.world.shrink_or_grow("t", 0, [1, 2])
    rig.world.notify_isr(T)
    rig.forget()
    while not rig.finished:
        rig.advance()
    rig.world.shrink_or_grow("t", 0, [1])
    rig.run()
    assert EventKind.REASSIGNMENT_IN_SYNC in [done.kind for done in rig.finished]
    assert (assigned(rig), rig.rejects(), rig.stored()[2]) == (([2, 1], [2], [1]), [], [1])


def never(kind: type[Write]) -> Callable[[Commit], Fate]:
    return lambda commit: Fate.LOST if isinstance(commit.writes[0], kind) else Fate.ANSWERED


def test_a_move_that_cannot_be_recorded_does_not_begin() -> None:
    rig = active(1, 2, t=[[1]])
    rig.fate = never(SetTopic)
    assert ask(rig, {T: [2]}) == {"t-0": "UNKNOWN_SERVER_ERROR"}
    assert rig.partition().replicas == (1,)
    assert rig.lines("LISR") == []
    assert not rig.cluster.reassignments.ongoing


def test_a_move_whose_end_cannot_be_recorded_is_not_over() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.fate = never(SetTopic)
    join(rig, [1, 2])
    assert rig.partition() in rig.cluster.reassignments.ongoing
    assert assigned(rig) == ([2, 1], [2], [1])
    rig.fate = lambda _: Fate.ANSWERED
    rig.world.lose_watches()
    rig.run()
    check_moved(rig, T, [2])


def test_what_an_earlier_move_left_behind_stays_recorded_in_the_next_one() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.world.broker_down(2)
    rig.run()
    ask(rig, {T: [1]})
    assert rig.world.topics["t"].stray == {0: (2,)}
    ask(rig, {T: [1, 3]})
    assert rig.world.topics["t"].stray == {0: (2,)}
    rig.world.broker_up(2)
    rig.run()
    copy_all(rig)
    check_moved(rig, T, [1, 3])


def test_nothing_that_waits_begins_while_the_controller_is_paused() -> None:
    rig = active(1, 2, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {("t", 0): [1, 2], ("t", 1): [1, 2]})
    rig.ask(SetPause(True, "r", "ann"))
    join(rig, [1, 2])
    listed = ongoing(rig)
    assert [(name, listed[name].queued) for name in listed] == [("t-1", True)]
    rig.ask(SetPause(False, "r", "ann"))
    assert not ongoing(rig)["t-1"].queued


def test_versions_of_topics_that_were_written_together_are_known() -> None:
    rig = active(1, 2, t=[[1]], u=[[1]], v=[[1]])
    rig.world.edit_topic("v")
    rig.run()
    entries = {p: entry_of(rig.cluster, p) for p in map(rig.partition, "tuv")}
    written = {p: e if p.topic.name == "t" else e._replace(queued=(2,)) for p, e in entries.items()}
    # Before their watches tell of it.
    assert rig.drive(lambda context: write_entries(context, written)) == {}
    assert {n: topic.version for n, topic in rig.cluster.topics.items()} == {"t": 0, "u": 1, "v": 2}
    assert {n: info.version for n, info in rig.world.topics.items()} == {"t": 0, "u": 1, "v": 2}


def test_what_waits_already_is_recorded_once() -> None:
    rig = active(1, 2, 3, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {T: [2], ("t", 1): [2]})
    rig.forget()
    ask(rig, {("t", 1): [2]})
    assert rig.recorded(ReassignmentStep) == []
    ask(rig, {("t", 1): [3]})
    assert [step.to for step in rig.recorded(ReassignmentStep)] == ["queued"]


def test_a_deletion_that_waits_begins_with_the_end_of_a_move_that_removes_nothing() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [1, 2]})
    rig.world.mark_for_deletion("t")
    rig.run()
    assert "t" in rig.world.topics
    join(rig, [1, 2])
    assert "t" not in rig.world.topics


def test_a_move_whose_leader_epoch_could_not_be_raised_goes_on_when_any_broker_starts() -> None:
    rig = active(1, 2, t=[[1]])
    rig.fate = never(SetState)
    ask(rig, {T: [2]})
    assert list(rig.cluster.reassignments.problems) == [rig.partition()]
    rig.fate = lambda _: Fate.ANSWERED
    rig.world.broker_up(3)
    rig.run()
    assert rig.cluster.reassignments.problems == {}
    assert rig.received[2].replicas[T].leader_epoch == 1


def test_a_topic_made_again_is_not_moved_in_the_former_one_s_name() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.topics["t"] = replace(rig.world.topics["t"], czxid=10**6)
    rig.forget()
    (reply,) = rig.ask(request({T: [2]}))
    assert [(a.error.name, a.message) for a in reply.partitions] == [
        ("UNKNOWN_SERVER_ERROR", "its topic's znode is gone, and a new topic has that name")
    ]
    assert assigned(rig) == ([1], [], [])


def test_a_move_that_cannot_be_recorded_says_why_of_each_partition() -> None:
    rig = active(1, 2, t=[[1], [1]])
    rig.fate = never(SetTopic)
    (reply,) = rig.ask(request({T: [2], ("t", 1): [2]}))
    for answer in reply.partitions:
        assert answer.message.startswith("its topic's znode could not be written in 10 attempts")


def test_deletions_that_cannot_be_recorded_are_told_of_and_recorded_later() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.hold_stops = True
    join(rig, [1, 2])
    rig.fate = never(SetTopic)
    rig.answer_stops()
    rig.run()
    why = [r.reason for r in rig.recorded(Rejection) if r.partition is rig.partition()]
    assert [reason.startswith("deleted replicas are still recorded: ") for reason in why] == [True]
    rig.fate = lambda _: Fate.ANSWERED
    rig.now_us += 10 * RETRY_FIRST_US
    rig.world.events.append(RETRY)
    rig.run()
    check_moved(rig, T, [2])


def test_a_move_cancelled_as_its_last_target_gets_in_sync_is_over_without_another_leader_epoch() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.send(rig.alter(1, rig.proposal([1, 2])))
    rig.send(request({T: None}))
    rig.run()
    assert assigned(rig) == ([1], [], [])
    epoch = rig.stored()[1]
    again = active(1, 2, t=[[1]])
    ask(again, {T: [2]})
    ask(again, {T: None})
    assert again.stored()[1] <= epoch <= again.stored()[1] + 1


def test_who_cannot_leave_the_isr_keeps_its_replica() -> None:
    """A newer controller has written the state."""
    rig = active(1, 2, t=[[1, 2]])
    rig.world.put_state("t", 0, state(1, [1, 2], 3, 9, controller_epoch=9))
    partition = rig.partition()
    rig.forget()
    rig.drive(lambda context: stray_replicas.stop(context, [(partition, 2)]))
    assert not [line for line in rig.lines("SR") if line.endswith("delete")]
    assert rig.stored()[2] == [1, 2]
    assert rig.cluster.reassignments.strays[partition][2].retry_at_us is not None, "it is tried again"


def test_a_former_process_of_a_broker_confirms_no_deletion() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.hold_stops = True
    join(rig, [1, 2])
    rig.stops = [replace(report, broker_epoch=report.broker_epoch - 1) for report in rig.stops]
    rig.answer_stops()
    rig.run()
    assert list(rig.cluster.reassignments.strays[rig.partition()]) == [1]


def test_deletions_are_recorded_without_waiting_for_brokers_that_are_gone() -> None:
    rig = active(1, 2, 3, 4, t=[[1, 2, 3]])
    ask(rig, {T: [4]})
    rig.hold_stops = True
    join(rig, [1, 2, 3, 4])
    answers = {report.broker_id: report for report in rig.stops}
    rig.world.broker_down(2, 3)
    rig.run()
    rig.stops = [answers[1]]
    rig.answer_stops()
    rig.run()
    assert rig.world.topics["t"].stray == {0: (2, 3)}


def test_a_deleted_replica_is_on_no_failed_disk_any_more() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.hold_stops = True
    join(rig, [1, 2])
    rig.cluster.offline_dirs[1] = {rig.partition()}
    rig.answer_stops()
    rig.run()
    assert rig.cluster.offline_dirs[1] == set()


def test_who_is_told_again_to_delete_is_waited_for_again() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.world.broker_down(2)
    rig.run()
    ask(rig, {T: [1]})
    rig.hold_stops = True
    rig.world.broker_up(2)
    rig.run()
    ((_, held),) = rig.cluster.reassignments.strays[rig.partition()].items()
    assert isinstance(held.reason, Notified)


def test_of_partitions_written_together_each_loses_just_what_it_does_not_have_any_more() -> None:
    rig = active(1, 2, t=[[1, 2], [1, 2]])
    rig.world.edit_topic("t", adding={0: (2,), 1: (2,)}, stray={0: (3,)})
    entries = {rig.partition("t", 0): Entry((1, 2)), rig.partition("t", 1): Entry((2, 1), adding=(2,))}
    assert rig.drive(lambda context: write_entries(context, entries)) == {}
    info = rig.world.topics["t"]
    assert (info.partitions, info.adding, info.stray) == ({0: (1, 2), 1: (2, 1)}, {1: (2,)}, {})


def test_a_move_found_in_a_topic_made_by_hand_goes_on_at_once() -> None:
    rig = active(1, 2)
    rig.world.create_topic("t", {0: [2, 1]})
    rig.world.edit_topic("t", adding={0: (2,)}, removing={0: (1,)}, original={0: (1,)})
    rig.run()
    check_moved(rig, T, [2])


def test_when_a_pause_ends_only_moves_that_may_be_over_are_looked_at() -> None:
    rig = active(1, 2, t=[[1], [1]])
    ask(rig, {("t", n): [2] for n in range(2)})
    rig.ask(SetPause(True, "r", "a"))
    rig.forget()
    rig.ask(SetPause(False, "", "a"))
    assert "ReadStates" not in rig.reads()


def test_a_move_that_got_in_sync_during_a_pause_is_over_when_that_ends() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.ask(SetPause(True, "r", "a"))
    join(rig, [1, 2])
    assert assigned(rig) == ([2, 1], [2], [1])
    rig.ask(SetPause(False, "", "a"))
    check_moved(rig, T, [2])


def test_of_moves_that_end_together_one_is_enough_for_a_deletion_to_go_on() -> None:
    rig = active(1, 2, t=[[1]], u=[[1]])
    ask(rig, {T: [2], ("u", 0): [2]})
    rig.world.mark_for_deletion("u")
    rig.run()
    assert "u" in rig.world.topics
    rig.ask(rig.alter(1, rig.proposal([1, 2]), rig.proposal([1, 2], "u")))
    assert "u" not in rig.world.topics
    check_moved(rig, T, [2])


def test_a_drained_leader_that_stays_a_replica_hands_over_to_a_target() -> None:
    rig = active(1, 2, t=[[1]])
    rig.ask(SetDrain(1, True, "disks", "ann"))
    ask(rig, {T: [1, 2]})
    assert rig.stored()[0] == 1, "nobody else can lead yet"
    join(rig, [1, 2])
    check_moved(rig, T, [1, 2])
    assert rig.stored()[0] == 2


def test_so_many_replicas_may_wait_to_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.edit_topic("t", stray={0: (5, 6)})
    rig = MachineHarness(rig.world, epoch=2).failover()
    for most, answer in ((2, "INVALID_REPLICA_ASSIGNMENT"), (3, "NONE")):
        monkeypatch.setattr(alter_reassignments, "REPLICAS_MAX", most)
        assert ask(rig, {T: [2]}) == {"t-0": answer}


def test_a_move_that_no_limit_holds_is_next_in_line() -> None:
    rig = active(1, 2, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {("t", n): [2] for n in range(2)})
    found = concurrency.pending_reasons(rig.cluster, CoreSettings(), rig.partition("t", 1))
    assert list(map(str, found)) == ["the move to [2] waits: it is next in line"]


def test_others_have_their_turn_while_many_moves_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []
    for examined_max in (100, 3):
        monkeypatch.setattr(alter_reassignments, "EXAMINED_MAX", examined_max)
        rig = active(1, 2, t=[[1]] * 7)
        rig.world.ask_reassignment({("t", n): [2] for n in range(7)})
        rig.world.events.clear()
        pauses.append(rig.pauses(alter_reassignments.process_znode).count(Pause.YIELD))
    assert pauses[1] - pauses[0] == 2


def test_a_move_of_a_topic_that_cannot_be_read_is_refused_and_the_topic_is_a_problem() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.unreadable["/brokers/topics/t"] = "not JSON"
    assert ask(rig, {T: [2]}) == {"t-0": "UNKNOWN_SERVER_ERROR"}
    assert rig.cluster.problems == {"/brokers/topics/t": "not JSON"}
