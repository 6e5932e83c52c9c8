"""Which request each verb sends, that a dry run sends none, and what either says of a refusal."""

from __future__ import annotations

import getpass
import time
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec
import pytest

from controller.cli.common import attribution, progress
from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl import cluster as clusters
from controller.cli.pctl import config, elect, features, maintenance, reassign, topics
from controller.cli.pctl.decisions import stoppable
from controller.cli.pctl.moving import decommission, load, throttle
from controller.core.effects import TopicInfo
from controller.core.model import Attribution, Freeze, Maintenance, StopApproval
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from controller.runtime.rpc.methods import ADMIN_SERVICE, request_of, response_of
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import common_pb2
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker, state

ANN = Attribution("disks", "ann")
BY = "--reason r --author bob"
#: Of t-0 broker 1 is in sync alone; everything is in force that can end.
CLUSTER = ClusterState(
    100,
    "c:1",
    7,
    brokers={b: a_broker(b, 50 + b) for b in (1, 2, 3)},
    topics={"t": TopicInfo("t", "id", {0: (1, 2)}, {}, {}, 0, 1)},
    partitions=[PartitionInfo("t", 0, (1, 2), state(2, (1, 2), 1, 1))],
    maintenance=Maintenance(paused=ANN, entered=ANN, drained={3: ANN}, freeze=Freeze("disks", "ann", 5)),
    approvals={1: StopApproval(51, "disks", "ann", 1)},
)
MODULES: tuple[ModuleType, ...] = (
    *(attribution, clusters, config, elect, features, maintenance, reassign, topics),
    *(stoppable, load, throttle),
)
#: What is asked before the change.
LOOKS = ("DescribeMaintenance", "DescribeConfigs", "DescribeFeatures", "DescribeReplicas", "DescribeTopics")
ATTRIBUTED = {"reason": "r", "author": "bob"}
#: By command: the method, and what the request says.
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    f"maintenance enter {BY}": ("SetMaintenance", {**ATTRIBUTED, "entered": True}),
    f"maintenance leave {BY}": ("SetMaintenance", {**ATTRIBUTED, "entered": False}),
    f"maintenance pause {BY}": ("SetPause", {**ATTRIBUTED, "paused": True}),
    f"maintenance resume {BY}": ("SetPause", {**ATTRIBUTED, "paused": False}),
    f"maintenance drain 2 {BY} --force": (
        "SetDrain",
        {**ATTRIBUTED, "broker_id": 2, "drained": True, "force": True},
    ),
    f"maintenance undrain 3 {BY}": ("SetDrain", {**ATTRIBUTED, "broker_id": 3, "drained": False}),
    "maintenance cancel-shutdown 2 --epoch 0": ("CancelShutdown", {"broker_id": 2, "broker_epoch": 0}),
    f"freeze --for 2h {BY}": ("SetFreeze", {**ATTRIBUTED, "frozen": True, "until_ms": 7_210_000}),
    f"unfreeze {BY}": ("SetFreeze", {**ATTRIBUTED, "frozen": False, "until_ms": 0}),
    f"brokers forget 9 {BY}": ("ForgetBroker", {**ATTRIBUTED, "broker_id": 9}),
    "config set --topic t retention.ms=5": ("AlterConfigs", {"unknown_keys_too": False}),
    "config set --broker 1 --force a.b=5": ("AlterConfigs", {"unknown_keys_too": True}),
    "features upgrade --feature f=3": ("UpdateFeatures", {}),
    "topics create t --partitions 2": ("CreateTopics", {}),
    "topics delete t --reason r": ("DeleteTopics", {"reason": "r"}),
    "reassign execute --topic t --partition 0 --replicas 3,1 --reason r": (
        "AlterPartitionReassignments",
        {"reason": "r"},
    ),
    "stoppable 1 --withdraw --reason r --author bob": (
        "WithdrawStopApproval",
        {**ATTRIBUTED, "broker_ids": [1]},
    ),
}
NOT_TRIED = {f"quarantine release topic:t {BY}": ("ReleaseQuarantine", {**ATTRIBUTED, "name": "topic:t"})}


def answers(method: str) -> Any:
    """Of a controller that has done what was asked for: an entry for each, where there are entries."""
    made: Any = response_of(ADMIN_SERVICE, method)()
    entries = {
        "AlterConfigs": lambda: made.responses.add(),
        "UpdateFeatures": lambda: made.results.add(name="f"),
        "CreateTopics": lambda: made.topics.add(name="t").assignments[0].broker_ids.extend([1, 2]),
        "DeleteTopics": lambda: made.responses.add(name="t"),
        "AlterPartitionReassignments": lambda: made.responses.add(topic="t"),
        "DescribeConfigs": lambda: made.results.add(),
        "DescribeMaintenance": lambda: made.shutting_down.append(2),
    }
    entries.get(method, lambda: None)()
    return made


