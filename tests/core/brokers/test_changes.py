"""BrokerChange: new, dead, bounced, modified brokers and the traces of reference section 6."""

from __future__ import annotations

import msgspec
import pytest

from controller.core.brokers import last_signs
from controller.core.model import Cluster, PartitionState, ReplicaState
from controller.core.outbox import PushKind
from controller.core.records import BrokerChange, PartitionTransition
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, a_broker, state


def running(
    brokers: list[int],
    assignment: list[int],
    isr: list[int] | None = None,
    dead: tuple[int, ...] = (),
    leader: int | None = None,
) -> tuple[World, MachineHarness]:
    """One partition t-0, leader epoch 5, and an active controller; what came before is forgotten."""
    world = World(*brokers)
    world.create_topic("t", {0: assignment})
    members = assignment if isr is None else isr
    world.put_state("t", 0, state(members[0] if leader is None else leader, members, 5, 7))
    rig = MachineHarness.active(world)
    for broker_id in dead:
        world.broker_down(broker_id)
        rig.run()
    rig.forget()
    return world, rig


# --- the last sign of a broker that is gone ---------------------------------------------------------------


def silent_us(heard_us: int | None, session_timeout_ms: int) -> int | None:
    """What the records of broker 1's loss at 100 s say: of it, and of its partition. Each step of the machine
    takes 1 ms."""
    world, rig = running([1, 2, 3], [1, 2, 3])
    rig.cluster.brokers[1] = msgspec.structs.replace(
        rig.cluster.brokers[1], session_timeout_ms=session_timeout_ms
    )
    if heard_us is not None:
        rig.cluster.heard_us[1] = heard_us
    rig.now_us = 100_000_000
    world.broker_down(1)
    rig.run()
    (change,) = rig.recorded(BrokerChange)
    (moved,) = [t for t in rig.recorded(PartitionTransition) if t.after is PartitionState.OFFLINE]
    assert 1 not in rig.cluster.heard_us
    assert change.silent_us == moved.silent_us
    return change.silent_us


@pytest.mark.parametrize(
    ("heard_us", "session_timeout_ms", "expected_us"),
    [
        (None, 0, None),
        (None, 18_000, 18_000_000),
        (97_000_000, 0, 3_000_000),
        (97_000_000, 18_000, 3_000_000),
        (40_000_000, 18_000, 18_000_000),
    ],
)
def test_an_outage_begins_with_the_newest_sign_that_is_known(
    heard_us: int | None, session_timeout_ms: int, expected_us: int | None
) -> None:
    found_us = silent_us(heard_us, session_timeout_ms)
    assert found_us == (None if expected_us is None else pytest.approx(expected_us, abs=10_000))


def test_a_registration_is_a_sign() -> None:
    world, rig = running([2, 3], [1, 2, 3], isr=[2, 3])
    rig.now_us = 5_000_000
    world.broker_up(1)
    rig.run()
    assert rig.cluster.heard_us == {1: pytest.approx(5_000_000, abs=10_000)}


# --- the traces ------------------------------------------------------------------------------------------


def test_trace_broker_1_dies() -> None:
    world, rig = running([1, 2, 3], [1, 2, 3])
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 6, [2, 3])
    assert len(rig.commits()) == 1
    assert rig.lines() == [
        "2 UMR brokers [2, 3]",
        "3 UMR brokers [2, 3]",
        "2 LISR t-0 leader 2 epoch 6 isr [2, 3]",
        "2 UMR t-0 leader 2 epoch 6 isr [2, 3]",
        "3 LISR t-0 leader 2 epoch 6 isr [2, 3]",
        "3 UMR t-0 leader 2 epoch 6 isr [2, 3]",
    ]
    rig.check_converged()


def test_trace_broker_3_dies() -> None:
    world, rig = running([1, 2, 3], [1, 2, 3])
    world.broker_down(3)
    rig.run()
    assert rig.stored() == (1, 6, [1, 2])
    assert rig.lines("LISR") == [f"{b} LISR t-0 leader 1 epoch 6 isr [1, 2]" for b in (1, 2)]
    rig.check_converged()


def test_trace_sole_replica_dies_and_returns() -> None:
    world, rig = running([1], [1])
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (-1, 6, [1])
    assert rig.partition().state is PartitionState.OFFLINE
    world.broker_up(1)
    rig.run()
    assert rig.stored() == (1, 7, [1])
    rig.check_converged()


