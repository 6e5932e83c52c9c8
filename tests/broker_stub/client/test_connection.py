"""Calls over real gRPC on loopback: responses, refusals, timeouts, reconnection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from broker_stub.client import connection
from broker_stub.client.connection import Connections
from broker_stub.client.errors import FatalError, UnreachableError
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes

Handler = Callable[[bytes, Any], Awaitable[bytes]]


async def serve(handler: Handler, port: int = 0) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    behaviours: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Metadata": grpc.unary_unary_rpc_method_handler(handler)
    }
    service = "partition_controller.v1.BrokerData"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, behaviours),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, bound


async def answers(_: bytes, __: Any) -> bytes:
    return wire.MetadataResponse(controller_id=7).SerializeToString()


async def ask(connections: Connections, port: int, timeout_s: float = 10.0) -> int:
    address = f"127.0.0.1:{port}"
    response = await connections.call(
        address, "Metadata", wire.MetadataRequest(), wire.MetadataResponse, timeout_s
    )
    return response.controller_id


async def test_a_broker_that_goes_and_comes_back_is_reached_again() -> None:
    connections = Connections()
    server, port = await serve(answers)
    assert await ask(connections, port) == 7
    await server.stop(0)
    with pytest.raises(UnreachableError, match=f"Metadata at 127.0.0.1:{port}: NETWORK_EXCEPTION"):
        await ask(connections, port)
    with pytest.raises(UnreachableError, match="connection refused") as raised:
        await ask(connections, port)
    assert not raised.value.sent
    server, _ = await serve(answers, port)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await ask(connections, port) == 7
                    break
                except UnreachableError:
                    await asyncio.sleep(0.05)
    finally:
        await connections.close()
        await server.stop(0)


async def test_a_deadline_leaves_open_what_became_of_it() -> None:
    arrived = asyncio.Event()

    async def silent(_: bytes, __: Any) -> bytes:
        arrived.set()
        await asyncio.sleep(3600)
        return b""

    connections = Connections()
    server, port = await serve(silent)
    try:
        with pytest.raises(UnreachableError, match="DEADLINE_EXCEEDED") as raised:
            await ask(connections, port, 2.0)
        assert raised.value.sent
        assert arrived.is_set()
    finally:
        await connections.close()
        await server.stop(0)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, codes.INVALID_REQUEST),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, codes.MESSAGE_TOO_LARGE),
        (grpc.StatusCode.INTERNAL, codes.NETWORK_EXCEPTION),
    ],
)
async def test_refusals_of_the_transport(status: grpc.StatusCode, code: int) -> None:
    async def refuses(_: bytes, context: Any) -> bytes:
        await context.abort(status, "because")
        return b""

    connections = Connections()
    server, port = await serve(refuses)
    try:
        with pytest.raises((FatalError, UnreachableError), match="because") as raised:
            await ask(connections, port)
        assert raised.value.code == code
        assert isinstance(raised.value, UnreachableError) == (code == codes.NETWORK_EXCEPTION)
        with pytest.raises(FatalError, match="UNIMPLEMENTED"):
            await connections.call(f"127.0.0.1:{port}", "Fetch", wire.FetchRequest(), wire.FetchResponse, 5.0)
    finally:
        await connections.close()
        await server.stop(0)


class OneAnswer:
    """A channel that is connected, and answers with its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def unary_unary(self, *_: object, **__: object) -> Any:
        async def answer(request: object, timeout: float) -> int:
            assert request
            assert timeout
            return self.number

        return answer


async def test_calls_go_over_the_channel_of_now_and_wait_no_longer_for_it_than_for_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels, waits = [OneAnswer(1), OneAnswer(1), OneAnswer(2)], list[float]()
    channels[1] = channels[0]
    connections = Connections()
    await connections.close()

    async def connected(_channel: object, _asked: str, _how: str, timeout_s: float) -> None:
        waits.append(timeout_s)

    monkeypatch.setattr(connection, "_connect", connected)
    monkeypatch.setattr(connections._channels, "to", lambda _: channels.pop(0))
    answers = [
        await connections.call(
            "h:1", "Fetch", wire.FetchRequest(max_wait_ms=1), wire.FetchResponse, timeout_s
        )
        for timeout_s in (0.5, 2.0, 9.0)
    ]
    assert answers == [1, 1, 2]
    assert waits == [0.5, 2.0, connection.CONNECT_TIMEOUT_S]
