"""``make bench-peers`` runs, and its table has every figure of both controllers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kafka.conftest import require
from tests.kafka.side_by_side.peers import Figure, table
from tests.support.paths import ROOT
from tests.support.runtime.programs import run_to_end


def test_the_ratio_is_of_medians_and_of_kafka_to_ours() -> None:
    ours = [{"creation": Figure(seconds, 1.0, 4.0)} for seconds in (1.0, 2.0, 9.0)]
    kafkas = [{"creation": Figure(seconds, 3.0, 5.0)} for seconds in (1.0, 6.0, 7.0)]
    rows = table({"this project": ours, "Kafka 3.9.1": kafkas}, "title")
    row = [next(iter(column.cells)) for column in rows.columns]
    assert row == ["creation", "6.00 s", "2.00 s", "3.0", "3.0 s", "1.0 s", "5", "4"]


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.kafka_long
def test_two_hundred_partitions(tmp_path: Path) -> None:
    require("3.9.1")
    done = run_to_end(
        [sys.executable, "-m", "tests.kafka.side_by_side.peers", "--scale", "0.002"],
        ROOT,
        {"COLUMNS": "200", "TMPDIR": str(tmp_path)},
        timeout_s=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    shown = done.stdout.partition("200 partitions, 6 brokers")[2]
    for figure in (
        "cold failover",
        "failover to one that runs",
        "creation",
        "reassignment",
        "deletion",
        "broker lost",
    ):
        assert figure in shown, done.stdout


@pytest.mark.slow
def test_out_of_reach_is_said(tmp_path: Path) -> None:
    """No jars, and no Maven that could fetch them."""
    done = run_to_end(
        [sys.executable, "-m", "tests.kafka.side_by_side.peers"],
        ROOT,
        {"KAFKA_JARS": str(tmp_path), "PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SKIPPED: nothing was measured")
    assert "Maven" in done.stdout
