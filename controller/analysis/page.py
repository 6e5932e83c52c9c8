"""The HTML page: one file, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

import jinja2
import plotly.io
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from controller.analysis.charts import CHARTS
from controller.analysis.summary import ROWS_MAX, Findings, ReportSummary, Row, human_us, iso
from proto.statelog.schema import PHASES

_TEMPLATE = "report.html.j2"
_PLOTLY_CONFIG = {"displaylogo": False, "responsive": True, "displayModeBar": False}

Show = Callable[[Any], str]


@dataclass(frozen=True)
class Column:
    """One column of a table on the page."""

    header: str
    key: str
    show: Show
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    """One table on the page: ``name`` is that of the Parquet table."""

    name: str
    title: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[Row] = ()
    total: int = 0


def text(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "—"
    return str(value)


def number(value: Any) -> str:
    return "—" if value is None else f"{value:,}"


def span(value: Any) -> str:
    return "—" if value is None else human_us(value)


def yes(value: Any) -> str:
    return "yes" if value else ""


def size(value: Any) -> str:
    return f"{value / 1e6:,.1f} MB"


def _texts(*names: str) -> list[Column]:
    return [Column(name.replace("_", " "), name, text) for name in names]


def _numbers(*names: str) -> list[Column]:
    return [Column(name.replace("_", " "), name, number, numeric=True) for name in names]


def _spans(*names: str) -> list[Column]:
    return [Column(name.removesuffix("_us").replace("_", " "), name, span, numeric=True) for name in names]


_OPEN = Column("open", "open", yes)
_MEASURES = [*_numbers("intervals"), *_spans("total_us", "p50_us", "longest_us"), *_numbers("open")]

_TABLES = (
    Table(
        "leaderless_by_partition",
        "Leaderless time by partition",
        "Outages first; creation is the time from NewPartition to the first leader.",
        [*_texts("class", "topic", "partition"), *_MEASURES],
    ),
    Table(
        "leaderless_by_cause",
        "Leaderless time by cause",
        "The cause and the reason of the record that began the interval.",
        [*_texts("class", "cause", "reason"), *_numbers("partitions"), *_MEASURES],
    ),
    Table(
        "leaderless_intervals",
        "Longest leaderless intervals",
        "Open ones have no end in the log and are measured to its last line.",
        [
            *_texts("topic", "partition", "class", "start_ts"),
            *_spans("duration_us"),
            *_texts("ended_by", "cause", "reason", "controller_epoch", "leader"),
        ],
    ),
    Table(
        "failovers",
        "Failovers",
        "Newest first. The gap is from the last sign of the previous controller to ready.",
        [
            *_texts("controller_epoch", "node", "ts"),
            *_spans("total_us", "gap_us", *(f"{phase}_us" for phase in PHASES)),
            *_numbers("partitions_count"),
        ],
    ),
    Table(
        "leader_changes",
        "Leader changes by broker",
        "Leaderships gained and lost, by reason.",
        [*_texts("broker", "direction", "reason"), *_numbers("count")],
    ),
    Table(
        "rejects",
        "Refused actions",
        "Illegal transitions, fenced writes, stale requests, as told by who refused them.",
        [*_texts("error", "role", "node"), *_numbers("count"), *_texts("first_ts", "last_ts", "examples")],
    ),
    Table(
        "refusals",
        "Requests that brokers refused",
        "As told by the controllers that sent them.",
        [
            *_texts("broker", "request", "error"),
            *_numbers("count"),
            *_texts("first_ts", "last_ts", "examples"),
        ],
    ),
    Table(
        "pushes",
        "Control requests by broker",
        "Latency is from send to answer; “all” sums up a broker.",
        [
            *_texts("broker", "request"),
            *_numbers("pushes", "partitions", "acks", "errors"),
            *_spans("p50_us", "p95_us", "p99_us", "max_us"),
        ],
    ),
    Table(
        "transitions",
        "State transitions",
        "By kind and by who recorded them.",
        [*_texts("kind", "role", "from", "to"), *_numbers("count", "lines")],
    ),
    Table(
        "two_masters",
        "Two controllers in one epoch",
        "There must be none: more than one node made decisions in the same controller epoch.",
        [*_texts("controller_epoch", "nodes"), *_numbers("lines"), *_texts("first_ts", "last_ts")],
    ),
    Table(
        "superseded",
        "Decisions after a newer controller began",
        "A few milliseconds are a reply's way back and the difference of two clocks; more is a zombie.",
        [
            *_texts("controller_epoch", "node", "kind"),
            *_numbers("count"),
            *_texts("superseded_by", "superseded_ts", "last_ts"),
            *_spans("latest_after_us"),
            *_texts("example"),
        ],
    ),
    Table(
        "input_nodes",
        "What each node wrote",
        "Dropped: records that the node itself reports lost.",
        [*_texts("role", "node"), *_numbers("files", "lines", "dropped"), *_texts("first_ts", "last_ts")],
    ),
    Table(
        "input_files",
        "Files",
        "Damaged ones first.",
        [
            *_texts("file"),
            Column("size", "size", size, numeric=True),
            *_numbers("lines", "ok", "torn", "malformed", "newer_schema"),
            *_texts("problem", "first_ts", "last_ts"),
        ],
    ),
    Table(
        "input_problems",
        "Unread lines",
        "By reason, with the beginning of the first such line.",
        [*_texts("file", "status", "problem"), *_numbers("count"), *_texts("sample")],
    ),
)


@dataclass(frozen=True)
class Card:
    """One figure at the top. ``tone``: good, bad or plain."""

    title: str
    figure: str
    detail: str
    tone: str
    anchor: str


def render(summary: ReportSummary, found: Findings, log_dirs: Sequence[str]) -> str:
    """The page as text. Everything from the logs is escaped: in HTML by jinja2, in scripts by plotly."""
    source = resources.files("controller.analysis").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    charts = [
        {"anchor": anchor, "title": title, "html": _chart(anchor, draw(found)) if found.rows[table] else None}
        for anchor, title, table, draw in CHARTS
    ]
    tables = [
        Table(
            table.name,
            table.title,
            table.note,
            table.columns,
            found.rows[table.name],
            found.totals[table.name],
        )
        for table in _TABLES
    ]
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
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704  (the library itself)
    )


def _chart(anchor: str, figure: Any) -> Markup:
    """A div and a script; plotly's JSON writes <, > and / as escapes, so no data can close the script."""
    html = plotly.io.to_html(
        figure, full_html=False, include_plotlyjs=False, div_id=f"chart-{anchor}", config=_PLOTLY_CONFIG
    )
    return Markup(html)  # noqa: S704


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
        failovers = "none got ready" if slowest is None else f"slowest took {human_us(slowest)}"
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
            "epochs with two deciders",
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
