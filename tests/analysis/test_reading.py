"""Every line is judged: good ones become records, bad ones are named with what is wrong."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.intake import conversion, reading, screening
from controller.analysis.intake import files as files_module
from controller.analysis.intake.conversion import Converted
from controller.analysis.intake.files import Conversion, check_gzip_in_spark, list_files
from controller.analysis.intake.quality import input_files, input_nodes, input_problems
from controller.analysis.intake.reading import decoded, mark_copies, parse_lines, read_lines
from controller.analysis.intake.screening import FileCheck, screen
from controller.analysis.intake.staging import converted_in, stage
from controller.analysis.job import read_input
from proto.statelog.schema import ONLINE
from tests.analysis.conftest import Lines, Records, rows
from tests.support.analysis.records import record, text
from tests.support.analysis.verdict_logs import GOOD, JUDGEMENTS

pytestmark = pytest.mark.slow


def test_every_line_is_judged(classified: Lines) -> None:
    out = classified([line for line, _, _ in JUDGEMENTS]).orderBy("block", "line")
    got = [(row.status, row.problem) for row in out.select("status", "problem").collect()]
    wrong = [
        (line[:120], expected, found)
        for (line, *expected), found in zip(JUDGEMENTS, got, strict=True)
        if tuple(expected) != found
    ]
    assert wrong == [], wrong


def test_arrow_and_spark_judge_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Each line in a file of its own, beside a good one, so that one bad line does not send all the same way."""
    expected = {}
    for number, (line, status, problem) in enumerate(JUDGEMENTS):
        raw = line.encode() if isinstance(line, str) else line
        directory = tmp_path / "logs" / f"{number:03}"
        directory.mkdir(parents=True)
        (directory / "state-change.jsonl").write_bytes(raw + b"\n" + GOOD.encode() + b"\n")
        expected[str(directory / "state-change.jsonl")] = (status, problem)
    files = list_files(spark, [tmp_path / "logs"])
    left = tmp_path / "staging" / "converted" / "99999.parquet"
    left.parent.mkdir(parents=True)
    left.write_text("by a report that was killed")
    with Conversion(files, converted_in(f"{tmp_path}/staging"), complete=True) as conversion:
        staged = stage(spark, conversion, f"{tmp_path}/staging", complete=True)
    table = {row.file: row for row in input_files(files, staged.checks, staged.usual, staged.odd)}
    statuses = ("ok", "torn", "malformed", "newer_schema")
    for name, (status, _) in expected.items():
        counts = {one: getattr(table[name], one) for one in statuses}
        assert counts == {one: (one == status) + (one == "ok") for one in statuses}, name
    problems = {row.file: (row.status, row.problem) for row in input_problems(staged.judged()).collect()}
    assert problems == {name: verdict for name, verdict in expected.items() if verdict[0] != "ok"}
    assert staged.records().count() == sum(status == "ok" for status, _ in expected.values()) + len(expected)


def test_a_record_keeps_its_fields_and_absent_ones_are_null(classified: Lines) -> None:
    line = record(
        "push", 1.5, replica=2, to="LeaderAndIsr", count=40, node=3, controller_epoch=7, event_id=12
    )
    row = classified([text(line)]).selectExpr("*", "unix_micros(ts) as us").collect()[0].asDict()
    expected = {"role": "controller", "node": 3, "controller_epoch": 7, "event_id": 12, "cause": "Test"}
    expected |= {"kind": "push", "replica": 2, "to": "LeaderAndIsr", "count": 40, "us": 1_768_384_801_500_000}
    expected |= {"topic": None, "from": None, "sample": None}
    assert {name: row[name] for name in expected} == expected


def test_absurdly_long_values_are_cut_and_samples_are_short_and_clean(classified: Lines) -> None:
    long = record("reject", error="E", reason="r" * 100_000, topic="t" * 100_000)
    kept, bad = classified([text(long), b"\xff" * 100_000]).orderBy("line").collect()
    assert (len(kept.topic), len(kept.reason), len(kept.error)) == (260, 500, 1)
    assert bad.sample == "�" * 200


LONG = [b'{"schema":1}\n', *[b"x" * 999] * 20, b"\n" + GOOD.encode() + b"\n"]


