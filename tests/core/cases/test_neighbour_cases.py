"""Scenarios next to those of the reference's rows, from the same suites of the original: deletion, reassignment,
elections, and what goes over the wire.

Leader epochs count from 0; each is what the original's tests wait for, or the comment says why ours is better.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.context import EventContext
from controller.core.effects import DeleteNode
from controller.core.model import PartitionState, ReplicaState
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import CreatePartitions, Expansion
from tests.support.core.deletions import check_gone, states
from tests.support.core.harness import MachineHarness, bare
from tests.support.core.reassignments import active, ask, assigned, check_moved, copy_all, join, ongoing
from tests.support.core.world import World, state

T = ("test", 0)


def succeeded(world: World, former: MachineHarness) -> MachineHarness:
    """The next controller, after the former one went."""
    world.watches.clear()
    world.events.clear()
    return MachineHarness(world, epoch=former.cluster.controller_epoch + 1).failover()


def with_topic(*brokers: int, **topics: list[list[int]]) -> tuple[World, MachineHarness]:
    rig = active(*brokers, settings=None, **topics)
    return rig.world, rig


# --- DeleteTopicTest, TopicDeletionManagerTest --------------------------------------------------------------


def test_deletion_resumes_when_a_follower_is_back() -> None:
    world, rig = with_topic(0, 1, 2, test=[[0, 1, 2]])
    world.broker_down(2)
    rig.run()
    world.mark_for_deletion("test")
    rig.run()
    # Those alive delete theirs; the topic and its marker wait for the one that is away.
    assert [b for b, keys in world.folders.items() if T in keys] == [2]
    assert ("test" in world.topics, world.deletions) == (True, ["test"])
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "test")


def test_deletion_resumes_after_a_failover_while_a_follower_is_away() -> None:
    world, rig = with_topic(0, 1, 2, test=[[0, 1, 2]])
    world.broker_down(1)
    world.mark_for_deletion("test")
    rig.run()
    world.broker_down(0)
    rig.run()
    successor = succeeded(world, rig)
    assert "test" in world.topics
    for broker in (1, 0):
        world.broker_up(broker)
        successor.run()
    check_gone(world, successor, "test")


def test_a_topic_is_deleted_while_partitions_are_added() -> None:
    world, rig = with_topic(0, 1, 2, test=[[0, 1, 2]])
    world.broker_down(2)
    rig.run()
    world.expand_topic("test", {1: [0, 1, 2]})
    world.mark_for_deletion("test")
    rig.run()
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "test")


@pytest.mark.parametrize("left", ["states gone", "a state gone", "topic gone"])
def test_a_partly_deleted_topic_is_finished_by_the_next_controller(left: str) -> None:
    """The marker goes last: whatever is left of the rest, who finds the marker finishes."""
    world, rig = with_topic(0, 1, 2, test=[[0, 1, 2], [1, 2, 0]])
    world.put_node("/config/topics/test", {"retention.ms": "1"})
    world.deletions.append("test")
    for number in {"states gone": (0, 1), "a state gone": (1,), "topic gone": (0, 1)}[left]:
        del world.states[("test", number)]
    if left == "topic gone":
        del world.topics["test"]
        for folders in world.folders.values():
            folders.clear()
    successor = succeeded(world, rig)
    check_gone(world, successor, "test")
    # And made again at once it is another topic.
    world.create_topic("test", {0: [1, 2]})
    successor.run()
    assert successor.stored("test") == (1, 0, [1, 2])
    successor.check_converged()


def test_replica_states_of_a_deletion_on_its_way() -> None:
    world, rig = with_topic(1, 2, 3, foo=[[1, 2, 3], [2, 3, 1]], bar=[[1, 2, 3]])
    rig.hold_stops = True
    world.mark_for_deletion("foo")
    rig.run()
    started, held = {ReplicaState.DELETION_STARTED}, {ReplicaState.DELETION_INELIGIBLE}
    assert states(rig, "foo") == {1: started, 2: started, 3: started}
    assert {p.state for p in rig.cluster.topics["foo"].partitions.values()} == {PartitionState.NON_EXISTENT}
    assert rig.cluster.topics_deletion_started == {"foo"}
    world.broker_down(2)
    rig.run()
    # It dies with the order in its hands: only its replicas are held, and still are while the others' are on their way.
    assert states(rig, "foo")[2] == held
    assert sorted(rig.cluster.deletions_ineligible) == ["foo"]
    world.broker_up(2)
    rig.run()
    assert states(rig, "foo") == {1: started, 2: held, 3: started}
    assert rig.cluster.deletions_ineligible == {}
    # Once they are deleted, those that were held are begun with.
    rig.answer_stops()
    rig.run()
    done = {ReplicaState.DELETION_SUCCESSFUL}
    assert states(rig, "foo") == {1: done, 2: started, 3: done}
    rig.answer_stops()
    rig.run()
    check_gone(world, rig, "foo")
    assert rig.stored("bar")[0] == 1


def test_what_goes_first_when_a_topic_is_complete() -> None:
    world, rig = with_topic(1, t=[[1]])
    world.put_node("/config/topics/t", {})
    world.mark_for_deletion("t")
    rig.run()
    deleted = [w.path for c in rig.commits() for w in c.writes if isinstance(w, DeleteNode)]
    topic, config, marker = (
        deleted.index(path) for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t")
    )
    assert topic < config < marker == len(deleted) - 1


@pytest.mark.parametrize("by_api", [True, False])
def test_no_new_partitions_for_a_topic_that_is_being_deleted(by_api: bool) -> None:
    world, rig = with_topic(0, 1, 2, test=[[0, 1, 2]])
    world.broker_down(2)
    world.mark_for_deletion("test")
    rig.run()
    if by_api:
        (reply,) = rig.ask(CreatePartitions([Expansion("test", 2)], False))
        assert [t.error.name for t in reply.topics] == ["INVALID_TOPIC_EXCEPTION"]
    else:
        world.expand_topic("test", {1: [0, 1]})
        rig.run()
    assert list(world.topics["test"].partitions) == [0]
    assert not [keys for keys in world.folders.values() if ("test", 1) in keys]


# --- ControllerIntegrationTest: reassignments --------------------------------------------------------------------


def test_a_reassignment_counts_the_leader_epoch_three_times() -> None:
    """Phase A, the election from the target, the old replica's departure."""
    world, rig = with_topic(0, 1, t=[[0]])
    world.ask_reassignment({("t", 0): [1]})
    rig.run()
    copy_all(rig)
    check_moved(rig, ("t", 0), [1])
    assert rig.stored("t") == (1, 3, [1])
    assert world.reassignment is None


