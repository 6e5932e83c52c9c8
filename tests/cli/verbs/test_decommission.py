"""``pctl brokers decommission``, ``replace`` and ``swap``: who gets what, what comes before, and what is waited for."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cli.common import progress
from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl import maintenance, reassign
from controller.cli.pctl.moving import decommission, load, throttle
from controller.core.effects import TopicInfo
from controller.core.model import Attribution, Maintenance
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from controller.runtime.rpc.methods import ADMIN_SERVICE, response_of
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, inspection_pb2, maintenance_pb2
from tests.support.cli.verbs import Asked, in_vain, refused, typed
from tests.support.core.world import a_broker, state

ANN = Attribution("disks", "ann")
BY = "--reason r --author ann --yes"


def cluster(
    partitions: dict[int, tuple[int, ...]],
    live: tuple[int, ...] = (1, 2, 3, 4),
    drained: tuple[int, ...] = (),
    **fields: Any,
) -> ClusterState:
    info = TopicInfo(
        "t", "id", partitions, fields.pop("adding", {}), fields.pop("removing", {}), 0, 1, **fields
    )
    return ClusterState(
        100,
        "c:1",
        7,
        brokers={b: a_broker(b, b) for b in live},
        topics={"t": info},
        maintenance=Maintenance(drained=dict.fromkeys(drained, ANN)),
    )


def moved(request: Any, refuses: tuple[int, ...] = ()) -> pb.AlterPartitionReassignmentsResponse:
    made = pb.AlterPartitionReassignmentsResponse()
    for p in request.partitions:
        code = common_pb2.INVALID_REPLICA_ASSIGNMENT if p.partition in refuses else 0
        made.responses.add(topic=p.topic, partition=p.partition, error_code=code)
    return made


def install(monkeypatch: pytest.MonkeyPatch, *looks: ClusterState, **answers: Any) -> Asked:
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    usual: dict[str, Any] = {
        "DescribeReplicas": inspection_pb2.DescribeReplicasResponse(),
        "SetDrain": maintenance_pb2.OperatorResponse(),
        "AlterPartitionReassignments": moved,
        "ListPartitionReassignments": pb.ListPartitionReassignmentsResponse(),
    }
    return Asked(*looks, **{**usual, **answers}).install(monkeypatch, maintenance, reassign, load)


def asked_for(asked: Asked) -> dict[int, list[int]]:
    return {
        p.partition: list(p.replicas.broker_ids)
        for request in asked.of("AlterPartitionReassignments")
        for p in request.partitions
    }


@pytest.mark.parametrize(
    ("command", "drained", "targets"),
    [
        ("decommission 1", (), {0: {2, 3}, 1: {2, 4}}),
        ("decommission 1 --to 4", (), {0: {2, 4}, 1: {2, 4}}),
        ("decommission 1", (3,), {0: {2, 4}, 1: {2, 4}}),
        ("replace 1 4", (), {0: {4, 2}, 1: {4, 2}}),
        ("swap 1 3", (), {0: {3, 2}, 1: {3, 2}, 2: {2, 1}}),
    ],
)
def test_where_replicas_go(
    command: str, drained: tuple[int, ...], targets: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 2 has none on broker 1, and nobody moves what stays."""
    before = cluster({0: (1, 2), 1: (1, 2), 2: (2, 3)}, drained=drained)
    asked = install(monkeypatch, before)
    assert typed(f"brokers {command} --no-wait {BY}").exit_code == 0
    found = {number: set(ids) for number, ids in asked_for(asked).items()}
    if command == "decommission 1":
        assert found.keys() == targets.keys()
        assert all(2 in ids and not ids & {1, *drained} for ids in found.values())
    else:
        assert found == targets


