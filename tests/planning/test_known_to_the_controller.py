"""What only the active controller knows is honoured: by plans, by the question who may stop, by what is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.context import CoreSettings
from controller.core.events import DiskReport, Event, EventKind
from controller.core.model import Attribution, Maintenance, StopApproval
from controller.core.requests.brokers import ControlledShutdown
from controller.planning import scenarios
from controller.planning.context import cluster_of, take
from controller.planning.scenarios import Step, Terms
from controller.planning.snapshot import Snapshot, representatives, unclean_allowed
from controller.planning.stoppable import CHANGES, Reason, Why, stoppable
from tests.support.core.harness import MachineHarness
from tests.support.core.world import state
from tests.support.planning.clusters import BROKERS, Small, smalls

TERMS = Terms()
MARK = Attribution("new disks", "ann")
THREE = Small(
    (1, 2, 3),
    {
        ("t", 0): ((1, 2, 3), 1, (1, 2, 3)),
        ("t", 1): ((2, 3, 1), 2, (2, 3, 1)),
        ("t", 2): ((3, 1, 2), 3, (3, 1, 2)),
    },
)


def rig_of(small: Small, **settings: Any) -> MachineHarness:
    """A controller that leads that cluster."""
    return MachineHarness.active(small.world(), settings=CoreSettings(**settings))


def taken(rig: MachineHarness) -> Snapshot:
    """From the controller's memory, with the settings of topics as the world has them."""
    configs = {name: dict(config) for name, config in rig.world.configs.items()}
    return take(rig.cluster, rig.settings).snapshot(configs, {}, {})


@pytest.mark.parametrize("dynamic", [True, False, None])
def test_a_default_set_for_all_brokers_goes_before_the_one_configured(dynamic: bool | None) -> None:
    rig = rig_of(THREE, unclean_leader_election_enable=True)
    rig.cluster.unclean_default = dynamic
    assert unclean_allowed(taken(rig), "t") is (dynamic is not False)


def test_what_the_znode_of_brokers_defaults_says_counts_as_the_controller_took_it() -> None:
    """Which may be another than stands there now."""
    rig = rig_of(THREE)
    written = {"unclean.leader.election.enable": "true", "min.insync.replicas": "2"}
    for dynamic, told in ((None, {}), (False, {"unclean.leader.election.enable": "false"})):
        rig.cluster.unclean_default = dynamic
        snapshot = take(rig.cluster, rig.settings).snapshot({}, written, {})
        assert snapshot.broker_defaults == {"min.insync.replicas": "2", **told}


def test_what_was_taken_stays_as_it_was() -> None:
    rig = rig_of(THREE)
    kept = take(rig.cluster, rig.settings)
    before = set(kept.brokers)
    rig.cluster.brokers.pop(1)
    rig.cluster.problems["/x"] = "odd"
    assert (set(kept.brokers), kept.problems) == (before, {})


def lose_disk(rig: MachineHarness, broker_id: int, *numbers: int) -> None:
    lost = [rig.partition("t", n) for n in numbers]
    report = DiskReport(broker_id, rig.world.brokers[broker_id].epoch, lost)
    rig.world.events.append(Event(EventKind.LEADER_AND_ISR_RESPONSE, body=report, serial=99))
    rig.run()


def shut_down(rig: MachineHarness, broker_id: int) -> None:
    rig.ask(ControlledShutdown(broker_id, rig.world.brokers[broker_id].epoch))


def losing(snapshot: Snapshot, *broker_ids: int) -> Step:
    return scenarios.broker_loss(snapshot, broker_ids, TERMS).steps[0]


def moved(step: Step) -> dict[str, int]:
    return {f"{m.topic}-{m.partition}": m.after for m in step.moved}


# --- taken from memory -------------------------------------------------------------------------------------