def test_a_dead_target_halts_a_reassignment_until_it_is_back() -> None:
    world, rig = with_topic(0, 1, t=[[0]])
    world.broker_down(1)
    rig.run()
    world.ask_reassignment({("t", 0): [1]})
    rig.run()
    assert rig.stored("t") == (0, 1, [0])
    assert assigned(rig) == ([1, 0], [1], [0])
    assert world.reassignment is not None
    world.broker_up(1)
    rig.run()
    copy_all(rig)
    check_moved(rig, ("t", 0), [1])
    assert rig.stored("t") == (1, 4, [1])
    assert world.reassignment is None


def test_a_topic_without_an_id_gets_one_before_it_is_moved_and_keeps_it() -> None:
    world = World(0, 1)
    world.create_topic("t", {0: [0]}, topic_id="")
    rig = MachineHarness.active(world)
    given = world.topics["t"].topic_id
    assert given
    world.ask_reassignment({("t", 0): [1]})
    rig.run()
    copy_all(rig)
    check_moved(rig, ("t", 0), [1])
    assert world.topics["t"].topic_id == given == succeeded(world, rig).cluster.topics["t"].id


# --- ReassignPartitionsIntegrationTest, -ClusterTest --------------------------------------------------------------


def test_a_reassignment_that_was_asked_for_while_nobody_led_starts_with_the_next_controller() -> None:
    world, rig = with_topic(0, 1, 2, t=[[0, 1], [1, 2]])
    world.ask_reassignment({("t", 0): [2, 1], ("nowhere", 0): [1]})
    successor = succeeded(world, rig)
    copy_all(successor)
    check_moved(successor, ("t", 0), [2, 1])
    assert world.reassignment is None


