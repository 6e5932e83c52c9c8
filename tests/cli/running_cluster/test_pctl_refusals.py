"""Every bad input of pctl: its exit code, one line that says what is wrong, and nothing changed."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from controller.cli.pctl.main import main
from tests.support.cli.operator import Operator, pctl

pytestmark = pytest.mark.slow

BAD = [
    (("topics", "describe", "a//b"), 1, "a//b"),
    (("partitions", "--topic=../ids"), 1, "'../ids'"),
    (("topics", "create", "x" * 250), 1, "1 to 249"),
    (("topics", "create", "taken"), 1, "exists already"),
    (("topics", "create", "colliding.name"), 1, "collides with 'colliding_name'"),
    (("topics", "create", "going"), 1, "is being deleted"),
    (("topics", "create", "n", "--replication-factor=4"), 1, "number of brokers, 3"),
    (("topics", "create", "n", "--replica-assignment=1:x"), 1, "'1:x' of partition 0"),
    (("topics", "create", "n", "--replica-assignment=1:1"), 1, "must be distinct"),
    (("topics", "create", "n", "--replica-assignment=1:2,3"), 1, "same number of replicas"),
    (("topics", "create", "n", "--replica-assignment="), 1, "partition 0"),
    (("topics", "create", "n", "--replica-assignment=-1"), 1, "not negative"),
    (("topics", "create", "n", "--replica-assignment=9999999999"), 1, "2147483647"),
    (("topics", "create", "n", "--replica-assignment=1", "--partitions=1"), 2, "leave out --partitions"),
    (("topics", "create", "n", "--config=novalue"), 2, "KEY=VALUE"),
    (("topics", "create", "n", "--config==v"), 2, "KEY=VALUE"),
    (("topics", "create", "n", "--partitions=0"), 2, "--partitions"),
    (("topics", "create", "n", "--partitions=x"), 2, "--partitions"),
    (("topics", "create"), 2, "TOPIC"),
    (("elect",), 2, "--topic, --partition, --file or --all"),
    (("elect", "--file=/nowhere/to.json"), 1, "/nowhere/to.json"),
    (("--timeout=0", "cluster"), 2, "timeout"),
]


@pytest.fixture(scope="module")
def operator_with_topics(operator: Operator) -> Operator:
    for name in ("taken", "colliding_name"):
        operator.ok("topics", "create", name)
    # Nobody confirms that its replica is gone.
    operator.ok("topics", "create", "going", "--replica-assignment=98", "--no-wait")
    operator.ok("topics", "delete", "going", "--yes", "--no-wait")
    return operator


@pytest.mark.parametrize(("arguments", "code", "says"), BAD, ids=[" ".join(a)[:60] for a, _, _ in BAD])
def test_bad_input(operator_with_topics: Operator, arguments: tuple[str, ...], code: int, says: str) -> None:
    operator = operator_with_topics
    result = operator.run(*arguments)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output
    if code == 1:
        assert result.stderr.startswith("pctl: ")
        assert len(result.stderr.splitlines()) == 1
    try:
        assert "n" not in operator.zk.get_children("/brokers/topics")
        assert not operator.zk.exists("/config/topics/n")
    finally:
        # So that one failure stays one.
        for parent in ("/brokers/topics", "/config/topics"):
            if operator.zk.exists(f"{parent}/n"):
                operator.zk.delete(f"{parent}/n", recursive=True)


def test_no_verb_says_what_there_is() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    for verb in ("cluster", "controllers", "brokers", "partitions", "topics", "elect", "report"):
        assert verb in result.output


def test_creation_that_gets_no_leader_fails_in_words(operator: Operator) -> None:
    result = operator.run("--timeout=3", "topics", "create", "dead", "--replica-assignment=98:99")
    assert result.exit_code == 1
    assert "1 of its partitions have no leader that has acknowledged it: dead-0 (" in result.stderr
    assert "[98, 99] are offline" in result.stderr
    assert operator.run("topics", "create", "dead").exit_code == 1
    assert operator.ok("topics", "create", "dead2", "--replica-assignment=98", "--no-wait").exit_code == 0


def test_election_that_can_change_nothing_is_refused(operator: Operator) -> None:
    # Nobody takes the second replica back into the ISR meanwhile.
    with operator.frozen_controller():
        operator.topic_by_hand("hopeless", [98, 1], 1, [1])
        operator.topic_by_hand("outofsync", [2, 1], 1, [1])
        for name in ("hopeless", "outofsync"):
            refused = operator.run("--timeout=3", "elect", f"--topic={name}")
            assert refused.exit_code == 3
            assert "no preferred replica could lead" in refused.stderr
            tried = operator.run("--timeout=3", "-o", "json", "elect", f"--topic={name}", "--dry-run")
            assert (tried.exit_code, '"possible": false' in tried.stdout) == (3, True)
            assert "from ZooKeeper alone (the controller at" in tried.stderr
            assert "carried out" not in tried.stderr


def test_what_a_frozen_controller_is_asked_fails_in_words(operator: Operator) -> None:
    with operator.frozen_controller():
        operator.topic_by_hand("nobody", [1, 2], 2, [2, 1])
        failed = operator.run("--timeout=3", "elect", "--topic=nobody")
        assert failed.exit_code == 1
        assert "did not answer (DEADLINE_EXCEEDED" in failed.stderr
        assert failed.stderr.endswith("ElectLeaders was not sent\n")
        created = operator.run("--timeout=3", "topics", "create", "alsonobody")
        assert created.exit_code == 1
        assert created.stderr.endswith("CreateTopics was not sent\n")


def test_a_controller_that_does_not_answer_is_said(operator: Operator) -> None:
    with operator.frozen_controller():
        assert operator.json("--timeout=3", "cluster")["controller_answers"].startswith("no (")
        rows = operator.json("--timeout=3", "brokers")
        assert {row["pending_pushes"] for row in rows} == {None}
    operator.wait(lambda: operator.json("cluster").get("controller_answers") == "yes")


def test_looking_at_a_cluster_that_is_not_there_does_not_make_one(zookeeper: str, zk: KazooClient) -> None:
    result = pctl(f"{zookeeper}/nowhere", "cluster")
    assert result.exit_code == 1
    assert "/nowhere does not exist" in result.stderr
    assert zk.get_children("/") == []
