"""CreateTopics and CreatePartitions: every refusal in its precedence, what is written, and what lost answers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.effects import Commit, CreateTopic, DeleteNode, Read, ReadTopics, SetTopic, WriteNode
from controller.core.model import Broker, Cluster, Endpoint
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.operator import SetDrain
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Expansion,
    NewTopic,
    TopicRef,
)
from controller.core.topics import create_topics
from controller.core.topics.create_topics import Batch, TopicRefusedError, validate_creation
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, a_broker


@pytest.fixture
def rig() -> MachineHarness:
    world = World(1, 2, 3)
    world.create_topic("old_one", {0: [1, 2]})
    world.create_topic("t", {0: [2, 3]})
    world.create_topic("moving", {0: [1, 2]})
    world.edit_topic("moving", partitions={0: (9, 1, 2)}, adding={0: (9,)}, removing={0: (2,)})
    world.create_topic("broken", {0: [1]})
    world.damage("/brokers/topics/broken")
    return MachineHarness.active(world)


def create(rig: MachineHarness, *topics: NewTopic, validate_only: bool = False) -> Any:
    (reply,) = rig.ask(CreateTopics(topics, validate_only))
    return reply.topics


def expand(rig: MachineHarness, *expansions: Expansion, validate_only: bool = False) -> Any:
    (reply,) = rig.ask(CreatePartitions(expansions, validate_only))
    return reply.topics


def writes(rig: MachineHarness, kind: type) -> list[Any]:
    return [w for commit in rig.commits() for w in commit.writes if isinstance(w, kind)]


# --- creation --------------------------------------------------------------------------------------------------

#: Each has every fault of those below it, so that precedence decides.
WORST: Mapping[str, Any] = {"partitions": 0, "replication_factor": 9, "configs": {"retention.ms": "x"}}
REFUSED = [
    (NewTopic("a b", **WORST), "INVALID_TOPIC_EXCEPTION", "topic name 'a b'"),
    (NewTopic("t", **WORST), "TOPIC_ALREADY_EXISTS", "exists already"),
    (NewTopic("broken", **WORST), "TOPIC_ALREADY_EXISTS", "exists already"),
    (NewTopic("old.one", **WORST), "INVALID_TOPIC_EXCEPTION", "collides with 'old_one'"),
    (NewTopic("n", **WORST), "INVALID_PARTITIONS", "partitions = 0: must be at least 1"),
    (NewTopic("n", 10**9, 1), "INVALID_PARTITIONS", "must be at most 900000"),
    (NewTopic("n", 100_000, 1), "INVALID_PARTITIONS", "100000 partitions need"),
    (NewTopic("n", 1, 9, configs=WORST["configs"]), "INVALID_REPLICATION_FACTOR", "number of brokers, 3"),
    (NewTopic("n", 1, 0), "INVALID_REPLICATION_FACTOR", "replication factor = 0"),
    (NewTopic("n", 1, assignment={0: (1, 1)}), "INVALID_REQUEST", "leave both numbers out"),
    (NewTopic("n", None, 1, assignment={0: (1,)}), "INVALID_REQUEST", "leave both numbers out"),
    (NewTopic("n", assignment={0: (1, 1)}, configs=WORST["configs"]), "INVALID_REPLICA_ASSIGNMENT", "distinct"),
    (NewTopic("n", assignment={0: (1, 2), 1: (1,)}), "INVALID_REPLICA_ASSIGNMENT", "same number"),
    (NewTopic("n", assignment={0: ()}), "INVALID_REPLICA_ASSIGNMENT", "at least 1"),
    (NewTopic("n", assignment={1: (1,)}), "INVALID_REPLICA_ASSIGNMENT", "from 0 without gaps"),
    (NewTopic("n", assignment={-1: (1,), 0: (1,)}), "INVALID_REPLICA_ASSIGNMENT", "from 0 without gaps"),
    (NewTopic("n", assignment={0: (2**31,)}), "INVALID_REPLICA_ASSIGNMENT", "2147483647"),
    (NewTopic("n", assignment={0: (1, 2**31)}), "INVALID_REPLICA_ASSIGNMENT", "2147483647"),
    (NewTopic("n", configs=WORST["configs"]), "INVALID_CONFIG", "retention.ms = 'x'"),
    (NewTopic("n", configs={" ": "x"}), "INVALID_CONFIG", "a key is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("topic", "error", "says"), REFUSED)
def test_creation_is_refused_in_this_order(
    rig: MachineHarness, topic: NewTopic, error: str, says: str
) -> None:
    rig.forget()
    (answer,) = create(rig, topic)
    assert (answer.error.name, says in answer.message) == (error, True), answer
    assert (answer.topic_id, answer.assignment, rig.commits()) == ("", {}, [])
    assert rig.rejects() == [error]


def test_a_topic_being_deleted_cannot_be_created(rig: MachineHarness) -> None:
    rig.stop_error = lambda *_: "KAFKA_STORAGE_ERROR"
    rig.world.mark_for_deletion("t", "moving")
    rig.run()
    for name in ("t", "moving"):
        (answer,) = create(rig, NewTopic(name, **WORST))
        assert (answer.error.name, "is being deleted" in answer.message) == ("TOPIC_ALREADY_EXISTS", True)


def test_of_several_names_that_collide_the_first_is_named() -> None:
    batch = Batch()
    for name in ("a_b.c", "a.b_c", "a.b.c"):
        batch.add(name, 1)
    with pytest.raises(TopicRefusedError, match=r"collides with 'a\.b\.c'"):
        validate_creation(Cluster(1, 1), NewTopic("a_b_c"), batch)


def test_what_is_named_twice_and_what_collides_within_a_request(rig: MachineHarness) -> None:
    answers = create(rig, NewTopic("x"), NewTopic("x"), NewTopic("a.b"), NewTopic("a_b"), NewTopic("y"))
    assert [a.error.name for a in answers] == [
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "NONE",
        "INVALID_TOPIC_EXCEPTION",
        "NONE",
    ]


def test_configuration_and_topic_are_one_write_and_leaders_follow(rig: MachineHarness) -> None:
    rig.forget()
    (answer,) = create(rig, NewTopic("n", 3, 2, configs={"retention.ms": "5", "of.others": "kept"}))
    assert answer.message == "configuration that is not known, and was not checked: 'of.others'"
    stored = rig.world.topics["n"]
    assert (answer.error.name, answer.topic_id) == ("NONE", stored.topic_id)
    assert answer.assignment == stored.partitions
    config, topic = rig.commits()[0].writes
    assert config == WriteNode("/config/topics/n", {"retention.ms": "5", "of.others": "kept"}, None)
    assert isinstance(topic, CreateTopic)
    assert [rig.stored("n", n)[0] for n in range(3)] == [ids[0] for ids in stored.partitions.values()]
    assert len({ids[0] for ids in stored.partitions.values()}) == 3
    assert all(len(set(ids)) == 2 for ids in stored.partitions.values())


@pytest.mark.parametrize("registration", [4, 5], ids=["without topic ids", "with topic ids"])
def test_the_next_request_finds_what_was_created_and_added(rig: MachineHarness, registration: int) -> None:
    """They wait in line before the watches' events."""
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)
    rig.cluster.brokers[4] = rig.world.brokers[4] = Broker(4, 50, (endpoint,), registration=registration)
    elect = ElectLeaders(ElectionType.PREFERRED, [("t", 1)])
    created, colliding, expanded, twice, elected = rig.ask(
        CreateTopics([NewTopic("a.b", assignment={0: (1,)}), NewTopic("t")]),
        CreateTopics([NewTopic("a_b", assignment={0: (1,)})]),
        CreatePartitions([Expansion("t", 2, ((2, 3),))]),
        DeleteTopics([TopicRef("a.b")]),
        elect,
    )
    assert bool(created.topics[0].topic_id) is (registration == 5)
    assert [r.topics[0].error.name for r in (created, colliding, expanded, twice)] == [
        "NONE",
        "INVALID_TOPIC_EXCEPTION",
        "NONE",
        "NONE",
    ]
    assert [p.error.name for p in elected.partitions] == ["ELECTION_NOT_NEEDED"]