def test_at_startup_the_znode_overrides_what_the_api_began() -> None:
    """Of three that move the znode names one, with other replicas; the others go on as they are."""
    world, rig = with_topic(0, 1, 2, 3, t=[[0], [0], [0]])
    assert set(ask(rig, {("t", n): [1] for n in range(3)}).values()) == {"NONE"}
    assert len(ongoing(rig)) == 3
    world.ask_reassignment({("t", 1): [2, 3]})
    successor = succeeded(world, rig)
    copy_all(successor)
    for number, replicas in enumerate(([1], [2, 3], [1])):
        check_moved(successor, ("t", number), replicas)
    assert world.reassignment is None


def test_the_newest_request_overrides_the_ones_before() -> None:
    world, rig = with_topic(0, 1, 2, 3, t=[[0, 1]])
    assert ask(rig, {("t", 0): [2, 1]})["t-0"] == "NONE"
    assert assigned(rig) == ([2, 1, 0], [2], [0])
    assert ask(rig, {("t", 0): [3, 1]})["t-0"] == "NONE"
    # Replica 2 is in neither set: it is stopped and deleted at once.
    assert assigned(rig) == ([3, 1, 0], [3], [0])
    assert ("t", 0) not in world.folders.get(2, set())
    copy_all(rig)
    check_moved(rig, ("t", 0), [3, 1])


def test_a_mixed_request_moves_overrides_cancels_and_refuses() -> None:
    rig = active(0, 1, 2, 3, t=[[0, 1], [0, 1], [0, 1], [0, 1]], u=[[0, 1]])
    assert set(ask(rig, {("t", n): [2, 1] for n in (0, 1)}).values()) == {"NONE"}
    errors = ask(
        rig,
        {
            ("t", 0): None,
            ("t", 1): [3, 1],
            ("t", 2): [1, 2],
            ("t", 3): None,
            ("u", 0): [],
            ("u", 7): [1],
            ("nowhere", 0): None,
        },
    )
    assert errors == {
        "t-0": "NONE",
        "t-1": "NONE",
        "t-2": "NONE",
        "t-3": "NO_REASSIGNMENT_IN_PROGRESS",
        "u-0": "INVALID_REPLICA_ASSIGNMENT",
        "u-7": "UNKNOWN_TOPIC_OR_PARTITION",
        "nowhere-0": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    copy_all(rig)
    for number, replicas in enumerate(([0, 1], [3, 1], [1, 2], [0, 1])):
        check_moved(rig, ("t", number), replicas)
    assert assigned(rig, "u") == ([0, 1], [], [])


@pytest.mark.parametrize(
    "replicas", [[], [0, 0], [-1], [0, -1], [0, 9], [1, 1, 2]], ids=lambda ids: ",".join(map(str, ids)) or "-"
)
def test_invalid_replicas(replicas: list[int]) -> None:
    world, rig = with_topic(0, 1, 2, t=[[0, 1]])
    (reply,) = rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, tuple(replicas))]))
    assert [p.error.name for p in reply.partitions] == ["INVALID_REPLICA_ASSIGNMENT"]
    assert (assigned(rig), world.topics["t"].version) == (([0, 1], [], []), 0)


def test_only_what_really_moves_is_listed() -> None:
    world, rig = with_topic(0, 1, 2, t=[[0, 1], [1, 2]], u=[[0]])
    ask(rig, {("t", 0): [2, 1]})
    assert list(ongoing(rig)) == ["t-0"]
    assert list(ongoing(rig, [("t", 1), ("t", 0), ("u", 0), ("u", 5), ("gone", 0)])) == ["t-0"]
    found = ongoing(rig)["t-0"]
    assert (list(found.adding), list(found.removing)) == ([2], [0])
    world.mark_for_deletion("t")
    rig.run()
    assert list(ongoing(rig)) == ["t-0"], "it moves on before it is deleted"