@pytest.mark.parametrize(
    ("live", "drained", "drains"),
    [((1, 2, 3, 4), (), [1]), ((1, 2, 3, 4), (1,), []), ((2, 3, 4), (), [])],
    ids=["registered", "drained", "gone"],
)
def test_who_goes_is_drained_first_if_it_is_there_and_is_not(
    live: tuple[int, ...], drained: tuple[int, ...], drains: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = install(monkeypatch, cluster({0: (1, 2)}, live, drained))
    assert typed(f"brokers decommission 1 --no-wait {BY}").exit_code == 0
    assert [request.broker_id for request in asked.of("SetDrain")] == drains
    changes = [m for m in asked.methods if m in ("SetDrain", "AlterPartitionReassignments")]
    assert changes == ["SetDrain"] * len(drains) + ["AlterPartitionReassignments"]


def test_nothing_moves_off_a_broker_that_could_not_be_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, cluster({0: (1, 2)}), SetDrain=refused("SetDrain", "INVALID_REQUEST", "no"))
    shown = typed(f"brokers decommission 1 {BY}")
    assert (shown.exit_code, asked_for(asked)) == (EXIT_FAILED, {})
    assert "broker 1: INVALID_REQUEST: no" in shown.stderr


def test_the_load_after_it_is_shown_beside_that_before(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, cluster({0: (1, 2), 1: (1, 2)}))
    shown = typed(f"brokers replace 1 4 --no-wait {BY}")
    rows = {row["broker"]: row for row in json.loads(shown.stdout)}
    columns = ("replicas", "after", "leaders", "leaders_after")
    assert [rows[1][name] for name in columns] == [2, 0, 2, 0]
    assert [rows[4][name] for name in columns] == [0, 2, 0, 2]


def test_a_broker_that_is_gone_is_in_the_load_as_long_as_it_has_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, cluster({0: (1, 2)}, live=(2, 3, 4)))
    rows = json.loads(typed(f"brokers decommission 1 --no-wait {BY}").stdout)
    found = {row["broker"]: (row["rack"] == "(gone)", row["replicas"], row["after"]) for row in rows}
    assert (found[1], found[2][0]) == ((True, 1, 0), False)


def test_a_broker_without_replicas_is_drained_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, cluster({0: (2, 3)}))
    shown = typed(f"brokers decommission 1 {BY}")
    assert (shown.exit_code, [r.broker_id for r in asked.of("SetDrain")]) == (0, [1])
    assert "nothing is left on broker 1: it may be stopped for good" in shown.stderr


def test_who_was_never_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, cluster({0: (2, 3)}))
    shown = typed(f"brokers decommission 9 {BY}")
    assert (shown.exit_code, asked.methods) == (EXIT_FAILED, [])
    assert "broker 9: not registered, and no partition names it" in shown.stderr


def test_what_the_new_broker_holds_already_goes_to_no_drained_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, cluster(dict.fromkeys(range(4), (1, 4)), drained=(2,)))
    assert typed(f"brokers replace 1 4 --no-wait {BY}").exit_code == 0
    assert {b for ids in asked_for(asked).values() for b in ids} == {3, 4}
    asked = install(monkeypatch, cluster({0: (1, 2)}))
    shown = typed(f"brokers replace 1 9 --no-wait {BY}")
    assert (shown.exit_code, asked_for(asked)) == (EXIT_FAILED, {})
    assert "broker 9 is not registered" in shown.stderr


def test_who_waits_for_moves_in_vain_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    going = pb.ListPartitionReassignmentsResponse()
    going.partitions.add(topic="t", partition=0, reasons=["3 is not in sync"])
    install(monkeypatch, cluster({0: (1, 2)}), ListPartitionReassignments=going)
    in_vain(monkeypatch)
    shown = typed(f"--timeout 0.1 brokers decommission 1 {BY}")
    assert shown.exit_code == EXIT_FAILED
    assert "nothing was done for 0.1 s: 1 of 1 partition are left (t-0: 3 is not in sync)" in shown.stderr


