"""The HTML page: one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2

from controller.analysis.answers import Row
from controller.analysis.columns import human_us, iso
from controller.analysis.page.charts import CHARTS
from controller.analysis.summary import Findings, ReportSummary
from controller.analysis.tables import ROWS_MAX, TABLES, TableSpec

_TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class Shown:
    """A table and its rows on the page; ``total``: number of all its rows."""

    spec: TableSpec
    rows: Sequence[Row]
    total: int


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
    tables = [Shown(spec, found.rows[spec.name], found.totals[spec.name]) for spec in TABLES if spec.columns]
    return environment.from_string(source).render(
        summary=summary,
        troubles=summary.troubles(),
        cards=_cards(summary),
        charts=charts,
        tables=tables,
        rows_max=ROWS_MAX,
        span_text=f"{iso(summary.first_ts)} to {iso(summary.last_ts)}",
        bucket=human_us(found.bucket_us),
        input_mb=found.input_bytes / 1e6,
        log_dirs=log_dirs,
    )


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

    def tone(bad: object) -> str:
        return "bad" if bad else "good"

    return [
        Card("Failovers", f"{summary.failovers:,}", failovers, "plain", "t-failovers"),
        Card("Longest leaderless", longest, where, tone(summary.longest_open), "t-leaderless_intervals"),
        Card(
            "Still leaderless",
            f"{summary.still_leaderless:,}",
            outages,
            tone(summary.still_leaderless),
            "t-leaderless_by_partition",
        ),
        Card("Rejects", f"{summary.rejects:,}", "refused, fenced or illegal", "plain", "t-rejects"),
        Card(
            "Two masters",
            f"{summary.two_masters:,}",
            "epochs with two active controllers",
            tone(summary.two_masters),
            "t-two_masters",
        ),
        Card(
            "Unread lines",
            f"{summary.unread:,}",
            unread,
            tone(summary.unread or summary.damaged_files),
            "t-input_problems",
        ),
    ]
