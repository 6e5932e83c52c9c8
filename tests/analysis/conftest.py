"""One Spark for all tests of the job, and logs written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from controller.analysis.files import list_files
from controller.analysis.reading import OK, classify, read_lines
from controller.analysis.session import spark_session
from tests.support.analysis.records import text

Lines = Callable[[list[str | bytes]], DataFrame]
Records = Callable[[list[dict[str, Any]]], DataFrame]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session("local[2]", tmp_path_factory.mktemp("spark"), small=True) as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session


@pytest.fixture
def classified(spark: SparkSession, tmp_path: Path) -> Lines:
    """Lines in, `classify` out."""

    def read(lines: list[str | bytes]) -> DataFrame:
        directory = tmp_path / "by-hand"
        directory.mkdir()
        raw = [line.encode() if isinstance(line, str) else line for line in lines]
        (directory / "state-change.jsonl").write_bytes(b"\n".join(raw))
        return classify(read_lines(spark, list_files(spark, [directory])))

    return read


@pytest.fixture
def records(classified: Lines) -> Records:
    """Records in, the good lines as the tables take them out; none may be bad."""

    def read(rows: list[dict[str, Any]]) -> DataFrame:
        lines = classified([text(row) for row in rows]).cache()
        bad = lines.where("status != 'ok'").collect()
        assert bad == []
        return lines.where(lines.status == OK)

    return read


def rows(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of a table as sorted tuples."""
    return sorted((tuple(row) for row in table.select(*columns).collect()), key=str)
