"""The guard of BrokerData: what is denied is not carried out, and the rest is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_stub.rpc.access import OF_CONTROLLERS, RULES, Guard
from proto.gen import broker_control_pb2 as control
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.security.access import Access, Openness
from proto.security.authorization import CLUSTER, AnyBroker, Operation, Principal, Resource, ResourceType
from proto.security.callers import Callers
from proto.security.principals import PrincipalRules
from tests.support.paths import DOCS

ALICE = Principal("alice", "ipv4:192.0.2.1:4")


class Allowing(AnyBroker):
    """Allows what the function says, and everything with resources of one kind; acts as broker 1 only."""

    def __init__(self, may: Callable[[Operation, str], bool], on: ResourceType | None = None) -> None:
        self._may, self._on = may, on

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        assert principal is ALICE
        return resource.type is self._on or self._may(operation, resource.name)

    def speaks_for(self, principal: Principal, broker_id: int) -> bool:
        return broker_id == 1


def mine(_: Operation, name: str) -> bool:
    """Everything with topics and groups whose names begin with "my"."""
    return name.startswith("my")


async def ask(
    method: str,
    request: Any,
    handler: Callable[[Any], Any],
    may: Callable[[Operation, str], bool] = mine,
    on: ResourceType | None = None,
) -> tuple[Any, list[Any]]:
    """The answer, and what the handler got."""
    called = []

    async def handle(asked: Any) -> Any:
        called.append(asked)
        return handler(asked)

    guard = Guard(Access(Allowing(may, on), Callers(PrincipalRules()), Openness.GUARDED))
    answer = await guard.data(ALICE, method, request, handle, getattr(wire, f"{method}Response"))
    return answer, called


def test_every_method_has_a_rule() -> None:
    services = (
        wire.DESCRIPTOR.services_by_name["BrokerData"],
        control.DESCRIPTOR.services_by_name["BrokerControl"],
    )
    data, controls = ({method.name for method in service.methods} for service in services)
    assert (set(RULES), set(OF_CONTROLLERS)) == (data, controls)


def test_the_rules_are_those_of_the_documented_table() -> None:
    text = (DOCS / "adr/0007-authorization.md").read_text().split("**The broker's table** (")[1]
    on_group: dict[str, str] = {}
    on_topics: dict[str, str] = {}
    as_replica: set[str] = set()
    for row in text.split("|---|---|---|\n")[1].split("\n\n")[0].splitlines():
        names, operations, on = (cell.strip() for cell in row.strip("|").split("|"))
        if " with a `replica_id`" in names:
            as_replica.update(names.removesuffix(" with a `replica_id`").split(", "))
            continue
        for some, operation in zip(names.split("; "), operations.split("; "), strict=True):
            for name in some.split(", "):
                if "the group" in on:
                    on_group[name] = operation
                if "each topic" in on:
                    on_topics[name] = operation
    assert {name: rule.group.name for name, rule in RULES.items() if rule.group} == on_group
    assert {name: rule.topics.name for name, rule in RULES.items() if rule.topics} == on_topics
    assert {name for name, rule in RULES.items() if rule.of_replica} == as_replica


@pytest.mark.parametrize("method", sorted(OF_CONTROLLERS))
@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize("leads", [True, False])
def test_a_control_request_takes_the_right_and_a_controller_and_a_refusal_is_told(
    method: str, may: bool, leads: bool
) -> None:
    told = []
    authorizer = Allowing(
        lambda operation, name: may and (operation, name) == (Operation.CLUSTER_ACTION, CLUSTER.name)
    )
    authorizer.is_controller = lambda principal: leads  # type: ignore[method-assign]
    guard = Guard(
        Access(authorizer, Callers(PrincipalRules()), Openness.GUARDED), lambda *denied: told.append(denied)
    )
    allowed = may and leads
    assert guard.may_control(ALICE, method) == allowed
    assert told == ([] if allowed else [(method, ALICE)])
    assert not guard.may_control(ALICE, "Fetch")


def produced(request: Any) -> Any:
    return wire.ProduceResponse(
        partitions=[
            wire.ProducedPartition(topic=p.topic, partition=p.partition, base_offset=7)
            for p in request.partitions
        ]
    )


def producing(*topics: str, acks: int = 1) -> Any:
    return wire.ProduceRequest(
        acks=acks,
        partitions=[wire.ProducePartition(topic=topic, partition=n) for n, topic in enumerate(topics)],
    )


async def test_refusals_are_in_the_order_of_the_request() -> None:
    answer, (called,) = await ask("Produce", producing("other", "my", "other", "my2"), produced)
    assert [p.topic for p in called.partitions] == ["my", "my2"]
    assert [(p.topic, p.partition, p.error_code, p.base_offset) for p in answer.partitions] == [
        ("other", 0, codes.TOPIC_AUTHORIZATION_FAILED, -1),
        ("my", 1, 0, 7),
        ("other", 2, codes.TOPIC_AUTHORIZATION_FAILED, -1),
        ("my2", 3, 0, 7),
    ]


async def test_without_acknowledgement_nothing_is_answered() -> None:
    answer, (called,) = await ask(
        "Produce", producing("other", "my", acks=0), lambda _: wire.ProduceResponse()
    )
    assert (len(answer.partitions), [p.topic for p in called.partitions]) == (0, ["my"])


async def test_a_fetch_with_a_refusal_does_not_wait() -> None:
    request = wire.FetchRequest(
        max_wait_ms=500, partitions=[wire.FetchPartition(topic="other"), wire.FetchPartition(topic="my")]
    )
    answer, (called,) = await ask(
        "Fetch", request, lambda r: wire.FetchResponse(partitions=[wire.FetchedPartition(topic="my")])
    )
    assert called.max_wait_ms == 0
    assert [p.error_code for p in answer.partitions] == [codes.TOPIC_AUTHORIZATION_FAILED, 0]
    assert request.max_wait_ms == 500


@pytest.mark.parametrize(
    ("replica", "may", "error"),
    [
        (1, True, 0),
        (2, True, codes.CLUSTER_AUTHORIZATION_FAILED),
        (1, False, codes.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
async def test_a_follower_fetches_as_itself_and_with_a_right_on_the_cluster(
    replica: int, may: bool, error: int
) -> None:
    request = wire.FetchRequest(replica_id=replica, partitions=[wire.FetchPartition(topic="other")])
    answer, called = await ask(
        "Fetch", request, lambda _: wire.FetchResponse(), lambda _, name: may == (name == CLUSTER.name)
    )
    assert (answer.error_code, len(called)) == (error, error == 0)


async def test_a_replica_s_offsets_are_refused_entry_by_entry() -> None:
    request = wire.ListOffsetsRequest(replica_id=2, partitions=[wire.ListOffsetsPartition(topic="my")])
    answer, called = await ask("ListOffsets", request, lambda _: wire.ListOffsetsResponse(), lambda *_: True)
    assert ([p.error_code for p in answer.partitions], called) == ([codes.CLUSTER_AUTHORIZATION_FAILED], [])


def metadata(request: Any) -> Any:
    names = dict.fromkeys(request.topics) or ("my", "other")
    return wire.MetadataResponse(controller_id=3, topics=[wire.MetadataTopic(topic=name) for name in names])


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ((), [("my", 0)]),
        (("my", "other", "my"), [("my", 0), ("other", 29)]),
        (("other", "absent"), [("other", 29), ("absent", 29)]),
    ],
)
async def test_metadata_shows_what_the_caller_may_see(
    asked: tuple[str, ...], shown: list[tuple[str, int]]
) -> None:
    answer, _ = await ask("Metadata", wire.MetadataRequest(topics=asked), metadata)
    assert [(t.topic, t.error_code) for t in answer.topics] == shown
    assert answer.controller_id == 3


def committed(request: Any) -> Any:
    names = [p.topic for p in request.partitions] or ["my", "other"]
    return wire.OffsetFetchResponse(offsets=[wire.CommittedOffset(topic=name, offset=5) for name in names])


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ([], [("my", 5, 0)]),
        (["other", "my"], [("other", -1, 29), ("my", 5, 0)]),
        (["other"], [("other", -1, 29)]),
    ],
)
async def test_offsets_of_topics_that_the_caller_may_see(
    asked: list[str], shown: list[tuple[str, int, int]]
) -> None:
    request = wire.OffsetFetchRequest(group_id="my", partitions=[wire.TopicPartition(topic=t) for t in asked])
    answer, _ = await ask("OffsetFetch", request, committed)
    assert [(o.topic, o.offset, o.error_code) for o in answer.offsets] == shown


@pytest.mark.parametrize("method", [name for name, rule in RULES.items() if rule.group is not None])
async def test_other_groups_are_refused_as_a_whole(method: str) -> None:
    """A right on a topic of the same name is none on the group."""
    request = getattr(wire, f"{method}Request")(group_id="other")
    answer, called = await ask(method, request, lambda _: None, on=ResourceType.TOPIC)
    assert (answer.error_code, called) == (codes.GROUP_AUTHORIZATION_FAILED, [])


async def test_a_commit_takes_group_and_topics() -> None:
    request = wire.OffsetCommitRequest(
        group_id="my", offsets=[wire.CommittedOffset(topic="other"), wire.CommittedOffset(topic="my")]
    )
    answer, (called,) = await ask(
        "OffsetCommit",
        request,
        lambda r: wire.OffsetCommitResponse(
            partition_errors=[codes.PartitionError(topic=o.topic) for o in r.offsets]
        ),
    )
    assert [o.topic for o in called.offsets] == ["my"]
    assert [(e.topic, e.error_code) for e in answer.partition_errors] == [("other", 29), ("my", 0)]


async def test_a_method_without_a_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, "Heartbeat")
    answer, called = await ask("Heartbeat", wire.HeartbeatRequest(), lambda _: None, lambda *_: True)
    assert (answer.error_code, called) == (codes.CLUSTER_AUTHORIZATION_FAILED, [])
