"""What only the active controller knows about replicas: refusals of brokers, and what its audit found."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.client import admin
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import inspection_pb2 as pb

#: Texts by topic and partition.
ReplicaProblems = Mapping[tuple[str, int], list[str]]


async def replica_problems(
    options: Options, cluster_state: ClusterState, topics: Collection[str] = ()
) -> ReplicaProblems:
    """Empty if no controller answers, with a note: partitions are then shown from ZooKeeper alone."""
    endpoint = cluster_state.controller_endpoint
    if not endpoint:
        note("pctl: no controller is active: refusals of brokers are not known")
        return {}
    request = pb.AuditRequest(topics=topics, recorded=True)
    try:
        answer: Any = await admin.ask(endpoint, "Audit", request, options.timeout_s, options.tls)
    except admin.RequestFailedError as error:
        note(f"pctl: from ZooKeeper alone ({error}): refusals of brokers are not known")
        return {}
    found: dict[tuple[str, int], list[str]] = {}
    for problem in answer.problems:
        texts = found.setdefault((problem.topic, problem.partition), [])
        texts.append(f"broker {problem.broker_id} {problem.what}")
    return found
