"""Logs read without Spark: the same lines are good and bad, damaged files are read as far as they go and named."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.analysis import lines
from controller.analysis.errors import ReportError
from controller.analysis.intake.files import Conversion
from controller.analysis.lines import BadLine
from controller.analysis.local_files import LISTINGS_MAX, LogFile, check_local, list_and_open, walk_local
from tests.support.analysis.records import ZERO_US, record, text
from tests.support.analysis.verdict_logs import GOOD, JUDGEMENTS


def read(directory: Path, since_us: int = 0) -> tuple[list[tuple[int, lines.Record]], list[BadLine]]:
    bad: list[BadLine] = []
    return list(lines.read(lines.find([directory]), bad.append, since_us)), bad


@pytest.mark.parametrize("number", range(len(JUDGEMENTS)))
def test_lines_are_judged_as_the_report_judges_them(number: int, tmp_path: Path) -> None:
    line, status, _ = JUDGEMENTS[number]
    raw = line.encode() if isinstance(line, str) else line
    (tmp_path / "state-change.jsonl").write_bytes(raw + b"\n" + GOOD.encode())
    records, bad = read(tmp_path)
    assert len(records) == 1 + (status == "ok")
    assert [b.number for b in bad] == [] if status == "ok" else [1]
    if status == "torn":
        assert bad[0].problem == "torn"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"node": "1"}, "Expected `int`, got `str` - at `$.node`"),
        ({"kind": "leader", "topic": "t", "partition": 0, "old": "1", "to": "[2]"}, "to: not a broker id"),
        ({"kind": "push"}, "replica: missing"),
        ({"schema": 2}, "schema version 2: newer than 1"),
        ({"ts": "9999-01-14T10:00:00.000000Z"}, "ts: out of range"),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_field(
    fields: dict[str, object], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "state-change.jsonl"
    path.write_text(f"{GOOD}\n{text({**record('log', to='x'), **_spelled(fields)})}\n")
    _, bad = read(tmp_path)
    assert [str(b) for b in bad] == [f"{path}: line 2: {problem}"]


def _spelled(fields: dict[str, object]) -> dict[str, object]:
    return {"from" if name == "old" else name: value for name, value in fields.items()}


def test_a_log_that_is_written_meanwhile_ends_at_its_unfinished_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rest is no line, and nor is what comes then read without it."""
    (tmp_path / "state-change.jsonl").write_text(f"{GOOD}\n")
    written = [f"{GOOD}\n".encode(), GOOD[:9].encode(), f"{GOOD[9:]}\n".encode()]

    class Growing(BytesIO):
        def __iter__(self) -> Iterator[bytes]:
            return iter(written)

    monkeypatch.setattr(lines, "_open", lambda _: Growing())
    records, bad = read(tmp_path)
    assert (len(records), [(b.number, b.problem) for b in bad]) == (1, [(2, "torn")])


def test_damaged_and_unreadable_files_end_nothing(tmp_path: Path) -> None:
    whole = "".join(f"{text(record('log', at / 100, to='x', count=at))}\n" for at in range(3000)).encode()
    packed = gzip.compress(whole)
    (tmp_path / "state-change.1.jsonl.gz").write_bytes(packed)
    (tmp_path / "state-change.2.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "state-change.3.jsonl.gz").write_bytes(b"no gzip at all")
    (tmp_path / "state-change.4.jsonl.gz").write_bytes(packed)
    records, bad = read(tmp_path)
    assert 6000 < len(records) < 9000
    assert [(b.file.rpartition("/")[2], "gzip" in b.problem) for b in bad] == [
        ("state-change.2.jsonl.gz", True),
        ("state-change.3.jsonl.gz", True),
    ]
    found = lines.find([tmp_path])
    (tmp_path / "state-change.4.jsonl.gz").unlink()
    problems: list[BadLine] = []
    assert len(list(lines.read(found, problems.append))) == len(records) - 3000
    assert str(problems[-1]).endswith("state-change.4.jsonl.gz: unreadable: No such file or directory")


def test_files_rotated_away_before_the_time_asked_for_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "state-change.20260114T095959.000000Z.jsonl.gz").write_bytes(b"not even gzip")
    (tmp_path / "state-change.20260114T100000.000000Z.jsonl").write_text(GOOD + "\n")
    (tmp_path / "state-change.20260114T100001.000000Z.jsonl").write_text(GOOD + "\n")
    (tmp_path / "state-change.jsonl").write_text(GOOD + "\n")
    records, bad = read(tmp_path, since_us=ZERO_US)
    assert (len(records), bad) == (3, [])
    assert len(read(tmp_path)[1]) == 1


