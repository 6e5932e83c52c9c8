"""Requests to a broker: BrokerControl and BrokerData, from bytes to bytes.

What is no message is UnreadableRequest naming the type; everything else is answered, with error codes that are Kafka's
and words where the response has room for them. Records that control requests leave in the state-change log are such
as readers of the log take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from google.protobuf.message_factory import GetMessageClass

from broker_stub.control.handlers import UnreadableRequest
from broker_stub.group.messages import OffsetKey, OffsetValue, encode
from broker_stub.log import batches
from controller.analysis import lines
from proto.gen import broker_control_pb2 as control
from proto.gen import broker_data_pb2 as data
from proto.gen import common_pb2 as codes
from proto.statelog.writer import envelope
from tests.provers.fuzz.fuzzed_broker import OFFSETS, FuzzedBroker
from tests.provers.fuzz.harness import Outcome, Target, UnclearError
from tests.provers.fuzz.mutation import chooser, choosing, chosen, message_mutator
from tests.provers.fuzz.targets_controller import outcome, requests_strategy
from tests.provers.fuzz.virtual import FreshProcess
from tests.support.broker.builders import ID_X, BrokerHarness, leader_state, live, metadata_state, stop_state
from tests.support.runtime.random_messages import Known

TEXTS = ("foo", "foo", "bar", OFFSETS, "g", "m", "range", "consumer", ID_X, "")
NUMBERS = (0, 1, 2, 3, -1, -2, 5, 100, 1000, 10_000)
_RECORDS: Any = data.Records.DESCRIPTOR
KNOWN = Known(TEXTS, NUMBERS, NUMBERS, [_RECORDS])
#: OutOfSequence and refusals to store are told so.
ERRORS = dict(zip(codes.ErrorCode.values(), codes.ErrorCode.keys(), strict=True))
BATCH = batches.encode([(b"k", b"v"), (None, None)], 1000)
_OFFSET = batches.encode(
    [
        (
            encode(OffsetKey(group="g", topic="foo", partition=0)),
            encode(OffsetValue(offset=1, leader_epoch=1, metadata="", commit_timestamp_ms=1)),
        )
    ],
    1,
)
_HEADER: dict[str, Any] = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": 1, "event_id": 1}


# --- control ---------------------------------------------------------------------------------------------------

CONTROL = control.DESCRIPTOR.services_by_name["BrokerControl"]
CONTROL_SEEDS: dict[str, Sequence[Any]] = {
    "LeaderAndIsr": [
        control.LeaderAndIsrRequest(
            **_HEADER,
            topic_ids={"foo": ID_X},
            partition_states=[leader_state(), leader_state("bar", 1, leader=1, leader_epoch=2)],
        )
    ],
    "StopReplica": [
        control.StopReplicaRequest(**_HEADER, partition_states=[stop_state(), stop_state("foo", 1, 0, True)])
    ],
    "UpdateMetadata": [
        control.UpdateMetadataRequest(
            **_HEADER, live_brokers=live(0, 1), topic_ids={"foo": ID_X}, partition_states=[metadata_state()]
        )
    ],
}


def _check_control(raw: bytes) -> Outcome:
    methods = list(CONTROL_SEEDS)
    index, body = chosen(raw, len(methods))
    broker = BrokerHarness()
    broker.lead(leader_state(), leader_state("foo", 1, leader=1))
    handlers = broker.handlers
    handler = {
        "LeaderAndIsr": "leader_and_isr",
        "StopReplica": "stop_replica",
        "UpdateMetadata": "update_metadata",
    }[methods[index]]
    try:
        answer = broker.deliver(handler, body)
    except UnreadableRequest as error:
        _require_unreadable(error, CONTROL.methods_by_name[methods[index]])
        return Outcome.REFUSED
    if answer.error_code == codes.NONE and methods[index] != "UpdateMetadata":
        request: Any = GetMessageClass(CONTROL.methods_by_name[methods[index]].input_type).FromString(body)
        asked = {(state.topic, state.partition) for state in request.partition_states}
        answered = {(error.topic, error.partition) for error in answer.partition_errors}
        assert answered == asked, f"asked of {asked}, answered of {answered}"
    msgspec.json.encode(handlers.describe())
    for record in broker.log.records:
        line = msgspec.json.encode({**envelope("broker", 0, 1_700_000_000_000_000, -1, 0, "x"), **record})
        try:
            lines._decode(line)
        except ValueError as error:
            raise AssertionError(f"{error}: {line!r}") from None
    return outcome(answer, ERRORS)


def _require_unreadable(error: UnreadableRequest, method: Any) -> None:
    if method.input_type.name not in str(error) or len(str(error)) > 1000:
        raise UnclearError(f"does not name {method.input_type.name}: {error}")


# --- data ------------------------------------------------------------------------------------------------------

DATA = data.DESCRIPTOR.services_by_name["BrokerData"]
_FOO: dict[str, Any] = {"topic": "foo", "partition": 0}
_MEMBER: dict[str, Any] = {"group_id": "g", "member_id": "", "generation_id": -1}
DATA_SEEDS: dict[str, Sequence[Any]] = {
    "Produce": [
        data.ProduceRequest(
            acks=acks, timeout_ms=100, partitions=[data.ProducePartition(**_FOO, records=BATCH)]
        )
        for acks in (-1, 0, 1)
    ]
    + [
        data.ProduceRequest(
            acks=1, partitions=[data.ProducePartition(topic=OFFSETS, partition=0, records=_OFFSET)]
        )
    ],
    "Fetch": [
        data.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1000,
            replica_id=replica,
            partitions=[
                data.FetchPartition(
                    **_FOO,
                    fetch_offset=1,
                    partition_max_bytes=1000,
                    current_leader_epoch=1,
                    last_fetched_epoch=1,
                )
            ],
        )
        for wait_ms, replica in ((0, None), (500, 1))
    ],
    "ListOffsets": [
        data.ListOffsetsRequest(
            partitions=[data.ListOffsetsPartition(**_FOO, timestamp=at) for at in (-1, -2, 5)]
        )
    ],
    "OffsetsForLeaderEpoch": [
        data.OffsetsForLeaderEpochRequest(
            partitions=[data.OffsetForLeaderEpochPartition(**_FOO, leader_epoch=1)]
        )
    ],
    "Metadata": [data.MetadataRequest(topics=["foo"]), data.MetadataRequest()],
    "FindCoordinator": [data.FindCoordinatorRequest(group_id="g")],
    "JoinGroup": [
        data.JoinGroupRequest(
            group_id="g",
            client_id="c",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[data.GroupProtocol(name="range", metadata=b"{}")],
        )
    ],
    "SyncGroup": [data.SyncGroupRequest(**_MEMBER)],
    "Heartbeat": [data.HeartbeatRequest(**_MEMBER)],
    "LeaveGroup": [data.LeaveGroupRequest(group_id="g", member_id="m")],
    "OffsetCommit": [
        data.OffsetCommitRequest(
            **_MEMBER, offsets=[data.CommittedOffset(**_FOO, offset=1, leader_epoch=1, metadata="x")]
        )
    ],
    "OffsetFetch": [
        data.OffsetFetchRequest(group_id="g", partitions=[data.TopicPartition(**_FOO)]),
        data.OffsetFetchRequest(group_id="g"),
    ],
}


def _check_data(worlds: FreshProcess[FuzzedBroker], raw: bytes) -> Outcome:
    methods = list(DATA_SEEDS)
    index, body = chosen(raw, len(methods))
    method = DATA.methods_by_name[methods[index]]
    try:
        answer = worlds.call(method.name, body)
    except UnreadableRequest as error:
        _require_unreadable(error, method)
        return Outcome.REFUSED
    return outcome(GetMessageClass(method.output_type).FromString(answer), ERRORS)


def _target(
    name: str, service: Any, seeds: dict[str, Sequence[Any]], check: Callable[[bytes], Outcome], **more: Any
) -> Target:
    kinds = [service.methods_by_name[method].input_type for method in seeds]
    return Target(
        name,
        check,
        [choosing(i, r.SerializeToString()) for i, rs in enumerate(seeds.values()) for r in rs],
        chooser([message_mutator(kind, TEXTS, NUMBERS) for kind in kinds]),
        requests_strategy(kinds, KNOWN),
        **more,
    )


_worlds = FreshProcess(FuzzedBroker)
TARGETS = (
    _target("broker-control-rpc", CONTROL, CONTROL_SEEDS, _check_control, weight=4, quick=80),
    _target(
        "broker-data-rpc",
        DATA,
        DATA_SEEDS,
        partial(_check_data, _worlds),
        weight=3,
        quick=60,
        end=_worlds.end,
    ),
)