def test_what_is_on_its_way_already_and_old_replicas_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 0 moves since an earlier call; its old replica is deleted last. Those of brokers that are gone are
    deleted when these return."""
    under_way = cluster({0: (3, 2, 1)}, drained=(1,), adding={0: (3,)}, removing={0: (1,)})
    left = cluster({0: (3, 2)}, drained=(1,), stray={0: (1, 9)})
    done = cluster({0: (3, 2)}, drained=(1,), stray={0: (9,)})
    going = pb.ListPartitionReassignmentsResponse()
    going.partitions.add(topic="t", partition=0)
    lists = iter([going, *[pb.ListPartitionReassignmentsResponse()] * 2])
    asked = install(
        monkeypatch, under_way, under_way, left, done, ListPartitionReassignments=lambda _: next(lists)
    )
    shown = typed(f"brokers decommission 1 {BY}")
    assert (shown.exit_code, asked_for(asked)) == (0, {})
    assert "1 partition more are on their way already" in shown.stderr
    assert "nothing is left on broker 1" in shown.stderr
    assert next(lists, None) is None


@pytest.mark.parametrize(
    "moving", [((3, 2, 1), (3,), (1,)), ((1, 2, 4), (4,), (2,)), ((3, 2, 4), (4,), (2,))]
)
def test_what_is_on_its_way_would_be_swapped_back(
    moving: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To or from either of both, or beside them."""
    replicas, adding, removing = moving
    asked = install(monkeypatch, cluster({0: replicas}, adding={0: adding}, removing={0: removing}))
    shown = typed(f"brokers swap 1 3 {BY}")
    assert (shown.exit_code, asked_for(asked)) == (EXIT_REFUSED, {})
    assert "1 partition of these brokers are being reassigned (t-0): pctl wait" in shown.stderr


def test_what_gets_on_is_waited_for_longer_than_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes two seconds, and each finds one partition more moved."""
    now_s = itertools.count()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    numbers = range(5)

    def left(count: int) -> pb.ListPartitionReassignmentsResponse:
        made = pb.ListPartitionReassignmentsResponse()
        for number in list(numbers)[:count]:
            made.partitions.add(topic="t", partition=number)
        return made

    lists = iter([left(count) for count in (5, 4, 3, 2, 1, 0)])
    install(
        monkeypatch,
        cluster(dict.fromkeys(numbers, (1, 2))),
        cluster(dict.fromkeys(numbers, (3, 2)), drained=(1,)),
        ListPartitionReassignments=lambda _: next(lists),
    )
    shown = typed(f"--timeout 3 brokers decommission 1 {BY}")
    assert (shown.exit_code, next(lists, None)) == (0, None)


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({0: common_pb2.INVALID_REPLICA_ASSIGNMENT}, EXIT_REFUSED),
        ({0: common_pb2.INVALID_REQUEST, 1: common_pb2.INVALID_REPLICA_ASSIGNMENT}, EXIT_FAILED),
    ],
)
def test_each_part_of_the_request_counts(
    errors: dict[int, common_pb2.ErrorCode], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were one request."""

    def answer(request: Any) -> pb.AlterPartitionReassignmentsResponse:
        made = moved(request)
        for response in made.responses:
            response.error_code = errors.get(response.partition, common_pb2.NONE)
        return made

    monkeypatch.setattr(decommission, "_BATCH", 1)
    install(monkeypatch, cluster({0: (1, 2), 1: (1, 2)}), AlterPartitionReassignments=answer)
    assert typed(f"brokers decommission 1 --no-wait {BY}").exit_code == code


