"""Records of the state-change log (docs/state-change-log.md): one class for each kind.

A failover logs a million records: they are small, and are formatted as lines only when written or read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

import msgspec

from controller.core.model import BrokerIds, LeaderAndIsr, PartitionState, ReplicaState, Topic


class NamedPartition(Protocol):
    """The fixed part of a partition, which lines show; other fields may change after the record was made."""

    @property
    def topic(self) -> Topic: ...

    @property
    def number(self) -> int: ...


class PartitionTransition(msgspec.Struct, frozen=True, gc=False):
    """``leadership``: the one known after the transition; None: the partition has no durable state yet. ``silent_us``:
    how long ago its leader, which is gone, gave its last sign; None: not known, or another reason. ``replicas``: of a
    new partition."""

    partition: NamedPartition
    before: PartitionState
    after: PartitionState
    leadership: LeaderAndIsr | None
    silent_us: int | None = None
    replicas: BrokerIds | None = None


class ReplicaTransition(msgspec.Struct, frozen=True, gc=False):
    partition: NamedPartition
    broker_id: int
    before: ReplicaState
    after: ReplicaState


class LeadershipChange(msgspec.Struct, frozen=True, gc=False):
    """A durable change; ``old`` None: the first state. It makes one line for the leader and one for the ISR, where they
    changed; one where only epochs did."""

    partition: NamedPartition
    old: LeaderAndIsr | None
    new: LeaderAndIsr


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """``error``: its category; ``before`` and ``after``: the states of a refused state machine transition."""

    error: str
    reason: str
    partition: NamedPartition | None = None
    before: str = ""
    after: str = ""


class ReassignmentStep(msgspec.Struct, frozen=True, gc=False):
    """``replicas``: those that the step gave the partition; None: it kept its own."""

    partition: NamedPartition
    to: str
    reason: str
    replicas: BrokerIds | None = None


class ControllerChange(msgspec.Struct, frozen=True, gc=False):
    to: str
    reason: str
    before: str = ""


class FailoverPhase(msgspec.Struct, frozen=True, gc=False):
    phase: str
    count: int
    duration_us: int


class BrokerChange(msgspec.Struct, frozen=True, gc=False):
    """``count``: number of leaderships returned to the broker, where there are any. ``silent_us``: of one that is gone,
    how long ago it gave its last sign; None: not known."""

    broker_id: int
    to: str
    before: str = ""
    count: int | None = None
    reason: str | None = None
    silent_us: int | None = None


class TopicChange(msgspec.Struct, frozen=True, gc=False):
    topic: str
    before: str
    after: str
    reason: str = ""


class EntityAltered(msgspec.Struct, frozen=True, gc=False):
    """``entity``: its path below ``/config``; ``count``: number of keys."""

    entity: str
    count: int


class UncleanElectionEnabled(msgspec.Struct, frozen=True, gc=False):
    """``reason``: names the topics."""

    reason: str


class FeatureChange(msgspec.Struct, frozen=True, gc=False):
    """Finalized levels of a feature; 0: not finalized."""

    name: str
    before: int
    after: int


class PushSent(msgspec.Struct, frozen=True, gc=False):
    """``message``: the request's name; ``count``: number of partitions in it."""

    broker_id: int
    message: str
    count: int


class PushAcknowledged(msgspec.Struct, frozen=True, gc=False):
    """Any answer, also one that refuses the push. ``error``: empty where the broker refused nothing."""

    broker_id: int
    message: str
    count: int
    duration_us: int
    error: str = ""


class AuditFinding(msgspec.Struct, frozen=True, gc=False):
    """What the audit found or did about a partition. ``to``: refused, differs, told_again, agrees,
    taken_over, put_right.
    ``broker_id``: whose state it is; None: it is the state znode."""

    partition: NamedPartition
    broker_id: int | None
    to: str
    reason: str


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """A request that was answered. ``principal``: ``User:alice``; ``address``: of the caller; ``subject``: what it
    names; ``reason``: the caller's; ``error``: empty if it was carried out; ``count``: how many denied ones it stands
    for."""

    method: str
    principal: str
    address: str
    subject: str
    reason: str
    error: str = ""
    count: int | None = None


StateRecord = (
    AuditFinding
    | PartitionTransition
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
    | RequestRecord
)
R = TypeVar("R", bound=StateRecord)


class LogBatch(msgspec.Struct):
    """One or more records of one class, caused by one event for one reason."""

    records: Sequence[StateRecord]
    #: The reason of all transitions and leadership changes in the batch; other records have their own.
    reason: str = ""
    cause: str = ""
    event_id: int = 0

    @property
    def kind(self) -> type[StateRecord]:
        return type(self.records[0])

    def of(self, kind: type[R]) -> Sequence[R]:
        """The records if they are of this class, else an empty sequence."""
        return cast(Sequence[R], self.records) if self.kind is kind else ()
