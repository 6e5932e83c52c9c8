"""Connections to the HTTP server: how many, and for how long. Strangers must not take ZooKeeper's descriptors."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from proto.security.tls import free_failed_handshake

#: Until a connection must have sent its first request whole; how long it may be idle afterwards; and how long a
#: request may take, its answer included.
FIRST_REQUEST_S, IDLE_S, REQUEST_S = 10.0, 75.0, 30.0
#: How often they are looked at.
LOOK_S = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Answering:
    """A request that is being answered."""

    def __init__(self, connections: Connections, transport: asyncio.Transport) -> None:
        self._connections, self._transport = connections, transport

    def goes_on(self) -> None:
        """A stream has sent a part, so that there is as much time again for the next."""
        self._connections.allow(self._transport)


#: The key of a request under which its `Answering` is kept.
ANSWERING = web.RequestKey("answering", Answering)


class Connections:
    """The open connections of one server. When there are ``limit``, the one that is idle for longest makes room."""

    def __init__(self, limit: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._now_s = limit, now_s
        #: Until when each may stay as it is.
        self._until_s: dict[asyncio.Transport, float] = {}
        self._answering: set[asyncio.Transport] = set()

    def __len__(self) -> int:
        return len(self._until_s)

    def opened(self, transport: asyncio.Transport) -> None:
        if len(self) >= self._limit:
            idle = [other for other in self._until_s if other not in self._answering]
            self._end(min(idle, key=self._until_s.__getitem__) if idle else transport)
            if not idle:
                return
        self._until_s[transport] = self._now_s() + FIRST_REQUEST_S

    def closed(self, transport: asyncio.Transport) -> None:
        self._until_s.pop(transport, None)
        self._answering.discard(transport)

    async def measured(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request and send its answer, both within its time."""
        transport = request.transport
        if transport is None or transport not in self._until_s:
            return await handler(request)
        self._answering.add(transport)
        self.allow(transport)
        request[ANSWERING] = Answering(self, transport)
        try:
            response = await handler(request)
            # Who has left meanwhile gets no answer, which is no error.
            with suppress(ConnectionError):
                await response.prepare(request)
                await response.write_eof()
            return response
        finally:
            if transport in self._answering:
                self._answering.discard(transport)
                self._until_s[transport] = self._now_s() + IDLE_S

    def allow(self, transport: asyncio.Transport) -> None:
        """A request may take ``REQUEST_S`` from now on."""
        if transport in self._answering:
            self._until_s[transport] = self._now_s() + REQUEST_S

    async def watch(self) -> None:
        """End those whose time is up."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.end_overdue()

    def end_overdue(self) -> None:
        now_s = self._now_s()
        for transport in [other for other, until_s in self._until_s.items() if until_s < now_s]:
            self._end(transport)

    def end_all(self) -> None:
        for transport in list(self._until_s):
            self._end(transport)

    def _end(self, transport: asyncio.Transport) -> None:
        transport.abort()
        self.closed(transport)


class TlsHandshake(asyncio.Protocol):
    """One connection until its TLS handshake is done. It counts from the beginning: a handshake takes more memory than
    a request, and strangers need not finish theirs."""

    def __init__(self, connections: Connections, context: ssl.SSLContext, inner: Connection) -> None:
        self._connections, self._context, self._inner = connections, context, inner
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        # What comes is TLS's.
        transport.pause_reading()
        self._connections.opened(transport)
        if not transport.is_closing():
            self._task = asyncio.create_task(self._secure(transport), name="tls-handshake")

    async def _secure(self, transport: asyncio.Transport) -> None:
        # It may have made room for one that came in the same round: a handshake would begin all the same, and keep its
        # memory until its time is up.
        if transport.is_closing():
            return
        loop, secured = asyncio.get_running_loop(), None
        try:
            secured = await loop.start_tls(
                transport,
                self._inner,
                self._context,
                server_side=True,
                ssl_handshake_timeout=FIRST_REQUEST_S,
            )
        except OSError as error:
            # Who fails, is late or was ended for others is told by TLS, or by nothing.
            free_failed_handshake(error)
        self._connections.closed(transport)
        if secured is not None and not secured.is_closing():
            self._inner.connection_made(secured)


class Connection(web.RequestHandler):
    """One connection, known to its ``Connections``."""

    def __init__(self, connections: Connections, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        # A body that was compressed could be a thousand times as long as what was received: none is unpacked.
        super().__init__(server, loop=loop, access_log=None, lingering_time=2.0, auto_decompress=False)  # type: ignore[arg-type]
        self._connections = connections
        self._opened: asyncio.Transport | None = None
        #: What was received just behind a TLS handshake.
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._opened = transport
        self._connections.opened(transport)
        for data in self._early:
            super().data_received(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._opened is None:
            self._early.append(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._opened is not None:
            super().connection_lost(exc)
            self._connections.closed(self._opened)
