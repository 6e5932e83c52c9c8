"""What is remembered of the log: bounded, filtered, and with the values of its time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import LeaderAndIsr, Partition, PartitionState, ReplicaState, Topic
from controller.core.records import (
    AuditFinding,
    BrokerChange,
    EntityAltered,
    LeadershipChange,
    LogBatch,
    PartitionTransition,
    PushAcknowledged,
    ReassignmentStep,
    Rejection,
    ReplicaTransition,
    StateRecord,
)
from controller.runtime.observe import history as module
from controller.runtime.observe import history_filter
from controller.runtime.observe.history import About, Journal, Recent
from controller.runtime.observe.history_filter import Filter
from proto.statelog.writer import StateLogWriter

EVERYTHING = Filter()
ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE
BEFORE, AFTER = LeaderAndIsr(1, 4, (1, 2, 3), 9, 7), LeaderAndIsr(2, 5, (2, 3), 10, 7)


def partition(number: int, topic: str = "orders") -> Partition:
    return Partition(Topic(topic), number, (1, 2, 3))


def batch(*records: StateRecord, event: int = 12, cause: str = "BrokerChange") -> LogBatch:
    return LogBatch(records, "why", cause, event)


def acks(first: int, count: int) -> LogBatch:
    """Numbered by their counts."""
    return LogBatch([PushAcknowledged(5, "StopReplica", first + n, 1) for n in range(count)])


def remembered(recent: Recent, wanted: Filter = EVERYTHING) -> list[dict[str, Any]]:
    """Everything remembered that passes, oldest first."""
    lines = [line for portion in recent.backwards(wanted) for line in portion]
    return [json.loads(line) for line in reversed(lines)]


def filled() -> Recent:
    recent = Recent(1, 1000)
    recent.add(batch(LeadershipChange(partition(3), BEFORE, AFTER)), 7, 1_000_000)
    recent.add(batch(PartitionTransition(partition(4), ONLINE, OFFLINE, BEFORE), event=13), 7, 2_000_000)
    recent.add(
        batch(ReplicaTransition(partition(3, "bills"), 4, ReplicaState.ONLINE, ReplicaState.OFFLINE)),
        8,
        3_000_000,
    )
    recent.add(batch(Rejection("FENCED_WRITE", "newer"), event=14), 8, 4_000_000)
    recent.add(acks(1, 1), 8, 5_000_000)
    return recent


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        (Filter(), ["leader", "isr", "partition", "replica", "reject", "ack"]),
        (Filter(topic="orders"), ["leader", "isr", "partition"]),
        (Filter(topic="orders", partition=4), ["partition"]),
        (Filter(topic="orders", partition=0), []),
        (Filter(topic="nobody"), []),
        (Filter(controller_epoch=8), ["replica", "reject", "ack"]),
        (Filter(kinds=frozenset({"isr", "ack"})), ["isr", "ack"]),
        (Filter(brokers=frozenset({1})), ["leader", "isr", "partition"]),
        (Filter(brokers=frozenset({3})), ["leader", "isr", "partition"]),
        (Filter(brokers=frozenset({4, 5})), ["replica", "ack"]),
        (Filter(since_us=2_000_000, until_us=4_000_000), ["partition", "replica"]),
        (Filter(topic="orders", brokers=frozenset({1}), kinds=frozenset({"leader"})), ["leader"]),
    ],
)
def test_filters(wanted: Filter, kinds: list[str]) -> None:
    assert [record["kind"] for record in remembered(filled(), wanted)] == kinds


@pytest.mark.parametrize("number", [0, 1])
def test_each_partition_has_its_own_records(number: int) -> None:
    wanted = Filter(topic="orders", partition=number)
    lines = [{"kind": "leader", "topic": "orders", "partition": n} for n in range(2)]
    assert [line["partition"] for line in lines if wanted.passes(line)] == [number]
    assert [n for n in range(2) if wanted.names("orders", n)] == [number]


def test_records_are_the_log_s_own_lines(tmp_path: Path) -> None:
    writer, recent = StateLogWriter(tmp_path, "controller", 3), Recent(3, 1000)
    journal = Journal(writer, recent)
    journal.record(batch(LeadershipChange(partition(3), BEFORE, AFTER)), 7)
    journal.record(batch(BrokerChange(1, "offline")), 7)
    writer.close()
    lines = (tmp_path / "state-change.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert [line for portion in recent.backwards(Filter()) for line in portion] == lines[::-1]


def test_values_are_those_of_the_time_also_after_the_term() -> None:
    recent, changing = Recent(1, 1000), partition(3)
    changing.leadership, changing.state = BEFORE, OFFLINE
    recent.add(batch(PartitionTransition(changing, ONLINE, OFFLINE, changing.leadership)), 7, 1)
    first = remembered(recent)
    changing.leadership, changing.state = AFTER, ONLINE
    changing.assign((4, 5))
    assert remembered(recent) == first
    assert (first[0]["leader"], first[0]["to"]) == (1, "OfflinePartition")
    about = recent.last_about("orders", 3)
    recent.end_term()
    assert remembered(recent) == first
    assert recent.last_about("orders", 3) == about
    kept = [record for entry in recent._entries.values() for record in entry.batch.records]
    assert not any(isinstance(cell, Partition) for r in kept for cell in msgspec.structs.astuple(r))
    recent.end_term()
    assert remembered(recent) == first


@pytest.mark.parametrize("rows", [1, 7, 1500])
def test_never_more_than_the_limit_and_always_the_newest(rows: int) -> None:
    recent, added = Recent(1, 1000), 0
    while added < 5000:
        recent.add(acks(added, rows), 7, 1)
        added += rows
    counts = [record["count"] for record in remembered(recent)]
    assert counts == list(range(added - len(counts), added))
    assert 1000 - rows < len(counts) <= 1000
    assert recent.forgotten == added - len(counts)


def test_changes_of_leadership_count_as_the_two_records_they_may_become() -> None:
    recent = Recent(1, 1000)
    recent.add(batch(*(LeadershipChange(partition(n), BEFORE, AFTER) for n in range(3000))), 7, 1)
    assert [(r["kind"], r["partition"]) for r in remembered(recent)][:2] == [("leader", 2500), ("isr", 2500)]
    assert (len(remembered(recent)), recent.forgotten) == (1000, 5000)
    recent.add(acks(0, 1), 7, 1)
    assert [r["kind"] for r in remembered(recent)] == ["ack"]


def test_the_newest_change_of_a_partition() -> None:
    recent = Recent(1, 1000)
    assert recent.last_about("orders", 3) is None
    recent.add(
        batch(LeadershipChange(partition(3), BEFORE, AFTER), LeadershipChange(partition(4), None, BEFORE)),
        7,
        50,
    )
    recent.add(
        batch(ReplicaTransition(partition(3), 4, ReplicaState.ONLINE, ReplicaState.OFFLINE), event=20), 7, 60
    )
    recent.add(
        batch(PartitionTransition(partition(3, "bills"), ONLINE, OFFLINE, None), event=21, cause="X"), 8, 70
    )
    assert recent.last_about("orders", 3) == About(12, "BrokerChange", 7, 50, 10)
    assert recent.last_about("orders", 4) == About(12, "BrokerChange", 7, 50, 9)
    assert recent.last_about("bills", 3) == About(21, "X", 8, 70, -1)
    assert recent.last_about("orders", 5) is None
    newest = LeaderAndIsr(5, 8, (5,), 99, 7)
    recent.add(
        batch(LeadershipChange(partition(3), BEFORE, AFTER), LeadershipChange(partition(3), AFTER, newest)),
        8,
        80,
    )
    assert recent.last_about("orders", 3) == About(12, "BrokerChange", 8, 80, 99)


# --- following -----------------------------------------------------------------------------------------------


def counts(lines: list[str]) -> list[int]:
    return [json.loads(line)["count"] for line in lines]


def test_the_batches_of_one_epoch_newest_first_whatever_came_since() -> None:
    recent = Recent(1, 1000)
    for epoch, event in ((6, 1), (7, 1), (7, 2), (8, 1)):
        recent.add(batch(Rejection("CONFLICT", "x"), event=event), epoch, 1)
    found = {epoch: [e.batch.event_id for e in recent.entries(epoch)] for epoch in (5, 6, 7, 8)}
    assert found == {5: [], 6: [1], 7: [2, 1], 8: [1]}


def test_a_follower_sees_what_comes_after_it_or_all_of_an_epoch() -> None:
    recent = filled()
    now, epoch = recent.follow(Filter()), recent.follow(Filter(), since_epoch=8)
    assert now.take() == ([], 0)
    recent.add(batch(EntityAltered("topics/t", 1)), 8, 6_000_000)
    kinds = [[json.loads(line)["kind"] for line in follower.take()[0]] for follower in (now, epoch)]
    assert kinds == [["config"], ["replica", "reject", "ack", "config"]]
    assert not now.behind
    assert now.take() == ([], 0)


def test_who_follows_from_now_on_has_missed_nothing_of_before() -> None:
    recent = Recent(1, 1000)
    recent.add(acks(0, 5), 7, 1)
    follower = recent.follow(Filter())
    recent.add(acks(5, 2), 7, 1)
    lines, missed = follower.take()
    assert (counts(lines), missed) == ([5, 6], 0)


@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 4)), min_size=1, max_size=12))
def test_every_record_is_seen_once_or_counted_as_missed(steps: list[tuple[int, int]]) -> None:
    """Batches of any size, and a reader that takes now and then."""
    recent = Recent(1, 1000)
    follower = recent.follow(Filter())
    added, seen, missed = 0, list[int](), 0
    for rows, takes in steps:
        recent.add(acks(added, rows), 7, 1)
        added += rows
        for _ in range(takes):
            lines, lost = follower.take()
            assert len(lines) <= module.RECORDS_AT_ONCE
            seen, missed = seen + counts(lines), missed + lost
    while follower.behind:
        lines, lost = follower.take()
        seen, missed = seen + counts(lines), missed + lost
    assert seen == sorted(set(seen))
    assert len(seen) + missed == added
    assert seen[-1] == added - 1


async def test_growth_wakes_all_who_wait_and_only_for_something_new() -> None:
    recent = Recent(1, 1000)
    waiting = [asyncio.create_task(recent.growth()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    recent.add(acks(0, 1), 7, 1)
    await asyncio.gather(*waiting)
    later = asyncio.create_task(recent.growth())
    await asyncio.sleep(0)
    assert not later.done()
    recent.end_term()
    await later


def test_portions_are_of_about_equal_work_however_large_a_batch_is() -> None:
    recent = Recent(1, 1000)
    for first, count in ((0, 7), (7, 1), (8, 1), (9, 1), (10, 5)):
        recent.add(acks(first, count), 1, 1_000_000)
    portions = [[json.loads(line)["count"] for line in some] for some in recent.backwards(EVERYTHING, 3)]
    assert [number for some in portions for number in some] == list(range(14, -1, -1))
    assert max(map(len, portions)) <= 5


@pytest.mark.parametrize(
    ("text", "is_id"), [("0", True), ("2147483647", True), ("12345678901", False), ("-1", False), ("", False)]
)
def test_what_is_an_id_of_a_broker(text: str, is_id: bool) -> None:
    assert history_filter._is_id(text) is is_id


def test_no_record_keeps_the_model_of_a_term_that_has_ended() -> None:
    """A partition names its topic, and that all its partitions."""
    one = partition(3)
    of_a_partition: list[StateRecord] = [
        PartitionTransition(one, ONLINE, OFFLINE, BEFORE),
        ReplicaTransition(one, 1, ReplicaState.ONLINE, ReplicaState.OFFLINE),
        LeadershipChange(one, BEFORE, AFTER),
        Rejection("FENCED_WRITE", "newer", one),
        ReassignmentStep(one, "ongoing", "r"),
        AuditFinding(one, 1, "refused", "r"),
    ]
    assert {type(record) for record in of_a_partition} == {
        kind for kind in get_args(StateRecord) if "partition" in kind.__struct_fields__
    }
    recent = Recent(1, 1000)
    for record in of_a_partition:
        recent.add(batch(record), 7, 1)
    before = remembered(recent)
    recent.end_term()
    kept: list[Any] = [record for entry in recent.entries(7) for record in entry.batch.records]
    assert [record for record in kept if isinstance(record.partition, Partition)] == []
    assert (len(kept), remembered(recent)) == (len(of_a_partition), before)


def test_records_with_and_without_a_partition_outlive_their_term() -> None:
    recent = Recent(1, 1000)
    recent.add(batch(Rejection("A", "r"), Rejection("B", "r", partition(3))), 7, 1)
    before = remembered(recent)
    assert [record.get("topic") for record in before] == [None, "orders"]
    for _ in range(2):
        recent.end_term()
        assert remembered(recent) == before
