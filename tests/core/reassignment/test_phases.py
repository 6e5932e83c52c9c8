"""Reassignment step by step (reference, section 8.2): what is written and told, in which order, and what stops it."""

from __future__ import annotations

import msgspec
import pytest

from controller.core.backoff import RETRY_FIRST_US
from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetTopic
from controller.core.events import Event, EventKind
from controller.core.model import Endpoint, Ineligible, ReplicaState
from controller.core.reassignment import alter_reassignments
from controller.core.reassignment.reasons import AloneInSync, Notified
from controller.core.records import PartitionTransition, ReassignmentStep, Rejection, ReplicaTransition
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetPause
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import (
    active,
    ask,
    assigned,
    check_moved,
    copy_all,
    join,
    listed,
    ongoing,
    reasons,
    request,
    writes,
)
from tests.support.core.world import World, state

RETRY = Event(EventKind.TOPIC_DELETION_RETRY)
T = ("t", 0)


def moved_partition() -> MachineHarness:
    """[1,2,3] is moved to [3,4], and 4 does not copy yet."""
    rig = active(1, 2, 3, 4, t=[[1, 2, 3]])
    assert ask(rig, {T: [3, 4]}) == {"t-0": "NONE"}
    return rig


def test_the_trace_of_the_reference() -> None:
    rig = moved_partition()
    assert assigned(rig) == ([3, 4, 1, 2], [4], [1, 2])
    assert writes(rig) == ["topic [3, 4, 1, 2] +[4] -[1, 2]", "state 1 [1, 2, 3] e1 p1"]
    assert rig.lines("LISR", "SR") == [
        "1 LISR t-0 leader 1 epoch 1 isr [1, 2, 3]",
        "2 LISR t-0 leader 1 epoch 1 isr [1, 2, 3]",
        "3 LISR t-0 leader 1 epoch 1 isr [1, 2, 3]",
        "4 LISR t-0 leader 1 epoch 1 isr [1, 2, 3] new",
    ]
    (entry,) = next(
        s.message for s in rig.sent if s.broker == 4 and s.kind.value == "LeaderAndIsr"
    ).partition_states
    assert [list(entry.replicas), list(entry.adding_replicas), list(entry.removing_replicas)] == [
        [3, 4, 1, 2], [4], [1, 2],
    ]  # fmt: skip
    assert rig.partition().replica_state(4) is ReplicaState.NEW
    rig.forget()
    rig.hold_stops = True

    join(rig, [1, 2, 3, 4])
    assert writes(rig) == [
        "state 1 [1, 2, 3, 4] e1 p2",
        "state 3 [1, 2, 3, 4] e2 p3",
        "state 3 [2, 3, 4] e3 p4",
        "state 3 [3, 4] e4 p5",
        "topic [3, 4] +[] -[]",
    ]
    assert [line for line in rig.lines("LISR", "SR") if "epoch 2" in line] == [
        "3 LISR t-0 leader 3 epoch 2 isr [1, 2, 3, 4]",
        "4 LISR t-0 leader 3 epoch 2 isr [1, 2, 3, 4]",
    ]
    assert {line for line in rig.lines("SR") if "delete" in line} == {
        "1 SR t-0 epoch 4 delete",
        "2 SR t-0 epoch 4 delete",
    }
    # UpdateMetadata comes last, and it names the final replicas.
    last = [s.message.partition_states[-1] for s in rig.sent if s.kind.value == "UpdateMetadata"][-1]
    assert (list(last.replicas), last.leader_epoch, list(last.isr)) == ([3, 4], 4, [3, 4])
    assert rig.world.topics["t"].stray == {0: (1, 2)}
    moved = rig.recorded(ReassignmentStep)[-1]
    assert (moved.to, moved.replicas) == ("moved", (3, 4))
    rig.answer_stops()
    rig.run()
    check_moved(rig, T, [3, 4])
    assert rig.cluster.reassignments.confirmed == {}


