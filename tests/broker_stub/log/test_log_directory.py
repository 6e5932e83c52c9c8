"""All logs of a data directory: checkpoints kept, forgotten, and refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker_stub.log import batches
from broker_stub.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from broker_stub.log.directory import LogDirectory
from broker_stub.log.errors import LogError
from broker_stub.log.interface import LogConfig

RECORDS = batches.encode([(None, b"value")], 1)
KEY, OTHER = ("t", 0), ("t", 1)


def opened(path: Path, *keys: tuple[str, int]) -> LogDirectory:
    for topic, partition in keys:
        (path / f"{topic}-{partition}").mkdir(exist_ok=True)
    logs = LogDirectory(path, LogConfig())
    assert logs.recover(keys) == {}
    return logs


def test_a_clean_end_is_gone_on_from(tmp_path: Path) -> None:
    logs = opened(tmp_path, KEY)
    logs.open(KEY).append_as_leader(RECORDS, 3)
    logs.close({KEY: 1})
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {KEY: 1}

    again = opened(tmp_path, KEY)
    assert again.high_watermarks == {KEY: 1}
    assert again.problems == []
    assert again.open(KEY).log_end_offset == 1
    again.close(again.high_watermarks)


def test_recovery_points_of_logs_that_are_not_open_yet_are_kept(tmp_path: Path) -> None:
    logs = opened(tmp_path, KEY, OTHER)
    for key, batches_ in ((KEY, 1), (OTHER, 2)):
        for _ in range(batches_):
            logs.open(key).append_as_leader(RECORDS, 3)
    logs.close({KEY: 1, OTHER: 2})

    again = LogDirectory(tmp_path, LogConfig())
    assert again.recovery_points() == {KEY: 1, OTHER: 2}
    again.open(KEY)
    assert again.recovery_points() == {KEY: 1, OTHER: 2}
    again.close({})


def test_the_next_log_of_a_name_is_verified_from_its_begin(tmp_path: Path) -> None:
    """Its replica was deleted, and came back."""
    logs = opened(tmp_path, KEY)
    logs.open(KEY).append_as_leader(RECORDS, 3)
    logs.close({KEY: 1})

    again = opened(tmp_path, KEY)
    assert again.recovery_points() == {KEY: 1}
    again.forget(KEY)
    assert again.recovery_points() == {}
    again.close({})


def test_what_was_deleted_meanwhile_is_forgotten(tmp_path: Path) -> None:
    logs = opened(tmp_path, KEY, OTHER)
    logs.close({KEY: 0, OTHER: 0})

    again = LogDirectory(tmp_path, LogConfig())
    again.recover([KEY])
    assert again.high_watermarks == {KEY: 0}
    again.checkpoint(again.high_watermarks, again.recovery_points())
    assert read_offsets(tmp_path / HIGH_WATERMARKS) == {KEY: 0}
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {KEY: 0}
    again.close({})


def test_wrong_checkpoints_are_named_and_done_without(tmp_path: Path) -> None:
    logs = opened(tmp_path, KEY)
    logs.open(KEY).append_as_leader(RECORDS, 3)
    logs.close({KEY: 1})
    (tmp_path / HIGH_WATERMARKS).write_text("0\n1\nt 0 minus\n")
    (tmp_path / RECOVERY_POINTS).write_bytes(b"\xff\xfe")

    again = opened(tmp_path, KEY)
    assert again.high_watermarks == {}
    assert any(f"{HIGH_WATERMARKS}:3: offset is 'minus'" in problem for problem in again.problems)
    assert any(RECOVERY_POINTS in problem for problem in again.problems)
    assert again.open(KEY).log_end_offset == 1
    again.close({})


def test_a_folder_that_went_is_missed(tmp_path: Path) -> None:
    logs = opened(tmp_path, KEY, OTHER)
    (tmp_path / "t-1").rmdir()
    assert logs.missing() == [OTHER]
    logs.close({})


def test_a_folder_that_is_a_file_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-1").write_text("no folder")
    logs = LogDirectory(tmp_path, LogConfig())
    failed = logs.recover([KEY, OTHER])
    assert failed.keys() == {OTHER}
    assert "t-1" in failed[OTHER]
    with pytest.raises(LogError):
        logs.open(OTHER)
    logs.close({})
    assert not logs.all_flushed, "nobody knows what is on stable storage of the other"


def test_a_log_that_failed_and_went_leaves_no_clean_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs that close well after it make nothing of it good."""
    logs = opened(tmp_path, KEY, OTHER)
    failing = logs.open(KEY)
    failing.append_as_leader(RECORDS, 3)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(LogError):
        failing.flush()
    monkeypatch.undo()
    logs.forget(KEY)
    logs.forget(OTHER)
    logs.close({})
    assert not logs.all_flushed
