"""Topic deletion when others have their hands in it: failovers, removals and creations by hand, late news."""

from __future__ import annotations

import pytest

from controller.core.effects import AnyQuery, Commit, DeleteNode, ReadTopics, Write
from controller.core.events import DiskReport, Event, EventKind
from controller.core.model import ReplicaState
from controller.core.records import ReplicaTransition
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
)
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.znode_paths import DELETE_TOPICS
from tests.support.core.deletions import active, check_gone, states
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World


def test_a_failover_holds_what_is_not_online_and_finishes_what_is_half_done() -> None:
    world = World(1, 2, 3)
    world.create_topic("waits", {0: [1, 2]})
    world.create_topic("goes", {0: [1], 1: [1]})
    MachineHarness.active(world)
    world.broker_down(2)
    world.watches.clear()
    world.events.clear()
    del world.states[("goes", 1)]
    world.configure("gone", {})
    world.deletions = ["waits", "goes", "gone"]
    rig = MachineHarness.active(world, epoch=2)
    assert not [line for line in rig.lines("LISR") if "waits" in line or "goes" in line]
    rig.run()
    assert world.deletions == ["waits"]
    assert "gone" not in world.configs
    check_gone(world, rig, "goes")
    held = rig.cluster.deletions_ineligible["waits"]
    assert str(held.reason) == "replica 2 of waits-0: not online when this controller took over"
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "waits")


def test_a_topic_removed_by_hand_while_it_is_deleted() -> None:
    """Its brokers are still told, and its marker goes."""
    world, rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    world.broker_down(2)
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    world.delete_topic("t")
    rig.run()
    assert world.deletions == ["t"]
    rig.hold_stops = False
    rig.answer_stops()
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "t")
    assert world.folders == {1: set(), 2: set()}


@pytest.mark.parametrize("seen", [True, False])
def test_a_topic_removed_and_created_by_hand_while_it_is_deleted(seen: bool) -> None:
    """The marker is still there: it counts for the new one, which is first looked at like any."""
    world, rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    world.delete_topic("t")
    if seen:
        rig.run()
    world.create_topic("t", {0: [2]})
    rig.run()
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    check_gone(world, rig, "t")
    assert world.folders == {1: set(), 2: set()}


def test_created_anew_while_the_last_write_is_on_its_way() -> None:
    """The write lands, its answer is lost, and before that is read back somebody creates the topic again."""
    world, rig = active(1, t=[[1]])

    def fate(commit: Commit) -> Fate:
        if DeleteNode(f"{DELETE_TOPICS}/t") in commit.writes:
            rig.fate = lambda _: Fate.ANSWERED
            world.commit(commit.writes)
            world.create_topic("t", {0: [1], 1: [1]})
            return Fate.LOST
        return Fate.ANSWERED

    rig.fate = fate
    world.mark_for_deletion("t")
    rig.run()
    assert sorted(world.topics["t"].partitions) == [0, 1]
    assert world.folders == {1: {("t", 0), ("t", 1)}}
    assert rig.cluster.deletions_waiting == {}
    rig.check_converged()


def test_brokers_report_a_disk_lost_and_back_while_a_topic_is_deleted() -> None:
    """They answer to LeaderAndIsr of before the topic was marked."""
    world, rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    rig.stops, late = [r for r in rig.stops if r.broker_id == 1], [r for r in rig.stops if r.broker_id == 2]
    rig.answer_stops()
    rig.run()
    partition, epoch = rig.partition("t"), world.brokers[2].epoch
    kind = EventKind.LEADER_AND_ISR_RESPONSE
    world.events.append(Event(kind, body=DiskReport(2, epoch, [partition]), serial=1))
    rig.run()
    assert str(rig.cluster.deletions_ineligible["t"].reason) == "replica 2 of t-0: its disk failed"
    # What it had answered to the order before that comes too late, and is no mistake of anybody's.
    rig.stops = late
    rig.answer_stops()
    rig.run()
    assert rig.rejects() == []
    assert states(rig, "t")[2] == {ReplicaState.OFFLINE}
    rig.forget()
    world.events.append(Event(kind, body=DiskReport(2, epoch, [], [partition]), serial=2))
    rig.run()
    assert ReplicaState.ONLINE not in {r.after for r in rig.recorded(ReplicaTransition)}
    assert rig.cluster.deletions_ineligible == {}
    assert states(rig, "t")[2] == {ReplicaState.DELETION_STARTED}


def test_a_leader_that_changes_its_isr_meanwhile_is_not_told_to_lead() -> None:
    world, rig = active(1, 2, t=[[1, 2]])

    def fate(_: Commit) -> Fate:
        rig.fate = lambda _: Fate.ANSWERED
        world.shrink_or_grow("t", 0, [1])
        return Fate.ANSWERED

    rig.fate = fate
    world.mark_for_deletion("t")
    rig.run()
    assert "CONFLICT" in rig.rejects()
    assert rig.lines("LISR") == []
    check_gone(world, rig, "t")


@pytest.mark.parametrize("removed", ["marker", "topic"])
def test_somebody_removes_a_part_by_hand_as_the_last_write_is_lost(removed: str) -> None:
    world, rig = active(1, t=[[1]])

    def fate(commit: Commit) -> Fate:
        if DeleteNode(f"{DELETE_TOPICS}/t") not in commit.writes:
            return Fate.ANSWERED
        rig.fate = lambda _: Fate.ANSWERED
        if removed == "marker":
            world.commit([DeleteNode(f"{DELETE_TOPICS}/t")])
        else:
            world.delete_topic("t")
        return Fate.LOST

    rig.fate = fate
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")