def test_order_of_states_of_a_replica_that_goes() -> None:
    rig = moved_partition()
    join(rig, [1, 2, 3, 4])
    steps = rig.recorded(ReplicaTransition)
    assert [(s.before.value, s.after.value) for s in steps if s.broker_id == 2] == [
        ("OnlineReplica", "OfflineReplica"),
        ("OfflineReplica", "ReplicaDeletionStarted"),
        ("ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
        ("ReplicaDeletionSuccessful", "NonExistentReplica"),
    ]
    assert [(s.before.value, s.after.value) for s in steps if s.broker_id == 4] == [
        ("NonExistentReplica", "NewReplica"),
        ("NewReplica", "OnlineReplica"),
    ]


def test_no_record_calls_a_replica_deleted_before_its_broker_answered() -> None:
    rig = moved_partition()
    rig.forget()
    rig.hold_stops = True
    join(rig, [1, 2, 3, 4])
    said = [b.reason for b in rig.batches for step in b.of(ReplicaTransition) if step.broker_id == 2]
    waits = "it left the assignment; its broker has not answered yet"
    assert said == ["not assigned any more", "told to delete", waits, waits]


def test_a_leader_that_stays_gets_a_new_epoch() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    ask(rig, {T: [1, 3]})
    join(rig, [1, 2, 3])
    check_moved(rig, T, [1, 3])
    assert rig.stored() == (1, 3, [1, 3])


def test_another_order_needs_no_copy() -> None:
    rig = active(1, 2, t=[[1, 2]])
    ask(rig, {T: [2, 1]})
    check_moved(rig, T, [2, 1])
    assert rig.stored() == (1, 1, [1, 2])


@pytest.mark.parametrize("by_znode", [False, True])
def test_the_present_replicas_get_the_state_anew(by_znode: bool) -> None:
    """Operators push what a broker lost this way: one leader epoch more, told to all, no assignment written."""
    rig = active(1, 2, 3, t=[[1, 2], [1, 2]])
    version = rig.world.topics["t"].version
    if by_znode:
        rig.world.ask_reassignment({T: [1, 2]})
        rig.run()
        assert rig.world.reassignment is None
    else:
        assert ask(rig, {T: [1, 2]}) == {"t-0": "NONE"}
    assert [line for line in writes(rig) if "znode" not in line] == ["state 1 [1, 2] e1 p1"]
    assert rig.lines("LISR", "SR") == [
        "1 LISR t-0 leader 1 epoch 1 isr [1, 2]",
        "2 LISR t-0 leader 1 epoch 1 isr [1, 2]",
    ]
    assert {s.broker for s in rig.sent if s.kind.value == "UpdateMetadata"} == {1, 2, 3}
    assert rig.world.topics["t"].version == version
    assert rig.rejects() == []
    check_moved(rig, T, [1, 2])


def test_a_listed_move_ends_with_its_topic() -> None:
    """Tools wait until it is listed no more."""
    rig = active(1, 2, t=[[1]], u=[[1]])
    rig.world.ask_reassignment({T: [2], ("u", 0): [2]})
    rig.run()
    rig.world.delete_topic("t")
    rig.run()
    assert rig.world.reassignment is not None
    assert rig.world.reassignment.entries == (("u", 0, (2,)),)


def test_the_present_replicas_elect_where_the_leader_is_gone() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.broker_down(1)
    rig.run()
    assert rig.stored() == (-1, 1, [1])
    assert ask(rig, {T: [1]}) == {"t-0": "NONE"}
    assert rig.stored() == (-1, 1, [1])
    check_moved(rig, T, [1])


def test_the_present_replicas_are_not_ongoing_while_elections_are_paused() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.ask(SetPause(True, "reason", "ann"))
    rig.world.broker_down(1)
    rig.run()
    rig.world.ask_reassignment({T: [1, 2]})
    rig.run()
    assert rig.world.reassignment is None, "tools wait for it to go"
    assert rig.cluster.reassignments.ongoing == {}


def test_the_present_replicas_instead_of_a_move_that_waits() -> None:
    rig = active(1, 2, 3, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {("t", 1): [2], T: [3]})
    assert rig.world.topics["t"].queued == {0: (3,)}
    rig.forget()
    assert ask(rig, {T: [1]}) == {"t-0": "NONE"}
    assert writes(rig) == ["topic [1] +[] -[]", "state 1 [1] e1 p1"]
    assert [step.to for step in rig.recorded(ReassignmentStep)][:1] == ["cancelled"]
    check_moved(rig, T, [1])


def test_a_partial_isr_completes_nothing() -> None:
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [2, 3]})
    join(rig, [1, 2])
    assert assigned(rig) == ([2, 3, 1], [2, 3], [1])
    assert reasons(rig) == ("target 3 is not in the ISR [1, 2]: it is still copying",)
    join(rig, [1, 2, 3])
    check_moved(rig, T, [2, 3])


