"""Replicas read from folders, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_stub.log import batches
from controller.workload.checker import Kind, ReplicaLog, check
from controller.workload.history import History, Write, content_of, value_of
from controller.workload.replicas import found_replicas, read_logs, read_replica, unconfirmed

KEY = ("t", 0)


def batch(sequence: int, base_offset: int, count: int = 1, epoch: int = 0) -> bytes:
    records = [(None, value_of(1, sequence + n, 40)) for n in range(count)]
    return batches.encode(records, 1_000 + sequence, base_offset, epoch)


def folder(data_dir: Path, *segments: tuple[int, bytes], name: str = "t-0") -> Path:
    path = data_dir / name
    path.mkdir(parents=True)
    for base_offset, data in segments:
        (path / f"{base_offset:020d}.log").write_bytes(data)
    return path


def test_every_batch_and_record_of_every_segment(tmp_path: Path) -> None:
    first, second, third = batch(0, 5, 2), batch(2, 7, 1, epoch=3), batch(3, 8, 2, epoch=3)
    found = read_replica(folder(tmp_path, (5, first + second), (8, third)))
    assert (found.start_offset, found.end_offset, found.problem) == (5, 10, "")
    assert [(b.base_offset, b.next_offset, b.leader_epoch) for b in found.batches] == [
        (5, 7, 0), (7, 8, 3), (8, 10, 3),
    ]  # fmt: skip
    assert [(r.offset, r.content.writer, r.content.sequence) for r in found.records] == [
        (5 + n, 1, n) for n in range(5)
    ]
    assert found.records[0].content == content_of(value_of(1, 0, 40))
    assert len({b.digest for b in found.batches}) == 3


@pytest.mark.parametrize("position", [0, 3, 12, 40, -1])
def test_any_changed_byte_is_seen(tmp_path: Path, position: int) -> None:
    data = batch(0, 0, 3) + batch(3, 3, 3)
    whole = read_replica(folder(tmp_path / "1", (0, data)))
    damaged = bytearray(data)
    damaged[position] ^= 1
    changed = read_replica(folder(tmp_path / "2", (0, bytes(damaged))))
    writes = tuple(Write(1, n, *KEY, content_of(value_of(1, n, 40)).crc, 1, n) for n in range(6))
    verdict = check(History(writes), {KEY: {1: whole, 2: changed}}, {KEY: 1})
    assert [finding.kind for finding in verdict.findings] == [Kind.DIVERGED]


def test_a_torn_end_is_a_problem_after_what_is_whole(tmp_path: Path) -> None:
    found = read_replica(folder(tmp_path, (0, batch(0, 0, 2) + batch(2, 2)[:-1])))
    assert (found.end_offset, len(found.records)) == (2, 2)
    assert "cut short" in found.problem


def test_a_segment_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    found = read_replica(folder(tmp_path, (0, batch(0, 0)), (2, batch(2, 2))))
    assert found.end_offset == 1
    assert "begins at offset 2" in found.problem


def test_nothing_there(tmp_path: Path) -> None:
    assert read_replica(folder(tmp_path, (0, b""))) == ReplicaLog(0, 0, [], [], "")
    assert "t-9" in read_replica(tmp_path / "t-9").problem


def test_replicas_are_found_by_their_folders(tmp_path: Path) -> None:
    data_dirs = {1: tmp_path / "one", 2: tmp_path / "two"}
    folder(data_dirs[1], (0, batch(0, 0)))
    folder(data_dirs[2], (0, batch(0, 0)))
    folder(data_dirs[2], (0, batch(0, 0)), name="t-11")
    for name in ("t-x", "t", "t-0-stray", "other-0", "t-t-0"):
        folder(data_dirs[1], name=name)
    (data_dirs[1] / "t-5").touch()
    found = found_replicas(data_dirs, "t")
    assert found == {("t", 0): [1, 2], ("t", 11): [2]}
    logs = read_logs(data_dirs, found)
    assert {key: sorted(replicas) for key, replicas in logs.items()} == {("t", 0): [1, 2], ("t", 11): [2]}
    assert unconfirmed(logs) == []


def test_replicas_that_are_not_equally_long_or_unreadable_are_unsettled() -> None:
    short, long, bad = ReplicaLog(0, 3), ReplicaLog(0, 4), ReplicaLog(0, 4, problem="x")
    logs = {
        ("t", n): dict(enumerate(pair)) for n, pair in enumerate([(long, long), (short, long), (long, bad)])
    }
    assert unconfirmed(logs) == [("t", 1), ("t", 2)]
