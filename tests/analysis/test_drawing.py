"""The page's charts: bars as long as their values, axes with round numbers, foreign text as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from controller.analysis.page.drawing import Bar, Part, bars, linear, times

_BAR = re.compile(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="[\d.]+" fill="(\w+)">')


def drawn(rows: list[Bar], **how: bool) -> list[tuple[str, float, float, float]]:
    """Colour, place from the left, from the top, and width of each bar's parts."""
    svg = str(bars(rows, "seconds", {}, **how))
    ElementTree.fromstring(svg)
    return [(color, float(x), float(y), float(width)) for x, y, width, color in _BAR.findall(svg)]


def test_parts_of_a_bar_lie_end_to_end_and_are_as_long_as_their_values() -> None:
    (_, x, y, a), (_, after, same, b), (_, _, below, c) = drawn(
        [
            Bar("one", [Part(1, "red", ""), Part(3, "blue", "")]),
            Bar("two", [Part(2, "red", "")]),
        ]
    )
    assert (y, round(after, 1)) == (same, round(x + a, 1))
    assert below > y
    assert b / a == pytest.approx(3, 0.01)
    assert c / a == pytest.approx(2, 0.01)


def test_negative_parts_go_to_the_left_and_grouped_ones_begin_together() -> None:
    (_, x, _, gained), (_, left, _, lost) = drawn([Bar("one", [Part(4, "red", ""), Part(-2, "blue", "")])])
    assert left + lost == pytest.approx(x, 0.01)
    assert gained == pytest.approx(2 * lost, 0.01)
    (_, one, _, _), (_, two, _, _) = drawn([Bar("one", [Part(4, "a", ""), Part(2, "b", "")])], grouped=True)
    assert one == two


def test_a_logarithmic_bar_of_one_is_seen_and_ten_times_as_much_is_a_decade_more() -> None:
    widths = [width for *_, width in drawn([Bar("", [Part(10**n, "red", "")]) for n in range(3)], log=True)]
    assert widths[0] > 0
    assert widths[2] - widths[1] == pytest.approx(widths[1] - widths[0], 0.01)


def test_text_of_the_log_stays_text() -> None:
    svg = str(bars([Bar("</svg><b>", [Part(1, "red", "<i>&")])], "<u>", {"<s>": "red"}))
    assert not re.search("<[biu]>|<s>", svg)
    assert "&lt;/svg&gt;&lt;b&gt;" in svg
    assert "&lt;i&gt;&amp;" in svg


def test_ticks_are_round() -> None:
    assert [label for _, label in linear(0, 1234, 0, 100).ticks] == [f"{n:,}" for n in range(0, 1201, 200)]
    assert [label for _, label in linear(0, 0.05, 0, 100).ticks][:3] == ["0", "0.01", "0.02"]
    assert next(label for _, label in linear(0, 0, 0, 100).ticks) == "0"
    first = datetime(2026, 1, 14, 9, 59, 50, tzinfo=UTC)
    assert [label for _, label in times(first, first.replace(hour=11, minute=1), 0, 100).ticks] == [
        *("10:00", "10:10", "10:20", "10:30", "10:40", "10:50", "11:00")
    ]
    days = times(first, first.replace(day=22), 0, 100)
    assert [label for _, label in days.ticks] == [f"2026-01-{day}" for day in range(15, 23)]
    years = times(first, first.replace(year=2036), 0, 100)
    assert 4 <= len(years.ticks) <= 9
    assert times(first, first, 0, 100).place(first.timestamp()) == 0