def test_a_leader_in_notification_mode_completes_a_move() -> None:
    rig = active(1, 2, t=[[1]])
    ask(rig, {T: [2]})
    rig.world.shrink_or_grow("t", 0, [1, 2])
    rig.world.notify_isr(T)
    rig.run()
    check_moved(rig, T, [2])


# --- cancel and override ---------------------------------------------------------------------------------


def test_cancelling_restores_the_original_order() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    ask(rig, {T: [3, 2]})
    assert assigned(rig) == ([3, 2, 1], [3], [1])
    assert rig.world.topics["t"].original == {0: (1, 2)}
    assert ask(rig, {T: None}) == {"t-0": "NONE"}
    check_moved(rig, T, [1, 2])
    assert ask(rig, {T: None}) == {"t-0": "NO_REASSIGNMENT_IN_PROGRESS"}


def test_the_original_order_outlives_an_override_and_a_failover() -> None:
    rig = active(1, 2, 3, 4, t=[[1, 2]])
    ask(rig, {T: [3, 2]})
    ask(rig, {T: [4, 2]})
    assert assigned(rig) == ([4, 2, 1], [4], [1])
    assert T not in rig.world.folders.get(3, set())
    successor = MachineHarness(rig.world, epoch=2).failover()
    ask(successor, {T: None})
    check_moved(successor, T, [1, 2])


def test_cancelling_a_move_that_another_controller_began_keeps_the_set() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.world.edit_topic("t", partitions={0: (3, 2, 1)}, adding={0: (3,)}, removing={0: (1,)})
    successor = MachineHarness(rig.world, epoch=2).failover()
    ask(successor, {T: None})
    check_moved(successor, T, [2, 1])


def test_cancelling_with_the_added_replica_leading() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    ask(rig, {T: [3, 4 - 2]})
    join(rig, [1, 2])
    rig.world.broker_down(2)
    rig.run()
    ask(rig, {T: [3, 1, 2]})
    copy_all(rig)
    rig.world.ask_preferred(T)
    rig.run()
    assert rig.stored()[0] == 3
    rig.forget()
    ask(rig, {T: None})
    rig.run()
    assert rig.stored()[0] in (1, 3)
    assert not rig.recorded(PartitionTransition), "it hands over before it goes"


def test_the_last_in_sync_replica_is_not_dropped() -> None:
    """Replica 3 was added and alone has everything: cancelling would delete it."""
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [2, 3]})
    join(rig, [1, 3])
    rig.world.broker_down(1)
    rig.run()
    assert rig.stored()[2] == [3]
    for target in (None, [2]):
        (reply,) = rig.ask(request({T: target}))
        (answer,) = reply.partitions
        assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "acknowledged records would be lost" in answer.message
    assert assigned(rig) == ([2, 3, 1], [2, 3], [1])
    join(rig, [3, 2])
    rig.world.broker_up(1)
    rig.run()
    check_moved(rig, T, [2, 3])


def moved_to_an_added_leader() -> MachineHarness:
    """[1] is moved to [2,3]; 3 is in sync and leads, by an ISR that it writes itself."""
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [2, 3]})
    join(rig, [1, 3])
    rig.ask(ElectLeaders(ElectionType.CHOSEN, (T,), leader=3))
    rig.run()
    assert rig.stored()[0] == 3
    return rig


