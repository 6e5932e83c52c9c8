"""The stream of changed metadata that all brokers read: each change once, bounded, cheap to count."""

from __future__ import annotations

from collections.abc import Sized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Partition, Topic
from controller.core.outbox import MetadataStream, metadata_stream
from tests.linear.steps import Steps
from tests.support.core.network import Net


def test_the_stream_is_bounded_by_the_number_of_partitions() -> None:
    """A broker that takes nothing for a long time: collapsed entries are squeezed out."""
    net = Net(partitions=10)
    for _ in range(5000):
        net.change(*range(10))
        net.drain(1)
    assert len(net.stream._log) <= 20_000
    assert net.outbox.pending(2) == 10
    net.drain(2)
    assert net.metadata[1] == net.metadata[2] == dict.fromkeys(range(10), 5000)


def test_what_a_slow_broker_has_not_seen_survives_the_squeezing() -> None:
    net = Net(partitions=10, small_max=1000)
    net.change(*range(10))
    net.take(2, 4)
    generation = net.stream.generation
    for _ in range(11):
        net.outbox.update_metadata([net.partitions[9]] * 1000, 1, "restless")
        net.drain(1)
    assert net.stream.generation > generation
    assert net.outbox.pending(2) == 6
    net.drain(2)
    assert net.metadata[2] == dict.fromkeys(range(10), 1)


def test_what_everybody_has_is_forgotten() -> None:
    net = Net()
    net.change(0, 1)
    net.drain(1)
    assert len(net.stream._log) == 2
    net.drain(2)
    assert net.stream._log == []
    assert net.stream._latest == {}


def test_what_a_change_costs_grows_with_the_brokers_and_not_with_their_square() -> None:
    """Each that is told of it asks whether all others were."""

    def steps(brokers: int) -> int:
        net = Net(brokers)
        net.change(0)
        with Steps() as counted:
            for broker_id in range(1, brokers + 1):
                assert net.outbox.take(broker_id, 10) is not None
                while net.outbox.take(broker_id, 10) is not None:
                    pass
        assert net.stream._log == []
        return counted.count

    assert steps(200) < 2.5 * steps(100)


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
    monkeypatch.setattr(metadata_stream, "BLOCK", 2)
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
        patch.setattr(metadata_stream, "BLOCK", 3)
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


def test_what_everybody_has_passed_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_stream, "BLOCK", 2)
    partition = Partition(Topic("t"), 0, (1,))
    stream = MetadataStream()
    for _ in range(100):
        stream.add([partition, partition])
        stream.forget_before(stream.end)
    assert sum(len(kept) for kept in vars(stream).values() if isinstance(kept, Sized)) <= 2


def test_who_is_in_the_middle_when_it_is_squeezed_goes_on_there() -> None:
    first, second = (Partition(Topic("t"), n, (1,)) for n in range(2))
    stream = MetadataStream()
    stream.add([first] * 7000)
    stream.forget_before(7000)
    stream.add([first] * 6000 + [second] * 6000)
    moved = stream.compacted([7000, 13_000])
    assert moved is not None
    assert [stream.slice(moved[old], 10)[0] for old in (7000, 13_000, 19_000)] == [
        [first, second],
        [second],
        [],
    ]
