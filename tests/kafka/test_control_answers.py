"""``broker_stub`` answers control requests as a real broker does, and knows the same of the cluster after each.

Drawn at random: stale and newer epochs, ids of other topics, replicas that are not assigned, leaders that are dead.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proto.error_names import error_name
from proto.gen.kafka.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.gen.kafka.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from proto.gen.kafka.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from proto.kafka.apis import Message
from proto.kafka.primitives import ZERO_UUID
from tests.kafka.cluster import FIRST_CONTROLLER_ID
from tests.kafka.conftest import running
from tests.kafka.requests import ask
from tests.support.broker.builders import BrokerHarness, leader_state, metadata_state, stop_state

REQUESTS = 300
SELF = 1
KEYS = [("foo", 0), ("foo", 1), ("bar", 0), ("bar", 1)]
IDS = {"foo": bytes([1] * 16), "bar": bytes([2] * 16)}
OTHER_ID = bytes([9] * 16)
#: The newest version whose topics have no ids.
_WITHOUT_IDS = 4
_LEADER_NOT_AVAILABLE = 5
Key = tuple[str, int]
#: What a request says of each partition.
States = Mapping[Key, dict[str, Any]]


def by_topic(states: States) -> dict[str, dict[int, dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for (topic, number), state in states.items():
        found.setdefault(topic, {})[number] = state
    return found


def written(ids: Mapping[str, bytes]) -> dict[str, str]:
    return {topic: base64.urlsafe_b64encode(id_).decode().rstrip("=") for topic, id_ in ids.items()}


class Sides:
    """A real broker and the handlers of ``broker_stub``; each request goes to both, and gives both answers."""

    def __init__(self, address: str, broker_epoch: int, controller_epoch: int) -> None:
        self._address = address
        self._stub = BrokerHarness(SELF, live_brokers=(SELF,), controller_epoch=controller_epoch - 1)
        self._stub.handlers.registered(broker_epoch)

    def _asked(self, request: Message, version: int) -> Any:
        return ask(self._address, request, version)

    def lead(self, header: dict[str, Any], states: States, ids: Mapping[str, bytes]) -> tuple[Any, Any]:
        topics = [
            LeaderAndIsrTopicState(
                topic,
                ids.get(topic, ZERO_UUID),
                [LeaderAndIsrPartitionState("", number, **state) for number, state in states_.items()],
            )
            for topic, states_ in by_topic(states).items()
        ]
        version = 7 if ids else _WITHOUT_IDS
        answer = self._asked(LeaderAndIsrRequest(topic_states=topics, **header), version)
        names = {id_: topic for topic, id_ in ids.items()}
        found = {(e.topic_name, e.partition_index): e.error_code for e in answer.partition_errors}
        for topic in answer.topics:
            found |= {
                (names[topic.topic_id], e.partition_index): e.error_code for e in topic.partition_errors
            }
        told = [leader_state(*key, **state) for key, state in states.items()]
        sent = {topic: id_ for topic, id_ in written(ids).items() if topic in by_topic(states)}
        own = self._stub.lead(*told, topic_ids=sent, event_id=0, **header)
        return self._named(answer.error_code, found, states), own

    def stop(self, header: dict[str, Any], states: States) -> tuple[Any, Any]:
        topics = [
            StopReplicaTopicState(
                topic, [StopReplicaPartitionState(number, **state) for number, state in states_.items()]
            )
            for topic, states_ in by_topic(states).items()
        ]
        answer = self._asked(StopReplicaRequest(topic_states=topics, **header), 4)
        found = {(e.topic_name, e.partition_index): e.error_code for e in answer.partition_errors}
        told = [
            stop_state(*key, leader_epoch=state["leader_epoch"], delete=state["delete_partition"])
            for key, state in states.items()
        ]
        return self._named(answer.error_code, found, states), self._stub.stop(*told, event_id=0, **header)

    def update(self, header: dict[str, Any], states: States, live: Sequence[int]) -> tuple[Any, Any]:
        topics = [
            UpdateMetadataTopicState(
                topic,
                IDS[topic],
                [
                    UpdateMetadataPartitionState(
                        "", number, zk_version=state["partition_epoch"], **_without_epoch(state)
                    )
                    for number, state in states_.items()
                ],
            )
            for topic, states_ in by_topic(states).items()
        ]
        brokers = [
            UpdateMetadataBroker(id_, endpoints=[UpdateMetadataEndpoint(9, "h", "PLAINTEXT")], rack=None)
            for id_ in live
        ]
        request = UpdateMetadataRequest(topic_states=topics, live_brokers=brokers, **header)
        told = [metadata_state(*key, **state) for key, state in states.items()]
        sent = {topic: id_ for topic, id_ in written(IDS).items() if topic in by_topic(states)}
        own = self._stub.update(*told, brokers=live, topic_ids=sent, event_id=0, **header)
        return error_name(self._asked(request, 8).error_code), own

    def known(self) -> tuple[Any, Any]:
        """What both know of the cluster, as clients of the real one are told it."""
        asked = MetadataRequest([MetadataRequestTopic(name=topic) for topic in IDS], False)
        answer = self._asked(asked, 9)
        theirs = {
            (topic.name, p.partition_index): (
                p.error_code, p.leader_id, p.leader_epoch, sorted(p.isr_nodes), sorted(p.replica_nodes)
            )
            for topic in answer.topics
            for p in topic.partitions
        }  # fmt: skip
        cache = self._stub.handlers.metadata
        own = {}
        for item in (item for topic in IDS for item in cache.partitions(topic)):
            led = (0, item.leader) if cache.is_live(item.leader) else (_LEADER_NOT_AVAILABLE, -1)
            own[item.key] = (*led, item.leader_epoch, sorted(item.isr), sorted(item.replicas))
        return (sorted(b.node_id for b in answer.brokers), theirs), (sorted(cache.live_brokers), own)

    @staticmethod
    def _named(error: int, found: Mapping[Key, int], states: States) -> list[str]:
        return [error_name(error)] if error else [error_name(found[key]) for key in states]


def _without_epoch(state: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in state.items() if field != "partition_epoch"}


class Draw:
    """Requests at random, with epochs about the newest that were told."""

    def __init__(self, seed: int, broker_epoch: int, controller_epoch: int) -> None:
        self.random = random.Random(seed)
        self._broker_epoch, self._controller_epoch = broker_epoch, controller_epoch
        self._leader_epochs = dict.fromkeys(KEYS, 0)

    def header(self) -> dict[str, Any]:
        self._controller_epoch += self.random.random() < 0.05
        return {
            "controller_id": FIRST_CONTROLLER_ID,
            "controller_epoch": self._controller_epoch - (self.random.random() < 0.05),
            "broker_epoch": self._broker_epoch + self.random.choice([0] * 8 + [-1, 1]),
        }

    def _leader_epoch(self, key: Key) -> int:
        drawn = max(0, self._leader_epochs[key] + self.random.choice([-1, 0, 0, 1, 1, 1, 2]))
        self._leader_epochs[key] = max(drawn, self._leader_epochs[key])
        return drawn

    def _keys(self, least: int = 1) -> list[Key]:
        return self.random.sample(KEYS, self.random.randint(least, 3))

    def led(self) -> tuple[States, dict[str, bytes]]:
        choice = self.random.choice
        states = {
            key: {
                "leader": choice([SELF, SELF, 2, 3, -1]),
                "leader_epoch": self._leader_epoch(key),
                "isr": choice([[SELF], [SELF, 2], [2, 3]]),
                "partition_epoch": self.random.randint(0, 5),
                "replicas": choice([[SELF, 2, 3]] * 5 + [[2, 3]]),
                "is_new": choice([True, False]),
            }
            for key in self._keys()
        }
        return states, choice([{}, IDS, IDS, IDS | {choice([*IDS]): OTHER_ID}])

    def stopped(self) -> States:
        return {
            key: {
                "leader_epoch": self.random.choice(
                    [-2, -1, self._leader_epoch(key), self._leader_epoch(key)]
                ),
                "delete_partition": self.random.choice([True, False]),
            }
            for key in self._keys()
        }

    def metadata(self) -> tuple[States, list[int]]:
        choice = self.random.choice
        states = {
            key: {
                "leader": choice([SELF, 2, 3, -1, -2]),
                "leader_epoch": self.random.randint(0, 9),
                "isr": choice([[SELF], [2, 3]]),
                "partition_epoch": 1,
                "replicas": [SELF, 2, 3],
            }
            for key in self._keys(least=0)
        }
        return states, choice([[SELF, 2, 3], [SELF, 2], [SELF], [2, 3]])


@pytest.fixture
def epochs(tmp_path: Path, zookeeper_server: str) -> Iterator[tuple[str, int, int]]:
    """The address of a broker, its epoch, and a controller epoch above that of its own controller."""
    with running(tmp_path, f"{zookeeper_server}/answers", versions={SELF: "3.9.1"}) as cluster:
        registered = cluster.zk.exists(f"/brokers/ids/{SELF}")
        assert registered is not None
        yield cluster.brokers[SELF].address, registered.czxid, cluster.controller_epoch() + 1


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.kafka_long
def test_it_answers_as_a_real_broker_does(epochs: tuple[str, int, int]) -> None:
    sides, draw = Sides(*epochs), Draw(1, *epochs[1:])
    first: dict[str, Any] = {
        "controller_id": FIRST_CONTROLLER_ID,
        "controller_epoch": epochs[2],
        "broker_epoch": epochs[1],
    }
    assert sides.update(first, {}, [SELF]) == ("NONE", "NONE")
    for number in range(REQUESTS):
        kind, header, drawn = draw.random.choice("llllssuu"), draw.header(), ""
        match kind:
            case "l":
                states, ids = draw.led()
                kafka, own = sides.lead(header, states, ids)
                drawn = f"LeaderAndIsr {states} {ids}"
            case "s":
                states = draw.stopped()
                kafka, own = sides.stop(header, states)
                drawn = f"StopReplica {states}"
            case _:
                states, live = draw.metadata()
                kafka, own = sides.update(header, states, live)
                drawn = f"UpdateMetadata {states} {live}"
        assert own == kafka, f"{number}: {drawn}, {header}"
        theirs, ours = sides.known()
        assert ours == theirs, f"{number}: {drawn}, {header}"
