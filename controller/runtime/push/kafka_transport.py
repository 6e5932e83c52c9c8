"""Control requests over Kafka's protocol, for brokers without a listener named GRPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from controller.core.model import Broker, Cluster, Endpoint
from controller.core.outbox import Push
from controller.runtime.kafka.connection import Connection, ConnectionFailedError
from controller.runtime.kafka.control_requests import (
    API_KEYS,
    ControlRequests,
    UnsupportedBrokerError,
    Versions,
    control_versions,
)
from controller.runtime.kafka.endpoints import Addresses, Listeners
from controller.runtime.kafka.listeners import NoListenerError, control_endpoint
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.kafka.topic_ids import uuid_bytes
from controller.runtime.push.transport import Answer, PartitionError, UnreachableError
from proto.gen.kafka.leader_and_isr_response import LeaderAndIsrResponse
from proto.gen.kafka.stop_replica_response import StopReplicaResponse
from proto.gen.kafka.update_metadata_response import UpdateMetadataResponse
from proto.kafka.apis import ApiKey, Message


class KafkaSide(NamedTuple):
    """How Kafka brokers are reached, and how they reach this controller. ``own_addresses``: empty if they do not."""

    listeners: Listeners
    security: ClientSecurity
    own_addresses: Addresses


class KafkaTransports:
    """The transports to Kafka brokers of one term. ``bytes_max`` limits the partitions of each message."""

    def __init__(self, cluster: Cluster, bytes_max: int, timeout_s: float, side: KafkaSide) -> None:
        self.requests = ControlRequests(cluster, bytes_max, side.listeners, side.own_addresses)
        self._cluster, self._client_id = cluster, str(cluster.controller_id)
        self._timeout_s = timeout_s
        self._side = side
        #: The APIs of the broker that was connected to last, with its versions.
        self.apis: dict[int, range] = {}
        #: Brokers older than 3.0, which look for their controller's address under /brokers/ids.
        self.older_than_3: set[int] = set()

    def open(self) -> KafkaTransport:
        connection = Connection(self._client_id, self._side.security, self._timeout_s)
        return KafkaTransport(self, connection, self._side.listeners)

    def connected(self, broker: Broker, apis: Mapping[int, range]) -> None:
        self.apis = dict(apis)
        if ApiKey.ALLOCATE_PRODUCER_IDS in apis:
            self.older_than_3.discard(broker.id)
        else:
            self.older_than_3.add(broker.id)

    def own_registration(self) -> tuple[list[Endpoint], str | None]:
        """Endpoints and rack of this controller for ``own_registration``; no endpoints while no broker needs it."""
        needed = not self.older_than_3.isdisjoint(self._cluster.brokers)
        return self.requests.own_node() if needed else ([], None)

    def forget(self) -> None:
        self.requests.forget()


class KafkaTransport:
    """The connection to one broker. Its versions are those of its first connection: a new process of the broker has a
    new broker epoch, and so a new transport."""

    def __init__(self, shared: KafkaTransports, connection: Connection, listeners: Listeners) -> None:
        self._shared, self._connection, self._listeners = shared, connection, listeners
        self._versions: Versions = {}

    async def connect(self, broker: Broker) -> None:
        try:
            endpoint = control_endpoint(broker, self._listeners)
            await self._connection.open(endpoint.host, endpoint.port)
            if not self._versions:
                self._versions = control_versions(broker.id, self._connection.versions)
                self._shared.connected(broker, self._connection.versions)
        except (ConnectionFailedError, NoListenerError, UnsupportedBrokerError) as error:
            raise UnreachableError(str(error)) from None

    def build(self, push: Push) -> Iterator[tuple[bytes, int]]:
        return self._shared.requests.build(push, self._versions)

    async def send(self, broker: Broker, push: Push, message: bytes) -> Answer:
        await self.connect(broker)
        version = self._versions[push.kind]
        if version not in self._connection.versions.get(API_KEYS[push.kind], ()):
            raise UnreachableError(
                f"broker {broker.id} does not speak version {version} of {push.kind.value} any more:"
                " it waits to be registered again"
            )
        try:
            response = await self._connection.exchange(message)
        except ConnectionFailedError as error:
            raise UnreachableError(str(error)) from None
        return _answer(push, response)

    async def close(self) -> None:
        await self._connection.close()


def _answer(push: Push, response: Message) -> Answer:
    match response:
        case LeaderAndIsrResponse():
            # A topic without an id is not told from another such topic: its errors count, but name no topic.
            names = {uuid_bytes(p.topic.id): p.topic.name for p in push.partitions if p.topic.id}
            errors = [
                PartitionError(names.get(topic.topic_id, ""), e.partition_index, e.error_code)
                for topic in response.topics
                for e in topic.partition_errors
            ]
            # Up to version 4, without topic ids.
            errors += [
                PartitionError(e.topic_name, e.partition_index, e.error_code)
                for e in response.partition_errors
            ]
            return Answer(response.error_code, errors)
        case StopReplicaResponse():
            return Answer(
                response.error_code,
                [
                    PartitionError(e.topic_name, e.partition_index, e.error_code)
                    for e in response.partition_errors
                ],
            )
        case UpdateMetadataResponse():
            return Answer(response.error_code)
    raise AssertionError(type(response))
