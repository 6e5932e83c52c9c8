"""What is asked of the active controller, and what it answers: values only (reference, sections 6, 7, 8.4).

A request travels with its event into the machine; its reply leaves once everything it says is durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

import msgspec

from controller.core.model import NO_LEADER, BrokerIds, LeaderAndIsr


class ErrorCode(IntEnum):
    """Kafka's names and numbers of the answers given here (reference, section 10.4)."""

    NONE = 0
    UNKNOWN_SERVER_ERROR = -1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    BROKER_NOT_AVAILABLE = 8
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REPLICA_ASSIGNMENT = 39
    NO_REASSIGNMENT_IN_PROGRESS = 85
    STALE_CONTROLLER_EPOCH = 11
    INVALID_CONFIG = 40
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OPERATION_NOT_ATTEMPTED = 55
    REASSIGNMENT_IN_PROGRESS = 60
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    STALE_BROKER_EPOCH = 77
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    BROKER_ID_NOT_REGISTERED = 102
    INELIGIBLE_REPLICA = 107


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


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to be created. Either ``assignment`` (partition to replicas) says where everything is, or the
    controller places ``partitions`` times ``replication_factor`` replicas; None: one."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, BrokerIds] = {}
    configs: Mapping[str, str] = {}


@dataclass(frozen=True)
class CreateTopics:
    """An operator wants topics (KIP-4). ``validate_only``: judge and place, write nothing."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


class TopicCreated(msgspec.Struct, frozen=True):
    """What became of one topic; ``message`` says why not. ``assignment``: where its replicas are, or would be."""

    name: str
    error: ErrorCode
    message: str = ""
    topic_id: str = ""
    assignment: Mapping[int, BrokerIds] = {}


@dataclass(frozen=True)
class CreateTopicsReply:
    """``topics`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    topics: Sequence[TopicCreated] = ()


class Expansion(msgspec.Struct, frozen=True):
    """A topic is to have ``count`` partitions; ``assignment``: the replicas of the new ones in order, or empty
    where the controller places them."""

    name: str
    count: int
    assignment: tuple[BrokerIds, ...] = ()


@dataclass(frozen=True)
class CreatePartitions:
    """An operator wants more partitions (KIP-195). ``validate_only``: judge and place, write nothing."""

    expansions: Sequence[Expansion]
    validate_only: bool = False


class Expanded(msgspec.Struct, frozen=True):
    """What became of one topic; ``message`` says why not. ``assignment``: the new partitions."""

    name: str
    error: ErrorCode
    message: str = ""
    assignment: Mapping[int, BrokerIds] = {}


@dataclass(frozen=True)
class CreatePartitionsReply:
    """``topics`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    topics: Sequence[Expanded] = ()


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
    """An operator wants no leaderships on a broker, or allows them again."""

    broker_id: int
    drained: bool
    reason: str
    author: str


@dataclass(frozen=True)
class SetPause:
    """An operator pauses the elections and returns of leadership that nobody asks for, or resumes them."""

    paused: bool
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
    | SetDrain
    | SetPause
    | CancelShutdown
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
    | OperatorReply
)


def not_controller(request: Asked) -> Answered:
    """What a controller answers that is not active, or no longer (reference, sections 3, 6, 8.4).

    Whatever the request did until then is found by its repetition: each may be asked again.
    """
    if isinstance(request, AlterPartition):
        return AlterPartitionReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, CreateTopics):
        return CreateTopicsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, CreatePartitions):
        return CreatePartitionsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, DeleteTopics):
        return DeleteTopicsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, AlterPartitionReassignments):
        return AlterPartitionReassignmentsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, ListPartitionReassignments):
        return ListPartitionReassignmentsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, ElectLeaders):
        return ElectLeadersReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, AllocateProducerIds):
        return AllocateProducerIdsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, AlterConfigs):
        return AlterConfigsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, DescribeConfigs):
        return DescribeConfigsReply(ErrorCode.NOT_CONTROLLER)
    if isinstance(request, SetDrain | SetPause | CancelShutdown):
        return OperatorReply(ErrorCode.NOT_CONTROLLER)
    return ControlledShutdownReply(ErrorCode.STALE_CONTROLLER_EPOCH)


@dataclass(frozen=True)
class Reply:
    """The answer to the request that came with event ``serial``."""

    serial: int
    value: Answered
