"""Any requests in any order: what must hold whatever is sent (reference, section 10)."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_stub.control.handlers import UnreadableRequest
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness

epochs = st.integers(-3, 6)
broker_ids = st.lists(st.integers(-1, 3), max_size=3)
keys = {"topic": st.sampled_from(["foo", "bar", "a/b", ""]), "partition": st.integers(-1, 2)}
topic_ids = st.dictionaries(st.sampled_from(["foo", "bar"]), st.sampled_from(["", ID_X, ID_Y, "bad"]))
header = {
    "controller_id": st.integers(-1, 1),
    "controller_epoch": epochs,
    "broker_epoch": st.sampled_from([-1, -1, 9, 10, 11]),
    "event_id": st.integers(-1, 3),
}
lead_requests = st.builds(
    wire.LeaderAndIsrRequest,
    **header,
    topic_ids=topic_ids,
    partition_states=st.lists(
        st.builds(
            wire.LeaderAndIsrPartitionState,
            **keys,
            controller_epoch=epochs,
            leader=epochs,
            leader_epoch=epochs,
            partition_epoch=epochs,
            isr=broker_ids,
            replicas=st.one_of(broker_ids, st.just([0, 1, 2])),
            leader_recovery_state=st.integers(0, 2),
        ),
        max_size=4,
    ),
)
stop_requests = st.builds(
    wire.StopReplicaRequest,
    **header,
    partition_states=st.lists(
        st.builds(
            wire.StopReplicaPartitionState, **keys, leader_epoch=epochs, delete_partition=st.booleans()
        ),
        max_size=4,
    ),
)
update_requests = st.builds(
    wire.UpdateMetadataRequest,
    **header,
    topic_ids=topic_ids,
    live_brokers=st.lists(st.builds(wire.LiveBroker, broker_id=st.integers(-1, 3)), max_size=3),
    partition_states=st.lists(
        st.builds(
            wire.UpdateMetadataPartitionState, **keys, leader=epochs, leader_epoch=epochs, replicas=broker_ids
        ),
        max_size=4,
    ),
)
METHODS = {
    wire.LeaderAndIsrRequest: "leader_and_isr",
    wire.StopReplicaRequest: "stop_replica",
    wire.UpdateMetadataRequest: "update_metadata",
}


def deliver(broker: BrokerHarness, request: Message) -> Any:
    return broker.deliver(METHODS[type(request)], request.SerializeToString())


@settings(max_examples=8 * settings().max_examples)
@given(st.lists(st.one_of(lead_requests, stop_requests, update_requests), max_size=12))
def test_any_sequence_of_requests_keeps_the_invariants(requests: list[Message]) -> None:
    """Nothing crashes; the controller epoch and a hosted replica's epochs never go back."""
    broker = BrokerHarness()
    broker.handlers.registered(10)
    for request in requests:
        before = {replica.key: replica for replica in broker.handlers.replicas}
        controller_epoch = broker.handlers.gate.controller_epoch
        response = deliver(broker, request)
        assert broker.handlers.gate.controller_epoch >= controller_epoch
        for replica in broker.handlers.replicas:
            known = before.get(replica.key)
            if known is None:
                continue
            assert replica.leader_epoch >= known.leader_epoch
            assert replica.partition_epoch >= known.partition_epoch
            assert known.topic_id in (None, replica.topic_id)
            if replica.leader_epoch == known.leader_epoch:
                assert replica.leader == known.leader
        if hasattr(response, "partition_errors") and response.error_code == codes.NONE:
            sent = [(s.topic, s.partition) for s in request.partition_states]  # type: ignore[attr-defined]
            assert [(e.topic, e.partition) for e in response.partition_errors] == sent


@settings(max_examples=4 * settings().max_examples)
@given(
    st.lists(st.one_of(lead_requests, stop_requests, update_requests), max_size=5),
    st.one_of(lead_requests, stop_requests, update_requests),
)
def test_a_repeated_request_changes_nothing_more(history: list[Message], request: Message) -> None:
    broker = BrokerHarness()
    for earlier in history:
        deliver(broker, earlier)
    deliver(broker, request)
    once = broker.handlers.describe()
    deliver(broker, request)
    assert broker.handlers.describe() == once


@settings(max_examples=4 * settings().max_examples)
@given(st.binary(max_size=200), st.sampled_from(sorted(METHODS.values())))
def test_any_bytes_are_answered_or_refused(message: bytes, method: str) -> None:
    broker = BrokerHarness()
    before = broker.handlers.describe()
    try:
        answer = broker.deliver(method, message)
    except UnreadableRequest:
        assert broker.handlers.describe() == before
    else:
        assert isinstance(answer, Message)
        assert "error_code" in answer.DESCRIPTOR.fields_by_name
