"""Effects: the reads and writes that the core requests, and their outcomes.

``Machine.step`` returns effects: reads, and batches of fenced writes. Each has an id, and its outcome has the same id.
Durable facts are log records (``records``); pushes wait in the outbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar, cast

import msgspec

from controller.core.model import Broker, BrokerIds, FeatureRange, LeaderAndIsr, Partition
from controller.core.standby.prepared import Prepared
from controller.core.znode_paths import (
    CONFIG_CHANGES,
    DELETE_TOPICS,
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    SETTINGS,
    TOPICS,
    NodePath,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

# --- reads ---------------------------------------------------------------------------------------------


#: The category of znodes that do not decode. They stay unreadable until they change.
MALFORMED = "MALFORMED"


@dataclass(frozen=True)
class Problem:
    """An unreadable znode. ``problem`` names the field and what is allowed; ``error`` is the category in records."""

    path: str
    problem: str
    #: The incarnation of the znode; -1 where it is unknown.
    czxid: int = -1
    error: str = MALFORMED
    #: The version of what was read and does not decode; -1: it could not be read.
    version: int = -1


@dataclass(frozen=True)
class TopicInfo:
    """A topic znode, decoded. ``partitions`` maps numbers to assigned broker ids, preferred first.

    ``original`` (replicas before a reassignment), ``queued`` (target replicas of a queued reassignment) and ``stray``
    (replicas to be deleted) are fields of ours, which other readers ignore. ``others``: unknown fields, as JSON; they
    are kept.
    """

    name: str
    topic_id: str
    partitions: dict[int, BrokerIds]
    adding: dict[int, BrokerIds]
    removing: dict[int, BrokerIds]
    czxid: int
    version: int
    original: dict[int, BrokerIds] = field(default_factory=dict)
    queued: dict[int, BrokerIds] = field(default_factory=dict)
    stray: dict[int, BrokerIds] = field(default_factory=dict)
    others: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class BrokersAnswer:
    brokers: dict[int, Broker]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class FeatureAnswer:
    """``features``: finalized levels as stored; only version 1 of the znode stores a minimum."""

    enabled: bool
    version: int
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True)
class ReassignmentRequest:
    """``entries``: (topic, partition, target replicas), the last entry of each partition; ``version``: the znode's."""

    entries: tuple[tuple[str, int, BrokerIds], ...]
    version: int


@dataclass(frozen=True)
class StoredNode(Generic[V_co]):
    """A znode's value, and the version that a write is conditional on."""

    value: V_co
    version: int


class Query(Generic[T_co]):
    """A read from ZooKeeper; ``T_co`` is the type of its answer."""

    __slots__ = ()


@dataclass(frozen=True)
class ReadBrokers(Query[BrokersAnswer]):
    """All broker registrations; arms the child watch and every registration's data watch."""


@dataclass(frozen=True)
class ReadTopics(Query[Sequence[TopicInfo | Problem | None]]):
    """Topic znodes by name; arms their data watches. Answer: parallel to ``names``, None where the znode is absent."""

    names: Sequence[str]


@dataclass(frozen=True)
class ReadPrepared(Query[Prepared | None]):
    """What was kept ready before the election, at most once in a term; None: nothing is. Topics and states are as in
    ZooKeeper, but for the states that ``unread`` names; data watches of the topics are armed. Who asks owns it."""


@dataclass(frozen=True)
class ReadStates(Query[Sequence[LeaderAndIsr | Problem | None]]):
    """Partition state znodes. Answer: parallel to ``partitions``, None where the znode is absent."""

    partitions: Sequence[Partition]


@dataclass(frozen=True)
class ReadTopicConfigs(Query[Sequence[Mapping[str, str] | Problem]]):
    """``/config/topics/T``. Answer: parallel to ``names``; an absent node is empty."""

    names: Sequence[str]


@dataclass(frozen=True)
class ReadTopicTrees(Query[Sequence[list[str]]]):
    """All znodes of topics, in the order of deletion: children first, then ``/brokers/topics/T``, then
    ``/config/topics/T``.

    Answer: existing paths, parallel to ``names``. ``thorough``: list the children of every node; else each partition
    is assumed to have a state and no other child. ``expected``: partition numbers by topic; the store may assume that
    exactly these exist, without a read.
    """

    names: Sequence[str]
    thorough: bool = False
    expected: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadFeature(Query[FeatureAnswer | Problem | None]):
    """``/feature``. Answer: None when absent."""


@dataclass(frozen=True)
class ReadKafkaIds(Query[Sequence[int]]):
    """The ids under which controllers of ours have led Kafka brokers."""


@dataclass(frozen=True)
class ReadNodes(Query[Sequence[StoredNode[V_co] | Problem | None]], Generic[V_co]):
    """Znodes of one type, read one by one. Answer: parallel to ``paths``, None where the znode is absent."""

    paths: Sequence[NodePath[V_co]]


@dataclass(frozen=True)
class ReadNotifications(Query[Sequence[str]]):
    """Children, as full paths, of the ISR-change and log-dir notification parents; arms both child watches."""


# Reads of watched znodes (events.WATCHED maps their changes to events); each subclass names its path.


class ReadWatchedNode(Query[T_co | Problem | None], Generic[T_co]):
    """One znode, None when absent; arms its exists watch."""

    __slots__ = ()
    path: ClassVar[str]


class ReadWatchedNames(Query[Sequence[str]]):
    """Names of a node's children; arms its child watch."""

    __slots__ = ()
    path: ClassVar[str]


