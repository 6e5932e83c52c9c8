"""What tests of topic deletion ask of the world and of the controller."""

from __future__ import annotations

from controller.core.model import ReplicaState
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World


def check_gone(world: World, rig: MachineHarness, name: str) -> None:
    """What the rows' ``then`` says of a deleted topic, in ZooKeeper, at the brokers and in memory."""
    assert name not in world.topics
    assert name not in world.deletions
    assert not [key for key in world.states if key[0] == name]
    for broker_id in world.brokers:
        assert not [key for key in world.folders.get(broker_id, ()) if key[0] == name]
        notified = rig.received[broker_id]
        assert not [key for key in (*notified.metadata, *notified.replicas) if key[0] == name]
    assert name not in rig.cluster.topics
    assert not rig.cluster.deletion_requested(name)


def states(rig: MachineHarness, name: str) -> dict[int, set[ReplicaState]]:
    """Replica states of a topic by broker."""
    found: dict[int, set[ReplicaState]] = {}
    for partition in rig.cluster.topics[name].partitions.values():
        for broker_id in partition.replicas:
            found.setdefault(broker_id, set()).add(partition.replica_state(broker_id))
    return found


def active(*brokers: int, **topics: list[list[int]]) -> tuple[World, MachineHarness]:
    world = World(*brokers)
    for name, lists in topics.items():
        world.create_topic(name, dict(enumerate(lists)))
    rig = MachineHarness.active(world)
    rig.forget()
    return world, rig
