"""Quality of the input: lines read and not read, with reasons, by file and by node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.intake.conversion import Converted
from controller.analysis.intake.reading import MALFORMED, NEWER, OK, TORN, decoded
from controller.analysis.intake.screening import FileCheck
from controller.analysis.local_files import LogFile


class FileRow(NamedTuple):
    """A file and its lines by status; ``problem``: of the file as a whole; times in microseconds since 1970."""

    file: str
    size: int
    lines: int
    ok: int
    torn: int
    malformed: int
    newer_schema: int
    problem: str | None
    role: str | None
    node: int | None
    first_us: int | None
    last_us: int | None


_FILE_TYPE = """array<struct<file string, size bigint, lines bigint, ok bigint, torn bigint, malformed bigint,
 newer_schema bigint, problem string, role string, node bigint, first_us bigint, last_us bigint>>"""


class LinesRead(NamedTuple):
    """What was read of a file: ``bytes`` (None: all), how many ``lines``, of these ``usual`` and ``odd`` ones; ``url``:
    its name in the lines; ``role``, ``node``, ``first_us``, ``last_us`` of the usual ones."""

    lines: int
    bytes: int | None
    usual: int
    odd: int
    url: str
    role: str | None
    node: int | None
    first_us: int | None
    last_us: int | None


#: What `condense` adds up beside records, for `usual_lines`.
LINE_COUNTS = ("bytes", "odd")


def line_counts() -> list[Column]:
    """Aggregates of lines, in the order of LINE_COUNTS."""
    sums = (F.sum("bytes"), F.count("odd"))
    return [total.alias(name) for total, name in zip(sums, LINE_COUNTS, strict=True)]


def usual_lines(condensed: DataFrame) -> dict[str, LinesRead]:
    """What was read, by path of file. In: `condense` with `line_counts`, of the outcome of `reading.parse_lines`."""
    sums = [F.sum(name).alias(name) for name in ("lines", *LINE_COUNTS)]
    read = condensed.groupBy(F.col("file").alias("url")).agg(
        *sums, (F.sum("lines") - F.sum("odd")).alias("usual"), *_span("first_ts", "last_ts")
    )
    named = read.withColumn("file", decoded(F.col("url"))).select("file", *LinesRead._fields)
    return {path: LinesRead(*told) for path, *told in named.collect()}


def converted_lines(check: FileCheck, made: Converted) -> LinesRead:
    """The same of a converted file."""
    if made.condensed is None:
        return LinesRead(check.lines, None, 0, made.odd, made.name, None, None, None, None)
    role, node = (pc.max(made.condensed[name]).as_py() for name in ("role", "node"))
    first_us, last_us = (
        end(made.condensed[name].cast(pa.int64())).as_py()
        for end, name in ((pc.min, "first_ts"), (pc.max, "last_ts"))
    )
    usual = check.lines - made.odd
    return LinesRead(check.lines, None, usual, made.odd, made.name, role, node, first_us, last_us)


def odd_lines(judged: DataFrame) -> dict[str, Row]:
    """Odd lines by file: counts by status; ``role``, ``node``, ``first_us``, ``last_us`` of ok ones. In: `classify`."""
    counts = [F.count_if(F.col("status") == status).alias(status) for status in (OK, TORN, MALFORMED, NEWER)]
    ok = F.col("status") == OK
    good = judged.withColumns({name: F.when(ok, F.col(name)) for name in ("role", "node", "ts")})
    read = good.groupBy("file").agg(*counts, *_span("ts", "ts"))
    return {row.file: row for row in read.withColumn("file", decoded(F.col("file"))).collect()}


def _span(first: str, last: str) -> list[Column]:
    return [
        F.max("role").alias("role"),
        F.max("node").alias("node"),
        F.unix_micros(F.min(first)).alias("first_us"),
        F.unix_micros(F.max(last)).alias("last_us"),
    ]


def input_files(
    files: Sequence[LogFile],
    checks: Mapping[str, FileCheck],
    usual: Mapping[str, LinesRead],
    odd: Mapping[str, Row],
) -> list[FileRow]:
    """One row per file, also for an unreadable file. In: `usual_lines` and `odd_lines`, by path."""
    rows = []
    for file in files:
        read, judged = usual.get(file.path), odd.get(file.path)
        check, known = checks.get(file.path), [row for row in (read, judged) if row is not None]
        size = 0 if read is None else read.bytes
        problem = _problem_of(file, check, check.size if size is None and check is not None else size or 0)
        bad = [getattr(judged, status, 0) for status in (TORN, MALFORMED, NEWER)]
        ok = getattr(judged, OK, 0) + (0 if read is None else read.usual)
        ends = [[getattr(row, name) for row in known] for name in ("role", "node", "last_us", "first_us")]
        role, node, last_us = (max((v for v in end if v is not None), default=None) for end in ends[:3])
        first_us = min((v for v in ends[3] if v is not None), default=None)
        lines = 0 if read is None else read.lines
        told = (problem, role, node, first_us, last_us)
        rows.append(FileRow(file.shown, file.size, lines, ok, bad[0], bad[1], bad[2], *told))
    return rows


def span(rows: Sequence[FileRow]) -> tuple[int, int]:
    """The times of the first and of the last ok line of all, of which there is one."""
    first_us = min(row.first_us for row in rows if row.first_us is not None)
    return first_us, max(row.last_us for row in rows if row.last_us is not None)


def file_table(spark: SparkSession, rows: Sequence[FileRow]) -> DataFrame:
    """Out: ``file``, ``size`` (on disk), ``lines``, ``ok``, ``torn``, ``malformed``, ``newer_schema``, ``problem`` (of
    the file as a whole, null when none), ``role`` and ``node`` of its writer, ``first_ts``, ``last_ts``."""
    # Not by createDataFrame, for which Spark starts Python workers.
    given = F.from_json(F.lit(json.dumps([row._asdict() for row in rows])), _FILE_TYPE)
    table = spark.range(1).select(F.inline(given))
    span_columns = {f"{end}_ts": F.timestamp_micros(F.col(f"{end}_us")) for end in ("first", "last")}
    return table.withColumns(span_columns).drop("first_us", "last_us")


def _problem_of(file: LogFile, check: FileCheck | None, bytes_read: int) -> str | None:
    """The problem of the file as a whole. ``bytes_read`` includes a newline for the last line."""
    if check is not None and check.problem is not None:
        return f"{check.problem}; what came before the damage was read"
    expected = file.size if not file.gzipped else None if check is None else check.size
    if expected is not None and bytes_read < expected:
        return f"only {bytes_read:,} of {expected:,} bytes were read: it vanished or shrank meanwhile (rotation?)"
    return None


def input_problems(judged: DataFrame) -> DataFrame:
    """Unusable lines, by reason.

    In: `classify`. Out: ``file``, ``status``, ``problem``, ``count``, ``sample`` (the first such line's start).
    """
    first = F.min_by("sample", F.struct("block", "line"))
    return (
        judged.where(F.col("status") != OK)
        .groupBy("file", "status", "problem")
        .agg(F.count("*").alias("count"), first.alias("sample"))
        .withColumn("file", F.regexp_replace(decoded(F.col("file")), "^file:/", "/"))
    )


def no_problems(spark: SparkSession) -> DataFrame:
    """`input_problems` of a log without unusable lines, which need not be looked at for that."""
    return spark.range(0).select(
        *(F.lit(None).cast(kind).alias(name) for name, kind in _PROBLEM_COLUMNS.items())
    )


_PROBLEM_COLUMNS = {
    "file": "string",
    "status": "string",
    "problem": "string",
    "count": "bigint",
    "sample": "string",
}


def input_nodes(condensed: DataFrame) -> DataFrame:
    """Input by node.

    In: `condense`. Out: ``role``, ``node``, ``files``, ``lines``, ``dropped`` (records the node itself reports lost),
    ``first_ts``, ``last_ts``.
    """
    lost = (F.col("kind") == "log") & (F.col("to") == "dropped")
    return condensed.groupBy("role", "node").agg(
        F.count_distinct("file").alias("files"),
        F.sum("lines").alias("lines"),
        F.coalesce(F.try_sum(F.when(lost, F.col("meant"))), F.lit(0)).alias("dropped"),
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
    )


def overlapping(rows: Sequence[FileRow]) -> set[str]:
    """Files of nodes of which two files overlap in time, as copies do and rotated files do not.

    One rotated file may begin at the microsecond that the one before ends with: the lines of an event share their time.
    """
    newest: dict[tuple[str | None, int | None], tuple[int, bool]] = {}
    found: set[tuple[str | None, int | None]] = set()
    spans = [(row.first_us or 0, row.last_us or 0, (row.role, row.node)) for row in rows if row.ok]
    for first, last, node in sorted(spans, key=lambda span: span[0]):
        end, end_at_once = newest.get(node, (-1, False))
        at_once = first == last
        if first < end or (first == end and (at_once or end_at_once)):
            found.add(node)
        newest[node] = max((end, end_at_once), (last, at_once))
    return {row.file for row in rows if (row.role, row.node) in found}
