"""AdminService, both ends: every controller serves it, only the active one has answers, `pctl` asks."""

from __future__ import annotations

import grpc

from controller.runtime import view
from controller.runtime.daemon import Daemon
from proto import admin_service_pb2 as pb
from proto import broker_control_pb2, common_pb2
from proto.admin_service_pb2_grpc import (
    AdminServiceServicer,
    AdminServiceStub,
)


class AdminService(AdminServiceServicer):  # type: ignore[misc]
    """Handlers run on the daemon's event loop, between its steps."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def DescribeCluster(  # noqa: N802  (the method's name on the wire)
        self, request: pb.DescribeClusterRequest, context: object
    ) -> pb.DescribeClusterResponse:
        """The active controller's view; NOT_CONTROLLER with the last known controller id elsewhere."""
        del request, context
        daemon = self._daemon
        known = daemon.current_controller.controller_id
        term = daemon.term
        if term is None or not daemon.active:
            return pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER, controller_id=known)
        cluster = term.machine.cluster
        led, held = view.replica_counts(term)
        return pb.DescribeClusterResponse(
            controller_id=known,
            controller_epoch=term.won.epoch,
            event_id=term.machine.event_id,
            brokers=[
                pb.BrokerDescription(
                    broker_id=broker.id,
                    broker_epoch=broker.epoch,
                    endpoints=[
                        broker_control_pb2.Endpoint(
                            listener=e.listener,
                            security_protocol=e.security_protocol,
                            host=e.host,
                            port=e.port,
                        )
                        for e in broker.endpoints
                    ],
                    rack=broker.rack or "",
                    leader_count=led.get(broker.id, 0),
                    replica_count=held.get(broker.id, 0),
                    pending_pushes=term.machine.outbox.pending(broker.id),
                    push_problem=status.problem if (status := term.senders.status.get(broker.id)) else "",
                )
                for _, broker in sorted(cluster.brokers.items())
            ],
            topic_count=len(cluster.topics),
            partition_count=sum(len(t.partitions) for t in cluster.topics.values()),
            offline_partition_count=cluster.offline_partitions_count(),
            preferred_replica_imbalance_count=cluster.preferred_replica_imbalance_count(),
            problems=cluster.problems,
        )


async def describe_cluster(endpoint: str, timeout_s: float) -> pb.DescribeClusterResponse | str:
    """Ask the controller at ``host:port``; why it did not answer, in words, when it did not."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        try:
            answer: pb.DescribeClusterResponse = await AdminServiceStub(channel).DescribeCluster(
                pb.DescribeClusterRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    return answer
