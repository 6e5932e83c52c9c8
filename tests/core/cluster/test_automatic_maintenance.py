"""Maintenance mode, entered by an operator or by the controller itself: what is held, what is not, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.cluster.automatic_maintenance import OfflineBrokers, ends, offline_brokers
from controller.core.cluster.maintenance import LOOK_EVERY_US, due
from controller.core.context import CoreSettings
from controller.core.effects import Commit, WriteNode
from controller.core.events import Event, EventKind
from controller.core.explain.partitions import explain_partition
from controller.core.handlers import not_controller
from controller.core.model import Attribution, Maintenance, Partition, Topic, interned
from controller.core.records import ControllerChange, Rejection
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetDrain, SetMaintenance, SetPause
from controller.core.requests.topics import CreateTopics, DeleteTopics, NewTopic, TopicRef
from controller.core.topics.deletion import retry_due
from controller.core.topics.reasons import Suspended
from controller.core.znode_paths import MAINTENANCE
from tests.support.core.deletions import check_gone
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import active, assigned, check_moved, copy_all, join, ongoing, reasons
from tests.support.core.reassignments import ask as move
from tests.support.core.world import World, state

T = ("t", 0)
CHECK = Event(EventKind.MAINTENANCE_CHECK)
REBALANCE = Event(EventKind.LEADER_REBALANCE)
RETRY = Event(EventKind.TOPIC_DELETION_RETRY)
#: Half of the brokers, and two at least.
ITSELF = CoreSettings(
    unclean_leader_election_enable=True,
    maintenance_offline_brokers_percentage=50,
    maintenance_offline_brokers_min=2,
    maintenance_healthy_seconds=10,
)


def do(rig: MachineHarness, request: Any) -> Any:
    (reply,) = rig.ask(request)
    return reply


def enter(rig: MachineHarness) -> None:
    assert do(rig, SetMaintenance(True, "outage", "ann")).error is ErrorCode.NONE


def leave(rig: MachineHarness) -> None:
    assert do(rig, SetMaintenance(False, "", "bob")).error is ErrorCode.NONE


def tick(rig: MachineHarness, event: Event = CHECK, seconds: float = 0) -> None:
    rig.now_us += int(seconds * 1_000_000)
    rig.world.events.append(event)
    rig.run()


def cluster(settings: CoreSettings = ITSELF, brokers: int = 4) -> MachineHarness:
    """t-0 on brokers 1, 2, 3 and t-1 on 3, 4, 1; more brokers hold one partition each."""
    world = World(*range(1, brokers + 1))
    lists = [[1, 2, 3], [3, 4, 1], *([b] for b in range(5, brokers + 1))]
    world.create_topic("t", dict(enumerate(lists)))
    rig = MachineHarness.active(world, settings=settings)
    rig.forget()
    return rig


def counted(rig: MachineHarness, settings: CoreSettings) -> OfflineBrokers:
    return rig.drive(lambda context: offline_brokers(context.cluster, settings))


def records(rig: MachineHarness) -> list[tuple[str, str]]:
    return [(change.to, change.reason) for change in rig.recorded(ControllerChange)]


def test_one_topic_that_names_brokers_that_never_were_causes_nothing() -> None:
    rig = cluster()
    rig.world.create_topic("wide", {0: [1, *range(901, 950)], 1: list(range(901, 950))})
    rig.run()
    assert counted(rig, ITSELF).gone == ()
    rig.world.broker_down(2)
    rig.run()
    assert counted(rig, ITSELF).gone == (2,)
    assert not rig.cluster.maintenance.automatic
    assert not MachineHarness(rig.world, epoch=2, settings=ITSELF).failover().cluster.maintenance.automatic


def test_nor_does_a_reassignment_of_several_topics_to_such_brokers() -> None:
    rig = cluster()
    rig.world.create_topic("u", {0: [1, 2]})
    rig.run()
    rig.world.ask_reassignment({("t", 0): [1, *range(901, 950)], ("u", 0): [1, *range(901, 950)]})
    rig.run()
    assert assigned(rig)[1] == list(range(901, 950))
    assert counted(rig, ITSELF).gone == ()
    taken_over = MachineHarness(rig.world, epoch=2, settings=ITSELF).failover()
    assert counted(taken_over, ITSELF).gone == ()


# --- what is held ------------------------------------------------------------------------------------------


def test_clean_elections_go_on_and_leadership_does_not_return() -> None:
    rig = cluster(CoreSettings())
    enter(rig)
    rig.world.broker_down(1)
    rig.run()
    assert rig.stored()[0] == 2
    rig.world.broker_up(1)
    rig.run()
    join(rig, [2, 3, 1])
    tick(rig, REBALANCE)
    assert rig.stored()[0] == 2
    leave(rig)
    tick(rig, REBALANCE)
    assert rig.stored()[0] == 1
    assert records(rig) == [("maintenance", "ann: outage"), ("left_maintenance", "bob: ")]
    rig.check_converged()


def test_nobody_is_elected_uncleanly_by_configuration_until_it_is_left() -> None:
    rig = cluster(CoreSettings(unclean_leader_election_enable=True))
    enter(rig)
    rig.world.shrink_or_grow("t", 0, [1])
    rig.world.broker_down(1)
    rig.run()
    assert rig.stored() == (-1, 1, [1])
    (notified,) = {r.reason for r in rig.recorded(Rejection) if r.error == "ELECTION_FAILED"}
    assert notified.endswith("in maintenance, entered by ann: outage (pctl maintenance leave ends that)")
    explained = explain_partition(rig.cluster, rig.partition(), unclean_allowed=True)
    assert not explained.rules[1].permitted
    assert any("2 is elected uncleanly then" in change for change in explained.changes)
    rig = MachineHarness(rig.world, epoch=2, settings=rig.settings).failover()
    assert rig.stored()[0] == -1
    leave(rig)
    assert rig.stored()[0] == 2
    assert rig.cluster.unclean_elections == 1


def test_an_operator_may_elect_uncleanly_all_the_same() -> None:
    rig = cluster(CoreSettings())
    enter(rig)
    rig.world.shrink_or_grow("t", 0, [1])
    rig.world.broker_down(1)
    rig.run()
    assert do(rig, ElectLeaders(ElectionType.UNCLEAN, [T])).partitions[0].error is ErrorCode.NONE
    assert rig.stored()[0] == 2


def test_waiting_moves_do_not_begin_and_those_under_way_end() -> None:
    rig = active(1, 2, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    enter(rig)
    move(rig, {T: [2], ("t", 1): [2]})
    assert [ongoing(rig)[f"t-{n}"].queued for n in range(2)] == [False, True]
    join(rig, [1, 2])
    check_moved(rig, T, [2])
    (reason,) = reasons(rig, "t-1")
    assert reason.startswith("the move to [2] waits: in maintenance, entered by ann: outage (")
    rig = MachineHarness(rig.world, epoch=2, settings=rig.settings).failover()
    assert assigned(rig, "t", 1) == ([1], [], [])
    leave(rig)
    copy_all(rig)
    check_moved(rig, ("t", 1), [2])


@pytest.mark.parametrize("hold", [SetMaintenance(True, "r", "a"), SetPause(True, "r", "a")])
def test_deletions_do_not_begin_and_their_topics_live_on(hold: SetMaintenance | SetPause) -> None:
    rig = active(1, 2, t=[[1, 2]], u=[[1, 2]])
    do(rig, hold)
    assert do(rig, DeleteTopics([TopicRef("t")])).topics[0].error is ErrorCode.NONE
    rig.world.mark_for_deletion("u")
    rig.run()
    rig.forget()
    tick(rig, RETRY)
    assert (rig.commits(), rig.lines()) == ([], [])
    assert isinstance(rig.cluster.deletions_waiting["t"], Suspended)
    assert not retry_due(rig.cluster, rig.now_us), "nobody need look again"
    if isinstance(hold, SetMaintenance):
        rig.world.broker_down(1)
        rig.run()
        assert rig.stored("u", 0)[0] == 2, "it lives on"
        rig.world.broker_up(1)
        rig.run()
        leave(rig)
    else:
        do(rig, SetPause(False, "", "a"))
    check_gone(rig.world, rig, "t")
    check_gone(rig.world, rig, "u")


def test_a_deletion_under_way_goes_on_and_after_a_failover_it_waits() -> None:
    rig = active(1, 2, t=[[1, 2]], u=[[1, 2]])
    rig.hold_stops = True
    rig.world.mark_for_deletion("t")
    rig.run()
    enter(rig)
    assert rig.cluster.topics_deletion_started == {"t"}
    successor = MachineHarness(rig.world, epoch=2).failover()
    tick(successor, RETRY)
    assert isinstance(successor.cluster.deletions_ineligible["t"].reason, Suspended)
    assert successor.cluster.topics_deletion_started == set()
    successor.world.bounce(2)
    successor.run()
    assert "t" in successor.world.topics, "a broker that returns does not begin it either"
    leave(successor)
    check_gone(successor.world, successor, "t")


def test_a_deletion_under_way_ends_in_maintenance() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    rig.world.mark_for_deletion("t")
    rig.run()
    enter(rig)
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    check_gone(rig.world, rig, "t")


# --- pause, drains and moves -------------------------------------------------------------------------------


def test_paused_a_move_that_needs_another_leader_waits_for_its_end() -> None:
    rig = active(1, 2, t=[[1], [1, 2]])
    move(rig, {T: [2]})
    do(rig, SetPause(True, "network", "ann"))
    join(rig, [1, 2])
    assert rig.stored()[0] == 1
    assert reasons(rig) == (
        "it needs another leader, and elections are paused by ann: network (pctl maintenance resume ends that)",
    )
    move(rig, {("t", 1): [1]})
    check_moved(rig, ("t", 1), [1])
    do(rig, SetPause(False, "", "ann"))
    check_moved(rig, T, [2])
    assert rig.stored()[0] == 2


def test_a_move_ends_with_a_leader_that_is_not_drained() -> None:
    rig = active(1, 2, 3, 4, t=[[1, 2, 3], [1, 2]])
    do(rig, SetDrain(2, True, "disks", "ann"))
    move(rig, {T: [2, 3]})
    check_moved(rig, T, [2, 3])
    assert rig.stored()[0] == 3
    # Nobody else: it leads rather than nobody.
    move(rig, {("t", 1): [2]})
    assert rig.stored("t", 1)[0] == 2


def test_a_drained_leader_hands_over_when_a_move_brings_somebody() -> None:
    rig = active(1, 2, t=[[1]])
    do(rig, SetDrain(1, True, "disks", "ann"))
    move(rig, {T: [1, 2]})
    join(rig, [1, 2])
    check_moved(rig, T, [1, 2])
    assert rig.stored()[0] == 2


def test_the_timer_moves_what_somebody_else_can_lead_by_now_unless_paused() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.world.shrink_or_grow("t", 0, [1])
    rig.world.notify_isr(T)
    rig.run()
    assert list(do(rig, SetDrain(1, True, "disks", "ann")).remaining) == [T]
    join(rig, [1, 2])
    assert due(rig.cluster, rig.now_us)
    do(rig, SetPause(True, "r", "a"))
    tick(rig)
    assert rig.stored()[0] == 1
    do(rig, SetPause(False, "", "a"))
    assert rig.stored()[0] == 2
    tick(rig)
    assert not due(rig.cluster, rig.now_us)
    assert due(rig.cluster, rig.now_us + LOOK_EVERY_US)


def test_the_timer_moves_what_somebody_else_can_lead_by_now() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.world.shrink_or_grow("t", 0, [1])
    rig.world.notify_isr(T)
    rig.run()
    do(rig, SetDrain(1, True, "disks", "ann"))
    join(rig, [1, 2])
    tick(rig)
    assert rig.stored()[0] == 2


def test_new_replicas_avoid_drained_brokers_and_it_is_said_when_they_cannot() -> None:
    rig = active(1, 2, 3)
    do(rig, SetDrain(1, True, "disks", "ann"))
    wanted = [NewTopic("a", 6, 2), NewTopic("b", 3, 3), NewTopic("c", assignment={0: (1, 2)})]
    a, b, c = do(rig, CreateTopics(wanted)).topics
    assert {broker for ids in a.assignment.values() for broker in ids} == {2, 3}
    assert a.message == ""
    assert [ids[-1] for ids in b.assignment.values()] == [1, 1, 1]
    assert b.message == c.message == "it gets replicas on drained brokers: 1 (ann: disks)"
    assert rig.stored("c", 0)[0] == 2
    (refused,) = do(rig, CreateTopics([NewTopic("d", 1, 4)])).topics
    assert "must be from 1 to the number of brokers, 3" in refused.message


def test_the_last_that_may_lead_is_drained_only_by_force() -> None:
    rig = active(1, 2, t=[[1, 2]])
    assert do(rig, SetDrain(1, True, "r", "a")).error is ErrorCode.NONE
    refused = do(rig, SetDrain(2, True, "r", "a"))
    assert refused.error is ErrorCode.POLICY_VIOLATION
    assert "undrain another one first, or force it" in refused.message
    assert do(rig, SetDrain(1, True, "again", "a")).error is ErrorCode.NONE
    assert do(rig, SetDrain(2, True, "r", "a", force=True)).error is ErrorCode.NONE
    assert sorted(rig.cluster.maintenance.drained) == [1, 2]


@pytest.mark.parametrize(
    ("request_", "notified"),
    [
        (SetMaintenance(True, "", "a"), "must both be given"),
        (SetMaintenance(False, "", ""), "author: must be given"),
        (SetMaintenance(True, "x" * 1001, "a"), "reason: has 1001 characters, must have at most 1000"),
        (SetPause(True, "r", "a" * 201), "author: has 201 characters, must have at most 200"),
        # What is wrong with the request itself comes before what is wrong in the cluster.
        (SetDrain(9, True, "", "a"), "must both be given"),
    ],
)
def test_bad_requests(request_: Any, notified: str) -> None:
    rig = active(1)
    reply = do(rig, request_)
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert notified in reply.message
    assert rig.commits() == []
    assert not_controller(request_).error is ErrorCode.NOT_CONTROLLER


# --- by itself ---------------------------------------------------------------------------------------------


def test_it_is_entered_before_anything_is_elected_on_account_of_it() -> None:
    rig = cluster()
    rig.world.shrink_or_grow("t", 0, [1])
    rig.world.broker_down(1, 2)
    rig.run()
    assert rig.stored() == (-1, 1, [1]), "nothing uncleanly"
    first = rig.commits()[0].writes[0]
    assert isinstance(first, WriteNode)
    reason = (
        "2 of 4 brokers are gone (1, 2); 2 are too many (maintenance_offline_brokers_percentage = 50, "
        "maintenance_offline_brokers_min = 2)"
    )
    assert first == WriteNode(
        MAINTENANCE, Maintenance(entered=Attribution(reason, "controller 100"), automatic=True), None
    )
    assert records(rig) == [("maintenance", f"controller 100: {reason}")]
    assert "it ends automatically once enough brokers are back" in str(rig.cluster.maintenance.suspension)


@pytest.mark.parametrize(
    ("brokers", "gone", "percentage", "least", "enters"),
    [
        (4, 1, 50, 2, False),
        (4, 2, 50, 2, True),
        (5, 2, 50, 2, False),
        (5, 3, 50, 3, True),
        (6, 2, 50, 3, False),
        (6, 3, 50, 3, True),
        (4, 3, 50, 4, False),
        (4, 4, 0, 1, False),
        (4, 1, 1, 1, True),
        (4, 3, 100, 1, False),
        (4, 4, 100, 1, True),
    ],
)
def test_how_many_are_too_many(brokers: int, gone: int, percentage: int, least: int, enters: bool) -> None:
    settings = CoreSettings(
        maintenance_offline_brokers_percentage=percentage, maintenance_offline_brokers_min=least
    )
    rig = cluster(settings, brokers)
    lost = list(rig.world.brokers)[:gone]
    rig.world.broker_down(*lost[:-1])
    rig.run()
    rig.world.broker_down(lost[-1])
    rig.run()
    assert rig.cluster.maintenance.automatic is enters
    assert counted(rig, settings).gone == tuple(lost)
    # A controller that takes over only now comes to the same, where more than one topic names the brokers.
    rig.world.create_topic("u", {0: list(range(1, brokers + 1))})
    rig.world.nodes.pop(MAINTENANCE, None)
    assert (
        MachineHarness(rig.world, epoch=2, settings=settings).failover().cluster.maintenance.automatic
        is enters
    )


def test_it_is_left_by_itself_when_enough_are_back_for_long_enough() -> None:
    rig = cluster(brokers=6)
    rig.world.broker_down(1, 2, 6)
    rig.run()
    rig.world.broker_up(1)
    rig.run()
    tick(rig, seconds=60)
    assert rig.cluster.maintenance.automatic, "two thirds of too many are still gone"
    rig.world.broker_up(2)
    rig.run()
    tick(rig, seconds=9)
    assert rig.cluster.maintenance.automatic
    rig.world.bounce(2)
    rig.run()
    rig.world.broker_down(2)
    rig.run()
    rig.world.broker_up(2)
    rig.run()
    tick(rig, seconds=9)
    assert rig.cluster.maintenance.automatic, "who comes and goes does not end it"
    rig = MachineHarness(rig.world, epoch=2, settings=ITSELF).failover()
    assert rig.cluster.maintenance.automatic, "the next controller waits, too"
    tick(rig, seconds=11)
    assert rig.cluster.maintenance == Maintenance()
    assert records(rig)[-1] == ("left_maintenance", "controller 100: 5 of 6 brokers are there again")


def test_it_is_left_at_once_when_everybody_is_back() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    assert rig.cluster.maintenance.automatic
    rig.world.broker_up(1)
    rig.world.broker_up(2)
    rig.run()
    assert rig.cluster.maintenance == Maintenance()
    assert records(rig)[-1] == ("left_maintenance", "controller 100: 4 of 4 brokers are there again")
    rig.check_converged()


def test_it_ends_when_the_ones_that_are_gone_are_not_needed_any_more() -> None:
    """No broker changes, only what is assigned to them."""
    rig = cluster(brokers=4)
    rig.world.broker_down(2, 4)
    rig.run()
    assert rig.cluster.maintenance.automatic
    move(rig, {T: [1, 3], ("t", 1): [3, 1]})
    copy_all(rig)
    tick(rig)
    tick(rig, seconds=11)
    assert rig.cluster.maintenance == Maintenance()


def test_turned_off_meanwhile_it_ends() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    rig = MachineHarness(rig.world, epoch=2, settings=CoreSettings()).failover()
    assert rig.cluster.maintenance.automatic
    tick(rig, seconds=31)
    assert rig.cluster.maintenance.entered is None


def test_what_an_operator_entered_only_an_operator_leaves() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    enter(rig)
    rig.world.broker_up(1)
    rig.world.broker_up(2)
    rig.run()
    tick(rig, seconds=60)
    assert rig.cluster.maintenance == Maintenance(entered=Attribution("outage", "ann"))
    leave(rig)
    assert rig.cluster.maintenance == Maintenance()


def test_an_operator_who_leaves_it_accepts_those_gone_until_they_return() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    leave(rig)
    assert rig.cluster.maintenance == Maintenance(accepted=(1, 2))
    rig = MachineHarness(rig.world, epoch=2, settings=ITSELF).failover()
    assert rig.cluster.maintenance.entered is None
    rig.world.broker_down(3)
    rig.run()
    assert rig.cluster.maintenance.entered is None, "one more is not two"
    rig.world.broker_up(1)
    rig.world.broker_up(2)
    rig.run()
    assert rig.cluster.maintenance == Maintenance()
    rig.world.broker_down(1)
    rig.run()
    assert rig.cluster.maintenance.automatic


def test_of_those_accepted_who_has_returned_counts_when_it_goes_again() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    leave(rig)
    rig.world.broker_up(1)
    rig.run()
    assert rig.cluster.maintenance == Maintenance(accepted=(2,))


def test_turned_off_meanwhile_those_accepted_are_forgotten_as_they_return() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    leave(rig)
    assert rig.cluster.maintenance == Maintenance(accepted=(1, 2))
    rig.world.broker_up(1)
    rig.world.broker_up(2)
    rig = MachineHarness(rig.world, epoch=2, settings=CoreSettings()).failover()
    assert rig.cluster.maintenance == Maintenance()


@pytest.mark.parametrize(("gone", "which"), [(20, "19, 20)"), (21, "19, 20, ...)")])
def test_the_first_twenty_that_are_gone_are_named(gone: int, which: str) -> None:
    rig = cluster(brokers=25)
    rig.world.broker_down(*range(1, gone + 1))
    rig.run()
    assert rig.cluster.maintenance.entered is not None
    assert which in rig.cluster.maintenance.entered.reason


def test_an_end_that_cannot_be_written_is_recorded_and_tried_again() -> None:
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.run()
    rig.world.unreadable[MAINTENANCE] = "paused: expected object"
    rig.forget()
    rig.world.broker_up(1)
    rig.world.broker_up(2)
    rig.run()
    assert rig.cluster.maintenance.automatic
    why = [r.reason for r in rig.recorded(Rejection) if r.error == "CONFLICT"]
    assert why == [f"{MAINTENANCE}: paused: expected object"]
    del rig.world.unreadable[MAINTENANCE]
    tick(rig)
    assert rig.cluster.maintenance.entered is None


@pytest.mark.parametrize("fate", [Fate.LANDED, Fate.LOST])
def test_lost_answers_are_settled(fate: Fate) -> None:
    rig = cluster()
    fates = iter([fate])

    def of(commit: Commit) -> Fate:
        return next(fates, Fate.ANSWERED) if isinstance(commit.writes[0], WriteNode) else Fate.ANSWERED

    rig.fate = of
    rig.world.broker_down(1, 2)
    rig.run()
    assert rig.world.nodes[MAINTENANCE].value.automatic
    assert rig.cluster.maintenance.automatic
    assert [to for to, _ in records(rig)] == ["maintenance"]


def test_what_cannot_be_written_is_recorded_and_not_believed() -> None:
    rig = cluster()
    rig.world.put_node(MAINTENANCE, Maintenance())
    rig.world.unreadable[MAINTENANCE] = "paused: expected object"
    rig.world.broker_down(1, 2)
    rig.run()
    assert rig.cluster.maintenance == Maintenance()
    assert "CONFLICT" in rig.rejects()
    del rig.world.unreadable[MAINTENANCE]
    rig.world.broker_down(3)
    rig.run()
    assert rig.cluster.maintenance.automatic
    assert MAINTENANCE not in rig.cluster.problems


def test_pause_and_maintenance_are_apart() -> None:
    rig = cluster(CoreSettings())
    do(rig, SetPause(True, "network", "ann"))
    enter(rig)
    rig.world.broker_down(1)
    rig.run()
    leave(rig)
    assert rig.stored()[0] == -1, "still paused"
    enter(rig)
    do(rig, SetPause(False, "", "ann"))
    assert rig.stored()[0] == 2
    assert rig.cluster.maintenance.entered == Attribution("outage", "ann")


def test_what_an_operator_did_through_another_controller_meanwhile_is_kept() -> None:
    by_ann = Maintenance(entered=Attribution("outage", "ann"))
    rig = cluster()
    rig.world.broker_down(1, 2)
    rig.world.put_node(MAINTENANCE, by_ann)
    rig.run()
    assert rig.world.nodes[MAINTENANCE].value == rig.cluster.maintenance == by_ann
    other = cluster()
    other.world.broker_down(1, 2)
    other.run()
    assert other.cluster.maintenance.automatic
    other.world.put_node(MAINTENANCE, by_ann)
    other.world.broker_up(1)
    other.world.broker_up(2)
    other.run()
    tick(other, seconds=60)
    assert other.world.nodes[MAINTENANCE].value == by_ann


@pytest.mark.parametrize(
    ("gone", "limit", "accepted", "too_many", "healthy"),
    [
        ((1, 2), 2, (), True, False),
        ((1, 2), 2, (1,), False, False),
        ((1, 2), 3, (1,), False, True),
        ((1,), 2, (), False, False),
        ((1,), 3, (), False, True),
        ((1, 2), 0, (), False, True),
    ],
)
def test_how_many_are_too_many_and_how_few_are_well(
    gone: tuple[int, ...], limit: int, accepted: tuple[int, ...], too_many: bool, healthy: bool
) -> None:
    found = OfflineBrokers(10, gone, limit, accepted)
    assert (found.too_many, found.healthy) == (too_many, healthy)


@pytest.mark.parametrize(("accepted", "over"), [((1,), True), ((), False)])
def test_those_whose_absence_is_accepted_keep_nobody_in_the_mode(
    accepted: tuple[int, ...], over: bool
) -> None:
    rig = cluster()
    rig.world.broker_down(1)
    rig.run()
    rig.cluster.maintenance = Maintenance(entered=Attribution("", ""), automatic=True, accepted=accepted)
    rig.cluster.healthy_since_us = rig.now_us
    assert (rig.drive(ends) is not None) is over


def test_brokers_that_are_gone_keep_nobody_in_a_mode_that_is_not_wanted() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.world.broker_down(1)
    rig.run()
    found = counted(rig, CoreSettings())
    assert (found.gone, found.limit, found.healthy) == ((1,), 0, True)


ASSIGNED = st.lists(st.sampled_from(range(1, 7)), min_size=1, max_size=3, unique=True)


def test_who_was_there_before_a_move_counts_and_whom_it_adds_does_not() -> None:
    rig = MachineHarness.active(World(1, 2))
    rig.check_memory = lambda: None  # type: ignore[method-assign]
    for name in ("t", "u"):
        topic = Topic(name, "", 1, 0)
        topic.partitions[0] = Partition(topic, 0, (1, 9, 8), adding=(8,))
        rig.cluster.add_topic(topic)
    assert counted(rig, ITSELF).gone == (9,)


@given(st.lists(st.lists(st.tuples(ASSIGNED, st.integers(0, 2)), min_size=1, max_size=4), max_size=6))
def test_who_is_gone_does_not_depend_on_how_often_an_assignment_occurs(
    topics: list[list[tuple[list[int], int]]],
) -> None:
    """Brokers 1 and 2 are registered, 3 was. ``topics``: of each partition the assignment, and how many are in sync."""
    rig = MachineHarness.active(World(1, 2))
    # The world does not have what is added here.
    rig.check_memory = lambda: None  # type: ignore[method-assign]
    rig.cluster.registered_before.add(3)
    proven, named = set[int](), list[set[int]]()
    for name, partitions in enumerate(topics):
        topic = Topic(f"t{name}", "", 1, 0)
        rig.cluster.add_topic(topic)
        named.append(set())
        for number, (replicas, in_sync) in enumerate(partitions):
            partition = topic.partitions[number] = Partition(topic, number, interned(tuple(replicas)))
            partition.leadership = state(replicas[0], replicas[:in_sync], 0, 0) if in_sync else None
            named[-1].update(replicas)
            proven.update(set(replicas[:in_sync]) | (set(replicas) & {3}))
    twice = {b for b in range(1, 7) if sum(b in ids for ids in named) > 1}
    assert counted(rig, ITSELF).gone == tuple(sorted((proven | twice) - {1, 2}))
