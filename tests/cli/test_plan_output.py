"""What plans and answers look like, without a cluster."""

from __future__ import annotations

import json

import msgspec
import pytest

from controller.cli import output, plan
from controller.cli import stoppable as stoppable_verb
from controller.cli.verbs import Options
from controller.core.effects import StoredNode
from controller.core.model import LeaderAndIsr
from controller.planning import scenarios
from controller.planning.scenarios import Terms
from controller.planning.stoppable import stoppable
from controller.runtime import znodes
from tests.planning.clusters import Small

SMALL = Small((1, 2, 3), {("t", 0): ((1, 2), 1, (1, 2)), ("u", 0): ((3,), 3, (3,))}).snapshot()


def shown(
    made: scenarios.Plan, capsys: pytest.CaptureFixture[str], *, style: str = "table"
) -> tuple[int, str]:
    code = 0
    try:
        plan.show(Options("", style, 1), made, writes=True)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().out


def test_a_plan_that_is_safe_exits_with_nought(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = shown(scenarios.broker_loss(SMALL, [1], Terms()), capsys)
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["safe", "yes"] in lines
    assert ["t-0", "1", "2"] in lines
    assert ["1", "1", "-", "-", "-", "-"] in lines
    assert ["2", "0", "1", "1", "1", "-"] in lines
    assert any(line and line[0] == "/brokers/topics/t/partitions/0/state" for line in lines)


def test_a_plan_that_is_not_exits_with_three(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = shown(scenarios.broker_loss(SMALL, [3], Terms()), capsys)
    assert code == 3
    assert "1: u-0" in text
    assert ["u-0", "3", "nobody"] in [line.split() for line in text.splitlines()]
    code, text = shown(scenarios.rolling_restart(SMALL, Terms()), capsys)
    assert code == 3
    assert text.startswith("rolling-restart: NOT safe")


def test_data_names_the_znodes_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    made = scenarios.broker_loss(SMALL, [1], Terms())
    _, text = shown(made, capsys, style="json")
    data = json.loads(text)
    _, text = shown(made, capsys, style="yaml")
    assert msgspec.yaml.decode(text) == data
    (write,) = data["steps"][0]["writes"]
    new = znodes.decode_state("t", 0, write["new"].encode(), 6)
    assert new == LeaderAndIsr(2, 4, (2,), 6, 1)
    assert "writes" not in plan.plan_data(made, False)["steps"][0]
    assert plan.znode_text(StoredNode({"a": "b"}, 1)) == '{"a":"b"}'
    assert plan.znode_text(None) is None


def test_answers(capsys: pytest.CaptureFixture[str]) -> None:
    stoppable_verb._print(stoppable(SMALL, [1], Terms()))
    assert capsys.readouterr().out.splitlines() == [
        "yes: 1 may stop now",
        "after that not one more may fail without a partition going offline or below min.insync.replicas",
        f"approved: broker-1-epoch-{SMALL.brokers[1].epoch}-controller-epoch-1",
    ]
    stoppable_verb._print(stoppable(SMALL, [1, 3], Terms()))
    assert capsys.readouterr().out.splitlines() == [
        "no: 1, 3 may not stop now, for 2 reasons",
        "  u-0 would have no leader: its ISR [3] stops as a whole",
        "  u-0 would have 0 of 1 in-sync replicas that min.insync.replicas asks for",
        "largest set of these that may, by its partitions: 1",
    ]


def test_items_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("json", "yaml"):
        for item in ({"a": 1}, {"a": None}):
            output.print_item(item, style)
    assert capsys.readouterr().out == '{"a":1}\n{"a":null}\n---\na: 1\n---\na: null\n'