def install(monkeypatch: pytest.MonkeyPatch, method: str, answer: Any = None) -> Asked:
    given = {look: answers(look) for look in LOOKS} | {method: answer or answers(method)}
    monkeypatch.setattr(time, "time", lambda: 10.0)
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    return Asked(CLUSTER, **given).install(monkeypatch, *MODULES)


def tried(monkeypatch: pytest.MonkeyPatch, error: int = 0) -> list[tuple[str, Any]]:
    """What is run on a copy of the cluster; ``error``: of each answer, or of its entry."""
    steps: list[tuple[str, Any]] = []

    async def run_on_copy(_: Any, __: Any, *given: tuple[str, Any]) -> DryRun:
        steps.extend(given)
        made = [answers(method) for method, _ in given]
        for answer in made:
            entries = [e for name in ("topics", "responses", "results") for e in getattr(answer, name, ())]
            for one in entries or [answer]:
                one.error_code = error
        return DryRun(made, {"writes": [{"path": "/x", "old": None, "new": "y"}], "pushes": {}, "notes": []})

    for module in (*MODULES, decommission):
        if hasattr(module, "run_on_copy"):
            monkeypatch.setattr(module, "run_on_copy", run_on_copy)
    return steps


def says(request: Any, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(found) if isinstance(fields[name], list) else found
        for name in fields
        for found in [getattr(request, name)]
    }


@pytest.mark.parametrize("command", [*CHANGES, *NOT_TRIED])
def test_each_change_is_one_request_that_says_what_was_typed(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, fields = (CHANGES | NOT_TRIED)[command]
    asked = install(monkeypatch, method)
    no_wait = "--no-wait" * command.startswith(("topics", "reassign", "maintenance drain"))
    shown = typed(f"{command} --yes {no_wait}")
    assert shown.exit_code == 0, shown.stderr
    changes = [(asked_for, request) for asked_for, request in asked.requests if asked_for not in LOOKS]
    assert [asked_for for asked_for, _ in changes] == [method]
    assert isinstance(changes[0][1], request_of(ADMIN_SERVICE, method))
    assert says(changes[0][1], fields) == fields


@pytest.mark.parametrize("wait", ["", "--no-wait"])
@pytest.mark.parametrize(
    "command", [c for c in [*CHANGES, *NOT_TRIED] if not c.startswith(("topics create", "stoppable"))]
)
def test_nothing_is_changed_that_nobody_agreed_to(
    command: str, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A creation can be taken back, and what is approved no longer is no danger."""
    if wait and not command.startswith(("topics", "reassign", "maintenance drain")):
        return
    asked = install(monkeypatch, (CHANGES | NOT_TRIED)[command][0])
    shown = typed(f"{command} {wait}")
    assert (shown.exit_code, set(asked.methods) - {*LOOKS}) == (EXIT_USAGE, set())
    assert "There is no terminal to confirm at: use --yes" in shown.stderr


@pytest.mark.parametrize("error", [0, common_pb2.INVALID_REQUEST])
@pytest.mark.parametrize("command", list(CHANGES))
def test_a_dry_run_tries_the_same_and_changes_nothing(
    command: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, fields = CHANGES[command]
    if "author" not in fields:
        # It is for the record of what is done.
        fields = {name: value for name, value in fields.items() if name != "reason"}
    asked = install(monkeypatch, method)
    steps = tried(monkeypatch, error)
    shown = typed(f"{command} --yes --dry-run")
    if method != "WithdrawStopApproval":
        assert shown.exit_code == (EXIT_FAILED if error else 0), shown.stderr
    assert not [asked_for for asked_for in asked.methods if asked_for not in LOOKS]
    assert [(asked_for, says(request, fields)) for asked_for, request in steps] == [(method, fields)]
    assert ('"/x"' in shown.stdout) or error


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("maintenance leave", {"entered": None}),
        ("maintenance resume", {"paused": None}),
        ("maintenance undrain 3", {"drained": {}}),
        ("unfreeze", {"freeze": None}),
    ],
)
def test_an_end_of_what_is_not_in_force_asks_for_nothing(
    command: str, own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is."""
    others = replace(CLUSTER, maintenance=msgspec.structs.replace(CLUSTER.maintenance, **own))
    asked = Asked(others).install(monkeypatch, *MODULES)
    shown = typed(f"{command} {BY} --yes")
    assert (shown.exit_code, asked.methods, "nothing to do: " in shown.stderr) == (0, [], True)


@pytest.mark.parametrize("unknown", [KeyError("uid 5000"), OSError("no name service"), None])
def test_who_does_not_say_who_asks_is_named_by_the_machine(
    unknown: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def user() -> str:
        if unknown is not None:
            raise unknown
        return "bob"

    monkeypatch.setattr(getpass, "getuser", user)
    asked = install(monkeypatch, "SetPause")
    shown = typed("maintenance pause --reason r --yes")
    assert shown.exit_code == (0 if unknown is None else EXIT_USAGE)
    assert [request.author for request in asked.of("SetPause")] == (["bob"] if unknown is None else [])
