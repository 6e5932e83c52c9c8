"""Senders: one per broker incarnation, one request in flight, in order (reference, section 9.2).

A request that cannot be delivered is retried with backoff until the broker is offline or the term is over. A
response is final, also when the broker refuses: that is no acknowledgement, and stays in its status. How a request is
built and sent is the transport's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import structlog

from controller.core.events import DiskReport, StopReport
from controller.core.model import NO_LEADER, Broker, ControlProtocol, Partition
from controller.core.outbox import Outbox, Push, PushKind
from controller.core.records import AuditFinding, LogBatch, PushAcknowledged, PushSent
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.status import SenderStatus
from controller.runtime.push.transport import (
    Answer,
    PartitionError,
    Transport,
    Transports,
    UnreachableError,
)
from proto.error_names import error_name
from proto.gen import common_pb2
from proto.tasks import end_all, failures_to

log = structlog.get_logger(__name__)

#: Partitions taken from the outbox at once: a few milliseconds of encoding.
TAKE_PARTITIONS = 1000
#: While an event is being handled, one push is encoded in this time, but for those that leaders wait for.
BUSY_PAUSE_S = 0.05
#: So few partitions are encoded at once, whatever is being decided.
SMALL_PARTITIONS = 100
#: Pause after so little metadata, in all and for each broker: what changes meanwhile goes in one message. Every broker
#: gets every change, so a cluster where much changes would otherwise be busy with messages of a partition each.
REST_S, REST_FOR_EACH_S = 0.01, 0.00025
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 2.0
#: Partition errors of LeaderAndIsr that are no refusal: the broker already has this leader epoch.
_BENIGN = {common_pb2.NONE, common_pb2.STALE_CONTROLLER_EPOCH}
#: The error of a partition that a response does not mention.
_NOT_ANSWERED = common_pb2.UNKNOWN_SERVER_ERROR
_STORAGE_ERROR = common_pb2.ErrorCode.Name(common_pb2.KAFKA_STORAGE_ERROR)


class Senders:
    """All senders of one term.

    ``require_lease`` raises LeadershipError when nothing may be sent any more. ``record`` takes log batches.
    ``suspect`` is called when a broker refuses a push as stale, with the controller epoch that it knows, 0 where it
    does not say.
    ``report`` receives the partitions on failed disks, and for a broker that reported such before, also those on
    healthy disks; and the result for every partition that a StopReplica request was to delete.
    ``on_bug`` receives the exception of a sender. ``heard`` is called with the broker's id at each answer, ``on_idle``
    when there is nothing left to send.
    """

    def __init__(
        self,
        outbox: Outbox,
        transports: Mapping[ControlProtocol, Transports],
        metrics: ControllerMetrics,
        *,
        require_lease: Callable[[], None],
        record: Callable[[LogBatch], None],
        suspect: Callable[[str, int], None],
        report: Callable[[DiskReport | StopReport], None],
        heard: Callable[[int], None],
        on_bug: Callable[[BaseException], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._outbox, self._transports, self._metrics = outbox, transports, metrics
        self._require_lease, self._record, self._suspect = require_lease, record, suspect
        self._report, self._heard = report, heard
        self._on_bug, self._on_idle = on_bug, on_idle
        self._tasks: dict[int, tuple[Broker, asyncio.Task[None]]] = {}
        self._wake: dict[int, asyncio.Event] = {}
        #: By broker, what ends the wait of a sender that has something to send: of many brokers most wait most of the
        #: time, and each decision would wake them all.
        self._ready: dict[int, Callable[[], bool]] = {}
        self._busy: set[int] = set()
        #: An event is being handled, and the time from which on a push may be encoded meanwhile.
        self._deciding, self._encode_at = False, 0.0
        self.status: dict[int, SenderStatus] = {}

    def sync(self, deciding: bool) -> None:
        """Match the senders to the outbox: start, replace or end them, and wake the rest. ``deciding``: an event is
        being handled."""
        if deciding and not self._deciding:
            self._encode_at = time.monotonic() + BUSY_PAUSE_S
        self._deciding = deciding
        queues, ends = self._outbox.queues, self._outbox.ends
        for id_ in [i for i in self._tasks if i not in queues]:
            self._tasks.pop(id_)[1].cancel()
            del self._wake[id_], self.status[id_]
            self._busy.discard(id_)
        for id_, queue in queues.items():
            running = self._tasks.get(id_)
            if running is None or running[0].epoch != queue.broker.epoch:
                self._start(queue.broker, running[1] if running else None)
            elif running[0] != queue.broker:
                # Same incarnation, other address: the next attempt of the current push goes there.
                self._tasks[id_] = (queue.broker, running[1])
            if queue.is_due(ends):
                if (ready := self._ready.get(id_)) is None or ready():
                    self._wake[id_].set()
                # Until it has looked for something to send.
                self._busy.add(id_)

    def wake(self, broker_id: int) -> None:
        """Something may be pending for a broker that was not when its sender looked."""
        if broker_id in self._wake:
            self._wake[broker_id].set()

    @property
    def busy(self) -> bool:
        """Whether there may be something to send to some broker, or a response is awaited."""
        return bool(self._busy)

    def settled(self, broker_id: int) -> bool:
        """Whether a broker has answered all that was to be sent."""
        return broker_id not in self._busy and not self._outbox.pending(broker_id)

    def unacknowledged(self, partition: Partition) -> str:
        """Why the leader of a partition has not acknowledged that it leads; empty: it has, or there is none."""
        if partition.leadership is None or (leader := partition.leadership.leader) == NO_LEADER:
            return ""
        return self.not_told(leader, partition)

    def not_told(self, broker_id: int, partition: Partition) -> str:
        """Why a broker has not acknowledged the newest LeaderAndIsr of a partition; empty: it has, or needs none."""
        status = self.status.get(broker_id)
        if status is None or self._outbox.owes_leadership(broker_id, partition):
            why = "has not been told yet"
            problem = status.problem if status else ""
        else:
            why, problem = status.why_not_led(partition), ""
        return why and f"broker {broker_id} {why}" + (f" ({problem})" if problem else "")

    def refusal(self, broker_id: int, partition: Partition) -> str:
        """The error's name with which a broker refused LeaderAndIsr of a partition; empty: it did not."""
        status = self.status.get(broker_id)
        return status.not_led.get(partition, "") if status is not None else ""

    def refusals(self) -> Iterator[tuple[int, Partition, str]]:
        """Broker, partition and error of every refused LeaderAndIsr."""
        for broker_id, status in sorted(self.status.items()):
            for partition, error in list(status.not_led.items()):
                yield broker_id, partition, error

    def _start(self, broker: Broker, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            previous.cancel()
        self._wake[broker.id] = asyncio.Event()
        self.status[broker.id] = SenderStatus(broker.epoch)
        task = asyncio.create_task(self._run(broker, previous), name=f"sender-{broker.id}-{broker.epoch}")
        # Also at the lease's end: the term must not go on without it.
        task.add_done_callback(failures_to(self._on_bug))
        self._tasks[broker.id] = (broker, task)

    async def stop(self) -> None:
        """End all senders and drop their queued pushes."""
        await end_all(task for _, task in self._tasks.values())
        self._tasks.clear()

    async def _run(self, broker: Broker, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            # Never two senders for one broker: order would be lost (KAFKA-4959). ``wait`` ignores the exception of
            # the previous sender, but not the cancellation of this one.
            await asyncio.wait([previous])
        transport = self._transports[broker.control_protocol].open()
        wake, status = self._wake[broker.id], self.status[broker.id]
        try:
            while True:
                await self._turn(broker.id)
                push = self._outbox.take(broker.id, TAKE_PARTITIONS)
                if push is None:
                    status.answered()
                    self._busy.discard(broker.id)
                    if not self._busy:
                        for transports in self._transports.values():
                            transports.forget()
                        self._on_idle()
                    wake.clear()
                    await wake.wait()
                    continue
                self._busy.add(broker.id)
                status.begin(push)
                await self._connect(transport, push, status)
                start = 0
                for message, count in list(transport.build(push)):
                    # ``part`` is exact for StopReplica only, whose messages name all partitions of the push in order.
                    await self._deliver(transport, push, message, slice(start, start + count), status)
                    start += count
                small = 0 < len(push.partitions) <= SMALL_PARTITIONS
                if small and push.kind is PushKind.UPDATE_METADATA:
                    await self._rest(broker.id)
        finally:
            await transport.close()

    async def _turn(self, broker_id: int) -> None:
        """Decisions have priority over encoding much that nobody waits for; who gets to lead never waits for it."""

        def ready() -> bool:
            return not self._deciding or not self._outbox.can_wait(broker_id, SMALL_PARTITIONS)

        while not ready():
            if (left_s := self._encode_at - time.monotonic()) <= 0:
                self._encode_at = time.monotonic() + BUSY_PAUSE_S
                return
            await self._wait(broker_id, ready, left_s)

    async def _rest(self, broker_id: int) -> None:
        """Let small changes gather, until there is one that cannot wait, or much besides."""
        outbox = self._outbox

        def ready() -> bool:
            return outbox.is_urgent(broker_id) or outbox.pending_max(broker_id) > SMALL_PARTITIONS

        if not ready():
            await self._wait(broker_id, ready, max(REST_S, REST_FOR_EACH_S * len(self._tasks)))

    async def _wait(self, broker_id: int, ready: Callable[[], bool], most_s: float) -> None:
        """Until the outbox has changed so that ``ready`` holds, or somebody wakes it; for ``most_s`` at most."""
        wake = self._wake[broker_id]
        wake.clear()
        self._ready[broker_id] = ready
        # Not wait_for: before Python 3.12 it loses a cancellation that comes as its wait ends.
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await wake.wait()
        finally:
            self._ready.pop(broker_id, None)

    async def _connect(self, transport: Transport, push: Push, status: SenderStatus) -> None:
        """Connect, however many attempts it takes. Raises LeadershipError when nothing may be sent any more."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                return await transport.connect(self._tasks[push.broker.id][0])
            except UnreachableError as error:
                self._attempt_failed(push, error, status)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
            self._require_lease()

    async def _deliver(
        self, transport: Transport, push: Push, message: bytes, part: slice, status: SenderStatus
    ) -> None:
        """Send one message until a response comes. Raises LeadershipError when nothing may be sent any more."""
        kind, broker, count = push.kind, push.broker, part.stop - part.start
        self._log(push, PushSent(broker.id, kind.value, count))
        backoff_s = BACKOFF_FIRST_S
        while True:
            self._require_lease()
            sent_at = time.monotonic()
            try:
                answer = await transport.send(self._tasks[broker.id][0], push, message)
            except UnreachableError as error:
                self._attempt_failed(push, error, status)
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
                continue
            self._handle_answer(push, answer, part, time.monotonic() - sent_at, status)
            return

    def _attempt_failed(self, push: Push, error: UnreachableError, status: SenderStatus) -> None:
        status.attempts += 1
        status.unreachable = str(error)
        self._metrics.pushes.labels(push.broker.id, push.kind.value, "unreachable").inc()
        # Log failure number 1, 2, 4, 8, ...: visible, but no flood.
        if status.attempts & (status.attempts - 1) == 0:
            log.warning(
                "push_failed",
                broker_id=push.broker.id,
                kind=push.kind.value,
                attempt=status.attempts,
                problem=status.unreachable,
            )

    def _handle_answer(
        self, push: Push, answer: Answer, part: slice, seconds: float, status: SenderStatus
    ) -> None:
        kind, broker, count = push.kind, push.broker, part.stop - part.start
        self._heard(broker.id)
        status.unreachable, status.attempts = "", 0
        self._metrics.push_seconds.labels(broker.id).observe(seconds)
        result, errors = "ok", ""
        if answer.code != common_pb2.NONE:
            result = errors = error_name(answer.code)
            self._refused_whole(push, answer, result, status)
        else:
            status.acknowledge(kind, count, time.monotonic())
            refused = _refused(answer.partition_errors, kind)
            if refused:
                result = "partial"
                errors = ", ".join(f"{name} x{n}" for name, n in sorted(refused.items()))
            if kind is PushKind.LEADER_AND_ISR:
                self._report_refusals(push, _note_leadership(push, answer, status))
                self._report_disks(push, answer, refused, status)
            elif kind is PushKind.STOP_REPLICA:
                status.forget(push.partitions[part])
        if kind is PushKind.STOP_REPLICA:
            self._report_deletions(push, answer, part)
        self._metrics.pushes.labels(broker.id, kind.value, result).inc()
        self._log(push, PushAcknowledged(broker.id, kind.value, count, int(seconds * 1e6), errors))

    def _refused_whole(self, push: Push, answer: Answer, error: str, status: SenderStatus) -> None:
        """The broker has carried out nothing of a message, or only a part that it does not name."""
        stale = answer.code == common_pb2.STALE_CONTROLLER_EPOCH
        status.refuse(push, error, answer.controller_epoch if stale else 0)
        log.warning(
            "push_refused",
            broker_id=push.broker.id,
            kind=push.kind.value,
            error=error,
            known_epoch=answer.controller_epoch or None,
        )
        if stale:
            self._suspect(f"broker {push.broker.id} refused a push as stale", answer.controller_epoch)

    def _report_refusals(self, push: Push, refused: Mapping[Partition, str]) -> None:
        """Record each partition once, until the broker accepts it."""
        findings = [AuditFinding(p, push.broker.id, "refused", error) for p, error in refused.items()]
        if findings:
            self._record(LogBatch(findings, "", push.cause, push.event_id))

    def _report_disks(
        self, push: Push, answer: Answer, refused: dict[str, int], status: SenderStatus
    ) -> None:
        """Report partitions on failed and repaired disks as an event (reference, section 8.5)."""
        status.disk_failed = status.disk_failed or _STORAGE_ERROR in refused
        if not status.disk_failed:
            return
        named = {(p.topic.name, p.number): p for p in push.partitions}
        failed: list[Partition] = []
        healthy: list[Partition] = []
        for topic, number, code in answer.partition_errors:
            partition = named.get((topic, number))
            if partition is None:
                continue
            if code == common_pb2.KAFKA_STORAGE_ERROR:
                failed.append(partition)
            elif code == common_pb2.NONE:
                healthy.append(partition)
        if failed or healthy:
            self._report(DiskReport(push.broker.id, push.broker.epoch, failed, healthy))

    def _report_deletions(self, push: Push, answer: Answer, part: slice) -> None:
        """Report the result for every partition to be deleted as an event. A broker that refuses the whole request
        names no partition, and a partition missing from a response must not leave its topic waiting for ever."""
        flags = push.flags[part]
        requested = (
            push.partitions[part]
            if all(flags)
            else [p for p, delete in zip(push.partitions[part], flags, strict=True) if delete]
        )
        if not requested:
            return
        answers = {(topic, number): code for topic, number, code in answer.partition_errors}
        missing = answer.code if answer.code != common_pb2.NONE else _NOT_ANSWERED
        deleted: list[Partition] = []
        failed: list[tuple[Partition, str]] = []
        for partition in requested:
            code = answers.get((partition.topic.name, partition.number), missing)
            if code == common_pb2.NONE:
                deleted.append(partition)
            else:
                failed.append((partition, error_name(code)))
        self._report(StopReport(push.broker.id, push.broker.epoch, deleted, failed))

    def _log(self, push: Push, record: PushSent | PushAcknowledged) -> None:
        self._record(LogBatch([record], "", push.cause, push.event_id))


def _note_leadership(push: Push, answer: Answer, status: SenderStatus) -> dict[Partition, str]:
    """Remember which partitions of LeaderAndIsr the broker did not accept. A broker that names none accepted all.
    Returns those that it refuses since now, with the error's name."""
    codes = {(topic, number): code for topic, number, code in answer.partition_errors}
    if not codes:
        status.led(push.partitions, {})
        return {}
    named = [p for p in push.partitions if (p.topic.name, p.number) in codes]
    refused = {p: error_name(code) for p in named if (code := codes[p.topic.name, p.number]) not in _BENIGN}
    fresh = {p: error for p, error in refused.items() if status.not_led.get(p) != error}
    status.led([p for p in named if p not in refused], refused)
    return fresh


def _refused(errors: Sequence[PartitionError], kind: PushKind) -> dict[str, int]:
    """Number of partition errors by name, without the benign error of a redundant LeaderAndIsr."""
    fine = _BENIGN if kind is PushKind.LEADER_AND_ISR else {common_pb2.NONE}
    refused: dict[str, int] = {}
    for error in errors:
        if error.code not in fine:
            name = error_name(error.code)
            refused[name] = refused.get(name, 0) + 1
    return refused
