"""One broker's queue: what collapses, what comes first, what supersedes what (reference, sections 9.1, 9.2)."""

from __future__ import annotations

from controller.core.model import Broker, Partition, Topic
from controller.core.outbox import Outbox
from tests.support.core.network import LISR, SR, UMR, Net, shape
from tests.support.core.world import a_broker, state


def test_a_slow_broker_gets_one_newest_state_however_many_decisions_it_missed() -> None:
    net = Net()
    for _ in range(50):
        net.change(0)
        net.lead(1, 0)
    pushes = net.drain(1)
    assert shape(pushes) == [("LeaderAndIsr", [0]), ("UpdateMetadata", [0])]
    assert net.metadata[1][0] == 50
    assert net.replicas[1][0] == ("led", 50)


def test_leadership_then_metadata_then_stops() -> None:
    net = Net()
    net.stop(1, 2)
    net.change(0, 1)
    net.lead(1, 1)
    net.lead(1, 0)
    assert shape(net.drain(1)) == [("LeaderAndIsr", [1, 0]), ("UpdateMetadata", [0, 1]), ("StopReplica", [2])]


def test_what_the_receiver_leads_comes_first_and_is_urgent() -> None:
    net = Net(partitions=4, small_max=0)
    net.partitions[2].leadership = state(2, (1, 2))
    net.partitions[3].leadership = state(2, (1, 2))
    net.change(0)
    for number in (0, 1, 2, 3):
        net.lead(2, number)
    assert net.outbox.owes_leadership(2, net.partitions[2])
    pushes = net.drain(2, count_max=3)
    assert shape(pushes) == [("LeaderAndIsr", [2, 3, 0]), ("LeaderAndIsr", [1]), ("UpdateMetadata", [0])]
    assert [p.urgent for p in pushes] == [True, False, False]


def test_a_partition_whose_leader_changes_while_it_waits_is_sent_once() -> None:
    net = Net()
    net.lead(2, 0, is_new=True)
    net.partitions[0].leadership = state(2, (1, 2))
    net.lead(2, 0)
    assert net.outbox.pending(2) == 1
    assert [(list(p.flags), p.urgent) for p in net.drain(2)] == [([True], True)]
    net.lead(2, 0)
    net.outbox.forget(net.partitions)
    assert net.outbox.pending(2) == 0


def test_the_live_brokers_go_before_whatever_is_waiting() -> None:
    """KAFKA-4443."""
    net = Net()
    net.lead(1, 0)
    net.add_broker(3)
    first, second = net.drain(1)
    assert (first.kind, list(first.partitions)) == (UMR, [])
    assert net.live[1] == {1, 2, 3}
    assert second.kind is LISR


def test_is_new_is_sticky_within_a_batch_and_gone_with_it() -> None:
    net = Net()
    net.lead(1, 0, is_new=True)
    net.lead(1, 0, is_new=False)
    assert [list(p.flags) for p in net.drain(1)] == [[True]]
    net.lead(1, 0)
    assert [list(p.flags) for p in net.drain(1)] == [[False]]


def test_what_exists_stays_existing_however_often_it_is_told() -> None:
    """Leader or follower, alone or with all of a broker."""
    net = Net()
    for broker_id in (1, 2):
        net.lead(broker_id, 0)
        net.lead(broker_id, 0)
        net.outbox.leader_and_isr_all(broker_id, net.partitions[:2], 1, "test")
        assert [list(p.flags) for p in net.drain(broker_id) if p.kind is LISR] == [[False, False]]


def test_delete_is_sticky_within_a_batch() -> None:
    net = Net()
    net.stop(1, 0, delete=True)
    net.stop(1, 0, delete=False)
    assert [list(p.flags) for p in net.drain(1)] == [[True]]
    net.stop(1, 0)
    assert [list(p.flags) for p in net.drain(1)] == [[False]]


def test_leadership_supersedes_a_waiting_stop() -> None:
    net = Net()
    net.stop(1, 0)
    net.lead(1, 0)
    assert shape(net.drain(1)) == [("LeaderAndIsr", [0])]


