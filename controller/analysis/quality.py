"""Quality of the input: lines read and not read, with reasons, by file and by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.files import GzipCheck
from controller.analysis.local_files import LogFile
from controller.analysis.reading import MALFORMED, NEWER, OK, TORN, decoded

_FILE_TYPE = """file string, size bigint, lines bigint, ok bigint, torn bigint, malformed bigint,
 newer_schema bigint, problem string, role string, node bigint, first_us bigint, last_us bigint"""


def input_files(
    spark: SparkSession, lines: DataFrame, files: Sequence[LogFile], checks: Mapping[str, GzipCheck]
) -> DataFrame:
    """One row per file, also for an unreadable file.

    In: `classify`. Out: ``file``, ``size`` (on disk), ``lines``, ``ok``, ``torn``, ``malformed``,
    ``newer_schema``, ``problem`` (of the file as a whole, null when none), ``role`` and ``node`` of its
    writer, ``first_ts``, ``last_ts``.
    """
    counts = [F.count_if(F.col("status") == status).alias(status) for status in (OK, TORN, MALFORMED, NEWER)]
    ok_ts = F.when(F.col("status") == OK, F.col("ts"))
    read = lines.groupBy("file").agg(
        F.sum("bytes").alias("bytes"),
        F.count("*").alias("lines"),
        *counts,
        F.max(F.when(F.col("status") == OK, F.col("role"))).alias("role"),
        F.max(F.when(F.col("status") == OK, F.col("node"))).alias("node"),
        F.unix_micros(F.min(ok_ts)).alias("first_us"),
        F.unix_micros(F.max(ok_ts)).alias("last_us"),
    )
    by_file = {row.file: row for row in read.withColumn("file", decoded(F.col("file"))).collect()}
    rows: list[tuple[object, ...]] = []
    for file in files:
        row = by_file.get(file.path)
        problem = _problem_of(file, checks.get(file.path), row.bytes if row else 0)
        if row is None:
            rows.append((file.shown, file.size, 0, 0, 0, 0, 0, problem, None, None, None, None))
        else:
            counted = (row.lines, row.ok, row.torn, row.malformed, row.newer_schema)
            span = (row.role, row.node, row.first_us, row.last_us)
            rows.append((file.shown, file.size, *counted, problem, *span))
    table = spark.createDataFrame(rows, _FILE_TYPE)
    span_columns = {f"{end}_ts": F.timestamp_micros(F.col(f"{end}_us")) for end in ("first", "last")}
    return table.withColumns(span_columns).drop("first_us", "last_us")


def _problem_of(file: LogFile, check: GzipCheck | None, bytes_read: int) -> str | None:
    """The problem of the file as a whole. ``bytes_read`` includes a newline for the last line."""
    if check is not None and check.problem is not None:
        return f"{check.problem}; what came before the damage was read"
    expected = check.size if check is not None else None if file.gzipped else file.size
    if expected is not None and bytes_read < expected:
        return f"only {bytes_read:,} of {expected:,} bytes were read: it vanished or shrank meanwhile (rotation?)"
    return None


def input_problems(lines: DataFrame) -> DataFrame:
    """Unusable lines, by reason.

    In: `classify`. Out: ``file``, ``status``, ``problem``, ``count``, ``sample`` (the first such line's start).
    """
    first = F.min_by("sample", F.struct("block", "line"))
    return (
        lines.where(F.col("status") != OK)
        .groupBy("file", "status", "problem")
        .agg(F.count("*").alias("count"), first.alias("sample"))
        .withColumn("file", F.regexp_replace(decoded(F.col("file")), "^file:/", "/"))
    )


def input_nodes(records: DataFrame) -> DataFrame:
    """Input by node.

    In: `classify`, ok lines only. Out: ``role``, ``node``, ``files``, ``lines``, ``dropped`` (records the node
    itself reports lost), ``first_ts``, ``last_ts``.
    """
    lost = (F.col("kind") == "log") & (F.col("to") == "dropped")
    return records.groupBy("role", "node").agg(
        F.count_distinct("file").alias("files"),
        F.count("*").alias("lines"),
        F.coalesce(F.try_sum(F.when(lost, F.coalesce("count", F.lit(1)))), F.lit(0)).alias("dropped"),
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
    )


def writers_overlap(spans: Sequence[tuple[str, int, int, int]]) -> bool:
    """Whether two files of one node overlap in time, as copies do and rotated files do not.

    ``spans``: role, node, first and last time of each file, microseconds.
    """
    newest: dict[tuple[str, int], int] = {}
    for role, node, first, last in sorted(spans, key=lambda span: span[2]):
        before = newest.get((role, node))
        if before is not None and first <= before:
            return True
        newest[role, node] = max(last, before or last)
    return False
