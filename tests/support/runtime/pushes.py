"""Brokers that are nothing but a gRPC server under the test's thumb, and senders towards them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from prometheus_client import CollectorRegistry

from controller.core.events import DiskReport, StopReport
from controller.core.model import Broker, Cluster, ControlProtocol, Endpoint, LeaderAndIsr, Partition, Topic
from controller.core.outbox import Outbox
from controller.core.records import LogBatch
from controller.errors import LeadershipError, LeaseExpiredError
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.observe.records import expand
from controller.runtime.push.grpc_transport import GrpcTransports
from controller.runtime.push.sender import Senders
from controller.runtime.push.transport import Transports
from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2

REQUESTS: dict[str, Any] = {
    "LeaderAndIsr": pb.LeaderAndIsrRequest,
    "UpdateMetadata": pb.UpdateMetadataRequest,
    "StopReplica": pb.StopReplicaRequest,
}
Answer = Callable[[str, Any], Awaitable[bytes]]


async def accepted(kind: str, request: Any) -> bytes:
    """Every response type reads nothing as error code NONE."""
    return b""


async def carried_out(kind: str, request: Any) -> bytes:
    """As ``accepted``, and what is to be deleted is said to be deleted."""
    return stopped(request) if kind == "StopReplica" else b""


def stopped(request: Any) -> bytes:
    """The answer of a broker that has stopped every replica it was asked to."""
    done = [common_pb2.PartitionError(topic=s.topic, partition=s.partition) for s in request.partition_states]
    return pb.StopReplicaResponse(partition_errors=done).SerializeToString()


class FakeBroker:
    """Records what arrives; ``answer`` decides what goes back. ``overlaps`` counts requests side by side."""

    def __init__(self, broker_id: int, epoch: int = 1, host: str = "127.0.0.1") -> None:
        self.id, self.epoch, self.host = broker_id, epoch, host
        self.port = 0
        self.received: list[tuple[str, Any]] = []
        self.answer: Answer = accepted
        self.ongoing = 0
        self.overlaps = 0
        self._server: grpc.aio.Server | None = None

    async def start(self) -> FakeBroker:
        """Serve, on the port it had before if there was one."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers: dict[str, Any] = {
            kind: grpc.unary_unary_rpc_method_handler(self._handler(kind, parse.FromString))
            for kind, parse in REQUESTS.items()
        }
        service = "partition_controller.v1.BrokerControl"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.port = server.add_insecure_port(f"{host}:{self.port}")
        await server.start()
        self._server = server
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def _handler(self, kind: str, parse: Callable[[bytes], Any]) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def handle(raw: bytes, context: Any) -> bytes:
            self.overlaps += self.ongoing
            self.ongoing += 1
            try:
                request = parse(raw)
                self.received.append((kind, request))
                return await self.answer(kind, request)
            except StatusError as error:
                await context.abort(error.code, error.details)
                raise
            finally:
                self.ongoing -= 1

        return handle

    def sender_alive(self) -> bool:
        return any(t.get_name() == f"sender-{self.id}-{self.epoch}" for t in asyncio.all_tasks())

    @property
    def incarnation(self) -> Broker:
        return Broker(self.id, self.epoch, (Endpoint("GRPC", "PLAINTEXT", self.host, self.port),))

    def states(self, kind: str) -> list[Any]:
        """All partition entries of one kind of request, in order of arrival."""
        return [entry for got, request in self.received if got == kind for entry in request.partition_states]


@dataclass(frozen=True)
class StatusError(Exception):
    """Let the server end the call with this status."""

    code: grpc.StatusCode
    details: str = ""


