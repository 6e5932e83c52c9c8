"""Random histories with pauses, maintenance, drains, moves and deletions, and controllers that follow each other.

Besides the invariants that the rig and the world check at every step: what is held is held at every single write, and
when nothing holds the controller any more everything that can be led is led.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetState
from controller.core.events import Event, EventKind
from controller.core.model import NO_LEADER
from controller.core.requests.operator import CancelShutdown, SetDrain, SetMaintenance, SetPause
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.topics.reasons import Suspended
from tests.core.test_properties import ACTIONS, BROKERS, FATES, ORDER, TOPICS, History, Operation
from tests.support.core.harness import Fate, Rig
from tests.support.core.world import World

SETTINGS = CoreSettings(
    unclean_leader_election_enable=True,
    reassignment_concurrent_moves_max=1,
    leader_imbalance_per_broker_percentage=0,
    maintenance_offline_brokers_percentage=50,
    maintenance_offline_brokers_min=2,
    maintenance_healthy_seconds=5,
)
#: Events in which a leader may change while the controller is paused: somebody asked for it.
ASKED_FOR = {
    EventKind.SET_PAUSE,
    EventKind.SET_DRAIN,
    EventKind.PREFERRED_ELECTION,
    EventKind.CONTROLLED_SHUTDOWN,
}
brokers = st.sampled_from(BROKERS)
HOLDS = st.one_of(
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("mode"), st.booleans()),
    st.tuples(st.just("drain"), brokers, st.booleans()),
    st.tuples(st.just("stay"), brokers),
    st.tuples(
        st.just("move"), st.sampled_from(TOPICS), st.lists(brokers, min_size=1, max_size=3, unique=True)
    ),
    st.tuples(st.just("mark"), st.sampled_from(TOPICS)),
    st.tuples(
        st.just("tick"), st.sampled_from(["LEADER_REBALANCE", "MAINTENANCE_CHECK", "TOPIC_DELETION_RETRY"])
    ),
    st.tuples(st.just("failover")),
)
OPERATIONS = st.lists(
    st.tuples(st.one_of(ACTIONS, HOLDS, HOLDS), st.sampled_from([None, None, 0, 1, 3])), max_size=20
)


@dataclass
class Ineligible(History):
    """A history whose controller is held back now and then, and checked for it."""

    epoch: int = 1
    broken: list[str] = field(default_factory=list)

    def fate(self, commit: Commit) -> Fate:
        event = self.rig.machine.current_event
        assert event is not None
        for write in commit.writes:
            if isinstance(write, SetState):
                self.check(event.kind, write)
        return super().fate(commit)

    def check(self, kind: EventKind, write: SetState) -> None:
        cluster, partition, new = self.rig.cluster, write.partition, write.new
        state, old = cluster.maintenance, partition.leadership
        if old is None or new.leader in (old.leader, NO_LEADER):
            return
        what = f"{kind.value}: {partition.name}: {old} -> {new}"
        if state.paused is not None and kind not in ASKED_FOR:
            self.broken.append(f"elected while paused: {what}")
        if state.entered is not None and new.leader not in old.isr:
            self.broken.append(f"elected uncleanly in maintenance: {what}")
        others = [
            b
            for b in partition.replicas
            if b in old.isr and b not in state.drained and cluster.is_online(partition, b)
        ]
        if new.leader in state.drained and others:
            self.broken.append(f"a drained broker leads though {others} could: {what}")

    def do_pause(self, on: bool) -> None:
        self.asked.append(self.rig.send(SetPause(on, "why", "who")))

    def do_mode(self, on: bool) -> None:
        self.asked.append(self.rig.send(SetMaintenance(on, "why", "who")))

    def do_drain(self, broker_id: int, on: bool) -> None:
        self.asked.append(self.rig.send(SetDrain(broker_id, on, "why", "who", force=True)))

    def do_stay(self, broker_id: int) -> None:
        self.asked.append(self.rig.send(CancelShutdown(broker_id, -1)))

    def do_move(self, topic: str, replicas: list[int]) -> None:
        wanted = [PartitionReassignment(topic, 0, tuple(replicas))]
        self.rig.send(AlterPartitionReassignments(wanted))

    def do_mark(self, topic: str) -> None:
        self.world.mark_for_deletion(topic)

    def do_tick(self, kind: str) -> None:
        self.rig.now_us += 6_000_000
        self.world.events.append(Event(EventKind[kind]))

    def do_failover(self) -> None:
        """Whatever was under way is lost; nobody is answered any more."""
        self.world.events.clear()
        self.world.watches.clear()
        self.asked.clear()
        self.epoch += 1
        self.take(Rig(self.world, epoch=self.epoch, settings=SETTINGS))
        self.rig.failover()

    def take(self, rig: Rig) -> None:
        self.rig = rig
        rig.fate = self.fate
        rig.reconnects = True
        rig.pick = lambda n: self.order.pop(0) % n if self.order else 0


def play(
    operations: Sequence[Operation], faults: Sequence[tuple[Fate, int]], order: Sequence[int]
) -> Ineligible:
    world = World(1, 2, 3, 4)
    world.create_topic("a", {0: [1, 2, 3], 1: [2, 3, 1]})
    world.create_topic("b", {0: [2, 1], 1: [4]})
    held = Ineligible(world, Rig(world, settings=SETTINGS), list(faults), list(order))
    held.take(held.rig)
    held.rig.failover()
    for operation in operations:
        held.apply(operation)
    held.settle()
    return held


def release(held: Ineligible) -> None:
    """Nothing holds the controller any more."""
    held.do_pause(False)
    held.do_mode(False)
    for broker_id in BROKERS:
        held.do_drain(broker_id, False)
    held.settle()
    assert held.rig.cluster.maintenance.suspension is None
    assert held.rig.cluster.maintenance.drained == {}


@given(OPERATIONS, FATES, ORDER)
@example(
    [
        (("pause", True), None),
        (("down", 2), None),
        (("failover",), None),
        (("tick", "LEADER_REBALANCE"), None),
    ],
    [],
    [],
)
@example([(("down", 1), None), (("down", 2), None), (("move", "a", [3, 4]), None), (("up", 1), None)], [], [])
@example([(("mode", True), None), (("mark", "a"), None), (("failover",), None), (("down", 2), None)], [], [])
@example([(("move", "a", [2, 4]), None), (("drain", 2, True), None), (("alter", "a", 0, 15), None)], [], [])
def test_what_is_held_is_held_and_released_everything_goes_on(
    operations: list[Operation], faults: list[tuple[Fate, int]], order: list[int]
) -> None:
    held = play(operations, faults, order)
    assert held.broken == []
    stored = held.world.nodes.get("/controllers/maintenance")
    assert held.rig.cluster.maintenance == (stored.value if stored else type(held.rig.cluster.maintenance)())
    waiting = held.rig.cluster.maintenance.suspension is not None
    release(held)
    assert held.broken == []
    if waiting:
        assert not [w for w in held.rig.cluster.deletions_waiting.values() if isinstance(w, Suspended)]
    cluster = held.rig.cluster
    for partition in cluster.partitions():
        if (led := partition.leadership) is not None and not cluster.is_deleting(partition):
            able = [b for b in partition.replicas if b in led.isr and cluster.is_online(partition, b)]
            assert led.leader in cluster.brokers or not able, f"{partition} could be led by {able}"
    if not (cluster.topics_to_delete or cluster.reassignments.ongoing or cluster.reassignments.strays):
        held.rig.check_converged()
    Rig(held.world, epoch=held.epoch + 1, settings=SETTINGS).failover()
