"""Topics, plans and approvals to stop: messages to the core's and the planner's values and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from controller.core import znode_paths
from controller.core.model import NO_LEADER, Cluster, Partition, Topic
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import StopApprovalsReply, WithdrawStopApproval
from controller.planning import scenarios
from controller.planning.scenarios import Plan, Terms
from controller.planning.snapshot import Snapshot
from controller.planning.stoppable import Stoppable
from controller.runtime.rpc.translate.plan_data import stoppable_data
from controller.runtime.rpc.translate.topics import BadRequestError
from controller.runtime.zookeeper import codecs
from proto.gen import common_pb2
from proto.gen import inspection_pb2 as pb

#: Brokers that one request may name, and the largest min_isr_default.
BROKERS_MAX, MIN_ISR_MAX = 10_000, 99_999

# --- requests ------------------------------------------------------------------------------------------------


def read_brokers(field: str, ids: Sequence[int]) -> tuple[int, ...]:
    """Broker ids, each once. Raises BadRequestError for none, for too many, and for a negative one."""
    if not ids:
        raise BadRequestError(f"{field}: must name at least one broker")
    if len(ids) > BROKERS_MAX:
        raise BadRequestError(f"{field}: names {len(ids)} brokers, must name at most {BROKERS_MAX}")
    for position, broker_id in enumerate(ids):
        if broker_id < 0:
            raise BadRequestError(f"{field}[{position}] = {broker_id}: must be from 0 to {codecs.INT_MAX}")
    return tuple(dict.fromkeys(ids))


def read_min_isr(value: int) -> int:
    """The default of min.insync.replicas; 0 means 1. Raises BadRequestError."""
    if not 0 <= value <= MIN_ISR_MAX:
        raise BadRequestError(f"min_isr_default = {value}: must be from 1 to {MIN_ISR_MAX}, or 0 for 1")
    return value or 1


Scenario = Callable[[Snapshot, Terms], Plan]


def read_scenario(request: pb.PlanRequest) -> Scenario:
    """The scenario to plan. Raises BadRequestError."""
    which = request.WhichOneof("scenario")
    if request.HasField("batch") and which != "rolling_restart":
        raise BadRequestError("batch: only with rolling_restart")
    match which:
        case "broker_loss":
            ids = read_brokers("broker_loss.broker_ids", request.broker_loss.broker_ids)
            return lambda snapshot, terms: scenarios.broker_loss(snapshot, ids, terms)
        case "rack_loss":
            rack = request.rack_loss
            if not rack:
                raise BadRequestError("rack_loss: must name a rack")
            return lambda snapshot, terms: scenarios.rack_loss(snapshot, rack, terms)
        case "rolling_restart":
            return _read_restart(request)
        case "drain":
            (broker_id,) = read_brokers("drain", [request.drain])
            return lambda snapshot, terms: scenarios.drain(snapshot, broker_id, terms)
        case "preferred_election":
            if not request.preferred_election:
                raise BadRequestError("preferred_election: must be true where it is given")
            return scenarios.preferred_election
        case _:
            names = ", ".join(f.name for f in pb.PlanRequest.DESCRIPTOR.oneofs_by_name["scenario"].fields)
            raise BadRequestError(f"scenario: must be one of {names}")


def _read_restart(request: pb.PlanRequest) -> Scenario:
    ids: tuple[int, ...] = ()
    if request.rolling_restart.broker_ids:
        ids = read_brokers("rolling_restart.broker_ids", request.rolling_restart.broker_ids)
    batch = request.batch if request.HasField("batch") else 1
    if batch < 0:
        raise BadRequestError(f"batch = {batch}: must be from 1, or 0 for as many as is safe")
    return lambda snapshot, terms: scenarios.rolling_restart(snapshot, terms, batch, ids)


def read_partition(field: str, name: common_pb2.PartitionName) -> tuple[str, int]:
    if not name.topic:
        raise BadRequestError(f"{field}.topic: must name a topic")
    if name.partition < 0:
        raise BadRequestError(f"{field}.partition = {name.partition}: must be from 0 to {codecs.INT_MAX}")
    return name.topic, name.partition


def read_withdrawal(request: pb.WithdrawStopApprovalRequest) -> WithdrawStopApproval:
    ids = read_brokers("broker_ids", request.broker_ids)
    return WithdrawStopApproval(ids, request.reason, request.author)


# --- responses -----------------------------------------------------------------------------------------------


def show_stoppable(answer: Stoppable, *, overridden: bool = False) -> pb.CheckStoppableResponse:
    data = stoppable_data(answer, overridden=overridden)
    return pb.CheckStoppableResponse(answer=msgspec.json.encode(data).decode(), stoppable=data["stoppable"])


def show_withdrawal(reply: StopApprovalsReply) -> pb.WithdrawStopApprovalResponse:
    return pb.WithdrawStopApprovalResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        error_message=reply.message,
    )


def show_topic(
    cluster: Cluster, topic: Topic, unacknowledged: Callable[[Partition], str]
) -> pb.TopicDescription:
    """A topic with all partitions, in order of number. ``unacknowledged``: why a leader does not know that it leads."""
    return pb.TopicDescription(
        name=topic.name,
        topic_id=topic.id,
        partitions=[_partition(cluster, p, unacknowledged(p)) for _, p in sorted(topic.partitions.items())],
    )


def _partition(cluster: Cluster, partition: Partition, leader_problem: str) -> Any:
    """``offline_replicas``: on brokers that are offline or lost the disk, not on those only shutting down."""
    state = partition.leadership
    led = state is not None and state.leader != NO_LEADER
    return pb.TopicPartitionDescription(
        partition=partition.number,
        leader=state.leader if state else NO_LEADER,
        leader_epoch=state.leader_epoch if state else -1,
        partition_epoch=state.partition_epoch if state else -1,
        replicas=partition.replicas,
        isr=state.isr if state else (),
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        offline_replicas=[b for b in partition.replicas if not cluster.is_reachable(partition, b)],
        error_code=common_pb2.NONE if led else common_pb2.LEADER_NOT_AVAILABLE,
        leader_problem=leader_problem,
    )


def unknown_topic(cluster: Cluster, name: str) -> pb.TopicDescription:
    """The description of a topic that does not exist, or whose znode does not decode."""
    problem = cluster.problems.get(znode_paths.topic_path(name))
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if problem is None else ErrorCode.UNKNOWN_SERVER_ERROR
    message = f"no topic {name!r}" if problem is None else f"{znode_paths.topic_path(name)}: {problem}"
    return pb.TopicDescription(name=name, error_code=error.value, error_message=message)  # type: ignore[arg-type]