@dataclass
class SenderHarness:
    """Senders with an outbox, a cluster of ``brokers``, and everything they report."""

    cluster: Cluster = field(default_factory=lambda: Cluster(100, 7))
    outbox: Outbox = field(default_factory=Outbox)
    records: list[LogBatch] = field(default_factory=list)
    suspicions: list[tuple[str, int]] = field(default_factory=list)
    bugs: list[BaseException] = field(default_factory=list)
    reported: list[DiskReport | StopReport] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    #: Whether a request was on its way each time that nothing was left to send.
    rests: list[bool] = field(default_factory=list)
    lease: bool = True
    message_bytes_max: int = 1_048_576
    request_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        over_grpc = GrpcTransports(self.cluster, self.message_bytes_max, self.request_timeout_s, None)
        self.builder = over_grpc.builder
        self.transports: dict[ControlProtocol, Transports] = {ControlProtocol.GRPC: over_grpc}
        self.senders = Senders(
            self.outbox,
            self.transports,
            ControllerMetrics(self.registry),
            require_lease=self._require_lease,
            record=self.records.append,
            suspect=lambda why, epoch: self.suspicions.append((why, epoch)),
            report=self.reported.append,
            heard=self.heard.append,
            on_bug=self.bugs.append,
            on_idle=lambda: self.rests.append(self.senders.busy),
        )

    @property
    def disks(self) -> list[DiskReport]:
        return [report for report in self.reported if isinstance(report, DiskReport)]

    @property
    def stops(self) -> list[StopReport]:
        return [report for report in self.reported if isinstance(report, StopReport)]

    def _require_lease(self) -> None:
        if not self.lease:
            raise LeaseExpiredError("over")

    def join(self, *brokers: FakeBroker) -> None:
        """New incarnations register."""
        for broker in brokers:
            self.cluster.brokers[broker.id] = broker.incarnation
            self.outbox.add_broker(broker.incarnation, 1, "Test")
        self.outbox.brokers_changed(1, "BrokerChange")

    def push(self, broker_ids: list[int], partitions: list[Partition], event_id: int = 2) -> None:
        """What a decision does: LeaderAndIsr to some, metadata to all."""
        for partition in partitions:
            self.outbox.leader_and_isr([(broker_ids, partition)], False, event_id, "Test")
        self.outbox.update_metadata(partitions, event_id, "Test")
        self.senders.sync(deciding=False)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Log records of a kind."""
        return [row for batch in self.records for row in expand(batch) if row["kind"] == kind]

    def counted(self, broker_id: int, kind: str, result: str) -> float:
        labels = {"broker_id": str(broker_id), "kind": kind, "result": result}
        return self.registry.get_sample_value("partition_controller_pushes_total", labels) or 0.0

    def idle(self) -> bool:
        """Nothing is queued for anybody."""
        return all(self.outbox.pending(id_) == 0 for id_ in self.outbox.queues)

    def answered(self) -> bool:
        """Nothing is queued, and every request is answered; no sender was replaced meanwhile."""
        # What is taken from a queue waits for its connection, and is in no row yet.
        waits = self.senders.busy or not self.idle()
        return not waits and len(self.rows("push")) == len(self.rows("ack"))


@asynccontextmanager
async def sender_harness(*brokers: FakeBroker, **options: Any) -> AsyncIterator[SenderHarness]:
    """Started brokers that have joined; everything is ended afterwards, and no sender died of a bug."""
    made = SenderHarness(**options)
    for broker in brokers:
        await broker.start()
    made.join(*brokers)
    try:
        yield made
        assert [bug for bug in made.bugs if not isinstance(bug, LeadershipError)] == []
    finally:
        await asyncio.wait_for(made.senders.stop(), 10)
        for broker in brokers:
            await broker.stop()


def topic(name: str, count: int, replicas: tuple[int, ...] = (1, 2), topic_id: str = "id") -> list[Partition]:
    """Partitions with durable leadership: leader the first replica, leader epoch 0."""
    made = Topic(name, topic_id)
    for number in range(count):
        partition = made.partitions[number] = Partition(made, number, replicas)
        partition.leadership = LeaderAndIsr(replicas[0], 0, replicas, 0, 7)
    return list(made.partitions.values())


def decide(partition: Partition) -> None:
    """The next durable decision about a partition."""
    assert partition.leadership is not None
    partition.leadership = partition.leadership.successor(
        partition.replicas[0], partition.leadership.isr, 7, 0
    )
