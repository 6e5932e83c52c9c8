"""What tests of reassignments ask for and look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controller.core.context import CoreSettings
from controller.core.effects import SetReassignment, SetState, SetTopic
from controller.core.model import RECOVERED
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    ListPartitionReassignments,
    PartitionReassignment,
)
from tests.support.core.harness import MachineHarness
from tests.support.core.world import Key, World

Targets = Mapping[Key, Sequence[int] | None]


def active(*brokers: int, settings: CoreSettings | None = None, **topics: list[list[int]]) -> MachineHarness:
    """A controller with initialised topics."""
    world = World(*brokers)
    rig = MachineHarness.active(world, settings=settings)
    for name, lists in topics.items():
        world.create_topic(name, dict(enumerate(lists)))
    rig.run()
    rig.forget()
    return rig


def request(targets: Targets) -> AlterPartitionReassignments:
    return AlterPartitionReassignments(
        [PartitionReassignment(t, n, None if ids is None else tuple(ids)) for (t, n), ids in targets.items()]
    )


def ask(rig: MachineHarness, targets: Targets) -> dict[str, str]:
    """By API; what each partition is answered."""
    (reply,) = rig.ask(request(targets))
    assert reply.error.name == "NONE"
    return {f"{a.topic}-{a.partition}": a.error.name for a in reply.partitions}


def ongoing(rig: MachineHarness, keys: Sequence[Key] | None = None) -> dict[str, Any]:
    (reply,) = rig.ask(ListPartitionReassignments(keys))
    return {f"{o.topic}-{o.partition}": o for o in reply.partitions}


def reasons(rig: MachineHarness, name: str = "t-0") -> tuple[str, ...]:
    """Why a listed move is not done yet, as operators read it."""
    return tuple(map(str, ongoing(rig)[name].reasons))


def assigned(
    rig: MachineHarness, topic: str = "t", number: int = 0
) -> tuple[list[int], list[int], list[int]]:
    """Replicas, adding, removing as stored."""
    info = rig.world.topics[topic]
    return (
        list(info.partitions[number]),
        list(info.adding.get(number, ())),
        list(info.removing.get(number, ())),
    )


def join(rig: MachineHarness, isr: Sequence[int], topic: str = "t", number: int = 0) -> None:
    """The leader proposes an ISR."""
    leader = rig.world.states[(topic, number)].leader
    (answer,) = rig.ask(rig.alter(leader, rig.proposal(isr, topic, number)))
    assert [a.error.name for a in answer.partitions] == ["NONE"]


def copy_all(rig: MachineHarness, rounds: int = 20) -> None:
    """Followers copy: every live replica joins the ISR, leader by leader, until nothing changes; leaders recover."""
    world = rig.world
    for _ in range(rounds):
        asked = 0
        for key, stored in list(world.states.items()):
            partition = rig.cluster.partition(*key)
            if partition is None or stored.leader not in rig.cluster.live_ids():
                continue
            notified = (
                {b for b in partition.replicas if key in rig.received[b].replicas} if rig.received else set()
            )
            fit = [
                b
                for b in partition.replicas
                if b in notified and b in world.brokers and rig.cluster.is_online(partition, b)
            ]
            wanted = tuple(dict.fromkeys((*(b for b in stored.isr if b in partition.replicas), *fit)))
            if stored.leader in wanted and set(wanted) != set(stored.isr):
                asked += 1
                rig.ask(rig.alter(stored.leader, rig.proposal(wanted, *key, recovery=RECOVERED)))
        if not asked:
            return
    raise AssertionError("the ISRs never come to rest")


def check_moved(rig: MachineHarness, key: Key, target: Sequence[int]) -> None:
    """Nothing of a move is left, anywhere."""
    topic, number = key
    info, stored, partition = rig.world.topics[topic], rig.world.states[key], rig.partition(*key)
    assert assigned(rig, *key) == (list(target), [], [])
    for field in (info.original, info.queued, info.stray):
        assert number not in field
    assert set(stored.isr) <= set(target)
    assert partition.departing == {}
    assert partition.replicas == tuple(target)
    reassignments = rig.cluster.reassignments
    for known in (reassignments.ongoing, reassignments.queued, reassignments.problems, reassignments.strays):
        assert partition not in known
    for broker_id, folders in rig.world.folders.items():
        assert key not in folders or broker_id in target or broker_id not in rig.world.brokers


def writes(rig: MachineHarness) -> list[str]:
    """States and assignments in the order they were written."""
    seen = []
    for commit in rig.commits():
        for write in commit.writes:
            if isinstance(write, SetState):
                new = write.new
                seen.append(f"state {new.leader} {list(new.isr)} e{new.leader_epoch} p{new.partition_epoch}")
            elif isinstance(write, SetTopic):
                info = write.info
                sets = [list(m.get(0, ())) for m in (info.partitions, info.adding, info.removing)]
                seen.append(f"topic {sets[0]} +{sets[1]} -{sets[2]}")
            elif isinstance(write, SetReassignment):
                seen.append(f"znode {len(write.entries)}")
    return seen


def listed(rig: MachineHarness) -> tuple[object, ...]:
    """Entries of the legacy znode; none when it is gone."""
    return rig.world.reassignment.entries if rig.world.reassignment else ()
