"""The metadata cache: the whole cluster as sent by the controller (reference, section 10.2). Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker_stub.control.requests import (
    LEADER_DURING_DELETE,
    Key,
    LiveBroker,
    Malformed,
    MetadataUpdate,
    PartitionMetadata,
)
from proto.digest import Digest, metadata_item, offline_item, topic_id_item


class Merged(NamedTuple):
    """The effect of an update: number of partitions set, partitions removed, malformed parts."""

    updated: int
    removed: list[Key]
    malformed: list[Malformed]


class MetadataCache:
    """Live brokers, controller, partitions and topic ids, as of the last UpdateMetadata.

    Partitions are stored per topic and merged in place: the cost of an update depends on its size, not on the cache.
    """

    def __init__(self) -> None:
        self.controller_id = -1
        self.live_brokers: dict[int, LiveBroker] = {}
        self._topics: dict[str, dict[int, PartitionMetadata]] = {}
        self._topic_ids: dict[str, str] = {}
        #: It covers all partitions, and the ids of topics with partitions.
        self.digest = Digest()
        #: It covers the offline replicas of all partitions.
        self.offline = Digest()
        #: Partitions, by topic, in the full snapshot received so far; None: no snapshot is being received.
        self._in_snapshot: dict[str, set[int]] | None = None

    def is_live(self, broker_id: int) -> bool:
        """Whether the controller counts this broker as live."""
        return broker_id in self.live_brokers

    def begin_snapshot(self) -> None:
        """A full metadata snapshot follows. Until its end the cache keeps its content: clients need it."""
        self._in_snapshot = {}

    def abandon_snapshot(self) -> None:
        """A part of the snapshot was malformed: a partition missing from it may exist, so its end removes nothing."""
        self._in_snapshot = None

    def merge(self, controller_id: int, update: MetadataUpdate) -> Merged:
        """Apply an admitted update: replace brokers and controller, merge partitions.

        Leader -2 removes a partition, and the topic with its last one. No epochs are compared: the last write
        wins. A topic that the update names without an id loses its cached id. The end of a full snapshot removes the
        partitions that are missing from it: they were deleted while no controller could notify us. One of some topics
        removes nothing of others.
        """
        self.controller_id = controller_id
        self.live_brokers = {broker.broker_id: broker for broker in update.live_brokers}
        for topic, topic_id in update.topic_ids.items():
            self._identify(topic, topic_id)
        merged = Merged(0, [], [])
        updated = 0
        for item in update.partitions:
            if isinstance(item, Malformed):
                merged.malformed.append(item)
            elif item.leader == LEADER_DURING_DELETE:
                self._remove(item.key)
                merged.removed.append(item.key)
            else:
                topic, partition = item.key
                self._put(item)
                if self._in_snapshot is not None:
                    self._in_snapshot.setdefault(topic, set()).add(partition)
                updated += 1
        if merged.malformed:
            self.abandon_snapshot()
        elif update.ends_snapshot:
            merged.removed.extend(self._end_snapshot(update.snapshot_of))
        return merged._replace(updated=updated)

    def _end_snapshot(self, of: frozenset[str] | None) -> list[Key]:
        """Remove the partitions that the snapshot does not contain. ``of``: its topics, None: all. Returns them."""
        in_snapshot, self._in_snapshot = self._in_snapshot, None
        if in_snapshot is None:
            return []
        missing = [
            (topic, partition)
            for topic, partitions in self._topics.items()
            if of is None or topic in of
            for partition in sorted(partitions.keys() - in_snapshot.get(topic, frozenset()))
        ]
        for key in missing:
            self._remove(key)
        return missing

    def _put(self, item: PartitionMetadata) -> None:
        topic, partition = item.key
        partitions = self._topics.get(topic)
        if partitions is None:
            partitions = self._topics[topic] = {}
            self.digest.replace(topic, 0, topic_id_item(topic, self._topic_ids.get(topic, "")))
        before = partitions.get(partition)
        partitions[partition] = item
        # A full snapshot mostly repeats what is known.
        if before is None or _told(before) != _told(item):
            self.digest.replace(topic, _item(before) if before else 0, _item(item))
        if item.offline_replicas or (before is not None and before.offline_replicas):
            self.offline.replace(topic, _offline(before) if before else 0, _offline(item))

    def _identify(self, topic: str, topic_id: str | None) -> None:
        before = self._topic_ids.pop(topic, "")
        if topic_id is not None:
            self._topic_ids[topic] = topic_id
        if topic in self._topics and before != (topic_id or ""):
            self.digest.replace(topic, topic_id_item(topic, before), topic_id_item(topic, topic_id or ""))

    def _remove(self, key: Key) -> None:
        topic, partition = key
        partitions = self._topics.get(topic, {})
        before = partitions.pop(partition, None)
        if before is not None:
            self.digest.replace(topic, _item(before), 0)
            self.offline.replace(topic, _offline(before), 0)
        if not partitions:
            self._identify(topic, None)
            self._topics.pop(topic, None)

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """A partition's metadata; None: unknown partition."""
        return self._topics.get(topic, {}).get(partition)

    def topics(self) -> list[str]:
        """Names of the topics with partitions, sorted."""
        return sorted(self._topics.copy())

    def partitions(self, topic: str) -> list[PartitionMetadata]:
        """The partitions of a topic by number; empty when it is unknown."""
        return [item for _, item in sorted(self._topics.get(topic, {}).copy().items())]

    def address(self, broker_id: int, listener: str = "GRPC") -> tuple[str, int] | None:
        """Host and port of a live broker's listener; None when it is not live or has no such listener."""
        broker = self.live_brokers.get(broker_id)
        if broker is None:
            return None
        return next(((e.host, e.port) for e in broker.endpoints if e.listener == listener), None)

    def topic_id(self, topic: str) -> str | None:
        """The topic's id; None: the controller sent none."""
        return self._topic_ids.get(topic)

    def describe(self) -> dict[str, Any]:
        """The whole cache as JSON-ready values: ``controller_id``, ``brokers`` by id, ``topics`` by name."""
        return {
            "controller_id": self.controller_id,
            "brokers": {
                broker.broker_id: {"endpoints": [e._asdict() for e in broker.endpoints], "rack": broker.rack}
                for broker in sorted(self.live_brokers.values())
            },
            "topics": {
                topic: {
                    "topic_id": self._topic_ids.get(topic),
                    "partitions": {
                        number: {name: value for name, value in item._asdict().items() if name != "key"}
                        for number, item in sorted(partitions.items())
                    },
                }
                for topic, partitions in sorted(self._topics.items())
            },
        }


def _told(item: PartitionMetadata) -> tuple[object, ...]:
    """What the digest covers of a partition's metadata."""
    return item.leader, item.leader_epoch, item.partition_epoch, item.isr, item.replicas


def _item(item: PartitionMetadata) -> int:
    return metadata_item(
        *item.key, item.leader, item.leader_epoch, item.partition_epoch, item.isr, item.replicas
    )


def _offline(item: PartitionMetadata) -> int:
    return offline_item(*item.key, item.offline_replicas)
