"""Deletions, reassignments and elections: messages to the core's values and back."""

from __future__ import annotations

from controller.core.requests.elections import ElectionType, ElectLeaders, ElectLeadersReply
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    PartitionReassignment,
)
from controller.core.requests.topics import DeleteTopics, DeleteTopicsReply, TopicRef
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import admin_service_pb2 as pb

#: By number on the wire; the names are the same as in the core.
_ELECTIONS: dict[int, ElectionType] = {pb.ElectionType.Value(e.name): e for e in ElectionType}


def read_deletion(request: pb.DeleteTopicsRequest) -> DeleteTopics:
    return DeleteTopics([TopicRef(topic.name, topic.topic_id) for topic in request.topics])


def show_deletion(reply: DeleteTopicsReply) -> pb.DeleteTopicsResponse:
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


def read_reassignment(request: pb.AlterPartitionReassignmentsRequest) -> AlterPartitionReassignments:
    return AlterPartitionReassignments(
        [
            PartitionReassignment(
                p.topic, p.partition, tuple(p.replicas.broker_ids) if p.HasField("replicas") else None
            )
            for p in request.partitions
        ]
    )


def show_reassignment(reply: AlterPartitionReassignmentsReply) -> pb.AlterPartitionReassignmentsResponse:
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


def read_listing(request: pb.ListPartitionReassignmentsRequest) -> ListPartitionReassignments:
    return ListPartitionReassignments([(p.topic, p.partition) for p in request.partitions] or None)


def show_listing(reply: ListPartitionReassignmentsReply) -> pb.ListPartitionReassignmentsResponse:
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


def read_election(request: pb.ElectLeadersRequest) -> ElectLeaders:
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


def show_election(reply: ElectLeadersReply) -> pb.ElectLeadersResponse:
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