class ReadWatchedChildren(Query[Sequence[tuple[str, T_co | Problem]]], Generic[T_co]):
    """Paths and contents of a node's children, oldest first; arms its child watch."""

    __slots__ = ()
    path: ClassVar[str]


@dataclass(frozen=True)
class ReadTopicNames(ReadWatchedNames):
    path = TOPICS


@dataclass(frozen=True)
class ReadPendingDeletions(ReadWatchedNames):
    path = DELETE_TOPICS


@dataclass(frozen=True)
class ReadPreferredElection(ReadWatchedNode[Sequence[tuple[str, int]]]):
    """Answer: pairs (topic, partition)."""

    path = PREFERRED_ELECTION


@dataclass(frozen=True)
class ReadReassignment(ReadWatchedNode[ReassignmentRequest]):
    path = REASSIGN_PARTITIONS


@dataclass(frozen=True)
class ReadSettings(ReadWatchedNode[Mapping[str, Mapping[str, str]]]):
    """Answer: values by key, by controller id or ``<default>``."""

    path = SETTINGS


@dataclass(frozen=True)
class ReadIsrNotifications(ReadWatchedChildren[list[tuple[str, int]]]):
    """Contents: pairs (topic, partition)."""

    path = ISR_NOTIFICATIONS


@dataclass(frozen=True)
class ReadLogDirEvents(ReadWatchedChildren[int]):
    """Contents: the id of the broker that lost a log directory."""

    path = LOG_DIR_NOTIFICATIONS


@dataclass(frozen=True)
class ReadConfigChanges(ReadWatchedChildren[str]):
    """Contents: the entity, as its path below ``/config``."""

    path = CONFIG_CHANGES


AnyQuery = (
    ReadBrokers
    | ReadWatchedNode[object]
    | ReadWatchedNames
    | ReadWatchedChildren[object]
    | ReadTopics
    | ReadPrepared
    | ReadStates
    | ReadTopicConfigs
    | ReadTopicTrees
    | ReadNotifications
    | ReadFeature
    | ReadKafkaIds
    | ReadNodes[object]
)


@dataclass(frozen=True)
class Read:
    id: int
    query: AnyQuery


# --- writes --------------------------------------------------------------------------------------------


class SetState(msgspec.Struct, frozen=True, gc=False):
    """Replace a partition state; conditional on version ``new.partition_epoch - 1``."""

    partition: Partition
    new: LeaderAndIsr


class CreateState(msgspec.Struct, frozen=True, gc=False):
    """Create a partition state, and missing parents."""

    partition: Partition
    new: LeaderAndIsr


@dataclass(frozen=True)
class CreateTopic:
    """Create a topic znode; an existing one is a conflict."""

    info: TopicInfo


@dataclass(frozen=True)
class SetTopic:
    """Replace a topic znode; conditional on ``info.version``."""

    info: TopicInfo


@dataclass(frozen=True)
class SetReassignment:
    """Replace the entries of ``/admin/reassign_partitions``, conditional on its version (-1: any); without entries the
    znode is deleted."""

    entries: Sequence[tuple[str, int, BrokerIds]]
    version: int


class DeleteNode(msgspec.Struct, frozen=True, gc=False):
    """Delete a znode of any version; an absent one is no conflict."""

    path: str


@dataclass(frozen=True)
class CreateNode:
    """Create an empty znode; an existing one is no conflict."""

    path: str


@dataclass(frozen=True)
class PutFeature:
    """Write ``/feature`` as enabled with these levels by name; conditional on ``version``, None creates it."""

    version: int | None
    levels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteNode:
    """Write a znode that ``ReadNodes`` reads; conditional on ``version``, None creates it. Make it with ``write_node``,
    which checks the type of the value."""

    path: str
    value: object
    version: int | None


def write_node(path: NodePath[V], value: V, version: int | None) -> WriteNode:
    # A plain string: the JSON encoders that show writes accept no subclass of str.
    return WriteNode(str(path), value, version)


@dataclass(frozen=True)
class NotifyConfig:
    """Notify brokers of an entity's config change: create a sequential node of ``/config/changes``."""

    entity: str


Write = (
    SetState
    | CreateState
    | CreateTopic
    | SetTopic
    | SetReassignment
    | DeleteNode
    | CreateNode
    | PutFeature
    | WriteNode
    | NotifyConfig
)


@dataclass(frozen=True)
class Commit:
    """A batch of writes, all or none, fenced by ``/controller_epoch``."""

    id: int
    writes: Sequence[Write]


Effect = Read | Commit


def described(effect: Effect) -> tuple[str, int]:
    """Its kind, and the number of writes."""
    if isinstance(effect, Commit):
        return "Commit", len(effect.writes)
    return type(effect.query).__name__, 0


# --- outcomes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A read's answer: of its query's type (``answer_of``)."""

    id: int
    value: object


@dataclass(frozen=True)
class Committed:
    """Every write of the batch is durable."""

    id: int


@dataclass(frozen=True)
class Unconfirmed:
    """A batch failed, or its outcome is unknown: read back and compare (reference, section 14, point 2).

    ``reason`` describes the first failing write, or the lost connection. ``refused``: nothing of it was written.
    """

    id: int
    reason: str
    refused: bool = False


Outcome = Answer | Committed | Unconfirmed


def answer_of(query: Query[T], outcome: Outcome) -> T:
    """The answer to this query, with its type. Only here the store's answer type is trusted."""
    assert isinstance(outcome, Answer), f"{query!r} was answered by {outcome!r}"
    return cast(T, outcome.value)
