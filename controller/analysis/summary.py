"""The contents of the page and the terminal output: capped rows of the tables, and the main figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.answers import Query, Row, fetch
from controller.analysis.columns import human_us, iso, percent
from controller.analysis.leaderless import OUTAGE
from controller.analysis.questions.operations import OPEN
from controller.analysis.questions.outages import ALL
from controller.analysis.tables import POINTS_MAX, TABLES

#: Brokers shown individually in a chart.
BROKERS_MAX = 10


@dataclass
class Findings:
    """All data collected from Spark. By table name: ``rows``, capped; ``whole``: all rows of small tables; ``totals``.
    ``figures``: by name of a figure."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    whole: dict[str, list[Row]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    figures: Row = field(default_factory=dict)
    bucket_us: int = 1
    copies: int = 0
    input_bytes: int = 0


class Problem(StrEnum):
    """Kinds of what an operator should look at."""

    TWO_MASTERS = "two_masters"
    LEADERLESS = "leaderless"
    SUPERSEDED = "superseded"
    BELOW_SLO = "below_slo"
    FLAPPING = "flapping"
    DROPPED = "dropped"
    DAMAGED_FILES = "damaged_files"
    UNREAD = "unread"


@dataclass(frozen=True)
class Trouble:
    problem: Problem
    count: int
    text: str


@dataclass(frozen=True)
class ReportSummary:
    """The figures of the report. Durations in microseconds; ``longest_*`` covers outages only."""

    page: str
    tables_dir: str
    files: int
    damaged_files: int
    lines: int
    torn: int
    malformed: int
    newer_schema: int
    copies: int
    dropped: int
    failovers: int
    slowest_failover_us: int | None
    outages: int
    still_leaderless: int
    longest_us: int
    longest_partition: str | None
    longest_cause: str | None
    longest_open: bool
    rejects: int
    two_masters: int
    superseded: int
    #: Time without a leader of all partitions, by outages; of the repaired ones the mean and percentiles.
    outage_us: int
    repaired: int
    mean_repair_us: int | None
    p50_repair_us: int | None
    p95_repair_us: int | None
    #: Percent, of all partitions that the log names; null if it names none.
    availability: float | None
    slo: float | None
    #: Topics that used more than their error budget.
    topics_below_slo: int
    flapping_brokers: int
    rolling_restarts: int
    #: Rolling restarts with findings.
    rough_restarts: int
    #: Reassignments and deletions without an end in the log.
    open_operations: int
    first_ts: datetime
    last_ts: datetime

    @property
    def unread(self) -> int:
        """Number of lines that are not in the tables because they could not be read."""
        return self.torn + self.malformed + self.newer_schema

    def problems(self) -> list[Trouble]:
        """What an operator should look at, worst first."""
        slo = "" if self.slo is None else f"{self.slo:.10g} %"
        found = (
            (
                Problem.TWO_MASTERS,
                self.two_masters,
                "epoch in which two controllers were active",
                "epochs in which two controllers were active",
            ),
            (
                Problem.LEADERLESS,
                self.still_leaderless,
                "partition had no leader at the end of the log",
                "partitions had no leader at the end of the log",
            ),
            (
                Problem.SUPERSEDED,
                self.superseded,
                "decision logged under a superseded controller epoch",
                "decisions logged under a superseded controller epoch",
            ),
            (
                Problem.BELOW_SLO,
                self.topics_below_slo,
                f"topic was available for less than {slo}",
                f"topics were available for less than {slo}",
            ),
            (
                Problem.FLAPPING,
                self.flapping_brokers,
                "broker was lost again and again within an hour",
                "brokers were lost again and again within an hour",
            ),
            (
                Problem.DROPPED,
                self.dropped,
                "record lost by a node itself (log: dropped)",
                "records lost by the nodes themselves (log: dropped)",
            ),
            (Problem.DAMAGED_FILES, self.damaged_files, "damaged log file", "damaged log files"),
            (Problem.UNREAD, self.unread, "unread line", "unread lines"),
        )
        return [
            Trouble(problem, count, f"{count:,} {one if count == 1 else many}")
            for problem, count, one, many in found
            if count
        ]

    def troubles(self) -> list[str]:
        """`problems` in words."""
        return [trouble.text for trouble in self.problems()]

    def text_lines(self) -> list[str]:
        """The report as lines of text for a terminal."""
        slowest = (
            "" if self.slowest_failover_us is None else f", slowest {human_us(self.slowest_failover_us)}"
        )
        longest = ""
        if self.longest_partition is not None:
            still = " and still open" if self.longest_open else ""
            longest = f", longest {human_us(self.longest_us)}{still}: {self.longest_partition} ({self.longest_cause})"
        return [
            f"log        {self.lines:,} lines of {self.files:,} files, {iso(self.first_ts)} to {iso(self.last_ts)}",
            f"failovers  {self.failovers:,}{slowest}",
            f"leaderless {self.outages:,} outages{longest}",
            f"repairs    {_repairs(self)}",
            f"available  {percent(self.availability)} of the partitions' time",
            f"rejects    {self.rejects:,}",
            f"unread     {self.unread:,} lines: {self.torn:,} torn, {self.malformed:,} malformed, "
            f"{self.newer_schema:,} of a newer schema; {self.damaged_files:,} damaged files",
            *(f"look at    {trouble}" for trouble in self.troubles()),
            f"page       {self.page}",
            f"tables     {self.tables_dir}",
        ]


