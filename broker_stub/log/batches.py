"""The record batch: encode, verify, decode, and set the two fields of the leader. Pure. Format: docs/broker.md."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from proto.gen import broker_data_pb2 as wire

MAGIC = 1
#: base_offset, length, leader_epoch, magic, crc.
_PREFIX = struct.Struct(">qiibI")
#: attributes, record_count, base_timestamp, max_timestamp.
_REST = struct.Struct(">hiqq")
_HEADER = struct.Struct(">qiibIhiqq")
#: base_offset, length, record_count: all that stepping over batches needs.
_SPAN = struct.Struct(">qi11xi")
_CRC = struct.Struct(">I")
_CRC_AT = _PREFIX.size - _CRC.size
_OFFSET_AND_EPOCH = struct.Struct(">qii")
HEADER_BYTES = _PREFIX.size + _REST.size
#: Bytes of base_offset and length, which ``length`` does not count.
LENGTH_END = 12
NO_LEADER_EPOCH = -1


class BatchError(ValueError):
    """Bytes that are not a batch. ``position``: in the bytes; ``reason`` names the field and what is allowed."""

    def __init__(self, reason: str, position: int = 0) -> None:
        self.reason, self.position = reason, position
        super().__init__(f"at {position}: {reason}")


class BadRecordsError(BatchError):
    """An undamaged batch whose records contradict its header."""


class Batch(NamedTuple):
    """One batch's header, and its position in the data: ``start`` to before ``end``."""

    base_offset: int
    leader_epoch: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    start: int
    end: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.record_count


class DecodedRecord(NamedTuple):
    """A decoded record. ``timestamp``: ms since 1970; ``key``, ``value`` None: absent."""

    offset: int
    leader_epoch: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """A batch of (key, value) records with one timestamp. Raises BadRecordsError when ``records`` is empty."""
    if not records:
        raise BadRecordsError("record_count is 0: must be 1 or more")
    body = wire.Records(records=[wire.Record(key=key, value=value) for key, value in records])
    return seal(body.SerializeToString(), len(records), timestamp_ms, timestamp_ms, base_offset, leader_epoch)


