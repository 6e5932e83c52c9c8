"""The metadata cache (reference, section 10.2, "UMR")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker_stub.control.handlers import NoData
from broker_stub.control.requests import Endpoint, Key, MetadataUpdate, read_update_metadata
from proto.gen import broker_control_pb2 as wire
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness, metadata_state


def test_live_brokers_and_controller_are_replaced() -> None:
    broker = BrokerHarness()
    broker.update(brokers=[1, 2], controller_epoch=1, controller_id=5)
    broker.update(brokers=[3], controller_epoch=2, controller_id=6)
    cache = broker.handlers.metadata
    assert [n for n in range(5) if cache.is_live(n)] == [3]
    assert cache.controller_id == 6


def test_partitions_are_merged() -> None:
    broker = BrokerHarness()
    broker.update(metadata_state(), metadata_state("bar", 1, leader=1))
    broker.update(metadata_state(leader=1, leader_epoch=4))
    broker.update()
    cache = broker.handlers.metadata
    known = cache.partition("foo", 0)
    assert known is not None
    assert (known.leader, known.leader_epoch) == (1, 4)
    assert cache.partition("bar", 1) is not None
    assert cache.partition("bar", 0) is None


def test_no_epochs_are_compared() -> None:
    broker = BrokerHarness()
    broker.update(metadata_state(leader_epoch=9, partition_epoch=9))
    broker.update(metadata_state(leader_epoch=2, partition_epoch=1))
    known = broker.handlers.metadata.partition("foo", 0)
    assert known is not None
    assert (known.leader_epoch, known.partition_epoch) == (2, 1)


def test_leader_during_delete_removes_partition_then_topic() -> None:
    broker = BrokerHarness()
    broker.update(metadata_state(), metadata_state(partition=1), topic_ids={"foo": ID_X})
    deleted = wire.UpdateMetadataPartitionState(topic="foo", partition=0, leader=-2, leader_epoch=-2)
    broker.update(deleted, topic_ids={"foo": ID_X})
    cache = broker.handlers.metadata
    assert cache.partition("foo", 0) is None
    assert cache.topic_id("foo") == ID_X
    deleted.partition = 1
    broker.update(deleted, topic_ids={"foo": ID_X})
    assert cache.describe()["topics"] == {}
    assert cache.topic_id("foo") is None


def test_removing_what_is_not_known_is_fine() -> None:
    assert BrokerHarness().update(metadata_state(leader=-2)) == "NONE"


def test_a_topic_keeps_its_id_until_a_request_names_another_or_none() -> None:
    broker = BrokerHarness()
    cache = broker.handlers.metadata
    broker.update(metadata_state(), metadata_state("bar"), topic_ids={"foo": ID_X, "bar": ID_Y})
    broker.update(metadata_state())
    assert (cache.topic_id("foo"), cache.topic_id("bar")) == (None, ID_Y)
    broker.update(topic_ids={"bar": "A" * 22})
    assert cache.topic_id("bar") is None


def test_endpoints_and_rack_are_kept() -> None:
    broker = BrokerHarness()
    endpoints = [
        wire.Endpoint(listener=listener, security_protocol="PLAINTEXT", host="h", port=port)
        for listener, port in (("CLIENTS", 65535), ("GRPC", 9))
    ]
    brokers = [wire.LiveBroker(broker_id=4, endpoints=endpoints, rack="r1"), wire.LiveBroker(broker_id=5)]
    broker.update(live_brokers=brokers)
    cache = broker.handlers.metadata
    known = cache.live_brokers[4]
    assert known.endpoints == tuple(
        Endpoint(name, "PLAINTEXT", "h", port) for name, port in (("CLIENTS", 65535), ("GRPC", 9))
    )
    assert [cache.address(4, name) for name in ("GRPC", "CLIENTS", "OTHER")] == [("h", 9), ("h", 65535), None]
    assert known.rack == "r1"
    assert cache.live_brokers[5].rack is None
    assert broker.handlers.metadata.describe()["brokers"][4]["rack"] == "r1"


def keys(broker: BrokerHarness) -> list[tuple[str, int]]:
    cache = broker.handlers.metadata
    return [p.key for topic in cache.topics() for p in cache.partitions(topic)]


def in_snapshot() -> BrokerHarness:
    """Knows foo-0, foo-1 and bar-0, from controller epoch 5 and for broker epoch 100."""
    broker = BrokerHarness()
    broker.handlers.registered(100)
    foo = (metadata_state(), metadata_state(partition=1))
    broker.update(*foo, topic_ids={"foo": ID_X}, controller_epoch=5, broker_epoch=100)
    broker.update(metadata_state("bar"), controller_epoch=5, broker_epoch=100, ends_snapshot=True)
    assert keys(broker) == [("bar", 0), ("foo", 0), ("foo", 1)]
    return broker


@pytest.mark.parametrize("epochs", [(6, 100), (5, 200), (6, 200)])
def test_partitions_missing_from_a_full_snapshot_are_removed(epochs: tuple[int, int]) -> None:
    """It was deleted while our session was over, or by a controller that could not reach us any more."""
    broker = in_snapshot()
    header: dict[str, Any] = dict(zip(("controller_epoch", "broker_epoch"), epochs, strict=True))
    broker.update(**header)
    broker.update(metadata_state("bar"), **header)
    # The controller may learn of a registration before we do.
    broker.handlers.registered(epochs[1])
    broker.update(metadata_state("baz"), **header)
    assert keys(broker) == [("bar", 0), ("baz", 0), ("foo", 0), ("foo", 1)]
    assert broker.handlers.metadata.topic_id("foo") == ID_X
    broker.update(metadata_state("baz", 1), **header, ends_snapshot=True)
    assert keys(broker) == [("bar", 0), ("baz", 0), ("baz", 1)]
    assert broker.handlers.metadata.topic_id("foo") is None
    # A late or repeated request starts no new snapshot.
    broker.update(metadata_state("qux"), **header, ends_snapshot=True)
    assert keys(broker) == [("bar", 0), ("baz", 0), ("baz", 1), ("qux", 0)]


def test_partitions_go_by_themselves() -> None:
    broker = in_snapshot()
    broker.update(metadata_state("foo", 1), controller_epoch=6, topic_ids={"foo": ID_X}, ends_snapshot=True)
    assert keys(broker) == [("foo", 1)]
    assert broker.handlers.metadata.topic_id("foo") == ID_X


def test_a_newer_snapshot_replaces_an_unfinished_one() -> None:
    broker = in_snapshot()
    broker.update(metadata_state(), controller_epoch=6)
    broker.update(metadata_state("bar"), controller_epoch=7)
    broker.update(controller_epoch=7, ends_snapshot=True)
    assert keys(broker) == [("bar", 0)]


@pytest.mark.parametrize(("number", "brokers"), [(-7, [1]), (0, [1, 1])])
def test_a_malformed_snapshot_removes_nothing(number: int, brokers: list[int]) -> None:
    broker = in_snapshot()
    broker.update(controller_epoch=6)
    assert (
        broker.update(metadata_state("bar", number), brokers=brokers, controller_epoch=6) == "INVALID_REQUEST"
    )
    broker.update(metadata_state(), controller_epoch=6, ends_snapshot=True)
    assert keys(broker) == [("bar", 0), ("foo", 0), ("foo", 1)]


def test_partitions_removed_by_a_snapshot_are_passed_to_the_data_plane() -> None:
    notified: list[tuple[str, int]] = []

    class Listening(NoData):
        def metadata_changed(self, removed: Sequence[Key]) -> None:
            notified.extend(removed)

    broker = in_snapshot()
    broker.handlers._data_plane = Listening()
    broker.update(metadata_state("bar"), controller_epoch=6, ends_snapshot=True)
    assert notified == [("foo", 0), ("foo", 1)]


def test_a_snapshot_of_some_topics_removes_nothing_of_others() -> None:
    broker = BrokerHarness()
    broker.update(metadata_state(), metadata_state(partition=1), metadata_state("bar"))
    cache = broker.handlers.metadata
    cache.begin_snapshot()
    sent = [state for state in cache.partitions("foo") if state.key[1] == 0]
    merged = cache.merge(1, MetadataUpdate([*sent], {}, (), True, frozenset({"foo"})))
    assert merged.removed == [("foo", 1)]
    assert cache.topics() == ["bar", "foo"]


@pytest.mark.parametrize("topics", [None, (), ("foo",)])
def test_of_which_topics_a_snapshot_is_is_read(topics: tuple[str, ...] | None) -> None:
    request = wire.UpdateMetadataRequest(ends_snapshot=True)
    if topics is not None:
        request.snapshot_of.topics.extend(topics)
        request.snapshot_of.SetInParent()
    update = read_update_metadata(request)
    assert isinstance(update, MetadataUpdate)
    assert update.snapshot_of == (None if topics is None else frozenset(topics))
