"""The gRPC side: ``BrokerControl`` served on one address. The only importer of grpc in this package."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from broker_stub.control.handlers import ControlHandlers, UnreadableRequest
from broker_stub.errors import ListenFault
from proto import broker_control_pb2 as wire

#: A request for 50,000 partitions is about 5 MB; anything larger than this is RESOURCE_EXHAUSTED.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Two brokers on one port must fail loudly, not share its connections.
    ("grpc.so_reuseport", 0),
]
_SERVICE = wire.DESCRIPTOR.services_by_name["BrokerControl"].full_name

Handler = Callable[[bytes], Message]


class ControlServer:
    """Serves the control requests, one at a time, in a thread beside the event loop.

    Requests arrive as bytes: they are parsed by the handlers, off the loop, and an unreadable one is
    answered INVALID_ARGUMENT. ``on_bug`` gets whatever a handler raises unexpectedly.
    """

    def __init__(self, handlers: ControlHandlers, on_bug: Callable[[BaseException], None]) -> None:
        self._on_bug = on_bug
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="control")
        self._server = grpc.aio.server(options=_OPTIONS)
        methods: dict[str, Handler] = {
            "LeaderAndIsr": handlers.leader_and_isr,
            "StopReplica": handlers.stop_replica,
            "UpdateMetadata": handlers.update_metadata,
        }
        behaviours: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(self._serve(handler))
            for name, handler in methods.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, behaviours),))

    async def start(self, host: str, port: int) -> int:
        """Listen and serve; the port in use (another one than 0). Raises ListenFault."""
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
        """Take no more requests; those under way get ``grace_s`` seconds."""
        await self._server.stop(grace_s)
        self._worker.shutdown(wait=True)

    def _serve(self, handler: Handler) -> Callable[[bytes, Any], Awaitable[bytes]]:
        def work(message: bytes) -> bytes:
            return handler(message).SerializeToString()

        async def behaviour(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._worker, work, message)
            except UnreadableRequest as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except Exception as error:  # noqa: BLE001  (reported, and the process ends)
                self._on_bug(error)
                await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

        return behaviour
