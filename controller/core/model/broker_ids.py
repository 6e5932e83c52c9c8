"""Tuples of ids: of brokers, of their data directories. They repeat endlessly, so they are shared."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable

#: "No leader" in a partition state, and "epoch unknown".
NO_LEADER = -1
NO_EPOCH = -1
#: Leader and leader epoch sent for a topic that is being deleted (reference, section 9.1).
LEADER_DURING_DELETE = -2

BrokerIds = tuple[int, ...]
#: Short ids of data directories (docs/adr/0017).
DirectoryIds = tuple[int, ...]
#: The largest broker id: it is an int32 in requests.
BROKER_ID_MAX = 2**31 - 1
#: The largest controller epoch or leader epoch that is read or written: in requests they are int32, and whoever reads
#: one may add one before anybody compares.
EPOCH_MAX = 2**31 - 2
#: Replicas of one partition: a znode that names more is malformed, a request for more is refused.
REPLICAS_MAX = 1000
#: Tuples up to this length are shared. Longer ones are too rare to repeat, and would fill the memory for ever.
SHARED_LENGTH_MAX = 16
_interned: dict[tuple[object, ...], tuple[object, ...]] = {}
_INTERNED_MAX = 1_000_000


def interned(ids: BrokerIds) -> BrokerIds:
    """The one shared copy of a tuple of broker ids (assignments and ISRs repeat endlessly)."""
    if len(ids) > SHARED_LENGTH_MAX:
        return ids
    if len(_interned) > _INTERNED_MAX:
        _interned.clear()
    return _interned.setdefault(ids, ids)  # type: ignore[return-value]


def members(ids: BrokerIds) -> Collection[int]:
    """The ids, to be asked for many members: to search a long tuple for each of another is quadratic."""
    return ids if len(ids) <= SHARED_LENGTH_MAX else frozenset(ids)


def shared_directories(ids: Iterable[int]) -> DirectoryIds:
    """The one shared copy of a tuple of directory ids; empty if none is known."""
    known = tuple(ids)
    return interned(known) if any(known) else ()


def of_several(directories: DirectoryIds) -> int:
    """What stands for a replica in one of a broker's directories where it is not known in which: the only one, or all
    of them together. Another set has another number, so it is kept only as long as none is missing. 0: none is known.
    """
    if len(directories) < 2:
        return directories[0] if directories else 0
    return zlib.crc32(b"".join(id_.to_bytes(4) for id_ in sorted(directories))) or 1
