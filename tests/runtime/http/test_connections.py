"""Which HTTP connection is ended, and when: without a network."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.http import connections as connections_module
from controller.runtime.http.connections import ANSWERING, FIRST_REQUEST_S, IDLE_S, REQUEST_S, Connections
from controller.runtime.http.server import start_http
from tests.support.runtime.certificates import Authority
from tests.support.runtime.handshakes import counting_handshakes
from tests.support.runtime.sessions import until


class Transport(asyncio.Transport):
    ended = False

    def abort(self) -> None:
        self.ended = True


def test_who_is_idle_for_longest_makes_room() -> None:
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    first, second, third = Transport(), Transport(), Transport()
    for now_s, transport in enumerate((first, second, third)):  # noqa: B007  (the clock reads it)
        connections.opened(transport)
    assert (first.ended, second.ended, third.ended) == (True, False, False)
    assert len(connections) == 2


def test_what_sends_no_request_is_ended() -> None:
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    silent = Transport()
    connections.opened(silent)
    ended = []
    for now_s in (FIRST_REQUEST_S, FIRST_REQUEST_S + 1):  # noqa: B007  (the clock reads it)
        connections.end_overdue()
        ended.append((silent.ended, len(connections)))
    assert ended == [(False, 1), (True, 0)]


async def test_who_has_its_answer_is_idle_again() -> None:
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    answered, asking, third, fourth = (Transport() for _ in range(4))
    connections.opened(answered)

    class Answer(web.Response):
        async def prepare(self, request: web.BaseRequest) -> None: ...

        async def write_eof(self, data: bytes = b"") -> None: ...

    async def at_once(_: web.Request) -> web.StreamResponse:
        return Answer()

    async def meanwhile(_: web.Request) -> web.StreamResponse:
        connections.opened(third)
        assert (answered.ended, asking.ended) == (True, False)
        connections.end_overdue()
        connections.opened(fourth)
        assert (asking.ended, third.ended, fourth.ended) == (False, True, False)
        return Answer()

    await connections.measured(make_mocked_request("GET", "/", transport=answered), at_once)
    now_s = IDLE_S
    connections.end_overdue()
    assert not answered.ended
    connections.opened(asking)
    await connections.measured(make_mocked_request("GET", "/", transport=asking), meanwhile)


async def test_each_part_of_a_stream_has_its_time() -> None:
    """A reader that stands still is ended; one that reads on is not, however long it takes."""
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    transport = Transport()
    connections.opened(transport)
    request = make_mocked_request("GET", "/", transport=transport)

    async def stream(asked: web.Request) -> web.StreamResponse:
        nonlocal now_s
        for _ in range(3):
            now_s += REQUEST_S
            connections.end_overdue()
            assert not transport.ended
            asked[ANSWERING].goes_on()
        now_s += REQUEST_S + 1
        connections.end_overdue()
        assert transport.ended
        asked[ANSWERING].goes_on()
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await connections.measured(request, stream)
    assert len(connections) == 0


async def test_who_has_left_gets_no_answer_and_no_error() -> None:
    """A prober gives up while the process stands still."""
    connections = Connections(2)
    transport = Transport()
    connections.opened(transport)
    request = make_mocked_request("GET", "/live", transport=transport)

    class Answer(web.Response):
        async def prepare(self, request: web.BaseRequest) -> None:
            raise ConnectionResetError("Cannot write to closing transport")

    answer = Answer(text="live\n")

    async def live(_: web.Request) -> web.StreamResponse:
        return answer

    assert await connections.measured(request, live) is answer


@asynccontextmanager
async def secured(tmp_path: Path, connections_max: int) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """The port of a server by TLS, and what a client believes."""
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("controller")
    daemon = Daemon(
        Settings(
            state_log_dir=tmp_path,
            ssl_certificate=certificate,
            ssl_key=key,
            ssl_ca=authority.cafile,
            http_ssl_client_auth="none",
            http_connections_max=connections_max,
            allow_everyone=True,
        )
    )
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        yield port, ssl.create_default_context(cafile=authority.cafile)
    finally:
        await runner.cleanup()
        daemon.state_log.close()


async def is_live(port: int, client: ssl.SSLContext) -> bool:
    async with (
        aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session,
        session.get("/live", ssl=client) as answer,
    ):
        return (answer.status, await answer.text()) == (200, "live\n")


@pytest.mark.slow
async def test_handshakes_count_from_their_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins one and says nothing makes room, long before their time is up, and others are answered."""
    monkeypatch.setattr(connections_module, "FIRST_REQUEST_S", 10_000.0)
    async with secured(tmp_path, 4) as (port, client), AsyncExitStack() as stack:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(7)]
        for _, writer in silent:
            stack.callback(writer.close)
        async with asyncio.timeout(60):
            for reader, _ in silent[:3]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
            assert await is_live(port, client)


@pytest.mark.slow
async def test_who_makes_room_at_once_begins_no_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in one round of the event loop: each is ended for the next before its handshake has begun."""
    monkeypatch.setattr(connections_module, "FIRST_REQUEST_S", 10_000.0)
    async with secured(tmp_path, 4) as (port, _):
        with ExitStack() as stack, counting_handshakes() as handshakes:
            for _ in range(20):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            await until(lambda: handshakes() == 4, "those that may stay alone to be greeted")


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"no TLS\r\n", b""], ids=["nonsense", "end"])
async def test_a_handshake_that_failed_is_freed(tmp_path: Path, said: bytes) -> None:
    async with secured(tmp_path, 4) as (port, _):
        with counting_handshakes() as handshakes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: handshakes() == 1, "a handshake")
            writer.write(said)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            await until(lambda: handshakes() == 0, "its memory to be free")


@pytest.mark.slow
async def test_who_is_through_with_the_handshake_counts_once(tmp_path: Path) -> None:
    async with secured(tmp_path, 4) as (port, client), AsyncExitStack() as stack:
        through = [await asyncio.open_connection("127.0.0.1", port, ssl=client) for _ in range(4)]
        for reader, writer in through:
            stack.callback(writer.close)
            writer.write(b"GET /live HTTP/1.1\r\nHost: h\r\n\r\n")
            async with asyncio.timeout(60):
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_a_request_may_come_with_the_end_of_the_handshake(tmp_path: Path) -> None:
    async with secured(tmp_path, 4) as (port, client), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(b"GET /live HTTP/1.1\r\nHost: h\r\n\r\n")
        writer.write(outgoing.read())
        answer = b""
        while b"live\n" not in answer:
            received = await reader.read(65536)
            assert received, "the server hung up"
            incoming.write(received)
            with suppress(ssl.SSLWantReadError):
                answer += tls.read(65536)
        assert answer.startswith(b"HTTP/1.1 200")
        writer.close()
