"""Figures of the report that need no Spark."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from controller.analysis import columns
from controller.analysis.columns import Show, human_us
from controller.analysis.intake.conversion import Converted
from controller.analysis.intake.files import move_local
from controller.analysis.intake.quality import (
    FileRow,
    LinesRead,
    converted_lines,
    input_files,
    overlapping,
    span,
)
from controller.analysis.intake.screening import FileCheck
from controller.analysis.local_files import LogFile
from controller.analysis.summary import _FIGURES, Findings, ReportSummary, summarize
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


@pytest.mark.parametrize(("read", "problem"), [(99, "only 99 of 300 bytes"), (300, None), (301, None)])
def test_a_gzip_file_of_which_less_was_read_than_is_in_it_shrank_meanwhile(
    read: int, problem: str | None
) -> None:
    """Its size on the disk tells nothing."""
    file, usual = LogFile("/a.gz", 50), {"/a.gz": LinesRead(9, read, 9, 0, "/a.gz", None, None, None, None)}
    (found,) = input_files([file], {"/a.gz": FileCheck(300, None, 9)}, usual, {})
    assert (found.problem or "").startswith(problem or "") is True
    assert (found.problem is None) is (problem is None)
    (unchecked,) = input_files([file], {}, usual, {})
    assert unchecked.problem is None


def findings(**rows: list[dict[str, Any]]) -> Findings:
    nothing: dict[str, list[dict[str, Any]]] = {
        "leaderless_intervals": [],
        "availability": [],
        "outages_by": [],
    }
    figures = {name: one.of_rows([]) for name, one in _FIGURES.items()}
    return Findings(rows=nothing | rows, totals={"two_masters": 0, "rolling_restarts": 0}, figures=figures)


def test_the_longest_outage_is_no_creation_and_sums_are_those_of_all() -> None:
    made = {"class": "creation", "duration_us": 9, "topic": "t", "partition": 1, "cause": "c", "open": True}
    found = summarize(findings(leaderless_intervals=[made]), page="p", tables_dir="t")
    assert (found.longest_partition, found.longest_us, found.longest_open) == (None, 0, False)
    outage = made | {"class": "outage", "partition": 2}
    topics = [
        {"topic": topic, "availability": percent, "slo": 90.0}
        for topic, percent in (("t", 50.0), (None, 99.0))
    ]
    by = [{"dimension": name, "outages": count, "open": count} for name, count in (("broker", 1), ("all", 3))]
    found = summarize(
        findings(leaderless_intervals=[outage], availability=topics, outages_by=by), page="p", tables_dir="t"
    )
    assert (found.longest_partition, found.longest_us, found.longest_cause) == ("t-2", 9, "c")
    assert (found.availability, found.outages, found.still_leaderless) == (99.0, 3, 3)


@pytest.mark.parametrize(
    ("name", "rows", "figure"),
    [
        ("topics_below_slo", [{"topic": "t", "slo": 90.0, "availability": 89.9}], 1),
        ("topics_below_slo", [{"topic": "t", "slo": 90.0, "availability": 90.0}], 0),
        ("topics_below_slo", [{"topic": "t", "slo": None, "availability": 50.0}], 0),
        ("topics_below_slo", [{"topic": "t", "slo": 90.0, "availability": None}], 0),
        ("topics_below_slo", [{"topic": None, "slo": 90.0, "availability": 1.0}], 0),
        ("damaged_files", [{"problem": None}, {"problem": "cut"}], 1),
        ("first_ts", [{"first_ts": None}, {"first_ts": 5}, {"first_ts": 3}], 3),
        ("last_ts", [{"last_ts": None}, {"last_ts": 5}, {"last_ts": 3}], 5),
        ("slowest_failover_us", [{"total_us": None}], None),
        ("rough_restarts", [{"findings": []}, {"findings": ["repeated"]}], 1),
        ("open_operations", [{"outcome": "open"}, {"outcome": "moved"}], 1),
        ("dropped", [{"dropped": 2}, {"dropped": 3}], 5),
    ],
)
def test_figures_of_all_rows(name: str, rows: list[dict[str, Any]], figure: object) -> None:
    assert _FIGURES[name].of_rows(rows) == figure


@pytest.mark.parametrize(
    ("show", "value", "shown"),
    [
        (columns.text, None, "—"),
        (columns.text, [], "—"),
        (columns.text, [1, "b"], "1; b"),
        (columns.text, 0, "0"),
        (columns.text, datetime(2026, 1, 14, 10, 0, 5, 6_999, tzinfo=UTC), "2026-01-14 10:00:05.006"),
        (columns.number, 0, "0"),
        (columns.number, 12_345, "12,345"),
        (columns.number, None, "—"),
        (columns.span, 0, "0 µs"),
        (columns.span, None, "—"),
        (columns.yes, True, "yes"),
        (columns.yes, None, ""),
        (columns.size, 1_234_567_890, "1,234.6 MB"),
        (columns.named("all"), None, "all"),
        (columns.named("all"), "t", "t"),
    ],
)
def test_values_are_shown_and_what_is_not_known_is_told_from_nothing(
    show: Show, value: object, shown: str
) -> None:
    assert show(value) == shown


def test_of_a_converted_file_usual_lines_are_those_that_are_not_odd() -> None:
    schema = {"role": ["broker", "broker"], "node": [3, 3]}
    times = {
        name: pa.array(us, pa.timestamp("us", "UTC"))
        for name, us in (("first_ts", [5, 3]), ("last_ts", [9, 7]))
    }
    made = Converted("file:///a", "r", None, pa.table({**schema, **times}), 2)
    assert converted_lines(FileCheck(300, None, 9), made) == LinesRead(
        9, None, 7, 2, "file:///a", "broker", 3, 3, 9
    )
    only_odd = made._replace(condensed=None, odd=9)
    assert converted_lines(FileCheck(300, None, 9), only_odd).usual == 0


def test_a_log_spans_the_files_that_have_times() -> None:
    assert span([row("a", 7, 9), row("b", None, None, ok=0), row("c", 5, 6)]) == (5, 9)


def test_what_a_terminal_is_told() -> None:
    found = summarize(
        findings(
            outages_by=[
                {"dimension": "all", "outages": 3, "open": 1, "repaired": 2}
                | {"mean_us": 1_500_000, "p50_us": 1_000_000, "p95_us": 2_000_000}
            ],
            leaderless_intervals=[
                {
                    "class": "outage",
                    "duration_us": 9_000,
                    "topic": "t",
                    "partition": 2,
                    "cause": "c",
                    "open": False,
                }
            ],
        ),
        page="p",
        tables_dir="d",
    )
    moment = datetime(2026, 1, 14, 10, tzinfo=UTC)
    lines = replace(found, first_ts=moment, last_ts=moment, availability=99.99999).text_lines()
    assert "leaderless 3 outages, longest 9 ms: t-2 (c)" in lines
    assert "repairs    2, mean 1.5 s, 95 of 100 within 2 s" in lines
    assert "available  99.9999 % of the partitions' time" in lines
    assert "look at    1 partition had no leader at the end of the log" in lines
    nothing = summarize(findings(), page="p", tables_dir="d")
    assert "repairs    none" in replace(nothing, first_ts=moment, last_ts=moment).text_lines()


def test_a_table_of_this_machine_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    (table / "part-00007.parquet").write_text("former")
    parts = [tmp_path / name for name in ("b", "a")]
    for part in parts:
        part.write_text(part.name)
    move_local(list(map(str, parts)), str(table))
    assert {path.name: path.read_text() for path in table.iterdir()} == {
        "part-00000.parquet": "b",
        "part-00001.parquet": "a",
        "_SUCCESS": "",
    }
