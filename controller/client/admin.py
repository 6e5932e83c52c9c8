"""The client of AdminService: `pctl` sends its requests to the active controller with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from controller.errors import ControllerError
from proto.error_names import error_name
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, history_pb2
from proto.gen.admin_service_pb2_grpc import AdminServiceStub
from proto.limits import MESSAGE_LIMITS
from proto.security.grpc_channels import GrpcTls, details_of, open_channel

#: Status codes of a stream whose controller stopped.
_GONE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)
#: What the names of methods that change nothing begin with.
_READING = ("Audit", "CheckStoppable", "Describe", "DryRun", "Explain", "List", "Plan")
CHECK_FIRST = "check whether it was carried out before trying again"
ACTIVE_ONLY = "its failover is not completed, or it resigned"


class RequestFailedError(ControllerError):
    """A request as a whole was not answered, or refused; the message names the controller and the reason."""


class NoAnswerError(RequestFailedError):
    """No active controller answered; the message names the controller and what happened instead."""


class RefusedError(RequestFailedError):
    """The active controller refused a request as a whole: ``error`` is its name, ``message`` the reason as text."""

    def __init__(self, endpoint: str, method: str, error: str, message: str) -> None:
        super().__init__(f"the controller at {endpoint} refused {method}: {error}: {message}")
        self.error, self.message = error, message


async def describe_cluster(
    endpoint: str, timeout_s: float, tls: GrpcTls | None = None
) -> pb.DescribeClusterResponse | str:
    """The response of the controller at ``host:port``; as text why it did not answer, if it did not."""
    async with open_channel(endpoint, tls) as channel:
        try:
            answer: pb.DescribeClusterResponse = await AdminServiceStub(channel).DescribeCluster(
                pb.DescribeClusterRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {details_of(error, tls)}"
    return answer


def not_described(answer: pb.DescribeClusterResponse | str) -> str:
    """Why a controller does not describe the cluster, as text; empty: it does."""
    if isinstance(answer, str):
        return answer
    if answer.error_code == common_pb2.NOT_CONTROLLER:
        return f"NOT_CONTROLLER: {ACTIVE_ONLY}"
    if answer.error_code == common_pb2.CLUSTER_AUTHORIZATION_FAILED:
        return "CLUSTER_AUTHORIZATION_FAILED: who asks may not DESCRIBE the cluster"
    return error_name(answer.error_code) if answer.error_code else ""


async def listens(endpoint: str, timeout_s: float) -> bool:
    """Whether a process takes connections at ``host:port``: that of a controller that was killed does not. A host that
    is gone refuses none."""
    host, _, port = endpoint.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:
        return False
    writer.close()
    return True


def changes_nothing(method: str) -> bool:
    return method.startswith(_READING)


async def ask(endpoint: str, method: str, request: Any, timeout_s: float, tls: GrpcTls | None = None) -> Any:
    """Call a method of AdminService at the controller at ``host:port``; return its response.

    Errors of single topics or partitions are in the response. Raises RefusedError when the request as a whole was
    refused, NoAnswerError when it was not answered: then it may have been carried out, unless ``endpoint`` is empty.
    In both cases the request may be sent again.
    """
    if not endpoint:
        raise NoAnswerError("no controller is active: nothing was changed")
    harmless = changes_nothing(method)
    async with open_channel(endpoint, tls, MESSAGE_LIMITS) as channel:
        try:
            answer = await getattr(AdminServiceStub(channel), method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise NoAnswerError(
                    f"the controller at {endpoint} does not know {method}, and did nothing: is it older than this"
                    " program?"
                ) from None
            raise NoAnswerError(
                f"the controller at {endpoint} did not answer {method} ({error.code().name}: {details_of(error, tls)})"
                + ("" if harmless else f"; {CHECK_FIRST}")
            ) from None
    if answer.error_code == common_pb2.NOT_CONTROLLER:
        # A controller that resigned does not know the result of a write that it was waiting for.
        raise NoAnswerError(
            f"the controller at {endpoint} answered NOT_CONTROLLER to {method}: {ACTIVE_ONLY}; "
            + ("try again" if harmless else CHECK_FIRST)
        )
    if answer.error_code:
        name = error_name(answer.error_code)
        raise RefusedError(endpoint, method, name, answer.error_message)
    return answer


async def watch(
    endpoint: str, request: history_pb2.WatchRequest, timeout_s: float, tls: GrpcTls | None = None
) -> AsyncGenerator[history_pb2.WatchResponse, None]:
    """The stream of the controller at ``host:port``. It ends when the controller's term is over, when it stops, or when
    its first response, which it sends at once, takes longer than ``timeout_s``. Raises RefusedError."""
    async with open_channel(endpoint, tls, MESSAGE_LIMITS) as channel:
        call = AdminServiceStub(channel).Watch(request)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await call.read()
            while answer is not grpc.aio.EOF and answer.error_code != common_pb2.NOT_CONTROLLER:
                if answer.error_code:
                    name = error_name(answer.error_code)
                    raise RefusedError(endpoint, "Watch", name, answer.error_message)
                yield answer
                answer = await call.read()
        except TimeoutError:
            return
        except grpc.aio.AioRpcError as error:
            if error.code() not in _GONE:
                raise RefusedError(endpoint, "Watch", error.code().name, error.details() or "") from None
        finally:
            call.cancel()
