"""Figures of the tables again by a straightforward program that reads the lines one by one, for logs made at random,
damaged lines among them."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from controller.analysis import lines as plain
from controller.analysis import session as spark_sessions
from controller.analysis.job import run_report
from proto.statelog.schema import GONE, NEW, ONLINE
from tests.support.analysis.records import ZERO_US, record, text

pytestmark = pytest.mark.slow

Line = tuple[int, dict[str, Any]]


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
        ]
    kind = chance.choice(kinds)
    where = {"topic": chance.choice(["a", "5"]), "partition": chance.randrange(3)}
    state = chance.choice([ONLINE, NEW, GONE, "OfflinePartition"])
    fields: dict[str, dict[str, Any]] = {
        "replica": {**where, "to": chance.choice(["leader", "follower"]), "count": chance.randrange(3)},
        "reject": {"error": chance.choice(["X", "Y"]), "reason": f"reason {at:.9f}"},
        "unchanged": {"to": "LeaderAndIsr"},
        "log": {"to": chance.choice(["dropped", "other"]), "count": chance.randrange(9)},
        "partition": {
            **where,
            "to": state,
            "old": "x",
            "cause": chance.choice(["BrokerChange", "TopicDeletion"]),
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
    }
    more = fields[kind]
    if kind == "ack" and chance.random() < 0.2:
        more = {**more, "error": "X", "reason": f"reason {at:.9f}"}
    told = {"node": node, "role": role, "controller_epoch": epoch, "event_id": chance.randrange(40)}
    return record(kind, at, **{"cause": "Test", **told, **more})


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


def outages(lines: list[Line], end_us: int) -> dict[Any, Any]:
    """By class: number of intervals, microseconds in sum. No failover in these logs ends one by its silence."""
    moves = defaultdict(list)
    for number, (ts_us, row) in enumerate(lines):
        if row["kind"] == "partition" and row["role"] == "controller":
            order = (row["controller_epoch"], row["event_id"], ts_us, number)
            moves[row["topic"], row["partition"]].append((order, ts_us, row))
    ready: dict[int, int] = {}
    for ts_us, row in lines:
        if row["kind"] == "failover" and row["to"] == "ready":
            epoch = row["controller_epoch"]
            ready[epoch] = min(ready.get(epoch, ts_us), ts_us)
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for rows in moves.values():
        rows.sort(key=lambda move: move[0])
        edges: list[tuple[int, dict[str, Any], int]] = []
        worst = 0
        for _, ts_us, row in rows:
            state = {ONLINE: 0, GONE: 0, NEW: 1}.get(row["to"], 2)
            now = 0 if state == 0 else max(worst, state)
            if now != worst:
                edges.append((ts_us, row, now))
            worst = now
        last_epoch = max(row["controller_epoch"] for _, _, row in rows)
        for place, (ts_us, row, state) in enumerate(edges):
            if state == 0:
                continue
            following = edges[place + 1] if place + 1 < len(edges) else None
            later = sorted(epoch for epoch in ready if epoch > last_epoch)
            until = following[0] if following else ready[later[0]] if later else end_us
            same = following and all(
                following[1][name] == row[name] for name in ("controller_epoch", "event_id")
            )
            deleted = (same and following and following[1]["to"] == GONE) or "delet" in row["cause"].lower()
            name = "creation" if state == 1 else "deletion" if deleted else "outage"
            found[name][0] += 1
            found[name][1] += max(0, until - ts_us + row.get("silent_us", 0))
    return {name: tuple(sums) for name, sums in found.items()}


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
    summary = run_report([tmp_path / "logs"], tmp_path / "out", progress=lambda _line: None)
    end_us = max(ts_us for ts_us, _ in lines)

    def table(name: str, *columns: str) -> list[Any]:
        frame = spark.read.parquet(f"{tmp_path}/out/tables/{name}")
        return [tuple(row) for row in frame.selectExpr(*columns).collect()]

    def keyed(rows: list[Any], keys: int) -> dict[Any, Any]:
        return {row[:keys]: row[keys] if len(row) == keys + 1 else row[keys:] for row in rows}

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
    assert {name: tuple(sums) for name, sums in intervals.items()} == outages(lines, end_us)
    nodes = Counter((row["role"], row["node"]) for _, row in lines)
    assert keyed(table("input_nodes", "role", "node", "lines"), 2) == nodes
    assert end_us > ZERO_US
