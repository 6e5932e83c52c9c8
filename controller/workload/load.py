"""A whole workload: writers and readers on one topic with one history, until ``stop`` is set."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker_stub.client.connection import Connections
from broker_stub.client.producer import Producer
from controller.workload.history import HistoryFile, load
from controller.workload.readers import Reader
from controller.workload.writers import Progress, Writer
from proto.security.grpc_channels import GrpcTls

FLUSH_S = 0.2


@dataclass(frozen=True)
class Load:
    """Parameters. ``rate``: records per second, summed over writers. ``drain_s``: longest wait at the end, seconds."""

    bootstrap: tuple[str, ...]
    topic: str
    history: Path
    writers: int = 2
    readers: int = 1
    rate: float = 200.0
    value_bytes: int = 100
    acks: int = -1
    request_timeout_ms: int = 3_000
    delivery_timeout_ms: int = 120_000
    drain_s: float = 30.0
    tls: GrpcTls | None = None


async def run(
    load: Load, stop: asyncio.Event, report: Callable[[Progress], None] = lambda _: None
) -> Progress:
    """Write and read until ``stop`` is set and all sends have ended; ``report`` is called every second.

    An existing history file is continued: new writers and readers get new numbers. Raises ClientError if the topic
    cannot be found or an address is permanently refused, MalformedError for an unreadable history, and OSError.
    """
    first_writer, first_reader = _next_numbers(load.history)
    history = HistoryFile(load.history)
    progress = Progress()
    writing_ended = asyncio.Event()
    writers = [
        Writer(
            first_writer + number,
            Producer(
                load.bootstrap,
                load.acks,
                request_timeout_ms=load.request_timeout_ms,
                delivery_timeout_ms=load.delivery_timeout_ms,
                connections=Connections(load.tls),
            ),
            history,
            progress,
            load.topic,
            load.rate / load.writers,
            load.value_bytes,
        )
        for number in range(load.writers)
    ]
    readers = [
        Reader(first_reader + number, list(load.bootstrap), history, progress, load.topic, load.tls)
        for number in range(load.readers)
    ]

    async def write() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for writer in writers:
                    group.create_task(writer.run(stop, load.drain_s))
            await stop.wait()
        finally:
            # Readers end last: they must see the last records.
            writing_ended.set()

    background = asyncio.create_task(_flush_and_report(history, progress, report))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            for reader in readers:
                group.create_task(reader.run(writing_ended, load.drain_s))
    except BaseExceptionGroup as errors:
        raise _first_error(errors) from None
    finally:
        background.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await background
        history.close()
    return progress


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _next_numbers(path: Path) -> tuple[int, int]:
    if not path.exists():
        return 0, 0
    history = load(path)
    writers = max((write.writer for write in history.writes), default=-1)
    readers = max((read.reader for read in history.reads), default=-1)
    return writers + 1, readers + 1


async def _flush_and_report(
    history: HistoryFile, progress: Progress, report: Callable[[Progress], None]
) -> None:
    for tick in range(1, 1 << 62):
        await asyncio.sleep(FLUSH_S)
        history.flush()
        if tick % round(1 / FLUSH_S) == 0:
            report(progress)
