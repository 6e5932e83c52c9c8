"""When which partition state znodes are compared with the cluster state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from controller.core.model import Cluster, Partition

#: State znodes read at once, each second: the bound on the load. A million partitions take 500 seconds.
STATES_MAX = 2000


class StateRounds:
    """All partitions, in rounds of ``interval_s`` seconds: some each second."""

    def __init__(self, cluster: Cluster, interval_s: float) -> None:
        self._cluster, self._interval_s = cluster, interval_s
        self._round: Iterator[Partition] = iter(())
        self._size = 0

    def next(self) -> list[Partition]:
        """The next partitions to compare; empty between two rounds."""
        found = list(islice(self._round, self._size))
        if not found:
            total = sum(len(topic.partitions) for topic in self._cluster.topics.values())
            self._size = min(max(-(-total // max(int(self._interval_s) - 1, 1)), 100), STATES_MAX)
            self._round = self._begin()
        return found

    def _begin(self) -> Iterator[Partition]:
        """Topics that come meanwhile are in the next round."""
        for topic in list(self._cluster.topics.values()):
            yield from list(topic.partitions.values())
