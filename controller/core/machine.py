"""The machine: events in, acts and requests out. One event at a time, in order, like the original's thread.

``step`` is the only way in. It never blocks and never does I/O; the driver performs what it returns and feeds
each outcome back. A machine lives for one term of leadership and is thrown away with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TypeVar, assert_never

from controller.core.brokers.changes import brokers_changed
from controller.core.brokers.controlled_shutdown import controlled_shutdown
from controller.core.brokers.log_dirs import DiskReport, disks_reported, log_dirs_failed
from controller.core.brokers.stop_approvals import approve_stop, withdraw_approval
from controller.core.cluster.configs import alter_configs, config_changed, describe_configs
from controller.core.cluster.maintenance import (
    cancel_shutdown,
    end_if_healthy,
    look,
    set_drain,
    set_maintenance,
    set_pause,
)
from controller.core.cluster.producer_ids import allocate_producer_ids
from controller.core.cluster.update_features import describe_features, update_features
from controller.core.context import CoreSettings, FollowUp, Pause, Procedure, Turn
from controller.core.effects import LogBatch, Outcome, Request
from controller.core.elections.elect_leaders import elect_leaders, process_preferred_znode
from controller.core.elections.preferred_leader_balance import rebalance
from controller.core.failover import failover
from controller.core.isr.alter_partition import alter_partitions
from controller.core.isr.isr_notifications import isr_changed
from controller.core.model import Cluster
from controller.core.outbox import Outbox
from controller.core.reassignment import stray_replicas
from controller.core.reassignment.alter_reassignments import (
    alter_reassignments,
    list_reassignments,
    process_znode,
)
from controller.core.reassignment.phases import completed_by_isr, finish_in_sync, resume_recalled
from controller.core.requests.api import Asked, Reply
from controller.core.requests.brokers import AllocateProducerIds, AlterPartition, ControlledShutdown
from controller.core.requests.configs import AlterConfigs, DescribeConfigs
from controller.core.requests.elections import ElectLeaders
from controller.core.requests.features import DescribeFeatures, UpdateFeatures
from controller.core.requests.operator import (
    ApproveStop,
    CancelShutdown,
    SetDrain,
    SetMaintenance,
    SetPause,
    WithdrawStopApproval,
)
from controller.core.requests.reassignment import AlterPartitionReassignments, ListPartitionReassignments
from controller.core.requests.topics import CreatePartitions, CreateTopics, DeleteTopics
from controller.core.topics import deletion
from controller.core.topics.changes import topics_changed, topics_modified
from controller.core.topics.create_topics import create_partitions, create_topics
from controller.core.topics.delete_topics import delete_topics
from controller.core.topics.deletion import StopReport


class EventKind(Enum):
    """What can happen; the value is the event's name in logs."""

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
    ALLOCATE_PRODUCER_IDS = "AllocateProducerIds"
    ALTER_CONFIGS = "AlterConfigs"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    DESCRIBE_FEATURES = "DescribeFeatures"
    UPDATE_FEATURES = "UpdateFeatures"
    SET_DRAIN = "SetDrain"
    SET_PAUSE = "SetPause"
    SET_MAINTENANCE = "SetMaintenance"
    MAINTENANCE_CHECK = "MaintenanceCheck"
    CANCEL_SHUTDOWN = "CancelShutdown"
    APPROVE_STOP = "ApproveStop"
    WITHDRAW_STOP_APPROVAL = "WithdrawStopApproval"
    LEADER_REBALANCE = "AutoPreferredReplicaLeaderElection"


#: The event that a request comes with.
REQUEST_KINDS: dict[type[Asked], EventKind] = {
    AlterPartition: EventKind.ALTER_PARTITION,
    ControlledShutdown: EventKind.CONTROLLED_SHUTDOWN,
    CreateTopics: EventKind.CREATE_TOPICS,
    CreatePartitions: EventKind.CREATE_PARTITIONS,
    DeleteTopics: EventKind.DELETE_TOPICS,
    AlterPartitionReassignments: EventKind.ALTER_REASSIGNMENTS,
    ListPartitionReassignments: EventKind.LIST_REASSIGNMENTS,
    ElectLeaders: EventKind.ELECT_LEADERS,
    AllocateProducerIds: EventKind.ALLOCATE_PRODUCER_IDS,
    AlterConfigs: EventKind.ALTER_CONFIGS,
    DescribeConfigs: EventKind.DESCRIBE_CONFIGS,
    DescribeFeatures: EventKind.DESCRIBE_FEATURES,
    UpdateFeatures: EventKind.UPDATE_FEATURES,
    SetDrain: EventKind.SET_DRAIN,
    SetPause: EventKind.SET_PAUSE,
    SetMaintenance: EventKind.SET_MAINTENANCE,
    CancelShutdown: EventKind.CANCEL_SHUTDOWN,
    ApproveStop: EventKind.APPROVE_STOP,
    WithdrawStopApproval: EventKind.WITHDRAW_STOP_APPROVAL,
}


