"""``playground --brokers kafka``: real brokers, led by controllers of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controller.embedded_kafka import jars
from tests.kafka.conftest import require
from tests.support.runtime.programs import run_to_end

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]


@pytest.mark.parametrize("script", ["demo", "rolling"])
def test_scripts_on_kafka_brokers_end_with_a_good_verdict(tmp_path: Path, script: str) -> None:
    require(jars.NEWEST)
    flags = ["--brokers=kafka", f"--script={script}", "--no-report", f"--data-dir={tmp_path}"]
    done = run_to_end([sys.executable, "-m", "controller.cli.main", "playground", *flags], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: GOOD" in done.stdout