def test_by_default_one_partition_and_dead_brokers_may_be_named(rig: MachineHarness) -> None:
    one, dead = create(rig, NewTopic("one"), NewTopic("dead", assignment={1: (98, 1), 0: (1, 99)}))
    assert [len(ids) for ids in one.assignment.values()] == [1]
    assert (dead.error.name, list(dead.assignment)) == ("NONE", [0, 1])
    assert rig.stored("dead", 1) == (1, 0, [1])


def test_validation_alone_writes_nothing(rig: MachineHarness) -> None:
    rig.forget()
    good, bad = create(rig, NewTopic("n", 2, 2), NewTopic("m", 0), validate_only=True)
    assert (good.error.name, len(good.assignment), good.topic_id) == ("NONE", 2, "")
    assert bad.error.name == "INVALID_PARTITIONS"
    assert rig.commits() == []


@pytest.mark.parametrize("readable", [True, False])
def test_a_configuration_left_behind_is_replaced(rig: MachineHarness, readable: bool) -> None:
    rig.world.put_node("/config/topics/n", {"old": "1"})
    if not readable:
        rig.world.damage("/config/topics/n")
    rig.forget()
    (answer,) = create(rig, NewTopic("n", configs={"new": "2"}))
    kinds = [type(w) for w in rig.commits()[0].writes]
    if readable:
        assert (answer.error.name, kinds) == ("NONE", [WriteNode, CreateTopic])
        assert rig.world.nodes["/config/topics/n"].value == {"new": "2"}
    else:
        assert kinds == [DeleteNode, WriteNode, CreateTopic]


