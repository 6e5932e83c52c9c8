"""What is asked of the active controller, and what it answers: values only (reference, sections 6, 7, 8.4).

A request travels with its event into the machine; its reply leaves once everything it says is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from controller.core.error_codes import ErrorCode as ErrorCode
from controller.core.feature_values import (
    DescribeFeatures,
    DescribeFeaturesReply,
    UpdateFeatures,
    UpdateFeaturesReply,
)
from controller.core.model import NO_LEADER, BrokerIds, LeaderAndIsr, StopApproval
from controller.core.topic_values import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
)


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
class AlterPartition:
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
class ControlledShutdown:
    """A broker wants to leave: take its leaderships first. ``broker_epoch`` -1 is not checked."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class ControlledShutdownReply:
    """``remaining``: (topic, partition) that the broker still leads; empty: it may go."""

    error: ErrorCode
    remaining: Sequence[tuple[str, int]] = ()


class TopicRef(msgspec.Struct, frozen=True):
    """A topic by name or by id; the other one is empty."""

    name: str = ""
    topic_id: str = ""


@dataclass(frozen=True)
class DeleteTopics:
    """An operator wants topics gone (KIP-4; by id KIP-516)."""

    topics: Sequence[TopicRef]


class TopicAnswer(msgspec.Struct, frozen=True):
    """What becomes of one topic; ``message`` says why not. Without an error its deletion goes on by itself."""

    name: str
    topic_id: str
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True)
class DeleteTopicsReply:
    """``topics`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    topics: Sequence[TopicAnswer] = ()


class PartitionReassignment(msgspec.Struct, frozen=True):
    """The replicas wanted for one partition, preferred first; None takes its move back."""

    topic: str
    partition: int
    replicas: BrokerIds | None


@dataclass(frozen=True)
class AlterPartitionReassignments:
    """An operator moves partitions, or cancels moves (KIP-455)."""

    reassignments: Sequence[PartitionReassignment]


class ReassignmentAnswer(msgspec.Struct, frozen=True):
    """What becomes of one partition; ``message`` says why not. Without an error the move is recorded and goes on
    by itself."""

    topic: str
    partition: int
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True)
class AlterPartitionReassignmentsReply:
    """``partitions`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    partitions: Sequence[ReassignmentAnswer] = ()


@dataclass(frozen=True)
class ListPartitionReassignments:
    """Which moves are there: of these (topic, partition), or of all of them (None)."""

    partitions: Sequence[tuple[str, int]] | None = None


class Ongoing(msgspec.Struct, frozen=True):
    """One move. ``queued``: it waits for room, and the sets are what they will be; ``reasons``: why it is not done
    yet, in words."""

    topic: str
    partition: int
    replicas: BrokerIds
    adding: BrokerIds
    removing: BrokerIds
    queued: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListPartitionReassignmentsReply:
    """``partitions`` is empty with a top-level error."""

    error: ErrorCode
    partitions: Sequence[Ongoing] = ()


class ElectionType(Enum):
    """Who is to lead: the first assigned replica, any replica at all, or the one that is named (ours)."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class ElectLeaders:
    """An operator wants other leaders (KIP-183, KIP-460; reference, section 8.3).

    ``partitions``: (topic, partition), or None for all. ``leader``: the broker id that CHOSEN names, and only
    CHOSEN.
    """

    election: ElectionType
    partitions: Sequence[tuple[str, int]] | None
    leader: int | None = None


class PartitionElected(msgspec.Struct, frozen=True):
    """What became of one partition: without an error it has ``leader`` now; ``message`` says why not."""

    topic: str
    partition: int
    error: ErrorCode
    message: str = ""
    leader: int = NO_LEADER


@dataclass(frozen=True)
class ElectLeadersReply:
    """``partitions`` in the request's order, each once; of all partitions those not needed are left out."""

    error: ErrorCode
    partitions: Sequence[PartitionElected] = ()
    message: str = ""


@dataclass(frozen=True)
class AllocateProducerIds:
    """A broker needs producer ids (KIP-730)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class AllocateProducerIdsReply:
    """``length`` ids from ``start`` on are the broker's; 0 of them with an error."""

    error: ErrorCode
    start: int = 0
    length: int = 0


class ConfigScope(Enum):
    """What is configured; the value is its part of the path."""

    TOPIC = "topics"
    BROKER = "brokers"


class ConfigResource(msgspec.Struct, frozen=True):
    """A topic by name, a broker by id in decimal, or, with an empty name, the default of all brokers."""

    scope: ConfigScope
    name: str = ""

    @property
    def entity(self) -> str:
        """Its path below ``/config``."""
        return f"{self.scope.value}/{self.name or '<default>'}"


class ConfigChange(msgspec.Struct, frozen=True):
    """One key; ``value`` None deletes it."""

    key: str
    value: str | None


class ConfigAlteration(msgspec.Struct, frozen=True):
    resource: ConfigResource
    changes: Sequence[ConfigChange]


@dataclass(frozen=True)
class AlterConfigs:
    """An operator changes some keys and leaves the others as they are (KIP-339)."""

    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False


class ConfigAltered(msgspec.Struct, frozen=True):
    """What became of one resource: all of its changes or none. ``unknown``: keys whose values nobody checked."""

    resource: ConfigResource
    error: ErrorCode
    message: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlterConfigsReply:
    """``resources`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    resources: Sequence[ConfigAltered] = ()


