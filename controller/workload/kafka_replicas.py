"""Logs of Kafka brokers' replicas (message format 2), read from their data directories without a broker."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from controller.workload.checker import ReplicaLog, Stored, StoredBatch
from controller.workload.history import content_of
from controller.workload.replicas import DIGEST_BYTES

#: Base offset, length, leader epoch, magic, crc, attributes, last offset delta; then times, producer, record count.
_BATCH = struct.Struct(">qiibIhi8x8x8x2x4xi")
#: Bytes of a batch that its length does not count.
_LENGTH_END = 12
_MAGIC = 2
_CODEC_MASK, _CONTROL = 0x07, 0x20


def read_replica(folder: Path) -> ReplicaLog:
    """Read every batch and record of a ``topic-partition`` folder; control and compressed batches without records.

    While a broker appends, the end of the log may be missing. The first error becomes ``problem`` and ends the reading.
    """
    batches: list[StoredBatch] = []
    records: list[Stored] = []
    problem = ""
    for segment in sorted(folder.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while not problem and at + _BATCH.size <= len(data):
            base, length, epoch, magic, _, attributes, last, count = _BATCH.unpack_from(data, at)
            end = at + _LENGTH_END + length
            if magic != _MAGIC or end < at + _BATCH.size:
                problem = f"{segment} at {at}: no batch of message format {_MAGIC}"
                break
            if end > len(data):
                break
            digest = hashlib.blake2b(data[at:end], digest_size=DIGEST_BYTES).digest()
            batches.append(StoredBatch(base, base + last + 1, epoch, digest))
            if not attributes & (_CODEC_MASK | _CONTROL):
                try:
                    for delta, value in _records(data[at:end], _BATCH.size, count):
                        records.append(Stored(base + delta, epoch, content_of(value)))
                except IndexError:
                    problem = f"{segment} at {at}: a record ends beyond its batch"
            at = end
    if not batches:
        return ReplicaLog(problem=problem)
    return ReplicaLog(batches[0].base_offset, batches[-1].next_offset, batches, records, problem)


def _records(data: bytes, at: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Offset delta and value of each record. Raises IndexError for one that ends beyond the data."""
    for _ in range(count):
        length, at = _varint(data, at)
        end = at + length
        # After the attributes: time delta, offset delta, key, value.
        _, inside = _varint(data, at + 1)
        delta, inside = _varint(data, inside)
        key_length, inside = _varint(data, inside)
        value_length, inside = _varint(data, inside + max(key_length, 0))
        if end > len(data) or length < 0 or inside + max(value_length, 0) > end:
            raise IndexError
        yield delta, data[inside : inside + max(value_length, 0)]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of at most ten bytes, and where the next thing begins. Raises IndexError."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise IndexError
