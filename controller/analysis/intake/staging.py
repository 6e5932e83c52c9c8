"""The lines of the logs in columns, as Parquet in a staging directory, each parsed once: text is the dearest to read,
and many millions of lines do not fit in memory."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.arrow_intervals import LocalCommits
from controller.analysis.condensing import COLUMNS, condense
from controller.analysis.intake import quality, reading
from controller.analysis.intake.arrow_commits import write_commits
from controller.analysis.intake.arrow_condensing import ready_times
from controller.analysis.intake.conversion import Converted
from controller.analysis.intake.files import Conversion, check_files
from controller.analysis.intake.screening import FileCheck
from controller.analysis.leaderless import EDGE_COLUMNS
from controller.analysis.local_files import LogFile, has_scheme
from controller.analysis.questions.outages import MOVED_COLUMNS
from controller.analysis.singles import Singles, events_of, singles_of
from proto.statelog.schema import READY


class Staged:
    """Parsed lines of files. ``checks``, ``usual``, ``odd``: by path of file (`check_files`, `quality`).
    ``complete``: with all fields, not only those of the report's tables."""

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        checks: Mapping[str, FileCheck],
        complete: bool = False,
        *,
        here: bool,
    ) -> None:
        self.checks, self.complete = checks, complete
        #: Whether logs and directory are this machine's, so that Arrow can put records in order.
        self._here = here
        self.usual: dict[str, quality.LinesRead] = {}
        self.odd: dict[str, Row] = {}
        self._spark, self._directory = spark, directory
        self._parts: list[DataFrame] = []
        self._condensed: list[DataFrame] = []
        self._converted: list[Converted] = []
        #: Directories of what Spark has read.
        self._read: list[str] = []
        self._good_odd_lines: str | None = None
        self._commits: list[tuple[str, str]] = []
        self._writings = 0

    def take(self, lines: DataFrame) -> None:
        """Add the outcome of `reading.parse_lines`."""
        path = self._write(lines)
        self._read.append(path)
        lines = self._spark.read.schema(lines.schema).parquet(path)
        condensed = self.written(condense(lines, *quality.line_counts()))
        self._parts.append(lines)
        self._condensed.append(condensed.where(F.col("kind").isNotNull()).drop(*quality.LINE_COUNTS))
        self.usual |= quality.usual_lines(condensed)

    def take_converted(self, converted: Mapping[str, Converted]) -> None:
        """Add the lines of files, by path."""
        self._converted = list(converted.values())
        self._parts.append(self._of_converted([*(one.records for one in self._converted), *self._events()]))
        target = f"{self._directory}/condensed.parquet"
        condensed = [
            one.condensed.append_column("file", pa.repeat(one.name, one.condensed.num_rows))
            for one in self._converted
            if one.condensed is not None
        ]
        if condensed:
            pyarrow.parquet.write_table(
                pa.concat_tables(condensed), target.removeprefix("file:"), store_schema=False
            )
            self._condensed.append(self._spark.read.schema(COLUMNS).parquet(target))
        for path, one in converted.items():
            self.usual[path] = quality.converted_lines(self.checks[path], one)

    def singles(self, lines: int) -> Singles:
        """What tables take of single `records`, of which there are so many."""
        if not self._here:
            return singles_of(self.records(), lines)
        names = sorted({read.url for read in self.usual.values()})
        directory = f"{self._directory.removeprefix('file:')}/commits"
        records = [one.records for one in self._converted]
        self._commits = write_commits(names, [*records, *self._parts_read()], directory)
        edges, moved = (
            self._spark.read.schema(", ".join(f"{name} {kind}" for name, kind in columns.items())).parquet(
                *(f"file:{path}" for path in paths)
            )
            for paths, columns in zip(
                zip(*self._commits, strict=True), (EDGE_COLUMNS, MOVED_COLUMNS), strict=True
            )
        )
        return Singles(self._single_events(), edges, moved)

    def _single_events(self) -> DataFrame:
        given = self._events()
        events = self._of_converted(given) if given else self._parts[0].where(F.lit(False))
        events = _narrowed(events)
        for read in self._directories_read():
            more = self._spark.read.parquet(read)
            kept = more.where(~F.col("copy")) if "copy" in more.columns else more
            events = events.unionByName(_narrowed(kept).select(events.columns))
        return events_of(events)

    def commits(self) -> LocalCommits | None:
        """For `arrow_intervals`, after `singles`; None if Arrow cannot see all records."""
        if not self._commits:
            return None
        directory = self._directory.removeprefix("file:")
        return LocalCommits(self._commits, self._ready_times(), f"{directory}/made")

    def _ready_times(self) -> dict[int, int]:
        if not self._directories_read():
            return ready_times([one.condensed for one in self._converted if one.condensed is not None])
        ready = self.condensed().where((F.col("kind") == "failover") & (F.col("to") == READY))
        first = F.unix_micros(F.min("first_ts"))
        return dict(ready.groupBy("controller_epoch").agg(first).collect())

    def _directories_read(self) -> list[str]:
        """Where records are that Spark has read from their text."""
        return [*self._read, self._good_odd_path()] if self._has_good_odd() else self._read

    def _parts_read(self) -> list[str]:
        directories = [path.removeprefix("file:") for path in self._directories_read()]
        return [str(part) for directory in directories for part in sorted(Path(directory).glob("part-*"))]

    def _events(self) -> list[str]:
        return [one.events for one in self._converted if one.events is not None]

    def _of_converted(self, targets: Sequence[str]) -> DataFrame:
        return reading.read_converted(self._spark, targets, self.complete)

    def written(self, rows: DataFrame) -> DataFrame:
        """The same rows, from Parquet."""
        return self._spark.read.schema(rows.schema).parquet(self._write(rows))

    def _write(self, rows: DataFrame) -> str:
        self._writings += 1
        path = f"{self._directory}/written-{self._writings}"
        rows.write.mode("overwrite").parquet(path)
        return path

    def judge(self) -> None:
        """Judge the odd lines, if there are any."""
        if self._any_odd():
            self.odd = quality.odd_lines(self.judged())

    def judged(self) -> DataFrame:
        """The odd lines: `classify`, with ``copy``."""
        odd = self._all().where("odd is not null")
        return reading.classify(odd.select("file", "block", "line", "copy", F.col("odd").alias("raw")))

    def problems(self) -> DataFrame:
        """`quality.input_problems`."""
        return quality.input_problems(self.judged()) if self._any_odd() else quality.no_problems(self._spark)

    def _any_odd(self) -> bool:
        return any(row.odd for row in self.usual.values())

    def records(self) -> DataFrame:
        """The ok lines without copies. Unless ``complete``, of files that Arrow has read only those of which a table
        looks at single records; `condensed` has all."""
        return self._ok().where(~F.col("copy"))

    def condensed(self) -> DataFrame:
        """`condense` of `records`."""
        parts = list(self._condensed)
        if self._has_good_odd():
            parts.append(condense(self._good_odd().where(~F.col("copy"))))
        return reduce(DataFrame.unionByName, parts)

    def copies(self) -> DataFrame:
        """The ok lines that are copies."""
        return self._ok().where("copy")

    def mark_copies(self, files: Sequence[LogFile], doubled: Container[str]) -> None:
        """Read the files that are ``doubled`` again, from their text, and mark what they hold twice."""
        arrows, known = {one.name for one in self._converted}, self.usual
        # And what Spark has read that Arrow is to put in order: it is in one place then.
        more = {path for path, read in known.items() if self._here and read.url not in arrows}
        anew = [file for file in files if file.shown in doubled or file.path in more]
        urls = [known[file.path].url for file in anew if file.path in known]
        other = ~F.col("file").isin(urls)
        again = reading.parse_lines(reading.read_lines(self._spark, anew), complete=self.complete)
        path = self._write(reading.mark_copies(again))
        marked = self._spark.read.parquet(path)
        good = marked.where(~F.col("copy") & F.col("kind").isNotNull())
        condensed = self.written(condense(good))
        self._converted = [one for one in self._converted if one.name not in urls]
        self._read, self._good_odd_lines = [path], None
        self._parts = [*(part.where(other) for part in self._parts), marked]
        self._condensed = [*(part.where(other) for part in self._condensed), condensed]

    def _ok(self) -> DataFrame:
        usual = self._all().where("odd is null").drop("odd", "bytes", "digest")
        return usual.unionByName(self._good_odd().select(usual.columns)) if self._has_good_odd() else usual

    def _has_good_odd(self) -> bool:
        return any(row.ok for row in self.odd.values())

    def _good_odd(self) -> DataFrame:
        return self._spark.read.parquet(self._good_odd_path())

    def _good_odd_path(self) -> str:
        """Where the odd lines are that are ok, judged once."""
        if self._good_odd_lines is None:
            self._good_odd_lines = self._write(self.judged().where(F.col("status") == reading.OK))
        return self._good_odd_lines

    def _all(self) -> DataFrame:
        marked = [
            part if "copy" in part.columns else part.withColumn("copy", F.lit(False)) for part in self._parts
        ]
        return reduce(DataFrame.unionByName, marked)


def _narrowed(records: DataFrame) -> DataFrame:
    """Without columns that only some have."""
    return records.drop("odd", "bytes", "digest", "copy", "status", "problem", "sample")


def converted_in(directory: str) -> str:
    """Where `stage` has what Arrow converts, of its ``directory``."""
    return f"{directory}/converted"


def stage(spark: SparkSession, conversion: Conversion, directory: str, *, complete: bool = False) -> Staged:
    """Parse all lines of the files of ``conversion``, which was begun with ``complete``: those of local files
    by Arrow's JSON reader, the others from their text by Spark; odd lines are judged by Spark, wherever they are.

    Raises AnalysisException if a file has vanished since it was listed (rotation): list again.
    """
    checks, converted = check_files(spark, conversion)
    here = not has_scheme(directory.removeprefix("file:")) and all(
        file.path in checks for file in conversion.files
    )
    staged = Staged(spark, directory, checks, complete, here=here)
    if converted:
        staged.take_converted(converted)
    rest = [file for file in conversion.files if file.path not in converted]
    if rest:
        staged.take(reading.parse_lines(reading.read_lines(spark, rest), complete=complete))
    staged.judge()
    return staged
