"""The original's own test suites about topic deletion, restated as data (``deletion_cases.jsonl``), run on our core.

Every row is run here or listed in ``ELSEWHERE`` with the reason.
"""

from __future__ import annotations

import pytest

from controller.core.context import CoreSettings
from controller.core.handlers import not_controller
from controller.core.model import PartitionState, ReplicaState
from controller.core.requests.errors import ErrorCode
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import DeleteTopics, DeleteTopicsReply, TopicRef
from controller.core.znode_paths import topic_path
from tests.support.core.deletions import check_gone, states
from tests.support.core.harness import MachineHarness
from tests.support.core.world import Key, World
from tests.support.reference_rows import Row, load

ROWS = load("deletion_cases.jsonl")
ELSEWHERE = {
    "K268": "request versions: we speak one protobuf schema",
    "K269": "an inter-broker protocol without topic ids: we have one protocol, and always assign ids",
}
DELETION_STATES = {s.value.removeprefix("Replica").removesuffix("Replica"): s for s in ReplicaState}


def cluster(row: Row) -> tuple[World, MachineHarness]:
    """The row's brokers, topics and configuration, and an active controller."""
    given = row["given"]
    world = World(*given["brokers"])
    for name, assignment in given["topics"].items():
        world.create_topic(name, {int(n): ids for n, ids in assignment.items()})
    enabled = given["config"]["delete_topic_enable"]
    rig = MachineHarness.active(world, settings=CoreSettings(delete_topic_enable=enabled))
    return world, rig


def expected(replica_states: Row) -> dict[int, set[ReplicaState]]:
    return {
        int(broker): {DELETION_STATES[state]}
        for on, state in replica_states.items()
        for broker in on.removeprefix("on ").split(",")
    }


def test_k084_a_broker_is_offline_when_deletion_begins() -> None:
    row = ROWS["K084"]
    given, actions = row["given"], row["when"]["actions"]
    world = World(*given["brokers"])
    for name in given["topics"]:
        world.create_topic(name, {n: [1 + (n + i) % 3 for i in range(3)] for n in range(2)})
    rig = MachineHarness.active(world)
    rig.hold_stops = True
    for action in actions:
        if action["op"] == "broker_offline":
            world.broker_down(action["broker"])
        elif action["op"] == "enqueue_deletion":
            world.mark_for_deletion(*action["topics"])
        elif action["op"] == "complete_replica_deletion":
            rig.answer_stops()
        elif action["op"] == "broker_online":
            world.broker_up(action["broker"])
        elif action["op"] == "expect":
            found = states(rig, "foo")
            wanted = expected(action["replica_states"])
            assert {broker: found[broker] for broker in wanted} == wanted
            if "partition_states" in action:
                partitions = rig.cluster.topics["foo"].partitions.values()
                assert {p.state for p in partitions} == {PartitionState.NON_EXISTENT}
            if "topics_ineligible" in action:
                assert sorted(rig.cluster.deletions_ineligible) == action["topics_ineligible"]
                assert sorted(rig.cluster.topics_to_delete) == action["topics_to_be_deleted"]
                assert sorted(rig.cluster.topics_deletion_started) == action["topics_with_deletion_started"]
        rig.run()
    assert set(rig.cluster.topics) == {"bar"}
    assert (rig.cluster.topics_to_delete, rig.cluster.topics_deletion_started) == (set(), set())
    assert rig.cluster.deletions_ineligible == {}
    check_gone(world, rig, "foo")


def test_k251_all_replicas_are_alive() -> None:
    world, rig = cluster(ROWS["K251"])
    world.mark_for_deletion("test")
    rig.run()
    check_gone(world, rig, "test")


def test_k254_a_reassignment_is_refused_while_it_is_deleted() -> None:
    row = ROWS["K254"]
    world, rig = cluster(row)
    world.broker_down(2)
    world.mark_for_deletion("test")
    rig.run()
    assert ("test", 0) not in rig.received[0].metadata
    action = next(a for a in row["when"]["actions"] if a["op"] == "api_reassign")
    asked = [PartitionReassignment("test", 0, tuple(action["assignment"]["test-0"]))]
    (answer,) = rig.ask(AlterPartitionReassignments(asked))
    assert [a.error for a in answer.partitions] == [ErrorCode[action["expect_error"]]]
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "test")


