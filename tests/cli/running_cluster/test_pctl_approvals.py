"""Approvals to stop, and what only the active controller knows, from outside: pctl on a running cluster."""

from __future__ import annotations

import getpass
import json
import signal
from typing import Any

import pytest

from tests.support.cli.operator import Operator

pytestmark = pytest.mark.slow

SIGNED = ("--author=ann", "--reason=new kernel")


def answer(operator: Operator, *arguments: str) -> tuple[int, Any]:
    result = operator.run("-o", "json", *arguments)
    return result.exit_code, json.loads(result.stdout)


def topic(operator: Operator, name: str, assignment: str, *configs: str) -> None:
    operator.ok("topics", "create", name, f"--replica-assignment={assignment}", *configs)
    operator.wait(lambda: all(p["why"] == "" for p in operator.json("topics", "describe", name)))


def of_topic(found: Any, name: str) -> list[str]:
    return [r["reason"] for r in found["reasons"] if r["topic"] == name]


def test_two_operators_do_not_each_get_a_yes(operator: Operator) -> None:
    topic(operator, "approved", "1:2:3", "--config=min.insync.replicas=2")
    # Other tests leave topics that speak against any stop: what was overridden is recorded all the same.
    code, found = answer(operator, "stoppable", "1", "--override", *SIGNED)
    try:
        assert code == 0
        assert of_topic(found, "approved") == []
        assert [a["broker"] for a in found["approvals"]] == [1]
        code, found = answer(operator, "stoppable", "2")
        assert code == 3
        assert of_topic(found, "approved") == ["under_min_isr"]
        text = operator.run("stoppable", "2").stdout
        assert "broker 1 counts as offline: approved to stop for ann: new kernel" in text
        # From ZooKeeper alone it is known, too.
        code, offline = answer(operator, "stoppable", "2", "--offline")
        assert offline.pop("source") == "zookeeper"
        assert found.pop("source") == "controller"
        assert offline == found

        (row,) = operator.json("stoppable", "--list")
        assert (row["broker"], row["author"], row["reason"]) == (1, "ann", "new kernel")
        assert "new kernel" in operator.ok("stoppable", "--list").stdout
        assert "approved to stop for ann: new kernel" in operator.ok("explain", "broker", "1").stdout
        # Approved stays approved, and by somebody else it is not done again.
        code, found = answer(operator, "stoppable", "1", "--approve", "--reason=again")
        assert (code, [a["author"] for a in found["approvals"]]) == (0, ["ann"])
    finally:
        said = operator.ok("stoppable", "1,2", "--withdraw", "--reason=done")
    assert "broker 1 no longer counts as offline" in said.stderr
    for tried in ((), ("--dry-run",)):
        again = operator.ok("stoppable", "1,2", "--withdraw", *tried)
        assert "nothing to do: brokers 1, 2: not approved to stop" in again.stderr
    assert operator.json("stoppable", "--list") == []
    _, found = answer(operator, "stoppable", "2")
    assert of_topic(found, "approved") == []


def test_a_no_is_not_recorded_and_the_author_is_the_user(operator: Operator) -> None:
    topic(operator, "alone", "2")
    result = operator.run("stoppable", "2", "--approve", "--reason=try")
    assert result.exit_code == 3
    assert "alone-0 would have no leader" in result.stdout
    assert "would change it: stop fewer of them at once" in result.stdout
    assert operator.json("stoppable", "--list") == []
    try:
        code, found = answer(operator, "stoppable", "2", "--override", "--reason=I know")
        assert (code, found["overridden"]) == (0, True)
        (row,) = operator.json("stoppable", "--list")
        assert row["author"] == getpass.getuser()
        assert row["overridden"]
    finally:
        operator.ok("stoppable", "2", "--withdraw", "--reason=done")


def test_an_approval_ends_with_the_incarnation(operator: Operator) -> None:
    answer(operator, "stoppable", "3", "--override", *SIGNED)
    assert [row["broker"] for row in operator.json("stoppable", "--list")] == [3]
    (epoch,) = [b["epoch"] for b in operator.json("brokers") if b["broker"] == 3]
    member = operator.cluster.members["broker-3"]
    member.stop()
    member.start()
    operator.wait(
        lambda: any(b["broker"] == 3 and b["epoch"] not in (None, epoch) for b in operator.json("brokers"))
    )
    assert operator.json("stoppable", "--list") == []


def test_it_goes_on_from_zookeeper_and_says_so(operator: Operator) -> None:
    topic(operator, "fallbacks", "1:2")
    known = operator.json("explain", "partition", "fallbacks", "0")
    result = operator.run("explain", "partition", "fallbacks", "0", "--offline", "-o", "json")
    assert "pctl: from ZooKeeper alone (--offline)" in result.stderr
    alone = json.loads(result.stdout)
    assert (known.pop("source"), alone.pop("source")) == ("controller", "zookeeper")
    # Which event decided it only the controller remembers.
    remembered = {"decision", "words", "event_id", "cause"}
    assert {k: v for k, v in alone.items() if k not in remembered} == {
        k: v for k, v in known.items() if k not in remembered
    }
    with operator.frozen_controller():
        result = operator.run("--timeout=1", "explain", "partition", "fallbacks", "0")
        assert result.exit_code == 0
        assert "pctl: from ZooKeeper alone (the controller at" in result.stderr
        assert "failed disks, brokers in controlled shutdown and the controllers' settings" in result.stderr
        result = operator.run("--timeout=1", "stoppable", "1", "--override", *SIGNED)
        assert result.exit_code == 1
        assert "ApproveStop was not sent" in result.stderr


def test_a_deletion_and_a_move_are_explained(operator: Operator) -> None:
    topic(operator, "goes", "3:1")
    found = operator.json("explain", "deletion", "goes")
    assert (found["phase"], found["changes"]) == ("none", ["pctl topics delete goes asks for it"])
    member = operator.cluster.members["broker-3"]
    member.signal(signal.SIGSTOP)
    try:
        operator.ok("topics", "delete", "goes", "--yes", "--no-wait")
        # Its marker is there; the controller hears of it.
        operator.wait(lambda: operator.json("explain", "deletion", "goes")["phase"] != "none")
        found = operator.json("explain", "deletion", "goes")
        assert found["phase"] in ("started", "ineligible", "queued")
        assert any(line.startswith("broker 3, which ") for line in found["waits_for"])
        assert "would change it: " in operator.ok("explain", "deletion", "goes").stdout
    finally:
        member.signal(signal.SIGCONT)
    operator.wait(lambda: operator.run("explain", "deletion", "goes").exit_code == 1)
    topic(operator, "moves", "1:2")
    found = operator.json("explain", "reassignment", "moves", "0")
    assert found["phase"] == "none"
    assert found["summary"] == "it is not being reassigned; its replicas are [1, 2]"


def test_a_drained_broker_is_not_planned_for(operator: Operator) -> None:
    topic(operator, "drained", "1:2:3")
    operator.ok("maintenance", "drain", "2", *SIGNED, "--yes")
    try:
        for where in ((), ("--offline",)):
            _, plan = answer(operator, "plan", "broker-loss", "1", *where)
            assert {m["partition"]: m["to"] for m in plan["steps"][0]["moved"]}["drained-0"] == 3
        assert "kept free of leaderships by ann: new kernel" in operator.ok("explain", "broker", "2").stdout
        notes = operator.json("explain", "controller")["notes"]
        assert "broker 2 is kept free of leaderships by ann: new kernel" in notes
    finally:
        operator.ok("maintenance", "undrain", "2", "--author=ann", "--reason=done", "--yes")
