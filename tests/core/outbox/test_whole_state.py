"""All that a broker must know, told after a comparison with what it holds: full pictures and parts of them."""

from __future__ import annotations

import sys

import pytest

from controller.core.model import Partition, Topic
from controller.core.outbox import Differing, Outbox, whole_state
from tests.support.core.network import Net, led_topic, shape
from tests.support.core.world import a_broker, state


def test_the_whole_state_waits_until_it_is_compared_and_changes_do_not() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.lead(2, 1)
    net.drain(2)
    net.begin_again(2)
    net.end_snapshots(2)
    net.change(1)
    net.lead(2, 1)
    assert shape(net.drain(2)) == [("UpdateMetadata", []), ("LeaderAndIsr", [1]), ("UpdateMetadata", [1])]
    assert net.outbox.pending(2) > 0
    assert net.outbox.owes_leadership(2, net.partitions[0])
    net.outbox.compared(net.cluster.brokers[2], None)
    rest = net.drain(2)
    # What has changed was told already.
    assert shape(rest) == [("UpdateMetadata", [0, 2]), ("LeaderAndIsr", [0])]
    assert (rest[0].ends_snapshot, rest[0].snapshot_of) == (True, None)


def test_of_the_whole_state_nothing_is_left_once_it_is_told() -> None:
    net = Net(partitions=100)
    for number in range(100):
        net.lead(2, number)
    net.drain(2)
    net.begin_again(2)
    net.outbox.compared(net.cluster.brokers[2], None)
    told = [
        number for kind, of in shape(net.drain(2, count_max=30)) if kind == "LeaderAndIsr" for number in of
    ]
    assert sorted(told) == list(range(100))
    # Each look at a dictionary passes over the places of all that it had.
    assert sys.getsizeof(net.outbox.queues[2].whole) == sys.getsizeof({})


def test_what_is_equal_is_left_out_and_the_snapshot_ends() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.drain(2)
    net.begin_again(2)
    net.end_snapshots(2)
    net.outbox.compared(net.cluster.brokers[2], Differing(frozenset(), frozenset()))
    (only,) = net.drain(2)
    assert (shape([only]), only.ends_snapshot, only.snapshot_of) == ([("UpdateMetadata", [])], True, [])
    assert net.outbox.pending(2) == 0


def test_differing_topics_are_told_as_a_snapshot_of_them() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.drain(2)
    net.begin_again(2)
    net.end_snapshots(2)
    net.outbox.compared(net.cluster.brokers[2], Differing(frozenset({"t"}), frozenset({"t", "gone"})))
    pushes = net.drain(2)
    assert shape(pushes) == [("UpdateMetadata", [0, 1, 2]), ("LeaderAndIsr", [0])]
    assert pushes[0].snapshot_of == ["gone", "t"]


def test_a_comparison_of_an_earlier_incarnation_counts_for_nothing() -> None:
    net = Net(partitions=3)
    former = net.cluster.brokers[2]
    net.begin_again(2)
    net.outbox.compared(former, Differing(frozenset(), frozenset()))
    assert shape(net.drain(2)) == [("UpdateMetadata", [])]
    assert net.outbox.pending(2) > 0


def test_a_stop_takes_the_replica_out_of_the_whole_state() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.lead(2, 1)
    net.drain(2)
    net.begin_again(2)
    net.stop(2, 0, delete=True)
    net.outbox.forget([net.partitions[1]])
    net.drain(2)
    net.outbox.compared(net.cluster.brokers[2], None)
    assert [s for s in shape(net.drain(2)) if s[0] == "LeaderAndIsr"] == []
    assert net.replicas[2][0] == ("stopped", True)


def test_a_later_change_is_not_undone_by_a_snapshot_that_others_share() -> None:
    """What is encoded once for several brokers is as old as its first use."""
    net = Net(partitions=2)
    for broker_id in (1, 2):
        net.begin_again(broker_id)
    net.outbox.snapshot_to([1, 2], net.cluster.topics, ())
    net.outbox.compared(net.cluster.brokers[1], None)
    net.drain(1)
    net.change(0)
    net.drain(2)
    net.outbox.compared(net.cluster.brokers[2], None)
    net.drain(2)
    newest = net.partitions[0].leadership
    assert newest is not None
    assert net.metadata[2][0] == newest.partition_epoch


