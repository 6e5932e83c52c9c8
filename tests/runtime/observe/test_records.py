"""Log batches become the records that docs/state-change-log.md documents, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from controller.core.events import EventKind
from controller.core.model import LeaderAndIsr, Partition, PartitionState, ReplicaState, Topic
from controller.core.records import (
    AuditFinding,
    BrokerChange,
    ControllerChange,
    EntityAltered,
    FailoverPhase,
    FeatureChange,
    LeadershipChange,
    LogBatch,
    PartitionTransition,
    PushAcknowledged,
    PushSent,
    ReassignmentStep,
    Rejection,
    ReplicaTransition,
    StateRecord,
    TopicChange,
    UncleanElectionEnabled,
)
from controller.runtime.observe import records
from proto.statelog.writer import StateLogWriter
from tests.support.paths import DOCS

DOCUMENT = DOCS / "state-change-log.md"


def documented() -> dict[str, list[dict[str, Any]]]:
    """The document's examples, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for block in re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        for line in block.splitlines():
            record = json.loads(line)
            found.setdefault(record["kind"], []).append(record)
    return found


def partition(number: int) -> Partition:
    return Partition(Topic("orders"), number, (1, 2, 3))


STATE_3 = LeaderAndIsr(1, 4, (1, 2, 3), 9, 7)
ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE
MOVING = "replicas [3, 4, 1, 2], adding [4], removing [1, 2]"
BATCHES = {
    "partition": LogBatch(
        [PartitionTransition(partition(3), ONLINE, OFFLINE, STATE_3)], "its leader's broker is gone"
    ),
    "replica": LogBatch([ReplicaTransition(partition(3), 1, ReplicaState.ONLINE, ReplicaState.OFFLINE)]),
    "leader": LogBatch(
        [LeadershipChange(partition(3), STATE_3, LeaderAndIsr(2, 5, (2, 3), 10, 7))], "offline"
    ),
    "isr": LogBatch(
        [
            LeadershipChange(
                partition(4), LeaderAndIsr(2, 5, (2, 1, 3), 7, 7), LeaderAndIsr(2, 6, (2, 3), 8, 7)
            )
        ]
    ),
    "controller": LogBatch([ControllerChange("active", "elected at controller epoch 7", "standby")]),
    "failover": LogBatch([FailoverPhase("partitions", 100_000, 612_345)]),
    "push": LogBatch([PushSent(2, "LeaderAndIsr", 40)]),
    "ack": LogBatch([PushAcknowledged(2, "LeaderAndIsr", 40, 3000)]),
    "broker": LogBatch([BrokerChange(1, "offline", "online")]),
    "topic": LogBatch([TopicChange("orders", "known", "vanished")]),
    "reassignment": LogBatch([ReassignmentStep(partition(3), "moving", MOVING, (3, 4, 1, 2))]),
    "config": LogBatch([EntityAltered("topics/orders", 2)]),
    "feature": LogBatch([FeatureChange("group.version", 1, 2)]),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_expansion_is_the_documented_example(kind: str, state_log_dir: Path) -> None:
    batch = BATCHES[kind]
    example = next(e for e in documented()[kind] if e["role"] == "controller")
    writer = StateLogWriter(state_log_dir, "controller", 1)
    writer.append(
        (r for r in records.expand(batch) if r["kind"] == kind),
        cause=example["cause"],
        controller_epoch=7,
        event_id=example["event_id"],
    )
    writer.close()
    written = json.loads((state_log_dir / "state-change.jsonl").read_text())
    assert {**written, "ts": ""} == {**example, "ts": ""}


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            Rejection("ILLEGAL_TRANSITION", "not allowed", partition(3), "OnlinePartition", "NewPartition"),
            '{"kind":"reject","topic":"orders","partition":3,"reason":"not allowed",'
            '"error":"ILLEGAL_TRANSITION","from":"OnlinePartition","to":"NewPartition"}',
        ),
        (
            Rejection("FENCED_WRITE", "a newer controller"),
            '{"kind":"reject","reason":"a newer controller","error":"FENCED_WRITE"}',
        ),
        (ControllerChange("paused", "ann: why"), '{"kind":"controller","to":"paused","reason":"ann: why"}'),
        (
            ControllerChange("active", "why", "standby"),
            '{"kind":"controller","from":"standby","to":"active","reason":"why"}',
        ),
        (
            BrokerChange(1, "rebalancing", "imbalanced", 0, "leads 1 of 3"),
            '{"kind":"broker","replica":1,"from":"imbalanced","to":"rebalancing","count":0,"reason":"leads 1 of 3"}',
        ),
        (
            BrokerChange(1, "drained", reason="ann: "),
            '{"kind":"broker","replica":1,"to":"drained","reason":"ann: "}',
        ),
        (
            TopicChange("old", "deleting", "ineligible for deletion", "its disk"),
            '{"kind":"topic","topic":"old","from":"deleting","to":"ineligible for deletion","reason":"its disk"}',
        ),
        (
            ReassignmentStep(partition(3), "moved", "replicas [1]"),
            '{"kind":"reassignment","topic":"orders","partition":3,"to":"moved","reason":"replicas [1]"}',
        ),
        (
            UncleanElectionEnabled("for topic t"),
            '{"kind":"config","to":"unclean_election_enabled","reason":"for topic t"}',
        ),
        (
            PushAcknowledged(2, "StopReplica", 4, 30, "NOT_CONTROLLER"),
            '{"kind":"ack","replica":2,"to":"StopReplica","count":4,"duration_us":30,"error":"NOT_CONTROLLER"}',
        ),
    ],
)
def test_lines_are_the_same_to_the_byte(record: StateRecord, line: str) -> None:
    (found,) = records.expand(LogBatch([record]))
    assert json.dumps(found, separators=(",", ":")) == line


