"""The audit log: who asked for what, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.core.records import RequestRecord
from controller.runtime.observe.audit_log import NAMED_MAX, AuditLog, errors_in, subject_of
from controller.runtime.observe.history import Journal, Recent
from controller.runtime.observe.history_filter import Filter
from proto.gen import admin_service_pb2 as pb
from proto.gen import broker_data_pb2 as data
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as brokers
from proto.gen import inspection_pb2 as inspection
from proto.gen import maintenance_pb2 as maintenance
from proto.gen.kafka.controlled_shutdown_response import ControlledShutdownResponse
from proto.gen.kafka.create_acls_request import AclCreation, CreateAclsRequest
from proto.gen.kafka.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from proto.gen.kafka.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from proto.gen.kafka.elect_leaders_request import ElectLeadersRequest
from proto.rate_limit import STRANGERS_MAX, WINDOW_S, RateLimit
from proto.statelog.writer import StateLogWriter

DENIED = pb.ElectLeadersResponse(error_code=common_pb2.CLUSTER_AUTHORIZATION_FAILED)
ALICE = ("User:alice", "192.0.2.1")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Audited:
    """An audit log and its lines."""

    def __init__(self, directory: Path) -> None:
        self.recent, self.clock = Recent(1, 10_000), Clock()
        self._writer = StateLogWriter(directory, "controller", 1)
        self.log = AuditLog(Journal(self._writer, self.recent), RateLimit(now_s=self.clock))

    def lines(self) -> list[dict[str, Any]]:
        found = [line for portion in self.recent.backwards(Filter()) for line in portion]
        keep = {f.name for f in msgspec.structs.fields(RequestRecord)} | {
            "kind",
            "to",
            "cause",
            "controller_epoch",
        }
        return [{k: v for k, v in msgspec.json.decode(line).items() if k in keep} for line in reversed(found)]

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def audited(tmp_path: Path) -> Any:
    made = Audited(tmp_path)
    yield made
    made.close()


def deletion(*names: str, reason: str = "") -> pb.DeleteTopicsRequest:
    return pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=name) for name in names], reason=reason)


def answer(*errors: int) -> pb.DeleteTopicsResponse:
    return pb.DeleteTopicsResponse(responses=[pb.DeletedTopic(error_code=error) for error in errors])  # type: ignore[arg-type]


def test_what_was_done_and_what_was_refused(audited: Audited) -> None:
    asked = deletion("a", "b", reason=" old ")
    audited.log.answered("DeleteTopics", ALICE, asked, answer(0, 0), 7, changes=True)
    audited.log.answered("DeleteTopics", ALICE, asked, answer(0, 3), 7, changes=True)
    common = {"kind": "request", "cause": "DeleteTopics", "controller_epoch": 7, "to": "DeleteTopics",
              "principal": "User:alice", "address": "192.0.2.1", "subject": "a, b", "reason": "old"}  # fmt: skip
    assert audited.lines() == [common, {**common, "error": "UNKNOWN_TOPIC_OR_PARTITION"}]


def test_what_changes_nothing_is_not_recorded_unless_it_is_denied(audited: Audited) -> None:
    log = audited.log
    log.answered("DescribeTopics", ALICE, None, answer(0), 7, changes=False)
    log.answered(
        "DeleteTopics",
        ALICE,
        deletion("a"),
        pb.DeleteTopicsResponse(error_code=common_pb2.NOT_CONTROLLER),
        -1,
        changes=True,
    )
    assert audited.lines() == []
    log.answered("DescribeTopics", ALICE, None, answer(29), 7, changes=False)
    log.denied("Watch", ("User:ANONYMOUS", ""), "UNAUTHENTICATED", None, -1)
    assert [(r["to"], r["error"], r.get("address")) for r in audited.lines()] == [
        ("DescribeTopics", "TOPIC_AUTHORIZATION_FAILED", "192.0.2.1"),
        ("Watch", "UNAUTHENTICATED", None),
    ]


@pytest.mark.parametrize(
    ("code", "changes", "error"),
    [
        # Kafka's: TOPIC_, GROUP_ and CLUSTER_AUTHORIZATION_FAILED.
        (29, False, "TOPIC_AUTHORIZATION_FAILED"),
        (30, False, "GROUP_AUTHORIZATION_FAILED"),
        (31, False, "CLUSTER_AUTHORIZATION_FAILED"),
        (3, False, None),
        (3, True, "UNKNOWN_TOPIC_OR_PARTITION"),
        # STALE_CONTROLLER_EPOCH and NOT_CONTROLLER: the caller asks another controller.
        (11, True, None),
        (41, True, None),
    ],
)
def test_which_errors_are_denials_and_which_say_nothing_of_the_request(
    audited: Audited, code: int, changes: bool, error: str | None
) -> None:
    audited.log.answered("DeleteTopics", ALICE, deletion("a"), answer(code), 7, changes=changes)
    assert [line["error"] for line in audited.lines()] == ([] if error is None else [error])


def test_a_flood_of_denials_leaves_a_bounded_number_of_records(audited: Audited) -> None:
    for _ in range(STRANGERS_MAX + 500):
        audited.log.answered("ElectLeaders", ALICE, None, DENIED, 7, changes=True)
    assert len(audited.lines()) == STRANGERS_MAX
    # What is carried out is recorded all the same.
    audited.log.answered("ElectLeaders", ALICE, None, pb.ElectLeadersResponse(), 7, changes=True)
    audited.clock.now_s += WINDOW_S
    audited.log.answered("ElectLeaders", ALICE, None, DENIED, 7, changes=True)
    assert [line.get("count") for line in audited.lines()[-3:]] == [None, None, 501]


def test_what_is_carried_out_beside_a_denial_is_recorded_however_many_denials_there_were(
    audited: Audited,
) -> None:
    for _ in range(STRANGERS_MAX + 1):
        audited.log.answered("DeleteTopics", ALICE, deletion("secret"), answer(29), 7, changes=True)
    assert len(audited.lines()) == STRANGERS_MAX
    audited.log.answered("DeleteTopics", ALICE, deletion("secret", "t"), answer(29, 0), 7, changes=True)
    last = audited.lines()[-1]
    assert (last["subject"], last["error"]) == ("secret, t", "TOPIC_AUTHORIZATION_FAILED")
    assert len(audited.lines()) == STRANGERS_MAX + 1


def test_a_denial_behind_another_error_is_one(audited: Audited) -> None:
    audited.log.answered("DescribeTopics", ALICE, None, answer(3, 29), 7, changes=False)
    audited.log.answered("DeleteTopics", ALICE, None, answer(3, 29), 7, changes=True)
    assert [line["error"] for line in audited.lines()] == [
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]


def test_what_denials_left_out_is_told_once(audited: Audited) -> None:
    for _ in range(STRANGERS_MAX + 5):
        audited.log.denied("Watch", ALICE, "UNAUTHENTICATED", None, 7)
    audited.clock.now_s += WINDOW_S
    for _ in range(3):
        audited.log.denied("Watch", ALICE, "UNAUTHENTICATED", None, 7)
    assert [line.get("count") for line in audited.lines()[STRANGERS_MAX:]] == [6, None, None]


@pytest.mark.parametrize(
    ("request_", "subject"),
    [
        (None, ""),
        (deletion(), ""),
        (deletion(*map(str, range(NAMED_MAX + 2))), ", ".join(map(str, range(NAMED_MAX))) + " and 2 more"),
        (pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(topic_id="x")]), "topic id x"),
        (pb.ElectLeadersRequest(topic_partitions=[common_pb2.PartitionName(topic="t", partition=3)]), "t-3"),
        (brokers.ControlledShutdownRequest(broker_id=4), "broker 4"),
        (
            pb.AlterConfigsRequest(
                resources=[pb.AlterConfigsResource(resource=pb.ConfigResource(resource_name="t"))]
            ),
            "t",
        ),
        (
            pb.ElectLeadersRequest(
                election_type=pb.UNCLEAN, topic_partitions=[common_pb2.PartitionName(topic="t", partition=3)]
            ),
            "t-3, UNCLEAN",
        ),
        (ElectLeadersRequest(1, None, 0), "UNCLEAN"),
        (ElectLeadersRequest(7, None, 0), ""),
        (maintenance.SetPauseRequest(paused=True), "paused=true"),
        (maintenance.SetPauseRequest(), "paused=false"),
        (maintenance.SetMaintenanceRequest(), "entered=false"),
        (maintenance.SetFreezeRequest(frozen=True), "frozen=true"),
        (maintenance.SetDrainRequest(broker_id=3), "broker 3, drained=false"),
        (
            inspection.ApproveStopRequest(
                check=inspection.CheckStoppableRequest(broker_ids=[1, 2]), override=True
            ),
            "broker 1, broker 2, override",
        ),
        (DeleteTopicsRequest(topic_names=["a", "b"]), "a, b"),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]), "a"),
        (CreateAclsRequest([AclCreation(2, "a"), AclCreation(4, "kafka-cluster")]), "a, kafka-cluster"),
        (DeleteAclsRequest([DeleteAclsFilter(2, "a"), DeleteAclsFilter(2, None)]), "a"),
    ],
)
def test_what_a_request_is_about(request_: Any, subject: str) -> None:
    assert subject_of(request_) == subject


@pytest.mark.parametrize(
    ("override", "stoppable", "error"),
    [(False, False, "POLICY_VIOLATION"), (True, False, "POLICY_VIOLATION"), (True, True, None)],
)
def test_a_stop_that_is_not_approved_is_not_recorded_as_done(
    audited: Audited, override: bool, stoppable: bool, error: str | None
) -> None:
    request = inspection.ApproveStopRequest(override=override)
    verdict = inspection.CheckStoppableResponse(stoppable=stoppable)
    audited.log.answered("ApproveStop", ALICE, request, verdict, 7, changes=True)
    audited.log.answered("CheckStoppable", ALICE, request, verdict, 7, changes=False)
    (line,) = audited.lines()
    assert line.get("error") == error


def test_errors_of_both_protocols() -> None:
    assert list(errors_in(answer(0, 3, 29))) == ["UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED"]
    # Of a hundred thousand alike, the audit log looks at each once, and reads no name again.
    assert list(errors_in(answer(*[3] * 1000, 29, 3))) == list(errors_in(answer(3, 29)))
    kafka = DeleteTopicsResponse(
        responses=[DeletableTopicResult(error_code=29), DeletableTopicResult(error_code=999)]
    )
    assert list(errors_in(kafka)) == ["TOPIC_AUTHORIZATION_FAILED", "error 999"]


def test_an_error_below_an_entry_without_one() -> None:
    topic = data.MetadataTopic(
        partitions=[data.MetadataPartition(error_code=common_pb2.LEADER_NOT_AVAILABLE)]
    )
    assert list(errors_in(data.MetadataResponse(topics=[topic]))) == ["LEADER_NOT_AVAILABLE"]


@pytest.mark.parametrize(("code", "errors"), [(0, []), (41, ["NOT_CONTROLLER"]), (31_000, ["error 31000"])])
def test_the_error_of_a_whole_answer(code: int, errors: list[str]) -> None:
    assert list(errors_in(ControlledShutdownResponse(error_code=code))) == errors


def test_requests_of_kafka_s_protocol_have_no_reason(audited: Audited) -> None:
    audited.log.answered(
        "DELETE_TOPICS",
        ALICE,
        DeleteTopicsRequest(topic_names=["a"]),
        DeleteTopicsResponse(),
        7,
        changes=True,
    )
    (line,) = audited.lines()
    assert (line["subject"], line.get("reason"), line.get("error")) == ("a", None, None)
