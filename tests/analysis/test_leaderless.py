"""How long partitions had no leader: intervals worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from controller.analysis.condensing import condense
from controller.analysis.leaderless import by_cause, by_partition, edges, leaderless_intervals, over_time
from tests.analysis.conftest import Records, rows
from tests.support.analysis.records import ZERO_US, record

pytestmark = pytest.mark.slow

NONE, NEW, ONLINE, OFFLINE = "NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition"
END_S = 100
SECOND_US = 1_000_000


def move(at: float, to: str, old: str = ONLINE, **fields: Any) -> dict[str, Any]:
    return record("partition", at, old=old, to=to, **{"topic": "t", "partition": 0, **fields})


def intervals(records: Records, *lines: dict[str, Any]) -> DataFrame:
    given = records(list(lines))
    return leaderless_intervals(edges(given), condense(given), ZERO_US + END_S * SECOND_US)


def seconds(table: DataFrame) -> list[tuple[Any, ...]]:
    """Class, beginning and length in seconds, what ended it; in order of these two."""
    start = f"(unix_micros(start_ts) - {ZERO_US}) / 1e6 as start"
    found = table.selectExpr("class", start, "duration_us / 1e6 as s", "ended_by").orderBy("start", "s")
    return [(row["class"], row.start, row.s, row.ended_by) for row in found.collect()]


def test_an_outage_lasts_from_offline_to_online(records: Records) -> None:
    table = intervals(
        records,
        move(1, OFFLINE, cause="BrokerChange", reason="leader's broker is gone", event_id=4),
        move(1.5, ONLINE, OFFLINE, cause="PreferredElection", event_id=5, leader=3),
    )
    columns = ("cause", "reason", "controller_epoch", "event_id", "node", "end_cause", "leader", "open")
    assert seconds(table) == [("outage", 1, 0.5, "online")]
    assert rows(table, *columns) == [
        ("BrokerChange", "leader's broker is gone", 1, 4, 1, "PreferredElection", 3, False)
    ]


def test_an_outage_with_no_end_is_open_and_measured_to_the_end_of_the_log(records: Records) -> None:
    table = intervals(records, move(40, OFFLINE), move(50, OFFLINE, OFFLINE, event_id=2))
    assert seconds(table) == [("outage", 40, 60, "nothing")]
    assert rows(table, "open") == [(True,)]


def test_creation_is_a_class_of_its_own(records: Records) -> None:
    table = intervals(records, move(1, NEW, NONE), move(1.25, ONLINE, NEW), move(7, OFFLINE, event_id=2))
    assert seconds(table) == [("creation", 1, 0.25, "online"), ("outage", 7, 93, "nothing")]


def test_an_outage_begins_with_the_last_sign_of_the_broker_that_led(records: Records) -> None:
    table = intervals(
        records,
        move(20, OFFLINE, cause="BrokerChange", event_id=4, silent_us=18 * SECOND_US),
        move(20.5, ONLINE, OFFLINE, cause="BrokerChange", event_id=4),
        move(30, OFFLINE, cause="BrokerChange", event_id=5, partition=1),
        move(31, ONLINE, OFFLINE, cause="BrokerChange", event_id=5, partition=1),
    )
    assert seconds(table) == [("outage", 2, 18.5, "online"), ("outage", 30, 1, "online")]


def test_a_creation_that_goes_offline_becomes_an_outage_once(records: Records) -> None:
    table = intervals(
        records,
        move(1, NEW, NONE),
        move(2, OFFLINE, NEW, event_id=2),
        move(3, NEW, OFFLINE, event_id=3),
        move(4, OFFLINE, NEW, event_id=4),
        move(5, ONLINE, OFFLINE, event_id=5),
    )
    assert seconds(table) == [("creation", 1, 1, "offline"), ("outage", 2, 3, "online")]


def test_deletion_ends_an_outage_and_its_own_offline_is_none(records: Records) -> None:
    table = intervals(
        records,
        move(1, OFFLINE, cause="BrokerChange", partition=1),
        move(9, NONE, OFFLINE, event_id=2, cause="TopicDeletion", partition=1),
        move(9, OFFLINE, event_id=2, cause="Whatever", partition=2),
        move(9.5, NONE, OFFLINE, event_id=2, cause="Whatever", partition=2),
        move(11, OFFLINE, event_id=2, cause="TopicDeletion", partition=3),
    )
    assert seconds(table) == [
        ("outage", 1, 8, "deleted"),
        ("deletion", 9, 0.5, "deleted"),
        ("deletion", 11, 89, "nothing"),
    ]


def test_an_outage_goes_on_over_a_failover_whatever_the_clocks_say(records: Records) -> None:
    """Controller 2's clock is 3 s behind: epoch and event order the records, not time."""
    table = intervals(
        records,
        move(10, OFFLINE, event_id=9, cause="BrokerChange"),
        move(8, OFFLINE, NONE, node=2, controller_epoch=2, cause="ControllerFailover"),
        move(9, ONLINE, OFFLINE, node=2, controller_epoch=2, event_id=2),
    )
    assert seconds(table) == [("outage", 10, 0, "online")]
    assert rows(table, "cause", "end_epoch") == [("BrokerChange", 2)]


