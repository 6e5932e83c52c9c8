"""Plans against what the rig of the core's tests does with the same events: same states, same writes, same pushes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.config_keys import HEEDED
from controller.core.effects import SetState
from controller.core.model import LeaderAndIsr
from controller.core.requests.brokers import ControlledShutdown
from controller.core.znode_paths import state_path
from controller.errors import FencedError
from controller.planning import scenarios
from controller.planning.executor import Executor, Pushes
from controller.planning.partition_health import Gauge, Health, PartitionHealth
from controller.planning.scenarios import Plan, Step, Terms
from controller.planning.snapshot import (
    Key,
    PlanError,
    Snapshot,
    min_isr_of,
    representatives,
    unclean_allowed,
    unclean_by,
)
from controller.planning.stoppable import stoppable
from controller.planning.store import Change, Store
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World
from tests.support.planning.clusters import Small, smalls, snapshot_of

TERMS = Terms()
#: Three brokers, two partitions each leads, everybody in sync.
HEALTHY = Small(
    (1, 2, 3),
    {
        ("t", 0): ((1, 2, 3), 1, (1, 2, 3)),
        ("t", 1): ((2, 3, 1), 2, (1, 2, 3)),
        ("t", 2): ((3, 1, 2), 3, (1, 2, 3)),
        ("single", 0): ((2,), 2, (2,)),
    },
)


def pushes_by_kind(rig: MachineHarness) -> Pushes:
    """Partitions told to each broker by kind, as plans count them."""
    found: Pushes = {}
    for sent in rig.sent:
        by_kind = found.setdefault(sent.broker, {})
        kind = sent.kind.value
        by_kind[kind] = by_kind.get(kind, 0) + len(sent.message.partition_states)
    return found


def happens(small: Small, act: Callable[[World, MachineHarness], object]) -> MachineHarness:
    """The same on the rig, after its failover."""
    rig = MachineHarness.active(small.world())
    rig.forget()
    act(rig.world, rig)
    rig.run()
    return rig


def stored(snapshot: Snapshot, plan: Plan) -> dict[Key, LeaderAndIsr]:
    """The states once the plan's writes were made."""
    by_path = {state_path(*key): key for key in snapshot.states}
    states = dict(snapshot.states)
    for change in (*plan.settling, *(c for step in plan.steps for c in step.writes)):
        if change.path in by_path:
            assert isinstance(change.new, LeaderAndIsr)
            assert change.old == states[by_path[change.path]], "each write says what was there"
            states[by_path[change.path]] = change.new
    return states


def agrees(small: Small, plan: Plan, rig: MachineHarness) -> None:
    """States, and who is offline, are what really came of it."""
    assert stored(small.snapshot(), plan) == rig.world.states
    offline = sorted(key for key, found in rig.world.states.items() if found.leader not in rig.world.brokers)
    assert plan.steps[-1].after.offline == offline


@given(smalls(), st.data())
def test_loss_is_what_happens(small: Small, data: st.DataObject) -> None:
    lost = data.draw(st.lists(st.sampled_from(small.brokers), min_size=1, unique=True))
    plan = scenarios.broker_loss(small.snapshot(), lost, TERMS)
    agrees(small, plan, happens(small, lambda world, _: world.broker_down(*lost)))


@given(smalls(), st.data())
def test_drain_is_what_happens(small: Small, data: st.DataObject) -> None:
    broker_id = data.draw(st.sampled_from(small.brokers))
    plan = scenarios.drain(small.snapshot(), broker_id, TERMS)
    epoch = small.world().brokers[broker_id].epoch
    agrees(small, plan, happens(small, lambda _, rig: rig.ask(ControlledShutdown(broker_id, epoch))))


@given(smalls())
def test_preferred_election_is_what_happens(small: Small) -> None:
    plan = scenarios.preferred_election(small.snapshot(), TERMS)
    agrees(small, plan, happens(small, lambda world, _: world.ask_preferred(*small.partitions)))


