"""The peer of fast tests (``tests.support.runtime.kafka_peer``) answers orders as a real broker does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest

from controller.runtime.kafka.connection import Connection
from controller.runtime.kafka.security.client import ClientSecurity
from proto.gen.kafka.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from proto.gen.kafka.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from proto.gen.kafka.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.conftest import running
from tests.support.runtime.kafka_peer import VERSIONS, KafkaPeer

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID
TOPIC_ID = bytes(range(16))


class Side(NamedTuple):
    """Who is asked, with the epochs that it accepts."""

    port: int
    controller_epoch: int
    broker_epoch: int


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: str) -> Iterator[KafkaCluster]:
    with running(
        tmp_path_factory.mktemp("kafka"), f"{zookeeper_server}/contract", versions={1: "3.9.1"}
    ) as cluster:
        yield cluster


@pytest.fixture(params=["peer", "broker"])
def cluster(request: pytest.FixtureRequest) -> KafkaCluster | None:
    """None: the peer is asked."""
    return request.getfixturevalue("kafka") if request.param == "broker" else None


@pytest.fixture
async def side(cluster: KafkaCluster | None) -> AsyncIterator[Side]:
    if cluster is not None:
        registered = cluster.zk.exists("/brokers/ids/1")
        assert registered is not None
        port = int(cluster.brokers[1].address.rpartition(":")[2])
        # Above the epoch of the broker's own controller, as after a takeover.
        yield Side(port, cluster.controller_epoch() + 1, registered.czxid)
        return
    peer = await KafkaPeer().start()
    yield Side(peer.port, 2, peer.epoch)
    await peer.stop()


def orders(side: Side) -> list[tuple[Any, int]]:
    """What a controller sends about a new topic on one broker, until it is deleted; the last order is repeated."""
    epochs: dict[str, Any] = {"controller_epoch": side.controller_epoch, "broker_epoch": side.broker_epoch}
    states = [
        LeaderAndIsrPartitionState(
            partition_index=number, controller_epoch=side.controller_epoch, leader=1, leader_epoch=0, isr=[1],
            partition_epoch=0, replicas=[1], is_new=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    live = [
        UpdateMetadataBroker(1, endpoints=[UpdateMetadataEndpoint(side.port, "127.0.0.1", "PLAINTEXT", 0)])
    ]
    stopped = [StopReplicaPartitionState(number, 5, True) for number in (0, 1)]
    stop = StopReplicaRequest(OURS, topic_states=[StopReplicaTopicState("c", stopped)], **epochs)
    return [
        (UpdateMetadataRequest(OURS, live_brokers=live, **epochs), 8),
        (
            LeaderAndIsrRequest(OURS, topic_states=[LeaderAndIsrTopicState("c", TOPIC_ID, states)], **epochs),
            7,
        ),
        (stop, 4),
        (stop, 4),
    ]


def said(response: Any) -> Any:
    """An answer without the order of its entries."""
    errors = [
        (e.topic_name, e.partition_index, e.error_code) for e in getattr(response, "partition_errors", [])
    ]
    topics = [
        (topic.topic_id, sorted((e.partition_index, e.error_code) for e in topic.partition_errors))
        for topic in getattr(response, "topics", [])
    ]
    return type(response).__name__, response.error_code, sorted(errors), topics


async def test_orders_are_answered_alike(side: Side) -> None:
    connection = Connection("contract", ClientSecurity(), 20)
    await connection.open("127.0.0.1", side.port)
    try:
        assert {key: connection.versions[key] for key in VERSIONS} == {
            key: range(newest + 1) for key, newest in VERSIONS.items()
        }
        answers = [said(await connection.request(request, version)) for request, version in orders(side)]
    finally:
        await connection.close()
    stopped: Any = ("StopReplicaResponse", 0, [("c", 0, 0), ("c", 1, 0)], [])
    assert answers == [
        ("UpdateMetadataResponse", 0, [], []),
        ("LeaderAndIsrResponse", 0, [], [(TOPIC_ID, [(0, 0), (1, 0)])]),
        stopped,
        stopped,
    ]