#: The event that does what others left to be done.
FOLLOW_UP_KINDS: dict[FollowUp, EventKind] = {
    FollowUp.MOVES: EventKind.REASSIGNMENT_IN_SYNC,
    FollowUp.DELETIONS: EventKind.DELETION_PROGRESS,
}

#: Partitions named by requests or reports beyond which no further one is handled in the same event.
GATHERED_MAX = 20_000

Body = TypeVar("Body", AlterPartition, DiskReport, StopReport)


@dataclass(frozen=True)
class Event:
    """Something to look at, or to answer.

    What changes in ZooKeeper carries no data that could go stale: what it names is read when handled
    (KAFKA-5502); ``topic`` only says which znode changed. What a broker asks for or reports is in ``body``;
    ``serial`` then makes the event unlike every other, and addresses the reply.
    """

    kind: EventKind
    topic: str = ""
    body: Asked | DiskReport | StopReport | None = field(default=None, compare=False)
    serial: int = 0


@dataclass(frozen=True)
class Finished:
    """An event was processed: for metrics. Times in microseconds."""

    kind: EventKind
    event_id: int
    queued_us: int
    took_us: int


@dataclass
class Ready:
    """What a step asks for: ``acts`` are facts, ``replies`` tell callers of facts, ``requests`` are to be
    performed in order, ``more``: step again with no outcome as soon as those are on their way."""

    acts: list[LogBatch] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    more: bool = False