def test_sole_replica_dies_and_the_other_brokers_hear_that_nobody_leads() -> None:
    """Reference 4.3.5: LISR to the other replicas (none here) implies UpdateMetadata to all."""
    world, rig = running([1, 2], [1])
    world.broker_down(1)
    rig.run()
    assert rig.lines("UMR")[-1] == "2 UMR t-0 leader -1 epoch 6 isr [1]"
    rig.check_converged()


def test_trace_whole_isr_dies_together_and_any_member_leads_on_return() -> None:
    """Section 14, point 4; the original would keep one arbitrary member."""
    world, rig = running([1, 2, 3, 4], [1, 2, 3])
    world.broker_down(1, 2, 3)
    rig.run()
    assert rig.stored() == (-1, 6, [1, 2, 3])
    world.broker_up(3)
    rig.run()
    assert rig.stored() == (3, 7, [3])
    world.broker_up(1)
    rig.run()
    assert rig.stored() == (3, 7, [3])
    rig.check_converged()


def test_isr_dies_one_by_one_and_only_the_last_may_lead() -> None:
    world, rig = running([1, 2, 3], [1, 2])
    for broker_id, stored in ((2, (1, 6, [1])), (1, (-1, 7, [1]))):
        world.broker_down(broker_id)
        rig.run()
        assert rig.stored() == stored
    world.broker_up(2)
    rig.run()
    assert rig.stored() == (-1, 7, [1])
    world.broker_up(1)
    rig.run()
    assert rig.stored() == (1, 8, [1])
    rig.check_converged()


@pytest.mark.parametrize("isr", [[1], [1, 2]])
def test_a_follower_outside_the_isr_dies_and_metadata_lists_it_as_offline(isr: list[int]) -> None:
    """Reference 4.3: a replica not in the ISR is a success without a write, and its UpdateMetadata goes to all, with
    the offline replicas (9.1)."""
    world, rig = running([1, 2, 3], [1, 2, 3], isr)
    world.broker_down(3)
    rig.run()
    assert rig.stored() == (1, 5, isr)
    assert rig.partition().replica_state(3) is ReplicaState.OFFLINE
    assert list(rig.received[1].metadata[("t", 0)].offline_replicas) == [3]


def test_a_death_that_concerns_no_partition_is_announced_all_the_same() -> None:
    """KAFKA-13225."""
    world, rig = running([1, 2, 3], [1, 2])
    world.broker_down(3)
    rig.run()
    assert rig.lines() == ["1 UMR brokers [1, 2]", "2 UMR brokers [1, 2]"]
    assert rig.commits() == []


# --- new brokers -----------------------------------------------------------------------------------------


def test_a_new_broker_hears_everything_the_old_ones_only_that_it_lives() -> None:
    """KAFKA-831, KAFKA-7537: all its partitions first; others get no full picture."""
    world, rig = running([1, 2], [1, 2])
    world.create_topic("other", {0: [2]})
    rig.run()
    rig.forget()
    world.broker_up(3)
    rig.run()
    assert rig.lines() == [
        "1 UMR brokers [1, 2, 3]",
        "2 UMR brokers [1, 2, 3]",
        "3 UMR t-0 leader 1 epoch 5 isr [1, 2]",
        "3 UMR other-0 leader 2 epoch 0 isr [2]",
    ]
    assert rig.commits() == []
    rig.check_converged()


def test_a_returning_follower_is_told_its_role_without_a_write() -> None:
    world, rig = running([1, 2], [1, 2], dead=(2,))
    assert rig.stored() == (1, 6, [1])
    world.broker_up(2)
    rig.run()
    assert rig.commits() == []
    assert [s.kind for s in rig.sent if s.broker == 2] == [
        PushKind.UPDATE_METADATA,
        PushKind.LEADER_AND_ISR,
        PushKind.UPDATE_METADATA,
    ]
    assert rig.lines("LISR") == ["2 LISR t-0 leader 1 epoch 6 isr [1]"]
    assert list(rig.received[1].metadata[("t", 0)].offline_replicas) == []
    rig.check_converged()


def test_a_deleting_topic_is_left_out_of_startup_and_failure() -> None:
    world, rig = running([1, 2], [1, 2])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    rig.forget()
    world.broker_up(3)
    rig.run()
    world.broker_down(1)
    rig.run()
    assert rig.lines("LISR") == []
    assert rig.commits() == []
    assert rig.stored() == (-1, 6, [1, 2])


def test_a_broker_with_a_failed_disk_forgets_that_when_it_returns() -> None:
    world, rig = running([1, 2], [1, 2])
    rig.cluster.offline_dirs[2] = {rig.partition()}
    world.bounce(2)
    rig.run()
    assert rig.cluster.offline_dirs == {}
    rig.check_converged()


