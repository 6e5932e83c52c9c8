"""The handler of each event: two tables, and the handlers that combine several rooms.

``LOOKS``: events without a body, mostly changes in ZooKeeper. ``BODIES``: events that carry a request or a broker's
report. To add an event, add a member of ``EventKind`` and a row here; a request is a subclass of ``ControllerRequest``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from controller.core.audit.stored_states import check_states
from controller.core.audit.tell_again import tell_again
from controller.core.brokers import changes as broker_changes
from controller.core.brokers.controlled_shutdown import controlled_shutdown
from controller.core.brokers.log_dirs import disks_reported, log_dirs_failed
from controller.core.brokers.stop_approvals import approve_stop, withdraw_approval
from controller.core.cluster import dynamic_settings
from controller.core.cluster.configs import alter_configs, config_changed, describe_configs
from controller.core.cluster.maintenance import (
    cancel_shutdown,
    check_maintenance,
    end_if_healthy,
    set_drain,
    set_freeze,
    set_maintenance,
    set_pause,
)
from controller.core.cluster.producer_ids import allocate_producer_ids
from controller.core.cluster.scram_credentials import alter_scram_credentials
from controller.core.cluster.update_features import describe_features, update_features
from controller.core.context import EventContext, FollowUp, Handler, Pause
from controller.core.elections.elect_leaders import elect_leaders, process_preferred_znode
from controller.core.elections.preferred_leader_balance import rebalance
from controller.core.events import Body, DiskReport, Event, EventKind, StatesCheck, StopReport, TellAgain
from controller.core.failover import failover
from controller.core.isr.alter_partition import alter_partitions
from controller.core.isr.isr_notifications import isr_changed
from controller.core.reassignment import stray_replicas
from controller.core.reassignment.admin_znode import remove_abandoned
from controller.core.reassignment.alter_reassignments import (
    alter_reassignments,
    list_reassignments,
    process_znode,
)
from controller.core.reassignment.phases import (
    completed_by_isr,
    finish_in_sync,
    resume_restored,
    retry_stalled,
    start_queued,
)
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.requests.brokers import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlterPartition,
    AlterPartitionReply,
    ControlledShutdown,
    ControlledShutdownReply,
)
from controller.core.requests.configs import (
    AlterConfigs,
    AlterConfigsReply,
    DescribeConfigs,
    DescribeConfigsReply,
)
from controller.core.requests.elections import ElectLeaders, ElectLeadersReply
from controller.core.requests.errors import ErrorCode
from controller.core.requests.features import (
    DescribeFeatures,
    DescribeFeaturesReply,
    UpdateFeatures,
    UpdateFeaturesReply,
)
from controller.core.requests.operator import (
    ApproveStop,
    CancelShutdown,
    ForgetBroker,
    OperatorReply,
    SetDrain,
    SetFreeze,
    SetMaintenance,
    SetPause,
    StopApprovalsReply,
    WithdrawStopApproval,
)
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
)
from controller.core.requests.scram_credentials import AlterScramCredentials, AlterScramCredentialsReply
from controller.core.requests.topics import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
)
from controller.core.topics import deletion, forgotten
from controller.core.topics.changes import topics_changed, topics_modified
from controller.core.topics.create_topics import create_partitions, create_topics
from controller.core.topics.delete_topics import delete_topics

#: The event that does the deferred work.
FOLLOW_UPS: dict[FollowUp, EventKind] = {
    FollowUp.REASSIGNMENTS: EventKind.REASSIGNMENT_IN_SYNC,
    FollowUp.DELETIONS: EventKind.DELETION_PROGRESS,
}


#: Events that are handled in parts, and give way to prompt ones (docs/adr/0022). An AlterPartition of more than
#: ``SMALL_MAX`` partitions is long, too.
LONG = frozenset({EventKind.BROKER_CHANGE, EventKind.CONTROLLED_SHUTDOWN})
SMALL_MAX = 100
#: What somebody waits for, and what changes no brokers and takes no partition from anybody.
PROMPT = frozenset(
    {
        EventKind.ALTER_PARTITION,
        EventKind.TOPIC_CHANGE,
        EventKind.PARTITION_MODIFICATIONS,
        EventKind.CREATE_TOPICS,
        EventKind.CREATE_PARTITIONS,
        EventKind.ALLOCATE_PRODUCER_IDS,
    }
)


def handle(context: EventContext, event: Event, gathered: Sequence[Event]) -> Handler[None]:
    """Handle one event completely. ``gathered``: the event and those handled together with it, in order."""
    if event.kind is EventKind.PARTITION_MODIFICATIONS:
        yield from _topics_modified(context, [e.topic for e in gathered])
    elif event.body is None:
        yield from LOOKS[event.kind](context)
    else:
        yield from BODIES[type(event.body)].handle(context, gathered)
    # Tools wait until the legacy znode no longer lists their reassignments.
    yield from remove_abandoned(context)
    context.end_snapshots()


def skip(context: EventContext, event: Event) -> Handler[None]:
    """Handle nothing of an event whose kind is in quarantine."""
    context.reject("QUARANTINED", f"{event.kind.value}: this kind of event is in quarantine")
    yield Pause.YIELD


def is_long(event: Event) -> bool:
    return event.kind in LONG or (event.kind is EventKind.ALTER_PARTITION and event.size > SMALL_MAX)


def gathers(event: Event) -> bool:
    """Whether following events with a body of this type are handled together with this one."""
    return event.body is not None and BODIES[type(event.body)].gathers


# --- handlers that combine several rooms -----------------------------------------------------------------------


def _brokers_changed(context: EventContext) -> Handler[None]:
    yield from broker_changes.brokers_changed(context)
    yield from end_if_healthy(context)


def _topics_changed(context: EventContext) -> Handler[None]:
    yield from topics_changed(context)
    yield from resume_restored(context)
    # What was being moved may have vanished.
    yield from start_queued(context)
    yield from deletion.admit(context)


def _topics_modified(context: EventContext, names: Sequence[str]) -> Handler[None]:
    yield from topics_modified(context, names)
    yield from resume_restored(context)
    yield from deletion.admit(context)


def _stops_answered(context: EventContext, reports: Sequence[StopReport]) -> Handler[None]:
    deletion.answered(context, reports)
    stray_replicas.answered(context, reports)
    forgotten.answered(context, reports)
    yield Pause.YIELD


def _deletions_progressed(context: EventContext) -> Handler[None]:
    yield from deletion.admit(context)
    yield from deletion.progressed(context)
    yield from stray_replicas.record(context)
    yield from forgotten.record(context)


def _deletions_retried(context: EventContext) -> Handler[None]:
    yield from deletion.retry(context)
    yield from stray_replicas.retry_overdue(context)
    yield from stray_replicas.record(context)
    yield from forgotten.record(context)
    yield from retry_stalled(context)


def _settings_changed(context: EventContext) -> Handler[None]:
    yield from dynamic_settings.load(context)
    # Limits may have been raised; one that was lowered stops nothing that has begun.
    yield from start_queued(context)


def _update_features(context: EventContext, serial: int, request: UpdateFeatures) -> Handler[None]:
    """Update features, then read brokers again: another level changes which brokers are compatible."""
    changed = yield from update_features(context, serial, request)
    if changed:
        yield from broker_changes.brokers_changed(context)


def _reconnected(context: EventContext) -> Handler[None]:
    """After a reconnect no watch is armed: read all watched znodes again, which arms the watches."""
    yield from _brokers_changed(context)
    context.cluster.unreadable_topics.clear()
    yield from topics_changed(context)
    if context.cluster.topics:
        yield from topics_modified(context, list(context.cluster.topics))
    yield from resume_restored(context)
    yield from deletion.requested(context)
    # A topic that was created again must not be given the reassignments of the one before.
    yield from remove_abandoned(context)
    yield from process_znode(context)
    yield from process_preferred_znode(context)
    yield from isr_changed(context)
    yield from completed_by_isr(context, list(context.cluster.reassignments.ongoing))
    yield from log_dirs_failed(context)
    yield from config_changed(context)
    yield from _settings_changed(context)


# --- the tables ----------------------------------------------------------------------------------------------

LOOKS: dict[EventKind, Callable[[EventContext], Handler[object]]] = {
    EventKind.FAILOVER: failover,
    EventKind.BROKER_CHANGE: _brokers_changed,
    EventKind.TOPIC_CHANGE: _topics_changed,
    EventKind.PREFERRED_ELECTION: process_preferred_znode,
    EventKind.RECONNECTED: _reconnected,
    EventKind.ISR_CHANGE: isr_changed,
    EventKind.LOG_DIR: log_dirs_failed,
    EventKind.TOPIC_DELETION: deletion.requested,
    EventKind.TOPIC_DELETION_RETRY: _deletions_retried,
    EventKind.DELETION_PROGRESS: _deletions_progressed,
    EventKind.REASSIGNMENT: process_znode,
    EventKind.REASSIGNMENT_IN_SYNC: finish_in_sync,
    EventKind.CONFIG_CHANGE: config_changed,
    EventKind.SETTINGS_CHANGE: _settings_changed,
    EventKind.LEADER_REBALANCE: rebalance,
    EventKind.MAINTENANCE_CHECK: check_maintenance,
}

B = TypeVar("B")


@dataclass(frozen=True)
class BodyType(Generic[B]):
    """How a body is handled: ``alone``, or ``together`` with bodies of its type that directly follow in the queue."""

    kind: EventKind
    #: Makes the response from an error alone; None: the body is a report without response.
    answer: Callable[[ErrorCode], ControllerResponse] | None
    alone: Callable[[EventContext, int, B], Handler[None]] | None = None
    together: Callable[[EventContext, Sequence[tuple[int, B]]], Handler[None]] | None = None
    #: The error that an inactive controller returns.
    not_active: ErrorCode = ErrorCode.NOT_CONTROLLER

    @property
    def gathers(self) -> bool:
        return self.together is not None

    def handle(self, context: EventContext, events: Sequence[Event]) -> Handler[None]:
        bodies = [(event.serial, cast(B, event.body)) for event in events]
        if self.together is not None:
            return self.together(context, bodies)
        assert self.alone is not None
        return self.alone(context, *bodies[0])


def _without_serials(
    handle: Callable[[EventContext, Sequence[B]], Handler[None]],
) -> Callable[[EventContext, Sequence[tuple[int, B]]], Handler[None]]:
    """For reports, which nobody answers."""
    return lambda context, reports: handle(context, [report for _, report in reports])


BODIES: dict[type[Body], BodyType[Any]] = {
    AlterPartition: BodyType(EventKind.ALTER_PARTITION, AlterPartitionReply, together=alter_partitions),
    DiskReport: BodyType(EventKind.LEADER_AND_ISR_RESPONSE, None, together=_without_serials(disks_reported)),
    StopReport: BodyType(EventKind.STOP_REPLICA_RESPONSE, None, together=_without_serials(_stops_answered)),
    TellAgain: BodyType(EventKind.STATE_DIFFERENCE, None, together=_without_serials(tell_again)),
    StatesCheck: BodyType(EventKind.STORED_STATES, None, together=_without_serials(check_states)),
    ControlledShutdown: BodyType(
        EventKind.CONTROLLED_SHUTDOWN,
        ControlledShutdownReply,
        controlled_shutdown,
        not_active=ErrorCode.STALE_CONTROLLER_EPOCH,
    ),
    CreateTopics: BodyType(EventKind.CREATE_TOPICS, CreateTopicsReply, create_topics),
    CreatePartitions: BodyType(EventKind.CREATE_PARTITIONS, CreatePartitionsReply, create_partitions),
    DeleteTopics: BodyType(EventKind.DELETE_TOPICS, DeleteTopicsReply, delete_topics),
    AlterPartitionReassignments: BodyType(
        EventKind.ALTER_REASSIGNMENTS, AlterPartitionReassignmentsReply, alter_reassignments
    ),
    ListPartitionReassignments: BodyType(
        EventKind.LIST_REASSIGNMENTS, ListPartitionReassignmentsReply, list_reassignments
    ),
    ElectLeaders: BodyType(EventKind.ELECT_LEADERS, ElectLeadersReply, elect_leaders),
    AllocateProducerIds: BodyType(
        EventKind.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsReply, allocate_producer_ids
    ),
    AlterConfigs: BodyType(EventKind.ALTER_CONFIGS, AlterConfigsReply, alter_configs),
    DescribeConfigs: BodyType(EventKind.DESCRIBE_CONFIGS, DescribeConfigsReply, describe_configs),
    AlterScramCredentials: BodyType(
        EventKind.ALTER_SCRAM_CREDENTIALS, AlterScramCredentialsReply, alter_scram_credentials
    ),
    DescribeFeatures: BodyType(EventKind.DESCRIBE_FEATURES, DescribeFeaturesReply, describe_features),
    UpdateFeatures: BodyType(EventKind.UPDATE_FEATURES, UpdateFeaturesReply, _update_features),
    SetDrain: BodyType(EventKind.SET_DRAIN, OperatorReply, set_drain),
    SetPause: BodyType(EventKind.SET_PAUSE, OperatorReply, set_pause),
    SetMaintenance: BodyType(EventKind.SET_MAINTENANCE, OperatorReply, set_maintenance),
    SetFreeze: BodyType(EventKind.SET_FREEZE, OperatorReply, set_freeze),
    ForgetBroker: BodyType(EventKind.FORGET_BROKER, OperatorReply, deletion.forget_broker),
    CancelShutdown: BodyType(EventKind.CANCEL_SHUTDOWN, OperatorReply, cancel_shutdown),
    ApproveStop: BodyType(EventKind.APPROVE_STOP, StopApprovalsReply, approve_stop),
    WithdrawStopApproval: BodyType(EventKind.WITHDRAW_STOP_APPROVAL, StopApprovalsReply, withdraw_approval),
}


def event_of(body: Body, serial: int) -> Event:
    """The event for a request or report. ``serial`` makes it unique."""
    return Event(BODIES[type(body)].kind, body=body, serial=serial)


def not_controller(request: ControllerRequest) -> ControllerResponse:
    """The response of a controller that is not active (reference, sections 3, 6, 8.4)."""
    return answer_with(request, BODIES[type(request)].not_active)


def answer_with(request: ControllerRequest, error: ErrorCode) -> ControllerResponse:
    """The response that says nothing but this error."""
    answer = BODIES[type(request)].answer
    assert answer is not None
    return answer(error)
