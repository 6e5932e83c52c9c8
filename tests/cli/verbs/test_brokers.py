"""``pctl brokers``: what ZooKeeper has, and what the controller adds, as far as it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli.pctl import brokers
from controller.client import admin
from controller.core.model import Broker, Endpoint, Forgotten
from controller.exit_codes import EXIT_FAILED
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, history_pb2, inspection_pb2, maintenance_pb2
from tests.support.cli.verbs import Asked, refused, typed
from tests.support.core.world import a_broker, state


def listed(monkeypatch: pytest.MonkeyPatch, history: Any) -> list[dict[str, Any]]:
    """Broker 1 is there and 9 is gone. ``history``: the controller's answer, or why it has none."""

    async def described(*_: Any) -> pb.DescribeClusterResponse:
        return pb.DescribeClusterResponse()

    partition = PartitionInfo("t", 0, (1, 9), state(1, (1,), 0, 0))
    now = ClusterState(100, "c:1", 7, brokers={1: a_broker(1, 1)}, partitions=[partition])
    nothing = maintenance_pb2.DescribeMaintenanceResponse()
    Asked(now, DescribeMaintenance=nothing, ListHistory=history).install(monkeypatch, brokers)
    monkeypatch.setattr(admin, "describe_cluster", described)
    found: list[dict[str, Any]] = json.loads(typed("brokers").stdout)
    return found


def test_a_broker_is_gone_since_its_last_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came back once; and its session lasted for two seconds more."""
    records = [
        {
            "ts": f"2026-01-14T{time}.000000Z",
            "kind": "broker",
            "replica": replica,
            "to": to,
            "silent_us": 2_000_000,
        }
        for time, replica, to in (
            ("10:00:09", 9, "offline"),
            ("10:01:09", 9, "online"),
            ("10:02:09", 9, "offline"),
            ("10:03:09", 8, "offline"),
        )
    ]
    answer = history_pb2.ListHistoryResponse(records=[json.dumps(record) for record in records])
    rows = listed(monkeypatch, answer)
    assert [(row["broker"], row.get("since")) for row in rows] == [
        (1, None),
        (9, "2026-01-14T10:02:07.000000Z"),
    ]


def test_a_broker_that_will_not_return_is_gone_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = PartitionInfo("t", 0, (1, 0, 9), state(1, (1,), 0, 0))
    forgotten = {9: Forgotten("burnt", "ann", 0)}
    Asked(ClusterState(brokers={1: a_broker(1, 1)}, partitions=[partition], forgotten=forgotten)).install(
        monkeypatch, brokers
    )
    rows = json.loads(typed("brokers").stdout)
    assert [(row["broker"], row["state"]) for row in rows] == [
        (0, ["gone"]),
        (1, ["ready"]),
        (9, ["gone", "forgotten"]),
    ]


@pytest.mark.parametrize(
    ("error", "code"), [(admin.NoAnswerError("away"), 3), (refused("Audit", "INVALID_REQUEST"), EXIT_FAILED)]
)
def test_brokers_that_could_not_be_asked_do_not_differ(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(Audit=error).install(monkeypatch, brokers)
    assert typed("audit").exit_code == code


def test_of_a_finding_in_many_topics_those_with_most_partitions_are_named() -> None:
    problem = {"kind": "leader", "broker": 1}
    topics = [f"t{n}" for n in range(7) for _ in range(9 - n)]
    (found,) = brokers._findings([{**problem, "topic": topic} for topic in topics])
    assert found["partitions"] == 42
    others = [{"kind": kind, "broker": b, "topic": "t"} for kind, b in (("z", 1), ("a", 10), ("a", 9))]
    sorted_ = [(found["kind"], found["broker"]) for found in brokers._findings(others)]
    assert sorted_ == [("a", 9), ("a", 10), ("z", 1)]
    assert found["topics"] == "t0 (9), t1 (8), t2 (7), t3 (6), t4 (5), and 2 more topics"


def test_a_broker_is_listed_with_its_first_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of IPv6 has brackets, or nobody knows where its port begins."""
    endpoints = tuple(Endpoint(name, "PLAINTEXT", host, 1) for name, host in (("GRPC", "::1"), ("X", "h")))
    Asked(ClusterState(brokers={1: Broker(1, 1, endpoints)})).install(monkeypatch, brokers)
    assert [row["endpoint"] for row in json.loads(typed("brokers").stdout)] == ["[::1]:1"]