def test_an_answer_that_was_lost_is_no_failure_and_makes_no_second_topic(rig: MachineHarness) -> None:
    rig.fate = lambda c: Fate.LANDED if any(isinstance(w, CreateTopic) for w in c.writes) else Fate.ANSWERED
    rig.forget()
    (answer,) = create(rig, NewTopic("n"))
    assert (answer.error.name, answer.topic_id) == ("NONE", rig.world.topics["n"].topic_id)
    assert len(writes(rig, CreateTopic)) == 1


def test_a_write_that_is_lost_is_tried_again_but_not_for_ever(rig: MachineHarness) -> None:
    lost = 0

    def fate(commit: Commit) -> Fate:
        nonlocal lost
        if any(isinstance(w, CreateTopic) for w in commit.writes) and lost != 1:
            lost += 1
            return Fate.LOST
        lost += 1
        return Fate.ANSWERED

    rig.fate = fate
    (answer,) = create(rig, NewTopic("n"))
    assert (answer.error.name, lost >= 2) == ("NONE", True)
    tried: list[Commit] = []

    def never(commit: Commit) -> Fate:
        if not any(isinstance(w, CreateTopic) for w in commit.writes):
            return Fate.ANSWERED
        if not tried:
            rig.world.put_node("/config/topics/never", {"by": "another"})
        tried.append(commit)
        return Fate.LOST if len(tried) > 1 else Fate.ANSWERED

    rig.fate = never
    (answer,) = create(rig, NewTopic("never"))
    assert answer.error.name == "UNKNOWN_SERVER_ERROR"
    # Not what kept it from the first of them.
    assert answer.message.endswith("attempts; the last: the connection was lost before the answer")


