"""One Spark for all tests of the job, logs written by hand, and a report that others are compared with."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from controller.analysis.job import run_report
from controller.analysis.session import size_for, spark_session
from controller.analysis.tables import TABLES
from proto.statelog.schema import INT_FIELDS, LIST_FIELDS, TEXT_CHARS_MAX
from tests.support.analysis.make_log import write_cluster
from tests.support.analysis.records import record, text

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


@dataclass(frozen=True)
class Report:
    """``tables``: by name, the rows, in no order; ``page``: as HTML."""

    tables: dict[str, list[str]]
    page: str

    @classmethod
    def read(cls, spark: SparkSession, out: Path) -> Report:
        found = {spec.name: spark.read.parquet(f"{out}/tables/{spec.name}").collect() for spec in TABLES}
        tables = {name: sorted(map(str, rows)) for name, rows in found.items()}
        return cls(tables, (out / "report.html").read_text(encoding="utf-8"))

    def of(self, former: str, present: str) -> Report:
        """The same one, if the logs had been elsewhere."""
        tables = {
            name: sorted(row.replace(former, present) for row in rows) for name, rows in self.tables.items()
        }
        return Report(tables, self.page.replace(former, present))


@pytest.fixture(scope="session")
def damaged_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a cluster's life, with a gzip file that is damaged, a line that is torn and one that is no record."""
    folder = tmp_path_factory.mktemp("logs")
    write_cluster(folder, partitions=40, rounds=2)
    good = text(record("topic", topic="t", to="created"))
    packed = gzip.compress(f"{good}\n".encode() * 1000)
    (folder / "broker-1" / "state-change.20260114T101500.000000Z.jsonl.gz").write_bytes(packed[:-9])
    with (folder / "broker-2" / "state-change.jsonl").open("a") as log:
        log.write(f"nonsense\n{good[:-9]}\n")
    return folder


@pytest.fixture(scope="session")
def local_report(spark: SparkSession, damaged_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of ``damaged_logs``, made by one process."""
    out = tmp_path_factory.mktemp("local")
    run_report([damaged_logs], out, progress=lambda _line: None)
    return Report.read(spark, out)


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