# --- ControllerIntegrationTest: elections and brokers ------------------------------------------------------------


def away_and_back(rig: MachineHarness, broker: int) -> None:
    """Leaves in order, returns, and is in sync again."""
    rig.ask(ControlledShutdown(broker, rig.world.brokers[broker].epoch))
    rig.world.broker_down(broker)
    rig.run()
    rig.world.broker_up(broker)
    rig.run()
    copy_all(rig)


def test_preferred_elections_back_to_back() -> None:
    """Each is heard: the watch is armed again after the znode has gone."""
    world, rig = with_topic(0, 1, t=[[1, 0]])
    for epoch in (1, 3):
        away_and_back(rig, 1)
        assert rig.stored("t")[:2] == (0, epoch)
        world.ask_preferred(("t", 0))
        rig.run()
        assert rig.stored("t")[:2] == (1, epoch + 1)
        assert world.preferred is None


def test_a_preferred_election_whose_replica_is_away() -> None:
    world, rig = with_topic(0, 1, t=[[1, 0]])
    rig.ask(ControlledShutdown(1, world.brokers[1].epoch))
    world.broker_down(1)
    rig.run()
    world.ask_preferred(("t", 0))
    rig.run()
    assert world.preferred is None
    assert rig.stored("t") == (0, 1, [0])


def test_nobody_leads_while_the_whole_isr_is_away() -> None:
    world, rig = with_topic(0, 1, t=[[1]])
    world.broker_down(1)
    rig.run()
    assert rig.stored("t") == (-1, 1, [1])
    assert rig.received[0].metadata[("t", 0)].leader == -1


@pytest.mark.parametrize("dead", [False, True])
def test_expansion_by_znode(dead: bool) -> None:
    """The new partition is led by whoever of its replicas is alive; the old ones are not written."""
    world, rig = with_topic(0, 1, t=[[0]])
    if dead:
        world.broker_down(1)
        rig.run()
    world.expand_topic("t", {1: [1, 0]})
    rig.run()
    assert rig.stored("t", 1) == ((0, 0, [0]) if dead else (1, 0, [1, 0]))
    assert rig.stored("t", 0) == (0, 0, [0])
    assert world.states[("t", 1)].controller_epoch == 1


def test_metadata_says_which_replicas_are_offline() -> None:
    world, rig = with_topic(0, 1, 2, t=[[0, 1, 2]])
    away: set[int] = set()
    for broker in (1, 2):
        world.broker_down(broker)
        rig.run()
        away.add(broker)
        notified = rig.received[0]
        assert set(notified.metadata[("t", 0)].offline_replicas) == away
        assert notified.live == {0, 1, 2} - away
    world.broker_up(1)
    rig.run()
    assert list(rig.received[0].metadata[("t", 0)].offline_replicas) == [2]
    assert rig.received[0].live == {0, 1}


def test_brokers_leave_one_after_the_other() -> None:
    """Three replicas, three partitions: nothing remains until the last, which nobody can replace."""
    world, rig = with_topic(0, 1, 2, t=[[2, 0, 1], [0, 1, 2]])
    for broker, remaining in ((2, set()), (0, set()), (1, {("t", 0), ("t", 1)})):
        (reply,) = rig.ask(ControlledShutdown(broker, world.brokers[broker].epoch))
        assert reply.error.name == "NONE"
        assert set(reply.remaining) == remaining
        for number in (0, 1):
            assert rig.stored("t", number)[0] != broker or remaining
    assert rig.stored("t", 0)[2] == rig.stored("t", 1)[2] == [1]
    # The last one goes all the same; it is in the ISR, and leads as soon as it is back.
    world.broker_down(0, 1, 2)
    rig.run()
    world.broker_up(0)
    rig.run()
    assert rig.stored("t", 0)[0] == -1
    world.broker_up(1)
    rig.run()
    assert (rig.stored("t", 0)[0], rig.stored("t", 1)[0]) == (1, 1)


