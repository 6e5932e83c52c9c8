"""Faults on real processes: the short form of ``make chaos``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.mark.slow
def test_a_short_run_of_faults_has_a_good_verdict(tmp_path: Path) -> None:
    """Kill -9 of the active controller, a broker cut from ZooKeeper, quorum loss. Longer: ``make chaos``."""
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "tests.provers.chaos",
        "--short",
        f"--report={report}",
        f"--directory={tmp_path / 'run'}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=350, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    found = json.loads(report.read_text())
    assert found["findings"] == [], said
    assert [len(one["name"]) > 0 for one in found["episodes"]] == [True] * 3, said
    assert found["records"]["acknowledged"] > 500, said
    assert found["state_changes"] > 100, said
    assert any(one["outcome"] == "accepted" for one in found["operations"]), said
    # The active controller was killed, so another one led after it.
    assert "kill -9 of controller-" in found["episodes"][0]["name"], said


def test_the_plan_that_is_printed_is_that_of_its_seed() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.provers.chaos",
        "--plan",
        "--loopback",
        "--episodes=3",
        "--seed=7",
    ]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert "episode 3, " in first
