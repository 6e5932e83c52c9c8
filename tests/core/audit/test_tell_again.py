"""What a broker does not hold as told is queued again, if need be under a new leader epoch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.core.audit import newer_states
from controller.core.audit.tell_again import tell_again
from controller.core.events import TellAgain
from controller.core.handlers import event_of
from controller.core.model import EPOCH_MAX, LeaderAndIsr, PartitionState
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, state


def cluster() -> MachineHarness:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2], 1: [2, 3]})
    for number, leader in ((0, 1), (1, 2)):
        world.put_state("t", number, state(leader, [leader, leader + 1], 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def tell(rig: MachineHarness, broker_id: int, **what: Any) -> None:
    epoch = what.pop("epoch", rig.world.brokers[broker_id].epoch)
    rig.world.events.append(event_of(TellAgain(broker_id, epoch, **what), 10**7))
    rig.run()


def test_only_this_broker_is_told_again_of_its_replica() -> None:
    rig = cluster()
    tell(rig, 2, leadership=[rig.partition("t", 0)])
    assert [line.split()[:3] for line in rig.lines()] == [["2", "LISR", "t-0"]]
    assert rig.commits() == []


def test_metadata_goes_to_everybody() -> None:
    rig = cluster()
    tell(rig, 2, metadata=[rig.partition("t", 1)])
    assert [line.split()[:3] for line in rig.lines()] == [[b, "UMR", "t-1"] for b in "123"]


def test_a_floor_raises_the_leader_epoch_above_it() -> None:
    rig = cluster()
    rig.world.edited.add(("t", 0))
    tell(rig, 2, floors=[(rig.partition("t", 0), 5), (rig.partition("t", 1), 3)])
    assert rig.stored("t", 0) == (1, 6, [1, 2])
    assert rig.stored("t", 1) == (2, 6, [2, 3])
    rig.world.edited.add(("t", 0))
    tell(rig, 2, floors=[(rig.partition("t", 0), 9)])
    assert rig.stored("t", 0) == (1, 10, [1, 2])
    rig.check_converged()


def test_of_a_partition_that_is_gone_by_then_no_leader_epoch_is_raised() -> None:
    rig = cluster()
    former = rig.partition("t", 0)
    rig.world.delete_topic("t")
    rig.run()
    tell(rig, 2, floors=[(former, 5)])
    assert rig.commits() == []


def test_of_two_brokers_the_higher_leader_epoch_counts() -> None:
    rig = cluster()
    rig.world.edited.add(("t", 0))
    reports = [
        TellAgain(broker_id, rig.world.brokers[broker_id].epoch, floors=[(rig.partition("t", 0), floor)])
        for broker_id, floor in ((1, 9), (2, 5))
    ]
    rig.drive(lambda context: tell_again(context, reports))
    assert rig.stored("t", 0) == (1, 10, [1, 2])


def test_of_states_that_brokers_were_told_the_newest_is_written() -> None:
    rig = cluster()
    rig.world.forgotten.add(("t", 0))
    partition = rig.partition("t", 0)
    told = [state(1, [1], 8, 20), state(2, [2, 1], 9, 10), state(2, [2], 9, 12)]
    reports = [TellAgain(1, rig.world.brokers[1].epoch, newer=[(partition, newer)]) for newer in told]
    rig.drive(lambda context: tell_again(context, reports))
    assert rig.stored("t", 0) == (2, 10, [2, 1])
    # Brokers skip what has a partition epoch below the one that they know.
    assert rig.world.states["t", 0].partition_epoch == 21
    assert [line.split()[:3] for line in rig.lines() if "LISR" in line] == [[b, "LISR", "t-0"] for b in "12"]


@pytest.mark.parametrize(
    ("told", "stored"),
    [
        # Only the partition epoch is above ours: who leads has been decided since.
        (state(2, [2], 4, 9), (1, 6, [1, 2])),
        # Decided by an ISR of before: the leader knows that 2 was out of it.
        (state(1, [1], 4, 9), (1, 6, [1])),
        (state(1, [1], 4, 7), (1, 5, [1, 2])),
        # Nobody led there.
        (state(2, [], 9, 3), (1, 10, [1, 2])),
        (state(2, [2], 5, 3), (2, 6, [2])),
        # Not newer any more.
        (state(2, [2], 4, 7), (1, 5, [1, 2])),
        (state(2, [2], EPOCH_MAX, 9), (1, 5, [1, 2])),
    ],
)
def test_what_was_told_is_taken_over_as_far_as_it_is_newer(
    told: LeaderAndIsr, stored: tuple[int, int, list[int]]
) -> None:
    rig = cluster()
    rig.world.forgotten.add(("t", 0))
    tell(rig, 2, newer=[(rig.partition("t", 0), told)])
    assert rig.stored("t", 0) == stored


def test_newer_states_are_written_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newer_states, "BATCH_WRITES", 1)
    rig = cluster()
    rig.world.forgotten |= {("t", 0), ("t", 1)}
    newer = [(rig.partition("t", 0), state(1, [1], 8, 9)), (rig.partition("t", 1), state(2, [2], 8, 9))]
    tell(rig, 2, newer=newer)
    assert {len(commit.writes) for commit in rig.commits()} == {1}
    assert [rig.stored("t", number)[1] for number in (0, 1)] == [9, 9]


def test_why_a_newer_state_is_not_taken_over_is_said() -> None:
    rig = cluster()
    rig.world.forgotten.add(("t", 0))
    tell(rig, 2, newer=[(rig.partition("t", 0), state(2, [2], EPOCH_MAX, 9))])
    assert rig.rejects() == ["NOT_TOLD_AGAIN"]


def test_a_former_incarnation_keeps_no_other_broker_from_being_told() -> None:
    rig = cluster()
    reports = [
        TellAgain(b, rig.world.brokers[b].epoch + offset, leadership=[rig.partition("t", 1)])
        for b, offset in ((2, 1), (3, 0))
    ]
    rig.drive(lambda context: tell_again(context, reports))
    assert [line.split()[:3] for line in rig.lines()] == [["3", "LISR", "t-1"]]


def test_a_partition_epoch_far_behind_is_raised_step_by_step() -> None:
    rig = cluster()
    rig.world.forgotten.add(("t", 0))
    for told, reached in ((7 + 2500, 1007), (7 + 2500, 2007), (7 + 2500, 2508)):
        tell(rig, 2, newer=[(rig.partition("t", 0), state(1, [1], 9, told))])
        assert rig.world.states["t", 0].partition_epoch == reached


def test_who_led_by_the_newest_state_does_so_with_the_disk_it_has_now() -> None:
    """It got another one since the backup, and was in sync again."""
    world = World()
    world.broker_up(1, directories=(10,))
    world.broker_up(2, directories=(21,))
    world.create_topic("t", {0: [1, 2]})
    world.put_state("t", 0, msgspec.structs.replace(state(1, [1, 2], 5, 7), directories=(10, 20)))
    rig = MachineHarness.active(world)
    rig.world.forgotten.add(("t", 0))
    tell(rig, 2, newer=[(rig.partition("t", 0), state(2, [2], 9, 9))])
    assert rig.stored("t", 0) == (2, 10, [2])
    assert world.states["t", 0].directories == (21,)


def test_who_led_by_the_newest_state_and_is_gone_is_waited_for() -> None:
    """The others may lack what it acknowledged."""
    rig = cluster()
    rig.world.forgotten.add(("t", 0))
    rig.world.broker_down(2)
    rig.run()
    tell(rig, 1, newer=[(rig.partition("t", 0), state(2, [2], 9, 9))])
    assert rig.stored("t", 0) == (2, 10, [2])
    assert rig.partition("t", 0).state is PartitionState.OFFLINE


def test_what_does_not_exist_is_sent_as_deleted() -> None:
    rig = cluster()
    tell(rig, 2, unknown=[("gone", 3), ("t", 9), ("t", 0)])
    sent = [(e.topic, e.partition, e.leader) for s in rig.sent for e in s.message.partition_states]
    assert sent == [("gone", 3, -2), ("t", 9, -2)] * 3


def test_another_incarnation_is_told_nothing() -> None:
    rig = cluster()
    tell(rig, 2, epoch=1, leadership=[rig.partition("t", 0)], floors=[(rig.partition("t", 0), 5)])
    assert (rig.lines(), rig.commits()) == ([], [])


def test_a_partition_that_is_gone_has_the_newest_state_that_brokers_take() -> None:
    rig = cluster()
    tell(rig, 2, unknown=[("gone", 3)])
    (entry, *_) = [e for s in rig.sent for e in s.message.partition_states]
    assert (entry.leader_epoch, list(entry.isr), entry.partition_epoch) == (0, [], 0)
    assert entry.controller_epoch == 0


def test_only_states_that_are_to_be_read_are_read() -> None:
    rig = cluster()
    tell(rig, 2, leadership=[rig.partition("t", 0)])
    assert rig.reads() == []
    tell(rig, 2, read=[rig.partition("t", 0)])
    assert rig.reads() == ["ReadStates"]
