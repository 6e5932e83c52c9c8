"""Senders: one per broker incarnation, one request in flight, in order (reference, section 9.2).

The only module of ``controller.runtime`` with a gRPC client. A request that cannot be delivered is retried with
backoff until the broker is offline or the term is over. A response is final, also when the broker refuses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc
import structlog
from google.protobuf.message import DecodeError

from controller.core.events import DiskReport, StopReport
from controller.core.model import Broker, Partition
from controller.core.outbox import Outbox, Push, PushKind
from controller.core.records import LogBatch, PushAcknowledged, PushSent
from controller.runtime.config import join_address
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.messages import MessageBuilder
from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2
from proto.limits import MESSAGE_LIMITS

log = structlog.get_logger(__name__)

_SERVICE = "/partition_controller.v1.BrokerControl/"
#: Partitions taken from the outbox at once: a few milliseconds of encoding.
TAKE_PARTITIONS = 1000
#: How long encoding waits for the current event to end before it starts anyway.
BUSY_PAUSE_S = 0.05
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 2.0
#: Partition errors of LeaderAndIsr that are no refusal: the broker already has this leader epoch.
_BENIGN = {common_pb2.NONE, common_pb2.STALE_CONTROLLER_EPOCH}
#: The error of a partition that a response does not mention.
_NOT_ANSWERED = common_pb2.UNKNOWN_SERVER_ERROR
_STORAGE_ERROR = common_pb2.ErrorCode.Name(common_pb2.KAFKA_STORAGE_ERROR)

Response = pb.LeaderAndIsrResponse | pb.UpdateMetadataResponse | pb.StopReplicaResponse
_PARSERS: dict[PushKind, Callable[[bytes], Response]] = {
    PushKind.LEADER_AND_ISR: pb.LeaderAndIsrResponse.FromString,
    PushKind.UPDATE_METADATA: pb.UpdateMetadataResponse.FromString,
    PushKind.STOP_REPLICA: pb.StopReplicaResponse.FromString,
}


@dataclass
class SenderStatus:
    """The status of the pushes to one broker, for operators."""

    broker_epoch: int
    acknowledged_requests: int = 0
    acknowledged_partitions: int = 0
    last_acknowledged_at: float | None = None
    #: Why the last attempt failed; empty once one succeeds.
    problem: str = ""
    attempts: int = 0
    #: The broker reported KAFKA_STORAGE_ERROR before: from then on its healthy partitions are reported, too.
    disk_failed: bool = False


class _Line:
    """The channel to one broker, reopened when its address changes."""

    def __init__(self) -> None:
        self._address = ""
        self._channel: grpc.aio.Channel | None = None

    async def to(self, broker: Broker) -> grpc.aio.Channel:
        endpoint = broker.control_endpoint
        address = join_address(endpoint.host, endpoint.port)
        if self._channel is None or address != self._address:
            await self.close()
            self._address = address
            self._channel = grpc.aio.insecure_channel(
                address,
                options=[
                    *MESSAGE_LIMITS,
                    ("grpc.use_local_subchannel_pool", 1),
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.min_reconnect_backoff_ms", 100),
                    ("grpc.max_reconnect_backoff_ms", 1000),
                ],
            )
        return self._channel

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


class Senders:
    """All senders of one term.

    ``require_lease`` raises LeadershipError when nothing may be sent any more. ``record`` takes log batches.
    ``suspect`` is called when a broker knows a newer controller epoch. ``on_disks`` receives the partitions on failed
    disks, and for a broker that reported such before, also those on healthy disks. ``on_stops`` receives the result
    for every partition that a StopReplica request was to delete. ``on_bug`` receives the exception of a sender.
    """

    def __init__(
        self,
        outbox: Outbox,
        builder: MessageBuilder,
        require_lease: Callable[[], None],
        record: Callable[[LogBatch], None],
        suspect: Callable[[str], None],
        metrics: ControllerMetrics,
        request_timeout_s: float,
        on_bug: Callable[[BaseException], None],
        on_disks: Callable[[DiskReport], None],
        on_stops: Callable[[StopReport], None],
    ) -> None:
        self._outbox, self._builder = outbox, builder
        self._require_lease, self._record, self._suspect = require_lease, record, suspect
        self._metrics = metrics
        self._timeout_s = request_timeout_s
        self._on_bug = on_bug
        self._on_disks = on_disks
        self._on_stops = on_stops
        self._tasks: dict[int, tuple[Broker, asyncio.Task[None]]] = {}
        self._wake: dict[int, asyncio.Event] = {}
        self._busy: set[int] = set()
        self._encoding = asyncio.Lock()
        self._idle = asyncio.Event()
        self.status: dict[int, SenderStatus] = {}

    def sync(self, deciding: bool) -> None:
        """Match the senders to the outbox: start, replace or end them, and wake the rest. ``deciding``: an event is
        being handled."""
        if deciding:
            self._idle.clear()
        else:
            self._idle.set()
        queues = self._outbox.queues
        for id_ in [i for i in self._tasks if i not in queues]:
            self._tasks.pop(id_)[1].cancel()
            self._wake.pop(id_, None)
            self.status.pop(id_, None)
            self._busy.discard(id_)
        for id_, queue in queues.items():
            running = self._tasks.get(id_)
            if running is None or running[0].epoch != queue.broker.epoch:
                self._start(queue.broker, running[1] if running else None)
            elif running[0] != queue.broker:
                # Same incarnation, other address: the next attempt of the current push goes there.
                self._tasks[id_] = (queue.broker, running[1])
            self._wake[id_].set()

    @property
    def busy(self) -> bool:
        """Whether a request to some broker is being built, or waits for its response."""
        return bool(self._busy)

    def _start(self, broker: Broker, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            previous.cancel()
        self._wake[broker.id] = asyncio.Event()
        self.status[broker.id] = SenderStatus(broker.epoch)
        task = asyncio.create_task(self._run(broker, previous), name=f"sender-{broker.id}-{broker.epoch}")
        task.add_done_callback(self._ended)
        self._tasks[broker.id] = (broker, task)

    async def stop(self) -> None:
        """End all senders and drop their queued pushes."""
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A sender ended with an exception, the lease's end or a bug: the term must not go on without it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_bug(error)

    async def _run(self, broker: Broker, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            # Never two senders for one broker: order would be lost (KAFKA-4959). ``wait`` ignores the exception of
            # the previous sender, but not the cancellation of this one.
            await asyncio.wait([previous])
        line = _Line()
        wake, status = self._wake[broker.id], self.status[broker.id]
        try:
            while True:
                push = self._outbox.take(broker.id, TAKE_PARTITIONS)
                if push is None:
                    self._busy.discard(broker.id)
                    if not self._busy:
                        self._builder.forget()
                    wake.clear()
                    await wake.wait()
                    continue
                self._busy.add(broker.id)
                async with self._encoding:
                    # Decisions have priority: while an event is being handled, encoding is slowed down.
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes as its wait ends.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(BUSY_PAUSE_S):
                            await self._idle.wait()
                    messages = list(self._builder.build(push))
                start = 0
                for message, count in messages:
                    # ``part`` is exact for StopReplica only, whose messages name all partitions of the push in order.
                    await self._deliver(line, push, message, slice(start, start + count), status)
                    start += count
        finally:
            await line.close()

    async def _deliver(
        self, line: _Line, push: Push, message: bytes, part: slice, status: SenderStatus
    ) -> None:
        """Send one message until a response comes. Raises LeadershipError when nothing may be sent any more."""
        kind, broker, count = push.kind, push.broker, part.stop - part.start
        self._log(push, PushSent(broker.id, kind.value, count))
        backoff_s = BACKOFF_FIRST_S
        while True:
            self._require_lease()
            sent_at = time.monotonic()
            channel = await line.to(self._tasks[broker.id][0])
            # Parsed here: gRPC would turn a response that does not parse into None.
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                _SERVICE + kind.value
            )
            try:
                response = _PARSERS[kind](await method(message, timeout=self._timeout_s))
            except (grpc.aio.AioRpcError, DecodeError) as error:
                status.attempts += 1
                status.problem = _failure(error)
                self._metrics.pushes.labels(broker.id, kind.value, "unreachable").inc()
                # Log failure number 1, 2, 4, 8, ...: visible, but no flood.
                if status.attempts & (status.attempts - 1) == 0:
                    log.warning(
                        "push_failed",
                        broker_id=broker.id,
                        kind=kind.value,
                        attempt=status.attempts,
                        problem=status.problem,
                    )
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
                continue
            self._handle_response(push, response, part, time.monotonic() - sent_at, status)
            return

    def _handle_response(
        self, push: Push, response: Response, part: slice, seconds: float, status: SenderStatus
    ) -> None:
        kind, broker, count = push.kind, push.broker, part.stop - part.start
        status.acknowledged_requests += 1
        status.acknowledged_partitions += count
        status.last_acknowledged_at = time.time()
        status.problem, status.attempts = "", 0
        self._metrics.push_seconds.labels(broker.id).observe(seconds)
        code = response.error_code
        result, errors = "ok", ""
        if code != common_pb2.NONE:
            result = errors = _error_name(code)
            log.warning("push_refused", broker_id=broker.id, kind=kind.value, error=result)
            if code == common_pb2.STALE_CONTROLLER_EPOCH:
                self._suspect(f"broker {broker.id} knows a newer controller epoch")
        elif not isinstance(response, pb.UpdateMetadataResponse):
            refused = _refused(response, kind)
            if refused:
                result = "partial"
                errors = ", ".join(f"{name} x{n}" for name, n in sorted(refused.items()))
            if isinstance(response, pb.LeaderAndIsrResponse):
                self._report_disks(push, response, refused, status)
        if isinstance(response, pb.StopReplicaResponse):
            self._report_deletions(push, response, part)
        self._metrics.pushes.labels(broker.id, kind.value, result).inc()
        self._log(push, PushAcknowledged(broker.id, kind.value, count, int(seconds * 1e6), errors))

    def _report_disks(
        self, push: Push, response: pb.LeaderAndIsrResponse, refused: dict[str, int], status: SenderStatus
    ) -> None:
        """Report partitions on failed and repaired disks as an event (reference, section 8.5)."""
        status.disk_failed = status.disk_failed or _STORAGE_ERROR in refused
        if not status.disk_failed:
            return
        named = {(p.topic.name, p.number): p for p in push.partitions}
        failed: list[Partition] = []
        healthy: list[Partition] = []
        for error in response.partition_errors:
            partition = named.get((error.topic, error.partition))
            if partition is None:
                continue
            if error.error_code == common_pb2.KAFKA_STORAGE_ERROR:
                failed.append(partition)
            elif error.error_code == common_pb2.NONE:
                healthy.append(partition)
        if failed or healthy:
            self._on_disks(DiskReport(push.broker.id, push.broker.epoch, failed, healthy))

    def _report_deletions(self, push: Push, response: pb.StopReplicaResponse, part: slice) -> None:
        """Report the result for every partition to be deleted as an event. A broker that refuses the whole request
        names no partition, and a partition missing from a response must not leave its topic waiting for ever."""
        requested = [p for p, delete in zip(push.partitions[part], push.flags[part], strict=True) if delete]
        if not requested:
            return
        answers = {(e.topic, e.partition): e.error_code for e in response.partition_errors}
        missing = response.error_code if response.error_code != common_pb2.NONE else _NOT_ANSWERED
        deleted: list[Partition] = []
        failed: list[tuple[Partition, str]] = []
        for partition in requested:
            code = answers.get((partition.topic.name, partition.number), missing)
            if code == common_pb2.NONE:
                deleted.append(partition)
            else:
                failed.append((partition, _error_name(code)))
        self._on_stops(StopReport(push.broker.id, push.broker.epoch, deleted, failed))

    def _log(self, push: Push, record: PushSent | PushAcknowledged) -> None:
        self._record(LogBatch([record], "", push.cause, push.event_id))


def _failure(error: grpc.aio.AioRpcError | DecodeError) -> str:
    """Why an attempt failed, as text."""
    if isinstance(error, DecodeError):
        return f"the response does not decode: {error}"
    return f"{error.code().name}: {error.details()}"


def _error_name(code: int) -> str:
    """Kafka's name of an error; an unknown code by number."""
    known = common_pb2.ErrorCode.DESCRIPTOR.values_by_number.get(code)
    return known.name if known else f"error {code}"


def _refused(response: pb.LeaderAndIsrResponse | pb.StopReplicaResponse, kind: PushKind) -> dict[str, int]:
    """Number of partition errors by name, without the benign error of a redundant LeaderAndIsr."""
    fine = _BENIGN if kind is PushKind.LEADER_AND_ISR else {common_pb2.NONE}
    refused: dict[str, int] = {}
    for error in response.partition_errors:
        if error.error_code not in fine:
            name = _error_name(error.error_code)
            refused[name] = refused.get(name, 0) + 1
    return refused
