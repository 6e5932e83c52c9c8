"""What plans and answers look like, without a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click
import msgspec
import pytest

from controller.cli.common import output
from controller.cli.common.options import Options
from controller.cli.pctl.decisions import plan
from controller.cli.pctl.decisions import stoppable as stoppable_verb
from controller.core.effects import StoredNode
from controller.core.model import LeaderAndIsr, StopApproval
from controller.exit_codes import EXIT_REFUSED
from controller.planning import scenarios
from controller.planning.scenarios import Terms
from controller.planning.stoppable import CHANGES, Stoppable, Why, stoppable
from controller.planning.store import Change
from controller.runtime.rpc.translate.plan_data import plan_data, stoppable_data, write_row
from controller.runtime.zookeeper import cluster_reader, codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState
from tests.support.core.world import a_broker
from tests.support.planning.clusters import Small

SMALL = Small((1, 2, 3), {("t", 0): ((1, 2), 1, (1, 2)), ("u", 0): ((3,), 3, (3,))}).snapshot()


def as_json(value: Any) -> Any:
    """As it comes from a controller."""
    return json.loads(msgspec.json.encode(value))


def shown(
    made: scenarios.Plan, capsys: pytest.CaptureFixture[str], *, style: str = "table"
) -> tuple[int, str]:
    code = 0
    try:
        plan.show(Options("", style, 1), as_json(plan_data(made, True)), writes=True)
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
    assert ["u-0", "3", "none"] in [line.split() for line in text.splitlines()]
    code, text = shown(scenarios.rolling_restart(SMALL, Terms()), capsys)
    assert code == 3
    assert text.startswith("rolling-restart: NOT safe")
    for style in ("json", "yaml", "tsv"):
        assert shown(scenarios.broker_loss(SMALL, [3], Terms()), capsys, style=style)[0] == 3


def test_data_names_the_znodes_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    made = scenarios.broker_loss(SMALL, [1], Terms())
    _, text = shown(made, capsys, style="json")
    data = json.loads(text)
    _, text = shown(made, capsys, style="yaml")
    assert msgspec.yaml.decode(text) == data
    (write,) = data["steps"][0]["writes"]
    new = codecs.decode_state("t", 0, write["new"].encode(), 6)
    assert new == LeaderAndIsr(2, 4, (2,), 6, 1)
    assert "writes" not in plan_data(made, False)["steps"][0]
    config = "/config/topics/t"
    assert write_row(Change(config, None, StoredNode({"a": "b"}, 1))) == {
        "path": config,
        "old": None,
        "new": '{"version":1,"config":{"a":"b"}}',
    }


def printed(capsys: pytest.CaptureFixture[str], answer: Stoppable, *, overridden: bool = False) -> list[str]:
    stoppable_verb._print(as_json(stoppable_data(answer, overridden=overridden)))
    return capsys.readouterr().out.splitlines()


def test_stoppable_says_yes_or_each_reason_against_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, stoppable(SMALL, [1], Terms())) == [
        "yes: 1 may stop now",
        "after that not one more may fail without a partition going offline or below min.insync.replicas",
    ]
    no = stoppable(SMALL, [1, 3], Terms())
    reasons = [
        "  u-0 would have no leader: its ISR [3] stops as a whole",
        "  u-0 would have 0 of 1 in-sync replicas that min.insync.replicas asks for",
        f"would change it: {CHANGES[Why.OFFLINE]}",
        f"would change it: {CHANGES[Why.UNDER_MIN_ISR]}",
        "of these may stop together, by their partitions: broker 1 (1 of 2)",
    ]
    assert printed(capsys, no) == ["no: 1, 3 may not stop now, for 2 reasons", *reasons]
    assert printed(capsys, no, overridden=True) == [
        "yes: 1, 3 may stop now, despite:",
        *reasons,
    ]


def test_answers_name_who_counts_as_gone(capsys: pytest.CaptureFixture[str]) -> None:
    epoch = SMALL.brokers[1].epoch
    approved = replace(
        SMALL, approvals={1: StopApproval(epoch, "kernel", "ann", 1)}, shutting_down=frozenset({3})
    )
    lines = printed(capsys, stoppable(approved, [2], Terms()))
    assert lines[:3] == [
        "broker 1 counts as offline: approved to stop for ann: kernel",
        "broker 3 counts as offline: it is shutting down",
        "no: 2 may not stop now, for 2 reasons",
    ]
    assert printed(capsys, stoppable(approved, [1], Terms()))[-1] == (
        f"approved: broker 1 in its epoch {epoch}, for ann: kernel"
    )


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 min"),
        (119_000, "1 min"),
        (3_599_999, "59 min"),
        (3_600_000, "1 h 0 min"),
        (3_600_000 * 26, "26 h 0 min"),
    ],
)
def test_an_age_is_shown_in_whole_minutes(ms: int, text: str) -> None:
    assert stoppable_verb._age(ms) == text


@pytest.mark.parametrize("style", ["table", "json"])
def test_a_no_ends_the_program_with_three(capsys: pytest.CaptureFixture[str], style: str) -> None:
    options = Options("", style, 1)
    stoppable_verb._show(options, as_json(stoppable_data(stoppable(SMALL, [1], Terms()))))
    with pytest.raises(SystemExit) as ended:
        stoppable_verb._show(options, as_json(stoppable_data(stoppable(SMALL, [3], Terms()))))
    assert ended.value.code == EXIT_REFUSED
    said = capsys.readouterr().out
    assert ("no: 3 may not stop" in said) == (style == "table")


async def test_approvals_of_this_incarnation_of_a_broker_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    approvals = {b: StopApproval(51 if b == 1 else 7, "kernel", "ann", 1) for b in (1, 2, 9)}
    known = ClusterState(brokers={b: a_broker(b, 50 + b) for b in (1, 2)}, approvals=approvals)

    async def look(*_: object, **__: object) -> ClusterState:
        return known

    monkeypatch.setattr(cluster_reader, "look", look)
    session: Any = None
    await stoppable_verb._list(Options("", "json", 1), session)
    assert [(row["broker"], row["broker_epoch"]) for row in json.loads(capsys.readouterr().out)] == [(1, 51)]


@pytest.mark.parametrize(("approving", "withdraw"), [(True, False), (False, True)])
def test_only_a_controller_records_approvals(approving: bool, withdraw: bool) -> None:
    with pytest.raises(click.UsageError, match="--offline: only the active controller"):
        stoppable_verb._check_options([1], approving, withdraw, False, "why", True)
    stoppable_verb._check_options([1], approving, withdraw, False, "why", False)


def test_items_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("json", "yaml"):
        for item in ({"a": 1}, {"a": None}):
            output.print_item(item, style)
    assert capsys.readouterr().out == '{"a":1}\n{"a":null}\n---\na: 1\n---\na: null\n'


WIDE = Small(
    (1, 2), {("t", n): ((1, 2), 1, (1, 2)) for n in range(30)} | {("u", 0): ((1,), 1, (1,))}
).snapshot()


def test_many_partitions_are_one_line_for_each_topic(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = shown(scenarios.broker_loss(WIDE, [1], Terms()), capsys)
    lines = [line.split() for line in text.splitlines()]
    assert ["t:", "30", "partitions", "1", "2"] in lines
    assert ["u-0", "1", "none"] in lines
    made = as_json(plan_data(scenarios.broker_loss(WIDE, [1], Terms()), False))
    with pytest.raises(SystemExit):
        plan.show(Options("", "table", 1), made, writes=False, every=True)
    assert ["t-29", "1", "2"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    assert plan._counted([f"t-{n}" for n in range(30)] + ["u-0"], ()) == "31: t (30), u (1)"


def test_what_moves_uncleanly_has_a_line_of_its_own() -> None:
    moves = [
        {"partition": f"t-{n}", "from": 1, "to": 2, "unclean": unclean}
        for n, unclean in ((0, False), (1, True), (2, False))
    ]
    rows = [{"from": "1", "to": "2"}, {"from": "1", "to": "2 (unclean: records are lost)"}]
    assert plan._moved(moves, every=False) == [
        {"partition": "t: 2 partitions", **rows[0]},
        {"partition": "t-1", **rows[1]},
    ]


def test_what_was_so_before_is_counted_beside_what_is_so() -> None:
    assert plan._counted(["t-0", "t-1"], ["t-1", "u-0", "u-1"]) == "2: t-0, t-1 (1 before)"
    assert plan._counted(["t-0"], ["u-0"]) == "1: t-0"
    assert plan._counted([], ["u-0"]) == "0"


def test_each_deficit_is_counted_beside_its_own_of_before(capsys: pytest.CaptureFixture[str]) -> None:
    """And what cannot be read is what cannot be read in the end."""
    names = ("offline", "under_min_isr", "under_replicated")
    step: dict[str, Any] = {
        "step": "loss of broker 1",
        "unclean_elections": [],
        "moved": [],
        "writes_count": 0,
        "notes": [],
        "leaders": {},
        "pushes": {},
        "unreadable": [],
    }
    for number, name in enumerate(names, start=1):
        step |= {name: [f"t-{n}" for n in range(3)], f"{name}_before": [f"t-{n}" for n in range(number)]}
    result = {"plan": "broker-loss", "safe": True, "settling_writes": 0}
    plan._print_step(result, step, every=False)
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    shown = [line.rpartition("(")[2] for line in (" ".join(words) for words in lines) if "before)" in line]
    assert shown == ["1 before)", "2 before)", "3 before)"]
    writes = [[{"path": path, "old": None, "new": "x"}] for path in ("/first", "/second")]
    step, later = step | {"writes": writes[0]}, step | {"writes": writes[1], "unreadable": ["t-7"]}
    plan.show(Options("", "json", 1), result | {"steps": [step, later]}, writes=False)
    assert "t-7 is left out: its state is unreadable" in capsys.readouterr().err
    step |= {"notes": ["broker 1 is approved to stop"]}
    plan.show(Options("", "table", 1), result | {"steps": [step, later], "settling_writes": 2}, writes=True)
    said = capsys.readouterr()
    assert ("/first" in said.out, "/second" in said.out) == (True, True)
    assert "loss of broker 1: broker 1 is approved to stop\n" in said.out
    assert "2 writes pending before step 1" in said.err


def test_brokers_come_by_number_with_the_pushes_of_all_steps(capsys: pytest.CaptureFixture[str]) -> None:
    both = {"before": 1, "after": 2}
    step = {"leaders": {"10": both, "9": both}, "pushes": {"9": {"LeaderAndIsr": 1, "UpdateMetadata": 2}}}
    plan._print_brokers([step, step | {"pushes": {"9": {"LeaderAndIsr": 3}, "10": {"StopReplica": 1}}}])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["9", "1", "2", "4", "2", "-"],
        ["10", "1", "2", "-", "-", "1"],
    ]


def test_many_reasons_are_one_line_for_each_topic(capsys: pytest.CaptureFixture[str]) -> None:
    no = stoppable(WIDE, [1, 2], Terms())
    assert printed(capsys, no)[:5] == [
        "no: 1, 2 may not stop now, for 62 reasons",
        "  t: 30 partitions would have no leader",
        "  t: 30 partitions would have fewer in-sync replicas than min.insync.replicas",
        "  u-0 would have no leader: its ISR [1] stops as a whole",
        "  u-0 would have 0 of 1 in-sync replicas that min.insync.replicas asks for",
    ]
    stoppable_verb._print(as_json(stoppable_data(no)), every=True)
    assert (
        "  t-29 would have no leader: its ISR [1, 2] stops as a whole" in capsys.readouterr().out.splitlines()
    )
    assert set(stoppable_verb.SEVERAL) <= {why.value for why in Why}


def test_values_separated_by_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([{"a": 1, "b": ["x", "y"]}, {"a": None, "b": "t\tn\n"}], ("a", "b"), "tsv")
    assert capsys.readouterr().out == "a\tb\n1\tx,y\n\tt\\tn\\n\n"
    output.print_fields({"a": True, "b": {"c": 1}}, "tsv")
    assert capsys.readouterr().out == 'a\ttrue\nb\t{"c":1}\n'
    output.print_data({"a": [1, 2]}, "tsv")
    output.print_item({"a": 1, "b": "x"}, "tsv")
    assert capsys.readouterr().out == "a\t1,2\n1\tx\n"
