"""Alert rules: each has its runbook, and fires when it should and not else, by promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.test_citations import anchors
from tests.support.paths import DOCS, ROOT

ALERTS = ROOT / "deploy" / "alerts.yml"
RUNBOOKS = DOCS / "runbooks.md"
METRIC = re.compile(r"\b(?:(?:kafka|partition)_(?:controller|server)_\w+|up)\b")


def load(path: Path) -> Any:
    """All scalars as they are written: promtool's ``0x12`` is no number."""
    return yaml.load(path.read_text(), yaml.CBaseLoader)


RULES = {rule["alert"]: rule for group in load(ALERTS)["groups"] for rule in group["rules"]}
CASES = [
    (path, case)
    for path in sorted(Path(__file__).parent.glob("alerts_test*.yml"))
    for test in load(path)["tests"]
    for case in test["alert_rule_test"]
]


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/runbooks.md has no section {name}"
    return found[1]


@pytest.mark.parametrize("name", RULES)
def test_every_alert_has_its_runbook(name: str) -> None:
    """Which names a metric of the rule, what to look at, and what to do."""
    page, _, anchor = RULES[name]["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page, anchor) == (RUNBOOKS, name.lower())
    assert anchor in anchors(RUNBOOKS)
    text = section(name)
    asked = {re.sub("_(bucket|count)$", "", metric) for metric in METRIC.findall(RULES[name]["expr"])}
    if "as [" not in text.splitlines()[1]:
        assert asked & set(METRIC.findall(text)), f"the runbook names none of {asked}"
    for part in ("**Metric**", "**Look at**", "**Do**", "**do**"):
        assert part.lower() in text.lower()


def test_no_runbook_is_left_over() -> None:
    assert sorted(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)) == sorted(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_seen_to_fire_and_not_to_fire(name: str) -> None:
    cases = [case for _, case in CASES if case["alertname"] == name]
    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}


@pytest.mark.slow
def test_rules_are_valid(prometheus_bin: Path) -> None:
    done = subprocess.run(
        [prometheus_bin / "promtool", "check", "rules", ALERTS], capture_output=True, text=True
    )
    assert (done.returncode, f"{len(RULES)} rules found" in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted({path for path, _ in CASES}), ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(prometheus_bin: Path, path: Path, tmp_path: Path) -> None:
    given = load(path)
    given["rule_files"] = [str(ALERTS)]
    for test in given["tests"]:
        for case in test["alert_rule_test"]:
            for alert in case.get("exp_alerts", ()):
                # The same of every alert by its name: not written again and again.
                url = RULES[case["alertname"]]["annotations"]["runbook_url"]
                alert["exp_annotations"]["runbook_url"] = url
    rewritten = tmp_path / path.name
    rewritten.write_text(yaml.safe_dump(given))
    done = subprocess.run(
        [prometheus_bin / "promtool", "test", "rules", rewritten], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
