"""What fits into a znode. More is refused in words: ZooKeeper drops the connection of whoever sends it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.core.effects import TopicInfo
from controller.core.model import BrokerIds

#: For one znode of a server with the usual limit of 1 MiB (jute.maxbuffer), with some room for what comes with it.
ZNODE_BYTES_MAX = 900_000
#: Of a broker id or a partition number with its comma, and of what stands around the list of one partition, at most.
_NUMBER_BYTES, _ENTRY_BYTES = 11, 16


def config_bytes(config: Mapping[str, str]) -> int:
    """What a configuration takes in its znode."""
    return len(msgspec.json.encode(config)) + 30


def assignment_bytes(assignment: Mapping[int, BrokerIds]) -> int:
    """What partitions with their replicas take in a topic znode."""
    return sum(len(str(n)) + 5 + sum(len(str(b)) + 1 for b in ids) for n, ids in assignment.items())


def topic_bytes(info: TopicInfo) -> int:
    """What a topic znode takes, to within some hundred bytes."""
    maps = (info.partitions, info.adding, info.removing, info.original, info.queued, info.stray)
    return sum(map(assignment_bytes, maps)) + sum(len(n) + len(t) + 4 for n, t in info.others.items())


def fits(info: TopicInfo) -> bool:
    """Whether a topic fits into its znode; looks closely only where it could not."""
    maps = (info.partitions, info.adding, info.removing, info.original, info.queued, info.stray)
    at_most = sum(len(m) * (_ENTRY_BYTES + _NUMBER_BYTES * max(map(len, m.values()))) for m in maps if m)
    return (at_most <= ZNODE_BYTES_MAX and not info.others) or topic_bytes(info) <= ZNODE_BYTES_MAX
