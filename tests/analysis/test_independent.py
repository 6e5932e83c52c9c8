"""Figures of the tables again by a straightforward program that reads the lines one by one, for logs made at random,
damaged lines among them."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from controller.analysis import lines as plain
from controller.analysis import session as spark_sessions
from controller.analysis.job import run_report
from controller.analysis.questions import departures
from controller.analysis.questions.asked import Asked
from controller.analysis.questions.outages import HOUR_US
from controller.analysis.summary import ReportSummary
from proto.statelog.schema import GONE, NEW, ONLINE
from tests.support.analysis import plain_questions
from tests.support.analysis.records import ZERO_US, record, text

pytestmark = pytest.mark.slow

Line = tuple[int, dict[str, Any]]
#: Short ones, as these logs are.
TOGETHER_US, WINDOW_US = 3_000_000, 10_000_000
SLO, RACKS = 50.0, {1: "a", 2: "b"}


def random_log(root: Path, seed: int) -> None:
    """Two controllers and two brokers, half an hour, every kind of record in any order, some lines damaged."""
    chance = random.Random(seed)
    for role, node in (("controller", 1), ("controller", 2), ("broker", 1), ("broker", 2)):
        rows, at = [], float(node)
        for _ in range(120):
            at += chance.random()
            line = text(random_record(chance, role, node, at))
            damage = chance.random()
            if damage < 0.05 and node == 1:
                line = chance.choice(
                    [line[: len(line) // 2], line + " more", line.replace('"node":', '"node":"x",')]
                )
            rows.append(line)
        directory = root / f"{role}-{node}"
        directory.mkdir(parents=True)
        (directory / "state-change.jsonl").write_text("\n".join(rows) + "\n")


def random_record(chance: random.Random, role: str, node: int, at: float) -> dict[str, Any]:
    epoch = chance.randrange(1, 4)
    kinds = ["replica", "reject", "unchanged", "log"]
    if role == "controller":
        kinds += [
            "partition",
            "partition",
            "partition",
            "leader",
            "isr",
            "push",
            "ack",
            "failover",
            "request",
            "broker",
            "broker",
            "topic",
            "reassignment",
        ]
    kind = chance.choice(kinds)
    where = {"topic": chance.choice(["a", "5"]), "partition": chance.randrange(3)}
    state = chance.choice([ONLINE, NEW, GONE, "OfflinePartition"])
    more = random_fields(chance, at, where, state)[kind]
    if kind in ("topic", "reassignment") and chance.random() < 0.5:
        more = {**more, "reason": f"reason {at:.9f}"}
    if kind == "reject" and role == "controller" and chance.random() < 0.5:
        more = {**more, **where, "error": "REASSIGNMENT_HELD_UP"}
    if kind == "ack" and chance.random() < 0.2:
        more = {**more, "error": "X", "reason": f"reason {at:.9f}"}
    told = {"node": node, "role": role, "controller_epoch": epoch, "event_id": chance.randrange(40)}
    return record(kind, at, **{"cause": "Test", **told, **more})


def random_fields(
    chance: random.Random, at: float, where: dict[str, Any], state: str
) -> dict[str, dict[str, Any]]:
    """By kind of record, what one of it has."""
    return {
        "replica": {**where, "to": chance.choice(["leader", "follower"]), "count": chance.randrange(3)},
        "reject": {"error": chance.choice(["X", "Y"]), "reason": f"reason {at:.9f}"},
        "unchanged": {"to": "LeaderAndIsr"},
        "log": {"to": chance.choice(["dropped", "other"]), "count": chance.randrange(9)},
        "partition": {
            **where,
            "to": state,
            "old": chance.choice([GONE, "x"]),
            "cause": chance.choice(["BrokerChange", "TopicDeletion"]),
            "leader": chance.randrange(-1, 3),
            **({"silent_us": chance.randrange(5_000_000)} if chance.random() < 0.3 else {}),
        },
        "leader": {**where, "old": chance.choice(["-1", "1", "2"]), "to": chance.choice(["-1", "1", "2"])},
        "isr": where,
        "push": {"replica": chance.randrange(2), "to": "StopReplica", "count": chance.randrange(5)},
        "ack": {"replica": chance.randrange(2), "to": "StopReplica", "duration_us": chance.randrange(50)},
        "failover": {
            "to": chance.choice(["election", "topics", "ready"]),
            "duration_us": chance.randrange(99),
        },
        "request": {"to": "CreateTopics", "principal": "User:a"},
        "broker": {
            "replica": chance.randrange(3),
            "old": chance.choice(["online", "offline"]),
            "to": chance.choice(
                ["offline", "offline", "bounced", "online", "online", "shutting_down", "modified", "found"]
            ),
            **({"silent_us": chance.randrange(5_000_000)} if chance.random() < 0.3 else {}),
        },
        "topic": {
            "topic": where["topic"],
            "old": chance.choice(["known", "deleting", "created"]),
            "to": chance.choice(
                ["deleting", "waiting for deletion", "ineligible for deletion", "deleted", "vanished"]
            ),
        },
        "reassignment": {
            **where,
            "to": chance.choice(["queued", "moving", "settling", "moved", "cancelled", "[1, 2]"]),
        },
    }


def good_lines(root: Path) -> list[Line]:
    return list(plain.read(plain.find([root]), lambda _bad: None))


def transitions(lines: list[Line]) -> dict[Any, Any]:
    counts: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for _, row in lines:
        if row["kind"] in ("partition", "replica", "controller", "broker"):
            entry = counts[row["kind"], row["role"], row.get("from"), row.get("to")]
            entry[0] += row.get("count", 1)
            entry[1] += 1
    return {key: tuple(value) for key, value in counts.items()}


def leader_changes(lines: list[Line]) -> dict[Any, Any]:
    counts: Counter[Any] = Counter()
    for _, row in lines:
        if row["kind"] == "leader" and row["from"] != row["to"]:
            counts[int(row["to"]), "gained", row.get("reason")] += 1
            counts[int(row["from"]), "lost", row.get("reason")] += 1
    return {key: count for key, count in counts.items() if key[0] >= 0}


def rejects(lines: list[Line]) -> dict[Any, Any]:
    found = defaultdict(list)
    for ts_us, row in lines:
        if row["kind"] == "reject":
            found[row["error"], row["role"], row["node"]].append((ts_us, row["reason"]))
    return {
        key: (len(seen), min(seen)[0], [min(seen)[1], max(seen)[1]][: len(seen)])
        for key, seen in found.items()
    }


def pushes(lines: list[Line]) -> dict[Any, Any]:
    sent: dict[Any, list[int]] = defaultdict(list)
    took: dict[Any, list[int]] = defaultdict(list)
    errors: Counter[Any] = Counter()
    for _, row in lines:
        for request in (row.get("to"), "all"):
            key = (row.get("replica"), request)
            if row["kind"] == "push":
                sent[key].append(row["count"])
            elif row["kind"] == "ack":
                took[key].append(row["duration_us"])
                errors[key] += "error" in row

    def at(values: list[int], percent: int) -> int | None:
        return sorted(values)[math.ceil(len(values) * percent / 100) - 1] if values else None

    return {
        key: (
            *(len(sent[key]), sum(sent[key]), len(took[key]), errors[key]),
            *(at(took[key], percent) for percent in (50, 95, 99, 100)),
        )
        for key in set(sent) | set(took)
    }


def by_class(intervals: list[dict[str, Any]]) -> dict[Any, Any]:
    """By class: number of intervals, microseconds in sum."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in intervals:
        found[row["class"]][0] += 1
        found[row["class"]][1] += row["duration"]
    return {name: tuple(sums) for name, sums in found.items()}


