"""Where all that a broker is told at a failover, or when it is new, has its end: what was not mentioned is gone."""

from __future__ import annotations

import pytest

from controller.core.model import Partition, Topic
from controller.core.outbox import Push
from controller.core.znode_paths import topic_path
from proto.gen import broker_control_pb2 as pb
from tests.core.test_failover import led
from tests.support.core.harness import MachineHarness
from tests.support.core.network import UMR, Net, shape
from tests.support.core.world import World, state_path


def test_a_picture_ends_with_the_last_of_all_there_is() -> None:
    net = Net(brokers=1, partitions=5)
    net.add_broker(2)
    net.change(3)
    net.end_snapshots(1, 2)
    assert [p.ends_snapshot for p in net.drain(2, 2)] == [False, False, False, True]
    assert net.pictures[2] == [{0, 1, 2, 3, 4}]
    # The other is only told what changed.
    assert [p.ends_snapshot for p in net.drain(1)] == [False, True]
    assert (net.outbox.pending(1), net.outbox.pending(2)) == (0, 0)
    net.change(0)
    assert not any(p.ends_snapshot for p in [*net.drain(1), *net.drain(2)])


def test_a_message_too_large_for_one_ends_the_picture_with_its_last_part() -> None:
    net = Net(brokers=0, partitions=20, bytes_max=300)
    net.add_broker(1)
    net.end_snapshots(1)
    assert len(net.drain(1)) == 1
    assert net.pictures[1] == [set(range(20))]


def test_a_picture_ends_though_what_would_have_been_its_end_is_gone() -> None:
    net = Net(brokers=0)
    net.add_broker(1)
    net.end_snapshots(1)
    net.change(2)
    assert not net.take(1).ends_snapshot  # type: ignore[union-attr]
    net.outbox.forget([net.partitions[2]])
    assert net.outbox.pending(1) > 0
    assert shape(net.drain(1)) == [("UpdateMetadata", [])]
    assert len(net.pictures[1]) == 1
    assert net.outbox.pending(1) == 0


def test_an_empty_picture_ends_with_the_live_brokers() -> None:
    net = Net(brokers=0, partitions=0)
    net.add_broker(1)
    net.end_snapshots(1, 7)
    assert [p.ends_snapshot for p in net.drain(1)] == [True]


def ends_of_pictures(rig: MachineHarness) -> list[int]:
    """Brokers that were told so, once each time."""
    return [sent.broker for sent in rig.sent if getattr(sent.message, "ends_snapshot", False)]


def test_all_there_is_has_an_end_for_every_broker_at_a_failover_and_for_a_new_one() -> None:
    """What was deleted behind a broker's back goes from its metadata then."""
    world = World(1, 2)
    led(world, "t", {0: [1, 2], 1: [2, 1]})
    rig = MachineHarness.active(world)
    assert sorted(ends_of_pictures(rig)) == [1, 2]
    rig.sent.clear()
    world.broker_up(3)
    world.bounce(1)
    rig.run()
    assert sorted(ends_of_pictures(rig)) == [1, 3]
    assert {
        (e.topic, e.partition) for s in rig.sent if s.broker == 3 for e in s.message.partition_states
    } == {
        ("t", 0),
        ("t", 1),
    }


@pytest.mark.parametrize("path", [topic_path("t"), state_path("t", 1)])
def test_no_end_while_a_topic_is_unreadable(path: str) -> None:
    """It is there: brokers that know it keep it until they are told of it."""
    world = World(1, 2)
    led(world, "t", {0: [1, 2], 1: [2, 1]})
    world.unreadable[path] = "broken"
    rig = MachineHarness.active(world)
    world.broker_up(3)
    rig.run()
    assert ends_of_pictures(rig) == []
    world.mend(path)
    world.broker_up(4)
    rig.run()
    assert sorted(ends_of_pictures(rig)) == [1, 2, 3, 4]
    rig.check_converged()


def test_no_end_while_a_partition_has_no_state_that_we_know() -> None:
    """Of a topic that was unreadable and none of whose brokers is there its state has not been read."""
    world = World(1, 2, 3)
    led(world, "t", {0: [1, 2]})
    world.unreadable[topic_path("t")] = "broken"
    rig = MachineHarness.active(world)
    world.broker_down(1, 2)
    rig.run()
    world.mend(topic_path("t"))
    world.bounce(3)
    rig.run()
    assert rig.partition("t", 0).leadership is None
    assert ends_of_pictures(rig) == []
    rig.sent.clear()
    world.broker_up(1)
    rig.run()
    assert rig.partition("t", 0).leadership is not None
    assert sorted(ends_of_pictures(rig)) == [1, 3]
    notified = [n for n, s in enumerate(rig.sent) if s.broker == 3 and s.message.partition_states]
    ended = [n for n, s in enumerate(rig.sent) if s.broker == 3 and s.message.ends_snapshot]
    assert notified[0] <= ended[0]


def test_what_was_deleted_twice_is_told_once() -> None:
    net = Net(brokers=1, partitions=1)
    old = net.partitions[0]
    old.topic.deleted = True
    again = Topic("t", "id-again")
    again.deleted = True
    twin = Partition(again, 0, (1, 2))
    twin.leadership = old.leadership
    ((message, _),) = net.builder.build(Push(UMR, net.cluster.brokers[1], [old, twin]))
    assert [e.leader for e in pb.UpdateMetadataRequest.FromString(message).partition_states] == [-2]
