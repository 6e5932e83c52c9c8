"""The digests that brokers should have, computed from the cluster state.

Kept by blocks of partitions, and computed again only for partitions that changed: they hold the same leadership and
replica objects as long as nothing changes, so a look at an unchanged block compares identities. All of it is done in
slices that yield to the event loop. A standby prepares them for the failover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from controller.core.model import BrokerIds, Cluster, LeaderAndIsr, Partition, Topic
from proto.digest import hosted_item, metadata_item, offline_item, topic_id_item, total_of

#: Partitions hashed before a yield: a few milliseconds.
BLOCK = 500
#: Unchanged blocks compared before a yield.
_UNCHANGED_MAX = 20
#: Partitions that a standby hashes in a second, at most: it is in no hurry.
PREPARED_PER_S = 20_000

#: Waits between two slices.
Turn = Callable[[], Awaitable[None]]


async def _short_turn() -> None:
    await asyncio.sleep(0)


class TopicExpectation(NamedTuple):
    """What UpdateMetadata told every broker of a topic, what LeaderAndIsr told each broker of its replicas, and the
    offline replicas that UpdateMetadata names."""

    metadata: int
    hosted: dict[int, int]
    offline: int


_NOTHING = TopicExpectation(0, {}, 0)


class Totals(NamedTuple):
    """The digests of everything; ``hosted`` by broker."""

    metadata: int
    offline: int
    hosted: dict[int, int]


class _Values(NamedTuple):
    """What decides the digests of some partitions. ``failed``: (broker, partition) of replicas on failed disks."""

    topic_id: str
    numbers: tuple[int, int]
    failed: Sequence[tuple[int, int]]
    replicas: Sequence[BrokerIds]
    states: Sequence[LeaderAndIsr | None]


@dataclass
class _Block:
    """Some partitions of a topic; ``of``: what the digests were computed from; ``brokers``: those with replicas."""

    of: _Values | None = None
    metadata: int = 0
    hosted: dict[int, int] = field(default_factory=dict)
    brokers: frozenset[int] = frozenset()


@dataclass
class _Kept:
    """Of one topic. ``found`` is what it adds to the totals, and what a look finds unless it is ``stale``."""

    blocks: list[_Block] = field(default_factory=list)
    found: TopicExpectation = _NOTHING
    stale: bool = False


class Expected:
    """Several looks may be under way at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[str, _Kept] = {}
        #: Of all topics, as each was looked at last: a look at an unchanged topic adds nothing.
        self._metadata, self._offline, self._hosted = 0, 0, dict[int, int]()

    def follow(self, cluster: Cluster) -> None:
        """From now on the digests are of another cluster state; those of equal partitions are not computed again."""
        self._cluster = cluster

    async def prepare(self, name: str, topic: Topic | None) -> None:
        """Compute a topic's digests ahead, at leisure; None: there is none of that name."""
        if topic is None:
            self._drop(name)
            return
        kept = self._kept.setdefault(name, _Kept())
        for _, part, changed in self._refreshed_blocks(kept, topic, list(topic.partitions.values())):
            await asyncio.sleep(len(part) / PREPARED_PER_S if changed else 0)

    async def refresh(self, turn: Turn = _short_turn) -> Totals:
        """Look at all topics. Other tasks run meanwhile: each partition is looked at once, not all at one moment.
        ``turn`` ends when this may go on."""
        topics = list(self._cluster.topics.values())
        for name in self._kept.keys() - self._cluster.topics.keys():
            self._drop(name)
        for number, topic in enumerate(topics):
            await _giving_way(self._look(topic), turn)
            if number % _UNCHANGED_MAX == 0:
                await turn()
        by_broker = {broker_id: total_of([digest]) for broker_id, digest in self._hosted.items() if digest}
        return Totals(total_of([self._metadata]), total_of([self._offline]), by_broker)

    def _drop(self, name: str) -> None:
        if (kept := self._kept.pop(name, None)) is not None:
            self._add(kept.found, -1)

    def _add(self, found: TopicExpectation, sign: int) -> None:
        self._metadata += sign * found.metadata
        self._offline += sign * found.offline
        for broker_id, digest in found.hosted.items():
            self._hosted[broker_id] = self._hosted.get(broker_id, 0) + sign * digest

    async def topic(self, topic: Topic) -> TopicExpectation:
        """One topic's digests now; a large topic's may be of several moments."""
        return await _giving_way(self._look(topic), _short_turn)

    def _look(self, topic: Topic) -> Iterator[TopicExpectation | None]:
        """None after each slice; in the end the digests."""
        partitions = list(topic.partitions.values())
        kept = self._kept.setdefault(topic.name, _Kept())
        unchanged, offline = 0, 0
        for block, part, changed in self._refreshed_blocks(kept, topic, partitions):
            offline += (here := self._offline_in(block, part))
            if changed or here or (unchanged := unchanged + 1) % _UNCHANGED_MAX == 0:
                yield None
        yield self._found(topic, kept, total_of([offline]))

    def _found(self, topic: Topic, kept: _Kept, offline: int) -> TopicExpectation:
        """What a look found, which is now part of the totals."""
        if not kept.stale and offline == kept.found.offline:
            return kept.found
        found = _combined(topic, kept.blocks, offline)
        # A topic that was dropped meanwhile adds nothing more.
        if self._kept.get(topic.name) is kept:
            self._add(kept.found, -1)
            self._add(found, 1)
        kept.found, kept.stale = found, False
        return found

    def _refreshed_blocks(
        self, kept: _Kept, topic: Topic, partitions: Sequence[Partition]
    ) -> Iterator[tuple[_Block, Sequence[Partition], bool]]:
        """Each block with its partitions, up to date, and whether it had changed."""
        blocks = kept.blocks
        if len(blocks) != (count := -(-len(partitions) // BLOCK)):
            kept.stale = True
            del blocks[count:]
            blocks.extend(_Block() for _ in range(count - len(blocks)))
        # Another look may see more or fewer blocks meanwhile.
        for block, start in zip(blocks[:], range(0, len(partitions), BLOCK), strict=True):
            part = partitions[start : start + BLOCK]
            values = self._values(topic, part)
            if changed := block.of != values:
                kept.stale = True
                self._compute(block, part, values)
            yield block, part, changed

    def _values(self, topic: Topic, part: Sequence[Partition]) -> _Values:
        """Equal lists of the same objects compare fast."""
        failed = [
            (broker_id, p.number)
            for broker_id, lost in self._cluster.offline_dirs.items()
            for p in part
            if p in lost
        ]
        numbers = part[0].number, part[-1].number
        return _Values(topic.id, numbers, failed, [p.replicas for p in part], [p.leadership for p in part])

    def _compute(self, block: _Block, part: Sequence[Partition], values: _Values) -> None:
        before = block.of
        if before is None or before[:-1] != values[:-1]:
            block.metadata, block.hosted = 0, {}
            block.brokers = frozenset(chain.from_iterable(values.replicas))
            before = values._replace(states=[None] * len(part))
        for partition, old, new in zip(part, before.states, values.states, strict=True):
            if old is not new:
                self._count(block, partition, old, -1)
                self._count(block, partition, new, 1)
        block.of = values

    def _count(self, block: _Block, partition: Partition, state: LeaderAndIsr | None, sign: int) -> None:
        """Add what a state adds to the digests, or take it back."""
        if state is None:
            return
        block.metadata += sign * _metadata_item(partition, state)
        hosted = block.hosted
        for broker_id, item in self._host(partition, state):
            hosted[broker_id] = hosted.get(broker_id, 0) + sign * item

    def _offline_in(self, block: _Block, part: Sequence[Partition]) -> int:
        """The offline replicas as messages name them. Not kept: they change with the registered brokers."""
        cluster = self._cluster
        if not cluster.offline_dirs and cluster.all_live(block.brokers):
            return 0
        return sum(
            offline_item(p.topic.name, p.number, [b for b in p.replicas if not cluster.is_online(p, b)])
            for p in part
            if p.leadership is not None
        )

    def _host(self, partition: Partition, state: LeaderAndIsr) -> Iterator[tuple[int, int]]:
        """What LeaderAndIsr tells each broker with a replica on a healthy disk."""
        topic, failed = partition.topic, self._cluster.offline_dirs
        follower = hosted_item(topic.name, partition.number, topic.id, state.leader, state.leader_epoch, None)
        for broker_id in partition.replicas:
            item = follower
            if broker_id == state.leader:
                led_as = state.partition_epoch, state.isr
                item = hosted_item(
                    topic.name, partition.number, topic.id, state.leader, state.leader_epoch, led_as
                )
            if not failed or partition not in failed.get(broker_id, ()):
                yield broker_id, item


def _always_changing() -> None:
    return None


class SharedLook:
    """Looks at all topics, for several askers. ``turn`` ends when a look may go on. ``version``: another one whenever
    the cluster state may have changed, None while it may be changing."""

    def __init__(
        self,
        expected: Expected,
        turn: Turn = _short_turn,
        version: Callable[[], int | None] = _always_changing,
    ) -> None:
        self._expected, self._turn, self._version = expected, turn, version
        #: Looks that began, and the last of them that is done, with what it found.
        self._began = 0
        self._done: tuple[int, Totals] = (0, Totals(0, 0, {}))
        #: The version in which it began; None: it was not known, or another look was cut off since.
        self._of: int | None = None
        self._looking = asyncio.Lock()

    async def totals(self) -> Totals:
        """All topics, as they were at moments after the call, or are since before. Who waits at the same time shares
        one look."""
        needed = self._began + 1
        async with self._looking:
            if self._done[0] < needed and (self._of is None or self._of != self._version()):
                # Others who ask at this moment share it: they ask before it begins.
                await asyncio.sleep(0)
                self._began += 1
                version, self._of = self._version(), None
                self._done = self._began, await self._expected.refresh(self._turn)
                self._of = version
            return self._done[1]


def _metadata_item(partition: Partition, state: LeaderAndIsr) -> int:
    return metadata_item(
        partition.topic.name,
        partition.number,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.isr,
        partition.replicas,
    )


def _combined(topic: Topic, blocks: Sequence[_Block], offline: int) -> TopicExpectation:
    if not any(state is not None for block in blocks if block.of is not None for state in block.of.states):
        return _NOTHING
    hosted: dict[int, int] = {}
    for broker_id, digest in chain.from_iterable(block.hosted.items() for block in blocks):
        hosted[broker_id] = hosted.get(broker_id, 0) + digest
    identity = topic_id_item(topic.name, topic.id)
    return TopicExpectation(
        total_of([identity, *(block.metadata for block in blocks)]),
        {broker_id: total_of([digest]) for broker_id, digest in hosted.items()},
        offline,
    )


async def _giving_way(steps: Iterator[TopicExpectation | None], turn: Turn) -> TopicExpectation:
    found: TopicExpectation | None = None
    for found in steps:
        if found is None:
            await turn()
    assert found is not None
    return found
