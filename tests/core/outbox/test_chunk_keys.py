"""Brokers in step share one serialisation: equal keys only for equal contents."""

from __future__ import annotations

from typing import Any

from controller.core.model import Topic
from controller.core.outbox import Differing
from tests.support.core.network import Net, led_topic


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


def test_snapshots_of_topics_that_differ_have_keys_of_their_own() -> None:
    net = Net()
    net.change(0)
    keys: list[Any] = [*_keys(net, 1), *_keys(net, 2)]
    for broker_id in (1, 2, 1, 2):
        net.outbox.snapshot_to([broker_id], net.cluster.topics, ())
        net.outbox.compared(net.cluster.brokers[broker_id], Differing(frozenset(), frozenset({"t"})))
        keys += _keys(net, broker_id)
    assert len(set(keys)) == len(keys) - 1, "but for the one of the stream, which both share"


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
    assert net.stream.generation == 1
    assert not first.keys() & _keys(net, 2, 2).keys()


def _snapshot(net: Net, brokers: tuple[int, ...], topics: dict[str, Topic]) -> None:
    net.outbox.snapshot_to(brokers, topics, ())
    for broker_id in brokers:
        net.outbox.compared(net.outbox.queues[broker_id].broker, None)


def test_another_snapshot_has_other_keys_and_none_of_the_stream() -> None:
    net = Net()
    net.change(0)
    stream = _keys(net, 1)
    _snapshot(net, (1,), led_topic("a", 1))
    _snapshot(net, (2,), led_topic("b", 1))
    net.outbox.queues[2].cursors = net.outbox.ends
    first, second = _keys(net, 1), _keys(net, 2)
    assert (list(first.values()), list(second.values())) == ([[0]], [[0]])
    assert not first.keys() & second.keys()
    assert not stream.keys() & (first.keys() | second.keys())


def test_a_snapshot_of_which_a_partition_changed_since_has_another_key() -> None:
    net, topics = Net(), led_topic("a", 2)
    _snapshot(net, (1, 2), topics)
    first = _keys(net, 1)
    assert list(first.values()) == [[0, 1]]
    net.outbox.update_metadata([topics["a"].partitions[0]], 1, "test")
    assert not first.keys() & _keys(net, 2).keys()


def test_small_and_large_changes_at_the_same_positions_have_keys_of_their_own() -> None:
    net = Net(partitions=4, small_max=1)
    net.change(0)
    net.change(1)
    net.change(2, 3)
    found = [(p.shared_key, sorted(one.number for one in p.partitions)) for p in net.drain(1) if p.shared_key]
    assert sorted(numbers for _, numbers in found) == [[0, 1], [2, 3]]
    assert len({key for key, _ in found}) == 2
    net.drain(2)
    assert net.metadata[2] == net.metadata[1] == dict.fromkeys(range(4), 1)
