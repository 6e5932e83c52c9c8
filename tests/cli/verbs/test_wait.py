"""``pctl wait``: what has to be over, and what counts as not yet."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cli.common.options import Options
from controller.cli.pctl import health
from controller.client import admin
from controller.exit_codes import EXIT_FAILED
from controller.planning.cluster_health import Finding, Wrong
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, maintenance_pb2
from tests.support.cli.verbs import Asked, in_vain, typed
from tests.support.core.world import a_broker, state


def cluster(leader: int = 1, **fields: Any) -> ClusterState:
    partition = PartitionInfo("t", 0, (1, 2), state(leader, (1, 2), 1, 1))
    brokers = {b: a_broker(b, b) for b in (1, 2)}
    return ClusterState(100, "c:1", 7, brokers=brokers, partitions=[partition], **fields)


def moves(count: int) -> pb.ListPartitionReassignmentsResponse:
    made = pb.ListPartitionReassignmentsResponse()
    for number in range(count):
        made.partitions.add(topic="t", partition=number)
    return made


@pytest.mark.parametrize("until", ["healthy", "stable"])
@pytest.mark.parametrize(
    ("work", "pending", "shutting_down", "going"),
    [("pushes", 3, [], 0), ("a shutdown", 0, [2], 0), ("moves", 0, [], 2), ("nothing", 0, [], 0)],
)
def test_work_under_way_is_not_wrong_and_not_stable(
    until: str,
    work: str,
    pending: int,
    shutting_down: list[int],
    going: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def describe(*_: Any) -> pb.DescribeClusterResponse:
        made = pb.DescribeClusterResponse()
        made.brokers.add(broker_id=1, pending_pushes=pending)
        made.brokers.add(broker_id=2)
        return made

    monkeypatch.setattr(admin, "describe_cluster", describe)
    monkeypatch.setattr(health, "POLL_EVERY_S", 0.01)
    Asked(
        cluster(),
        DescribeMaintenance=maintenance_pb2.DescribeMaintenanceResponse(shutting_down=shutting_down),
        ListPartitionReassignments=moves(going),
    ).install(monkeypatch)
    shown = typed(f"--timeout 0.1 wait --until {until}")
    assert shown.exit_code == (EXIT_FAILED if until == "stable" and work != "nothing" else 0)
    assert ("not stable after 0.1 s" in shown.stderr) == bool(shown.exit_code)


async def test_a_change_that_comes_soon_after_another_is_told_a_second_after_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One look each 0.4 s: the second thing is found at once, and the first one is told only once."""
    seen = iter([["one"], ["two"], ["two"], ["two"], []])
    now_s = itertools.count(10, 0.4)

    async def findings(*_: Any, **__: Any) -> list[Finding]:
        return [Finding(Wrong.PAUSED, 1, text) for text in next(seen)]

    monkeypatch.setattr(health, "_findings", findings)
    monkeypatch.setattr(health, "POLL_EVERY_S", 0)
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    Asked(cluster()).install(monkeypatch)
    assert await health._wait(Options("", "json", 60.0), stable=True) == []
    assert capsys.readouterr().err.split() == ["one", "two"]


@pytest.mark.parametrize(
    ("work", "deleting", "code"), [(None, [], EXIT_FAILED), (0, ["t"], EXIT_FAILED), (0, [], 0)]
)
def test_what_cannot_be_told_and_what_is_being_deleted_is_not_over(
    work: int | None, deleting: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(*_: Any) -> pb.DescribeClusterResponse:
        return pb.DescribeClusterResponse(brokers=[pb.BrokerDescription(broker_id=b) for b in (1, 2)])

    monkeypatch.setattr(admin, "describe_cluster", describe)
    in_vain(monkeypatch, health)
    Asked(
        cluster(deleting=deleting),
        DescribeMaintenance=maintenance_pb2.DescribeMaintenanceResponse(),
        ListPartitionReassignments=admin.NoAnswerError("c:1 is away") if work is None else moves(work),
    ).install(monkeypatch)
    assert typed("--timeout 0.1 wait").exit_code == code


def test_a_controller_that_is_not_active_yet_is_no_well_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe(*_: Any) -> pb.DescribeClusterResponse:
        return pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER)

    monkeypatch.setattr(admin, "describe_cluster", describe)
    Asked(cluster()).install(monkeypatch)
    assert typed("health").exit_code == EXIT_FAILED
