"""A controller that loses its leadership without dying: ZooKeeper freezes, or the controller itself does, with requests
queued, moves and a drain under way, and people watching. All of them are told, and what was asked for is whole or not
at all."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, history_pb2, inspection_pb2, maintenance_pb2
from proto.gen.admin_service_pb2_grpc import AdminServiceStub
from tests.provers.durability.pairs import ANSWER_S, Pair, ask, pair
from tests.provers.durability.requests_at_death import CASES, SIGNED, error, named, replicas
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

#: Requests that wait behind the one that waits for ZooKeeper, of each kind.
QUEUED = 20


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[Pair, EmbeddedZooKeeper]]:
    """A cluster on a server that may be frozen."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper", heap_mb=256, force_sync=False) as embedded:
        async with pair(embedded.connect_string, tmp_path / "run") as made:
            yield made, embedded


async def test_requests_are_refused_while_zookeeper_is_frozen_and_right_when_asked_again(
    own: tuple[Pair, EmbeddedZooKeeper],
) -> None:
    """Whatever is under way or queued when the lease ends is answered then: all at once, and without ZooKeeper."""
    made, embedded = own
    # One of each kind that leaves the others alone; the first begins with a write.
    kinds = [
        "ElectLeaders",
        "CreateTopics",
        "CreatePartitions",
        "AlterPartitionReassignments",
        "AlterConfigs",
    ]
    kinds += ["UpdateFeatures", "AllocateProducerIds", "AlterPartition", "DeleteTopics"]
    asked = {kind: await CASES[kind](made, f"t-{kind}") for kind in kinds}
    await made.idle()
    endpoint = await made.endpoint()
    before = await ask(endpoint, "DescribeCluster", pb.DescribeClusterRequest())

    async def begun() -> bool:
        answer = await ask(endpoint, "DescribeCluster", pb.DescribeClusterRequest())
        return error(answer) == "NOT_CONTROLLER" or bool(answer.event_id > before.event_id)

    embedded.servers[0].kill(signal.SIGSTOP)
    try:
        first = asyncio.create_task(ask(endpoint, kinds[0], asked[kinds[0]].request))
        await until(begun, "the first request is under way")
        requests = [(kind, asked[kind].request) for kind in kinds for _ in range(QUEUED)]
        answers = await asyncio.gather(first, *(ask(endpoint, kind, request) for kind, request in requests))
    finally:
        embedded.servers[0].kill(signal.SIGCONT)
    assert {error(answer) for answer in answers} == {"NOT_CONTROLLER"}
    for kind in kinds:
        await made.idle()
        answer = await made.ask(kind, asked[kind].request)
        # One is carried out at a time: only what was under way can have been sent to ZooKeeper, and land after all.
        try:
            await asked[kind].check(answer, False)
        except AssertionError:
            if kind != kinds[0]:
                raise
            await asked[kind].check(answer, True)


async def test_a_controller_that_wakes_up_after_its_session_stands_by_and_tells_everybody(
    zookeeper: str, tmp_path: Path
) -> None:
    async with pair(zookeeper, tmp_path / "run") as made:
        await made.topic("moving", [1, 2], [2, 1])
        await made.topic("led", [3, 1], [3, 2])
        move = pb.AlterPartitionReassignmentsRequest(
            partitions=[pb.ReassignablePartition(topic="moving", partition=0, replicas=replicas(2, 3))]
        )
        assert named((await made.ask("AlterPartitionReassignments", move)).responses) == ["NONE"]
        await made.idle()
        active, endpoint = await made.active(), await made.endpoint()
        frozen = made.cluster.members[f"controller-{active}"]
        async with grpc.aio.insecure_channel(endpoint) as channel:
            stub: Any = AdminServiceStub(channel)
            streams = [stub.Watch(history_pb2.WatchRequest()) for _ in range(5)]
            for stream in streams:
                assert (await stream.read()).error_code == common_pb2.NONE
            frozen.signal(signal.SIGSTOP)
            try:
                drain = maintenance_pb2.SetDrainRequest(broker_id=3, drained=True, **SIGNED)
                plan = inspection_pb2.PlanRequest(broker_loss=inspection_pb2.BrokerSet(broker_ids=[1]))
                notified = asyncio.gather(
                    *(
                        getattr(stub, method)(request, timeout=3 * ANSWER_S)
                        for method, request in [
                            ("SetDrain", drain),
                            ("Plan", plan),
                            ("ElectLeaders", _ELECTION),
                        ]
                        for _ in range(QUEUED)
                    )
                )
                successor, _ = await made.cluster.active(made.session, other_than=active)
            finally:
                frozen.signal(signal.SIGCONT)
            assert {error(answer) for answer in await notified} == {"NOT_CONTROLLER"}
            assert [await _last(stream) for stream in streams] == ["NOT_CONTROLLER"] * 5
            standby = await ask(endpoint, "DescribeCluster", pb.DescribeClusterRequest())
            assert error(standby) == "NOT_CONTROLLER"

        async def known() -> bool:
            answer = await ask(endpoint, "DescribeCluster", pb.DescribeClusterRequest())
            return bool(answer.controller_id == successor)

        await until(known, "the standby knows who leads")
        # Nothing of what it was asked in its sleep, and the move goes on.
        assert made.hands.exists("/controllers/maintenance") is None
        (ongoing,) = (
            await made.ask("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
        ).partitions
        assert (ongoing.topic, list(ongoing.adding_replicas)) == ("moving", [3])
        assert {made.state("led", n)["leader"] for n in (0, 1)} == {3}


_ELECTION = pb.ElectLeadersRequest(all_partitions=True)


async def _last(stream: Any) -> str:
    """How a stream ends."""
    last = None
    async with asyncio.timeout(ANSWER_S):
        while (answer := await stream.read()) is not grpc.aio.EOF:
            last = answer
    return error(last)
