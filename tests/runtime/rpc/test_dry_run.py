"""Dry runs as they are read from the wire, and what of an approval is recorded: without a controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.cluster import dynamic_settings
from controller.core.model import StopApproval
from controller.core.znode_paths import config_path, topic_config_path
from controller.planning.dry_run import DryRunTrace
from controller.planning.stoppable import Reason, Stoppable, Why
from controller.runtime.rpc import dry_run
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import admin_service_pb2 as pb
from proto.gen import inspection_pb2
from tests.support.core.world import a_broker

CREATION = "CreateTopics", pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="t")])
APPROVAL = (
    "ApproveStop",
    inspection_pb2.ApproveStopRequest(
        check=inspection_pb2.CheckStoppableRequest(broker_ids=[1]), reason="why", author="who"
    ),
)


def steps(*given: tuple[str, Any]) -> list[dry_run.Step]:
    return dry_run.read(
        inspection_pb2.DryRunRequest(
            steps=[
                inspection_pb2.DryRunStep(method=method, request=request.SerializeToString())
                for method, request in given
            ]
        )
    )


def test_as_many_steps_as_may_be() -> None:
    for count in (0, dry_run.STEPS_MAX + 1):
        with pytest.raises(BadRequestError, match=f"there are {count}"):
            steps(*[CREATION] * count)
    assert len(steps(*[CREATION] * dry_run.STEPS_MAX)) == dry_run.STEPS_MAX


def test_an_approval_is_a_step_of_its_own() -> None:
    assert [step.asked for step in steps(APPROVAL)] == [None]
    for given in ([APPROVAL, CREATION], [CREATION, APPROVAL]):
        with pytest.raises(BadRequestError, match="must be the only step"):
            steps(*given)


def test_a_step_is_no_larger_than_the_request_may_be() -> None:
    many = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="t")] * 10_001)
    with pytest.raises(BadRequestError, match=r"steps\[1\].request: topics: has 10001 entries"):
        steps(CREATION, ("CreateTopics", many))


def test_what_a_snapshot_lacks_is_read_once() -> None:
    resources = [(pb.BROKER, "1"), (pb.BROKER, ""), (pb.BROKER, "x"), (pb.TOPIC, "t"), (pb.CONTROLLER, "")]
    change = pb.AlterConfigsRequest(
        resources=[
            pb.AlterConfigsResource(
                resource=pb.ConfigResource(resource_type=kind, resource_name=name),
                configs=[pb.AlterableConfig(name="a", value="1")],
            )
            for kind, name in resources
            if name != "x"
        ]
    )
    found = dry_run.paths(steps(("AlterConfigs", change), CREATION, CREATION))
    assert found == [config_path("brokers/1"), dynamic_settings.PATH, topic_config_path("t")]


UNKNOWN, OFFLINE = (Reason(why, f"because {why.value}") for why in (Why.UNKNOWN_BROKER, Why.OFFLINE))


@pytest.mark.parametrize(
    ("reasons", "override", "recorded"),
    [
        ((), False, True),
        ((OFFLINE,), False, False),
        ((OFFLINE,), True, True),
        ((UNKNOWN,), True, False),
        ((OFFLINE, UNKNOWN), True, False),
    ],
)
def test_of_a_broker_that_is_not_there_no_approval_is_recorded(
    reasons: tuple[Reason, ...], override: bool, recorded: bool
) -> None:
    assert dry_run.may_record(Stoppable((1,), reasons, None, (), True), override) is recorded


def test_an_approval_says_what_it_overrides_and_what_it_considered() -> None:
    snapshot: Any = SimpleNamespace(
        brokers={1: a_broker(1, 11), 2: a_broker(2, 22)},
        approvals={2: StopApproval(22, "why", "who", 5), 1: StopApproval(10, "former", "who", 5)},
    )
    made = dry_run.approval(snapshot, Stoppable((1,), (OFFLINE,), None, (), True), APPROVAL[1])
    assert made.brokers == {1: 11}
    assert made.counted == {(2, 22)}
    assert (made.overridden, made.reason, made.author) == ((OFFLINE.text,), "why", "who")


def test_a_verdict_tolerates_what_it_was_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(dry_run, "stoppable", lambda *_, **named: asked.append(named))
    for tolerate in (True, False):
        request = inspection_pb2.CheckStoppableRequest(broker_ids=[1], tolerate_under_replicated=tolerate)
        dry_run.judge(SimpleNamespace(), request, lambda: None)  # type: ignore[arg-type]
    assert [named["tolerate_under_replicated"] for named in asked] == [True, False]


def test_pushes_of_all_phases_are_counted_by_broker_and_kind() -> None:
    phases: Any = [
        SimpleNamespace(writes=[], when="", pushes={1: {"LeaderAndIsr": 2, "UpdateMetadata": 1}}),
        SimpleNamespace(writes=[], when="later", pushes={1: {"LeaderAndIsr": 3}, 2: {"UpdateMetadata": 4}}),
    ]
    assert dry_run._data(DryRunTrace((), phases, ()))["pushes"] == {
        "1": {"LeaderAndIsr": 5, "UpdateMetadata": 1},
        "2": {"UpdateMetadata": 4},
    }
