"""``pctl reassign``: what is named, what is asked for, when limits are lifted, and what counts as done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from controller.cli.common import progress
from controller.cli.common.options import Options
from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl import reassign
from controller.cli.pctl.moving import load
from controller.core.effects import TopicInfo
from controller.core.model import Attribution, Maintenance
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, inspection_pb2
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker

Key = tuple[str, int]


def holding(*replicas: int) -> ClusterState:
    info = TopicInfo("t", "id", {0: replicas, 1: (2, 3)}, {}, {}, version=0, czxid=1)
    return ClusterState(100, "c:1", 7, brokers={b: a_broker(b, b) for b in (1, 2, 3)}, topics={"t": info})


def moves(*keys: Key) -> pb.ListPartitionReassignmentsResponse:
    """Those that are under way."""
    made = pb.ListPartitionReassignmentsResponse()
    for topic, number in keys:
        made.partitions.add(topic=topic, partition=number, replicas=[1, 2], adding_replicas=[2])
    return made


def answered(refuses: bool = False) -> pb.AlterPartitionReassignmentsResponse:
    made = pb.AlterPartitionReassignmentsResponse()
    made.responses.add(
        topic="t", partition=0, error_code=common_pb2.INVALID_REPLICA_ASSIGNMENT if refuses else 0
    )
    return made


@pytest.fixture
def lifts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], set[Key], list[Key]]]:
    """Calls of `throttle.lift`: topics, what is done, what is under way."""
    made: list[tuple[set[str], set[Key], list[Key]]] = []

    async def lift(_: Any, __: Any, topics: Any, done: Any, ongoing: Any) -> int:
        made.append((set(topics), set(done), [(m.topic, m.partition) for m in ongoing]))
        return 0

    async def throttled(*_: Any) -> None:
        pass

    monkeypatch.setattr(reassign, "lift", lift)
    monkeypatch.setattr(reassign, "throttled", throttled)
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    return made


def test_a_file_or_one_partition_is_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "u", "partition": 4, "replicas": [1]}]}')
    assert reassign._named(plan, None, None) == [("u", 4)]
    assert reassign._named(None, "t", 0) == [("t", 0)]
    assert reassign._wanted(plan, None, None, None) == {("u", 4): (1,)}
    assert reassign._wanted(None, "t", 0, "2,1") == {("t", 0): (2, 1)}
    for named in [(None, None, None), (None, "t", None), (None, None, 0)]:
        with pytest.raises(click.UsageError, match="name a FILE, or --topic and --partition"):
            reassign._named(*named)
    for topic, partition in [("t", None), (None, 0), ("t", 0)]:
        with pytest.raises(click.UsageError, match="name a FILE, or --topic and --partition"):
            reassign._named(plan, topic, partition)
    for given in [(plan, None, None, "1"), (None, "t", 0, None)]:
        with pytest.raises(click.UsageError, match="--replicas: must be given with"):
            reassign._wanted(*given)


def test_only_who_names_no_replicas_at_all_cancels() -> None:
    request = reassign.changes_request({("t", 0): None, ("t", 1): (2, 1), ("t", 2): ()})
    assert [
        (p.partition, p.HasField("replicas"), list(p.replicas.broker_ids)) for p in request.partitions
    ] == [
        (0, False, []),
        (1, True, [2, 1]),
        (2, True, []),
    ]


@pytest.mark.parametrize(
    ("refuses", "no_wait", "lifted"), [(False, False, True), (False, True, False), (True, True, True)]
)
def test_limits_are_lifted_unless_replicas_are_copied_in_the_background(
    refuses: bool,
    no_wait: bool,
    lifted: bool,
    lifts: list[tuple[set[str], set[Key], list[Key]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others' moves are asked for, because they may need the limits."""
    going = iter([moves(), moves(("u", 0))])
    Asked(
        holding(1),
        holding(2, 1),
        AlterPartitionReassignments=answered(refuses),
        ListPartitionReassignments=lambda request: next(going) if request.partitions else moves(("u", 0)),
    ).install(monkeypatch, reassign)
    wait = "--no-wait" if no_wait else ""
    shown = typed(f"reassign execute --topic t --partition 0 --replicas 2,1 --throttle 1000 --yes {wait}")
    assert bool(shown.exit_code) == refuses
    assert lifts == ([({"t"}, set(), [("u", 0)])] if lifted else [])