def test_leadership_supersedes_a_waiting_stop_also_while_the_whole_state_waits() -> None:
    net = Net()
    net.outbox.whole_leadership(1, net.partitions[1:])
    net.stop(1, 0)
    net.lead(1, 0)
    net.outbox.compared(net.cluster.brokers[1], None)
    assert shape(net.drain(1)) == [("LeaderAndIsr", [0, 1, 2])]


def test_what_has_no_leadership_yet_waits_with_the_rest() -> None:
    for whole in (False, True):
        net = Net()
        if whole:
            net.outbox.whole_leadership(1, net.partitions[1:])
        net.partitions[0].leadership = None
        net.lead(1, 0)
        assert net.outbox.owes_leadership(1, net.partitions[0])


def test_a_broker_that_is_told_all_it_has_again_creates_none_of_it() -> None:
    net = Net()
    net.outbox.leader_and_isr_all(1, net.partitions, 1, "test")
    assert [list(p.flags) for p in net.drain(1)] == [[False] * 3]


def test_nobody_waits_for_what_a_broker_that_is_gone_was_to_be_told() -> None:
    net = Net()
    net.lead(1, 0)
    net.remove_broker(1)
    assert not net.outbox.owes_leadership(1, net.partitions[0])


def test_what_a_broker_may_be_sent_counts_its_snapshot_and_its_replicas() -> None:
    net = Net()
    net.add_broker(3)
    assert net.outbox.pending_max(3) == 3
    net.outbox.whole_leadership(3, net.partitions[:2])
    assert net.outbox.pending_max(3) == 0, "it is to be compared first"
    net.outbox.compared(net.cluster.brokers[3], None)
    assert net.outbox.pending_max(3) == 5


def test_a_stop_supersedes_waiting_leadership() -> None:
    net = Net()
    net.lead(1, 0)
    net.stop(1, 0)
    assert shape(net.drain(1)) == [("StopReplica", [0])]


def test_delete_then_create_again_keeps_the_order() -> None:
    net = Net()
    net.lead(1, 1)
    net.stop(1, 0, delete=True)
    net.lead(1, 0, is_new=True)
    net.lead(1, 2)
    pushes = net.drain(1)
    kinds = [(p.kind, q.number) for p in pushes for q in p.partitions]
    assert kinds.index((SR, 0)) < kinds.index((LISR, 0))
    assert {n for k, n in kinds if k is LISR} == {0, 1, 2}
    assert net.replicas[1][0][0] == "led"


def test_delete_then_create_again_under_the_same_name_keeps_the_order() -> None:
    """A topic that is deleted and written anew before the broker took its StopReplica."""
    net = Net()
    net.stop(1, 0, delete=True)
    reborn = Topic("t", "id-t2")
    reborn.partitions[0] = Partition(reborn, 0, (1, 2))
    reborn.partitions[0].leadership = state(1, (1, 2))
    net.cluster.add_topic(reborn)
    net.partitions = [reborn.partitions[0]]
    net.lead(1, 0, is_new=True)
    net.drain(1)
    assert net.replicas[1][0][0] == "led"


def test_what_a_broker_was_told_to_delete_is_not_remembered_for_ever() -> None:
    net = Net()
    net.stop(1, 0, delete=True)
    net.stop(1, 1, delete=True)
    assert shape(net.drain(1, count_max=1)[:1]) == [("StopReplica", [0])]
    assert not net.outbox.queues[1].rounds[0].deleting
    net.lead(1, 0)
    net.drain(1)
    assert net.replicas[1][0][0] == "led"
    assert len(net.outbox.queues[1].rounds) == 1


def test_a_topic_is_created_anew_only_behind_the_last_portion_of_its_deletion() -> None:
    net = Net()
    net.stop(1, 0, delete=True)
    net.stop(1, 1, delete=True)
    first = net.take(1, count_max=1)
    assert first is not None
    net.lead(1, 1, is_new=True)
    left = [(p.kind, q.number) for p in net.drain(1) for q in p.partitions]
    assert left.index((SR, 1)) < left.index((LISR, 1))


