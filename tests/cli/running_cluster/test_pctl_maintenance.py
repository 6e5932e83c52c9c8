"""pctl maintenance on a running cluster of three brokers; every test leaves it as it found it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal
from tests.support.runtime.callers import calling

pytestmark = pytest.mark.slow

WHY = ("--reason=new disks", "--author=ann")
PATH = "/controllers/maintenance"


@pytest.fixture(autouse=True)
def left_as_found(operator: Operator) -> Iterator[None]:
    yield
    for verb in (["resume"], ["leave"], ["undrain", "1", "2", "3"]):
        operator.ok("maintenance", *verb, *WHY, "--yes")


def stored(operator: Operator) -> Any:
    return json.loads(operator.zk.get(PATH)[0]) if operator.zk.exists(PATH) else {}


def test_a_drained_broker_hands_over_and_leads_again(operator: Operator) -> None:
    operator.ok("topics", "create", "drained", "--replica-assignment=1:2,1:3")
    operator.topic_by_hand("alone", [1], 1, [1])
    asked = ("maintenance", "drain", "1", *WHY)
    trial = operator.json(*asked, "--dry-run")
    rows = trial["writes"]
    assert trial["pushes"]["2"]["LeaderAndIsr"] >= 1
    paths = {row["path"] for row in rows}
    assert f"{PATH}" in paths
    assert {f"/brokers/topics/drained/partitions/{n}/state" for n in (0, 1)} <= paths
    assert "/brokers/topics/alone/partitions/0/state" not in paths
    (planned,) = [json.loads(row["new"]) for row in rows if row["path"] == PATH]
    assert planned["drained"] == {"1": {"reason": "new disks", "author": "ann"}}
    assert operator.state("drained", 0)["leader"] == 1
    done = operator.ok(*asked, "--yes")
    assert "broker 1 goes on leading partitions that no other broker can lead" in done.stderr
    assert "alone-0" in done.stderr
    assert [operator.state("drained", n)["leader"] for n in range(2)] == [2, 3]
    assert operator.state("alone", 0)["leader"] == 1
    assert stored(operator) == planned, "what the dry run printed is what was written"
    assert operator.json("cluster")["drained"] == [1]
    assert [row["state"] for row in operator.json("brokers")] == [["drained"], ["ready"], ["ready"]]
    shown = operator.json("maintenance", "show")
    assert shown["drained"] == {"1": {"reason": "new disks", "author": "ann"}}
    assert (shown["offline_limit"], shown["shutting_down"]) == (3, [])
    refused = operator.run("elect", "preferred", "--topic=drained")
    assert (refused.exit_code, "1 is drained (ann: new disks)" in refused.stderr) == (3, True)
    operator.ok("maintenance", "undrain", "1", *WHY, "--yes")
    operator.ok("elect", "preferred", "--topic=drained")
    assert operator.state("drained", 0)["leader"] == 1


def test_new_replicas_avoid_drained_brokers_and_it_is_said_when_they_cannot(operator: Operator) -> None:
    operator.ok("maintenance", "drain", "3", *WHY, "--yes", "--no-wait")
    operator.ok("topics", "create", "avoids", "--partitions=3", "--replication-factor=2")
    assignment = json.loads(operator.zk.get("/brokers/topics/avoids")[0])["partitions"]
    assert {b for ids in assignment.values() for b in ids} == {1, 2}
    done = operator.ok("topics", "create", "cannot", "--partitions=1", "--replication-factor=3")
    assert "drained brokers: 3 (ann: new disks)" in done.stderr
    assert json.loads(operator.zk.get("/brokers/topics/cannot")[0])["partitions"]["0"][-1] == 3


def test_the_last_one_is_refused_unless_forced(operator: Operator) -> None:
    refused = operator.run("maintenance", "drain", "1", "2", "3", *WHY, "--yes")
    assert (refused.exit_code, "no other broker is left to lead" in refused.stderr) == (3, True)
    assert stored(operator).get("drained", {}) == {}
    operator.ok("maintenance", "drain", "1", "2", "3", *WHY, "--yes", "--force")
    assert sorted(stored(operator)["drained"]) == ["1", "2", "3"]
    unknown = operator.run("maintenance", "drain", "9", *WHY, "--yes")
    assert (unknown.exit_code, "broker 9 is not registered" in unknown.stderr) == (1, True)


def test_entered_and_left_with_reason_and_author(operator: Operator) -> None:
    entering = ("maintenance", "enter", *WHY)
    (row,) = operator.json(*entering, "--dry-run")["writes"]
    assert (row["path"], json.loads(row["new"])["entered"]["author"]) == (PATH, "ann")
    unasked = operator.run(*entering)
    assert (unasked.exit_code, "use --yes" in unasked.stderr) == (2, True)
    code, said = at_a_terminal(operator.cluster.connect, "n", *entering)
    assert (code, "Enter maintenance?" in said) == (3, True), said
    assert stored(operator).get("entered") is None
    operator.ok(*entering, "--yes")
    assert operator.json("cluster")["maintenance"] == "by ann: new disks"
    assert "in maintenance" in operator.ok("explain", "controller").stdout
    operator.ok("topics", "create", "stays", "--partitions=1", "--replication-factor=1")
    operator.ok("topics", "delete", "stays", "--yes", "--no-wait")
    (waiting,) = [row for row in operator.json("cluster")["topics_being_deleted"] if row == "stays"]
    assert operator.zk.exists(f"/brokers/topics/{waiting}")
    operator.ok("maintenance", "leave", *WHY, "--yes")
    operator.wait(lambda: not operator.zk.exists("/brokers/topics/stays"))
    assert "nothing to do" in operator.ok("maintenance", "leave", *WHY, "--yes").stderr


def test_an_unclean_election_that_waits_is_told_before_maintenance_ends(operator: Operator) -> None:
    operator.ok("maintenance", "enter", *WHY, "--yes")
    operator.topic_by_hand("waits", [1, 9], -1, [9])
    operator.wait(lambda: operator.run("explain", "partition", "waits", "0").exit_code == 0)
    operator.ok("config", "set", "unclean.leader.election.enable=true", "--topic=waits", "--yes")
    leaving = ("maintenance", "leave", *WHY)
    told = "a replica that was not in sync is elected, and records may be lost, of 1 partition: waits-0"
    assert told in operator.json(*leaving, "--dry-run")["notes"]
    refused, said = at_a_terminal(operator.cluster.connect, "n", *leaving)
    assert (refused, told in said) == (3, True), said
    assert told in operator.ok(*leaving, "--yes").stderr
    operator.wait(lambda: operator.state("waits", 0)["leader"] == 1)
    operator.zk.delete("/brokers/topics/waits", recursive=True)
    operator.wait(lambda: operator.run("explain", "partition", "waits", "0").exit_code == 1)


def test_paused_and_resumed(operator: Operator) -> None:
    operator.ok("maintenance", "pause", *WHY, "--yes")
    trial = operator.json("maintenance", "pause", *WHY, "--dry-run")
    assert trial["writes"] == [], "it is so already"
    table = operator.ok("maintenance", "show").stdout
    assert "paused" in table
    assert "new disks" in table
    assert operator.json("cluster")["paused"] == "by ann: new disks"
    operator.ok("maintenance", "resume", *WHY, "--yes")
    assert operator.json("maintenance", "show")["paused"] is None


def test_a_shutdown_is_taken_back(operator: Operator) -> None:
    assert "nothing to do" in operator.ok("maintenance", "cancel-shutdown", "2", "--yes").stderr
    assert operator.run("maintenance", "cancel-shutdown", "9", "--yes").exit_code == 1
    operator.ok("topics", "create", "left", "--replica-assignment=2:1")

    async def leave() -> None:
        async with calling(json.loads(operator.zk.get("/controller")[0])["endpoint"]) as caller:
            await caller.shut_down(2, operator.zk.get("/brokers/ids/2")[1].czxid)

    asyncio.run(leave())
    assert operator.json("maintenance", "show")["shutting_down"] == [2]
    assert [row["state"] for row in operator.json("brokers")] == [["ready"], ["shutting down"], ["ready"]]
    assert (operator.state("left", 0)["leader"], operator.state("left", 0)["isr"]) == (1, [1])
    stale = operator.run("maintenance", "cancel-shutdown", "2", "--epoch=1", "--yes")
    assert (stale.exit_code, "STALE_BROKER_EPOCH" in stale.stderr) == (1, True)
    trial = operator.json("maintenance", "cancel-shutdown", "2", "--dry-run")
    assert (trial["writes"], trial["pushes"]["2"]["LeaderAndIsr"] >= 1) == ([], True)
    operator.ok("maintenance", "cancel-shutdown", "2", "--yes")
    assert operator.json("maintenance", "show")["shutting_down"] == []
    operator.wait(lambda: set(operator.state("left", 0)["isr"]) == {1, 2})


@pytest.mark.parametrize(
    "arguments",
    [
        ("enter",),
        ("enter", "--reason= "),
        ("enter", "--reason=r", "--author="),
        ("pause", f"--reason={'x' * 1001}"),
        ("drain", "x", "--reason=r"),
        ("drain", "--reason=r"),
        ("drain", "-1", "--reason=r"),
        ("cancel-shutdown",),
        ("nonsense",),
    ],
)
def test_bad_usage(operator: Operator, arguments: tuple[str, ...]) -> None:
    assert operator.run("maintenance", *arguments).exit_code == 2


def test_without_a_controller_it_shows_what_is_stored(operator: Operator) -> None:
    operator.ok("maintenance", "drain", "2", *WHY, "--yes")
    with operator.controller_away():
        shown = operator.run("-o", "yaml", "maintenance", "show")
        assert (shown.exit_code, "no controller is active" in shown.stderr) == (0, True)
        assert "new disks" in shown.stdout
        refused = operator.run("maintenance", "enter", *WHY, "--yes")
        assert (refused.exit_code, "no controller is active" in refused.stderr) == (1, True)
    assert sorted(stored(operator)["drained"]) == ["2"], "the next controller goes on with it"
    assert operator.json("maintenance", "show")["drained"] == {"2": {"reason": "new disks", "author": "ann"}}
