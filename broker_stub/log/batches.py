"""The record batch: encoding, checking, and the two fields that a leader sets. Pure (format: docs/broker.md)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from proto import broker_data_pb2 as wire

MAGIC = 1
#: base_offset, length, leader_epoch, magic, crc.
_PREFIX = struct.Struct(">qiibI")
#: attributes, record_count, base_timestamp, max_timestamp.
_REST = struct.Struct(">hiqq")
_HEADER = struct.Struct(">qiibIhiqq")
_CRC = struct.Struct(">I")
_CRC_AT = _PREFIX.size - _CRC.size
_OFFSET_AND_EPOCH = struct.Struct(">qii")
HEADER_BYTES = _PREFIX.size + _REST.size
#: Bytes of base_offset and length, which ``length`` does not count.
LENGTH_END = 12
NO_LEADER_EPOCH = -1


class BatchError(ValueError):
    """Bytes that are no batch; the message names the position, the field and what is allowed."""


class BadRecordsError(BatchError):
    """An undamaged batch that does not hold the records its header says."""


class Batch(NamedTuple):
    """One batch's header and where it lies in the bytes it was found in: ``start`` to ``end``."""

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
    """A record as a reader sees it. ``timestamp`` in ms since 1970; ``key``, ``value`` None: absent."""

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
    """A batch of (key, value) records that all have this timestamp. At least one record."""
    if not records:
        raise BatchError("a batch holds at least one record")
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
    """The batch at ``start``, its checksum not looked at. Raises BatchError; ``end`` may exceed the data."""
    batch = _read_frame(data, start)
    _check_count(batch)
    return batch


def _read_frame(data: bytes | bytearray | memoryview, start: int) -> Batch:
    """The header, without judging what only an undamaged batch can be blamed for."""
    if len(data) - start < HEADER_BYTES:
        raise BatchError(
            f"at {start}: {len(data) - start} bytes, a batch header has {HEADER_BYTES}: cut short"
        )
    base_offset, length, leader_epoch, magic, _, attributes, count, base_timestamp, max_timestamp = (
        _HEADER.unpack_from(data, start)
    )
    if magic != MAGIC:
        raise BatchError(f"at {start}: magic is {magic}: must be {MAGIC}")
    if length < HEADER_BYTES - LENGTH_END:
        raise BatchError(f"at {start}: length is {length}: must be at least {HEADER_BYTES - LENGTH_END}")
    if base_offset < 0:
        raise BatchError(f"at {start}: base_offset is {base_offset}: must be 0 or more")
    if attributes != 0:
        raise BatchError(f"at {start}: attributes is {attributes}: must be 0")
    return Batch(
        base_offset, leader_epoch, count, base_timestamp, max_timestamp, start, start + LENGTH_END + length
    )


def _check_count(batch: Batch) -> None:
    if batch.record_count < 1:
        raise BadRecordsError(f"at {batch.start}: record_count is {batch.record_count}: must be 1 or more")


def iterate(data: bytes | bytearray | memoryview, *, check: bool = True) -> Iterator[Batch]:
    """Every batch in ``data``, which must be whole batches back to back. Raises BatchError at the first bad one.

    ``check``: verify checksums.
    """
    view = memoryview(data)
    position = 0
    while position < len(data):
        batch = _read_frame(view, position)
        if batch.end > len(data):
            raise BatchError(f"at {position}: batch ends at {batch.end}, the data at {len(data)}: cut short")
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
        raise BatchError(f"at {batch.start}: crc is {found:#010x}, the content has {actual:#010x}: corrupt")


def body_of(data: bytes | bytearray | memoryview, batch: Batch) -> wire.Records:
    """The records of a batch. Raises BadRecordsError when they do not decode or the header says otherwise."""
    try:
        body = wire.Records.FromString(bytes(data[batch.start + HEADER_BYTES : batch.end]))
    except DecodeError as error:
        raise BadRecordsError(f"at {batch.start}: records are no Records message: {error}") from error
    if len(body.records) != batch.record_count:
        raise BadRecordsError(
            f"at {batch.start}: record_count is {batch.record_count}, the batch holds {len(body.records)}"
        )
    newest = batch.base_timestamp + max([record.timestamp_delta for record in body.records])
    if newest != batch.max_timestamp:
        raise BadRecordsError(
            f"at {batch.start}: max_timestamp is {batch.max_timestamp}, the newest record's is {newest}"
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


def stamp(data: bytes, batches: Sequence[Batch], first_offset: int, leader_epoch: int) -> bytearray:
    """The same batches with consecutive offsets from ``first_offset`` and a leader epoch: what a leader stores."""
    stamped = bytearray(data)
    offset = first_offset
    for batch in batches:
        _OFFSET_AND_EPOCH.pack_into(
            stamped, batch.start, offset, batch.end - batch.start - LENGTH_END, leader_epoch
        )
        offset += batch.record_count
    return stamped
