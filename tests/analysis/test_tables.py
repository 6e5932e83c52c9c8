"""Each table against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis import tables
from controller.analysis.answers import Query, fetch
from controller.analysis.condensing import condense
from tests.analysis.conftest import Records, rows
from tests.support.analysis.records import record

pytestmark = pytest.mark.slow


def test_transitions_count_lines_and_what_summaries_stand_for(condensed: Records) -> None:
    where: dict[str, Any] = {"topic": "t", "partition": 0}
    table = tables.transitions(
        condensed(
            [
                record("partition", old="A", to="B", **where),
                record("partition", old="A", to="B", **where),
                record("replica", to="OnlineReplica", count=40, **where),
                record("replica", to="OnlineReplica", **where),
                record("replica", to="leader", old="follower", role="broker", replica=1, **where),
                record("controller", old="standby", to="active"),
                record("leader", old="1", to="2", **where),
            ]
        )
    )
    assert rows(table, "kind", "role", "from", "to", "count", "lines") == [
        ("controller", "controller", "standby", "active", 1, 1),
        ("partition", "controller", "A", "B", 2, 2),
        ("replica", "broker", "follower", "leader", 1, 1),
        ("replica", "controller", None, "OnlineReplica", 41, 2),
    ]


def failover(at: float, to: str, epoch: int, duration_us: int, **fields: Any) -> dict[str, Any]:
    return record("failover", at, to=to, controller_epoch=epoch, duration_us=duration_us, **fields)


def test_failovers_have_phases_a_total_and_the_gap_before_them(condensed: Records) -> None:
    push = record("push", 5, replica=1, to="UpdateMetadata", count=1)
    table = tables.failovers(
        condensed(
            [
                failover(1, "election", 1, 10),
                failover(1.5, "partitions", 1, 500, count=100_000),
                failover(2, "ready", 1, 520),
                push,
                record("controller", 6, to="resigned"),
                record("controller", 7, to="stopped"),  # a standby that ends is no sign of a controller
                failover(8, "election", 2, 7, node=2),
                failover(9, "surprise", 2, 3, node=2),
                failover(10, "ready", 2, 11, node=2),
                failover(20, "brokers", 3, 5, count=4),
            ]
        )
    )
    columns = (
        "controller_epoch",
        "node",
        "ready",
        "total_us",
        "election_us",
        "partitions_us",
        "partitions_count",
    )
    assert rows(table, *columns, "brokers_count", "other_us", "previous_epoch", "gap_us") == [
        (1, 1, True, 520, 10, 500, 100_000, None, None, None, None),
        (2, 2, True, 11, 7, None, None, None, 3, 1, 4_000_000),
        (3, 1, False, None, None, None, None, 4, None, 2, None),
    ]


def test_leader_changes_count_both_sides_and_no_mere_epoch_bump(condensed: Records) -> None:
    where: dict[str, Any] = {"topic": "t", "partition": 0}
    found = condensed(
        [
            record("leader", 1, old="-1", to="1", reason="initial", **where),
            record("leader", 12, old="1", to="2", reason="offline", **where),
            record("leader", 13, old="2", to="2", reason="isr_change", **where),
            record("leader", 14, old="2", to="-1", reason="offline", **where),
            record("leader", 14, old="1", to="2", reason="told", role="broker", **where),
            record("leader", 17, old="-1", to="1", reason="offline", **where),
        ]
    )
    assert rows(tables.leader_changes(found), "broker", "direction", "reason", "count") == [
        (1, "gained", "initial", 1),
        (1, "gained", "offline", 1),
        (1, "lost", "offline", 1),
        (2, "gained", "offline", 1),
        (2, "lost", "offline", 1),
    ]
    over_time = tables.leader_changes_over_time(found, 10_000_000).selectExpr("second(bucket_ts) as s", "*")
    assert rows(over_time, "s", "broker", "gained", "lost") == [(0, 1, 1, 0), (10, 1, 1, 1), (10, 2, 1, 1)]


def test_rejects_have_the_first_and_the_last_reason_as_examples(condensed: Records) -> None:
    table = tables.rejects(
        condensed(
            [
                record("reject", 1, error="FENCED_WRITE", reason="first"),
                record("reject", 2, error="FENCED_WRITE", reason="middle"),
                record("reject", 3, error="FENCED_WRITE", reason="last"),
                record("reject", 3, error="FENCED_WRITE", node=2),
                record("reject", 4, error="STALE_BROKER_EPOCH", role="broker", node=2, reason="old"),
            ]
        )
    ).selectExpr("*", "second(first_ts) as a", "second(last_ts) as b")
    assert rows(table, "error", "role", "node", "count", "a", "b", "examples") == [
        ("FENCED_WRITE", "controller", 1, 3, 1, 3, ["first", "last"]),
        ("FENCED_WRITE", "controller", 2, 1, 3, 3, []),
        ("STALE_BROKER_EPOCH", "broker", 2, 1, 4, 4, ["old"]),
    ]


def test_pushes_have_exact_percentiles_by_request_and_over_all(condensed: Records) -> None:
    lines = [record("push", replica=2, to="LeaderAndIsr", count=40) for _ in range(101)]
    lines += [
        record("ack", replica=2, to="LeaderAndIsr", duration_us=n * 1000, count=7) for n in range(1, 101)
    ]
    # Not of a known duration, they are in no percentile.
    lines += [record("ack", replica=2, to="LeaderAndIsr", error="TIMED_OUT") for _ in range(50)]
    lines += [record("push", replica=2, to="StopReplica", count=1)]
    lines += [record("ack", replica=2, to="StopReplica", duration_us=500_000, error="STALE_BROKER_EPOCH")]
    lines += [record("push", replica=3, to="StopReplica")]
    found = condensed(lines)
    columns = ("broker", "request", "pushes", "partitions", "acks", "errors")
    assert rows(tables.pushes(found), *columns, "p50_us", "p95_us", "p99_us", "max_us") == [
        (2, "LeaderAndIsr", 101, 4040, 150, 50, 50_000, 95_000, 99_000, 100_000),
        (2, "StopReplica", 1, 1, 1, 1, 500_000, 500_000, 500_000, 500_000),
        (2, "all", 102, 4041, 151, 51, 51_000, 96_000, 100_000, 500_000),
        (3, "StopReplica", 1, 0, 0, 0, None, None, None, None),
        (3, "all", 1, 0, 0, 0, None, None, None, None),
    ]
    assert rows(tables.refusals(found), "broker", "request", "error", "count", "examples") == [
        (2, "LeaderAndIsr", "TIMED_OUT", 50, []),
        (2, "StopReplica", "STALE_BROKER_EPOCH", 1, []),
    ]


def test_requests_tell_who_asked_and_how_often_they_were_denied(records: Records) -> None:
    who = {"principal": "User:eve", "address": "127.0.0.1", "subject": "t"}
    denied = record("request", 1, to="DeleteTopics", error="DENIED", reason="no ACL", count=3, **who)
    found = tables.requests(
        records([denied, record("request", 2, to="CreateTopics", **who), record("topic", 3)])
    )
    columns = ("request", "principal", "address", "subject", "outcome", "count", "reason")
    assert rows(found, *columns) == [
        ("CreateTopics", *who.values(), "done", 1, None),
        ("DeleteTopics", *who.values(), "DENIED", 3, "no ACL"),
    ]


def test_two_nodes_deciding_in_one_epoch_are_two_masters(condensed: Records) -> None:
    where: dict[str, Any] = {"topic": "t", "partition": 0}
    table = tables.two_masters(
        condensed(
            [
                record("isr", 1, node=1, controller_epoch=4, **where),
                record("leader", 2, node=2, controller_epoch=4, old="1", to="2", **where),
                record("leader", 3, node=2, controller_epoch=5, old="1", to="2", **where),
                record("push", 3, node=1, controller_epoch=5, replica=1, to="StopReplica"),
                record("partition", 4, node=9, controller_epoch=5, role="broker", to="X", **where),
                record("partition", 5, node=1, controller_epoch=-1, to="X", **where),
                record("partition", 5, node=2, controller_epoch=-1, to="X", **where),
            ]
        )
    )
    assert rows(table, "controller_epoch", "nodes", "lines") == [(4, [1, 2], 2)]


def test_decisions_after_a_newer_controller_began_are_listed_with_how_late(records: Records) -> None:
    where: dict[str, Any] = {"topic": "t", "partition": 0}
    lines = records(
        [
            record("isr", 5, **where),
            record("controller", 6, node=2, controller_epoch=2, to="active"),
            record("leader", 6.5, old="1", to="2", **where),
            record("leader", 8, old="1", to="2", **{**where, "partition": 7}),
            failover(9, "election", 3, 1),
            record("isr", 9.25, node=2, controller_epoch=2, **where),
            record("isr", 99, controller_epoch=3, **where),
        ]
    )
    table = tables.superseded(lines, condense(lines))
    columns = ("controller_epoch", "node", "kind", "count", "superseded_by", "latest_after_us", "example")
    assert rows(table, *columns) == [
        (1, 1, "leader", 2, 2, 2_000_000, "t-0"),
        (2, 2, "isr", 1, 3, 250_000, "t-0"),
    ]


def test_hostile_figures_do_not_overflow(condensed: Records) -> None:
    most: dict[str, Any] = {"duration_us": 10**14, "count": 10**9}
    found = condensed(
        [failover(1, "brokers", 1, 10**14) for _ in range(100)] + [record("push", replica=1, to="x", **most)]
    )
    assert rows(tables.failovers(found), "brokers_us") == [(10**16,)]


def test_rows_that_are_equal_in_their_order_come_by_their_columns(spark: SparkSession) -> None:
    """However the table was made: the page shows the first ones."""
    for values in ("(1, 'c'), (0, 'z'), (1, 'a'), (1, 'b')", "(1, 'b'), (1, 'a'), (1, 'c'), (0, 'z')"):
        table = spark.sql(f"select * from values {values} as t(x, y)").repartition(3)
        found = fetch({"some": Query(table, [F.desc("x")], 2), "all": Query(table, [F.desc("x")], None)})
        assert [row["y"] for row in found["some"]] == ["a", "b"]
        assert [row["y"] for row in found["all"]] == ["a", "b", "c", "z"]
