"""The metadata cache (reference, section 10.2, "UMR")."""

from __future__ import annotations

from broker_stub.control.requests import Endpoint
from proto import broker_control_pb2 as wire
from tests.broker_stub.builders import ID_X, ID_Y, Harness, metadata_state


def test_live_brokers_and_controller_are_replaced() -> None:
    broker = Harness()
    broker.update(brokers=[1, 2], controller_id=5)
    broker.update(brokers=[3], controller_id=6)
    cache = broker.handlers.metadata
    assert [n for n in range(5) if cache.is_live(n)] == [3]
    assert cache.controller_id == 6


def test_partitions_are_merged() -> None:
    broker = Harness()
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
    broker = Harness()
    broker.update(metadata_state(leader_epoch=9, partition_epoch=9))
    broker.update(metadata_state(leader_epoch=2, partition_epoch=1))
    known = broker.handlers.metadata.partition("foo", 0)
    assert known is not None
    assert (known.leader_epoch, known.partition_epoch) == (2, 1)


def test_leader_during_delete_removes_partition_then_topic() -> None:
    broker = Harness()
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
    assert Harness().update(metadata_state(leader=-2)) == "NONE"


def test_topic_ids() -> None:
    broker = Harness()
    cache = broker.handlers.metadata
    broker.update(metadata_state(), metadata_state("bar"), topic_ids={"foo": ID_X, "bar": ID_Y})
    broker.update(metadata_state())
    assert (cache.topic_id("foo"), cache.topic_id("bar")) == (None, ID_Y)
    broker.update(topic_ids={"bar": "A" * 22})
    assert cache.topic_id("bar") is None


def test_endpoints_and_rack_are_kept() -> None:
    broker = Harness()
    endpoint = wire.Endpoint(listener="GRPC", security_protocol="PLAINTEXT", host="h", port=9)
    broker.update(live_brokers=[wire.LiveBroker(broker_id=4, endpoints=[endpoint], rack="r1")])
    known = broker.handlers.metadata.live_brokers[4]
    assert known.endpoints == (Endpoint("GRPC", "PLAINTEXT", "h", 9),)
    assert known.rack == "r1"
    assert broker.handlers.metadata.describe()["brokers"][4]["rack"] == "r1"


def test_a_new_registration_begins_with_the_whole_picture() -> None:
    """While our session was over topics may have been deleted: nobody tells us of those any more."""
    broker = Harness()
    broker.handlers.registered(100)
    broker.update(metadata_state(), topic_ids={"foo": ID_X}, broker_epoch=100)
    broker.update(metadata_state("bar", 0), broker_epoch=100)
    cache = broker.handlers.metadata
    assert cache.topics() == ["bar", "foo"]
    # The controller may learn of the registration before we do.
    broker.update(metadata_state("bar", 1), broker_epoch=200)
    broker.handlers.registered(200)
    broker.update(metadata_state("baz", 0), broker_epoch=200)
    broker.update(metadata_state("baz", 1), broker_epoch=-1)
    assert cache.topics() == ["bar", "baz"]
    assert [p.key for p in cache.partitions("bar")] == [("bar", 1)]
    assert cache.topic_id("foo") is None
