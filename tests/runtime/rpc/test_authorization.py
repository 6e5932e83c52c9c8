"""Who may call what: the table is complete, and what is denied is neither carried out nor told of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from controller.core.handlers import BODIES
from controller.core.model import Cluster, Topic
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.rpc import access, methods
from controller.runtime.rpc.access import Guard
from controller.runtime.rpc.methods import ADMIN_SERVICE, CONTROLLER_SERVICE
from controller.runtime.rpc.server import _named, _named_stream, _service, start_server
from proto.arrivals import Arrivals
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, controller_service_pb2, history_pb2, inspection_pb2, maintenance_pb2
from proto.security.access import Openness
from proto.security.authorization import CLUSTER, AnyBroker, Operation, Principal, Resource, topic
from proto.security.callers import Callers, UnauthenticatedError
from proto.security.principals import PrincipalRules
from tests.support.paths import DOCS
from tests.support.runtime.admins import NOT_HERE, REQUESTS, error_name, errors
from tests.support.runtime.callers import controller
from tests.support.runtime.daemons import running
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

#: What an empty request is refused for.
GOOD: dict[str, dict[str, Any]] = {
    "ElectLeaders": {"all_partitions": True},
    "WithdrawStopApproval": {"broker_ids": [1]},
}
ADMIN, BROKERS = ADMIN_SERVICE, CONTROLLER_SERVICE
SERVICES = {
    ADMIN: pb.DESCRIPTOR.services_by_name["AdminService"],
    BROKERS: controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
}
METHODS = [(service, method.name) for service, d in SERVICES.items() for method in d.methods]

#: What a denial says of a caller without a name.
NOBODY = ": the request came with neither certificate nor token"


class Denying(AnyBroker):
    """Allows what ``may`` says; keeps what it was asked."""

    def __init__(self, may: Callable[[Operation, Resource], bool] = lambda *_: False) -> None:
        self._may = may
        self.asked: list[tuple[Operation, Resource]] = []

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        assert str(principal) == "User:ANONYMOUS"
        self.asked.append((operation, resource))
        return self._may(operation, resource)


def own(*names: str) -> Denying:
    """Everything with these topics, nothing else."""
    return Denying(lambda _, resource: resource in [topic(name) for name in names])


class Context:
    """gRPC's context of a call over TCP without TLS."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def invocation_metadata(self) -> tuple[()]:
        return ()


class Audited:
    """In the place of the daemon's audit log."""

    def __init__(self) -> None:
        #: Method, caller, error of the answer, and whether it is one that changes something.
        self.records: list[tuple[str, tuple[str, str], str, bool]] = []

    def answered(
        self, method: str, caller: tuple[str, str], request: Any, answer: Any, epoch: int, *, changes: bool
    ) -> None:
        assert epoch == 1
        self.records.append((method, caller, error_name(answer.error_code), changes))


def daemon_like(
    authorizer: Any, metrics: ControllerMetrics, term: Any, openness: Openness = Openness.BY_SETTING
) -> Any:
    return SimpleNamespace(
        authorizer=authorizer,
        callers=Callers(PrincipalRules()),
        openness=openness,
        audit_log=Audited(),
        epoch=1,
        metrics=metrics,
        term=term,
    )


class Rigged:
    """A guarded method whose handler answers for all it is given; ``called`` are the requests it got."""

    def __init__(
        self,
        method: str,
        authorizer: Any,
        answer: Callable[[Any], Any],
        openness: Openness = Openness.BY_SETTING,
    ) -> None:
        self.metrics = ControllerMetrics(CollectorRegistry())
        cluster = Cluster(controller_id=1)
        cluster.add_topic(Topic("secret", "S" * 22))
        term = SimpleNamespace(machine=SimpleNamespace(cluster=cluster))
        self.daemon = daemon_like(authorizer, self.metrics, term, openness)
        self.called: list[Any] = []
        self._answer = answer
        self._guard = Guard(
            self.daemon, f"/{ADMIN if method in methods.METHODS[ADMIN] else BROKERS}/{method}"
        )

    async def ask(self, request: Any) -> Any:
        async def handler(request: Any) -> Any:
            self.called.append(request)
            return self._answer(request)

        return await self._guard.unary(handler)(request, Context())


