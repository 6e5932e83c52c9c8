"""A stranger who reaches brokers and makes controller epochs up: nobody obeys, and nobody is locked out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
import pytest

from controller.core import znode_paths
from controller.playground.cluster import Playground, healthy
from controller.runtime.zookeeper import cluster_reader, jute
from controller.runtime.zookeeper.session import Session
from proto.gen import broker_control_pb2 as control
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from tests.integration.conftest import StartCluster
from tests.support.cli.operator import pctl

pytestmark = pytest.mark.slow

HIGHEST = 2**31 - 1
_CONTROL = "/partition_controller.v1.BrokerControl/"
_RESPONSES: Mapping[str, Any] = {
    "LeaderAndIsr": control.LeaderAndIsrResponse,
    "StopReplica": control.StopReplicaResponse,
    "UpdateMetadata": control.UpdateMetadataResponse,
}


async def send(address: str, method: str, request: Any, response: Any) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(method)
        return response.FromString(await call(request.SerializeToString(), timeout=30))


def three_requests(header: dict[str, Any]) -> dict[str, Any]:
    """Lead everything, delete everything, know nobody but broker 666."""
    evil = control.LiveBroker(
        broker_id=666, endpoints=[control.Endpoint(listener="GRPC", host="evil.example", port=1)]
    )
    return {
        "LeaderAndIsr": control.LeaderAndIsrRequest(
            **header,
            partition_states=[
                control.LeaderAndIsrPartitionState(
                    topic="orders",
                    partition=n,
                    leader=3,
                    leader_epoch=HIGHEST - 1,
                    isr=[3],
                    replicas=[1, 2, 3],
                )
                for n in range(4)
            ],
        ),
        "StopReplica": control.StopReplicaRequest(
            **header,
            partition_states=[
                control.StopReplicaPartitionState(
                    topic="orders", partition=n, leader_epoch=-2, delete_partition=True
                )
                for n in range(4)
            ],
        ),
        "UpdateMetadata": control.UpdateMetadataRequest(**header, live_brokers=[evil], ends_snapshot=True),
    }


async def begun(start_cluster: StartCluster, session: Session) -> tuple[Playground, int]:
    """A healthy cluster with the topic orders; the active controller."""
    cluster = start_cluster()
    active, _ = await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == 3)
    await cluster.create_topic(session, "orders", (4, 3))
    await cluster.until(session, "led", healthy)
    return cluster, active


async def works(cluster: Playground, session: Session) -> None:
    """Everybody serves, in a new topic as in the old one."""
    await cluster.until(session, "led", healthy)
    for command in (
        ("produce", "orders", "still here"),
        ("topics", "create", "later", "--partitions", "2", "--replication-factor", "3"),
        ("produce", "later", "still here"),
    ):
        result = await asyncio.to_thread(pctl, cluster.connect, *command)
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "known_epoch",
    [
        pytest.param(False, id="broker epoch -1", marks=pytest.mark.long),
        pytest.param(True, id="broker epoch known"),
    ],
)
async def test_no_broker_obeys_and_the_controller_is_not_locked_out(
    start_cluster: StartCluster, session: Session, known_epoch: bool
) -> None:
    cluster, active = await begun(start_cluster, session)
    seen = await cluster_reader.look(session)
    produced = await asyncio.to_thread(pctl, cluster.connect, "produce", "orders", "before")
    assert produced.exit_code == 0, produced.output
    for id_ in (1, 2, 3):
        data, stat = await session.get(znode_paths.broker_path(id_))
        assert data
        broker_epoch = stat.czxid if known_epoch else -1
        address = seen.brokers[id_].control_endpoint
        for epoch in (HIGHEST, seen.controller_epoch + 1):
            header = {
                "controller_id": 99,
                "controller_epoch": epoch,
                "broker_epoch": broker_epoch,
                "event_id": 1,
            }
            for method, request in three_requests(header).items():
                answer = await send(
                    f"{address.host}:{address.port}", _CONTROL + method, request, _RESPONSES[method]
                )
                expected = codes.STALE_CONTROLLER_EPOCH if known_epoch else codes.INVALID_REQUEST
                assert answer.error_code == expected, (method, id_, epoch)
    for id_ in (1, 2, 3):
        folders = sorted(path.name for path in cluster.data_dir(id_).glob("orders-*"))
        assert folders == [f"orders-{n}" for n in range(4)]
    await works(cluster, session)
    cluster.members[f"controller-{active}"].kill()
    await cluster.active(session, other_than=active)
    assert (await cluster_reader.look(session)).controller_epoch == seen.controller_epoch + 1
    result = await asyncio.to_thread(pctl, cluster.connect, "produce", "later", "after the failover")
    assert result.exit_code == 0, result.output


async def test_nobody_lets_a_healthy_broker_go_in_its_name(
    start_cluster: StartCluster, session: Session
) -> None:
    await begun(start_cluster, session)
    seen = await cluster_reader.look(session)
    answer = await send(
        seen.controller_endpoint,
        "/partition_controller.v1.ControllerService/ControlledShutdown",
        service.ControlledShutdownRequest(broker_id=2, broker_epoch=-1),
        service.ControlledShutdownResponse,
    )
    assert answer.error_code == codes.STALE_BROKER_EPOCH
    after = await cluster_reader.look(session)
    assert [p.state.leader for p in after.partitions if p.state] == [
        p.state.leader for p in seen.partitions if p.state
    ]


@pytest.mark.parametrize(
    "restored",
    [
        pytest.param(b"3", id="lower"),
        pytest.param(b"40", id="the same number again", marks=pytest.mark.long),
    ],
)
async def test_an_epoch_that_went_back_locks_nobody_out(
    start_cluster: StartCluster, session: Session, restored: bytes
) -> None:
    """As after the restoration of an old backup."""
    await session.create(znode_paths.CONTROLLER_EPOCH, b"40")
    cluster, _ = await begun(start_cluster, session)
    assert (await cluster_reader.look(session)).controller_epoch == 41
    await session.multi(
        [
            jute.op_set(session.packed_path(znode_paths.CONTROLLER_EPOCH), restored, -1),
            jute.op_delete(session.packed_path(znode_paths.CONTROLLER), -1),
        ]
    )
    await cluster.until(session, "elected", lambda s: s.controller_epoch > int(restored))
    await cluster.active(session)
    await works(cluster, session)