class Machine:
    """The decisions of one term. ``new_topic_id`` is injected randomness."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: int,
        settings: CoreSettings,
        new_topic_id: Callable[[], str],
    ) -> None:
        self.cluster = Cluster(controller_id, controller_epoch)
        self.outbox = Outbox()
        self.settings = settings
        self._new_topic_id = new_topic_id
        self._inbox: deque[tuple[Event, int]] = deque()
        self._waiting: set[Event] = set()
        self._event_id = 0
        #: Never reused within a term, so that a late outcome cannot be taken for another's.
        self._request_ids = count(1)
        self._turn: Turn | None = None
        self._procedure: Procedure[None] | None = None
        self._current: tuple[Event, int, int] | None = None
        #: True once the failover is done: only then this controller counts as active.
        self.ready = False

    @property
    def queue_size(self) -> int:
        return len(self._inbox)

    @property
    def event_id(self) -> int:
        return self._event_id

    @property
    def current_event(self) -> Event | None:
        return self._current[0] if self._current else None

    def oldest_queued_us(self) -> int | None:
        """When the oldest waiting event arrived, on the driver's clock."""
        return self._inbox[0][1] if self._inbox else None

    def step(self, stimulus: Event | Outcome | None, now_us: int) -> Ready:
        """Take one event or outcome (None: go on), decide as far as possible, return what is to be done.

        ``now_us`` is a monotonic clock in microseconds.
        """
        if isinstance(stimulus, Event):
            self._enqueue(stimulus, now_us)
            if self._procedure is not None:
                return Ready()
            outcome: Outcome | None = None
        else:
            outcome = stimulus
        ready = Ready()
        pause: Pause | None = None
        if self._procedure is None and self._inbox:
            self._begin(now_us)
            outcome = None
        if self._procedure is not None:
            pause = self._advance(outcome, now_us, ready)
        ready.more = pause is Pause.BREATHE or (self._procedure is None and bool(self._inbox))
        return ready

    def _enqueue(self, event: Event, now_us: int) -> None:
        # An event says "look again": a second one before anyone looked adds nothing.
        if event not in self._waiting:
            self._waiting.add(event)
            self._inbox.append((event, now_us))

    def _begin(self, now_us: int) -> None:
        event, arrived_us = self._inbox.popleft()
        self._waiting.discard(event)
        self._event_id += 1
        self._current = (event, arrived_us, now_us)
        self._turn = Turn(
            self.cluster,
            self.outbox,
            self.settings,
            self._new_topic_id,
            self._request_ids,
            self._event_id,
            event.kind.value,
            now_us,
        )
        self._procedure = self._procedure_for(event, self._turn)

    def _procedure_for(self, event: Event, turn: Turn) -> Procedure[None]:  # noqa: C901  (a table)
        match event.body:
            case AlterPartition():
                return alter_partitions(turn, self._gathered(event.serial, event.body, AlterPartition))
            case ControlledShutdown():
                return controlled_shutdown(turn, event.serial, event.body)
            case DiskReport():
                reports = self._gathered(event.serial, event.body, DiskReport)
                return disks_reported(turn, [report for _, report in reports])
            case StopReport():
                answers = self._gathered(event.serial, event.body, StopReport)
                return _stops_answered(turn, [report for _, report in answers])
            case CreateTopics():
                return create_topics(turn, event.serial, event.body)
            case CreatePartitions():
                return create_partitions(turn, event.serial, event.body)
            case DeleteTopics():
                return delete_topics(turn, event.serial, event.body)
            case AlterPartitionReassignments():
                return alter_reassignments(turn, event.serial, event.body)
            case ListPartitionReassignments():
                return list_reassignments(turn, event.serial, event.body)
            case ElectLeaders():
                return elect_leaders(turn, event.serial, event.body)
            case AllocateProducerIds():
                return allocate_producer_ids(turn, event.serial, event.body)
            case AlterConfigs():
                return alter_configs(turn, event.serial, event.body)
            case DescribeConfigs():
                return describe_configs(turn, event.serial, event.body)
            case DescribeFeatures():
                return describe_features(turn, event.serial, event.body)
            case UpdateFeatures():
                return update_features(turn, event.serial, event.body)
            case SetDrain():
                return set_drain(turn, event.serial, event.body)
            case SetPause():
                return set_pause(turn, event.serial, event.body)
            case SetMaintenance():
                return set_maintenance(turn, event.serial, event.body)
            case CancelShutdown():
                return cancel_shutdown(turn, event.serial, event.body)
            case ApproveStop():
                return approve_stop(turn, event.serial, event.body)
            case WithdrawStopApproval():
                return withdraw_approval(turn, event.serial, event.body)
            case None:
                return self._look(event, turn)
            case _:
                assert_never(event.body)

    def _look(self, event: Event, turn: Turn) -> Procedure[None]:  # noqa: C901  (a table)
        match event.kind:
            case EventKind.FAILOVER:
                return self._failover(turn)
            case EventKind.BROKER_CHANGE:
                return _brokers_changed(turn)
            case EventKind.TOPIC_CHANGE:
                return _topics_changed(turn)
            case EventKind.PARTITION_MODIFICATIONS:
                return _topics_modified(turn, self._modified_topics(event))
            case EventKind.PREFERRED_ELECTION:
                return _preferred(turn)
            case EventKind.RECONNECTED:
                return _reconnected(turn)
            case EventKind.ISR_CHANGE:
                return isr_changed(turn)
            case EventKind.LOG_DIR:
                return log_dirs_failed(turn)
            case EventKind.TOPIC_DELETION:
                return deletion.requested(turn)
            case EventKind.TOPIC_DELETION_RETRY:
                return _deletions_retried(turn)
            case EventKind.DELETION_PROGRESS:
                return _deletions_progressed(turn)
            case EventKind.REASSIGNMENT:
                return _reassign_by_znode(turn)
            case EventKind.REASSIGNMENT_IN_SYNC:
                return finish_in_sync(turn)
            case EventKind.CONFIG_CHANGE:
                return config_changed(turn)
            case EventKind.LEADER_REBALANCE:
                return rebalance(turn)
            case EventKind.MAINTENANCE_CHECK:
                return look(turn)
            case (
                EventKind.CONTROLLED_SHUTDOWN
                | EventKind.ALTER_PARTITION
                | EventKind.LEADER_AND_ISR_RESPONSE
                | EventKind.STOP_REPLICA_RESPONSE
                | EventKind.CREATE_TOPICS
                | EventKind.CREATE_PARTITIONS
                | EventKind.DELETE_TOPICS
                | EventKind.ALTER_REASSIGNMENTS
                | EventKind.LIST_REASSIGNMENTS
                | EventKind.ELECT_LEADERS
                | EventKind.ALLOCATE_PRODUCER_IDS
                | EventKind.ALTER_CONFIGS
                | EventKind.DESCRIBE_CONFIGS
                | EventKind.DESCRIBE_FEATURES
                | EventKind.UPDATE_FEATURES
                | EventKind.SET_DRAIN
                | EventKind.SET_PAUSE
                | EventKind.SET_MAINTENANCE
                | EventKind.CANCEL_SHUTDOWN
                | EventKind.APPROVE_STOP
                | EventKind.WITHDRAW_STOP_APPROVAL
            ):
                raise AssertionError(f"{event} has nothing to say")
            case _:
                assert_never(event.kind)

    def _gathered(self, serial: int, first: Body, kind: type[Body]) -> list[tuple[int, Body]]:
        """With those of its kind waiting right behind it, so that many cost one round of writes.

        Only right behind it: what came in between may decide what a later one comes to.
        """
        together, size = [(serial, first)], first.size
        while self._inbox and size < GATHERED_MAX:
            event, _ = self._inbox[0]
            if not isinstance(event.body, kind):
                break
            self._inbox.popleft()
            self._waiting.discard(event)
            together.append((event.serial, event.body))
            size += event.body.size
        return together

    def _modified_topics(self, first: Event) -> Sequence[str]:
        """All topics with a waiting modification, so that many edits cost one read."""
        others = {e for e, _ in self._inbox if e.kind is EventKind.PARTITION_MODIFICATIONS}
        if others:
            self._inbox = deque(item for item in self._inbox if item[0] not in others)
            self._waiting.difference_update(others)
        return [first.topic, *sorted(e.topic for e in others)]

    def _failover(self, turn: Turn) -> Procedure[None]:
        yield from failover(turn)
        self.ready = True

    def _advance(self, outcome: Outcome | None, now_us: int, ready: Ready) -> Pause | None:
        assert self._turn is not None
        assert self._procedure is not None
        assert self._current is not None
        turn = self._turn
        turn.now_us = now_us
        pause: Pause | None = None
        try:
            pause = self._procedure.send(outcome)
        except StopIteration:
            turn.end_pictures()
            event, arrived_us, began_us = self._current
            ready.finished.append(
                Finished(event.kind, turn.event_id, began_us - arrived_us, now_us - began_us)
            )
            self._turn = self._procedure = self._current = None
        for follow_up in turn.follow_ups:
            self._enqueue(Event(FOLLOW_UP_KINDS[follow_up]), now_us)
        turn.follow_ups.clear()
        ready.acts, turn.acts = turn.acts, []
        ready.requests, turn.requests = turn.requests, []
        ready.replies, turn.replies = turn.replies, []
        return pause


