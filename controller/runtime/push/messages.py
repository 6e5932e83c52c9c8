"""Serialisation of pushes: content that goes to many brokers is serialised once.

Protobuf messages concatenate: a request is its header's bytes, followed by the bytes of each partition's entry.
So one partition's LeaderAndIsr entry is encoded once for all its replicas, and one chunk of metadata once for
all brokers; only the short header differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from controller.core.model import LEADER_DURING_DELETE, BrokerIds, Cluster, LeaderAndIsr, Partition
from controller.core.outbox import Push, PushKind
from controller.core.partitions.replica_state_machine import stop_leader_epoch
from proto.gen import broker_control_pb2 as pb

_LeaderAndIsrState = pb.LeaderAndIsrPartitionState
_MetadataState = pb.UpdateMetadataPartitionState

#: The protobuf tag of field ``partition_states`` in each request: number 5, length-delimited.
_ENTRY_TAG = b"\x2a"
#: How many chunks of shared metadata are kept for brokers that need them a little later.
_SHARED_CHUNKS_MAX = 64
_ENTRIES_MAX = 200_000

_IS_NEW = _LeaderAndIsrState(is_new=True).SerializeToString()


def _length_prefix(size: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


_PREFIXES = tuple(_ENTRY_TAG + _length_prefix(size) for size in range(1024))


def _framed(entry: bytes) -> bytes:
    size = len(entry)
    return (_PREFIXES[size] if size < 1024 else _ENTRY_TAG + _length_prefix(size)) + entry


class _Contents(msgspec.Struct, frozen=True, gc=False):
    """The content of a partition's LeaderAndIsr entry, without its name and ``is_new``."""

    state: LeaderAndIsr
    replicas: BrokerIds
    adding: BrokerIds
    removing: BrokerIds

    @classmethod
    def of(cls, partition: Partition) -> _Contents:
        assert partition.leadership is not None
        return cls(partition.leadership, partition.replicas, partition.adding, partition.removing)

    def encoded(self, topic: str, number: int) -> bytes:
        state = self.state
        return _LeaderAndIsrState(
            topic=topic,
            partition=number,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=self.replicas,
            adding_replicas=self.adding,
            removing_replicas=self.removing,
            leader_recovery_state=state.recovery,  # type: ignore[arg-type]
        ).SerializeToString()


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """The last encoding of an entry: ``known`` for an existing replica, ``new`` with ``is_new``."""

    contents: _Contents
    known: bytes
    new: bytes


