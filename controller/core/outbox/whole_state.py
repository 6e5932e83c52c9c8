"""The whole state of a broker, as long as nobody knows what of it the broker holds, and afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controller.core.model import Partition, Topic

#: Partitions that are listed at once.
LISTED_MAX = 5000


class Differing(NamedTuple):
    """Names of the topics of which a broker holds other than the cluster state: of what LeaderAndIsr told it, and
    of what UpdateMetadata did. Also topics that only the broker has."""

    leadership: frozenset[str]
    metadata: frozenset[str]


class Everything(NamedTuple):
    """The whole state of all brokers, not listed yet. ``topics`` and ``deleting`` are the cluster state's own, and
    change with it; ``names``: the topics that there were; ``told_deleting``: metadata is also told of topics under
    deletion."""

    topics: Mapping[str, Topic]
    deleting: Collection[str]
    names: Sequence[str]
    told_deleting: bool = True

    def some(self, start: int) -> tuple[list[Partition], int]:
        """The partitions with a state of the next topics from a position on, and the position after them."""
        found: list[Partition] = []
        while start < len(self.names) and len(found) < LISTED_MAX:
            found += self.partitions([self.names[start]])
            start += 1
        return found, start

    def is_told(self, partition: Partition, broker_id: int) -> bool:
        """Whether the broker has a replica, and the topic is not under deletion."""
        topic = partition.topic
        return broker_id in partition.replicas and topic.name not in self.deleting and not topic.deleted

    def partitions(self, names: Collection[str]) -> Iterator[Partition]:
        """Those with a state, of these topics."""
        topics, left_out = self.topics, () if self.told_deleting else self.deleting
        # In an order that is the same in each run.
        chosen = (topics[n] for n in sorted(names) if n in topics and n not in left_out)
        return (p for topic in chosen for p in topic.partitions.values() if p.leadership is not None)

    def leadership(self, broker_id: int, names: Collection[str]) -> Iterator[Partition]:
        """Those of which a broker has a replica, without topics under deletion."""
        return (p for p in self.partitions(names) if self.is_told(p, broker_id))


class Snapshot:
    """The partitions of a full metadata snapshot, shared by the brokers that receive it; until it is listed, none.

    ``left_out``: those that vanished since, and those that changed: the stream has them, and it may be sent before.
    """

    def __init__(
        self, number: int, partitions: list[Partition], everything: Everything | None = None
    ) -> None:
        self.number = number
        self.partitions, self._everything = partitions, everything
        self._listed = 0
        self.left_out: set[Partition] = set()

    def list_some(self) -> bool:
        """For a broker that gets all of it: list the next topics. Whether there are more."""
        everything = self._everything
        if everything is None:
            return False
        found, self._listed = everything.some(self._listed)
        self.partitions += [p for p in found if p not in self.left_out]
        if self._listed >= len(everything.names):
            self._everything = None
        return self._everything is not None

    def of(self, names: Collection[str]) -> list[Partition]:
        """The partitions of these topics."""
        if not names:
            return []
        if self._everything is not None:
            found: Iterable[Partition] = self._everything.partitions(names)
        else:
            found = (p for p in self.partitions if p.topic.name in names)
        return [p for p in found if p not in self.left_out]
