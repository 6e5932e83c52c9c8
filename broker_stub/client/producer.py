"""Producer: batches records per partition, with one request in flight per partition, and retries.

At least once: a request whose response is lost may have been appended. It is sent again, so records may be in the log
twice. The producer counts and reports how many requests may have been appended. With one request in flight per
partition, the first copies of records are in the order in which they were sent, unless a send failed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_stub.client.connection import Connections
from broker_stub.client.errors import (
    NOT_APPENDED,
    ClientError,
    DeliveryError,
    FatalError,
    RetriableError,
    UnreachableError,
    error_of,
)
from broker_stub.client.metadata import Key, Leader, Metadata, backoff_s
from broker_stub.client.partitioner import StickyPartitioner
from broker_stub.log import batches
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.tasks import end_all

ACKS = (-1, 0, 1)
#: Added to the request's own timeout for the timeout of the call.
ANSWER_SLACK_S = 1.0

Records = Sequence[tuple[bytes | None, bytes | None]]


class Delivery(NamedTuple):
    """Acknowledged records. ``offset``: of the first one (-1 with acks 0). ``attempts``: requests that may have been
    appended."""

    offset: int
    attempts: int


@dataclass(eq=False)
class _Send:
    """Records waiting for acknowledgement. ``copies``: requests with them that may have been appended."""

    records: Records
    size: int
    deadline: float
    done: asyncio.Future[Delivery]
    copies: int = 0


@dataclass(eq=False)
class _PartitionQueue:
    """One partition's sends, in order. ``changed`` is set when one is added; ``last_error``: of the last attempt."""

    waiting: deque[_Send] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    last_error: str = ""

    def closed(self, key: Key) -> FatalError:
        """The error of sends that are not acknowledged when the producer is closed."""
        reason = f"; last error: {self.last_error}" if self.last_error else ""
        return FatalError(codes.REQUEST_TIMED_OUT, f"Produce {key[0]}-{key[1]}", f"closed{reason}")


