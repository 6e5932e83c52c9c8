"""Plans, explanations and dry runs of what ZooKeeper has, where no controller is asked: by the planner itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.client import admin
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper import single_codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import inspection_pb2 as pb
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker, state

#: Brokers 1 and 2 are in rack a.
CLUSTER = ClusterState(
    0,
    "",
    7,
    brokers={b: a_broker(b, 50 + b, rack="b" if b == 3 else "a") for b in (1, 2, 3)},
    topics={"t": TopicInfo("t", "id", {0: (1, 2), 1: (2, 3)}, {}, {}, 0, 1)},
    partitions=[
        PartitionInfo("t", 0, (1, 2), state(2, (1, 2), 1, 1)),
        PartitionInfo("t", 1, (2, 3), state(2, (2, 3), 1, 1)),
    ],
)


@pytest.mark.parametrize(
    ("command", "scenario", "offline", "moved", "code"),
    [
        ("broker-loss 1", {"broker_loss": {"broker_ids": [1]}}, [], [], 0),
        ("broker-loss 2", {"broker_loss": {"broker_ids": [2]}}, [], ["t-0", "t-1"], 0),
        ("broker-loss 1,2", {"broker_loss": {"broker_ids": [1, 2]}}, ["t-0"], ["t-0", "t-1"], EXIT_REFUSED),
        ("rack-loss a", {"rack_loss": "a"}, ["t-0"], ["t-0", "t-1"], EXIT_REFUSED),
        ("drain 2", {"drain": 2}, [], ["t-0", "t-1"], 0),
        ("preferred-election", {"preferred_election": True}, [], ["t-0"], 0),
    ],
)
def test_a_plan_is_the_same_request_to_whoever_leads_and_the_same_event_for_the_planner(
    command: str,
    scenario: dict[str, Any],
    offline: list[str],
    moved: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(CLUSTER).install(monkeypatch)
    shown = typed(f"plan {command} --offline")
    assert shown.exit_code == code
    (step,) = json.loads(shown.stdout)["steps"]
    assert (step["offline"], sorted(m["partition"] for m in step["moved"])) == (offline, moved)
    assert (asked.methods, "writes" in step) == ([], False)
    asked = Asked(CLUSTER, Plan=pb.PlanResponse(plan=shown.stdout)).install(monkeypatch)
    assert typed(f"plan {command} --min-isr-default 2 --writes").exit_code == code
    assert typed(f"plan {command}").exit_code == code
    assert asked.of("Plan") == [
        pb.PlanRequest(**scenario, min_isr_default=2, list_writes=True),
        pb.PlanRequest(**scenario, min_isr_default=1),
    ]


def test_brokers_are_restarted_one_after_the_other_unless_more_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(CLUSTER).install(monkeypatch)
    shown = [
        json.loads(typed(f"plan rolling-restart {options} --offline").stdout)["steps"]
        for options in ("", "--brokers 1,3", "--brokers 1,3 --batch 0")
    ]
    assert list(map(len, shown)) == [3, 2, 1]
    assert asked.methods == []
    answer = pb.PlanResponse(plan=typed("plan rolling-restart --brokers 1,3 --offline").stdout)
    asked = Asked(CLUSTER, Plan=answer).install(monkeypatch)
    assert typed("plan rolling-restart --brokers 1,3 --batch 2").exit_code == 0
    (request,) = asked.of("Plan")
    assert (list(request.rolling_restart.broker_ids), request.batch) == ([1, 3], 2)


def test_with_more_in_sync_wanted_a_loss_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(CLUSTER).install(monkeypatch)
    shown = typed("plan broker-loss 1 --offline --min-isr-default 2 --writes")
    assert shown.exit_code == EXIT_REFUSED
    (step,) = json.loads(shown.stdout)["steps"]
    assert (step["under_min_isr"], len(step["writes"])) == (["t-0"], step["writes_count"])


@pytest.mark.parametrize(
    ("command", "request_", "said"),
    [
        ("partition t 1", {"partition": {"topic": "t", "partition": 1}}, "t-1"),
        ("broker 2", {"broker": 2}, "broker 2"),
        ("controller", {"controller": True}, "controller 0"),
    ],
)
def test_what_is_explained_is_what_was_asked_for(
    command: str, request_: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(CLUSTER).install(monkeypatch)
    shown = typed(f"explain {command} --offline")
    assert (shown.exit_code, said in json.loads(shown.stdout)["words"][0]) == (0, True)
    answer = pb.ExplainResponse(explanation='{"words": ["it leads"]}')
    asked = Asked(replace(CLUSTER, controller_endpoint="c:1"), Explain=answer).install(monkeypatch)
    assert json.loads(typed(f"explain {command}").stdout) == {"source": "controller", "words": ["it leads"]}
    assert asked.of("Explain") == [pb.ExplainRequest(**request_)]


def test_that_a_partition_moves_or_is_to_be_deleted_is_known_without_a_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = TopicInfo("t", "id", {0: (1, 2, 3)}, {0: (3,)}, {0: (1,)}, 0, 1)
    partition = PartitionInfo("t", 0, (1, 2, 3), state(2, (1, 2), 1, 1))
    Asked(replace(CLUSTER, topics={"t": info}, partitions=[partition])).install(monkeypatch)
    notes = json.loads(typed("explain partition t 0 --offline").stdout)["notes"]
    assert any("reassign" in note or "moving" in note for note in notes), notes


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("partition t 7", "no partition t-7"),
        ("reassignment t 7", "no partition t-7"),
        ("deletion u", "no topic 'u': it is deleted, or never existed"),
    ],
)
def test_what_is_not_there_cannot_be_explained(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(CLUSTER).install(monkeypatch)
    shown = typed(f"explain {command} --offline")
    assert (shown.exit_code, said in shown.stderr) == (EXIT_FAILED, True)


@pytest.mark.parametrize(("controller", "reasons"), [(0, []), (-1, ["no_controller"])])
def test_an_approval_is_tried_on_a_copy_of_what_zookeeper_has(
    controller: int, reasons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: Any, paths: Any) -> list[None]:
        return [None for _ in paths]

    monkeypatch.setattr(single_codecs, "read_nodes", nothing)
    away = admin.NoAnswerError("nobody leads")
    Asked(replace(CLUSTER, controller_id=controller), DryRun=away).install(monkeypatch)
    shown = typed("stoppable 1 --approve --reason r --author ann --dry-run")
    told = json.loads(shown.stdout)
    assert (shown.exit_code, [r["reason"] for r in told["answer"]["reasons"]]) == (
        EXIT_REFUSED * bool(reasons),
        reasons,
    )
    assert bool(told["writes"]) is not bool(reasons)
    assert told["source"] == "zookeeper"