async def test_who_was_overtaken_by_another_move_has_not_succeeded(
    lifts: list[tuple[set[str], set[Key], list[Key]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same brokers in another order are another assignment: the first one is preferred."""
    Asked(holding(1, 2), ListPartitionReassignments=moves()).install(monkeypatch, reassign)
    nothing: Any = None
    await reassign._wait(Options("", "json", 1.0), nothing, {("t", 0): (1, 2)})
    with pytest.raises(SystemExit) as end:
        await reassign._wait(Options("", "json", 1.0), nothing, {("t", 0): (2, 1)})
    assert end.value.code == EXIT_FAILED
    assert "cancelled or replaced while waiting: t-0 has [1, 2]" in capsys.readouterr().err


def test_a_cancellation_lifts_the_limits_of_what_it_ended(
    lifts: list[tuple[set[str], set[Key], list[Key]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = iter([moves(("t", 0)), moves(), moves(("t", 1))])
    asked = Asked(
        holding(1, 2),
        AlterPartitionReassignments=answered(),
        ListPartitionReassignments=lambda _: next(under_way),
    ).install(monkeypatch, reassign)
    shown = typed("reassign cancel --topic t --partition 0 --yes")
    assert (shown.exit_code, lifts) == (0, [({"t"}, {("t", 0)}, [("t", 1)])])
    (sent,) = (request for method, request in asked.requests if method.startswith("Alter"))
    assert [p.HasField("replicas") for p in sent.partitions] == [False]


def test_moves_are_listed_with_why_they_are_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the topics that are named, those that wait to begin, too."""
    under_way = moves(("t", 0), ("t", 1), ("u", 0))
    under_way.partitions[1].queued = True
    under_way.partitions[0].reasons.extend(["2 is not in sync", "1 is away"])
    known = holding(1)
    Asked(known, ListPartitionReassignments=under_way).install(monkeypatch, reassign)
    rows = json.loads(typed("reassign list --topic t").stdout)
    assert [(row["topic"], row["partition"], row["queued"], row["why"]) for row in rows] == [
        ("t", 0, False, "2 is not in sync; 1 is away"),
        ("t", 1, True, ""),
    ]
    assert len(json.loads(typed("reassign list").stdout)) == 3
    assert typed("reassign list --topic v").exit_code == EXIT_FAILED


def test_the_answer_about_the_moves_counts_not_that_about_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def run_on_copy(_: Any, __: Any, *steps: tuple[str, Any]) -> DryRun:
        asked.extend(method for method, _ in steps)
        return DryRun([pb.AlterConfigsResponse(), answered(refuses=True)], {"writes": []})

    monkeypatch.setattr(reassign, "run_on_copy", run_on_copy)
    Asked(holding(1)).install(monkeypatch, reassign)
    shown = typed("reassign execute --topic t --partition 0 --replicas 2,1 --throttle 1000 --dry-run")
    assert (shown.exit_code, asked) == (EXIT_REFUSED, ["AlterConfigs", "AlterPartitionReassignments"])


@pytest.mark.parametrize("named", ["--topic t", "--partition 0"])
def test_who_cancels_everything_names_nothing(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Asked().install(monkeypatch, reassign)
    shown = typed(f"reassign cancel --all {named} --yes")
    assert shown.exit_code == EXIT_USAGE
    assert "--all: leave out FILE, --topic and --partition" in shown.stderr


@pytest.mark.parametrize(("topic", "number"), [("u", 0), ("t", 2)])
def test_only_partitions_that_there_are_move(
    topic: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(holding(1)).install(monkeypatch, reassign)
    shown = typed(f"reassign execute --topic {topic} --partition {number} --replicas 2 --yes")
    assert (shown.exit_code, f"no partition {topic}-{number}" in shown.stderr) == (EXIT_FAILED, True)
    assert asked.methods == []


def test_a_dry_run_as_data_is_one_document_with_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a partition that is on its way to broker 2, what its next move adds and removes."""

    async def run_on_copy(*_: Any) -> DryRun:
        return DryRun([answered()], {"writes": [], "pushes": {}, "notes": []})

    monkeypatch.setattr(reassign, "run_on_copy", run_on_copy)
    known = holding(1, 2)
    known.topics["t"] = replace(known.topics["t"], adding={0: (2,)})
    Asked(known).install(monkeypatch, reassign)
    told = json.loads(typed("reassign execute --topic t --partition 0 --replicas 3 --dry-run").stdout)
    (row,) = told["partitions"]
    assert (row["replicas"], row["new_replicas"], row["adding"], row["removing"]) == ([1, 2], [3], [3], [1])


def answered_each(**errors: common_pb2.ErrorCode) -> pb.AlterPartitionReassignmentsResponse:
    """Of partitions p0, p1 of topic t."""
    made = pb.AlterPartitionReassignmentsResponse()
    for name, code in errors.items():
        made.responses.add(topic="t", partition=int(name[1:]), error_code=code)
    return made


def test_only_what_was_accepted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"partitions": [{"topic": "t", "partition": n, "replicas": [3]} for n in (0, 1)]})
    )
    answer = answered_each(p0=common_pb2.NONE, p1=common_pb2.INVALID_REPLICA_ASSIGNMENT)
    Asked(holding(1), AlterPartitionReassignments=answer).install(monkeypatch, reassign)
    shown = typed(f"reassign execute {plan} --yes --no-wait")
    assert (shown.exit_code, "the reassignment of 1 partition goes on" in shown.stderr) == (
        EXIT_REFUSED,
        True,
    )


def test_what_cannot_be_placed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(spread(t={0: (1,)}), DescribeReplicas=sizes()).install(monkeypatch, load)
    shown = typed("reassign generate --replication-factor 9")
    assert (shown.exit_code, shown.stdout, shown.stderr.startswith("pctl: ")) == (EXIT_FAILED, "", True)


async def test_each_partition_that_was_overtaken_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Asked(holding(1, 2), ListPartitionReassignments=moves()).install(monkeypatch, reassign)
    nothing: Any = None
    with pytest.raises(SystemExit):
        await reassign._wait(Options("", "json", 1.0), nothing, {("t", 0): (3,), ("t", 1): (3,)})
    assert "waiting: t-0 has [1, 2]; t-1 has [2, 3]" in capsys.readouterr().err


async def test_why_each_move_goes_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    going = moves(("t", 0), ("t", 1))
    going.partitions[0].reasons.extend(["2 is not in sync", "1 is away"])
    Asked(holding(1), ListPartitionReassignments=going).install(monkeypatch, reassign)
    nothing: Any = None
    found = await reassign._progress(nothing, nothing, [("t", 0), ("t", 1), ("t", 2)])
    assert found == (2, 3, ("t-0: 2 is not in sync; 1 is away", "t-1: about to be completed"))


@pytest.mark.parametrize("verb", ["cancel --all", "cancel --topic t --partition 0", "cancel --all --no-wait"])
def test_nothing_is_cancelled_that_nobody_agreed_to_or_that_is_only_tried(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []

    async def run_on_copy(_: Any, __: Any, *steps: Any) -> DryRun:
        tried.extend(method for method, _ in steps)
        return DryRun([answered()], {"writes": [], "pushes": {}, "notes": []})

    monkeypatch.setattr(reassign, "run_on_copy", run_on_copy)
    asked = Asked(holding(1, 2), ListPartitionReassignments=moves(("t", 0))).install(monkeypatch, reassign)
    assert typed(f"reassign {verb}").exit_code == EXIT_USAGE
    shown = typed(f"reassign {verb} --dry-run --yes")
    assert (shown.exit_code, tried) == (0, ["AlterPartitionReassignments"])
    assert set(asked.methods) == {"ListPartitionReassignments"}


def test_who_cannot_cancel_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' moves go on."""
    refused = answered_each(p0=common_pb2.NO_REASSIGNMENT_IN_PROGRESS)
    asked = Asked(
        holding(1, 2), AlterPartitionReassignments=refused, ListPartitionReassignments=moves(("t", 0))
    ).install(monkeypatch, reassign)
    assert typed("reassign cancel --topic t --partition 0 --yes").exit_code == EXIT_FAILED
    assert asked.methods.count("ListPartitionReassignments") == 1


# --- generate, verify -----------------------------------------------------------------------------------------


def spread(drained: tuple[int, ...] = (), **topics: dict[int, tuple[int, ...]]) -> ClusterState:
    return ClusterState(
        100,
        "c:1",
        7,
        brokers={b: a_broker(b, b) for b in (1, 2, 3)},
        topics={n: TopicInfo(n, "id", p, {}, {}, version=0, czxid=1) for n, p in topics.items()},
        maintenance=Maintenance(drained=dict.fromkeys(drained, Attribution("disks", "ann"))),
    )


def sizes(**of_topics: int) -> inspection_pb2.DescribeReplicasResponse:
    """Bytes of each topic's partition 0; below 0: not known."""
    made = inspection_pb2.DescribeReplicasResponse()
    for name, size in of_topics.items():
        made.partitions.add(topic=name, partition=0).replicas.add(size_bytes=size)
    return made


def generated(
    monkeypatch: pytest.MonkeyPatch,
    known: ClusterState,
    options: str = "",
    of_topics: Mapping[str, int] | None = None,
) -> tuple[dict[str, list[int]], str]:
    """The plan, by topic, of its partition 0; and what is said."""
    Asked(known, DescribeReplicas=sizes(**(of_topics or {}))).install(monkeypatch, load)
    shown = typed(f"reassign generate {options}")
    moved = json.loads(shown.stdout)["partitions"] if shown.stdout else []
    return {p["topic"]: p["replicas"] for p in moved}, shown.stderr


@pytest.mark.parametrize(
    ("options", "moves_it"), [("", False), ("--topic __consumer_offsets", True), ("--include-internal", True)]
)
def test_internal_topics_stay_unless_they_are_named(
    options: str, moves_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = spread(t={0: (3,)}, __consumer_offsets={0: (9,)})
    plan, _ = generated(monkeypatch, known, options)
    assert ("__consumer_offsets" in plan) == moves_it


def test_a_plan_can_be_undone_and_leaves_out_who_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, said = generated(monkeypatch, spread(drained=(2,), t={0: (1, 9)}, stays={0: (3, 1)}))
    assert plan == {"t": [1, 3]}
    undo, _ = json.JSONDecoder().raw_decode(said, said.index("{"))
    assert [(p["topic"], p["replicas"]) for p in undo["partitions"]] == [("t", [1, 9])]


def test_a_drained_broker_that_gets_nothing_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its replica beside the one that moves."""
    known = spread(drained=(2,), t={0: (2, 9)}, u={0: (1,)}, v={0: (1,)})
    plan, said = generated(monkeypatch, known)
    assert (2 in plan["t"], "is drained" in said) == (True, False)
    plan, said = generated(monkeypatch, known, "--topic u --replication-factor 3")
    assert (set(plan["u"]), "broker 2 is drained (ann: disks) but gets replicas" in said) == ({1, 2, 3}, True)


@pytest.mark.parametrize(("option", "racks"), [("", {"a", "b"}), ("--ignore-racks", {"a"})])
def test_racks_count_unless_they_are_to_be_ignored(
    option: str, racks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 3, alone in its rack, has the most already."""
    known = spread(t={0: (1,)}, u={0: (3,)}, v={0: (3,)}, w={0: (3,)})
    known.brokers.update({b: a_broker(b, b, rack="b" if b == 3 else "a") for b in (1, 2, 3)})
    plan, _ = generated(monkeypatch, known, f"--topic t --replication-factor 2 {option}")
    assert {known.brokers[b].rack for b in plan["t"]} == racks


def test_bytes_are_spread_where_all_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """By replicas they are spread already: two on each broker."""
    known = spread(a={0: (1,)}, b={0: (1,)}, c={0: (2,)}, d={0: (2,)}, e={0: (3,)}, f={0: (3,)})
    heavy = {"a": 900, "b": 900, "c": 1, "d": 1, "e": 1, "f": 1}
    assert generated(monkeypatch, known, of_topics=heavy)[0]
    assert not generated(monkeypatch, known, of_topics={**heavy, "f": -1})[0]
    assert not generated(monkeypatch, known, "--by replicas", heavy)[0]
    plan, said = generated(monkeypatch, known, "--by bytes", {**heavy, "f": -1})
    assert (plan, "the size of 1 partition is not known: f-0" in said) == ({}, True)


@pytest.mark.parametrize(
    ("now", "under_way", "status"),
    [
        (None, False, "unknown"),
        ((1, 2), False, "complete"),
        # The last step is still to come.
        ((1, 2), True, "in progress"),
        ((2, 1), True, "in progress"),
        ((2, 1), False, "not done"),
    ],
)
def test_how_far_a_move_is(now: tuple[int, ...] | None, under_way: bool, status: str) -> None:
    entry = SimpleNamespace(reasons=["it copies"]) if under_way else None
    assert reassign._status(now, (1, 2), entry)["status"] == status


@pytest.mark.parametrize(("second", "lifted"), [((2, 3), True), ((3, 2), False)])
def test_limits_are_lifted_once_all_of_a_plan_is_there(
    second: tuple[int, ...],
    lifted: bool,
    lifts: list[tuple[set[str], set[Key], list[Key]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = tmp_path / "plan.json"
    wanted = [{"topic": "t", "partition": n, "replicas": ids} for n, ids in [(0, [1]), (1, second)]]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    asked = Asked(holding(1), ListPartitionReassignments=moves()).install(monkeypatch, reassign)
    shown = typed(f"reassign verify {plan}")
    assert (shown.exit_code, bool(lifts)) == (0 if lifted else EXIT_FAILED, lifted)
    first = asked.of("ListPartitionReassignments")[0].partitions
    assert [(p.topic, p.partition) for p in first] == [("t", 0), ("t", 1)]


async def test_a_partition_is_as_large_as_its_largest_replica_where_a_broker_says_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = inspection_pb2.DescribeReplicasResponse()
    for number, sizes in enumerate(((3, 5, 4), (0, 0), (-1, -1), (-1, 7), ())):
        partition = answer.partitions.add(topic="t", partition=number)
        for size in sizes:
            partition.replicas.add(size_bytes=size)
    Asked(DescribeReplicas=answer).install(monkeypatch, load)
    nothing: Any = None
    assert await load.sizes_of(nothing, nothing) == {("t", 0): 5, ("t", 1): 0, ("t", 3): 7}