@pytest.mark.parametrize("target", [None, [2]])
def test_an_isr_that_a_leader_has_just_written_counts(target: list[int] | None) -> None:
    """Of one that writes ISRs itself the controller hears seconds later."""
    rig = moved_to_an_added_leader()
    rig.world.shrink_or_grow("t", 0, [3])
    (reply,) = rig.ask(request({T: target}))
    (answer,) = reply.partitions
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "acknowledged records would be lost" in answer.message
    assert assigned(rig) == ([2, 3, 1], [2, 3], [1])
    assert T in rig.world.folders[3]


def test_a_replica_that_is_alone_in_sync_once_it_is_to_go_is_not_deleted() -> None:
    rig = moved_to_an_added_leader()

    def meanwhile(effect: Commit) -> Fate:
        if isinstance(effect.writes[0], SetTopic) and rig.stored()[2] == [1, 3]:
            rig.world.shrink_or_grow("t", 0, [3])
        return Fate.ANSWERED

    rig.fate = meanwhile
    assert ask(rig, {T: None}) == {"t-0": "NONE"}
    rig.run()
    assert assigned(rig)[0] == [1]
    assert rig.stored()[0] == -1
    assert rig.stored()[2] == [3]
    assert T in rig.world.folders[3]
    (held,) = rig.cluster.reassignments.strays[rig.partition(*T)].values()
    assert held.reason == AloneInSync()
    rig.now_us += RETRY_FIRST_US
    rig.world.events.append(RETRY)
    rig.run()
    assert T in rig.world.folders[3]
    ask(rig, {T: [1, 3]})
    rig.run()
    assert rig.stored()[0] == 3, "assigned again, it leads"


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ([], "INVALID_REPLICA_ASSIGNMENT", "empty"),
        ([1, 1], "INVALID_REPLICA_ASSIGNMENT", "distinct"),
        ([1, -2], "INVALID_REPLICA_ASSIGNMENT", "must be from 0"),
        ([1, 9], "INVALID_REPLICA_ASSIGNMENT", "[9] are not live"),
        (None, "NO_REASSIGNMENT_IN_PROGRESS", "not being reassigned"),
    ],
)
def test_refusals_of_a_known_partition(target: list[int] | None, error: str, words: str) -> None:
    rig = active(1, 2, t=[[1, 2]])
    (reply,) = rig.ask(request({T: target}))
    (answer,) = reply.partitions
    assert answer.error.name == error
    assert words in answer.message
    assert rig.commits() == []
    assert [(r.error, r.partition) for r in rig.recorded(Rejection)] == [(error, rig.partition(*T))]


