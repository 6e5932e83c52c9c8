"""The gRPC server of a controller: AdminService and ControllerService on one address."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.rpc.access import Guard, Stream, Unary, set_error
from controller.runtime.rpc.admin_service import AdminService
from controller.runtime.rpc.controller_service import ControllerService
from controller.runtime.rpc.limits import excess
from controller.runtime.rpc.methods import ADMIN_SERVICE, CONTROLLER_SERVICE, request_of, response_of
from proto.addresses import join_address
from proto.arrivals import Arrivals
from proto.limits import MESSAGE_LIMITS, connection_limits
from proto.security.callers import UnauthenticatedError
from proto.security.grpc_channels import add_port

log = structlog.get_logger(__name__)

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

#: Concurrent calls; a broker has one of each kind. Calls beyond it are answered with RESOURCE_EXHAUSTED.
CALLS_MAX = 1000
#: Of them, those whose request has not come yet.
ARRIVALS_MAX = 500


async def start_server(daemon: Daemon, host: str, port: int) -> tuple[grpc.aio.Server, int]:
    """Start serving; return the server (to stop) and the actual port. Raises OSError when it cannot listen."""
    settings = daemon.settings
    server = grpc.aio.server(
        interceptors=[_Authorization(daemon)],
        options=[
            ("grpc.so_reuseport", 0),
            *connection_limits(settings.grpc_connections_max),
            *MESSAGE_LIMITS,
        ],
        maximum_concurrent_rpcs=CALLS_MAX,
    )
    admin = AdminService(daemon)
    server.add_generic_rpc_handlers(
        (
            _service(daemon, ADMIN_SERVICE, admin.methods(), admin.streams()),
            _service(daemon, CONTROLLER_SERVICE, ControllerService(daemon).methods(), {}),
        )
    )
    try:
        bound = add_port(server, join_address(host, port), daemon.tls)
    except RuntimeError as error:
        raise OSError(str(error)) from None
    await server.start()
    return server, bound


class _Authorization(grpc.aio.ServerInterceptor):
    """Puts a guard before every handler, so that none can be forgotten."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._arrivals = daemon, Arrivals(ARRIVALS_MAX)
        self._guarded: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        path = handler_call_details.method
        if path not in self._guarded:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._guarded[path] = _guarded(handler, Guard(self._daemon, path), self._arrivals)
        return self._guarded[path]


def _guarded(handler: _Handler, guard: Guard, arrivals: Arrivals) -> _Handler:
    unary: Any = handler.unary_unary
    stream: Any = handler.unary_stream
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(
            arrivals.streamed(_named_stream(guard, guard.stream(stream))),
            handler.request_deserializer,
            handler.response_serializer,
        )
    return grpc.stream_unary_rpc_method_handler(
        arrivals.answered(_named(guard, guard.unary(unary))),
        handler.request_deserializer,
        handler.response_serializer,
    )


def _named(guard: Guard, handler: Unary) -> Unary:
    """The handler, for callers who prove who they are or claim nothing."""

    async def handle(request: Any, context: Any) -> Message:
        try:
            return await handler(request, context)
        except UnauthenticatedError as error:
            return await _unauthenticated(guard, context, error)

    return handle


def _named_stream(guard: Guard, handler: Stream) -> Stream:
    """``_named`` for a streaming method."""

    async def handle(request: Any, context: Any) -> AsyncGenerator[Message, None]:
        try:
            async with aclosing(handler(request, context)) as answers:
                async for answer in answers:
                    yield answer
        except UnauthenticatedError as error:
            await _unauthenticated(guard, context, error)

    return handle


async def _unauthenticated(guard: Guard, context: Any, error: UnauthenticatedError) -> NoReturn:
    log.warning("not_authenticated", peer=context.peer(), why=str(error))
    guard.not_authenticated(context.peer())
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
    raise AssertionError("abort raises")


def _service(
    daemon: Daemon, service: str, methods: Mapping[str, Unary], streams: Mapping[str, Stream]
) -> grpc.GenericRpcHandler:
    """The handlers of a service, not generated: gRPC would print a traceback for each request that does not parse,
    so any client could fill the log. Here such a request is passed as None and answered."""
    handlers: dict[str, _Handler] = {}
    for name in (*methods, *streams):
        request, response = request_of(service, name), response_of(service, name)
        limited: Any
        if name in methods:
            make: Any = grpc.unary_unary_rpc_method_handler
            limited = _limited(daemon, name, methods[name], response)
        else:
            make = grpc.unary_stream_rpc_method_handler
            limited = _limited_stream(daemon, name, streams[name], response)
        handlers[name] = make(
            limited,
            request_deserializer=_parser(name, request),
            response_serializer=response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service, handlers)


def _limited(daemon: Daemon, method: str, handler: Unary, response: type[Message]) -> Unary:
    """The handler behind the size limits."""

    async def handle(request: Any, context: Any) -> Message:
        refusal = _too_much(daemon, method, request, response)
        return refusal if refusal is not None else await handler(request, context)

    return handle


def _limited_stream(daemon: Daemon, method: str, handler: Stream, response: type[Message]) -> Stream:
    """As ``_limited``, for a streaming method: a refusal is its only response."""

    async def handle(request: Any, context: Any) -> AsyncGenerator[Message, None]:
        refusal = _too_much(daemon, method, request, response)
        if refusal is not None:
            yield refusal
            return
        async with aclosing(handler(request, context)) as answers:
            async for answer in answers:
                yield answer

    return handle


def _too_much(
    daemon: Daemon, method: str, request: Message | None, response: type[Message]
) -> Message | None:
    problem = excess(request) if request is not None else None
    if problem is None:
        return None
    log.warning("excessive_request", method=method, problem=problem)
    daemon.metrics.requests.labels(method, ErrorCode.INVALID_REQUEST.name).inc()
    answer = response()
    set_error(answer, ErrorCode.INVALID_REQUEST, problem)
    return answer


def _parser(method: str, kind: type[Message]) -> Callable[[bytes], Message | None]:
    def parse(data: bytes) -> Message | None:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            log.warning("malformed_request", method=method, problem=str(error))
            return None

    return parse
