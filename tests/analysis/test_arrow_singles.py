"""What Arrow makes of converted files, beside what Spark makes of the same lines."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from controller.analysis.condensing import COLUMNS, condense
from controller.analysis.intake import arrow_commits, conversion
from controller.analysis.intake.files import list_files
from controller.analysis.intake.reading import parse_lines, read_lines
from controller.analysis.intake.staging import stage
from controller.analysis.singles import singles_of
from tests.analysis.conftest import rows
from tests.analysis.test_independent import random_log
from tests.support.analysis.make_log import write_cluster

pytestmark = pytest.mark.slow


def same(spark: SparkSession, logs: Path, staging: Path, complete: bool) -> None:
    staged = stage(spark, list_files(spark, [logs]), f"file:{staging}", complete=complete)
    assert all(check.usual for check in staged.checks.values())
    lines = sum(check.lines for check in staged.checks.values())
    by_spark = parse_lines(read_lines(spark, list_files(spark, [logs])), complete=complete)
    found, expected = staged.singles(lines), singles_of(by_spark, lines)
    pairs = {
        "edges": (found.edges, expected.edges),
        "moved": (found.moved, expected.moved),
        "events": (found.events, expected.events.drop("bytes", "digest", "block", "line")),
        "condensed": (staged.condensed(), condense(by_spark)),
    }
    for name, (one, other) in pairs.items():
        columns = [f"`{column}`" for column in other.columns]
        assert rows(one, *columns) == rows(other, *columns), name
        assert rows(other, *columns) or name in {"edges", "events"}
    assert types(staged.condensed()) == types(spark.createDataFrame([], COLUMNS))


def types(table: DataFrame) -> dict[str, str]:
    return dict(table.dtypes)


@settings(max_examples=3)
@given(chance=st.randoms(use_true_random=False), small=st.booleans(), complete=st.booleans())
def test_arrow_and_spark_make_the_same_of_any_records(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    chance: random.Random,
    small: bool,
    complete: bool,
) -> None:
    """``small``: blocks and buckets of a few lines."""
    root = tmp_path_factory.mktemp("log")
    random_log(root / "logs", chance, lines_each=60, damaged=False)
    with pytest.MonkeyPatch.context() as patched:
        if small:
            patched.setattr(arrow_commits, "_BUCKET_ROWS", 5)
            patched.setattr(arrow_commits, "_BATCH_ROWS", 7)
            patched.setattr(conversion, "_GROUP_ROWS", 10)
        same(spark, root / "logs", root / "staging", complete)


def test_arrow_and_spark_make_the_same_of_a_cluster(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_commits, "_BUCKET_ROWS", 200)
    write_cluster(tmp_path / "logs")
    same(spark, tmp_path / "logs", tmp_path / "staging", False)