def test_pushes_are_those_that_are_sent() -> None:
    plan = scenarios.broker_loss(HEALTHY.snapshot(), [1], TERMS)
    rig = happens(HEALTHY, lambda world, _: world.broker_down(1))
    # The rig's brokers take each push at once, the plan's when all is decided: what is told twice is told once.
    for broker_id, kinds in plan.steps[0].pushes.items():
        assert kinds.keys() == pushes_by_kind(rig)[broker_id].keys()
        assert all(number <= pushes_by_kind(rig)[broker_id][kind] for kind, number in kinds.items())
    assert plan.steps[0].pushes == {b: {"UpdateMetadata": 3, "LeaderAndIsr": 3} for b in (2, 3)}


def test_the_report_of_a_loss() -> None:
    (step,) = scenarios.broker_loss(HEALTHY.snapshot(), [2, 2], Terms(min_isr_default=2)).steps
    assert step.after.offline == [("single", 0)]
    # Two of three are left of the others; of the single one, no more than one can be asked for.
    assert (step.before.under_min_isr, step.after.under_min_isr) == ([], [("single", 0)])
    assert step.after.under_replicated == [("single", 0), ("t", 0), ("t", 1), ("t", 2)]
    assert (step.before.leaders, step.after.leaders) == ({1: 1, 2: 2, 3: 1}, {1: 1, 3: 2})
    moved = {(m.topic, m.partition): (m.before, m.after, m.unclean) for m in step.moved}
    assert moved == {("t", 1): (2, 3, False), ("single", 0): (2, -1, False)}
    # An ISR that dies as a whole is kept, so that its member can lead again.
    gone = next(c for c in step.writes if c.path == state_path("single", 0))
    assert isinstance(gone.old, LeaderAndIsr)
    assert gone.new == gone.old.successor(-1, (2,), 1, 0)
    assert len(step.writes) == 4


def test_quiet_clusters_need_no_settling() -> None:
    assert scenarios.preferred_election(HEALTHY.snapshot(), TERMS).settling == ()
    broken = Small((1, 2), {("t", 0): ((3, 1), 3, (3, 1))})
    settled = scenarios.preferred_election(broken.snapshot(), TERMS).settling[-1]
    assert isinstance(settled.new, LeaderAndIsr)
    assert (settled.new.leader, settled.new.isr) == (1, (1,))


def test_a_preferred_election_of_some() -> None:
    elsewhere = Small((1, 2), {("t", n): ((1, 2), 2, (1, 2)) for n in (0, 1)}).snapshot()
    (step,) = scenarios.preferred_election(elsewhere, TERMS, [("t", 1)]).steps
    assert step.moved == (scenarios.Moved("t", 1, 2, 1, False),)
    (step,) = scenarios.preferred_election(elsewhere, TERMS).steps
    assert len(step.moved) == 2


def test_a_rack_is_lost_as_a_whole() -> None:
    plan = scenarios.rack_loss(HEALTHY.snapshot(), "odd", TERMS)
    assert plan == scenarios.Plan(
        "rack-loss",
        tuple(
            scenarios.Step(**{**vars(step), "title": "loss of rack odd: brokers 1, 3"})
            for step in scenarios.broker_loss(HEALTHY.snapshot(), [1, 3], TERMS).steps
        ),
    )
    with pytest.raises(PlanError, match=r"no registered broker is in rack 'r9'; there are: even, odd"):
        scenarios.rack_loss(HEALTHY.snapshot(), "r9", TERMS)


def test_unknown_brokers_are_named() -> None:
    with pytest.raises(PlanError, match=r"brokers 8, 9 not registered: there are 1, 2, 3"):
        scenarios.broker_loss(HEALTHY.snapshot(), [8, 1, 9], TERMS)
    with pytest.raises(PlanError, match="broker 4 not registered"):
        scenarios.drain(HEALTHY.snapshot(), 4, TERMS)


def test_a_drain_says_what_nobody_takes_over() -> None:
    alone = Small((1, 2), {("t", 0): ((1, 2), 1, (1,))})
    (step,) = scenarios.drain(alone.snapshot(), 1, TERMS).steps
    assert step.notes == ("broker 1 still leads partitions that no other replica can lead: t-0",)
    # The answer to a broker that stops leaves out what has one replica.
    single = HEALTHY.snapshot()
    (step,) = scenarios.drain(single, 2, TERMS).steps
    assert step.notes == ("broker 2 still leads partitions that no other replica can lead: single-0",)
    (step,) = scenarios.drain(replace(single, deleting=("single",)), 2, TERMS).steps
    assert step.notes == ()
    assert step.after.offline == []


