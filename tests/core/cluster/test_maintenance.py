"""Drained brokers, paused elections, and the undo of a controlled shutdown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.core.cluster.maintenance import due, movable
from controller.core.events import Event, EventKind
from controller.core.handlers import not_controller
from controller.core.model import (
    Attribution,
    Freeze,
    Maintenance,
    PartitionState,
    ReplicaState,
    Suspension,
    SuspensionKind,
)
from controller.core.reassignment.concurrency import pending_reasons
from controller.core.records import BrokerChange
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import (
    AUTHOR_MAX,
    REASON_MAX,
    CancelShutdown,
    SetDrain,
    SetFreeze,
    SetMaintenance,
    SetPause,
    attribution_problem,
)
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.znode_paths import MAINTENANCE
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state

MARK = Attribution("new disks", "ann")


@pytest.mark.parametrize(
    ("paused", "entered", "kind", "automatic"),
    [
        (True, True, SuspensionKind.PAUSED, False),
        (True, False, SuspensionKind.PAUSED, False),
        (False, True, SuspensionKind.MAINTENANCE, True),
        (False, False, SuspensionKind.FROZEN, False),
    ],
)
def test_of_several_restrictions_the_widest_is_named_and_a_freeze_holds_beside_it(
    paused: bool, entered: bool, kind: SuspensionKind, automatic: bool
) -> None:
    freeze = Freeze("quiet", "ann", 1)
    restricted = Maintenance(MARK if paused else None, {}, MARK if entered else None, entered, (), freeze)
    found = restricted.suspension
    assert found is not None
    assert (found.kind, found.automatic) == (kind, automatic)
    assert restricted.frozen == Suspension(SuspensionKind.FROZEN, freeze)


def cluster(*assignments: list[int], isr: list[int] | None = None) -> MachineHarness:
    """Topic t on brokers 1 to 3, each partition led by its first replica at leader epoch 5."""
    world = World(1, 2, 3)
    world.create_topic("t", dict(enumerate(assignments)))
    for number, replicas in enumerate(assignments):
        world.put_state("t", number, state(replicas[0], isr or replicas, 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def ask(rig: MachineHarness, request: Any) -> Any:
    (reply,) = rig.ask(request)
    return reply


def drain(rig: MachineHarness, broker_id: int, drained: bool = True) -> Any:
    return ask(rig, SetDrain(broker_id, drained, MARK.reason, MARK.author))


def leaders(rig: MachineHarness) -> list[int]:
    return [s.leader for _, s in sorted(rig.world.states.items())]


# --- drain -------------------------------------------------------------------------------------------------


def test_a_drained_broker_leads_nothing_and_stays_in_sync() -> None:
    rig = cluster([1, 2, 3], [2, 1], [1, 3])
    assert drain(rig, 1).error is ErrorCode.NONE
    assert leaders(rig) == [2, 2, 3]
    assert rig.stored() == (2, 6, [1, 2, 3])
    assert rig.world.nodes[MAINTENANCE].value == Maintenance(None, {1: MARK})
    assert rig.recorded(BrokerChange)[0] == BrokerChange(1, "drained", reason="ann: new disks")
    rig.check_converged()


def test_it_is_kept_off_by_elections_creations_and_the_next_controller() -> None:
    rig = cluster([1, 2, 3], [3, 1, 2])
    drain(rig, 1)
    rig = MachineHarness(rig.world, epoch=2).failover()
    rig.world.broker_down(3)
    rig.world.create_topic("u", {0: [1, 2]})
    rig.run()
    assert leaders(rig) == [2, 2, 2]
    reply = ask(rig, ElectLeaders(ElectionType.PREFERRED, [("t", 0)]))
    assert reply.partitions[0].error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "1 is drained (ann: new disks)" in reply.partitions[0].message
    reply = ask(rig, ElectLeaders(ElectionType.CHOSEN, [("t", 0)], 1))
    assert reply.partitions[0].error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    rig.forget()
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    assert (rig.commits(), rig.rejects()) == ([], [])


def test_only_what_the_drained_broker_leads_remains() -> None:
    rig = cluster([1], [2, 1], [3])
    assert list(drain(rig, 1).remaining) == [("t", 0)]


def test_what_nobody_else_can_lead_stays_and_goes_when_somebody_can() -> None:
    rig = cluster([1, 2], isr=[1])
    assert list(drain(rig, 1).remaining) == [("t", 0)]
    assert rig.stored() == (1, 5, [1])
    rig.ask(rig.alter(1, rig.proposal([1, 2])))
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    assert rig.stored() == (2, 6, [1, 2])


def test_a_drained_broker_leads_rather_than_nobody() -> None:
    rig = cluster([2, 1])
    drain(rig, 1)
    rig.world.broker_down(2)
    rig.run()
    assert rig.stored() == (1, 6, [1])


def test_undrained_it_is_preferred_again() -> None:
    rig = cluster([1, 2])
    drain(rig, 1)
    assert drain(rig, 1, drained=False).error is ErrorCode.NONE
    assert rig.world.nodes[MAINTENANCE].value == Maintenance()
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    assert leaders(rig) == [1]


# --- pause -------------------------------------------------------------------------------------------------


def test_to_undrain_the_last_broker_that_may_lead_changes_nothing() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]})
    rig = MachineHarness.active(world)
    assert drain(rig, 1, drained=False).error is ErrorCode.NONE


def test_to_drain_again_whoever_is_drained_is_no_worse_than_it_was() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig = MachineHarness.active(world)
    assert drain(rig, 1).error is ErrorCode.NONE
    world.broker_down(2)
    rig.run()
    assert drain(rig, 1).error is ErrorCode.NONE


def test_paused_nobody_is_elected_until_resumed() -> None:
    rig = cluster([1, 2], [2, 1])
    assert ask(rig, SetPause(True, "network works", "ann")).error is ErrorCode.NONE
    rig.world.broker_down(1)
    rig.world.create_topic("u", {0: [2]})
    rig.run()
    assert rig.stored("t", 0) == (-1, 6, [2])
    assert rig.partition("t", 0).state is PartitionState.OFFLINE
    # What was led goes on, a new topic begins, and what an operator asks for is done.
    assert rig.stored("t", 1) == (2, 6, [2])
    assert rig.stored("u", 0)[0] == 2
    rig = MachineHarness(rig.world, epoch=2).failover()
    assert rig.stored("t", 0)[0] == -1
    assert ask(rig, SetPause(False, "", "bob")).error is ErrorCode.NONE
    assert rig.stored("t", 0) == (2, 7, [2])
    rig.check_converged()


def test_paused_an_operator_may_still_elect_and_leadership_does_not_return_by_itself() -> None:
    rig = cluster([1, 2])
    ask(rig, ElectLeaders(ElectionType.CHOSEN, [("t", 0)], 2))
    ask(rig, SetPause(True, "r", "a"))
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    assert leaders(rig) == [2]
    assert ask(rig, ElectLeaders(ElectionType.PREFERRED, [("t", 0)])).partitions[0].error is ErrorCode.NONE


# --- the znode ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (SetDrain(9, True, "r", "a"), ErrorCode.BROKER_NOT_AVAILABLE),
        (SetDrain(1, True, "", "a"), ErrorCode.INVALID_REQUEST),
        (SetDrain(1, False, "", " "), ErrorCode.INVALID_REQUEST),
        (SetPause(True, " ", "a"), ErrorCode.INVALID_REQUEST),
        (SetPause(False, "", ""), ErrorCode.INVALID_REQUEST),
        (SetDrain(9, False, "", "a"), ErrorCode.NONE),
        (CancelShutdown(9, -1), ErrorCode.BROKER_NOT_AVAILABLE),
        (CancelShutdown(1, 1), ErrorCode.STALE_BROKER_EPOCH),
        (CancelShutdown(1, -1), ErrorCode.NONE),
    ],
)
def test_who_is_refused(request_: Any, error: ErrorCode) -> None:
    rig = cluster([1, 2])
    reply = ask(rig, request_)
    assert reply.error is error
    assert bool(reply.message) is (error is not ErrorCode.NONE)
    assert rig.commits() == []
    assert not_controller(request_).error is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("fate", [Fate.LANDED, Fate.LOST])
def test_lost_answers_are_settled(fate: Fate) -> None:
    rig = cluster([1, 2])
    fates = iter([fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    assert drain(rig, 1).error is ErrorCode.NONE
    assert rig.world.nodes[MAINTENANCE].value.drained == {1: MARK}
    assert leaders(rig) == [2]


@pytest.mark.parametrize(
    "request_",
    [
        SetDrain(1, True, "r", "ann"),
        SetPause(True, "r", "ann"),
        SetMaintenance(True, "r", "ann"),
        SetFreeze(True, "r", "ann", 5),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_never_lands_is_not_believed_and_said(request_: Any) -> None:
    rig = cluster([1, 2])
    rig.fate = lambda _: Fate.LOST
    answer = ask(rig, request_)
    assert (answer.error, bool(answer.message)) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)
    assert rig.rejects() == ["UNKNOWN_SERVER_ERROR"]
    assert rig.cluster.maintenance == Maintenance()
    assert leaders(rig) == [1]


def test_a_drained_cluster_is_looked_at_from_the_moment_on_at_which_it_is_due() -> None:
    rig = cluster([1, 2])
    state = rig.cluster
    state.maintenance_check_us = 100
    assert not due(state, 100)
    state.maintenance = Maintenance(None, {1: MARK})
    assert [due(state, now_us) for now_us in (99, 100, 101)] == [False, True, True]
    # Also where the mode began by itself: it may end.
    state.maintenance = Maintenance(automatic=True)
    assert [due(state, now_us) for now_us in (99, 100)] == [False, True]


def test_an_unreadable_one_is_shown_and_not_overwritten() -> None:
    rig = cluster([1, 2])
    rig.world.put_node(MAINTENANCE, Maintenance())
    rig.world.unreadable[MAINTENANCE] = "paused: expected object"
    rig = MachineHarness(rig.world, epoch=2).failover()
    assert rig.cluster.problems[MAINTENANCE] == "paused: expected object"
    rig.world.unreadable[MAINTENANCE] = "paused: expected string"
    assert drain(rig, 1).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.cluster.problems[MAINTENANCE] == "paused: expected string"
    rig.world.unreadable[MAINTENANCE] = "paused: expected object"
    reply = drain(rig, 1)
    assert (reply.error, reply.message) == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{MAINTENANCE}: paused: expected object",
    )


# --- the undo of a controlled shutdown ----------------------------------------------------------------------


def test_a_broker_that_was_to_leave_stays() -> None:
    rig = cluster([1, 2], [2, 1], [1])
    ask(rig, ControlledShutdown(1, None))
    assert rig.partition("t", 1).replica_state(1) is ReplicaState.OFFLINE
    rig.forget()
    assert ask(rig, CancelShutdown(1, rig.world.brokers[1].epoch)).error is ErrorCode.NONE
    assert rig.cluster.shutting_down == set()
    assert rig.partition("t", 1).replica_state(1) is ReplicaState.ONLINE
    # Told of what it holds: it can follow, join the ISR and lead.
    assert "1 LISR t-1 leader 2 epoch 6 isr [2]" in rig.lines("LISR")
    rig.check_converged()
    (joined,) = rig.ask(rig.alter(2, rig.proposal([2, 1])))
    assert joined.partitions[0].error is ErrorCode.NONE
    rig.world.broker_down(2)
    rig.run()
    assert rig.stored("t", 0) == (1, 7, [1])
    # Asked again it changes nothing.
    rig.forget()
    assert ask(rig, CancelShutdown(1, -1)).error is ErrorCode.NONE
    assert (rig.commits(), rig.lines()) == ([], [])


def test_a_replica_on_a_failed_disk_does_not_come_back_with_its_broker() -> None:
    rig = cluster([1, 2], [1, 2])
    failed = rig.partition("t", 0)
    failed.set_states([1], ReplicaState.OFFLINE)
    rig.chronicle.forget()
    rig.cluster.offline_dirs[1] = {failed}
    rig.cluster.shutting_down.add(1)
    assert ask(rig, CancelShutdown(1, -1)).error is ErrorCode.NONE
    assert failed.replica_state(1) is ReplicaState.OFFLINE
    assert rig.partition("t", 1).replica_state(1) is ReplicaState.ONLINE


def test_nobody_takes_over_from_a_drained_broker_without_its_data() -> None:
    rig = cluster([1, 2])
    partition = rig.partition()
    rig.cluster.maintenance = Maintenance(None, {1: MARK})
    assert movable(rig.cluster, [partition]) == [partition]
    assert partition.leadership is not None
    partition.leadership = msgspec.structs.replace(partition.leadership, directories=(10, 20))
    rig.cluster.brokers[2] = msgspec.structs.replace(rig.cluster.brokers[2], directories=(21,))
    assert movable(rig.cluster, [partition]) == []


# --- freeze ------------------------------------------------------------------------------------------------


def freeze(rig: MachineHarness, frozen: bool = True) -> Any:
    return ask(rig, SetFreeze(frozen, MARK.reason, MARK.author, 5 * frozen))


def test_a_frozen_cluster_elects_for_availability_and_begins_nothing_else() -> None:
    rig = cluster([1, 2, 3], [2, 1])
    assert freeze(rig).error is ErrorCode.NONE
    assert rig.world.nodes[MAINTENANCE].value == Maintenance(freeze=Freeze(MARK.reason, MARK.author, 5))
    rig.world.broker_down(1)
    rig.run()
    assert leaders(rig) == [2, 2]
    rig.world.broker_up(1)
    rig.run()
    rig = MachineHarness(rig.world, epoch=2).failover()
    rig.world.put_state("t", 0, state(2, [1, 2, 3], 9, 12))
    rig = MachineHarness(rig.world, epoch=3).failover()
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    assert leaders(rig) == [2, 2], "no leadership returns"
    reply = ask(rig, AlterPartitionReassignments([PartitionReassignment("t", 1, (3, 2))]))
    assert [a.error for a in reply.partitions] == [ErrorCode.NONE]
    rig.world.mark_for_deletion("t")
    rig.run()
    assert rig.world.topics["t"].partitions[1] == (2, 1), "it waits"
    assert [str(r) for r in pending_reasons(rig.cluster, rig.machine.settings, rig.partition(number=1))] == [
        "the move to [3, 2] waits: frozen by ann: new disks (pctl unfreeze ends that)"
    ]
    assert ask(rig, SetFreeze(False, "", "bob")).error is ErrorCode.NONE
    assert "t" not in rig.world.topics


def test_a_freeze_lets_unclean_elections_by_configuration_pass() -> None:
    rig = cluster([1, 2], isr=[1])
    rig.world.configure("t", {"unclean.leader.election.enable": "true"})
    rig = MachineHarness(rig.world, epoch=2).failover()
    freeze(rig)
    rig.world.broker_down(1)
    rig.run()
    assert leaders(rig) == [2]


def test_what_is_frozen_waits_on_when_a_pause_ends() -> None:
    rig = cluster([1, 2])
    freeze(rig)
    ask(rig, SetPause(True, "r", "ann"))
    rig.world.mark_for_deletion("t")
    rig.run()
    ask(rig, SetPause(False, "r", "ann"))
    assert "t" in rig.world.topics
    assert "frozen by ann" in str(rig.cluster.deletions_waiting["t"])
    freeze(rig, False)
    assert "t" not in rig.world.topics


def test_a_freeze_needs_reason_author_and_end() -> None:
    rig = cluster([1, 2])
    for request in (
        SetFreeze(True, "", "ann", 5),
        SetFreeze(True, "why", "", 5),
        SetFreeze(True, "why", "ann"),
    ):
        assert ask(rig, request).error is ErrorCode.INVALID_REQUEST
    assert "reason" in ask(rig, SetFreeze(True, "", "ann")).message
    assert MAINTENANCE not in rig.world.nodes


def test_who_stays_after_all_keeps_deleting_what_is_to_be_deleted() -> None:
    rig = cluster([1, 2])
    rig.hold_stops = True
    rig.world.mark_for_deletion("t")
    rig.run()
    ask(rig, ControlledShutdown(2, rig.world.brokers[2].epoch))
    rig.forget()
    assert ask(rig, CancelShutdown(2, -1)).error is ErrorCode.NONE
    assert rig.rejects() == []
    assert rig.partition().replica_state(2) is ReplicaState.DELETION_STARTED


@pytest.mark.parametrize(
    ("reason", "author", "reason_needed", "named"),
    [
        ("", " ", False, "author: must be given"),
        ("", "ann", False, None),
        (" ", "ann", True, "reason and author: must both be given"),
        ("why", "\t", True, "reason and author: must both be given"),
        ("w" * (REASON_MAX + 1), "ann", True, f"reason: has {REASON_MAX + 1} characters"),
        ("why", "a" * (AUTHOR_MAX + 1), True, f"author: has {AUTHOR_MAX + 1} characters"),
        ("w" * REASON_MAX, "a" * AUTHOR_MAX, True, None),
    ],
)
def test_who_asks_and_why_is_a_text_of_limited_length(
    reason: str, author: str, reason_needed: bool, named: str | None
) -> None:
    problem = attribution_problem(reason, author, reason_needed=reason_needed)
    assert (problem is None) is (named is None)
    assert named is None or str(problem).startswith(named)
