"""The charts of the page, from capped rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from markupsafe import Markup

from controller.analysis.columns import human_us, iso
from controller.analysis.page.drawing import WIDTH, Bar, Drawing, Part, bars, linear, times
from controller.analysis.questions.operations import OPEN
from controller.analysis.summary import Findings
from proto.statelog.schema import PHASES

COLORS = ("#2f6fde", "#e07b39", "#2a9d74", "#b5539c", "#c9a227", "#5b8def", "#8c6d62", "#7f7fbf", "#4fb3bf")
GREY, RED = "#8a8f98", "#d1453b"
_CLASS_COLORS = {"outage": RED, "creation": COLORS[0], "deletion": GREY}
_FAILOVERS_MAX = 25
_BARS_MAX = 15
#: The height of a chart over time, and where its axes lie.
_HEIGHT, _LEFT, _END, _TOP, _BOTTOM = 340, 70.0, WIDTH - 30.0, 34.0, 294.0
#: Where the rows of a chart with a row for each name begin, and their height.
_NAMES, _ROW = 400.0, 26


def leaderless_timeline(found: Findings) -> Markup:
    """Number of leaderless partitions over time, with a line at every failover."""
    rows = found.rows["leaderless_over_time"]
    failovers = found.rows["failovers"][:_FAILOVERS_MAX]
    moments = [row["bucket_ts"] for row in rows] + [row["ts"] for row in failovers]
    across = times(min(moments), max(moments), _LEFT, _END)
    up = linear(0, max([1, *(row["intervals"] for row in rows)]), _BOTTOM, _TOP)
    drawing = Drawing(_HEIGHT)
    drawing.across(across, _TOP, _BOTTOM, "time, UTC")
    drawing.up(up, _LEFT, _END, "partitions")
    for name, color in _CLASS_COLORS.items():
        points = [
            (across.place(row["bucket_ts"].timestamp()), up.place(row["intervals"]))
            for row in rows
            if row["class"] == name
        ]
        if points:
            steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in points)
            drawing.path(f"M{points[0][0]:.1f} {_BOTTOM}{steps}V{_BOTTOM}Z", color, name)
            drawing.legend[name] = color
    for row in failovers:
        x = across.place(row["ts"].timestamp())
        tip = f"failover to epoch {row['controller_epoch']}, controller {row['node']}: {iso(row['ts'])}"
        drawing.line((x, _TOP, x, _BOTTOM), "failover", tip)
        drawing.legend["failover ready"] = COLORS[4]
    return drawing.done()


def failover_phases(found: Findings) -> Markup:
    """Duration of each failover by phase."""
    rows = sorted(found.rows["failovers"][:_FAILOVERS_MAX], key=lambda row: row["controller_epoch"])
    names = [phase for phase in (*PHASES, "other") if any(row[f"{phase}_us"] for row in rows)]
    legend = {name.replace("_", " "): COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    shown = [
        Bar(
            f"epoch {row['controller_epoch']} (controller {row['node']})",
            [
                _lasting(row[f"{name}_us"] or 0, color, shown)
                for name, (shown, color) in zip(names, legend.items(), strict=True)
            ],
        )
        for row in rows
    ]
    return bars(shown, "seconds", legend)


def leaderless_causes(found: Findings) -> Markup:
    """Leaderless partition-seconds by cause."""
    by_cause = defaultdict(list)
    for row in found.rows["cause_totals"][:_BARS_MAX]:
        by_cause[row["cause"]].append(
            _lasting(row["total_us"] or 0, _CLASS_COLORS[row["class"]], f"{row['class']}, {row['cause']}")
        )
    return bars([Bar(cause, parts) for cause, parts in by_cause.items()], "partition-seconds", _CLASS_COLORS)


def leader_moves(found: Findings) -> Markup:
    """Leaderships gained over time, by broker."""
    rows = found.rows["leader_moves"]
    names = sorted({row["broker"] for row in rows}, key=lambda name: (name == "others", name.zfill(10)))
    colors = {name: COLORS[n % len(COLORS)] if name != "others" else GREY for n, name in enumerate(names)}
    heights: dict[datetime, int] = defaultdict(int)
    for row in rows:
        heights[row["bucket_ts"]] += row["gained"]
    width = timedelta(microseconds=found.bucket_us)
    across = times(min(heights), max(heights) + width, _LEFT, _END)
    up = linear(0, max(1, *heights.values()), _BOTTOM, _TOP)
    shown = {name: name if name == "others" else f"broker {name}" for name in names}
    drawing = Drawing(_HEIGHT, {shown[name]: color for name, color in colors.items()})
    drawing.across(across, _TOP, _BOTTOM, "time, UTC")
    drawing.up(up, _LEFT, _END, "leaderships gained")
    wide = across.place(width.total_seconds()) - across.place(0)
    done: dict[datetime, int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: names.index(row["broker"])):
        at, gained = row["bucket_ts"], row["gained"]
        if gained:
            below = up.place(done[at])
            done[at] += gained
            top = up.place(done[at])
            tip = f"{shown[row['broker']]}: {gained:,} at {iso(at)}"
            drawing.rectangle(
                across.place(at.timestamp()), top, wide, below - top, colors[row["broker"]], tip
            )
    return drawing.done()


def leader_changes(found: Findings) -> Markup:
    """Leaderships gained (right) and lost (left) by broker and reason."""
    rows = found.rows["leader_reasons"]
    reasons = list(dict.fromkeys(str(row["reason"]) for row in rows))[: len(COLORS)]
    colors = dict(zip(reasons, COLORS, strict=False))
    parts = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["broker"]):
        reason, sign = str(row["reason"]), 1 if row["direction"] == "gained" else -1
        if reason in colors:
            tip = f"{row['direction']} {row['count']:,}: {reason}"
            parts[f"broker {row['broker']}"].append(Part(sign * row["count"], colors[reason], tip))
    return bars([Bar(name, given) for name, given in parts.items()], "← lost     gained →", colors)


def transitions(found: Findings) -> Markup:
    """The most frequent state transitions."""
    shown = [
        Bar(
            f"{row['kind']}: {row['from'] or '—'} → {row['to']} ({row['role']})",
            [Part(row["count"], COLORS[0], f"{row['count']:,}")],
        )
        for row in found.rows["transitions"][:_BARS_MAX]
    ]
    return bars(shown, "transitions (log scale)", {}, log=True)


def push_latency(found: Findings) -> Markup:
    """Response times of brokers."""
    rows = [row for row in found.rows["pushes"] if row["request"] == "all" and row["max_us"] is not None]
    measures = ("p50", "p95", "p99")
    legend = dict(zip(measures, COLORS, strict=False))
    shown = [
        Bar(
            f"broker {row['broker']}",
            [
                Part(row[f"{name}_us"] / 1000, color, f"{name}: {human_us(row[f'{name}_us'])}")
                for name, color in legend.items()
            ],
        )
        for row in sorted(rows[:_BARS_MAX], key=lambda row: int(row["broker"]))
    ]
    return bars(shown, "milliseconds", legend, grouped=True)


def operations(found: Findings) -> Markup:
    """Reassignments and deletions from request to end, in the order of their requests."""
    rows = sorted(found.rows["operations"][:_FAILOVERS_MAX], key=lambda row: row["asked_ts"])
    ends = [row["asked_ts"] + timedelta(microseconds=row["took_us"]) for row in rows]
    across = times(rows[0]["asked_ts"], max(ends), _NAMES, _END)
    bottom = _TOP + _ROW * len(rows)
    colors = {"waited": GREY, "reassignment": COLORS[0], "deletion": COLORS[1], OPEN: RED}
    drawing = Drawing(bottom + 46, colors)
    drawing.across(across, _TOP, bottom, "time, UTC")
    for number, (row, end) in enumerate(zip(rows, ends, strict=True)):
        name = row["topic"] if row["partition"] is None else f"{row['topic']}-{row['partition']}"
        y = _TOP + _ROW * number + 4
        drawing.text(_NAMES - 8, y + 13, "end", name)
        begun = row["asked_ts"] + timedelta(microseconds=row["waited_us"])
        color = colors[OPEN if row["outcome"] == OPEN else row["operation"]]
        for first, last, fill, what in (
            (row["asked_ts"], begun, GREY, "waited"),
            (begun, end, color, row["outcome"]),
        ):
            if last > first:
                x = across.place(first.timestamp())
                tip = f"{row['operation']} of {name}: {what} {human_us((last - first) / timedelta(microseconds=1))}"
                drawing.rectangle(x, y, across.place(last.timestamp()) - x, _ROW - 8, fill, tip)
    return drawing.done()


def _lasting(us: int, color: str, name: str) -> Part:
    return Part(us / 1e6, color, f"{name}: {human_us(us)}")


#: Anchor, title, name of the rows, and function that draws the chart.
CHARTS: Sequence[tuple[str, str, str, Callable[[Findings], Markup]]] = (
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
    ("operations", "Reassignments and deletions over time", "operations", operations),
    ("transitions", "Most frequent state transitions", "transitions", transitions),
)
