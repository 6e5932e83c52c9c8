"""pctl config on a running cluster."""

from __future__ import annotations

import json

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal

pytestmark = pytest.mark.slow


def stored(operator: Operator, entity: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(operator.zk.get(f"/config/{entity}")[0])["config"]
    return found


def test_keys_of_a_topic_are_set_shown_and_deleted(operator: Operator) -> None:
    operator.ok("topics", "create", "configured", "--config=retention.ms=5")
    topic = "--topic=configured"
    dry = operator.ok("-o", "json", "config", "set", topic, "retention.ms=7", "--dry-run")
    assert "topic configured would be changed" in dry.stderr
    write, notification = json.loads(dry.stdout)["writes"]
    before = operator.zk.get("/config/topics/configured")[0]
    assert write["path"] == "/config/topics/configured"
    assert write["old"].encode() == before
    assert notification["path"] == "/config/changes/config_change_"
    assert stored(operator, "topics/configured") == {"retention.ms": "5"}
    notes = set(operator.zk.get_children("/config/changes"))
    operator.ok("config", "set", topic, "retention.ms=7", "--yes")
    assert operator.zk.get("/config/topics/configured")[0].decode() == write["new"]
    (note,) = set(operator.zk.get_children("/config/changes")) - notes
    assert operator.zk.get(f"/config/changes/{note}")[0].decode() == notification["new"]
    refused = operator.run("config", "set", topic, "retention.ms=7", "of.others=x=y", "--yes")
    assert (refused.exit_code, "'of.others' is not known for topics" in refused.stderr) == (1, True)
    done = operator.ok("config", "set", topic, "retention.ms=7", "of.others=x=y", "--force", "--yes")
    assert "key 'of.others' is not known" in done.stderr
    assert "1 key of topic configured changed" in done.stderr, "the other has that value"
    assert stored(operator, "topics/configured") == {"retention.ms": "7", "of.others": "x=y"}
    rows = {row["key"]: row for row in operator.json("config", "get", topic)}
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["known"]) == ("7", True)
    assert (rows["of.others"]["source"], rows["of.others"]["known"]) == ("topics/configured", False)
    operator.ok("config", "delete", topic, "of.others", "--yes")
    assert stored(operator, "topics/configured") == {"retention.ms": "7"}
    for change in (("delete", "of.others"), ("set", "retention.ms=7")):
        said = operator.ok("config", *change, topic, "--yes").stderr
        assert said == "nothing to do: topic configured has it so\n"
        tried = operator.ok("config", *change, topic, "--dry-run").stderr
        assert ("nothing would be written" in tried, "would be changed" in tried) == (True, False)


BAD = [
    (("get",), 2, "name one of --topic, --broker, --all-brokers, --controller and --all-controllers"),
    (("get", "--topic=t", "--broker=1"), 2, "name one of"),
    (("get", "--topic=strict", "--topic=other"), 2, "--topic: is given 2 times, takes one value"),
    (("set", "--topic=strict", "a=1", "b=2", " a=1"), 2, "a: is given twice"),
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
    for more in ([], ["--yes"], ["--dry-run"])[: 1 if arguments[0] == "get" else 3]:
        result = operator.run("config", *arguments, *more)
        # Nobody is asked about what cannot be done anyway, as far as that is known before.
        asked = not more and "INVALID_CONFIG" in says
        expected = (2, "use --yes") if asked else (code, says)
        assert (result.exit_code, expected[1] in result.stderr) == (expected[0], True), result.output
    assert stored(operator, "topics/strict") == {}


def test_brokers_have_a_default_and_their_own(operator: Operator) -> None:
    operator.ok("config", "set", "--all-brokers", "of.all=1", "--yes")
    operator.ok("config", "set", "--broker=2", "of.two=2", "--yes")
    try:
        rows = {row["key"]: row["source"] for row in operator.json("config", "get", "--broker=2")}
        assert rows == {"of.two": "brokers/2", "of.all": "brokers/<default>"}
        assert [r["key"] for r in operator.json("config", "get", "--all-brokers")] == ["of.all"]
    finally:
        operator.ok("config", "delete", "--all-brokers", "of.all", "--yes")
    assert stored(operator, "brokers/<default>") == {}


def test_a_person_sees_what_is_set_and_is_asked(operator: Operator) -> None:
    operator.ok("topics", "create", "asked-of", "--config=retention.ms=5")
    change = ("config", "set", "--topic=asked-of", "retention.ms=9", "segment.ms=1")
    refused = operator.run(*change)
    assert (refused.exit_code, "use --yes; nothing was changed" in refused.stderr) == (2, True)
    shown = [line.split() for line in refused.stdout.splitlines()]
    assert shown[1:] == [
        ["retention.ms", "5", "topics/asked-of", "9"],
        ["segment.ms", "-", "-", "1"],
    ]
    code, said = at_a_terminal(operator.cluster.connect, "n", *change)
    assert (code, "Change 2 keys of topic asked-of as shown?" in said) == (3, True), said
    assert stored(operator, "topics/asked-of") == {"retention.ms": "5"}
    code, said = at_a_terminal(
        operator.cluster.connect, "y", "config", "delete", "--topic=asked-of", "retention.ms"
    )
    assert (code, "1 key of topic asked-of changed" in said) == (0, True), said
    assert stored(operator, "topics/asked-of") == {}


def test_a_dry_run_of_a_broker_s_keys_starts_from_its_own(operator: Operator) -> None:
    operator.ok("config", "set", "--broker=3", "of.three=1", "--yes")
    tried = operator.json("config", "delete", "--broker=3", "of.three", "--dry-run")
    write = tried["writes"][0]
    assert (write["path"], json.loads(write["old"])["config"]) == ("/config/brokers/3", {"of.three": "1"})
    assert json.loads(write["new"])["config"] == {}
    nothing = operator.json("config", "delete", "--broker=3", "not.set", "--dry-run")
    assert nothing["writes"] == []
    table = operator.ok("config", "set", "--broker=3", "of.three=2", "--dry-run").stdout
    assert "/config/changes/config_change_" in table
    assert stored(operator, "brokers/3") == {"of.three": "1"}


def test_a_password_is_never_shown(operator: Operator) -> None:
    def change(password: str, *more: str) -> str:
        result = operator.ok("config", "set", "--broker=1", f"ssl.key.password={password}", *more)
        return result.stdout + result.stderr

    said = change("hunter2", "--yes") + change("sesame", "--dry-run") + change("sesame", "--yes")
    said += operator.ok("config", "get", "--broker=1").stdout
    said += operator.ok("config", "delete", "--broker=1", "ssl.key.password", "--yes").stdout
    assert said.count("ssl.key.password") >= 5
    assert not [word for word in ("hunter2", "sesame") if word in said]
