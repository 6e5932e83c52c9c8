"""What Arrow makes of intervals, by hand: Spark is asked for the same in ``test_arrow_tables``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from controller.analysis import arrow_intervals
from controller.analysis.questions.outages import HOUR_US
from proto.statelog.schema import INT64_MAX

TIME = pa.timestamp("us", "UTC")


def times(*us: int) -> pa.Array:
    return pa.array(us, pa.int64()).cast(TIME)


def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """Sorted; times as microseconds."""
    columns = [
        (table[name].cast(pa.int64()) if table[name].type == TIME else table[name]).to_pylist()
        for name in names
    ]
    return sorted(zip(*columns, strict=True), key=str)


def intervals(*durations: int, **columns: Any) -> pa.Table:
    count = len(durations)
    return pa.table(
        {"duration_us": pa.array(durations, pa.int64()), "open": [False] * count, "class": ["outage"] * count}
        | columns
    )


def test_percentiles_are_of_the_rank_in_each_group() -> None:
    given = intervals(30, 10, 20, 7, topic=["a", "a", "a", "b"])
    found = arrow_intervals._measured(given, ("topic",))
    assert rows(found, "topic", "intervals", "total_us", "p50_us", "longest_us") == [
        ("a", 3, 60, 20, 30),
        ("b", 1, 7, 7, 7),
    ]


def test_a_sum_that_overflows_is_none() -> None:
    century_us = 3_155_760_000_000_000
    many = INT64_MAX // century_us + 1
    given = intervals(*[century_us] * many, 5, topic=[*["a"] * many, "b"])
    assert rows(arrow_intervals._measured(given, ("topic",)), "topic", "total_us") == [("a", None), ("b", 5)]


def test_the_first_rows_of_a_table_are_the_largest_and_all_that_are_equal_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_intervals, "TOP_ROWS", 3)
    given = pa.table({"a": [1, 5, 5, 5, 9, 2], "b": [0, 1, 3, 1, 0, 9]})
    assert rows(arrow_intervals._top_of(given, ("a", "b")), "a", "b") == [(5, 1), (5, 1), (5, 3), (9, 0)]


def test_a_partition_is_observed_to_its_deletion_if_that_came_last() -> None:
    facts = {"first_at": [5] * 3, "first_created": [5, 7, None], "last_at": [90] * 3}
    moved = pa.table(
        {"topic": ["t"] * 3, "partition": pa.array([0, 1, 2], pa.int32())}
        | dict.fromkeys(("leader_changes", "isr_changes"), [0] * 3)
        | facts
        | {"last_gone": [90, 80, None]}
    )
    out = arrow_intervals._by_partition(
        intervals(4, topic=["t"], partition=pa.array([1], pa.int32())).cast(
            pa.schema(
                [
                    ("duration_us", pa.int64()),
                    ("open", pa.bool_()),
                    ("class", pa.string()),
                    ("topic", pa.string()),
                    ("partition", pa.int32()),
                ]
            )
        )
    )
    found = arrow_intervals._partitions(moved, out, 0, 100)
    assert rows(found, "partition", "since_ts", "until_ts", "observed_us", "outages") == [
        (0, 5, 90, 85, 0),
        (1, 0, 100, 100, 1),
        (2, 0, 100, 100, 0),
    ]


def test_outages_count_by_broker_and_by_the_racks_that_are_told() -> None:
    given = intervals(
        10,
        20,
        40,
        cause=["c"] * 3,
        lost_leader=pa.array([1, 2, None], pa.int64()),
        detection_us=pa.array([15, None, 1], pa.int64()),
        ended_by=["online", "nothing", "failover"],
    )
    found = arrow_intervals._by_dimension(given, {1: "a"})
    assert rows(
        found, "dimension", "value", "outages", "detection_us", "detected", "repaired", "mean_us"
    ) == [
        ("all", "all", 3, 11, 2, 2, 25),
        ("broker", "1", 1, 10, 1, 1, 10),
        ("broker", "2", 1, 0, 0, 0, None),
        ("broker", None, 1, 1, 1, 1, 40),
        ("cause", "c", 3, 11, 2, 2, 25),
        ("rack", "a", 1, 10, 1, 1, 10),
        ("rack", None, 2, 1, 1, 1, 40),
    ]


def test_each_hour_has_its_part_of_an_outage() -> None:
    given = intervals(4 * HOUR_US + 4, 7, start_ts=times(HOUR_US - 1, 2 * HOUR_US))
    assert rows(arrow_intervals._by_hour(given), "hour_ts", "begun", "leaderless_us") == sorted(
        [
            (0, 1, 1),
            (HOUR_US, 0, HOUR_US),
            (2 * HOUR_US, 1, HOUR_US + 7),
            (3 * HOUR_US, 0, HOUR_US),
            (4 * HOUR_US, 0, HOUR_US),
            (5 * HOUR_US, 0, 3),
        ],
        key=str,
    )


def test_an_interval_counts_in_each_bucket_that_it_is_in() -> None:
    given = intervals(25, 1, start_ts=times(8, 12), end_ts=times(33, 13))
    found = arrow_intervals._over_time(given, 10)
    assert found["bucket_ts"].cast(pa.int64()).to_pylist() == [0, 10, 20, 40]
    assert found["intervals"].to_pylist() == [1, 2, 1, 0]
    # By the clock of who ended it, it ended before it began.
    found = arrow_intervals._over_time(intervals(0, start_ts=times(25), end_ts=times(3)), 10)
    assert (found["bucket_ts"].cast(pa.int64()).to_pylist(), found["intervals"].to_pylist()) == (
        [20, 30],
        [1, 0],
    )
