"""The committed offsets of one group: pending (being appended) and visible (in the log). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker_stub.control.requests import Key
from broker_stub.group.messages import OffsetValue


class GroupOffsets:
    """Offsets become visible when they are in the log. The last one in the log wins, in whatever order appends end."""

    def __init__(self, values: Mapping[Key, OffsetValue] | None = None) -> None:
        self._committed = dict(values or {})
        #: Number of the commit of each visible offset; 0: loaded. A greater number is later in the log.
        self._sequences: dict[Key, int] = {}
        #: Numbers of pending commits, by partition.
        self._pending: dict[Key, set[int]] = {}
        self._last_sequence = 0

    def __bool__(self) -> bool:
        """Whether there is any offset, visible or pending."""
        return bool(self._committed or self._pending)

    def __len__(self) -> int:
        return len(self._committed)

    def get(self, key: Key) -> OffsetValue | None:
        """The visible offset of a partition."""
        return self._committed.get(key)

    def partitions(self) -> list[Key]:
        """Partitions with a visible offset, sorted."""
        return sorted(self._committed)

    def begin(self, keys: Iterable[Key]) -> int:
        """A commit is about to be appended. Returns its number; numbers follow the order in the log."""
        self._last_sequence += 1
        for key in keys:
            self._pending.setdefault(key, set()).add(self._last_sequence)
        return self._last_sequence

    def complete(self, sequence: int, values: Mapping[Key, OffsetValue]) -> None:
        """The commit is in the log. Partitions that were removed, or have a later commit, do not change."""
        for key, value in values.items():
            if self._end(key, sequence) and self._sequences.get(key, 0) < sequence:
                self._committed[key], self._sequences[key] = value, sequence

    def fail(self, sequence: int, keys: Iterable[Key]) -> None:
        """The append failed: the commit may or may not be in the log, and does not become visible."""
        for key in keys:
            self._end(key, sequence)

    def remove(self, keys: Collection[Key]) -> list[Key]:
        """Remove these partitions, including pending commits. Returns those that had an offset or a pending commit."""
        removed = sorted(key for key in keys if key in self._committed or key in self._pending)
        for key in removed:
            self._committed.pop(key, None)
            self._sequences.pop(key, None)
            self._pending.pop(key, None)
        return removed

    def _end(self, key: Key, sequence: int) -> bool:
        """Whether the commit was still pending for this partition."""
        numbers = self._pending.get(key)
        if numbers is None or sequence not in numbers:
            return False
        numbers.remove(sequence)
        if not numbers:
            del self._pending[key]
        return True
