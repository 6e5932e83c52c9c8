"""Requests that hold too much: named by field, in every place where a text or a list can be."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.rpc import limits, server
from controller.runtime.rpc.limits import (
    ENTRIES_MAX,
    ENTRIES_MAX_BY_FIELD,
    TEXT_MAX,
    TEXT_MAX_BY_FIELD,
    excess,
)
from proto.arrivals import Arrivals
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, controller_service_pb2, features_pb2, inspection_pb2, maintenance_pb2
from proto.limits import MESSAGE_BYTES_MAX, MESSAGE_LIMITS
from tests.support.runtime.fuzzed_cluster import METHODS
from tests.support.runtime.random_messages import Extreme, extremes

CASES = [
    pytest.param(method, extreme, id=f"{method.name}: {extreme}")
    for method in METHODS.values()
    for extreme in extremes(method)
]


async def test_a_stream_that_asks_for_too_much_is_refused_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "excess", lambda _: "topics: too many")
    daemon: Any = SimpleNamespace(metrics=ControllerMetrics(CollectorRegistry()))
    asked: list[Any] = []

    async def handler(request: Any, _context: Any) -> AsyncGenerator[maintenance_pb2.OperatorResponse, None]:
        asked.append(request)
        yield maintenance_pb2.OperatorResponse()

    limited = server._limited_stream(daemon, "Watch", handler, maintenance_pb2.OperatorResponse)
    answers: Any = [answer async for answer in limited(pb.DescribeConfigsRequest(), None)]
    assert [answer.error_message for answer in answers] == ["topics: too many"]
    assert asked == []
    counted = daemon.metrics.requests.labels("Watch", "INVALID_REQUEST")._value.get()
    assert counted == 1


async def test_each_method_has_a_guard_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = {path: object() for path in ("/one", "/two")}
    monkeypatch.setattr(server, "Guard", lambda _daemon, path: path)
    monkeypatch.setattr(server, "_guarded", lambda handler, guard, _arrivals: (handler, guard))
    interceptor = server._Authorization(SimpleNamespace())  # type: ignore[arg-type]

    async def known(details: Any) -> Any:
        return handlers.get(details.method)

    for path in ("/one", "/two", "/none", "/one"):
        details: Any = SimpleNamespace(method=path)
        found: Any = await interceptor.intercept_service(known, details)
        assert found == (None if path == "/none" else (handlers[path], path))


def test_a_stream_is_guarded_as_a_stream() -> None:
    guarded: list[str] = []
    guard: Any = SimpleNamespace(
        unary=lambda handler: (guarded.append("unary"), handler)[1],  # type: ignore[func-returns-value]
        stream=lambda handler: (guarded.append("stream"), handler)[1],  # type: ignore[func-returns-value]
    )
    for streaming in (False, True):
        handler: Any = SimpleNamespace(
            unary_unary=object(),
            unary_stream=object(),
            response_streaming=streaming,
            request_deserializer=None,
            response_serializer=None,
        )
        assert server._guarded(handler, guard, Arrivals(1)).response_streaming is streaming
    assert guarded == ["unary", "stream"]


def test_what_does_not_parse_is_none_and_told_in_one_line() -> None:
    parse = server._parser("DescribeConfigs", pb.DescribeConfigsRequest)
    with capture_logs() as logs:
        assert parse(b"\xff") is None
    assert [(line["event"], line["method"]) for line in logs] == [("malformed_request", "DescribeConfigs")]
    assert parse(b"") == pb.DescribeConfigsRequest()


@pytest.mark.parametrize(("method", "extreme"), CASES)
def test_each_field_has_a_limit(method: Any, extreme: Extreme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENTRIES_MAX", 1500)
    monkeypatch.setattr(limits, "ENTRIES_MAX_BY_FIELD", {})
    monkeypatch.setattr(limits, "TEXT_MAX_BY_FIELD", {})
    limits._fields.cache_clear()
    try:
        empty = GetMessageClass(method.input_type)()
        assert excess(extreme.of(empty, 1500, 1000)) is None
        notified = excess(extreme.of(empty, 1501, 1001))
    finally:
        limits._fields.cache_clear()
    assert notified is not None
    assert extreme.path[-1].name in notified
    assert (
        ("1501 entries" in notified)
        if extreme.what == "many"
        else ("characters, must have at most 1000" in notified)
    )


@pytest.mark.parametrize(
    ("request_", "field", "entry", "allowed"),
    [
        (pb.CreateTopicsRequest, "topics", pb.CreatableTopic(name="t"), 10_000),
        (pb.CreatePartitionsRequest, "topics", pb.NewPartitions(name="t"), 10_000),
        (pb.DeleteTopicsRequest, "topics", pb.DeletableTopic(name="t"), 10_000),
        (pb.AlterConfigsRequest, "resources", pb.AlterConfigsResource(resource=pb.ConfigResource()), 10_000),
        (pb.DescribeConfigsRequest, "resources", pb.ConfigResource(resource_name="t"), 10_000),
        (features_pb2.UpdateFeaturesRequest, "updates", features_pb2.FeatureUpdate(name="f"), 10_000),
        (inspection_pb2.DescribeTopicsRequest, "topics", "t", 100_000),
    ],
)
def test_lists_are_as_long_as_documented(request_: Any, field: str, entry: Any, allowed: int) -> None:
    """docs/operations.md, "How much one request may hold"."""
    full = request_(**{field: [entry] * allowed})
    assert excess(full) is None
    getattr(full, field).append(entry)
    assert excess(full) == f"{field}: has {allowed + 1} entries, must have at most {allowed}"


def test_where_it_is_said() -> None:
    names = inspection_pb2.DescribeTopicsRequest(topics=["a", "n" * 1001, "b"])
    assert excess(names) == "topics: has 1001 characters, must have at most 1000"
    topics = [pb.CreatableTopic(name="a"), pb.CreatableTopic(name="n" * 1001)]
    assert excess(pb.CreateTopicsRequest(topics=topics)) == (
        "topics[1].name: has 1001 characters, must have at most 1000"
    )
    values = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="a", configs={"k": "v" * 900_001})])
    assert excess(values) == "topics[0].configs['k']: has 900001 characters, must have at most 900000"
    keys = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="a", configs={"k" * 1001: "v"})])
    assert excess(keys) == "topics[0].configs: a key: has 1001 characters, must have at most 1000"


def test_a_map_of_numbers_has_nothing_that_could_be_too_long() -> None:
    assert list(limits._of_map("m", {"k": 7}, (10, 0), holds_messages=False)) == []
    inner = pb.CreatableTopic(name="n" * 1001)
    (found,) = limits._of_map("m", {"k": inner}, (10, 0), holds_messages=True)
    assert found == "m['k'].name: has 1001 characters, must have at most 1000"


def test_what_is_as_large_as_allowed() -> None:
    fine: list[Any] = [
        maintenance_pb2.SetPauseRequest(reason="r" * TEXT_MAX),
        pb.ElectLeadersRequest(topic_partitions=[common_pb2.PartitionName(topic="t")] * ENTRIES_MAX),
        pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="a", configs={"k": "v" * 900_000})]),
        pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name="a")] * 10_000),
    ]
    assert [excess(request) for request in fine] == [None] * 4


def test_one_message_may_name_every_partition_of_a_large_cluster() -> None:
    name = "n" * 100
    one = controller_service_pb2.AlterPartitionRequest(
        partitions=[
            {"topic": name, "partition": 2**31 - 1, "new_isr": [2**31 - 1] * 5, "isr_epochs": [2**60] * 5}
        ]
    )
    assert 200_000 * one.ByteSize() < MESSAGE_BYTES_MAX
    assert {value for _, value in MESSAGE_LIMITS} == {MESSAGE_BYTES_MAX}


def test_the_fields_with_limits_of_their_own_are_there() -> None:
    pool = pb.DESCRIPTOR.pool
    for name in [*ENTRIES_MAX_BY_FIELD, *TEXT_MAX_BY_FIELD]:
        assert pool.FindFieldByName(name).full_name == name