@pytest.mark.parametrize("replicas", [[3], [1]], ids=["others", "the very replicas that were asked for"])
def test_somebody_who_creates_it_meanwhile_wins(rig: MachineHarness, replicas: list[int]) -> None:
    def fate(commit: Commit) -> Fate:
        if any(isinstance(w, CreateTopic) for w in commit.writes) and "n" not in rig.world.topics:
            rig.world.create_topic("n", {0: replicas})
        return Fate.ANSWERED

    rig.fate = fate
    (answer,) = create(rig, NewTopic("n", assignment={0: (1,)}, configs={"a": "b"}))
    assert (answer.error.name, "meanwhile" in answer.message) == ("TOPIC_ALREADY_EXISTS", True)
    assert rig.world.topics["n"].partitions == {0: tuple(replicas)}
    assert "/config/topics/n" not in rig.world.nodes


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))
def test_whatever_is_placed_is_valid(partitions: int, factor: int, brokers: int) -> None:
    cluster = Cluster(1)
    cluster.brokers = {b: a_broker(b, b, rack=f"r{b % 2}") for b in range(brokers)}
    topic = NewTopic("n", partitions, factor)
    if factor > brokers:
        with pytest.raises(TopicRefusedError):
            validate_creation(cluster, topic, Batch())
        return
    placed = validate_creation(cluster, topic, Batch())
    assert list(placed) == list(range(partitions))
    assert all(len(set(ids)) == factor and set(ids) <= cluster.brokers.keys() for ids in placed.values())


# --- expansion -------------------------------------------------------------------------------------------------

EXPANSIONS = [
    (Expansion("a b", 0), "INVALID_TOPIC_EXCEPTION", "topic name"),
    (Expansion("nope", 0), "UNKNOWN_TOPIC_OR_PARTITION", "no topic 'nope'"),
    (Expansion("broken", 2), "UNKNOWN_SERVER_ERROR", "field x"),
    (Expansion("moving", 0), "REASSIGNMENT_IN_PROGRESS", "moving-0 is being reassigned"),
    (Expansion("t", 1), "INVALID_PARTITIONS", "more than the 1 partitions there are"),
    (Expansion("t", -5, ((1, 2),)), "INVALID_PARTITIONS", "count = -5"),
    (Expansion("t", 10**9), "INVALID_PARTITIONS", "at most 900000"),
    (Expansion("t", 3, ((1, 2),)), "INVALID_REPLICA_ASSIGNMENT", "1 assignments for 2 new"),
    (Expansion("t", 2, ((1, 1),)), "INVALID_REPLICA_ASSIGNMENT", "distinct"),
    (Expansion("t", 3, ((1, 2), (1,))), "INVALID_REPLICA_ASSIGNMENT", "same number"),
    (Expansion("t", 2, ((1, 98),)), "INVALID_REPLICA_ASSIGNMENT", "[98] are not registered"),
    (Expansion("t", 2, ((1,),)), "INVALID_REPLICA_ASSIGNMENT", "must be 2 as in the others"),
]


@pytest.mark.parametrize(("expansion", "error", "says"), EXPANSIONS)
def test_expansion_is_refused_in_this_order(
    rig: MachineHarness, expansion: Expansion, error: str, says: str
) -> None:
    rig.forget()
    (answer,) = expand(rig, expansion)
    assert (answer.error.name, says in answer.message) == (error, True), answer
    assert (answer.assignment, rig.commits()) == ({}, [])
    assert error in rig.rejects()


def test_a_topic_being_deleted_cannot_be_expanded(rig: MachineHarness) -> None:
    rig.stop_error = lambda *_: "KAFKA_STORAGE_ERROR"
    rig.world.mark_for_deletion("t")
    rig.run()
    (answer,) = expand(rig, Expansion("t", 3))
    assert answer.error.name == "INVALID_TOPIC_EXCEPTION"


def test_too_few_brokers_for_as_many_replicas_as_before(rig: MachineHarness) -> None:
    rig.world.broker_down(1, 2)
    rig.run()
    (answer,) = expand(rig, Expansion("t", 3))
    assert (answer.error.name, "number of brokers, 1" in answer.message) == (
        "INVALID_REPLICATION_FACTOR",
        True,
    )