@pytest.mark.parametrize(
    ("held", "wait", "lifted"),
    [
        ((1, 2), "", [{"t", "earlier"}]),
        ((1, 2), "--no-wait", []),
        # All was moved since the earlier run.
        ((3, 2), "", [{"earlier"}]),
    ],
)
def test_limits_are_lifted_once_everything_is_moved(
    held: tuple[int, ...], wait: str, lifted: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier run, which was interrupted, too."""
    found: list[set[str]] = []

    async def lift(_: Any, __: Any, topics: set[str], *___: Any) -> int:
        found.append(topics)
        return 0

    async def throttled(*_: Any) -> None:
        pass

    monkeypatch.setattr(decommission, "lift", lift)
    monkeypatch.setattr(decommission, "throttled", throttled)
    now, then = cluster({0: held}, drained=(1,) * (1 not in held)), cluster({0: (3, 2)}, drained=(1,))
    now.configs = then.configs = {
        "earlier": {"follower.replication.throttled.replicas": "0:3,1:1"},
        "other": {"leader.replication.throttled.replicas": "1:2,0:11", "retention.ms": "1"},
        "unlimited": {},
    }
    install(monkeypatch, now, then)
    assert typed(f"brokers decommission 1 --throttle 1000 {wait} {BY}").exit_code == 0
    assert found == lifted


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (maintenance_pb2.OperatorResponse(), 0),
        (refused("ForgetBroker", "POLICY_VIOLATION", "it is there"), EXIT_REFUSED),
    ],
)
def test_who_forgets_a_broker_is_told_what_still_names_it(
    answer: Any, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is no longer in sync."""
    now = cluster({0: (1, 9), 1: (2, 3), 2: (9, 2)})
    now.partitions = [
        PartitionInfo("t", n, r, state(2, (2,), 1, 1)) for n, r in now.topics["t"].partitions.items()
    ]
    asked = install(monkeypatch, now, ForgetBroker=answer)
    shown = typed(f"brokers forget 9 {BY}")
    ((_, request),) = asked.requests
    assert (shown.exit_code, request.broker_id, request.reason, request.author) == (code, 9, "r", "ann")
    assert ("2 partitions still name it: pctl brokers decommission 9" in shown.stderr) == (not code)


@pytest.mark.parametrize(
    ("refused_step", "code"),
    [(None, 0), ("SetDrain", EXIT_FAILED), ("AlterPartitionReassignments", EXIT_REFUSED)],
)
def test_a_dry_run_tries_drains_limits_and_moves_in_this_order(
    refused_step: str | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a broker cannot be drained no replica would move."""
    steps: list[str] = []

    async def run_on_copy(_: Any, __: Any, *given: tuple[str, Any]) -> DryRun:
        steps.extend(method for method, _ in given)
        made: list[Any] = [response_of(ADMIN_SERVICE, method)() for method in steps]
        made[-1].CopyFrom(moved(given[-1][1], (0,) if refused_step == steps[-1] else ()))
        if refused_step == "SetDrain":
            made[0].error_code = common_pb2.INVALID_REQUEST
        return DryRun(made, {"writes": [{"path": "/x"}], "pushes": {}, "notes": []})

    monkeypatch.setattr(decommission, "run_on_copy", run_on_copy)
    asked = install(monkeypatch, cluster({0: (1, 2), 1: (2, 1)}))
    shown = typed(f"brokers decommission 1 --throttle 1000 --dry-run {BY}")
    assert shown.exit_code == code
    assert steps == ["SetDrain", "AlterConfigs", "AlterPartitionReassignments"]
    assert set(asked.methods) <= {"DescribeReplicas"}
    assert ("/x" in shown.stdout) == (refused_step != "SetDrain")


@pytest.mark.parametrize("verb", ["decommission 1", "replace 1 4", "swap 1 4"])
@pytest.mark.parametrize("wait", ["", "--no-wait"])
def test_nothing_moves_that_nobody_agreed_to(verb: str, wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, cluster({0: (1, 2)}))
    shown = typed(f"brokers {verb} --reason r --author ann {wait}")
    assert (shown.exit_code, asked.methods) == (EXIT_USAGE, ["DescribeReplicas"])


def test_limits_that_are_lifted_make_no_refusal_good(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lift(*_: Any) -> int:
        return 0

    async def throttled(*_: Any) -> None: ...

    monkeypatch.setattr(decommission, "lift", lift)
    monkeypatch.setattr(decommission, "throttled", throttled)
    install(
        monkeypatch,
        cluster({0: (1, 2)}),
        cluster({0: (3, 2)}, drained=(1,)),
        AlterPartitionReassignments=lambda request: moved(request, refuses=(0,)),
    )
    assert typed(f"brokers decommission 1 --throttle 1000 {BY}").exit_code == EXIT_REFUSED


def test_nothing_moves_where_it_cannot_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = pb.AlterConfigsResponse()
    answer.responses.add(error_code=common_pb2.INVALID_REQUEST)
    asked = install(monkeypatch, cluster({0: (1, 2)}), AlterConfigs=answer).install(monkeypatch, throttle)
    assert typed(f"brokers decommission 1 --throttle 1000 --no-wait {BY}").exit_code == EXIT_FAILED
    assert asked.methods == ["DescribeReplicas", "SetDrain", "AlterConfigs"]
