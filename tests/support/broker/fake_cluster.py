"""Brokers without processes or network: logs in memory, a leader for each partition, and faults on demand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from broker_stub.client.connection import Answer, Connections
from broker_stub.client.errors import UnreachableError
from broker_stub.log.errors import LogError
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.memory_log import MemoryLog

TOPIC = "t"


@dataclass
class FakePartition:
    """``water`` None: everything appended may be read."""

    leader: int
    leader_epoch: int = 0
    log: MemoryLog = field(default_factory=MemoryLog)
    water: int | None = None

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset if self.water is None else self.water


@dataclass(frozen=True)
class Fault:
    """What becomes of one request. ``applied``: the broker does it all the same. ``code`` answers, else silence."""

    code: int = codes.NONE
    applied: bool = False


class FakeCluster(Connections):
    """``calls``: method and address of every request, in order. ``faults``: what befalls the next of a method."""

    def __init__(self, brokers: int = 2, partitions: int = 1) -> None:
        super().__init__()
        self.up = dict.fromkeys(range(1, brokers + 1), True)
        self.partitions = {
            (TOPIC, number): FakePartition(number % brokers + 1) for number in range(partitions)
        }
        self.calls: list[tuple[str, str]] = []
        self.faults: dict[str, deque[Fault]] = {}
        #: What befalls every further request of a method, once ``faults`` are used up.
        self.lasting_faults: dict[str, Fault] = {}
        #: Answers to Fetch wait for this.
        self.gate = asyncio.Event()
        self.gate.set()
        #: Answers of one broker that knows an older state of things.
        self.stale: dict[int, wire.MetadataResponse] = {}
        self.handlers: dict[str, Callable[[int, Any], Message]] = {
            "Metadata": self._metadata,
            "Produce": self._produce,
            "Fetch": self._fetch,
            "ListOffsets": self._list_offsets,
            "OffsetsForLeaderEpoch": self._end_of_epoch,
        }

    @property
    def bootstrap(self) -> list[str]:
        return [address(id_) for id_ in self.up]

    def fail(self, method: str, *faults: Fault) -> None:
        self.faults.setdefault(method, deque()).extend(faults)

    def move(self, number: int, leader: int) -> None:
        partition = self.partitions[TOPIC, number]
        partition.leader, partition.leader_epoch = leader, partition.leader_epoch + 1

    def asked(self, method: str) -> list[str]:
        return [where for what, where in self.calls if what == method]

    async def call(
        self, address: str, method: str, request: Message, answer: type[Answer], timeout_s: float
    ) -> Answer:
        self.calls.append((method, address))
        broker = int(address.rpartition(":")[2]) - 9000
        asked = f"{method} at {address}"
        if not self.up.get(broker):
            raise UnreachableError(asked, "connection refused", sent=False)
        fault = self.faults[method].popleft() if self.faults.get(method) else self.lasting_faults.get(method)
        response: Message = answer()
        if fault is None or fault.applied:
            response = self.handlers[method](broker, request)
        if method == "Fetch":
            await self.gate.wait()
        if fault is not None:
            if fault.code == codes.NONE:
                raise UnreachableError(asked, "deadline exceeded", sent=True)
            response = self._refusal(request, fault.code)
        assert isinstance(response, answer)
        return response

    async def close(self) -> None:
        self.calls.append(("close", ""))

    # --- what brokers do -------------------------------------------------------------------------------------

    def _refusal(self, request: Message, code: int) -> Message:
        kinds: dict[type, tuple[type, type]] = {
            wire.ProduceRequest: (wire.ProduceResponse, wire.ProducedPartition),
            wire.FetchRequest: (wire.FetchResponse, wire.FetchedPartition),
            wire.ListOffsetsRequest: (wire.ListOffsetsResponse, wire.ListedOffset),
            wire.OffsetsForLeaderEpochRequest: (
                wire.OffsetsForLeaderEpochResponse, wire.OffsetForLeaderEpoch,
            ),
        }  # fmt: skip
        response, item = kinds[type(request)]
        partitions = request.partitions  # type: ignore[attr-defined]
        refused: Message = response(
            partitions=[item(topic=p.topic, partition=p.partition, error_code=code) for p in partitions]
        )
        return refused

    def _metadata(self, broker: int, _: wire.MetadataRequest) -> wire.MetadataResponse:
        if broker in self.stale:
            return self.stale[broker]
        return wire.MetadataResponse(
            controller_id=1,
            brokers=[
                wire.MetadataBroker(broker_id=id_, host="h", port=9000 + id_)
                for id_, up in self.up.items()
                if up
            ],
            topics=[
                wire.MetadataTopic(
                    topic=TOPIC,
                    partitions=[
                        wire.MetadataPartition(partition=number, leader=p.leader, leader_epoch=p.leader_epoch)
                        for (_, number), p in self.partitions.items()
                    ],
                )
            ],
        )

    def _checked(self, broker: int, item: Any) -> tuple[FakePartition | None, codes.ErrorCode]:
        partition = self.partitions.get((item.topic, item.partition))
        if partition is None:
            return None, codes.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != broker:
            return partition, codes.NOT_LEADER_OR_FOLLOWER
        if "current_leader_epoch" in item.DESCRIPTOR.fields_by_name and item.HasField("current_leader_epoch"):
            if item.current_leader_epoch < partition.leader_epoch:
                return partition, codes.FENCED_LEADER_EPOCH
            if item.current_leader_epoch > partition.leader_epoch:
                return partition, codes.UNKNOWN_LEADER_EPOCH
        return partition, codes.NONE

    def _produce(self, broker: int, request: wire.ProduceRequest) -> wire.ProduceResponse:
        answers = []
        for item in request.partitions:
            partition, code = self._checked(broker, item)
            answer = wire.ProducedPartition(
                topic=item.topic, partition=item.partition, error_code=code, base_offset=-1
            )
            if partition is not None:
                answer.leader, answer.leader_epoch = partition.leader, partition.leader_epoch
                if code == codes.NONE:
                    try:
                        done = partition.log.append_as_leader(item.records, partition.leader_epoch)
                        answer.base_offset = done.first_offset
                    except LogError as error:
                        answer.error_code, answer.error_message = error.error_code, str(error)
            answers.append(answer)
        return wire.ProduceResponse(partitions=answers if request.acks else [])

    def _fetch(self, broker: int, request: wire.FetchRequest) -> wire.FetchResponse:
        answers = []
        for item in request.partitions:
            partition, code = self._checked(broker, item)
            answer = wire.FetchedPartition(topic=item.topic, partition=item.partition, error_code=code)
            if partition is not None:
                answer.leader, answer.leader_epoch = partition.leader, partition.leader_epoch
                if code == codes.NONE:
                    answer.high_watermark = partition.high_watermark
                    try:
                        answer.records = partition.log.read(
                            item.fetch_offset, item.partition_max_bytes, partition.high_watermark
                        )
                    except LogError as error:
                        answer.error_code = error.error_code
            answers.append(answer)
        return wire.FetchResponse(partitions=answers)

    def _list_offsets(self, broker: int, request: wire.ListOffsetsRequest) -> wire.ListOffsetsResponse:
        answers = []
        for item in request.partitions:
            partition, code = self._checked(broker, item)
            answer = wire.ListedOffset(topic=item.topic, partition=item.partition, error_code=code, offset=-1)
            if partition is not None and code == codes.NONE:
                if item.timestamp == -1:
                    answer.offset = partition.high_watermark
                elif item.timestamp == -2:
                    answer.offset = partition.log.log_start_offset
                elif found := partition.log.offset_for_timestamp(item.timestamp, partition.high_watermark):
                    answer.offset = found.offset
            answers.append(answer)
        return wire.ListOffsetsResponse(partitions=answers)

    def _end_of_epoch(
        self, broker: int, request: wire.OffsetsForLeaderEpochRequest
    ) -> wire.OffsetsForLeaderEpochResponse:
        answers = []
        for item in request.partitions:
            partition, code = self._checked(broker, item)
            answer = wire.OffsetForLeaderEpoch(
                topic=item.topic, partition=item.partition, error_code=code, leader_epoch=-1, end_offset=-1
            )
            if partition is not None and code == codes.NONE:
                found = partition.log.end_offset_for_epoch(item.leader_epoch)
                answer.leader_epoch, answer.end_offset = found.epoch, found.end_offset
            answers.append(answer)
        return wire.OffsetsForLeaderEpochResponse(partitions=answers)


def address(broker: int) -> str:
    return f"h:{9000 + broker}"
