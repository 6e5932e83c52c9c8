"""A connection to a Kafka broker, and everything that can be wrong with what comes back."""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from controller.errors import ControllerError
from controller.runtime.kafka import connection as connection_module
from controller.runtime.kafka.connection import (
    RESPONSE_BYTES_MAX,
    Connection,
    ConnectionFailedError,
)
from controller.runtime.kafka.security.client import ClientSecurity, Send
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.gen.kafka.api_versions_response import ApiVersionsResponse
from proto.gen.kafka.update_metadata_request import UpdateMetadataRequest
from proto.gen.kafka.update_metadata_response import UpdateMetadataResponse
from proto.kafka.apis import ApiKey, RequestHeader, decode_response, encode_response
from tests.support.runtime.handshakes import counting_handshakes
from tests.support.runtime.kafka_peer import KafkaPeer, framed, response
from tests.support.runtime.sessions import until

REQUEST = UpdateMetadataRequest(controller_id=9001)


@asynccontextmanager
async def connected(
    security: ClientSecurity | None = None, open_it: bool = True
) -> AsyncIterator[tuple[KafkaPeer, Connection]]:
    peer = await KafkaPeer().start()
    connection = Connection("9001", security or ClientSecurity(), 5.0)
    try:
        if open_it:
            await connection.open("127.0.0.1", peer.port)
        yield peer, connection
    finally:
        await connection.close()
        await peer.stop()


async def test_opening_asks_for_versions_and_requests_follow_in_order() -> None:
    async with connected() as (peer, connection):
        assert connection.versions[ApiKey.UPDATE_METADATA] == range(9)
        for _ in range(3):
            assert await connection.request(REQUEST, 8) == UpdateMetadataResponse()
        headers = [header for header, _ in peer.received]
        assert headers == [
            RequestHeader(ApiKey.API_VERSIONS, 3, 1, "9001"),
            *(RequestHeader(ApiKey.UPDATE_METADATA, 8, n, "9001") for n in (2, 3, 4)),
        ]
        (asked,) = peer.requests(ApiKey.API_VERSIONS)
        assert asked.client_software_name == "partition-controller"
        assert peer.requests(ApiKey.UPDATE_METADATA) == [REQUEST] * 3


async def test_a_handshake_that_failed_is_freed() -> None:
    """A broker is tried again and again."""

    async def answered(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS\r\n")
        writer.close()

    tls: Any = SimpleNamespace(ssl=ssl.create_default_context(), server_hostname=None)
    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    async with server:
        connection = Connection("9001", tls, 5.0)
        with counting_handshakes() as handshakes:
            with pytest.raises(ConnectionFailedError):
                await connection.open(*server.sockets[0].getsockname())
            await until(lambda: handshakes() == 0, "its memory to be free")


@pytest.mark.parametrize("size_max", [0, 2**16])
async def test_only_a_long_response_is_decoded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, size_max: int
) -> None:
    threads = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return decode_response(*given)

    async with connected() as (_, connection):
        monkeypatch.setattr(connection_module, "DECODED_AT_ONCE_MAX", size_max)
        monkeypatch.setattr(connection_module, "decode_response", noted)
        assert await connection.request(REQUEST, 8) == UpdateMetadataResponse()
    assert [thread is threading.main_thread() for thread in threads] == [size_max > 0]


async def test_one_request_is_in_flight_however_many_ask() -> None:
    async with connected() as (peer, connection):

        async def slow(header: RequestHeader, request: Any) -> bytes | None:
            await asyncio.sleep(0.01)
            return await peer.carry_out(header, request)

        peer.answer = slow
        found = await asyncio.gather(*(connection.request(REQUEST, 8) for _ in range(10)))
        assert found == [UpdateMetadataResponse()] * 10
        assert (peer.overlaps, peer.connections) == (0, 1)


def right(header: RequestHeader) -> bytes:
    return response(header, UpdateMetadataResponse())


def huge(header: RequestHeader) -> bytes:
    return struct.pack(">i", RESPONSE_BYTES_MAX + 1)


def negative(header: RequestHeader) -> bytes:
    return struct.pack(">i", -1)


def garbage(header: RequestHeader) -> bytes:
    return framed(b"\xff" * 40)


def http(header: RequestHeader) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def short(header: RequestHeader) -> bytes:
    return framed(encode_response(UpdateMetadataResponse(), 8, header.correlation_id)[:-1])


def long(header: RequestHeader) -> bytes:
    return framed(encode_response(UpdateMetadataResponse(), 8, header.correlation_id) + b"x")


def empty(header: RequestHeader) -> bytes:
    return framed(b"")


def of_another(header: RequestHeader) -> bytes:
    return right(header._replace(correlation_id=header.correlation_id - 1))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (huge, "a response of 16777217 bytes; at most 16777216 are read"),
        (negative, "a response of -1 bytes"),
        (http, "a response of 1213486160 bytes"),
        (garbage, "ResponseHeader: a varint at byte 4"),
        (short, "UpdateMetadataResponse version 8: ends too early"),
        (long, "UpdateMetadataResponse version 8: 1 bytes too many"),
        (empty, "ResponseHeader"),
        (of_another, "a response with correlation id 1 instead of 2"),
    ],
)
async def test_a_response_that_cannot_be_is_a_failure_and_ends_the_connection(bad: Any, words: str) -> None:
    async with connected() as (peer, connection):

        async def answer(header: RequestHeader, request: Any) -> bytes | None:
            return (
                bad(header)
                if header.api_key == ApiKey.UPDATE_METADATA
                else await peer.carry_out(header, request)
            )

        peer.answer = answer
        with pytest.raises(ConnectionFailedError, match=words) as raised:
            await connection.request(REQUEST, 8)
        assert str(raised.value).startswith(f"127.0.0.1:{peer.port}: ")
        with pytest.raises(ConnectionFailedError, match="not connected"):
            await connection.request(REQUEST, 8)
        peer.answer = peer.carry_out
        await connection.open("127.0.0.1", peer.port)
        assert await connection.request(REQUEST, 8) == UpdateMetadataResponse()
        assert peer.connections == 2


