"""LeaderAndIsr, UpdateMetadata and StopReplica as Kafka brokers take them (Kafka's ``ControllerBrokerRequestBatch``).

What is the same for several brokers is encoded once: an UpdateMetadata differs between brokers only in its broker
epoch, and a partition's LeaderAndIsr only if the replica is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from controller.core.model import (
    LEADER_DURING_DELETE,
    RECOVERED,
    BrokerIds,
    Cluster,
    Endpoint,
    LeaderAndIsr,
    Partition,
    Topic,
)
from controller.core.outbox import Push, PushKind
from controller.core.partitions.replica_state_machine import stop_leader_epoch
from controller.errors import ControllerError
from controller.runtime.kafka.endpoints import Addresses, Listeners, kafka_brokers, own_rack
from controller.runtime.kafka.listeners import own_endpoints
from controller.runtime.kafka.topic_ids import uuid_bytes
from controller.runtime.shared_chunks import SharedChunks
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
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from proto.kafka.apis import ApiKey, Message, encode_request
from proto.kafka.primitives import Structure

API_KEYS: dict[PushKind, ApiKey] = {
    PushKind.LEADER_AND_ISR: ApiKey.LEADER_AND_ISR,
    PushKind.UPDATE_METADATA: ApiKey.UPDATE_METADATA,
    PushKind.STOP_REPLICA: ApiKey.STOP_REPLICA,
}
#: The versions that are built: from those of Kafka 2.6 on.
VERSIONS: dict[PushKind, range] = {
    PushKind.LEADER_AND_ISR: range(4, 8),
    PushKind.UPDATE_METADATA: range(6, 9),
    PushKind.STOP_REPLICA: range(3, 5),
}
#: The first LeaderAndIsr with a leader recovery state (KIP-704).
_RECOVERY_SINCE = 6
#: Numbers of Kafka's ``SecurityProtocol``.
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

#: Bytes of a topic's entry besides its name and partitions, at most.
_TOPIC_BYTES = 24
_ENTRIES_MAX = 200_000

Versions = Mapping[PushKind, int]


class UnsupportedBrokerError(ControllerError):
    """A broker speaks no version of a control request that this controller speaks."""


def control_versions(broker_id: int, spoken: Mapping[int, range]) -> Versions:
    """The newest version of each control request that both sides speak. ``spoken``: the broker's, by API key. Raises
    UnsupportedBrokerError."""
    found: dict[PushKind, int] = {}
    for kind, ours in VERSIONS.items():
        theirs = spoken.get(API_KEYS[kind], range(0))
        newest = min(ours.stop, theirs.stop) - 1
        if newest not in ours or newest not in theirs:
            has = f"{theirs.start} to {theirs.stop - 1}" if theirs else "no version"
            raise UnsupportedBrokerError(
                f"broker {broker_id} speaks {has} of {kind.value};"
                f" this controller speaks {ours.start} to {ours.stop - 1}"
            )
        found[kind] = newest
    return found


class _Encoded(Structure, gc=False):
    """A structure that was encoded before."""

    data: bytes

    def write(self, out: bytearray, version: int) -> None:  # noqa: ARG002
        out += self.data


def _encoded(structure: Structure, version: int) -> _Encoded:
    out = bytearray()
    structure.write(out, version)
    return _Encoded(bytes(out))


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """The last LeaderAndIsr of a partition that was encoded, and what of. Equal values are mostly the same objects."""

    state: LeaderAndIsr
    replicas: BrokerIds
    adding: BrokerIds
    removing: BrokerIds
    is_new: bool
    version: int
    encoded: _Encoded


class ControlRequests:
    """Builds the requests of one term, with their headers.

    ``bytes_max`` limits the topics and partitions of each request, in bytes. ``own_addresses``: under which
    Kafka brokers reach this controller, or None. It is told to them among the live brokers, because a broker looks up
    its controller's address there (Kafka's ``MetadataCacheControllerNodeProvider``).
    """

    def __init__(
        self, cluster: Cluster, bytes_max: int, listeners: Listeners, own_addresses: Addresses
    ) -> None:
        self._cluster, self._bytes_max = cluster, bytes_max
        self._listeners, self._own_addresses = listeners, own_addresses
        self._client_id = str(cluster.controller_id)
        self._entries: dict[Partition, _Entry] = {}
        self._chunks = SharedChunks[tuple[tuple[int, ...], int], list[tuple[list[_Encoded], int]]]()
        self._live: tuple[int, list[UpdateMetadataBroker]] = (-1, [])

    def build(self, push: Push, versions: Versions) -> Iterator[tuple[bytes, int]]:
        """(request, number of partitions) for one push: several where one request would be too large. The correlation
        id of each is 0."""
        version = versions[push.kind]
        match push.kind:
            case PushKind.LEADER_AND_ISR:
                requests = self._leader_and_isr(push, version)
            case PushKind.UPDATE_METADATA:
                requests = self._update_metadata(push, version)
            case PushKind.STOP_REPLICA:
                requests = self._stop_replica(push, version)
        for request, count in requests:
            yield encode_request(request, version, 0, self._client_id), count

    def own_node(self) -> tuple[list[Endpoint], str | None]:
        """This controller's endpoints and rack, as Kafka brokers learn them; without endpoints they do not."""
        if not self._own_addresses:
            return [], None
        kafka = kafka_brokers(self._cluster)
        return own_endpoints(kafka, self._listeners, self._own_addresses), own_rack(kafka)

    def forget(self) -> None:
        """Free what is kept to be shared, once nothing is pending for any broker."""
        self._entries.clear()
        self._chunks.clear()

    # LeaderAndIsr

    def _leader_and_isr(self, push: Push, version: int) -> Iterator[tuple[Message, int]]:
        cluster = self._cluster
        states = [
            (p, self._leader_and_isr_state(p, p.leadership, is_new, version))
            for p, is_new in zip(push.partitions, push.flags, strict=True)
            if p.leadership is not None
        ]
        for topics, count in self._parts(states):
            # Without live leaders: since 0.10 brokers find their leaders in the metadata.
            yield (
                LeaderAndIsrRequest(
                    controller_id=cluster.controller_id,
                    controller_epoch=cluster.controller_epoch,
                    broker_epoch=push.broker.epoch,
                    topic_states=[
                        LeaderAndIsrTopicState(
                            topic.name,
                            uuid_bytes(topic.id),
                            cast("list[LeaderAndIsrPartitionState]", entries),
                        )
                        for topic, entries in topics.items()
                    ],
                ),
                count,
            )

    def _leader_and_isr_state(
        self, partition: Partition, state: LeaderAndIsr, is_new: bool, version: int
    ) -> _Encoded:
        known = self._entries.get(partition)
        if (
            known is not None
            and known.state is state
            and known.replicas is partition.replicas
            and known.adding is partition.adding
            and known.removing is partition.removing
            and known.is_new is is_new
            and known.version == version
        ):
            return known.encoded
        encoded = _encoded(
            LeaderAndIsrPartitionState(
                partition_index=partition.number,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
                is_new=is_new,
                leader_recovery_state=state.recovery if version >= _RECOVERY_SINCE else RECOVERED,
            ),
            version,
        )
        if len(self._entries) >= _ENTRIES_MAX:
            self._entries.clear()
        self._entries[partition] = _Entry(
            state, partition.replicas, partition.adding, partition.removing, is_new, version, encoded
        )
        return encoded

    # UpdateMetadata

    def _update_metadata(self, push: Push, version: int) -> Iterator[tuple[Message, int]]:
        cluster = self._cluster
        live = self._live_brokers(push.brokers_version, version)
        key = (push.shared_key, version) if push.shared_key is not None else None
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = list(self._metadata_parts(push.partitions, version))
            if key is not None:
                self._chunks.keep(key, chunk, sum(len(t.data) for topics, _ in chunk for t in topics))
        for topics, count in chunk:
            yield (
                UpdateMetadataRequest(
                    controller_id=cluster.controller_id,
                    controller_epoch=cluster.controller_epoch,
                    broker_epoch=push.broker.epoch,
                    topic_states=cast("list[UpdateMetadataTopicState]", topics),
                    live_brokers=live,
                ),
                count,
            )

    def _metadata_parts(
        self, partitions: Sequence[Partition], version: int
    ) -> Iterator[tuple[list[_Encoded], int]]:
        cluster = self._cluster
        live = cluster.live_ids()
        known = [p for p in partitions if p.leadership is not None]
        if not known:
            yield [], 0
            return
        # Removals go first, in requests of their own: a recreated topic has the same name, and a request has one id for
        # each name. A partition deleted twice is listed once.
        removed = list({p.name: p for p in known if cluster.is_deleting(p)}.values())
        for part in (removed, [p for p in known if not cluster.is_deleting(p)]) if removed else (known,):
            states = [(p, _encoded(self._metadata_state(p, live), version)) for p in part]
            for topics, count in self._parts(states):
                encoded = [
                    _encoded(
                        UpdateMetadataTopicState(
                            topic.name,
                            uuid_bytes(topic.id),
                            cast("list[UpdateMetadataPartitionState]", entries),
                        ),
                        version,
                    )
                    for topic, entries in topics.items()
                ]
                yield encoded, count

    def _metadata_state(self, partition: Partition, live: frozenset[int]) -> UpdateMetadataPartitionState:
        cluster = self._cluster
        state = partition.leadership
        assert state is not None
        deleting = cluster.is_deleting(partition)
        offline: list[int] = []
        if cluster.offline_dirs or not live.issuperset(partition.replicas):
            offline = [b for b in partition.replicas if not cluster.is_online(partition, b)]
        # The epochs of a removal: Kafka's ``LeaderAndIsr.duringDelete``.
        return UpdateMetadataPartitionState(
            partition_index=partition.number,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=0 if deleting else state.leader_epoch,
            isr=list(state.isr),
            zk_version=0 if deleting else state.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=offline,
        )

    def _live_brokers(self, brokers_version: int, version: int) -> list[UpdateMetadataBroker]:
        # Encoded alike in all versions from 3 on.
        if self._live[0] != brokers_version:
            encoded = [_encoded(broker, version) for broker in self._all_live_brokers()]
            self._live = (brokers_version, cast("list[UpdateMetadataBroker]", encoded))
        return self._live[1]

    def _all_live_brokers(self) -> Iterator[UpdateMetadataBroker]:
        cluster = self._cluster
        # Without brokers led by gRPC: a Kafka broker that creates a topic automatically would give them replicas.
        for broker in kafka_brokers(cluster):
            yield _live_broker(broker.id, broker.endpoints, broker.rack)
        if self._own_addresses:
            yield _live_broker(cluster.controller_id, *self.own_node())

    # StopReplica

    def _stop_replica(self, push: Push, version: int) -> Iterator[tuple[Message, int]]:
        cluster = self._cluster
        states = [
            (
                p,
                _encoded(
                    StopReplicaPartitionState(p.number, stop_leader_epoch(p, cluster.is_deleting(p)), delete),
                    version,
                ),
            )
            for p, delete in zip(push.partitions, push.flags, strict=True)
        ]
        for topics, count in self._parts(states):
            yield (
                StopReplicaRequest(
                    controller_id=cluster.controller_id,
                    controller_epoch=cluster.controller_epoch,
                    broker_epoch=push.broker.epoch,
                    topic_states=[
                        StopReplicaTopicState(topic.name, cast("list[StopReplicaPartitionState]", entries))
                        for topic, entries in topics.items()
                    ],
                ),
                count,
            )

    def _parts(
        self, states: Iterable[tuple[Partition, _Encoded]]
    ) -> Iterator[tuple[dict[Topic, list[_Encoded]], int]]:
        """(states by topic, number of partitions) of the parts of a list, in order, each within the size limit."""
        topics: dict[Topic, list[_Encoded]] = {}
        count = size = 0
        for partition, state in states:
            topic = partition.topic
            of_topic = len(topic.name) + _TOPIC_BYTES
            added = len(state.data) + (0 if topic in topics else of_topic)
            if count and size + added > self._bytes_max:
                yield topics, count
                topics, count, size = {}, 0, 0
                added = len(state.data) + of_topic
            topics.setdefault(topic, []).append(state)
            count += 1
            size += added
        if count:
            yield topics, count


def _live_broker(id_: int, endpoints: Iterable[Endpoint], rack: str | None) -> UpdateMetadataBroker:
    known = [
        UpdateMetadataEndpoint(e.port, e.host, e.listener, number)
        for e in endpoints
        if (number := SECURITY_PROTOCOLS.get(e.security_protocol)) is not None
    ]
    return UpdateMetadataBroker(id_, endpoints=known, rack=rack)