class Producer:
    """Sends records to partition leaders.

    ``bootstrap``: addresses, host:port. ``acks``: -1, wait for all in-sync replicas; 1, for the leader; 0, for none.
    ``batch_bytes``: limit of a request. ``request_timeout_ms``: how long the broker waits for in-sync replicas.
    ``delivery_timeout_ms``: how long a send is retried.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        acks: int = -1,
        *,
        batch_bytes: int = 256 * 1024,
        request_timeout_ms: int = 5_000,
        delivery_timeout_ms: int = 120_000,
        connections: Connections | None = None,
    ) -> None:
        if acks not in ACKS:
            raise ValueError(f"acks = {acks}: must be one of {', '.join(map(str, ACKS))}")
        self._connections = connections or Connections()
        self.metadata = Metadata(self._connections, bootstrap)
        self._acks, self._batch_bytes = acks, batch_bytes
        self._request_timeout_s = request_timeout_ms / 1000
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._queues: dict[Key, _PartitionQueue] = {}
        self._partitioner = StickyPartitioner(batch_bytes)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def choose_partition(self, topic: str, key: bytes | None, size: int) -> int:
        """The partition of a record: by its key, else any. Raises GaveUpError for a topic that no broker knows."""
        partitions = await self.metadata.partitions_of(topic, self._delivery_timeout_s)
        return self._partitioner.choose(key, size, partitions)

    async def send(self, topic: str, partition: int, records: Records) -> int:
        """Send records and wait for the acknowledgement. Returns the first offset. Raises DeliveryError."""
        return (await self.deliver(topic, partition, records)).offset

    async def deliver(self, topic: str, partition: int, records: Records) -> Delivery:
        """As `send`, with the number of requests that may have been appended. Raises DeliveryError.

        Sends to one partition are appended in the order of the calls. A send is never split; it may share a
        request with others.
        """
        if not records:
            raise ValueError("records: must be at least one")
        size = sum(len(key or b"") + len(value or b"") + 16 for key, value in records)
        loop = asyncio.get_running_loop()
        send = _Send(records, size, time.monotonic() + self._delivery_timeout_s, loop.create_future())
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = _PartitionQueue()
            queue.task = asyncio.create_task(self._work((topic, partition), queue))
        queue.waiting.append(send)
        queue.changed.set()
        return await send.done

    async def close(self) -> None:
        """Stop at once: sends that are not acknowledged fail with DeliveryError."""
        await end_all(queue.task for queue in self._queues.values() if queue.task is not None)
        for key, queue in self._queues.items():
            _fail(queue.waiting, queue.closed(key))
        self._queues.clear()
        await self.metadata.close()
        await self._connections.close()

    async def _work(self, key: Key, queue: _PartitionQueue) -> None:
        """Send waiting records, one request at a time, until cancelled."""
        while True:
            while not queue.waiting:
                queue.changed.clear()
                await queue.changed.wait()
            taken = [queue.waiting.popleft()]
            size = taken[0].size
            while queue.waiting and size + queue.waiting[0].size <= self._batch_bytes:
                size += queue.waiting[0].size
                taken.append(queue.waiting.popleft())
            try:
                await self._deliver(key, queue, taken)
                queue.last_error = ""
            except asyncio.CancelledError:
                _fail(taken, queue.closed(key))
                raise

    async def _deliver(self, key: Key, queue: _PartitionQueue, sends: list[_Send]) -> None:
        """Retry until acknowledged, refused with a fatal error, or timed out; completes each send."""
        data = batches.encode(
            [record for send in sends for record in send.records], time.time_ns() // 1_000_000
        )
        deadline = sends[0].deadline
        failures = 0
        while True:
            try:
                offset = await self._attempt(key, data, sends, deadline)
                break
            except RetriableError as error:
                queue.last_error = str(error)
                pause = backoff_s(failures)
                if time.monotonic() + pause >= deadline:
                    _fail(sends, error)
                    return
            except FatalError as error:
                if error.code == codes.MESSAGE_TOO_LARGE and len(sends) > 1:
                    for send in sends:
                        await self._deliver(key, queue, [send])
                else:
                    _fail(sends, error)
                return
            failures += 1
            await asyncio.sleep(pause)
            await self.metadata.try_refresh()
        for send in sends:
            if not send.done.done():
                send.done.set_result(Delivery(offset, send.copies))
            offset += len(send.records) if offset >= 0 else 0

    async def _attempt(self, key: Key, data: bytes, sends: list[_Send], deadline: float) -> int:
        """One request. Returns the offset. Counts in ``copies`` if it may have been appended. Raises ClientError."""
        leader = await self.metadata.leader(key)
        wait_s = min(self._request_timeout_s, max(deadline - time.monotonic(), 0.001))
        request = wire.ProduceRequest(
            acks=self._acks,
            timeout_ms=int(wait_s * 1000),
            partitions=[wire.ProducePartition(topic=key[0], partition=key[1], records=data)],
        )
        for send in sends:
            send.copies += 1
        try:
            response = await self._connections.call(
                leader.address, "Produce", request, wire.ProduceResponse, wait_s + ANSWER_SLACK_S
            )
            return self._read(key, leader, response)
        except ClientError as error:
            if _not_appended(error):
                for send in sends:
                    send.copies -= 1
            raise

    def _read(self, key: Key, leader: Leader, response: wire.ProduceResponse) -> int:
        if self._acks == 0:
            return -1
        asked = f"Produce {key[0]}-{key[1]} of broker {leader.broker_id} at {leader.address}"
        for answer in response.partitions:
            if (answer.topic, answer.partition) == key:
                if answer.error_code == codes.NONE:
                    return answer.base_offset
                if answer.error_code == codes.NOT_LEADER_OR_FOLLOWER:
                    self.metadata.notified(key, answer.leader, answer.leader_epoch)
                raise error_of(answer.error_code, asked, answer.error_message)
        raise UnreachableError(asked, "the response does not name the partition", sent=True)


def _not_appended(error: ClientError) -> bool:
    if isinstance(error, UnreachableError):
        return not error.sent
    return error.code in NOT_APPENDED


def _fail(sends: Sequence[_Send], error: ClientError) -> None:
    for send in sends:
        if not send.done.done():
            send.done.set_exception(DeliveryError(error.code, error.asked, error.detail, send.copies))
            # Retrieve the exception: the caller may have stopped waiting.
            send.done.exception()