def keyed(rows: list[Any], keys: int) -> dict[Any, Any]:
    return {row[:keys]: row[keys] if len(row) == keys + 1 else row[keys:] for row in rows}


@pytest.mark.parametrize("seed", [1, 2])
def test_every_table_is_as_counted_line_by_line(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second log is taken for a large one: it is read by Spark's JSON scan."""
    if seed == 2:
        monkeypatch.setattr("controller.analysis.job.SMALL_BYTES", 0)
        assert spark_sessions.SMALL_BYTES > 0
    random_log(tmp_path / "logs", seed)
    lines = good_lines(tmp_path / "logs")
    monkeypatch.setattr(departures, "TOGETHER_US", TOGETHER_US)
    monkeypatch.setattr(departures, "FLAPPING_WINDOW_US", WINDOW_US)
    asked = Asked(slo=SLO, racks=RACKS)
    summary = run_report([tmp_path / "logs"], tmp_path / "out", progress=lambda _line: None, asked=asked)
    end_us = max(ts_us for ts_us, _ in lines)

    def table(name: str, *columns: str) -> list[Any]:
        frame = spark.read.parquet(f"{tmp_path}/out/tables/{name}")
        return [tuple(row) for row in frame.selectExpr(*columns).collect()]

    assert (summary.lines, summary.unread) == (480, 480 - len(lines))
    assert summary.unread > 0
    moved = ("kind", "role", "`from`", "`to`", "count", "lines")
    assert keyed(table("transitions", *moved), 4) == transitions(lines)
    assert keyed(table("leader_changes", "broker", "direction", "reason", "count"), 3) == leader_changes(
        lines
    )
    refused = ("error", "role", "node", "count", "unix_micros(first_ts)", "examples")
    assert keyed(table("rejects", *refused), 3) == rejects(lines)
    sent = (
        "broker",
        "request",
        "pushes",
        "partitions",
        "acks",
        "errors",
        "p50_us",
        "p95_us",
        "p99_us",
        "max_us",
    )
    assert keyed(table("pushes", *sent), 2) == pushes(lines)
    intervals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, duration in table("leaderless_intervals", "class", "duration_us"):
        intervals[name][0] += 1
        intervals[name][1] += duration
    found = plain_questions.intervals(lines, end_us)
    assert {name: tuple(sums) for name, sums in intervals.items()} == by_class(found)
    nodes = Counter((row["role"], row["node"]) for _, row in lines)
    assert keyed(table("input_nodes", "role", "node", "lines"), 2) == nodes
    assert end_us > ZERO_US
    questions_are_as_counted(table, lines, found, summary)


def questions_are_as_counted(
    table: Callable[..., list[Any]], lines: list[Line], found: list[dict[str, Any]], summary: ReportSummary
) -> None:
    first_us, end_us = (end(ts_us for ts_us, _ in lines) for end in (min, max))
    sums = ("dimension", "value", "outages", "open", "total_us", "detection_us", "detected", "repaired")
    by_value = plain_questions.by_dimension(found, RACKS)
    assert keyed(table("outages_by", *sums, "p50_us", "p95_us", "max_us"), 2) == by_value
    assert by_value["all", "all"][2] == summary.outage_us
    hours = table("outages_by_hour", f"unix_micros(hour_ts) div {HOUR_US}", "begun", "leaderless_us")
    assert keyed(hours, 1) == keyed([(at, *of) for at, of in plain_questions.by_hour(found).items()], 1)
    named = plain_questions.partitions(lines, found, first_us, end_us)
    told = ("leader_changes", "isr_changes", "outages", "leaderless_us", "longest_us", "open", "observed_us")
    assert keyed(table("partitions", "topic", "partition", *told), 2) == named
    judged = table("availability", "topic", "partitions", "outages", "availability", "budget_used")
    expected = plain_questions.availability(named, SLO)
    assert {row[0]: row[1:] for row in judged} == {
        topic: pytest.approx(row) for topic, row in expected.items()
    }
    assert summary.topics_below_slo == sum(
        row[2] < SLO for topic, row in expected.items() if topic is not None
    )

    left = plain_questions.departures(lines, found, TOGETHER_US)
    micros = [f"unix_micros({name})" for name in ("left_ts", "recorded_ts", "back_ts")]
    facts = ("to", "controlled", "away_us", "returned", "detection_us", "overlapping", "together")
    read = ("broker", *micros, *facts, "partitions", "leaderless_us")
    facts = ("to", "controlled", "away", "returned", "detection", "overlapping", "together")
    names = ("broker", "left", "recorded", "back", *facts, "partitions", "leaderless")
    assert sorted(table("broker_departures", *read), key=str) == sorted(
        (tuple(row[name] for name in names) for row in left), key=str
    )
    counts = ("departures", "controlled", "lost", "away_us", "longest_away_us", "most_lost")
    more = ("unix_micros(most_lost_ts)", "flapping", "partitions", "leaderless_us")
    stable = plain_questions.stability(left, WINDOW_US, departures.FLAPPING_LOSSES)
    assert {row[0]: row[1:] for row in table("broker_stability", "broker", *counts, *more)} == stable
    assert summary.flapping_brokers == sum(row[7] for row in stable.values())
    series = table("rolling_restarts", "together", "brokers", *counts[:2], "overlapping", "findings")
    assert {row[0]: row[1:] for row in series} == plain_questions.rolling_restarts(left)
    assert len(left) > 5
    assert series
    lasted = (
        "operation",
        "topic",
        "partition",
        "outcome",
        "waited_us",
        "took_us",
        "begun",
        "held_up",
        "reason",
    )
    assert sorted(table("operations", *lasted), key=str) == plain_questions.operations(lines, end_us)
