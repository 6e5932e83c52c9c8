"""`open_logs`: state-change logs as DataFrames."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from controller.analysis.errors import ReportError
from controller.analysis.intake.files import delete
from controller.analysis.job import read_input
from controller.analysis.lake.source import LakeSource
from controller.analysis.local_files import check_local
from controller.analysis.object_storage.jars import jars_for
from controller.analysis.progress import Progress, stage_progress
from controller.analysis.session import QUICK_BYTES, first_line, spark_session
from controller.analysis.tables import TABLES, Input
from controller.analysis.travel import clocks, differences, state
from controller.analysis.travel.moments import Cut, Term, Writer, cut_at, parse_moment
from controller.analysis.travel.terms import terms_of

#: A time with its offset from UTC, a controller epoch (its state when the failover was over), or ``"EPOCH:EVENT"``.
When = str | int | datetime


class Logs:
    """The logs, read once; all else is computed when it is asked for. Columns: docs/report.md."""

    def __init__(
        self, spark: SparkSession, source: Input, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self.spark = spark
        self._source, self._on_close = source, on_close
        self._tables: dict[str, DataFrame] = {}

    @property
    def records(self) -> DataFrame:
        """Every record: a column for each field of the log (docs/state-change-log.md), and ``file``, ``block``,
        ``line``: where it was."""
        return self._source.records

    def table(self, name: str) -> DataFrame:
        """A table of the report.

        Raises ReportError if there is none of that name.
        """
        if name not in self._tables:
            specs = {spec.name: spec for spec in TABLES}
            if name not in specs:
                raise ReportError(f"{name!r}: no such table; there are {', '.join(sorted(specs))}")
            self._tables[name] = specs[name].build(self._source, self.table)
        return self._tables[name]

    def leaderless_intervals(self) -> DataFrame:
        """Every interval in which a partition had no leader."""
        return self.table("leaderless_intervals")

    def failovers(self) -> DataFrame:
        """Each controller's failover, with the time of its phases."""
        return self.table("failovers")

    def pushes(self) -> DataFrame:
        """Control requests by broker, with their latency."""
        return self.table("pushes")

    @cached_property
    def terms(self) -> list[Term]:
        """The controller epochs, in order."""
        return terms_of(self.records)

    @cached_property
    def clock_bounds(self) -> list[clocks.Bound]:
        """What the logs prove of the differences of clocks."""
        return clocks.bounds_of(self.records, self.terms)

    @cached_property
    def corrections(self) -> dict[Writer, int]:
        """What is added to the times of each node: by role and id, microseconds."""
        return clocks.corrections_of(self.clock_bounds)

    def clock_skew(self) -> DataFrame:
        """How much the clocks of pairs of nodes differ at least and at most."""
        return clocks.skew_table(self.spark, self.clock_bounds, self.corrections)

    def cut(self, when: When) -> Cut:
        """Which records came before a moment.

        Raises ReportError if it is none, or before the logs.
        """
        return cut_at(parse_moment(when), self.terms, self.corrections)

    def state_at(self, when: When) -> DataFrame:
        """Every partition at a moment: leader, ISR, replicas, as far as the logs tell. Raises as ``cut``."""
        return state.state_partitions(self.records, self.cut(when), self.corrections)

    def brokers_at(self, when: When) -> DataFrame:
        """Every broker named by then, and whether it was live. Raises as ``cut``."""
        return state.state_brokers(self.records, self.cut(when), self.corrections)

    def differences(self, former: When, later: When) -> DataFrame:
        """Which fields of partitions differ between two moments, and what changed them last. Raises as ``cut``."""
        return differences.partition_differences(self.state_at(former), self.state_at(later))

    def broker_differences(self, former: When, later: When) -> DataFrame:
        """Which brokers were live at one of two moments only. Raises as ``cut``."""
        return differences.broker_differences(self.brokers_at(former), self.brokers_at(later))

    def close(self) -> None:
        """End the Spark that was started for these logs, and delete what was parsed."""
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise Spark's errors as ReportError, told while Spark runs: they ask the JVM for their text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ReportError(f"Spark failed: {first_line(error)}") from error


def open_logs(
    *log_dirs: str | Path,
    lake: Path | str | None = None,
    master: str | None = None,
    staging: str | None = None,
    progress: Progress = lambda _: None,
) -> Logs:
    """Read the state-change logs in and below directories, or what ``lake`` has of them.

    A Spark that runs is used, else a local one is started (``master``: Spark's). Use it in a ``with`` statement, or
    call ``close``. ``staging``: a directory that all of Spark's workers reach, for the parsed lines until then
    (default: a temporary one of this machine, which is right for a local Spark only).

    Raises ReportError if there is no log, or no usable line; EnvironmentFault without Java.
    """
    stored = None if lake is None else LakeSource(lake)
    size = check_local(log_dirs) if stored is None else stored.log_bytes
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="state-change-logs-"))
        parsed = staging or f"file:{directory}/_staging"
        quick = size is not None and size <= QUICK_BYTES
        spark = stack.enter_context(
            spark_session(
                master,
                Path(directory),
                quick=quick,
                archived=size is not None,
                jars=partial(jars_for, [*log_dirs, lake or "", parsed], progress),
            )
        )
        stack.callback(delete, spark, parsed)
        with spark_errors(), stage_progress(spark.sparkContext, progress):
            if stored is None:
                source = read_input(spark, log_dirs, parsed, progress, complete=True)
            else:
                source = stored.input(spark, parsed, progress)
        return Logs(spark, source, stack.pop_all().close)
    raise AssertionError("an ExitStack without callbacks that suppress does not end here")
