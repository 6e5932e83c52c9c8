"""A gRPC server in this process that stands for another broker, or for the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from proto.gen import broker_data_pb2 as data
from proto.gen import controller_service_pb2 as control

REQUESTS: dict[str, dict[str, Any]] = {
    "BrokerData": {
        "Fetch": data.FetchRequest,
        "OffsetsForLeaderEpoch": data.OffsetsForLeaderEpochRequest,
    },
    "ControllerService": {
        "AlterPartition": control.AlterPartitionRequest,
        "ControlledShutdown": control.ControlledShutdownRequest,
    },
}
#: A message to answer with, its bytes, or a status to fail with.
Answer = Callable[[str, Any], Awaitable[Message | bytes | tuple[grpc.StatusCode, str]]]


class FakePeer:
    """Records what arrives; ``answer`` decides what goes back. Starts again on the port it had."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.received: list[tuple[str, Any]] = []
        self.connections: set[str] = set()
        self.arrived = asyncio.Event()
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    async def __aenter__(self) -> FakePeer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        options = [("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)]
        server = grpc.aio.server(options=[*options, ("grpc.max_receive_message_length", -1)])
        for service, requests in REQUESTS.items():
            handlers: dict[str, Any] = {
                method: grpc.unary_unary_rpc_method_handler(self._handler(method, request.FromString))
                for method, request in requests.items()
            }
            name = f"partition_controller.v1.{service}"
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def _handler(
        self, method: str, parse: Callable[[bytes], Any]
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def handle(raw: bytes, context: Any) -> bytes:
            self.connections.add(context.peer())
            self.received.append((method, parse(raw)))
            self.arrived.set()
            answer = await self.answer(*self.received[-1])
            if isinstance(answer, tuple):
                await context.abort(*answer)
            assert isinstance(answer, Message | bytes)
            return answer if isinstance(answer, bytes) else answer.SerializeToString()

        return handle


async def hang(_method: str, _request: Any) -> bytes:
    """An answer that never comes."""
    await asyncio.Event().wait()
    raise AssertionError


def always(answer: Message | bytes | tuple[grpc.StatusCode, str]) -> Answer:
    async def reply(_method: str, _request: Any) -> Message | bytes | tuple[grpc.StatusCode, str]:
        return answer

    return reply
