"""The state-change log's writer: order, envelope, rotation, limits, and what it says about what it lost."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proto.statelog.writer import FILE_NAME, Rotation, StateLogWriter, _next_stamp, format_ts

OpenLog = Callable[..., StateLogWriter]


@pytest.fixture
def open_log(state_log_dir: Path) -> Iterator[OpenLog]:
    """Opens writers and closes what the test left open."""
    opened: list[StateLogWriter] = []

    def open_(**options: Any) -> StateLogWriter:
        writer = StateLogWriter(state_log_dir, "controller", 1, **options)
        opened.append(writer)
        return writer

    yield open_
    for writer in opened:
        writer.close()


def lines(directory: Path) -> list[dict[str, Any]]:
    """All records: rotated files by name, that is by time, then the current one."""
    found = []
    for path in sorted(directory.glob("state-change.*.jsonl.gz")):
        found += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    current = directory / FILE_NAME
    if current.exists():
        found += [json.loads(line) for line in current.read_bytes().splitlines()]
    return found


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"kind": "partition", "partition": n} for n in range(start, start + count)]


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def test_envelope_is_the_documented_one(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log()
    writer.append(
        [{"kind": "controller", "to": "active"}],
        cause="ControllerFailover",
        controller_epoch=7,
        event_id=1,
        ts_us=1768385700123456,
    )
    assert writer.flush()
    assert (state_log_dir / FILE_NAME).read_bytes() == (
        b'{"schema":1,"ts":"2026-01-14T10:15:00.123456Z","role":"controller","node":1,"controller_epoch":7,'
        b'"event_id":1,"cause":"ControllerFailover","kind":"controller","to":"active"}\n'
    )


@given(st.integers(0, 4_102_444_800_000_000))
def test_timestamps_keep_their_microseconds(ts_us: int) -> None:
    text = format_ts(ts_us)
    assert len(text) == 27
    assert int(text[20:26]) == ts_us % 1_000_000
    assert text.endswith("Z")


def test_order_is_that_of_appending_lazy_or_not(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log()
    writer.append(rows(500), cause="A", count=500)
    writer.append(iter(rows(700, 500)), cause="B", count=700)
    writer.append((row for row in rows(3, 1200)), cause="C", count=3)
    writer.close()
    assert [row["partition"] for row in lines(state_log_dir)] == list(range(1203))
    assert (writer.written, writer.dropped, writer.queued) == (1203, 0, 0)


def test_lazy_records_are_expanded_by_the_writers_thread(open_log: OpenLog) -> None:
    writer = open_log()
    expanded_by = []

    def lazy() -> Iterator[dict[str, Any]]:
        expanded_by.append(threading.current_thread().name)
        yield {"kind": "log"}

    writer.append(lazy(), cause="A")
    assert writer.flush()
    assert expanded_by == ["state-log"]


def test_many_threads_append_and_each_keeps_its_order(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log()

    def work(number: int) -> None:
        for n in range(200):
            writer.append([{"kind": "log", "thread": number, "n": n}], cause="A")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    found = lines(state_log_dir)
    assert len(found) == 1000
    for number in range(5):
        assert [row["n"] for row in found if row["thread"] == number] == list(range(200))


def test_close_writes_what_is_queued_and_later_records_count_as_lost(
    open_log: OpenLog, state_log_dir: Path
) -> None:
    writer = open_log()
    for n in range(50):
        writer.append(rows(100, n * 100), cause="A", count=100)
    writer.close()
    assert len(lines(state_log_dir)) == 5000
    writer.append(rows(2), cause="A", count=2)
    assert writer.dropped == 2
    assert len(lines(state_log_dir)) == 5000
    writer.close()


# --- rotation ----------------------------------------------------------------------------------------------


def test_rotation_by_size_compresses_and_loses_nothing(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log(rotation=Rotation(bytes_max=20_000))
    for n in range(30):
        writer.append(rows(50, n * 50), cause="A", count=50)
    writer.close()
    rotated = sorted(state_log_dir.glob("state-change.*"))
    assert len(rotated) > 5
    assert all(p.name.endswith("Z.jsonl.gz") or p.name == FILE_NAME for p in rotated)
    for path in state_log_dir.glob("*.gz"):
        assert gzip.decompress(path.read_bytes()).endswith(b"}\n")
    assert [row["partition"] for row in lines(state_log_dir)] == list(range(1500))


@pytest.mark.slow
def test_rotation_by_time_needs_no_further_record(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log(rotation=Rotation(seconds_max=0.05))
    writer.append(rows(1), cause="A")
    wait_for(lambda: len(list(state_log_dir.glob("*.gz"))) == 1)
    assert not (state_log_dir / FILE_NAME).exists()
    writer.append(rows(1, 1), cause="A")
    writer.close()
    assert [row["partition"] for row in lines(state_log_dir)] == [0, 1]


def test_only_so_many_rotated_files_are_kept_and_they_are_the_newest(
    open_log: OpenLog, state_log_dir: Path
) -> None:
    writer = open_log(rotation=Rotation(bytes_max=100, files_kept=3))
    for n in range(8):
        writer.append(rows(1, n), cause="A")
        assert writer.flush()
    writer.close()
    assert len(list(state_log_dir.glob("*.gz"))) == 3
    assert [row["partition"] for row in lines(state_log_dir)] == [5, 6, 7]


def test_the_newest_files_are_kept_and_read_last_whatever_the_wall_clock_does(
    open_log: OpenLog, state_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put back an hour, by whoever found that it was ahead; and forwards again."""
    beginning = time.time_ns()
    clock = iter([0, 3600, 3605, 10, 15, 15, 20, 9000])
    now = [beginning]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    writer = open_log(rotation=Rotation(bytes_max=100, files_kept=3))
    for n, offset_s in enumerate(clock):
        now[0] = beginning + offset_s * 10**9
        writer.append(rows(1, n), cause="A")
        assert writer.flush()
        wait_for(lambda: not (state_log_dir / FILE_NAME).exists())
    writer.close()
    assert [row["partition"] for row in lines(state_log_dir)] == [5, 6, 7]


