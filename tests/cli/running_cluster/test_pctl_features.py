"""pctl features on a running cluster whose brokers support some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal

pytestmark = pytest.mark.slow


def finalized(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(operator.zk.get("/feature")[0])
    return {name: level["max_version_level"] for name, level in found["features"].items()}


def support(operator: Operator, broker_id: int, features: dict[str, list[int]]) -> None:
    """In its registration, by hand: its epoch stays."""
    path = f"/brokers/ids/{broker_id}"
    value = json.loads(operator.zk.get(path)[0])
    value["features"] = {n: {"min_version": low, "max_version": high} for n, (low, high) in features.items()}
    operator.zk.set(path, json.dumps(value).encode())


@pytest.fixture
def cluster(operator: Operator) -> Iterator[Operator]:
    """Brokers 1 and 3 support f from 1 to 3, broker 2 from 2 to 5; g all alike."""
    for broker_id, f in ((1, [1, 3]), (2, [2, 5]), (3, [1, 3])):
        support(operator, broker_id, {"f": f, "g": [1, 1]})
    operator.wait(lambda: len(operator.json("features", "describe")) == 2)
    yield operator
    for name in finalized(operator):
        operator.ok("features", "disable", f"--feature={name}", "--yes")
    for broker_id in (1, 2, 3):
        support(operator, broker_id, {})
    operator.wait(lambda: operator.json("features", "describe") == [])


def test_levels_go_up_and_down_and_away(cluster: Operator) -> None:
    epoch = cluster.zk.get("/feature")[1].version
    shown = {row["feature"]: row for row in cluster.json("features", "describe")}
    assert shown["f"] == {
        "feature": "f", "supported_min": 2, "supported_max": 3, "finalized": None, "epoch": epoch,
    }  # fmt: skip
    asked = ("features", "upgrade", "--feature=f=3", "--feature=g=1")
    tried = cluster.json(*asked, "--dry-run")
    assert finalized(cluster) == {}
    done = cluster.ok(*asked, "--yes")
    assert "2 of 2 features updated" in done.stderr
    (write,) = tried["writes"]
    assert (write["path"], write["new"].encode()) == ("/feature", cluster.zk.get("/feature")[0])
    assert finalized(cluster) == {"f": 3, "g": 1}
    rows = cluster.table("features", "describe")
    assert rows[0] == ["finalized", "epoch", str(epoch + 1)]
    assert ["f", "2", "3", "3"] in rows
    cluster.ok("features", "downgrade", "--feature=f=2", "--yes")
    assert finalized(cluster) == {"f": 2, "g": 1}
    refused = cluster.run("features", "downgrade", "--feature=f=1", "--yes")
    assert (
        refused.exit_code,
        "INVALID_REQUEST: level 1 is not supported by brokers 2" in refused.stderr,
    ) == (1, True)
    cluster.ok("features", "downgrade", "--feature=f=1", "--unsafe", "--yes")
    assert finalized(cluster) == {"f": 1, "g": 1}
    explained = cluster.json("explain", "broker", "2")
    assert explained["epoch"] > 0
    states = {row["broker"]: row["state"] for row in cluster.json("brokers")}
    assert states[2][0] == "incompatible"
    cluster.ok("features", "disable", "--feature=g", "--yes")
    assert finalized(cluster) == {"f": 1}


def test_a_person_is_asked(cluster: Operator) -> None:
    asked = ("features", "upgrade", "--feature=f=2")
    refused = cluster.run(*asked)
    assert (refused.exit_code, "use --yes; nothing was changed" in refused.stderr) == (2, True)
    code, said = at_a_terminal(cluster.cluster.connect, "n", *asked)
    assert (code, "Upgrade of 1 feature as shown?" in said) == (3, True), said
    assert finalized(cluster) == {}
    code, said = at_a_terminal(cluster.cluster.connect, "y", *asked)
    assert (code, "1 of 1 feature updated" in said) == (0, True), said
    assert finalized(cluster) == {"f": 2}


def test_one_that_is_refused_does_not_hold_up_the_others(cluster: Operator) -> None:
    asked = ("features", "upgrade", "--feature=f=9", "--feature=g=1")
    for more, updated in (("--dry-run", {}), ("--yes", {"g": 1})):
        result = cluster.run(*asked, more)
        assert result.exit_code == 1
        assert "pctl: f: INVALID_REQUEST: level 9 is not supported by brokers 1, 2, 3" in result.stderr
        assert finalized(cluster) == updated


BAD = [
    (("upgrade",), "--feature"),
    (("upgrade", "--feature=f"), "must be NAME=LEVEL"),
    (("upgrade", "--feature=f=0"), "a level from 1 to 32767"),
    (("upgrade", "--feature=f=32768"), "a level from 1 to 32767"),
    (("upgrade", "--feature=f=x"), "must be NAME=LEVEL"),
    (("upgrade", "--feature==1"), "must be NAME=LEVEL"),
    (("upgrade", "--feature=f=1", "--unsafe"), "--unsafe"),
    (("downgrade", "--feature=f=1", "--feature=f=2"), "named twice"),
    (("disable", "--feature=f", "--feature=f"), "given once"),
    (("disable", "--feature="), "must be a name"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input(operator: Operator, arguments: tuple[str, ...], says: str) -> None:
    result = operator.run("features", *arguments, "--yes")
    assert (result.exit_code, says in result.stderr) == (2, True), result.output
    assert finalized(operator) == {}
