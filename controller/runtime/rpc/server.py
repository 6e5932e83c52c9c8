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
#: As gRPC calls them: with request and context.
_Unary = Callable[[Any, Any], Awaitable[Message]]
_Stream = Callable[[Any, Any], AsyncGenerator[Message, None]]

#: Concurrent calls; a broker has one of each kind. Calls beyond it are answered with RESOURCE_EXHAUSTED.
CALLS_MAX = 1000
#: Of them, those whose request has not come yet.
ARRIVALS_MAX = 500


async def start_server(daemon: Daemon, host: str, port: int) -> tuple[grpc.aio.Server, int]:
    """Start serving; return the server (to stop) and the actual port. Raises OSError when it cannot listen."""
    settings = daemon.settings
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            *connection_limits(settings.grpc_connections_max),
            *MESSAGE_LIMITS,
        ],
        maximum_concurrent_rpcs=CALLS_MAX,
    )
    admin, arrivals = AdminService(daemon), Arrivals(ARRIVALS_MAX)
    server.add_generic_rpc_handlers(
        (
            _service(daemon, arrivals, ADMIN_SERVICE, admin.methods(), admin.streams()),
            _service(daemon, arrivals, CONTROLLER_SERVICE, ControllerService(daemon).methods(), {}),
        )
    )
    try:
        bound = add_port(server, join_address(host, port), daemon.tls)
    except RuntimeError as error:
        raise OSError(str(error)) from None
    await server.start()
    return server, bound


def _service(
    daemon: Daemon,
    arrivals: Arrivals,
    service: str,
    methods: Mapping[str, Unary],
    streams: Mapping[str, Stream],
) -> grpc.GenericRpcHandler:
    """The handlers of a service, each behind a guard of its own. They are not generated: gRPC would print a traceback
    for each request that does not parse, so any client could fill the log. Here such a request comes to its guard as
    None, and to no handler."""
    handlers: dict[str, _Handler] = {}
    for name in (*methods, *streams):
        request, response = request_of(service, name), response_of(service, name)
        guard = Guard(daemon, f"/{service}/{name}")
        make: Any
        guarded: Any
        if name in methods:
            make = grpc.stream_unary_rpc_method_handler
            guarded = arrivals.answered(_named(guard, guard.unary(_limited(name, methods[name], response))))
        else:
            make = grpc.stream_stream_rpc_method_handler
            limited = _limited_stream(name, streams[name], response)
            guarded = arrivals.streamed(_named_stream(guard, guard.stream(limited)))
        handlers[name] = make(
            guarded,
            request_deserializer=_parser(name, request),
            response_serializer=response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service, handlers)


def _named(guard: Guard, handler: _Unary) -> _Unary:
    """The handler, for callers who prove who they are or claim nothing."""

    async def handle(request: Any, context: Any) -> Message:
        try:
            return await handler(request, context)
        except UnauthenticatedError as error:
            return await _unauthenticated(guard, context, error)

    return handle


def _named_stream(guard: Guard, handler: _Stream) -> _Stream:
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


def _limited(method: str, handler: Unary, response: type[Message]) -> Unary:
    """The handler, for requests that parse and keep the size limits."""

    async def handle(request: Any) -> Message:
        refusal = _refused(method, request, response)
        return refusal if refusal is not None else await handler(request)

    return handle


def _limited_stream(method: str, handler: Stream, response: type[Message]) -> Stream:
    """As ``_limited``, for a streaming method: a refusal is its only response."""

    async def handle(request: Any) -> AsyncGenerator[Message, None]:
        refusal = _refused(method, request, response)
        if refusal is not None:
            yield refusal
            return
        async with aclosing(handler(request)) as answers:
            async for answer in answers:
                yield answer

    return handle


def _refused(method: str, request: Message | None, response: type[Message]) -> Message | None:
    if request is None:
        problem = "the request does not parse"
    elif found := excess(request):
        problem = found
        log.warning("excessive_request", method=method, problem=problem)
    else:
        return None
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
