"""Serialisation of pushes: content that goes to many brokers is serialised once.

Protobuf messages concatenate: a request is its header's bytes, followed by the bytes of each partition's entry
(``entries``). So one chunk of metadata is encoded once for all brokers; only the short header differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.core.model import Broker, Cluster, Partition
from controller.core.outbox import Push, PushKind
from controller.core.partitions.replica_state_machine import stop_leader_epoch
from controller.runtime.push import entries
from controller.runtime.shared_chunks import SharedChunks
from proto.gen import broker_control_pb2 as pb


class MessageBuilder:
    """Builds the requests of one term. ``bytes_max`` limits the partition entries of each message, in bytes."""

    def __init__(self, cluster: Cluster, bytes_max: int) -> None:
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._chunks = SharedChunks[tuple[int, ...], list[tuple[bytes, int]]]()
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
        """Free the chunks that are kept, once nothing is pending for any broker."""
        self._chunks.clear()

    # LeaderAndIsr

    def _leader_and_isr(self, push: Push) -> Iterator[tuple[bytes, int]]:
        header = pb.LeaderAndIsrRequest(
            controller_id=self._cluster.controller_id,
            controller_epoch=self._cluster.controller_epoch,
            broker_epoch=push.broker.epoch,
            event_id=push.event_id,
        ).SerializeToString()
        known = [p for p in push.partitions if p.leadership is not None]
        frames = [
            entries.leader_and_isr(p, p.leadership, is_new)
            for p, is_new in zip(push.partitions, push.flags, strict=True)
            if p.leadership is not None
        ]
        for start, stop in self._parts(frames):
            part = known[start:stop]
            extra = pb.LeaderAndIsrRequest(
                topic_ids=_topic_ids(part), live_leaders=self._leaders(part)
            ).SerializeToString()
            yield b"".join((header, extra, *frames[start:stop])), stop - start

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
        chunk = self._chunks.get(push.shared_key)
        if chunk is None:
            chunk = list(self._metadata_parts(push.partitions))
            if push.shared_key is not None:
                self._chunks.keep(push.shared_key, chunk, sum(len(body) for body, _ in chunk))
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
            frames = [
                entries.metadata(cluster, p, p.leadership, live) for p in part if p.leadership is not None
            ]
            for start, stop in self._parts(frames):
                extra = pb.UpdateMetadataRequest(topic_ids=_topic_ids(part[start:stop])).SerializeToString()
                yield b"".join((extra, *frames[start:stop])), stop - start

    def _live_brokers(self, version: int) -> bytes:
        if self._brokers_part[0] != version:
            message = pb.UpdateMetadataRequest(
                live_brokers=[
                    pb.LiveBroker(
                        broker_id=b.id,
                        rack=b.rack,
                        endpoints=endpoints_of(b),
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
            entries.stop_replica(p, stop_leader_epoch(p, cluster.is_deleting(p)), delete)
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


def endpoints_of(broker: Broker) -> list[pb.Endpoint]:
    return [
        pb.Endpoint(listener=e.listener, security_protocol=e.security_protocol, host=e.host, port=e.port)
        for e in broker.endpoints
    ]
