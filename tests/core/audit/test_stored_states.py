"""Partition states that somebody else wrote: taken over and confirmed, or put right (docs/adr/0016)."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.audit.stored_states import RESERVE
from controller.core.effects import Commit, CreateState, SetState
from controller.core.events import StatesCheck
from controller.core.handlers import event_of
from controller.core.model import (
    EPOCH_MAX,
    RECOVERED,
    RECOVERING,
    Attribution,
    LeaderAndIsr,
    Maintenance,
    PartitionState,
    ReplicaState,
)
from controller.core.records import AuditFinding, LeadershipChange, PartitionTransition, Rejection
from controller.core.requests.operator import SetPause
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import DeleteTopics, TopicRef
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state

PATH = "/brokers/topics/t/partitions/0/state"


def cluster(*live: int, recovery: int = RECOVERED) -> MachineHarness:
    """t-0 on brokers 1 to 3, led by 1 at leader epoch 5, version 7."""
    world = World(*(live or (1, 2, 3)))
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(1, [1, 2, 3], 5, 7, recovery=recovery))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def edit(rig: MachineHarness, new: LeaderAndIsr) -> None:
    rig.world.edited.add(("t", 0))
    rig.world.put_state("t", 0, new)


def check(rig: MachineHarness) -> None:
    rig.world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
    rig.run()


def findings(rig: MachineHarness) -> list[tuple[int | None, str]]:
    return [(f.broker_id, f.to) for f in rig.recorded(AuditFinding)]


def test_what_agrees_is_left_alone() -> None:
    rig = cluster()
    check(rig)
    assert (rig.lines(), rig.commits(), findings(rig)) == ([], [], [])


def test_of_a_topic_that_is_gone_nothing_is_looked_at() -> None:
    rig = cluster()
    former = rig.partition()
    rig.world.delete_topic("t")
    rig.run()
    rig.forget()
    rig.world.events.append(event_of(StatesCheck([former]), 10**7))
    rig.run()
    assert (rig.rejects(), rig.commits(), findings(rig)) == ([], [], [])


@pytest.mark.parametrize(
    "edited",
    [
        state(3, [3, 1], 9, 8),  # another leader under a higher epoch
        state(3, [3, 1], 5, 8),  # ... under the same epoch, which brokers would refuse
        state(3, [3, 1, 4], 9, 8),  # ... and a replica that was moved away and is not deleted yet
    ],
)
def test_an_edit_is_taken_over_above_both_leader_epochs(edited: LeaderAndIsr) -> None:
    rig = cluster()
    rig.partition().set_departing({4: ReplicaState.OFFLINE})
    edit(rig, edited)
    check(rig)
    assert rig.stored() == (edited.leader, max(5, edited.leader_epoch) + 1, list(edited.isr))
    assert rig.partition().leadership == rig.world.states[("t", 0)]
    assert findings(rig) == [(None, "taken_over")]
    told = {line.split()[0] for line in rig.lines("LISR")}
    assert told == {"1", "2", "3"}
    assert [c.new.leader for c in rig.recorded(LeadershipChange)] == [edited.leader] * 2


def test_a_state_as_it_was_before_is_written_over() -> None:
    """4 and 3 were in sync then: they may lack what was acknowledged since."""
    rig = cluster()
    rig.partition().set_departing({4: ReplicaState.OFFLINE})
    edit(rig, state(3, [3, 4], 4, 8))
    check(rig)
    assert (rig.stored(), findings(rig)) == ((1, 6, [1, 2, 3]), [(None, "put_right")])
    assert {line.split()[0] for line in rig.lines("LISR")} == {"1", "2", "3"}
    rig.check_converged()


@pytest.mark.parametrize(("epoch", "kept"), [(5, [2]), (0, [1, 2, 3])])
def test_of_versions_that_start_again_it_is_said_what_brokers_do(epoch: int, kept: list[int]) -> None:
    rig = cluster()
    rig.slow = {1, 2, 3}
    edit(rig, state(2, [2], epoch, 0))
    check(rig)
    assert rig.stored() == (kept[0], 6, kept)
    (finding,) = rig.recorded(AuditFinding)
    assert "until it is raised above that" in finding.reason


def test_an_isr_under_an_older_version_is_not_one_that_the_leader_wrote() -> None:
    """Brokers skip a version below the one they know: only a new leader epoch makes them take it."""
    rig = cluster()
    rig.slow = {1, 2, 3}
    edit(rig, state(1, [1, 2], 5, 0))
    check(rig)
    assert (rig.stored(), findings(rig)) == ((1, 6, [1, 2]), [(None, "taken_over")])


def test_the_isr_that_a_leader_wrote_itself_costs_no_leader_epoch() -> None:
    rig = cluster()
    rig.world.put_state("t", 0, state(1, [1, 2], 5, 8))
    check(rig)
    assert (rig.stored(), findings(rig), rig.commits()) == ((1, 5, [1, 2]), [], [])
    assert {line.split()[1] for line in rig.lines()} == {"UMR"}
    rig.check_converged()


def test_a_leader_that_ends_its_recovery_itself_costs_no_leader_epoch_either() -> None:
    rig = cluster()
    rig.world.put_state("t", 0, state(1, [1], 5, 8, recovery=RECOVERING))
    rig = MachineHarness(rig.world, epoch=2).failover()
    rig.forget()
    held = rig.world.states[("t", 0)]
    rig.world.put_state("t", 0, state(1, [1, 2], held.leader_epoch, held.partition_epoch + 1))
    check(rig)
    assert (rig.stored(), findings(rig)) == ((1, held.leader_epoch, [1, 2]), [])


@pytest.mark.parametrize(
    "edited",
    [state(9, [9], 6, 8), state(2, [1, 3], 6, 8), state(1, [], 6, 8)],
    ids=["not assigned", "leader outside the ISR", "empty ISR"],
)
def test_what_makes_no_sense_is_put_right_from_memory(edited: LeaderAndIsr) -> None:
    rig = cluster()
    edit(rig, edited)
    check(rig)
    assert rig.stored() == (1, max(6, edited.leader_epoch + 1), [1, 2, 3])
    assert findings(rig) == [(None, "put_right")]
    assert rig.partition().leadership == rig.world.states[("t", 0)]
    rig.check_converged()


@pytest.mark.parametrize("epoch", [EPOCH_MAX, EPOCH_MAX - RESERVE + 1])
def test_an_epoch_that_leaves_none_for_elections_is_put_right(epoch: int) -> None:
    rig = cluster()
    edit(rig, state(2, [2, 3], epoch, 8))
    check(rig)
    assert (rig.stored(), findings(rig)) == ((1, 6, [1, 2, 3]), [(None, "put_right")])
    rig.check_converged()


def test_nothing_is_written_beyond_the_highest_epoch() -> None:
    """A controller that finds it in ZooKeeper has no other."""
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, highest := state(1, [1, 2, 3], EPOCH_MAX, 7))
    rig = MachineHarness.active(world)
    world.broker_down(1)
    rig.run()
    edit(rig, state(2, [3, 9], 5, 8))
    check(rig)
    assert rig.partition().leadership == highest
    refused = [r.reason for r in rig.recorded(Rejection) if "leader epoch is 2147483646" in r.reason]
    assert len(refused) >= 2


def test_what_does_not_decode_is_put_right_and_no_problem_any_more() -> None:
    rig = cluster()
    rig.world.put_state("t", 0, state(1, [1, 2, 3], 5, 8))
    rig.world.unreadable[PATH] = "field isr: expected array"
    check(rig)
    assert rig.stored() == (1, 6, [1, 2, 3])
    assert (rig.cluster.problems, findings(rig)) == ({}, [(None, "put_right")])
    rig.check_converged()


def test_one_that_cannot_be_read_is_reported_and_left_alone() -> None:
    """Without its version nothing may be written over it."""
    rig = cluster()
    del rig.world.states["t", 0]
    rig.world.unreadable[PATH] = "no access"
    check(rig)
    assert rig.cluster.problems == {PATH: "no access"}
    assert rig.commits() == []


def test_an_edit_that_names_a_dead_leader_ends_in_an_election() -> None:
    rig = cluster(1, 2)
    edit(rig, state(3, [3, 2], 6, 8))
    check(rig)
    leader, epoch, isr = rig.stored()
    assert (leader, isr) == (2, [2])
    assert epoch > 6
    assert rig.partition().state is PartitionState.ONLINE


def test_a_pause_elects_nobody() -> None:
    rig = cluster(1, 2)
    rig.ask(SetPause(True, "test", "me"))
    edit(rig, state(3, [3, 2], 6, 8))
    check(rig)
    assert rig.stored()[0] == 3
    assert rig.partition().state is PartitionState.OFFLINE


def test_a_deleted_state_is_reported_and_not_made_again() -> None:
    rig = cluster()
    del rig.world.states[("t", 0)]
    check(rig)
    assert rig.rejects() == ["STATE_GONE"]
    held = "leader 1, leader epoch 5, ISR [1, 2, 3], version 7"
    again = f"somebody deleted it: create it again ({held}), or delete the topic"
    assert rig.cluster.problems == {PATH: again}
    assert rig.commits() == []
    rig.world.put_state("t", 0, state(1, [1, 2, 3], 5, 7))
    check(rig)
    assert rig.cluster.problems == {}, "it is back as it was"
    check(rig)
    assert rig.rejects() == ["STATE_GONE"]


def test_of_a_deleted_state_that_is_created_again_the_isr_elects() -> None:
    rig = cluster()
    del rig.world.states[("t", 0)]
    check(rig)
    rig.world.broker_down(1)
    rig.run()
    assert rig.partition().state is PartitionState.OFFLINE
    rig.slow = {2, 3}
    edit(rig, state(1, [1, 2, 3], 5, 0))
    check(rig)
    assert rig.stored() == (2, 7, [2, 3])
    assert rig.cluster.problems == {}


def test_what_is_moved_while_its_state_is_deleted_is_taken_back_before_its_topic_is_deleted() -> None:
    """The move waits for an ISR that nobody writes any more, and a deletion waits for the move."""
    rig = cluster()
    rig.world.broker_up(4)
    rig.run()
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, (2, 3, 4))]))
    del rig.world.states[("t", 0)]
    check(rig)
    cancel = "pctl reassign cancel --topic t --partition 0"
    assert rig.cluster.problems[PATH].endswith(f"), or {cancel}, then delete the topic")
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, None)]))
    rig.ask(DeleteTopics([TopicRef("t")]))
    rig.run()
    assert "t" not in rig.world.topics
    assert rig.cluster.problems == {}


def test_what_is_put_right_names_the_directories_that_it_did_not_name() -> None:
    world = World()
    for broker_id in (1, 2, 3):
        world.broker_up(broker_id, directories=(10 * broker_id,))
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(1, [1, 2], 5, 7))
    rig = MachineHarness.active(world)
    rig.world.unreadable[PATH] = "field isr: expected array"
    check(rig)
    assert rig.world.states["t", 0].directories == (10, 20)


def unread_at_a_failover() -> MachineHarness:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(1, [1, 2, 3], 5, 7))
    world.unreadable[PATH] = "leader: expected int"
    return MachineHarness.active(world)


def test_a_state_that_a_failover_could_not_read_is_adopted_once_it_is_mended() -> None:
    rig = unread_at_a_failover()
    check(rig)
    assert rig.partition().leadership is None
    del rig.world.unreadable[PATH]
    check(rig)
    assert rig.partition().state is PartitionState.ONLINE
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_one_that_a_failover_could_not_read_is_not_made_anew_once_it_is_deleted() -> None:
    rig = unread_at_a_failover()
    del rig.world.unreadable[PATH], rig.world.states[("t", 0)]
    rig.forget()
    check(rig)
    assert rig.partition().leadership is None
    assert rig.commits() == []


def test_a_leader_that_somebody_takes_away_as_its_proposal_is_written_is_replaced() -> None:
    """The proposal is refused, and nothing else is decided."""
    rig = cluster()
    rig.world.edited.add(("t", 0))
    edits = iter([state(-1, [1, 2], 6, 8)])

    def fate(_: Commit) -> Fate:
        for edited in edits:
            rig.world.put_state("t", 0, edited)
            rig.world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
        return Fate.ANSWERED

    rig.fate = fate
    rig.ask(rig.alter(1, rig.proposal([1, 2])))
    assert rig.stored() == (1, 7, [1, 2])
    rig.check_converged()


def test_a_creation_that_was_given_up_is_tried_again() -> None:
    rig = MachineHarness.active(World(1, 2, 3))
    rig.world.create_topic("t", {0: [1, 2, 3]})
    rig.fate = lambda effect: Fate.LOST if isinstance(effect.writes[0], CreateState) else Fate.ANSWERED
    rig.run()
    assert rig.partition().leadership is None
    rig.fate = lambda _: Fate.ANSWERED
    check(rig)
    assert rig.partition().state is PartitionState.ONLINE
    rig.check_converged()


@pytest.mark.parametrize("paused", [False, True])
def test_an_election_that_was_given_up_is_held_again(paused: bool) -> None:
    """Nobody else comes back to it: its broker is there, and nothing changes any more."""
    rig = cluster(1, 2)
    rig.world.broker_down(1)
    rig.world.broker_down(2)
    rig.run()
    rig.fate = lambda effect: Fate.LOST if isinstance(effect.writes[0], SetState) else Fate.ANSWERED
    rig.world.broker_up(2)
    rig.run()
    assert (rig.partition().state, rig.stored()[0]) == (PartitionState.OFFLINE, -1)
    rig.fate = lambda _: Fate.ANSWERED
    if paused:
        rig.cluster.maintenance = Maintenance(paused=Attribution("test", "me"))
    check(rig)
    assert (rig.partition().state is PartitionState.ONLINE) is not paused
    assert (rig.stored()[0] in rig.cluster.brokers) is not paused


def test_an_election_is_held_again_though_nobody_could_write_that_the_leader_is_gone() -> None:
    rig = cluster(1, 2)
    rig.fate = lambda effect: Fate.LOST if isinstance(effect.writes[0], SetState) else Fate.ANSWERED
    rig.world.broker_down(1)
    rig.world.broker_down(2)
    rig.run()
    rig.world.broker_up(2)
    rig.run()
    assert (rig.partition().state, rig.stored()[0]) == (PartitionState.OFFLINE, 1)
    rig.fate = lambda _: Fate.ANSWERED
    check(rig)
    assert (rig.partition().state, rig.stored()[0]) == (PartitionState.ONLINE, 2)


def test_a_partition_whose_isr_is_gone_waits_without_a_word() -> None:
    rig = cluster(1, 2)
    rig.world.broker_down(1)
    rig.world.broker_down(2)
    rig.run()
    rig.forget()
    check(rig)
    assert (rig.commits(), rig.rejects()) == ([], [])


@pytest.mark.parametrize(
    "found",
    [
        state(1, [1, 2, 3], 6, 9),  # its leader wrote it, and no notification came
        state(1, [1, 2, 3], 9, 9),  # another one: taken over and confirmed
    ],
)
def test_a_reassignment_ends_with_the_isr_that_a_check_finds(found: LeaderAndIsr) -> None:
    rig = cluster(1, 2, 3, 4)
    rig.world.put_state("t", 0, state(1, [1, 2], 5, 8))
    check(rig)
    rig.world.ask_reassignment({("t", 0): [3, 2]})
    rig.run()
    assert rig.stored() == (1, 6, [1, 2])
    edit(rig, found)
    check(rig)
    assert rig.partition().replicas == (3, 2)
    assert not rig.cluster.reassignments.ongoing


def test_a_reassignment_ends_once_a_state_is_mended_that_a_failover_could_not_read() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [2, 1]})
    world.edit_topic("t", removing={0: (1,)}, original={0: (1, 2)})
    world.put_state("t", 0, state(1, [1, 2], 5, 7))
    world.unreadable[PATH] = "leader: expected int"
    rig = MachineHarness.active(world)
    assert rig.cluster.reassignments.ongoing
    del world.unreadable[PATH]
    check(rig)
    assert (rig.partition().replicas, rig.stored()[0]) == ((2,), 2)
    assert not rig.cluster.reassignments.ongoing


def test_a_controller_epoch_that_nobody_had_is_put_right() -> None:
    rig = cluster()
    edit(rig, state(2, [2, 1], 6, 8, controller_epoch=EPOCH_MAX))
    check(rig)
    assert rig.stored() == (1, 7, [1, 2, 3])
    assert rig.world.states[("t", 0)].controller_epoch == 1
    (finding,) = rig.recorded(AuditFinding)
    assert "no controller has had epoch 2147483646, the present one is 1" in finding.reason
    rig.check_converged()


def test_a_controller_epoch_that_nobody_had_is_not_said_before_the_write_has_proved_it() -> None:
    """There may be such a controller: then the write is fenced."""
    rig = cluster()
    edit(rig, state(2, [2, 1], 6, 8, controller_epoch=7))
    rig.fate = lambda _: Fate.LOST
    check(rig)
    assert (findings(rig), rig.recorded(LeadershipChange), rig.rejects()) == ([], [], ["CONFLICT"])
    assert rig.world.states[("t", 0)].controller_epoch == 7


def test_a_controller_epoch_that_nobody_had_found_at_the_failover_keeps_nobody_from_leading() -> None:
    world = World(2, 3)
    world.create_topic("t", {0: [1, 2, 3], 1: [2, 3]})
    world.put_state("t", 0, state(1, [1, 2, 3], 5, 7, controller_epoch=9))
    world.put_state("t", 1, state(2, [2, 3], 5, 7, controller_epoch=9))
    rig = MachineHarness.active(world)
    assert rig.stored() == (1, 5, [1, 2, 3]), "no election writes over it"
    rig.world.edited |= {("t", 0), ("t", 1)}
    rig.world.events.append(event_of(StatesCheck([rig.partition(number=n) for n in (0, 1)]), 10**7))
    rig.run()
    assert rig.stored() == (2, 7, [2, 3]), "put right, then elected"
    assert rig.world.states[("t", 1)] == state(2, [2, 3], 6, 8)
    assert {p.state for p in rig.cluster.topics["t"].partitions.values()} == {PartitionState.ONLINE}
    rig.check_converged()


def test_an_edit_between_read_and_write_is_not_overwritten() -> None:
    rig = cluster()
    edit(rig, state(9, [9], 6, 8))

    def again(_: Any) -> Any:
        rig.fate = before
        rig.world.put_state("t", 0, state(3, [3], 6, 9))
        return before(_)

    before = rig.fate
    rig.fate = again
    check(rig)
    assert rig.world.states[("t", 0)] == state(3, [3], 6, 9)
    assert rig.rejects() == ["CONFLICT"]
    check(rig)
    assert rig.stored() == (3, 7, [3])


@pytest.mark.parametrize(("recovery", "found"), [(RECOVERING, RECOVERING), (RECOVERED, RECOVERED)])
def test_an_isr_under_a_newer_version_is_the_leader_s_whether_or_not_it_has_recovered(
    recovery: int, found: int
) -> None:
    rig = cluster(recovery=recovery)
    edit(rig, state(1, [1, 2], 5, 8, recovery=found))
    check(rig)
    assert (rig.stored(), findings(rig)) == ((1, 5, [1, 2]), [])


@pytest.mark.parametrize("version", [6, 7, 8])
def test_only_a_lower_version_is_said_to_be_skipped_by_brokers(version: int) -> None:
    rig = cluster()
    edit(rig, state(2, [2, 3], 5, version))
    check(rig)
    (finding,) = [f for f in rig.recorded(AuditFinding) if f.to == "taken_over"]
    assert ("brokers that know the higher version skip it" in finding.reason) == (version < 7)


def test_an_isr_under_the_version_that_is_known_is_not_one_that_the_leader_wrote() -> None:
    """Whoever wrote over it would have raised the version: the znode is another one."""
    rig = cluster()
    edit(rig, state(1, [1, 2], 5, 7))
    check(rig)
    assert (rig.stored(), findings(rig)) == ((1, 6, [1, 2]), [(None, "taken_over")])


def test_a_partition_without_leader_is_online_once_an_edit_names_a_live_one() -> None:
    rig = cluster(2, 3)
    rig.world.broker_up(1)
    rig.run()
    rig.world.put_state("t", 0, state(-1, [9], 8, 11))
    rig = MachineHarness(rig.world, epoch=2).failover()
    assert rig.partition().state is PartitionState.OFFLINE
    rig.forget()
    edit(rig, state(1, [1, 2], 9, 12))
    check(rig)
    assert rig.stored() == (1, 10, [1, 2])
    assert rig.partition().state is PartitionState.ONLINE
    assert [t.after for t in rig.recorded(PartitionTransition)] == [PartitionState.ONLINE]