def named(response: type, field: str, entry: type) -> Callable[[Any], Any]:
    """Answers without an error, for each entry asked for."""
    return lambda request: response(**{field: [entry(name=t.name) for t in request.topics]})


def nothing_of(method: str) -> Callable[[Any], Any]:
    return lambda _: methods.response_of(ADMIN, method)()


def counted(daemon: Any, method: str) -> dict[str, float]:
    """How often a method was answered, by error."""
    samples = daemon.metrics.requests.collect()[0].samples
    return {
        s.labels["error"]: s.value
        for s in samples
        if s.name.endswith("_total") and s.labels["method"] == method
    }


deleted = named(pb.DeleteTopicsResponse, "responses", pb.DeletedTopic)


def deletions(*names: str, ids: tuple[str, ...] = ()) -> pb.DeleteTopicsRequest:
    by_name = [pb.DeletableTopic(name=name) for name in names]
    return pb.DeleteTopicsRequest(topics=[*by_name, *(pb.DeletableTopic(topic_id=i) for i in ids)])


# --- the table -------------------------------------------------------------------------------------------------


def test_every_rpc_has_a_rule_and_every_rule_an_rpc() -> None:
    assert {(service, method) for service, rows in methods.METHODS.items() for method in rows} == set(METHODS)


def test_every_rpc_of_operators_is_asked_as_it_should_be_and_with_garbage() -> None:
    """By tests/runtime/rpc/test_admin_requests.py."""
    assert REQUESTS.keys() | NOT_HERE == methods.METHODS[ADMIN].keys()


@pytest.mark.parametrize(("service", "method"), METHODS)
def test_the_rule_fits_the_messages(service: str, method: str) -> None:
    """Fields that it names are there, and refusals are entries of the answer."""
    rule = methods.METHODS[service][method].rule
    descriptor = SERVICES[service].methods_by_name[method]
    answer = message_factory.GetMessageClass(descriptor.output_type)()
    assert "error_code" in descriptor.output_type.fields_by_name
    if isinstance(rule, methods.Whole):
        assert rule.resource(None) == CLUSTER
        return
    assert not descriptor.server_streaming
    if isinstance(rule, methods.Each):
        entries = getattr(message_factory.GetMessageClass(descriptor.input_type)(), rule.asked)
        entry = "a" if method == "DescribeTopics" else entries.add()
        getattr(answer, rule.answered).append(rule.refusal(entry))
    assert not getattr(answer, rule.answered) or errors(getattr(answer, rule.answered)) == ["NONE"]


def test_every_request_of_the_core_has_its_row_and_the_machine_s_rpcs_their_requests() -> None:
    requests = set(ControllerRequest.__subclasses__())
    assert {body for body, row in BODIES.items() if row.answer is not None} == requests
    for method, row in methods.ASKED.items():
        request: Any = methods.request_of(ADMIN, method)(**GOOD.get(method, {}))
        assert row.read(request).__class__ in requests


def test_what_changes_something_is_recorded() -> None:
    """But for what has records of its own, and for dry runs."""
    reading = ("Describe", "List", "Explain", "Plan", "CheckStoppable", "Audit", "Watch", "DryRun")
    for service, named in methods.METHODS.items():
        changing = {name for name in named if not name.startswith(reading)} - {"AlterPartition"}
        assert {name for name, rpc in named.items() if rpc.recorded} == changing, service