async def test_a_closed_connection_is_a_failure() -> None:
    async with connected() as (peer, connection):

        async def hang_up(header: RequestHeader, request: Any) -> bytes | None:
            return None

        peer.answer = hang_up
        with pytest.raises(ConnectionFailedError, match="the broker closed the connection"):
            await connection.request(REQUEST, 8)


async def test_silence_is_a_failure_after_the_timeout() -> None:
    async with connected() as (peer, connection):
        # Only for the request: opening takes its time.
        connection._timeout_s = 0.3

        async def silent(header: RequestHeader, request: Any) -> bytes | None:
            return b""

        peer.answer = silent
        with pytest.raises(ConnectionFailedError, match=r"no answer within 0\.3 s"):
            await connection.request(REQUEST, 8)


async def test_a_trickling_response_is_a_failure_after_the_timeout() -> None:
    async with connected() as (peer, connection):
        # Only for the request: opening takes its time.
        connection._timeout_s = 0.3

        async def begun(header: RequestHeader, request: Any) -> bytes | None:
            return right(header)[:-2]

        peer.answer = begun
        with pytest.raises(ConnectionFailedError, match=r"no answer within 0\.3 s"):
            await connection.request(REQUEST, 8)


async def test_a_cancelled_request_leaves_no_response_for_the_next() -> None:
    async with connected() as (peer, connection):
        release = asyncio.Event()

        async def late(header: RequestHeader, request: Any) -> bytes | None:
            await release.wait()
            return await peer.carry_out(header, request)

        peer.answer = late
        asking = asyncio.create_task(connection.request(REQUEST, 8))
        await until(lambda: bool(peer.requests(ApiKey.UPDATE_METADATA)), "the request")
        asking.cancel()
        await asyncio.wait([asking])
        release.set()
        await connection.open("127.0.0.1", peer.port)
        assert await connection.request(REQUEST, 8) == UpdateMetadataResponse()
        assert peer.connections == 2


async def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    async with connected() as (peer, connection):
        await connection.open("127.0.0.1", peer.port)
        assert peer.connections == 1
        peer.hang_up()
        await asyncio.sleep(0.05)
        await connection.open("127.0.0.1", peer.port)
        assert await connection.request(REQUEST, 8) == UpdateMetadataResponse()
        assert peer.connections == 2


async def test_another_address_is_another_connection() -> None:
    async with connected() as (peer, connection):
        other = await KafkaPeer().start()
        other.versions[ApiKey.UPDATE_METADATA] = 7
        await connection.open("127.0.0.1", other.port)
        assert connection.versions[ApiKey.UPDATE_METADATA] == range(8)
        await connection.request(REQUEST, 7)
        assert peer.requests(ApiKey.UPDATE_METADATA) == []
        await connection.close()
        await other.stop()


async def test_nobody_listens() -> None:
    peer = await KafkaPeer().start()
    await peer.stop()
    with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{peer.port}: .*refused|failed"):
        await Connection("9001", ClientSecurity(), 5.0).open("127.0.0.1", peer.port)


@pytest.mark.parametrize("host", ["kafka..local", "x" * 64])
async def test_a_host_that_cannot_be_looked_up_is_a_failure(host: str) -> None:
    """It may stand in a broker's registration."""
    with pytest.raises(ConnectionFailedError, match=f"{host}:9092: .*label"):
        await Connection("9001", ClientSecurity(), 5.0).open(host, 9092)


async def test_a_refused_question_for_versions_is_a_failure() -> None:
    async with connected(open_it=False) as (peer, connection):

        async def refuse(header: RequestHeader, request: Any) -> bytes | None:
            return response(header, ApiVersionsResponse(error_code=35))

        peer.answer = refuse
        with pytest.raises(ConnectionFailedError, match="ApiVersions was answered with error 35"):
            await connection.open("127.0.0.1", peer.port)


@dataclass(frozen=True)
class Security(ClientSecurity):
    """Asks for versions once more; ``refusal``: why authentication fails, ``lifetime_s``: of a connection."""

    refusal: str = ""
    lifetime_s: float | None = None

    async def authenticate(self, send: Send) -> float | None:
        await send(ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
        if self.refusal:
            raise ControllerError(self.refusal)
        return self.lifetime_s


async def test_authentication_comes_first() -> None:
    async with connected(security=Security()) as (peer, _):
        assert [header.api_version for header, _ in peer.received] == [2, 3]


async def test_refused_authentication_is_a_failure() -> None:
    async with connected(security=Security(refusal="wrong password"), open_it=False) as (peer, connection):
        with pytest.raises(ConnectionFailedError, match="wrong password"):
            await connection.open("127.0.0.1", peer.port)
        with pytest.raises(ConnectionFailedError, match="not connected"):
            await connection.request(REQUEST, 8)


async def test_an_authenticated_connection_is_replaced_before_the_broker_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 5000.0
    monkeypatch.setattr(connection_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    async with connected(security=Security(lifetime_s=1000.0)) as (peer, connection):
        for later_s, connections in ((500, 1), (890, 1), (950, 2)):
            now_s = 5000.0 + later_s
            await connection.open("127.0.0.1", peer.port)
            assert peer.connections == connections
