"""The charts of the page, from capped rows. Labels are untrusted and escaped: plotly interprets markup in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from html import escape
from typing import Any

import plotly.graph_objects as go

from controller.analysis.columns import human_us
from controller.analysis.summary import Findings
from proto.statelog.schema import PHASES

COLORS = ("#2f6fde", "#e07b39", "#2a9d74", "#b5539c", "#c9a227", "#5b8def", "#8c6d62", "#7f7fbf", "#4fb3bf")
GREY, RED = "#8a8f98", "#d1453b"
_CLASS_COLORS = {"outage": RED, "creation": COLORS[0], "deletion": GREY}
_LABEL_CHARS_MAX = 64
_FAILOVERS_MAX = 25
_BARS_MAX = 15


def label(text: object) -> str:
    """Untrusted text for a chart, shortened and escaped."""
    plain = str(text)
    short = plain if len(plain) <= _LABEL_CHARS_MAX else plain[: _LABEL_CHARS_MAX - 1] + "…"
    return escape(short, quote=False)


def leaderless_timeline(found: Findings) -> Any:
    """Number of leaderless partitions over time, with a line at every failover."""
    rows = found.rows["leaderless_over_time"]
    figure = _figure()
    for name in ("outage", "creation", "deletion"):
        points = [row for row in rows if row["class"] == name]
        if not points:
            continue
        figure.add_scatter(
            x=[row["bucket_ts"] for row in points],
            y=[row["intervals"] for row in points],
            name=name,
            mode="lines",
            line={"shape": "hv", "width": 1.5, "color": _CLASS_COLORS[name]},
            fill="tozeroy",
        )
    failovers = found.rows["failovers"][:_FAILOVERS_MAX]
    for row in failovers:
        figure.add_vline(x=row["ts"].timestamp() * 1000, line={"width": 1, "dash": "dot", "color": GREY})
    figure.add_scatter(
        x=[row["ts"] for row in failovers],
        y=[0] * len(failovers),
        name="failover ready",
        mode="markers",
        marker={"symbol": "triangle-up", "size": 11, "color": COLORS[4]},
        text=[f"epoch {row['controller_epoch']}, controller {row['node']}" for row in failovers],
        hovertemplate="%{text}<br>%{x}<extra>failover</extra>",
    )
    figure.update_layout(yaxis_title="partitions", hovermode="closest")
    return figure


def failover_phases(found: Findings) -> Any:
    """Duration of each failover by phase."""
    rows = sorted(found.rows["failovers"][:_FAILOVERS_MAX], key=lambda row: row["controller_epoch"])
    names = [f"epoch {row['controller_epoch']} (controller {row['node']})" for row in rows]
    figure = _figure(barmode="stack", height=130 + 26 * len(rows))
    for number, phase in enumerate((*PHASES, "other")):
        spent = [row[f"{phase}_us"] or 0 for row in rows]
        if any(spent):
            _bars(figure, names, spent, phase.replace("_", " "), COLORS[number % len(COLORS)])
    return _seconds_axis(figure)


def leaderless_causes(found: Findings) -> Any:
    """Leaderless partition-seconds by cause."""
    rows = found.rows["cause_totals"][:_BARS_MAX]
    causes = list(dict.fromkeys(row["cause"] for row in reversed(rows)))
    figure = _figure(barmode="stack", height=130 + 26 * len(causes))
    for name, color in _CLASS_COLORS.items():
        totals = {row["cause"]: row["total_us"] or 0 for row in rows if row["class"] == name}
        if totals:
            known = [cause for cause in causes if cause in totals]
            _bars(figure, [label(cause) for cause in known], [totals[cause] for cause in known], name, color)
    figure.update_yaxes(categoryorder="array", categoryarray=[label(cause) for cause in causes])
    return _seconds_axis(figure, "partition-seconds")


def leader_moves(found: Findings) -> Any:
    """Leaderships gained over time, by broker."""
    rows = found.rows["leader_moves"]
    figure = _figure(barmode="stack")
    half = timedelta(microseconds=found.bucket_us / 2)  # Bars are centred on their x.
    brokers = sorted({row["broker"] for row in rows}, key=lambda name: (name == "others", name.zfill(10)))
    for number, broker in enumerate(brokers):
        points = [row for row in rows if row["broker"] == broker]
        figure.add_bar(
            x=[row["bucket_ts"] + half for row in points],
            y=[row["gained"] for row in points],
            width=found.bucket_us / 1000,
            name=broker if broker == "others" else f"broker {broker}",
            marker={
                "color": GREY if broker == "others" else COLORS[number % len(COLORS)],
                "line": {"width": 0},
            },
        )
    figure.update_layout(yaxis_title="leaderships gained")
    return figure


def leader_changes(found: Findings) -> Any:
    """Leaderships gained (right) and lost (left) by broker and reason."""
    rows = found.rows["leader_reasons"]
    brokers = sorted({row["broker"] for row in rows}, reverse=True)
    figure = _figure(barmode="relative", height=130 + 30 * len(brokers))
    reasons = list(dict.fromkeys(str(row["reason"]) for row in rows))[: len(COLORS)]
    for number, reason in enumerate(reasons):
        for direction, sign in (("gained", 1), ("lost", -1)):
            mine = [row for row in rows if str(row["reason"]) == reason and row["direction"] == direction]
            figure.add_bar(
                y=[f"broker {row['broker']}" for row in mine],
                x=[sign * row["count"] for row in mine],
                customdata=[row["count"] for row in mine],
                orientation="h",
                name=label(reason),
                legendgroup=str(number),
                showlegend=direction == "gained"
                or not any(str(row["reason"]) == reason and row["direction"] == "gained" for row in rows),
                marker={"color": COLORS[number], "line": {"width": 0}},
                hovertemplate=f"%{{y}} {direction} %{{customdata:,}}",
            )
    names = [f"broker {broker}" for broker in brokers]
    figure.update_yaxes(categoryorder="array", categoryarray=names)
    figure.update_xaxes(title="← lost     gained →")
    return figure


def transitions(found: Findings) -> Any:
    """The most frequent state transitions."""
    rows = list(reversed(found.rows["transitions"][:_BARS_MAX]))
    names = [label(f"{row['kind']}: {row['from'] or '—'} → {row['to']} ({row['role']})") for row in rows]
    figure = _figure(height=110 + 24 * len(rows))
    figure.add_bar(
        x=[row["count"] for row in rows],
        y=names,
        orientation="h",
        marker={"color": COLORS[0]},
        showlegend=False,
    )
    figure.update_xaxes(title="transitions (log scale)", type="log")
    return figure


def push_latency(found: Findings) -> Any:
    """Response times of brokers."""
    rows = [row for row in found.rows["pushes"] if row["request"] == "all" and row["max_us"] is not None]
    rows = sorted(rows[:_BARS_MAX], key=lambda row: int(row["broker"]))
    figure = _figure(barmode="group")
    for number, (column, name) in enumerate((("p50_us", "p50"), ("p95_us", "p95"), ("p99_us", "p99"))):
        figure.add_bar(
            x=[f"broker {row['broker']}" for row in rows],
            y=[row[column] / 1000 for row in rows],
            name=name,
            marker={"color": COLORS[number]},
        )
    figure.update_layout(yaxis_title="milliseconds")
    return figure


#: Anchor, title, name of the rows, and function that draws the chart.
CHARTS: Sequence[tuple[str, str, str, Callable[[Findings], Any]]] = (
    (
        "timeline",
        "Partitions without a leader over time, and failovers",
        "leaderless_over_time",
        leaderless_timeline,
    ),
    ("failover-phases", "Duration of each failover by phase", "failovers", failover_phases),
    ("leaderless-causes", "Time without a leader, by cause", "cause_totals", leaderless_causes),
    ("leader-moves", "Leaderships gained over time, by broker", "leader_moves", leader_moves),
    ("leader-changes", "Leaderships gained and lost by broker and reason", "leader_reasons", leader_changes),
    ("push-latency", "Time from control request to response, by broker", "pushes", push_latency),
    ("transitions", "Most frequent state transitions", "transitions", transitions),
)


def _figure(*, barmode: str | None = None, height: int = 340) -> Any:
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        barmode=barmode,
        bargap=0.25,
        margin={"l": 60, "r": 20, "t": 40, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        colorway=list(COLORS),
    )
    figure.update_xaxes(
        gridcolor="rgba(128,128,128,0.25)", zerolinecolor="rgba(128,128,128,0.5)", automargin=True
    )
    figure.update_yaxes(
        gridcolor="rgba(128,128,128,0.25)",
        zerolinecolor="rgba(128,128,128,0.5)",
        automargin=True,
        rangemode="tozero",
    )
    return figure


def _bars(figure: Any, names: list[str], spent_us: list[Any], name: str, color: str) -> None:
    figure.add_bar(
        y=names,
        x=[us / 1e6 for us in spent_us],
        customdata=[human_us(us) for us in spent_us],
        orientation="h",
        name=name,
        marker={"color": color, "line": {"width": 0}},
        hovertemplate="%{y}: %{customdata}",
    )


def _seconds_axis(figure: Any, title: str = "seconds") -> Any:
    figure.update_xaxes(title=title)
    return figure
