"""The gRPC server: ``BrokerControl`` and ``BrokerData`` on one address, both behind `access`. Outgoing calls are in
`peers`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from broker_stub.control.gates import ControllerTerm, UnknownTerm
from broker_stub.control.handlers import ControlHandlers, UnreadableRequest
from broker_stub.errors import ListenFault
from broker_stub.rpc.access import Guard
from broker_stub.rpc.terms import Terms, TermUnavailable
from proto.addresses import join_address
from proto.arrivals import Arrivals
from proto.gen import broker_control_pb2 as control
from proto.gen import broker_data_pb2 as data
from proto.gen import common_pb2 as codes
from proto.limits import MESSAGE_LIMITS, connection_limits
from proto.security.authorization import Principal
from proto.security.callers import UnauthenticatedError
from proto.security.grpc_channels import GrpcTls, add_port

_log = structlog.get_logger("broker_stub.rpc.server")
#: Open connections: strangers must not take the descriptors of logs, as a disk that cannot be used ends the broker.
CONNECTIONS_MAX = 5000
#: Calls whose request has not come yet: those of producers are large.
ARRIVALS_MAX = 5000
_OPTIONS = [
    *MESSAGE_LIMITS,
    # A second broker on the same port must fail, not share its connections.
    ("grpc.so_reuseport", 0),
    # Peers send pings during a call (`peers`); with the default the server would close such connections.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
_CONTROL = control.DESCRIPTOR.services_by_name["BrokerControl"].full_name
_DATA = data.DESCRIPTOR.services_by_name["BrokerData"].full_name

_Behaviour = Callable[[bytes, Principal], Awaitable[bytes]]
_ControlHandler = Callable[[bytes, str, ControllerTerm | None], Message]


class DataMethod:
    """A method of ``BrokerData``: how a message is read, what answers it. Raises UnreadableRequest."""

    def __init__(self, name: str, handler: Callable[[Any], Awaitable[Message]]) -> None:
        method = data.DESCRIPTOR.services_by_name["BrokerData"].methods_by_name[name]
        self.handler, self.response_type = handler, GetMessageClass(method.output_type)
        self._request_type = GetMessageClass(method.input_type)

    def parse(self, message: bytes) -> Message:
        try:
            return self._request_type.FromString(message)
        except DecodeError as error:
            name = self._request_type.DESCRIPTOR.name
            raise UnreadableRequest(f"{len(message)} bytes are not a {name}: {error}") from error


class BrokerServer:
    """Serves both services on one address.

    Control requests block on the disk, so they run one at a time on ``control_worker``, a single thread. They wait
    until ``registered``: an earlier request is meant for the broker's former process, whose registration still
    exists, and this process may have lost that one's data. One of an unknown controller waits for a look at ZooKeeper
    by ``terms``, and gets UNAVAILABLE while there is none: the controller sends it again. An unreadable request gets
    INVALID_ARGUMENT, a caller who does not prove what it claims to be UNAUTHENTICATED. ``on_bug`` receives unexpected
    exceptions of handlers.
    """

    def __init__(
        self,
        handlers: ControlHandlers,
        control_worker: Executor,
        data_methods: Mapping[str, DataMethod],
        on_bug: Callable[[BaseException], None],
        registered: asyncio.Event,
        terms: Terms,
        guard: Guard,
        tls: GrpcTls | None,
    ) -> None:
        self._on_bug, self._worker, self._registered = on_bug, control_worker, registered
        self._terms, self._guard, self._tls = terms, guard, tls
        self._arrivals = Arrivals(ARRIVALS_MAX)
        self._server = grpc.aio.server(options=[*_OPTIONS, *connection_limits(CONNECTIONS_MAX)])
        control_methods: dict[str, tuple[_ControlHandler, type[Message]]] = {
            "LeaderAndIsr": (handlers.leader_and_isr, control.LeaderAndIsrResponse),
            "StopReplica": (handlers.stop_replica, control.StopReplicaResponse),
            "UpdateMetadata": (handlers.update_metadata, control.UpdateMetadataResponse),
            "DescribeState": (handlers.describe_state, control.DescribeStateResponse),
        }
        self._add(_CONTROL, {name: self._control(name, *method) for name, method in control_methods.items()})
        self._add(_DATA, {name: self._data(name, method) for name, method in data_methods.items()})

    def _add(self, service: str, methods: Mapping[str, _Behaviour]) -> None:
        behaviours: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.stream_unary_rpc_method_handler(self._arrivals.answered(self._serve(behaviour)))
            for name, behaviour in methods.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, behaviours),))

    async def start(self, host: str, port: int) -> int:
        """Listen and serve. Returns the port: the chosen one if ``port`` is 0. Raises ListenFault."""
        address = join_address(host, port)
        try:
            bound = add_port(self._server, address, self._tls)
        except RuntimeError as error:
            raise ListenFault(f"cannot listen on {address}: {error}") from error
        if bound == 0:
            raise ListenFault(f"cannot listen on {address}")
        await self._server.start()
        return bound

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests; running ones get ``grace_s`` seconds."""
        await self._server.stop(grace_s)

    def _control(self, method: str, handler: _ControlHandler, response: type[Message]) -> _Behaviour:
        def work(message: bytes, sender: str, term: ControllerTerm | None) -> bytes:
            return handler(message, sender, term).SerializeToString()

        async def behaviour(message: bytes, caller: Principal) -> bytes:
            if not self._guard.may_control(caller, method):
                return response(error_code=codes.CLUSTER_AUTHORIZATION_FAILED).SerializeToString()
            await self._registered.wait()
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(self._worker, work, message, caller.host, None)
            except UnknownTerm:
                term = await self._terms.look()
                return await loop.run_in_executor(self._worker, work, message, caller.host, term)

        return behaviour

    def _data(self, name: str, method: DataMethod) -> _Behaviour:
        async def behaviour(message: bytes, caller: Principal) -> bytes:
            request = method.parse(message)
            answer = await self._guard.data(caller, name, request, method.handler, method.response_type)
            return answer.SerializeToString()

        return behaviour

    def _serve(self, work: _Behaviour) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def behaviour(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await work(message, self._guard.caller(context))
            except UnauthenticatedError as error:
                _log.warning("not authenticated", peer=context.peer(), why=str(error))
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            except TermUnavailable as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            except UnreadableRequest as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except Exception as error:  # noqa: BLE001  (reported, and the process ends)
                self._on_bug(error)
                await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

        return behaviour
