"""A failing disk: no partial append; the log reports the reason and refuses later changes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_stub.log import batches
from broker_stub.log.checkpoints import LEADER_EPOCHS
from broker_stub.log.errors import CorruptMessage, InvalidRecord, LogError, LogFault, MessageTooLarge
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from broker_stub.log.segment import file_name
from proto.gen import common_pb2 as codes

ONE = batches.encode([(None, b"x" * 50)], 1000)
ROOT = Path(__file__).parents[3]

#: Appends until the file size limit stops it, in a process of its own: the limit is the process's.
FILE_SIZE_LIMIT = """
import resource, sys
from pathlib import Path
from broker_stub.log import batches
from broker_stub.log.errors import LogFault
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
log = PartitionLog.open(Path(sys.argv[1]), LogConfig(), 0)
try:
    while True:
        log.append_as_leader(batches.encode([(None, b"x" * 333)], 5), 1)
except LogFault as error:
    print(error)
    print(log.log_end_offset, log.size_bytes)
"""


def opened(folder: Path, config: LogConfig | None = None) -> PartitionLog:
    return PartitionLog.open(folder, config or LogConfig(), 0)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (ONE[:-1], CorruptMessage),
        (ONE[:-1] + b"y", CorruptMessage),
        (batches.seal(b"", 0, 5, 5), InvalidRecord),
        (batches.encode([(None, bytes(2000))], 5), MessageTooLarge),
    ],
)
def test_one_bad_batch_refuses_all_and_fails_nothing(
    tmp_path: Path, bad: bytes, error: type[LogError]
) -> None:
    log = opened(tmp_path, LogConfig(message_max_bytes=1000))
    with pytest.raises(error):
        log.append_as_leader(ONE + bad, 1)
    assert os.listdir(tmp_path) == []
    log.append_as_leader(ONE, 1)
    content = (tmp_path / file_name(0)).read_bytes()
    with pytest.raises(error):
        log.append_as_leader(ONE + bad + ONE, 1)
    assert (tmp_path / file_name(0)).read_bytes() == content
    assert (log.log_end_offset, log.failure) == (1, "")
    assert log.append_as_leader(ONE, 1) == (1, 2)


def short_write(fd: int, data: bytes, position: int) -> int:
    return os.write(fd, bytes(data[:20])) if os.lseek(fd, position, os.SEEK_SET) >= 0 else 0


def no_space(fd: int, data: bytes, position: int) -> int:
    short_write(fd, data, position)
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("pwrite", [short_write, no_space])
@pytest.mark.parametrize("before", [0, 2])
def test_a_failed_append_is_undone_and_fails_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pwrite: Callable[[int, bytes, int], int], before: int
) -> None:
    log = opened(tmp_path)
    for _ in range(before):
        log.append_as_leader(ONE, 1)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(LogFault, match="append") as caught:
        log.append_as_leader(ONE * 3, 2)
    assert caught.value.error_code == codes.KAFKA_STORAGE_ERROR
    assert log.failure == str(caught.value)
    monkeypatch.undo()
    assert (tmp_path / file_name(0)).stat().st_size == before * len(ONE)
    assert (log.log_end_offset, log.latest_epoch) == (before, 1 if before else None)
    for act in (
        lambda: log.append_as_leader(ONE, 2),
        lambda: log.append_as_follower(batches.encode([(None, b"x")], 5, before, 2)),
        lambda: log.truncate_fully_and_start_at(0),
    ):
        with pytest.raises(LogFault, match="append"):
            act()
    assert len(list(batches.iterate(log.read(0, 1000, 1000)))) == before
    log.close()
    again = opened(tmp_path)
    assert (again.log_end_offset, again.problems) == (before, [])
    assert again.append_as_leader(ONE, 2) == (before, before + 1)


def test_what_cannot_be_undone_is_cut_by_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    log = opened(tmp_path)
    log.append_as_leader(ONE, 1)
    monkeypatch.setattr(os, "pwrite", short_write)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(LogFault):
        log.append_as_leader(ONE, 1)
    log.close()
    monkeypatch.undo()
    assert (tmp_path / file_name(0)).stat().st_size == len(ONE) + 20
    again = opened(tmp_path)
    assert again.log_end_offset == 1
    assert "20 bytes cut off" in again.problems[0]


def test_a_real_file_size_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    message, figures = done.stdout.splitlines()
    end, size = map(int, figures.split())
    assert "of 382 bytes written" in message
    assert 20 < end < 30
    assert (tmp_path / file_name(0)).stat().st_size == size < 10_000
    again = opened(tmp_path)
    assert (again.log_end_offset, again.problems) == (end, [])


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_failed_flush_fails_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whatever the kernel says to a second sync, the pages of the first one may be gone."""
    log = opened(tmp_path)
    log.append_as_leader(ONE, 1)
    monkeypatch.setattr(os, call, failing(errno.EIO))
    with pytest.raises(LogFault, match=r"flush: .*Input/output error"):
        log.flush()
    monkeypatch.undo()
    assert log.recovery_point == 0
    with pytest.raises(LogFault, match="flush"):
        log.flush()
    with pytest.raises(LogFault, match="flush"):
        log.append_as_leader(ONE, 1)
    assert log.recovery_point == 0


def test_an_append_that_must_flush_and_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path, LogConfig(flush_interval_messages=1))
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    with pytest.raises(LogFault):
        log.append_as_leader(ONE, 1)
    assert log.recovery_point == 0


@pytest.mark.parametrize("call", ["ftruncate", "unlink"])
def test_a_failed_truncation_fails_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=2 * len(ONE)))
    for _ in range(4):
        log.append_as_leader(ONE, 1)
    monkeypatch.setattr(os, call, failing(errno.EROFS))
    with pytest.raises(LogFault, match=f"truncation to offset {3 if call == 'ftruncate' else 1}"):
        log.truncate_to(3 if call == "ftruncate" else 1)
    monkeypatch.undo()
    with pytest.raises(LogFault, match="truncation"):
        log.append_as_leader(ONE, 1)
    log.close()
    assert opened(tmp_path).log_end_offset == 4


def test_a_folder_removed_below_a_log(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = opened(folder)
    folder.rmdir()
    with pytest.raises(LogFault, match="No such file or directory"):
        log.append_as_leader(ONE, 1)
    assert log.log_end_offset == 0
    assert log.read(0, 10, 10) == b""


def test_an_epoch_file_that_cannot_be_written(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append_as_leader(ONE, 1)
    (tmp_path / f"{LEADER_EPOCHS}.tmp").mkdir()
    with pytest.raises(LogFault, match=r"flush: .*leader-epoch-checkpoint"):
        log.flush()
    assert log.recovery_point == 0
