"""``pctl reassign``: what is named, what is asked for, when limits are lifted, and what counts as done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from controller.cli.common import progress
from controller.cli.pctl import reassign
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_FAILED
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.cli.verbs import JSON, Asked, ended
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
async def test_limits_are_lifted_unless_replicas_are_copied_in_the_background(
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
    code = await ended(
        reassign.execute,
        plan=None,
        topic="t",
        partition=0,
        replicas="2,1",
        reason=None,
        throttle=1000,
        yes=True,
        dry_run=False,
        no_wait=no_wait,
    )
    assert bool(code) == refuses
    assert lifts == ([({"t"}, set(), [("u", 0)])] if lifted else [])


async def test_who_was_overtaken_by_another_move_has_not_succeeded(
    lifts: list[tuple[set[str], set[Key], list[Key]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same brokers in another order are another assignment: the first one is preferred."""
    Asked(holding(1, 2), ListPartitionReassignments=moves()).install(monkeypatch, reassign)
    nothing: Any = None
    await reassign._wait(JSON, nothing, {("t", 0): (1, 2)})
    with pytest.raises(SystemExit) as end:
        await reassign._wait(JSON, nothing, {("t", 0): (2, 1)})
    assert end.value.code == EXIT_FAILED
    assert "cancelled or replaced while waiting: t-0 has [1, 2]" in capsys.readouterr().err


async def test_a_cancellation_lifts_the_limits_of_what_it_ended(
    lifts: list[tuple[set[str], set[Key], list[Key]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = iter([moves(("t", 0)), moves(), moves(("t", 1))])
    asked = Asked(
        holding(1, 2),
        AlterPartitionReassignments=answered(),
        ListPartitionReassignments=lambda _: next(under_way),
    ).install(monkeypatch, reassign)
    code = await ended(
        reassign.cancel,
        plan=None,
        topic="t",
        partition=0,
        everything=False,
        yes=True,
        dry_run=False,
        no_wait=False,
    )
    assert (code, lifts) == (0, [({"t"}, {("t", 0)}, [("t", 1)])])
    (sent,) = (request for method, request in asked.requests if method.startswith("Alter"))
    assert [p.HasField("replicas") for p in sent.partitions] == [False]


@pytest.mark.parametrize("named", [{"plan": Path("f")}, {"topic": "t"}, {"partition": 0}])
async def test_who_cancels_everything_names_nothing(named: dict[str, Any]) -> None:
    nothing = {"plan": None, "topic": None, "partition": None}
    with pytest.raises(click.UsageError, match="--all: leave out FILE, --topic and --partition"):
        await ended(
            reassign.cancel, **{**nothing, **named}, everything=True, yes=True, dry_run=False, no_wait=True
        )
