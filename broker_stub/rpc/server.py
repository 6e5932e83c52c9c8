"""The gRPC server: ``BrokerControl`` and ``BrokerData`` on one address. Outgoing calls are in `peers`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from broker_stub.control.handlers import ControlHandlers, UnreadableRequest
from broker_stub.errors import ListenFault
from proto.gen import broker_control_pb2 as control
from proto.gen import broker_data_pb2 as data
from proto.limits import MESSAGE_LIMITS

_OPTIONS = [
    *MESSAGE_LIMITS,
    # A second broker on the same port must fail, not share its connections.
    ("grpc.so_reuseport", 0),
    # Peers send pings during a call (`peers`); with the default the server would close such connections.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
_CONTROL = control.DESCRIPTOR.services_by_name["BrokerControl"].full_name
_DATA = data.DESCRIPTOR.services_by_name["BrokerData"].full_name

Behaviour = Callable[[bytes], Awaitable[bytes]]
_Request = TypeVar("_Request", bound=Message)


def data_method(request_type: type[_Request], handler: Callable[[_Request], Awaitable[Message]]) -> Behaviour:
    """Wrap a handler of ``BrokerData`` into a function from bytes to bytes that raises UnreadableRequest."""

    async def behaviour(message: bytes) -> bytes:
        try:
            request = request_type.FromString(message)
        except DecodeError as error:
            name = request_type.DESCRIPTOR.name
            raise UnreadableRequest(f"{len(message)} bytes are not a {name}: {error}") from error
        return (await handler(request)).SerializeToString()

    return behaviour


class BrokerServer:
    """Serves both services on one address.

    Control requests block on the disk, so they run one at a time on ``control_worker``, a single thread. They wait
    until ``registered``: an earlier request is meant for the broker's former process, whose registration still
    exists, and this process may have lost that one's data. An unreadable request gets INVALID_ARGUMENT. ``on_bug``
    receives unexpected exceptions of handlers.
    """

    def __init__(
        self,
        handlers: ControlHandlers,
        control_worker: Executor,
        data_methods: Mapping[str, Behaviour],
        on_bug: Callable[[BaseException], None],
        registered: asyncio.Event,
    ) -> None:
        self._on_bug, self._worker, self._registered = on_bug, control_worker, registered
        self._server = grpc.aio.server(options=_OPTIONS)
        control_methods: dict[str, Callable[[bytes], Message]] = {
            "LeaderAndIsr": handlers.leader_and_isr,
            "StopReplica": handlers.stop_replica,
            "UpdateMetadata": handlers.update_metadata,
            "DescribeState": handlers.describe_state,
        }
        self._add(_CONTROL, {name: self._in_worker(handler) for name, handler in control_methods.items()})
        self._add(_DATA, data_methods)

    def _add(self, service: str, methods: Mapping[str, Behaviour]) -> None:
        behaviours: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(self._serve(behaviour))
            for name, behaviour in methods.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, behaviours),))

    async def start(self, host: str, port: int) -> int:
        """Listen and serve. Returns the port: the chosen one if ``port`` is 0. Raises ListenFault."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise ListenFault(f"cannot listen on {address}: {error}") from error
        if bound == 0:
            raise ListenFault(f"cannot listen on {address}")
        await self._server.start()
        return bound

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests; running ones get ``grace_s`` seconds."""
        await self._server.stop(grace_s)

    def _in_worker(self, handler: Callable[[bytes], Message]) -> Behaviour:
        def work(message: bytes) -> bytes:
            return handler(message).SerializeToString()

        async def behaviour(message: bytes) -> bytes:
            await self._registered.wait()
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, message)

        return behaviour

    def _serve(self, work: Behaviour) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def behaviour(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await work(message)
            except UnreadableRequest as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except Exception as error:  # noqa: BLE001  (reported, and the process ends)
                self._on_bug(error)
                await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

        return behaviour
