"""What the report costs beside Spark's own JSON scan of the same files, each in its own process, as users run it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.types import StructType
from rich.table import Table

from controller.analysis.intake import reading
from controller.analysis.intake.files import list_files
from controller.analysis.session import size_for, spark_session
from tests.support.analysis.make_log import write_cluster
from tests.support.analysis.standalone import standalone

#: Name of the figure: partitions and rounds of the made-up cluster (about 21 lines a partition), runs.
SIZES = {
    "report": {"thousand": (40, 8, 3), "million": (50_000, 10, 3)},
    "report-3m": {"3-million": (150_000, 10, 1)},
    "report-10m": {"10-million": (500_000, 10, 1)},
}
#: The same on a Spark cluster of this machine, by one executor and by two, of a core each.
EXECUTORS, EXECUTORS_RUNS = "report-executors", 2
FIGURES = {*SIZES, EXECUTORS}


class Spent(NamedTuple):
    """Of a process and those it started: seconds by the clock and of processors, the largest one's memory at most."""

    seconds: float
    cpu_s: float
    peak_mb: float


def measure(directory: Path, wanted: set[str], rows: Table) -> None:
    for figure in sorted(SIZES.keys() & wanted):
        for name, (partitions, rounds, runs) in SIZES[figure].items():
            logs = directory / name
            cluster = write_cluster(logs, partitions=partitions, rounds=rounds)
            _measure_one(directory, logs, sum(w.written for w in cluster.writers.values()), runs, rows)
    if EXECUTORS in wanted:
        _measure_executors(directory, rows)


def _measure_executors(directory: Path, rows: Table) -> None:
    partitions, rounds, _ = SIZES["report"]["million"]
    logs, folder = directory / EXECUTORS, directory / "standalone"
    cluster = write_cluster(logs, partitions=partitions, rounds=rounds)
    lines = sum(w.written for w in cluster.writers.values())
    spent: dict[int, list[float]] = {1: [], 2: []}
    folder.mkdir()
    with standalone(folder) as spark:
        for _ in range(EXECUTORS_RUNS):
            for executors, seconds in spent.items():
                began = time.perf_counter()
                out = str(directory / "report")
                submitted = spark.submit([str(logs), "--out", out], [f"--conf=spark.cores.max={executors}"])
                said, _ = submitted.communicate()
                if submitted.returncode:
                    raise RuntimeError(f"spark-submit ended with {submitted.returncode}: {said[-2000:]}")
                seconds.append(time.perf_counter() - began)
    one, two = (statistics.median(spent[executors]) for executors in (1, 2))
    rows.add_row(
        f"report of {lines:,} lines, 2 executors",
        f"{two:.1f} s",
        f"{one:.1f} s, 1 executor",
        f"{two / one:.2f}",
        "",
    )


def _measure_one(directory: Path, logs: Path, lines: int, runs: int, rows: Table) -> None:
    report_command = ("controller.cli.pctl.main", "report", str(logs), "--out", str(directory / "report"))
    reports, scans = [], []
    _spent(*report_command)  # The first report of a machine writes the archive of classes.
    for _ in range(runs):
        scans.append(_spent("tests.bench.report", str(logs), str(directory)))
        reports.append(_spent(*report_command))
    report, scan = _median(reports), _median(scans)
    rows.add_row(
        f"report of {lines:,} lines",
        f"{report.seconds:.1f} s ({lines / report.seconds:,.0f} lines/s)",
        f"{scan.seconds:.1f} s Spark's JSON scan",
        f"{report.seconds / scan.seconds:.1f}",
        "2",
    )
    rows.add_row(
        "  processor time",
        f"{report.cpu_s:.1f} s",
        f"{scan.cpu_s:.1f} s",
        f"{report.cpu_s / scan.cpu_s:.1f}",
        "2",
    )
    rows.add_row("  memory, peak", f"{report.peak_mb:,.0f} MB", f"{scan.peak_mb:,.0f} MB", "", "")


def _median(spent: list[Spent]) -> Spent:
    return Spent(*(statistics.median(figures) for figures in zip(*spent, strict=True)))


def _spent(*module_and_arguments: str) -> Spent:
    """Run a module in a new process."""
    began = time.perf_counter()
    command = [sys.executable, "-m", *module_and_arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    seconds = time.perf_counter() - began
    return Spent(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def scan(logs: Path, directory: Path) -> None:
    """Read the logs' fields by Spark's JSON reader into nothing, in the session of a report, but with the JVM's usual
    compilers: these make the scan faster."""
    with spark_session(None, directory, archived=True) as spark:
        files = list_files(spark, [logs])
        size_for(spark, sum(file.size for file in files))
        fields = StructType([field for field in reading.LINE_TYPE if not field.name.startswith("_")])
        records = spark.read.schema(fields).json([file.path for file in files])
        records.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    scan(Path(sys.argv[1]), Path(sys.argv[2]))
