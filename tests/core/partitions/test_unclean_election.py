"""Unclean election: by default configuration and by topic configuration (reference 5.2)."""

from __future__ import annotations

import pytest

from controller.core import commits
from controller.core.context import CoreSettings
from controller.core.model import RECOVERING, PartitionState
from controller.core.partitions import leader_election, partition_state_machine
from controller.core.partitions.leader_election import ElectionKind, Strategy
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state

CONFIG = "unclean.leader.election.enable"


def leaderless(
    default: bool, topic: str | None, isr: list[int] | None = None
) -> tuple[World, MachineHarness]:
    """AR [1, 2, 3], only 1 (dead) is in sync, 2 and 3 live; not yet loaded."""
    world = World(2, 3)
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(-1, isr or [1], 5, 7))
    if topic is not None:
        world.configure("t", {CONFIG: topic})
    return world, MachineHarness(world, settings=CoreSettings(unclean_leader_election_enable=default))


@pytest.mark.parametrize(
    ("default", "topic", "leads"),
    [
        (False, None, False),
        (True, None, True),
        (False, "true", True),
        (False, " True ", True),
        (True, "false", False),
        (True, "FALSE", False),
        (True, "maybe", False),
        (False, "maybe", False),
        (True, "", False),
    ],
)
def test_topic_configuration_goes_over_the_default(default: bool, topic: str | None, leads: bool) -> None:
    _, rig = leaderless(default, topic)
    rig.failover()
    if leads:
        assert rig.stored() == (2, 6, [2])
        assert rig.world.states[("t", 0)].recovery == RECOVERING
        assert rig.partition().state is PartitionState.ONLINE
        rig.check_converged()
    else:
        assert rig.stored() == (-1, 5, [1])
        assert rig.partition().state is PartitionState.OFFLINE
    assert rig.cluster.unclean_elections == int(leads)


def test_an_invalid_value_is_a_problem_that_names_key_and_value() -> None:
    _, rig = leaderless(True, "maybe")
    rig.failover()
    assert rig.cluster.problems == {"/config/topics/t": f"{CONFIG} = 'maybe': must be true or false"}


def test_an_unreadable_configuration_means_no_election_and_hides_no_other_topic() -> None:
    world, rig = leaderless(True, "true")
    world.create_topic("u", {0: [1, 2]})
    world.put_state("u", 0, state(-1, [1], 5, 7))
    world.unreadable["/config/topics/t"] = "not JSON"
    rig.failover()
    assert rig.stored("t") == (-1, 5, [1])
    assert rig.stored("u") == (2, 6, [2])
    assert rig.cluster.problems == {"/config/topics/t": "not JSON"}


def test_a_mended_configuration_is_no_problem_any_more() -> None:
    world, rig = leaderless(True, "maybe")
    rig.failover()
    world.configure("t", {CONFIG: "true"})
    world.broker_up(4)
    rig.run()
    assert rig.stored() == (2, 6, [2])
    assert rig.cluster.problems == {}


def test_configuration_is_only_read_where_it_matters() -> None:
    """Partitions with a live ISR member never qualify; without any live replica nobody could lead."""
    world = World(1, 2)
    for name, replicas, isr in (("clean", [1, 2], [2]), ("dead", [8, 9], [9])):
        world.create_topic(name, {0: replicas})
        world.put_state(name, 0, state(-1, isr, 5, 7))
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=True))
    assert "ReadTopicConfigs" not in rig.reads()
    assert rig.stored("clean") == (2, 6, [2])
    assert rig.stored("dead") == (-1, 5, [9])


def test_a_clean_candidate_always_goes_first() -> None:
    _, rig = leaderless(True, "true", isr=[1, 3])
    rig.failover()
    assert rig.stored() == (3, 6, [3])
    assert rig.cluster.unclean_elections == 0


def test_permission_by_request_overrides_the_configuration() -> None:
    _, rig = leaderless(False, "false")
    rig.failover()
    partition = rig.partition()
    kind = ElectionKind(Strategy.OFFLINE, allow_unclean=True)
    failed = rig.drive(lambda context: partition_state_machine.to_online(context, [partition], kind))
    assert failed == {}
    assert rig.stored() == (2, 6, [2])


@pytest.mark.parametrize(
    "kind", [leader_election.PREFERRED, leader_election.REASSIGN, leader_election.CONTROLLED_SHUTDOWN]
)
def test_no_other_strategy_is_ever_unclean(kind: ElectionKind) -> None:
    _, rig = leaderless(True, "true")
    rig.settings = CoreSettings(unclean_leader_election_enable=False)
    rig.world.configure("t", {CONFIG: "false"})
    rig.failover()
    rig.world.configure("t", {CONFIG: "true"})
    failed = rig.drive(lambda context: partition_state_machine.to_online(context, [rig.partition()], kind))
    assert set(failed) == {rig.partition()}


def test_a_recovering_partition_that_is_elected_cleanly_stays_recovering() -> None:
    world, rig = leaderless(True, None)
    rig.failover()
    world.configure("t", {CONFIG: "false"})
    world.broker_down(2)
    rig.run()
    world.broker_up(2)
    rig.run()
    assert rig.stored()[0] == 2
    assert world.states[("t", 0)].recovery == RECOVERING


def test_unclean_elections_are_counted_when_they_land_not_per_attempt() -> None:
    """Better than the original, whose meter counts each retry."""
    _, rig = leaderless(True, None)
    fates = iter([Fate.LOST, Fate.LOST])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.failover()
    assert rig.stored() == (2, 6, [2])
    assert rig.cluster.unclean_elections == 1


def test_of_several_batches_each_unclean_election_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "BATCH_WRITES", 1)
    world, rig = leaderless(True, None)
    world.create_topic("u", {n: [1, 2, 3] for n in range(3)})
    for number in range(3):
        world.put_state("u", number, state(-1, [1], 5, 7))
    rig.failover()
    assert rig.cluster.unclean_elections == 4


def test_a_clean_redecision_is_not_counted_as_unclean() -> None:
    """Decided uncleanly, refused because somebody else wrote, then decided cleanly from what they wrote."""
    world, rig = leaderless(True, None)
    writes = iter([lambda: world.shrink_or_grow("t", 0, [1, 3])])

    def fate(_: object) -> Fate:
        next(writes, lambda: None)()
        return Fate.ANSWERED

    rig.fate = fate
    rig.failover()
    assert rig.stored() == (3, 6, [3])
    assert rig.cluster.unclean_elections == 0


def test_permission_is_asked_again_when_the_isr_turns_out_to_be_dead() -> None:
    """Reference 5.2: each iteration of the election loop runs the strategy, unclean permission included."""
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(1, [1, 2], 5, 7))
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=True))
    writes = iter([lambda: world.shrink_or_grow("t", 0, [1])])

    def fate(_: object) -> Fate:
        next(writes, lambda: None)()
        return Fate.ANSWERED

    rig.fate = fate
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 6, [2])
    assert rig.cluster.unclean_elections == 1
