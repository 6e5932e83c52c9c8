"""Read-only inspection of a replica's folder: nothing is repaired or written, and the broker may be running."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from broker_stub.log import batches
from broker_stub.log.batches import Batch, BatchError, DecodedRecord
from broker_stub.log.checkpoints import LEADER_EPOCHS, read_epochs
from broker_stub.log.errors import CheckpointFault, LogFault
from broker_stub.log.recovery import list_segments
from broker_stub.log.segment import walk

_SHOWN_BYTES = 60


class ScannedBatch(NamedTuple):
    """An undamaged batch: ``batch`` has its position in ``file``, ``data`` its bytes."""

    file: Path
    batch: Batch
    data: bytes


class ScanProblem(NamedTuple):
    """A problem at a position. After damage, the rest of that file is not read."""

    file: Path
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason}"


def scan(path: Path) -> Iterator[ScannedBatch | ScanProblem]:
    """Check and return every batch of a replica's folder in order, and every problem found.

    Offsets must be consecutive over all segments, leader epochs must not decrease, records must match the
    headers. The end of a log that is being written may look truncated. Raises LogFault when the folder
    or a file cannot be read.
    """
    try:
        names, problems = list_segments(path)
        for problem in problems:
            yield ScanProblem(path, 0, problem)
        next_offset = names[0][0] if names else 0
        latest_epoch = -1
        for base_offset, name in names:
            if base_offset != next_offset:
                reason = f"begins at offset {base_offset}, but the log before it ends at {next_offset}"
                yield ScanProblem(path / name, 0, reason)
                next_offset = base_offset
            for found in _scan_segment(path / name, base_offset, latest_epoch):
                if isinstance(found, ScannedBatch):
                    next_offset, latest_epoch = found.batch.next_offset, found.batch.leader_epoch
                yield found
    except OSError as error:
        raise LogFault(f"{path}: cannot be read: {error}") from error


def _scan_segment(file: Path, base_offset: int, latest_epoch: int) -> Iterator[ScannedBatch | ScanProblem]:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for batch, data in walk(fd, 0, os.fstat(fd).st_size, base_offset, latest_epoch, check=True):
            try:
                batches.body_of(data, batch._replace(start=0, end=len(data)))
            except BatchError as error:
                yield ScanProblem(file, batch.start, error.reason)
            yield ScannedBatch(file, batch, data)
    except BatchError as error:
        yield ScanProblem(file, error.position, error.reason)
    finally:
        os.close(fd)


def rows(path: Path, *, with_records: bool = False) -> Iterator[str]:
    """A replica's folder as lines of text: leader epochs, batches, problems, and optionally records.

    Raises LogFault when the folder or a file cannot be read, and when no log is in it.
    """
    try:
        if not any(list_segments(path)):
            raise LogFault(f"{path}: has no segment of a log: must be DATA_DIR/TOPIC-PARTITION")
    except OSError as error:
        raise LogFault(f"{path}: cannot be read: {error}") from error
    yield from _epoch_rows(path / LEADER_EPOCHS)
    file: Path | None = None
    for found in scan(path):
        if isinstance(found, ScanProblem):
            yield f"PROBLEM {found}"
            continue
        if found.file != file:
            file = found.file
            yield file.name
        batch = found.batch
        yield (
            f"  at {batch.start}: offsets {batch.base_offset} to {batch.next_offset - 1}, "
            f"leader epoch {batch.leader_epoch}, {len(found.data)} bytes, "
            f"timestamps {batch.base_timestamp} to {batch.max_timestamp}"
        )
        if with_records:
            yield from _record_rows(found)


def _epoch_rows(file: Path) -> Iterator[str]:
    try:
        entries = read_epochs(file)
    except CheckpointFault as error:
        yield f"PROBLEM {error}"
        return
    if entries is not None:
        yield file.name
        for epoch, start_offset in entries:
            yield f"  leader epoch {epoch} from offset {start_offset}"


def _record_rows(found: ScannedBatch) -> Iterator[str]:
    try:
        for record in batches.decode(found.data, check=False):
            yield f"    {_record_row(record)}"
    except BatchError:
        return  # the scan has already reported it


def _record_row(record: DecodedRecord) -> str:
    headers = "".join(f", header {key[:_SHOWN_BYTES]!r} {_short(value)}" for key, value in record.headers)
    return (
        f"offset {record.offset}, timestamp {record.timestamp}, key {_short(record.key)}, "
        f"value {_short(record.value)}{headers}"
    )


def _short(data: bytes | None) -> str:
    if data is None:
        return "null"
    shown = repr(data[:_SHOWN_BYTES])[1:]
    return shown if len(data) <= _SHOWN_BYTES else f"{shown}... ({len(data)} bytes)"
