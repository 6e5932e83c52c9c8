"""Size limits of znodes. Larger values are refused here: ZooKeeper would close the connection of the writer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.core.effects import TopicInfo
from controller.core.model import BrokerIds

#: For servers with the default limit of 1 MiB (jute.maxbuffer), with a margin for the rest of the request.
ZNODE_BYTES_MAX = 900_000
#: Upper bounds: a broker id or partition number with its comma; the JSON around one partition's list.
_NUMBER_BYTES, _ENTRY_BYTES = 11, 16


def config_bytes(config: Mapping[str, str]) -> int:
    """Size of a configuration in its znode."""
    return len(msgspec.json.encode(config)) + 30


def assignment_bytes(assignment: Mapping[int, BrokerIds]) -> int:
    """Size of an assignment in a topic znode."""
    return sum(len(str(n)) + 5 + sum(len(str(b)) + 1 for b in ids) for n, ids in assignment.items())


def topic_bytes(info: TopicInfo) -> int:
    """Size of a topic znode, accurate to a few hundred bytes."""
    maps = (info.partitions, info.adding, info.removing, info.original, info.queued, info.stray)
    return sum(map(assignment_bytes, maps)) + sum(len(n) + len(t) + 4 for n, t in info.others.items())


def fits(info: TopicInfo) -> bool:
    """Whether a topic fits into its znode; computes the size only where an upper bound is too large."""
    maps = (info.partitions, info.adding, info.removing, info.original, info.queued, info.stray)
    at_most = sum(len(m) * (_ENTRY_BYTES + _NUMBER_BYTES * max(map(len, m.values()))) for m in maps if m)
    return (at_most <= ZNODE_BYTES_MAX and not info.others) or topic_bytes(info) <= ZNODE_BYTES_MAX
