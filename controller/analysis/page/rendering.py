"""The HTML page: one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2

from controller.analysis.answers import Row
from controller.analysis.columns import human_us, iso, percent
from controller.analysis.page.charts import CHARTS
from controller.analysis.summary import Findings, ReportSummary
from controller.analysis.tables import TABLES, TableSpec

_TEMPLATE = "report.html.j2"


#: Rows of a table that are seen without opening anything, and of the rows below one.
PAGE_ROWS, DETAIL_ROWS = 25, 10


@dataclass(frozen=True)
class Below:
    """The rows of another table that belong to a row: the first ones; ``total``: of those that the page has."""

    spec: TableSpec
    rows: Sequence[Row]
    total: int


@dataclass(frozen=True)
class ShownRow:
    row: Row
    below: Below | None


@dataclass(frozen=True)
class Shown:
    """A table on the page, in pages of PAGE_ROWS; ``total``: number of all its rows."""

    spec: TableSpec
    pages: Sequence[Sequence[ShownRow]]
    total: int

    @property
    def shown(self) -> int:
        return sum(map(len, self.pages))


@dataclass(frozen=True)
class Card:
    """One figure at the top. ``tone``: good, bad or plain."""

    title: str
    figure: str
    detail: str
    tone: str
    anchor: str


def render(summary: ReportSummary, found: Findings, log_dirs: Sequence[str]) -> str:
    """The page as text. Everything from the logs is escaped: by jinja2 and, in charts, by `drawing`."""
    source = resources.files("controller.analysis.page").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    charts = [
        {"anchor": anchor, "title": title, "html": draw(found) if found.rows[table] else None}
        for anchor, title, table, draw in CHARTS
    ]
    tables = [_shown(spec, found) for spec in TABLES if spec.columns]
    return environment.from_string(source).render(
        summary=summary,
        troubles=summary.troubles(),
        cards=_cards(summary),
        charts=charts,
        tables=tables,
        page_rows=PAGE_ROWS,
        span_text=f"{iso(summary.first_ts)} to {iso(summary.last_ts)}",
        bucket=human_us(found.bucket_us),
        input_mb=found.input_bytes / 1e6,
        log_dirs=log_dirs,
    )


def _shown(spec: TableSpec, found: Findings) -> Shown:
    rows = [ShownRow(row, _below(spec, row, found)) for row in found.rows[spec.name]]
    pages = [rows[start : start + PAGE_ROWS] for start in range(0, len(rows), PAGE_ROWS)]
    return Shown(spec, pages, found.totals[spec.name])


def _below(spec: TableSpec, row: Row, found: Findings) -> Below | None:
    if spec.details is None:
        return None
    belonging = [of for of in found.rows[spec.details.table] if spec.details.belongs(row, of)]
    if not belonging:
        return None
    return Below(_SPECS[spec.details.table], belonging[:DETAIL_ROWS], len(belonging))


_SPECS = {spec.name: spec for spec in TABLES}


def _cards(summary: ReportSummary) -> list[Card]:
    if summary.longest_partition is None:
        longest, where = "none", "no partition lost its leader"
    else:
        longest = human_us(summary.longest_us)
        where = f"{summary.longest_partition}, {summary.longest_cause}" + (
            ", still open" if summary.longest_open else ""
        )
    failovers = "none in this log"
    if summary.failovers:
        slowest = summary.slowest_failover_us
        failovers = "none was completed" if slowest is None else f"slowest took {human_us(slowest)}"
    damaged = f"{summary.damaged_files:,} damaged files, " if summary.damaged_files else ""
    unread = (
        f"{damaged}{summary.torn:,} torn, {summary.malformed:,} malformed, {summary.newer_schema:,} newer"
    )
    outages = f"{summary.outages:,} outages"
    if summary.still_leaderless:
        outages = f"{summary.still_leaderless:,} open at the end, of {outages}"

    return [
        Card("Failovers", f"{summary.failovers:,}", failovers, "plain", "t-failovers"),
        Card("Longest leaderless", longest, where, _tone(summary.longest_open), "t-leaderless_intervals"),
        Card(
            "Still leaderless",
            f"{summary.still_leaderless:,}",
            outages,
            _tone(summary.still_leaderless),
            "t-leaderless_by_partition",
        ),
        *_question_cards(summary),
        Card("Rejects", f"{summary.rejects:,}", "refused, fenced or illegal", "plain", "t-rejects"),
        Card(
            "Two masters",
            f"{summary.two_masters:,}",
            "epochs with two active controllers",
            _tone(summary.two_masters),
            "t-two_masters",
        ),
        Card(
            "Unread lines",
            f"{summary.unread:,}",
            unread,
            _tone(summary.unread or summary.damaged_files),
            "t-input_problems",
        ),
    ]


def _tone(bad: object) -> str:
    return "bad" if bad else "good"


def _question_cards(summary: ReportSummary) -> list[Card]:
    judged = "of the time that partitions should have a leader"
    if summary.slo is not None:
        judged = f"{summary.topics_below_slo:,} topics are below {percent(summary.slo)}"
    repair, quantiles = "none", "no outage was repaired"
    if summary.mean_repair_us is not None:
        repair = human_us(summary.mean_repair_us)
        ends = [human_us(us or 0) for us in (summary.p50_repair_us, summary.p95_repair_us)]
        quantiles = f"p50 {ends[0]}, p95 {ends[1]}, {summary.repaired:,} repaired"
    rough = f"{summary.rough_restarts:,} with something to look at"
    return [
        Card(
            "Availability",
            percent(summary.availability),
            judged,
            _tone(summary.topics_below_slo),
            "t-availability",
        ),
        Card("Mean time to repair", repair, quantiles, "plain", "t-outages_by"),
        Card(
            "Flapping brokers",
            f"{summary.flapping_brokers:,}",
            "lost again and again",
            _tone(summary.flapping_brokers),
            "t-broker_stability",
        ),
        Card("Rolling restarts", f"{summary.rolling_restarts:,}", rough, "plain", "t-rolling_restarts"),
        Card(
            "Unfinished",
            f"{summary.open_operations:,}",
            "reassignments and deletions without an end",
            "plain",
            "t-operations",
        ),
        Card(
            "Late decisions",
            f"{summary.superseded:,}",
            "logged after a newer controller began",
            _tone(summary.superseded),
            "t-superseded",
        ),
    ]