def test_a_broker_in_controlled_shutdown_is_eligible_again_when_it_returns() -> None:
    world, rig = running([1, 2], [1, 2])
    rig.cluster.shutting_down.add(2)
    world.bounce(2)
    rig.run()
    assert rig.cluster.shutting_down == set()


def test_a_broker_in_controlled_shutdown_keeps_what_it_leads_while_another_dies() -> None:
    world, rig = running([1, 2, 3], [1, 2])
    rig.cluster.shutting_down.add(1)
    world.broker_down(3)
    rig.run()
    assert rig.stored() == (1, 5, [1, 2])


# --- bounced ---------------------------------------------------------------------------------------------


def test_a_bounced_leader_is_a_full_failure_then_a_startup() -> None:
    world, rig = running([1, 2], [1, 2])
    before = rig.cluster.brokers[1].epoch
    world.bounce(1)
    rig.run()
    assert rig.stored() == (2, 6, [2])
    assert rig.cluster.brokers[1].epoch > before
    assert {s.broker_epoch for s in rig.sent if s.broker == 1} == {rig.cluster.brokers[1].epoch}
    rig.check_converged()


def test_a_bounced_sole_replica_leads_two_epochs_later() -> None:
    world, rig = running([1], [1])
    world.bounce(1)
    rig.run()
    assert rig.stored() == (1, 7, [1])
    rig.check_converged()


def test_a_bounced_whole_isr_leads_again_with_a_clean_isr() -> None:
    world, rig = running([1, 2], [1, 2])
    world.bounce(1, 2)
    rig.run()
    leader, epoch, isr = rig.stored()
    assert (leader, epoch, sorted(isr)) == (1, 7, [1, 2])
    rig.check_converged()


def test_what_was_meant_for_the_old_incarnation_is_dropped() -> None:
    world, rig = running([1, 2], [1, 2])
    rig.slow = {2}
    world.create_topic("queued", {0: [2]})
    rig.run()
    assert rig.machine.outbox.pending(2) > 0
    world.bounce(2)
    rig.run()
    rig.slow = set()
    rig.drain()
    assert all(s.broker_epoch == world.brokers[2].epoch for s in rig.sent if s.broker == 2)
    rig.check_converged()


# --- modified --------------------------------------------------------------------------------------------


def test_changed_endpoints_are_told_to_everybody_and_nothing_else_happens() -> None:
    world, rig = running([1, 2], [1, 2])
    epoch = rig.cluster.brokers[2].epoch
    world.move_broker(2, 9999)
    rig.run()
    assert rig.lines() == ["1 UMR brokers [1, 2]", "2 UMR brokers [1, 2]"]
    (notified,) = [b for b in rig.sent[0].message.live_brokers if b.broker_id == 2]
    assert notified.endpoints[0].port == 9999
    assert rig.cluster.brokers[2].epoch == epoch
    assert rig.machine.outbox.queues[2].broker.endpoints[0].port == 9999
    assert rig.commits() == []


def test_nothing_changed_nothing_happens() -> None:
    world, rig = running([1, 2], [1, 2])
    world.lose_watches()
    rig.run()
    assert rig.lines() == []
    assert rig.commits() == []


# --- several in one event --------------------------------------------------------------------------------


def test_several_changes_in_one_event() -> None:
    world, rig = running([1, 2, 3, 4], [1, 2, 3])
    world.broker_down(1)
    world.bounce(2)
    world.move_broker(3, 9999)
    world.broker_up(5)
    world.events.clear()
    world.watches.add("/brokers/ids")
    world.move_broker(4, 9998)
    rig.run()
    assert len(rig.finished) == 1
    assert set(rig.cluster.brokers) == {2, 3, 4, 5}
    assert rig.stored()[0] in (2, 3)
    assert 1 not in rig.stored()[2]
    rig.check_converged()


def test_dead_and_new_in_one_event_leave_no_leader_that_is_dead() -> None:
    world, rig = running([1, 2], [1, 2], isr=[2], leader=2)
    world.broker_down(2)
    world.broker_up(3)
    rig.run()
    assert rig.stored() == (-1, 6, [2])
    rig.check_converged()


def test_all_brokers_die_and_return() -> None:
    world, rig = running([1, 2, 3], [1, 2, 3])
    world.broker_down(1, 2, 3)
    rig.run()
    assert rig.stored() == (-1, 6, [1, 2, 3])
    for broker_id in (2, 1, 3):
        world.broker_up(broker_id)
        rig.run()
    assert rig.stored()[0] == 2
    rig.check_converged()


