"""Control requests of the past are refused by brokers, and a controller of ours that was deposed sends none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kazoo.exceptions import BadVersionError

from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka.connection import Connection
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.kafka.topic_ids import uuid_bytes
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
from tests.kafka.cluster import FIRST_CONTROLLER_ID, Controller, KafkaCluster
from tests.kafka.conftest import MakeCluster, running
from tests.kafka.load import Load

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

OURS = FIRST_CONTROLLER_ID
#: API versions of the requests below.
LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA = 7, 8, 4


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: str) -> Iterator[KafkaCluster]:
    with running(
        tmp_path_factory.mktemp("kafka"), f"{zookeeper_server}/fencing", controllers_wanted=1
    ) as cluster:
        cluster.create_topic("t", 1, 3)
        yield cluster


@pytest.mark.parametrize(
    ("older_controller", "older_broker", "error"),
    [
        (1, 0, ErrorCode.STALE_CONTROLLER_EPOCH),
        (0, 1, ErrorCode.STALE_BROKER_EPOCH),
        # The controller's epoch is looked at after the broker's.
        (1, 1, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
async def test_brokers_refuse_old_epochs(
    kafka: KafkaCluster, older_controller: int, older_broker: int, error: ErrorCode
) -> None:
    state = kafka.json("/brokers/topics/t/partitions/0/state")
    topic_id = uuid_bytes(kafka.json("/brokers/topics/t")["topic_id"])
    replicas = kafka.assignment("t")[0]
    broker = kafka.brokers[replicas[0]]
    host, port = broker.address.split(":")
    registration = kafka.zk.exists(f"/brokers/ids/{broker.broker_id}")
    assert registration is not None
    epoch = kafka.controller_epoch() - older_controller
    broker_epoch = registration.czxid - older_broker
    stolen = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=epoch, leader=replicas[2], leader_epoch=state["leader_epoch"] + 9,
        isr=[replicas[2]], partition_epoch=99, replicas=replicas,
    )  # fmt: skip
    alone = UpdateMetadataBroker(
        broker.broker_id, endpoints=[UpdateMetadataEndpoint(int(port), host, "PLAINTEXT", 0)]
    )
    stop = StopReplicaPartitionState(0, state["leader_epoch"] + 9, True)
    led = Connection("fencing", ClientSecurity(), 10)
    await led.open(host, int(port))
    try:
        for request, version in (
            (LeaderAndIsrRequest(OURS, controller_epoch=epoch, broker_epoch=broker_epoch,
                topic_states=[LeaderAndIsrTopicState("t", topic_id, [stolen])]), LEADER_AND_ISR),
            (UpdateMetadataRequest(OURS, controller_epoch=epoch, broker_epoch=broker_epoch, live_brokers=[alone]),
                UPDATE_METADATA),
            (StopReplicaRequest(OURS, controller_epoch=epoch, broker_epoch=broker_epoch,
                topic_states=[StopReplicaTopicState("t", [stop])]), STOP_REPLICA),
        ):  # fmt: skip
            response = await led.request(request, version)
            assert ErrorCode(response.error_code) is error, response  # type: ignore[attr-defined]
    finally:
        await led.close()
    known = kafka.admin().list_topics(timeout=10)
    assert known.topics["t"].partitions[0].leader == state["leader"]
    assert kafka.brokers.keys() <= known.brokers.keys()
    assert (broker.data_dirs[0] / "t-0").exists()


def recorded(controller: Controller) -> list[str]:
    """The kinds of a controller's records, in order; without those of being leader or not."""
    files = sorted(controller.state_log.rglob("*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [kind for line in lines if (kind := json.loads(line)["kind"]) != "controller"]


def heard_of(cluster: KafkaCluster, id_: int) -> int:
    """Lines of the brokers' state-change logs about a controller, also about requests of it that are refused."""
    texts = [broker.state_change_log.read_text() for broker in cluster.brokers.values()]
    return sum(len(re.findall(rf"controller(?: id)? {id_}\b", text)) for text in texts)


def test_a_deposed_controller_sends_and_writes_nothing(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(controllers_wanted=1)
    cluster.create_topic("t", 3, 3)
    deposed = cluster.controllers[OURS]
    (standby,) = cluster.add_controllers(1)
    fenced = cluster.controller_epoch()
    stat = cluster.zk.exists("/controller_epoch")
    assert stat is not None
    with Load(cluster, "t") as load:
        load.run_for(0.5)
        deposed.freeze()
        cluster.until("the standby", lambda: cluster.controller_id() == standby.controller_id)
        # Something that the deposed one would have to do, had it still the right to.
        cluster.brokers[3].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[3]))
        before = znodes(cluster), recorded(deposed), heard_of(cluster, OURS)
        assert before[1]
        assert before[2]
        deposed.thaw()
        cluster.until("its stand-by", lambda: standing_by(cluster, deposed.controller_id))
        load.run_for(3)
        assert (znodes(cluster), recorded(deposed), heard_of(cluster, OURS)) == before
        cluster.restart(3)
        cluster.until("full ISRs", lambda: cluster.in_sync("t"))
        outcome = load.finish()
    assert outcome.ok, outcome
    assert cluster.controller_epoch() == fenced + 1
    with pytest.raises(BadVersionError):
        cluster.zk.set("/controller_epoch", b"0", version=stat.version)


def standing_by(cluster: KafkaCluster, id_: int) -> bool:
    """Whether a controller of ours is registered again, without being the leader."""
    return cluster.zk.exists(f"/controllers/ids/{id_}") is not None and cluster.controller_id() != id_


def znodes(cluster: KafkaCluster) -> dict[str, int]:
    """Versions of what a controller writes, by path."""
    paths = ["/controller", "/controller_epoch", "/brokers/topics/t"]
    paths += [f"/brokers/topics/t/partitions/{number}/state" for number in cluster.assignment("t")]
    return {path: cluster.zk.get(path)[1].version for path in paths}
