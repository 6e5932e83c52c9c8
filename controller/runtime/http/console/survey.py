"""Counts of all partitions, by topic and by broker: made in portions beside the controller's work, kept for a while."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from controller.core.model import Cluster, LeaderAndIsr, Partition
from controller.planning.cluster_health import Tally, Wrong
from controller.runtime.http.min_isr import MinIsr
from controller.runtime.term import Term

#: Partitions counted between two pauses for other work.
AT_ONCE = 2000
#: Between the beginnings of two counts; at least this many times as long as the last one kept the processor busy.
COUNT_EVERY_S, SHARE = 1.0, 10.0
#: Tiles of one map.
TILES_MAX = 1200


class Counts(NamedTuple):
    """Partitions, and how many of them are worst off in each way; ``moving``: being reassigned."""

    partitions: int = 0
    offline: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0
    moving: int = 0

    @property
    def well(self) -> bool:
        return not (self.offline or self.under_min_isr or self.under_replicated)


def total(some: Sequence[Counts]) -> Counts:
    return Counts(*map(sum, zip(*some, strict=True))) if some else Counts()


class Tile(NamedTuple):
    """Neighbours in the order of names or numbers, as one tile of a map. ``size``: topics, or partitions."""

    first: str | int
    last: str | int
    size: int
    counts: Counts


#: The counts of one partition, by the worst that is wrong with it and whether it moves: shared by all.
_ONE = {
    (worst, moving): Counts(
        1,
        int(worst is Wrong.UNAVAILABLE),
        int(worst is Wrong.UNDER_MIN_ISR),
        int(worst is Wrong.UNDER_REPLICATED),
        int(moving),
    )
    for worst in (None, Wrong.UNAVAILABLE, Wrong.UNDER_MIN_ISR, Wrong.UNDER_REPLICATED)
    for moving in (False, True)
}


class OfBroker:
    """Replicas of one broker: how many, how many of them lead, and how many are out of sync."""

    __slots__ = ("led", "out_of_sync", "replicas")

    def __init__(self) -> None:
        self.led = self.replicas = self.out_of_sync = 0


class Survey:
    """One count. ``names``: sorted; ``topics``: parallel to it; ``changes``: the term's, when it began."""

    def __init__(self, registered: Collection[int], changes: int = 0) -> None:
        self.changes = changes
        self.tally = Tally(registered)
        self.names: list[str] = []
        self.topics: list[Counts] = []
        self.brokers: dict[int, OfBroker] = {}
        self.total = Counts()

    def count(self, partition: Partition, min_isr: int, *, deleting: bool = False) -> Counts:
        """``deleting``: its topic is to be deleted."""
        moving = bool(partition.adding or partition.removing)
        return self.count_as(partition, partition.leadership, min_isr, moving=moving, deleting=deleting)

    def count_as(
        self,
        partition: Partition,
        state: LeaderAndIsr | None,
        min_isr: int,
        *,
        moving: bool = False,
        deleting: bool = False,
    ) -> Counts:
        """Count a partition as if this were its leadership."""
        replicas, name = partition.replicas, partition.topic.name
        worst = self.tally.add(name, partition.number, replicas, state, min_isr, deleting=deleting)
        isr = () if state is None else state.isr
        for broker_id in replicas:
            found = self.brokers.get(broker_id) or self.brokers.setdefault(broker_id, OfBroker())
            found.replicas += 1
            found.out_of_sync += worst is not None and broker_id not in isr
            found.led += state is not None and state.leader == broker_id
        return _ONE[worst, moving]

    def within(self, first: str, last: str) -> Iterator[tuple[str, Counts]]:
        """Topics from ``first`` to ``last``; empty: from the first, to the last there is."""
        begin = bisect_left(self.names, first)
        end = bisect_right(self.names, last) if last else len(self.names)
        return zip(self.names[begin:end], self.topics[begin:end], strict=True)


class Surveyor:
    """The last count of the term that leads now; several callers wait for the same one."""

    def __init__(self, min_isr: MinIsr) -> None:
        self._min_isr = min_isr
        self._lock = asyncio.Lock()
        #: The term's controller epoch: a former term must not be kept in memory.
        self._of = 0
        self._last: Survey | None = None
        self._again_at_s = 0.0
        #: What the last count took of the processor, seconds.
        self._worked_s = 0.0

    async def survey(self, term: Term) -> Survey:
        async with self._lock:
            began_s = time.monotonic()
            if self._last is not None and self._of == term.won.epoch and began_s < self._again_at_s:
                return self._last
            await self._min_isr.refresh(term)
            self._last = await self._counted(
                Survey(term.machine.cluster.brokers, term.changes), term.machine.cluster
            )
            self._of = term.won.epoch
            self._again_at_s = began_s + max(COUNT_EVERY_S, SHARE * self._worked_s)
            return self._last

    async def _counted(self, found: Survey, cluster: Cluster) -> Survey:
        since, self._worked_s, resumed_s = 0, 0.0, time.thread_time()
        for name in sorted(cluster.topics):
            # It may have been deleted meanwhile.
            if (topic := cluster.topics.get(name)) is None:
                continue
            min_isr, ones = self._min_isr.of(name), []
            deleting = cluster.deletion_requested(name)
            for partition in list(topic.partitions.values()):
                ones.append(found.count(partition, min_isr, deleting=deleting))
                since += 1
                if since >= AT_ONCE:
                    since = 0
                    self._worked_s += time.thread_time() - resumed_s
                    await asyncio.sleep(0)
                    resumed_s = time.thread_time()
            found.names.append(name)
            found.topics.append(total(ones))
        found.total = total(found.topics)
        self._worked_s += time.thread_time() - resumed_s
        return found


def tiles(cells: Sequence[tuple[str | int, Counts]], tiles_max: int) -> list[Tile]:
    """At most so many tiles, each of as many neighbours as the others."""
    per_tile = max(-(-len(cells) // tiles_max), 1)
    made = []
    for begin in range(0, len(cells), per_tile):
        some = cells[begin : begin + per_tile]
        made.append(Tile(some[0][0], some[-1][0], len(some), total([counts for _, counts in some])))
    return made
