"""What brokers ask of the active controller: AlterPartition, ControlledShutdown, AllocateProducerIds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.core.model import BrokerIds, LeaderAndIsr
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode as ErrorCode


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """The state a leader proposes for one partition. ``topic_id`` is empty from a sender before topic ids
    (version below 2); ``recovery`` is 0 RECOVERED, 1 RECOVERING, or whatever else was sent."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    new_isr: BrokerIds
    recovery: int
    partition_epoch: int


@dataclass(frozen=True)
class AlterPartition(ControllerRequest):
    """A leader changes the ISR of partitions it leads (KIP-497, KIP-841)."""

    broker_id: int
    broker_epoch: int
    proposals: Sequence[Proposal]

    @property
    def size(self) -> int:
        """Partitions named."""
        return len(self.proposals)


class Altered(msgspec.Struct, frozen=True, gc=False):
    """What became of one proposal; ``state`` is the durable state now, on success only."""

    topic: str
    partition: int
    error: ErrorCode
    state: LeaderAndIsr | None = None


@dataclass(frozen=True)
class AlterPartitionReply:
    """``partitions`` parallel to the proposals; empty with a top-level error."""

    error: ErrorCode
    partitions: Sequence[Altered] = ()


@dataclass(frozen=True)
class ControlledShutdown(ControllerRequest):
    """A broker wants to leave: take its leaderships first. ``broker_epoch`` -1 is not checked."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class ControlledShutdownReply:
    """``remaining``: (topic, partition) that the broker still leads; empty: it may go."""

    error: ErrorCode
    remaining: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class AllocateProducerIds(ControllerRequest):
    """A broker needs producer ids (KIP-730)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class AllocateProducerIdsReply:
    """``length`` ids from ``start`` on are the broker's; 0 of them with an error."""

    error: ErrorCode
    start: int = 0
    length: int = 0


#: The broker epoch of a sender that does not know its own: not checked.
UNKNOWN_BROKER_EPOCH = -1