def _repairs(summary: ReportSummary) -> str:
    if summary.mean_repair_us is None or summary.p95_repair_us is None:
        return "none"
    mean, p95 = human_us(summary.mean_repair_us), human_us(summary.p95_repair_us)
    return f"{summary.repaired:,}, mean {mean}, 95 of 100 within {p95}"


@dataclass(frozen=True)
class Tables:
    """``written``: tables by name, read back. ``small``: those that are still to be written, with all their rows."""

    written: Mapping[str, DataFrame]
    small: Mapping[str, DataFrame]


def collect_findings(tables: Tables, bucket_us: int, top: Mapping[str, DataFrame] | None = None) -> Findings:
    """Collect the page's data from the tables, and small tables, by one Spark job, or two if the page does not show all
    rows of all. ``top``: of large tables rows among which the first ones are."""
    given = {**tables.written, **tables.small}
    first = given | dict(top or {})
    found = Findings(bucket_us=bucket_us)
    shown = {spec.name: spec for spec in TABLES if spec.order is not None}
    asked = {
        name: Query(first[name], spec.order(), spec.rows_max) for name, spec in shown.items() if spec.order
    }
    asked |= {
        name: Query(table, asked[name].order if name in asked else [], None)
        for name, table in tables.small.items()
    }
    by_cause = (
        given["leaderless_by_cause"]
        .groupBy("class", "cause")
        .agg(F.try_sum("total_us").alias("total_us"), F.sum("intervals").alias("intervals"))
    )
    asked["cause_totals"] = Query(by_cause, [F.desc("total_us")], 20)
    rows = fetch(asked | _of_busiest(given["leader_changes"], given["leader_changes_over_time"]))
    found.whole = {name: rows[name] for name in tables.small}
    cut = [name for name in shown if name not in tables.small and len(rows[name]) == shown[name].rows_max]
    counts = fetch({name: Query(_row_counts(given[name], name), [], 1) for name in cut})
    for name, spec in shown.items():
        of = {figure: given for figure, given in _FIGURES.items() if given.table == name}
        found.totals[name] = len(rows[name])
        if name in cut:
            (counted,) = counts[name]
            found.totals[name] = counted.pop("rows")
            found.figures |= counted
        else:
            found.figures |= {figure: one.of_rows(rows[name]) for figure, one in of.items()}
        rows[name] = rows[name][: spec.rows_max]
    found.rows = rows
    return found


def _of_busiest(changes: DataFrame, moves: DataFrame) -> dict[str, Query]:
    """Changes of leader by the brokers that have most of them. In: `tables.leader_changes`, and over time."""
    counts = changes.groupBy("broker").agg(F.sum("count").alias("changes"))
    busiest = counts.orderBy(F.desc("changes"), F.col("broker")).limit(BROKERS_MAX)
    named = F.broadcast(busiest.select("broker", F.col("broker").cast("string").alias("name")))
    name = F.coalesce("name", F.lit("others")).alias("broker")
    gained = (
        moves.join(named, "broker", "left").groupBy("bucket_ts", name).agg(F.sum("gained").alias("gained"))
    )
    return {
        "leader_reasons": Query(changes.join(named, "broker", "left_semi"), [F.desc("count")], 300),
        "leader_moves": Query(gained, [F.col("bucket_ts"), F.col("broker")], POINTS_MAX),
    }


