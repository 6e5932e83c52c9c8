"""A TCP proxy in front of a real ZooKeeper that understands just enough of the protocol to misbehave exactly."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

_LENGTH = struct.Struct(">i")
#: xid and operation, after the length.
_REQUEST = struct.Struct(">ii")

Rewrite = Callable[[int, bytes], bytes]


def opcode_replaced(old: int, new: int) -> Rewrite:
    """Requests of one kind become requests of another."""

    def rewrite(opcode: int, body: bytes) -> bytes:
        return body[:4] + _LENGTH.pack(new) + body[8:] if opcode == old else body

    return rewrite


class Trap(Protocol):
    """Sees every frame but the first of each connection, before it is forwarded; False ends the connection instead."""

    async def request(self, xid: int, opcode: int, body: bytes) -> bool: ...

    async def answer(self, xid: int) -> bool: ...


class Proxy:
    """Forwards frames. ``lose_answers`` names operations whose next answer is lost with the connection, one each.

    ``refusing``: new connections are closed at once. ``requests`` counts forwarded requests by operation,
    ``bytes_max`` is the size of the largest. ``trap`` decides what is forwarded at all, ``rewrite`` as
    what.
    """

    def __init__(self, connect: str, rewrite: Rewrite | None = None) -> None:
        hosts, slash, chroot = connect.partition("/")
        host, _, port = hosts.rpartition(":")
        self._target = (host, int(port))
        self._chroot = slash + chroot
        self.rewrite = rewrite
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.lose_answers: list[int] = []
        self.refusing = False
        self.trap: Trap | None = None
        self.requests: dict[int, int] = {}
        self.bytes_max: dict[int, int] = {}

    @property
    def connect(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self._chroot}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def drop(self) -> None:
        """Cut every connection."""
        for task in self._connections:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            with suppress(asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            return
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        lost: set[int] = set()
        pumps = [
            asyncio.create_task(self._requests(reader, up_writer, lost)),
            asyncio.create_task(self._answers(up_reader, writer, lost)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Closed before anything is awaited: being cancelled here once more must not leave them open.
            for side in (writer, up_writer):
                side.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for side in (writer, up_writer):
                with suppress(OSError):
                    await side.wait_closed()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: set[int]
    ) -> None:
        async for first, body in _frames(reader):
            forwarded = body
            if not first:
                xid, opcode = _REQUEST.unpack_from(body)
                self.requests[opcode] = self.requests.get(opcode, 0) + 1
                self.bytes_max[opcode] = max(self.bytes_max.get(opcode, 0), len(body))
                if self.trap is not None and not await self.trap.request(xid, opcode, body):
                    return
                if opcode in self.lose_answers:
                    self.lose_answers.remove(opcode)
                    lost.add(xid)
                if self.rewrite is not None:
                    forwarded = self.rewrite(opcode, body)
            writer.write(_LENGTH.pack(len(forwarded)) + forwarded)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: set[int]
    ) -> None:
        async for first, body in _frames(reader):
            if not first:
                (xid,) = _LENGTH.unpack_from(body)
                if xid in lost or (self.trap is not None and not await self.trap.answer(xid)):
                    return  # ends both pumps, and the connection with them
            writer.write(_LENGTH.pack(len(body)) + body)
            await writer.drain()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bool, bytes]]:
    """(is it the first, body) until the connection ends."""
    first = True
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(4))
            yield first, await reader.readexactly(length)
            first = False


@asynccontextmanager
async def proxied(connect: str, rewrite: Rewrite | None = None) -> AsyncIterator[Proxy]:
    proxy = Proxy(connect, rewrite)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
