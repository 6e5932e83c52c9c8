"""Controlled shutdown: reference section 6, its checks, steps and traces."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.effects import Commit
from controller.core.model import PartitionState, ReplicaState
from controller.core.records import BrokerChange
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import CancelShutdown
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state


def cluster(assignment: dict[int, list[int]], isr: list[int] | None = None) -> MachineHarness:
    """Partitions of one topic, each led by its first replica at leader epoch 5, on brokers 1 to 3."""
    world = World(1, 2, 3)
    world.create_topic("t", assignment)
    for number, replicas in assignment.items():
        world.put_state("t", number, state(replicas[0], isr or replicas, 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def leave(rig: MachineHarness, broker_id: int, broker_epoch: int | None = None) -> Any:
    epoch = rig.world.brokers[broker_id].epoch if broker_epoch is None else broker_epoch
    (answer,) = rig.ask(ControlledShutdown(broker_id, epoch))
    return answer


# --- the checks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker_id", "difference", "error"),
    [
        (1, 0, ErrorCode.NONE),
        (1, 1, ErrorCode.NONE),
        (1, -1, ErrorCode.STALE_BROKER_EPOCH),
        (9, 0, ErrorCode.BROKER_NOT_AVAILABLE),
        (-1, 0, ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_who_may_leave(broker_id: int, difference: int, error: ErrorCode) -> None:
    rig = cluster({0: [1, 2, 3]})
    answer = leave(rig, broker_id, rig.world.brokers[1].epoch + difference)
    assert answer.error is error
    assert (1 in rig.cluster.shutting_down) is (error is ErrorCode.NONE)
    assert error is ErrorCode.NONE or (error.name in rig.rejects() and rig.lines() == [])


@pytest.mark.parametrize(("broker_id", "error"), [(1, ErrorCode.NONE), (9, ErrorCode.BROKER_NOT_AVAILABLE)])
def test_a_request_of_an_old_version_has_no_epoch(broker_id: int, error: ErrorCode) -> None:
    (answer,) = cluster({0: [1, 2]}).ask(ControlledShutdown(broker_id, None))
    assert answer.error is error


def test_minus_one_is_no_epoch() -> None:
    assert leave(cluster({0: [1, 2]}), 1, -1).error is ErrorCode.STALE_BROKER_EPOCH


# --- the reference's traces, AR = ISR = [1, 2, 3], leader 1, leader epoch 5 ------------------------------


def test_the_leader_leaves_and_exits() -> None:
    rig = cluster({0: [1, 2, 3]})
    answer = leave(rig, 1)
    assert (answer.error, list(answer.remaining)) == (ErrorCode.NONE, [])
    assert rig.stored() == (2, 6, [2, 3])
    # Everybody hears, the leaving broker too (KAFKA-7482); it is not told to stop what it led.
    assert rig.lines("LISR") == [f"{b} LISR t-0 leader 2 epoch 6 isr [2, 3]" for b in (1, 2, 3)]
    assert rig.lines("SR") == []
    rig.check_converged()
    rig.forget()
    rig.world.broker_down(1)
    rig.run()
    assert rig.commits() == []
    assert rig.stored() == (2, 6, [2, 3])
    assert rig.cluster.shutting_down == set()
    rig.check_converged()


def test_a_follower_leaves() -> None:
    rig = cluster({0: [1, 2, 3]})
    assert list(leave(rig, 3).remaining) == []
    assert rig.stored() == (1, 6, [1, 2])
    assert rig.lines("LISR") == [f"{b} LISR t-0 leader 1 epoch 6 isr [1, 2]" for b in (1, 2)]
    assert rig.lines("SR") == ["3 SR t-0 epoch 6"]
    assert rig.partition().replica_state(3) is ReplicaState.OFFLINE
    assert rig.received[1].metadata[("t", 0)].offline_replicas == [3]
    rig.forget()
    rig.world.broker_down(3)
    rig.run()
    assert rig.commits() == []


def test_a_follower_stops_once_a_newer_leader_epoch_is_stored() -> None:
    """Brokers refuse a leader epoch that they know: told to stop at the stored one, nobody could tell it to go on."""
    rig = cluster({0: [1, 2, 3]})
    serial = rig.send(ControlledShutdown(3, None))
    while not rig.lines("SR"):
        assert rig.advance()
    assert rig.stored() == (1, 6, [1, 2])
    rig.run()
    assert rig.replies[serial].error is ErrorCode.NONE


# --- what cannot move ------------------------------------------------------------------------------------


def test_what_nobody_can_take_over_remains() -> None:
    rig = cluster({0: [1, 2], 1: [1, 3]}, isr=[1])
    rig.world.put_state("t", 1, state(1, [1, 3], 5, 8))
    rig = MachineHarness(rig.world, epoch=2).failover()
    rig.forget()
    answer = leave(rig, 1)
    assert (answer.error, list(answer.remaining)) == (ErrorCode.NONE, [("t", 0)])
    assert rig.stored("t", 0) == (1, 5, [1])
    assert rig.stored("t", 1) == (3, 6, [3])
    assert rig.partition("t", 0).state is PartitionState.ONLINE
    assert "ELECTION_FAILED" in rig.rejects()
    # A follower that joins is taken with the next attempt, which brokers make of themselves.
    (joined,) = rig.ask(rig.alter(1, rig.proposal([1, 2])))
    assert joined.partitions[0].error is ErrorCode.NONE
    assert list(leave(rig, 1).remaining) == []
    assert rig.stored("t", 0) == (2, 6, [2])


def test_single_replicas_are_left_alone_and_not_reported() -> None:
    rig = cluster({0: [1], 1: [2]})
    assert list(leave(rig, 1).remaining) == []
    assert rig.stored() == (1, 5, [1])
    assert rig.commits() == []
    assert rig.partition().state is PartitionState.ONLINE


def test_topics_being_deleted_and_partitions_without_leadership_are_left_alone() -> None:
    rig = cluster({0: [1, 2], 1: [1, 2]})
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    assert list(leave(rig, 1).remaining) == []
    assert rig.commits() == []
    rig.cluster.topics_to_delete.clear()
    rig.chronicle.forget()
    rig.partition("t", 1).leadership = None
    rig.partition("t", 1).state = PartitionState.NEW
    rig.chronicle.forget()
    assert list(leave(rig, 1).remaining) == []
    assert rig.stored("t", 0) == (2, 6, [2])
    assert rig.stored("t", 1) == (1, 5, [1, 2])


# --- afterwards ------------------------------------------------------------------------------------------


def test_a_leaving_broker_is_not_elected_and_does_not_join() -> None:
    rig = cluster({0: [2, 1], 1: [3, 1]})
    leave(rig, 1)
    assert rig.stored("t", 0) == (2, 6, [2])
    (answer,) = rig.ask(rig.alter(2, rig.proposal([2, 1])))
    assert answer.partitions[0].error is ErrorCode.INELIGIBLE_REPLICA
    rig.world.ask_preferred(("t", 0))
    rig.world.broker_down(2)
    rig.run()
    assert rig.stored("t", 0) == (-1, 7, [2])


@pytest.mark.parametrize("isr", [[1, 2, 3], [1, 2]], ids=["in sync", "out of sync"])
@pytest.mark.parametrize("undone_by", ["the next controller", "an operator"])
def test_a_shutdown_that_is_undone_leaves_nobody_stopped(isr: list[int], undone_by: str) -> None:
    rig = cluster({0: [1, 2, 3]}, isr=isr)
    leave(rig, 3)
    assert rig.stored()[2] == [1, 2]
    assert (("t", 0) in rig.received[3].replicas) is (3 not in isr)
    if undone_by == "an operator":
        (answer,) = rig.ask(CancelShutdown(3, -1))
        assert answer.error is ErrorCode.NONE
    else:
        told, rig = rig.received, MachineHarness(rig.world, epoch=2)
        rig.received = told
        rig.failover()
    assert rig.received[3].replicas.keys() == {("t", 0)}
    rig.check_converged()


def test_a_follower_that_its_leader_takes_out_of_sync_just_then_can_go_on() -> None:
    """The leader writes no new leader epoch: nobody could undo a stop."""
    rig = cluster({0: [1, 2, 3]})

    def meanwhile(_: Commit) -> Fate:
        rig.world.shrink_or_grow("t", 0, [1, 2])
        return Fate.ANSWERED

    rig.fate = meanwhile
    leave(rig, 3)
    assert rig.stored() == (1, 5, [1, 2])
    rig.ask(CancelShutdown(3, -1))
    assert rig.received[3].replicas.keys() == {("t", 0)}
    rig.check_converged()


def test_a_follower_that_is_out_of_sync_goes_on_and_stays_so() -> None:
    rig = cluster({0: [1, 2, 3]}, isr=[1, 2])
    leave(rig, 3)
    assert (rig.lines("LISR"), rig.lines("SR"), rig.commits()) == ([], [], [])
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2, 3])))
    assert answer.partitions[0].error is ErrorCode.INELIGIBLE_REPLICA


def test_a_follower_that_is_in_sync_needs_no_look_at_what_is_stored() -> None:
    rig = cluster({0: [1, 2, 3]})
    leave(rig, 3)
    assert "ReadStates" not in rig.reads()
    assert rig.stored() == (1, 6, [1, 2])


def test_a_follower_that_its_leader_added_a_moment_ago_leaves() -> None:
    rig = cluster({0: [1, 2, 3]}, isr=[1, 2])
    rig.world.shrink_or_grow("t", 0, [1, 2, 3])
    leave(rig, 3)
    assert rig.stored() == (1, 6, [1, 2])
    assert rig.lines("SR") == ["3 SR t-0 epoch 6"]


def test_coming_back_ends_it() -> None:
    rig = cluster({0: [1, 2]})
    leave(rig, 1)
    rig.world.bounce(1)
    rig.run()
    assert rig.cluster.shutting_down == set()
    (answer,) = rig.ask(rig.alter(2, rig.proposal([2, 1])))
    assert answer.partitions[0].error is ErrorCode.NONE
    rig.check_converged()


def test_asking_twice_says_it_once() -> None:
    rig = cluster({0: [1, 2, 3], 1: [2, 1, 3]})
    leave(rig, 1)
    said = [change for change in rig.recorded(BrokerChange) if change.to == "shutting_down"]
    assert [change.broker_id for change in said] == [1]
    rig.forget()
    assert leave(rig, 1).error is ErrorCode.NONE
    assert rig.commits() == []
    assert "shutting_down" not in repr(rig.batches)


def test_all_leave_one_after_the_other() -> None:
    """The last keeps what it leads: its clean return is worth more than an empty ISR."""
    rig = cluster({0: [1, 2, 3]})
    assert list(leave(rig, 1).remaining) == []
    assert list(leave(rig, 2).remaining) == []
    assert rig.stored() == (3, 7, [3])
    assert list(leave(rig, 3).remaining) == [("t", 0)]
    assert rig.stored() == (3, 7, [3])
    rig.check_converged()


@pytest.mark.parametrize("fates", [[Fate.LANDED], [Fate.LOST], [Fate.LOST, Fate.LANDED, Fate.LANDED]])
def test_lost_answers_change_nothing(fates: list[Fate]) -> None:
    rig = cluster({0: [1, 2, 3], 1: [2, 1, 3]})
    script = iter(fates)
    rig.fate = lambda _: next(script, Fate.ANSWERED)
    assert list(leave(rig, 1).remaining) == []
    assert rig.stored("t", 0) == (2, 6, [2, 3])
    assert rig.stored("t", 1) == (2, 6, [2, 3])
    rig.check_converged()


def test_the_reply_says_what_is_durable() -> None:
    """No reply before the new leaders are stored."""
    rig = cluster({0: [1, 2, 3]})
    rig.fate = lambda _: Fate.LOST
    answer = leave(rig, 1)
    assert list(answer.remaining) == [("t", 0)]
    assert rig.stored() == (1, 5, [1, 2, 3])
