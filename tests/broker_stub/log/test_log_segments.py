"""A log on disk while nothing goes wrong: its files, its index, what is flushed, how many files are open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_stub.log import batches
from broker_stub.log import log as log_module
from broker_stub.log.batches import BatchError
from broker_stub.log.checkpoints import LEADER_EPOCHS
from broker_stub.log.errors import LogFault, OffsetOutOfRange, OutOfSequence
from broker_stub.log.files import FilePool
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from broker_stub.log.segment import Segment, file_name, parse_file_name, walk
from proto.gen import broker_data_pb2 as wire
from tests.support.broker.unsynced_names import unsynced_names

ONE = batches.encode([(None, b"x" * 50)], 1000)
SMALL_SEGMENTS = LogConfig(segment_bytes=3 * len(ONE))


def segments(folder: Path) -> list[int]:
    return sorted(int(name.removesuffix(".log")) for name in os.listdir(folder) if name.endswith(".log"))


def filled(folder: Path, count: int, config: LogConfig = SMALL_SEGMENTS) -> PartitionLog:
    log = PartitionLog.open(folder, config, 0)
    for _ in range(count):
        log.append_as_leader(ONE, 1)
    return log


def test_an_empty_log_makes_no_file(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.assign_epoch_start(5)
    log.flush()
    assert log.read(0, 100, 100) == b""
    assert log.truncate_to(0) is False
    assert log.offset_for_timestamp(0, 10) is None
    log.close()
    assert os.listdir(tmp_path) == []


def test_an_epoch_without_a_batch_is_not_written(tmp_path: Path) -> None:
    log = filled(tmp_path, 1)
    log.assign_epoch_start(5)
    log.flush()
    assert (tmp_path / LEADER_EPOCHS).read_text() == "0\n1\n1 0\n"


def test_segments_are_rolled_before_they_exceed_their_size(tmp_path: Path) -> None:
    log = filled(tmp_path, 8)
    assert segments(tmp_path) == [0, 3, 6]
    log.append_as_leader(batches.encode([(None, bytes(1000))], 5), 1)
    log.append_as_leader(ONE, 1)
    assert segments(tmp_path) == [0, 3, 6, 8, 9]
    assert log.size_bytes == sum(file.stat().st_size for file in tmp_path.glob("*.log"))


def test_a_read_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, 8)
    assert [batch.base_offset for batch in batches.iterate(log.read(1, 5 * len(ONE), 100))] == [1, 2, 3, 4, 5]
    assert [batch.base_offset for batch in batches.iterate(log.read(1, 10**6, 7))] == [1, 2, 3, 4, 5, 6]
    assert log.read(2, 0, 100) == log.read(2, len(ONE), 100)
    assert log.read(2, -1, 100) == log.read(2, 1, 100)
    with pytest.raises(OffsetOutOfRange, match="offset 9 is not in the log: it goes from 0 to 8"):
        log.read(9, 100, 100)


@pytest.mark.parametrize("records_per_batch", [1, 40])
def test_reads_find_their_batch_through_the_index(tmp_path: Path, records_per_batch: int) -> None:
    """Segments of many index entries, every offset, several bounds, against plain iteration."""
    log = PartitionLog.open(tmp_path, LogConfig(segment_bytes=40_000), 0)
    for number in range(600):
        size = (number * 37) % 300 // records_per_batch
        log.append_as_leader(batches.encode([(None, bytes(size))] * records_per_batch, number), 1)
    everything = log.read(0, 10**9, 10**9)
    found = list(batches.iterate(everything))
    assert len(found) == 600
    for batch in found[::7]:
        for max_bytes in (1, 500, 5000, 60_000):
            for upto in (batch.next_offset - 1, batch.next_offset, batch.next_offset + 300, 10**9):
                data = log.read(batch.next_offset - 1, max_bytes, upto)
                fitting = [b for b in found if b.base_offset >= batch.base_offset and b.next_offset <= upto]
                expected = [b for b in fitting if b.end - batch.start <= max_bytes] or fitting[:1]
                assert data == (everything[batch.start : expected[-1].end] if expected else b"")


def test_a_log_start_above_zero_survives_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path, 8)
    log.truncate_fully_and_start_at(50)
    assert segments(tmp_path) == [50]
    log = PartitionLog.open(tmp_path, SMALL_SEGMENTS, 0)
    assert (log.log_start_offset, log.log_end_offset, log.problems) == (50, 50, [])
    assert log.append_as_leader(ONE, 2) == (50, 51)
    log.truncate_to(50)
    assert segments(tmp_path) == [50]
    with pytest.raises(OffsetOutOfRange):
        log.read(49, 10, 100)


def test_truncation_removes_files_and_rewrites_epochs(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    for _ in range(3):
        log.append_as_leader(ONE, 4)
    log.flush()
    assert (tmp_path / LEADER_EPOCHS).read_text() == "0\n2\n1 0\n4 5\n"
    assert log.truncate_to(4)
    assert segments(tmp_path) == [0, 3]
    assert (tmp_path / LEADER_EPOCHS).read_text() == "0\n1\n1 0\n"
    assert (log.log_end_offset, log.recovery_point, log.latest_epoch) == (4, 4, 1)
    assert log.truncate_to(3)
    assert segments(tmp_path) == [0]
    assert log.truncate_to(0)
    assert segments(tmp_path) == []
    assert log.append_as_leader(ONE, 2) == (0, 1)


def test_the_epoch_file_is_written_only_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []
    monkeypatch.setattr("broker_stub.log.log.write_epochs", lambda path, entries: written.append(entries))
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.assign_epoch_start(3)
    log.flush()
    assert written == []
    for epoch in (3, 3, 5, 5):
        log.append_as_leader(ONE, epoch)
        log.flush()
    log.assign_epoch_start(9)
    log.flush()
    log.truncate_to(4)
    log.close()
    assert written == [((3, 0),), ((3, 0), (5, 2))]


def test_a_truncation_that_removes_nothing_forgets_a_term_without_records(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    log.assign_epoch_start(7)
    assert log.truncate_to(3) is False
    assert log.latest_epoch == 1
    with pytest.raises(OutOfSequence, match="leader epoch is 0: must be 1 or more"):
        log.assign_epoch_start(0)
    with pytest.raises(OutOfSequence):
        log.append_as_leader(ONE, 0)


def counting(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    calls: list[int] = []
    real: Callable[[int], None] = getattr(os, name)

    def count(fd: int) -> None:
        calls.append(fd)
        real(fd)

    monkeypatch.setattr(os, name, count)
    return calls


def test_flush_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counting(monkeypatch, "fdatasync")
    log = PartitionLog.open(tmp_path, LogConfig(flush_interval_messages=3), 0)
    points = []
    for _ in range(7):
        log.append_as_leader(ONE, 1)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]
    assert len(calls) == 2
    log.close()
    assert (log.recovery_point, len(calls)) == (7, 3)


def test_flush_syncs_every_segment_above_the_recovery_point_and_new_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 4)
    log.flush()
    for _ in range(4):
        log.append_as_leader(ONE, 1)
    data, names = counting(monkeypatch, "fdatasync"), counting(monkeypatch, "fsync")
    log.flush()
    assert (len(data), len(names)) == (2, 1)
    log.flush()
    assert (len(data), len(names)) == (2, 1)


def test_open_files_are_bounded(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    pool = FilePool(4)
    logs = []
    for number in range(20):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        logs.append(PartitionLog.open(folder, SMALL_SEGMENTS, 0, pool))
    for _ in range(7):
        for log in logs:
            log.append_as_leader(ONE, 1)
            assert len(os.listdir("/proc/self/fd")) <= before + 4
    for log in logs:
        assert len(list(batches.iterate(log.read(0, 10**6, 10**6)))) == 7
        log.close()
    assert len(pool) == 0
    alone = filled(tmp_path / "t-0", 9)
    alone.read(0, 10**6, 10**6)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    alone.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_least_recently_used_file_is_closed_first(tmp_path: Path) -> None:
    pool = FilePool(2)
    paths = [tmp_path / name for name in "abc"]
    first, second = (pool.fd(path, create=True) for path in paths[:2])
    assert pool.fd(paths[0]) == first
    third = pool.fd(paths[2], create=True)
    assert third == second  # the number that was just closed
    assert pool.fd(paths[0]) == first
    pool.forget(paths[0])
    assert len(pool) == 1
    pool.close()


def test_a_file_that_is_there_is_no_new_one(tmp_path: Path) -> None:
    pool = FilePool()
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        pool.fd(tmp_path / "a", create=True)
    pool.close()


def test_batches_that_a_follower_has_already_move_no_entry_of_its_index(tmp_path: Path) -> None:
    sent = [batches.encode([(None, b"x" * 5000)], 0, offset, 1) for offset in range(6)]
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.append_as_follower(b"".join(sent[:3]))
    log.append_as_follower(b"".join(sent[1:]))
    assert [log.read(offset, 1, 6) for offset in range(6)] == sent
    log.close()


def test_a_truncation_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path, 5)
    data, names = counting(monkeypatch, "fdatasync"), counting(monkeypatch, "fsync")
    log.truncate_to(4)
    assert (len(data), len(names)) == (1, 0)
    log.truncate_to(2)
    assert (len(data), len(names)) == (2, 1)


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = filled(tmp_path, 1)
    log.close()
    for act in (
        lambda: log.append_as_leader(ONE, 1),
        lambda: log.read(0, 10, 10),
        lambda: log.truncate_to(0),
        lambda: log.offset_for_timestamp(0, 10),
    ):
        with pytest.raises(LogFault, match="the log is closed"):
            act()
    log.close()


def test_closing_without_a_flush_does_not_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path, 1)
    calls = counting(monkeypatch, "fdatasync")
    log.close(flush=False)
    assert calls == []


def test_timestamps_are_found_in_any_order_and_in_segments_not_yet_indexed(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, SMALL_SEGMENTS, 0)
    times = [10, 40, 20, 30, 90, 50, 60, 95, 70]
    for time in times:
        log.append_as_leader(batches.encode([(None, b"x" * 50)], time), 2)
    log.close()
    again = PartitionLog.open(tmp_path, SMALL_SEGMENTS, log.recovery_point)
    for wanted in range(100):
        first = next(((time, offset, 2) for offset, time in enumerate(times) if time >= wanted), None)
        assert again.offset_for_timestamp(wanted, 100) == first
    assert again.offset_for_timestamp(91, 7) is None


def test_timestamps_are_found_through_the_index(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    times = [10, 30, 20, 30, 60, 60, 50, 70]
    for time in times:
        log.append_as_leader(batches.encode([(None, bytes(5000))], time), 2)
    for wanted in range(80):
        first = next(((time, offset, 2) for offset, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted, 100) == first


def test_a_record_inside_a_batch_is_found_by_its_own_timestamp(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.append_as_leader(batches.encode([(None, b"a")], 5), 1)
    body = wire.Records(
        records=[wire.Record(timestamp_delta=delta) for delta in (0, 30, 10)]
    ).SerializeToString()
    log.append_as_leader(batches.seal(body, 3, 100, 130), 1)
    assert log.offset_for_timestamp(6, 10) == (100, 1, 1)
    assert log.offset_for_timestamp(101, 10) == (130, 2, 1)
    assert log.offset_for_timestamp(131, 10) is None


@pytest.mark.parametrize(
    ("name", "base_offset"),
    [
        ("00000000000000000000.log", 0),
        ("09223372036854775807.log", 2**63 - 1),
        ("09223372036854775808.log", None),
        ("99999999999999999999.log", None),
        ("0.log", None),
        ("00000000000000000000.log.corrupt", None),
        ("000000000000000000٠0.log", None),
    ],
)
def test_a_segments_name_is_its_base_offset(name: str, base_offset: int | None) -> None:
    assert parse_file_name(name) == base_offset
    if base_offset is not None:
        assert file_name(base_offset) == name


def test_the_newest_timestamp_of_a_segment_shrinks_with_it(tmp_path: Path) -> None:
    pool = FilePool()
    segment = Segment(tmp_path, 0, pool)
    for offset, timestamp in enumerate([10, 90, 40]):
        data = batches.encode([(None, b"x" * 3000)], timestamp, offset, 1)
        segment.append(data, list(batches.iterate(data)))
    assert segment.max_timestamp == 90
    segment.truncate(segment.locate(1))
    assert (segment.max_timestamp, segment.next_offset) == (10, 1)
    segment.truncate(segment.locate(0))
    assert (segment.size, segment.next_offset) == (0, 0)
    pool.close()


def test_no_name_of_a_flushed_log_is_in_doubt(tmp_path: Path) -> None:
    with unsynced_names() as unsynced:
        log = filled(tmp_path, 7)
        assert unsynced == {tmp_path}
        log.flush()
        assert unsynced == set()
        log.truncate_to(2)
        assert unsynced == set()
        log.append_as_leader(ONE, 2)
        log.flush()
        for start in (3, 5):
            log.truncate_fully_and_start_at(start)
            assert unsynced == set()
        log.append_as_leader(ONE, 2)
        log.close()
        assert unsynced == set()


def test_names_of_a_log_that_was_killed_are_synced_by_the_next_flush(tmp_path: Path) -> None:
    """Its files are there, but only in memory: they count as flushed only when their folder is."""
    with unsynced_names() as unsynced:
        filled(tmp_path, 7)
        again = PartitionLog.open(tmp_path, SMALL_SEGMENTS, 0)
        again.flush()
        assert unsynced == set()
        again.close()


def several(*epochs: int) -> bytes:
    """Batches of three records, each in its epoch, as a leader sends them."""
    found, offset = b"", 0
    for epoch in epochs:
        raw = batches.encode([(None, b"x" * 50)] * 3, 1000)
        data, placed = batches.stamp(raw, list(batches.iterate(raw)), offset, epoch)
        found, offset = found + bytes(data), placed[-1].next_offset
    return found


def test_a_log_is_cut_before_the_batch_that_the_offset_is_in(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.append_as_follower(several(1, 1))
    assert log.truncate_to(4)
    assert log.log_end_offset == 3


def test_each_batch_that_a_follower_appends_may_begin_an_epoch(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.append_as_follower(several(1, 2, 5))
    assert [tuple(log.end_offset_for_epoch(epoch)) for epoch in (1, 2, 4, 5)] == [
        (1, 3),
        (2, 6),
        (2, 6),
        (5, 9),
    ]


def test_after_a_cut_the_index_is_of_what_is_there(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(segment_bytes=1 << 20), 0)
    large, small = (batches.encode([(None, bytes(size))], 1000) for size in (3000, 40))
    for _ in range(8):
        log.append_as_leader(large, 1)
    log.truncate_to(3)
    for _ in range(200):
        log.append_as_leader(small, 1)
    for offset in (2, 3, 100, 202):
        (batch,) = batches.iterate(log.read(offset, 1, 203))
        assert batch.base_offset == offset
    assert list(log._segments[0]._offsets) == sorted(set(log._segments[0]._offsets))


def test_a_recovery_point_is_not_before_the_begin_of_the_log(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), 0)
    log.truncate_fully_and_start_at(100)
    log.close()
    assert PartitionLog.open(tmp_path, LogConfig(), 0).recovery_point == 100


def test_names_that_a_killed_broker_may_not_have_synced_are_synced_with_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 8).close(flush=False)
    synced: list[Path] = []
    log = PartitionLog.open(tmp_path, SMALL_SEGMENTS, 3)
    monkeypatch.setattr(log_module, "sync_directory", synced.append)
    log.flush()
    assert synced == [tmp_path]


def test_a_log_that_was_not_read_since_its_start_is_cut(tmp_path: Path) -> None:
    filled(tmp_path, 8).close()
    log = PartitionLog.open(tmp_path, SMALL_SEGMENTS, 8)
    assert log.truncate_to(4)
    assert segments(tmp_path) == [0, 3]
    assert [record.offset for record in batches.decode(log.read(0, 10_000, 9))] == [0, 1, 2, 3]
    log.append_as_leader(ONE, 2)
    assert log.log_end_offset == 5
    log.close()


def test_a_file_that_is_gone_is_not_made_anew_with_a_hole(tmp_path: Path) -> None:
    files = FilePool(1)
    log = PartitionLog.open(tmp_path, LogConfig(), 0, files)
    log.append_as_leader(ONE, 1)
    (tmp_path / "other").write_bytes(b"")
    files.fd(tmp_path / "other")
    (tmp_path / file_name(0)).unlink()
    with pytest.raises(LogFault, match="No such file"):
        log.append_as_leader(ONE, 1)
    assert segments(tmp_path) == []
    files.close()


@pytest.mark.parametrize("check", [True, False])
def test_a_batch_that_is_cut_short_is_noticed_whether_or_not_checksums_are(
    tmp_path: Path, check: bool
) -> None:
    file = tmp_path / "a"
    whole = b"".join(batches.encode([(None, b"x")], 1000, offset, 1) for offset in (0, 1))
    file.write_bytes(whole[:-1])
    fd = os.open(file, os.O_RDONLY)
    found = walk(fd, 0, len(whole) - 1, 0, -1, check=check)
    assert next(found)[0].next_offset == 1
    with pytest.raises(BatchError, match="cut short"):
        next(found)
    os.close(fd)


@pytest.mark.parametrize("check", [True, False])
def test_an_epoch_that_goes_back_within_a_file_is_noticed(tmp_path: Path, check: bool) -> None:
    file = tmp_path / "a"
    whole = b"".join(batches.encode([(None, b"x")], 1000, n, epoch) for n, epoch in enumerate((3, 4, 3)))
    file.write_bytes(whole)
    fd = os.open(file, os.O_RDONLY)
    found = walk(fd, 0, len(whole), 0, 2, check=check)
    assert [next(found)[0].leader_epoch for _ in range(2)] == [3, 4]
    with pytest.raises(BatchError, match="leader_epoch is 3: must be 4 or more"):
        next(found)
    os.close(fd)
