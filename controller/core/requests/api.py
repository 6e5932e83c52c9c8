"""Every request to the active controller, every answer, and the answer of a controller that is not active."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    OperatorReply,
    SetDrain,
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
from controller.core.requests.topics import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
)

ControllerRequest = (
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
    | DescribeFeatures
    | UpdateFeatures
    | SetDrain
    | SetPause
    | SetMaintenance
    | CancelShutdown
    | ApproveStop
    | WithdrawStopApproval
)


ControllerResponse = (
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
    | DescribeFeaturesReply
    | UpdateFeaturesReply
    | OperatorReply
    | StopApprovalsReply
)

#: Each answer is made of an error alone, too.
_ANSWERS: dict[type[ControllerRequest], Callable[[ErrorCode], ControllerResponse]] = {
    AlterPartition: AlterPartitionReply,
    ControlledShutdown: ControlledShutdownReply,
    CreateTopics: CreateTopicsReply,
    CreatePartitions: CreatePartitionsReply,
    DeleteTopics: DeleteTopicsReply,
    AlterPartitionReassignments: AlterPartitionReassignmentsReply,
    ListPartitionReassignments: ListPartitionReassignmentsReply,
    ElectLeaders: ElectLeadersReply,
    AllocateProducerIds: AllocateProducerIdsReply,
    AlterConfigs: AlterConfigsReply,
    DescribeConfigs: DescribeConfigsReply,
    DescribeFeatures: DescribeFeaturesReply,
    UpdateFeatures: UpdateFeaturesReply,
    SetDrain: OperatorReply,
    SetPause: OperatorReply,
    SetMaintenance: OperatorReply,
    CancelShutdown: OperatorReply,
    ApproveStop: StopApprovalsReply,
    WithdrawStopApproval: StopApprovalsReply,
}


def not_controller(request: ControllerRequest) -> ControllerResponse:
    """What a controller answers that is not active, or no longer (reference, sections 3, 6, 8.4).

    Whatever the request did until then is found by its repetition: each may be asked again.
    """
    if isinstance(request, ControlledShutdown):
        return ControlledShutdownReply(ErrorCode.STALE_CONTROLLER_EPOCH)
    return _ANSWERS[type(request)](ErrorCode.NOT_CONTROLLER)


@dataclass(frozen=True)
class Reply:
    """The answer to the request that came with event ``serial``."""

    serial: int
    value: ControllerResponse