def test_a_controller_that_is_not_active_has_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def described(*_: Any) -> pb.DescribeClusterResponse:
        return pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER)

    Asked(ClusterState(100, "c:1", 7, brokers={1: a_broker(1, 1)})).install(monkeypatch, brokers)
    monkeypatch.setattr(admin, "describe_cluster", described)
    shown = typed("brokers")
    assert [(row["state"], row["pending_pushes"]) for row in json.loads(shown.stdout)] == [(["ready"], None)]
    assert "pctl: from ZooKeeper alone (NOT_CONTROLLER" in shown.stderr


def test_without_a_history_brokers_are_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = listed(monkeypatch, admin.NoAnswerError("nobody answers"))
    assert [row["broker"] for row in rows] == [1, 9]


def test_who_cannot_tell_what_shuts_down_has_told_of_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = pb.DescribeClusterResponse(brokers=[pb.BrokerDescription(broker_id=1, pending_pushes=4)])

    async def described(*_: Any) -> pb.DescribeClusterResponse:
        return known

    now = ClusterState(100, "c:1", 7, brokers={b: a_broker(b, b) for b in (1, 2)})
    Asked(now, DescribeMaintenance=refused("DescribeMaintenance", "NOT_CONTROLLER", "no")).install(
        monkeypatch, brokers
    )
    monkeypatch.setattr(admin, "describe_cluster", described)
    shown = typed("brokers")
    assert [(row["broker"], row["pending_pushes"]) for row in json.loads(shown.stdout)] == [(1, 4), (2, None)]
    assert "NOT_CONTROLLER" in shown.stderr


@pytest.mark.parametrize(("count", "options", "each"), [(20, "", True), (21, "", False), (21, "--all", True)])
def test_many_findings_are_counted_and_each_is_shown_to_who_asks(
    count: int, options: str, each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the controller left out are told of in any form."""
    answer = inspection_pb2.AuditResponse(problems_left=4)
    answer.brokers.add(broker_id=1, verdict=inspection_pb2.AUDIT_DIFFERENT, differences=count)
    for number in range(count):
        answer.problems.add(
            topic="t", partition=number, broker_id=1, kind="metadata", what=f"differs {number}"
        )
    asked = Asked(Audit=answer).install(monkeypatch, brokers)
    shown = typed(f"audit --topic t {options}", "table")
    assert (shown.exit_code, [list(r.topics) for r in asked.of("Audit")]) == (1, [["t"]])
    assert ("differs 19" in shown.stdout, f"t ({count})" in shown.stdout) == (each, True)
    assert ("21 findings: --all shows each" in shown.stderr) is not each
    told = typed(f"audit --topic t {options}")
    assert len(json.loads(told.stdout)["problems"]) == count
    for said in (shown, told):
        assert "4 more are not shown: name topics" in said.stderr


@pytest.mark.parametrize("recorded", [False, True])
def test_who_asks_for_what_is_recorded_has_no_broker_asked(
    recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(Audit=inspection_pb2.AuditResponse()).install(monkeypatch, brokers)
    assert typed(f"audit {'--recorded' * recorded}").exit_code == 0
    assert [request.recorded for request in asked.of("Audit")] == [recorded]


def test_that_topics_are_left_is_said_before_why_the_last_look_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = inspection_pb2.AuditResponse()
    answer.brokers.add(broker_id=1, verdict=inspection_pb2.AUDIT_PARTIAL, topics_left=3, why="it was away")
    Asked(Audit=answer).install(monkeypatch, brokers)
    (row,) = json.loads(typed("audit").stdout)["brokers"]
    assert row["why"] == "3 more topics differ and are compared later"
