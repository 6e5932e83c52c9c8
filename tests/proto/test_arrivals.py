"""Calls whose request does not come, against a real server of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest

from proto import arrivals

pytestmark = pytest.mark.slow

SERVICE = "partition_controller.test"
LATE = grpc.StatusCode.DEADLINE_EXCEEDED


async def echo(request: bytes, _context: Any) -> bytes:
    return request


async def twice(request: bytes, _context: Any) -> AsyncGenerator[bytes, None]:
    yield request
    yield request


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server, ours = grpc.aio.server(), arrivals.Arrivals(1)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Echo": grpc.stream_unary_rpc_method_handler(ours.answered(echo)),
        "Twice": grpc.stream_stream_rpc_method_handler(ours.streamed(twice)),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as made:
        yield made
    await server.stop(None)


def begun(channel: grpc.aio.Channel) -> Any:
    """A call whose request comes when it is written."""
    method: Any = channel.stream_unary(f"/{SERVICE}/Echo")
    return method()


async def test_a_call_with_one_request_is_answered(channel: grpc.aio.Channel) -> None:
    one: Any = channel.unary_unary(f"/{SERVICE}/Echo")
    many: Any = channel.unary_stream(f"/{SERVICE}/Twice")
    assert await one(b"a") == b"a"
    assert [answer async for answer in many(b"b")] == [b"b", b"b"]


async def test_of_too_many_without_a_request_the_first_is_ended(channel: grpc.aio.Channel) -> None:
    first = begun(channel)
    # Whose request has come is none of them.
    one: Any = channel.unary_unary(f"/{SERVICE}/Echo")
    while not first.done():
        assert await one(b"a") == b"a"
    assert await first.code() is LATE
    second = begun(channel)
    await second.write(b"b")
    assert await second == b"b"


async def test_a_request_that_does_not_come_in_its_time(
    channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "REQUEST_S", 0.01)
    call = begun(channel)
    assert (await call.code(), await call.details()) == (LATE, "the request did not come in time")


async def test_a_call_without_a_request(channel: grpc.aio.Channel) -> None:
    call = begun(channel)
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_who_makes_room_as_its_time_ends() -> None:
    """Its task has not run yet."""
    ours, limit = arrivals.Arrivals(1), asyncio.timeout(0)
    with pytest.raises(TimeoutError):
        async with limit:
            await asyncio.Event().wait()
    ours._waiting[limit] = None
    ours._end(limit)
    assert not ours._waiting


async def test_a_stream_ends_at_once_when_its_caller_goes() -> None:
    """Else a watcher counts until it is collected."""
    closed: list[bool] = []

    async def requests() -> AsyncGenerator[bytes, None]:
        yield b"a"

    async def answer(request: bytes, _context: Any) -> AsyncGenerator[bytes, None]:
        try:
            yield request
        finally:
            closed.append(True)

    answers = arrivals.Arrivals(1).streamed(answer)(requests(), None)
    assert await anext(answers) == b"a"
    await answers.aclose()
    assert closed == [True]
