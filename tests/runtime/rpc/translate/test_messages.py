"""What stands in messages is what the core and the planner get, and what they say stands there: field by field."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KafkasErrorCode

from controller.core.cluster.automatic_maintenance import OfflineBrokers
from controller.core.model import Cluster, FeatureRange, Freeze, Maintenance
from controller.core.reasons import StateGone
from controller.core.requests.configs import AlterConfigs, ConfigAlteration, ConfigChange, ConfigResource
from controller.core.requests.configs import ConfigScope as Scope
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.errors import ErrorCode
from controller.core.requests.features import (
    DescribeFeaturesReply,
    FeatureUpdate,
    UpdateFeatures,
    UpgradeType,
)
from controller.core.requests.operator import ForgetBroker, SetDrain
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    ListPartitionReassignmentsReply,
    Ongoing,
    PartitionReassignment,
)
from controller.planning import scenarios
from controller.planning.dry_run import DryRunTrace, Phase
from controller.planning.scenarios import Terms
from controller.planning.snapshot import Snapshot
from controller.planning.store import Change
from controller.runtime.observe.history_filter import Filter
from controller.runtime.rpc import dry_run, history_service
from controller.runtime.rpc.translate import admin, features, inspection, maintenance, plan_data, topics
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, features_pb2, history_pb2, inspection_pb2, maintenance_pb2
from tests.support.planning.clusters import Small

PREFERRED: dict[str, Any] = {"election_type": pb.PREFERRED, "all_partitions": True}
NOW_S = 1_700_000_000.25


@pytest.mark.parametrize(
    ("read", "request_", "asked"),
    [
        (
            admin.read_election,
            pb.ElectLeadersRequest(**PREFERRED, leader=0),
            ElectLeaders(ElectionType.PREFERRED, None, 0),
        ),
        (
            admin.read_election,
            pb.ElectLeadersRequest(**PREFERRED),
            ElectLeaders(ElectionType.PREFERRED, None, None),
        ),
        (
            admin.read_reassignment,
            pb.AlterPartitionReassignmentsRequest(
                partitions=[
                    {"topic": "t", "partition": 0, "replicas": {"broker_ids": [2, 1]}},
                    {"topic": "t", "partition": 1, "replicas": {}},
                    {"topic": "t", "partition": 2},
                ]
            ),
            AlterPartitionReassignments(
                [
                    PartitionReassignment("t", 0, (2, 1)),
                    PartitionReassignment("t", 1, ()),
                    PartitionReassignment("t", 2, None),
                ]
            ),
        ),
        (
            features.read_update,
            features_pb2.UpdateFeaturesRequest(
                updates=[
                    {"name": "f", "max_version_level": 2, "upgrade_type": features_pb2.UPGRADE},
                    {"name": "g", "max_version_level": 0, "upgrade_type": 77},
                ],
                validate_only=True,
            ),
            UpdateFeatures([FeatureUpdate("f", 2, UpgradeType.UPGRADE), FeatureUpdate("g", 0, None)], True),
        ),
        (
            maintenance.read_drain,
            maintenance_pb2.SetDrainRequest(broker_id=3, drained=True, reason="r", author="a", force=True),
            SetDrain(3, True, "r", "a", True),
        ),
        (
            maintenance.read_forgetting,
            maintenance_pb2.ForgetBrokerRequest(broker_id=3, reason="r", author="a"),
            ForgetBroker(3, "r", "a", 1_700_000_000_250),
        ),
        (
            topics.read_alteration,
            pb.AlterConfigsRequest(
                resources=[
                    {
                        "resource": {"resource_type": pb.TOPIC, "resource_name": "t"},
                        "configs": [{"name": "k", "value": ""}, {"name": "gone"}],
                    }
                ],
                unknown_keys_too=True,
            ),
            AlterConfigs(
                [
                    ConfigAlteration(
                        ConfigResource(Scope.TOPIC, "t"), [ConfigChange("k", ""), ConfigChange("gone", None)]
                    )
                ],
                False,
                False,
            ),
        ),
        (
            history_service._read_filter,
            history_pb2.HistoryFilter(topic="t", brokers=[0, 2], since_us=5, until_us=9),
            Filter("t", None, frozenset({0, 2}), None, frozenset(), 5, 9),
        ),
    ],
)
def test_what_is_asked_is_what_stands_there(
    read: Callable[[Any], Any], request_: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(time=lambda: NOW_S))
    assert read(request_) == asked


def test_errors_have_the_numbers_that_they_have_on_the_wire() -> None:
    """As another library of Kafka's protocol has them; of gRPC, all that brokers are told."""
    kafkas = {error.name.upper(): int(error) for error in KafkasErrorCode}
    ours = {error.name: error.value for error in ErrorCode}
    assert ours.items() <= kafkas.items()
    assert dict(common_pb2.ErrorCode.items()).items() <= kafkas.items()


