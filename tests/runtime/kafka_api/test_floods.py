"""Clients of the server of Kafka's protocol that ask much at once, or never read."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.security.setup import server_security
from controller.runtime.kafka_api import admission, server
from controller.runtime.kafka_api.api_table import SERVED_VERSIONS
from controller.runtime.kafka_api.call import Controller
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.kafka.apis import encode_request
from tests.support.runtime.kafka_callers import calling, kafka_server
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """One that does not lead, and has no ZooKeeper."""
    made = Daemon(Settings(state_log_dir=tmp_path))
    yield made
    made.state_log.close()


def asked_together(requests: int) -> bytes:
    frame = encode_request(ApiVersionsRequest(), 0, 1, "test")
    return (struct.pack("!i", len(frame)) + frame) * requests


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_requests_that_come_together_leave_the_loop_to_others(daemon: Daemon) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with kafka_server(daemon) as port, calling(port) as caller, asyncio.TaskGroup() as group:
        counting = group.create_task(others())
        await caller.send(asked_together(500))
        for _ in range(500):
            await caller.frame()
        counting.cancel()
    assert turns >= 500


@asynccontextmanager
async def silent(daemon: Daemon) -> AsyncIterator[tuple[server.KafkaServer, socket.socket]]:
    """A server with little room for what it sends, and who is connected to it and never reads."""
    security = server_security(daemon.settings, daemon.read_node)
    asked = server.KafkaServer(Controller(daemon, SERVED_VERSIONS), security)
    port = await asked.start("127.0.0.1", 0)
    daemon.kafka_addresses = {"": ("127.0.0.1", port)}
    asked._servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = descriptors()
        client.connect(("127.0.0.1", port))
        await until(lambda: descriptors() > before, "a connection")
        yield asked, client
        await until(lambda: descriptors() <= before, "its descriptor to be free")
    await asked.stop()


async def hang_up(_: server.KafkaServer, client: socket.socket) -> None:
    """Let it have answers that do not leave, and something to hang up on."""
    with capture_logs() as logs:
        client.sendall(asked_together(100) + struct.pack("!i", -1))
        await until(lambda: [line["event"] for line in logs] == ["hung_up"], "the end")


async def test_the_descriptor_of_who_never_reads_is_freed(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TRANSFER_S", 0.1)
    async with silent(daemon) as (asked, client):
        await hang_up(asked, client)


async def test_who_does_not_read_the_last_answers_makes_room_for_the_next(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TRANSFER_S", 3600.0)
    monkeypatch.setattr(admission, "PER_ADDRESS_MAX", 1)
    async with silent(daemon) as (asked, client):
        await hang_up(asked, client)
        async with calling(client.getpeername()[1]) as caller:
            await caller.call(ApiVersionsRequest(), 0)


async def wait_to_be_read(asked: server.KafkaServer, client: socket.socket) -> None:
    """Let it have more answers than leave."""
    client.sendall(asked_together(1000))
    await until(lambda: any(slot.busy for slot in asked._admission._slots), "an answer that waits")


async def test_what_was_not_read_in_time_is_not_kept_for_as_long_again(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TRANSFER_S", 1.0)
    async with silent(daemon) as (asked, client):
        await wait_to_be_read(asked, client)
        monkeypatch.setattr(server, "TRANSFER_S", 3600.0)


async def test_who_does_not_read_long_answers_makes_room_for_those_of_others(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TRANSFER_S", 3600.0)
    monkeypatch.setattr(server, "AT_ONCE_BYTES_MAX", 100)
    async with silent(daemon) as (asked, client):
        await wait_to_be_read(asked, client)
        (waiting,) = asked._admission._slots
        monkeypatch.setattr(admission, "HELD_BYTES_MAX", waiting.held)
        with capture_logs() as logs:
            async with calling(client.getpeername()[1]) as caller:
                await caller.call(ApiVersionsRequest(), 0)
        assert [line["event"] for line in logs][:1] == ["too_much_held"]


@pytest.mark.parametrize("begin", [hang_up, wait_to_be_read])
async def test_a_server_that_stops_waits_for_nobody_who_does_not_read(
    begin: Callable[[server.KafkaServer, socket.socket], Awaitable[None]],
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "TRANSFER_S", 3600.0)
    async with silent(daemon) as (asked, client):
        await begin(asked, client)
        before = descriptors()
        async with asyncio.timeout(60):
            await asked.stop()
        await until(
            lambda: descriptors() == before - 2, "the server's descriptor and the connection's to be free"
        )
