"""Faults on real processes: the short form of ``make chaos``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.provers.chaos import __main__ as chaos
from tests.provers.chaos.run import Outcome
from tests.provers.chaos.verdicts import Finding, What
from tests.support.paths import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("only", "episodes"), [pytest.param([], 3, marks=pytest.mark.long), (["--only=1"], 1)]
)
def test_a_short_run_of_faults_has_a_good_verdict(only: list[str], episodes: int, tmp_path: Path) -> None:
    """Kill -9 of the active controller, a broker cut from ZooKeeper, quorum loss, by TLS: with rules, owners of znodes,
    and certificates that change. Longer, and plain: ``make chaos``."""
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "tests.provers.chaos",
        "--short",
        f"--report={report}",
        f"--directory={tmp_path / 'run'}",
        "--secure",
        *only,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=350, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    found = json.loads(report.read_text())
    assert found["findings"] == [], said
    assert [len(one["name"]) > 0 for one in found["episodes"]] == [True] * episodes, said
    assert found["records"]["acknowledged"] > 150 * episodes, said
    assert found["state_changes"] > 30 * episodes, said
    assert found["rotations"] > 0, said
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


@pytest.fixture
def _sigterm_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_sigterm_as_before")
@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_data_and_logs_are_removed_after_a_good_verdict_unless_their_directory_was_named(
    good: bool,
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    async def pretended(
        _plan: object, _seed: int, _network: object, directory: Path, **_more: bool
    ) -> Outcome:
        logged(directory)
        return Outcome(findings=[] if good else [Finding(What.STUCK, "topic t is to be deleted")])

    def logged(directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "controller-1.log").write_text("{}\n")

    monkeypatch.setattr(chaos, "play", pretended)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = tmp_path / "report.json"
    arguments = ["--loopback", "--short", f"--report={report}"]
    code = chaos.main([*arguments, f"--directory={tmp_path / 'run'}"] if named else arguments)
    assert code == (chaos.EXIT_GOOD if good else chaos.EXIT_BAD)
    logs = list(tmp_path.rglob("controller-1.log"))
    assert bool(logs) == (named or not good)
    if logs:
        assert f"data and logs stay in {logs[0].parent}; again: " in capsys.readouterr().out.replace("\n", "")
        assert json.loads(report.read_text())["directory"] == str(logs[0].parent)
    else:
        assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
        assert json.loads(report.read_text())["directory"] is None
