"""What a broker does not hold as told is queued again, if need be under a new leader epoch."""

from __future__ import annotations

from typing import Any

from controller.core.audit.tell_again import tell_again
from controller.core.events import TellAgain
from controller.core.handlers import event_of
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
