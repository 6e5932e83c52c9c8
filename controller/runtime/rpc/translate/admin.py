"""What operators ask and are answered, from the wire to the core's values and back: translation, no decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import Message

from controller.core.requests.api import ControllerRequest
from controller.core.requests.elections import ElectionType, ElectLeaders, ElectLeadersReply
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    PartitionReassignment,
)
from controller.core.requests.topics import DeleteTopics, DeleteTopicsReply, TopicRef
from controller.runtime.rpc.translate import features, inspection, maintenance, topics
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import admin_service_pb2 as pb
from proto.gen import features_pb2, inspection_pb2, maintenance_pb2

#: By number on the wire; the names are the core's.
_ELECTIONS: dict[int, ElectionType] = {pb.ElectionType.Value(e.name): e for e in ElectionType}


class Method(NamedTuple):
    """One method of AdminService that the machine answers. ``read`` makes the core's request (raises
    BadRequestError), ``show`` the response."""

    request: type[Message]
    response: type[Message]
    read: Callable[[Any], ControllerRequest]
    show: Callable[[Any], Message]


def _read_deletion(request: pb.DeleteTopicsRequest) -> DeleteTopics:
    return DeleteTopics([TopicRef(topic.name, topic.topic_id) for topic in request.topics])


def _show_deletion(reply: DeleteTopicsReply) -> pb.DeleteTopicsResponse:
    return pb.DeleteTopicsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        responses=[
            pb.DeletedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=topic.error.value,  # type: ignore[arg-type]
                error_message=topic.message,
            )
            for topic in reply.topics
        ],
    )


def _read_reassignment(request: pb.AlterPartitionReassignmentsRequest) -> AlterPartitionReassignments:
    return AlterPartitionReassignments(
        [
            PartitionReassignment(
                p.topic, p.partition, tuple(p.replicas.broker_ids) if p.HasField("replicas") else None
            )
            for p in request.partitions
        ]
    )


def _show_reassignment(reply: AlterPartitionReassignmentsReply) -> pb.AlterPartitionReassignmentsResponse:
    return pb.AlterPartitionReassignmentsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        responses=[
            pb.PartitionResult(
                topic=p.topic,
                partition=p.partition,
                error_code=p.error.value,  # type: ignore[arg-type]
                error_message=p.message,
            )
            for p in reply.partitions
        ],
    )


def _read_listing(request: pb.ListPartitionReassignmentsRequest) -> ListPartitionReassignments:
    return ListPartitionReassignments([(p.topic, p.partition) for p in request.partitions] or None)


def _show_listing(reply: ListPartitionReassignmentsReply) -> pb.ListPartitionReassignmentsResponse:
    return pb.ListPartitionReassignmentsResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        partitions=[
            pb.OngoingPartitionReassignment(
                topic=move.topic,
                partition=move.partition,
                replicas=move.replicas,
                adding_replicas=move.adding,
                removing_replicas=move.removing,
                queued=move.queued,
                reasons=map(str, move.reasons),
            )
            for move in reply.partitions
        ],
    )


def _read_election(request: pb.ElectLeadersRequest) -> ElectLeaders:
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        *others, last = (f"{number} {election.name}" for number, election in _ELECTIONS.items())
        raise BadRequestError(
            f"election_type = {request.election_type}: must be {', '.join(others)} or {last}"
        )
    if request.all_partitions == bool(request.topic_partitions):
        raise BadRequestError(
            "topic_partitions: must name partitions, or all_partitions be set, and not both"
        )
    named = None if request.all_partitions else [(p.topic, p.partition) for p in request.topic_partitions]
    return ElectLeaders(election, named, request.leader if request.HasField("leader") else None)


def _show_election(reply: ElectLeadersReply) -> pb.ElectLeadersResponse:
    return pb.ElectLeadersResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        error_message=reply.message,
        results=[
            pb.ElectLeadersResult(
                topic=p.topic,
                partition=p.partition,
                error_code=p.error.value,  # type: ignore[arg-type]
                error_message=p.message,
                leader=p.leader,
            )
            for p in reply.partitions
        ],
    )


#: By the method's name on the wire.
METHODS: dict[str, Method] = {
    "CreateTopics": Method(
        pb.CreateTopicsRequest, pb.CreateTopicsResponse, topics.read_creation, topics.show_creation
    ),
    "CreatePartitions": Method(
        pb.CreatePartitionsRequest, pb.CreatePartitionsResponse, topics.read_expansion, topics.show_expansion
    ),
    "AlterConfigs": Method(
        pb.AlterConfigsRequest, pb.AlterConfigsResponse, topics.read_alteration, topics.show_alteration
    ),
    "DescribeConfigs": Method(
        pb.DescribeConfigsRequest,
        pb.DescribeConfigsResponse,
        topics.read_description,
        topics.show_description,
    ),
    "DescribeFeatures": Method(
        features_pb2.DescribeFeaturesRequest,
        features_pb2.DescribeFeaturesResponse,
        features.read_description,
        features.show_description,
    ),
    "UpdateFeatures": Method(
        features_pb2.UpdateFeaturesRequest,
        features_pb2.UpdateFeaturesResponse,
        features.read_update,
        features.show_update,
    ),
    "DeleteTopics": Method(pb.DeleteTopicsRequest, pb.DeleteTopicsResponse, _read_deletion, _show_deletion),
    "AlterPartitionReassignments": Method(
        pb.AlterPartitionReassignmentsRequest,
        pb.AlterPartitionReassignmentsResponse,
        _read_reassignment,
        _show_reassignment,
    ),
    "ListPartitionReassignments": Method(
        pb.ListPartitionReassignmentsRequest,
        pb.ListPartitionReassignmentsResponse,
        _read_listing,
        _show_listing,
    ),
    "WithdrawStopApproval": Method(
        inspection_pb2.WithdrawStopApprovalRequest,
        inspection_pb2.WithdrawStopApprovalResponse,
        inspection.read_withdrawal,
        inspection.show_withdrawal,
    ),
    "ElectLeaders": Method(pb.ElectLeadersRequest, pb.ElectLeadersResponse, _read_election, _show_election),
    **{
        name: Method(request, maintenance_pb2.OperatorResponse, read, maintenance.show_outcome)
        for name, request, read in (
            ("SetPause", maintenance_pb2.SetPauseRequest, maintenance.read_pause),
            ("SetMaintenance", maintenance_pb2.SetMaintenanceRequest, maintenance.read_maintenance),
            ("SetDrain", maintenance_pb2.SetDrainRequest, maintenance.read_drain),
            ("CancelShutdown", maintenance_pb2.CancelShutdownRequest, maintenance.read_cancel),
        )
    },
}
