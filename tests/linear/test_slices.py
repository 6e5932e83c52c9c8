"""No look at all partitions is one piece of work: other tasks get a turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from controller.core.brokers import controlled_shutdown
from controller.core.cluster import automatic_maintenance
from controller.core.cluster.maintenance import keep_drained
from controller.core.context import PASSED_MAX, SLICE_MAX, CoreSettings, EventContext, Handler, replicas_on
from controller.core.elections import elect_leaders
from controller.core.elections.preferred_leader_balance import imbalances
from controller.core.events import Event, EventKind
from controller.core.model import (
    Attribution,
    Maintenance,
    Partition,
    PartitionState,
    ReplicaState,
    Topic,
    uniform_states,
)
from controller.core.partitions import lost_data, partition_state_machine, replica_state_machine
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.topics import deletion
from controller.runtime import state
from controller.runtime.observe import loop_lag
from tests.linear.steps import Steps
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World
from tests.support.core.world import state as leadership

PARTITIONS = 5 * PASSED_MAX
#: Lines that may be run for each partition of one slice.
EACH = 8


def large() -> MachineHarness:
    """Brokers 1 and 2 have all partitions, broker 3 has none."""
    settings = CoreSettings(maintenance_offline_brokers_percentage=50)
    rig = MachineHarness.active(World(1, 2, 3), settings=settings)
    rig.run()
    known, replicas = leadership(1, (1, 2), 0, 0), (1, 2)
    for name in range(PARTITIONS // 1000):
        topic = Topic(f"large-{name}", f"id-{name}", 1, 0)
        for number in range(1000):
            partition = topic.partitions[number] = Partition(topic, number, replicas)
            partition.leadership, partition.state = known, PartitionState.ONLINE
            partition.replica_states = uniform_states(ReplicaState.ONLINE, 2)
        topic.complete = True
        rig.cluster.add_topic(topic)
    # The world does not have them, and no record tells of them.
    rig.chronicle.forget()
    rig.check_memory = lambda: None  # type: ignore[method-assign]
    return rig


def longest(rig: MachineHarness, act: Callable[[], object]) -> int:
    """The most steps of ours in one step of the machine."""
    found, step = [0], rig.machine.step

    def traced(*arguments: Any) -> Any:
        with Steps() as counted:
            ready = step(*arguments)
        found.append(counted.count)
        return ready

    rig.machine.step = traced  # type: ignore[method-assign, assignment]
    act()
    return max(found)


def goes(rig: MachineHarness) -> None:
    rig.world.broker_down(3)
    rig.run()


def comes(rig: MachineHarness) -> None:
    rig.world.broker_up(4)
    # What a broker is told is listed elsewhere.
    rig.slow.add(4)
    rig.run()


def rebalances(rig: MachineHarness) -> None:
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()


def all_offline(context: EventContext) -> Handler[Any]:
    """All replicas of a broker, of partitions that need no write."""
    replicas = [(partition, 2) for partition in context.cluster.partitions()]
    for partition, _ in replicas:
        partition.leadership = None
    return replica_state_machine.to_offline(context, replicas, "its broker is gone")


@pytest.mark.slow
@pytest.mark.parametrize("act", [goes, comes, rebalances])
def test_an_event_that_concerns_no_partition_gives_way(act: Callable[[MachineHarness], None]) -> None:
    rig = large()
    assert longest(rig, partial(act, rig)) <= EACH * PASSED_MAX


def all_drained(context: EventContext) -> Handler[None]:
    """The drained broker leads none of them."""
    context.cluster.maintenance = Maintenance(drained={3: Attribution("kernel", "ann")})
    return keep_drained(context)


def all_back(context: EventContext) -> Handler[Any]:
    """No broker is missing any more."""
    context.cluster.maintenance = Maintenance(automatic=True)
    context.cluster.healthy_since_us = context.now_us
    return automatic_maintenance.ends(context)


@pytest.mark.parametrize(
    ("look", "slice_size"),
    [
        (lambda context: replicas_on(context, [1]), PASSED_MAX),
        (lambda context: controlled_shutdown._led_and_followed(context, 1), PASSED_MAX),
        (partition_state_machine.bring_online, PASSED_MAX),
        (partition_state_machine.elect_from_live_isr, PASSED_MAX),
        (imbalances, SLICE_MAX),
        (all_offline, SLICE_MAX // 4),
        (automatic_maintenance.reconsider, PASSED_MAX),
        (all_back, PASSED_MAX),
        (lambda context: lost_data.take_out(context, context.cluster.partitions()), PASSED_MAX + 1),
        (
            lambda context: elect_leaders._asked(context, ElectLeaders(ElectionType.PREFERRED, None)),
            PASSED_MAX,
        ),
        (lambda context: automatic_maintenance.offline_brokers(context.cluster, CoreSettings()), PASSED_MAX),
        (lambda context: deletion._has_replica(context, 3), PASSED_MAX),
        (all_drained, PASSED_MAX),
    ],
    ids=[
        *("replicas", "controlled shutdown", "bring online", "live isr", "imbalances", "offline", "missing"),
        *("all back", "lost data", "elect all", "describe", "forget a broker", "drained"),
    ],
)
def test_a_look_at_all_partitions_gives_way(
    look: Callable[[EventContext], Handler[Any]], slice_size: int
) -> None:
    yields = 0

    def counting(context: EventContext) -> Handler[None]:
        nonlocal yields
        handler = look(context)
        for pause in handler:
            yields += 1
            yield pause

    large().drive(counting)
    assert yields >= PARTITIONS // slice_size


@pytest.mark.slow
def test_a_count_of_all_partitions_gives_way() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        counting = asyncio.create_task(state.census(large().cluster))
        while not counting.done():
            turns += 1
            await asyncio.sleep(0)
        assert counting.result().led.total() == PARTITIONS

    asyncio.run(count())
    assert turns >= PARTITIONS // loop_lag.AT_ONCE
