"""Automatic return of leadership: who is imbalanced enough, what is moved, at which pace (section 8.3)."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetState
from controller.core.elections.preferred_leader_balance import imbalances
from controller.core.events import Event, EventKind
from controller.core.model import Flapping
from controller.core.records import BrokerChange, LeadershipChange
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state

RUN = Event(EventKind.LEADER_REBALANCE)


def cluster(led_by: list[int], isr: tuple[int, ...] = (1, 2), **settings: Any) -> MachineHarness:
    """One partition for each leader named, all with replicas [1, 2]."""
    world = World(1, 2)
    world.create_topic("t", {number: [1, 2] for number in range(len(led_by))})
    for number, leader in enumerate(led_by):
        world.put_state("t", number, state(leader, isr, 5, 7))
    rig = MachineHarness.active(world, settings=CoreSettings(**settings))
    rig.forget()
    return rig


def run(rig: MachineHarness) -> int:
    """One run of the timer; how many partitions broker 1 leads then."""
    rig.world.events.append(RUN)
    rig.run()
    return sum(s.leader == 1 for s in rig.world.states.values())


@pytest.mark.parametrize(
    ("missing", "percentage", "reassignments"),
    [(1, 10, False), (2, 10, True), (1, 9, True), (1, 0, True), (0, 0, False), (10, 100, False)],
)
def test_strictly_greater_than_the_percentage(missing: int, percentage: int, reassignments: bool) -> None:
    rig = cluster([2] * missing + [1] * (10 - missing), leader_imbalance_per_broker_percentage=percentage)
    assert run(rig) == (10 if reassignments else 10 - missing)
    rig.check_converged()


def test_what_is_recorded() -> None:
    rig = cluster([2, 2, 1])
    run(rig)
    (change,) = rig.recorded(BrokerChange)
    assert (change.broker_id, change.count) == (1, 2)
    assert change.reason == "leads 1 of 3 partitions that prefer it: more than 10 percent"
    (batch,) = [b for b in rig.batches if b.kind is LeadershipChange]
    assert (batch.reason, batch.cause) == ("preferred_automatic", "AutoPreferredReplicaLeaderElection")


def test_a_preferred_replica_out_of_sync_or_gone_is_waited_for() -> None:
    rig = cluster([2, 2], isr=(2,))
    assert run(rig) == 0
    assert rig.commits() == []
    assert rig.rejects() == []
    rig = cluster([2, 2])
    rig.world.broker_down(1)
    rig.run()
    rig.forget()
    assert run(rig) == 0
    assert rig.commits() == []


def test_no_leadership_returns_where_rebalancing_is_off() -> None:
    rig = cluster([2, 2], auto_leader_rebalance_enable=False)
    assert run(rig) == 0


def test_topics_being_deleted_do_not_count() -> None:
    rig = cluster([2, 2])
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    assert run(rig) == 0
    assert rig.commits() == []


def test_it_goes_on_beside_a_move_elsewhere() -> None:
    rig = cluster([2, 2, 2])
    rig.partition("t", 2).assign((1, 2, 3), adding=(3,))
    assert run(rig) == 3


def test_the_pace_returns_all_though_the_share_falls_below_the_limit() -> None:
    rig = cluster([2] * 7, leader_rebalance_leaders_per_second=3, leader_imbalance_per_broker_percentage=50)
    assert run(rig) == 3
    assert rig.cluster.rebalancing == {1}
    assert run(rig) == 6
    counts = [(change.count, str(change.reason).partition(": ")[2]) for change in rig.recorded(BrokerChange)]
    assert counts == [(3, "more than 50 percent"), (3, "goes on")]
    assert rig.cluster.rebalancing == {1}
    assert run(rig) == 7
    assert rig.cluster.rebalancing == set()
    rig.forget()
    assert run(rig) == 7
    assert rig.commits() == []


def test_the_pace_is_for_all_brokers_together_and_nobody_is_forgotten() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {n: [1 + n % 2, 3] for n in range(8)})
    for number in range(8):
        world.put_state("t", number, state(3, [1 + number % 2, 3], 5, 7))
    rig = MachineHarness.active(world, settings=CoreSettings(leader_rebalance_leaders_per_second=3))
    led = []
    for _ in range(4):
        run(rig)
        led.append(sum(s.leader != 3 for s in world.states.values()))
    assert led == [3, 6, 8, 8]
    assert rig.cluster.rebalancing == set()


def test_a_return_under_way_ends_when_its_broker_is_held_back() -> None:
    """What it leads by then is enough: a return begins where more than the limit is missing."""
    rig = cluster([2] * 4, leader_rebalance_leaders_per_second=1, leader_imbalance_per_broker_percentage=80)
    assert (run(rig), rig.cluster.rebalancing) == (1, {1})
    rig.cluster.flapping = {1: Flapping(3, rig.now_us, 300_000_000)}
    assert (run(rig), rig.cluster.rebalancing) == (1, set())
    rig.cluster.flapping = {}
    assert (run(rig), rig.cluster.rebalancing) == (1, set())


def test_a_return_under_way_ends_when_its_broker_goes() -> None:
    rig = cluster([2] * 5, leader_rebalance_leaders_per_second=2)
    run(rig)
    rig.world.broker_down(1)
    rig.run()
    assert run(rig) == 0
    assert rig.cluster.rebalancing == set()


def test_a_topic_under_deletion_hides_no_other() -> None:
    world = World(1, 2)
    for name in "tu":
        world.create_topic(name, {0: [1, 2]})
        world.put_state(name, 0, state(2, (1, 2), 5, 7))
    rig = MachineHarness.active(world)
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    found = rig.drive(imbalances)
    assert [(b, i.preferred, i.missing) for b, i in found.items()] == [(1, 1, 1)]


def test_a_partition_without_leadership_counts_as_led() -> None:
    world = World(1)
    world.create_topic("t", {0: [9]})
    rig = MachineHarness.active(world)
    assert [(b, i.preferred, i.missing) for b, i in rig.drive(imbalances).items()] == [(9, 1, 0)]


def test_what_could_not_be_elected_leaves_its_share_of_the_rate_to_others() -> None:
    world = World(1, 2, 3)
    for topic, preferred in (("t", 1), ("u", 2)):
        world.create_topic(topic, {n: [preferred, 3] for n in range(2)})
        for number in range(2):
            world.put_state(topic, number, state(3, (preferred, 3), 5, 7))
    rig = MachineHarness.active(world, settings=CoreSettings(leader_rebalance_leaders_per_second=2))

    def fate(commit: Commit) -> Fate:
        first = commit.writes[0]
        return (
            Fate.LOST if isinstance(first, SetState) and first.partition.topic.name == "t" else Fate.ANSWERED
        )

    rig.fate = fate
    run(rig)
    assert [rig.stored(topic, n)[0] for topic in "tu" for n in range(2)] == [3, 3, 2, 2]


def test_a_partition_without_a_leader_counts_as_led_by_another() -> None:
    rig = cluster([2, 1, 1])
    rig.world.put_state("t", 2, state(-1, (1, 2), 6, 8))
    rig.partition("t", 2).leadership = rig.world.states["t", 2]
    assert rig.drive(imbalances)[1][:2] == (3, 2)