def test_lines_that_would_fill_the_memory_are_left_out_and_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would hold each several times: one of 400 MB, 2 MB if gzipped, was the end of every report."""
    for module in (reading, screening):
        monkeypatch.setattr(module, "LINE_BYTES_MAX", 15_000)
    for name, data in (("a.jsonl", b"".join(LONG)), ("b.jsonl.gz", gzip.compress(b"".join(LONG)))):
        (tmp_path / f"state-change.{name}").write_bytes(data)
    files = list_files(spark, [tmp_path])
    assert [row.raw for row in read_lines(spark, files).collect()] == ['{"schema":1}', GOOD] * 2
    assert screen(LONG).problem == "a line of more than 16 MiB was left out"
    assert screen([*LONG[:14], LONG[-1]]).problem is None


@pytest.mark.parametrize("scheme", ["", "file:"], ids=["local", "hadoop"])
def test_damaged_files_are_read_as_far_as_they_go_and_named(
    spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    # A name that is a glob, a URL escape and a Spark pitfall at once.
    logs = tmp_path / "a b%20+[1]{x}*" / "deep" / "node:1"
    logs.mkdir(parents=True)
    lines = [text(record("log", at / 100, to="x", count=at)) for at in range(3000)]
    packed = gzip.compress("\n".join(lines).encode() + b"\n")
    (logs / "state-change.1.jsonl.gz").write_bytes(packed)
    (logs / "state-change.2.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "state-change.3.jsonl.gz").write_bytes(b"no gzip at all")
    (logs / "state-change.4.jsonl.gz").write_bytes(b"")
    (logs / "state-change.5.jsonl").write_text("\n".join(lines))
    (logs / "state-change.jsonl").write_text(lines[0] + "\n" + lines[1][:-20])
    (logs / "other.jsonl").write_text("not ours")
    files = list_files(spark, [f"{scheme}{tmp_path}"])
    assert [Path(file.path).name[13:] for file in files] == [
        *("1.jsonl.gz", "2.jsonl.gz", "3.jsonl.gz", "4.jsonl.gz", "5.jsonl", "jsonl")
    ]
    with Conversion(files, converted_in(f"{tmp_path}/staging"), complete=False) as conversion:
        staged = stage(spark, conversion, f"{tmp_path}/staging")
    packed_files = {file.path for file in files if file.gzipped and file.size}
    full = {path: check for path, check in staged.checks.items() if path in packed_files}
    assert full == check_gzip_remotely(spark, tmp_path)  # Spark hands out no empty files
    table = input_files(files, staged.checks, staged.usual, staged.odd)
    assert [
        (row.lines, row.ok, row.torn, row.problem) for row in (table[0], table[3], table[4], table[5])
    ] == [
        (3000, 3000, 0, None),
        (0, 0, 0, None),
        (3000, 3000, 0, None),
        (2, 1, 1, None),
    ]
    assert 0 < table[1].ok < 3000
    assert table[1].problem == "truncated gzip; what came before the damage was read"
    assert table[2].ok == 0
    assert "incorrect header check" in str(table[2].problem)
    assert table[0].file == str(logs / "state-change.1.jsonl.gz")
    problems = input_problems(staged.judged()).where("file like '%/state-change.jsonl'").collect()
    assert [(row.file, row.status, row["count"]) for row in problems] == [
        (str(logs / "state-change.jsonl"), "torn", 1)
    ]


def check_gzip_remotely(spark: SparkSession, log_dir: Path) -> dict[str, FileCheck]:
    """The check that runs inside Spark, for file systems that only Spark can read."""
    files = list_files(spark, [f"file://{log_dir}"])
    return check_gzip_in_spark(spark, [file for file in files if file.gzipped])


def test_lines_held_by_two_files_count_once_but_twice_in_one_file_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    once, twice = (text(record("log", at, to="x")) for at in (1, 2))
    other = json.dumps(record("log", 3, to="é", count=1), ensure_ascii=False, separators=(",", ":"))
    for name, content in (("a+b %2B", [once, twice, twice]), ("b", [once, twice, twice, other])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state-change.jsonl").write_text("\n".join(content) + "\n")
    files = list_files(spark, [tmp_path])
    marked = mark_copies(parse_lines(read_lines(spark, files))).withColumn("path", decoded(F.col("file")))
    found = marked.selectExpr("path", "second(ts) as s", "copy", "bytes").collect()
    kept = sorted((row.path, row.s) for row in found if not row.copy)
    first, second = (file.path for file in files)
    assert sum(row.bytes for row in found) == sum(file.size for file in files)
    assert kept == [(first, 1), (first, 2), (first, 2), (second, 3)]


@pytest.mark.parametrize("copied", [False, True])
def test_what_spark_reads_counts_beside_what_arrow_reads_and_copies_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """Arrow leaves a file to Spark of which a sum would be too large."""

    def convert(path: str, *more: Any) -> tuple[FileCheck, Converted | None]:
        check, made = conversion.convert(path, *more)
        return check, None if "controller-2" in path else made

    monkeypatch.setattr(files_module, "convert", convert)
    of_1 = [
        record("partition", at, to=to, old="x", topic="t", partition=0, leader=1)
        for at, to in ((1, ONLINE), (3, "OfflinePartition"))
    ]
    of_1.append(record("failover", 2, to="ready", duration_us=9, node=1, controller_epoch=1))
    told = {"node": 2, "controller_epoch": 2}
    of_2 = [
        record("failover", 4, to="loaded", duration_us=9, **told),
        record("failover", 5, to="ready", duration_us=9, **told),
        record("request", 6, to="CreateTopics", principal="User:a", **told),
        record("isr", 7, topic="u", partition=4, **told),
    ]
    copies = [("copy-of-1", of_1)] * copied
    for name, lines in (("controller-1", of_1), *copies, ("controller-2", of_2)):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "state-change.jsonl").write_text(
            "".join(text(row) + "\n" for row in lines)
        )
    read = read_input(spark, [tmp_path / "logs"], f"file:{tmp_path}/staging", lambda _: None)
    assert (read.lines, read.copies) == (7 + 3 * copied, 3 * copied)
    assert rows(read.singles.events, "principal") == [("User:a",)]
    assert rows(read.singles.moved, "topic") == [("t",), ("u",)]
    assert read.commits is not None
    begin_us = 1_768_384_800_000_000
    assert read.commits.ready == {1: begin_us + 2_000_000, 2: begin_us + 5_000_000}


def test_a_directory_named_twice_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "state-change.jsonl").write_text(GOOD)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert len(list_files(spark, [tmp_path, tmp_path / "node", f"file:{tmp_path / 'node'}"])) == 1


def test_dropped_records_are_told_by_node(condensed: Records) -> None:
    lines = [
        record("log", 1, to="dropped", count=120),
        record("log", 2, to="dropped", count=3),
        record("log", 3, to="dropped", node=2, role="broker"),
        record("log", 4, to="other", count=9, node=2, role="broker"),
    ]
    table = input_nodes(condensed(lines))
    assert rows(table, "role", "node", "lines", "dropped") == [("broker", 2, 2, 1), ("controller", 1, 2, 123)]


def test_workers_run_by_the_python_of_this_process(spark: SparkSession) -> None:
    """Another version, as the first on the path may be, Spark refuses."""
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]
