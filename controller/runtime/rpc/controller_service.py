"""ControllerService: requests of brokers to the active controller, from the wire to the machine and back.

Every controller serves it. One that is not active answers NOT_CONTROLLER, to ControlledShutdown
STALE_CONTROLLER_EPOCH (reference, section 6); brokers then read ``/controller`` again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from controller.core.handlers import not_controller
from controller.core.model import LeaderAndIsr
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.requests.brokers import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    Altered,
    AlterPartition,
    AlterPartitionReply,
    ControlledShutdown,
    ControlledShutdownReply,
    Proposal,
)
from controller.runtime.daemon import Daemon
from controller.runtime.observe.loop_lag import in_turns
from controller.runtime.rpc.access import Unary
from proto.gen import controller_service_pb2 as pb

T = TypeVar("T")
U = TypeVar("U")


class ControllerService:
    """Handlers run on the daemon's event loop; the machine decides."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def methods(self) -> dict[str, Unary]:
        """Handlers by the method's name on the wire."""
        return {
            "AlterPartition": self._alter_partition,
            "ControlledShutdown": self._controlled_shutdown,
            "AllocateProducerIds": self._allocate_producer_ids,
        }

    async def _alter_partition(self, request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse:
        """Change ISRs (reference, section 8.4). Partition results are in the request's order."""
        proposals = await _each(request.partitions, _proposal)
        answer = await self._ask(AlterPartition(request.broker_id, request.broker_epoch, proposals))
        assert isinstance(answer, AlterPartitionReply)
        metrics = self._daemon.metrics
        for error, count in Counter(altered.error for altered in answer.partitions).items():
            metrics.altered_partitions.labels(error.name).inc(count)
        return pb.AlterPartitionResponse(
            error_code=answer.error.value,  # type: ignore[arg-type]
            partitions=await _each(answer.partitions, _altered),
        )

    async def _controlled_shutdown(
        self, request: pb.ControlledShutdownRequest
    ) -> pb.ControlledShutdownResponse:
        """Move leaderships away from a broker that shuts down (reference, section 6)."""
        answer = await self._ask(ControlledShutdown(request.broker_id, request.broker_epoch))
        assert isinstance(answer, ControlledShutdownReply)
        return pb.ControlledShutdownResponse(
            error_code=answer.error.value,  # type: ignore[arg-type]
            remaining_partitions=[
                pb.RemainingPartition(topic=topic, partition=number) for topic, number in answer.remaining
            ],
        )

    async def _allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest
    ) -> pb.AllocateProducerIdsResponse:
        """Reserve a block of producer ids for a broker (reference, section 8.6)."""
        answer = await self._ask(AllocateProducerIds(request.broker_id, request.broker_epoch))
        assert isinstance(answer, AllocateProducerIdsReply)
        return pb.AllocateProducerIdsResponse(
            error_code=answer.error.value,  # type: ignore[arg-type]
            producer_id_start=answer.start,
            producer_id_len=answer.length,
        )

    async def _ask(self, request: ControllerRequest) -> ControllerResponse:
        term = self._daemon.leading
        return not_controller(request) if term is None else await term.ask(request)


async def _each(items: Sequence[T], made: Callable[[T], U]) -> list[U]:
    """What is made of each item; other tasks run between slices of a long list."""
    results: list[U] = []
    async for some in in_turns(items):
        results.extend(map(made, some))
    return results


def _proposal(asked: pb.AlterPartitionState) -> Proposal:
    return Proposal(
        asked.topic,
        asked.topic_id,
        asked.partition,
        asked.leader_epoch,
        tuple(asked.new_isr),
        asked.leader_recovery_state,
        asked.partition_epoch,
        tuple(asked.isr_epochs),
        tuple(asked.isr_directories),
    )


def _altered(altered: Altered) -> pb.AlteredPartition:
    """The result for one partition; a refused one has no state."""
    state = altered.state or LeaderAndIsr(-1, -1, (), -1, -1)
    return pb.AlteredPartition(
        topic=altered.topic,
        partition=altered.partition,
        error_code=altered.error.value,  # type: ignore[arg-type]
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=state.recovery,  # type: ignore[arg-type]
        partition_epoch=state.partition_epoch,
    )