def test_changes_need_more_than_looking() -> None:
    looking = {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    may = {m for rows in methods.METHODS.values() for m, row in rows.items() if row.rule.operation in looking}
    assert may == {
        "DescribeCluster", "ListTopicDeletions", "ListPartitionReassignments", "DescribeConfigs",
        "DescribeFeatures", "DescribeMaintenance", "DescribeTopics", "Explain", "Plan", "CheckStoppable",
        "Audit", "DescribeReplicas", "ListHistory", "ListQuarantine", "Watch",
    }  # fmt: skip


def documented(heading: str) -> Iterator[tuple[list[str], str, str]]:
    """Methods, operation and resource of each row of a table of ADR 7; not those of rights beside."""
    text = (DOCS / "adr/0007-authorization.md").read_text().split(f"**{heading}** (")[1]
    for row in text.split("|---|---|---|\n")[1].split("\n\n")[0].splitlines():
        names, operation, on = (cell.strip() for cell in row.strip("|").split("|"))
        if not names.startswith("also: "):
            yield names.split(", "), operation, on


def test_operations_and_resources_are_those_of_the_documented_table() -> None:
    found: dict[str, tuple[str, bool, bool]] = {}
    for names, operations, on in documented("The controller's table"):
        words = operations.removesuffix(", as the broker that is named").split(", ")
        for number, name in enumerate(names):
            operation = words[number if len(words) > 1 else 0]
            found[name] = operation, on == "the cluster", operations.endswith("named")
    rules = {name: row.rule for rows in methods.METHODS.values() for name, row in rows.items()}
    assert found == {
        name: (
            rule.operation.name,
            isinstance(rule, methods.Whole) and rule.resource is methods.METHODS[ADMIN]["Plan"].rule.resource,
            isinstance(rule, methods.Whole) and rule.of_broker,
        )
        for name, rule in rules.items()
    }


UNCLEAN_TOPIC = pb.AlterConfigsResource(
    resource=pb.ConfigResource(resource_type=pb.TOPIC, resource_name="mine"),
    configs=[
        pb.AlterableConfig(name="retention.ms", value="1"),
        pb.AlterableConfig(name="unclean.leader.election.enable", value=" TRUE "),
    ],
)


@pytest.mark.parametrize(
    ("method", "request_", "loses"),
    [
        ("ElectLeaders", pb.ElectLeadersRequest(election_type=pb.UNCLEAN), True),
        ("ElectLeaders", pb.ElectLeadersRequest(election_type=pb.PREFERRED), False),
        ("ApproveStop", inspection_pb2.ApproveStopRequest(override=True), True),
        ("ApproveStop", inspection_pb2.ApproveStopRequest(), False),
        ("ForgetBroker", maintenance_pb2.ForgetBrokerRequest(broker_id=1), True),
        ("AlterConfigs", pb.AlterConfigsRequest(resources=[UNCLEAN_TOPIC]), True),
        ("AlterConfigs", pb.AlterConfigsRequest(resources=[pb.AlterConfigsResource()]), False),
    ],
)
async def test_what_may_lose_data_takes_a_right_of_its_own(method: str, request_: Any, loses: bool) -> None:
    """Each other right does not suffice."""
    authorizer = Denying(lambda operation, _: operation is not Operation.LOSE_DATA)
    rigged = Rigged(method, authorizer, lambda _: methods.response_of(ADMIN, method)())
    answer = await rigged.ask(request_)
    denied = [answer, *getattr(answer, "responses", ())]
    assert any("may not LOSE_DATA" in getattr(each, "error_message", "") for each in denied) == loses
    assert (Operation.LOSE_DATA in [operation for operation, _ in authorizer.asked]) == loses


async def test_the_right_to_lose_data_is_one_on_the_topic_that_loses_it() -> None:
    authorizer = Denying(lambda _, resource: resource == topic("mine"))
    rigged = Rigged(
        "AlterConfigs",
        authorizer,
        lambda request: pb.AlterConfigsResponse(
            responses=[pb.AlterConfigsResult(resource=r.resource) for r in request.resources]
        ),
    )
    answer = await rigged.ask(pb.AlterConfigsRequest(resources=[UNCLEAN_TOPIC]))
    assert errors(answer.responses) == ["NONE"]


# --- the guard -------------------------------------------------------------------------------------------------


async def test_denied_topics_are_answered_so_and_the_others_carried_out_in_their_places() -> None:
    rigged = Rigged("DeleteTopics", own("mine", "too"), deleted)
    answer = await rigged.ask(deletions("secret", "mine", "nowhere", "too"))
    assert errors(answer.responses) == [
        "TOPIC_AUTHORIZATION_FAILED", "NONE", "TOPIC_AUTHORIZATION_FAILED", "NONE",
    ]  # fmt: skip
    assert [r.name for r in answer.responses] == ["secret", "mine", "nowhere", "too"]
    assert [t.name for t in rigged.called[0].topics] == ["mine", "too"]
    # Of one that is there no more is said than of one that is not.
    there, absent = answer.responses[0].error_message, answer.responses[2].error_message
    assert (
        there.replace("secret", "nowhere")
        == absent
        == f"User:ANONYMOUS may not DELETE topic 'nowhere'{NOBODY}"
    )


async def test_by_id_neither_name_nor_existence_is_told() -> None:
    rigged = Rigged("DeleteTopics", Denying(), deleted)
    answer = await rigged.ask(deletions(ids=("S" * 22, "N" * 22)))
    assert errors(answer.responses) == ["TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_ID"]
    assert "secret" not in str(answer)
    assert [r.topic_id for r in answer.responses] == ["S" * 22, "N" * 22]
    assert list(rigged.called[0].topics) == []


async def test_a_name_counts_before_an_id() -> None:
    both = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name="mine", topic_id="S" * 22)])
    for names, expected in ((("mine",), "NONE"), (("secret",), "TOPIC_AUTHORIZATION_FAILED")):
        assert errors((await Rigged("DeleteTopics", own(*names), deleted).ask(both)).responses) == [expected]


