"""A controller daemon that serves Kafka's protocol in the test's event loop, and a client that sends it frames."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from controller.runtime.daemon import Daemon
from controller.runtime.kafka.security.setup import server_security
from controller.runtime.kafka_api.api_table import SERVED_VERSIONS
from controller.runtime.kafka_api.call import Controller
from controller.runtime.kafka_api.server import KafkaServer
from proto.kafka.apis import Message, decode_response, encode_request
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.pushes import FakeBroker

_SIZE = struct.Struct("!i")
ANSWER_S = 20.0


class KafkaCaller:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_id = 0

    async def send(self, frame: bytes) -> None:
        self._writer.write(frame)
        await self._writer.drain()

    async def frame(self) -> bytes:
        """The next frame without its size. Raises IncompleteReadError once hung up on."""
        async with asyncio.timeout(ANSWER_S):
            (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
            return await self._reader.readexactly(size)

    async def call(self, request: Message, version: int | None = None) -> Any:
        """The response to a request, by default in its newest version. Raises IncompleteReadError once hung up on."""
        version = request.VERSIONS[-1] if version is None else version
        self._correlation_id += 1
        body = encode_request(request, version, self._correlation_id, "test")
        await self.send(_SIZE.pack(len(body)) + body)
        correlation_id, response = decode_response(request.API_KEY, version, await self.frame())
        assert correlation_id == self._correlation_id
        return response

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[KafkaCaller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    caller = KafkaCaller(reader, writer)
    try:
        yield caller
    finally:
        caller.close()


@asynccontextmanager
async def kafka_server(daemon: Daemon) -> AsyncIterator[int]:
    """The server's port."""
    security = server_security(daemon.settings, daemon.read_node)
    server = KafkaServer(Controller(daemon, SERVED_VERSIONS), security)
    port = await server.start("127.0.0.1", 0)
    daemon.kafka_address = "127.0.0.1", port
    try:
        yield port
    finally:
        await server.stop()


@asynccontextmanager
async def active(
    connect: str, zk: KazooClient, directory: Path, *brokers: FakeBroker, topics: Mapping[str, str] = {}
) -> AsyncIterator[tuple[Active, KafkaCaller, int]]:
    """A controller that leads, a connection to its server, and the server's port."""
    async with (
        controller(connect, zk, directory, *brokers, topics=topics) as leading,
        kafka_server(leading.daemon) as port,
        calling(port) as caller,
    ):
        yield leading, caller, port
