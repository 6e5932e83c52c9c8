"""Answers and questions that have two fields alike, a border, or nothing to say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.core.cluster.automatic_maintenance import OfflineBrokers
from controller.core.context import CoreSettings
from controller.core.explain.partitions import explain_partition
from controller.core.model import Attribution, Cluster, Maintenance, Partition, StopApproval, Topic
from controller.core.requests.configs import (
    ConfigDescribed,
    ConfigEntry,
    ConfigResource,
    ConfigScope,
    DescribeConfigsReply,
)
from controller.core.requests.elections import ElectLeadersReply, PartitionElected
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import OperatorReply
from controller.planning import scenarios
from controller.planning.context import cluster_of
from controller.planning.scenarios import Terms
from controller.planning.stoppable import Reason, Stoppable, Why
from controller.planning.store import Change
from controller.runtime.rpc.translate import admin, inspection, maintenance, plan_data, topics
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import admin_service_pb2 as pb
from proto.gen import inspection_pb2, maintenance_pb2
from tests.support.core.world import a_broker
from tests.support.planning.clusters import Small


def test_an_election_that_failed_says_why() -> None:
    failed = PartitionElected("t", 3, ErrorCode.ELECTION_NOT_NEEDED, "it leads", 2)
    (shown,) = admin.show_election(ElectLeadersReply(ErrorCode.NONE, [failed])).results
    assert (shown.topic, shown.partition, shown.error_message, shown.leader) == ("t", 3, "it leads", 2)


# --- borders -------------------------------------------------------------------------------------------------


def test_brokers_are_named_once_from_0_on_and_not_too_many() -> None:
    assert inspection.read_brokers("ids", [3, 0, 3]) == (3, 0)
    assert len(inspection.read_brokers("ids", range(inspection.BROKERS_MAX))) == inspection.BROKERS_MAX
    for wrong in ([], [0, -1], range(inspection.BROKERS_MAX + 1)):
        with pytest.raises(BadRequestError):
            inspection.read_brokers("ids", wrong)


@pytest.mark.parametrize(
    ("given", "read"), [(0, 1), (1, 1), (inspection.MIN_ISR_MAX, inspection.MIN_ISR_MAX), (-1, None)]
)
def test_a_min_isr_is_from_1_to_its_limit(given: int, read: int | None) -> None:
    if read is None:
        with pytest.raises(BadRequestError):
            inspection.read_min_isr(given)
    else:
        assert inspection.read_min_isr(given) == read
        with pytest.raises(BadRequestError):
            inspection.read_min_isr(inspection.MIN_ISR_MAX + 1)


@pytest.mark.parametrize("validate_only", [False, True])
def test_settings_are_only_validated_where_that_is_asked_for(validate_only: bool) -> None:
    assert topics.read_alteration(pb.AlterConfigsRequest(validate_only=validate_only)).validate_only is (
        validate_only
    )


def test_a_freeze_has_its_end() -> None:
    request = maintenance_pb2.SetFreezeRequest(frozen=True, reason="r", author="a", until_ms=5)
    asked = maintenance.read_freeze(request)
    assert (asked.frozen, asked.reason, asked.author, asked.until_ms) == (True, "r", "a", 5)


# --- answers -------------------------------------------------------------------------------------------------


def test_a_stop_verdict_has_the_approvals_by_broker_and_says_how_sure_it_is() -> None:
    approvals = {3: StopApproval(53, "r", "ann", 1000), 1: StopApproval(51, "s", "bob", 2000, ("why not",))}
    verdict = Stoppable((1,), (), 0, (1,), False, approvals)
    data = plan_data.stoppable_data(verdict, overridden=True)
    assert (data["largest_is_exact"], data["overridden"]) == (False, True)
    assert data["approvals"] == [
        {
            "broker": 1,
            "broker_epoch": 51,
            "author": "bob",
            "reason": "s",
            "at_ms": 2000,
            "overridden": ("why not",),
        },
        {"broker": 3, "broker_epoch": 53, "author": "ann", "reason": "r", "at_ms": 1000, "overridden": ()},
    ]


def test_an_explanation_has_its_rules_and_why_who_may_not_lead() -> None:
    cluster = cluster_of(Small((2,), {("t", 0): ((1, 2), 2, (1, 2))}).snapshot())
    partition = cluster.partition("t", 0)
    assert partition is not None
    data = plan_data.explanation_data(explain_partition(cluster, partition, unclean_allowed=False))
    first = data["rules"][0]
    assert (first["permitted"], first["leader"]) == (True, 2)
    assert [(c["broker"], c["failed"]) for c in first["candidates"]] == [(1, "is online"), (2, "")]


def test_a_reason_that_is_about_no_partition_names_none() -> None:
    reasons = (
        Reason(next(iter(Why)), "of all", "", -1, (1,)),
        Reason(next(iter(Why)), "of one", "t", 0, (1,)),
    )
    shown = inspection.show_stoppable(Stoppable((1,), reasons, 0, (1,), True))
    assert not shown.stoppable
    assert [(r["topic"], r["partition"]) for r in json.loads(shown.answer)["reasons"]] == [
        (None, None),
        ("t", 0),
    ]


def test_what_is_added_is_added() -> None:
    topic = Topic("t")
    partition = topic.partitions[0] = Partition(topic, 0, (1, 2, 3))
    partition.assign((1, 2, 3), (3,), (1,))
    cluster = Cluster(1)
    cluster.brokers = {1: a_broker(1, 1)}
    (shown,) = inspection.show_topic(cluster, topic, lambda _: "").partitions
    assert (list(shown.adding_replicas), list(shown.removing_replicas)) == ([3], [1])
    assert list(shown.offline_replicas) == [2, 3]


def test_maintenance_is_told_as_what_it_is() -> None:
    found = OfflineBrokers(9, (4,), 3, (5,))
    cluster = Cluster(1)
    cluster.maintenance = Maintenance(
        paused=Attribution("pause", "ann"), entered=Attribution("rack", "bob"), automatic=True
    )
    shown = maintenance.describe(cluster, found)
    assert (shown.paused.author, shown.maintenance.author) == ("ann", "bob")
    assert shown.entered_automatically
    assert (list(shown.gone), shown.known_brokers, shown.offline_limit, list(shown.accepted)) == (
        [4],
        9,
        3,
        [5],
    )


def test_what_a_drained_broker_still_leads_is_told() -> None:
    shown = maintenance.show_outcome(OperatorReply(ErrorCode.NONE, "", [("t", 4)]))
    assert [(left.topic, left.partition) for left in shown.remaining] == [("t", 4)]


def test_a_setting_is_told_with_its_source_and_what_is_wrong() -> None:
    entry = ConfigEntry("k", "v", "topics/t", False, "must be a number")
    described = ConfigDescribed(ConfigResource(ConfigScope.TOPIC, "t"), ErrorCode.NONE, "", (entry,))
    (result,) = topics.show_description(DescribeConfigsReply(ErrorCode.NONE, [described])).results
    (shown,) = result.configs
    assert (shown.name, shown.value, shown.source, shown.known, shown.problem) == (
        "k", "v", "topics/t", False, "must be a number",
    )  # fmt: skip


# --- plans ---------------------------------------------------------------------------------------------------


def test_a_plan_counts_what_it_does_not_tell() -> None:
    """The only member in sync is lost, and the topic permits unclean elections."""
    snapshot = Small((1, 2), {("t", 0): ((1, 2), 1, (1,))}).snapshot()
    settings = CoreSettings(unclean_leader_election_enable=True)
    made = scenarios.broker_loss(replace(snapshot, settings=settings), [1], Terms())
    told, short = (plan_data.plan_data(made, writes)["steps"][0] for writes in (True, False))
    assert short["writes_count"] == told["writes_count"] == len(told["writes"]) > 0
    assert "writes" not in short
    assert told["unclean_elections"] == ["t-0"]


def test_a_plan_says_what_has_to_settle_before_it() -> None:
    """Broker 9 is gone, and nobody has handled that yet."""
    small = Small((1, 2), {("t", 0): ((9, 1, 2), 9, (9, 1, 2))})
    made = scenarios.drain(small.snapshot(), 2, Terms())
    assert plan_data.plan_data(made, writes=False)["settling_writes"] == len(made.settling) > 0


def test_a_write_has_what_was_there_and_what_will_be() -> None:
    row = plan_data.write_row(Change("/x", "old", "new"))
    assert (row["path"], row["old"], row["new"]) == ("/x", "old", "new")
    created: Any = plan_data.write_row(Change("/x", None, "new"))
    assert (created["old"], created["new"]) == (None, "new")


def test_a_plan_is_asked_for_by_name() -> None:
    with pytest.raises(BadRequestError, match="scenario: must be one of broker_loss, "):
        inspection.read_scenario(inspection_pb2.PlanRequest())
    with pytest.raises(BadRequestError, match=r"drain\[0\] = -1: must be from 0"):
        inspection.read_scenario(inspection_pb2.PlanRequest(drain=-1))