@pytest.mark.parametrize(("given", "batch"), [({}, 1), ({"batch": 0}, 0), ({"batch": 3}, 3)])
def test_as_many_brokers_restart_at_once_as_is_asked(
    given: Any, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(scenarios, "rolling_restart", lambda *named: asked.append(named))
    request = inspection_pb2.PlanRequest(rolling_restart={"broker_ids": [2]}, **given)
    snapshot, terms = Snapshot(1, 7, {}, {}, {}), Terms()
    inspection.read_scenario(request)(snapshot, terms)
    assert asked == [(snapshot, terms, batch, (2,))]


def test_moves_and_features_are_told_as_they_are() -> None:
    move = Ongoing("t", 3, (1, 2, 4), (4,), (1,), True, (StateGone(),))
    (shown,) = admin.show_listing(ListPartitionReassignmentsReply(ErrorCode.NONE, [move])).partitions
    assert (list(shown.replicas), list(shown.adding_replicas), list(shown.removing_replicas)) == (
        [1, 2, 4],
        [4],
        [1],
    )
    assert (shown.topic, shown.partition, shown.queued, list(shown.reasons)) == (
        "t",
        3,
        True,
        ["its state znode is gone"],
    )
    reply = DescribeFeaturesReply(ErrorCode.NONE, "", [FeatureRange("f", 1, 2)], [FeatureRange("f", 0, 3)], 9)
    told = features.show_description(reply)
    assert [(f.min_version_level, f.max_version_level) for f in (*told.finalized, *told.supported)] == [
        (1, 2),
        (0, 3),
    ]


def test_a_freeze_is_told_with_its_end() -> None:
    cluster = Cluster(1)
    assert maintenance.describe(cluster, OfflineBrokers(0, (), 0)).frozen_until_ms == 0
    cluster.maintenance = Maintenance(freeze=Freeze("why", "who", 1_700_000_000_250))
    told = maintenance.describe(cluster, OfflineBrokers(0, (), 0))
    assert (told.frozen.reason, told.frozen.author, told.frozen_until_ms) == (
        "why",
        "who",
        1_700_000_000_250,
    )


def test_a_plan_tells_of_the_middle_of_a_step_and_of_its_ends() -> None:
    """A broker restarts that alone has a partition: meanwhile it is offline."""
    snapshot = Small((1, 2), {("t", 0): ((1,), 1, (1,)), ("t", 1): ((2, 1), 2, (2, 1))}).snapshot()
    made = scenarios.rolling_restart(snapshot, Terms(), broker_ids=[1])
    (step,) = plan_data.plan_data(made, writes=False)["steps"]
    assert (step["offline_before"], step["offline"], step["offline_after"]) == ([], ["t-0"], [])
    assert step["under_replicated"] == ["t-0", "t-1"]
    assert plan_data._leaders({1: 5, 2: 0}, {2: 5}) == {
        "1": {"before": 5, "after": None},
        "2": {"before": 0, "after": 5},
    }


def test_a_dry_run_adds_up_what_its_phases_push_and_tells_when_each_writes() -> None:
    phases = tuple(
        Phase(when, (Change("/x", None, None),), {2: {"LeaderAndIsr": count}, 10: {"StopReplica": 1}})
        for when, count in (("at once", 3), ("later", 4))
    )
    data = dry_run._data(DryRunTrace((), phases, ("n",)))
    assert data["pushes"] == {"2": {"LeaderAndIsr": 7}, "10": {"StopReplica": 2}}
    assert [row["when"] for row in data["writes"]] == ["at once", "later"]
