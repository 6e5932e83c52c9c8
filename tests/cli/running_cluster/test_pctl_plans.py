"""Plans on a running cluster, and then what is planned is really done: states, leaders and moves must be the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.support.cli.operator import Operator

pytestmark = pytest.mark.slow

#: Members that are killed or frozen have to go.
SESSION_TIMEOUT_MS = 3000

BAD = [
    (("plan", "broker-loss", "3,x"), 2, "must be broker ids from 0 to 2147483647, as 3,5"),
    (("plan", "broker-loss", ""), 2, "must be broker ids"),
    (("plan", "broker-loss", "²"), 2, "must be broker ids"),
    (("plan", "broker-loss", "1,9"), 1, "broker 9 not registered: there are 1, 2, 3"),
    (("plan", "drain", "x"), 2, "BROKER"),
    (("plan", "preferred-election", "--min-isr-default=0"), 2, "--min-isr-default"),
    (("stoppable", "1;2"), 2, "must be broker ids"),
    (("explain", "partition", "nope", "-1"), 2, "PARTITION"),
    (("explain", "broker", "x"), 2, "BROKER"),
    (("explain", "nonsense"), 2, "nonsense"),
    (("explain", "deletion", "nope", "--offline"), 1, "no topic 'nope'"),
    (("explain", "reassignment", "nope", "0", "--offline"), 1, "no partition nope-0"),
    (("explain", "partition", "nope", "0", "--offline"), 1, "no partition nope-0"),
    (("plan", "rolling-restart", "--brokers=1,x"), 2, "must be broker ids"),
    (("plan", "drain", "7", "--offline"), 1, "broker 7 not registered"),
    (("stoppable", "1", "--reason= ", "--approve"), 2, "must be a text of 1 to 1000"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), BAD)
def test_bad_input(operator: Operator, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = operator.run(*arguments)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert result.stdout == ""


def asked(operator: Operator, *arguments: str) -> tuple[int, Any]:
    result = operator.run("-o", "json", *arguments)
    return result.exit_code, json.loads(result.stdout)


def topic(operator: Operator, name: str, assignment: str) -> None:
    """Created, led, and every replica in sync."""
    operator.ok("topics", "create", name, f"--replica-assignment={assignment}")
    operator.wait(lambda: all(p["why"] == "" for p in operator.json("topics", "describe", name)))


@contextmanager
def broker_away(operator: Operator, broker_id: int, *, kill: bool) -> Iterator[None]:
    def under_replicated() -> set[tuple[str, int]]:
        return {(p["topic"], p["partition"]) for p in operator.json("partitions", "--under-replicated")}

    # The cluster is shared: other tests leave topics with replicas on brokers that never were.
    before = under_replicated()
    member = operator.cluster.members[f"broker-{broker_id}"]
    if kill:
        member.kill()
    else:
        member.stop()
    try:
        yield
    finally:
        member.start()
        operator.wait(
            lambda: (
                broker_id in [b["broker"] for b in operator.json("brokers") if b["state"] != ["gone"]]
                and under_replicated() <= before
            )
        )


def test_a_loss_is_as_planned(operator: Operator) -> None:
    topic(operator, "planned", "3:1,3:2,1:3,2:1")
    topic(operator, "lonely", "3")
    code, plan = asked(operator, "plan", "broker-loss", "3", "--writes")
    assert code == 3
    (step,) = plan["steps"]
    assert "lonely-0" in step["offline"]
    assert {"planned-0", "planned-1", "planned-2"} <= set(step["under_replicated"])
    planned = {w["path"]: w for w in step["writes"]}
    moved = {m["partition"]: m["to"] for m in step["moved"]}
    assert (moved["planned-0"], moved["planned-1"], moved["lonely-0"]) == (1, 2, -1)
    for path, write in planned.items():
        assert write["old"].encode() == operator.zk.get(path)[0]

    with broker_away(operator, 3, kill=True):
        operator.wait(lambda: operator.state("lonely", 0)["leader"] == -1)
        for path, write in planned.items():
            want = write["new"].encode()
            operator.wait(lambda path=path, want=want: operator.zk.get(path)[0] == want)  # type: ignore[misc]
        rows = operator.json("brokers")
        assert [b["broker"] for b in rows if b["state"] == ["gone"]] == [3]
        leaders = {str(b["broker"]): b["leaders"] for b in rows if b["state"] != ["gone"]}
        assert leaders == {b: n["after"] for b, n in step["leaders"].items() if n["after"] is not None}

        explained = operator.json("explain", "partition", "lonely", "0")
        assert explained["summary"] == "it has no leader"
        assert explained["rules"][0]["candidates"] == [
            {"broker": 3, "failed": "is online", "reason": "3 is not online"}
        ]
        assert explained["source"] == "controller"
        assert explained["changes"] == [
            "the return of any of [3] (ISR [3]): it leads at once, nothing is lost"
        ]
        text = operator.ok("explain", "partition", "lonely", "0").stdout
        assert "would change it: the return of any of [3]" in text
        assert "it is not registered" in operator.ok("explain", "broker", "3").stdout
        code, answer = asked(operator, "stoppable", "1")
        assert code == 3
        assert {"already_under_replicated", "offline"} <= {r["reason"] for r in answer["reasons"]}


def test_a_stop_is_as_answered(operator: Operator) -> None:
    topic(operator, "stops", "2:1:3,1:3:2")
    _, answer = asked(operator, "stoppable", "2")
    others = [r for r in answer["reasons"] if r["topic"] == "stops"]
    assert others == []
    _, plan = asked(operator, "plan", "drain", "2")
    moved = {m["partition"]: m["to"] for m in plan["steps"][0]["moved"]}
    assert moved["stops-0"] == 1
    with broker_away(operator, 2, kill=False):
        operator.wait(lambda: operator.state("stops", 0)["isr"] == [1, 3])
        assert operator.state("stops", 0)["leader"] == 1

    # Back again: a preferred election gives it what it led.
    _, plan = asked(operator, "plan", "preferred-election")
    assert {"partition": "stops-0", "from": 1, "to": 2, "unclean": False} in plan["steps"][0]["moved"]
    operator.ok("elect", "--topic=stops")
    assert operator.state("stops", 0)["leader"] == 2
    _, plan = asked(operator, "plan", "preferred-election")
    assert "stops-0" not in [m["partition"] for m in plan["steps"][0]["moved"]]


def test_approval_margin_and_min_isr(operator: Operator) -> None:
    """Whatever other topics are there: only the reasons of this one are looked at."""
    topic(operator, "margins", "1:2:3")
    before, _ = operator.zk.get("/config/topics/margins")
    operator.zk.set("/config/topics/margins", b'{"version":1,"config":{"min.insync.replicas":"3"}}')
    try:
        _, answer = asked(operator, "stoppable", "1")
        (reason,) = [r for r in answer["reasons"] if r["topic"] == "margins"]
        assert reason["reason"] == "under_min_isr"
        assert "margins-0 would have 2 of 3" in reason["text"]
        code, plan = asked(operator, "plan", "rolling-restart")
        assert code == 3
        assert [s["brokers"] for s in plan["steps"]] == [[1], [2], [3]]
        assert all("margins-0" in s["under_min_isr"] for s in plan["steps"])
        text = operator.run("plan", "rolling-restart").stdout
        assert "rolling-restart: NOT safe" in text
        assert "restart of broker 2" in text
    finally:
        operator.zk.set("/config/topics/margins", before)


def test_explanations_without_a_controller(operator: Operator) -> None:
    topic(operator, "orphans", "1:2")
    assert "controller 1 is active since controller epoch" in operator.ok("explain", "controller").stdout
    with operator.controller_away():
        operator.wait(lambda: operator.json("explain", "controller")["controller"] == -1)
        assert "no controller is active; the last was" in operator.ok("explain", "controller").stdout
        words = operator.json("explain", "partition", "orphans", "0")["words"]
        assert any("no controller is active now" in line for line in words)
        assert "broker epoch" in operator.ok("explain", "broker", "1").stdout
        code, answer = asked(operator, "stoppable", "1")
        assert code == 3
        assert answer["reasons"][0]["reason"] == "no_controller"
        assert answer["approvals"] == []


def test_yaml_says_what_json_says(operator: Operator) -> None:
    topic(operator, "yamls", "1:2")
    for verb in (
        ("controllers",),
        ("topics", "list"),
        ("topics", "describe", "yamls"),
        ("plan", "drain", "1", "--writes"),
        ("plan", "rolling-restart"),
        ("stoppable", "2"),
        ("explain", "broker", "1"),
        ("explain", "partition", "yamls", "0"),
        ("cluster",),
    ):
        as_json = operator.run("-o", "json", *verb)
        as_yaml = operator.run("-o", "yaml", *verb)
        assert as_yaml.exit_code == as_json.exit_code
        assert msgspec.yaml.decode(as_yaml.stdout) == json.loads(as_json.stdout)
        assert as_yaml.stdout != as_json.stdout