def test_a_directory_that_is_there_by_two_names_is_walked_once(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "state-change.jsonl").write_text(GOOD + "\n")
    (tmp_path / "node" / "again").symlink_to(tmp_path)
    (tmp_path / "same").symlink_to(tmp_path / "node")
    assert len(list(walk_local(str(tmp_path)))) == 1
    assert check_local([tmp_path]) == len(GOOD) + 1


def test_where_there_is_no_log_that_is_said(tmp_path: Path) -> None:
    for directory, problem in (
        (str(tmp_path / "absent"), "no such directory"),
        (str(tmp_path), "no state-change log"),
        ("hdfs://a/b", "only directories of this machine"),
    ):
        with pytest.raises(ReportError, match=problem):
            lines.find([directory])


@pytest.mark.parametrize(("age", "seconds"), [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86_400)])
def test_an_age_counts_from_now(age: str, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "time", SimpleNamespace(time_ns=lambda: 10**15))
    assert lines.time_or_age(age) == 10**12 - seconds * 1_000_000
    assert lines.time_or_age("999999999d") == 1
    for wrong in ("10", "10w", "m", "-1m", "1.5h"):
        with pytest.raises(ValueError, match="isoformat"):
            lines.time_or_age(wrong)


def test_times_need_an_offset() -> None:
    assert lines.time_of("2026-01-14T10:00:00Z") == ZERO_US
    assert lines.time_of("2026-01-14T12:00:00.000001+02:00") == ZERO_US + 1
    with pytest.raises(ValueError, match="offset"):
        lines.time_of("2026-01-14T10:00:00")


@pytest.mark.slow
def test_spark_is_not_imported() -> None:
    code = "import sys, controller.cli.pctl.main; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def rotated(log: Path) -> None:
    """Rotate it, as its writer does, and begin a longer one."""
    count = len(list(log.parent.glob("state-change.*.gz")))
    (log.parent / f"state-change.{count}.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    log.write_text(f"{GOOD}\n" * (count + 2))


def test_what_was_listed_is_read_though_it_is_rotated_before_its_turn(tmp_path: Path) -> None:
    log = tmp_path / "state-change.jsonl"
    log.write_text(f"{GOOD}\n")
    found = lines.find([tmp_path])
    rotated(log)
    bad: list[BadLine] = []
    assert len(list(lines.read(found, bad.append))) == 1
    assert bad == []
    found = list_and_open(lambda: list(walk_local(str(log))))
    rotated(log)
    with Conversion(found, "s3a://elsewhere", complete=True) as conversion:
        checks, _ = conversion.done()
    assert [check.lines for check in checks.values()] == [2]
    (descriptor,) = [file.descriptor for file in found]
    assert descriptor is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_files_are_listed_again_when_one_is_rotated_meanwhile(tmp_path: Path, times: int) -> None:
    log = tmp_path / "state-change.jsonl"
    log.write_text(f"{GOOD}\n")
    left = [None] * times

    def listed() -> list[LogFile]:
        found = sorted(walk_local(str(tmp_path)), key=lambda file: file.path)
        if left:
            left.pop()
            rotated(log)
        return found

    before = set(os.listdir("/dev/fd"))
    found = list_and_open(listed)
    opened = [file for file in found if file.descriptor is not None]
    assert len(set(os.listdir("/dev/fd")) - before) <= len(opened) == 1
    if times < LISTINGS_MAX:
        assert [Path(file.shown) for file in found] == sorted(tmp_path.iterdir())
    opened[0].close()


def test_what_is_gzipped_or_elsewhere_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "state-change.1.jsonl.gz").write_bytes(gzip.compress(GOOD.encode()))
    (here,) = walk_local(str(tmp_path))
    gone = LogFile(f"file:{tmp_path}/state-change.jsonl", 1)
    elsewhere = LogFile("s3a://bucket/state-change.jsonl", 1)
    assert [file.descriptor for file in list_and_open(lambda: [here, gone, elsewhere])] == [None] * 3
