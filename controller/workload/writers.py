"""Writers: they send numbered records at a steady rate to all partitions of a topic; the history has each result."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from broker_stub.client.errors import DeliveryError
from broker_stub.client.producer import Producer
from controller.workload.history import Begun, Ended, HistoryFile, content_of, value_of

#: Unanswered sends of one writer: more would only queue behind a partition without a leader.
OUTSTANDING_MAX = 1000


@dataclass
class Progress:
    """Counts so far, shared by all writers and readers of a workload."""

    begun: int = 0
    acknowledged: int = 0
    given_up: int = 0
    read: int = 0

    def __str__(self) -> str:
        return (
            f"{self.begun} sent, {self.acknowledged} acknowledged, {self.given_up} given up, {self.read} read"
        )


class Writer:
    """One writer: ``rate`` records per second of ``value_bytes`` each, to the partitions in turn.

    A record is flushed to the history file before it is sent, so that the history has every sent record even if this
    process is killed.
    """

    def __init__(
        self,
        writer: int,
        producer: Producer,
        history: HistoryFile,
        progress: Progress,
        topic: str,
        rate: float,
        value_bytes: int,
    ) -> None:
        self._id, self._producer, self._history, self._progress = writer, producer, history, progress
        self._topic, self._rate, self._value_bytes = topic, rate, value_bytes
        self._slots = asyncio.Semaphore(OUTSTANDING_MAX)
        self._outstanding: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event, drain_s: float) -> None:
        """Write until ``stop`` is set, then wait up to ``drain_s`` for unanswered sends and give up the rest.

        Raises ClientError if no broker knows the topic.
        """
        partitions = await self._producer.metadata.partitions_of(self._topic, 60.0)
        try:
            await self._write(partitions, stop)
        finally:
            if self._outstanding:
                await asyncio.wait(self._outstanding, timeout=drain_s)
            # Fails unanswered sends, so that the history has their ends too.
            await self._producer.close()
            await asyncio.gather(*self._outstanding)

    async def _write(self, partitions: list[int], stop: asyncio.Event) -> None:
        began = time.monotonic()
        for sequence in itertools.count():
            ahead = began + sequence / self._rate - time.monotonic()
            if ahead > 0:
                try:
                    async with asyncio.timeout(ahead):
                        await stop.wait()
                except TimeoutError:
                    pass
            else:
                # A writer that is behind its rate must yield, too.
                await asyncio.sleep(0)
            if not await self._acquire_slot(stop):
                return
            # Writers start at different partitions.
            partition = partitions[(sequence + self._id) % len(partitions)]
            task = asyncio.create_task(self._send(sequence, partition))
            self._outstanding.add(task)
            task.add_done_callback(self._outstanding.discard)

    async def _acquire_slot(self, stop: asyncio.Event) -> bool:
        """Wait for a slot for one more send; False as soon as ``stop`` is set."""
        if not self._slots.locked() and not stop.is_set():
            return await self._slots.acquire()
        waits = [asyncio.ensure_future(self._slots.acquire()), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not stop.is_set()

    async def _send(self, sequence: int, partition: int) -> None:
        value = value_of(self._id, sequence, self._value_bytes)
        crc = content_of(value).crc
        self._history.add(Begun(self._id, sequence, self._topic, partition, crc, now_us()))
        self._history.flush()
        self._progress.begun += 1
        try:
            delivery = await self._producer.deliver(self._topic, partition, [(None, value)])
            ended = Ended(self._id, sequence, delivery.attempts, now_us(), delivery.offset)
            self._progress.acknowledged += 1
        except DeliveryError as error:
            ended = Ended(self._id, sequence, error.attempts, now_us(), None, str(error))
            self._progress.given_up += 1
        finally:
            self._slots.release()
        self._history.add(ended)


def now_us() -> int:
    return time.time_ns() // 1000
