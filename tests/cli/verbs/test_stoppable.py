"""``pctl stoppable``: which options go together, whose approvals hold, and what a verdict says."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl.decisions import stoppable as verbs
from controller.core.model import StopApproval
from controller.exit_codes import EXIT_REFUSED, EXIT_USAGE
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import inspection_pb2, maintenance_pb2
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker

#: Broker 1 is approved; 2 was in a former life, 3 has stopped.
CLUSTER = ClusterState(
    100,
    "c:1",
    7,
    brokers={b: a_broker(b, 50 + b) for b in (1, 2)},
    approvals={b: StopApproval(epoch, "disks", "ann", 1) for b, epoch in ((1, 51), (2, 7), (3, 53))},
)
VERDICT: dict[str, Any] = {
    "stoppable": True,
    "brokers": [1, 2],
    "reasons": [],
    "approvals": [],
    "shutting_down": [],
    "largest_safe_set": [1],
    "largest_is_exact": True,
    "margin": 1,
}
REASON = {"reason": "OUT_OF_SYNC", "topic": "t", "text": "t-0: out of sync", "change": "it catches up"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("stoppable", "name brokers, as 3,5, or use --list without any"),
        ("stoppable 1 --list", "name brokers, as 3,5, or use --list without any"),
        ("stoppable 1 --approve", "--reason: must be given with --approve or --override"),
        ("stoppable 1 --reason r", "--reason: only with --approve, --override or --withdraw"),
        ("stoppable 1 --approve --withdraw --reason r", "exclude each other"),
        ("stoppable 1 --withdraw --offline", "--offline: only the active controller records approvals"),
        ("stoppable 1 --dry-run", "--dry-run: only with --approve, --override or --withdraw"),
        ("stoppable 1 --withdraw --watch 1", "--watch: not with --approve, --override or --withdraw"),
        (
            "stoppable 1 --override --reason r --watch 1",
            "--watch: not with --approve, --override or --withdraw",
        ),
    ],
)
def test_options_that_contradict_each_other(command: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(CLUSTER).install(monkeypatch, verbs)
    shown = typed(command)
    assert (shown.exit_code, said in " ".join(shown.stderr.split()), asked.methods) == (EXIT_USAGE, True, [])


def test_only_approvals_of_this_life_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(CLUSTER, WithdrawStopApproval=maintenance_pb2.OperatorResponse())
    asked.install(monkeypatch, verbs)
    assert [row["broker"] for row in json.loads(typed("stoppable --list").stdout)] == [1]
    shown = typed("stoppable 2 3 --withdraw")
    assert (shown.exit_code, asked.methods) == (0, [])
    shown = typed("stoppable 1 2 --withdraw")
    assert "broker 1 no longer counts as offline" in shown.stderr
    assert [list(r.broker_ids) for r in asked.of("WithdrawStopApproval")] == [[1, 2]]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("yes", [False, True])
def test_a_no_decides_the_exit_code(dry_run: bool, yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = inspection_pb2.CheckStoppableResponse(answer=json.dumps({**VERDICT, "stoppable": yes}))

    async def run_on_copy(*_: Any) -> DryRun:
        return DryRun([answer], {"writes": []})

    monkeypatch.setattr(verbs, "run_on_copy", run_on_copy)
    Asked(CLUSTER, ApproveStop=answer).install(monkeypatch, verbs)
    shown = typed(f"stoppable 1 --approve --reason r {'--dry-run' * dry_run}")
    assert shown.exit_code == (0 if yes else EXIT_REFUSED)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "after that any 1 more may fail without"),
        ({"margin": 0}, "after that not one more may fail without"),
        ({"shutting_down": [3]}, "broker 3 counts as offline: it is shutting down"),
        (
            {"stoppable": False, "reasons": [REASON]},
            "of these may stop together, by their partitions: broker 1 (1 of 2)",
        ),
        (
            {"stoppable": False, "reasons": [REASON], "largest_is_exact": False},
            "(1 of 2; found greedily: a larger one may exist)",
        ),
        ({"stoppable": False, "reasons": [REASON]}, "would change it: it catches up"),
    ],
)
def test_what_a_verdict_says(changes: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    verbs._print({**VERDICT, **changes})
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("approved", "recorded"), [((), False), ((1,), False), ((1, 2), True)])
def test_that_a_yes_is_not_recorded_of_each_is_said(
    approved: tuple[int, ...], recorded: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    approvals = [{"broker": b, "broker_epoch": 50 + b, "author": "ann", "reason": "disks"} for b in approved]
    verbs._print({**VERDICT, "approvals": approvals})
    said = capsys.readouterr()
    assert said.out.count("approved: broker") == len(approved)
    assert "counts as offline" not in said.out
    assert ("nothing was recorded" in said.err) is not recorded


@pytest.mark.parametrize(
    ("options", "approves", "override", "tolerates"),
    [
        ("", False, False, False),
        ("--tolerate-under-replicated", False, False, True),
        ("--approve --reason r", True, False, False),
        ("--override --reason r --tolerate-under-replicated", True, True, True),
    ],
)
def test_what_is_checked_is_what_was_asked(
    options: str, approves: bool, override: bool, tolerates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = inspection_pb2.CheckStoppableResponse(answer=json.dumps(VERDICT))
    asked = Asked(CLUSTER, ApproveStop=answer, CheckStoppable=answer).install(monkeypatch, verbs)
    assert typed(f"stoppable 1,2 {options}").exit_code == 0
    ((method, request),) = asked.requests
    check = request.check if approves else request
    assert method == ("ApproveStop" if approves else "CheckStoppable")
    assert (list(check.broker_ids), check.tolerate_under_replicated) == ([1, 2], tolerates)
    assert not approves or request.override == override


def test_an_approval_is_as_old_as_its_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(CLUSTER).install(monkeypatch, verbs)
    monkeypatch.setattr(verbs, "time", SimpleNamespace(time_ns=lambda: (125 * 60_000 + 1) * 1_000_000))
    assert "2 h 5 min" in typed("stoppable --list", "table").stdout


def test_of_many_reasons_those_that_are_not_shown_are_counted_by_their_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs, "REASONS_SHOWN", 1)
    reasons = [{**REASON, "reason": "offline", "topic": topic} for topic in ("t", "t", "u", "v")]
    verbs._print({**VERDICT, "stoppable": False, "reasons": reasons})
    assert "  t: 2 partitions would have no leader\n  and 2 more (--all)\n" in capsys.readouterr().out


@pytest.mark.parametrize(("controller", "code"), [(0, 0), (-1, EXIT_REFUSED)])
def test_from_zookeeper_a_broker_may_stop_where_somebody_leads(
    controller: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And 0 is an id."""
    Asked(replace(CLUSTER, controller_id=controller, approvals={})).install(monkeypatch)
    shown = typed("stoppable 1 --offline")
    assert shown.exit_code == code
    assert [r["reason"] for r in json.loads(shown.stdout)["reasons"]] == ["no_controller"] * bool(code)
