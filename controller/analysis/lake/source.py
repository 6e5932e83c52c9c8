"""The report's input from the table: the same tables as from the raw logs, without reading a line of text."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.condensing import condense
from controller.analysis.intake import quality, reading
from controller.analysis.lake.condensed import STATUSES, condensed_files, read_condensed
from controller.analysis.lake.delta_log import LAKE_VERSION, DeltaLog, Snapshot
from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.identity import TakenFile
from controller.analysis.lake.loading import UNREAD, read_rows, taken_files
from controller.analysis.lake.s3_storage import S3Storage
from controller.analysis.lake.storage import Storage, local_storage
from controller.analysis.local_files import LogFile
from controller.analysis.progress import Phase, Progress, entered
from controller.analysis.session import size_for
from controller.analysis.singles import singles_of
from controller.analysis.tables import Input

_NOT_OF_RECORDS = ("log_file", "digest", "status", "problem", "sample", "other_kind", "day", "schema")
#: Log files up to this number are named by a literal map, more by a join.
_LITERAL_MAX = 1000


def open_snapshot(storage: Storage) -> Snapshot:
    """The newest version. Raises LakeError if there is no lake or nothing in it."""
    snapshot, shown = DeltaLog(storage).read(), storage.shown
    if snapshot.version < 0:
        raise LakeError(f"{shown}: no lake; pctl lake update LOGDIR... --lake {shown} makes it")
    if snapshot.lake_version < LAKE_VERSION:
        why = f"made by an earlier version: lake version {snapshot.lake_version}, now {LAKE_VERSION}"
        raise LakeError(f"{shown}: {why}; pctl lake update LOGDIR... --lake {shown} changes it")
    if not any(file.ok for file in taken_files(snapshot)):
        raise LakeError(f"{shown}: nothing to report on: no usable line")
    return snapshot


def log_bytes(snapshot: Snapshot) -> int:
    """Bytes of log that the table stands for."""
    return sum(file.taken for file in taken_files(snapshot))


class LakeSource:
    """A lake to be read: one version of it, which is opened without Spark where that can be done."""

    def __init__(self, lake: Path | str) -> None:
        """Raises LakeError if there is no lake or nothing in it, as far as it can be told without Spark."""
        self._local = local_storage(lake)
        self._lake = str(lake)
        self._snapshot = None if self._local is None else open_snapshot(self._local)

    @property
    def log_bytes(self) -> int | None:
        """`log_bytes`; None if only Spark can tell."""
        return None if self._snapshot is None else log_bytes(self._snapshot)

    def input(self, spark: SparkSession, _staging: str, progress: Progress) -> Input:
        """`lake_input`, in a session that is made for its size. Raises as ``open_snapshot``."""
        storage = self._local or S3Storage.of(spark, self._lake)
        snapshot = self._snapshot or open_snapshot(storage)
        size_for(spark, log_bytes(snapshot))
        return lake_input(spark, storage, snapshot, progress)


def lake_input(spark: SparkSession, storage: Storage, snapshot: Snapshot, progress: Progress) -> Input:
    """The input of the report, from one version of the table. Nothing is staged."""
    files = sorted(taken_files(snapshot), key=lambda file: file.path)
    rows = [_file_row(file) for file in files]
    count, good_lines = sum(row.lines for row in rows), sum(row.ok for row in rows)
    damaged = sum(row.problem is not None for row in rows)
    entered(progress, Phase.TABLES, count)
    progress(f"{count:,} lines, {count - good_lines:,} unreadable, {damaged} damaged files")
    everything = _with_file(spark, read_rows(spark, storage, snapshot.files), files)
    unread = everything.where(F.col("kind") == UNREAD)
    good = everything.where(F.col("kind") != UNREAD)
    condensed = read_condensed(spark, storage, condensed_files(snapshot)).where(F.col("kind") != UNREAD)
    condensed, copies = condensed.drop(*STATUSES), 0
    doubled = quality.overlapping(rows)
    if doubled:
        progress("files of one node overlap in time: looking for copied lines")
        ids = [file.id for file in files if LogFile(file.path, 0).shown in doubled]
        among = F.col("log_file").isin(ids)
        if _has_copies(good.where(among)):
            marked = reading.mark_copies(good.where(among)).persist()
            copies, once = marked.where("copy").count(), marked.where(~F.col("copy")).drop("copy")
            good = good.where(~among).unionByName(once)
            others = condensed.where(~F.col("file").isin(ids))
            condensed = others.unionByName(condense(once.withColumn("file", F.col("log_file"))))
    first_us, last_us = quality.span(rows)
    records = good.drop(*_NOT_OF_RECORDS)
    return Input(
        records=records,
        condensed=condensed.persist(),
        singles=singles_of(records, count),
        files=[LogFile(file.path, file.size) for file in files],
        file_table=quality.file_table(spark, rows),
        problem_table=quality.input_problems(unread) if good_lines < count else quality.no_problems(spark),
        lines=count,
        copies=copies,
        first_us=first_us,
        last_us=last_us,
    )


def _file_row(file: TakenFile) -> quality.FileRow:
    left = (
        f"{file.pending:,} bytes of an unfinished last line are left for the next update"
        if file.pending
        else None
    )
    return quality.FileRow(
        LogFile(file.path, 0).shown,
        file.size,
        file.lines,
        file.ok,
        file.torn,
        file.malformed,
        file.newer_schema,
        file.problem or left,
        file.role,
        file.node,
        file.first_us,
        file.last_us,
    )


def _with_file(spark: SparkSession, rows: DataFrame, files: list[TakenFile]) -> DataFrame:
    """The rows with ``file``: the present name of the log, as `reading.read_lines` has it, on which the order of
    records of one event and time depends."""
    names = {file.id: quote(file.path, safe="/:") for file in files}
    if len(names) <= _LITERAL_MAX:
        literals = [F.lit(text) for pair in names.items() for text in pair]
        return rows.withColumn("file", F.create_map(*literals)[F.col("log_file")])
    table = spark.createDataFrame(list(names.items()), "log_file string, file string")
    return rows.join(F.broadcast(table), "log_file", "left")


def _has_copies(rows: DataFrame) -> bool:
    """Whether two files have a line in common: told by few columns, unlike which one it is."""
    lines = rows.groupBy("digest", "ts")
    ends = lines.agg(F.min("log_file").alias("first"), F.max("log_file").alias("last"))
    return not ends.where(F.col("first") != F.col("last")).isEmpty()