def test_new_partitions_go_on_from_the_first_and_get_leaders(rig: MachineHarness) -> None:
    twice, twice_too, by_hand = expand(
        rig, Expansion("t", 4), Expansion("t", 5), Expansion("old_one", 2, ((3, 1),))
    )
    assert [a.error.name for a in (twice, twice_too)] == ["INVALID_REQUEST"] * 2
    assert by_hand.assignment == {1: (3, 1)}
    (answer,) = expand(rig, Expansion("t", 4))
    assert list(answer.assignment) == [1, 2, 3]
    # Partition 0 is led by 2: the ring goes on.
    assert list(answer.assignment.values()) == [(3, 2), (1, 3), (2, 3)]
    assert rig.world.topics["t"].partitions == {0: (2, 3), **answer.assignment}
    assert [rig.stored("t", n)[0] for n in range(4)] == [2, 3, 1, 2]
    assert rig.stored("old_one", 1) == (3, 0, [3, 1])


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_new_partitions_take_the_free_numbers_of_a_topic_that_leaves_some_out(
    rig: MachineHarness, by_hand: bool, first: int
) -> None:
    there = {3: (1,), first: (2,), 7: (3,)}
    rig.world.create_topic("holes", there)
    rig.run()
    before = {n: rig.stored("holes", n) for n in there}
    given = ((2,), (3,), (1,)) if by_hand else ()
    (answer,) = expand(rig, Expansion("holes", 6, given))
    free = [1 - first, 2, 4]
    assert answer.assignment == dict(zip(free, [(2,), (3,), (1,)], strict=True))
    assert rig.world.topics["holes"].partitions == {**there, **answer.assignment}
    assert {n: rig.stored("holes", n) for n in there} == before
    assert [rig.stored("holes", n)[0] for n in free] == [2, 3, 1]


def test_a_topic_whose_move_waits_is_expanded(rig: MachineHarness) -> None:
    rig.world.edit_topic("t", queued={0: (1,)})
    (answer,) = expand(rig, Expansion("t", 2))
    assert answer.error.name == "NONE"
    assert rig.world.topics["t"].queued == {0: (1,)}


def test_expansions_of_one_request_count_together(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_topics, "PARTITIONS_MAX", 5)
    for name in "abc":
        create(rig, NewTopic(name, 1, 1))
    answers = expand(rig, *(Expansion(name, 3) for name in "abc"))
    assert [answer.error.name for answer in answers] == ["NONE", "NONE", "POLICY_VIOLATION"]


def test_what_somebody_else_added_meanwhile_is_not_what_was_asked_for(rig: MachineHarness) -> None:
    def fate(commit: Commit) -> Fate:
        if not any(isinstance(w, SetTopic) for w in commit.writes):
            return Fate.ANSWERED
        rig.world.expand_topic("t", {1: [1, 2]})
        return Fate.LOST

    rig.fate = fate
    (answer,) = expand(rig, Expansion("t", 2, ((2, 3),)))
    assert (answer.error.name, answer.assignment) == ("INVALID_PARTITIONS", {})


def test_validating_an_expansion_writes_nothing(rig: MachineHarness) -> None:
    rig.forget()
    (answer,) = expand(rig, Expansion("t", 2), validate_only=True)
    assert (answer.error.name, list(answer.assignment), rig.commits()) == ("NONE", [1], [])
    assert rig.reads() == ["ReadTopics"], "and no second look"


def test_only_what_may_be_a_topic_is_read(rig: MachineHarness) -> None:
    rig.forget()
    twice = [Expansion("old_one", 2), Expansion("old_one", 3)]
    expand(rig, Expansion("t", 2), Expansion("a/b", 2), *twice, validate_only=True)
    (asked,) = [e.query.names for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadTopics)]
    assert list(asked) == ["t"]


def test_an_expansion_whose_answer_is_lost_is_not_done_twice(rig: MachineHarness) -> None:
    rig.fate = lambda c: Fate.LANDED if any(isinstance(w, SetTopic) for w in c.writes) else Fate.ANSWERED
    (answer,) = expand(rig, Expansion("t", 3))
    assert (answer.error.name, list(answer.assignment)) == ("NONE", [1, 2])
    assert [w.info.name for w in writes(rig, SetTopic)] == ["t"]


