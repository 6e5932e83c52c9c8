"""What the report costs beside Spark's own JSON scan of the same files, and DuckDB's, each in its own process, as users
run it."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from controller.analysis.intake import reading
from controller.analysis.intake.files import list_files
from controller.analysis.local_files import walk_local
from controller.analysis.session import size_for, spark_session
from proto.statelog.schema import INT_FIELDS, LIST_FIELDS, STRING_FIELDS
from tests.support.analysis.make_log import write_cluster
from tests.support.analysis.many_days import write_days
from tests.support.analysis.standalone import children, standalone
from tests.tools.installation import REQUIREMENTS, IndexOutOfReachError, install

#: Name of the figure: partitions and rounds of the made-up cluster (about 21 lines a partition), runs.
SIZES = {
    "report": {"thousand": (40, 8, 3), "million": (50_000, 10, 3)},
    "report-3m": {"3-million": (150_000, 10, 1)},
    "report-10m": {"10-million": (500_000, 10, 1)},
}
#: The same on a Spark cluster of this machine, by one executor and by two, of a core each.
EXECUTORS, EXECUTORS_RUNS = "report-executors", 2
#: ``SCALE`` times a hundred million lines, once.
MANY, MANY_LINES = "report-100m", round(100_000_000 * float(os.environ.get("SCALE", "1")))
#: On disk: logs, staging and what Spark sorts; 40 were measured with a tenth of the lines.
MANY_BYTES_A_LINE = 100
FIGURES = {*SIZES, EXECUTORS, MANY}
_SAMPLE_S = 1.0
_DUCKDB_TYPES = (
    dict.fromkeys(STRING_FIELDS, "VARCHAR")
    | {field.name: "BIGINT" for field in INT_FIELDS}
    | dict.fromkeys(LIST_FIELDS, "BIGINT[]")
)
console = Console(soft_wrap=True)


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
    if MANY in wanted:
        _measure_many(directory, rows)


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


def _measure_many(directory: Path, rows: Table) -> None:
    """One run, with what is on disk meanwhile."""
    needed, free = MANY_LINES * MANY_BYTES_A_LINE, shutil.disk_usage(directory).free
    if free < needed:
        raise RuntimeError(
            f"{directory}: {MANY_LINES:,} lines need {needed / 1e9:.0f} GB, {free / 1e9:.0f} are free"
        )
    logs, scratch, out = directory / MANY, directory / "scratch", directory / "report"
    scratch.mkdir()
    began = time.perf_counter()
    lines = write_days(logs, MANY_LINES)
    took = time.perf_counter() - began
    size = _bytes_in(logs)
    console.print(
        f"  {lines:,} lines, {size / 1e9:.2f} GB, made in {took:.0f} s: {took / lines * 1e6:.1f} s a million"
    )
    variables = {"SPARK_LOCAL_DIRS": str(scratch)}
    scan = _spent(_module("tests.bench.report", str(logs), str(directory)), variables)
    disk = Disk({"staging": out / "_staging", "Spark's scratch": scratch})
    report = _spent(_module(*_report_command(directory, logs)), variables, disk)
    _add_rows(rows, lines, report, scan)
    rows.add_row(
        "  memory of all its processes, peak", f"{disk.memory_bytes / 1e6:.0f} MB", "", "", "24000 MB"
    )
    for name, peak in disk.peaks.items():
        rows.add_row(
            f"  {name}, peak",
            f"{peak / 1e9:.2f} GB",
            f"{size / 1e9:.2f} GB of logs",
            f"{peak / size:.1f}",
            "",
        )
    _compare_with_duckdb(directory, logs, [report], rows)


class Disk:
    """The most that directories held, and that the memory of a process and those it started was, while it ran."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = directories
        self.peaks = dict.fromkeys(directories, 0)
        self.memory_bytes = 0

    def watch(self, pid: int, ended: threading.Event) -> None:
        while not ended.wait(_SAMPLE_S):
            for name, directory in self._directories.items():
                self.peaks[name] = max(self.peaks[name], _bytes_in(directory))
            self.memory_bytes = max(self.memory_bytes, _memory_of(pid))


def _memory_of(pid: int) -> int:
    """Bytes in memory of a process and those it started."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(_memory_of, children(pid)))


def _bytes_in(directory: Path) -> int:
    """What all files below a directory take, though some may vanish meanwhile."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def _report_command(directory: Path, logs: Path) -> tuple[str, ...]:
    return ("controller.cli.pctl.main", "report", str(logs), "--out", str(directory / "report"))


def _measure_one(directory: Path, logs: Path, lines: int, runs: int, rows: Table) -> None:
    report_command = _module(*_report_command(directory, logs))
    reports, scans = [], []
    _spent(report_command)  # The first report of a machine writes the archive of classes.
    for _ in range(runs):
        scans.append(_spent(_module("tests.bench.report", str(logs), str(directory))))
        reports.append(_spent(report_command))
    _add_rows(rows, lines, _median(reports), _median(scans))
    _compare_with_duckdb(directory, logs, reports, rows)


def _compare_with_duckdb(directory: Path, logs: Path, reports: list[Spent], rows: Table) -> None:
    """As many runs of DuckDB as there were of the report."""
    try:
        python = install(REQUIREMENTS / "duckdb.txt").bin / "python"
    except IndexOutOfReachError as error:
        console.print(f"  no DuckDB beside it: the package index is out of reach: {error}")
        return
    named = directory / "logs.json"
    named.write_text(json.dumps([file.shown for file in walk_local(str(logs))]))
    command = [
        str(python),
        str(Path(__file__).with_name("duckdb_scan.py")),
        json.dumps(_DUCKDB_TYPES),
        str(named),
    ]
    report, scan = _median(reports), _median([_spent(command) for _ in reports])
    for figure, of_report, of_scan in (
        ("beside DuckDB's scan", report.seconds, scan.seconds),
        ("beside DuckDB's scan, processor time", report.cpu_s, scan.cpu_s),
    ):
        rows.add_row(
            f"  {figure}",
            f"{of_report:.1f} s",
            f"{of_scan:.1f} s DuckDB's JSON scan",
            f"{of_report / of_scan:.1f}",
            "",
        )


def _add_rows(rows: Table, lines: int, report: Spent, scan: Spent) -> None:
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


def _module(*module_and_arguments: str) -> list[str]:
    return [sys.executable, "-m", *module_and_arguments]


def _spent(command: list[str], variables: Mapping[str, str] = {}, disk: Disk | None = None) -> Spent:
    """Run a command in a new process."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    ended = threading.Event()
    watching = threading.Thread(target=disk.watch, args=(process.pid, ended)) if disk else None
    if watching:
        watching.start()
    _, status, usage = os.wait4(process.pid, 0)
    if watching:
        ended.set()
        watching.join()
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