def test_what_a_reassignment_left_behind_goes_with_its_topic() -> None:
    """A replica moved away whose broker refused to delete it: the topic is not gone before that is."""
    world, rig = active(1, 2, t=[[1, 2]])
    rig.stop_error = lambda broker, _: "KAFKA_STORAGE_ERROR" if broker == 2 else ""
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, (1,))]))
    assert rig.partition().replicas == (1,)
    assert world.folders == {1: {("t", 0)}, 2: {("t", 0)}}
    world.mark_for_deletion("t")
    rig.run()
    assert (
        str(rig.cluster.deletions_ineligible["t"].reason)
        == "replica 2 of t-0: its broker answered KAFKA_STORAGE_ERROR"
    )
    assert world.folders == {1: set(), 2: {("t", 0)}}
    rig.stop_error = lambda *_: ""
    world.bounce(2)
    rig.run()
    check_gone(world, rig, "t")
    assert world.folders == {1: set(), 2: set()}


def wiped(world: World, name: str) -> None:
    """As people do who want to be rid of a topic: its znode and the request, by hand. Of the request nobody hears."""
    world.delete_topic(name)
    world.deletions.remove(name)


def test_what_a_reassignment_left_behind_is_told_once_by_a_controller_that_takes_over() -> None:
    world, _ = active(1, 2, t=[[1]])
    world.edit_topic("t", stray={0: (2,)})
    world.mark_for_deletion("t")
    world.events.clear()
    rig = MachineHarness(world, epoch=2)
    rig.failover()
    assert [line for line in rig.lines("SR") if line.startswith("2 ")] == ["2 SR t-0 epoch -2 delete"]


def test_wiped_and_created_anew_before_the_news_of_the_marker_comes() -> None:
    """The deletion waited as the topic was unreadable; nobody asks for that of the new one."""
    world, rig = active(1)
    world.unreadable["/brokers/topics/t"] = "partitions: missing"
    world.create_topic("t", {0: [1]})
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    assert "unreadable" in str(rig.cluster.deletions_waiting["t"])
    wiped(world, "t")
    world.unreadable.clear()
    world.create_topic("t", {0: [1]})
    rig.run()
    assert "t" in world.topics
    assert rig.stored("t")[0] == 1
    assert not rig.cluster.deletion_requested("t")


def test_created_anew_just_when_what_is_left_of_the_former_is_erased() -> None:
    """There was only the marker left; the new topic's znode comes between a look and the last write."""
    world = World(1)
    world.deletions = ["t"]
    answer = world.answer

    def answers(query: AnyQuery) -> object:
        found = answer(query)
        if isinstance(query, ReadTopics) and tuple(query.names) == ("t",) and found == [None]:
            world.deletions.remove("t")
            world.create_topic("t", {0: [1]})
        return found

    world.answer = answers  # type: ignore[method-assign]
    rig = MachineHarness.active(world)
    rig.run()
    assert "t" in world.topics
    assert rig.stored("t")[0] == 1


def test_created_anew_just_when_the_former_one_that_became_unreadable_is_deleted() -> None:
    """The list of topics looks as before; the former one's problem is not the new one's."""
    world, rig = active(1, 2, t=[[1, 2]])
    world.broker_down(2)
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    world.damage("/brokers/topics/t", "partitions: expected object")
    rig.run()
    apply = world._apply

    def applied(write: Write) -> None:
        apply(write)
        if isinstance(write, DeleteNode) and write.path == "/brokers/topics/t":
            world.unreadable.clear()
            world.create_topic("t", {0: [1]})

    world._apply = applied  # type: ignore[method-assign]
    world.broker_up(2)
    rig.run()
    assert world.deletions == []
    assert rig.stored("t") == (1, 0, [1])


def test_a_deletion_that_waits_is_refused_with_the_others_once_deletions_are_off() -> None:
    """Its marker goes with theirs: the topic lives on when its move is done."""
    world, rig = active(1, 2, 3, t=[[1, 2]])
    rig.slow.add(3)
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, (2, 3))]))
    world.mark_for_deletion("t")
    rig.run()
    assert list(rig.cluster.deletions_waiting) == ["t"]
    everywhere = ConfigResource(ConfigScope.CONTROLLER, "")
    rig.ask(AlterConfigs([ConfigAlteration(everywhere, [ConfigChange("delete_topic_enable", "false")])]))
    world.mark_for_deletion("u")
    rig.run()
    assert (world.deletions, rig.cluster.deletions_waiting) == ([], {})


def test_deletions_begin_in_the_order_of_names() -> None:
    """That of a set differs from process to process."""
    names = [f"t{number:02}" for number in range(20)]
    world, rig = active(1, **{name: [[1]] for name in reversed(names)})
    rig.hold_stops = True
    world.mark_for_deletion(*reversed(names))
    rig.run()
    begun = [
        r.partition.topic.name
        for r in rig.recorded(ReplicaTransition)
        if r.after is ReplicaState.DELETION_STARTED
    ]
    assert begun == names
