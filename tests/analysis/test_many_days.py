"""The logs of many days that the benchmark reads: as good as those of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from controller.analysis.job import run_report
from tests.support.analysis import many_days
from tests.support.analysis.many_days import write_days

pytestmark = [pytest.mark.long, pytest.mark.slow]

PARTITIONS, DAYS = 40, 3


def test_each_day_has_the_same_outages_and_failovers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_days, "FILE_BYTES", 20_000)
    one = write_days(tmp_path / "one", 1, PARTITIONS)
    many = write_days(tmp_path / "many", one * DAYS, PARTITIONS)
    assert len(list((tmp_path / "many" / "controller-1").iterdir())) > DAYS
    first, whole = (
        run_report([tmp_path / name], tmp_path / f"report-{name}", progress=lambda _line: None)
        for name in ("one", "many")
    )
    assert (first.lines, whole.lines) == (one, many)
    days = round((whole.failovers - 1) / (first.failovers - 1))
    assert days >= DAYS
    assert whole.failovers - 1 == days * (first.failovers - 1)
    assert (first.outages, whole.outages) == (PARTITIONS, days * PARTITIONS)
    assert (first.problems(), whole.problems()) == ([], [])
    assert (whole.last_ts - first.last_ts).days == days - 1
