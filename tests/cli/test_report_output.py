"""What ``pctl report`` prints of a moment, and of what changed between two."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.pctl.analysis import report


@pytest.mark.parametrize(
    ("count", "names", "shown"),
    [
        (0, [], "0"),
        (2, ["t-0", "t-1"], "2: t-0, t-1"),
        (10, [f"t-{n}" for n in range(10)], f"10: {', '.join(f't-{n}' for n in range(10))}"),
        (11, [f"t-{n}" for n in range(11)], f"11: {', '.join(f't-{n}' for n in range(10))}, ..."),
        (1200, [f"t-{n}" for n in range(50)], f"1,200: {', '.join(f't-{n}' for n in range(10))}, ..."),
    ],
)
def test_of_many_partitions_some_are_named(count: int, names: list[str], shown: str) -> None:
    assert report._named(count, names) == shown


@pytest.mark.parametrize(("fields", "said"), [(45, False), (46, True)])
def test_that_not_all_differences_are_printed_is_said(
    fields: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of controller and brokers are differences, too."""
    monkeypatch.setattr(report, "_print_state", lambda *_: None)
    row = {"field": "leader", "before": "1", "after": "2"}
    summary: dict[str, Any] = {
        "former": {},
        "later": {},
        "controller": [row] * 2,
        "brokers": [{**row, "broker": b} for b in range(3)],
        "partitions": [{**row, "topic": "t", "partition": n} for n in range(fields)],
        "differences": {"leader": fields},
    }
    report._print_differences(summary)
    assert (f"... {fields + 5} differences in all" in capsys.readouterr().out) == said
