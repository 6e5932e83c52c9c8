"""Requests of operators about who leads: no matter of the core's machine, which a resignation ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import AUTHOR_MAX, REASON_MAX
from controller.errors import LeadershipError, reason_of
from controller.runtime import leadership_requests
from controller.runtime.daemon import Daemon
from controller.runtime.zookeeper.session import ConnectionLossError
from proto.gen import maintenance_pb2 as pb

Answer = tuple[ErrorCode, str]


class LeadershipService:
    """Handlers of AdminService; they run on the daemon's event loop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def methods(self) -> dict[str, Callable[[Any], Awaitable[pb.OperatorResponse]]]:
        """Handlers by the method's name on the wire."""
        return {
            "ResignController": _answering(self._resign),
            "ClaimController": _answering(self._claim),
            "ReleaseQuarantine": _answering(self._release),
        }

    async def _resign(self, request: pb.ResignControllerRequest) -> Answer:
        if problem := _attribution_problem(request):
            return ErrorCode.INVALID_REQUEST, problem
        if not self._daemon.active:
            return ErrorCode.NOT_CONTROLLER, ""
        successor = request.successor if request.HasField("successor") else None
        if request.to_kafka and successor is not None:
            return ErrorCode.INVALID_REQUEST, "successor: only without to_kafka"
        why = await leadership_requests.resign(
            self._daemon, request.reason, request.author, to_kafka=request.to_kafka, successor=successor
        )
        return (ErrorCode.OPERATION_NOT_ATTEMPTED, why) if why else (ErrorCode.NONE, "")

    async def _claim(self, request: pb.ClaimControllerRequest) -> Answer:
        del request
        why = await leadership_requests.claim_again(self._daemon)
        return (ErrorCode.OPERATION_NOT_ATTEMPTED, why) if why else (ErrorCode.NONE, "")

    async def _release(self, request: pb.ReleaseQuarantineRequest) -> Answer:
        if problem := _attribution_problem(request):
            return ErrorCode.INVALID_REQUEST, problem
        if not self._daemon.active:
            return ErrorCode.NOT_CONTROLLER, ""
        if not await leadership_requests.release(self._daemon, request.name, request.reason, request.author):
            return ErrorCode.INVALID_REQUEST, f"name: nothing is in quarantine as {request.name[:200]!r}"
        return ErrorCode.NONE, ""


def _answering(
    work: Callable[[Any], Awaitable[Answer]],
) -> Callable[[Any], Awaitable[pb.OperatorResponse]]:
    async def handle(request: Any) -> pb.OperatorResponse:
        try:
            error, message = await work(request)
        except (LeadershipError, ConnectionLossError) as failure:
            error, message = ErrorCode.NOT_CONTROLLER, reason_of(failure)
        return pb.OperatorResponse(error_code=error.value, error_message=message)  # type: ignore[arg-type]

    return handle


def _attribution_problem(request: Any) -> str:
    """What is wrong with reason and author; empty: nothing."""
    for field, given, limit in (
        ("reason", request.reason, REASON_MAX),
        ("author", request.author, AUTHOR_MAX),
    ):
        if not 0 < len(given.strip()) <= limit:
            return f"{field}: must be a text of 1 to {limit} characters"
    return ""
