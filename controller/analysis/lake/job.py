"""`pctl lake update` and `pctl lake follow`: what is new in the logs, into the table.

What is set aside of the logs is an *order*: a file that names the pieces. An order that is there is carried out, by
whoever comes next; the table's own commit tells whether it has been. So each line is taken once, whenever a process is
killed.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from controller.analysis.errors import ReportError
from controller.analysis.lake.compaction import compact
from controller.analysis.lake.delta_log import LAKE_VERSION, DeltaLog, Snapshot
from controller.analysis.lake.errors import LakeError, SetAsideError
from controller.analysis.lake.loading import Lake, taken_files
from controller.analysis.lake.s3_storage import S3Storage
from controller.analysis.lake.spool import Piece, Spool
from controller.analysis.lake.storage import Storage, local_storage
from controller.analysis.local_files import check_local, has_scheme
from controller.analysis.object_storage.jars import jars_for
from controller.analysis.progress import Progress, stage_progress
from controller.analysis.session import LOG_NAME, QUICK_BYTES, first_line, size_for, spark_session

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
    """Brings a lake up to date, by itself or for a stream. The caller holds `Storage.writing`.

    ``work``: a directory of this machine for what is set aside of the logs: a local lake's own."""

    def __init__(
        self, storage: Storage, work: Path, log_dirs: Sequence[Path | str], progress: Progress
    ) -> None:
        """Raises LakeError if the table cannot be read."""
        self.log, self.work = DeltaLog(storage), work.resolve()
        self._log_dirs, self._progress = log_dirs, progress
        self.spool = Spool(self.work / "_spool")
        self.orders = self.work / "_orders"
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
    log_dirs: Sequence[Path | str], directory: Path | str, *, master: str | None = None, progress: Progress
) -> LakeSummary:
    """Take what is new in the logs in and below ``log_dirs`` into the lake in ``directory``.

    Raises LakeError or ReportError, EnvironmentFault without Java.
    """
    with _writer(log_dirs, directory, master, progress) as (writer, begin):
        before = _lines(writer.snapshot)
        look_again = bool(writer.ordered())
        if not writer.order() and not writer.outdated:
            progress("nothing new in the logs")
            return writer.summary(before)
        begin()
        while order := writer.ordered():
            writer.carry_out(order[0].name, order[0].read_text(encoding="utf-8"))
            if look_again or writer.spool.full:
                look_again = False
                writer.order()
        return writer.summary(before)


def run_follow(
    log_dirs: Sequence[Path | str],
    directory: Path | str,
    *,
    master: str | None = None,
    every_s: float = FOLLOW_S,
    stop: threading.Event,
    progress: Progress,
) -> LakeSummary:
    """`run_update` every ``every_s`` seconds, as a stream of Spark with checkpoints, until ``stop`` is set."""
    if not has_scheme(str(directory)) and not _GLOB.isdisjoint(str(Path(directory).resolve())):
        raise LakeError(f"{directory}: a stream cannot watch a directory with one of {{}}[]*?\\ in its path")
    with _writer(log_dirs, directory, master, progress) as (writer, begin):
        before = _lines(writer.snapshot)
        query = _stream(begin(), writer)
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
            # Where Spark has ended, that is told already.
            with suppress(PySparkException, Py4JError):
                query.stop()
        return writer.summary(before)


@contextmanager
def _writer(
    log_dirs: Sequence[Path | str], directory: Path | str, master: str | None, progress: Progress
) -> Iterator[tuple[Writer, Callable[[], SparkSession]]]:
    """The lake's writer, and what begins its work with Spark: a lake on S3 cannot be looked at without."""
    size, local = _check(log_dirs), local_storage(directory)
    with ExitStack() as stack:
        if local is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pctl-lake-")))
            log_dir = Path.cwd()
        else:
            work = log_dir = local.root
        stack.enter_context(_failures(str(directory), log_dir))

        def started() -> SparkSession:
            progress("starting Spark")
            jars = partial(jars_for, [directory], progress)
            return stack.enter_context(_spark(master, str(directory), work, log_dir, size, jars, progress))

        spark = None if local is not None else started()
        storage = S3Storage.of(spark, str(directory)) if local is None and spark is not None else local
        assert storage is not None
        stack.enter_context(storage.writing())
        writer = Writer(storage, work, log_dirs, progress)

        def begin() -> SparkSession:
            session = spark or started()
            writer.begin(session)
            return session

        yield writer, begin


def _stream(spark: SparkSession, writer: Writer) -> StreamingQuery:
    """A stream of orders, one a batch. A batch that is begun again finds its order done, deleted or to be done."""

    def carry_out(batch: DataFrame, _number: int) -> None:
        for row in batch.collect():
            writer.carry_out(row.name, row.value)

    options = {"maxFilesPerTrigger": "1", "wholetext": "true", "ignoreMissingFiles": "true"}
    # text() would set `wholetext` itself.
    orders = spark.readStream.format("text").options(**options).load(f"file:{writer.orders}")
    named = orders.select(F.col("_metadata.file_name").alias("name"), "value")
    checkpoint = writer.work / "_checkpoint"
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
def _spark(
    master: str | None,
    shown: str,
    work: Path,
    log_dir: Path,
    size: int,
    jars: Callable[[], Sequence[Path]],
    progress: Progress,
) -> Iterator[SparkSession]:
    with (
        spark_session(master, log_dir, quick=size <= QUICK_BYTES, archived=True, jars=jars) as spark,
        stage_progress(spark.sparkContext, progress),
        _failures(shown, log_dir),  # Inside: Spark's exceptions can only be told while it runs.
    ):
        size_for(spark, size)
        with _alone(spark, work):
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
        # Where Spark has ended, that is told already.
        with suppress(Py4JError):
            file.close()


@contextmanager
def _failures(shown: str, log_dir: Path) -> Iterator[None]:
    """Raises LakeError for errors of Spark and of the operating system."""
    try:
        yield
    except OSError as error:
        raise LakeError(f"{error.filename or shown}: {error.strerror or error}") from error
    except (PySparkException, Py4JError) as error:
        raise LakeError(f"Spark failed: {first_line(error)} (more in {log_dir / LOG_NAME})") from error


def pieces_of(order: str) -> list[Piece]:
    """Raises msgspec.DecodeError."""
    # Not by `splitlines`: names of directories may have what else ends a line there.
    return [msgspec.json.decode(line, type=Piece) for line in order.split("\n") if line]


def _lines(snapshot: Snapshot) -> int:
    return sum(file.lines for file in taken_files(snapshot))
