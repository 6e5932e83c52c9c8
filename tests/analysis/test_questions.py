"""The tables that answer operators' questions, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from controller.analysis.condensing import condense
from controller.analysis.leaderless import by_partition, edges, leaderless_intervals
from controller.analysis.questions import departures, operations, outages
from controller.analysis.questions.asked import NOTHING_TOLD, Asked
from tests.analysis.conftest import Records, rows
from tests.support.analysis.records import ZERO_US, record

pytestmark = pytest.mark.slow

ONLINE, OFFLINE, NEW, NONE = "OnlinePartition", "OfflinePartition", "NewPartition", "NonExistentPartition"
SECOND_US = 1_000_000
END_S = 3500
END_US = ZERO_US + END_S * SECOND_US


def move(at: float, to: str, old: str = ONLINE, **fields: Any) -> dict[str, Any]:
    return record("partition", at, old=old, to=to, **{"topic": "t", "partition": 0, **fields})


def broker(at: float, to: str, old: str, replica: int, **fields: Any) -> dict[str, Any]:
    return record("broker", at, to=to, old=old, replica=replica, **fields)


def intervals_of(records: DataFrame) -> DataFrame:
    return leaderless_intervals(edges(records), condense(records), END_US)


def since_zero(*columns: str) -> list[str]:
    """Times as seconds from the beginning."""
    return [f"(unix_micros({name}) - {ZERO_US}) / 1e6 as {name}" for name in columns]


#: Broker 1 is lost for two partitions, broker 2 for one that stays; one topic is made and deleted.
OUTAGES = [
    move(10, OFFLINE, cause="BrokerChange", event_id=4, leader=1, silent_us=8 * SECOND_US),
    move(12, ONLINE, OFFLINE, cause="BrokerChange", event_id=4, leader=2),
    move(10, OFFLINE, cause="BrokerChange", event_id=4, leader=1, partition=1),
    move(13, ONLINE, OFFLINE, cause="BrokerChange", event_id=4, leader=2, partition=1),
    move(3400, OFFLINE, cause="BrokerChange", event_id=5, leader=2, topic="u"),
    move(100, NEW, NONE, cause="TopicChange", event_id=3, topic="v"),
    move(101, ONLINE, NEW, cause="TopicChange", event_id=3, topic="v", leader=1),
    move(201, OFFLINE, cause="TopicDeletion", event_id=6, topic="v", leader=1),
    move(201, NONE, OFFLINE, cause="TopicDeletion", event_id=6, topic="v"),
    record("leader", 12, topic="t", partition=0, old="1", to="2"),
    record("leader", 50, topic="t", partition=0, old="2", to="2"),
    record("isr", 12, topic="t", partition=0, old="[1, 2]", to="[2]"),
]


def test_outages_by_cause_broker_and_rack_include_detection(records: Records) -> None:
    found = outages.by_dimension(intervals_of(records(OUTAGES)), Asked(racks={1: "a", 2: "b"}))
    columns = ("dimension", "value", "outages", "open", "total_us", "detection_us", "detected", "repaired")
    s = SECOND_US
    assert rows(found, *columns) == [
        ("all", "all", 3, 1, 113 * s, 8 * s, 1, 2),
        ("broker", "1", 2, 0, 13 * s, 8 * s, 1, 2),
        ("broker", "2", 1, 1, 100 * s, 0, 0, 0),
        ("cause", "BrokerChange", 3, 1, 113 * s, 8 * s, 1, 2),
        ("rack", "a", 2, 0, 13 * s, 8 * s, 1, 2),
        ("rack", "b", 1, 1, 100 * s, 0, 0, 0),
    ]
    repairs = found.where("dimension = 'all'")
    assert rows(repairs, "mean_us", "p50_us", "p95_us", "max_us") == [(6_500_000, 3 * s, 10 * s, 10 * s)]


def test_an_outage_counts_in_each_hour_with_its_part(spark: Any) -> None:
    hour = outages.HOUR_US
    day = ZERO_US - ZERO_US % (24 * hour)

    def lasting(start: int, end: int, name: str = "outage") -> tuple[Any, ...]:
        return (name, day + start, end - start)

    given = spark.createDataFrame(
        [
            lasting(hour - 60, hour - 10),
            lasting(hour - 5, hour + 5),
            lasting(2 * hour, 2 * hour + 7),
            lasting(hour - 1, 5 * hour + 3),
            lasting(9 * hour, 9 * hour),
            lasting(0, 3 * hour, "creation"),
        ],
        "class string, start_us bigint, duration_us bigint",
    ).selectExpr("class", "timestamp_micros(start_us) as start_ts", "duration_us")
    at = f"(unix_micros(hour_ts) - {day}) div {hour} as hour"
    found = outages.by_hour(given).selectExpr(at, "begun", "leaderless_us")
    assert rows(found, "hour", "begun", "leaderless_us") == [
        (0, 3, 50 + 5 + 1),
        (1, 0, 5 + hour),
        (2, 1, 7 + hour),
        (3, 0, hour),
        (4, 0, hour),
        (5, 0, 3),
        (9, 1, 0),
    ]


def test_partitions_are_observed_from_creation_to_deletion(records: Records) -> None:
    given = records(OUTAGES)
    found = outages.partitions(outages.moved(given), by_partition(intervals_of(given)), ZERO_US, END_US)
    timed = found.selectExpr("*", "observed_us / 1e6 as s", "leaderless_us / 1e6 as out")
    columns = ("topic", "partition", "leader_changes", "isr_changes", "outages", "out", "open", "s")
    assert rows(timed, *columns) == [
        ("t", 0, 1, 1, 1, 10.0, False, 3500.0),
        ("t", 1, 0, 0, 1, 3.0, False, 3500.0),
        ("u", 0, 0, 0, 1, 100.0, True, 3500.0),
        ("v", 0, 0, 0, 0, 0.0, False, 101.0),
    ]
    judged = outages.availability(found, Asked(slo=99.0)).selectExpr("*", "round(availability, 6) as a")
    used = judged.selectExpr("*", "round(budget_used, 6) as used", "budget_us / 1e6 as budget")
    assert rows(used, "topic", "partitions", "outages", "a", "slo", "budget", "used") == [
        ("t", 2, 2, 99.814286, 99.0, 70.0, 18.571429),
        ("u", 1, 1, 97.142857, 99.0, 35.0, 285.714286),
        ("v", 1, 0, 100.0, 99.0, 1.01, 0.0),
        (None, 4, 3, 98.934063, 99.0, 106.01, 106.593718),
    ]
    plain = outages.availability(found, NOTHING_TOLD)
    assert {row[1:] for row in rows(plain, "topic", "slo", "budget_us", "budget_used")} == {(None,) * 3}
    perfect = outages.availability(found, Asked(slo=100.0))
    assert {row[1:] for row in rows(perfect, "topic", "budget_us", "budget_used")} == {(0, None)}


def test_a_partition_that_was_made_again_is_observed_all_along(records: Records) -> None:
    moves = [move(10, NONE, ONLINE), move(20, NEW, NONE), move(21, ONLINE, NEW)]
    given = records([row | {"event_id": number} for number, row in enumerate(moves)])
    found = outages.partitions(outages.moved(given), by_partition(intervals_of(given)), ZERO_US, END_US)
    assert rows(found, "topic", "partition", "observed_us") == [("t", 0, END_S * SECOND_US)]


def test_departures_tell_control_return_and_what_they_cost(records: Records) -> None:
    given = records(
        [
            broker(1, "shutting_down", "online", 1, event_id=2),
            broker(2, "offline", "online", 1, event_id=3),
            broker(60, "online", "offline", 1, event_id=4),
            broker(100, "shutting_down", "online", 2, event_id=5),
            broker(101, "online", "shutting_down", 2, event_id=6),
            broker(110, "offline", "online", 2, event_id=7, silent_us=5 * SECOND_US),
            move(110, OFFLINE, event_id=7, leader=2, silent_us=5 * SECOND_US),
            move(111, ONLINE, OFFLINE, event_id=7, leader=1),
            broker(120, "bounced", "online", 1, event_id=8),
            broker(121, "modified", "online", 1, event_id=9),
            broker(130, "online", "offline", 2, event_id=10),
            broker(2000, "offline", "online", 3, event_id=11),
            broker(2001, "shutting_down", "online", 3, event_id=12, controller_epoch=2),
            broker(2100, "offline", "online", 4, event_id=13, controller_epoch=2),
            broker(1, "registered", "", 4, role="broker"),
        ]
    )
    found = departures.departures(given.where("kind = 'broker'"), departures.caused(intervals_of(given)))
    timed = found.select(
        "broker", "to", "controlled", "returned", "overlapping", "together", "partitions"
    ).join(
        found.selectExpr(
            "broker", "to", *since_zero("left_ts", "back_ts"), "away_us / 1e6 as away", "leaderless_us"
        ),
        ["broker", "to"],
    )
    columns = (
        "broker",
        "to",
        "left_ts",
        "back_ts",
        "away",
        "controlled",
        "returned",
        "overlapping",
        "together",
    )
    assert rows(timed, *columns, "partitions", "leaderless_us") == [
        (1, "bounced", 120.0, 120.0, 0.0, False, True, True, 1, 0, 0),
        (1, "offline", 2.0, 60.0, 58.0, True, True, False, 1, 0, 0),
        (2, "offline", 105.0, 130.0, 25.0, False, True, False, 1, 1, 6 * SECOND_US),
        (3, "offline", 2000.0, None, None, False, True, False, 2, 0, 0),
        (4, "offline", 2100.0, None, None, False, False, False, 2, 0, 0),
    ]
    rolling = departures.rolling_restarts(found)
    counts = ("together", "brokers", "departures", "controlled", "overlapping", "partitions", "findings")
    assert rows(rolling, *counts) == [
        (1, [1, 2], 3, 1, 1, 1, ["uncontrolled", "overlapping", "leaderless", "repeated"]),
        (2, [3, 4], 2, 0, 0, 0, ["uncontrolled", "not back"]),
    ]


def test_a_clean_rolling_restart_has_no_findings_and_a_mass_loss_is_none(records: Records) -> None:
    lines = []
    for number in (1, 2, 3):
        at = 100 * number
        lines += [
            broker(at, "shutting_down", "online", number, event_id=at),
            broker(at + 5, "offline", "online", number, event_id=at + 5),
            broker(at + 30, "online", "offline", number, event_id=at + 30),
        ]
    lines += [broker(2000, "offline", "online", number, event_id=2000) for number in (1, 2, 3)]
    given = records(lines)
    left = departures.departures(given, departures.caused(intervals_of(given)))
    rolling = departures.rolling_restarts(left)
    assert rows(rolling, "brokers", "controlled", "partitions", "leaderless_us", "findings") == [
        ([1, 2, 3], 3, 0, 0, [])
    ]


def test_brokers_may_leave_as_the_last_one_returns_and_until_ten_minutes_later(records: Records) -> None:
    lines = []
    for number, left, back in ((1, 100, 600), (2, 600, 1200), (3, 1800, 1900), (4, 2501, 2600)):
        lines += [
            broker(left - 1, "shutting_down", "online", number, event_id=3 * number),
            broker(left, "offline", "online", number, event_id=3 * number + 1),
            broker(back, "online", "offline", number, event_id=3 * number + 2),
        ]
    given = records(lines)
    left_ones = departures.departures(given, departures.caused(intervals_of(given)))
    assert rows(left_ones, "broker", "together") == [(1, 1), (2, 1), (3, 1), (4, 2)]
    rolling = departures.rolling_restarts(left_ones)
    assert rows(rolling, "brokers", "overlapping", "findings") == [([1, 2, 3], 0, [])]


def test_a_broker_flaps_that_is_lost_three_times_within_an_hour(records: Records) -> None:
    lines = []
    for replica, times in ((1, (0, 100, 3000)), (2, (0, 100)), (3, (0, 50, 100))):
        for at in times:
            if replica == 3 and at == 50:
                lines.append(broker(at, "shutting_down", "online", replica, event_id=at))
            lines.append(broker(at, "offline", "online", replica, event_id=at + 1))
            lines.append(broker(at + 20, "online", "offline", replica, event_id=at + 20))
    given = records(lines)
    found = departures.stability(departures.departures(given, departures.caused(intervals_of(given))))
    columns = ("broker", "departures", "controlled", "lost", "most_lost", "flapping", "away_us")
    assert rows(found, *columns) == [
        (1, 3, 0, 3, 3, True, 60 * SECOND_US),
        (2, 2, 0, 2, 2, False, 40 * SECOND_US),
        (3, 3, 1, 2, 2, False, 60 * SECOND_US),
    ]


def step(at: float, to: str, event: int, **fields: Any) -> dict[str, Any]:
    return record("reassignment", at, to=to, event_id=event, **{"topic": "t", "partition": 0, **fields})


def topic(at: float, to: str, old: str, event: int, name: str = "t", **fields: Any) -> dict[str, Any]:
    return record("topic", at, to=to, old=old, event_id=event, topic=name, **fields)


def test_operations_last_from_their_first_record_to_their_end(records: Records) -> None:
    where = {"topic": "t", "partition": 0}
    given = records(
        [
            step(1, "queued", 1, reason="limit"),
            step(5, "moving", 2),
            record("reject", 6, error="REASSIGNMENT_HELD_UP", reason="out of sync", event_id=3, **where),
            record("reject", 6, error="CONFLICT", reason="other", event_id=3, **where),
            step(9, "moving", 4, reason="replaced"),
            step(20, "moved", 5),
            step(30, "settling", 6),
            step(40, "queued", 7, partition=1),
            step(41, "cancelled", 8, partition=1),
            step(42, "[1, 2]", 8, partition=2),
            topic(50, "waiting for deletion", "known", 9, reason="paused"),
            topic(60, "deleting", "waiting for deletion", 10),
            topic(61, "ineligible for deletion", "deleting", 11, reason="a disk"),
            topic(70, "deleted", "deleting", 12),
            topic(80, "vanished", "known", 13, "by hand"),
            topic(81, "deleted", "created", 13, "impossible"),
        ]
    )
    found = operations.operations(given, END_US)
    timed = found.selectExpr("*", "waited_us / 1e6 as waited", "took_us / 1e6 as took")
    columns = ("operation", "topic", "partition", "outcome", "waited", "took", "begun", "held_up", "reason")
    assert rows(timed, *columns) == [
        ("deletion", "t", None, "deleted", 10.0, 20.0, 1, 2, "a disk"),
        ("reassignment", "t", 0, "moved", 4.0, 19.0, 2, 1, "replaced"),
        ("reassignment", "t", 0, "open", 0.0, 3470.0, 1, 0, None),
        ("reassignment", "t", 1, "cancelled", 1.0, 1.0, 0, 0, None),
    ]
