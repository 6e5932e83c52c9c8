"""The state at a moment: against the truth of generated lives, a program that reads line by line, and by hand."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from controller.analysis import lines as plain
from controller.analysis import open_logs
from controller.analysis.notebook.logs import Logs, When
from controller.analysis.travel.clocks import bounds_of, corrections_of
from controller.analysis.travel.differences import broker_differences, partition_differences
from controller.analysis.travel.job import _state
from controller.analysis.travel.moments import Cut, cut_at, parse_moment, shown
from controller.analysis.travel.state import partitions_expected, state_brokers, state_partitions
from controller.analysis.travel.terms import terms_of
from tests.analysis.conftest import Records, at_once, rows
from tests.support.analysis.records import record, text
from tests.support.analysis.travel_logs import Key, Life, State

pytestmark = pytest.mark.slow

Lines = defaultdict[Key, list[tuple[Any, dict[str, Any]]]]
FIELDS = ("leader", "leader_epoch", "isr", "partition_epoch", "replicas")
WHERE: dict[str, Any] = {"topic": "t", "partition": 0}
NONE, NEW, ONLINE, OFFLINE = "NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition"


def check(logs: Logs, wanted: dict[When, State]) -> None:
    """What is known is true, and of what is not the number is."""
    partitions = at_once({str(when): logs.state_at(when) for when in wanted})
    brokers = at_once({str(when): logs.brokers_at(when) for when in wanted})
    for when, true in wanted.items():
        found = {(row.topic, row.partition): row for row in partitions[str(when)]}
        known = {key for key, row in found.items() if row.status == "known"}
        for key in known:
            told = tuple(found[key][name] for name in FIELDS)
            replicas = true.partitions[key][4] if told[4] is not None or key[0] != "old" else None
            assert told == (*true.partitions[key][:4], replicas), (when, key)
        unknown = true.partitions.keys() - known
        assert {key[0] for key in unknown} <= {"old"}, when
        assert found.keys() - known <= unknown, when
        expected = partitions_expected(logs.records, logs.cut(when), logs.corrections)
        assert expected == len(true.partitions), when
        assert {row.broker for row in brokers[str(when)] if row.live} == true.live, when


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.long), 2])
def test_what_is_told_of_any_event_of_a_life_is_true(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    chosen = random.Random(seed).sample(life.states, 4)
    with open_logs(tmp_path) as logs:
        check(logs, {f"{epoch}:{event}": state for epoch, event, _, state in chosen})


@pytest.mark.parametrize("skew_us", [0, pytest.param(3_600_000_000, marks=pytest.mark.long), -3_600_000_000])
def test_a_clock_that_is_wrong_does_not_mix_epochs(spark: SparkSession, tmp_path: Path, skew_us: int) -> None:
    """Of controller 2. The order of epochs holds, and what it proves of the clock corrects the times nearly."""
    life = Life(tmp_path, 9, {2: skew_us})
    with open_logs(tmp_path) as logs:
        assert [term.epoch for term in logs.terms] == list(range(1, life.state.epoch + 1))
        apart = logs.corrections["controller", 2] - logs.corrections["controller", 1]
        # Between a controller's last decision and the next one's first pass some seconds.
        assert -10_000_000 < apart + skew_us < 10_000_000
        check(logs, {f"{epoch}:{event}": state for epoch, event, _, state in life.states[-1:]})
        if skew_us == 0:
            check(logs, {shown(now_us): state for _, _, now_us, state in life.states[5::12]})


def replay(root: Path, epoch: int, event: int) -> dict[Key, Any]:
    """Line by line, in the order of epochs and events: status, leader, leader epoch, ISR, partition epoch, replicas."""
    past: Lines = defaultdict(list)
    later: Lines = defaultdict(list)
    for number, (ts_us, row) in enumerate(plain.read(plain.find([root]), lambda _bad: None)):
        decided = row["role"] == "controller" and row["kind"] in (
            "partition",
            "leader",
            "isr",
            "reassignment",
        )
        obeyed = (
            row["role"] == "broker"
            and row["kind"] == "replica"
            and row["to"] in ("leader", "follower")
            and row["event_id"] > 0
            and "partition_epoch" in row
            and "reason" not in row
        )
        if decided or obeyed:
            place = (row["controller_epoch"], row["event_id"])
            order = (*place, row.get("partition_epoch", -1), ts_us, number)
            (past if place <= (epoch, event) else later)[row["topic"], row["partition"]].append((order, row))
    found: dict[Key, Any] = {}
    for key in past.keys() | later.keys():
        state, replicas, machine, there = None, None, None, False
        for _, row in sorted(past[key], key=lambda one: one[0]):
            of_machine = row["kind"] == "partition" and row["role"] == "controller"
            if of_machine and row["to"] == NONE:
                state, replicas, machine, there = None, None, None, False
                continue
            there = True
            machine = row["to"] if of_machine else machine
            if "leader" in row:
                state = tuple(row.get(name) for name in FIELDS[:4])
            replicas = row.get("replicas", replicas)
        if there:
            known = state is not None or machine == NEW
            found[key] = ("known", *(state or (None,) * 4), replicas) if known else ("unknown", *(None,) * 5)
        elif not past[key]:
            first = min((one for one in later[key] if one[1]["role"] == "controller"), default=None)
            created = first and first[1]["kind"] == "partition" and first[1]["to"] == NEW
            if first and (not created or first[1]["cause"] == "ControllerFailover"):
                found[key] = ("unknown", *(None,) * 5)
    return found


def chaos(root: Path, seed: int) -> None:
    """Records of any kind, epoch, event and clock, of two controllers and a broker, some lines damaged."""
    chance = random.Random(seed)
    for role, node in (("controller", 1), ("controller", 2), ("broker", 1)):
        written = []
        for number in range(80):
            kind = chance.choice(["partition", "leader", "isr", "reassignment", "replica"])
            told: dict[str, Any] = {"topic": chance.choice("abcdefgh"), "partition": chance.randrange(2)}
            if chance.random() < 0.7:
                told |= {"leader": chance.randrange(-1, 3), "leader_epoch": chance.randrange(9)}
                told |= {"isr": chance.sample([1, 2, 3], 2), "partition_epoch": chance.randrange(20)}
            if chance.random() < 0.3:
                told["replicas"] = chance.sample([1, 2, 3], 3)
            told["old"] = "1" if kind == "leader" else NONE
            told["to"] = {"leader": "2", "replica": chance.choice(["leader", "deleted"])}.get(
                kind, chance.choice([NEW, NONE, ONLINE, OFFLINE])
            )
            told["cause"] = chance.choice(["ControllerFailover", "BrokerChange"])
            told |= {"controller_epoch": chance.randrange(1, 4), "event_id": chance.randrange(30)}
            line = text(record(kind, chance.random() * 3000 + number / 1e3, role=role, node=node, **told))
            written.append(line if chance.random() < 0.95 else line[: len(line) // 2])
        directory = root / f"{role}-{node}"
        directory.mkdir(parents=True)
        (directory / "state-change.jsonl").write_text("\n".join(written) + "\n")


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.long), 2])
def test_every_state_is_as_a_program_finds_it_that_reads_line_by_line(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chaos(tmp_path, seed)
    moments = [(1, 12), (2, 3), (3, 30)]
    with open_logs(tmp_path) as logs:
        tables = at_once({f"{epoch}:{event}": logs.state_at(f"{epoch}:{event}") for epoch, event in moments})
    for epoch, event in moments:
        found = {
            (row.topic, row.partition): (row.status, *(row[name] for name in FIELDS))
            for row in tables[f"{epoch}:{event}"]
        }
        assert found == replay(tmp_path, epoch, event)
        assert {row[0] for row in found.values()} == {"known", "unknown"} or event == 30


def cuts(given: DataFrame, *moments: str) -> list[Cut]:
    terms = terms_of(given)
    corrections = corrections_of(bounds_of(given, terms))
    return [cut_at(parse_moment(when), terms, corrections) for when in moments]


def partition(at: float, to: str, old: str, event: int, **fields: Any) -> dict[str, Any]:
    return record("partition", at, **{**WHERE, "old": old, "to": to, "event_id": event, **fields})


def state(leader: int, epoch: int, isr: list[int], version: int) -> dict[str, Any]:
    return {"leader": leader, "leader_epoch": epoch, "isr": isr, "partition_epoch": version}


def test_a_topic_that_was_deleted_or_removed_by_hand_is_not_there_until_it_is_created_again(
    records: Records,
) -> None:
    given = records(
        [
            partition(1, NEW, NONE, 2, replicas=[1, 2]),
            partition(2, ONLINE, NEW, 2, **state(1, 0, [1, 2], 0)),
            record("topic", 3, topic="t", to="vanished", event_id=3),
            partition(4, NEW, NONE, 4, replicas=[2]),
            partition(5, ONLINE, NEW, 5, **state(2, 0, [2], 0)),
            partition(6, NONE, OFFLINE, 6, **state(-1, 1, [2], 1)),
        ]
    )
    columns = ("status", "state", "leader", "isr", "replicas")
    moments = ("1:1", "1:2", "1:3", "1:4", "1:5", "1:6")
    tables = {
        when: state_partitions(given, cut, {})
        for when, cut in zip(moments, cuts(given, *moments), strict=True)
    }
    found = {
        when: [tuple(row[name] for name in columns) for row in of] for when, of in at_once(tables).items()
    }
    assert found == {
        "1:1": [],
        "1:2": [("known", ONLINE, 1, [1, 2], [1, 2])],
        "1:3": [],
        "1:4": [("known", NEW, None, None, [2])],
        "1:5": [("known", ONLINE, 2, [2], [2])],
        "1:6": [],
    }


def test_a_write_whose_record_was_lost_with_its_controller_is_known_from_the_broker(records: Records) -> None:
    told: dict[str, Any] = {"role": "broker", "node": 2, "replica": 2, "old": "follower", "to": "leader"}
    given = records(
        [
            partition(1, ONLINE, OFFLINE, 2, **state(1, 4, [1, 2], 9)),
            record("replica", 2, event_id=3, **WHERE, **told, **state(2, 5, [2], 10)),
            record("replica", 3, event_id=3, **WHERE, **{**told, "reason": "older"}, **state(9, 9, [9], 11)),
            record("isr", 4, event_id=4, cause="Why", **WHERE, **state(2, 5, [2, 1], 11)),
            record("replica", 5, event_id=4, **WHERE, **told, **state(2, 5, [2, 1], 11)),
        ]
    )
    before, lost, recorded = (state_partitions(given, cut, {}) for cut in cuts(given, "1:2", "1:3", "1:4"))
    # Where the controller's own record is there, that one tells why.
    assert rows(recorded, "isr", "role", "cause") == [([2, 1], "controller", "Why")]
    assert rows(lost, "leader", "leader_epoch", "isr", "role", "replicas") == [(2, 5, [2], "broker", None)]
    assert rows(before, "leader", "role") == [(1, "controller")]


def test_a_creation_whose_record_was_lost_with_its_controller_is_known_from_the_broker(
    records: Records,
) -> None:
    told: dict[str, Any] = {"role": "broker", "node": 1, "replica": 1, "old": "none", "to": "leader"}
    given = records(
        [
            partition(1, NEW, NONE, 2, replicas=[1, 2]),
            record("replica", 2, event_id=3, **WHERE, **told, **state(1, 0, [1, 2], 0)),
            # Somebody deletes the state, and the next controller begins anew.
            partition(4, NEW, NONE, 5, cause="ControllerFailover"),
        ]
    )
    moments = cuts(given, "1:2", "1:3", "1:5")
    found = [rows(state_partitions(given, cut, {}), "state", "leader") for cut in moments]
    assert found == [[(NEW, None)], [(ONLINE, 1)], [(NEW, 1)]]


def test_a_broker_that_a_new_controller_does_not_find_is_gone(records: Records) -> None:
    given = records(
        [
            record("broker", 1, replica=1, to="found"),
            record("broker", 1, replica=2, to="found"),
            record("failover", 2, to="brokers", count=2),
            record("failover", 2, to="ready"),
            record("broker", 3, replica=3, to="online", event_id=2),
            record("broker", 3, replica=1, to="shutting_down", event_id=2),
            record("broker", 4, replica=1, to="offline", event_id=3),
            record("broker", 5, replica=3, to="found", node=2, controller_epoch=2),
            record("failover", 6, to="brokers", count=1, node=2, controller_epoch=2),
            record("failover", 6, to="ready", node=2, controller_epoch=2),
            record("failover", 7, to="brokers", count=1, controller_epoch=3),
            record("failover", 7, to="ready", controller_epoch=3),
        ]
    )
    columns = ("broker", "live", "told")
    first, later, third = (state_brokers(given, cut, {}) for cut in cuts(given, "1:2", "2", "3"))
    assert rows(first, *columns) == [(1, True, "found"), (2, True, "found"), (3, True, "online")]
    assert rows(later, *columns) == [(1, False, "offline"), (2, False, "not found"), (3, True, "found")]
    # The third controller counted a broker, and names none.
    assert rows(third, *columns) == [(1, False, "offline"), (2, None, "not found"), (3, None, "not found")]
    assert rows(broker_differences(first, third), "broker", "before", "after") == [(1, "true", "false")]
    logs: Any = SimpleNamespace(records=given, corrections={})
    (cut,) = cuts(given, "3")
    told = _state(logs, cut, state_partitions(given, cut, {}), third)
    assert [told[f"{name}_brokers"] for name in ("live", "gone", "unknown")] == [[], [1], [2, 3]]
    changed = broker_differences(first, later)
    assert rows(changed, "broker", "field", "before", "after") == [
        (1, "live", "true", "false"),
        (2, "live", "true", "false"),
    ]


def test_differences_name_what_changed_and_why_and_no_more(records: Records) -> None:
    other: dict[str, Any] = {"topic": "u", "partition": 7}
    given = records(
        [
            partition(1, ONLINE, NEW, 2, **state(1, 0, [1, 2], 0), replicas=[1, 2]),
            record(
                "isr", 2, event_id=3, cause="AlterPartition", reason="why", **WHERE, **state(1, 0, [1], 1)
            ),
            record("leader", 3, event_id=3, old="1", to="2", **other, **state(2, 3, [2], 4)),
        ]
    )
    former, later = (state_partitions(given, cut, {}) for cut in cuts(given, "1:2", "1:3"))
    found = partition_differences(former, later)
    columns = ("topic", "partition", "field", "before", "after", "cause", "reason", "event_id")
    assert rows(found, *columns) == [
        ("t", 0, "isr", "[1, 2]", "[1]", "AlterPartition", "why", 3),
        ("u", 7, "status", "unknown", "known", "Test", None, 3),
    ]
    assert rows(partition_differences(later, later), *columns) == []
