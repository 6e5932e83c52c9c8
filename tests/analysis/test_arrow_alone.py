"""What Arrow makes of log files, without Spark, beside a program that reads the lines one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from controller.analysis import arrow_intervals
from controller.analysis.arrow_intervals import LocalCommits
from controller.analysis.intake import arrow_commits, conversion, screening
from controller.analysis.intake.arrow_condensing import ready_times
from controller.analysis.intake.conversion import Converted
from controller.analysis.intake.files import list_local
from controller.analysis.questions.outages import HOUR_US
from proto.statelog.schema import ONLINE
from tests.analysis import test_independent as plain
from tests.support.analysis import plain_questions
from tests.support.analysis.records import record, text

RACKS = {1: "a", 2: "b"}
BUCKET_US = 2_000_000
Rows = list[dict[str, Any]]
#: No reader takes these for records.
BAD = (
    lambda line: line[: len(line) // 2],
    lambda line: line.replace(b'"schema":1', b'"schema":99'),
    lambda line: line.replace(b'"to":', b'"onto":'),
)


def converted_in(logs: Path, work: Path, good: int) -> list[Converted]:
    """``good``: how many of all lines are records."""
    converted, usual = [], 0
    for number, file in enumerate(list_local([logs])):
        check, one = conversion.convert(file.shown, file.path, f"{work}/{number}.parquet", complete=True)
        assert one is not None
        parts = [one.records] if one.events is None else [one.records, one.events]
        numbers = [n for part in parts for n in pyarrow.parquet.read_table(part)["line"].to_pylist()]
        assert sorted(numbers) == list(range(check.lines))
        usual += check.lines - one.odd
        converted.append(one)
    assert usual == good
    return converted


def made(converted: Sequence[Converted], work: Path, first_us: int, last_us: int) -> dict[str, Rows]:
    names = sorted(one.name for one in converted)
    commits = arrow_commits.write_commits(names, [one.records for one in converted], f"{work}/commits")
    ready = ready_times([one.condensed for one in converted if one.condensed is not None])
    tables = arrow_intervals.make(
        LocalCommits(commits, ready, f"{work}/made"), first_us, last_us, RACKS, BUCKET_US
    )
    return {
        name: [row for path in table.paths for row in pyarrow.parquet.read_table(path).to_pylist()]
        for name, table in tables.items()
    }


def us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def measures(found: Rows, *keys: str) -> dict[Any, Any]:
    """Of intervals with equal ``keys``: how many, in all, the middle one, the longest, those that are open."""
    groups: dict[Any, Rows] = defaultdict(list)
    for row in found:
        groups[tuple(row[key] for key in keys)].append(row)
    measured = {}
    for key, rows in groups.items():
        lasting = sorted(row["duration"] for row in rows)
        middle = lasting[(len(rows) + 1) // 2 - 1]
        measured[key] = (len(rows), sum(lasting), middle, lasting[-1], sum(row["open"] for row in rows))
    return measured


def tabled(rows: Rows, *keys: str) -> dict[Any, Any]:
    names = ("intervals", "total_us", "p50_us", "longest_us", "open")
    return {tuple(row[key] for key in keys): tuple(row[name] for name in names) for row in rows}


def intervals_are_as_counted(tables: dict[str, Rows], found: Rows) -> None:
    names = ("topic", "partition", "class", "ended_by", "open", "cause", "controller_epoch", "event_id")

    def told(rows: Rows, start: Any, *more: str) -> list[Any]:
        return sorted(([row[name] for name in (*names, *more)] + [start(row)] for row in rows), key=str)

    shown = told(
        tables["leaderless_intervals"],
        lambda row: us(row["start_ts"]),
        *("duration_us", "lost_leader", "detection_us"),
    )
    assert shown == told(found, lambda row: row["start"], "duration", "lost_leader", "detection")
    assert tabled(tables["leaderless_by_partition"], "class", "topic", "partition") == measures(
        found, "class", "topic", "partition"
    )
    assert tabled(tables["leaderless_by_cause"], "class", "cause") == measures(found, "class", "cause")
    partitions = defaultdict[Any, set[Any]](set)
    for row in found:
        partitions[row["class"], row["cause"]].add((row["topic"], row["partition"]))
    assert {(row["class"], row["cause"]): row["partitions"] for row in tables["leaderless_by_cause"]} == {
        key: len(named) for key, named in partitions.items()
    }
    over_time = {
        (row["class"], us(row["bucket_ts"]) // BUCKET_US): row["intervals"]
        for row in tables["leaderless_over_time"]
    }
    for (name, bucket), count in over_time.items():
        spans = [(row["start"], max(row["start"], row["end"])) for row in found if row["class"] == name]
        assert count == sum(begin // BUCKET_US <= bucket <= end // BUCKET_US for begin, end in spans)
    caused = defaultdict[Any, list[int]](list)
    for row in plain_questions.outages(found):
        if row["lost_leader"] is not None:
            caused[row["lost_leader"], row["controller_epoch"], row["event_id"]].append(row["duration"])
    keys = ("broker", "controller_epoch", "event_id")
    assert {
        tuple(row[key] for key in keys): (row["partitions"], row["leaderless_us"]) for row in tables["caused"]
    } == {key: (len(each), sum(each)) for key, each in caused.items()}


def of_one_after_the_other(root: Path) -> None:
    """Topics of which each comes when the one before has its outage behind it, and two failovers after them all."""
    rows = []
    for n in range(6):
        where: dict[str, Any] = {"topic": f"t{n}", "partition": n, "event_id": n + 2, "node": 1}
        for place, to in enumerate(("OfflinePartition", ONLINE, "OfflinePartition")[: 3 - n % 2 * 2]):
            rows.append(record("partition", 7.0 * n + place, to=to, old="x", leader=n, **where))
        rows += [record("isr", 7.0 * n + 3 + place / 10, **where) for place in range(5)]
    rows += [
        record("failover", 50.0 + epoch, to="ready", duration_us=5, controller_epoch=epoch)
        for epoch in (2, 3)
    ]
    # What a broker says of a partition is no decision.
    of_broker: dict[str, Any] = {"role": "broker", "node": 9, "topic": "t0", "partition": 0, "event_id": 99}
    rows.append(record("partition", 58.0, to=ONLINE, old="x", leader=1, **of_broker))
    root.mkdir()
    (root / "state-change.jsonl").write_text("".join(text(row) + "\n" for row in rows))


@pytest.mark.parametrize(("seed", "small"), [(1, False), (2, True), (None, True)])
def test_tables_are_as_counted_line_by_line(
    seed: int | None, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``small``: blocks and buckets of a few lines."""
    if small:
        monkeypatch.setattr(arrow_commits, "_BUCKET_ROWS", 60)
        monkeypatch.setattr(arrow_commits, "_BATCH_ROWS", 7)
        monkeypatch.setattr(conversion, "_GROUP_ROWS", 10)
        monkeypatch.setattr(screening, "_CHUNK_BYTES", 2_000)
    monkeypatch.setattr(plain, "DAMAGES", BAD)
    if seed is None:
        of_one_after_the_other(tmp_path / "logs")
    else:
        plain.random_log(tmp_path / "logs", random.Random(seed), lines_each=60)
    lines = plain.good_lines(tmp_path / "logs")
    first_us, last_us = min(at for at, _ in lines), max(at for at, _ in lines)
    tables = made(converted_in(tmp_path / "logs", tmp_path, len(lines)), tmp_path, first_us, last_us)
    found = plain_questions.intervals(lines, last_us)
    intervals_are_as_counted(tables, found)
    names = (
        "outages",
        "open",
        "total_us",
        "detection_us",
        "detected",
        "repaired",
        "p50_us",
        "p95_us",
        "max_us",
    )
    assert {
        (row["dimension"], row["value"]): tuple(row[name] for name in names) for row in tables["outages_by"]
    } == plain_questions.by_dimension(found, RACKS)
    assert {
        us(row["hour_ts"]) // HOUR_US: (row["begun"], row["leaderless_us"])
        for row in tables["outages_by_hour"]
    } == plain_questions.by_hour(found)
    facts = ("leader_changes", "isr_changes", "outages", "leaderless_us", "longest_us", "open", "observed_us")
    assert {
        (row["topic"], row["partition"]): tuple(row[name] for name in facts) for row in tables["partitions"]
    } == plain_questions.partitions(lines, found, first_us, last_us)
