"""Metadata that is encoded once and sent to many brokers, each of which needs it at another time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

#: Bytes that are kept: some hundred chunks, as brokers are far apart while each gets a million partitions (ADR 3).
BYTES_MAX = 16 * 2**20


class SharedChunks(Generic[K, C]):
    """The newest chunks, up to ``BYTES_MAX``; the newest one always."""

    def __init__(self) -> None:
        self._kept: dict[K, tuple[C, int]] = {}
        self._bytes = 0

    def get(self, key: K | None) -> C | None:
        """None: it is not kept, or is shared with nobody."""
        found = None if key is None else self._kept.get(key)
        return None if found is None else found[0]

    def keep(self, key: K, chunk: C, size: int) -> None:
        """``size``: its bytes. A key is kept once, while it is not there."""
        self._kept[key] = chunk, size
        self._bytes += size
        while self._bytes > BYTES_MAX and len(self._kept) > 1:
            self._bytes -= self._kept.pop(next(iter(self._kept)))[1]

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0
