"""The outbox: what collapses, what comes first, and that nobody ever misses the newest (sections 9.1, 9.2)."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import outbox as outbox_module
from controller.core.model import Broker, Partition, Topic
from controller.core.outbox import Differing, MetadataStream, Outbox, PushKind
from tests.linear.steps import Steps
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
    net = Net(partitions=4)
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


def test_the_whole_state_waits_until_it_is_compared_and_changes_do_not() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.lead(2, 1)
    net.drain(2)
    net.begin_again(2, first=False)
    net.end_snapshots(2)
    net.change(1)
    net.lead(2, 1)
    assert shape(net.drain(2)) == [("UpdateMetadata", []), ("LeaderAndIsr", [1]), ("UpdateMetadata", [1])]
    assert net.outbox.pending(2) > 0
    assert net.outbox.owes_leadership(2, net.partitions[0])
    net.outbox.compared(net.cluster.brokers[2], None)
    rest = net.drain(2)
    # What has changed was told already.
    assert shape(rest) == [("LeaderAndIsr", [0]), ("UpdateMetadata", [0, 2])]
    assert (rest[-1].ends_snapshot, rest[-1].snapshot_of) == (True, None)


def test_of_the_whole_state_nothing_is_left_once_it_is_told() -> None:
    net = Net(partitions=100)
    for number in range(100):
        net.lead(2, number)
    net.drain(2)
    net.begin_again(2, first=False)
    net.outbox.compared(net.cluster.brokers[2], None)
    net.drain(2, count_max=30)
    # Each look at a dictionary passes over the places of all that it had.
    assert sys.getsizeof(net.outbox.queues[2].whole) == sys.getsizeof({})


def test_what_is_equal_is_left_out_and_the_snapshot_ends() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.drain(2)
    net.begin_again(2, first=True)
    net.end_snapshots(2)
    net.outbox.compared(net.cluster.brokers[2], Differing(frozenset(), frozenset()))
    (only,) = net.drain(2)
    assert (shape([only]), only.ends_snapshot, only.snapshot_of) == ([("UpdateMetadata", [])], True, [])
    assert net.outbox.pending(2) == 0


def test_differing_topics_are_told_as_a_snapshot_of_them() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.drain(2)
    net.begin_again(2, first=False)
    net.end_snapshots(2)
    net.outbox.compared(net.cluster.brokers[2], Differing(frozenset({"t"}), frozenset({"t", "gone"})))
    pushes = net.drain(2)
    assert shape(pushes) == [("UpdateMetadata", []), ("LeaderAndIsr", [0]), ("UpdateMetadata", [0, 1, 2])]
    assert pushes[-1].snapshot_of == ["gone", "t"]


def test_a_comparison_of_an_earlier_incarnation_counts_for_nothing() -> None:
    net = Net(partitions=3)
    former = net.cluster.brokers[2]
    net.begin_again(2, first=False)
    net.outbox.compared(former, Differing(frozenset(), frozenset()))
    assert shape(net.drain(2)) == [("UpdateMetadata", [])]
    assert net.outbox.pending(2) > 0


def test_a_stop_takes_the_replica_out_of_the_whole_state() -> None:
    net = Net(partitions=3)
    net.lead(2, 0)
    net.lead(2, 1)
    net.drain(2)
    net.begin_again(2, first=False)
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
        net.begin_again(broker_id, first=False)
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


def test_the_live_brokers_go_before_whatever_is_waiting() -> None:
    """KAFKA-4443."""
    net = Net()
    net.lead(1, 0)
    net.add_broker(3)
    first, second = net.drain(1)
    assert (first.kind, list(first.partitions)) == (UMR, [])
    assert net.live[1] == {1, 2, 3}
    assert second.kind is LISR


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


def test_brokers_in_step_share_one_serialisation() -> None:
    net = Net(partitions=5)
    net.change(*range(5))
    keys = [[p.shared_key for p in net.drain(b, count_max=2)] for b in (1, 2)]
    assert keys[0] == keys[1]
    assert None not in keys[0]
    assert len(set(keys[0])) == 3


def test_a_shared_chunk_is_not_older_than_what_its_reader_missed() -> None:
    """Broker 1 took the chunk, then t-0 changed; broker 2 takes the same chunk, and the change after it."""
    net = Net()
    net.change(0, 1)
    net.drain(1)
    net.change(0)
    net.drain(2)
    assert net.metadata[2] == {0: 2, 1: 1, 2: 0}


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


def test_the_stream_is_bounded_by_the_number_of_partitions() -> None:
    """A broker that takes nothing for a long time: collapsed entries are squeezed out."""
    net = Net(partitions=10)
    for _ in range(5000):
        net.change(*range(10))
        net.drain(1)
    assert len(net.outbox.metadata._log) <= 20_000
    assert net.outbox.pending(2) == 10
    net.drain(2)
    assert net.metadata[1] == net.metadata[2] == dict.fromkeys(range(10), 5000)


def test_what_a_slow_broker_has_not_seen_survives_the_squeezing() -> None:
    net = Net(partitions=10)
    net.change(*range(10))
    net.take(2, 4)
    generation = net.outbox.metadata.generation
    for _ in range(11):
        net.outbox.update_metadata([net.partitions[9]] * 1000, 1, "restless")
        net.drain(1)
    assert net.outbox.metadata.generation > generation
    assert net.outbox.pending(2) == 6
    net.drain(2)
    assert net.metadata[2] == dict.fromkeys(range(10), 1)


def test_what_everybody_has_is_forgotten() -> None:
    net = Net()
    net.change(0, 1)
    net.drain(1)
    assert len(net.outbox.metadata._log) == 2
    net.drain(2)
    assert net.outbox.metadata._log == []
    assert net.outbox.metadata._latest == {}


def test_a_long_prefix_is_forgotten_while_the_slow_are_still_reading() -> None:
    topic = Topic("t")
    partitions = [Partition(topic, n, (1,)) for n in range(100_002)]
    stream = MetadataStream()
    stream.add(partitions)
    stream.forget_before(100_001)
    assert stream.slice(100_001, 10) == ([partitions[-1]], 100_002)
    stream.add(partitions[:1])
    assert stream.slice(100_001, 10) == ([partitions[-1], partitions[0]], 100_003)
    assert stream.live_after(100_002) == 1


def test_a_stream_of_which_most_is_true_is_not_renumbered() -> None:
    """Whoever reads on would share nothing with the others for a while."""
    topic = Topic("t")
    stream = MetadataStream()
    stream.add(Partition(topic, n, (1,)) for n in range(10_000))
    assert stream.compacted([0]) is None
    assert stream.generation == 0


def test_what_vanished_in_later_blocks_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "BLOCK", 2)
    topic = Topic("t")
    partitions = [Partition(topic, n, (1,)) for n in range(8)]
    stream = MetadataStream()
    stream.add(partitions)
    stream.forget([partitions[5], partitions[3], partitions[2]])
    assert [stream.live_after(position) for position in range(1, 8)] == [4, 3, 3, 3, 2, 2, 1]


def test_what_is_still_to_be_seen_counts_each_partition_once() -> None:
    topic = Topic("t")
    partitions = [Partition(topic, n, (1,)) for n in range(4)]
    stream = MetadataStream()
    stream.add(partitions)
    assert [stream.live_after(n) for n in range(5)] == [4, 3, 2, 1, 0]
    stream.add(partitions[1:2])
    assert [stream.live_after(n) for n in range(6)] == [4, 3, 3, 2, 1, 0]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 9)),
            st.tuples(st.just("forget"), st.integers(0, 9)),
            st.tuples(st.just("read"), st.integers(0, 12)),
        ),
        max_size=60,
    )
)
def test_what_is_still_to_be_seen_is_counted_by_blocks(steps: list[tuple[str, int]]) -> None:
    partitions = [Partition(Topic("t"), n, (1,)) for n in range(10)]
    stream = MetadataStream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox_module, "BLOCK", 3)
        for what, number in steps:
            if what == "add":
                stream.add([partitions[number]])
            elif what == "forget":
                stream.forget([partitions[number]])
            else:
                stream.forget_before(min(stream._base + number, stream.end))
            for position in range(stream._base, stream.end + 1):
                left = [p for p in stream.slice(position, stream.end - position)[0] if p is not None]
                assert stream.live_after(position) == len(left)


def test_to_count_what_is_still_to_be_seen_is_no_look_at_all_of_it() -> None:
    """Each scrape counts for each broker."""
    stream = MetadataStream()
    partitions = [Partition(Topic("t"), n, (1,)) for n in range(20_000)]
    stream.add(partitions)
    stream.add(partitions[5000:5001])
    with Steps() as counted:
        assert stream.live_after(1) == 19_999
    assert counted.count < 100


OPERATIONS = st.one_of(
    st.tuples(st.just("change"), st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True)),
    st.tuples(st.just("burst"), st.integers(0, 4), st.integers(9, 11)),
    st.tuples(st.just("lead"), st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.just("stop"), st.integers(1, 3), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("take"), st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.just("drain"), st.integers(1, 3)),
    st.tuples(st.just("bounce"), st.integers(1, 3)),
    st.tuples(st.just("again"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("compare"), st.integers(1, 3)),
)


class Expected:
    """What must be true of each broker in the end, from the operations alone."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.replicas: dict[tuple[int, int], str] = {}
        self.deleted_at: dict[tuple[int, int], int] = {}

    def apply(self, operation: tuple[Any, ...]) -> None:  # noqa: C901  (a table)
        net = self.net
        match operation:
            case ("change", numbers):
                net.change(*numbers)
            case ("burst", number, thousands):
                # One restless partition: the stream is squeezed, what others still have to see must stay in it.
                for _ in range(thousands):
                    net.outbox.update_metadata([net.partitions[number]] * 1000, 1, "burst")
            case ("lead", broker_id, number):
                net.lead(broker_id, number)
                self.replicas[(broker_id, number)] = "led"
            case ("stop", broker_id, number, delete):
                net.stop(broker_id, number, delete)
                self.replicas[(broker_id, number)] = "stopped"
                if delete:
                    self.deleted_at[(broker_id, number)] = net.clock
            case ("take", broker_id, count_max):
                net.take(broker_id, count_max)
            case ("drain", broker_id):
                net.drain(broker_id)
            case ("again", broker_id, first):
                net.compare(broker_id)
                net.drain(broker_id)
                net.begin_again(broker_id, first)
            case ("compare", broker_id):
                net.compare(broker_id)
            case ("bounce", broker_id):
                net.remove_broker(broker_id)
                net.add_broker(broker_id)
                for key in [k for k in self.replicas if k[0] == broker_id]:
                    del self.replicas[key]
                    self.deleted_at.pop(key, None)

    def check(self) -> None:
        newest = {p.number: p.leadership.partition_epoch for p in self.net.partitions if p.leadership}
        for broker_id in (1, 2, 3):
            self.net.drain(broker_id, count_max=3)
            self.net.compare(broker_id)
            self.net.drain(broker_id, count_max=3)
            assert self.net.outbox.pending(broker_id) == 0
            assert self.net.metadata[broker_id] == newest
            assert self.net.live[broker_id] == {1, 2, 3}
        for (broker_id, number), what in self.replicas.items():
            assert self.net.replicas[broker_id][number][0] == what
        for key, deleted_at in self.deleted_at.items():
            # Data from before a deletion never survives it.
            assert self.net.born.get(key, deleted_at + 1) > deleted_at


