"""Requests of brokers to the active controller: AlterPartition, ControlledShutdown, AllocateProducerIds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.core.model import BrokerIds, DirectoryIds, LeaderAndIsr
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """The state that a leader proposes for one partition. ``topic_id`` is empty from senders without topic ids
    (version below 2). ``recovery`` is 0 (RECOVERED), 1 (RECOVERING), or an invalid number that was sent.
    ``isr_epochs``: parallel to ``new_isr``, the broker epoch in which each member got in sync, -1: unknown; empty from
    senders below version 3 (KIP-903). ``isr_directories``: parallel to it, of a member with several data directories
    that of this replica, 0: not told; empty: none is."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    new_isr: BrokerIds
    recovery: int
    partition_epoch: int
    isr_epochs: tuple[int, ...] = ()
    isr_directories: DirectoryIds = ()


@dataclass(frozen=True)
class AlterPartition(ControllerRequest):
    """A leader changes the ISR of partitions it leads (KIP-497, KIP-841)."""

    broker_id: int
    broker_epoch: int
    proposals: Sequence[Proposal]

    @property
    def size(self) -> int:
        """Number of partitions in the request."""
        return len(self.proposals)


class Altered(msgspec.Struct, frozen=True, gc=False):
    """The result of one proposal. ``state``: the durable state now, on success only."""

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
    """A broker requests to shut down: its leaderships move first. ``broker_epoch`` None: a request of Kafka before 2.2,
    which has none."""

    broker_id: int
    broker_epoch: int | None


@dataclass(frozen=True)
class ControlledShutdownReply:
    """``remaining``: (topic, partition) that the broker still leads; empty: it may shut down."""

    error: ErrorCode
    remaining: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class AllocateProducerIds(ControllerRequest):
    """A broker requests a block of producer ids (KIP-730)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class AllocateProducerIdsReply:
    """The block has ``length`` ids from ``start`` on; 0 with an error."""

    error: ErrorCode
    start: int = 0
    length: int = 0


#: An operator names no broker epoch: any will do.
UNKNOWN_BROKER_EPOCH = -1


#: What a broker sends in its own name.
BrokerRequest = AlterPartition | ControlledShutdown | AllocateProducerIds
