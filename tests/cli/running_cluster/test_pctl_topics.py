"""pctl topics create and alter through the active controller of a running cluster."""

from __future__ import annotations

import json

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal

pytestmark = pytest.mark.slow


def partitions(operator: Operator, topic: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(operator.zk.get(f"/brokers/topics/{topic}")[0])["partitions"]
    return found


def test_partitions_are_added_as_shown_and_led(operator: Operator) -> None:
    operator.ok("topics", "create", "grows", "--partitions=2", "--replication-factor=2")
    before = partitions(operator, "grows")
    tried = operator.json("topics", "alter", "grows", "--partitions=5", "--dry-run")
    dry = tried["partitions"]
    assert [row["partition"] for row in dry] == [2, 3, 4]
    written = {write["path"]: write for write in tried["writes"]}
    topic = written.pop("/brokers/topics/grows")
    assert topic["old"].encode() == operator.zk.get("/brokers/topics/grows")[0]
    assert set(written) == {
        f"/brokers/topics/grows/partitions/{n}{state}" for n in (2, 3, 4) for state in ("", "/state")
    }
    assert {write["old"] for write in written.values()} == {None}
    assert sorted(tried["pushes"]) == ["1", "2", "3"]
    assert sum(notified.get("LeaderAndIsr", 0) for notified in tried["pushes"].values()) == 6
    assert partitions(operator, "grows") == before
    table = operator.table("topics", "alter", "grows", "--partitions=5", "--dry-run")
    assert ["BROKER", "LEADER", "AND", "ISR", "UPDATE", "METADATA", "STOP", "REPLICA"] in table
    notified = {row[0]: row[1] for row in table[-3:]}
    assert notified == {b: str(t.get("LeaderAndIsr", "-")) for b, t in tried["pushes"].items()}
    refused = operator.run("topics", "alter", "grows", "--partitions=5")
    assert (refused.exit_code, "use --yes" in refused.stderr) == (2, True)
    code, said = at_a_terminal(operator.cluster.connect, "n", "topics", "alter", "grows", "--partitions=5")
    assert (code, "Add 3 partitions to the 2 of grows?" in said) == (3, True), said
    assert partitions(operator, "grows") == before
    done = operator.ok("topics", "alter", "grows", "--partitions=5", "--yes")
    assert "topic grows has 5 partitions" in done.stderr
    after = partitions(operator, "grows")
    assert operator.zk.get("/brokers/topics/grows")[0].decode() == topic["new"]
    assert after == {**before, **{str(row["partition"]): row["replicas"] for row in dry}}
    assert [operator.state("grows", n)["leader"] for n in (2, 3, 4)] == [after[str(n)][0] for n in (2, 3, 4)]


def test_new_partitions_by_hand_without_waiting(operator: Operator) -> None:
    operator.ok("topics", "create", "byhandtoo", "--replica-assignment=1:2")
    asked = ("topics", "alter", "byhandtoo", "--partitions=2", "--yes", "--no-wait")
    operator.ok(*asked, "--replica-assignment=3:1")
    assert partitions(operator, "byhandtoo") == {"0": [1, 2], "1": [3, 1]}


BAD = [
    (("nope", "--partitions=2"), 1, "UNKNOWN_TOPIC_OR_PARTITION: no topic 'nope'"),
    (("fixed", "--partitions=2"), 1, "INVALID_PARTITIONS: count = 2: must be more than the 2"),
    (("fixed", "--partitions=3", "--replica-assignment=1"), 1, "must be 2 as in the others"),
    (("fixed", "--partitions=3", "--replica-assignment=1:98"), 1, "[98] are not registered"),
    (("fixed", "--partitions=3", "--replica-assignment=x"), 1, "replica assignment 'x'"),
    (("fixed", "--partitions=0"), 2, "--partitions"),
    (("fixed",), 2, "--partitions"),
    (("going-too", "--partitions=2"), 1, "INVALID_TOPIC_EXCEPTION: topic 'going-too' is being deleted"),
    (("stuck", "--partitions=2"), 3, "REASSIGNMENT_IN_PROGRESS: stuck-0 is being reassigned"),
]


@pytest.fixture(scope="module")
def fixed(operator: Operator) -> Operator:
    operator.ok("topics", "create", "fixed", "--replica-assignment=1:2,2:3")
    for name in ("going-too", "stuck"):
        operator.ok("topics", "create", name, "--replica-assignment=98:1", "--no-wait")
    operator.ok("topics", "delete", "going-too", "--yes", "--no-wait")
    # A target that is not there: only the legacy znode takes it.
    plan = {"version": 1, "partitions": [{"topic": "stuck", "partition": 0, "replicas": [97, 1]}]}
    operator.zk.create("/admin/reassign_partitions", json.dumps(plan).encode())
    operator.wait(lambda: len(operator.json("reassign", "list", "--topic=stuck")) == 1)
    return operator


@pytest.mark.parametrize(("arguments", "code", "says"), BAD, ids=[" ".join(a) for a, _, _ in BAD])
def test_what_is_refused_changes_nothing(
    fixed: Operator, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = fixed.run("topics", "alter", *arguments, "--yes")
    assert (result.exit_code, says in result.stderr) == (code, True), result.output
    assert partitions(fixed, "fixed") == {"0": [1, 2], "1": [2, 3]}


def test_a_stuck_move_is_cancelled(fixed: Operator) -> None:
    fixed.ok("reassign", "cancel", "--all", "--yes", "--no-wait")
    fixed.wait(lambda: partitions(fixed, "stuck") == {"0": [98, 1]})
    assert not fixed.zk.exists("/admin/reassign_partitions")


def test_without_an_active_controller_nothing_is_written(operator: Operator) -> None:
    with operator.controller_away():
        operator.wait(lambda: not operator.zk.exists("/controller"))
        result = operator.run("topics", "create", "nobodyhome")
        assert (result.exit_code, result.stderr) == (
            1, "pctl: no controller is active: nothing was changed\n"
        )  # fmt: skip
        assert not operator.zk.exists("/config/topics/nobodyhome")