def test_a_rotated_file_s_name_is_the_time_but_after_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000 * 10**9)
    now = "20270115T080000.000000Z"
    older, newer = (
        "state-change.20200101T000000.000000Z.jsonl.gz",
        "state-change.20300101T000000.000000Z.jsonl",
    )
    assert _next_stamp([]) == _next_stamp([older]) == now
    assert _next_stamp([newer, older]) == "20300101T000000.000001Z"


def test_rotation_cut_short_by_a_kill_doubles_nothing(open_log: OpenLog, state_log_dir: Path) -> None:
    """Killed between rename and unlink, a rotation leaves a plain file and half a gzip: the next one mends it."""
    state_log_dir.mkdir()
    left = state_log_dir / "state-change.20260101T000000.000000Z.jsonl"
    left.write_bytes(b'{"kind":"log","partition":-1}\n')
    (state_log_dir / f"{left.name}.gz").write_bytes(gzip.compress(left.read_bytes())[:20])
    writer = open_log(rotation=Rotation(bytes_max=100))
    writer.append(rows(1), cause="A")
    writer.close()
    assert not left.exists()
    assert [row["partition"] for row in lines(state_log_dir)] == [-1, 0]


def test_rotation_that_fails_is_said_and_loses_nothing(
    open_log: OpenLog, state_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [1, 2]
    copy = shutil.copyfileobj

    def full(*args: Any) -> None:
        if failing:
            failing.pop()
            copy(io.BytesIO(b"as much as there is room for"), args[1])
            raise OSError(28, "No space left on device")
        copy(*args)

    monkeypatch.setattr(shutil, "copyfileobj", full)
    writer = open_log(rotation=Rotation(bytes_max=100))
    for n in range(3):
        writer.append(rows(1, n), cause="A")
        assert writer.flush()
        assert not list(state_log_dir.glob("*.part")), "it takes the room that records need"
    writer.close()
    assert not failing
    written = lines(state_log_dir)
    assert [row["partition"] for row in written if "partition" in row] == [0, 1, 2]
    told = [row for row in written if row["kind"] == "log"]
    # Once, however often it fails in the same way.
    assert [(row["to"], row["reason"]) for row in told] == [("rotation_failed", "No space left on device")]
    assert writer.dropped == 0


# --- losses ------------------------------------------------------------------------------------------------


def test_queue_limit_drops_counts_and_reports(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log(queue_max=10)
    release = threading.Event()

    def blocking() -> Iterator[dict[str, Any]]:
        release.wait(20)
        yield {"kind": "partition", "partition": 0}

    writer.append(blocking(), cause="A")
    writer.append(rows(9, 1), cause="A", count=9)
    writer.append(rows(1, 10), cause="A")
    writer.append(rows(2, 11), cause="A", count=2)
    assert (writer.queued, writer.dropped) == (10, 3)
    release.set()
    wait_for(lambda: writer.written == 11)
    found = lines(state_log_dir)
    assert [row["partition"] for row in found if "partition" in row] == list(range(10))
    (report,) = [row for row in found if row["kind"] == "log"]
    assert (report["to"], report["count"]) == ("dropped", 3)
    assert "queue limit of 10" in report["reason"]
    writer.append(rows(1, 99), cause="A")
    writer.close()
    assert lines(state_log_dir)[-1]["partition"] == 99
    assert writer.dropped == 3


def test_a_file_that_is_removed_takes_its_own_lines_with_it_and_no_others(
    open_log: OpenLog, state_log_dir: Path
) -> None:
    writer = open_log()
    # What is said of lost lines is a line, too.
    for count, lost in ((3, 0), (1, 3), (2, 3 + 2)):
        writer.append(rows(count), cause="A", count=count)
        assert writer.flush()
        assert writer.dropped == lost
        (state_log_dir / FILE_NAME).unlink()


class Filling(io.FileIO):
    """A file on a disk that has room for so many bytes more."""

    room = 0

    def write(self, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(bytes(data)[: self.room])
        self.room -= written
        return written


def test_of_a_write_that_a_full_disk_ends_whole_lines_are_written_and_the_rest_is_lost(
    open_log: OpenLog, state_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open
    rooms = [450]

    def open_(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if self.name != FILE_NAME or mode != "ab" or not rooms:
            return opened(self, mode, *args, **options)
        file = Filling(self, "ab")
        file.room = rooms.pop()
        return file

    writer = open_log()
    monkeypatch.setattr(Path, "open", open_)
    writer.append(rows(5), cause="A", count=5)
    writer.close()
    found = (state_log_dir / FILE_NAME).read_bytes().splitlines()
    whole = [line for line in found if line.endswith(b"}")]
    report = json.loads(whole.pop())
    assert 0 < len(whole) < 5
    assert (writer.written, writer.dropped) == (len(whole) + 1, 5 - len(whole))
    assert (report["kind"], report["count"]) == ("log", writer.dropped)


def test_a_directory_that_vanishes_is_survived_and_reported(open_log: OpenLog, state_log_dir: Path) -> None:
    writer = open_log(rotation=Rotation(bytes_max=1))  # so that every record opens the file anew
    writer.append(rows(1), cause="A")
    assert writer.flush()
    shutil.rmtree(state_log_dir)
    state_log_dir.write_text("a file where the directory was")
    with capture_logs() as logs:
        for n in (1, 2):
            writer.append(rows(1, n), cause="A")
            assert writer.flush()
            assert (writer.dropped, writer.not_written) == (n, "File exists")
        state_log_dir.unlink()
        state_log_dir.mkdir()
        writer.append(rows(1, 3), cause="A")
        assert writer.flush()
        assert writer.not_written == ""
        writer.close()
    # The first once, however many records follow: brokers have no metrics, and who has no file to read has the journal.
    assert [(line["event"], line["why"], line.get("count")) for line in logs] == [
        ("state_log_not_written", "File exists", None),
        ("state_log_records_lost", "File exists", 2),
    ]
    found = lines(state_log_dir)
    assert [row["partition"] for row in found if "partition" in row] == [3]
    assert [(row["to"], row["count"]) for row in found if row["kind"] == "log"] == [("dropped", 2)]
    assert writer.dropped == 2


def test_a_record_that_cannot_be_written_does_not_end_the_writer(
    open_log: OpenLog, state_log_dir: Path
) -> None:
    writer = open_log()

    def exploding() -> Iterator[dict[str, Any]]:
        yield {"kind": "partition", "partition": 0}
        raise AssertionError("log batch of unknown kind 'x'")

    writer.append(exploding(), cause="A", count=5)
    writer.append([{"kind": "log", "value": object()}], cause="A")
    writer.append(rows(1, 1), cause="A")
    assert writer.flush()
    writer.close()
    found = lines(state_log_dir)
    assert [row["partition"] for row in found if "partition" in row] == [0, 1]
    assert sum(row["count"] for row in found if row.get("to") == "dropped") == writer.dropped == 5
    assert all("could not be encoded" in row["reason"] for row in found if row.get("to") == "dropped")
    assert writer.queued == 0


# --- torn lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [b"", b'{"kind":"log"}\n', b'{"kind":"lo'])
def test_a_torn_line_does_not_swallow_the_first_new_one(
    open_log: OpenLog, state_log_dir: Path, left: bytes
) -> None:
    state_log_dir.mkdir()
    (state_log_dir / FILE_NAME).write_bytes(left)
    writer = open_log()
    writer.append(rows(1), cause="A")
    writer.close()
    whole, _, last = (state_log_dir / FILE_NAME).read_bytes().rstrip(b"\n").rpartition(b"\n")
    assert json.loads(last)["partition"] == 0
    assert whole == left.rstrip(b"\n")


def test_a_disk_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    writer = StateLogWriter(disk / "state-log", "broker", 1)
    writer.append([{"kind": "broker"}], cause="x")
    assert writer.flush()
    shutil.rmtree(disk)
    writer.append([{"kind": "broker"}], cause="x")
    assert writer.flush()
    writer.close()
    assert not disk.exists()
    assert writer.dropped == 2


def test_a_log_that_is_no_file_is_refused_and_later_written_by_nobody(
    open_log: OpenLog, state_log_dir: Path
) -> None:
    """To open a pipe that nobody reads would last for ever, and the end of the process half a minute."""
    log = open_log()
    os.mkfifo(state_log_dir / FILE_NAME)
    with pytest.raises(OSError, match=r"not a regular file: .*state-change.jsonl"):
        StateLogWriter(state_log_dir, "controller", 1)
    log.append([{"kind": "broker", "to": "gone"}], cause="Test")
    assert log.flush()
    assert (log.written, log.dropped) == (0, 1)