def test_k255_partitions_added_and_a_failover_while_a_broker_is_away() -> None:
    """The original's tool may or may not have added the partition; here it has, in the znode."""
    world, rig = cluster(ROWS["K255"])
    world.broker_down(2)
    world.mark_for_deletion("test")
    rig.run()
    world.expand_topic("test", {1: [0, 1, 2]})
    rig.run()
    world.broker_down(0)
    rig.run()
    world.watches.clear()
    successor = MachineHarness(world, epoch=2).failover()
    world.broker_up(2)
    successor.run()
    world.broker_up(0)
    successor.run()
    check_gone(world, successor, "test")


def test_k257_partitions_added_while_it_is_deleted() -> None:
    world, rig = cluster(ROWS["K257"])
    rig.hold_stops = True
    world.mark_for_deletion("test")
    rig.run()
    world.expand_topic("test", {1: [0, 1, 2]})
    rig.run()
    assert list(world.topics["test"].partitions) == [0]  # KAFKA-6612
    assert not [key for keys in world.folders.values() for key in keys if key == ("test", 1)]
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    check_gone(world, rig, "test")


def test_k258_created_again_after_its_deletion() -> None:
    world, rig = cluster(ROWS["K258"])
    world.mark_for_deletion("test")
    rig.run()
    rig.forget()
    world.create_topic("test", {0: [0, 1, 2]})
    rig.run()
    holding = [b for b, keys in world.folders.items() if ("test", 0) in keys]
    assert holding == ROWS["K258"]["then"]["logs_present_on"]
    assert rig.stored("test") == (0, 0, [0, 1, 2])
    assert all(" new" in line for line in rig.lines("LISR"))
    rig.check_converged()


def ask(rig: MachineHarness, *topics: TopicRef) -> list[ErrorCode]:
    (answer,) = rig.ask(DeleteTopics(topics))
    assert isinstance(answer, DeleteTopicsReply)
    assert answer.error is ErrorCode.NONE
    return [topic.error for topic in answer.topics]


@pytest.mark.parametrize("row_id", ["K259", "K262"])
def test_k259_k262_refused(row_id: str) -> None:
    row = ROWS[row_id]
    world, rig = cluster(row)
    action = row["when"]["actions"][0]
    assert ask(rig, TopicRef(action["topic"])) == [ErrorCode[action["expect_error"]]]
    assert world.deletions == []
    assert "test" in world.topics
    assert sorted(b for b, keys in world.folders.items() if ("test", 0) in keys) == [0, 1, 2]
    assert rig.stored("test")[0] >= 0


def test_k265_by_name_and_by_id() -> None:
    row = ROWS["K265"]
    world = World(1, 2, 3)
    for name, count in row["given"]["topics"].items():
        world.create_topic(name, {n: [1 + n % 3] for n in range(count)})
    rig = MachineHarness.active(world)
    for request in row["when"]["requests"]:
        refs = [TopicRef(name) for name in request.get("names", ())]
        refs += [TopicRef(topic_id=world.topics[name].topic_id) for name in request.get("ids", ())]
        assert ask(rig, *refs) == [ErrorCode.NONE] * len(refs)
    assert world.topics == {}
    assert world.folders == {1: set(), 2: set(), 3: set()}


def test_k267_not_the_controller() -> None:
    answer = not_controller(DeleteTopics([TopicRef("not-controller")]))
    assert answer.error is ErrorCode[ROWS["K267"]["then"]["error"]]


def test_precedence_of_errors() -> None:
    """Kafka's: disabled, then what was asked wrongly, then what is not there; by id before by name."""
    world = World(1)
    world.create_topic("t", {0: [1]})
    world.create_topic("twice", {0: [1]})
    rig = MachineHarness.active(world)
    twice = world.topics["twice"].topic_id
    asked: list[tuple[TopicRef, ErrorCode]] = [
        (TopicRef("t", world.topics["t"].topic_id), ErrorCode.INVALID_REQUEST),
        (TopicRef(), ErrorCode.INVALID_REQUEST),
        (TopicRef(topic_id="nobody's"), ErrorCode.UNKNOWN_TOPIC_ID),
        (TopicRef("a/b"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef(".."), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef("x" * 250), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef("unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef("twice"), ErrorCode.INVALID_REQUEST),
        (TopicRef(topic_id=twice), ErrorCode.INVALID_REQUEST),
    ]
    assert ask(rig, *(ref for ref, _ in asked)) == [error for _, error in asked]
    assert set(world.topics) == {"t", "twice"}
    assert world.deletions == []
    assert len(rig.rejects()) == len(asked)
    assert topic_path("t") not in rig.cluster.problems


def test_a_folder_key_is_of_the_model() -> None:
    """The rows above compare folders: they must be able to differ."""
    world, _ = cluster(ROWS["K251"])
    key: Key = ("test", 0)
    assert all(key in world.folders[broker] for broker in world.brokers)