def test_a_new_broker_hears_the_full_picture_first() -> None:
    """KAFKA-831."""
    net = Net(partitions=5)
    net.add_broker(3)
    net.lead(3, 0)
    pushes = net.drain(3, count_max=2)
    assert shape(pushes) == [
        ("UpdateMetadata", [0, 1]),
        ("UpdateMetadata", [2, 3]),
        ("UpdateMetadata", [4]),
        ("LeaderAndIsr", [0]),
    ]
    assert net.live[3] == {1, 2, 3}


def test_what_vanished_is_in_no_snapshot_of_topics_that_differ() -> None:
    net = Net(partitions=3)
    net.begin_again(2)
    net.outbox.forget([net.partitions[0]])
    net.outbox.compared(net.cluster.brokers[2], Differing(frozenset(), frozenset({"t"})))
    assert [numbers for _, numbers in shape(net.drain(2)) if numbers] == [[1, 2]]


def test_a_snapshot_has_no_topic_under_deletion() -> None:
    net = Net()
    topics = led_topic("a", 1) | led_topic("b", 2)
    net.outbox.snapshot_to([1], topics, {"a"})
    net.outbox.compared(net.outbox.queues[1].broker, None)
    assert [numbers for _, numbers in shape(net.drain(1)) if numbers] == [[0, 1]]


def test_the_whole_leadership_waits_for_a_comparison_by_itself() -> None:
    net = Net()
    net.outbox.whole_leadership(2, net.partitions)
    assert shape(net.drain(2)) == []
    net.outbox.compared(net.cluster.brokers[2], None)
    assert shape(net.drain(2)) == [("LeaderAndIsr", [0, 1, 2])]


def test_of_topics_that_differ_only_its_own_replicas_are_told() -> None:
    net = Net(brokers=3)
    net.outbox.everything_to([3], net.cluster.topics, ())
    net.outbox.compared(net.cluster.brokers[3], Differing(frozenset({"t"}), frozenset()))
    assert shape(net.drain(3)) == []


def test_what_waits_already_is_told_once_beside_everything() -> None:
    net = Net()
    net.lead(2, 0)
    net.outbox.everything_to([2], net.cluster.topics, ())
    net.outbox.compared(net.cluster.brokers[2], None)
    assert [s for s in shape(net.drain(2)) if s[0] == "LeaderAndIsr"] == [("LeaderAndIsr", [0, 1, 2])]


def test_what_is_to_stop_is_not_told_to_go_on_beside_everything() -> None:
    net = Net()
    net.stop(2, 1)
    net.outbox.everything_to([2], net.cluster.topics, ())
    net.outbox.compared(net.cluster.brokers[2], None)
    told = shape(net.drain(2))
    assert [s for s in told if s[0] != "UpdateMetadata"] == [("LeaderAndIsr", [0, 2]), ("StopReplica", [1])]


def test_everything_is_told_also_where_it_is_listed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the comparison, within it, and of another incarnation or an unknown broker: nothing."""
    monkeypatch.setattr(whole_state, "LISTED_MAX", 1)
    topics = led_topic("a", 1) | led_topic("b", 1) | led_topic("c", 1)
    for before in (0, 1, 10):
        net = Net(partitions=0)
        net.outbox.everything_to([2], topics, ())
        broker = net.cluster.brokers[2]
        assert not net.outbox.list_some(a_broker(9, 1))
        assert not net.outbox.list_some(a_broker(2, broker.epoch + 1))
        more = [net.outbox.list_some(broker) for _ in range(before)]
        # Three topics of leadership, then three of metadata.
        assert more == [n < 4 for n in range(before)]
        net.outbox.compared(broker, None)
        assert not net.outbox.list_some(broker)
        told = net.drain(2)
        assert [sorted(p.topic.name for p in push.partitions) for push in told] == [["a", "b", "c"]] * 2


def test_a_deletion_before_it_hides_no_leadership_that_is_owed() -> None:
    net = Net()
    net.stop(1, 0, delete=True)
    net.lead(1, 0)
    assert len(net.outbox.queues[1].rounds) == 2
    assert net.outbox.owes_leadership(1, net.partitions[0])


def test_the_end_of_a_picture_is_due_by_itself() -> None:
    net = Net()
    net.end_snapshots(2)
    (push,) = net.drain(2)
    assert (push.ends_snapshot, list(push.partitions)) == (True, [])


def test_a_snapshot_leaves_out_what_vanished_while_it_waited() -> None:
    net = Net(partitions=3)
    net.begin_again(2)
    net.outbox.forget([net.partitions[0]])
    net.outbox.compared(net.cluster.brokers[2], None)
    assert [s for s in shape(net.drain(2)) if s[0] == "UpdateMetadata" and s[1]] == [
        ("UpdateMetadata", [1, 2])
    ]


def test_the_whole_state_does_not_start_what_was_just_stopped() -> None:
    """Nor is told twice what waits in any round."""
    net = Net(partitions=3)
    net.drain(2)
    net.stop(2, 0)
    net.lead(2, 1)
    net.outbox.whole_leadership(2, net.partitions)
    net.outbox.compared(net.cluster.brokers[2], None)
    assert shape(net.drain(2)) == [("LeaderAndIsr", [1, 2]), ("StopReplica", [0])]


@pytest.mark.parametrize("listed", [True, False])
def test_what_is_told_again_while_the_whole_state_waits_is_told_once(listed: bool) -> None:
    """As all that is on a broker's disks is, after a notification that one failed."""
    net = Net(partitions=3)
    net.drain(2)
    if listed:
        net.outbox.whole_leadership(2, net.partitions)
    else:
        net.outbox.everything_to([2], net.cluster.topics, ())
    net.outbox.leader_and_isr_all(2, net.partitions[:2], 1, "LogDirEventNotification")
    net.outbox.compared(net.cluster.brokers[2], None)
    assert [push for push in shape(net.drain(2)) if push[0] == "LeaderAndIsr"] == [
        ("LeaderAndIsr", [0, 1, 2])
    ]


