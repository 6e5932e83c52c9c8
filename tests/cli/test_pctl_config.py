"""pctl config on a running cluster."""

from __future__ import annotations

import json

import pytest

from tests.cli.operator import Operator

pytestmark = pytest.mark.slow


def stored(operator: Operator, entity: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(operator.zk.get(f"/config/{entity}")[0])["config"]
    return found


def test_keys_of_a_topic_are_set_shown_and_deleted(operator: Operator) -> None:
    operator.ok("topics", "create", "configured", "--config=retention.ms=5")
    topic = "--topic=configured"
    dry = operator.ok("config", "set", topic, "retention.ms=7", "--dry-run")
    assert "1 key of topic configured would be changed" in dry.stderr
    assert stored(operator, "topics/configured") == {"retention.ms": "5"}
    done = operator.ok("config", "set", topic, "retention.ms=7", "of.others=x=y")
    assert "key 'of.others' is not known" in done.stderr
    assert "2 keys of topic configured changed" in done.stderr
    assert stored(operator, "topics/configured") == {"retention.ms": "7", "of.others": "x=y"}
    rows = {row["key"]: row for row in operator.json("config", "get", topic)}
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["known"]) == ("7", True)
    assert (rows["of.others"]["source"], rows["of.others"]["known"]) == ("topics/configured", False)
    operator.ok("config", "delete", topic, "of.others")
    assert stored(operator, "topics/configured") == {"retention.ms": "7"}


BAD = [
    (("get",), 2, "name one of --topic, --broker and --all-brokers"),
    (("get", "--topic=t", "--broker=1"), 2, "name one of"),
    (("get", "--topic=nope"), 1, "topic nope: UNKNOWN_TOPIC_OR_PARTITION"),
    (("set", "--topic=nope", "a=b"), 1, "topic nope: UNKNOWN_TOPIC_OR_PARTITION"),
    (("set", "--topic=strict"), 2, "KEY=VALUE"),
    (("set", "--topic=strict", "novalue"), 2, "KEY=VALUE"),
    (("set", "--topic=strict", "retention.ms=x"), 1, "topic strict: INVALID_CONFIG: retention.ms = 'x'"),
    (("delete", "--topic=strict"), 2, "KEY"),
    (("get", "--broker=x"), 2, "--broker"),
]


@pytest.mark.parametrize(("arguments", "code", "says"), BAD, ids=[" ".join(a) for a, _, _ in BAD])
def test_bad_input(operator: Operator, arguments: tuple[str, ...], code: int, says: str) -> None:
    if not operator.zk.exists("/brokers/topics/strict"):
        operator.ok("topics", "create", "strict")
    result = operator.run("config", *arguments)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output
    assert stored(operator, "topics/strict") == {}


def test_brokers_have_a_default_and_their_own(operator: Operator) -> None:
    operator.ok("config", "set", "--all-brokers", "of.all=1")
    operator.ok("config", "set", "--broker=2", "of.two=2")
    try:
        rows = {row["key"]: row["source"] for row in operator.json("config", "get", "--broker=2")}
        assert rows == {"of.two": "brokers/2", "of.all": "brokers/<default>"}
        assert [r["key"] for r in operator.json("config", "get", "--all-brokers")] == ["of.all"]
    finally:
        operator.ok("config", "delete", "--all-brokers", "of.all")
    assert stored(operator, "brokers/<default>") == {}
