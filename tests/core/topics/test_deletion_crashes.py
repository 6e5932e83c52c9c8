"""The controller ends at every step of a deletion, and its successor finishes it: the end is the undisturbed one's.

Ended means: from one commit on, nothing of it reaches ZooKeeper or a broker, and it hears of nothing. The commit
itself either landed or did not.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core import commits
from controller.core.backoff import RETRY_MAX_US
from controller.core.effects import Commit
from controller.core.events import Event, EventKind
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import DeleteTopics, TopicRef
from controller.core.topics import znode_deletion
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import Key, World

Operation = tuple[Any, ...]
BROKERS = (1, 2, 3)


class _EndedError(Exception):
    """The controller is no more."""


def new_world() -> World:
    world = World(*BROKERS)
    world.create_topic("t", {0: [1, 2], 1: [2, 3], 2: [3]})
    world.create_topic("u", {0: [2]})
    world.create_topic("kept", {0: [1, 2, 3]})
    world.configure("t", {"a": "b"})
    world.configure("kept", {})
    return world


def end_state(world: World) -> dict[str, Any]:
    """Everything durable: what is in ZooKeeper, but for epochs that count failovers, and on disks."""
    return {
        "topics": {name: info.partitions for name, info in world.topics.items()},
        "states": {key: (s.leader, s.isr) for key, s in world.states.items()},
        "configs": world.configs,
        "deletions": world.deletions,
        "folders": world.folders,
    }


def begin(world: World, end_at: int | None, landed: bool) -> tuple[MachineHarness, list[Commit]]:
    """Delete two topics, one by request; the controller ends at its ``end_at``-th commit."""
    rig = MachineHarness.active(world)
    made: list[Commit] = []

    def fate(commit: Commit) -> Fate:
        made.append(commit)
        if len(made) - 1 == end_at:
            if landed:
                assert world.commit(commit.writes) is None
            raise _EndedError
        return Fate.ANSWERED

    rig.fate = fate
    world.mark_for_deletion("t")
    rig.send(DeleteTopics([TopicRef("u")]))
    try:
        rig.run()
    except _EndedError:
        world.events.clear()
        world.watches.clear()
    return rig, made


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are many steps to end at."""
    monkeypatch.setattr(commits, "BATCH_WRITES", 1)
    monkeypatch.setattr(znode_deletion, "BATCH_WRITES", 2)


def undisturbed() -> tuple[dict[str, Any], int]:
    """The end state, and how many commits led there."""
    world = new_world()
    rig, made = begin(world, None, False)
    rig.check_converged()
    state = end_state(world)
    assert set(state["topics"]) == {"kept"}
    assert state["deletions"] == []
    return state, len(made)


STEPS = 13


@pytest.mark.usefixtures("small_batches")
def test_there_are_as_many_steps_as_are_tried() -> None:
    _, count = undisturbed()
    assert count == STEPS


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_the_successor_finishes(step: int, landed: bool) -> None:
    wanted, _ = undisturbed()
    world = new_world()
    begin(world, step, landed)
    successor = MachineHarness(world, epoch=2).failover()
    if "u" in world.topics and "u" not in world.deletions:
        # The request was never answered: whoever asked asks again.
        successor.ask(DeleteTopics([TopicRef("u")]))
    assert end_state(world) == wanted
    successor.check_converged()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_the_successor_ends_too(step: int, landed: bool) -> None:
    """At its first commit, and the third one finishes."""
    wanted, _ = undisturbed()
    world = new_world()
    begin(world, step, landed)
    second = MachineHarness(world, epoch=2)
    commits_made = 0

    def fate(_: Commit) -> Fate:
        nonlocal commits_made
        commits_made += 1
        if commits_made > 1:
            raise _EndedError
        return Fate.ANSWERED

    second.fate = fate
    world.events.append(Event(EventKind.FAILOVER))
    try:
        second.run()
    except _EndedError:
        world.events.clear()
        world.watches.clear()
    third = MachineHarness(world, epoch=3).failover()
    if "u" in world.topics:
        third.ask(DeleteTopics([TopicRef("u")]))
    assert end_state(world) == wanted
    third.check_converged()


