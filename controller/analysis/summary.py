"""The contents of the page and the terminal output: capped rows of the tables, and the main figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.answers import Query, Row, fetch
from controller.analysis.columns import human_us, iso
from controller.analysis.leaderless import OUTAGE
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
    first_ts: datetime
    last_ts: datetime

    @property
    def unread(self) -> int:
        """Number of lines that are not in the tables because they could not be read."""
        return self.torn + self.malformed + self.newer_schema

    def troubles(self) -> list[str]:
        """Problems that an operator should look at, worst first."""
        found = [
            (self.two_masters, f"two controllers were active in the same epoch ({self.two_masters} epochs)"),
            (
                self.still_leaderless,
                f"{self.still_leaderless:,} partitions had no leader at the end of the log",
            ),
            (self.superseded, f"{self.superseded:,} decisions logged under a superseded controller epoch"),
            (self.dropped, f"{self.dropped:,} records lost by the nodes themselves (log: dropped)"),
            (self.damaged_files, f"{self.damaged_files:,} damaged log files"),
            (self.unread, f"{self.unread:,} unread lines"),
        ]
        return [text for count, text in found if count]

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
            f"rejects    {self.rejects:,}",
            f"unread     {self.unread:,} lines: {self.torn:,} torn, {self.malformed:,} malformed, "
            f"{self.newer_schema:,} of a newer schema; {self.damaged_files:,} damaged files",
            *(f"look at    {trouble}" for trouble in self.troubles()),
            f"page       {self.page}",
            f"tables     {self.tables_dir}",
        ]


def collect_findings(written: dict[str, DataFrame], bucket_us: int) -> Findings:
    """Collect the page's data from the tables, by two Spark jobs: at most some thousand rows, for any size of log."""
    found = Findings(bucket_us=bucket_us)
    changes = written["leader_changes"]
    shown = [spec for spec in TABLES if spec.order is not None]
    tops = {spec.name: Query(written[spec.name], spec.order(), spec.rows_max) for spec in shown if spec.order}
    by_cause = (
        written["leaderless_by_cause"]
        .groupBy("class", "cause")
        .agg(F.try_sum("total_us").alias("total_us"), F.sum("intervals").alias("intervals"))
    )
    tops["cause_totals"] = Query(by_cause, [F.desc("total_us")], 20)
    brokers = changes.groupBy("broker").agg(F.sum("count").alias("count"))
    tops["busiest"] = Query(brokers, [F.desc("count"), F.col("broker")], BROKERS_MAX)
    sums = {f"sums of {name}": Query(table, [], 1) for name, table in _sums(written).items()}
    rows = fetch(tops | sums)
    for name in sums:
        found.figures |= rows.pop(name)[0]
    busiest = [row["broker"] for row in rows.pop("busiest")]

    large = [spec.name for spec in shown if len(rows[spec.name]) == spec.rows_max]
    counts = {name: Query(written[name].agg(F.count("*").alias("rows")), [], 1) for name in large}
    of_busiest = F.col("broker").isin(busiest)
    reasons = Query(changes.where(of_busiest), [F.desc("count")], 300)
    named = F.when(of_busiest, F.col("broker").cast("string")).otherwise(F.lit("others"))
    moves = written["leader_changes_over_time"].groupBy("bucket_ts", named.alias("broker"))
    gained = moves.agg(F.sum("gained").alias("gained"))
    by_time = Query(gained, [F.col("bucket_ts"), F.col("broker")], POINTS_MAX)
    more = fetch({**counts, "leader_reasons": reasons, "leader_moves": by_time})
    found.totals = {spec.name: len(rows[spec.name]) for spec in shown}
    found.totals |= {name: more.pop(name)[0]["rows"] for name in large}
    found.rows = rows | more
    return found


def _sums(written: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """Figures over whole tables, one row a table."""
    outages = written["leaderless_intervals"].where(F.col("class") == OUTAGE)
    worst = F.max_by(F.struct("topic", "partition", "cause", "open"), "duration_us").alias("worst")

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
        "leaderless_intervals": outages.agg(
            F.count("*").alias("outages"),
            F.count_if("open").alias("still_leaderless"),
            worst,
            F.max("duration_us").alias("longest_us"),
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
    plain = ("files", "damaged_files", "lines", "torn", "malformed", "newer_schema", "first_ts", "last_ts")
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
    )
