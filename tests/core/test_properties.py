"""Random histories: brokers come, go and bounce, topics grow, others write, answers get lost.

The invariants of section 16 are checked by the rig and the world at every step and every write. When the
faults stop, every partition with a live ISR member has a leader and every broker was told what the store holds.
A failure prints the operations; run them by hand with ``play``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core import commits
from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetState
from controller.core.model import RECOVERED
from controller.core.partitions import initial_state
from controller.core.requests.brokers import AlterPartition, ControlledShutdown, Proposal
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World

Operation = tuple[Any, ...]
BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")

brokers = st.sampled_from(BROKERS)
assignments = st.lists(brokers, min_size=1, max_size=3, unique=True)
partitions = st.lists(assignments, min_size=1, max_size=3)

ACTIONS = st.one_of(
    st.tuples(st.just("up"), brokers),
    st.tuples(st.just("down"), brokers),
    st.tuples(st.just("down"), brokers),
    st.tuples(st.just("bounce"), brokers),
    st.tuples(st.just("create"), st.sampled_from(TOPICS), partitions),
    st.tuples(st.just("expand"), st.sampled_from(TOPICS), partitions),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
    st.tuples(st.just("preferred"), st.sampled_from(TOPICS), st.integers(0, 2)),
    st.tuples(st.just("alter"), st.sampled_from(TOPICS), st.integers(0, 2), st.integers(1, 7)),
    st.tuples(st.just("notify"), st.sampled_from(TOPICS), st.integers(0, 2), st.integers(1, 7)),
    st.tuples(st.just("leave"), brokers),
    st.tuples(st.just("disk"), brokers, st.sampled_from(TOPICS), st.integers(0, 2)),
    st.tuples(st.just("slow"), brokers),
    st.tuples(st.just("fast"), brokers),
)
#: What happens, and how many steps the controller takes before the next (None: until it is quiet).
OPERATIONS = st.lists(st.tuples(ACTIONS, st.sampled_from([None, None, 0, 1, 2, 4])), max_size=20)
#: Per commit: what becomes of it, and (for outside writers) which bits of an assignment are the ISR meanwhile.
FATES = st.lists(
    st.tuples(st.sampled_from([Fate.ANSWERED, Fate.ANSWERED, Fate.LOST, Fate.LANDED]), st.integers(0, 7)),
    max_size=8,  # below the attempts that one event makes
)
ORDER = st.lists(st.integers(0, 5), max_size=20)


@dataclass
class History:
    """One play: the world, its controller, and the faults still to come."""

    world: World
    rig: MachineHarness
    faults: list[tuple[Fate, int]]
    order: list[int]
    outside: bool = False
    asked: list[int] = field(default_factory=list)

    def fate(self, commit: Commit) -> Fate:
        if not self.faults:
            return Fate.ANSWERED
        fate, bits = self.faults.pop(0)
        first = commit.writes[0]
        if self.outside and bits and isinstance(first, SetState):
            self.write_isr(first.partition.topic.name, first.partition.number, bits)
        return fate

    def write_isr(self, topic: str, number: int, bits: int) -> None:
        """The partition's leader changes its ISR behind the controller's back."""
        stored = self.world.states.get((topic, number))
        info = self.world.topics.get(topic)
        if stored is None or info is None or stored.leader not in self.world.brokers:
            return
        chosen = [b for i, b in enumerate(info.partitions[number]) if bits >> i & 1 or b == stored.leader]
        self.world.shrink_or_grow(topic, number, chosen)

    def apply(self, operation: Operation) -> None:
        (name, *arguments), steps = operation
        getattr(self, f"do_{name}")(*arguments)
        if steps is None:
            self.rig.run()
        for _ in range(steps or 0):
            self.rig.advance()

    def do_up(self, broker_id: int) -> None:
        if broker_id not in self.world.brokers:
            self.world.broker_up(broker_id)

    def do_down(self, broker_id: int) -> None:
        if broker_id in self.world.brokers:
            self.world.broker_down(broker_id)

    def do_bounce(self, broker_id: int) -> None:
        if broker_id in self.world.brokers:
            self.world.bounce(broker_id)

    def do_create(self, topic: str, lists: list[list[int]]) -> None:
        if topic not in self.world.topics:
            self.world.create_topic(topic, dict(enumerate(lists)))

    def do_expand(self, topic: str, lists: list[list[int]]) -> None:
        if topic in self.world.topics and (count := len(self.world.topics[topic].partitions)) < 6:
            self.world.expand_topic(topic, {count + n: ids for n, ids in enumerate(lists)})

    def do_delete(self, topic: str) -> None:
        if topic in self.world.topics:
            self.world.delete_topic(topic)

    def do_preferred(self, topic: str, number: int) -> None:
        if self.world.preferred is None:
            self.world.ask_preferred((topic, number))

    def do_alter(self, topic: str, number: int, bits: int) -> None:
        """Whoever believes to lead proposes, from what it was told last: perhaps long ago."""
        for broker_id in self.world.brokers:
            notified = self.rig.received.get(broker_id)
            entry = notified.metadata.get((topic, number)) if notified else None
            if notified and entry is not None and entry.leader == broker_id:
                chosen = [b for i, b in enumerate(entry.replicas) if bits >> i & 1 or b == broker_id]
                proposal = Proposal(
                    topic, "", number, entry.leader_epoch, tuple(chosen), RECOVERED, entry.partition_epoch
                )
                self.asked.append(self.rig.send(AlterPartition(broker_id, notified.epoch, [proposal])))

    def do_notify(self, topic: str, number: int, bits: int) -> None:
        """A leader in notification mode writes and tells."""
        self.write_isr(topic, number, bits)
        self.world.notify_isr((topic, number))

    def do_leave(self, broker_id: int) -> None:
        self.asked.append(self.rig.send(ControlledShutdown(broker_id, None)))

    def do_disk(self, broker_id: int, topic: str, number: int) -> None:
        if broker_id in self.world.brokers:
            self.world.lost.setdefault(broker_id, set()).add((topic, number))
            self.world.notify_log_dir(broker_id)

    def do_slow(self, broker_id: int) -> None:
        self.rig.slow.add(broker_id)

    def do_fast(self, broker_id: int) -> None:
        self.rig.slow.discard(broker_id)
        self.rig.drain()

    def end_faults(self) -> None:
        """Faults stop; everybody takes what waits."""
        self.faults.clear()
        self.rig.slow.clear()
        self.rig.run()
        self.rig.drain()
        self.rig.run()
        for serial in self.asked:
            assert serial in self.rig.replies, f"request {serial} was never answered"
            self.check_reply(self.rig.replies[serial])

    def check_reply(self, answer: Any) -> None:
        """A success names a state that was stored."""
        for altered in getattr(answer, "partitions", ()):
            history = self.world.history.get((altered.topic, altered.partition), ())
            assert altered.state is None or altered.state in history


def play(
    operations: Sequence[Operation],
    faults: Sequence[tuple[Fate, int]] = (),
    order: Sequence[int] = (),
    outside: bool = False,
    unclean: bool = False,
) -> History:
    world = World(1, 2, 3)
    world.create_topic("a", {0: [1, 2, 3], 1: [2, 3, 1]})
    world.create_topic("b", {0: [2, 1], 1: [3]})
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=unclean))
    history = History(world, rig, list(faults), list(order), outside)
    rig.fate = history.fate
    rig.reconnects = True
    rig.pick = lambda n: history.order.pop(0) % n if history.order else 0
    for operation in operations:
        history.apply(operation)
    history.end_faults()
    return history


def a_successor_converges(history: History) -> None:
    """Whatever was left: the next controller brings everybody to the same picture."""
    MachineHarness(history.world, epoch=2, settings=history.rig.settings).failover().check_converged()


@given(OPERATIONS, ORDER)
@example([(("down", 3), None)], [])
def test_without_faults(operations: list[Operation], order: list[int]) -> None:
    history = play(operations, order=order)
    history.rig.check_converged()
    a_successor_converges(history)


@given(OPERATIONS, FATES, ORDER, st.booleans())
@example([(("create", "c", [[1, 2]]), None)], [(Fate.LOST, 0), (Fate.LOST, 0)], [], False)
@example([(("alter", "a", 0, 1), None), (("down", 2), 0), (("bounce", 3), None)], [], [], False)
@example([(("expand", "a", [[1], [3]]), None), (("down", 3), None)], [(Fate.LOST, 0)] * 3, [0, 1], False)
def test_lost_answers(
    operations: list[Operation], faults: list[tuple[Fate, int]], order: list[int], unclean: bool
) -> None:
    history = play(operations, faults, order, unclean=unclean)
    history.rig.check_converged()
    a_successor_converges(history)


@given(OPERATIONS, FATES, ORDER, st.booleans())
@example([(("down", 3), None)], [(Fate.ANSWERED, 3)], [], False)
def test_outside_writers(
    operations: list[Operation], faults: list[tuple[Fate, int]], order: list[int], unclean: bool
) -> None:
    """The ISR changes between decision and write: that is a conflict, so the controller learns of it."""
    history = play(operations, faults, order, outside=True, unclean=unclean)
    history.rig.check_converged()
    a_successor_converges(history)


@given(
    OPERATIONS,
    FATES,
    ORDER,
    st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 3), st.integers(1, 7))),
)
def test_outside_writers_that_nobody_hears_of(
    operations: list[Operation],
    faults: list[tuple[Fate, int]],
    order: list[int],
    writes: list[tuple[str, int, int]],
) -> None:
    """The ISR changes at any time. What is stored stays right, and the next controller tells it."""
    history = play((), faults, order, outside=True)
    silent = iter(writes)
    for operation in operations:
        history.apply(operation)
        if (write := next(silent, None)) is not None:
            history.write_isr(*write)
    history.end_faults()
    a_successor_converges(history)


@given(OPERATIONS, FATES, ORDER, st.integers(1, 3))
def test_in_small_batches(
    operations: list[Operation], faults: list[tuple[Fate, int]], order: list[int], size: int
) -> None:
    """The same with batches so small that several are in flight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "BATCH_WRITES", size)
        patch.setattr(initial_state, "BATCH_CREATES", size)
        history = play(operations, faults, order, outside=True)
        history.rig.check_converged()
        a_successor_converges(history)


@given(OPERATIONS, FATES, ORDER, st.integers(0, 40))
def test_a_controller_that_stops_anywhere_leaves_a_store_that_its_successor_can_use(
    operations: list[Operation], faults: list[tuple[Fate, int]], order: list[int], steps: int
) -> None:
    """Cut off after some step, its requests half performed: the next one starts from the store alone."""
    history = play((), faults, order)
    for (name, *arguments), _ in operations:
        getattr(history, f"do_{name}")(*arguments)
    for _ in range(steps):
        history.rig.advance()
    history.world.events.clear()
    history.world.watches.clear()
    a_successor_converges(history)
