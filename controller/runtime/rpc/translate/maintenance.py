"""Pause, maintenance and drained brokers: messages to the core's values and back."""

from __future__ import annotations

import time

from controller.core.cluster.automatic_maintenance import OfflineBrokers
from controller.core.model import Attribution, Cluster
from controller.core.requests.operator import (
    CancelShutdown,
    ForgetBroker,
    OperatorReply,
    SetDrain,
    SetFreeze,
    SetMaintenance,
    SetPause,
)
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import common_pb2
from proto.gen import maintenance_pb2 as pb


def read_pause(request: pb.SetPauseRequest) -> SetPause:
    return SetPause(request.paused, request.reason, request.author)


def read_maintenance(request: pb.SetMaintenanceRequest) -> SetMaintenance:
    return SetMaintenance(request.entered, request.reason, request.author)


def read_drain(request: pb.SetDrainRequest) -> SetDrain:
    """Raises BadRequestError."""
    _check_broker(request.broker_id)
    return SetDrain(request.broker_id, request.drained, request.reason, request.author, request.force)


def read_freeze(request: pb.SetFreezeRequest) -> SetFreeze:
    return SetFreeze(request.frozen, request.reason, request.author, request.until_ms)


def read_forgetting(request: pb.ForgetBrokerRequest) -> ForgetBroker:
    """Raises BadRequestError."""
    _check_broker(request.broker_id)
    return ForgetBroker(request.broker_id, request.reason, request.author, int(time.time() * 1000))


def read_cancel(request: pb.CancelShutdownRequest) -> CancelShutdown:
    """Raises BadRequestError."""
    _check_broker(request.broker_id)
    if request.broker_epoch < -1:
        raise BadRequestError(f"broker_epoch = {request.broker_epoch}: must be an epoch, or -1 for any")
    return CancelShutdown(request.broker_id, request.broker_epoch)


def _check_broker(broker_id: int) -> None:
    if broker_id < 0:
        raise BadRequestError(f"broker_id = {broker_id}: must not be negative")


def show_outcome(reply: OperatorReply) -> pb.OperatorResponse:
    return pb.OperatorResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        error_message=reply.message,
        remaining=[common_pb2.PartitionName(topic=t, partition=n) for t, n in reply.remaining],
    )


def describe(cluster: Cluster, found: OfflineBrokers) -> pb.DescribeMaintenanceResponse:
    """The current pause, maintenance and drains, and how far the controller is from entering maintenance
    automatically."""
    state = cluster.maintenance
    return pb.DescribeMaintenanceResponse(
        paused=_attribution(state.paused),
        maintenance=_attribution(state.entered),
        entered_automatically=state.automatic,
        drained={b: pb.Attribution(reason=a.reason, author=a.author) for b, a in state.drained.items()},
        shutting_down=sorted(cluster.shutting_down),
        gone=found.gone,
        known_brokers=found.known,
        offline_limit=found.limit,
        accepted=found.accepted,
        frozen=_attribution(state.freeze),
        frozen_until_ms=state.freeze.until_ms if state.freeze else 0,
    )


def _attribution(given: Attribution | None) -> pb.Attribution | None:
    return None if given is None else pb.Attribution(reason=given.reason, author=given.author)
