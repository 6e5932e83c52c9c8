"""What the core asks of the outside, and what comes back.

``Machine.step`` returns effects: reads, and batches of fenced writes. Each has an id; its outcome comes back with that
id. Facts that are durable already are log records (``records``); pushes wait in the outbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar, cast

import msgspec

from controller.core.model import Broker, BrokerIds, FeatureRange, LeaderAndIsr, Partition
from controller.core.znode_paths import (
    CONFIG_CHANGES,
    DELETE_TOPICS,
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    NodePath,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

# --- reads ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """An unreadable znode: its path, and the field and what is allowed. ``error`` is its name in records."""

    path: str
    problem: str
    #: Which incarnation of the znode; -1 where it could not even be asked.
    czxid: int = -1
    error: str = "MALFORMED"


@dataclass(frozen=True)
class TopicInfo:
    """A topic znode, decoded. ``partitions`` maps numbers to assigned broker ids, preferred first.

    ``original`` (replicas before a move), ``queued`` (replicas wanted once there is room) and ``stray`` (replicas
    to be deleted) are fields of ours, which other readers ignore. ``others``: fields that we do not know, as JSON;
    they are kept.
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
    """``features``: finalized levels, as they are written: a minimum of its own has only version 1."""

    enabled: bool
    version: int
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True)
class ReassignmentRequest:
    """``entries``: (topic, partition, wanted replicas), the last one of each partition; ``version`` is the znode's."""

    entries: tuple[tuple[str, int, BrokerIds], ...]
    version: int


@dataclass(frozen=True)
class StoredNode(Generic[V_co]):
    """A znode's value, and the version that a write is conditional on."""

    value: V_co
    version: int


class Query(Generic[T_co]):
    """A question to ZooKeeper; ``T_co`` is the type of its answer."""

    __slots__ = ()


@dataclass(frozen=True)
class ReadBrokers(Query[BrokersAnswer]):
    """All registrations; arms the child watch and every registration's data watch."""


@dataclass(frozen=True)
class ReadTopics(Query[Sequence[TopicInfo | Problem | None]]):
    """Topic znodes by name; arms their data watches. Answer: parallel to ``names``, None where the znode is absent."""

    names: Sequence[str]


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
    """All znodes of topics, to be deleted in this order: children first, then ``/brokers/topics/T``, then
    ``/config/topics/T``. Answer: paths, parallel to ``names``, without what is absent. ``thorough``:
    look below every node; else a partition is taken to have a state and nothing else. ``expected``: numbers of
    partitions by topic; these may be taken to be there without a look, and nothing else to be."""

    names: Sequence[str]
    thorough: bool = False
    expected: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadFeature(Query[FeatureAnswer | Problem | None]):
    """``/feature``. Answer: None when absent."""


@dataclass(frozen=True)
class ReadNodes(Query[Sequence[StoredNode[V_co] | Problem | None]], Generic[V_co]):
    """Znodes of one type, read one by one. Answer: parallel to ``paths``, None where the znode is absent."""

    paths: Sequence[NodePath[V_co]]


@dataclass(frozen=True)
class ReadNotifications(Query[Sequence[str]]):
    """Children, as full paths, of the ISR-change and log-dir notification parents; arms both child watches."""


# What is watched (events.WATCHED says what a change brings about); a query is a subclass that names the path.


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
    """(topic, partition)s."""

    path = PREFERRED_ELECTION


@dataclass(frozen=True)
class ReadReassignment(ReadWatchedNode[ReassignmentRequest]):
    path = REASSIGN_PARTITIONS


@dataclass(frozen=True)
class ReadIsrNotifications(ReadWatchedChildren[list[tuple[str, int]]]):
    """(topic, partition)s."""

    path = ISR_NOTIFICATIONS


@dataclass(frozen=True)
class ReadLogDirEvents(ReadWatchedChildren[int]):
    """The id of the broker that lost a log directory."""

    path = LOG_DIR_NOTIFICATIONS


@dataclass(frozen=True)
class ReadConfigChanges(ReadWatchedChildren[str]):
    """The entity, as below ``/config``."""

    path = CONFIG_CHANGES


AnyQuery = (
    ReadBrokers
    | ReadWatchedNode[object]
    | ReadWatchedNames
    | ReadWatchedChildren[object]
    | ReadTopics
    | ReadStates
    | ReadTopicConfigs
    | ReadTopicTrees
    | ReadNotifications
    | ReadFeature
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
    """Create a partition state, and its parents where they are missing."""

    partition: Partition
    new: LeaderAndIsr


@dataclass(frozen=True)
class CreateTopic:
    """Create a topic znode; one that is there already is a conflict."""

    info: TopicInfo


@dataclass(frozen=True)
class SetTopic:
    """Replace a topic znode; conditional on ``info.version``."""

    info: TopicInfo


@dataclass(frozen=True)
class SetReassignment:
    """Replace what ``/admin/reassign_partitions`` lists, conditional on its version; with no entries it is deleted."""

    entries: Sequence[tuple[str, int, BrokerIds]]
    version: int


@dataclass(frozen=True)
class DeleteNode:
    """Delete a znode, whatever its version; an absent one is fine."""

    path: str


@dataclass(frozen=True)
class CreateNode:
    """Create an empty znode; one that is there already is fine."""

    path: str


@dataclass(frozen=True)
class PutFeature:
    """Write ``/feature`` as enabled with these levels by name; ``version`` None creates it."""

    version: int | None
    levels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteNode:
    """Write a znode that ``ReadNodes`` reads; conditional on ``version``, None creates it. ``write_node`` makes it:
    there the value is of the path's type."""

    path: str
    value: object
    version: int | None


def write_node(path: NodePath[V], value: V, version: int | None) -> WriteNode:
    # A plain string: what is written is shown as JSON, and encoders take no subclass of str.
    return WriteNode(str(path), value, version)


@dataclass(frozen=True)
class NotifyConfig:
    """Tell brokers that the configuration of an entity changed: a sequential node of ``/config/changes``."""

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
    """A batch did not land as a whole, or nobody knows: read back and compare (reference, section 14, point 2).

    ``reason`` is the first failing write, or the lost connection, in words.
    """

    id: int
    reason: str


Outcome = Answer | Committed | Unconfirmed


def answer_of(query: Query[T], outcome: Outcome) -> T:
    """The answer to this query, by its type: the one place that trusts the store's."""
    assert isinstance(outcome, Answer), f"{query!r} was answered by {outcome!r}"
    return cast(T, outcome.value)
