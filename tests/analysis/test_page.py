"""The page's charts and tables, from rows that Spark would have counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from markupsafe import Markup

from controller.analysis.page import charts, rendering
from controller.analysis.page.charts import COLORS, GREY, RED
from controller.analysis.page.drawing import WIDTH
from controller.analysis.summary import Findings, ReportSummary
from controller.analysis.tables import TABLES
from proto.statelog.schema import PHASES

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_RECT = re.compile(
    r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" fill="([^"]+)"><title>([^<]*)<'
)


class Rect(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    color: str
    tip: str


def drawn(chart: Callable[[Findings], Markup], legend: bool = False, **rows: Any) -> list[Rect]:
    """The rectangles of a chart, or those of its legend, which are squares."""
    svg = str(chart(Findings(rows=rows, bucket_us=60_000_000)))
    found = [
        Rect(float(x), float(y), float(width), float(height), color, tip)
        for x, y, width, height, color, tip in _RECT.findall(svg)
    ]
    return [one for one in found if (one.y == 3) is legend]


def at(seconds: int) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def test_leaderships_of_one_moment_lie_on_each_other_and_the_last_bucket_is_on_the_chart() -> None:
    rows = [
        {"broker": name, "bucket_ts": at(60 * bucket), "gained": gained}
        for name, bucket, gained in (("10", 0, 2), ("2", 0, 4), ("others", 5, 6))
    ]
    low, high, last = drawn(charts.leader_moves, leader_moves=rows)
    assert (low.tip[:11], high.tip[:12]) == ("broker 2: 4", "broker 10: 2")
    assert high.y + high.height == pytest.approx(low.y, abs=0.2)
    assert low.height == pytest.approx(2 * high.height, rel=0.01)
    assert last.x + last.width == pytest.approx(WIDTH - 30, abs=0.2)
    assert [(one.tip, one.color) for one in drawn(charts.leader_moves, True, leader_moves=rows)] == [
        ("broker 2", COLORS[0]),
        ("broker 10", COLORS[1]),
        ("others", GREY),
    ]


def test_an_operation_waits_and_then_goes_on() -> None:
    row = {"operation": "reassignment", "topic": "t", "partition": 3, "asked_ts": BEGIN}
    ended = row | {"outcome": "moved", "waited_us": 2_000_000, "took_us": 6_000_000}
    still = row | {"operation": "deletion", "partition": None, "outcome": "open", "waited_us": 0}
    waited, moved, going = drawn(charts.operations, operations=[ended, still | {"took_us": 3_000_000}])
    assert (waited.color, moved.color, going.color) == (GREY, COLORS[0], RED)
    assert moved.x == pytest.approx(waited.x + waited.width, abs=0.2)
    assert moved.width == pytest.approx(2 * waited.width, rel=0.01)
    assert going.tip == "deletion of t: open 3 s"


def test_the_newest_failovers_are_drawn_the_oldest_of_them_first() -> None:
    rows = [
        {"controller_epoch": epoch, "node": 1, **dict.fromkeys((f"{p}_us" for p in (*PHASES, "other")), 0)}
        | {"other_us": 1000 * epoch}
        for epoch in range(40, 0, -1)
    ]
    assert [one.tip for one in drawn(charts.failover_phases, failovers=rows)] == [
        f"other: {epoch} ms" for epoch in range(16, 41)
    ]


def test_partitions_without_a_leader_are_drawn_by_class() -> None:
    rows = [
        {"class": name, "bucket_ts": at(second), "intervals": count}
        for name, second, count in (("outage", 0, 2), ("creation", 5, 1), ("outage", 10, 0))
    ]
    svg = str(charts.leaderless_timeline(Findings(rows={"leaderless_over_time": rows, "failovers": []})))
    paths = re.findall(r'<path d="([^"]*)" fill="([^"]*)"[^>]*><title>(\w+)<', svg)
    assert all(re.fullmatch(r"M[\d.]+ 294\.0H.*V294\.0Z", points) for points, _, _ in paths), (
        "from none to none"
    )
    assert [(points.count("H"), color, name) for points, color, name in paths] == [
        (2, RED, "outage"),
        (1, COLORS[0], "creation"),
    ]


def test_what_a_broker_lost_is_on_the_left() -> None:
    rows = [
        {"broker": 1, "reason": "r", "direction": direction, "count": count}
        for direction, count in (("gained", 2), ("lost", 4))
    ]
    gained, lost = drawn(charts.leader_changes, leader_reasons=rows)
    assert lost.x + lost.width == pytest.approx(gained.x, abs=0.2)
    assert lost.width == pytest.approx(2 * gained.width, rel=0.01)


def test_response_times_are_milliseconds() -> None:
    row = {"broker": 1, "request": "all", "p50_us": 1000, "p95_us": 2000, "p99_us": 4000, "max_us": 9000}
    svg = str(charts.push_latency(Findings(rows={"pushes": [row, {**row, "request": "LeaderAndIsr"}]})))
    labels = re.findall(r'text-anchor="middle">([^<]*)<', svg)
    assert (labels[0], labels[-2], labels[-1]) == ("0", "4", "milliseconds")
    tips = [row[5] for row in _RECT.findall(svg) if float(row[1]) != 3]
    assert tips == ["p50: 1 ms", "p95: 2 ms", "p99: 4 ms"]


def test_all_rows_of_a_table_are_on_its_pages_and_those_below_a_row_are_counted() -> None:
    spec = next(spec for spec in TABLES if spec.name == "partitions")
    count, below = 2 * rendering.PAGE_ROWS + 1, rendering.DETAIL_ROWS + 3
    rows: list[Any] = [{"topic": "t", "partition": n} for n in range(count)]
    found = Findings(
        rows={"partitions": rows, "leaderless_intervals": [{"topic": "t", "partition": 1}] * below},
        totals={"partitions": 99},
    )
    shown = rendering._shown(spec, found)
    assert [one.row["partition"] for page in shown.pages for one in page] == list(range(count))
    assert (shown.shown, shown.total) == (count, 99)
    first, second, *_ = shown.pages[0]
    assert first.below is None
    assert second.below is not None
    assert (len(second.below.rows), second.below.total) == (rendering.DETAIL_ROWS, below)


@pytest.mark.parametrize("still", [0, 2])
def test_cards_are_red_where_something_is_wrong(still: int) -> None:
    zero: Any = {field.name: 0 for field in fields(ReportSummary)} | {"slo": None, "mean_repair_us": None}
    given = zero | {"outages": 9, "still_leaderless": still, "longest_open": still > 0}
    given |= {"longest_partition": "t-0", "longest_cause": "c", "longest_us": 5000}
    cards = {card.title: card for card in rendering._cards(ReportSummary(**given))}
    late = cards["Late decisions"]
    assert (late.figure, late.detail, late.tone) == ("0", "logged after a newer controller began", "good")
    tone = "bad" if still else "good"
    longest, without = cards["Longest leaderless"], cards["Still leaderless"]
    assert (longest.figure, longest.tone, without.tone) == ("5 ms", tone, tone)
    assert longest.detail == "t-0, c" + (", still open" if still else "")
    assert (without.figure, without.detail) == (
        (f"{still}", f"{still} open at the end, of 9 outages") if still else ("0", "9 outages")
    )
    assert {title for title, card in cards.items() if card.tone == "bad"} == (
        {"Longest leaderless", "Still leaderless"} if still else set()
    )


@pytest.mark.parametrize(("damaged", "torn", "tone"), [(0, 0, "good"), (1, 0, "bad"), (0, 1, "bad")])
def test_a_damaged_file_alone_is_a_reason_to_look(damaged: int, torn: int, tone: str) -> None:
    zero: Any = {field.name: 0 for field in fields(ReportSummary)} | {"slo": None, "mean_repair_us": None}
    summary = ReportSummary(**zero | {"longest_partition": None, "damaged_files": damaged, "torn": torn})
    (unread,) = (card for card in rendering._cards(summary) if card.title == "Unread lines")
    assert (unread.figure, unread.tone) == (str(torn), tone)
