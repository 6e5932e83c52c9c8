"""Readers: they read all partitions of a topic from the beginning, and store each record in the history."""

from __future__ import annotations

import asyncio

from broker_stub.client.connection import Connections
from broker_stub.client.consumer import EARLIEST, ConsumedRecord, Consumer, Truncation
from broker_stub.client.errors import ClientError
from controller.workload.history import HistoryFile, Noted, Read, content_of
from controller.workload.writers import Progress, now_us
from proto.security.grpc_channels import GrpcTls

POLL_MS = 200
PAUSE_S = 0.2


class Reader:
    """One reader. It notes truncations and errors in the history, and continues."""

    def __init__(
        self,
        reader: int,
        bootstrap: list[str],
        history: HistoryFile,
        progress: Progress,
        topic: str,
        tls: GrpcTls | None,
    ) -> None:
        self._id, self._history, self._progress, self._topic = reader, history, progress, topic
        self._consumer = Consumer(
            bootstrap, reset="earliest", on_truncation=self._truncated, connections=Connections(tls)
        )

    async def run(self, stop: asyncio.Event, drain_s: float) -> None:
        """Read until ``stop`` is set, and then until a poll finds no records, at most ``drain_s`` longer.

        Raises ClientError if no broker knows the topic.
        """
        try:
            partitions = await self._consumer.metadata.partitions_of(self._topic, 60.0)
            await self._consumer.assign({(self._topic, number): EARLIEST for number in partitions}, 60.0)
            while not stop.is_set():
                await self._poll()
            try:
                async with asyncio.timeout(drain_s):
                    while await self._poll():
                        pass
            except TimeoutError:
                self._note("stopped before the end was read")
        finally:
            await self._consumer.close()

    async def _poll(self) -> bool:
        """Poll once. Returns whether there may be more records."""
        try:
            records = await self._consumer.poll(POLL_MS)
        except ClientError as error:
            self._note(f"{type(error).__name__}: {error}")
            await asyncio.sleep(PAUSE_S)
            return True
        at_us = now_us()
        for record in records:
            self._history.add(self._line(record, at_us))
        self._progress.read += len(records)
        return bool(records)

    def _line(self, record: ConsumedRecord, at_us: int) -> Read:
        return Read(
            self._id,
            record.topic,
            record.partition,
            record.offset,
            *content_of(record.value),
            record.high_watermark,
            at_us,
        )

    def _truncated(self, truncation: Truncation) -> None:
        self._note(
            f"{truncation.topic}-{truncation.partition}: read to {truncation.position}, "
            f"and the log now ends at {truncation.end_offset}"
        )

    def _note(self, text: str) -> None:
        self._history.add(Noted(f"reader {self._id}: {text}", now_us()))