def test_what_a_later_failover_found_with_a_leader_ended_by_then(records: Records) -> None:
    """A killed controller's last writes are not in its log; its successor logs only what it finds leaderless."""
    ready = record("failover", 30, to="ready", node=2, controller_epoch=2, duration_us=1)
    later = record("failover", 60, to="ready", controller_epoch=3, duration_us=1)
    table = intervals(
        records,
        move(10, OFFLINE, partition=1),
        move(10, OFFLINE, partition=2),
        move(29, OFFLINE, NONE, partition=2, node=2, controller_epoch=2),
        move(70, OFFLINE, partition=3, controller_epoch=3),
        ready,
        later,
    )
    assert rows(table, "partition", "ended_by", "open") == [
        (1, "failover", False),
        (2, "failover", False),
        (3, "nothing", True),
    ]
    assert seconds(table) == [
        ("outage", 10, 20, "failover"),
        ("outage", 10, 50, "failover"),
        ("outage", 70, 30, "nothing"),
    ]


def test_brokers_and_other_kinds_make_no_intervals(records: Records) -> None:
    table = intervals(
        records,
        move(1, OFFLINE, role="broker"),
        record("replica", 1, topic="t", partition=0, replica=1, to="OfflineReplica"),
    )
    assert seconds(table) == []


def test_sums_by_partition_and_by_cause(records: Records) -> None:
    table = intervals(
        records,
        move(1, OFFLINE, cause="A", reason="x"),
        move(2, ONLINE, OFFLINE, event_id=2),
        move(10, OFFLINE, event_id=3, cause="B"),
        move(14, ONLINE, OFFLINE, event_id=4),
        move(16, OFFLINE, event_id=5, cause="B"),
        move(17, ONLINE, OFFLINE, event_id=6),
        move(20, OFFLINE, partition=1, cause="A", reason="x"),
    )
    measures = ("intervals", "total_us", "longest_us", "open")
    assert rows(by_partition(table), "class", "topic", "partition", *measures) == [
        ("outage", "t", 0, 3, 6_000_000, 4_000_000, 0),
        ("outage", "t", 1, 1, 80_000_000, 80_000_000, 1),
    ]
    assert rows(by_cause(table), "class", "cause", "reason", "partitions", *measures) == [
        ("outage", "A", "x", 2, 2, 81_000_000, 80_000_000, 1),
        ("outage", "B", None, 1, 2, 5_000_000, 4_000_000, 0),
    ]


def test_no_interval_is_too_short_for_the_time_axis(records: Records) -> None:
    table = intervals(
        records,
        move(12.001, OFFLINE),
        move(12.002, ONLINE, OFFLINE, event_id=2),
        move(12.5, OFFLINE, partition=1),
        move(31, ONLINE, OFFLINE, partition=1, event_id=2),
    )
    axis = over_time(table, 10 * SECOND_US).selectExpr("class", "second(bucket_ts) as s", "intervals")
    assert rows(axis, "s", "intervals") == [(10, 2), (20, 1), (40, 0)]
