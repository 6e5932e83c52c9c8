"""Small clusters, as a snapshot for plans and as a world for the rig that the core is tested with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from controller.core.model import LeaderAndIsr
from controller.planning.snapshot import Key, Snapshot
from tests.support.core.world import World, state


@dataclass(frozen=True)
class Small:
    """``partitions``: replicas, leader and ISR of each; ``configs`` by topic; brokers of even id are in rack even."""

    brokers: tuple[int, ...]
    partitions: Mapping[Key, tuple[Sequence[int], int, Sequence[int]]]
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def world(self) -> World:
        world = World()
        for broker_id in self.brokers:
            world.broker_up(broker_id, rack="odd" if broker_id % 2 else "even")
        for name in dict.fromkeys(topic for topic, _ in self.partitions):
            world.create_topic(name, {n: ids for (t, n), (ids, _, _) in self.partitions.items() if t == name})
        for (topic, number), (_, leader, isr) in self.partitions.items():
            world.put_state(topic, number, state(leader, isr, 3, 5))
        for name, config in self.configs.items():
            world.configure(name, dict(config))
        return world

    def snapshot(self) -> Snapshot:
        return snapshot_of(self.world())


def snapshot_of(world: World) -> Snapshot:
    return Snapshot(
        100,
        1,
        dict(world.brokers),
        dict(world.topics),
        dict(world.states),
        {name: dict(config) for name, config in world.configs.items()},
        deleting=tuple(world.deletions),
    )


BROKERS = (1, 2, 3, 4, 5)


@st.composite
def smalls(draw: st.DrawFn, *, settled: bool = False) -> Small:
    """Any cluster of five brokers at most; ``settled``: all registered, and every partition is led."""
    alive = BROKERS if settled else tuple(sorted(draw(st.sets(st.sampled_from(BROKERS), min_size=1))))
    partitions: dict[Key, tuple[Sequence[int], int, Sequence[int]]] = {}
    for topic in ("a", "b"):
        for number in range(draw(st.integers(1, 3))):
            replicas = draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True))
            size = st.integers(1, len(replicas))
            isr = draw(st.permutations(replicas))[: draw(size)]
            leader = isr[0] if settled or draw(st.booleans()) else -1
            partitions[(topic, number)] = (replicas, leader, isr)
    configs: dict[str, dict[str, str]] = {}
    if draw(st.booleans()):
        configs["a"] = {"unclean.leader.election.enable": "true"}
    if draw(st.booleans()):
        configs["b"] = {"min.insync.replicas": str(draw(st.integers(1, 3)))}
    return Small(alive, partitions, configs)


def leaders(states: Mapping[Key, LeaderAndIsr]) -> dict[Key, int]:
    return {key: found.leader for key, found in states.items()}