def test_replicas_are_judged_before_the_partition() -> None:
    rig = active(1, 2, t=[[1, 2]])
    assert ask(rig, {("x", 0): [], ("x", 1): [7], ("x", 2): [1], ("x", 3): None, ("t", 9): [1]}) == {
        "x-0": "INVALID_REPLICA_ASSIGNMENT",
        "x-1": "INVALID_REPLICA_ASSIGNMENT",
        "x-2": "UNKNOWN_TOPIC_OR_PARTITION",
        "x-3": "UNKNOWN_TOPIC_OR_PARTITION",
        "t-9": "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_a_target_that_an_unclean_election_leaves_alone_in_the_isr_ends_its_move() -> None:
    rig = active(1, 2, 3, 4, t=[[1, 2], [2, 1]])
    ask(rig, {T: [3], ("t", 1): [3, 4]})
    rig.world.broker_down(1, 2)
    rig.run()
    assert [rig.stored("t", n)[0] for n in (0, 1)] == [-1, -1]
    rig.ask(ElectLeaders(ElectionType.UNCLEAN, None))
    assert (rig.stored("t", 0)[0], rig.stored("t", 0)[2], assigned(rig)) == (3, [3], ([3], [], []))
    assert list(ongoing(rig)) == ["t-1"], "4 is not in sync"


def test_a_dead_broker_may_stay_but_not_be_added() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.world.broker_down(2)
    rig.run()
    assert ask(rig, {T: [3, 2]}) == {"t-0": "NONE"}
    assert reasons(rig) == (
        "target 3 is not in the ISR [1]: it is still copying",
        "target 2 is not in the ISR [1]: its broker is not registered",
    )


def test_one_request_names_a_partition_once() -> None:
    rig = active(1, 2, t=[[1], [1]])
    twice = [PartitionReassignment("t", 0, (2,)), PartitionReassignment("t", 0, None)]
    (reply,) = rig.ask(AlterPartitionReassignments([*twice, PartitionReassignment("t", 1, (2,))]))
    assert [a.error.name for a in reply.partitions] == ["NONE", "INVALID_REQUEST", "NONE"]
    assert list(ongoing(rig)) == ["t-0", "t-1"]


def test_a_topic_that_is_deleted_is_not_moved_and_one_that_moves_is_deleted_later() -> None:
    rig = active(1, 2, 3, t=[[1]], u=[[1]])
    rig.hold_stops = True
    ask(rig, {T: [2]})
    rig.world.mark_for_deletion("t", "u")
    rig.run()
    assert ask(rig, {("u", 0): [2], T: [3]}) == {
        "u-0": "UNKNOWN_TOPIC_OR_PARTITION",
        "t-0": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert "t" in rig.world.topics
    assert rig.stored()[0] == 1
    rig.hold_stops = False
    join(rig, [1, 2])
    rig.answer_stops()
    rig.run()
    assert "t" not in rig.world.topics
    assert all(T not in folders for folders in rig.world.folders.values())


def test_cancelling_ends_a_move_that_its_topic_s_deletion_waits_for() -> None:
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [2]})
    rig.world.mark_for_deletion("t")
    rig.run()
    assert "t" in rig.world.topics
    assert ask(rig, {T: None}) == {"t-0": "NONE"}
    assert "t" not in rig.world.topics


@pytest.mark.parametrize("late", [False, True])
def test_cancelling_lets_a_topic_be_deleted_whose_added_replica_alone_is_in_sync(late: bool) -> None:
    """Its records are to go with it; else it could be deleted only once the move ends, which may be never."""
    rig = moved_to_an_added_leader()
    rig.world.broker_down(2)
    rig.run()
    if not late:
        rig.world.broker_down(1)
        rig.run()
        assert rig.stored()[2] == [3]
    else:
        rig.world.shrink_or_grow("t", 0, [3])
    rig.world.mark_for_deletion("t")
    rig.run()
    assert ask(rig, {T: None}) == {"t-0": "NONE"}
    rig.world.broker_up(1)
    rig.world.broker_up(2)
    rig.run()
    assert "t" not in rig.world.topics
    assert not any(T in folders for folders in rig.world.folders.values())


def test_how_many_replicas_there_may_be_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_reassignments, "REPLICAS_MAX", 3)
    rig = active(1, 2, 3, 4, t=[[1, 2]])
    assert ask(rig, {T: [3, 4]}) == {"t-0": "INVALID_REPLICA_ASSIGNMENT"}
    for broker_id in (3, 4):
        rig.cluster.reassignments.keep_stray(rig.partition(), broker_id, Ineligible(Notified()))
    assert ask(rig, {T: [2, 1]}) == {"t-0": "NONE"}, "strays, but none of the replicas is to be deleted"
    rig = active(1, 2, 3, 4, t=[[1, 2]])
    assert ask(rig, {T: [3, 2]}) == {"t-0": "NONE"}


def test_a_dead_broker_that_is_being_added_is_not_added_again() -> None:
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {T: [3]})
    rig.world.broker_down(3)
    rig.run()
    assert ask(rig, {T: [3, 2]}) == {"t-0": "INVALID_REPLICA_ASSIGNMENT"}


def test_a_leader_is_lost_where_none_of_those_that_stay_can_lead() -> None:
    rig = active(2, 3, t=[[2, 3]])
    partition = rig.partition()
    partition.leadership = state(3, (3, 1))
    # Broker 1 is in sync and gone, broker 2 is there and out of sync.
    assert alter_reassignments._loses_its_leader(rig.cluster, partition, (1, 2))
    partition.leadership = state(3, (3, 2))
    assert not alter_reassignments._loses_its_leader(rig.cluster, partition, (1, 2))


