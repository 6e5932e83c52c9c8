"""Random walks over queues: nobody ever misses the newest, and what is said of a queue is what comes of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.core.outbox import Outbox, PushKind
from tests.support.core.network import Net

OPERATIONS = st.one_of(
    st.tuples(st.just("change"), st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True)),
    st.tuples(st.just("burst"), st.integers(0, 4), st.integers(9, 11)),
    st.tuples(st.just("lead"), st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.just("stop"), st.integers(1, 3), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("take"), st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.just("drain"), st.integers(1, 3)),
    st.tuples(st.just("bounce"), st.integers(1, 3)),
    st.tuples(st.just("again"), st.integers(1, 3)),
    st.tuples(st.just("everything"), st.integers(1, 3)),
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
            case ("again", broker_id):
                net.compare(broker_id)
                net.drain(broker_id)
                net.begin_again(broker_id)
            case ("everything", broker_id):
                net.everything(broker_id)
                # What the former controller had queued is lost.
                for partition in net.partitions:
                    key = (broker_id, partition.number)
                    self.deleted_at.pop(key, None)
                    self.replicas.pop(key, None)
                    if broker_id in partition.replicas:
                        self.replicas[key] = "led"
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


@given(st.lists(OPERATIONS, max_size=40), st.integers(0, 5))
def test_whatever_the_interleaving_everybody_ends_with_the_newest(
    operations: list[tuple[Any, ...]], small_max: int
) -> None:
    net = Net(brokers=3, partitions=5, small_max=small_max)
    expected = Expected(net)
    for operation in operations:
        expected.apply(operation)
    expected.check()


def outlook(net: Net, broker_id: int) -> None:
    """What is said of a broker's queue, against what would be sent if nothing happened any more."""
    outbox: Outbox = deepcopy(net.outbox)
    queue, ends = outbox.queues[broker_id], outbox.ends
    owed = {p.number for p in net.partitions if net.outbox.owes_leadership(broker_id, p)}
    due, urgent, pending = queue.is_due(ends), outbox.is_urgent(broker_id), outbox.pending(broker_id)
    waits = [outbox.can_wait(broker_id, few) for few in range(3)]
    small = queue.cursors[0] < ends[0]
    compared, opened = not queue.comparing, queue.snapshot_open
    whole_first = queue.snapshot_first and queue.snapshot is not None
    leaves_out = queue.snapshot is not None and bool(queue.snapshot.left_out)
    pushes = list(iter(lambda: outbox.take(broker_id, 3), None))
    sizes = sum(len(push.partitions) for push in pushes)
    assert due or not pushes
    assert whole_first or urgent == any(push.urgent for push in pushes[:2])
    assert urgent or not pushes or not pushes[0].urgent
    assert small or all(wait or urgent or sizes <= few for few, wait in enumerate(waits))
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
    assert not queue.is_due(outbox.ends)
    assert not outbox.can_wait(broker_id, 0)


@given(st.lists(OPERATIONS.filter(lambda operation: operation[0] != "burst"), max_size=12), st.integers(0, 5))
def test_what_is_said_of_a_queue_is_what_comes_of_it(
    operations: list[tuple[Any, ...]], small_max: int
) -> None:
    net = Net(brokers=3, partitions=5, small_max=small_max)
    expected = Expected(net)
    for operation in operations:
        expected.apply(operation)
        for broker_id in (1, 2, 3):
            outlook(net, broker_id)