def test_delete_create_delete_ends_deleted() -> None:
    net = Net()
    net.stop(1, 0, delete=True)
    net.lead(1, 0)
    net.stop(1, 0, delete=True)
    net.drain(1)
    assert net.replicas[1][0] == ("stopped", True)


def test_a_dead_brokers_queue_goes_with_it() -> None:
    net = Net()
    net.lead(1, 0)
    net.change(0)
    net.remove_broker(1)
    assert net.outbox.take(1, 10) is None
    assert net.outbox.pending(1) == 0
    net.lead(1, 0)  # nobody is listening: dropped
    net.stop(1, 0)
    net.add_broker(1)
    assert {p.kind for p in net.drain(1)} == {UMR}


def test_an_older_incarnations_queue_is_dropped_with_all_it_held() -> None:
    net = Net()
    net.lead(1, 0)
    net.stop(1, 1)
    net.add_broker(1)
    assert {p.kind for p in net.drain(1)} == {UMR}
    assert set(net.metadata[1]) == {0, 1, 2}


def test_unknown_brokers_are_skipped() -> None:
    net = Net()
    net.outbox.leader_and_isr([([-1, 7, 1], net.partitions[0])], False, 1, "test")
    net.outbox.stop_replica([(net.partitions[0], 7)], True, 1, "test")
    net.outbox.snapshot_to([7], net.cluster.topics, ())
    assert set(net.outbox.queues) == {1, 2}
    assert shape(net.drain(1)) == [("LeaderAndIsr", [0])]


def test_every_push_names_the_newest_event() -> None:
    net = Net()
    net.outbox.leader_and_isr([([1], net.partitions[0])], False, 7, "BrokerChange")
    (push,) = net.drain(1)
    assert (push.event_id, push.cause) == (7, "BrokerChange")


def test_a_queue_names_the_event_that_opened_it_whatever_follows() -> None:
    """No request to an earlier incarnation of the broker has that number or a higher one."""
    outbox = Outbox()
    outbox.add_broker(a_broker(1, 1), 7, "BrokerChange")
    outbox.brokers_changed(8, "BrokerChange")
    assert outbox.queues[1].opened_by == 7


def test_a_queue_that_a_long_event_opens_names_the_newest_event_that_it_gave_way_to() -> None:
    """Its broker may be the same process as before, which refuses an older event's requests."""
    outbox = Outbox()
    outbox.add_broker(a_broker(1, 1), 7, "BrokerChange")
    outbox.brokers_changed(9, "AlterPartitionReceived")
    outbox.add_broker(a_broker(1, 2), 8, "BrokerChange")
    assert outbox.queues[1].event_id == 9


def test_large_requests_are_split_by_size_and_lose_nothing() -> None:
    net = Net(partitions=50, bytes_max=300)
    net.change(*range(50))
    for number in range(50):
        net.lead(1, number)
    pushes = net.drain(1)
    assert all(len(m) < 600 for p in pushes for m, _ in net.builder.build(p))
    assert net.metadata[1] == dict.fromkeys(range(50), 1)
    assert net.replicas[1] == dict.fromkeys(range(50), ("led", 1))


def test_pending_counts_what_is_left() -> None:
    net = Net()
    assert net.outbox.pending(1) == 0
    net.change(0, 1)
    net.change(1)
    net.lead(1, 0)
    net.stop(1, 2)
    assert net.outbox.pending(1) == 4
    net.drain(1)
    assert net.outbox.pending(1) == 0


def test_brokers_are_identified_by_id_and_epoch() -> None:
    assert a_broker(1, 5) != a_broker(1, 6)
    assert isinstance(a_broker(1, 5), Broker)


def test_of_what_vanished_only_deletions_are_still_told() -> None:
    net = Net(partitions=3)
    for broker_id in (1, 2):
        net.stop(broker_id, 0)
        net.stop(broker_id, 1, delete=True)
        # Broker 1 leads it.
        net.lead(broker_id, 2)
    net.outbox.forget(net.partitions)
    for broker_id in (1, 2):
        assert shape(net.drain(broker_id)) == [("StopReplica", [1])]