def test_an_edit_in_between_is_decided_anew(rig: MachineHarness) -> None:
    def fate(commit: Commit) -> Fate:
        if any(isinstance(w, SetTopic) for w in commit.writes) and len(rig.world.topics["t"].partitions) == 1:
            rig.world.expand_topic("t", {1: [1, 2]})
        return Fate.ANSWERED

    rig.fate = fate
    (answer,) = expand(rig, Expansion("t", 3))
    assert (answer.error.name, list(answer.assignment)) == ("NONE", [2])
    assert rig.world.topics["t"].partitions[1] == (1, 2)
    rig.fate = lambda c: Fate.LOST if any(isinstance(w, SetTopic) for w in c.writes) else Fate.ANSWERED
    (answer,) = expand(rig, Expansion("t", 9))
    assert (answer.error.name, "attempts" in answer.message) == ("UNKNOWN_SERVER_ERROR", True)


# --- brokers of both kinds -------------------------------------------------------------------------------------


def test_kafka_brokers_and_brokers_led_by_grpc_share_no_partition() -> None:
    world = World(1, 2)
    for id_ in (3, 4):
        world.brokers[id_] = Broker(id_, 50, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),))
    world.create_topic("kafkas", {0: [3]})
    rig = MachineHarness.active(world)
    (refused,) = create(rig, NewTopic("n", assignment={0: (1, 3)}))
    assert (refused.error.name, refused.message) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "replica assignment of partition 0: Kafka brokers [3] and brokers led by gRPC [1] cannot replicate from each "
        "other",
    )
    (refused,) = create(rig, NewTopic("n", 1, 2))
    assert refused.error.name == "INVALID_REPLICATION_FACTOR"
    assert refused.message.endswith("name the replicas in an assignment")
    named = NewTopic("n", assignment={0: (1, 2), 1: (4, 3)})
    assert [answer.error.name for answer in create(rig, named)] == ["NONE"]
    assert [answer.error.name for answer in create(rig, NewTopic("single", 1, 1))] == ["NONE"]
    (refused,) = expand(rig, Expansion("n", 3, ((3, 1),)))
    assert refused.error.name == "INVALID_REPLICA_ASSIGNMENT"
    # By count, new partitions go to brokers of the kind that the topic is on.
    (grown,) = expand(rig, Expansion("kafkas", 5))
    assert {b for ids in grown.assignment.values() for b in ids} == {3, 4}
    for target in ((1,), (3, 1)):
        (moved,) = rig.ask(AlterPartitionReassignments([PartitionReassignment("kafkas", 0, target)]))
        assert moved.partitions[0].error.name == "INVALID_REPLICA_ASSIGNMENT"
    (moved,) = rig.ask(AlterPartitionReassignments([PartitionReassignment("kafkas", 0, (4,))]))
    assert moved.partitions[0].error.name == "NONE"


def test_where_drained_brokers_must_be_used_leaderships_are_spread_over_the_others() -> None:
    rig = MachineHarness.active(World(1, 2, 3))
    rig.ask(SetDrain(1, True, "new disks", "ann"))
    (answer,) = create(rig, NewTopic("n", 12, 3))
    assert {ids[-1] for ids in answer.assignment.values()} == {1}
    assert {ids[0] for ids in answer.assignment.values()} == {2, 3}


def test_small_topics_are_led_by_different_brokers() -> None:
    rig = MachineHarness.active(World(1, 2, 3))
    for name in "abc":
        create(rig, NewTopic(name, 1, 1))
    create(rig, *(NewTopic(name, 1, 1) for name in "def"))
    for together in ("abc", "def"):
        assert {rig.stored(name)[0] for name in together} == {1, 2, 3}


def test_each_topic_of_a_request_counts_once_in_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_topics, "PARTITIONS_MAX", 5)
    rig = MachineHarness.active(World(1, 2, 3))
    answers = create(rig, NewTopic("a", 3, 1), NewTopic("b", 3, 1), NewTopic("c", 2, 1), NewTopic("d", 1, 1))
    assert [a.error.name for a in answers] == ["NONE", "POLICY_VIOLATION", "NONE", "POLICY_VIOLATION"]
