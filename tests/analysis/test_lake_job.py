"""The lake with Spark: reports from it, updates in spite of crashes and rotation, a stream that is killed."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from controller.analysis.job import read_input
from controller.analysis.lake import compaction, condensed, delta_log, spool
from controller.analysis.lake.condensed import condensed_files, read_condensed
from controller.analysis.lake.delta_log import LAKE_VERSION, DeltaLog
from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.job import LakeSummary, run_update
from controller.analysis.lake.loading import Lake, read_rows, taken_files
from controller.analysis.lake.source import LakeSource, open_snapshot
from controller.analysis.lake.spool import Spool
from controller.analysis.lake.storage import LocalStorage
from controller.analysis.notebook.logs import Logs
from controller.analysis.tables import TABLES, Input
from tests.support.analysis.followed import Node, follow, until
from tests.support.analysis.make_log import write_cluster
from tests.support.analysis.records import record, text

pytestmark = pytest.mark.slow

BAD = [
    b"not JSON",
    b'{"schema":1,"ts":"20',
    b"",
    b'{"schema":2,"kind":"later"}',
    b"\xff\xfe",
    b'{"schema":1}',
]


def quiet(_line: str) -> None:
    """No progress."""


def update(logs: Path, lake: Path) -> LakeSummary:
    return run_update([logs], lake, progress=quiet)


def tables_of(source: Input) -> dict[str, list[Any]]:
    """The rows of each table of the report, in any order."""
    made: dict[str, DataFrame] = {}

    def table(name: str) -> DataFrame:
        if name not in made:
            made[name] = next(spec for spec in TABLES if spec.name == name).build(source, table)
        return made[name]

    return {spec.name: sorted(map(str, table(spec.name).collect())) for spec in TABLES}


def from_logs(spark: SparkSession, logs: Path, work: Path) -> Input:
    return read_input(spark, [logs], f"file:{work / 'staging'}", quiet, complete=True)


def from_lake(spark: SparkSession, lake: Path) -> Input:
    return LakeSource(lake).input(spark, "", quiet)


def stamped(second: int) -> str:
    return f"state-change.20260114T1015{second:02}.000000Z.jsonl"


def damaged_cluster(logs: Path) -> None:
    """A cluster's life, with bad lines in a log and a gzip file that ends early."""
    write_cluster(logs, partitions=24, rounds=2)
    log = logs / "broker-1" / "state-change.jsonl"
    good = log.read_bytes().splitlines()
    log.write_bytes(b"\n".join([*good[:3], *BAD, *good[3:], text(record("unheard-of", 9)).encode(), b""]))
    noise = random.Random(5).randbytes
    early = b"".join(
        text(record("reject", n / 100, error=noise(20).hex(), node=9)).encode() + b"\n" for n in range(900)
    )
    (logs / "controller-9").mkdir()
    packed = gzip.compress(early)
    (logs / "controller-9" / f"{stamped(1)}.gz").write_bytes(packed[: len(packed) // 2])


@pytest.mark.long
def test_tables_from_the_lake_equal_those_from_the_logs(spark: SparkSession, tmp_path: Path) -> None:
    """The lake has seen the logs grow, be rotated and gzipped, and a copy of a directory."""
    whole, logs, lake = tmp_path / "whole", tmp_path / "logs", tmp_path / "lake"
    damaged_cluster(whole)
    for path in sorted(whole.rglob("state-change.*")):
        target = logs / path.relative_to(whole)
        target.parent.mkdir(parents=True)
        data = path.read_bytes()
        target.write_bytes(data if path.suffix == ".gz" else data[: len(data) // 2])
    first = update(logs, lake)
    assert first.damaged_files == 1
    for path in sorted(whole.rglob("state-change.jsonl")):
        target = logs / path.relative_to(whole)
        target.write_bytes(path.read_bytes())
    rotated = logs / "controller-1" / "state-change.jsonl"
    packed = rotated.with_name(f"{stamped(2)}.gz")
    packed.write_bytes(gzip.compress(rotated.read_bytes() + b'{"schema":1,"torn'))
    rotated.unlink()
    shutil.copytree(logs / "broker-2", logs / "copy-of-broker-2")
    second = update(logs, lake)
    assert second.added_lines > 0
    assert second.files == first.files + 1
    expected, found = from_logs(spark, logs, tmp_path), from_lake(spark, lake)
    assert (found.lines, found.copies, found.bucket_us) == (
        expected.lines,
        expected.copies,
        expected.bucket_us,
    )
    assert found.copies > 0
    assert found.files == expected.files
    tables = tables_of(expected)
    assert tables["input_problems"]
    assert tables_of(found) == tables
    states = [Logs(spark, source).state_at(3).collect() for source in (expected, found)]
    assert sorted(map(str, states[1])) == sorted(map(str, states[0])) != []
    third = update(logs, lake)
    assert (third.version, third.added_lines) == (second.version, 0)


def taken(spark: SparkSession, lake: Path) -> Counter[int]:
    """How often the lake has each event id."""
    rows = read_rows(spark, LocalStorage(lake), DeltaLog(LocalStorage(lake)).read().files)
    return Counter(row.event_id for row in rows.select("event_id").collect())


def condensed_lines(spark: SparkSession, lake: Path) -> list[int]:
    """How many lines each row of the lake's condensed records stands for."""
    rows = read_condensed(
        spark, LocalStorage(lake), condensed_files(DeltaLog(LocalStorage(lake)).read())
    ).collect()
    return [row.lines for row in rows]


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        pytest.param(Spool, "fill", True, id="before the order", marks=pytest.mark.long),
        pytest.param(Lake, "take", False, id="ordered", marks=pytest.mark.long),
        pytest.param(Lake, "write", True, id="rows without commit"),
        pytest.param(DeltaLog, "commit", True, id="commit without end", marks=pytest.mark.long),
        pytest.param(compaction, "scattered", False, id="before compaction", marks=pytest.mark.long),
    ],
)
def test_an_update_that_ends_anywhere_is_finished_by_the_next(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    after: bool,
) -> None:
    node, lake = Node(tmp_path / "logs"), tmp_path / "lake"
    node.write(20)
    update(node.directory, lake)
    node.write(5)
    real = getattr(owner, name)

    def ends(*arguments: Any, **options: Any) -> None:
        if after:
            real(*arguments, **options)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, ends)
        with pytest.raises(KilledError):
            update(node.directory, lake)
    half = taken(spark, lake)
    assert half in (Counter(range(1, 21)), node.each_once())
    node.rotate()
    update(node.directory, lake)
    assert taken(spark, lake) == node.each_once()
    assert sum(condensed_lines(spark, lake)) == node.written
    files = {path.relative_to(lake).as_posix() for path in lake.glob("day=*/kind=*/*.parquet")}
    assert files == set(DeltaLog(LocalStorage(lake)).read().files)
    assert not list((lake / "_orders").iterdir())


def test_what_was_set_aside_is_taken_even_if_the_log_is_deleted_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, lake = Node(tmp_path / "logs"), tmp_path / "lake"
    node.write(20)

    def ends(*_arguments: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "take", ends)
        with pytest.raises(KilledError):
            update(node.directory, lake)
    node.log.unlink()
    node.write(3)
    update(node.directory, lake)
    assert taken(spark, lake) == node.each_once()


def test_small_files_are_put_together_and_the_rows_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of batches, of which one update takes all that the logs have."""
    monkeypatch.setattr(compaction, "FILES_MAX", 3)
    monkeypatch.setattr(spool, "BATCH_BYTES", 1000)
    logs, lake = tmp_path / "logs", tmp_path / "lake"
    node, other = Node(logs / "1"), Node(logs / "2")
    other.write(7)
    for _ in range(2):
        node.write(10)
        done = update(logs, lake)
    assert (done.lines, done.added_lines) == (27, 10)
    snapshot = DeltaLog(LocalStorage(lake)).read()
    assert (len(snapshot.files), len(snapshot.removed)) == (1, 3)
    assert taken(spark, lake) == node.each_once() + other.each_once()
    assert all((lake / path).exists() for path in snapshot.removed)
    assert len(condensed_files(snapshot)) == 1
    assert len(list((lake / "_condensed").glob("*.parquet"))) == 4
    assert sorted(condensed_lines(spark, lake)) == [7, 20]


def test_condensed_files_that_were_replaced_stay_for_a_day(tmp_path: Path) -> None:
    """Somebody may be reading them, however old they are."""
    storage = LocalStorage(tmp_path)
    snapshot = DeltaLog(storage).create('{"type":"struct","fields":[]}')
    file = tmp_path / condensed.DIRECTORY / "old.parquet"
    file.parent.mkdir()
    file.touch()
    long_ago = time.time() - 10 * delta_log.RETENTION_MS / 1000
    os.utime(file, (long_ago, long_ago))
    condensed.replaced(storage, file.name)
    condensed.sweep(storage, snapshot)
    assert file.exists()
    os.utime(file, (long_ago, long_ago))
    condensed.sweep(storage, snapshot)
    assert not file.exists()


def test_a_lake_of_an_earlier_version_is_changed_by_the_next_update(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By one that had no condensed records, or others."""
    node, lake = Node(tmp_path / "logs"), tmp_path / "lake"
    node.write(10)
    update(node.directory, lake)
    log = DeltaLog(LocalStorage(lake))
    snapshot = log.read()
    configuration = snapshot.metadata["configuration"] | {"statelog.lakeVersion": "1"}
    log.commit(snapshot, [{"metaData": snapshot.metadata | {"configuration": configuration}}], "WRITE")
    with pytest.raises(LakeError, match="made by an earlier version"):
        open_snapshot(LocalStorage(lake))
    done = update(node.directory, lake)
    assert (done.version, done.added_lines) == (snapshot.version + 1, 0)
    assert open_snapshot(LocalStorage(lake)).lake_version == LAKE_VERSION
    assert condensed_lines(spark, lake) == [node.written]


@pytest.mark.long
def test_a_followed_log_is_taken_once_whenever_the_process_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By ``kill -9`` with an order, with rows that are not committed, and after a commit; the log is rotated then."""
    node, lake = Node(tmp_path / "logs"), tmp_path / "lake"
    node.write(50)
    version = 0
    stages = {
        "an order": lambda: list((lake / "_orders").glob("*.txt")),
        "rows without a commit": lambda: list((lake / "_new").glob("*/day=*")),
        "a commit": lambda: len(list((lake / "_delta_log").glob("0*.json"))) > version,
    }
    for reached in stages.values():
        version = DeltaLog(LocalStorage(lake)).read().version + 1
        process = follow(node.directory, lake)
        until(reached, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        node.write(20)
        node.rotate()
        node.write(20)
    process = follow(node.directory, lake)
    until(lambda: lake_lines(lake) >= node.written, process)
    node.write(5)
    node.rotate()
    until(lambda: lake_lines(lake) >= node.written, process)
    # As by Ctrl-C, which PySpark would take for itself.
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert f"lines          {node.written}" in output
    assert taken(spark, lake) == node.each_once()


def lake_lines(lake: Path) -> int:
    return sum(file.lines for file in taken_files(DeltaLog(LocalStorage(lake)).read()))