def test_the_znode_s_target_replaces_that_of_a_move_that_waits() -> None:
    rig = active(1, 2, 3, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {T: [2], ("t", 1): [2]})
    rig.world.ask_reassignment({("t", 1): [3]})
    rig.run()
    assert rig.world.topics["t"].queued == {1: (3,)}


def test_a_move_of_a_topic_whose_deletion_waits_for_it_stays_in_the_znode() -> None:
    rig = active(1, 2, t=[[1]])
    rig.world.ask_reassignment({T: [2]})
    rig.run()
    rig.world.mark_for_deletion("t")
    rig.run()
    successor = MachineHarness(rig.world, epoch=2).failover()
    assert listed(successor) == (("t", 0, (2,)),)
    assert successor.rejects() == []


def test_of_those_asked_about_only_what_is_being_reassigned_is_listed() -> None:
    rig = active(1, 2, t=[[1], [1]])
    ask(rig, {T: [2]})
    assert list(ongoing(rig, [("t", 1), T, ("x", 0)])) == ["t-0"]


def test_an_entry_of_the_znode_that_cannot_begin_is_recorded_and_taken_out() -> None:
    rig = active(1, 2, t=[[1], [1]])
    rig.world.ask_reassignment({T: [2]})
    rig.fate = lambda commit: Fate.LOST if isinstance(commit.writes[0], SetTopic) else Fate.ANSWERED
    rig.run()
    (refused,) = [r for r in rig.recorded(Rejection) if r.error == "UNKNOWN_SERVER_ERROR"]
    assert (refused.partition, listed(rig)) == (rig.partition(), ())
    assert refused.reason.startswith("/admin/reassign_partitions: ")


def test_what_waits_already_is_not_asked_for_twice() -> None:
    rig = active(1, 2, 3, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1], [1]])
    ask(rig, {T: [2], ("t", 1): [2]})
    rig.forget()
    rig.world.ask_reassignment({("t", 1): [2]})
    rig.run()
    assert rig.recorded(ReassignmentStep) == []


def test_kafka_brokers_and_others_are_not_mixed_in_one_partition() -> None:
    world = World(1, 2, 3)
    world.broker_up(4, port=9092)
    world.brokers[4] = msgspec.structs.replace(
        world.brokers[4], endpoints=(Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),)
    )
    world.create_topic("t", {0: [1]})
    rig = MachineHarness.active(world)
    assert ask(rig, {T: [1, 4]}) == {"t-0": "INVALID_REPLICA_ASSIGNMENT"}
    assert "[4] and brokers led by gRPC [1]" in rig.recorded(Rejection)[-1].reason
    assert ask(rig, {T: [2, 3]}) == {"t-0": "NONE"}


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_partitions_of_one_assignment_are_validated_each_by_its_own(order: list[int]) -> None:
    """Of three with the same replicas one moves, one waits to move, and one does neither."""
    limited = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, 3, settings=limited, t=[[1, 2], [1, 2], [1, 2]])
    assert ask(rig, {("t", 0): [2, 3], ("t", 1): [2, 3]}) == {"t-0": "NONE", "t-1": "NONE"}
    answers = ask(rig, {("t", n): None for n in order})
    assert answers == {"t-0": "NONE", "t-1": "NONE", "t-2": "NO_REASSIGNMENT_IN_PROGRESS"}


@pytest.mark.parametrize("order", ["tu", "ut"])
def test_one_of_a_topic_that_is_to_be_deleted_is_refused_beside_one_of_another(order: str) -> None:
    rig = active(1, 2, 3, 4, t=[[1, 4]], u=[[1, 4]])
    rig.ask(SetPause(True, "a drill", "ann"))
    rig.world.mark_for_deletion("u")
    rig.run()
    answers = ask(rig, {(topic, 0): [1, 2] for topic in order})
    assert answers == {"t-0": "NONE", "u-0": "UNKNOWN_TOPIC_OR_PARTITION"}
