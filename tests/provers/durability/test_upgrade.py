"""Two versions side by side: what was acknowledged is there after an upgrade and after the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.playground.cluster import Playground
from tests.provers.durability.kills import BROKERS
from tests.provers.durability.upgrade import (
    CONTROLLERS,
    FORMER,
    NoHistoryError,
    by_module,
    former_version,
    upgrade,
)
from tests.support.paths import ROOT
from tests.support.runtime.programs import run_to_end

pytestmark = pytest.mark.slow


def test_a_member_runs_the_code_of_its_tree(tmp_path: Path) -> None:
    """Not of the checkout that the tests are in, nor of what is installed."""
    main = tmp_path / "tree" / "controller" / "cli" / "main.py"
    main.parent.mkdir(parents=True)
    main.write_text("def main():\n    print(__file__)\n")
    done = run_to_end(
        by_module(["/usr/bin/partition-controller", "run"]), ROOT, {"PYTHONPATH": str(tmp_path / "tree")}
    )
    assert done.stdout.strip() == str(main), done.stderr


@pytest.mark.long
async def test_a_rolling_upgrade_and_the_way_back_lose_nothing(zookeeper: str, tmp_path: Path) -> None:
    """Of any other revision: ``make upgrade REVISION=...``."""
    try:
        former = former_version(FORMER, tmp_path / "former")
    except NoHistoryError as error:
        pytest.skip(str(error))
    cluster = Playground(tmp_path / "cluster", CONTROLLERS, BROKERS, zookeeper)
    try:
        cluster.prepare()
        verdict = await upgrade(cluster, former, rate=50.0)
    finally:
        cluster.stop()
    assert verdict.ok
    assert verdict.acknowledged > 100
