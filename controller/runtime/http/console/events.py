"""Server-sent events: the role of this controller, and how many records it has made, with the newest of them.

The source is that of the RPC ``Watch``; who wants every record uses ``pctl watch``.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from controller.runtime.daemon import Daemon
from controller.runtime.http.connections import ANSWERING
from controller.runtime.http.console import views
from controller.runtime.http.console.files import HEADERS
from controller.runtime.observe.history_filter import Filter
from proto.statelog.schema import KINDS, QUIET

#: Streams at the same time, of all callers.
STREAMS_MAX = 32
#: A stream ends after this long, so that who may no longer see it does not.
STREAM_S = 600.0
#: Between two messages; between two looks at the role; and until something is sent though nothing happened.
PAUSE_S, LOOK_S, QUIET_S = 0.3, 1.0, 10.0
#: Records in one message, and how many are looked through for them.
RECORDS_MAX, LOOKED_MAX = 20, 200
_TOLD = Filter(kinds=frozenset(KINDS) - QUIET)


class Events:
    """The streams of one server. Each message is made once for all of them."""

    def __init__(self, daemon: Daemon, streams_max: int) -> None:
        self._daemon, self._streams_max = daemon, streams_max
        self._streams: set[asyncio.Task[Any]] = set()
        self._made_of, self._made_at_s, self._made = -1, 0.0, b""

    async def end(self, _: web.Application) -> None:
        """End all streams: the server stops."""
        for task in self._streams:
            task.cancel()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """503 when there are as many streams as may be."""
        if len(self._streams) >= self._streams_max:
            text = f"there are {self._streams_max} streams already: no more are allowed\n"
            return web.Response(status=503, headers={**HEADERS, "Retry-After": "10"}, text=text)
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await response.prepare(request)
            await self._send(request, response)
        except ConnectionError:
            pass  # the browser has left
        finally:
            self._streams.discard(task)
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        recent = self._daemon.recent
        until_s, sent_at_s = time.monotonic() + STREAM_S, 0.0
        said, told = b"", recent.total
        while (now_s := time.monotonic()) < until_s and not _has_left(request):
            parts = []
            if (state := _message("state", msgspec.json.encode(views.state(self._daemon)))) != said:
                said = state
                parts.append(state)
            if recent.total != told:
                news = self._news(now_s)
                if self._made_of != told:
                    parts.append(news)
                told = self._made_of
            if not parts and now_s - sent_at_s >= QUIET_S:
                parts.append(b": nothing new\n\n")
            if parts:
                await response.write(b"".join(parts))
                request[ANSWERING].goes_on()
                sent_at_s = now_s
            await asyncio.sleep(PAUSE_S)
            if recent.total == told:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await recent.growth()

    def _news(self, now_s: float) -> bytes:
        recent = self._daemon.recent
        if self._made_of != recent.total and now_s - self._made_at_s >= PAUSE_S:
            newest = next(recent.backwards(_TOLD, LOOKED_MAX), [])[:RECORDS_MAX]
            lines = b",".join(line.encode() for line in newest)
            self._made_of, self._made_at_s = recent.total, now_s
            self._made = _message("records", b'{"total":%d,"newest":[%s]}' % (recent.total, lines))
        return self._made


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _message(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