def test_every_class_of_records_becomes_lines() -> None:
    assert set(records._LINES) == set(get_args(StateRecord))


def test_a_leadership_row_is_a_leader_record_and_an_isr_record_where_they_changed() -> None:
    new = LeaderAndIsr(2, 5, (2, 3), 10, 7)
    batch = LogBatch(
        [LeadershipChange(partition(3), STATE_3, new), LeadershipChange(partition(4), new, new)], "offline"
    )
    first, second = list(records.expand(batch))
    common = {
        "topic": "orders",
        "partition": 3,
        "reason": "offline",
        "leader": 2,
        "leader_epoch": 5,
        "isr": (2, 3),
        "partition_epoch": 10,
    }
    assert first == {"kind": "leader", "from": "1", "to": "2", **common}
    assert second == {"kind": "isr", "from": "[1,2,3]", "to": "[2,3]", **common}
    assert records.count_of(batch) == 4  # at most


@pytest.mark.parametrize(
    ("new", "kind", "value"),
    [
        (LeaderAndIsr(1, 5, (1, 2, 3), 10, 7), "leader", "1"),
        (LeaderAndIsr(1, 4, (1, 2, 3), 10, 7), "isr", "[1,2,3]"),
    ],
    ids=["leader epoch", "partition epoch"],
)
def test_a_change_of_epochs_alone_is_one_record(new: LeaderAndIsr, kind: str, value: str) -> None:
    (found,) = records.expand(LogBatch([LeadershipChange(partition(3), STATE_3, new)], "audit"))
    assert (found["kind"], found["from"], found["to"]) == (kind, value, value)
    assert (found["leader_epoch"], found["partition_epoch"]) == (new.leader_epoch, new.partition_epoch)


def test_the_first_leadership_comes_from_none() -> None:
    batch = LogBatch([LeadershipChange(partition(0), None, LeaderAndIsr(1, 0, (1, 2), 0, 7))], "initial")
    assert [(r["kind"], r["from"], r["to"]) for r in records.expand(batch)] == [
        ("leader", "-1", "1"),
        ("isr", "[]", "[1,2]"),
    ]


def test_a_partition_without_state_says_nothing_about_it() -> None:
    created = PartitionTransition(partition(0), PartitionState.NON_EXISTENT, PartitionState.NEW, None)
    batch = LogBatch([created], "created")
    assert list(records.expand(batch)) == [
        {
            "kind": "partition",
            "topic": "orders",
            "partition": 0,
            "reason": "created",
            "from": "NonExistentPartition",
            "to": "NewPartition",
        }
    ]


@pytest.mark.parametrize("kind", sorted(documented()))
def test_every_documented_example_holds_to_the_documents_own_rules(kind: str) -> None:
    types = {
        "schema": int,
        "ts": str,
        "role": str,
        "node": int,
        "controller_epoch": int,
        "event_id": int,
        "cause": str,
        "kind": str,
    }
    for record in documented()[kind]:
        for field, type_ in types.items():
            assert type(record[field]) is type_
        assert record["role"] in ("controller", "broker")
        assert all(value is not None for value in record.values())
        for field in ("from", "to", "reason", "error"):
            assert isinstance(record.get(field, ""), str)


@pytest.mark.parametrize(("silent_us", "told"), [(None, {}), (0, {"silent_us": 0}), (7, {"silent_us": 7})])
def test_how_long_a_leader_was_silent_is_told_where_it_is_known(
    silent_us: int | None, told: dict[str, int]
) -> None:
    moved = PartitionTransition(partition(3), ONLINE, OFFLINE, STATE_3, silent_us)
    (line,) = records.expand(LogBatch([moved], "why"))
    assert {name: value for name, value in line.items() if name == "silent_us"} == told


def test_a_partition_whose_replicas_are_told_names_them() -> None:
    moved = PartitionTransition(partition(3), ONLINE, OFFLINE, STATE_3, replicas=(1, 2, 3))
    (record,) = records.expand(LogBatch([moved], "why"))
    assert list(record["replicas"]) == [1, 2, 3]


def test_a_first_state_without_leader_and_members_is_no_change() -> None:
    nothing = LeaderAndIsr(-1, 0, (), 0, 7)
    assert list(records.expand(LogBatch([LeadershipChange(partition(3), None, nothing)]))) == []
    later = LeaderAndIsr(-1, 1, (), 1, 7)
    (line,) = records.expand(LogBatch([LeadershipChange(partition(3), nothing, later)]))
    assert (line["kind"], line["from"], line["to"]) == ("leader", "-1", "-1")


def test_every_event_of_a_controller_is_documented_by_its_name() -> None:
    (row,) = re.findall(r"^\| `cause` \|.*$", DOCUMENT.read_text(), re.MULTILINE)
    names = re.findall(r"`(\w+)`", row.partition("Of a controller:")[2].partition("Of a broker:")[0])
    assert sorted(names) == sorted(kind.value for kind in EventKind)


def test_a_finding_names_a_broker_unless_it_is_about_the_znode() -> None:
    for broker_id in (None, 3):
        (line,) = records.expand(LogBatch([AuditFinding(partition(7), broker_id, "differs", "why")]))
        named = {} if broker_id is None else {"replica": 3}
        assert line == {
            "kind": "audit",
            "topic": "orders",
            "partition": 7,
            **named,
            "to": "differs",
            "reason": "why",
        }
