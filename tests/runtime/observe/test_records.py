"""Log batches become the records that docs/state-change-log.md documents, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from controller.core.effects import LogBatch
from controller.core.model import LeaderAndIsr, Partition, PartitionState, ReplicaState, Topic
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
BATCHES = {
    "partition": LogBatch("partition", [(partition(3), ONLINE, OFFLINE, STATE_3)], "leader's broker is gone"),
    "replica": LogBatch("replica", [(partition(3), 1, ReplicaState.ONLINE, ReplicaState.OFFLINE)]),
    "leader": LogBatch("leadership", [(partition(3), STATE_3, LeaderAndIsr(2, 5, (2, 3), 10, 7))], "offline"),
    "isr": LogBatch(
        "leadership",
        [(partition(4), LeaderAndIsr(2, 5, (2, 1, 3), 7, 7), LeaderAndIsr(2, 6, (2, 3), 8, 7))],
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_expansion_is_the_documented_example(kind: str, state_log_dir: Path) -> None:
    batch = BATCHES[kind]
    example = next(e for e in documented()[kind] if e["role"] == "controller")
    writer = StateLogWriter(state_log_dir, "controller", 1)
    writer.append(
        (r for r in records.expand(batch) if r["kind"] == kind),
        cause="BrokerChange",
        controller_epoch=7,
        event_id=12,
    )
    writer.close()
    written = json.loads((state_log_dir / "state-change.jsonl").read_text())
    assert {**written, "ts": ""} == {**example, "ts": ""}


def test_a_leadership_row_is_a_leader_record_and_an_isr_record_where_they_changed() -> None:
    new = LeaderAndIsr(2, 5, (2, 3), 10, 7)
    batch = LogBatch("leadership", [(partition(3), STATE_3, new), (partition(4), new, new)], "offline")
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


def test_the_first_leadership_comes_from_none() -> None:
    batch = LogBatch("leadership", [(partition(0), None, LeaderAndIsr(1, 0, (1, 2), 0, 7))], "initial")
    assert [(r["kind"], r["from"], r["to"]) for r in records.expand(batch)] == [
        ("leader", "-1", "1"),
        ("isr", "[]", "[1,2]"),
    ]


def test_a_partition_without_state_says_nothing_about_it() -> None:
    batch = LogBatch(
        "partition", [(partition(0), PartitionState.NON_EXISTENT, PartitionState.NEW, None)], "created"
    )
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


def test_rejects_with_and_without_a_partition_and_a_transition() -> None:
    rows = [
        (partition(3), "ILLEGAL_TRANSITION", "OnlinePartition", "NewPartition", "not allowed"),
        (None, "FENCED_WRITE", "", "", "a newer controller"),
    ]
    assert list(records.expand(LogBatch("reject", rows))) == [
        {
            "kind": "reject",
            "topic": "orders",
            "partition": 3,
            "reason": "not allowed",
            "error": "ILLEGAL_TRANSITION",
            "from": "OnlinePartition",
            "to": "NewPartition",
        },
        {"kind": "reject", "reason": "a newer controller", "error": "FENCED_WRITE"},
    ]


def test_complete_records_go_as_they_are() -> None:
    row = documented()["push"][0]
    assert list(records.expand(LogBatch("record", [row]))) == [row]


def test_unknown_kinds_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="unknown kind 'x'"):
        list(records.expand(LogBatch("x", [1])))


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
