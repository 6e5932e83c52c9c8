"""The lines of the logs in columns, as Parquet in a staging directory, each parsed once: text is the dearest to read,
and many millions of lines do not fit in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.condensing import condense
from controller.analysis.intake import quality, reading
from controller.analysis.intake.files import check_files
from controller.analysis.intake.screening import FileCheck
from controller.analysis.local_files import LogFile


class Staged:
    """Parsed lines of files. ``checks``, ``usual``, ``odd``: by path of file (`check_files`, `quality`).
    ``complete``: with all fields, not only those of the report's tables."""

    def __init__(
        self, spark: SparkSession, directory: str, checks: Mapping[str, FileCheck], complete: bool = False
    ) -> None:
        self.checks, self.complete = checks, complete
        self.usual: dict[str, Row] = {}
        self.odd: dict[str, Row] = {}
        self._spark, self._directory = spark, directory
        self._parts: list[DataFrame] = []
        self._condensed: list[DataFrame] = []
        self._writings = 0

    def take(self, lines: DataFrame) -> None:
        """Add the lines, which can be read again at little cost."""
        condensed = self.written(condense(lines, *quality.line_counts()))
        self._parts.append(lines)
        self._condensed.append(condensed)
        self.usual |= quality.usual_lines(condensed)

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
        """The ok lines without copies."""
        return self._ok().where(~F.col("copy"))

    def condensed(self) -> DataFrame:
        """`condense` of `records`."""
        usual = reduce(DataFrame.unionByName, self._condensed).where(F.col("kind").isNotNull())
        usual = usual.drop(*quality.LINE_COUNTS)
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
        condensed = self.written(condense(marked.where(~F.col("copy")), *quality.line_counts()))
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


def stage(spark: SparkSession, files: Sequence[LogFile], directory: str, *, complete: bool = False) -> Staged:
    """Parse all lines: those of local files that hold nothing but usual records and torn lines by Arrow's JSON reader,
    the others from their text by Spark.

    Raises AnalysisException if a file has vanished since it was listed (rotation): list again.
    """
    checks, converted = check_files(spark, files, f"{directory}/converted", complete)
    staged = Staged(spark, directory, checks, complete)
    if converted:
        staged.take(reading.read_converted(spark, converted, complete))
    rest = [file for file in files if file.path not in checks or not checks[file.path].usual]
    if rest:
        lines = reading.parse_lines(reading.read_lines(spark, rest), complete=complete)
        staged.take(staged.written(lines))
    staged.judge()
    return staged
