"""Recovery after a kill or disk damage: a whole prefix of the log remains, and the rest is reported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.log import batches, recovery
from broker_stub.log.checkpoints import LEADER_EPOCHS, write_epochs
from broker_stub.log.epochs import EpochEntry
from broker_stub.log.errors import LogFault
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from broker_stub.log.segment import file_name

EPOCHS = [1, 1, 1, 2, 2, 4, 4, 4, 4]
CONFIG = LogConfig(segment_bytes=360)


def record(number: int) -> bytes:
    return batches.encode([(b"k", b"record %d" % number), (None, b"x" * 40)], 1000 + number)


def write(folder: Path, config: LogConfig = CONFIG) -> bytes:
    """Nine batches of two records in segments of three, closed; their bytes as stored."""
    log = PartitionLog.open(folder, config, 0)
    for number, epoch in enumerate(EPOCHS):
        log.append_as_leader(record(number), epoch)
    stored = log.read(0, 10**9, 10**9)
    log.close()
    return stored


def reopen(folder: Path, recovery_point: int = 0, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(folder, config, recovery_point)


def is_usable(log: PartitionLog, folder: Path, stored: bytes) -> None:
    """It holds a prefix of what was written, takes more, and is found whole the next time."""
    content = log.read(log.log_start_offset, 10**9, 10**9)
    assert stored.startswith(content)
    kept = list(batches.iterate(content))
    expected = sorted({batch.leader_epoch: batch.base_offset for batch in reversed(kept)}.items())
    assert list(log._epochs.entries) == expected
    end = kept[-1].next_offset if kept else log.log_start_offset
    assert log.append_as_leader(record(99), 9) == (end, end + 2)
    more = log.read(end, 10**9, 10**9)
    point = log.recovery_point
    log.close(flush=False)
    again = reopen(folder, point)
    assert again.problems == []
    assert again.read(again.log_start_offset, 10**9, 10**9) == content + more
    again.close()


def test_segments_are_as_the_tests_below_assume(tmp_path: Path) -> None:
    write(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [file_name(0), file_name(6), file_name(12), LEADER_EPOCHS]


@pytest.mark.parametrize("recovery_point", [0, 12, 16, 18])
def test_a_tail_torn_at_any_byte(tmp_path: Path, recovery_point: int) -> None:
    (tmp_path / "whole").mkdir()
    stored = write(tmp_path / "whole")
    last = (tmp_path / "whole" / file_name(12)).read_bytes()
    *_, second, third = batches.iterate(last)
    for cut in range(third.start, third.end):
        folder = tmp_path / "torn"
        shutil.copytree(tmp_path / "whole", folder)
        os.truncate(folder / file_name(12), cut)
        log = reopen(folder, recovery_point)
        assert log.log_end_offset == second.next_offset
        problems = log.problems
        if recovery_point == 18:
            assert "18 was flushed" in problems.pop()
        if cut == third.start:
            assert problems == []
        else:
            [problem] = problems
            assert problem.startswith(f"{folder / file_name(12)} at {third.start}: ")
            assert problem.endswith(f"{cut - third.start} bytes cut off, the log ends at offset 16")
            assert (folder / f"{file_name(12)}.corrupt").read_bytes() == last[third.start : cut]
        is_usable(log, folder, stored)
        shutil.rmtree(folder)


@given(
    position=st.integers(0, 10**6), byte=st.integers(1, 255), recovery_point=st.sampled_from([0, 8, 12, 14])
)
def test_any_garbled_byte(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int, recovery_point: int
) -> None:
    """What was not flushed is checked whole; what was flushed is at least cut off where it is seen to be bad."""
    folder = tmp_path_factory.mktemp("log")
    stored = write(folder)
    position %= len(stored)
    base, start = 0, 0
    for base in (0, 6, 12):
        size = (folder / file_name(base)).stat().st_size
        if position < start + size:
            break
        start += size
    content = bytearray((folder / file_name(base)).read_bytes())
    content[position - start] ^= byte
    (folder / file_name(base)).write_bytes(content)
    log = reopen(folder, recovery_point)
    [hit] = [batch for batch in batches.iterate(stored) if batch.start <= position < batch.end]
    checked_from = max(offset for offset in (0, 6, 12) if offset <= recovery_point)
    if checked_from <= base:
        only_the_epoch = hit.start + 12 <= position < hit.start + 16
        if not only_the_epoch:
            assert log.log_end_offset == hit.base_offset
            assert log.problems
            assert sorted(p.name for p in folder.glob("*.corrupt"))[0] == f"{file_name(base)}.corrupt"
            is_usable(log, folder, stored)
    elif log.problems:
        assert log.log_end_offset <= hit.base_offset or LEADER_EPOCHS in log.problems[0]
    else:
        assert log.log_end_offset == 18
    log.close(flush=False)


def test_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    """A file system may have the size before the data."""
    stored = write(tmp_path)
    with (tmp_path / file_name(12)).open("ab") as file:
        file.write(bytes(500))
    log = reopen(tmp_path, 18)
    assert log.log_end_offset == 18
    assert "magic is 0: must be 1" in log.problems[0]
    assert "500 bytes cut off" in log.problems[0]
    is_usable(log, tmp_path, stored)


def test_segments_after_a_damaged_one_are_kept_aside(tmp_path: Path) -> None:
    stored = write(tmp_path)
    whole = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    damaged = bytearray(whole[file_name(0)])
    damaged[-1] ^= 1
    (tmp_path / file_name(0)).write_bytes(damaged)
    log = reopen(tmp_path)
    assert (log.log_end_offset, log.latest_epoch) == (4, 1)
    assert [problem.split(":")[0] for problem in log.problems] == [
        f"{tmp_path / file_name(0)} at {2 * len(damaged) // 3}",
        str(tmp_path / file_name(12)),
        str(tmp_path / file_name(6)),
    ]
    assert f"kept aside as {file_name(6)}.corrupt" in log.problems[2]
    for base in (6, 12):
        assert not (tmp_path / file_name(base)).exists()
        assert (tmp_path / f"{file_name(base)}.corrupt").read_bytes() == whole[file_name(base)]
    assert (tmp_path / f"{file_name(0)}.corrupt").read_bytes() == damaged[2 * len(damaged) // 3 :]
    is_usable(log, tmp_path, stored)


def test_a_missing_segment_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, synced = write(tmp_path), list[Path]()
    monkeypatch.setattr(recovery, "sync_directory", synced.append)
    (tmp_path / file_name(6)).unlink()
    log = reopen(tmp_path)
    # What is kept aside keeps its new name.
    assert synced == [tmp_path]
    assert log.log_end_offset == 6
    assert log.problems == [
        f"{tmp_path / file_name(12)}: begins at offset 12, but the log before it ends at 6: "
        f"kept aside as {file_name(12)}.corrupt"
    ]
    is_usable(log, tmp_path, stored)


def test_a_missing_first_segment_moves_the_start(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / file_name(0)).unlink()
    log = reopen(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (6, 18)


def test_an_epoch_that_goes_back_ends_the_log(tmp_path: Path) -> None:
    stored = write(tmp_path)
    old = batches.encode([(None, b"from an older term")], 5, 18, 3)
    with (tmp_path / file_name(12)).open("ab") as file:
        file.write(old)
    log = reopen(tmp_path)
    assert log.log_end_offset == 18
    assert "leader_epoch is 3: must be 4 or more" in log.problems[0]
    is_usable(log, tmp_path, stored)


def test_offsets_that_jump_end_the_log(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / file_name(12)).open("ab") as file:
        file.write(batches.encode([(None, b"later")], 5, 19, 4))
    log = reopen(tmp_path)
    assert log.log_end_offset == 18
    assert "base_offset is 19: the log continues at 18" in log.problems[0]


def test_flushed_records_that_are_gone_are_reported(tmp_path: Path) -> None:
    write(tmp_path)
    for base in (6, 12):
        (tmp_path / file_name(base)).unlink()
    [problem] = reopen(tmp_path, 18).problems
    assert "the log ends at offset 6, 18 was flushed" in problem
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    [problem] = reopen(tmp_path, 18).problems
    assert "the log ends at offset 0, 18 was flushed" in problem


@pytest.mark.parametrize("base", [0, 6])
def test_damage_in_a_flushed_segment_is_found_by_the_read(tmp_path: Path, base: int) -> None:
    """Opening does not read it; reading says where, and the log is not failed by that."""
    write(tmp_path)
    file = tmp_path / file_name(base)
    content = bytearray(file.read_bytes())
    second = list(batches.iterate(bytes(content)))[1]
    content[second.start + 16] = 7
    file.write_bytes(content)
    log = reopen(tmp_path, 18)
    assert (log.log_end_offset, log.problems) == (18, [])
    with pytest.raises(LogFault, match=rf"{file.name} at {second.start}: magic is 7"):
        log.read(base, 100, 100)
    assert log.read(12, 10**6, 100)
    assert log.append_as_leader(record(1), 4) == (18, 20)


def test_a_file_that_shrank_while_open(tmp_path: Path) -> None:
    write(tmp_path)
    log = reopen(tmp_path, 18)
    log.read(0, 1, 18)
    os.truncate(tmp_path / file_name(0), 10)
    with pytest.raises(LogFault, match="cut short"):
        log.read(0, 10**6, 18)


def test_a_flushed_segment_that_lost_its_last_batch(tmp_path: Path) -> None:
    write(tmp_path)
    file = tmp_path / file_name(0)
    os.truncate(file, list(batches.iterate(file.read_bytes()))[2].start)
    log = reopen(tmp_path, 18)
    for _ in range(2):
        with pytest.raises(LogFault, match="ends at offset 4: must be 6"):
            log.read(0, 1000, 18)
    assert log.read(6, 1000, 18)


def test_a_segment_made_anew_is_not_the_one_kept_aside(tmp_path: Path) -> None:
    """The old file was open while it was looked at; what is appended must not go there."""
    write(tmp_path)
    first = bytearray((tmp_path / file_name(0)).read_bytes())
    first[-1] ^= 1
    (tmp_path / file_name(0)).write_bytes(first)
    (tmp_path / LEADER_EPOCHS).write_text("0\n1\n1 0\n")
    log = reopen(tmp_path, 18)
    assert log.log_end_offset == 4
    aside = (tmp_path / f"{file_name(6)}.corrupt").read_bytes()
    for number in range(3):
        log.append_as_leader(record(number), 9)
    assert (tmp_path / file_name(6)).stat().st_size == 2 * len(record(0))
    assert (tmp_path / f"{file_name(6)}.corrupt").read_bytes() == aside
    log.close()
    assert reopen(tmp_path).log_end_offset == 10


def test_a_batch_larger_than_what_recovery_reads_at_once(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    for size in (10, 700_000, 10, 300_000):
        log.append_as_leader(batches.encode([(None, bytes(size))], 5), 1)
    stored = log.read(0, 10**9, 10**9)
    log.close()
    for recovery_point in (0, 4):
        again = reopen(tmp_path, recovery_point)
        assert again.problems == []
        assert again.read(0, 10**9, 10**9) == stored
        again.close()


def overwrite(content: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(content)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Path.unlink, "missing: rebuilt from the batches"),
        (overwrite(""), ":0: truncated"),
        (overwrite("0\n1\n1 0"), ":3: truncated"),
        (overwrite("0\n2\n1 0\n"), ":2: count is 2: must be 1"),
        (overwrite("0\n2\n2 0\n1 4\n"), ":4: epoch is 1: must be above 2"),
        (overwrite("0\n0\n"), ""),
        (overwrite("0\n1\n1 0\n"), "epoch at offset 6 is 1, the batch there has 2"),
        (overwrite("0\n1\n3 0\n"), "epoch at offset 0 is 3, the batch there has 1"),
        (overwrite("0\n3\n1 0\n2 6\n7 8\n"), "epoch before offset 12 is 7, the batch there has 4"),
        (overwrite("0\n4\n1 0\n2 6\n4 10\n5 18\n"), ""),
        (overwrite("0\n4\n1 0\n2 6\n4 10\n5 12\n"), "epoch 5 does not begin at offset 12"),
    ],
)
def test_a_wrong_epoch_checkpoint_is_rebuilt(
    tmp_path: Path, change: Callable[[Path], object], problem: str
) -> None:
    stored = write(tmp_path)
    file = tmp_path / LEADER_EPOCHS
    right = file.read_text()
    assert right == "0\n3\n1 0\n2 6\n4 10\n"
    change(file)
    log = reopen(tmp_path, 18)
    if problem:
        assert any(problem in found and found.startswith(str(file)) for found in log.problems)
        assert file.read_text() == right
    is_usable(log, tmp_path, stored)


def test_an_epoch_checkpoint_behind_the_log_is_no_problem(tmp_path: Path) -> None:
    """It is written when flushing; the batches since then say the rest."""
    log = PartitionLog.open(tmp_path, CONFIG, 0)
    for number, epoch in enumerate(EPOCHS):
        log.append_as_leader(record(number), epoch)
        if number == 3:
            log.flush()
    stored = log.read(0, 10**9, 10**9)
    assert (tmp_path / LEADER_EPOCHS).read_text() == "0\n2\n1 0\n2 6\n"
    point = log.recovery_point
    log.close(flush=False)
    again = reopen(tmp_path, point)
    assert (again.problems, again.recovery_point) == ([], 8)
    is_usable(again, tmp_path, stored)


def test_a_clean_end_does_not_read_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    checked: list[int] = []
    monkeypatch.setattr(batches, "verify", lambda data, batch: checked.append(batch.start))
    reopen(tmp_path, 18)
    assert checked == []
    reopen(tmp_path, 16)
    assert len(checked) == 3
    reopen(tmp_path, 0)
    assert len(checked) == 3 + 9


def test_an_empty_last_segment(tmp_path: Path) -> None:
    """A kill between making the file and writing to it."""
    stored = write(tmp_path)
    (tmp_path / file_name(18)).touch()
    log = reopen(tmp_path, 18)
    assert (log.problems, log.log_end_offset) == ([], 18)
    is_usable(log, tmp_path, stored)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path)
    for name in (
        "partition.metadata",
        "7.log",
        "notes.txt",
        f"{file_name(0)}.corrupt",
        f"{LEADER_EPOCHS}.tmp",
    ):
        (tmp_path / name).write_text("not a log")
    log = reopen(tmp_path)
    assert log.problems == [f"{tmp_path / '7.log'}: a segment is named by 20 digits, at most 2^63-1: skipped"]
    assert log.log_end_offset == 18
    assert (tmp_path / "notes.txt").read_text() == "not a log"


@pytest.mark.parametrize("what", ["no folder", "a file", "a folder as segment"])
def test_a_folder_that_cannot_be_read(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "t-0"
    if what == "a file":
        folder.touch()
    if what == "a folder as segment":
        (folder / file_name(0)).mkdir(parents=True)
    with pytest.raises(LogFault, match="t-0: cannot be opened: "):
        reopen(folder)


def test_no_room_for_a_copy_of_what_is_cut(tmp_path: Path) -> None:
    stored = write(tmp_path)
    os.truncate(tmp_path / file_name(12), (tmp_path / file_name(12)).stat().st_size - 1)
    (tmp_path / f"{file_name(12)}.corrupt").mkdir()
    log = reopen(tmp_path)
    assert log.log_end_offset == 16
    assert "could not be copied" in log.problems[1]
    is_usable(log, tmp_path, stored)


def test_what_recovery_cuts_off_does_not_come_back_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    damaged = sorted(tmp_path.glob("*.log"))[1]
    with damaged.open("r+b") as file:
        file.seek(150)
        file.write(b"\xff" * 8)
    synced, order = list[Path](), list[str]()
    truncate, fdatasync = os.ftruncate, os.fdatasync

    def truncating(fd: int, size: int) -> None:
        order.append("cut")
        truncate(fd, size)

    def syncing(fd: int) -> None:
        order.append("sync")
        fdatasync(fd)

    monkeypatch.setattr(os, "ftruncate", truncating)
    monkeypatch.setattr(os, "fdatasync", syncing)
    monkeypatch.setattr(recovery, "sync_directory", synced.append)
    reopen(tmp_path).close(flush=False)
    assert order[:2] == ["cut", "sync"]
    assert synced == [tmp_path], "later segments were renamed"


def test_epochs_without_a_segment_are_none(tmp_path: Path) -> None:
    """As when a machine loses power before the first name of a log is synced."""
    write_epochs(tmp_path / LEADER_EPOCHS, (EpochEntry(3, 0), EpochEntry(5, 7)))
    log = PartitionLog.open(tmp_path, LogConfig(), 9)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, None)
    log.close()
