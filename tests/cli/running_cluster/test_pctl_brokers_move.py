"""pctl brokers decommission, replace, swap and forget, pctl freeze: on a running cluster of three brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.cli.operator import Operator

pytestmark = pytest.mark.slow

WHY = ("--reason=old machine", "--author=ann")


@pytest.fixture(autouse=True)
def left_as_found(operator: Operator) -> Iterator[None]:
    yield
    operator.ok("unfreeze", "--author=ann", "--yes")
    operator.ok("maintenance", "undrain", "1", "2", "3", "--author=ann", "--yes")


def replicas(operator: Operator, topic: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(operator.zk.get(f"/brokers/topics/{topic}")[0])["partitions"]
    return found


def test_a_broker_is_emptied_and_said_to_be(operator: Operator) -> None:
    operator.ok("topics", "create", "going", "--replica-assignment=1:2,3:1,2:3")
    asked = ("brokers", "decommission", "1", *WHY)
    assert operator.ok(*asked, "--dry-run").exit_code == 0
    assert replicas(operator, "going")["0"] == [1, 2]
    operator.ok("freeze", *WHY, "--yes")
    waiting = operator.run("--timeout=1", *asked, "--yes")
    assert (waiting.exit_code, "frozen by ann: old machine" in waiting.stderr) == (1, True)
    operator.ok("unfreeze", "--author=ann", "--yes")
    done = operator.ok(*asked, "--yes")
    assert "nothing is left on broker 1: it may be stopped for good" in done.stderr
    assert replicas(operator, "going") == {"0": [3, 2], "1": [3, 2], "2": [2, 3]}
    assert "nothing to do" in operator.ok(*asked, "--yes").stderr
    operator.ok("maintenance", "undrain", "1", "--author=ann", "--yes")
    operator.ok("brokers", "replace", "2", "1", *WHY, "--yes")
    assert replicas(operator, "going") == {"0": [3, 1], "1": [3, 1], "2": [1, 3]}
    operator.ok("brokers", "swap", "3", "1", *WHY, "--yes")
    assert replicas(operator, "going") == {"0": [1, 3], "1": [1, 3], "2": [3, 1]}
    refused = operator.run("brokers", "decommission", "1", "2", *WHY, "--yes")
    assert (refused.exit_code, "no broker is left" in refused.stderr) == (3, True)
    unknown = operator.run("brokers", "decommission", "77", *WHY, "--yes")
    assert (unknown.exit_code, "not registered, and no partition names it" in unknown.stderr) == (1, True)
    operator.ok("topics", "delete", "going", "--yes")


def test_a_freeze_is_said_with_its_end_and_overdue_after_it(operator: Operator) -> None:
    operator.ok("freeze", *WHY, "--for=2h", "--yes")
    found = operator.run("-o", "json", "health")
    assert [f["what"] for f in json.loads(found.stdout)["findings"]] == ["frozen"]
    assert "(until 2" in found.stdout
    assert "overdue" not in found.stdout
    stored = json.loads(operator.zk.get("/controllers/maintenance")[0])
    operator.zk.set(
        "/controllers/maintenance",
        json.dumps({**stored, "freeze": {**stored["freeze"], "until_ms": 1}}).encode(),
    )
    assert "overdue: pctl unfreeze ends it" in operator.run("health").stdout
    bad = operator.run("freeze", *WHY, "--for=soon", "--yes")
    assert (bad.exit_code, "as 90m, 8h, 2d" in bad.stderr) == (2, True)


def test_a_broker_is_forgotten(operator: Operator) -> None:
    operator.topic_by_hand("half", [1, 9], 1, [1])
    operator.ok("topics", "delete", "half", "--yes", "--no-wait")
    assert operator.zk.exists("/brokers/topics/half")
    refused = operator.run("brokers", "forget", "1", *WHY, "--yes")
    assert (refused.exit_code, "broker 1 is registered" in refused.stderr) == (3, True)
    operator.ok("brokers", "forget", "9", *WHY, "--yes")
    operator.ok("wait", "--until=stable")
    assert not operator.zk.exists("/brokers/topics/half")
    (mark,) = json.loads(operator.zk.get("/controllers/forgotten")[0])["brokers"].values()
    assert (mark["author"], mark["replicas"]) == ("ann", {"half": [0]})


def test_a_plan_shows_the_load_before_and_after(operator: Operator) -> None:
    operator.ok("topics", "create", "lean", "--replica-assignment=1,1,1,1")
    plan = operator.ok("reassign", "generate", "--topic=lean")
    assert "BROKER  RACK  REPLICAS  AFTER" in plan.stderr
    assert json.loads(plan.stdout)["partitions"]
    by_bytes = operator.ok("reassign", "generate", "--topic=lean", "--by=bytes")
    assert "BYTES" in by_bytes.stderr
    assert json.loads(by_bytes.stdout)["partitions"]
    operator.topic_by_hand("away", [9], -1, [9])
    unknown = operator.run("reassign", "generate", "--topic=away", "--by=bytes")
    assert (unknown.exit_code, "the size of 1 partition" in unknown.stderr) == (1, True), unknown.stderr
    operator.ok("topics", "delete", "lean", "--yes")
