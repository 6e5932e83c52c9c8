"""The partition of a record: by its key, or any. Pure.

The hash is murmur2, as in Kafka's producers, so that a key maps to the same partition.
"""

from __future__ import annotations

from collections.abc import Sequence

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The hash as a signed 32-bit integer."""
    whole = len(data) & ~3
    h = _SEED ^ len(data)
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def partition_for_key(key: bytes, partitions: Sequence[int]) -> int:
    return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]


class StickyPartitioner:
    """Records without a key go to one partition for ``sticky_bytes`` bytes, then to the next one."""

    def __init__(self, sticky_bytes: int = 16_384) -> None:
        self._sticky_bytes = sticky_bytes
        self._index = 0
        self._used = 0

    def choose(self, key: bytes | None, size: int, partitions: Sequence[int]) -> int:
        """The partition for a record of ``size`` bytes."""
        if key is not None:
            return partition_for_key(key, partitions)
        if self._used >= self._sticky_bytes:
            self._index, self._used = self._index + 1, 0
        self._used += size
        return partitions[self._index % len(partitions)]
