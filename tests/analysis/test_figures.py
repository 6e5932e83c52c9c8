"""Figures of the report that need no Spark."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from controller.analysis.columns import human_us
from controller.analysis.intake.quality import FileRow, input_files, overlapping
from controller.analysis.local_files import LogFile
from controller.analysis.summary import ReportSummary
from controller.analysis.tables import Input


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0, "0 µs"),
        (999, "999 µs"),
        (1500, "1.5 ms"),
        (119e6, "119 s"),
        (120e6, "2 min"),
        (7199e6, "120 min"),
        (7200e6, "2 h"),
        (71 * 3600e6, "71 h"),
        (72 * 3600e6, "3 days"),
        (-1500, "−1.5 ms"),
    ],
)
def test_durations_are_shown_in_the_unit_that_fits(microseconds: float, shown: str) -> None:
    assert human_us(microseconds) == shown


@pytest.mark.parametrize(
    ("seconds", "bucket_s"), [(0, 1), (240, 1), (241, 2), (3600, 15), (86_400, 600), (60 * 86_400, 21_600)]
)
def test_buckets_are_round_and_not_too_many(seconds: int, bucket_s: int) -> None:
    unused: Any = None
    given = Input(
        unused, unused, unused, [], unused, unused, 0, 0, 5_000_000, 5_000_000 + seconds * 1_000_000
    )
    assert given.bucket_us == bucket_s * 1_000_000


def row(file: str, first: int | None, last: int | None, node: int = 1, ok: int = 1) -> FileRow:
    return FileRow(file, 1, 1, ok, 0, 0, 0, None, "controller", node, first, last)


def test_files_of_one_node_that_share_more_than_a_moment_overlap() -> None:
    assert overlapping([row("a", 0, 5), row("b", 6, 9), row("c", 3, 8, node=2)]) == set()
    assert overlapping([row("a", 0, 5), row("b", 5, 9), row("c", 3, 8, node=2)]) == set()
    assert overlapping([row("a", 0, 6), row("b", 5, 9), row("c", 3, 8, node=2)]) == {"a", "b"}
    assert overlapping([row("long", 0, 90), row("b", 95, 96), row("c", 97, 99)]) == set()
    assert overlapping([row("long", 0, 98), row("b", 95, 96), row("c", 97, 99)]) == {"long", "b", "c"}
    assert overlapping([row("long", 0, 98), row("empty", 1, 2, ok=0)]) == set()


def test_usual_and_odd_lines_of_a_file_count_together() -> None:
    file = LogFile("/a", 100)
    usual: Any = {
        "/a": SimpleNamespace(lines=9, bytes=99, usual=5, role="controller", node=1, first_us=10, last_us=20)
    }
    odd: Any = {
        "/a": SimpleNamespace(
            ok=1, torn=1, malformed=1, newer_schema=1, role=None, node=None, first_us=5, last_us=15
        )
    }
    (found,) = input_files([file], {}, usual, odd)
    assert (found.lines, found.ok, found.torn, found.malformed, found.newer_schema) == (9, 6, 1, 1, 1)
    assert (found.first_us, found.last_us) == (5, 20)
    assert found.problem is not None
    assert "only 99 of 100 bytes" in found.problem


def test_what_was_not_read_is_a_trouble() -> None:
    zero: Any = {field.name: 0 for field in fields(ReportSummary)}
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    made = ReportSummary(
        **{**zero, "torn": 1, "malformed": 2, "newer_schema": 4, "first_ts": moment, "last_ts": moment}
    )
    assert made.unread == 7
    assert made.troubles() == ["7 unread lines"]
