"""Reading Kafka's segments, damaged ones too; those of real brokers: tests/kafka."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from controller.workload.history import content_of, value_of
from controller.workload.kafka_replicas import read_replica


def varint(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def record(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(base: int, *values: bytes, epoch: int = 3, attributes: int = 0, magic: int = 2) -> bytes:
    records = b"".join(record(delta, value, b"k" * delta or None) for delta, value in enumerate(values))
    rest = struct.pack(">ibIhi", epoch, magic, 0, attributes, len(values) - 1) + bytes(30)
    rest += struct.pack(">i", len(values)) + records
    return struct.pack(">qi", base, len(rest)) + rest


VALUES = [value_of(1, number, 100 * number) for number in range(4)]


def test_batches_and_records_over_segments(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log").write_bytes(batch(0, *VALUES[:2]) + batch(2, VALUES[2], epoch=4))
    (tmp_path / f"{3:020}.log").write_bytes(batch(3, VALUES[3], epoch=4) + b"\0" * 7)
    (tmp_path / f"{3:020}.index").write_bytes(b"x")
    log = read_replica(tmp_path)
    assert (log.start_offset, log.end_offset, log.problem) == (0, 4, "")
    assert [(b.base_offset, b.next_offset, b.leader_epoch) for b in log.batches] == [
        (0, 2, 3),
        (2, 3, 4),
        (3, 4, 4),
    ]
    assert [(r.offset, r.content) for r in log.records] == [(n, content_of(v)) for n, v in enumerate(VALUES)]


@pytest.mark.parametrize("attributes", [0x20, 0x01, 0x24])
def test_control_and_compressed_batches_have_no_records(tmp_path: Path, attributes: int) -> None:
    (tmp_path / "0.log").write_bytes(batch(0, b"x", attributes=attributes))
    log = read_replica(tmp_path)
    assert (log.end_offset, len(log.batches), list(log.records)) == (1, 1, [])


def test_an_unfinished_end_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(batch(0, b"x") + batch(1, b"y")[:-1])
    log = read_replica(tmp_path)
    assert (log.end_offset, log.problem) == (1, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (batch(0, b"x", magic=1), "no batch of message format 2"),
        (struct.pack(">qi", 0, -5) + batch(0, b"x")[12:], "no batch of message format 2"),
        (batch(0, b"x")[:57] + struct.pack(">i", 2) + batch(0, b"x")[61:], "ends beyond its batch"),
        (batch(0, b"x")[:61] + b"\xff" * (len(batch(0, b"x")) - 61), "ends beyond its batch"),
    ],
)
def test_damage_ends_the_reading(tmp_path: Path, data: bytes, problem: str) -> None:
    (tmp_path / "0.log").write_bytes(data + batch(1, b"y"))
    log = read_replica(tmp_path)
    assert problem in log.problem
    assert len(log.batches) <= 1


def test_no_segments(tmp_path: Path) -> None:
    assert read_replica(tmp_path).end_offset == 0


def test_a_log_that_lost_its_beginning_begins_later_and_a_batch_elsewhere_is_another(tmp_path: Path) -> None:
    (tmp_path / "5.log").write_bytes(batch(5, b"x") + batch(6, b"x"))
    log = read_replica(tmp_path)
    assert (log.start_offset, log.end_offset) == (5, 7)
    assert len({one.digest for one in log.batches}) == 2