@dataclass(frozen=True)
class DescribeConfigs:
    resources: Sequence[ConfigResource]


class ConfigEntry(msgspec.Struct, frozen=True):
    """One key that is set. ``source``: the entity that sets it; ``problem``: what is wrong with the value."""

    key: str
    value: str
    source: str
    known: bool
    problem: str = ""


class ConfigDescribed(msgspec.Struct, frozen=True):
    resource: ConfigResource
    error: ErrorCode
    message: str = ""
    entries: tuple[ConfigEntry, ...] = ()


@dataclass(frozen=True)
class DescribeConfigsReply:
    """``resources`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    resources: Sequence[ConfigDescribed] = ()


@dataclass(frozen=True)
class SetDrain:
    """An operator wants no leaderships on a broker, or allows them again; ``force``: even where nobody else is left to
    lead."""

    broker_id: int
    drained: bool
    reason: str
    author: str
    force: bool = False


@dataclass(frozen=True)
class SetPause:
    """An operator pauses all that the controller does of its own accord, or resumes it."""

    paused: bool
    reason: str
    author: str


@dataclass(frozen=True)
class SetMaintenance:
    """An operator enters the maintenance mode, or leaves it."""

    entered: bool
    reason: str
    author: str


@dataclass(frozen=True)
class CancelShutdown:
    """A broker in controlled shutdown stays. ``broker_epoch`` -1 is not checked."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class OperatorReply:
    """``message`` says why not. ``remaining``: (topic, partition) that a drained broker leads all the same, since
    nobody else can."""

    error: ErrorCode
    message: str = ""
    remaining: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class ApproveStop:
    """Brokers were judged to be stoppable, or an operator overrides what speaks against it.

    ``brokers``: epochs by id, as they were judged; ``counted``: (broker id, epoch) of the approvals that the judgement
    took for gone; ``at_ms``: when, ms since 1970; ``overridden``: what spoke against it, in words.
    """

    brokers: Mapping[int, int]
    counted: frozenset[tuple[int, int]]
    reason: str
    author: str
    at_ms: int
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True)
class WithdrawStopApproval:
    """An operator takes approvals back."""

    brokers: Sequence[int]
    reason: str
    author: str


@dataclass(frozen=True)
class StopApprovalsReply:
    """``approvals``: all that stand now, by broker id; empty with an error."""

    error: ErrorCode
    message: str = ""
    approvals: Mapping[int, StopApproval] = field(default_factory=dict)


Asked = (
    AlterPartition
    | ControlledShutdown
    | CreateTopics
    | CreatePartitions
    | DeleteTopics
    | AlterPartitionReassignments
    | ListPartitionReassignments
    | ElectLeaders
    | AllocateProducerIds
    | AlterConfigs
    | DescribeConfigs
    | DescribeFeatures
    | UpdateFeatures
    | SetDrain
    | SetPause
    | SetMaintenance
    | CancelShutdown
    | ApproveStop
    | WithdrawStopApproval
)
Answered = (
    AlterPartitionReply
    | ControlledShutdownReply
    | CreateTopicsReply
    | CreatePartitionsReply
    | DeleteTopicsReply
    | AlterPartitionReassignmentsReply
    | ListPartitionReassignmentsReply
    | ElectLeadersReply
    | AllocateProducerIdsReply
    | AlterConfigsReply
    | DescribeConfigsReply
    | DescribeFeaturesReply
    | UpdateFeaturesReply
    | OperatorReply
    | StopApprovalsReply
)


#: Each answer is made of an error alone, too.
_ANSWERS: dict[type[Asked], Callable[[ErrorCode], Answered]] = {
    AlterPartition: AlterPartitionReply,
    ControlledShutdown: ControlledShutdownReply,
    CreateTopics: CreateTopicsReply,
    CreatePartitions: CreatePartitionsReply,
    DeleteTopics: DeleteTopicsReply,
    AlterPartitionReassignments: AlterPartitionReassignmentsReply,
    ListPartitionReassignments: ListPartitionReassignmentsReply,
    ElectLeaders: ElectLeadersReply,
    AllocateProducerIds: AllocateProducerIdsReply,
    AlterConfigs: AlterConfigsReply,
    DescribeConfigs: DescribeConfigsReply,
    DescribeFeatures: DescribeFeaturesReply,
    UpdateFeatures: UpdateFeaturesReply,
    SetDrain: OperatorReply,
    SetPause: OperatorReply,
    SetMaintenance: OperatorReply,
    CancelShutdown: OperatorReply,
    ApproveStop: StopApprovalsReply,
    WithdrawStopApproval: StopApprovalsReply,
}


def not_controller(request: Asked) -> Answered:
    """What a controller answers that is not active, or no longer (reference, sections 3, 6, 8.4).

    Whatever the request did until then is found by its repetition: each may be asked again.
    """
    if isinstance(request, ControlledShutdown):
        return ControlledShutdownReply(ErrorCode.STALE_CONTROLLER_EPOCH)
    return _ANSWERS[type(request)](ErrorCode.NOT_CONTROLLER)


@dataclass(frozen=True)
class Reply:
    """The answer to the request that came with event ``serial``."""

    serial: int
    value: Answered
