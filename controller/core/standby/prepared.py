"""What a standby keeps ready for its failover: topics and partitions as they are once every replica is online.

So a failover looks only at what is otherwise: partitions without a leader, those with a replica on a broker that is not
registered, and those that could not be kept up to date. The runtime keeps it (docs/adr/0019); after the election the
controller takes the objects over, there is no second copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from controller.core.model import (
    Broker,
    LeaderAndIsr,
    Partition,
    PartitionState,
    ReplicaState,
    Topic,
    lacks_directory,
    uniform_states,
)

#: Sets of brokers that are kept for sharing, beside twice as many as there are topics.
KNOWN_MIN = 1000


class _Extent(msgspec.Struct, frozen=True):
    """What a topic's assignment adds to the sums. ``brokers``: those with a replica of it."""

    brokers: frozenset[int]
    replicas: int


class Prepared:
    """Topics with the states of their partitions, and an index of what a failover has to look at."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        #: Replicas of all topics.
        self.replicas = 0
        #: Topics that a failover has to read itself: its znode tells more than an assignment, or another has its id.
        self.special: set[str] = set()
        self._extents: dict[str, _Extent] = {}
        self._known_brokers: dict[frozenset[int], frozenset[int]] = {}
        #: Topics with replicas on a broker.
        self._topics_on: Counter[int] = Counter()
        #: Without a state, without a leader, or led by a broker that is not among the replicas.
        self._odd: dict[Partition, None] = {}
        #: (broker id, directory) with which members got in sync (docs/adr/0017); also of former states.
        self._directories: set[tuple[int, int]] = set()

    # the standby

    def put(self, topic: Topic) -> list[Partition]:
        """Add a topic just read, without states, or replace it: partitions of the same incarnation keep theirs. Returns
        the partitions whose state is to be read."""
        before = self.withdraw(topic.name)
        known = before.partitions if before is not None and before.czxid == topic.czxid else {}
        unknown: list[Partition] = []
        for number, partition in topic.partitions.items():
            partition.state = PartitionState.ONLINE
            partition.replica_states = uniform_states(ReplicaState.ONLINE, len(partition.replicas))
            held = known.get(number)
            self.keep(partition, held.leadership if held is not None else None)
            if partition.leadership is None:
                unknown.append(partition)
        brokers = frozenset(b for p in topic.partitions.values() for b in p.replicas)
        if len(self._known_brokers) > 2 * len(self._extents) + KNOWN_MIN:
            self._known_brokers = {extent.brokers: extent.brokers for extent in self._extents.values()}
        brokers = self._known_brokers.setdefault(brokers, brokers)
        extent = _Extent(brokers, sum(len(p.replicas) for p in topic.partitions.values()))
        self.topics[topic.name], self._extents[topic.name] = topic, extent
        self.replicas += extent.replicas
        self._topics_on.update(brokers)
        self._know_id(topic)
        return unknown

    def _know_id(self, topic: Topic) -> None:
        holder = self.by_id.setdefault(topic.id, topic) if topic.id else topic
        if not topic.id:
            self.special.add(topic.name)
        elif holder is not topic:
            self.special.update((topic.name, holder.name))

    def keep(self, partition: Partition, state: LeaderAndIsr | None) -> None:
        """The state of a partition, as it was just read; None: there is none that makes sense."""
        partition.leadership = state
        if state is None:
            partition.topic.complete = False
            self._odd[partition] = None
            return
        if state.leader not in partition.replicas:
            self._odd[partition] = None
        elif self._odd:
            self._odd.pop(partition, None)
        if state.directories:
            self._directories.update(zip(state.isr, state.directories, strict=True))

    def withdraw(self, name: str) -> Topic | None:
        """Take a topic out; None: it is not known."""
        self.special.discard(name)
        topic = self.topics.pop(name, None)
        if topic is None:
            return None
        extent = self._extents.pop(name)
        self.replicas -= extent.replicas
        self._topics_on.subtract(extent.brokers)
        for broker_id in extent.brokers:
            if not self._topics_on[broker_id]:
                del self._topics_on[broker_id]
        if self.by_id.get(topic.id) is topic:
            del self.by_id[topic.id]
        for partition in topic.partitions.values() if self._odd else ():
            self._odd.pop(partition, None)
        return topic

    def __contains__(self, name: str) -> bool:
        return name in self._extents

    def partition(self, name: str, number: int) -> Partition | None:
        topic = self.topics.get(name)
        return topic.partitions.get(number) if topic is not None else None

    def close(self, stale: Iterable[Partition]) -> None:
        """Before the failover: the states of ``stale`` are not known any more."""
        for topic in self.topics.values():
            topic.complete = True
        for partition in [*stale, *self.unread()]:
            self.keep(partition, None)

    # the failover

    def unread(self) -> list[Partition]:
        """The partitions whose state is to be read."""
        return [p for p in self._odd if p.leadership is None]

    def unsettled(self, brokers: Mapping[int, Broker], *, everything: bool) -> list[Partition]:
        """The partitions that a failover has to look at, with these brokers registered; the others are as they must
        be. They get the states of partitions that nobody has looked at yet."""
        found = dict(self._odd)
        whole = self._extents if everything or self._data_lost(brokers) else self.hosted_elsewhere(brokers)
        found.update(dict.fromkeys(self._partitions(whole)))
        for partition in found:
            partition.state = PartitionState.NON_EXISTENT
            partition.replica_states = uniform_states(ReplicaState.NON_EXISTENT, len(partition.replicas))
        return list(found)

    def hosted_elsewhere(self, brokers: Mapping[int, Broker]) -> list[str]:
        """The topics that have replicas on other brokers than these."""
        absent = self._topics_on.keys() - brokers.keys()
        return [n for n, e in self._extents.items() if not absent.isdisjoint(e.brokers)] if absent else []

    def _partitions(self, names: Iterable[str]) -> Iterator[Partition]:
        return (p for name in names for p in self.topics[name].partitions.values())

    def _data_lost(self, brokers: Mapping[int, Broker]) -> bool:
        """Whether a broker lacks a directory with which it got in sync."""

        def lacking() -> bool:
            return any(lacks_directory(brokers.get(id_), directory) for id_, directory in self._directories)

        if not lacking():
            return False
        # Perhaps one of former states only: a disk that was replaced long ago concerns nobody any more.
        states = (p.leadership for p in self._partitions(self._extents))
        known = {(s.isr, s.directories) for s in states if s is not None and s.directories}
        self._directories = {
            pair for isr, directories in known for pair in zip(isr, directories, strict=True)
        }
        return lacking()
