"""Topics: created, expanded, vanished, damaged (reference, section 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.commits import ATTEMPTS_MAX
from controller.core.effects import Commit, CreateState, Read, ReadTopics, SetTopic, TopicInfo
from controller.core.events import Event, EventKind, StatesCheck
from controller.core.handlers import event_of
from controller.core.model import Broker, Endpoint, Partition, PartitionState, ReplicaState, Topic
from controller.core.records import PartitionTransition, Rejection
from controller.core.requests.topics import CreateTopics, NewTopic
from controller.core.topics import changes
from controller.core.topics.changes import add_partitions, assign_missing_ids, is_plain, topic_of_info
from controller.core.znode_paths import topic_path
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import TOPIC_CHANGE, World, modified, state


def active(*brokers: int) -> tuple[World, MachineHarness]:
    world = World(*brokers)
    rig = MachineHarness.active(world)
    rig.forget()
    return world, rig


def test_a_created_topic_gets_states_in_one_commit() -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2], 1: [2, 1]})
    rig.run()
    assert rig.stored("t", 0) == (1, 0, [1, 2])
    assert rig.stored("t", 1) == (2, 0, [2, 1])
    assert rig.reads() == ["ReadTopicNames", "ReadTopics"]
    (commit,) = rig.commits()
    assert {type(w) for w in commit.writes} == {CreateState}
    lines = ["t-0 leader 1 epoch 0 isr [1, 2]", "t-1 leader 2 epoch 0 isr [2, 1]"]
    assert rig.lines() == [
        *(f"1 LISR {line} new" for line in lines),
        *(f"1 UMR {line}" for line in lines),
        *(f"2 LISR {line} new" for line in reversed(lines)),  # what it leads first
        *(f"2 UMR {line}" for line in lines),
    ]
    assert {rig.partition("t", 0).replica_state(b) for b in (1, 2)} == {ReplicaState.ONLINE}
    assert [(t.before, t.after) for t in rig.recorded(PartitionTransition)] == [
        (PartitionState.NON_EXISTENT, PartitionState.NEW),
        (PartitionState.NON_EXISTENT, PartitionState.NEW),
        (PartitionState.NEW, PartitionState.ONLINE),
        (PartitionState.NEW, PartitionState.ONLINE),
    ]
    rig.check_converged()


def test_creation_with_a_dead_replica() -> None:
    world, rig = active(2, 3)
    world.create_topic("t", {0: [1, 2, 3]})
    rig.run()
    assert rig.stored() == (2, 0, [2, 3])
    assert list(rig.received[2].metadata[("t", 0)].offline_replicas) == [1]
    assert rig.partition().replica_state(1) is ReplicaState.ONLINE  # section 7: all end Online, dead or not
    world.broker_up(1)
    rig.run()
    assert rig.stored() == (2, 0, [2, 3])
    rig.check_converged()


def test_creation_with_all_replicas_dead_then_one_returns() -> None:
    world, rig = active(3)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.partition().state is PartitionState.NEW
    assert rig.lines() == []
    assert rig.commits() == []
    assert "ELECTION_FAILED" in rig.rejects()
    world.broker_up(2)
    rig.run()
    assert rig.stored() == (2, 0, [2])
    assert "2 LISR t-0 leader 2 epoch 0 isr [2] new" in rig.lines()
    rig.check_converged()


def test_a_replica_in_controlled_shutdown_does_not_start_in_the_isr() -> None:
    world, rig = active(1, 2)
    rig.cluster.shutting_down.add(1)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.stored() == (2, 0, [2])


def test_a_topic_without_an_id_gets_one_before_it_is_told() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig.run()
    assert world.topics["t"].topic_id == "generated-1"
    assert dict(rig.sent[0].message.topic_ids) == {"t": "generated-1"}
    rig.check_converged()


def test_many_topics_in_one_event() -> None:
    world, rig = active(1, 2)
    for number in range(20):
        world.create_topic(f"t{number}", {0: [1, 2]})
    rig.run()
    assert len(rig.finished) == 1
    assert len(rig.commits()) == 1
    rig.check_converged()


def test_added_partitions_get_states_and_others_keep_theirs() -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    rig.forget()
    world.expand_topic("t", {1: [2, 1], 2: [1]})
    rig.run()
    assert rig.stored("t", 1) == (2, 0, [2, 1])
    assert rig.stored("t", 0) == (1, 0, [1, 2])
    assert not [line for line in rig.lines() if "t-0" in line]
    rig.check_converged()


def test_expansion_of_several_topics_costs_one_read() -> None:
    world, rig = active(1)
    for name in "abc":
        world.create_topic(name, {0: [1]})
    rig.run()
    rig.forget()
    rig.step(TOPIC_CHANGE)  # busy: the edits wait together
    for name in "abc":
        world.expand_topic(name, {1: [1]})
    rig.run()
    assert rig.reads() == ["ReadTopicNames", "ReadTopics", "ReadTopics"]
    assert [done.kind.value for done in rig.finished] == ["TopicChange", "PartitionModifications"]
    rig.check_converged()


def test_no_topic_hides_the_edits_of_those_after_it() -> None:
    """Unreadable, gone, created again, edited otherwise: the last one is expanded all the same."""
    world, rig = active(1)
    for name in "abcde":
        world.create_topic(name, {0: [1]})
    rig.run()
    rig.step(TOPIC_CHANGE)  # busy: the edits wait together
    for name in "abcde":
        world.expand_topic(name, {1: [1]})
    world.unreadable["/brokers/topics/a"] = "not JSON"
    for name in "bc":
        world.delete_topic(name)
    world.create_topic("c", {0: [1]})
    world.edit_topic("d", partitions={0: (1,)})
    world.events.clear()
    world.events.extend(modified(name) for name in "abcde")
    rig.run()
    assert rig.stored("e", 1) == (1, 0, [1])
    assert rig.cluster.topics.keys() == {"a", "c", "d", "e"}


def test_nor_does_one_that_has_just_gone_or_is_deleted() -> None:
    world, rig = active(1)
    for name in "abc":
        world.create_topic(name, {0: [1]})
    rig.run()
    for name in "bc":
        world.expand_topic(name, {1: [1]})
    world.delete_topic("a")
    rig.cluster.topics_to_delete.add("b")
    rig.chronicle.forget()
    rig.drive(lambda context: changes.topics_modified(context, ["a", "b", "c"]))
    assert rig.cluster.topics.keys() == {"b", "c"}
    assert [len(rig.cluster.topics[name].partitions) for name in "bc"] == [1, 2]


def test_other_edits_are_ignored() -> None:
    """Reference 7: only partitions absent from the cache matter."""
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    rig.forget()
    world.edit_topic("t", partitions={0: (2, 1)})
    rig.run()
    assert rig.partition().replicas == (1, 2)
    assert rig.commits() == []
    assert rig.lines() == []
    assert rig.cluster.topics["t"].version == 1


def test_an_added_partition_keeps_its_adding_and_removing_sets() -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1]})
    rig.run()
    info = world.topics["t"]
    world.edit_topic("t", partitions={**info.partitions, 1: (2, 1)}, adding={1: (2,)}, removing={1: (1,)})
    rig.run()
    partition = rig.partition("t", 1)
    assert (partition.replicas, partition.adding, partition.removing) == ((2, 1), (2,), (1,))


@pytest.mark.parametrize("fate", [Fate.ANSWERED, Fate.LANDED])
def test_expansion_of_a_deleting_topic_is_rolled_back(fate: Fate) -> None:
    """KAFKA-6612."""
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    rig.forget()
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    rig.fate = lambda _: fate
    world.expand_topic("t", {1: [1]})
    rig.run()
    assert world.topics["t"].partitions == {0: (1,)}
    assert ("t", 1) not in world.states
    assert rig.cluster.partition("t", 1) is None
    assert rig.lines() == []
    assert "ILLEGAL_TRANSITION" in rig.rejects()


def test_a_roll_back_that_meets_an_edit_looks_again() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    edits = iter([lambda: world.expand_topic("t", {2: [1]})])

    def fate(_: object) -> Fate:
        next(edits, lambda: None)()
        return Fate.ANSWERED

    rig.fate = fate
    world.expand_topic("t", {1: [1]})
    rig.run()
    assert world.topics["t"].partitions == {0: (1,)}


def test_a_vanished_topic_is_dropped_and_no_broker_told() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    rig.forget()
    world.delete_topic("t")
    rig.run()
    assert rig.cluster.topics == {}
    assert rig.lines() == []
    assert rig.commits() == []


@pytest.mark.parametrize("told_by", [TOPIC_CHANGE, modified("t")])
def test_either_watch_is_enough_to_notice_that_a_topic_vanished(told_by: Event) -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    world.delete_topic("t")
    world.events.clear()
    world.events.append(told_by)
    rig.run()
    assert rig.cluster.topics == {}


def test_a_vanished_topic_leaves_no_trace() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    rig.cluster.offline_dirs[1] = {rig.partition()}
    world.damage(topic_path("t"))
    rig.run()
    world.delete_topic("t")
    rig.run()
    cluster = rig.cluster
    assert cluster.topics == {}
    assert cluster.offline_dirs == {1: set()}
    assert cluster.problems == {}


def test_removed_by_hand_and_created_again() -> None:
    """Section 14, point 11: it is initialised at once."""
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    world.delete_topic("t")
    rig.run()
    world.create_topic("t", {0: [2], 1: [1]})
    rig.run()
    assert rig.stored("t", 0) == (2, 0, [2])
    assert rig.stored("t", 1) == (1, 0, [1])
    rig.check_converged()


def test_removed_by_hand_and_created_again_before_anybody_looked() -> None:
    """Section 14, point 11. The name is there before and after: only the data watch and the czxid tell."""
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    world.delete_topic("t")
    world.create_topic("t", {0: [2], 1: [1]})
    rig.run()
    assert rig.stored("t", 0) == (2, 0, [2])
    rig.check_converged()


def test_a_slow_broker_is_not_told_of_the_old_incarnation_under_the_new_ones_name() -> None:
    """Both in one request, the old leader epoch first and the new topic id on both: the broker would keep the old."""
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    rig.slow = {1}
    world.broker_down(2)
    rig.run()
    world.delete_topic("t")
    world.create_topic("t", {0: [1]})
    rig.run()
    rig.forget()
    rig.slow = set()
    rig.drain()
    assert rig.lines("LISR") == ["1 LISR t-0 leader 1 epoch 0 isr [1] new"]


@pytest.mark.parametrize("first", [TOPIC_CHANGE, modified("t")])
def test_another_incarnation_is_told_by_its_czxid_whichever_event_comes_first(first: Event) -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    old = rig.cluster.topics["t"]
    world.delete_topic("t")
    world.create_topic("t", {0: [2]})
    world.events.remove(first)
    world.events.appendleft(first)
    rig.run()
    assert rig.cluster.topics["t"] is not old
    assert rig.stored() == (2, 0, [2])
    rig.check_converged()


def test_gone_again_before_it_was_read() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    answer = world.answer

    def vanish(query: object) -> object:
        if type(query).__name__ == "ReadTopics" and "t" in world.topics:
            world.delete_topic("t")
        return answer(query)  # type: ignore[arg-type]

    world.answer = vanish  # type: ignore[method-assign]
    rig.run()
    assert rig.cluster.topics == {}


def test_gone_while_its_states_are_written() -> None:
    world, rig = active(1)

    def fate(_: object) -> Fate:
        if "t" in world.topics:
            world.delete_topic("t")
        return Fate.ANSWERED

    rig.fate = fate
    world.create_topic("t", {0: [1]})
    world.create_topic("u", {0: [1]})
    rig.run()
    assert set(rig.cluster.topics) == {"u"}
    assert rig.stored("u") == (1, 0, [1])
    rig.check_converged()


def test_malformed_then_mended() -> None:
    world, rig = active(1)
    world.unreadable[topic_path("t")] = "partitions: expected object"
    world.create_topic("t", {0: [1]})
    world.create_topic("fine", {0: [1]})
    rig.run()
    assert rig.stored("fine") == (1, 0, [1])
    assert rig.cluster.problems == {topic_path("t"): "partitions: expected object"}
    assert rig.rejects() == ["MALFORMED"]
    world.mend(topic_path("t"))
    rig.run()
    assert rig.stored("t") == (1, 0, [1])
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_a_known_topic_that_becomes_malformed_goes_on_as_it_was() -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    world.damage(topic_path("t"))
    rig.run()
    assert topic_path("t") in rig.cluster.problems
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 1, [2])
    world.mend(topic_path("t"))
    rig.run()
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_a_malformed_topic_that_vanishes_is_no_problem_any_more() -> None:
    world, rig = active(1)
    world.unreadable[topic_path("t")] = "broken"
    world.create_topic("t", {0: [1]})
    rig.run()
    world.delete_topic("t")
    rig.run()
    assert rig.cluster.problems == {}


def test_an_unreadable_topic_that_vanished_does_not_hide_the_next_one_of_its_name() -> None:
    world, rig = active(1)
    world.unreadable[topic_path("t")] = "not JSON"
    world.create_topic("t", {0: [1]})
    rig.run()
    world.delete_topic("t")
    world.unreadable.pop(topic_path("t"), None)
    world.events.clear()
    world.events.append(TOPIC_CHANGE)
    rig.run()
    world.create_topic("t", {0: [1]})
    world.events.clear()
    world.events.append(TOPIC_CHANGE)
    rig.run()
    assert rig.stored() == (1, 0, [1])


def test_a_state_that_exists_already_is_adopted() -> None:
    """Section 14, point 2: the original leaves it New until the next failover."""
    world, rig = active(1, 2)
    world.put_state("t", 0, state(2, [2, 1], 4, 9))
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.stored() == (1, 5, [2, 1])
    rig.check_converged()


def test_an_adopted_state_without_a_live_isr_is_known_to_everybody() -> None:
    world, rig = active(1)
    world.put_state("t", 0, state(-1, [2], 4, 9))
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.partition().state is PartitionState.OFFLINE
    assert rig.stored() == (-1, 4, [2])
    rig.check_converged()


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_state_of_a_newer_controller_is_told_to_nobody_and_put_right(epoch: int) -> None:
    """Our next write says whether there is one: it is fenced."""
    world, rig = active(1)
    world.put_state("t", 0, state(1, [1], 4, 9, controller_epoch=epoch))
    world.create_topic("t", {0: [1]})
    rig.run()
    assert rig.stored() == (1, 4, [1])
    assert not any("leader 1" in line for line in rig.lines())
    assert rig.rejects() == ["CONFLICT", "ELECTION_FAILED"]
    world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
    rig.run()
    assert rig.stored() == (1, 5, [1])
    assert rig.partition().state is PartitionState.ONLINE
    rig.check_converged()


def test_an_unreadable_state_is_not_overwritten_by_creation() -> None:
    world, rig = active(1)
    world.put_state("t", 0, state(1, [1], 4, 9))
    world.unreadable["/brokers/topics/t/partitions/0/state"] = "broken"
    world.create_topic("t", {0: [1], 1: [1]})
    rig.run()
    assert rig.stored() == (1, 4, [1])
    assert rig.partition().state is PartitionState.NEW
    assert rig.stored("t", 1) == (1, 0, [1])
    assert "ELECTION_FAILED" in rig.rejects()
    del world.unreadable["/brokers/topics/t/partitions/0/state"], world.states["t", 0]
    world.broker_up(2)
    rig.run()
    assert rig.stored() == (1, 0, [1])
    assert rig.cluster.problems == {}


@pytest.mark.parametrize(("registration", "listener", "given"), [(4, "PLAINTEXT", False), (5, "PLAINTEXT", True),
                                                                 (4, "GRPC", True)])  # fmt: skip
def test_topics_get_no_ids_while_a_kafka_broker_does_not_know_them(
    registration: int, listener: str, *, given: bool
) -> None:
    world = World(1)
    world.brokers[2] = Broker(2, 50, (Endpoint(listener, listener, "h", 1),), registration=registration)
    world.create_topic("old", {0: [1]}, topic_id="")
    rig = MachineHarness.active(world)
    world.create_topic("new", {0: [1]}, topic_id="")
    rig.run()
    (reply,) = rig.ask(CreateTopics([NewTopic("asked", 1, 1)]))
    assert bool(reply.topics[0].topic_id) is given
    assert {name: bool(world.topics[name].topic_id) for name in ("old", "new", "asked")} == dict.fromkeys(
        ("old", "new", "asked"), given
    )
    if not given:
        # Once the last such broker is upgraded, the next failover gives them.
        world.brokers[2] = Broker(2, 60, (Endpoint(listener, listener, "h", 1),))
        MachineHarness.active(world)
        assert all(info.topic_id for info in world.topics.values())


def test_a_topic_is_found_by_its_id_as_long_as_it_is_known() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig.run()
    topic = rig.cluster.topics["t"]
    assert rig.cluster.topic_by_id("generated-1") is topic
    world.delete_topic("t")
    rig.run()
    assert rig.cluster.topic_by_id("generated-1") is None
    world.create_topic("t", {0: [1]}, topic_id="theirs")
    rig.run()
    assert rig.cluster.topic_by_id("theirs") is rig.cluster.topics["t"] is not topic
    rig.cluster.know_topic_id(rig.cluster.topics["t"], "other")
    assert rig.cluster.topic_by_id("theirs") is None
    assert rig.cluster.topic_by_id("") is None


def test_an_id_that_somebody_gives_a_topic_without_one_is_known() -> None:
    world, rig = active(1)
    # A broker of Kafka's that knows no ids.
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)
    world.brokers[2] = Broker(2, 50, (endpoint,), registration=4)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig = MachineHarness.active(world)
    assert rig.cluster.topics["t"].id == ""
    world.create_topic("other", {0: [1]}, topic_id="another's")
    world.edit_topic("t", topic_id="another's")
    rig.run()
    assert rig.cluster.topics["t"].id == ""
    assert rig.cluster.topic_by_id("another's") is rig.cluster.topics["other"]
    world.edit_topic("t", topic_id="theirs")
    rig.run()
    assert rig.cluster.topic_by_id("theirs") is rig.cluster.topics["t"]


# --- topics that cannot be read ----------------------------------------------------------------------------


def reads_of_topics(rig: MachineHarness) -> list[list[str]]:
    return [
        list(e.query.names) for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadTopics)
    ]


def test_an_unreadable_topic_is_read_again_only_when_it_changes() -> None:
    rig = MachineHarness.active(World(1, 2))
    rig.world.create_topic("bad", {0: [1]})
    rig.world.damage(topic_path("bad"))
    rig.run()
    rig.forget()
    rig.world.create_topic("good", {0: [1]})
    rig.run()
    assert reads_of_topics(rig) == [["good"]]
    assert rig.cluster.problems.keys() == {topic_path("bad")}
    rig.world.mend(topic_path("bad"))
    rig.run()
    assert rig.cluster.problems == {}
    assert rig.partition("bad").leadership is not None


def test_after_a_reconnect_unreadable_topics_are_read_again() -> None:
    """Their watches are lost."""
    rig = MachineHarness.active(World(1, 2))
    rig.world.create_topic("bad", {0: [1]})
    rig.world.damage(topic_path("bad"))
    rig.run()
    rig.world.lose_watches()
    rig.world.mend(topic_path("bad"))
    rig.world.events.append(Event(EventKind.RECONNECTED))
    rig.run()
    assert rig.partition("bad").leadership is not None


def test_a_topic_with_the_id_of_another_is_left_out_until_that_one_is_gone() -> None:
    world = World(1, 2)
    world.create_topic("n", {0: [1]}, topic_id="one")
    world.create_topic("z", {0: [1]}, topic_id="other")
    rig = MachineHarness.active(world)
    world.create_topic("b", {0: [2]}, topic_id="one")
    rig.run()
    problem = "topic_id = one: is the id of topic n, too: must be its own"
    assert rig.cluster.problems == {topic_path("b"): problem}
    assert rig.cluster.topics.keys() == {"n", "z"}
    # The next controller comes to the same: the first one is the topic's.
    assert MachineHarness(world, epoch=2).failover().cluster.problems == {topic_path("b"): problem}
    rig.forget()
    world.create_topic("c", {0: [2]})
    rig.run()
    assert reads_of_topics(rig)[0] == ["c"]
    world.delete_topic("n")
    rig.run()
    assert rig.cluster.problems == {}
    assert rig.partition("b").leadership is not None
    found = rig.cluster.topic_by_id("one")
    assert found is not None
    assert found.name == "b"


def test_what_a_topic_says_about_partitions_it_does_not_have_is_recorded_and_ignored() -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1, 2]})
    world.topics["t"] = replace(world.topics["t"], adding={0: (7,), 16: (1,), 5: (1,)}, queued={8: (9,)})
    rig.run()
    assert [r.reason for r in rig.recorded(Rejection)] == [
        f"{topic_path('t')}: adding_replicas: partitions [5, 16] are not among its partitions: ignored",
        f"{topic_path('t')}: adding_replicas.0: [7] are not among its replicas: ignored",
        f"{topic_path('t')}: queued_replicas: partitions [8] are not among its partitions: ignored",
    ]
    assert not rig.cluster.reassignments.ongoing
    assert not rig.cluster.reassignments.queued


def test_an_unreadable_topic_that_goes_takes_its_problem_along() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    world.create_topic("u", {0: [1]})
    world.damage("/brokers/topics/t")
    rig.run()
    assert list(rig.cluster.problems) == ["/brokers/topics/t"]
    del world.topics["t"]
    world.problems.clear()
    world.events.append(TOPIC_CHANGE)
    rig.run()
    assert rig.cluster.problems == {}


def test_a_topic_that_grew_is_not_complete_before_its_states_are_known() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    assert not rig.cluster.lacks_state()
    topic = rig.cluster.topics["t"]
    add_partitions(topic, replace(world.topics["t"], partitions={0: (1,), 1: (1,)}), [1])
    assert rig.cluster.lacks_state()
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    assert not rig.cluster.lacks_state(), "what is to be deleted keeps nobody waiting"


def test_the_version_of_a_topic_that_was_written_is_known() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig.run()
    assert world.topics["t"].topic_id
    assert rig.cluster.topics["t"].version == world.topics["t"].version == 1
    info = replace(world.topics["t"], topic_id="")
    # Before its watch tells of it.
    rig.drive(lambda context: assign_missing_ids(context, [info]))
    assert rig.cluster.topics["t"].version == world.topics["t"].version == 2


def test_a_move_that_a_topic_is_found_with_goes_on() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [2, 1]})
    world.topics["t"] = replace(world.topics["t"], adding={0: (2,)}, removing={0: (1,)})
    rig.run()
    assert rig.partition().adding == (2,)
    assert rig.stored()[1] > 0, "all replicas are told of the move"


PLAIN = TopicInfo("t", "id-t", {0: (1, 2)}, {}, {}, czxid=5, version=3)


@pytest.mark.parametrize(
    "more",
    [
        {"topic_id": ""},
        {"adding": {0: (2,)}},
        {"removing": {0: (2,)}},
        {"original": {0: (1,)}},
        {"queued": {0: (3,)}},
        {"stray": {0: (3,)}},
    ],
)
def test_what_is_more_than_an_assignment_is_not_plain(more: dict[str, Any]) -> None:
    assert is_plain(PLAIN)
    assert not is_plain(replace(PLAIN, **more))


def test_a_topic_is_as_its_znode_says() -> None:
    topic = topic_of_info(replace(PLAIN, adding={0: (2,)}))
    assert (topic.name, topic.id, topic.czxid, topic.version) == ("t", "id-t", 5, 3)
    assert (topic.partitions[0].replicas, topic.partitions[0].adding) == ((1, 2), (2,))


def test_all_topics_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "READ_TOPICS", 2)
    world, rig = active(1)
    for name in "edcba":
        world.create_topic(name, {0: [1]})
    world.events.clear()
    world.events.append(TOPIC_CHANGE)
    rig.run()
    asked = [
        list(e.query.names) for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadTopics)
    ]
    assert asked == [["a", "b"], ["c", "d"], ["e"]]
    assert sorted(rig.cluster.topics) == list("abcde")


def test_ids_are_written_some_at_a_time_and_none_twice() -> None:
    world, rig = active(1)
    infos = []
    for number in range(501):
        world.create_topic(f"t{number:03}", {0: [1]}, topic_id="")
        infos.append(world.topics[f"t{number:03}"])
    rig.drive(lambda context: assign_missing_ids(context, infos))
    assert [len(commit.writes) for commit in rig.commits()] == [500, 1]
    assert all(world.topics[info.name].topic_id for info in infos)
    assert len({info.topic_id for info in world.topics.values()}) == 501


def test_a_topic_that_somebody_writes_all_the_time_does_not_keep_others_from_their_ids() -> None:
    world, rig = active(1)
    for name in ("busy", "t"):
        world.create_topic(name, {0: [1]}, topic_id="")

    def written(effect: Commit) -> Fate:
        of_busy = [w for w in effect.writes if isinstance(w, SetTopic) and w.info.name == "busy"]
        if of_busy and world.topics["busy"].version < 2 * ATTEMPTS_MAX:
            world.edit_topic("busy")
            return Fate.LOST
        return Fate.ANSWERED

    rig.fate = written
    rig.drive(lambda context: assign_missing_ids(context, list(world.topics.values())))
    assert world.topics["t"].topic_id
    assert not world.topics["busy"].topic_id
    assert "CONFLICT" in rig.rejects()


@pytest.mark.parametrize("by_a_tool", [False, True])
def test_brokers_are_told_of_an_id_that_comes_late(by_a_tool: bool) -> None:
    world, rig = active(1, 2)
    rig.fate = lambda effect: Fate.LOST if isinstance(effect.writes[0], SetTopic) else Fate.ANSWERED
    world.create_topic("t", {0: [1, 2]}, topic_id="")
    rig.run()
    assert rig.stored() == (1, 0, [1, 2])
    rig.forget()
    rig.fate = lambda _: Fate.ANSWERED
    world.edit_topic("t", **({"topic_id": "a tool's"} if by_a_tool else {}))
    rig.run()
    assert {line.split()[0] for line in rig.lines("LISR")} == {"1", "2"}
    assert world.topics["t"].topic_id
    rig.check_converged()


def test_an_id_that_cannot_be_written_is_told_of() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig.fate = lambda _: Fate.LOST
    rig.drive(lambda context: assign_missing_ids(context, [world.topics["t"]]))
    assert "CONFLICT" in rig.rejects()


def test_partitions_are_initialised_in_slices_of_so_many_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SLICE_MAX", 4)
    partitions = [Partition(Topic("t"), n, tuple(range(count))) for n, count in enumerate([3, 1, 1, 5, 2, 2])]
    assert [[p.number for p in some] for some in changes._slices(partitions)] == [[0, 1], [2], [3], [4, 5]]


def test_a_topic_that_goes_as_it_gets_its_id_costs_no_other_its_own() -> None:
    world, rig = active(1)
    gone = iter([lambda: world.delete_topic("t")])

    def fate(_: object) -> Fate:
        next(gone, lambda: None)()
        return Fate.ANSWERED

    rig.fate = fate
    for name in "tu":
        world.create_topic(name, {0: [1]}, topic_id="")
    rig.run()
    assert rig.cluster.topics.keys() == {"u"}
    assert world.topics["u"].topic_id != ""


def test_a_topic_that_is_new_is_left_to_the_change_of_topics() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    world.events.clear()
    world.events.append(modified("t"))
    rig.run()
    assert rig.cluster.topics == {}


def test_an_id_that_somebody_writes_over_another_is_not_believed() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]}, topic_id="first")
    rig.run()
    world.edit_topic("t", topic_id="second")
    rig.run()
    assert rig.cluster.topic_by_id("first") is rig.cluster.topics["t"]
    assert rig.cluster.topic_by_id("second") is None
