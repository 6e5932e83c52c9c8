"""What tools write, and whether it is kept, followed or answered."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.provers.sim.checks.ledger import SCRIBBLE
from tests.provers.sim.checks.tools import REASSIGNMENT, Tools
from tests.provers.sim.zookeeper.tree import Change, DataSet, NodeDeleted, Transaction

TOPIC = "/brokers/topics/t"


class ToolsHarness:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.topic: dict[str, Any] = {"partitions": {"0": [1, 2]}}
        self.controller = SimpleNamespace(rejected=[])
        self.deleted: list[str] = []
        cluster: Any = SimpleNamespace(
            controllers={1: self.controller},
            nodes_below=lambda _: self.deleted,
            stored=lambda _: json.dumps(self.topic).encode(),
        )
        self.tools = Tools(cluster, self.found.append)

    def wrote(self, writer: str, *changes: Change) -> list[str]:
        self.tools.agreed(Transaction(1, 1, changes), writer)
        return self.found

    def lists(self, writer: str, *moves: tuple[str, int, list[int]]) -> list[str]:
        entries = [dict(zip(("topic", "partition", "replicas"), move, strict=True)) for move in moves]
        return self.wrote(writer, DataSet(REASSIGNMENT, json.dumps({"partitions": entries}).encode(), 1))


@pytest.fixture
def harness() -> ToolsHarness:
    return ToolsHarness()


def test_a_field_of_a_tool_stays_as_long_as_its_znode(harness: ToolsHarness) -> None:
    harness.tools.kept(TOPIC, "mine")
    assert harness.wrote("controller-1", DataSet(TOPIC, b'{"mine": 1}', 1)) == []
    assert harness.wrote("operator", DataSet(TOPIC, b"{}", 2)) == [], "another hand may take it away"
    assert harness.wrote("controller-1", DataSet(TOPIC, b"{}", 3)) == []
    harness.tools.kept(TOPIC, "mine")
    assert len(harness.wrote("controller-1", DataSet(TOPIC, b"{}", 4))) == 1
    harness.tools.kept(TOPIC, "mine")
    assert len(harness.wrote("controller-1", NodeDeleted(TOPIC), DataSet(TOPIC, b"{}", 0))) == 1


def test_what_does_not_decode_is_not_written_over(harness: ToolsHarness) -> None:
    harness.wrote("operator", DataSet(TOPIC, SCRIBBLE, 1))
    assert len(harness.wrote("controller-1", DataSet(TOPIC, b"{}", 2))) == 1
    harness.wrote("operator", DataSet(f"{TOPIC}/partitions/0/state", SCRIBBLE, 1))
    assert len(harness.wrote("controller-1", DataSet(f"{TOPIC}/partitions/0/state", b"{}", 2))) == 1, (
        "a state is put right"
    )


def test_a_move_that_vanishes_from_the_list_has_to_be_followed_or_answered(harness: ToolsHarness) -> None:
    move = ("t", 0, [3])
    harness.tools.listed(*move)

    def vanishes() -> int:
        harness.found.clear()
        harness.lists("operator", move)
        return len(harness.wrote("controller-1", NodeDeleted(REASSIGNMENT)))

    assert vanishes() == 1
    harness.topic = {"partitions": {"0": [3, 1]}, "removing_replicas": {"0": [1]}}
    assert vanishes() == 0, "it goes on"
    harness.topic = {"partitions": {"0": [1]}, "queued_replicas": {"0": [3]}}
    assert vanishes() == 0, "it waits"
    harness.topic = {"partitions": {"0": [1]}}
    assert vanishes() == 1
    harness.controller.rejected.append({"kind": "reject", "reason": f"{REASSIGNMENT}: t-0: no"})
    assert vanishes() == 0, "it was refused"
    harness.controller.rejected.clear()
    harness.deleted = ["t"]
    assert vanishes() == 0


def test_moves_that_stay_in_the_list_and_those_of_nobody_are_not_judged(harness: ToolsHarness) -> None:
    harness.tools.listed("t", 0, [3])
    harness.lists("operator", ("t", 0, [3]), ("t", 1, [4]))
    assert harness.lists("controller-1", ("t", 0, [3])) == []
    assert len(harness.lists("controller-1", ("u", 0, [3]))) == 1