def _brokers_changed(turn: Turn) -> Procedure[None]:
    yield from brokers_changed(turn)
    yield from end_if_healthy(turn)


def _topics_changed(turn: Turn) -> Procedure[None]:
    yield from topics_changed(turn)
    yield from resume_recalled(turn)
    yield from deletion.admit(turn)


def _topics_modified(turn: Turn, names: Sequence[str]) -> Procedure[None]:
    yield from topics_modified(turn, names)
    yield from resume_recalled(turn)
    yield from deletion.admit(turn)


def _stops_answered(turn: Turn, reports: Sequence[StopReport]) -> Procedure[None]:
    deletion.answered(turn, reports)
    stray_replicas.answered(turn, reports)
    yield Pause.BREATHE


def _deletions_progressed(turn: Turn) -> Procedure[None]:
    yield from deletion.progressed(turn)
    yield from stray_replicas.record(turn)


def _deletions_retried(turn: Turn) -> Procedure[None]:
    yield from deletion.retry(turn)
    yield from stray_replicas.retry_overdue(turn)
    yield from stray_replicas.record(turn)


def _reassign_by_znode(turn: Turn) -> Procedure[None]:
    yield from process_znode(turn)


def _preferred(turn: Turn) -> Procedure[None]:
    yield from process_preferred_znode(turn)


def _reconnected(turn: Turn) -> Procedure[None]:
    """After a reconnect every watch is gone: read again all that was watched, which also re-arms."""
    yield from _brokers_changed(turn)
    yield from topics_changed(turn)
    if turn.cluster.topics:
        yield from topics_modified(turn, list(turn.cluster.topics))
    yield from resume_recalled(turn)
    yield from deletion.requested(turn)
    yield from process_znode(turn)
    yield from process_preferred_znode(turn)
    yield from isr_changed(turn)
    yield from completed_by_isr(turn, list(turn.cluster.moves.under_way))
    yield from log_dirs_failed(turn)
    yield from config_changed(turn)