def seal(
    body: bytes,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Put the header before a serialised ``Records``."""
    covered = _REST.pack(0, record_count, base_timestamp, max_timestamp) + body
    length = HEADER_BYTES - LENGTH_END + len(body)
    return _PREFIX.pack(base_offset, length, leader_epoch, MAGIC, zlib.crc32(covered)) + covered


def read_header(data: bytes | bytearray | memoryview, start: int = 0) -> Batch:
    """The batch at ``start``; the checksum is not verified. Raises BatchError. ``end`` may exceed the data."""
    batch = _read_frame(data, start)
    _check_count(batch)
    return batch


def _read_frame(data: bytes | bytearray | memoryview, start: int) -> Batch:
    """The header; ``record_count`` is not checked yet: a bad count is BadRecordsError only if the checksum is right."""
    if len(data) - start < HEADER_BYTES:
        raise BatchError(f"{len(data) - start} bytes, a batch header has {HEADER_BYTES}: cut short", start)
    base_offset, length, leader_epoch, magic, _, attributes, count, base_timestamp, max_timestamp = (
        _HEADER.unpack_from(data, start)
    )
    if magic != MAGIC:
        raise BatchError(f"magic is {magic}: must be {MAGIC}", start)
    if length < HEADER_BYTES - LENGTH_END:
        raise BatchError(f"length is {length}: must be at least {HEADER_BYTES - LENGTH_END}", start)
    if base_offset < 0:
        raise BatchError(f"base_offset is {base_offset}: must be 0 or more", start)
    if attributes != 0:
        raise BatchError(f"attributes is {attributes}: must be 0", start)
    return Batch(
        base_offset, leader_epoch, count, base_timestamp, max_timestamp, start, start + LENGTH_END + length
    )


def _check_count(batch: Batch) -> None:
    if batch.record_count < 1:
        raise BadRecordsError(f"record_count is {batch.record_count}: must be 1 or more", batch.start)


def read_span(data: bytes, start: int) -> tuple[int, int, int]:
    """Base offset, next offset and end of the batch at ``start``; faster than `read_header`, for a checked log.

    Raises BatchError. ``end`` may exceed the data.
    """
    try:
        base_offset, length, count = _SPAN.unpack_from(data, start)
    except struct.error as error:
        raise BatchError(f"no whole batch header: {error}", start) from error
    if length < HEADER_BYTES - LENGTH_END or count < 1:
        raise BatchError(f"length is {length} and record_count {count}: not a batch", start)
    return base_offset, base_offset + count, start + LENGTH_END + length


def iterate(data: bytes | bytearray | memoryview, *, check: bool = True) -> Iterator[Batch]:
    """Every batch in ``data``, which must be whole batches back to back. Raises BatchError at the first bad one.

    ``check``: verify checksums.
    """
    view = memoryview(data)
    position = 0
    while position < len(data):
        batch = _read_frame(view, position)
        if batch.end > len(data):
            raise BatchError(f"batch ends at {batch.end}, the data at {len(data)}: cut short", position)
        if check:
            verify(view, batch)
        _check_count(batch)
        yield batch
        position = batch.end


def verify(data: bytes | bytearray | memoryview, batch: Batch) -> None:
    """Raises BatchError when the checksum does not match."""
    (found,) = _CRC.unpack_from(data, batch.start + _CRC_AT)
    actual = zlib.crc32(memoryview(data)[batch.start + _PREFIX.size : batch.end])
    if found != actual:
        raise BatchError(f"crc is {found:#010x}, the content has {actual:#010x}: corrupt", batch.start)


def body_of(data: bytes | bytearray | memoryview, batch: Batch) -> wire.Records:
    """The records of a batch. Raises BadRecordsError when they do not decode or contradict the header."""
    try:
        body = wire.Records.FromString(bytes(data[batch.start + HEADER_BYTES : batch.end]))
    except DecodeError as error:
        raise BadRecordsError(f"records are not a Records message: {error}", batch.start) from error
    if len(body.records) != batch.record_count:
        raise BadRecordsError(
            f"record_count is {batch.record_count}, the batch holds {len(body.records)}", batch.start
        )
    newest = batch.base_timestamp + max([record.timestamp_delta for record in body.records])
    if newest != batch.max_timestamp:
        raise BadRecordsError(
            f"max_timestamp is {batch.max_timestamp}, the newest record's is {newest}", batch.start
        )
    return body


def decode(data: bytes | bytearray | memoryview, *, check: bool = True) -> Iterator[DecodedRecord]:
    """Every record of every batch, in order. Raises BatchError."""
    for batch in iterate(data, check=check):
        for position, record in enumerate(body_of(data, batch).records):
            yield DecodedRecord(
                batch.base_offset + position,
                batch.leader_epoch,
                batch.base_timestamp + record.timestamp_delta,
                record.key if record.HasField("key") else None,
                record.value if record.HasField("value") else None,
                tuple((h.key, h.value if h.HasField("value") else None) for h in record.headers),
            )


def stamp(
    data: bytes, batches: Sequence[Batch], first_offset: int, leader_epoch: int
) -> tuple[bytearray, list[Batch]]:
    """The batches as a leader stores them: consecutive offsets from ``first_offset``, and its epoch."""
    stamped = bytearray(data)
    placed = []
    offset = first_offset
    for batch in batches:
        length = batch.end - batch.start - LENGTH_END
        _OFFSET_AND_EPOCH.pack_into(stamped, batch.start, offset, length, leader_epoch)
        placed.append(Batch(offset, leader_epoch, *batch[2:]))
        offset += batch.record_count
    return stamped, placed
