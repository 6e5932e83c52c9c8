"""The Spark job behind `pctl report`."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from controller.analysis import arrow_intervals
from controller.analysis.answers import Row
from controller.analysis.errors import ReportError
from controller.analysis.intake import quality
from controller.analysis.intake.files import (
    Conversion,
    delete,
    list_files,
    list_local,
    move_local,
    write_rows,
    write_text,
)
from controller.analysis.intake.staging import Staged, converted_in, stage
from controller.analysis.lake.source import LakeSource
from controller.analysis.local_files import (
    LISTINGS_MAX,
    LogFile,
    check_local,
    has_scheme,
    list_and_open,
    output,
    spark_path,
)
from controller.analysis.object_storage.jars import jars_for
from controller.analysis.page.rendering import render
from controller.analysis.progress import Phase, Progress, entered, estimated_lines, stage_progress, stepped
from controller.analysis.questions.asked import NOTHING_TOLD, Asked
from controller.analysis.session import LOG_NAME, QUICK_BYTES, first_line, size_for, spare_work, spark_session
from controller.analysis.summary import ReportSummary, Tables, collect_findings, summarize
from controller.analysis.tables import TABLES, Input, read_made

#: While Spark plans one table, another one is computed; more of them would share the same few cores.
_TABLES_AT_ONCE = 2
#: For fewer rows a query takes longer to compile than to run, and a table of them longer to be written by Spark than to
#: be fetched.
_FEW_ROWS = 100_000


def run_report(
    log_dirs: Sequence[Path | str],
    out_dir: Path | str,
    *,
    lake: Path | str | None = None,
    master: str | None = None,
    progress: Progress,
    asked: Asked = NOTHING_TOLD,
) -> ReportSummary:
    """Read the logs in and below ``log_dirs``, or what ``lake`` has of them; write ``out_dir``/tables and
    ``out_dir``/report.html.

    ``master``: Spark's (default: all cores of this machine, or spark-submit's). ``progress`` gets lines of text,
    from two threads, one at a time.

    Raises ReportError if the report cannot be made, EnvironmentFault without Java.
    """
    source = None if lake is None else LakeSource(lake)
    size = check_local(log_dirs) if source is None else source.log_bytes
    local = size is not None
    quick = size is not None and size <= QUICK_BYTES
    try:
        with output(out_dir) as (out, own_log_dir):
            progress("starting Spark")
            entered(progress, Phase.SPARK)
            with (
                _reading_early(log_dirs if source is None and local else (), out) as begun,
                spark_session(
                    master,
                    own_log_dir,
                    quick=quick,
                    archived=local,
                    jars=partial(jars_for, [*log_dirs, lake or "", out], progress),
                ) as spark,
                stage_progress(spark.sparkContext, progress),
            ):
                if lake is None or source is None:
                    read, named = partial(read_input, spark, log_dirs, begun=begun), log_dirs
                else:
                    read, named = partial(source.input, spark), [lake]
                try:
                    return _report(spark, read, named, out, progress, asked)
                except (PySparkException, Py4JError) as error:
                    # Told while Spark runs: its errors ask the JVM for their text.
                    why = f"Spark failed: {first_line(error)} (more in {own_log_dir / LOG_NAME})"
                    raise ReportError(why) from error
    except OSError as error:
        raise ReportError(f"{error.filename or out_dir}: {error.strerror or error}") from error


@contextmanager
def _reading_early(log_dirs: Sequence[Path | str], out: str) -> Iterator[Conversion | None]:
    """Convert logs of this machine while Spark starts; None if it is Spark that must list them."""
    if not log_dirs or has_scheme(out):
        yield None
        return
    staging = f"{out}/_staging"
    try:
        listed = list_and_open(lambda: list_local(log_dirs))
        with Conversion(listed, converted_in(staging), complete=False) as begun:
            yield begun
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _report(
    spark: SparkSession,
    read: Callable[[str, Progress], Input],
    named: Sequence[Path | str],
    out: str,
    progress: Progress,
    asked: Asked,
) -> ReportSummary:
    begun_s = time.monotonic()
    where = spark_path(out)
    staging = f"{where}/_staging"
    try:
        source = replace(read(staging, progress), asked=asked)
        tables = write_tables(spark, source, f"{where}/tables", progress)
        findings = collect_findings(tables, source.bucket_us, source.top_rows())
        write_small(spark, tables, findings.whole, f"{where}/tables")
        progress(f"tables: {len(TABLES)} in {out}/tables")
        progress("writing the page")
        entered(progress, Phase.PAGE)
        findings.copies, findings.input_bytes = source.copies, sum(file.size for file in source.files)
        summary = summarize(findings, page=f"{out}/report.html", tables_dir=f"{out}/tables")
        write_text(spark, summary.page, render(summary, findings, [str(path) for path in named]))
    finally:
        delete(spark, staging)
    seconds = time.monotonic() - begun_s
    progress(f"{source.lines:,} lines in {seconds:.0f} s; page: {summary.page}")
    return summary


def read_input(
    spark: SparkSession,
    log_dirs: Sequence[Path | str],
    staging: str,
    progress: Progress,
    *,
    complete: bool = False,
    begun: Conversion | None = None,
) -> Input:
    """List, check and parse the logs into ``staging``. ``complete``: with all fields of all records; ``begun``: with a
    conversion of them.

    Raises ReportError if there is no log or no usable line in it.
    """
    files, staged = _stage(spark, log_dirs, staging, progress, complete, begun)
    rows = quality.input_files(files, staged.checks, staged.usual, staged.odd)
    count = sum(row.lines for row in rows)
    good = sum(row.ok for row in rows)
    damaged = [f"{row.file}: {row.problem}" for row in rows if row.problem]
    if not good:
        what = "; ".join([f"{len(files)} files, {count:,} lines, none of them usable", *damaged[:3]])
        raise ReportError(f"nothing to report on in {', '.join(map(str, log_dirs))}: {what}")
    entered(progress, Phase.TABLES, count)
    progress(f"{count:,} lines, {count - good:,} unreadable, {len(damaged)} damaged files")
    copies, doubled = 0, quality.overlapping(rows)
    if doubled:
        progress("files of one node overlap in time: looking for copied lines")
        staged.mark_copies(files, doubled)
        copies = staged.copies().count()
    first_us, last_us = quality.span(rows)
    return Input(
        records=staged.records(),
        condensed=staged.condensed().coalesce(1).persist(),
        singles=staged.singles(count),
        commits=staged.commits(),
        files=files,
        file_table=quality.file_table(spark, rows),
        problem_table=staged.problems(),
        lines=count,
        copies=copies,
        first_us=first_us,
        last_us=last_us,
    )


def _stage(
    spark: SparkSession,
    log_dirs: Sequence[Path | str],
    staging: str,
    progress: Progress,
    complete: bool,
    begun: Conversion | None,
) -> tuple[list[LogFile], Staged]:
    for attempt in range(1, LISTINGS_MAX + 1):
        if begun is None or attempt > 1:
            listed = list_and_open(lambda: list_files(spark, log_dirs))
            begun = Conversion(listed, converted_in(staging), complete)
        files = list(begun.files)
        size = sum(file.size for file in files)
        progress(f"reading {len(files)} file{'s'[: len(files) > 1]}, {size / 1e6:,.1f} MB")
        size_for(spark, size)
        entered(progress, Phase.READ, estimated_lines(files))
        try:
            with begun:
                return files, stage(spark, begun, staging, complete=complete)
        except AnalysisException as error:
            if attempt == LISTINGS_MAX or error.getCondition() != "PATH_NOT_FOUND":
                raise
    raise AssertionError("the loop returns or raises")


def write_tables(spark: SparkSession, source: Input, tables_dir: str, progress: Progress) -> Tables:
    """Write the tables as Parquet, some at once, but for small ones (docs/report.md lists all)."""
    small = source.lines <= _FEW_ROWS or source.condensed.count() <= _FEW_ROWS
    specs = {spec.name: spec for spec in TABLES}
    begun: dict[str, Future[DataFrame]] = {}
    lock, done = threading.Lock(), 0

    def table(name: str) -> DataFrame:
        """Made by whoever asks for it first. No table is made from itself, so nobody waits for ever."""
        with lock:
            mine = name not in begun
            made = begun.setdefault(name, Future())
        if mine:
            try:
                made.set_result(write(name))
            except BaseException as error:  # noqa: BLE001  (told to all who ask)
                made.set_exception(error)
        return made.result()

    def write(name: str) -> DataFrame:
        nonlocal done
        path = f"{tables_dir}/{name}"
        made = source.made.get(name) if name in arrow_intervals.NAMES else None
        if made is not None:
            directory = path.removeprefix("file:")
            move_local(made.paths, directory)
            written = read_made(spark, made, directory)
        else:
            built = specs[name].build(source, table)
            built.write.mode("overwrite").parquet(path)
            written = spark.read.schema(built.schema).parquet(path)
        with lock:
            done += 1
            stepped(progress, done, len(specs))
        return written

    large = [name for name, spec in specs.items() if not (small and spec.few_rows)]
    # One more, as one makes Arrow's and others wait for these.
    with ThreadPoolExecutor(max_workers=_TABLES_AT_ONCE + 1) as pool:
        list(pool.map(table, large))
    if small:
        spare_work(spark)
    rest = {name: spec.build(source, table) for name, spec in specs.items() if name not in large}
    return Tables({name: table(name) for name in large}, rest)


def write_small(
    spark: SparkSession, tables: Tables, rows: Mapping[str, Sequence[Row]], tables_dir: str
) -> None:
    """Write the tables whose rows the page needed anyhow: a job of Spark for each would take longer than its work."""
    for name, table in tables.small.items():
        write_rows(
            spark,
            f"{tables_dir}/{name}",
            pa.Table.from_pylist(list(rows[name]), to_arrow_schema(table.schema, timezone="UTC")),
        )
