"""The contents of the page and the terminal output: capped rows of the tables, and the main figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

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
    """All data collected from Spark, each part capped. ``rows`` and ``totals``: by table name."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
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
        counts = {
            Problem.TWO_MASTERS: (self.two_masters, "epochs in which two controllers were active"),
            Problem.LEADERLESS: (self.still_leaderless, "partitions had no leader at the end of the log"),
            Problem.SUPERSEDED: (
                self.superseded,
                "decisions logged under a superseded controller epoch",
            ),
            Problem.BELOW_SLO: (self.topics_below_slo, f"topics were available for less than {slo}"),
            Problem.FLAPPING: (self.flapping_brokers, "brokers were lost again and again within an hour"),
            Problem.DROPPED: (self.dropped, "records lost by the nodes themselves (log: dropped)"),
            Problem.DAMAGED_FILES: (self.damaged_files, "damaged log files"),
            Problem.UNREAD: (self.unread, "unread lines"),
        }
        return [
            Trouble(problem, count, f"{count:,} {what}") for problem, (count, what) in counts.items() if count
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


def collect_findings(
    written: dict[str, DataFrame], bucket_us: int, top: Mapping[str, DataFrame] | None = None
) -> Findings:
    """Collect the page's data from the tables, by two Spark jobs: at most some thousand rows, for any size of log.
    ``top``: of large tables rows among which the first ones are."""
    first = written | dict(top or {})
    found = Findings(bucket_us=bucket_us)
    changes = written["leader_changes"]
    shown = [spec for spec in TABLES if spec.order is not None]
    tops = {spec.name: Query(first[spec.name], spec.order(), spec.rows_max) for spec in shown if spec.order}
    by_cause = (
        written["leaderless_by_cause"]
        .groupBy("class", "cause")
        .agg(F.try_sum("total_us").alias("total_us"), F.sum("intervals").alias("intervals"))
    )
    tops["cause_totals"] = Query(by_cause, [F.desc("total_us")], 20)
    brokers = changes.groupBy("broker").agg(F.sum("count").alias("count"))
    tops["busiest"] = Query(brokers, [F.desc("count"), F.col("broker")], BROKERS_MAX)
    sums = {f"sums of {name}": Query(table, [], 1) for name, table in _sums(first).items()}
    rows = fetch(tops | sums)
    for name in sums:
        found.figures |= rows.pop(name)[0]
    busiest = [row["broker"] for row in rows.pop("busiest")]

    large = [spec.name for spec in shown if len(rows[spec.name]) == spec.rows_max]
    counts = {name: Query(_row_counts(written[name], name), [], 1) for name in large}
    of_busiest = F.col("broker").isin(busiest)
    reasons = Query(changes.where(of_busiest), [F.desc("count")], 300)
    named = F.when(of_busiest, F.col("broker").cast("string")).otherwise(F.lit("others"))
    moves = written["leader_changes_over_time"].groupBy("bucket_ts", named.alias("broker"))
    gained = moves.agg(F.sum("gained").alias("gained"))
    by_time = Query(gained, [F.col("bucket_ts"), F.col("broker")], POINTS_MAX)
    more = fetch({**counts, "leader_reasons": reasons, "leader_moves": by_time})
    found.totals = {spec.name: len(rows[spec.name]) for spec in shown}
    found.figures |= {figure: sum(map(of, rows[name])) for figure, (name, of, _) in _NOTEWORTHY.items()}
    for name in large:
        counted = more.pop(name)[0]
        found.totals[name] = counted.pop("rows")
        found.figures |= counted
    found.rows = rows | more
    return found


#: How many rows of a table have something to look at: figure, table, whether a row does (in Python and in Spark). These
#: rows come first, so that they are counted by Spark only where not all rows are fetched.
_NOTEWORTHY: dict[str, tuple[str, Callable[[Row], bool], Callable[[], Column]]] = {
    "topics_below_slo": (
        "availability",
        lambda row: row["topic"] is not None and _is_below(row),
        lambda: F.col("topic").isNotNull() & (F.col("availability") < F.col("slo")),
    ),
    "flapping_brokers": ("broker_stability", lambda row: bool(row["flapping"]), lambda: F.col("flapping")),
    "rough_restarts": (
        "rolling_restarts",
        lambda row: bool(row["findings"]),
        lambda: F.size("findings") > 0,
    ),
    "open_operations": (
        "operations",
        lambda row: bool(row["outcome"] == OPEN),
        lambda: F.col("outcome") == OPEN,
    ),
}


def _is_below(row: Row) -> bool:
    return None not in (row["slo"], row["availability"]) and row["availability"] < row["slo"]


def _row_counts(table: DataFrame, name: str) -> DataFrame:
    noteworthy = [
        F.count_if(of()).alias(figure) for figure, (which, _, of) in _NOTEWORTHY.items() if which == name
    ]
    return table.agg(F.count("*").alias("rows"), *noteworthy)


def _sums(written: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """Figures over whole tables, one row a table."""
    outages = written["leaderless_intervals"].where(F.col("class") == OUTAGE)
    worst = F.max_by(F.struct("topic", "partition", "cause", "open"), "duration_us").alias("worst")
    of_all = written["outages_by"].where(F.col("dimension") == ALL)

    def total(table: str, column: str, name: str) -> DataFrame:
        return written[table].agg(F.coalesce(F.sum(column), F.lit(0)).alias(name))

    return {
        "input_files": written["input_files"].agg(
            *(F.sum(name).alias(name) for name in ("lines", "torn", "malformed", "newer_schema")),
            F.count("*").alias("files"),
            F.count("problem").alias("damaged_files"),
            F.min("first_ts").alias("first_ts"),
            F.max("last_ts").alias("last_ts"),
        ),
        # The first rows of the table are enough.
        "leaderless_intervals": outages.agg(worst, F.max("duration_us").alias("longest_us")),
        "outages_by": of_all.agg(
            F.coalesce(F.sum("outages"), F.lit(0)).alias("outages"),
            F.coalesce(F.sum("open"), F.lit(0)).alias("still_leaderless"),
        ),
        "failovers": written["failovers"].agg(
            F.count("*").alias("failovers"), F.max("total_us").alias("slowest_failover_us")
        ),
        "rejects": total("rejects", "count", "rejects"),
        "superseded": total("superseded", "count", "superseded"),
        "input_nodes": total("input_nodes", "dropped", "dropped"),
    }


def summarize(found: Findings, *, page: str, tables_dir: str) -> ReportSummary:
    """The figures by name."""
    figures = found.figures
    worst = figures["worst"]
    plain = ["files", "damaged_files", "lines", "torn", "malformed", "newer_schema", "first_ts", "last_ts"]
    plain += _NOTEWORTHY
    of_all: Row = next((row for row in found.rows["availability"] if row["topic"] is None), {})
    repairs: Row = next((row for row in found.rows["outages_by"] if row["dimension"] == ALL), {})
    return ReportSummary(
        page=page,
        tables_dir=tables_dir,
        **{name: figures[name] for name in plain},
        copies=found.copies,
        dropped=figures["dropped"],
        failovers=figures["failovers"],
        slowest_failover_us=figures["slowest_failover_us"],
        outages=figures["outages"],
        still_leaderless=figures["still_leaderless"],
        longest_us=figures["longest_us"] or 0,
        longest_partition=None if worst is None else f"{worst['topic']}-{worst['partition']}",
        longest_cause=None if worst is None else worst["cause"],
        longest_open=worst is not None and worst["open"],
        rejects=figures["rejects"],
        two_masters=found.totals["two_masters"],
        superseded=figures["superseded"],
        outage_us=repairs.get("total_us") or 0,
        repaired=repairs.get("repaired", 0),
        mean_repair_us=repairs.get("mean_us"),
        p50_repair_us=repairs.get("p50_us"),
        p95_repair_us=repairs.get("p95_us"),
        availability=of_all.get("availability"),
        slo=of_all.get("slo"),
        rolling_restarts=found.totals["rolling_restarts"],
    )