def test_a_first_snapshot_waits_until_it_is_known_what_the_broker_holds() -> None:
    net = Net(partitions=2)
    net.begin_again(2)
    assert shape(net.drain(2)) == [("UpdateMetadata", [])], "who is alive"
    net.outbox.compared(net.cluster.brokers[2], None)
    assert shape(net.drain(2))[0] == ("UpdateMetadata", [0, 1])


def test_everything_owes_only_what_the_broker_has() -> None:
    net = Net(brokers=3, partitions=2)
    for broker_id in (2, 3):
        net.drain(broker_id)
        net.outbox.everything_to([broker_id], net.cluster.topics, ())
    net.stop(2, 1)
    assert [net.outbox.owes_leadership(3, p) for p in net.partitions] == [False, False]
    net.drain(2)
    assert [net.outbox.owes_leadership(2, p) for p in net.partitions] == [True, False]


def test_everything_is_listed_in_parts_and_what_changes_meanwhile_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_state, "LISTED_MAX", 1)
    net = Net(partitions=1)
    topics = {"t": net.cluster.topics["t"]}
    for number in (1, 2, 3):
        topic = topics[f"t{number}"] = Topic(f"t{number}", f"id-{number}")
        topic.partitions[number] = Partition(topic, number, (1, 2))
        topic.partitions[number].leadership = state(1, (1, 2))
        net.partitions.append(topic.partitions[number])
    net.drain(2)
    net.outbox.everything_to([2], topics, ())
    broker = net.cluster.brokers[2]
    parts = 0
    while net.outbox.list_some(broker):
        parts += 1
        # One that is listed already, then one that is not yet.
        if parts == 1:
            net.lead(2, 0)
            net.lead(2, 3)
        assert len(net.outbox.queues[2].whole) <= parts
    assert parts >= len(topics) - 1
    assert set(net.outbox.queues[2].whole) == {net.partitions[1], net.partitions[2]}
    net.outbox.compared(broker, None)
    told = [push for push in shape(net.drain(2, count_max=2)) if push[0] == "LeaderAndIsr"]
    assert sorted(number for _, numbers in told for number in numbers) == [0, 1, 2, 3]


def test_what_differs_is_told_in_the_same_order_in_each_run() -> None:
    """Or a seed of the simulator is not the same run twice."""
    topics: dict[str, Topic] = {}
    for name in (f"t{n:02}" for n in range(50)):
        topics[name] = Topic(name)
        partition = topics[name].partitions[0] = Partition(topics[name], 0, (1,))
        partition.leadership = state(1, (1,))
    broker, outbox = a_broker(1, 1), Outbox()
    outbox.add_broker(broker, 1, "BrokerChange")
    outbox.everything_to([1], topics, ())
    outbox.compared(broker, Differing(frozenset(topics), frozenset(topics)))
    told = []
    while (push := outbox.take(1, 1000)) is not None:
        told.append([p.topic.name for p in push.partitions])
    assert [names for names in told if names] == [list(topics)] * 2
