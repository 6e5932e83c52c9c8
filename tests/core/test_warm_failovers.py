"""A failover of what a standby kept ready ends as one that reads everything: in ZooKeeper, in memory, at the brokers,
in the log."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from controller.core.context import CoreSettings
from controller.core.records import FailoverPhase
from controller.core.standby.prepared import Prepared
from controller.core.topics.changes import topic_of_info
from tests.core.test_mixed_walks import STEPS, moves, settings_of
from tests.support.core.harness import MachineHarness
from tests.support.core.mixed_walk import Everything
from tests.support.core.world import World, state


def outcome(world: World, settings: CoreSettings) -> dict[str, Any]:
    rig = MachineHarness(world, epoch=1000, settings=settings).failover()
    rig.drain()
    cluster = rig.cluster
    return {
        "states": world.states,
        "topics": world.topics,
        "watches": world.watches,
        "memory": {
            p.name: (p.state, p.replica_states, p.leadership, p.replicas, p.adding, p.removing, p.departing)
            for p in cluster.partitions()
        },
        "ids": {topic.id: topic.name for name in cluster.topics if (topic := cluster.topics[name]).id},
        "by id": {name: cluster.topic_by_id(t.id) is t for name, t in cluster.topics.items() if t.id},
        "problems": cluster.problems,
        "lacks": cluster.lacks_state(),
        "told": {id_: (got.metadata, got.replicas, got.live) for id_, got in rig.received.items()},
        "records": sorted(
            f"{batch.reason} {record}"
            for batch in rig.batches
            for record in batch.records
            if not isinstance(record, FailoverPhase)
        ),
        "phases": [
            (record.phase, record.count) for batch in rig.batches for record in batch.of(FailoverPhase)
        ],
    }


def compare(world: World, settings: CoreSettings, chance: random.Random) -> None:
    world.events.clear()
    world.watches.clear()
    cold, warm = copy.deepcopy(world), copy.deepcopy(world)
    rate = chance.choice([0.0, 0.1, 0.5])
    warm.warm = lambda name: chance.random() < rate
    expected, found = outcome(cold, settings), outcome(warm, settings)
    for what, value in expected.items():
        assert found[what] == value, what


@pytest.mark.parametrize("seed", range(20))
def test_it_ends_as_a_cold_one(seed: int) -> None:
    chance = random.Random(f"warm {seed}")
    settings = settings_of(chance)
    everything = Everything(settings, [], [])
    for count, move in enumerate(moves(5000 + seed, 2 * STEPS)):
        everything.apply(move)
        if count % 5 == 4:
            compare(everything.world, settings, chance)


def test_only_what_is_otherwise_is_looked_at() -> None:
    world = World(1, 2, 3)
    for name in "abc":
        world.create_topic(name, {0: [1, 2], 1: [2, 3]})
        for number, leader in ((0, 1), (1, 2)):
            world.put_state(name, number, state(leader, (leader,)))
    world.put_state("b", 1, state(-1, (2,)))
    world.warm = lambda _: False
    prepared = world.prepared()
    assert prepared is not None
    everything = {b: world.brokers[b] for b in (1, 2, 3)}
    assert [p.name for p in prepared.unsettled(everything, everything=False)] == ["b-1"]
    del everything[1]
    assert len(prepared.unsettled(everything, everything=False)) == 6


def test_who_came_back_without_its_data_is_found() -> None:
    world = World(2, 3)
    world.broker_up(1, directories=(7,))
    for name, directories in (("lost", (5, 6)), ("kept", (7, 6)), ("unknown", ())):
        world.create_topic(name, {0: [1, 2], 1: [2, 3]})
        world.put_state(name, 0, msgspec.structs.replace(state(1, (1, 2)), directories=directories))
        world.put_state(name, 1, state(2, (2, 3)))
    compare(world, CoreSettings(), random.Random(0))


@pytest.mark.parametrize(("gone", "entered"), [(1, False), (2, True)])
def test_brokers_that_are_gone_are_counted_as_by_a_cold_one(gone: int, entered: bool) -> None:
    world = World(*range(1 + gone, 5))
    for name in "ab":
        world.create_topic(name, {0: [1, 2, 3], 1: [3, 4]})
        world.put_state(name, 0, state(3, (3,)))
        world.put_state(name, 1, state(3, (3, 4)))
    world.warm = lambda _: False
    settings = CoreSettings(maintenance_offline_brokers_percentage=50, maintenance_offline_brokers_min=1)
    rig = MachineHarness(world, epoch=2, settings=settings).failover()
    assert rig.cluster.maintenance.automatic is entered


def test_two_topics_of_one_id_are_read_at_the_failover() -> None:
    world = World(1)
    world.create_topic("a", {0: [1]}, topic_id="same")
    world.create_topic("b", {0: [1]}, topic_id="same")
    world.warm = lambda _: False
    prepared = world.prepared()
    assert prepared is not None
    assert not prepared.topics
    assert prepared.replicas == 0
    assert Prepared().withdraw("a") is None


def test_what_a_standby_has_no_more_or_has_not_read_is_as_it_is_in_zookeeper() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2], 1: [1, 2]})
    for number in range(2):
        world.put_state("t", number, state(1, (1, 2), 5, 7))
    prepared = Prepared()
    for name in ("t", "gone"):
        topic = topic_of_info(replace(world.topics["t"], name=name, topic_id=f"id of {name}"))
        prepared.put(topic)
        prepared.keep(topic.partitions[0], state(1, (1, 2), 5, 7))
    prepared.close([])
    world.prepared = lambda: prepared  # type: ignore[method-assign]
    rig = MachineHarness(world, epoch=2).failover()
    assert list(rig.cluster.topics) == ["t"]
    assert rig.partition("t", 1).leadership == state(1, (1, 2), 5, 7)
    assert (rig.rejects(), rig.commits()) == ([], [])