@given(smalls(), st.data())
def test_memory_and_zookeeper_say_the_same_where_nothing_is_only_in_memory(
    small: Small, data: st.DataObject
) -> None:
    """The failover may have written: both look at what is there after it."""
    rig = rig_of(small)
    mine = taken(rig)
    from_zookeeper = Snapshot(
        100,
        1,
        dict(rig.world.brokers),
        dict(rig.world.topics),
        dict(rig.world.states),
        {name: dict(config) for name, config in rig.world.configs.items()},
    )
    assert mine == from_zookeeper
    lost = data.draw(st.lists(st.sampled_from(small.brokers), min_size=1, unique=True))
    assert scenarios.broker_loss(mine, lost, TERMS) == scenarios.broker_loss(from_zookeeper, lost, TERMS)
    assert stoppable(mine, lost, TERMS) == stoppable(from_zookeeper, lost, TERMS)


def test_moves_are_taken_as_the_topic_znode_has_them() -> None:
    rig = rig_of(THREE, reassignment_concurrent_moves_max=1)
    rig.world.broker_up(4)
    rig.world.ask_reassignment({("t", 0): [4, 2, 3], ("t", 1): [2, 4]})
    rig.run()
    assert taken(rig).topics == rig.world.topics
    assert taken(rig).topics["t"].queued
    assert taken(rig).topics["t"].original == {0: (1, 2, 3)}
    assert taken(rig).deleting == ()
    rig.world.mark_for_deletion("t")
    rig.run()
    assert "t" in rig.cluster.deletions_waiting
    assert taken(rig).deleting == ("t",)


def test_replicas_that_are_still_to_be_deleted_are_taken() -> None:
    rig = rig_of(THREE)
    rig.hold_stops = True
    rig.world.ask_reassignment({("t", 0): [1, 2]})
    rig.run()
    assert rig.world.topics["t"].stray == {0: (3,)}
    assert taken(rig).topics == rig.world.topics


def test_a_copy_is_not_reached_by_what_happens_later() -> None:
    rig = rig_of(THREE)
    copy = take(rig.cluster, rig.settings)
    before = copy.snapshot({}, {}, {})
    lose_disk(rig, 1, 0)
    shut_down(rig, 2)
    rig.world.create_topic("u", {0: [1]})
    rig.world.broker_down(3)
    rig.run()
    assert copy.snapshot({}, {}, {}) == before


def test_the_dynamic_default_of_unclean_elections_and_the_settings_are_taken() -> None:
    rig = rig_of(THREE, reassignment_concurrent_moves_max=7)
    rig.cluster.unclean_default = True
    found = taken(rig)
    assert found.broker_defaults == {"unclean.leader.election.enable": "true"}
    assert found.settings == CoreSettings(reassignment_concurrent_moves_max=7)
    other = take(rig.cluster, rig.settings).snapshot({}, {"a": "b"}, {"/config/topics/t": "bad"})
    assert (other.broker_defaults["a"], other.problems) == ("b", {"/config/topics/t": "bad"})


def test_a_topic_whose_znode_is_gone_is_left_out() -> None:
    rig = rig_of(THREE)
    rig.cluster.topics["t"].czxid = -1
    assert taken(rig).topics == {}


def test_of_one_topic_nothing_of_others_is_taken() -> None:
    rig = rig_of(THREE)
    rig.world.create_topic("u", {0: [1, 2]})
    rig.run()
    rig.hold_stops = True
    rig.world.ask_reassignment({("t", 0): [1, 2], ("u", 0): [1]})
    rig.run()
    whole = taken(rig)
    assert all(whole.topics[name].stray for name in "tu")
    for name in "tu":
        found = take(rig.cluster, rig.settings, name)
        assert {key[0] for key in found.entries} == {name}
        assert found.snapshot({}, {}, {}).topics == {name: whole.topics[name]}