# --- random histories ------------------------------------------------------------------------------------

TOPICS = ("a", "b")
brokers = st.sampled_from(BROKERS)
targets = st.lists(brokers, min_size=1, max_size=3, unique=True)
lists = st.lists(targets, min_size=1, max_size=3)
OPERATIONS = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.just("up"), brokers),
            st.tuples(st.just("down"), brokers),
            st.tuples(st.just("bounce"), brokers),
            st.tuples(st.just("create"), st.sampled_from(TOPICS), lists),
            st.tuples(st.just("expand"), st.sampled_from(TOPICS), lists),
            st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
            st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
            st.tuples(st.just("ask"), st.sampled_from(TOPICS)),
            st.tuples(st.just("vanish"), st.sampled_from(TOPICS)),
            st.tuples(st.just("refuse"), brokers),
            st.tuples(st.just("slow"), brokers),
            st.tuples(st.just("fast"), brokers),
            st.tuples(st.just("hold")),
            st.tuples(st.just("answer")),
            st.tuples(st.just("move"), st.sampled_from(TOPICS), st.integers(0, 2), targets),
            st.tuples(st.just("join")),
            st.tuples(st.just("failover")),
            st.tuples(st.just("later")),
        ),
        st.sampled_from([None, None, 0, 1, 3]),
    ),
    max_size=24,
)
FATES = st.lists(st.sampled_from([Fate.ANSWERED, Fate.ANSWERED, Fate.LOST, Fate.LANDED]), max_size=8)


class Story:
    """Topics deleted and created again while brokers die and return, are slow, refuse; and controllers end."""

    def __init__(self, fates: list[Fate], order: list[int]) -> None:
        self.world = World(*BROKERS)
        self.world.create_topic("a", {0: [1, 2, 3], 1: [2, 3]})
        self.fates, self.order = fates, order
        self.refusing: set[int] = set()
        self.by_hand = False
        self.epoch = 0
        self.take_over()

    def take_over(self) -> None:
        self.epoch += 1
        self.world.events.clear()
        self.world.watches.clear()
        self.rig = MachineHarness(self.world, epoch=self.epoch)
        self.rig.reconnects = True
        self.rig.fate = lambda _: self.fates.pop(0) if self.fates else Fate.ANSWERED
        self.rig.pick = lambda n: self.order.pop(0) % n if self.order else 0
        self.rig.stop_error = self.stop_error
        self.world.events.append(Event(EventKind.FAILOVER))

    def stop_error(self, broker: int, key: Key) -> str:
        del key
        return "KAFKA_STORAGE_ERROR" if broker in self.refusing else ""

    def apply(self, operation: Operation) -> None:
        (name, *arguments), steps = operation
        getattr(self, f"do_{name}")(*arguments)
        if steps is None:
            self.rig.run()
        for _ in range(steps or 0):
            self.rig.advance()

    def do_up(self, broker: int) -> None:
        if broker not in self.world.brokers:
            self.world.broker_up(broker)
            self.refusing.discard(broker)

    def do_down(self, broker: int) -> None:
        if broker in self.world.brokers:
            self.world.broker_down(broker)

    def do_bounce(self, broker: int) -> None:
        if broker in self.world.brokers:
            self.world.bounce(broker)

    def do_create(self, topic: str, assignment: list[list[int]]) -> None:
        if topic not in self.world.topics and topic not in self.world.deletions:
            self.world.create_topic(topic, dict(enumerate(assignment)))

    def do_expand(self, topic: str, assignment: list[list[int]]) -> None:
        if topic in self.world.topics and (count := len(self.world.topics[topic].partitions)) < 6:
            self.world.expand_topic(topic, {count + n: ids for n, ids in enumerate(assignment)})

    def do_delete(self, topic: str) -> None:
        if topic not in self.world.deletions:
            self.world.mark_for_deletion(topic)

    def do_ask(self, topic: str) -> None:
        self.rig.send(DeleteTopics([TopicRef(topic)]))

    def do_vanish(self, topic: str) -> None:
        """By hand: brokers are not told, and what they hold nobody may know of any more."""
        self.rig.run()
        if topic in self.world.topics:
            self.world.delete_topic(topic)
            self.by_hand = True

    def do_refuse(self, broker: int) -> None:
        self.refusing.add(broker)

    def do_slow(self, broker: int) -> None:
        self.rig.slow.add(broker)

    def do_fast(self, broker: int) -> None:
        self.rig.slow.discard(broker)
        self.rig.drain()

    def do_hold(self) -> None:
        self.rig.hold_stops = True

    def do_answer(self) -> None:
        self.rig.hold_stops = False
        self.rig.answer_stops()

    def do_move(self, topic: str, number: int, target: list[int]) -> None:
        """A reassignment: a topic deleted meanwhile waits for it."""
        asked = PartitionReassignment(topic, number, tuple(target))
        self.rig.send(AlterPartitionReassignments([asked]))

    def do_join(self) -> None:
        """Followers have caught up: leaders take in every assigned replica that is up."""
        for partition in list(self.rig.cluster.partitions()):
            known = partition.leadership
            if known is not None and known.leader in self.world.brokers:
                isr = [known.leader, *(b for b in partition.replicas if b in self.world.brokers)]
                proposal = self.rig.proposal(list(dict.fromkeys(isr)), partition.topic.name, partition.number)
                self.rig.send(self.rig.alter(known.leader, proposal))

    def do_failover(self) -> None:
        self.take_over()

    def do_later(self) -> None:
        """What was refused may be tried again."""
        self.rig.now_us += RETRY_MAX_US
        self.world.events.append(Event(EventKind.TOPIC_DELETION_RETRY))

    def end_faults(self) -> None:
        """Faults stop, everybody returns, and both topics are asked to go."""
        self.fates.clear()
        self.refusing.clear()
        self.rig.slow.clear()
        for broker in BROKERS:
            self.do_up(broker)
        self.do_answer()
        self.rig.run()
        self.rig.drain()
        self.rig.run()
        for topic in TOPICS:
            self.do_delete(topic)
        self.rig.run()
        self.do_join()
        self.rig.run()
        for _ in range(3):
            self.do_later()
            self.rig.run()


