"""The lines of the logs in columns, as Parquet in a staging directory, each parsed once: text is the dearest to read,
and many millions of lines do not fit in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

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
from controller.analysis.local_files import LogFile
from controller.analysis.questions.outages import MOVED_COLUMNS
from controller.analysis.singles import Singles, events_of, singles_of


class Staged:
    """Parsed lines of files. ``checks``, ``usual``, ``odd``: by path of file (`check_files`, `quality`).
    ``complete``: with all fields, not only those of the report's tables."""

    def __init__(
        self, spark: SparkSession, directory: str, checks: Mapping[str, FileCheck], complete: bool = False
    ) -> None:
        self.checks, self.complete = checks, complete
        self.usual: dict[str, quality.LinesRead] = {}
        self.odd: dict[str, Row] = {}
        self._spark, self._directory = spark, directory
        self._parts: list[DataFrame] = []
        self._condensed: list[DataFrame] = []
        #: If nothing else has been read, and nothing of it twice.
        self._converted: list[Converted] = []
        self._commits: list[tuple[str, str]] = []
        self._writings = 0

    def take(self, lines: DataFrame) -> None:
        """Add lines, which can be read again at little cost."""
        condensed = self.written(condense(lines, *quality.line_counts()))
        self._parts.append(lines)
        self._condensed.append(condensed.where(F.col("kind").isNotNull()).drop(*quality.LINE_COUNTS))
        self.usual |= quality.usual_lines(condensed)
        self._converted = []

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
        if not self._converted:
            return singles_of(self.records(), lines)
        self._commits = write_commits(self._converted, f"{self._directory.removeprefix('file:')}/commits")
        edges, moved = (
            self._spark.read.schema(", ".join(f"{name} {kind}" for name, kind in columns.items())).parquet(
                *(f"file:{path}" for path in paths)
            )
            for paths, columns in zip(
                zip(*self._commits, strict=True), (EDGE_COLUMNS, MOVED_COLUMNS), strict=True
            )
        )
        given = self._events()
        events = self._of_converted(given) if given else self._parts[0].where(F.lit(False))
        return Singles(events_of(events), edges, moved)

    def commits(self) -> LocalCommits | None:
        """For `arrow_intervals`, after `singles`; None if Arrow has not seen all records."""
        if not self._commits:
            return None
        tables = [one.condensed for one in self._converted if one.condensed is not None]
        directory = self._directory.removeprefix("file:")
        return LocalCommits(self._commits, ready_times(tables), f"{directory}/made")

    def _events(self) -> list[str]:
        return [one.events for one in self._converted if one.events is not None]

    def _of_converted(self, targets: Sequence[str]) -> DataFrame:
        return reading.read_converted(self._spark, targets, self.complete)

    def written(self, rows: DataFrame) -> DataFrame:
        """The same rows, from Parquet."""
        self._writings += 1
        path = f"{self._directory}/written-{self._writings}"
        rows.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(rows.schema).parquet(path)

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
        usual = reduce(DataFrame.unionByName, self._condensed)
        return (
            usual.unionByName(condense(self._good_odd().where(~F.col("copy"))))
            if self._has_good_odd()
            else usual
        )

    def copies(self) -> DataFrame:
        """The ok lines that are copies."""
        return self._ok().where("copy")

    def mark_copies(self, files: Sequence[LogFile]) -> None:
        """Read these files again, from their text, and mark what they hold twice."""
        other = ~F.col("file").isin([self.usual[file.path].url for file in files if file.path in self.usual])
        again = reading.parse_lines(reading.read_lines(self._spark, files), complete=self.complete)
        marked = self.written(reading.mark_copies(again))
        good = marked.where(~F.col("copy") & F.col("kind").isNotNull())
        condensed = self.written(condense(good))
        self._converted = []
        self._parts = [*(part.where(other) for part in self._parts), marked]
        self._condensed = [*(part.where(other) for part in self._condensed), condensed]

    def _ok(self) -> DataFrame:
        usual = self._all().where("odd is null").drop("odd", "bytes", "digest")
        return usual.unionByName(self._good_odd().select(usual.columns)) if self._has_good_odd() else usual

    def _has_good_odd(self) -> bool:
        return any(row.ok for row in self.odd.values())

    def _good_odd(self) -> DataFrame:
        return self.judged().where(F.col("status") == reading.OK)

    def _all(self) -> DataFrame:
        marked = [
            part if "copy" in part.columns else part.withColumn("copy", F.lit(False)) for part in self._parts
        ]
        return reduce(DataFrame.unionByName, marked)


def converted_in(directory: str) -> str:
    """Where `stage` has what Arrow converts, of its ``directory``."""
    return f"{directory}/converted"


def stage(spark: SparkSession, conversion: Conversion, directory: str, *, complete: bool = False) -> Staged:
    """Parse all lines of the files of ``conversion``, which was begun with ``complete``: those of local files that hold
    nothing but usual records and torn lines by Arrow's JSON reader, the others from their text by Spark.

    Raises AnalysisException if a file has vanished since it was listed (rotation): list again.
    """
    checks, converted = check_files(spark, conversion)
    staged = Staged(spark, directory, checks, complete)
    if converted:
        staged.take_converted(converted)
    rest = [file for file in conversion.files if file.path not in checks or not checks[file.path].usual]
    if rest:
        lines = reading.parse_lines(reading.read_lines(spark, rest), complete=complete)
        staged.take(staged.written(lines))
    staged.judge()
    return staged