def test_rolling_restart_one_after_the_other() -> None:
    safe = Small((1, 2, 3), {key: p for key, p in HEALTHY.partitions.items() if key[0] == "t"})
    plan = scenarios.rolling_restart(safe.snapshot(), Terms(min_isr_default=2))
    assert [s.brokers for s in plan.steps] == [(1,), (2,), (3,)]
    assert plan.safe
    for step in plan.steps:
        # Away, each is missing from every ISR; back again, from none.
        assert step.worst.under_replicated == sorted(safe.partitions)
        assert step.after.under_replicated == step.after.offline == []
        assert step.notes == ()
    assert not scenarios.rolling_restart(safe.snapshot(), Terms(min_isr_default=3)).safe


def test_rolling_restart_as_many_as_is_safe() -> None:
    pairs = Small(
        (1, 2, 3, 4),
        {("t", 0): ((1, 2), 1, (1, 2)), ("t", 1): ((3, 4), 3, (3, 4)), ("t", 2): ((2, 3), 2, (2, 3))},
    )
    plan = scenarios.rolling_restart(pairs.snapshot(), TERMS, batch_max=0)
    assert [s.brokers for s in plan.steps] == [(1, 3), (2, 4)]
    assert plan.safe
    assert [s.brokers for s in scenarios.rolling_restart(pairs.snapshot(), TERMS, 1).steps] == [
        (1,), (2,), (3,), (4,),
    ]  # fmt: skip
    # Alone, though it takes a partition offline: somebody has to.
    plan = scenarios.rolling_restart(HEALTHY.snapshot(), TERMS, 0)
    assert not plan.safe
    assert [(s.brokers, s.worst.offline) for s in plan.steps] == [
        ((1, 3), []),
        ((2,), [("single", 0)]),
    ]


def test_records_lost_by_an_unclean_election_are_no_safety() -> None:
    unclean = {"t": {"unclean.leader.election.enable": "true"}}
    small = Small((1, 2), {("t", 0): ((1, 2), 1, (1,))}, unclean)
    plan = scenarios.broker_loss(small.snapshot(), [1], TERMS)
    (step,) = plan.steps
    assert step.after.offline == []
    assert step.unclean == (("t", 0),)
    assert step.moved == (scenarios.Moved("t", 0, 1, 2, True),)
    assert not plan.safe


def test_the_brokers_default_permits_unclean_leaders_too() -> None:
    small = Small((1, 2), {("t", 0): ((1, 2), 1, (1,))}).snapshot()
    permitted = replace(small, broker_defaults={"unclean.leader.election.enable": "true"})
    assert [scenarios.broker_loss(s, [1], TERMS).steps[0].unclean for s in (small, permitted)] == [
        (), (("t", 0),),
    ]  # fmt: skip


#: In-sync members and leader before a step, the same after it, min.insync.replicas, and whether it counts.
WORSE = [
    ((1, 2, 3), 1, (1, 2), 1, 2, False),
    ((1, 2), 1, (1,), 1, 2, True),
    ((1, 2), 1, (1,), 1, 1, False),
    ((1,), 1, (1,), 1, 2, False),
    ((1, 2), 1, (1,), 1, 3, True),
    ((1,), 1, (1, 2), 1, 3, False),
    ((1,), 1, (), -1, 1, True),
    ((1,), -1, (1,), -1, 1, False),
    ((), -1, (), -1, 1, False),
    ((1, 2), 1, (1, 2), -1, 1, True),
]


@pytest.mark.parametrize(("was", "led", "now", "leads", "min_isr", "counts"), WORSE)
def test_trouble_counts_when_it_begins_and_when_it_gets_worse(
    was: tuple[int, ...], led: int, now: tuple[int, ...], leads: int, min_isr: int, counts: bool
) -> None:
    """Below min.insync.replicas already, and one more is gone: that is worse."""
    key = ("t", 0)

    def health(in_sync: tuple[int, ...], leader: int) -> Health:
        return Health({key: PartitionHealth(*key, (1, 2, 3), leader, in_sync, min_isr)})

    before, worst = health(was, led), health(now, leads)
    step = scenarios.Step("", (), before, worst, worst, (), (), (), {})
    assert scenarios.newly_troubled(step) == ([key] if counts else [])
    unknown = replace(step, before=Health())
    assert scenarios.newly_troubled(unknown) == ([key] if leads < 0 or len(now) < min_isr else [])


