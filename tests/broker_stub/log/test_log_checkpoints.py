"""Checkpoint files: what Kafka writes is read, what is damaged is refused whole, saying where and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.log import checkpoints
from broker_stub.log.checkpoints import read_epochs, read_offsets, write_epochs, write_offsets
from broker_stub.log.epochs import EpochEntry
from broker_stub.log.errors import CheckpointFault

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


def test_the_format_is_kafkas(tmp_path: Path) -> None:
    file = tmp_path / checkpoints.HIGH_WATERMARKS
    write_offsets(file, {("orders", 0): 1500, ("orders", 1): 2**63 - 1})
    assert file.read_bytes() == b"0\n2\norders 0 1500\norders 1 9223372036854775807\n"
    epochs = tmp_path / checkpoints.LEADER_EPOCHS
    write_epochs(epochs, [EpochEntry(3, 0), EpochEntry(5, 1200)])
    assert epochs.read_bytes() == b"0\n2\n3 0\n5 1200\n"
    assert sorted(os.listdir(tmp_path)) == [checkpoints.LEADER_EPOCHS, checkpoints.HIGH_WATERMARKS]


def test_a_checkpoint_is_whole_however_little_the_disk_takes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    write_offsets(tmp_path / "file", {("orders", 0): 1500})
    assert read_offsets(tmp_path / "file") == {("orders", 0): 1500}


def test_no_file_is_no_entries(tmp_path: Path) -> None:
    assert read_offsets(tmp_path / "absent") == {}
    assert read_epochs(tmp_path / "absent") is None


@given(offsets=st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offsets_come_back(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, int], int]
) -> None:
    file = tmp_path_factory.mktemp("checkpoint") / "file"
    write_offsets(file, offsets)
    assert read_offsets(file) == offsets


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", ":0: truncated"),
        (b"0\n", ":1: truncated"),
        (b"0\n1\nt 0 12", ":3: truncated"),
        (b"1\n0\n", ":1: version is '1': must be 0"),
        (b"x\n0\n", ":1: version is 'x': must be 0"),
        (b"0\n-1\n", ":2: count is '-1': must be a number"),
        (b"0\n2\nt 0 5\n", ":2: count is 2: must be 1"),
        (b"0\n0\nt 0 5\n", ":2: count is 0: must be 1"),
        (b"0\n1\nt 0\n", ":3: 't 0': must be topic, partition, offset"),
        (b"0\n1\nt  0 5\n", ":3: 't  0 5': must be topic"),
        (b"0\n1\nt 0 5 6\n", ":3: 't 0 5 6': must be topic"),
        (b"0\n2\nt 0 5\nt x 5\n", ":4: partition is 'x': must be a number from 0 to 2147483647"),
        (b"0\n1\nt 2147483648 5\n", ":3: partition is '2147483648'"),
        (b"0\n1\nt 0 -5\n", ":3: offset is '-5': must be a number"),
        (b"0\n1\nt 0 9223372036854775808\n", ":3: offset is '9223372036854775808'"),
        (b"0\n1\nt 0 05\n", ":3: offset is '05'"),
        (b"0\n1\nt/t 0 5\n", ":3: topic is 't/t': must be 1 to 249 letters"),
        (b"0\n2\nt 0 5\nt 0 6\n", ":4: partition t-0 is listed twice"),
        (b"0\n1\nt\xff 0 5\n", ": byte 5 is not ASCII"),
        (bytes(40), ":1: truncated"),
    ],
)
def test_a_wrong_offset_checkpoint_names_line_and_field(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(CheckpointFault) as caught:
        read_offsets(file)
    assert str(caught.value).startswith(f"{file}{problem}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"0\n1\n3\n", ":3: '3': must be epoch, start offset"),
        (b"0\n1\n-1 0\n", ":3: epoch is '-1'"),
        (b"0\n1\n1 x\n", ":3: start offset is 'x'"),
        (b"0\n2\n3 0\n3 5\n", ":4: epoch is 3: must be above 3"),
        (b"0\n2\n3 7\n4 7\n", ":4: start offset is 7: must be above 7"),
    ],
)
def test_a_wrong_epoch_checkpoint_names_line_and_field(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(CheckpointFault) as caught:
        read_epochs(file)
    assert str(caught.value).startswith(f"{file}{problem}")


def test_a_directory_in_the_files_place(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFault, match="directory"):
        read_offsets(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_offsets(file, {("t", 0): 5})

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write_offsets(file, {("t", 0): 6})
    assert read_offsets(file) == {("t", 0): 5}
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_gets_its_name_once_its_bytes_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut may leave the new name with nothing in it."""
    synced: set[tuple[int, int]] = set()
    fsync, rename = os.fsync, os.rename

    def syncing(fd: int) -> None:
        fsync(fd)
        synced.add((os.fstat(fd).st_ino, os.fstat(fd).st_size))

    def renaming(source: Path, target: Path) -> None:
        there = os.stat(source)
        assert (there.st_ino, there.st_size) in synced
        rename(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    write_offsets(tmp_path / "file", {("t", 0): 5})
    assert read_offsets(tmp_path / "file") == {("t", 0): 5}