async def test_the_right_on_the_cluster_is_one_on_topics_for_creations_only() -> None:
    rigged = Rigged("DeleteTopics", Denying(lambda _, resource: resource == CLUSTER), deleted)
    assert errors((await rigged.ask(deletions("t"))).responses) == ["TOPIC_AUTHORIZATION_FAILED"]


async def test_the_audit_log_has_method_caller_and_error_of_every_answer() -> None:
    caller = ("User:ANONYMOUS", "127.0.0.1")
    for authorizer, error in (
        (Denying(), "CLUSTER_AUTHORIZATION_FAILED"),
        (Denying(lambda *_: True), "NONE"),
    ):
        rigged = Rigged("SetPause", authorizer, lambda _: maintenance_pb2.OperatorResponse())
        await rigged.ask(maintenance_pb2.SetPauseRequest())
        assert rigged.daemon.audit_log.records == [("SetPause", caller, error, True)]


class Broker(Denying):
    """May act as broker 2."""

    def speaks_for(self, principal: Principal, broker_id: int) -> bool:
        return broker_id == 2


@pytest.mark.parametrize("method", sorted(methods.METHODS[BROKERS]))
@pytest.mark.parametrize("broker_id", [2, 3])
async def test_a_broker_asks_for_itself_and_each_answer_is_counted(method: str, broker_id: int) -> None:
    rigged = Rigged(method, Broker(lambda *_: True), lambda _: methods.response_of(BROKERS, method)())
    answer = await rigged.ask(methods.request_of(BROKERS, method)(broker_id=broker_id, broker_epoch=2))
    error = "NONE" if broker_id == 2 else "CLUSTER_AUTHORIZATION_FAILED"
    assert (error_name(answer.error_code), len(rigged.called)) == (error, broker_id == 2)
    assert counted(rigged.daemon, method) == {error: 1}


@pytest.mark.parametrize("reason", ["", " \t", "old"])
@pytest.mark.parametrize("openness", list(Openness))
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("DeleteTopics", {"topics": [pb.DeletableTopic(name="t")]}),
        ("ElectLeaders", {"election_type": pb.UNCLEAN}),
        ("ForgetBroker", {"broker_id": 1}),
    ],
)
async def test_where_an_authorizer_decides_what_may_lose_data_takes_a_reason(
    method: str, fields: Any, openness: Openness, reason: str
) -> None:
    response = methods.response_of(ADMIN, method)
    rigged = Rigged(method, Denying(lambda *_: True), lambda _: response(), openness)
    answer = await rigged.ask(methods.request_of(ADMIN, method)(reason=reason, **fields))
    refused = openness is Openness.GUARDED and reason != "old"
    assert error_name(answer.error_code) == ("POLICY_VIOLATION" if refused else "NONE")
    assert counted(rigged.daemon, method) == {error_name(answer.error_code): 1}
    assert len(rigged.called) == (not refused)


async def test_not_controller_comes_first() -> None:
    rigged = Rigged(
        "DeleteTopics", Denying(), lambda _: pb.DeleteTopicsResponse(error_code=common_pb2.NOT_CONTROLLER)
    )
    answer = await rigged.ask(deletions("secret"))
    assert (error_name(answer.error_code), len(answer.responses)) == ("NOT_CONTROLLER", 0)