def test_a_context_of_a_snapshot_knows_it_all() -> None:
    rig = rig_of(THREE)
    rig.world.create_topic("u", {0: [1, 3]})
    rig.world.edit_topic("u", partitions={0: (2, 1, 3)}, adding={0: (2,)}, removing={0: (3,)})
    rig.world.put_state("u", 0, state(1, [1, 3]))
    rig.run()
    rig.cluster.problems["/brokers/ids/9"] = "odd"
    lose_disk(rig, 1, 0)
    shut_down(rig, 2)
    rig.cluster.maintenance = Maintenance(drained={3: MARK})
    made = cluster_of(taken(rig))
    assert {b: {p.name for p in lost} for b, lost in made.offline_dirs.items()} == {1: {"t-0"}}
    assert (made.shutting_down, made.maintenance.drained) == ({2}, {3: MARK})
    assert made.problems == {"/brokers/ids/9": "odd"}
    still = made.topics["t"].partitions[0]
    assert (still.adding, still.removing) == ((), ())
    moving = made.topics["u"].partitions[0]
    assert (moving.replicas, moving.adding, moving.removing) == ((2, 1, 3), (2,), (3,))


# --- plans -------------------------------------------------------------------------------------------------


def test_a_drained_broker_is_not_elected() -> None:
    snapshot = THREE.snapshot()
    assert moved(losing(snapshot, 1)) == {"t-0": 2}
    drained = replace(snapshot, maintenance=Maintenance(drained={2: MARK}))
    assert moved(losing(drained, 1))["t-0"] == 3


def test_nothing_is_elected_while_elections_are_paused() -> None:
    paused = replace(THREE.snapshot(), maintenance=Maintenance(paused=MARK))
    step = losing(paused, 1)
    assert step.after.offline == [("t", 0)]
    assert losing(THREE.snapshot(), 1).after.offline == []


def test_a_broker_that_is_shutting_down_is_not_elected() -> None:
    rig = rig_of(THREE)
    shut_down(rig, 2)
    assert taken(rig).shutting_down == {2}
    assert moved(losing(taken(rig), 1)) == {"t-0": 3}
    # Taken over from ZooKeeper alone it would count, were it in the ISR.
    assert 2 not in rig.world.states[("t", 0)].isr


def test_a_broker_in_shutdown_is_no_unclean_candidate() -> None:
    unclean = {"t": {"unclean.leader.election.enable": "true"}}
    rig = rig_of(Small((1, 3), {("t", 0): ((1, 3), 1, (1, 3))}, unclean))
    shut_down(rig, 3)
    step = losing(taken(rig), 1)
    assert (step.after.offline, step.unclean) == ([("t", 0)], ())
    # From ZooKeeper alone it is a candidate like any other.
    unaware = losing(replace(taken(rig), shutting_down=frozenset()), 1)
    assert unaware.unclean == (("t", 0),)


def test_one_that_nobody_can_take_over_from_keeps_what_it_leads() -> None:
    rig = rig_of(Small((1, 2), {("t", 0): ((1, 2), 1, (1,))}))
    shut_down(rig, 1)
    step = losing(taken(rig), 2)
    assert (step.before.offline, step.after.offline, step.writes) == ([], [], ())


def test_a_replica_on_a_failed_disk_is_not_elected() -> None:
    rig = rig_of(THREE)
    lose_disk(rig, 2, 0)
    found = taken(rig)
    assert found.offline_dirs == {2: {("t", 0)}}
    assert moved(losing(found, 1))["t-0"] == 3
    assert scenarios.broker_loss(found, [1], TERMS).settling == ()


def test_a_partition_whose_only_in_sync_replica_is_on_a_failed_disk_stays_offline() -> None:
    rig = rig_of(Small((1, 2), {("t", 0): ((1,), 1, (1,)), ("t", 1): ((2, 1), 2, (2, 1))}))
    lose_disk(rig, 1, 0)
    plan = scenarios.broker_loss(taken(rig), [2], TERMS)
    assert plan.settling == ()
    assert plan.steps[0].before.offline == [("t", 0)]
    # A restart of the broker may bring it back.
    plan = scenarios.rolling_restart(taken(rig), TERMS)
    assert plan.steps[0].after.offline == []


