"""An operator's line to a controller in the test's event loop."""

from __future__ import annotations

from typing import Any

import grpc

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, features_pb2, history_pb2, inspection_pb2, maintenance_pb2
from proto.gen.admin_service_pb2_grpc import AdminServiceStub

SERVICE = "/partition_controller.v1.AdminService/"
#: Each method but NOT_HERE with an empty request that parses, but for what a method insists on.
REQUESTS: dict[str, Any] = {
    "DescribeCluster": pb.DescribeClusterRequest(),
    "CreateTopics": pb.CreateTopicsRequest(),
    "CreatePartitions": pb.CreatePartitionsRequest(),
    "AlterConfigs": pb.AlterConfigsRequest(),
    "DescribeConfigs": pb.DescribeConfigsRequest(),
    "DescribeFeatures": features_pb2.DescribeFeaturesRequest(),
    "UpdateFeatures": features_pb2.UpdateFeaturesRequest(),
    "DeleteTopics": pb.DeleteTopicsRequest(),
    "ListTopicDeletions": pb.ListTopicDeletionsRequest(),
    "AlterPartitionReassignments": pb.AlterPartitionReassignmentsRequest(),
    "ListPartitionReassignments": pb.ListPartitionReassignmentsRequest(),
    "ListHistory": history_pb2.ListHistoryRequest(),
    "ElectLeaders": pb.ElectLeadersRequest(all_partitions=True),
    "DescribeMaintenance": maintenance_pb2.DescribeMaintenanceRequest(),
    "SetPause": maintenance_pb2.SetPauseRequest(author="ann"),
    "SetMaintenance": maintenance_pb2.SetMaintenanceRequest(author="ann"),
    "SetFreeze": maintenance_pb2.SetFreezeRequest(author="ann"),
    "ForgetBroker": maintenance_pb2.ForgetBrokerRequest(broker_id=999, reason="burned", author="ann"),
    "Audit": inspection_pb2.AuditRequest(),
    "ListQuarantine": maintenance_pb2.ListQuarantineRequest(),
    "DescribeReplicas": inspection_pb2.DescribeReplicasRequest(),
    "DescribeTopics": inspection_pb2.DescribeTopicsRequest(),
    "Explain": inspection_pb2.ExplainRequest(broker=1),
    "Plan": inspection_pb2.PlanRequest(preferred_election=True),
    "DryRun": inspection_pb2.DryRunRequest(
        steps=[inspection_pb2.DryRunStep(method="DeleteTopics", request=b"")]
    ),
    "CheckStoppable": inspection_pb2.CheckStoppableRequest(broker_ids=[1]),
    "ApproveStop": inspection_pb2.ApproveStopRequest(
        check=inspection_pb2.CheckStoppableRequest(broker_ids=[1]), reason="kernel", author="ann"
    ),
    "WithdrawStopApproval": inspection_pb2.WithdrawStopApprovalRequest(
        broker_ids=[1], reason="not today", author="ann"
    ),
    "SetDrain": maintenance_pb2.SetDrainRequest(author="ann"),
    "CancelShutdown": maintenance_pb2.CancelShutdownRequest(broker_id=999),
}
#: A stream, and what LeadershipService answers.
NOT_HERE = {"Watch", "ReleaseQuarantine", "ResignController", "ClaimController"}


async def ask(endpoint: str, method: str, request: Any) -> Any:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        return await getattr(AdminServiceStub(channel), method)(request, timeout=20)


async def garbage(endpoint: str, method: str) -> bytes:
    """What bytes that are no request are answered."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call: Any = channel.unary_unary(SERVICE + method)
        answer: bytes = await call(b"\xff\xff\xff garbage", timeout=20)
        return answer


def error_name(code: int) -> str:
    return common_pb2.ErrorCode.Name(code)


def errors(entries: Any) -> list[str]:
    """The errors of single topics or partitions, by name."""
    return [error_name(entry.error_code) for entry in entries]


def move(topic: str, partition: int, replicas: list[int] | None) -> pb.ReassignablePartition:
    wanted = None if replicas is None else pb.ReplicaList(broker_ids=replicas)
    return pb.ReassignablePartition(topic=topic, partition=partition, replicas=wanted)
