"""One Spark for all tests of the job, and logs written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis import lines
from controller.analysis.condensing import condense
from controller.analysis.intake.files import list_files
from controller.analysis.intake.reading import classify, read_lines
from controller.analysis.session import size_for, spark_session
from proto.statelog.schema import INT_FIELDS, LIST_FIELDS, TEXT_CHARS_MAX
from tests.support.analysis.records import text

Lines = Callable[[list[str | bytes]], DataFrame]
Records = Callable[[list[dict[str, Any]]], DataFrame]

_TYPES = dict.fromkeys(TEXT_CHARS_MAX, "string") | {field.name: "bigint" for field in INT_FIELDS}
_TYPES |= dict.fromkeys(LIST_FIELDS, "array<bigint>")
_SCHEMA = "file string, block bigint, line bigint, ts_us bigint, " + ", ".join(
    f"`{name}` {kind}" for name, kind in _TYPES.items()
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session("local[2]", tmp_path_factory.mktemp("spark"), quick=True) as session:
        size_for(session, 0)
        yield session


@pytest.fixture
def classified(spark: SparkSession, tmp_path: Path) -> Lines:
    """Lines in, `classify` out."""

    def read(given: list[str | bytes]) -> DataFrame:
        return classify(read_lines(spark, list_files(spark, [_written(tmp_path, given)])))

    return read


@pytest.fixture
def records(spark: SparkSession, tmp_path: Path) -> Records:
    """Records in, the good lines as the tables take them out, without a job of Spark; none may be bad."""

    def read(given: list[dict[str, Any]]) -> DataFrame:
        bad: list[lines.BadLine] = []
        found = lines.read(lines.find([_written(tmp_path, [text(row) for row in given])]), bad.append)
        rows = [
            ("file:/a", 0, number, ts_us, *(record.get(name) for name in _TYPES))
            for number, (ts_us, record) in enumerate(found)
        ]
        assert bad == []
        return (
            spark.createDataFrame(rows, _SCHEMA).withColumn("ts", F.timestamp_micros("ts_us")).drop("ts_us")
        )

    return read


@pytest.fixture
def condensed(records: Records) -> Records:
    """Records in, `condense` of them out."""
    return lambda given: condense(records(given))


def rows(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of a table as sorted tuples."""
    return sorted((tuple(row) for row in table.select(*columns).collect()), key=str)


def at_once(tables: Mapping[str, DataFrame]) -> dict[str, list[Any]]:
    """The rows of several tables of the same columns, by one job."""
    named = [table.withColumn("of", F.lit(name)) for name, table in tables.items()]
    found: dict[str, list[Any]] = {name: [] for name in tables}
    for row in reduce(DataFrame.unionByName, named).collect():
        found[row["of"]].append(row)
    return found


def _written(tmp_path: Path, given: list[Any]) -> Path:
    directory = tmp_path / "by-hand"
    directory.mkdir()
    raw = [line.encode() if isinstance(line, str) else line for line in given]
    (directory / "state-change.jsonl").write_bytes(b"\n".join(raw))
    return directory