async def test_who_names_a_topic_twice_hears_of_that_first() -> None:
    rigged = Rigged("DeleteTopics", Denying(), deleted)
    answer = await rigged.ask(deletions("secret", "other", "secret"))
    assert errors(answer.responses) == ["INVALID_REQUEST", "TOPIC_AUTHORIZATION_FAILED", "INVALID_REQUEST"]


async def test_who_only_looks_may_name_a_topic_twice() -> None:
    configs = pb.DescribeConfigsRequest(
        resources=[pb.ConfigResource(resource_type=pb.TOPIC, resource_name="secret")] * 2
    )
    topics = inspection_pb2.DescribeTopicsRequest(topics=["secret"] * 2)
    for method, request, field in (
        ("DescribeConfigs", configs, "results"),
        ("DescribeTopics", topics, "topics"),
    ):
        answer = await Rigged(method, Denying(), nothing_of(method)).ask(request)
        assert errors(getattr(answer, field)) == ["TOPIC_AUTHORIZATION_FAILED"] * 2


async def test_what_names_nothing_is_left_to_the_core() -> None:
    rigged = Rigged("DeleteTopics", Denying(), deleted)
    assert errors((await rigged.ask(deletions(""))).responses) == ["NONE"]
    assert len(rigged.called[0].topics) == 1


async def test_creation_is_permitted_for_the_cluster_or_for_single_topics() -> None:
    created = named(pb.CreateTopicsResponse, "topics", pb.CreatedTopic)
    request = pb.CreateTopicsRequest(
        topics=[pb.CreatableTopic(name=n) for n in ("a", "b")], validate_only=True
    )
    for authorizer, expected in (
        (own("b"), ["TOPIC_AUTHORIZATION_FAILED", "NONE"]),
        (
            Denying(lambda operation, resource: (operation, resource) == (Operation.CREATE, CLUSTER)),
            ["NONE"] * 2,
        ),
    ):
        rigged = Rigged("CreateTopics", authorizer, created)
        assert errors((await rigged.ask(request)).topics) == expected
        assert rigged.called[0].validate_only