# --- unreadable registrations ----------------------------------------------------------------------------


def test_an_unreadable_registration_of_a_known_broker_keeps_it_alive() -> None:
    """Section 14, point 10: in the original it blocks all handling of broker deaths."""
    world, rig = running([1, 2, 3], [1, 2, 3])
    world.damage("/brokers/ids/2")
    rig.run()
    assert set(rig.cluster.brokers) == {1, 2, 3}
    assert rig.stored() == (1, 5, [1, 2, 3])
    assert "/brokers/ids/2" in rig.cluster.problems
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 6, [2, 3])
    world.mend("/brokers/ids/2")
    rig.run()
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_an_unreadable_registration_of_an_unknown_broker_is_absent_until_mended() -> None:
    world, rig = running([1], [1, 2], isr=[1])
    world.unreadable["/brokers/ids/2"] = "broken"
    world.broker_up(2)
    rig.run()
    assert set(rig.cluster.brokers) == {1}
    world.mend("/brokers/ids/2")
    rig.run()
    assert set(rig.cluster.brokers) == {1, 2}
    rig.check_converged()


def test_a_registration_that_is_damaged_and_then_gone_is_a_death() -> None:
    world, rig = running([1, 2], [1, 2])
    world.damage("/brokers/ids/1")
    rig.run()
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 6, [2])
    assert rig.cluster.problems == {}


def test_a_problem_is_reported_once_not_at_every_look() -> None:
    world, rig = running([1, 2], [1, 2])
    world.damage("/brokers/ids/2")
    rig.run()
    world.broker_up(3)
    rig.run()
    assert rig.rejects() == ["MALFORMED"]


def test_a_bounce_behind_an_unreadable_registration_is_a_death() -> None:
    """Kept is only the same incarnation: another one knows nothing of what its predecessor led."""
    world, rig = running([1, 2, 3], [1, 2, 3])
    world.bounce(1)
    world.damage("/brokers/ids/1")
    rig.run()
    assert set(rig.cluster.brokers) == {2, 3}
    assert rig.stored() == (2, 6, [2, 3])
    world.mend("/brokers/ids/1")
    rig.run()
    assert set(rig.cluster.brokers) == {1, 2, 3}
    rig.check_converged()


def test_a_bounced_broker_hears_the_full_picture_before_anything_else() -> None:
    world, rig = running([1, 2, 3], [2, 1, 3])
    world.bounce(1)
    rig.run()
    to_bounced = [line for line in rig.lines() if line.startswith("1 ")]
    assert to_bounced[0].startswith("1 UMR")
    assert not any("SR" in line.split()[1] and "LISR" not in line for line in to_bounced)


def test_who_registers_anew_gave_its_last_sign_then() -> None:
    rig = MachineHarness.active(World(1))
    rig.cluster.heard_us[1] = 5
    rig.world.bounce(1)
    rig.run()
    assert rig.cluster.heard_us[1] > 5


def test_a_bounced_broker_is_bounced_and_not_modified() -> None:
    rig = MachineHarness.active(World(1))
    rig.forget()
    rig.world.bounce(1)
    rig.run()
    assert [record.to for record in rig.recorded(BrokerChange)] == ["bounced"]


def test_a_replica_that_dies_as_another_returns_is_told_as_offline() -> None:
    """Both in one event: what was told with the return named it as online."""
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(1, [1]))
    rig = MachineHarness.active(world)
    world.broker_down(2)
    world.broker_up(3)
    rig.run()
    rig.check_converged()


def test_a_leader_that_another_named_is_replaced_when_it_goes() -> None:
    """The election did not know of it, the removal reads it: nobody else would give the partition a leader."""
    world, rig = running([1, 2], [1, 2], leader=2)
    world.shrink_or_grow("t", 0, [2, 1], leader=1)
    world.broker_down(1)
    rig.run()
    stored = world.states[("t", 0)]
    assert (stored.leader, stored.isr) == (2, (2,))
    assert rig.partition().state is PartitionState.ONLINE


def test_a_sign_that_is_not_older_than_the_loss_means_no_silence() -> None:
    gone, cluster = {1: a_broker(1, 7)}, Cluster(100, 1)
    for heard_us in (100, 101):
        cluster.heard_us[1] = heard_us
        assert last_signs.silent(gone, cluster, 100) == {1: 0}