@given(st.lists(OPERATIONS, max_size=40))
def test_whatever_the_interleaving_everybody_ends_with_the_newest(operations: list[tuple[Any, ...]]) -> None:
    net = Net(brokers=3, partitions=5)
    expected = Expected(net)
    for operation in operations:
        expected.apply(operation)
    expected.check()


def outlook(net: Net, broker_id: int) -> None:
    """What is said of a broker's queue, against what would be sent if nothing happened any more."""
    outbox: Outbox = deepcopy(net.outbox)
    queue, end = outbox.queues[broker_id], outbox.metadata.end
    owed = {p.number for p in net.partitions if net.outbox.owes_leadership(broker_id, p)}
    due, urgent, pending = queue.is_due(end), outbox.is_urgent(broker_id), outbox.pending(broker_id)
    waits = [outbox.can_wait(broker_id, small) for small in range(3)]
    compared, opened = not queue.comparing, queue.snapshot_open
    whole_first = queue.snapshot_first and queue.snapshot is not None
    leaves_out = queue.snapshot is not None and bool(queue.snapshot.left_out)
    pushes = list(iter(lambda: outbox.take(broker_id, 3), None))
    sizes = sum(len(push.partitions) for push in pushes)
    assert due or not pushes
    assert whole_first or urgent == (bool(pushes) and pushes[0].urgent)
    assert all(wait or urgent or sizes <= small for small, wait in enumerate(waits))
    if compared and not leaves_out:
        assert pending - sizes in (0, 1, 2)
        assert opened or pending - sizes <= 1
        assert pending or not pushes
    if queue.comparing:
        outbox.compared(queue.broker, None)
        pushes += iter(lambda: outbox.take(broker_id, 3), None)
    told = {p.number for push in pushes if push.kind is PushKind.LEADER_AND_ISR for p in push.partitions}
    assert owed == told
    assert outbox.pending(broker_id) == 0
    assert not outbox.owes_leadership(broker_id, net.partitions[0])
    assert not queue.is_due(outbox.metadata.end)
    assert not outbox.can_wait(broker_id, 0)