async def test_configurations_are_of_topics_or_of_the_cluster() -> None:
    resources = [
        pb.ConfigResource(resource_type=pb.TOPIC, resource_name="mine"),
        pb.ConfigResource(resource_type=pb.BROKER, resource_name="1"),
        pb.ConfigResource(resource_type=pb.TOPIC, resource_name="secret"),
        pb.ConfigResource(resource_type=pb.TOPIC, resource_name="mine"),
    ]
    expected = ["NONE", "CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "NONE"]
    described = Rigged(
        "DescribeConfigs",
        own("mine"),
        lambda request: pb.DescribeConfigsResponse(
            results=[pb.DescribeConfigsResult(resource=r) for r in request.resources]
        ),
    )
    answer = await described.ask(pb.DescribeConfigsRequest(resources=resources))
    assert errors(answer.results) == expected
    assert [r.resource for r in answer.results] == resources
    altered = Rigged(
        "AlterConfigs",
        own("mine"),
        lambda request: pb.AlterConfigsResponse(
            responses=[pb.AlterConfigsResult(resource=r.resource) for r in request.resources]
        ),
    )
    changes = [pb.AlterConfigsResource(resource=r) for r in resources]
    answer = await altered.ask(pb.AlterConfigsRequest(resources=changes))
    assert errors(answer.responses) == expected


async def test_a_listing_shows_what_the_caller_may_see() -> None:
    def described(request: inspection_pb2.DescribeTopicsRequest) -> Any:
        names = request.topics or ["mine", "secret"]
        return inspection_pb2.DescribeTopicsResponse(
            topics=[inspection_pb2.TopicDescription(name=name) for name in names]
        )

    rigged = Rigged("DescribeTopics", own("mine"), described)
    every = await rigged.ask(inspection_pb2.DescribeTopicsRequest())
    assert [t.name for t in every.topics] == ["mine"]
    some = await rigged.ask(inspection_pb2.DescribeTopicsRequest(topics=["nowhere", "mine"]))
    assert errors(some.topics) == ["TOPIC_AUTHORIZATION_FAILED", "NONE"]
    rigged.called.clear()
    # With nothing left of the request it would be about all topics.
    none = await rigged.ask(inspection_pb2.DescribeTopicsRequest(topics=["secret"]))
    assert (errors(none.topics), rigged.called) == (["TOPIC_AUTHORIZATION_FAILED"], [])
    listed = Rigged(
        "ListTopicDeletions",
        own("mine"),
        lambda _: pb.ListTopicDeletionsResponse(
            topics=[pb.TopicDeletion(name="secret", pending_reason="x"), pb.TopicDeletion(name="mine")]
        ),
    )
    assert [t.name for t in (await listed.ask(pb.ListTopicDeletionsRequest())).topics] == ["mine"]


async def test_an_explanation_is_of_a_topic_or_of_the_cluster() -> None:
    name = common_pb2.PartitionName(topic="secret")
    for subject, error in (
        ({"partition": name}, "TOPIC_AUTHORIZATION_FAILED"),
        ({"reassignment": name}, "TOPIC_AUTHORIZATION_FAILED"),
        ({"deletion": "secret"}, "TOPIC_AUTHORIZATION_FAILED"),
        ({"deletion": "mine"}, "NONE"),
        ({"broker": 1}, "CLUSTER_AUTHORIZATION_FAILED"),
        ({}, "CLUSTER_AUTHORIZATION_FAILED"),
    ):
        rigged = Rigged("Explain", own("mine"), lambda _: inspection_pb2.ExplainResponse(explanation="{}"))
        answer = await rigged.ask(inspection_pb2.ExplainRequest(**subject))
        assert error_name(answer.error_code) == error
        assert len(rigged.called) == (error == "NONE")


async def test_an_authorizer_that_fails_has_denied() -> None:
    class Broken:
        def allowed(self, *_: object) -> bool:
            raise RuntimeError("no connection to the directory")

    rigged = Rigged("ElectLeaders", Broken(), lambda _: pb.ElectLeadersResponse())
    answer = await rigged.ask(pb.ElectLeadersRequest())
    assert error_name(answer.error_code) == "CLUSTER_AUTHORIZATION_FAILED"
    assert (rigged.called, answer.error_message) == ([], f"User:ANONYMOUS may not ALTER the cluster{NOBODY}")


async def test_a_method_without_a_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {m: r for m, r in methods.METHODS[ADMIN].items() if m != "ElectLeaders"}
    monkeypatch.setattr(access, "METHODS", {ADMIN: rows})
    rigged = Rigged("ElectLeaders", Denying(lambda *_: True), lambda _: pb.ElectLeadersResponse())
    assert (
        error_name((await rigged.ask(pb.ElectLeadersRequest())).error_code) == "CLUSTER_AUTHORIZATION_FAILED"
    )
    assert rigged.called == []


@pytest.mark.parametrize("may", [True, False])
async def test_a_stream_is_opened_or_ends_with_the_refusal(may: bool) -> None:
    closed = []

    async def handler(request: Any) -> AsyncGenerator[Any, None]:
        del request
        try:
            yield history_pb2.WatchResponse(records=["1"])
            yield history_pb2.WatchResponse(records=["2"])
        finally:
            closed.append(True)

    daemon = daemon_like(Denying(lambda *_: may), ControllerMetrics(CollectorRegistry()), None)
    answers = Guard(daemon, f"/{ADMIN}/Watch").stream(handler)(history_pb2.WatchRequest(), Context())
    first: Any = await anext(answers)
    assert error_name(first.error_code) == ("NONE" if may else "CLUSTER_AUTHORIZATION_FAILED")
    assert list(first.records) == (["1"] if may else [])
    if may:
        # Who goes away ends it at once.
        await answers.aclose()
        assert closed
    else:
        assert [a async for a in answers] == []
        assert not closed
        caller = ("User:ANONYMOUS", "127.0.0.1")
        assert daemon.audit_log.records == [("Watch", caller, "CLUSTER_AUTHORIZATION_FAILED", False)]
        assert counted(daemon, "Watch") == {"CLUSTER_AUTHORIZATION_FAILED": 1}


async def test_of_a_stream_its_beginning_and_its_error_are_counted() -> None:
    async def handler(request: Any) -> AsyncGenerator[Any, None]:
        del request
        for _ in range(3):
            yield history_pb2.WatchResponse(records=["1"])
        yield history_pb2.WatchResponse(error_code=ErrorCode.NOT_CONTROLLER.value)  # type: ignore[arg-type]

    daemon = daemon_like(Denying(lambda *_: True), ControllerMetrics(CollectorRegistry()), None)
    guarded = Guard(daemon, f"/{ADMIN}/Watch").stream(handler)
    assert len([answer async for answer in guarded(history_pb2.WatchRequest(), Context())]) == 4
    assert counted(daemon, "Watch") == {"NONE": 1, "NOT_CONTROLLER": 1}


async def test_a_stream_ends_when_its_caller_may_no_longer() -> None:
    """A token that is removed, and rules that change, end what was begun with them."""
    may, closed = [True], []

    async def handler(request: Any) -> AsyncGenerator[Any, None]:
        del request
        try:
            for number in range(3):
                yield history_pb2.WatchResponse(records=[str(number)])
        finally:
            closed.append(True)

    daemon = daemon_like(Denying(lambda *_: may[0]), ControllerMetrics(CollectorRegistry()), None)
    answers = Guard(daemon, f"/{ADMIN}/Watch").stream(handler)(history_pb2.WatchRequest(), Context())
    first: Any = await anext(answers)
    assert list(first.records) == ["0"]
    may[0] = False
    last: Any
    (last,) = [answer async for answer in answers]
    assert (error_name(last.error_code), list(last.records)) == ("CLUSTER_AUTHORIZATION_FAILED", [])
    assert closed
    assert len(daemon.audit_log.records) == 1

    async def unknown(request: Any) -> AsyncGenerator[Any, None]:
        async for answer in handler(request):
            daemon.callers = SimpleNamespace(of_rpc=removed)
            yield answer

    def removed(_: object) -> None:
        raise UnauthenticatedError("the token is nobody's")

    may[0] = True
    with pytest.raises(UnauthenticatedError):
        await anext(Guard(daemon, f"/{ADMIN}/Watch").stream(unknown)(history_pb2.WatchRequest(), Context()))


async def test_each_method_has_a_guard_of_its_own() -> None:
    async def unary(_: Any) -> Any:
        return pb.ElectLeadersResponse()

    async def stream(_: Any) -> AsyncGenerator[Any, None]:
        yield history_pb2.WatchResponse()

    daemon = daemon_like(Denying(), ControllerMetrics(CollectorRegistry()), None)
    methods_ = {"ElectLeaders": unary, "Plan": unary}
    service = _service(daemon, Arrivals(1), ADMIN, methods_, {"Watch": stream})

    async def requests() -> AsyncGenerator[Any, None]:
        yield None

    for method in (*methods_, "Watch"):
        handler: Any = service.service(SimpleNamespace(method=f"/{ADMIN}/{method}"))
        if method == "Watch":
            (answer,) = [each async for each in handler.stream_stream(requests(), Context())]
        else:
            answer = await handler.stream_unary(requests(), Context())
        assert error_name(answer.error_code) == "CLUSTER_AUTHORIZATION_FAILED"
        assert counted(daemon, method) == {"CLUSTER_AUTHORIZATION_FAILED": 1}


# --- over real gRPC --------------------------------------------------------------------------------------------


async def call(endpoint: str, service: str, method: str, request: Any = None) -> Any:
    """The (first) answer."""
    descriptor = SERVICES[service].methods_by_name[method]
    data = b"" if request is None else request.SerializeToString()
    async with grpc.aio.insecure_channel(endpoint) as channel:
        path = f"/{service}/{method}"
        if descriptor.server_streaming:
            stream: Any = channel.unary_stream(path)
            answer = await stream(data, timeout=20).read()
        else:
            unary: Any = channel.unary_unary(path)
            answer = await unary(data, timeout=20)
    return message_factory.GetMessageClass(descriptor.output_type).FromString(answer)


#: What the methods are asked that answer for single topics; the others get an empty request.
ENTRIES = {
    "CreateTopics": pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="new")]),
    "CreatePartitions": pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="t", count=9)]),
    "DeleteTopics": deletions("t"),
    "AlterConfigs": pb.AlterConfigsRequest(
        resources=[
            pb.AlterConfigsResource(
                resource=pb.ConfigResource(resource_type=pb.TOPIC, resource_name="t"),
                configs=[pb.AlterableConfig(name="retention.ms", value="1")],
            )
        ]
    ),
    "DescribeConfigs": pb.DescribeConfigsRequest(
        resources=[pb.ConfigResource(resource_type=pb.TOPIC, resource_name="t")]
    ),
    "DescribeReplicas": inspection_pb2.DescribeReplicasRequest(topics=["t"]),
    "DescribeTopics": inspection_pb2.DescribeTopicsRequest(topics=["t"]),
}