class MessageBuilder:
    """Builds the requests of one term. ``bytes_max`` limits the partition entries of each message, in bytes."""

    def __init__(self, cluster: Cluster, bytes_max: int) -> None:
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._entries: dict[Partition, _Entry] = {}
        self._chunks: dict[tuple[int, int, int, int], list[tuple[bytes, int]]] = {}
        self._brokers_part: tuple[int, bytes] = (-1, b"")

    def build(self, push: Push) -> Iterator[tuple[bytes, int]]:
        """(message, number of partitions) for one push: several where one message would be too large."""
        match push.kind:
            case PushKind.LEADER_AND_ISR:
                return self._leader_and_isr(push)
            case PushKind.UPDATE_METADATA:
                return self._update_metadata(push)
            case PushKind.STOP_REPLICA:
                return self._stop_replica(push)

    def forget(self) -> None:
        """Free the cached entries and chunks, once nothing is pending for any broker."""
        self._entries.clear()
        self._chunks.clear()

    # LeaderAndIsr

    def _leader_and_isr(self, push: Push) -> Iterator[tuple[bytes, int]]:
        header = pb.LeaderAndIsrRequest(
            controller_id=self._cluster.controller_id,
            controller_epoch=self._cluster.controller_epoch,
            broker_epoch=push.broker.epoch,
            event_id=push.event_id,
        ).SerializeToString()
        known = [
            (p, is_new)
            for p, is_new in zip(push.partitions, push.flags, strict=True)
            if p.leadership is not None
        ]
        frames = [self._leader_and_isr_entry(p, is_new) for p, is_new in known]
        for start, stop in self._parts(frames):
            part = known[start:stop]
            extra = pb.LeaderAndIsrRequest(
                topic_ids=_topic_ids([p for p, _ in part]), live_leaders=self._leaders([p for p, _ in part])
            ).SerializeToString()
            yield b"".join((header, extra, *frames[start:stop])), stop - start

    def _leader_and_isr_entry(self, partition: Partition, is_new: bool) -> bytes:
        contents = _Contents.of(partition)
        entry = self._entries.get(partition)
        if entry is None or entry.contents != contents:
            encoded = contents.encoded(partition.topic.name, partition.number)
            # A field that is false takes no bytes, and fields may come in any order.
            entry = _Entry(contents, _framed(encoded), _framed(encoded + _IS_NEW))
            if len(self._entries) >= _ENTRIES_MAX:
                self._entries.clear()
            self._entries[partition] = entry
        return entry.new if is_new else entry.known

    def _leaders(self, partitions: Sequence[Partition]) -> list[pb.LiveLeader]:
        leaders = {p.leadership.leader for p in partitions if p.leadership is not None}
        return [
            pb.LiveLeader(broker_id=b.id, host=b.control_endpoint.host, port=b.control_endpoint.port)
            for id_ in sorted(leaders)
            if (b := self._cluster.brokers.get(id_)) is not None
        ]

    # UpdateMetadata

    def _update_metadata(self, push: Push) -> Iterator[tuple[bytes, int]]:
        header = pb.UpdateMetadataRequest(
            controller_id=self._cluster.controller_id,
            controller_epoch=self._cluster.controller_epoch,
            broker_epoch=push.broker.epoch,
            event_id=push.event_id,
        ).SerializeToString()
        brokers = self._live_brokers(push.brokers_version)
        chunk = self._chunks.get(push.shared_key) if push.shared_key else None
        if chunk is None:
            chunk = list(self._metadata_parts(push.partitions))
            if push.shared_key is not None:
                if len(self._chunks) >= _SHARED_CHUNKS_MAX:
                    del self._chunks[next(iter(self._chunks))]
                self._chunks[push.shared_key] = chunk
        end = _end_of_snapshot(push) if push.ends_snapshot else b""
        for number, (body, count) in enumerate(chunk, 1):
            yield header + brokers + body + (end if number == len(chunk) else b""), count

    def _metadata_parts(self, partitions: Sequence[Partition]) -> Iterator[tuple[bytes, int]]:
        cluster = self._cluster
        live = cluster.live_ids()
        known = [p for p in partitions if p.leadership is not None]
        if not known:
            yield b"", 0
            return
        # Removals go first, in messages of their own: with a topic's last partition a broker drops the topic's id, and
        # in the same message that could be the id of a recreated topic. A partition deleted twice is listed once.
        removed = list({p.name: p for p in known if cluster.is_deleting(p)}.values())
        for part in (removed, [p for p in known if not cluster.is_deleting(p)]) if removed else (known,):
            frames = [self._metadata_entry(p, live) for p in part]
            for start, stop in self._parts(frames):
                extra = pb.UpdateMetadataRequest(topic_ids=_topic_ids(part[start:stop])).SerializeToString()
                yield b"".join((extra, *frames[start:stop])), stop - start

    def _metadata_entry(self, partition: Partition, live: frozenset[int]) -> bytes:
        cluster = self._cluster
        state = partition.leadership
        assert state is not None
        deleting = cluster.is_deleting(partition)
        if live.issuperset(partition.replicas) and not cluster.offline_dirs:
            offline: Sequence[int] = ()
        else:
            offline = [b for b in partition.replicas if not cluster.is_online(partition, b)]
        return _framed(
            _MetadataState(
                topic=partition.topic.name,
                partition=partition.number,
                controller_epoch=state.controller_epoch,
                leader=LEADER_DURING_DELETE if deleting else state.leader,
                leader_epoch=0 if deleting else state.leader_epoch,
                isr=state.isr,
                partition_epoch=0 if deleting else state.partition_epoch,
                replicas=partition.replicas,
                offline_replicas=offline,
            ).SerializeToString()
        )

    def _live_brokers(self, version: int) -> bytes:
        if self._brokers_part[0] != version:
            message = pb.UpdateMetadataRequest(
                live_brokers=[
                    pb.LiveBroker(
                        broker_id=b.id,
                        rack=b.rack or "",
                        endpoints=[
                            pb.Endpoint(
                                listener=e.listener,
                                security_protocol=e.security_protocol,
                                host=e.host,
                                port=e.port,
                            )
                            for e in b.endpoints
                        ],
                    )
                    for b in self._cluster.brokers.values()
                ]
            )
            self._brokers_part = (version, message.SerializeToString())
        return self._brokers_part[1]

    # StopReplica

    def _stop_replica(self, push: Push) -> Iterator[tuple[bytes, int]]:
        cluster = self._cluster
        header = pb.StopReplicaRequest(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.controller_epoch,
            broker_epoch=push.broker.epoch,
            event_id=push.event_id,
        ).SerializeToString()
        frames = [
            _framed(
                pb.StopReplicaPartitionState(
                    topic=p.topic.name,
                    partition=p.number,
                    leader_epoch=stop_leader_epoch(p, cluster.is_deleting(p)),
                    delete_partition=delete,
                ).SerializeToString()
            )
            for p, delete in zip(push.partitions, push.flags, strict=True)
        ]
        for start, stop in self._parts(frames):
            yield b"".join((header, *frames[start:stop])), stop - start

    def _parts(self, frames: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """(start, stop) of the parts of a list of entries, each within the size limit."""
        start = size = 0
        for index, frame in enumerate(frames):
            if size and size + len(frame) > self._bytes_max:
                yield start, index
                start, size = index, 0
            size += len(frame)
        if start < len(frames):
            yield start, len(frames)


def _end_of_snapshot(push: Push) -> bytes:
    of = None if push.snapshot_of is None else pb.TopicNames(topics=push.snapshot_of)
    return pb.UpdateMetadataRequest(ends_snapshot=True, snapshot_of=of).SerializeToString()


def _topic_ids(partitions: Sequence[Partition]) -> dict[str, str]:
    return {p.topic.name: p.topic.id for p in partitions if p.topic.id}