@pytest.mark.parametrize(("worst", "after", "safe"), [(1, 1, True), (-1, 1, False), (1, -1, False)])
def test_a_plan_is_safe_if_its_steps_are_in_their_middle_and_at_their_end(
    worst: int, after: int, safe: bool
) -> None:
    key = ("t", 0)
    found = {leader: Health({key: PartitionHealth(*key, (1,), leader, (1,), 1)}) for leader in (1, -1)}
    step = scenarios.Step("", (), found[1], found[worst], found[after], (), (), (), {})
    assert Plan("", (step,)).safe is safe


def test_a_member_on_a_failed_disk_is_not_in_sync() -> None:
    snapshot = replace(HEALTHY.snapshot(), offline_dirs={1: frozenset({("t", 1)})})
    health = Gauge(snapshot, 1).measure(Store(snapshot))
    assert [health.partitions["t", n].in_sync for n in range(2)] == [(1, 2, 3), (2, 3)]
    failed = replace(snapshot, offline_dirs={1: frozenset({("t", 0)})})
    assert Gauge(failed, 1).measure(Store(failed)).offline == [("t", 0)]


def test_members_beyond_the_assignment_make_up_for_nobody() -> None:
    assert PartitionHealth("t", 0, (1, 2), 1, (1, 3), 1).under_replicated
    assert not PartitionHealth("t", 0, (1, 2), 1, (3, 2, 1), 1).under_replicated


def test_a_stop_that_takes_one_more_from_a_partition_below_min_isr_is_not_safe() -> None:
    small = Small((1, 2, 3), {("t", 0): ((1, 2, 3), 1, (1, 2))}, {"t": {"min.insync.replicas": "3"}})
    assert scenarios.newly_troubled(scenarios.stopped(small.snapshot(), [2], TERMS)) == [("t", 0)]
    assert scenarios.newly_troubled(scenarios.stopped(small.snapshot(), [3], TERMS)) == []


@given(smalls(), st.data())
def test_one_of_a_sort_stands_for_all(small: Small, data: st.DataObject) -> None:
    """What is in trouble in the whole cluster is so among the representatives, and nothing else is."""
    lost = data.draw(st.lists(st.sampled_from(small.brokers), min_size=1, unique=True))
    whole = scenarios.stopped(small.snapshot(), lost, TERMS)
    few = scenarios.stopped(representatives(small.snapshot()), lost, TERMS)
    fewest = scenarios.stopped(representatives(small.snapshot(), lost), lost, TERMS)

    def sorts(step: Step) -> set[tuple[str, str]]:
        keys = scenarios.newly_troubled(step)
        return {(str(small.configs.get(k[0])), str(small.partitions[k])) for k in keys}

    assert sorts(few) == sorts(whole)
    assert sorts(fewest) == sorts(whole)


def test_of_a_partition_no_more_in_sync_replicas_are_asked_for_than_it_has() -> None:
    """As brokers count it (Partition.effectiveMinIsr), and pctl health."""
    small = Small((1, 2, 3), {("t", 0): ((1, 2), 1, (1, 2)), ("u", 0): ((3,), 3, (3,))})
    terms = Terms(min_isr_default=3)
    answer = stoppable(small.snapshot(), [], terms)
    assert (answer.approved, answer.margin) == (True, 0)
    (step,) = scenarios.broker_loss(small.snapshot(), [1], terms).steps
    assert (step.before.under_min_isr, step.after.under_min_isr) == ([], [("t", 0)])
    assert scenarios.preferred_election(small.snapshot(), terms).safe


def test_a_partition_whose_member_lost_its_data_stands_for_no_other() -> None:
    whole = Small((1, 2), {("t", n): ((1, 2), 1, (1, 2)) for n in range(3)}).snapshot()
    brokers = {b: msgspec.structs.replace(broker, directories=(b,)) for b, broker in whole.brokers.items()}
    known = {
        key: msgspec.structs.replace(state, directories=(1, 9 if key[1] == 1 else 2))
        for key, state in whole.states.items()
    }
    kept = representatives(replace(whole, brokers=brokers, states=known))
    assert list(kept.topics["t"].partitions) == [0, 1]


