"""What brokers say of their disks, put together with what the controller knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller.core.model import Broker, Cluster
from controller.runtime.kafka.asking import BrokerQuestions
from controller.runtime.kafka.endpoints import Listeners
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.push.transport import UnreachableError
from controller.runtime.rpc import replicas
from proto.gen import broker_control_pb2 as control
from proto.gen.kafka.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from proto.kafka.apis import ApiKey, RequestHeader
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World
from tests.support.runtime.kafka_peer import KafkaPeer, response

KAFKA_STORAGE_ERROR = 56


def on_disk(*partitions: DescribeLogDirsPartition) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(log_dir="/d", topics=[DescribeLogDirsTopic("t", list(partitions))])


class Transport:
    """To brokers that are led by gRPC."""

    def __init__(self) -> None:
        self.answer: control.DescribeStateResponse | UnreachableError = UnreachableError("it is asleep")
        self.asked: list[control.DescribeStateRequest] = []
        self.closed = 0

    async def describe_state(
        self, _broker: Broker, request: control.DescribeStateRequest
    ) -> control.DescribeStateResponse:
        self.asked.append(request)
        if isinstance(self.answer, UnreachableError):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed += 1


class Disks:
    """Brokers 1 and 2 say what the test puts into ``said``; broker 3 is down."""

    def __init__(self, cluster: Cluster, peers: dict[int, KafkaPeer]) -> None:
        self.cluster, self.peers = cluster, peers
        self.said: dict[int, DescribeLogDirsResponse] = {}
        self.transport = Transport()
        for peer in peers.values():
            peer.versions[ApiKey.DESCRIBE_LOG_DIRS] = 4
            peer.answer = self.answer_of(peer)
            cluster.brokers[peer.id] = peer.incarnation

    def answer_of(self, peer: KafkaPeer) -> Any:
        async def answer(header: RequestHeader, request: Any) -> bytes | None:
            if header.api_key == ApiKey.API_VERSIONS:
                return await peer.carry_out(header, request)
            return response(header, self.said[peer.id])

        return answer

    async def describe(self, *topics: str) -> Any:
        questions = BrokerQuestions("9001", Listeners("", "", "PLAINTEXT"), ClientSecurity())
        return await replicas.describe(self.cluster, questions, lambda: self.transport, topics)

    async def rows(self, *topics: str) -> dict[tuple[str, int], list[tuple[int, int, int, bool]]]:
        answer = await self.describe(*topics)
        return {
            (p.topic, p.partition): [
                (r.broker, r.size_bytes, r.offset_lag, r.on_failed_disk) for r in p.replicas
            ]
            for p in answer.partitions
        }


@pytest.fixture
async def disks() -> AsyncIterator[Disks]:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [2, 1], 1: [1, 3]})
    world.create_topic("u", {0: [1]})
    rig = MachineHarness.active(world)
    rig.run()
    peers = {id_: await KafkaPeer(id_).start() for id_ in (1, 2)}
    found = Disks(rig.cluster, peers)
    del rig.cluster.brokers[3]
    yield found
    for peer in peers.values():
        await peer.stop()


async def test_sizes_and_lag_are_those_of_the_replica_in_use(disks: Disks) -> None:
    moving = DescribeLogDirsPartition(0, 7, 99, True)
    disks.said = {
        1: DescribeLogDirsResponse(results=[on_disk(DescribeLogDirsPartition(0, 100, 5)), on_disk(moving)]),
        2: DescribeLogDirsResponse(results=[on_disk(DescribeLogDirsPartition(0, 200, 0))]),
    }
    assert await disks.rows("t") == {
        ("t", 0): [(2, 200, 0, False), (1, 100, 5, False)],
        ("t", 1): [(1, -1, -1, False), (3, -1, -1, False)],
    }
    ((_, asked),) = [each for each in disks.peers[1].received if each[0].api_key == ApiKey.DESCRIBE_LOG_DIRS]
    assert [(topic.topic, topic.partitions) for topic in asked.topics] == [("t", [0, 1])]
    assert set(await disks.rows()) == {("t", 0), ("t", 1), ("u", 0)}
    assert disks.peers[1].received[-1][1].topics is None
    assert await disks.rows("nope") == {}


async def test_a_partition_that_goes_while_brokers_are_asked_is_left_out_alone(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.said = {id_: DescribeLogDirsResponse(results=[on_disk()]) for id_ in (1, 2)}
    ask = BrokerQuestions.ask

    async def deleting(self: BrokerQuestions, broker: Broker, request: Any) -> Any:
        disks.cluster.topics["t"].partitions.pop(0, None)
        return await ask(self, broker, request)

    monkeypatch.setattr(BrokerQuestions, "ask", deleting)
    assert set(await disks.rows()) == {("t", 1), ("u", 0)}


async def test_replicas_on_failed_disks_are_named(disks: Disks) -> None:
    partition = disks.cluster.partition("t", 0)
    assert partition is not None
    disks.cluster.offline_dirs[1] = {partition}
    disks.cluster.shutting_down.add(2)
    failed = DescribeLogDirsResult(KAFKA_STORAGE_ERROR, "/failed")
    disks.said = {
        1: DescribeLogDirsResponse(results=[failed, on_disk(DescribeLogDirsPartition(1, 10, 0))]),
        2: DescribeLogDirsResponse(results=[on_disk(DescribeLogDirsPartition(0, 200, 0))]),
    }
    rows = await disks.rows("t")
    assert rows["t", 0] == [(2, 200, 0, False), (1, -1, -1, True)]
    assert rows["t", 1] == [(1, 10, 0, False), (3, -1, -1, False)]


async def test_brokers_that_do_not_say_are_named_with_the_reason(disks: Disks) -> None:
    disks.said = {1: DescribeLogDirsResponse(error_code=31), 2: DescribeLogDirsResponse()}
    await disks.peers[2].stop()
    answer = await disks.describe("t")
    silent = {each.broker: each.why for each in answer.silent}
    assert "needs Describe on the cluster" in silent[1]
    assert f"127.0.0.1:{disks.peers[2].port}" in silent[2]


async def test_a_broker_led_by_grpc_tells_too(disks: Disks) -> None:
    """Broker 2 is one: what it says, and why it does not."""
    for peer in disks.peers.values():
        disks.said[peer.id] = DescribeLogDirsResponse(results=[on_disk()])
    disks.cluster.brokers[2] = World(2).brokers[2]
    answer = await disks.describe("t")
    assert [(s.broker, s.why) for s in answer.silent] == [(2, "it is asleep")]
    told = control.LogDirReplica(topic="t", partition=0, size_bytes=700, offset_lag=3)
    disks.transport.answer = control.DescribeStateResponse(on_disk=[told])
    rows = await disks.rows("t")
    assert rows["t", 0][0] == (2, 700, 3, False)
    assert [list(request.log_dirs.topics) for request in disks.transport.asked] == [["t"], ["t"]]
    assert disks.transport.closed == 2, "also the one that had no answer"


async def test_others_have_their_turns_while_many_replicas_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "AT_ONCE", 10)
    world = World(1)
    world.create_topic("t", {number: [1] for number in range(100)})
    rig = MachineHarness.active(world)
    rig.run()
    transport, turns = Transport(), 0
    transport.answer = control.DescribeStateResponse()
    for number in range(100):
        transport.answer.on_disk.add(topic="t", partition=number, size_bytes=1, offset_lag=0)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    questions = BrokerQuestions("9001", Listeners("", "", "PLAINTEXT"), ClientSecurity())
    counting = asyncio.create_task(others())
    answer = await replicas.describe(rig.cluster, questions, lambda: transport, ())
    counting.cancel()
    assert [row.replicas[0].size_bytes for row in answer.partitions] == [1] * 100
    assert turns >= 20
