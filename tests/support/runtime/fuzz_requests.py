"""What requests to a controller are made of: names and numbers that mean something to it, and requests that pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.runtime.admins import REQUESTS
from tests.support.runtime.fuzzed_cluster import METHODS
from tests.support.runtime.random_messages import Known

ERRORS = {number: name for name, number in common_pb2.ErrorCode.items() if name != "UNKNOWN_SERVER_ERROR"}
TEXTS = (
    "t", "u", "t", "u", "v", "w", "a.b", "a_b", "1", "2", "3", "7", "min.insync.replicas", "retention.ms", "f",
    "unclean.leader.election.enable", "true", "2", *METHODS, "made", "push", "partition", "ann", "because",
)  # fmt: skip
#: What a dry run may be of.
INNER = [m.input_type for name, m in METHODS.items() if name not in ("DryRun", "Watch")]
#: Requests that would be carried out; one field of them is then stretched.
GOOD: dict[str, Any] = REQUESTS | {
    "CreateTopics": pb.CreateTopicsRequest(
        topics=[pb.CreatableTopic(name="w", num_partitions=1, replication_factor=1)], validate_only=True
    ),
    "CreatePartitions": pb.CreatePartitionsRequest(
        topics=[pb.NewPartitions(name="t", count=10_003)], validate_only=True
    ),
    "AlterPartitionReassignments": pb.AlterPartitionReassignmentsRequest(
        partitions=[
            pb.ReassignablePartition(topic="t", partition=0, replicas=pb.ReplicaList(broker_ids=[1, 2]))
        ]
    ),
    "ElectLeaders": pb.ElectLeadersRequest(topic_partitions=[common_pb2.PartitionName(topic="t")]),
    "AlterConfigs": pb.AlterConfigsRequest(
        resources=[
            pb.AlterConfigsResource(
                resource=pb.ConfigResource(resource_type=pb.TOPIC, resource_name="t"),
                configs=[pb.AlterableConfig(name="retention.ms", value="1")],
            )
        ]
    ),
    "DescribeConfigs": pb.DescribeConfigsRequest(
        resources=[pb.ConfigResource(resource_type=pb.TOPIC, resource_name="t")]
    ),
}


def known(broker_epochs: Iterable[int]) -> Known:
    return Known(TEXTS, (1, 2, 3, 0, 1, 2, 4), (*broker_epochs, 1), INNER)