def test_the_leader_epoch_of_a_proposal_is_that_of_the_next_election() -> None:
    """After an election what the former leader proposes is fenced, whoever sends it."""
    world, rig = with_topic(0, 1, 2, t=[[0, 1, 2]])
    stale = rig.proposal([0, 1])
    world.broker_down(0)
    rig.run()
    world.broker_up(0)
    rig.run()
    (reply,) = rig.ask(rig.alter(0, stale))
    assert [p.error.name for p in reply.partitions] == ["FENCED_LEADER_EPOCH"]
    join(rig, [1, 2, 0])
    assert rig.stored("t") == (1, 1, [1, 2, 0])


# --- ControllerChannelManagerTest ----------------------------------------------------------------------------------


def channel() -> MachineHarness:
    rig = bare([1, 2, 3], {(t, n): [1, 2, 3] for t in ("foo", "bar") for n in range(2)},
               {(t, n): state(1, [1, 2, 3], 4) for t in ("foo", "bar") for n in range(2)})  # fmt: skip
    rig.slow = {1, 2, 3}
    return rig


def sent_after(rig: MachineHarness, *acts: Any) -> None:
    """Pushes of one event, and their delivery."""

    def push(context: EventContext) -> None:
        for act in acts:
            act(context)

    rig.do(push)
    rig.slow = set()
    rig.drain()


def stop(rig: MachineHarness, broker: int, name: str, number: int, *, delete: bool) -> Any:
    return lambda context: context.push_stop([(rig.partition(name, number), broker)], delete=delete)


def test_stops_are_grouped_by_broker() -> None:
    rig = channel()
    sent_after(
        rig,
        *(
            stop(rig, broker, name, number, delete=False)
            for broker in (1, 2)
            for name in ("foo", "bar")
            for number in range(2)
        ),
    )
    stops = [s for s in rig.sent if s.kind.value == "StopReplica"]
    assert [(s.broker, len(s.message.partition_states)) for s in stops] == [(1, 4), (2, 4)]
    assert {e.leader_epoch for s in stops for e in s.message.partition_states} == {4}


def test_stops_go_to_those_alive_and_those_leaving() -> None:
    rig = channel()
    rig.cluster.shutting_down.add(2)
    del rig.cluster.brokers[3]
    rig.machine.outbox.remove_broker(3)
    sent_after(rig, *(stop(rig, broker, "foo", 0, delete=False) for broker in (1, 2, 3)))
    assert [s.broker for s in rig.sent] == [1, 2]


def test_stops_with_and_without_deletion_in_one_request() -> None:
    rig = channel()
    sent_after(rig, stop(rig, 2, "foo", 0, delete=True), stop(rig, 2, "bar", 1, delete=False))
    (sent,) = rig.sent
    found = {(e.topic, e.partition): e.delete_partition for e in sent.message.partition_states}
    assert found == {("foo", 0): True, ("bar", 1): False}


def test_metadata_while_a_topic_is_deleted() -> None:
    """Leader -2 for its partitions, with the ISR kept; the others as they are (K112's neighbour)."""
    rig = channel()
    rig.cluster.topics_to_delete.add("foo")
    sent_after(
        rig,
        lambda context: context.push_brokers(),
        lambda context: context.push_metadata(list(rig.cluster.partitions())),
    )
    # What is removed is told as removed or left out; it is never told as led.
    led = {(e.topic, e.leader) for s in rig.sent for e in s.message.partition_states}
    assert led == {("foo", -2), ("bar", 1)}


def test_metadata_goes_to_those_leaving_and_names_them() -> None:
    rig = channel()
    rig.cluster.shutting_down.add(3)
    sent_after(
        rig,
        lambda context: context.push_brokers(),
        lambda context: context.push_metadata([rig.partition("foo", 0)]),
    )
    assert {s.broker for s in rig.sent} == {1, 2, 3}
    for sent in rig.sent:
        assert [b.broker_id for b in sent.message.live_brokers] == [1, 2, 3]
