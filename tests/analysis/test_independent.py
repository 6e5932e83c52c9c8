"""Figures of the tables again by a straightforward program that reads the lines one by one, for logs made at random,
damaged lines among them."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from controller.analysis import job
from controller.analysis import lines as plain
from controller.analysis import session as spark_sessions
from controller.analysis.answers import Query, fetch
from controller.analysis.job import read_input, run_report
from controller.analysis.questions import departures
from controller.analysis.questions.asked import Asked
from controller.analysis.questions.outages import HOUR_US
from controller.analysis.tables import TABLES
from proto.statelog.schema import GONE, NEW, ONLINE
from tests.support.analysis import plain_questions
from tests.support.analysis.records import ZERO_US, record, text

pytestmark = pytest.mark.slow

Line = tuple[int, dict[str, Any]]
#: Short ones, as these logs are.
TOGETHER_US, WINDOW_US = 3_000_000, 10_000_000
SLO, RACKS = 50.0, {1: "a", 2: "b"}
#: Columns of tables that are compared, by one test; then those of the questions' tables.
COUNTED = {
    "transitions": ("kind", "role", "`from`", "`to`", "count", "lines"),
    "leader_changes": ("broker", "direction", "reason", "count"),
    "rejects": ("error", "role", "node", "count", "unix_micros(first_ts) as first_us", "examples"),
    "pushes": (
        *("broker", "request", "pushes", "partitions", "acks", "errors"),
        *("p50_us", "p95_us", "p99_us", "max_us"),
    ),
    "input_nodes": ("role", "node", "lines"),
}
QUESTIONS = {
    "leaderless_intervals": (
        *(
            "topic",
            "partition",
            "class",
            "unix_micros(start_ts) as start_us",
            "duration_us",
            "ended_by",
            "open",
        ),
        *("cause", "lost_leader"),
    ),
    "outages_by": (
        *("dimension", "value", "outages", "open", "total_us", "detection_us", "detected", "repaired"),
        *("p50_us", "p95_us", "max_us"),
    ),
    "outages_by_hour": (f"unix_micros(hour_ts) div {HOUR_US} as hour", "begun", "leaderless_us"),
    "partitions": (
        *("topic", "partition", "leader_changes", "isr_changes", "outages", "leaderless_us", "longest_us"),
        *("open", "observed_us"),
    ),
    "availability": ("topic", "partitions", "outages", "availability", "budget_used"),
    "broker_departures": (
        "broker",
        *(f"unix_micros({name}_ts) as {name}_us" for name in ("left", "recorded", "back")),
        *("to", "controlled", "away_us", "returned", "detection_us", "overlapping", "together"),
        *("partitions", "leaderless_us"),
    ),
    "broker_stability": (
        *("broker", "departures", "controlled", "lost", "away_us", "longest_away_us", "most_lost"),
        *("unix_micros(most_lost_ts) as most_lost_us", "flapping", "partitions", "leaderless_us"),
    ),
    "rolling_restarts": ("together", "brokers", "departures", "controlled", "overlapping", "findings"),
    "operations": (
        *("operation", "topic", "partition", "outcome", "waited_us", "took_us", "begun", "held_up", "reason"),
    ),
}


#: What may become of a line. The last ones are records as before, which only a second look tells.
DAMAGES: Sequence[Callable[[bytes], bytes]] = (
    lambda line: line[: len(line) // 2],
    lambda line: line + b" more",
    lambda line: line + line,
    lambda line: line.replace(b'"node":', b'"node":"x",'),
    lambda line: line.replace(b'"event_id":', b'"event_id":1.5,"other":'),
    lambda line: line.replace(b'"cause":"', b'"cause":"\xff\xfe'),
    lambda line: line.replace(b'"schema":1', b'"schema":99'),
    lambda line: line.replace(b'"role":', b'"rule":'),
    lambda _: b"",
    lambda _: bytes(range(128, 256)),
    lambda line: b"[" * 3000 + line,
    lambda line: b" " + line,
    lambda line: line + b"\r",
    lambda line: line.replace(b'"cause":"', b'"subject":"' + "é".encode() * 300 + b'","cause":"'),
)


def random_log(root: Path, chance: random.Random, lines_each: int, *, damaged: bool = True) -> None:
    """Two controllers and two brokers, every kind of record in any order, some lines ``damaged``."""
    for role, node in (("controller", 1), ("controller", 2), ("broker", 1), ("broker", 2)):
        rows, at = [], float(node)
        for _ in range(lines_each):
            at += chance.random()
            line = text(random_record(chance, role, node, at)).encode()
            if damaged and chance.random() < 0.08 and node == 1:
                line = chance.choice(DAMAGES)(line)
            rows.append(line)
        directory = root / f"{role}-{node}"
        directory.mkdir(parents=True)
        (directory / "state-change.jsonl").write_bytes(b"\n".join(rows) + b"\n")


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
    more = random_fields(chance, at, where, state)[kind]()
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
) -> dict[str, Callable[[], dict[str, Any]]]:
    """By kind of record, what one of it has."""
    return {
        "replica": lambda: {
            **where,
            "to": chance.choice(["leader", "follower"]),
            "count": chance.randrange(3),
        },
        "reject": lambda: {"error": chance.choice(["X", "Y"]), "reason": f"reason {at:.9f}"},
        "unchanged": lambda: {"to": "LeaderAndIsr"},
        "log": lambda: {"to": chance.choice(["dropped", "other"]), "count": chance.randrange(9)},
        "partition": lambda: {
            **where,
            "to": state,
            "old": chance.choice([GONE, "x"]),
            "cause": chance.choice(["BrokerChange", "TopicDeletion"]),
            "leader": chance.randrange(-1, 3),
            **({"silent_us": chance.randrange(5_000_000)} if chance.random() < 0.3 else {}),
        },
        "leader": lambda: {
            **where,
            "old": chance.choice(["-1", "1", "2"]),
            "to": chance.choice(["-1", "1", "2"]),
        },
        "isr": lambda: where,
        "push": lambda: {"replica": chance.randrange(2), "to": "StopReplica", "count": chance.randrange(5)},
        "ack": lambda: {
            "replica": chance.randrange(2),
            "to": "StopReplica",
            "duration_us": chance.randrange(50),
        },
        "failover": lambda: {
            "to": chance.choice(["election", "topics", "ready"]),
            "duration_us": chance.randrange(99),
        },
        "request": lambda: {"to": "CreateTopics", "principal": "User:a"},
        "broker": lambda: {
            "replica": chance.randrange(3),
            "old": chance.choice(["online", "offline"]),
            "to": chance.choice(
                ["offline", "offline", "bounced", "online", "online", "shutting_down", "modified", "found"]
            ),
            **({"silent_us": chance.randrange(5_000_000)} if chance.random() < 0.3 else {}),
        },
        "topic": lambda: {
            "topic": where["topic"],
            "old": chance.choice(["known", "deleting", "created"]),
            "to": chance.choice(
                ["deleting", "waiting for deletion", "ineligible for deletion", "deleted", "vanished"]
            ),
        },
        "reassignment": lambda: {
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


def told(tables: Mapping[str, DataFrame], columns: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
    """Columns of tables as tuples, by one job."""
    asked = {name: Query(tables[name].selectExpr(*given), [], 100_000) for name, given in columns.items()}
    return {name: [tuple(row.values()) for row in rows] for name, rows in fetch(asked).items()}


def shorter_times(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(departures, "TOGETHER_US", TOGETHER_US)
    patched.setattr(departures, "FLAPPING_WINDOW_US", WINDOW_US)


def keyed(rows: list[Any], keys: int) -> dict[Any, Any]:
    return {row[:keys]: row[keys] if len(row) == keys + 1 else row[keys:] for row in rows}


@pytest.mark.parametrize(
    "seed", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(3, marks=pytest.mark.long)]
)
def test_every_table_is_as_counted_line_by_line(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second log is taken for a large one, with more lines than its condensed records, and has a node's twice."""
    damaged = seed != 3
    if seed == 2:
        monkeypatch.setattr(spark_sessions, "SMALL_BYTES", 0)
        monkeypatch.setattr(job, "_FEW_ROWS", 400)
    random_log(tmp_path / "logs", random.Random(seed), lines_each=120, damaged=damaged)
    lines = good_lines(tmp_path / "logs")
    copied = [row for _, row in lines if (row["role"], row["node"]) == ("controller", 1)] if seed == 2 else []
    if copied:
        shutil.copytree(tmp_path / "logs" / "controller-1", tmp_path / "logs" / "later" / "controller-1")
    shorter_times(monkeypatch)
    asked = Asked(slo=SLO, racks=RACKS)
    summary = run_report([tmp_path / "logs"], tmp_path / "out", progress=lambda _line: None, asked=asked)
    names = {spec.name for spec in TABLES}
    written = {name: spark.read.parquet(f"{tmp_path}/out/tables/{name}") for name in names}
    table = told(written, {**COUNTED, **QUESTIONS})

    read = 600 if copied else 480
    assert (summary.lines, summary.copies) == (read, len(copied))
    assert summary.unread == read - len(lines) - len(copied)
    assert (summary.unread > 0) == damaged
    assert keyed(table["transitions"], 4) == transitions(lines)
    assert keyed(table["leader_changes"], 3) == leader_changes(lines)
    assert keyed(table["rejects"], 3) == rejects(lines)
    assert keyed(table["pushes"], 2) == pushes(lines)
    nodes = Counter((row["role"], row["node"]) for _, row in lines)
    assert keyed(table["input_nodes"], 2) == nodes
    assert max(ts_us for ts_us, _ in lines) > ZERO_US
    answers = questions_are_as_counted(table, lines)
    assert answers.outages["all", "all"][2] == summary.outage_us
    below = [topic for topic, row in answers.availability.items() if topic is not None and row[2] < SLO]
    assert summary.topics_below_slo == len(below)
    assert summary.flapping_brokers == sum(row[7] for row in answers.stability.values())
    assert len(table["broker_departures"]) > 5
    assert table["rolling_restarts"]