def test_min_isr_is_the_topic_s_or_the_default() -> None:
    configs = {"t": {"min.insync.replicas": " 2 "}, "u": {"min.insync.replicas": "two"}}
    snapshot = Small((1,), {("t", 0): ((1,), 1, (1,))}, configs).snapshot()
    assert (min_isr_of(snapshot, "t", 1), min_isr_of(snapshot, "x", 3)) == (2, 3)
    of_all = replace(snapshot, broker_defaults={"min.insync.replicas": "4"})
    assert (min_isr_of(of_all, "t", 1), min_isr_of(of_all, "x", 3)) == (2, 4)
    with pytest.raises(
        PlanError, match=r"^/config/brokers/<default>: min\.insync\.replicas = '0': must be a"
    ):
        min_isr_of(replace(snapshot, broker_defaults={"min.insync.replicas": "0"}), "x", 3)
    with pytest.raises(
        PlanError, match=r"/config/topics/u: min\.insync\.replicas = 'two': must be a number from 1"
    ):
        min_isr_of(snapshot, "u", 1)


# --- the store ------------------------------------------------------------------------------------------------


def test_the_store_is_fenced_and_versioned() -> None:
    executor = Executor(HEALTHY.snapshot())
    partition = executor.machine.cluster.partition("t", 0)
    assert partition is not None
    assert partition.leadership is not None
    new = partition.leadership.successor(2, (2, 3), 1, 0)
    store = executor.store
    for another in (0, 2):
        with pytest.raises(FencedError, match=f"is 1, not {another}"):
            store.commit([SetState(partition, new)], another)
    other = executor.machine.cluster.partition("t", 1)
    assert other is not None
    stale = SetState(other, new)
    assert store.commit([SetState(partition, new), SetState(other, new.successor(1, (1,), 1, 0))], 1) == (
        "BADVERSION"
    )
    assert store.take_changes() == [], "all or none"
    assert store.commit([stale], 1) is None
    assert [c.path for c in store.take_changes()] == [state_path("t", 1)]


def test_a_broker_that_is_back_is_another_incarnation() -> None:
    executor = Executor(HEALTHY.snapshot())
    before = executor.store.brokers[2]
    epochs = [before.epoch]
    for _ in range(2):
        executor.bring_back([before])
        epochs.append(executor.machine.cluster.brokers[2].epoch)
    assert sorted(set(epochs)) == epochs


def test_who_only_stops_its_replicas_deletes_none() -> None:
    executor = Executor(HEALTHY.snapshot())
    executor.ask(ControlledShutdown(1, executor.store.brokers[1].epoch))
    assert executor.take_pushes()[1]["StopReplica"] > 0
    assert not executor.delete_replicas()


def test_each_step_tells_what_is_of_it() -> None:
    alone = Small((1, 2, 3), {("t", 0): ((1, 2), 1, (1,))})
    plan = scenarios.rolling_restart(alone.snapshot(), TERMS)
    assert [step.brokers for step in plan.steps if step.notes] == [(1,)]
    _, step = scenarios.stopped_after(HEALTHY.snapshot(), [1], [2], TERMS)
    first = {(c.path, c.old) for c in scenarios.stopped(HEALTHY.snapshot(), [1], TERMS).writes}
    assert first.isdisjoint({(c.path, c.old) for c in step.writes})
    planner = scenarios.Planner(HEALTHY.snapshot(), TERMS)
    planner.stop([1])
    planner.executor.take_pushes()
    planner.stop([2])
    assert step.pushes == planner.executor.take_pushes()


def test_what_a_restart_moves_is_told_of_its_middle() -> None:
    """Afterwards it leads again, and nothing seems to have moved."""
    small = Small((1, 2), {("t", 0): ((1,), 1, (1,))})
    (step,) = scenarios.rolling_restart(small.snapshot(), TERMS, broker_ids=[1]).steps
    assert step.moved == (scenarios.Moved("t", 0, 1, -1, False),)
    assert step.after.partitions["t", 0].leader == 1


