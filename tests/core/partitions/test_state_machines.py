"""Both state machines: every (state, target) pair against tables typed out from the reference (4.1 and 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import msgspec
import pytest

from controller.core.context import EventContext, Pause
from controller.core.model import (
    RECOVERED,
    RECOVERING,
    LeaderAndIsr,
    Partition,
    PartitionState,
    ReplicaState,
)
from controller.core.partitions import (
    initial_state,
    leader_election,
    partition_state_machine,
    replica_state_machine,
)
from controller.core.reasons import NewerController, NoState
from controller.core.records import PartitionTransition, Rejection
from tests.support.core.harness import Fate, MachineHarness, bare, set_states
from tests.support.core.world import Key, World, state

P, R = PartitionState, ReplicaState

#: Reference 5.1: target, from which.
PARTITION_LEGAL = {
    (P.NON_EXISTENT, P.NEW),
    (P.NEW, P.ONLINE),
    (P.ONLINE, P.ONLINE),
    (P.OFFLINE, P.ONLINE),
    (P.NEW, P.OFFLINE),
    (P.ONLINE, P.OFFLINE),
    (P.OFFLINE, P.OFFLINE),
    (P.OFFLINE, P.NON_EXISTENT),
}
#: Reference 4.1, column 2.3 - 3.9.
REPLICA_LEGAL = {
    (R.NON_EXISTENT, R.NEW),
    (R.NEW, R.ONLINE),
    (R.ONLINE, R.ONLINE),
    (R.OFFLINE, R.ONLINE),
    (R.DELETION_INELIGIBLE, R.ONLINE),
    (R.NEW, R.OFFLINE),
    (R.ONLINE, R.OFFLINE),
    (R.OFFLINE, R.OFFLINE),
    (R.DELETION_INELIGIBLE, R.OFFLINE),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}


def move_partitions(rig: MachineHarness, partitions: list[Partition], target: PartitionState) -> None:
    if target is P.ONLINE:
        rig.drive(
            lambda context: partition_state_machine.to_online(context, partitions, leader_election.OFFLINE)
        )
        return
    reassignments: dict[PartitionState, Callable[[EventContext], None]] = {
        P.NEW: lambda context: partition_state_machine.to_new(context, partitions),
        P.OFFLINE: lambda context: partition_state_machine.to_offline(context, partitions, "test"),
        P.NON_EXISTENT: lambda context: partition_state_machine.to_non_existent(context, partitions),
    }
    rig.do(reassignments[target])


def move_replicas(rig: MachineHarness, replicas: list[tuple[Partition, int]], target: ReplicaState) -> None:
    if target is R.OFFLINE:
        rig.drive(lambda context: replica_state_machine.to_offline(context, replicas, "test"))
        return
    reassignments: dict[ReplicaState, Callable[[EventContext], None]] = {
        R.NEW: lambda context: replica_state_machine.to_new(context, replicas),
        R.ONLINE: lambda context: replica_state_machine.to_online(context, replicas, "test"),
        R.DELETION_STARTED: lambda context: replica_state_machine.to_deletion_started(context, replicas),
        R.DELETION_SUCCESSFUL: lambda context: replica_state_machine.to_deletion_successful(
            context, replicas
        ),
        R.DELETION_INELIGIBLE: lambda context: replica_state_machine.to_deletion_ineligible(
            context, replicas, "test"
        ),
        R.NON_EXISTENT: lambda context: replica_state_machine.to_non_existent(context, replicas),
    }
    rig.do(reassignments[target])


def pair(state_a: PartitionState, known: bool) -> MachineHarness:
    """t-0 in the state asked for; u-0 where any transition to Online is legal; brokers 1 and 2."""
    keys: dict[Key, list[int]] = {("t", 0): [1, 2], ("u", 0): [2, 1]}
    states = {("u", 0): state(2, [2, 1])}
    if known:
        states[("t", 0)] = state(1, [1, 2])
    rig = bare([1, 2], keys, states)
    set_states(rig, state_a, R.ONLINE)
    return rig


@pytest.mark.parametrize(("before", "target"), list(product(P, P)), ids=lambda s: s.name)
def test_partition_transitions(before: PartitionState, target: PartitionState) -> None:
    rig = pair(before, known=before is not P.NEW)
    partition = rig.partition()
    move_partitions(rig, [partition], target)
    legal = (before, target) in PARTITION_LEGAL
    assert partition.state is (target if legal else before)
    assert rig.rejects() == ([] if legal else ["ILLEGAL_TRANSITION"])
    if not legal:
        assert rig.commits() == []
        assert rig.lines() == []
        (refused,) = rig.recorded(Rejection)
        assert refused.partition is partition
        assert (refused.before, refused.after) == (before.value, target.value)


@pytest.mark.parametrize("target", P)
def test_legal_partitions_proceed_beside_illegal_ones(target: PartitionState) -> None:
    legal_from = next(before for before, to in PARTITION_LEGAL if to is target)
    illegal_from = next(before for before in P if (before, target) not in PARTITION_LEGAL)
    rig = pair(legal_from, known=legal_from is not P.NEW)
    if legal_from is P.NEW:
        rig.partition("u").leadership = None
        del rig.world.states[("u", 0)]
    good, bad = rig.partition("u"), rig.partition("t")
    bad.state = illegal_from
    move_partitions(rig, [bad, good], target)
    assert (good.state, bad.state) == (target, illegal_from)


@pytest.mark.parametrize(("before", "target"), list(product(R, R)), ids=lambda s: s.name)
@pytest.mark.parametrize("known", [False, True])
def test_replica_transitions(before: ReplicaState, target: ReplicaState, known: bool) -> None:
    rig = bare([1, 2, 3], {("t", 0): [1, 2]}, {("t", 0): state(1, [1, 2])} if known else {})
    partition = rig.partition()
    partition.set_states([2], before)
    move_replicas(rig, [(partition, 2)], target)
    legal = (before, target) in REPLICA_LEGAL
    assert partition.replica_state(2) is (target if legal else before)
    assert partition.replica_state(1) is R.NON_EXISTENT
    assert rig.rejects() == ([] if legal else ["ILLEGAL_TRANSITION"])
    if not legal:
        assert rig.commits() == []
        assert rig.lines() == []
        return
    assert sorted(line for line in rig.lines() if "UMR" not in line) == _effects(before, target, known)
    # Whatever is told as LeaderAndIsr is told everybody as metadata (section 9.1).
    if any("LISR" in line for line in rig.lines()):
        assert {line.split()[0] for line in rig.lines("UMR")} == {"1", "2", "3"}


def _effects(before: ReplicaState, target: ReplicaState, known: bool) -> list[str]:
    """Reference 4.3: what the brokers hear when replica 2 of [1, 2], led by 1, goes from one state to another."""
    if target is R.NEW and known:
        return ["2 LISR t-0 leader 1 epoch 0 isr [1, 2] new"]
    if target is R.ONLINE and known and before is not R.NEW:
        return ["2 LISR t-0 leader 1 epoch 0 isr [1, 2]"]
    if target is R.OFFLINE:
        # Its leader epoch is read when it is built: the one of the removal it belongs to.
        stop = f"2 SR t-0 epoch {1 if known else -1}"
        return ["1 LISR t-0 leader 1 epoch 1 isr [1]", stop] if known else [stop]
    if target is R.DELETION_STARTED:
        return [f"2 SR t-0 epoch {0 if known else -1} delete"]
    return []


def test_a_leader_cannot_be_a_new_replica() -> None:
    rig = bare([1], {("t", 0): [1]}, {("t", 0): state(1, [1])})
    move_replicas(rig, [(rig.partition(), 1)], R.NEW)
    assert rig.partition().replica_state(1) is R.NON_EXISTENT
    assert rig.lines() == []


def test_a_successful_replica_leaves_every_set_of_the_assignment() -> None:
    rig = bare([1], {("t", 0): [1, 2, 3]})
    rig.partition().assign((1, 2, 3), (2, 3), (1, 2))
    set_states(rig, P.ONLINE, R.DELETION_SUCCESSFUL)
    move_replicas(rig, [(rig.partition(), 2)], R.NON_EXISTENT)
    partition = rig.partition()
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 3), (3,), (1,))
    assert partition.replica_state(2) is R.NON_EXISTENT
    assert partition.replica_state(3) is R.DELETION_SUCCESSFUL


def test_offline_without_leadership_tells_the_broker_list() -> None:
    """KAFKA-6650: the replica goes Offline all the same, and an UpdateMetadata goes to all."""
    rig = bare([1, 2], {("t", 0): [1, 2]})
    set_states(rig, P.NEW, R.NEW)
    move_replicas(rig, [(rig.partition(), 2)], R.OFFLINE)
    assert rig.partition().replica_state(2) is R.OFFLINE
    assert rig.lines("UMR") == ["1 UMR brokers [1, 2]", "2 UMR brokers [1, 2]"]


def test_offline_of_a_deleting_topic_leaves_the_isr_but_tells_no_peer() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]}, {("t", 0): state(1, [1, 2])})
    set_states(rig, P.ONLINE, R.ONLINE)
    rig.cluster.topics_to_delete.add("t")
    move_replicas(rig, [(rig.partition(), 2)], R.OFFLINE)
    assert rig.stored() == (1, 1, [1])
    assert rig.lines() == ["2 SR t-0 epoch -2"]
    assert rig.partition().replica_state(2) is R.OFFLINE


def test_offline_of_a_replica_outside_the_isr_writes_nothing() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]}, {("t", 0): state(1, [1])})
    set_states(rig, P.ONLINE, R.ONLINE)
    move_replicas(rig, [(rig.partition(), 2)], R.OFFLINE)
    assert rig.partition().replica_state(2) is R.OFFLINE
    assert rig.commits() == []


def test_offline_without_a_state_znode_fails_and_keeps_the_replica_state() -> None:
    rig = bare(
        [1, 2], {("t", 0): [1, 2], ("u", 0): [1, 2]}, {("t", 0): state(1, [1, 2]), ("u", 0): state(1, [1, 2])}
    )
    set_states(rig, P.ONLINE, R.ONLINE)
    del rig.world.states[("t", 0)]
    move_replicas(rig, [(rig.partition("t"), 2), (rig.partition("u"), 2)], R.OFFLINE)
    assert rig.partition("t").replica_state(2) is R.ONLINE
    assert rig.partition("u").replica_state(2) is R.OFFLINE
    assert rig.stored("u") == (1, 1, [1])
    # Whoever is leaving stops, whatever is stored.
    assert [line.split()[2] for line in rig.lines("SR")] == ["t-0", "u-0"]


@pytest.mark.parametrize(
    ("isr", "leaving", "after"),
    [
        ([1, 2, 3], [1], (-1, 1, [2, 3])),
        ([1, 2, 3], [3], (1, 1, [1, 2])),
        ([1, 2, 3], [2, 3], (1, 1, [1])),
        ([1, 2, 3], [1, 2, 3], (-1, 1, [1, 2, 3])),
        ([1], [1], (-1, 1, [1])),
        ([1, 2], [1, 2, 3], (-1, 1, [1, 2])),
        ([2], [1], (-1, 1, [2])),
    ],
)
def test_replicas_that_go_together_leave_in_one_write(
    isr: list[int], leaving: list[int], after: tuple[int, int, list[int]]
) -> None:
    """Section 14, point 4, better than the original: one write, and the ISR of a wholly dead set is kept whole."""
    rig = bare([1, 2, 3, 4], {("t", 0): [1, 2, 3]}, {("t", 0): state(1, isr)})
    set_states(rig, P.ONLINE, R.ONLINE)
    for broker_id in leaving:
        del rig.cluster.brokers[broker_id]
    move_replicas(rig, [(rig.partition(), b) for b in leaving], R.OFFLINE)
    assert rig.stored() == after
    assert len(rig.commits()) == 1
    assert {rig.partition().replica_state(b) for b in leaving} == {R.OFFLINE}


def test_failed_partitions_keep_their_state_and_the_others_go_on() -> None:
    rig = bare([1], {("t", n): [1] for n in range(3)}, {("t", n): state(-1, [1]) for n in range(3)})
    set_states(rig, P.OFFLINE, R.ONLINE)
    del rig.world.states[("t", 1)]
    move_partitions(rig, list(rig.cluster.partitions()), P.ONLINE)
    assert [p.state for p in rig.cluster.partitions()] == [P.ONLINE, P.OFFLINE, P.ONLINE]


def test_to_online_answers_with_the_reason_of_each_failure() -> None:
    rig = bare([1], {("t", 0): [1, 2], ("u", 0): [2]}, {("t", 0): state(2, [2])})
    rig.partition("t").state, rig.partition("u").state = P.OFFLINE, P.NEW
    del rig.cluster.brokers[1]
    failed = rig.drive(
        lambda context: partition_state_machine.to_online(
            context, list(rig.cluster.partitions()), leader_election.OFFLINE
        )
    )
    assert set(failed) == set(rig.cluster.partitions())
    assert "not online" in str(failed[rig.partition("t")])
    assert "[2]" in str(failed[rig.partition("u")])
    assert rig.rejects() == ["ELECTION_FAILED", "ELECTION_FAILED"]


def test_a_partition_whose_state_is_gone_is_not_said_to_be_led() -> None:
    rig = bare([1], {("t", 0): [1]})
    set_states(rig, P.OFFLINE, R.ONLINE)
    failed = rig.drive(
        lambda context: partition_state_machine.to_online(context, [rig.partition()], leader_election.OFFLINE)
    )
    assert failed == {rig.partition(): NoState()}


def test_a_partition_of_a_newer_controller_is_not_said_to_be_led() -> None:
    newer = state(2, [1, 2], controller_epoch=9)
    rig = bare([1], {("t", 0): [1, 2]}, {("t", 0): newer})
    set_states(rig, P.OFFLINE, R.ONLINE)
    failed = rig.drive(
        lambda context: partition_state_machine.to_online(context, [rig.partition()], leader_election.OFFLINE)
    )
    why = NewerController(9, 1)
    assert failed == {rig.partition(): why}
    assert str(why) == "its state was written by controller epoch 9, newer than ours, 1"
    assert rig.commits() == []


def test_a_failed_removal_is_recorded_with_both_states() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]}, {("t", 0): state(1, [1, 2])})
    set_states(rig, P.ONLINE, R.ONLINE)
    del rig.world.states["t", 0]
    move_replicas(rig, [(rig.partition(), 2)], R.OFFLINE)
    (refused,) = rig.recorded(Rejection)
    assert (refused.error, refused.before, refused.after) == (
        "CONFLICT",
        R.ONLINE.value,
        R.OFFLINE.value,
    )


def test_replicas_without_leadership_come_online_and_nobody_is_told_who_leads() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]})
    set_states(rig, P.OFFLINE, R.OFFLINE)
    move_replicas(rig, [(rig.partition(), 1)], R.ONLINE)
    assert rig.partition().replica_state(1) is R.ONLINE
    assert rig.lines() == []


def test_a_creation_whose_writes_never_land_leaves_it_new() -> None:
    rig = bare([1], {("t", 0): [1]})
    set_states(rig, P.NEW, R.NEW)
    rig.fate = lambda _: Fate.LOST
    move_partitions(rig, [rig.partition()], P.ONLINE)
    assert rig.partition().state is P.NEW
    assert rig.lines() == []


def test_an_untracked_replica_may_become_new() -> None:
    """Reference 4.1: untracked replicas are NonExistent, hence New is legal; it must not end the term."""
    rig = bare([1, 2], {("t", 0): [1]})
    move_replicas(rig, [(rig.partition(), 2)], R.NEW)
    assert rig.partition().replica_state(2) is R.NEW
    assert rig.partition().replicas == (1, 2), "who is there already stays the preferred one"
    assert rig.rejects() == []


def test_illegal_moves_of_untracked_replicas_are_refused() -> None:
    rig = bare([1, 2], {("t", 0): [1]})
    for target in (R.ONLINE, R.OFFLINE, R.DELETION_STARTED, R.DELETION_SUCCESSFUL, R.NON_EXISTENT):
        move_replicas(rig, [(rig.partition(), 2)], target)
    assert [(r.error, r.before, r.after) for r in rig.recorded(Rejection)] == [
        ("ILLEGAL_TRANSITION", R.NON_EXISTENT.value, target.value)
        for target in (R.ONLINE, R.OFFLINE, R.DELETION_STARTED, R.DELETION_SUCCESSFUL, R.NON_EXISTENT)
    ]


# --- what is decided once for many ----------------------------------------------------------------------

ALIKE = [("t", 0), ("t", 1)]


def two(*states: LeaderAndIsr, replicas: Sequence[Sequence[int]] = ((1, 2, 3),) * 2) -> MachineHarness:
    """Two partitions on brokers 1 to 4, online."""
    rig = bare((1, 2, 3, 4), dict(zip(ALIKE, replicas, strict=True)), dict(zip(ALIKE, states, strict=True)))
    set_states(rig, P.ONLINE, R.ONLINE)
    return rig


def elected(rig: MachineHarness, kind: leader_election.ElectionKind) -> list[tuple[int, int]]:
    """Leader and recovery state of both."""
    partitions = list(rig.cluster.partitions())
    assert rig.drive(lambda context: partition_state_machine.to_online(context, partitions, kind)) == {}
    return [(found.leader, found.recovery) for key in ALIKE if (found := rig.world.states[key])]


def test_partitions_that_give_up_different_replicas_elect_different_leaders() -> None:
    rig = two(state(1, (1, 2, 3)), state(1, (1, 2, 3)))
    for key, removing in zip(ALIKE, ((1,), (1, 2)), strict=True):
        partition = rig.partition(*key)
        partition.assign(partition.replicas, (), removing)
    assert [leader for leader, _ in elected(rig, leader_election.REASSIGN)] == [2, 3]


def test_what_recovers_goes_on_recovering_and_nothing_else_does() -> None:
    rig = two(state(-1, (2,)), state(-1, (2,), recovery=RECOVERING))
    assert elected(rig, leader_election.OFFLINE) == [(2, RECOVERED), (2, RECOVERING)]


def test_members_of_other_directories_are_other_members() -> None:
    known = [msgspec.structs.replace(state(-1, (1, 2)), directories=(d, 20)) for d in (11, 10)]
    rig = two(*known)
    rig.cluster.brokers[1] = msgspec.structs.replace(rig.cluster.brokers[1], directories=(11,))
    assert [leader for leader, _ in elected(rig, leader_election.OFFLINE)] == [1, 2]


def to_offline(rig: MachineHarness, *leaving: int) -> list[tuple[int, list[int]]]:
    replicas = [(rig.partition(*key), broker) for key, broker in zip(ALIKE, leaving, strict=True)]
    rig.drive(lambda context: replica_state_machine.to_offline(context, replicas, "test"))
    return [(rig.stored(*key)[0], rig.stored(*key)[2]) for key in ALIKE]


def test_partitions_that_lose_different_replicas_keep_different_isrs() -> None:
    rig = two(state(1, (1, 2, 3)), state(1, (1, 2, 3)))
    assert to_offline(rig, 2, 3) == [(1, [1, 3]), (1, [1, 2])]


def test_a_member_that_is_not_assigned_keeps_no_isr_of_its_own() -> None:
    rig = two(state(1, (1, 3)), state(1, (1, 3)), replicas=((1, 2, 3), (1, 2)))
    assert to_offline(rig, 1, 1) == [(-1, [3]), (-1, [1, 3])]


def test_who_registers_is_told_all_as_its_whole_state() -> None:
    """What it has kept may be compared instead."""
    rig = two(state(1, (1, 2, 3)), state(1, (1, 2, 3)))
    rig.slow = {1, 2, 3, 4}
    partitions = list(rig.cluster.partitions())
    for registered in (True, False):
        replicas = [(partition, 2 if registered else 3) for partition in partitions]
        rig.do(
            lambda context, replicas=replicas, registered=registered: replica_state_machine.to_online(  # type: ignore[misc]
                context, replicas, "test", registered=registered
            )
        )
    queues = rig.machine.outbox.queues
    assert (list(queues[2].whole), list(queues[3].whole)) == (partitions, [])


def test_at_startup_a_replica_on_a_failed_disk_is_offline() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]}, {("t", 0): state(2, [2])})
    rig.cluster.offline_dirs[1] = {rig.partition()}
    rig.drive(lambda context: replica_state_machine.startup(context, [rig.partition()]))
    assert [rig.partition().replica_state(b) for b in (1, 2)] == [R.OFFLINE, R.ONLINE]


# --- what is recorded, and who is passed over -------------------------------------------------------------


def test_a_partition_that_nobody_has_led_goes_offline_whoever_was_silent() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]})
    set_states(rig, P.NEW, R.NEW)
    rig.do(lambda context: partition_state_machine.to_offline(context, [rig.partition()], "test", {1: 7}))
    (record,) = rig.recorded(PartitionTransition)
    assert (record.after, record.leadership, record.silent_us) == (P.OFFLINE, None, None)


def test_the_record_of_a_partition_that_is_new_or_found_has_its_replicas_and_no_other() -> None:
    world = World(1)
    world.create_topic("t", {0: [1], 1: [2, 3]})
    rig = MachineHarness.active(world)
    found = [(r.partition.number, r.before, r.after, r.replicas) for r in rig.recorded(PartitionTransition)]
    assert found == [
        (0, P.NON_EXISTENT, P.NEW, (1,)),
        (1, P.NON_EXISTENT, P.NEW, (2, 3)),
        (0, P.NEW, P.ONLINE, None),
    ]
    rig.forget()
    world.create_topic("u", {0: [1, 2]})
    rig.run()
    assert [(r.after, r.replicas) for r in rig.recorded(PartitionTransition)] == [
        (P.NEW, (1, 2)),
        (P.ONLINE, None),
    ]


def test_a_failed_election_is_recorded_with_both_states() -> None:
    rig = bare([2], {("t", 0): [1, 2]}, {("t", 0): state(1, [1])})
    set_states(rig, P.OFFLINE, R.ONLINE)
    move_partitions(rig, [rig.partition()], P.ONLINE)
    (refused,) = rig.recorded(Rejection)
    assert (refused.error, refused.before, refused.after) == (
        "ELECTION_FAILED",
        "OfflinePartition",
        "OnlinePartition",
    )


def test_an_election_reads_the_state_of_a_partition_that_is_not_known_yet() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]})
    rig.world.put_state("t", 0, state(1, [1, 2], 5, 7))
    set_states(rig, P.OFFLINE, R.ONLINE)
    move_partitions(rig, [rig.partition()], P.ONLINE)
    assert rig.partition().leadership == rig.world.states["t", 0]
    assert rig.partition().state is P.ONLINE


def elect_from_live_isr(rig: MachineHarness) -> None:
    rig.drive(partition_state_machine.elect_from_live_isr)


def test_one_live_member_of_the_isr_is_enough_to_be_tried() -> None:
    rig = bare([2, 3], {("t", 0): [1, 2, 3]}, {("t", 0): state(-1, [1, 2])})
    set_states(rig, P.OFFLINE, R.ONLINE)
    elect_from_live_isr(rig)
    assert rig.stored() == (2, 1, [2])


@pytest.mark.parametrize("known", [state(-1, [1]), state(-1, [2], controller_epoch=9), None])
def test_without_a_live_member_or_of_a_newer_controller_none_is_tried(known: LeaderAndIsr | None) -> None:
    rig = bare([2, 3], {("t", 0): [1, 2, 3]}, {("t", 0): known} if known else {})
    set_states(rig, P.OFFLINE, R.ONLINE)
    elect_from_live_isr(rig)
    assert (rig.commits(), rig.rejects()) == ([], [])


def test_of_partitions_whose_leader_has_left_those_under_deletion_stay_as_they_are() -> None:
    none = state(-1, [1])
    rig = bare([2], {("t", 0): [1, 2], ("u", 0): [1, 2]}, {("t", 0): none, ("u", 0): none})
    set_states(rig, P.ONLINE, R.ONLINE)
    rig.cluster.topics_to_delete.add("u")
    elect_from_live_isr(rig)
    assert (rig.partition("t").state, rig.partition("u").state) == (P.OFFLINE, P.ONLINE)


def test_a_partition_led_from_a_failed_disk_is_offline_at_startup() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]}, {("t", 0): state(1, [1])})
    rig.cluster.offline_dirs[1] = {rig.partition()}
    rig.drive(lambda context: partition_state_machine.startup(context, [rig.partition()]))
    assert rig.partition().state is P.OFFLINE


def test_a_leader_that_was_to_be_new_is_refused_and_those_after_it_are_not() -> None:
    keys: dict[Key, list[int]] = {("t", 0): [1, 2], ("u", 0): [1, 2]}
    rig = bare([1, 2], keys, {("t", 0): state(1, [1]), ("u", 0): state(2, [2])})
    move_replicas(rig, [(rig.partition("t"), 1), (rig.partition("u"), 1)], R.NEW)
    (refused,) = rig.recorded(Rejection)
    assert (refused.error, refused.before, refused.after) == (
        "ILLEGAL_TRANSITION",
        R.NON_EXISTENT.value,
        R.NEW.value,
    )
    assert refused.partition is rig.partition("t")
    assert rig.partition("u").replica_state(1) is R.NEW


def test_what_counted_as_deleted_is_to_be_deleted_again_and_nothing_else_is() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]})
    rig.partition().set_states([1], R.DELETION_SUCCESSFUL)
    rig.partition().set_states([2], R.DELETION_STARTED)
    both = [(rig.partition(), 1), (rig.partition(), 2)]
    rig.do(lambda context: replica_state_machine.to_undeleted(context, both, "its broker is back"))
    assert rig.partition().states_by_broker() == {1: R.DELETION_INELIGIBLE, 2: R.DELETION_STARTED}


def test_of_many_that_end_each_leaves_its_assignment() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2], ("u", 0): [1, 2]})
    departing, assigned = rig.partition("t"), rig.partition("u")
    departing.set_departing({7: R.DELETION_SUCCESSFUL})
    assigned.set_states([1], R.DELETION_SUCCESSFUL)
    move_replicas(rig, [(departing, 7), (assigned, 1)], R.NON_EXISTENT)
    assert (departing.replicas, dict(departing.departing), assigned.replicas) == ((1, 2), {}, (2,))


def test_few_batches_of_first_states_are_on_their_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_state, "BATCH_CREATES", 1)
    monkeypatch.setattr(initial_state, "WINDOW_BATCHES", 3)
    rig = bare([1], {("t", n): [1] for n in range(8)})
    set_states(rig, P.NEW, R.NEW)
    waiting: list[int] = []

    def noting(count: int) -> int:
        waiting.append(count)
        return 0

    rig.pick = noting
    found = rig.pauses(
        lambda context: partition_state_machine.to_online(
            context, list(rig.cluster.partitions()), leader_election.OFFLINE
        )
    )
    assert waiting == [3] * 6 + [2, 1]
    assert found[:4] == [Pause.YIELD] * 3 + [Pause.WAIT]


def test_a_replica_of_a_partition_without_a_state_goes_offline_without_a_look_for_one() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]})
    set_states(rig, PartitionState.NEW, ReplicaState.ONLINE)
    gone = [(rig.partition(), 2)]
    assert rig.drive(lambda context: replica_state_machine.to_offline(context, gone, "gone")) == {}
    assert rig.partition().replica_state(2) is ReplicaState.OFFLINE
    assert rig.reads() == []


def test_of_a_partition_without_a_state_nobody_is_told_anything() -> None:
    rig = bare([1, 2], {("t", 0): [1, 2]})
    set_states(rig, PartitionState.NEW, ReplicaState.OFFLINE)
    rig.drain()
    rig.forget()
    back = [(rig.partition(), 2)]
    rig.do(lambda context: replica_state_machine.to_online(context, back, "back"))
    assert rig.partition().replica_state(2) is ReplicaState.ONLINE
    assert rig.sent == []
