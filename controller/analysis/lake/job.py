"""`pctl lake update` and `pctl lake follow`: what is new in the logs, into the table.

What is set aside of the logs is an *order*: a file that names the pieces. An order that is there is carried out, by
whoever comes next; the table's own commit tells whether it has been. So each line is taken once, whenever a process is
killed.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from controller.analysis.errors import ReportError
from controller.analysis.job import first_line
from controller.analysis.lake.compaction import compact
from controller.analysis.lake.delta_log import LAKE_VERSION, DeltaLog, Snapshot
from controller.analysis.lake.errors import LakeError, SetAsideError
from controller.analysis.lake.loading import Lake, taken_files
from controller.analysis.lake.spool import Piece, Spool
from controller.analysis.local_files import check_local, has_scheme
from controller.analysis.progress import Progress, stage_progress
from controller.analysis.session import LOG_NAME, QUICK_BYTES, size_for, spark_session

#: Seconds between two looks at the logs.
FOLLOW_S = 10.0
_POLL_S = 0.2
#: What Spark's streams take for a pattern in a path.
_GLOB = frozenset("{}[]*?\\")


@dataclass(frozen=True)
class LakeSummary:
    """The table after an update: its version, log files and lines in it, and what the update added."""

    version: int
    files: int
    lines: int
    unread: int
    damaged_files: int
    added_lines: int


class Writer:
    """Brings a lake up to date, by itself or for a stream. The caller holds `DeltaLog.writing`."""

    def __init__(self, directory: Path, log_dirs: Sequence[Path | str], progress: Progress) -> None:
        """Raises LakeError if the table cannot be read."""
        directory = directory.resolve()
        self.log = DeltaLog(directory)
        self._log_dirs, self._progress = log_dirs, progress
        self.spool = Spool(directory / "_spool")
        self.orders = directory / "_orders"
        self.orders.mkdir(exist_ok=True)
        self.snapshot = self.log.read()
        if self.snapshot.version < 0:
            self.log.require_no_rows()
        self.lake: Lake | None = None
        for order in self.ordered():
            if not self._is_whole(order):
                progress(f"{order}: what it names is not set aside any more; it is read from the logs again")
                order.unlink()

    def _is_whole(self, order: Path) -> bool:
        """Whether all is there that an order names: somebody may have deleted it, or the machine have stopped."""
        try:
            pieces = pieces_of(order.read_text(encoding="utf-8"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        return all((self.spool.directory / piece.name).exists() for piece in pieces)

    @property
    def outdated(self) -> bool:
        """Whether an earlier version of this program made the table."""
        return self.snapshot.version >= 0 and self.snapshot.lake_version < LAKE_VERSION

    def begin(self, spark: SparkSession) -> None:
        self.lake = Lake(spark, self.log)
        self.snapshot = self.lake.open()

    def order(self) -> bool:
        """Set aside what is new, unless there is an order. Out: whether there is one now."""
        if self.ordered():
            return True
        self.spool.clear()
        pieces = self.spool.fill(self._log_dirs, taken_files(self.snapshot))
        if pieces:
            draft = self.orders / ".draft"
            draft.write_bytes(b"".join(msgspec.json.encode(piece) + b"\n" for piece in pieces))
            draft.rename(self.orders / f"{time.time_ns()}.txt")
        return bool(pieces)

    def ordered(self) -> list[Path]:
        return sorted(self.orders.glob("*.txt"))

    def carry_out(self, name: str, text: str) -> None:
        """Take the pieces of an order, and delete it."""
        assert self.lake is not None
        before = _lines(self.snapshot)
        try:
            self.snapshot = self.lake.take(self.snapshot, pieces_of(text), self.spool)
        except SetAsideError:
            (self.orders / name).unlink(missing_ok=True)
            raise
        self._progress(f"version {self.snapshot.version}: {_lines(self.snapshot) - before:,} lines added")
        self.snapshot = compact(self.lake, self.snapshot)
        (self.orders / name).unlink(missing_ok=True)

    def summary(self, lines_before: int) -> LakeSummary:
        files, lines = taken_files(self.snapshot), _lines(self.snapshot)
        return LakeSummary(
            version=self.snapshot.version,
            files=len(files),
            lines=lines,
            unread=lines - sum(file.ok for file in files),
            damaged_files=sum(file.problem is not None for file in files),
            added_lines=lines - lines_before,
        )


def run_update(
    log_dirs: Sequence[Path | str], directory: Path, *, master: str | None = None, progress: Progress
) -> LakeSummary:
    """Take what is new in the logs in and below ``log_dirs`` into the lake in ``directory``.

    Raises LakeError or ReportError, EnvironmentFault without Java.
    """
    size = _check(log_dirs)
    with _failures(directory), DeltaLog(directory).writing():
        writer = Writer(directory, log_dirs, progress)
        before = _lines(writer.snapshot)
        look_again = bool(writer.ordered())
        if not writer.order() and not writer.outdated:
            progress("nothing new in the logs")
            return writer.summary(before)
        progress("starting Spark")
        with _spark(master, directory, size, progress) as spark:
            writer.begin(spark)
            while order := writer.ordered():
                writer.carry_out(order[0].name, order[0].read_text(encoding="utf-8"))
                if look_again or writer.spool.full:
                    look_again = False
                    writer.order()
        return writer.summary(before)


def run_follow(
    log_dirs: Sequence[Path | str],
    directory: Path,
    *,
    master: str | None = None,
    every_s: float = FOLLOW_S,
    stop: threading.Event,
    progress: Progress,
) -> LakeSummary:
    """`run_update` every ``every_s`` seconds, as a stream of Spark with checkpoints, until ``stop`` is set."""
    size = _check(log_dirs)
    if not _GLOB.isdisjoint(str(directory.resolve())):
        raise LakeError(f"{directory}: a stream cannot watch a directory with one of {{}}[]*?\\ in its path")
    with _failures(directory), DeltaLog(directory).writing():
        writer = Writer(directory, log_dirs, progress)
        before = _lines(writer.snapshot)
        progress("starting Spark")
        with _spark(master, directory, size, progress) as spark:
            writer.begin(spark)
            query = _stream(spark, writer)
            try:
                due = 0.0
                while not stop.wait(_POLL_S):
                    failure = query.exception()
                    if failure is not None:
                        raise failure
                    if not writer.ordered() and (time.monotonic() >= due or writer.spool.full):
                        writer.order()
                        due = time.monotonic() + every_s
            finally:
                # Whoever ends the whole process group has ended Spark, too.
                with suppress(PySparkException, Py4JError):
                    query.stop()
        return writer.summary(before)


def _stream(spark: SparkSession, writer: Writer) -> StreamingQuery:
    """A stream of orders, one a batch. A batch that is begun again finds its order done, deleted or to be done."""

    def carry_out(batch: DataFrame, _number: int) -> None:
        for row in batch.collect():
            writer.carry_out(row.name, row.value)

    options = {"maxFilesPerTrigger": "1", "wholetext": "true", "ignoreMissingFiles": "true"}
    # Not by text(), which sets `wholetext` itself.
    orders = spark.readStream.format("text").options(**options).load(f"file:{writer.orders}")
    named = orders.select(F.col("_metadata.file_name").alias("name"), "value")
    checkpoint = writer.log.root / "_checkpoint"
    if not list(checkpoint.glob("commits/[0-9]*")):
        # Spark refuses what is left if it was killed in its first batch; nothing is told there.
        shutil.rmtree(checkpoint, ignore_errors=True)
    started = named.writeStream.foreachBatch(carry_out).option("checkpointLocation", f"file:{checkpoint}")
    return started.trigger(processingTime="1 second").start()


def _check(log_dirs: Sequence[Path | str]) -> int:
    """Bytes of log files. Raises ReportError if there are none here."""
    for path in map(str, log_dirs):
        if has_scheme(path):
            raise ReportError(f"{path}: a lake is made from directories of this machine")
    return check_local(log_dirs) or 0


@contextmanager
def _spark(master: str | None, directory: Path, size: int, progress: Progress) -> Iterator[SparkSession]:
    with (
        spark_session(master, directory, quick=size <= QUICK_BYTES, archived=True) as spark,
        stage_progress(spark.sparkContext, progress),
        _failures(directory),  # Inside: Spark's exceptions can only be told while it runs.
    ):
        size_for(spark, size)
        with _alone(spark, directory):
            yield spark


@contextmanager
def _alone(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Wait until the Spark of a killed writer has ended: it outlives its Python process for a moment, and writes."""
    jvm: Any = spark.sparkContext._jvm
    file = jvm.java.io.RandomAccessFile(str(directory / "_spark_lock"), "rw")
    try:
        file.getChannel().lock()
        yield
    finally:
        # Whoever ends the whole process group has ended Spark, too.
        with suppress(Py4JError):
            file.close()


@contextmanager
def _failures(directory: Path) -> Iterator[None]:
    """Raises LakeError for errors of Spark and of the operating system."""
    try:
        yield
    except OSError as error:
        raise LakeError(f"{error.filename or directory}: {error.strerror or error}") from error
    except (PySparkException, Py4JError) as error:
        raise LakeError(f"Spark failed: {first_line(error)} (more in {directory / LOG_NAME})") from error


def pieces_of(order: str) -> list[Piece]:
    """Raises msgspec.DecodeError."""
    # Not by `splitlines`: names of directories may have what else ends a line there.
    return [msgspec.json.decode(line, type=Piece) for line in order.split("\n") if line]


def _lines(snapshot: Snapshot) -> int:
    return sum(file.lines for file in taken_files(snapshot))
