"""Metadata that every broker must receive: a stream for all of them, in which each has a position."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from controller.core.model import Partition

#: Positions whose vanished entries are counted together.
BLOCK = 4096
#: So many entries are dropped together, unless there are no others.
FORGOTTEN_MIN = 100_000


class MetadataStream:
    """Changed partitions that every broker must receive, oldest first, each at most once (at its last change)."""

    def __init__(self) -> None:
        self._log: list[Partition | None] = []
        self._latest: dict[Partition, int] = {}
        self._base = 0
        #: How many of the log are None, by block of positions.
        self._gone: dict[int, int] = {}
        #: Incremented when positions are renumbered: (generation, positions) always identifies one slice.
        self.generation = 0

    @property
    def end(self) -> int:
        """Position after the newest change."""
        return self._base + len(self._log)

    def add(self, partitions: Iterable[Partition]) -> None:
        log, latest, base = self._log, self._latest, self._base
        for partition in partitions:
            previous = latest.get(partition)
            if previous is not None:
                self._drop(previous)
            latest[partition] = base + len(log)
            log.append(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions from the stream."""
        if not self._latest:
            return
        for partition in partitions:
            position = self._latest.pop(partition, None)
            if position is not None:
                self._drop(position)

    def _drop(self, position: int) -> None:
        self._log[position - self._base] = None
        block = position // BLOCK
        self._gone[block] = self._gone.get(block, 0) + 1

    def slice(self, start: int, count_max: int) -> tuple[list[Partition], int]:
        """The next changes from a position, and the position after them."""
        stop = min(start + count_max, self.end)
        window = self._log[start - self._base : stop - self._base]
        return [p for p in window if p is not None], stop

    @property
    def forget_from(self) -> int:
        """Where every broker must be for it to be worth while to drop what is before: at the end, or far on."""
        return self._base + min(len(self._log), FORGOTTEN_MIN)

    def forget_before(self, position: int) -> None:
        """Drop entries before a position that every broker has passed."""
        count = position - self._base
        for partition in islice(self._log, count):
            if partition is not None:
                del self._latest[partition]
        del self._log[:count]
        self._base = position
        self._gone = {block: gone for block, gone in self._gone.items() if block >= position // BLOCK}

    def compacted(self, cursors: Iterable[int]) -> dict[int, int] | None:
        """Remove collapsed entries when they outnumber the live ones; returns old to new cursors, None if not needed.

        This bounds the stream by the number of partitions.
        """
        if len(self._log) < 10_000 or len(self._log) < 2 * len(self._latest):
            return None
        moved: dict[int, int] = {}
        live: list[Partition | None] = []
        start = 0
        for cursor in sorted(set(cursors) | {self.end}):
            stop = max(cursor - self._base, 0)
            live.extend(p for p in self._log[start:stop] if p is not None)
            moved[cursor] = self._base + len(live)
            start = stop
        self._log = live
        self.generation += 1
        self._gone = {}
        self._latest = {p: self._base + n for n, p in enumerate(live) if p is not None}
        return moved

    def live_after(self, position: int) -> int:
        """Number of changes after this position."""
        if position <= self._base:
            return len(self._latest)
        if len(self._latest) == len(self._log):
            return self.end - position
        # Each scrape asks that for each broker, and the log is as long as there are partitions.
        block_end = (position // BLOCK + 1) * BLOCK
        gone = self._log[position - self._base : block_end - self._base].count(None)
        gone += sum(count for block, count in self._gone.items() if block * BLOCK >= block_end)
        return self.end - position - gone
