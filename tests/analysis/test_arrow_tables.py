"""What Arrow makes of log files, beside what Spark makes of the same lines."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis import arrow_intervals
from controller.analysis.answers import Query, fetch
from controller.analysis.condensing import COLUMNS, condense, merge
from controller.analysis.intake import arrow_commits, conversion, quality, reading
from controller.analysis.intake.fields import fields_kept
from controller.analysis.intake.files import list_files
from controller.analysis.intake.reading import read_lines, type_lines
from controller.analysis.job import read_input
from controller.analysis.questions import departures
from controller.analysis.questions.asked import Asked
from controller.analysis.singles import singles_of
from controller.analysis.tables import TABLES, Input, read_made
from tests.analysis.test_independent import random_log
from tests.support.analysis.make_log import write_cluster

pytestmark = pytest.mark.slow

RACKS = {1: "a", 2: "b"}


def by_spark(spark: SparkSession, logs: Path, read: Input) -> dict[str, DataFrame]:
    """Tables of intervals and what they are made of, and what was wrong with the lines."""
    typed = type_lines(read_lines(spark, list_files(spark, [logs])))
    lines = typed.where(F.col("status") == reading.OK)
    singles, condensed = singles_of(lines, read.lines), condense(lines).localCheckpoint()
    singles = replace(singles, edges=singles.edges.localCheckpoint())
    source = replace(read, commits=None, records=lines, condensed=condensed, singles=singles)
    made: dict[str, DataFrame] = {}

    def table(name: str) -> DataFrame:
        if name not in made:
            built = next(spec for spec in TABLES if spec.name == name).build(source, table)
            made[name] = built.localCheckpoint() if name.startswith("leaderless") else built
        return made[name]

    found = {name: table(name) for name in arrow_intervals.NAMES if name != "caused"}
    return found | {
        "caused": departures.caused(table("leaderless_intervals")),
        "edges": singles.edges,
        "moved": singles.moved,
        "events": _needed(singles.events),
        "condensed": condensed,
        "verdicts": _verdicts(typed),
        "problems": quality.input_problems(typed),
    }


def _needed(events: DataFrame) -> DataFrame:
    """What tables take of them."""
    fields = [
        (F.col(name) if kinds is None else F.when(F.col("kind").isin(*kinds), F.col(name))).alias(name)
        for name, kinds in fields_kept(False).items()
    ]
    return events.select("file", "ts", *fields)


def _verdicts(typed: DataFrame) -> DataFrame:
    statuses = (reading.OK, reading.TORN, reading.MALFORMED, reading.NEWER)
    counts = [F.count_if(F.col("status") == status).alias(status) for status in statuses]
    file = F.regexp_replace(reading.decoded(F.col("file")), "^file:/", "/").alias("file")
    return typed.groupBy("file").agg(*counts).select(file, *statuses)


_TOP_ROWS = arrow_intervals.TOP_ROWS


def _ordered(row: dict[str, Any]) -> list[Any]:
    """What rows are ordered by; those that are equal in it may come in any order."""
    names = ("duration_us", "total_us", "leaderless_us", "leader_changes", "topic")
    return [row.get("class") == "outage", *(row[name] for name in names if name in row)]


def same(spark: SparkSession, logs: Path, staging: Path) -> dict[str, list[str]]:
    """Out: rows by table."""
    read = replace(read_input(spark, [logs], f"file:{staging}", lambda _line: None), asked=Asked(racks=RACKS))
    expected = by_spark(spark, logs, read)
    assert read.made.keys() == {*arrow_intervals.NAMES, *arrow_intervals.TOP.values()}
    found = {name: read_made(spark, read.made[name]) for name in arrow_intervals.NAMES}
    found |= {
        "edges": read.singles.edges,
        "moved": read.singles.moved,
        "events": _needed(read.singles.events),
        "condensed": merge(read.condensed).select(*expected["condensed"].columns),
        "verdicts": read.file_table.select(*expected["verdicts"].columns),
        "problems": read.problem_table,
    }
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert found[name].dtypes == table.dtypes, name
    both = {f"found {name}": table for name, table in found.items()} | expected
    queries = {name: Query(table, [], 100_000) for name, table in both.items()}
    for spec in TABLES:
        if spec.name in arrow_intervals.TOP and spec.order:
            for of, table in (("first", expected[spec.name]), ("top", read.top_rows()[spec.name])):
                queries[f"{of} {spec.name}"] = Query(table, spec.order(), arrow_intervals.TOP_ROWS)
            assert spec.rows_max <= _TOP_ROWS
    rows = fetch(queries)
    for name in arrow_intervals.TOP:
        first, top = (rows[f"{of} {name}"] for of in ("first", "top"))
        assert [_ordered(row) for row in first] == [_ordered(row) for row in top]
    as_text = {name: sorted(map(str, of)) for name, of in rows.items()}
    for name in expected:
        assert as_text[f"found {name}"] == as_text[name], name
    assert dict(read.condensed.dtypes) == dict(spark.createDataFrame([], COLUMNS).dtypes)
    return as_text


def of_random_records(spark: SparkSession, root: Path, seed: int, *, small: bool, damaged: bool) -> None:
    """``small``: blocks and buckets of a few lines."""
    random_log(root / "logs", random.Random(seed), lines_each=60, damaged=damaged)
    with pytest.MonkeyPatch.context() as patched:
        if small:
            patched.setattr(arrow_commits, "_BUCKET_ROWS", 5)
            patched.setattr(arrow_commits, "_BATCH_ROWS", 7)
            patched.setattr(conversion, "_GROUP_ROWS", 10)
            patched.setattr(conversion, "_DOUBTS_ALONE", 0)
            patched.setattr(arrow_intervals, "TOP_ROWS", 3)
        same(spark, root / "logs", root / "staging")


@pytest.mark.long
@pytest.mark.parametrize(("seed", "small", "damaged"), [(1, False, True), (2, True, False)])
def test_arrow_and_spark_make_the_same_of_records(
    spark: SparkSession, tmp_path: Path, seed: int, small: bool, damaged: bool
) -> None:
    of_random_records(spark, tmp_path, seed, small=small, damaged=damaged)


@pytest.mark.long
@settings(max_examples=4)
@given(seed=st.integers(0, 1 << 32), small=st.booleans(), damaged=st.booleans())
def test_arrow_and_spark_make_the_same_of_any_records(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, small: bool, damaged: bool
) -> None:
    of_random_records(spark, tmp_path_factory.mktemp("log"), seed, small=small, damaged=damaged)


@pytest.mark.long
def test_arrow_and_spark_make_the_same_of_a_cluster(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_commits, "_BUCKET_ROWS", 200)
    write_cluster(tmp_path / "logs")
    rows = same(spark, tmp_path / "logs", tmp_path / "staging")
    assert all(rows[name] for name in (*arrow_intervals.NAMES, "edges", "moved", "condensed"))


@pytest.mark.long
def test_arrow_and_spark_make_the_same_of_no_partition(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "state-change.jsonl"
    log.parent.mkdir()
    log.write_text(
        '{"schema":1,"ts":"2026-01-14T10:00:00Z","role":"broker","node":1,"controller_epoch":1,"event_id":1,'
        '"cause":"Test","kind":"unchanged"}\n'
    )
    rows = same(spark, tmp_path / "logs", tmp_path / "staging")
    assert rows["condensed"]
    assert not any(rows[name] for name in arrow_intervals.NAMES)