def refused(rule: methods.Rule, answer: Any) -> Iterator[str]:
    """The errors of an answer: of the request, or of each entry."""
    yield error_name(answer.error_code)
    if isinstance(rule, methods.Each):
        yield from errors(getattr(answer, rule.answered))


@pytest.mark.slow
async def test_nothing_is_permitted_and_nothing_done(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """Every method, on a controller that denies everything from some moment on."""
    authorizer = Denying()
    async with controller(
        zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics={"t": '{"0":[1,2]}'}
    ) as active:
        active.daemon.authorizer = authorizer
        events, before = active.term.machine.event_id, zk.get("/brokers/topics/t")
        for service, method in METHODS:
            rule = methods.METHODS[service][method].rule
            answer = await call(active.daemon.grpc_endpoint, service, method, ENTRIES.get(method))
            if isinstance(rule, methods.Whole):
                assert list(refused(rule, answer)) == ["CLUSTER_AUTHORIZATION_FAILED"], method
            elif isinstance(rule, methods.Each):
                assert list(refused(rule, answer)) == ["NONE", "TOPIC_AUTHORIZATION_FAILED"], method
            else:
                assert not getattr(answer, rule.answered)
        assert zk.get("/brokers/topics/t") == before
        assert not zk.exists("/config/topics/t")
        assert zk.get_children("/admin/delete_topics") == []
        assert sorted(zk.get_children("/brokers/topics")) == ["t"]
        # What was left of the requests for single topics passed through the machine, empty.
        assert active.term.machine.event_id - events <= len(ENTRIES)
        denied = {"method": "ElectLeaders", "error": "CLUSTER_AUTHORIZATION_FAILED"}
        assert active.daemon.registry.get_sample_value("partition_controller_requests_total", denied) == 1


@pytest.mark.slow
async def test_a_standby_says_that_it_does_not_lead_before_it_denies_topics(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    zk.create("/controller", b'{"version":2,"brokerid":7,"timestamp":"1","endpoint":"h:7"}', ephemeral=True)
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    daemon.authorizer = Denying()
    server, port = await start_server(daemon, "127.0.0.1", 0)
    daemon.grpc_endpoint = f"127.0.0.1:{port}"
    try:
        async with running(daemon):
            await until(lambda: daemon.current_controller == 7, "the standby")
            for method, error in (
                ("CreateTopics", "NOT_CONTROLLER"),
                ("DeleteTopics", "NOT_CONTROLLER"),
                ("ElectLeaders", "CLUSTER_AUTHORIZATION_FAILED"),
            ):
                answer = await call(daemon.grpc_endpoint, ADMIN, method, ENTRIES.get(method))
                assert list(refused(methods.METHODS[ADMIN][method].rule, answer)) == [error]
    finally:
        await server.stop(0)


class _AbortedError(Exception):
    pass


@pytest.mark.parametrize("streams", [False, True])
async def test_who_proves_nothing_is_refused_and_on_record(streams: bool) -> None:
    peers: list[str] = []
    guard: Any = SimpleNamespace(not_authenticated=peers.append)

    async def unary(_request: Any, _context: Any) -> maintenance_pb2.OperatorResponse:
        raise UnauthenticatedError("an expired token")

    async def stream(request: Any, context: Any) -> AsyncGenerator[maintenance_pb2.OperatorResponse, None]:
        yield await unary(request, context)

    async def abort(code: grpc.StatusCode, text: str) -> None:
        raise _AbortedError(code, text)

    context: Any = SimpleNamespace(peer=lambda: "ipv4:192.0.2.1:7", abort=abort)

    async def answers() -> list[Any]:
        if streams:
            return [answer async for answer in _named_stream(guard, stream)(None, context)]
        return [await _named(guard, unary)(None, context)]

    with pytest.raises(_AbortedError) as ended:
        await answers()
    assert ended.value.args == (grpc.StatusCode.UNAUTHENTICATED, "an expired token")
    assert peers == ["ipv4:192.0.2.1:7"]
