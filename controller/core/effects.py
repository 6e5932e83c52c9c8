"""What the core asks of the outside, and what comes back.

``Machine.step`` returns acts (facts already durable: log records; pushes wait in the outbox) and requests
(reads, and batches of fenced writes). Each request has an id; its outcome returns as an event with that id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controller.core.model import Broker, BrokerIds, FeatureRange, LeaderAndIsr, Partition

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
class ReadBrokers:
    """All registrations; arms the child watch and every registration's data watch. Answer: BrokersAnswer."""


@dataclass(frozen=True)
class BrokersAnswer:
    brokers: dict[int, Broker]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class ReadTopicNames:
    """Children of ``/brokers/topics``; arms the child watch. Answer: list of str."""


@dataclass(frozen=True)
class ReadTopics:
    """Topic znodes by name; arms their data watches. Answer: list parallel to ``names`` of
    TopicInfo, Problem, or None where the znode is absent."""

    names: Sequence[str]


@dataclass(frozen=True)
class ReadStates:
    """Partition state znodes. Answer: list parallel to ``partitions`` of LeaderAndIsr, Problem or None."""

    partitions: Sequence[Partition]


@dataclass(frozen=True)
class ReadTopicConfigs:
    """``/config/topics/T``. Answer: list parallel to ``names`` of dict of str to str, or Problem;
    an absent node is an empty dict."""

    names: Sequence[str]


@dataclass(frozen=True)
class ReadPendingDeletions:
    """Children of ``/admin/delete_topics``; arms the child watch. Answer: list of str."""


@dataclass(frozen=True)
class ReadTopicTrees:
    """All znodes of topics, to be deleted in this order: children first, then ``/brokers/topics/T``, then
    ``/config/topics/T``. Answer: list parallel to ``names`` of list of str, without what is absent. ``thorough``:
    look below every node; else a partition is taken to have a state and nothing else. ``expected``: numbers of
    partitions by topic; these may be taken to be there without a look, and nothing else to be."""

    names: Sequence[str]
    thorough: bool = False
    expected: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadPreferredElection:
    """``/admin/preferred_replica_election``; arms its exists watch.

    Answer: list of (topic, partition), None when absent, or Problem.
    """


@dataclass(frozen=True)
class ReadReassignment:
    """``/admin/reassign_partitions``; arms its exists watch.

    Answer: ReassignmentRequest, None when absent, or Problem.
    """


@dataclass(frozen=True)
class ReassignmentRequest:
    """``entries``: (topic, partition, wanted replicas), the last one of each partition; ``version`` is the znode's."""

    entries: tuple[tuple[str, int, BrokerIds], ...]
    version: int


@dataclass(frozen=True)
class ReadNotifications:
    """Children, as full paths, of the ISR-change and log-dir notification parents; arms both child watches.
    Answer: list of str."""


@dataclass(frozen=True)
class ReadIsrNotifications:
    """Nodes below ``/isr_change_notification``; arms its child watch.

    Answer: list of (path, list of (topic, partition), or Problem), oldest first.
    """


@dataclass(frozen=True)
class ReadLogDirEvents:
    """Nodes below ``/log_dir_event_notification``; arms its child watch.

    Answer: list of (path, id of the broker that lost a log directory, or Problem), oldest first.
    """


@dataclass(frozen=True)
class ReadFeature:
    """``/feature``. Answer: FeatureAnswer, None when absent, or Problem."""


@dataclass(frozen=True)
class ReadNodes:
    """Znodes read one by one. Answer: list parallel to ``paths`` of StoredNode, Problem or None.

    Values: ``/config/...`` dict of str to str; ``/cluster/id`` str; ``/latest_producer_id_block`` ProducerIdBlock,
    or None where it is empty; ``/controllers/maintenance`` Maintenance;
    ``/controllers/approvals`` dict of broker id to StopApproval.
    """

    paths: Sequence[str]


@dataclass(frozen=True)
class StoredNode:
    """A znode's value, and the version that a write is conditional on."""

    value: Any
    version: int


@dataclass(frozen=True)
class ReadConfigChanges:
    """Nodes below ``/config/changes``; arms its child watch.

    Answer: list of (path, entity as below ``/config``, or Problem), oldest first.
    """


@dataclass(frozen=True)
class FeatureAnswer:
    """``features``: finalized levels, as they are written: a minimum of its own has only version 1."""

    enabled: bool
    version: int
    features: tuple[FeatureRange, ...] = ()


Query = (
    ReadBrokers
    | ReadTopicNames
    | ReadTopics
    | ReadStates
    | ReadTopicConfigs
    | ReadPendingDeletions
    | ReadTopicTrees
    | ReadPreferredElection
    | ReadReassignment
    | ReadNotifications
    | ReadIsrNotifications
    | ReadLogDirEvents
    | ReadFeature
    | ReadNodes
    | ReadConfigChanges
)


@dataclass(frozen=True)
class Read:
    id: int
    query: Query


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
    """Write a znode that ``ReadNodes`` reads; conditional on ``version``, None creates it."""

    path: str
    value: Any
    version: int | None


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


Request = Read | Commit

# --- outcomes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A read's answer; its type is in the query's docstring."""

    id: int
    value: Any


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

# --- log records ---------------------------------------------------------------------------------------


class LogBatch(msgspec.Struct):
    """Rows for the state-change log, expanded to records by whoever writes them.

    ``kind`` says what a row is: "partition" (partition, from, to, leadership), "replica" (partition, broker
    id, from, to), "leadership" (partition, old, new), "reject" (partition or None, error, from, to, reason),
    "record" (a dict of fields, complete).
    """

    kind: str
    rows: Sequence[Any]
    reason: str = ""
    cause: str = ""
    event_id: int = 0