@dataclass(frozen=True)
class Figure:
    """A figure of a whole table. ``of_table``: by Spark, where not all rows are fetched."""

    table: str
    of_rows: Callable[[Sequence[Row]], Any]
    of_table: Callable[[], Column]


def _total(table: str, column: str) -> Figure:
    return Figure(
        table, lambda rows: sum(row[column] for row in rows), lambda: F.coalesce(F.sum(column), F.lit(0))
    )


def _most(table: str, column: str) -> Figure:
    return Figure(
        table,
        lambda rows: max((row[column] for row in rows if row[column] is not None), default=None),
        lambda: F.max(column),
    )


def _how_many(table: str, counts: Callable[[Row], bool], when: Callable[[], Column]) -> Figure:
    return Figure(table, lambda rows: sum(map(counts, rows)), lambda: F.count_if(when()))


_FIGURES: dict[str, Figure] = {
    **{name: _total("input_files", name) for name in ("lines", "torn", "malformed", "newer_schema")},
    "files": Figure("input_files", len, lambda: F.count("*")),
    "damaged_files": _how_many(
        "input_files", lambda row: row["problem"] is not None, lambda: F.col("problem").isNotNull()
    ),
    "first_ts": Figure(
        "input_files",
        lambda rows: min((row["first_ts"] for row in rows if row["first_ts"] is not None), default=None),
        lambda: F.min("first_ts"),
    ),
    "last_ts": _most("input_files", "last_ts"),
    "failovers": Figure("failovers", len, lambda: F.count("*")),
    "slowest_failover_us": _most("failovers", "total_us"),
    "rejects": _total("rejects", "count"),
    "superseded": _total("superseded", "count"),
    "dropped": _total("input_nodes", "dropped"),
    "topics_below_slo": _how_many(
        "availability",
        lambda row: row["topic"] is not None and _is_below(row),
        lambda: F.col("topic").isNotNull() & (F.col("availability") < F.col("slo")),
    ),
    "flapping_brokers": _how_many(
        "broker_stability", lambda row: bool(row["flapping"]), lambda: F.col("flapping")
    ),
    "rough_restarts": _how_many(
        "rolling_restarts", lambda row: bool(row["findings"]), lambda: F.size("findings") > 0
    ),
    "open_operations": _how_many(
        "operations", lambda row: bool(row["outcome"] == OPEN), lambda: F.col("outcome") == OPEN
    ),
}


def _is_below(row: Row) -> bool:
    return None not in (row["slo"], row["availability"]) and row["availability"] < row["slo"]


def _row_counts(table: DataFrame, name: str) -> DataFrame:
    figures = [one.of_table().alias(figure) for figure, one in _FIGURES.items() if one.table == name]
    return table.agg(F.count("*").alias("rows"), *figures)


def summarize(found: Findings, *, page: str, tables_dir: str) -> ReportSummary:
    """The figures by name."""
    # The first rows of a table: outages, the longest first.
    worst: Row = next((row for row in found.rows["leaderless_intervals"] if row["class"] == OUTAGE), {})
    of_all: Row = next((row for row in found.rows["availability"] if row["topic"] is None), {})
    repairs: Row = next((row for row in found.rows["outages_by"] if row["dimension"] == ALL), {})
    return ReportSummary(
        page=page,
        tables_dir=tables_dir,
        **found.figures,
        copies=found.copies,
        outages=repairs.get("outages", 0),
        still_leaderless=repairs.get("open", 0),
        longest_us=worst.get("duration_us", 0),
        longest_partition=f"{worst['topic']}-{worst['partition']}" if worst else None,
        longest_cause=worst.get("cause"),
        longest_open=worst.get("open", False),
        two_masters=found.totals["two_masters"],
        outage_us=repairs.get("total_us") or 0,
        repaired=repairs.get("repaired", 0),
        mean_repair_us=repairs.get("mean_us"),
        p50_repair_us=repairs.get("p50_us"),
        p95_repair_us=repairs.get("p95_us"),
        availability=of_all.get("availability"),
        slo=of_all.get("slo"),
        rolling_restarts=found.totals["rolling_restarts"],
    )