@given(smalls(settled=True), st.data())
def test_a_loss_after_disks_failed_is_what_happens(small: Small, data: st.DataObject) -> None:
    rig = rig_of(small)
    broker_id = data.draw(st.sampled_from(BROKERS))
    held = [p for p in rig.cluster.partitions() if broker_id in p.replicas]
    lost = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
    report = DiskReport(broker_id, rig.world.brokers[broker_id].epoch, lost)
    rig.world.events.append(Event(EventKind.LEADER_AND_ISR_RESPONSE, body=report, serial=99))
    rig.run()
    leaving = data.draw(st.sampled_from(BROKERS))
    shut_down(rig, leaving)
    dead = data.draw(st.sampled_from(BROKERS))
    plan = scenarios.broker_loss(taken(rig), [dead], TERMS)
    rig.world.broker_down(dead)
    rig.run()
    planned = {key: p.leader for key, p in plan.steps[0].after.partitions.items()}
    really = {key: found.leader for key, found in rig.world.states.items()}
    assert planned == really


# --- who may stop ------------------------------------------------------------------------------------------


def approved(snapshot: Snapshot, *broker_ids: int) -> Snapshot:
    found = {b: StopApproval(snapshot.brokers[b].epoch, "kernel", "ann", 1) for b in broker_ids}
    return replace(snapshot, approvals=found)


TWO_OF_THREE = Terms(min_isr_default=2)


def test_two_cannot_each_get_a_yes_that_together_is_a_no() -> None:
    snapshot = THREE.snapshot()
    assert stoppable(snapshot, [1], TWO_OF_THREE).approved
    assert stoppable(snapshot, [2], TWO_OF_THREE).approved
    answer = stoppable(approved(snapshot, 1), [2], TWO_OF_THREE)
    assert not answer.approved
    assert list(answer.standing) == [1]
    assert {r.why for r in answer.reasons} == {Why.UNDER_MIN_ISR}
    assert answer.largest == ()


@given(smalls(settled=True), st.data(), st.integers(1, 2))
def test_a_yes_after_a_yes_is_a_yes_to_both(small: Small, data: st.DataObject, min_isr: int) -> None:
    """And a no only if both together are a no."""
    first, second = data.draw(st.lists(st.sampled_from(BROKERS), min_size=2, max_size=2, unique=True))
    terms, snapshot = Terms(min_isr_default=min_isr), small.snapshot()
    if stoppable(snapshot, [first], terms).approved:
        after = stoppable(approved(snapshot, first), [second], terms)
        both = stoppable(snapshot, [first, second], terms)
        assert after.approved == both.approved
        assert after.margin == both.margin


def test_one_that_is_approved_stays_so_for_its_epoch() -> None:
    worse = Small((1, 2), {("t", 0): ((1, 2), 1, (1,))})
    snapshot = worse.snapshot()
    assert not stoppable(snapshot, [1], TERMS).approved
    answer = stoppable(approved(snapshot, 1), [1], TERMS)
    assert (answer.approved, answer.largest) == (True, (1,))
    stale = replace(snapshot, approvals={1: StopApproval(999_999, "kernel", "ann", 1)})
    assert not stoppable(stale, [1], TERMS).approved


def test_one_that_is_shutting_down_counts_as_gone() -> None:
    rig = rig_of(THREE)
    shut_down(rig, 1)
    answer = stoppable(taken(rig), [2], TWO_OF_THREE)
    assert not answer.approved
    assert answer.shutting_down == (1,)
    assert stoppable(taken(rig), [1], TERMS).shutting_down == ()


def test_what_a_failed_disk_took_does_not_count_as_in_sync() -> None:
    rig = rig_of(Small((1, 2), {("t", 0): ((1, 2), 1, (1, 2))}))
    assert stoppable(taken(rig), [1], TERMS).approved
    lose_disk(rig, 2, 0)
    assert not stoppable(taken(rig), [1], TERMS, tolerate_under_replicated=True).approved


def test_representatives_tell_failed_disks_apart() -> None:
    alike = Small((1, 2), {("t", n): ((1, 2), 1, (1, 2)) for n in range(3)})
    snapshot = alike.snapshot()
    assert len(representatives(snapshot).states) == 1
    damaged = replace(snapshot, offline_dirs={2: frozenset({("t", 1)})})
    assert set(representatives(damaged).states) == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("why", Why)
def test_every_reason_says_what_would_change_it(why: Why) -> None:
    assert len(CHANGES[why].split()) > 4
    assert Reason(why, "x").change == CHANGES[why]
