"""Events that the controller handles, and what they carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from controller.core.model import LeaderAndIsr, Partition
from controller.core.requests.api import ControllerRequest
from controller.core.requests.brokers import AlterPartition
from controller.core.znode_paths import (
    BROKER_IDS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    SETTINGS,
    TOPICS,
)


class EventKind(Enum):
    """The kinds of events; the value is the name in logs."""

    FAILOVER = "ControllerFailover"
    BROKER_CHANGE = "BrokerChange"
    TOPIC_CHANGE = "TopicChange"
    PARTITION_MODIFICATIONS = "PartitionModifications"
    PREFERRED_ELECTION = "ReplicaLeaderElection"
    RECONNECTED = "Reconnected"
    CONTROLLED_SHUTDOWN = "ControlledShutdown"
    ALTER_PARTITION = "AlterPartitionReceived"
    ISR_CHANGE = "IsrChangeNotification"
    LOG_DIR = "LogDirEventNotification"
    LEADER_AND_ISR_RESPONSE = "LeaderAndIsrResponseReceived"
    TOPIC_DELETION = "TopicDeletion"
    TOPIC_DELETION_RETRY = "TopicDeletionRetry"
    STOP_REPLICA_RESPONSE = "TopicDeletionStopReplicaResponseReceived"
    DELETION_PROGRESS = "ReplicaDeletionProgress"
    CREATE_TOPICS = "CreateTopics"
    CREATE_PARTITIONS = "CreatePartitions"
    DELETE_TOPICS = "DeleteTopics"
    REASSIGNMENT = "ZkPartitionReassignment"
    REASSIGNMENT_IN_SYNC = "PartitionReassignmentIsrChange"
    ALTER_REASSIGNMENTS = "ApiPartitionReassignment"
    LIST_REASSIGNMENTS = "ListPartitionReassignments"
    ELECT_LEADERS = "ElectLeaders"
    CONFIG_CHANGE = "ConfigChange"
    SETTINGS_CHANGE = "SettingsChange"
    ALLOCATE_PRODUCER_IDS = "AllocateProducerIds"
    ALTER_CONFIGS = "AlterConfigs"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_SCRAM_CREDENTIALS = "AlterUserScramCredentials"
    DESCRIBE_FEATURES = "DescribeFeatures"
    UPDATE_FEATURES = "UpdateFeatures"
    SET_DRAIN = "SetDrain"
    SET_PAUSE = "SetPause"
    SET_MAINTENANCE = "SetMaintenance"
    SET_FREEZE = "SetFreeze"
    FORGET_BROKER = "ForgetBroker"
    MAINTENANCE_CHECK = "MaintenanceCheck"
    CANCEL_SHUTDOWN = "CancelShutdown"
    APPROVE_STOP = "ApproveStop"
    WITHDRAW_STOP_APPROVAL = "WithdrawStopApproval"
    LEADER_REBALANCE = "AutoPreferredReplicaLeaderElection"
    STATE_DIFFERENCE = "StateDifference"
    STORED_STATES = "StoredStatesCheck"


@dataclass(frozen=True)
class DiskReport:
    """One broker incarnation's response to LeaderAndIsr: partitions on a failed disk (KAFKA_STORAGE_ERROR) and on a
    healthy one (NONE). Other errors say nothing about disks."""

    broker_id: int
    broker_epoch: int
    failed: Sequence[Partition]
    healthy: Sequence[Partition] = ()

    @property
    def size(self) -> int:
        """Number of partitions in the report."""
        return len(self.failed) + len(self.healthy)


@dataclass(frozen=True)
class StopReport:
    """One broker incarnation's response to StopReplica with delete: deleted partitions, and partitions not deleted
    with the error's name."""

    broker_id: int
    broker_epoch: int
    deleted: Sequence[Partition]
    failed: Sequence[tuple[Partition, str]] = ()

    @property
    def size(self) -> int:
        """Number of partitions in the report."""
        return len(self.deleted) + len(self.failed)


