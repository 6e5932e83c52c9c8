"""Brokers that come and go: leaderships return later and later, and availability never suffers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.cluster.flapping import FORGIVEN_US, HOLD_MAX_US, hold_of
from controller.core.context import CoreSettings
from controller.core.events import Event, EventKind
from controller.core.explain.brokers import explain_broker
from controller.core.records import BrokerChange
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

SECOND = 1_000_000
HOLD_S = 60


def cluster(**changes: Any) -> MachineHarness:
    """t-0 prefers broker 1, and is on 2, too; alone-0 is on broker 1 only."""
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2]})
    world.create_topic("alone", {0: [1]})
    return MachineHarness.active(
        world, settings=CoreSettings(**{"broker_flapping_hold_seconds": HOLD_S, **changes})
    )


def flap(rig: MachineHarness, times: int = 1) -> None:
    for _ in range(times):
        rig.world.broker_down(1)
        rig.run()
        rig.world.broker_up(1)
        rig.run()
        rejoin(rig)


def rejoin(rig: MachineHarness) -> None:
    leader = rig.stored()[0]
    rig.ask(rig.alter(leader, rig.proposal([leader, *({1, 2} - {leader})])))


def rebalance(rig: MachineHarness, after_s: float = 0) -> int:
    """Who leads t-0 after a run."""
    rig.now_us += int(after_s * SECOND)
    rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    return rig.stored()[0]


def test_the_first_loss_is_none() -> None:
    rig = cluster()
    flap(rig)
    assert rig.stored()[0] == 2
    assert rebalance(rig) == 1


def test_the_hold_doubles_is_said_and_ends() -> None:
    rig = cluster()
    flap(rig, 3)
    assert rig.cluster.held_back() == [1]
    (text,) = [n for n in explain_broker(rig.cluster, 1).notes if "lost" in n]
    assert text == (
        "lost 3 times without a clean stop: leaderships return to it by themselves once it is up for 120 s"
    )
    assert rebalance(rig, 2 * HOLD_S - 1) == 2
    assert rebalance(rig, 1.1) == 1
    assert rig.cluster.held_back() == []
    said = [(c.to, c.broker_id) for c in rig.recorded(BrokerChange) if c.to in ("held_back", "released")]
    assert said == [("held_back", 1), ("held_back", 1), ("released", 1)]
    (released,) = [c for c in rig.recorded(BrokerChange) if c.to == "released"]
    assert released.reason == "it is up for long enough"


def test_an_operator_may_give_it_leadership() -> None:
    rig = cluster()
    flap(rig, 2)
    rig.ask(ElectLeaders(ElectionType.PREFERRED, [("t", 0)]))
    assert rig.stored()[0] == 1


def test_a_clean_stop_is_no_loss_and_a_long_stay_begins_anew() -> None:
    rig = cluster()
    for _ in range(4):
        rig.ask(ControlledShutdown(1, rig.cluster.brokers[1].epoch))
        flap(rig)
    assert rig.cluster.flapping == {}
    flap(rig, 3)
    rig.now_us += FORGIVEN_US
    flap(rig)
    assert rig.cluster.flapping[1].losses == 1
    assert rebalance(rig) == 1


def test_without_a_hold_or_without_returns_nobody_is_held_back() -> None:
    for changes in ({"broker_flapping_hold_seconds": 0}, {"auto_leader_rebalance_enable": False}):
        rig = cluster(**changes)
        flap(rig, 5)
        assert rig.cluster.held_back() == []


@given(st.integers(0, 10**9), st.integers(0, 3600))
def test_holds_grow_and_are_bounded(losses: int, first_s: int) -> None:
    hold = hold_of(losses, first_s)
    assert 0 <= hold <= HOLD_MAX_US
    assert hold <= hold_of(losses + 1, first_s)
    assert bool(hold) == (losses >= 2 and first_s > 0)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.sampled_from(["1 down", "1 up", "2 down", "2 up", "wait", "balance"]), max_size=25))
def test_it_never_costs_availability(steps: list[str]) -> None:
    """Whoever is alive and in sync leads, held back or not; a held one gets nothing back."""
    rig = cluster()
    for step in steps:
        before, held = rig.stored()[0], rig.cluster.held_back()
        match step.split():
            case [number, way]:
                broker = int(number)
                if (broker in rig.world.brokers) != (way == "up"):
                    (rig.world.broker_up if way == "up" else rig.world.broker_down)(broker)
                    rig.run()
            case ["wait"]:
                rig.now_us += HOLD_S * SECOND
            case ["balance"]:
                after = rebalance(rig)
                still = rig.cluster.held_back()
                assert after == before or after not in {*held} & {*still}
        alive = {1, 2} & rig.world.brokers.keys()
        for topic in ("t", "alone"):
            leader, _, isr = rig.stored(topic)
            assert (leader in alive) == bool(alive & set(isr)), (topic, step)
        if len(alive) == 2 and rig.stored()[0] > 0:
            rejoin(rig)


def test_one_that_stopped_cleanly_is_not_held_back_while_it_is_away() -> None:
    rig = cluster()
    flap(rig, 2)
    rig.ask(ControlledShutdown(1, rig.cluster.brokers[1].epoch))
    rig.world.broker_down(1)
    rig.run()
    assert rig.cluster.flapping[1].hold_us
    assert rig.cluster.held_back() == []


def test_brokers_that_return_together_are_recorded_in_their_order() -> None:
    # 8 comes before 1 in a small set.
    world = World(1, 8)
    rig = MachineHarness.active(world, settings=CoreSettings(broker_flapping_hold_seconds=HOLD_S))
    for _ in range(2):
        world.broker_down(8, 1)
        rig.run()
        rig.forget()
        for broker_id in (8, 1):
            world.broker_up(broker_id)
        rig.run()
    assert [c.broker_id for c in rig.recorded(BrokerChange) if c.to == "held_back"] == [1, 8]


def test_a_broker_is_held_back_for_just_so_long() -> None:
    rig = cluster()
    flap(rig, 2)
    up_us = rig.cluster.flapping[1].up_us
    assert up_us is not None
    for age_us, led_by in ((HOLD_S * SECOND - 1, 2), (HOLD_S * SECOND, 1)):
        rig.now_us = up_us + age_us - 1000
        assert rebalance(rig) == led_by
