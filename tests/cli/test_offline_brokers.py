"""What ``pctl maintenance show`` says, and how long a freeze may be meant to last."""

from __future__ import annotations

import click
import pytest

from controller.cli.pctl.maintenance import _duration, _offline, _rows
from controller.core.model import Attribution, Freeze, Maintenance
from proto.gen.maintenance_pb2 import DescribeMaintenanceResponse


@pytest.mark.parametrize(
    ("gone", "limit", "line"),
    [
        (
            [2],
            3,
            "offline brokers: 2 (1 of 4; 3 are registered); "
            "maintenance begins automatically once 3 brokers are offline",
        ),
        ([], 0, "offline brokers: none (0 of 4; 4 are registered); maintenance never begins automatically"),
        (
            [1, 3],
            0,
            "offline brokers: 1, 3 (2 of 4; 2 are registered); maintenance never begins automatically",
        ),
    ],
)
def test_an_id_is_not_read_as_a_count(gone: list[int], limit: int, line: str) -> None:
    answer = DescribeMaintenanceResponse(gone=gone, known_brokers=4, offline_limit=limit)
    assert _offline(answer) == line


@pytest.mark.parametrize(("automatic", "what"), [(True, "automatic maintenance"), (False, "maintenance")])
def test_each_restriction_is_a_row(automatic: bool, what: str) -> None:
    by = Attribution("disks", "ann")
    state = Maintenance(
        paused=by, entered=by, automatic=automatic, freeze=Freeze("disks", "ann", 1), drained={3: by, 2: by}
    )
    assert [(row["what"], row.get("broker")) for row in _rows(state, (7,))] == [
        ("paused", None),
        (what, None),
        ("frozen", None),
        ("drained", 2),
        ("drained", 3),
        ("shutting down", 7),
    ]


CONTEXT = click.Context(click.Command("freeze"))
FOR = click.Option(["--for"])


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("8h", 28_800), ("2d", 172_800)])
def test_a_duration_is_of_minutes_hours_or_days(text: str, seconds: int) -> None:
    assert _duration(CONTEXT, FOR, text) == seconds


@pytest.mark.parametrize("text", ["", "m", "0m", "000h", "90", "1s", "1.5h", "-1d", "100000m", "\u0661m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be a number of minutes, hours or days"):
        _duration(CONTEXT, FOR, text)