@given(st.lists(OPERATIONS.filter(lambda operation: operation[0] != "burst"), max_size=12))
def test_what_is_said_of_a_queue_is_what_comes_of_it(operations: list[tuple[Any, ...]]) -> None:
    net = Net(brokers=3, partitions=5)
    expected = Expected(net)
    for operation in operations:
        expected.apply(operation)
        for broker_id in (1, 2, 3):
            outlook(net, broker_id)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), max_size=60))
def test_the_stream_hands_out_each_change_once_and_last(steps: list[tuple[int, int]]) -> None:
    """A reader that follows a stream: adds of partition numbers, slices of some size."""
    topic = Topic("t")
    partitions = [Partition(topic, n, (1,)) for n in range(7)]
    stream, cursor, missed = MetadataStream(), 0, set[Partition]()
    for number, count in steps:
        stream.add([partitions[number]])
        missed.add(partitions[number])
        if count < 3:
            taken, cursor = stream.slice(cursor, count)
            assert set(taken) <= missed
            missed -= set(taken)
            stream.forget_before(cursor)
    taken, cursor = stream.slice(cursor, 10**6)
    assert set(taken) == missed
    assert len(taken) == len(set(taken))
    assert cursor == stream.end


def test_brokers_are_identified_by_id_and_epoch() -> None:
    assert a_broker(1, 5) != a_broker(1, 6)
    assert isinstance(a_broker(1, 5), Broker)


