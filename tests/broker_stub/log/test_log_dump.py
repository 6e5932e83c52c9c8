"""Inspecting a replica's folder reports every problem and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker_stub.log import batches
from broker_stub.log.checkpoints import LEADER_EPOCHS
from broker_stub.log.dump import ScannedBatch, ScanProblem, rows, scan
from broker_stub.log.errors import LogFault
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from broker_stub.log.segment import file_name

CONFIG = LogConfig(segment_bytes=170)


def filled(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    log = PartitionLog.open(folder, CONFIG, 0)
    for number in range(5):
        log.append_as_leader(
            batches.encode([(b"k", b"v%d" % number), (None, None)], 1000 + number), number // 2
        )
    log.close()


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir() if p.is_file()}


def test_a_whole_log(tmp_path: Path) -> None:
    filled(tmp_path)
    before = snapshot(tmp_path)
    found = list(scan(tmp_path))
    assert [f.batch.base_offset for f in found if isinstance(f, ScannedBatch)] == [0, 2, 4, 6, 8]
    assert b"".join(f.data for f in found if isinstance(f, ScannedBatch)) == b"".join(
        (tmp_path / file_name(base)).read_bytes() for base in (0, 6)
    )
    shown = list(rows(tmp_path, with_records=True))
    assert shown[:6] == [
        LEADER_EPOCHS,
        "  leader epoch 0 from offset 0",
        "  leader epoch 1 from offset 4",
        "  leader epoch 2 from offset 8",
        file_name(0),
        "  at 0: offsets 0 to 1, leader epoch 0, 54 bytes, timestamps 1000 to 1000",
    ]
    assert "    offset 8, timestamp 1004, key 'k', value 'v4'" in shown
    assert shown[-1] == "    offset 9, timestamp 1004, key null, value null"
    assert snapshot(tmp_path) == before


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    """Such as a data directory: nothing would be shown, as if all were well."""
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(LogFault, match="must be DATA_DIR/TOPIC-PARTITION"):
        list(rows(tmp_path))


def test_after_a_gap_the_next_one_is_told_from_where_the_log_goes_on(tmp_path: Path) -> None:
    for base in (0, 10, 20):
        (tmp_path / file_name(base)).touch()
    assert [found.reason for found in scan(tmp_path) if isinstance(found, ScanProblem)] == [
        "begins at offset 10, but the log before it ends at 0",
        "begins at offset 20, but the log before it ends at 10",
    ]


def test_long_values_are_shortened(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.append_as_leader(batches.encode([(None, bytes(1000))], 5), 1)
    log.close()
    [row] = [row for row in rows(tmp_path, with_records=True) if "value" in row]
    assert row.endswith("... (1000 bytes)")
    assert len(row) < 400


def test_every_problem_is_named_and_nothing_repaired(tmp_path: Path) -> None:
    filled(tmp_path)
    first = tmp_path / file_name(0)
    content = bytearray(first.read_bytes())
    content[60] ^= 1
    first.write_bytes(content)
    os.truncate(tmp_path / file_name(6), 70)
    (tmp_path / LEADER_EPOCHS).write_text("0\n9\n")
    (tmp_path / "1.log").touch()
    before = snapshot(tmp_path)
    problems = [found for found in scan(tmp_path) if isinstance(found, ScanProblem)]
    assert [(p.file.name, p.position) for p in problems] == [
        (tmp_path.name, 0), (file_name(0), 54), (file_name(6), 0), (file_name(6), 54),
    ]  # fmt: skip
    shown = list(rows(tmp_path))
    assert sum(row.startswith("PROBLEM") for row in shown) == 5
    assert f"PROBLEM {problems[1]}" in shown
    assert snapshot(tmp_path) == before


def test_records_that_are_not_as_the_header_says(tmp_path: Path) -> None:
    (tmp_path / file_name(0)).write_bytes(
        batches.seal(b"", 2, 5, 5, 0, 1) + batches.encode([(None, b"x")], 5, 2, 1)
    )
    first, second, third = scan(tmp_path)
    assert isinstance(first, ScanProblem)
    assert "record_count is 2, the batch holds 0" in str(first)
    assert isinstance(second, ScannedBatch)
    assert isinstance(third, ScannedBatch)
    assert sum("offset 2" in row for row in rows(tmp_path, with_records=True)) == 1


def test_epochs_must_not_go_back_from_one_segment_to_the_next(tmp_path: Path) -> None:
    (tmp_path / file_name(0)).write_bytes(batches.encode([(None, b"x")], 5, 0, 4))
    (tmp_path / file_name(1)).write_bytes(batches.encode([(None, b"x")], 5, 1, 3))
    _, problem = scan(tmp_path)
    assert isinstance(problem, ScanProblem)
    assert "leader_epoch is 3: must be 4 or more" in str(problem)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogFault, match="cannot be read"):
        list(rows(tmp_path / "absent"))