@pytest.mark.long
@settings(max_examples=4)
@given(chance=st.randoms(use_true_random=False))
def test_questions_are_answered_as_counted_whatever_the_log_has(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    root = tmp_path_factory.mktemp("log")
    random_log(root / "logs", chance, lines_each=25)
    with pytest.MonkeyPatch.context() as patched:
        shorter_times(patched)
        source = read_input(spark, [root / "logs"], f"file:{root}/staging", lambda _line: None)
        asked = replace(source, asked=Asked(slo=SLO, racks=RACKS))
        made: dict[str, DataFrame] = {}

        def table(name: str) -> DataFrame:
            if name not in made:
                built = next(spec for spec in TABLES if spec.name == name).build(asked, table)
                # Others are made from it.
                made[name] = built.persist() if name == "leaderless_intervals" else built
            return made[name]

        found = told({name: table(name) for name in QUESTIONS}, QUESTIONS)
    questions_are_as_counted(found, good_lines(root / "logs"))
    spark.catalog.clearCache()


@dataclass(frozen=True)
class Answers:
    """By plain loops."""

    outages: dict[Any, Any]
    availability: dict[Any, Any]
    stability: dict[int, Any]


def questions_are_as_counted(table: Mapping[str, list[Any]], lines: list[Line]) -> Answers:
    """In: `told` of QUESTIONS."""
    first_us, end_us = (end(ts_us for ts_us, _ in lines) for end in (min, max))
    found = plain_questions.intervals(lines, end_us)
    columns = ("topic", "partition", "class", "start", "duration", "ended_by", "open", "cause", "lost_leader")
    expected = [tuple(row[name] for name in columns) for row in found]
    assert sorted(table["leaderless_intervals"], key=str) == sorted(expected, key=str)
    by_value = plain_questions.by_dimension(found, RACKS)
    assert keyed(table["outages_by"], 2) == by_value
    hours = plain_questions.by_hour(found)
    assert keyed(table["outages_by_hour"], 1) == keyed([(at, *of) for at, of in hours.items()], 1)
    named = plain_questions.partitions(lines, found, first_us, end_us)
    assert keyed(table["partitions"], 2) == named
    available = plain_questions.availability(named, SLO)
    assert {row[0]: row[1:] for row in table["availability"]} == {
        topic: pytest.approx(row) for topic, row in available.items()
    }
    left = plain_questions.departures(lines, found, TOGETHER_US)
    facts = ("to", "controlled", "away", "returned", "detection", "overlapping", "together")
    names = ("broker", "left", "recorded", "back", *facts, "partitions", "leaderless")
    assert sorted(table["broker_departures"], key=str) == sorted(
        (tuple(row[name] for name in names) for row in left), key=str
    )
    stable = plain_questions.stability(left, WINDOW_US, departures.FLAPPING_LOSSES)
    assert {row[0]: row[1:] for row in table["broker_stability"]} == stable
    assert {row[0]: row[1:] for row in table["rolling_restarts"]} == plain_questions.rolling_restarts(left)
    assert sorted(table["operations"], key=str) == plain_questions.operations(lines, end_us)
    return Answers(by_value, available, stable)
