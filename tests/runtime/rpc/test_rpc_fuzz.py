"""Every RPC of a controller process, with whatever the wire allows: it answers, says why not, and goes on.

``RPC_FUZZ_EXAMPLES`` requests to each method; with more of them other ones each time. Bytes that are no requests, and
many more of those that are, go to the handlers without a server: tests/provers/fuzz.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proto.gen import inspection_pb2
from tests.support.runtime.fuzz_requests import ERRORS, GOOD, known
from tests.support.runtime.fuzzed_cluster import (
    BROKERS,
    METHODS,
    Candidate,
    Fuzzed,
    Prober,
    call,
    fuzzed,
    stored_problems,
    topics,
)
from tests.support.runtime.random_messages import Extreme, answer_problems, extremes, messages

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("RPC_FUZZ_EXAMPLES", "12"))
MANY, LONG = 10_000, 10_000_000
fuzz = settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate] if EXAMPLES > 100 else [Phase.generate, Phase.shrink],
    derandomize=EXAMPLES <= 100,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def target(
    zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fuzzed, Candidate, Prober]]:
    directory = tmp_path_factory.mktemp("fuzz")
    connect = f"{zookeeper_server}/fuzz-{os.getpid()}"
    with fuzzed(connect, directory) as (cluster, first), Prober(first.http, first.channel) as prober:
        yield cluster, first, prober


def answered(first: Candidate, method: str, request: bytes) -> None:
    try:
        answer = call(first.channel, method, request)
    except grpc.RpcError as error:
        raise AssertionError(f"{method}: {error}\n{first.running.said()[-3000:]}") from None
    assert list(answer_problems(answer, ERRORS)) == []


@pytest.mark.parametrize("method", METHODS)
@fuzz
@given(data=st.data())
def test_random_requests(target: tuple[Fuzzed, Candidate, Prober], method: str, data: st.DataObject) -> None:
    cluster, first, _ = target
    request = data.draw(messages(METHODS[method].input_type, known(cluster.epochs.values())))
    answered(first, method, request.SerializeToString())


def extreme_requests() -> list[Any]:
    return [
        pytest.param(name, extreme, id=f"{name}: {extreme}")
        for name, method in METHODS.items()
        for extreme in extremes(method)
    ]


@pytest.mark.parametrize(("method", "extreme"), extreme_requests())
def test_one_field_at_its_largest(
    target: tuple[Fuzzed, Candidate, Prober], method: str, extreme: Extreme
) -> None:
    good = GOOD.get(method, GetMessageClass(METHODS[method].input_type)())
    answered(target[1], method, extreme.of(good, MANY, LONG).SerializeToString())


def test_what_is_left_is_sane_and_a_successor_takes_over(
    target: tuple[Fuzzed, Candidate, Prober],
) -> None:
    cluster, first, prober = target
    assert first.running.process.poll() is None
    print(f"slowest answers in seconds: {prober.slowest}")
    assert prober.failures == []
    assert list(stored_problems(cluster.zk)) == []
    cluster.release(first)
    leads(cluster, first, "before-the-failover")
    with cluster.start(2) as second:
        first.running.process.kill()
        cluster.wait(second.describe, "the successor")
        assert dict(second.describe().problems) == {}
        leads(cluster, second, "after-the-failover")
        assert list(stored_problems(cluster.zk)) == []


def leads(cluster: Fuzzed, controller: Candidate, name: str) -> None:
    """A topic is created, and led."""
    (made,) = call(controller.channel, "CreateTopics", topics(name).SerializeToString()).topics
    assert made.error_code == 0, made
    asked = inspection_pb2.DescribeTopicsRequest(topics=[name]).SerializeToString()

    def led() -> bool:
        (topic,) = call(controller.channel, "DescribeTopics", asked).topics
        return len(topic.partitions) == 3 and all(p.leader in BROKERS for p in topic.partitions)

    cluster.wait(led, f"leaders of {name}")