def test_brokers_that_stop_together_are_lost_in_one_event() -> None:
    snapshot = HEALTHY.snapshot()
    planner = scenarios.Planner(snapshot, TERMS)
    for broker_id in (1, 2):
        planner.drain(broker_id)
    planner.executor.lose([1, 2])
    assert scenarios.stopped(snapshot, [1, 2], TERMS).pushes == planner.executor.take_pushes()


def test_what_is_written_when_brokers_are_back_is_written_in_their_step() -> None:
    (step,) = scenarios.rolling_restart(HEALTHY.snapshot(), TERMS, broker_ids=[1]).steps
    last = {change.path: change.new for change in step.writes if isinstance(change.new, LeaderAndIsr)}
    assert last
    assert {frozenset(new.isr) for new in last.values()} == {frozenset({1, 2, 3})}


def test_disks_of_brokers_that_are_gone_are_of_no_interest() -> None:
    """When such a broker is back, it tells anew what it lacks."""
    lost = frozenset({("t", 0)})
    snapshot = replace(HEALTHY.snapshot(), offline_dirs={1: lost, 9: lost})
    assert Executor(snapshot).machine.cluster.offline_dirs.keys() == {1}


def test_health_is_told_in_the_order_of_brokers() -> None:
    snapshot = HEALTHY.snapshot()
    mixed = replace(snapshot, brokers={b: snapshot.brokers[b] for b in (3, 1, 2)})
    assert list(Gauge(mixed, 1).measure(Store(mixed)).leaders) == [1, 2, 3]


def test_a_state_that_is_new_is_no_unclean_election() -> None:
    snapshot = HEALTHY.snapshot()
    fresh = replace(snapshot, states={k: v for k, v in snapshot.states.items() if k[0] == "single"})
    executor = Executor(fresh)
    created = executor.settling
    states = [c for c in created if isinstance(c.new, LeaderAndIsr)]
    assert [(c.path, c.old) for c in states] == [(state_path("t", n), None) for n in range(3)]
    gone = [Change(c.path, c.new, None) for c in states]
    assert scenarios.elected_uncleanly([*created, *gone]) == ()


def test_topics_that_are_deleted_do_not_catch_up() -> None:
    world = HEALTHY.world()
    world.deletions.append("t")
    plan = scenarios.rolling_restart(snapshot_of(world), TERMS, broker_ids=[1, 3])
    assert [step.notes for step in plan.steps] == [(), ()]


def test_unreadable_states_are_left_alone() -> None:
    snapshot = HEALTHY.snapshot()
    states = {k: v for k, v in snapshot.states.items() if k != ("t", 0)}
    problems = {state_path("t", 0): "field leader: expected int"}
    damaged = Snapshot(100, 1, snapshot.brokers, snapshot.topics, states, problems=problems)
    plan = scenarios.broker_loss(damaged, [1], TERMS)
    (step,) = plan.steps
    assert plan.settling == ()
    assert step.after.unreadable == [("t", 0)]
    assert state_path("t", 0) not in {c.path for c in step.writes}


def test_topics_being_deleted_are_not_counted() -> None:
    world = HEALTHY.world()
    world.deletions.append("single")
    (step,) = scenarios.broker_loss(snapshot_of(world), [2], TERMS).steps
    assert step.after.offline == []
    assert Store(snapshot_of(world)).deletions == ["single"]


def test_after_a_restart_only_those_catch_up_that_were_in_sync() -> None:
    small = Small((1, 2, 3), {("t", 0): ((1, 2, 3), 1, (1, 2))})
    plan = scenarios.rolling_restart(small.snapshot(), Terms(), broker_ids=[2, 3])
    assert [set(step.after.partitions["t", 0].in_sync) for step in plan.steps] == [{1, 2}, {1, 2}]


