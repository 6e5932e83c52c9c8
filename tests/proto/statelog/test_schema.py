"""The log's schema is what is documented, written and timed."""

from __future__ import annotations

import re
from pathlib import Path

from controller.core.records import FailoverPhase
from controller.runtime.observe.records import WRITTEN_KINDS
from proto.statelog.schema import (
    INT_FIELDS,
    KINDS,
    LIST_FIELDS,
    PHASES,
    READY,
    STRING_FIELDS,
    STRINGS_REQUIRED,
    TEXT_CHARS_MAX,
    TRACE_ID,
)
from proto.statelog.writer import envelope
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "state-change-log.md").read_text(encoding="utf-8")
FIELDS = {*STRING_FIELDS, *(field.name for field in INT_FIELDS), *LIST_FIELDS}
REQUIRED = {*STRINGS_REQUIRED, *(field.name for field in INT_FIELDS if field.required)}


def test_fields_are_those_of_the_document() -> None:
    table = DOCUMENT[DOCUMENT.index("## Fields") : DOCUMENT.index("## Kinds")]
    rows = re.findall(r"^\| (`.+?) \| .+? \| (.+?) \|", table, re.MULTILINE)
    described = {name: where for names, where in rows for name in re.findall(r"`(\w+)`", names)}
    assert described.keys() == FIELDS | {TRACE_ID}
    assert {name for name, where in described.items() if where == "all"} == REQUIRED
    assert {*envelope("controller", 1, 0, 7, 1, "x"), "kind"} == REQUIRED
    assert {*envelope("controller", 1, 0, 7, 1, "x", "0" * 32), "kind"} == REQUIRED | {TRACE_ID}
    assert {name for names in KINDS.values() for name in names} <= FIELDS


def test_kinds_are_those_of_the_document_and_all_that_are_written() -> None:
    headings = re.findall(r"^### (.+)$", DOCUMENT[DOCUMENT.index("## Kinds") :], re.MULTILINE)
    assert {kind for heading in headings for kind in heading.split(", ")} == KINDS.keys()
    by_brokers = set[str]()
    for path in (ROOT / "broker_stub").rglob("*.py"):
        by_brokers.update(re.findall(r'"kind": "([^"]+)"', path.read_text(encoding="utf-8")))
    assert by_brokers
    assert by_brokers | WRITTEN_KINDS <= KINDS.keys()


def test_phases_are_those_of_the_document_and_of_a_failover() -> None:
    section = DOCUMENT[DOCUMENT.index("### failover") : DOCUMENT.index("### partition")]
    listed = re.search(r"Phases: (.+?)\.", section, re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r"`(\w+)`", listed[1])) == (*PHASES, READY)
    rig = MachineHarness.active(World(1, 2))
    timed = [done.phase for done in rig.recorded(FailoverPhase)]
    # The first is the runtime's: the machine is only made once it is over.
    assert ("election", *timed) == (*PHASES, READY)


def test_values_are_cut_where_the_report_s_document_says() -> None:
    said = re.search(r"a topic at (\d+) characters, a reason at (\d+)", (ROOT / "docs/report.md").read_text())
    assert said is not None
    assert (TEXT_CHARS_MAX["topic"], TEXT_CHARS_MAX["reason"]) == (int(said[1]), int(said[2]))
