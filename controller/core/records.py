"""What the core tells the state-change log (docs/state-change-log.md): one class for each thing that happens.

A failover logs a million of them: records are small, and become lines only when somebody writes or reads these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

import msgspec

from controller.core.model import LeaderAndIsr, PartitionState, ReplicaState, Topic


class NamedPartition(Protocol):
    """What lines tell of a partition; the rest of one may change after its record was made."""

    @property
    def topic(self) -> Topic: ...

    @property
    def number(self) -> int: ...


class PartitionTransition(msgspec.Struct, frozen=True, gc=False):
    """``leadership``: what it is known to be since; None: it has no state yet."""

    partition: NamedPartition
    before: PartitionState
    after: PartitionState
    leadership: LeaderAndIsr | None


class ReplicaTransition(msgspec.Struct, frozen=True, gc=False):
    partition: NamedPartition
    broker_id: int
    before: ReplicaState
    after: ReplicaState


class LeadershipChange(msgspec.Struct, frozen=True, gc=False):
    """Durable; ``old`` None: it is the first one. A line for the leader and one for the ISR, where they changed."""

    partition: NamedPartition
    old: LeaderAndIsr | None
    new: LeaderAndIsr


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """``error``: its category; ``before`` and ``after``: the state machine's states, where it refused."""

    error: str
    reason: str
    partition: NamedPartition | None = None
    before: str = ""
    after: str = ""


class ReassignmentStep(msgspec.Struct, frozen=True, gc=False):
    partition: NamedPartition
    to: str
    reason: str


class ControllerChange(msgspec.Struct, frozen=True, gc=False):
    to: str
    reason: str
    before: str = ""


class FailoverPhase(msgspec.Struct, frozen=True, gc=False):
    phase: str
    count: int
    duration_us: int


class BrokerChange(msgspec.Struct, frozen=True, gc=False):
    """``count``: leaderships, where some are given back to it."""

    broker_id: int
    to: str
    before: str = ""
    count: int | None = None
    reason: str | None = None


class TopicChange(msgspec.Struct, frozen=True, gc=False):
    topic: str
    before: str
    after: str
    reason: str = ""


class EntityAltered(msgspec.Struct, frozen=True, gc=False):
    """``entity``: as below ``/config``; ``count``: keys."""

    entity: str
    count: int


class UncleanElectionEnabled(msgspec.Struct, frozen=True, gc=False):
    """``reason``: for which topics."""

    reason: str


class FeatureChange(msgspec.Struct, frozen=True, gc=False):
    """Finalized levels; 0: it is not finalized."""

    name: str
    before: int
    after: int


class PushSent(msgspec.Struct, frozen=True, gc=False):
    """``message``: the request's name; ``count``: partitions in it."""

    broker_id: int
    message: str
    count: int


class PushAcknowledged(msgspec.Struct, frozen=True, gc=False):
    """``error``: empty where the broker refused nothing."""

    broker_id: int
    message: str
    count: int
    duration_us: int
    error: str = ""


StateRecord = (
    PartitionTransition
    | ReplicaTransition
    | LeadershipChange
    | Rejection
    | ReassignmentStep
    | ControllerChange
    | FailoverPhase
    | BrokerChange
    | TopicChange
    | EntityAltered
    | UncleanElectionEnabled
    | FeatureChange
    | PushSent
    | PushAcknowledged
)
R = TypeVar("R", bound=StateRecord)


class LogBatch(msgspec.Struct):
    """Records of one class, at least one, that one event caused for one reason."""

    records: Sequence[StateRecord]
    #: Of every transition or change of leadership in it; other records have their own.
    reason: str = ""
    cause: str = ""
    event_id: int = 0

    @property
    def kind(self) -> type[StateRecord]:
        return type(self.records[0])

    def of(self, kind: type[R]) -> Sequence[R]:
        """Its records, where they are of this class; else none."""
        return cast(Sequence[R], self.records) if self.kind is kind else ()
