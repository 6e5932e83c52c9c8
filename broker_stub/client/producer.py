"""Writing records: batches for each partition, one request in flight for each, retried until acknowledged or too late.

At least once: a request whose answer is lost may have been appended, and is sent again, so that records may be in
the log twice. What could have landed is counted and told. With one request in flight for a partition, records sent
one after the other are first appended in that order, unless one of them was given up.
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

ACKS = (-1, 0, 1)
#: Added to the broker's own time limit before we stop waiting for its answer.
ANSWER_SLACK_S = 1.0

Records = Sequence[tuple[bytes | None, bytes | None]]


class Delivery(NamedTuple):
    """Acknowledged records. ``offset`` of the first (-1 with acks 0); ``attempts``: requests that could have landed."""

    offset: int
    attempts: int


@dataclass(eq=False)
class _Send:
    """Records waiting for their acknowledgement; ``copies`` counts requests with them that may have landed."""

    records: Records
    size: int
    deadline: float
    done: asyncio.Future[Delivery]
    copies: int = 0


@dataclass(eq=False)
class _Lane:
    """One partition's sends, in order. ``changed`` is set when one is added; ``trouble``: why the last try failed."""

    waiting: deque[_Send] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    trouble: str = ""

    def closed(self, key: Key) -> FatalError:
        """For sends that are under way when the producer is closed."""
        trouble = f"; the last try: {self.trouble}" if self.trouble else ""
        return FatalError(codes.REQUEST_TIMED_OUT, f"Produce {key[0]}-{key[1]}", f"closed{trouble}")


class Producer:
    """Sends records to partition leaders.

    ``bootstrap``: addresses, host:port. ``acks``: -1, all in-sync replicas have it; 1, the leader has it; 0, nobody
    is waited for. ``linger_ms``: how long to wait for more records before a request. ``batch_bytes``: at most this
    much in a request. ``request_timeout_ms``: how long the broker waits for in-sync replicas.
    ``delivery_timeout_ms``: how long a send is tried. ``pending_max``: sends under way at once; further ones wait.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        acks: int = -1,
        *,
        linger_ms: int = 0,
        batch_bytes: int = 256 * 1024,
        request_timeout_ms: int = 5_000,
        delivery_timeout_ms: int = 120_000,
        pending_max: int = 10_000,
        connections: Connections | None = None,
    ) -> None:
        if acks not in ACKS:
            raise ValueError(f"acks = {acks}: must be one of {', '.join(map(str, ACKS))}")
        self._connections = connections or Connections()
        self.metadata = Metadata(self._connections, bootstrap)
        self._acks, self._linger_s, self._batch_bytes = acks, linger_ms / 1000, batch_bytes
        self._request_timeout_s = request_timeout_ms / 1000
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._lanes: dict[Key, _Lane] = {}
        self._room = asyncio.Semaphore(pending_max)
        self._partitioner = StickyPartitioner(batch_bytes)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def choose_partition(self, topic: str, key: bytes | None, size: int) -> int:
        """The partition of a record: by its key, else any. Raises GaveUpError for a topic that nobody knows."""
        partitions = await self.metadata.partitions_of(topic, self._delivery_timeout_s)
        return self._partitioner.choose(key, size, partitions)

    async def send(self, topic: str, partition: int, records: Records) -> int:
        """The offset of the first record, once acknowledged. Raises DeliveryError."""
        return (await self.deliver(topic, partition, records)).offset

    async def deliver(self, topic: str, partition: int, records: Records) -> Delivery:
        """As ``send``, and tells how many requests could have landed. Raises DeliveryError.

        Sends to one partition are appended in the order of these calls. They are never split, but may share a
        request with others.
        """
        if not records:
            raise ValueError("records: must be at least one")
        async with self._room:
            size = sum(len(key or b"") + len(value or b"") + 16 for key, value in records)
            loop = asyncio.get_running_loop()
            send = _Send(records, size, time.monotonic() + self._delivery_timeout_s, loop.create_future())
            lane = self._lanes.get((topic, partition))
            if lane is None:
                lane = self._lanes[topic, partition] = _Lane()
                lane.task = asyncio.create_task(self._work((topic, partition), lane))
            lane.waiting.append(send)
            lane.changed.set()
            return await send.done

    async def close(self) -> None:
        """Stop at once: what is not acknowledged yet fails with DeliveryError."""
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()
        await asyncio.gather(
            *(lane.task for lane in self._lanes.values() if lane.task), return_exceptions=True
        )
        for key, lane in self._lanes.items():
            _fail(lane.waiting, lane.closed(key))
        self._lanes.clear()
        await self.metadata.close()
        await self._connections.close()

    async def _work(self, key: Key, lane: _Lane) -> None:
        """Send what waits, one request after the other, for ever."""
        while True:
            while not lane.waiting:
                lane.changed.clear()
                await lane.changed.wait()
            if self._linger_s:
                await asyncio.sleep(self._linger_s)
            taken = [lane.waiting.popleft()]
            size = taken[0].size
            while lane.waiting and size + lane.waiting[0].size <= self._batch_bytes:
                size += lane.waiting[0].size
                taken.append(lane.waiting.popleft())
            try:
                await self._deliver(key, lane, taken)
                lane.trouble = ""
            except asyncio.CancelledError:
                _fail(taken, lane.closed(key))
                raise

    async def _deliver(self, key: Key, lane: _Lane, sends: list[_Send]) -> None:
        """Try until acknowledged, refused for good, or too late; tells each send."""
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
                lane.trouble = str(error)
                pause = backoff_s(failures)
                if time.monotonic() + pause >= deadline:
                    _fail(sends, error)
                    return
            except FatalError as error:
                if error.code == codes.MESSAGE_TOO_LARGE and len(sends) > 1:
                    for send in sends:
                        await self._deliver(key, lane, [send])
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
        """One request; the offset. Counts in ``copies`` whether it may have landed. Raises ClientError."""
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
            if _cannot_have_landed(error):
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
        raise UnreachableError(asked, "the answer does not name the partition", sent=True)


def _cannot_have_landed(error: ClientError) -> bool:
    if isinstance(error, UnreachableError):
        return not error.sent
    return error.code in NOT_APPENDED


def _fail(sends: Sequence[_Send], error: ClientError) -> None:
    for send in sends:
        if not send.done.done():
            send.done.set_exception(DeliveryError(error.code, error.asked, error.detail, send.copies))
            # Whoever sent it may have stopped waiting: then nobody is there to be told.
            send.done.exception()