@given(OPERATIONS, FATES, st.lists(st.integers(0, 5), max_size=20))
@example([(("down", 2), None), (("delete", "a"), None), (("failover",), None)], [], [])
@example([(("hold",), 0), (("delete", "a"), None), (("bounce", 2), 0)], [], [])
@example([(("delete", "a"), None), (("create", "a", [[1]]), 0), (("delete", "a"), 0)], [Fate.LANDED], [])
@example(
    [(("slow", 2), 0), (("delete", "a"), 1), (("vanish", "a"), 0), (("create", "a", [[2]]), None)], [], []
)
def test_whatever_happens_in_the_end_everything_is_deleted(
    operations: list[Operation], fates: list[Fate], order: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(znode_deletion, "BATCH_WRITES", 2)
        story = Story(list(fates), list(order))
        for operation in operations:
            story.apply(operation)
        story.end_faults()
    world, cluster = story.world, story.rig.cluster
    assert (world.topics, world.states, world.deletions) == ({}, {}, [])
    assert (cluster.topics, cluster.topics_to_delete, cluster.topics_deletion_started) == ({}, set(), set())
    assert (cluster.deletions_ineligible, cluster.deletions_waiting, cluster.deletions_ineligible_count) == (
        {},
        {},
        {},
    )
    if not story.by_hand:
        assert {broker: keys for broker, keys in world.folders.items() if keys} == {}
        assert not any(notified.metadata or notified.replicas for notified in story.rig.received.values())
    world.create_topic("a", {0: [1, 2], 1: [3]})
    story.rig.run()
    story.rig.check_converged()
    assert story.rig.stored("a") == (1, 0, [1, 2])
