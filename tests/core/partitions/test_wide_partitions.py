"""Partitions with as many replicas as are allowed: what happens to them is linear, and what is shared is given back."""

from __future__ import annotations

import pytest

from controller.core.model import REPLICAS_MAX, SHARED_LENGTH_MAX, ReplicaState, broker_ids, states
from controller.core.partitions import replica_state_machine
from controller.core.reassignment.stray_replicas import out_of_isr
from controller.core.records import Rejection, ReplicaTransition
from controller.core.requests.topics import CreateTopics, NewTopic
from tests.support.core.harness import MachineHarness, bare
from tests.support.core.reassignments import active, ask, assigned
from tests.support.core.world import World

ALL = list(range(REPLICAS_MAX))


def shared() -> int:
    return sum(len(cache) for cache in (states._shared_states, states._with_state, broker_ids._interned))


def test_states_change_one_by_one_and_together_alike() -> None:
    """A partition of three replicas goes the one way, a partition of many the other."""
    for width in (3, SHARED_LENGTH_MAX + 1):
        rig = active(1, 2, t=[[1, 2, *range(100, 98 + width)]])
        partition = rig.partition()
        assert set(partition.replica_states) == {ReplicaState.ONLINE}
        rig.world.broker_down(2)
        rig.run()
        assert partition.replica_state(2) is ReplicaState.OFFLINE
        assert partition.replica_state(1) is ReplicaState.ONLINE
        rig.world.broker_up(2)
        rig.run()
        assert partition.replica_state(2) is ReplicaState.ONLINE
        rig.world.broker_up(3)
        rig.run()
        assert ask(rig, {("t", 0): [1, 3]}) == {"t-0": "NONE"}
        assert partition.replica_state(3) is ReplicaState.NEW
        rig.world.shrink_or_grow("t", 0, [1, 2, 3])
        rig.world.notify_isr(("t", 0))
        rig.run()
        assert assigned(rig) == ([1, 3], [], [])
        assert partition.states_by_broker() == {1: ReplicaState.ONLINE, 3: ReplicaState.ONLINE}


@pytest.mark.parametrize("width", [3, SHARED_LENGTH_MAX + 1])
def test_who_is_in_the_state_already_does_not_change(width: int) -> None:
    rig = active(1, 2, t=[[1, 2, *range(100, 98 + width)]])
    both = [(rig.partition(), broker_id) for broker_id in (1, 2)]
    rig.do(lambda context: replica_state_machine.to_online(context, both, "again"))
    assert rig.recorded(ReplicaTransition) == []


def test_each_of_two_wide_partitions_has_states_of_its_own() -> None:
    width = SHARED_LENGTH_MAX + 1
    rig = active(1, 2, t=[[1, *range(100, 99 + width)], [2, *range(100, 99 + width)]])
    replicas = [(rig.partition("t", number), broker_id) for number in range(2) for broker_id in (1, 2)]
    wanted = [replicas[0], replicas[3]]
    assert replica_state_machine.in_states(replicas, (ReplicaState.ONLINE,)) == wanted


def test_of_many_replicas_that_go_those_outside_the_isr_go_together() -> None:
    """Each of the others gets its own leader epoch."""

    def pauses(outside: int) -> int:
        rig = active(1, 2, t=[[1, 2, *range(100, 100 + outside)]])
        going = {rig.partition(): [2, *range(100, 100 + outside)]}
        found = rig.pauses(lambda context: out_of_isr(context, going))
        assert rig.stored() == (1, 1, [1])
        return len(found)

    assert pauses(SHARED_LENGTH_MAX) == pauses(3 * SHARED_LENGTH_MAX)


def test_states_of_wide_partitions_are_not_kept_for_ever() -> None:
    rig = MachineHarness.active(World(1, 2, 3))
    before = shared()
    for n in range(3):
        rig.world.create_topic(f"wide{n}", {0: ALL, 1: ALL[::-1]})
        rig.run()
        rig.world.broker_down(2)
        rig.run()
        rig.world.broker_up(2)
        rig.run()
    assert shared() - before < 20


def test_a_request_for_too_many_replicas_is_refused() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    too_many = list(range(REPLICAS_MAX + 1))
    (reply,) = rig.ask(CreateTopics([NewTopic("wide", None, None, {0: tuple(too_many)}, {})]))
    assert [(a.error.name, a.message) for a in reply.topics] == [
        (
            "INVALID_REPLICA_ASSIGNMENT",
            "replica assignment: 1001 replicas of a partition: must be at most 1000",
        )
    ]
    assert ask(rig, {("t", 0): too_many}) == {"t-0": "INVALID_REPLICA_ASSIGNMENT"}
    rig.world.ask_reassignment({("t", 0): too_many})
    rig.run()
    assert assigned(rig) == ([1, 2], [], [])
    assert any("1001 replicas: must be at most 1000" in r.reason for r in rig.recorded(Rejection))


def test_nor_may_a_reassignment_pass_through_too_many() -> None:
    """Target and origin together are in the topic's znode, which would be malformed."""
    rig = active(1, 2, t=[[1, 2]])
    rig.world.ask_reassignment({("t", 0): [1, *range(100, 99 + REPLICAS_MAX)]})
    rig.run()
    assert assigned(rig) == ([1, 2], [], [])
    assert any("1001 replicas while it is reassigned" in r.reason for r in rig.recorded(Rejection))


def test_an_untracked_replica_of_a_wide_partition_joins_it() -> None:
    rig = bare([1, 2, 3], {("t", 0): ALL[: SHARED_LENGTH_MAX + 1]})
    partition = rig.partition()
    rig.do(lambda context: replica_state_machine.to_new(context, [(partition, 900), (partition, 901)]))
    assert partition.replicas[-2:] == (900, 901)
    assert partition.states_by_broker()[901] is ReplicaState.NEW
    assert [(r.broker_id, r.before) for r in rig.recorded(ReplicaTransition)] == [
        (900, ReplicaState.NON_EXISTENT),
        (901, ReplicaState.NON_EXISTENT),
    ]