def test_what_tells_partitions_apart_keeps_both() -> None:
    led = Small((1, 2), {("t", 0): ((1, 2), 1, (1, 2)), ("t", 1): ((1, 2), 2, (1, 2))})
    assert len(representatives(led.snapshot()).states) == 2
    unclean = {"u": {"unclean.leader.election.enable": "true"}}
    alike = {("t", 0): ((1, 2), 1, (1, 2)), ("u", 0): ((1, 2), 1, (1, 2))}
    assert len(representatives(Small((1, 2), alike, unclean).snapshot()).states) == 2
    (one,) = representatives(Small((1, 2), alike).snapshot()).topics.values()
    assert one.partitions == {0: (1, 2)}
    same = {("t", n): ((1, 2), 1, (1, 2)) for n in range(3)}
    found = representatives(Small((1, 2), same).snapshot())
    assert (found.topics["t"].partitions, list(found.states)) == ({0: (1, 2)}, [("t", 0)])


def test_who_has_nothing_to_do_with_a_partition_leaves_it_out() -> None:
    held = {("t", 0): ((1, 2), 1, (1, 2)), ("t", 1): ((2, 3), 2, (2, 3)), ("t", 2): ((2, 4), 2, (2, 1))}
    snapshot = Small((1, 2, 3, 4), held).snapshot()
    assert set(representatives(snapshot, [1]).states) == {("t", 0), ("t", 2)}
    assert representatives(snapshot, []).topics == {}
    # They share the limits of moves.
    moving = replace(snapshot.topics["t"], adding={1: (3,)})
    assert set(representatives(replace(snapshot, topics={"t": moving}), [1]).states) == set(held)


@pytest.mark.parametrize(("key", "kinds"), [*((key, 2) for key in HEEDED), ("retention.ms", 1)])
def test_a_partition_stands_for_those_of_topics_that_are_decided_alike(key: str, kinds: int) -> None:
    alike = {(topic, 0): ((1,), 1, (1,)) for topic in "tu"}
    assert len(representatives(Small((1,), alike, {"t": {key: "1"}}).snapshot()).states) == kinds


def test_a_topic_s_own_setting_wins_over_the_brokers_default() -> None:
    own = {"t": {"unclean.leader.election.enable": "false"}}
    small = Small((1,), {("t", 0): ((1,), 1, (1,)), ("u", 0): ((1,), 1, (1,))}, own)
    snapshot = replace(small.snapshot(), broker_defaults={"unclean.leader.election.enable": "true"})
    assert [unclean_allowed(snapshot, topic) for topic in "tu"] == [False, True]
    for text, allowed in ((" TRUE ", True), ("true", True), ("yes", False), ("", False)):
        assert unclean_by({"unclean.leader.election.enable": text}, default=not allowed) is allowed


def test_pushes_are_taken_once() -> None:
    executor = Executor(HEALTHY.snapshot())
    executor.lose([1])
    assert executor.take_pushes()
    assert executor.take_pushes() == {}


def test_racks_there_are_are_named_without_brokers_that_have_none() -> None:
    world = HEALTHY.world()
    world.broker_up(9)
    with pytest.raises(PlanError, match=r"no registered broker is in rack 'x'; there are: even, odd$"):
        scenarios.rack_loss(snapshot_of(world), "x", TERMS)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), (" 99999 ", 99999), ("100000", None), ("0", None), ("-1", None), ("\u0663", None), ("", None)],
)
def test_min_isr_is_a_number_that_a_broker_takes(text: str, number: int | None) -> None:
    snapshot = Small((1,), {("t", 0): ((1,), 1, (1,))}, {"t": {"min.insync.replicas": text}}).snapshot()
    if number is not None:
        assert min_isr_of(snapshot, "t", 1) == number
        return
    with pytest.raises(PlanError, match="must be a number from 1 to 99999"):
        min_isr_of(snapshot, "t", 1)


def test_only_what_is_being_deleted_is_left_out_of_the_assignments() -> None:
    small = Small((1, 2), {(name, 0): ((1, 2), 1, (1, 2)) for name in ("a", "b", "c")})
    snapshot = replace(small.snapshot(), deleting=("b",))
    assert list(snapshot.assignments()) == [(("a", 0), (1, 2)), (("c", 0), (1, 2))]


def test_who_is_elected_uncleanly_is_found_behind_any_other_write() -> None:
    before, after = LeaderAndIsr(1, 3, (1,), 5, 7), LeaderAndIsr(2, 4, (2,), 6, 7)
    writes = [
        Change("/admin/delete_topics/u", None, ""),
        Change(state_path("t", 3), before, after),
    ]
    assert scenarios.elected_uncleanly(writes) == (("t", 3),)
