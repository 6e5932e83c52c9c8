"""How fast the report is, against Spark's own JSON scan of the same files in the same session."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from rich.table import Table

from controller.analysis.intake import reading
from controller.analysis.intake.files import list_files
from controller.analysis.job import run_report
from controller.analysis.session import size_for, spark_session
from tests.support.analysis.make_log import write_cluster

#: Name of the figure: partitions and rounds of the made-up cluster, runs.
SIZES = {
    "report": {"1,000 lines": (40, 6, 3), "1 million lines": (50_000, 10, 3)},
    "report-10m": {"10 million lines": (500_000, 10, 1)},
}
FIGURES = set(SIZES)


def measure(directory: Path, wanted: set[str], rows: Table) -> None:
    for figure in sorted(FIGURES & wanted):
        for name, (partitions, rounds, runs) in SIZES[figure].items():
            logs = directory / name.replace(" ", "-")
            cluster = write_cluster(logs, partitions=partitions, rounds=rounds)
            lines = sum(writer.written for writer in cluster.writers.values())
            _measure_one(directory, logs, lines, runs, rows)


def _measure_one(directory: Path, logs: Path, lines: int, runs: int, rows: Table) -> None:
    out = directory / "report"
    began = time.perf_counter()
    run_report([logs], out, progress=lambda _line: None)
    alone = time.perf_counter() - began
    reports, scans = [], []
    with spark_session(None, directory, small=lines < 10_000) as spark:
        for _ in range(runs):
            scans.append(_timed(lambda: _scan(spark, logs)))
            reports.append(_timed(lambda: run_report([logs], out, progress=lambda _line: None)))
    report, scan = statistics.median(reports), statistics.median(scans)
    rows.add_row(
        f"report of {lines:,} lines",
        f"{report:.1f} s ({lines / report:,.0f} lines/s)",
        f"{scan:.1f} s Spark's JSON scan",
        f"{report / scan:.1f}",
        "",
    )
    rows.add_row(f"report of {lines:,} lines with Spark's start", f"{alone:.1f} s", "", "", "")


def _scan(spark: SparkSession, logs: Path) -> None:
    files = list_files(spark, [logs])
    size_for(spark, sum(file.size for file in files))
    fields = StructType([field for field in reading.LINE_TYPE if not field.name.startswith("_")])
    records = spark.read.schema(fields).json([file.path for file in files])
    records.write.format("noop").mode("overwrite").save()


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