# --- what vanished, and the whole state ----------------------------------------------------------------------


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


def test_what_vanished_is_in_no_snapshot_of_topics_that_differ() -> None:
    net = Net(partitions=3)
    net.begin_again(2, first=False)
    net.outbox.forget([net.partitions[0]])
    net.outbox.compared(net.cluster.brokers[2], Differing(frozenset(), frozenset({"t"})))
    assert [numbers for _, numbers in shape(net.drain(2)) if numbers] == [[1, 2]]


def test_a_snapshot_has_no_topic_under_deletion() -> None:
    net = Net()
    topics = _led("a", 1) | _led("b", 2)
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


def test_everything_is_told_also_where_it_is_listed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the comparison, within it, and of another incarnation or an unknown broker: nothing."""
    monkeypatch.setattr(outbox_module, "LISTED_MAX", 1)
    topics = _led("a", 1) | _led("b", 1) | _led("c", 1)
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


def test_snapshots_of_topics_that_differ_have_keys_of_their_own() -> None:
    net = Net()
    net.change(0)
    keys: list[Any] = [*_keys(net, 1), *_keys(net, 2)]
    for broker_id in (1, 2, 1, 2):
        net.outbox.snapshot_to([broker_id], net.cluster.topics, ())
        net.outbox.compared(net.cluster.brokers[broker_id], Differing(frozenset(), frozenset({"t"})))
        keys += _keys(net, broker_id)
    assert len(set(keys)) == len(keys) - 1, "but for the one of the stream, which both share"


def test_a_snapshot_leaves_out_what_vanished_while_it_waited() -> None:
    net = Net(partitions=3)
    net.begin_again(2, first=True)
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
    net.begin_again(2, first=True)
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
    monkeypatch.setattr(outbox_module, "LISTED_MAX", 1)
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
    broker, outbox = a_broker(1, 1), outbox_module.Outbox()
    outbox.add_broker(broker, 1, "BrokerChange")
    outbox.everything_to([1], topics, ())
    outbox.compared(broker, Differing(frozenset(topics), frozenset(topics)))
    told = []
    while (push := outbox.take(1, 1000)) is not None:
        told.append([p.topic.name for p in push.partitions])
    assert [names for names in told if names] == [list(topics)] * 2


def _keys(net: Net, broker_id: int, count_max: int = 1000) -> dict[Any, list[int]]:
    return {
        p.shared_key: [one.number for one in p.partitions]
        for p in net.drain(broker_id, count_max)
        if p.shared_key
    }


def test_a_slice_of_which_a_partition_changed_since_has_another_key() -> None:
    net = Net()
    net.change(0, 1, 2)
    first = _keys(net, 1, 3)
    net.change(0)
    assert not first.keys() & _keys(net, 2, 3).keys()


def test_positions_that_were_renumbered_make_other_keys() -> None:
    net = Net()
    net.change(1, 2)
    first = _keys(net, 1, 2)
    net.change(1)
    for _ in range(10_000):
        net.change(0)
    assert net.outbox.metadata.generation == 1
    assert not first.keys() & _keys(net, 2, 2).keys()


def _led(name: str, count: int) -> dict[str, Topic]:
    topic = Topic(name)
    for number in range(count):
        partition = topic.partitions[number] = Partition(topic, number, (1, 2))
        partition.leadership = state(1, (1, 2))
    return {name: topic}


def _snapshot(net: Net, brokers: tuple[int, ...], topics: dict[str, Topic]) -> None:
    net.outbox.snapshot_to(brokers, topics, ())
    for broker_id in brokers:
        net.outbox.compared(net.outbox.queues[broker_id].broker, None)


def test_another_snapshot_has_other_keys_and_none_of_the_stream() -> None:
    net = Net()
    net.change(0)
    stream = _keys(net, 1)
    _snapshot(net, (1,), _led("a", 1))
    _snapshot(net, (2,), _led("b", 1))
    net.outbox.queues[2].cursor = net.outbox.metadata.end
    first, second = _keys(net, 1), _keys(net, 2)
    assert (list(first.values()), list(second.values())) == ([[0]], [[0]])
    assert not first.keys() & second.keys()
    assert not stream.keys() & (first.keys() | second.keys())


def test_a_snapshot_of_which_a_partition_changed_since_has_another_key() -> None:
    net, topics = Net(), _led("a", 2)
    _snapshot(net, (1, 2), topics)
    first = _keys(net, 1)
    assert list(first.values()) == [[0, 1]]
    net.outbox.update_metadata([topics["a"].partitions[0]], 1, "test")
    assert not first.keys() & _keys(net, 2).keys()
