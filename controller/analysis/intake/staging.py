"""The lines of the logs in columns, as Parquet in a staging directory, each parsed once: text is the dearest to read,
and many millions of lines do not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        self._urls: dict[str, str] = {}

    def take(self, lines: DataFrame) -> dict[str, Row]:
        """Write the lines. Out: `quality.usual_lines` of them."""
        number = len(self._parts)
        written = self._write(f"part-{number}", lines)
        condensed = self._write(f"condensed-{number}", condense(written, *quality.line_counts()))
        self._parts.append(written)
        self._condensed.append(condensed)
        found = quality.usual_lines(condensed)
        self._urls |= {path: row.url for path, row in found.items()}
        return found

    def leave_out(self, files: Iterable[LogFile]) -> None:
        """What has been taken of these files does not count."""
        urls = [self._urls[file.path] for file in files if file.path in self._urls]
        if urls:
            other = ~F.col("file").isin(urls)
            self._parts = [part.where(other) for part in self._parts]
            self._condensed = [part.where(other) for part in self._condensed]

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
        """Read these files again, closely, and mark what they hold twice."""
        self.leave_out(files)
        again = reading.parse_lines(reading.read_lines(self._spark, files), complete=self.complete)
        marked = self._write("copies", reading.mark_copies(again))
        self._parts.append(marked)
        self._condensed.append(
            self._write("condensed-copies", condense(marked.where(~F.col("copy")), *quality.line_counts()))
        )

    def _ok(self) -> DataFrame:
        usual = self._all().where("odd is null").drop("odd", "bytes", "digest", "texts")
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

    def _write(self, name: str, lines: DataFrame) -> DataFrame:
        path = f"{self._directory}/{name}"
        lines.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(lines.schema).parquet(path)


def stage(
    spark: SparkSession, files: Sequence[LogFile], directory: str, *, closely: bool, complete: bool = False
) -> Staged:
    """Parse all lines. ``closely``: each from its text, which is the shorter way for a small log.

    Otherwise files that hold nothing but our writers' records and torn lines, by their bytes, are read by Spark's JSON
    scan. What it found is compared with the bytes: a file that differs (something followed a record, a value was no
    string, the file grew) is read again, closely.

    Raises AnalysisException if a file has vanished since it was listed (rotation): list again.
    """
    staged = Staged(spark, directory, check_files(spark, files), complete)
    plain = [] if closely else [file for file in files if _is_plain(staged.checks.get(file.path))]
    if plain:
        found = staged.take(reading.read_records(spark, plain, complete=complete))
        staged.usual = {
            file.path: found[file.path]
            for file in plain
            if file.path in found and _agree(staged.checks[file.path], found[file.path])
        }
        staged.leave_out(file for file in plain if file.path not in staged.usual)
    rest = [file for file in files if file.path not in staged.usual]
    if rest:
        staged.usual |= staged.take(reading.parse_lines(reading.read_lines(spark, rest), complete=complete))
    staged.judge()
    return staged


def _is_plain(check: FileCheck | None) -> bool:
    return check is not None and check.usual and check.lines > 0


def _agree(check: FileCheck, found: Row) -> bool:
    return (found.lines, found.texts, found.untold) == (check.lines, check.texts, 0)
