"""Limits of moves as KIP-73 has them: whom they are for, and who keeps them when one move has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.cli.pctl.moving import throttle
from controller.core.effects import TopicInfo
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.core.world import a_broker

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
#: t-0 rests, t-1 is on its way from 3 to 4.
CLUSTER = ClusterState(
    brokers={b: a_broker(b, b) for b in (1, 2, 3, 4, 5)},
    topics={"t": TopicInfo("t", "id", {0: (1, 2), 1: (2, 3, 4)}, {1: (4,)}, {1: (3,)}, 1, 0)},
)


def by_name(request: pb.AlterConfigsRequest) -> dict[str, dict[str, str]]:
    return {r.resource.resource_name: {c.name: c.value for c in r.configs} for r in request.resources}


@pytest.mark.parametrize(
    ("after", "leaders", "followers", "brokers"),
    [
        ({("t", 0): (2, 5)}, {"0:1", "0:2", "1:2", "1:3"}, {"0:5", "1:4"}, {"1", "2", "5"}),
        # It is to go elsewhere: what it copies to 4 is taken back.
        ({("t", 1): (2, 5)}, {"1:2", "1:3"}, {"1:5"}, {"2", "3", "5"}),
    ],
)
def test_who_has_the_data_is_held_back_as_a_leader_and_who_copies_it_as_a_follower(
    after: dict[tuple[str, int], tuple[int, ...]], leaders: set[str], followers: set[str], brokers: set[str]
) -> None:
    found = by_name(throttle.limits(CLUSTER, after, 1000))
    topic = found.pop("t")
    assert (set(topic[LEADERS].split(",")), set(topic[FOLLOWERS].split(","))) == (leaders, followers)
    assert found == {b: dict.fromkeys(RATES, "1000") for b in brokers}


@pytest.mark.parametrize(("of_topic", "of_broker"), list(zip((LEADERS, FOLLOWERS), RATES, strict=True)))
@pytest.mark.parametrize(
    ("ongoing", "asked", "lifted"),
    [
        ([], {"t", "u", "1", "2"}, {"t", "1"}),
        ([("t", 0)], {"t", "u", "1", "2"}, {"t", "1"}),
        # Limits of brokers are every move's.
        ([("u", 0)], {"t"}, {"t"}),
    ],
)
async def test_limits_go_with_the_last_move_that_needs_them(
    monkeypatch: pytest.MonkeyPatch,
    ongoing: list[tuple[str, int]],
    asked: set[str],
    lifted: set[str],
    of_topic: str,
    of_broker: str,
) -> None:
    """Each limit may be the only one that is set, by an operator, say; all are removed."""
    configured = {
        "t": [(of_topic, "topics/t")],
        "1": [(of_broker, "brokers/1")],
        "2": [(of_broker, "brokers/<default>")],
    }
    sent: dict[str, Any] = {}
    refused = pb.AlterConfigsResponse()

    async def ask(_options: Any, _session: Any, method: str, request: Any) -> Any:
        sent[method] = request
        if method == "AlterConfigs":
            return refused
        answer = pb.DescribeConfigsResponse()
        for resource in request.resources:
            described = answer.results.add(resource=resource)
            for name, source in configured.get(resource.resource_name, ()):
                described.configs.add(name=name, source=source)
        return answer

    async def look(*_: Any, **__: Any) -> ClusterState:
        return ClusterState(brokers={b: a_broker(b, b) for b in (1, 2)})

    monkeypatch.setattr(throttle, "ask", ask)
    monkeypatch.setattr(cluster_reader, "look", look)
    nothing: Any = None
    moves = [SimpleNamespace(topic=topic, partition=number) for topic, number in ongoing]
    assert await throttle.lift(nothing, nothing, ["t", "u"], {("t", 0)}, moves) == 0
    refused.responses.add(error_code=common_pb2.INVALID_REQUEST)
    assert await throttle.lift(nothing, nothing, ["t", "u"], {("t", 0)}, moves) == 1
    assert {r.resource_name for r in sent["DescribeConfigs"].resources} == asked
    assert {r.resource.resource_name for r in sent["AlterConfigs"].resources} == lifted
    assert all(not c.HasField("value") for r in sent["AlterConfigs"].resources for c in r.configs)
    removed = by_name(sent["AlterConfigs"])
    assert {name: set(keys) for name, keys in removed.items()} == {
        name: {LEADERS, FOLLOWERS} if name == "t" else set(RATES) for name in lifted
    }
