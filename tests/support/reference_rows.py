"""The reference's rows (tests/cases/, copied from the specification) and which of them a test module runs.

Each line is one case: ``given`` facts, ``when`` one stimulus, ``then`` what is asserted (``implied``: not asserted).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from _pytest.mark.structures import ParameterSet

from tests.support.paths import ROOT

Row = dict[str, Any]

CASES = ROOT / "tests" / "cases"
_ID = re.compile(r"\bK\d{3}\b")


def load(name: str) -> dict[str, Row]:
    """The rows of one file of tests/cases by id."""
    lines = (CASES / name).read_text(encoding="utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def files() -> list[Path]:
    """Every file with rows."""
    return sorted(CASES.glob("*.jsonl"))


def run_by(module: ModuleType) -> set[str]:
    """Ids of the rows that a module's tests take as parameters, or name in their names or docstrings."""
    tests = (f for name, f in vars(module).items() if name.startswith("test_") and callable(f))
    return {id_ for test in tests for id_ in _of(test)}


def _of(test: Any) -> Iterator[str]:
    yield from _ID.findall(test.__doc__ or "")
    yield from _ID.findall(test.__name__.upper().replace("_", " "))
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            for parameter in mark.args[1]:
                values = parameter.values if isinstance(parameter, ParameterSet) else parameter
                yield from _named(values if isinstance(values, tuple | list) else (values,))


def _named(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, dict) and "id" in value:
            yield value["id"]
        elif isinstance(value, str):
            yield from _ID.findall(value)