@dataclass(frozen=True)
class TellAgain:
    """What one broker incarnation holds otherwise than told, as the audit found.

    ``leadership``: partitions to send it LeaderAndIsr of. ``read``: partitions whose leader knows a newer partition
    epoch, so that the state znode has to be read first. ``floors``: partitions that need a leader epoch above the
    given one and above the present one. ``newer``: states that it was told and that are newer than those in ZooKeeper,
    with who is known to be in sync. ``metadata``: partitions for UpdateMetadata. ``unknown``: (topic, partition) in
    its metadata that do not exist.
    """

    broker_id: int
    broker_epoch: int
    leadership: Sequence[Partition] = ()
    floors: Sequence[tuple[Partition, int]] = ()
    metadata: Sequence[Partition] = ()
    unknown: Sequence[tuple[str, int]] = ()
    read: Sequence[Partition] = ()
    newer: Sequence[tuple[Partition, LeaderAndIsr]] = ()

    @property
    def size(self) -> int:
        """Number of partitions in the report."""
        named = (self.leadership, self.floors, self.metadata, self.unknown, self.read, self.newer)
        return sum(map(len, named))


@dataclass(frozen=True)
class StatesCheck:
    """Partitions whose state znodes are to be compared with the cluster state."""

    partitions: Sequence[Partition]

    @property
    def size(self) -> int:
        return len(self.partitions)


#: What an event carries: a caller's request, or a broker's report.
Body = ControllerRequest | DiskReport | StopReport | TellAgain | StatesCheck


_SIZED = AlterPartition | DiskReport | StopReport | TellAgain | StatesCheck


@dataclass(frozen=True)
class Event:
    """A change to read, or a request to answer.

    A change in ZooKeeper carries no data that could become stale: the handler reads it (KAFKA-5502); ``topic`` names
    the changed topic znode. A request or report is in ``body``; its ``serial`` makes the event unique, and addresses
    the reply.
    """

    kind: EventKind
    topic: str = ""
    body: Body | None = field(default=None, compare=False)
    serial: int = 0

    @property
    def size(self) -> int:
        """Number of partitions in the body."""
        return self.body.size if isinstance(self.body, _SIZED) else 0


@dataclass(frozen=True)
class Watched:
    """The event for a change of a watched znode or its list of children; ``each``: for a change of one child's
    data."""

    event: EventKind
    each: EventKind | None = None


#: Every watched znode. Reads arm the watches (``effects``); each watch is armed once until it fires.
WATCHED: dict[str, Watched] = {
    BROKER_IDS: Watched(EventKind.BROKER_CHANGE, each=EventKind.BROKER_CHANGE),
    TOPICS: Watched(EventKind.TOPIC_CHANGE, each=EventKind.PARTITION_MODIFICATIONS),
    DELETE_TOPICS: Watched(EventKind.TOPIC_DELETION),
    PREFERRED_ELECTION: Watched(EventKind.PREFERRED_ELECTION),
    REASSIGN_PARTITIONS: Watched(EventKind.REASSIGNMENT),
    ISR_NOTIFICATIONS: Watched(EventKind.ISR_CHANGE),
    LOG_DIR_NOTIFICATIONS: Watched(EventKind.LOG_DIR),
    CONFIG_CHANGES: Watched(EventKind.CONFIG_CHANGE),
    SETTINGS: Watched(EventKind.SETTINGS_CHANGE),
}


def change_of(path: str) -> Event:
    """The event for a fired watch. Raises KeyError for a path that is not watched."""
    if (watched := WATCHED.get(path)) is not None:
        return Event(watched.event)
    parent, _, name = path.rpartition("/")
    kind = WATCHED[parent].each
    if kind is None:
        raise KeyError(path)
    return Event(kind, name if kind is EventKind.PARTITION_MODIFICATIONS else "")


@dataclass(frozen=True)
class Finished:
    """A processed event, for metrics. Times in microseconds; ``ended_us`` is of the driver's clock."""

    kind: EventKind
    event_id: int
    queued_us: int
    took_us: int
    ended_us: int
