"""What topic and state znodes say, read with nothing of the controller's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]


class State(NamedTuple):
    """A partition's, as stored. ``version``: the znode's, which is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int
    #: Whether the leader was elected uncleanly and has not recovered yet.
    recovering: bool = False
    #: Of each member of the ISR, the short id of the directory that it got in sync with.
    directories: tuple[tuple[int, int], ...] = ()

    @property
    def pushed(self) -> tuple[int, int, int, tuple[int, ...]]:
        """What brokers are told of it."""
        return self.version, self.leader, self.leader_epoch, self.isr


@dataclass
class Topic:
    id: str | None
    partitions: Mapping[int, tuple[int, ...]]
    #: Partitions on the move.
    moving: frozenset[int] = frozenset()
    #: Where to go, of partitions whose move waits for its turn.
    queued: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    #: Of partitions whose assignment changed last: what it was.
    former: dict[int, tuple[int, ...]] = field(default_factory=dict)


def topic_of(data: bytes) -> Topic:
    value = json.loads(data)
    partitions = {int(number): tuple(ids) for number, ids in value["partitions"].items()}
    moving = {
        int(number)
        for key in ("adding_replicas", "removing_replicas")
        for number, ids in (value.get(key) or {}).items()
        # What is said of others is of no effect.
        if not set(ids).isdisjoint(partitions.get(int(number), ()))
    }
    queued = {int(number): tuple(ids) for number, ids in (value.get("queued_replicas") or {}).items()}
    return Topic(value.get("topic_id"), partitions, frozenset(moving), queued)


def state_of(data: bytes, version: int) -> State:
    value = json.loads(data)
    return State(
        value["leader"],
        value["leader_epoch"],
        tuple(value["isr"]),
        value["controller_epoch"],
        version,
        value.get("leader_recovery_state") == 1,
        tuple((int(b), directory) for b, directory in value.get("isr_directories", {}).items()),
    )
