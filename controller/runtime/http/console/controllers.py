"""The controllers that are registered, and what each standby says it has in memory: it is asked by HTTP, as itself."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from controller.errors import ControllerError
from controller.runtime.daemon import Daemon
from controller.runtime.http.console import views
from controller.runtime.http.console.whatif import Answer
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError
from proto.security.files import FromFiles
from proto.security.tls import client_contexts

#: Between two reads of the registered controllers, and between two questions to them.
EVERY_S = 2.0
#: Controllers that are asked, seconds for their answers, and bytes of one.
ASKED_MAX, ANSWER_S, ANSWER_BYTES_MAX = 16, 2.0, 1024 * 1024


class Controllers:
    """The controllers that one daemon sees, each asked again after a while."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._lock = asyncio.Lock()
        self._known: list[cluster_reader.ControllerInfo] = []
        self._read_at_s = self._asked_at_s = -EVERY_S
        self._answers: dict[int, dict[str, Any]] = {}
        files = daemon.settings.tls_files
        self._tls: FromFiles[ssl.SSLContext] | None = None
        if daemon.settings.https and files is not None:
            self._tls = client_contexts(files)

    def answers(self) -> Iterator[tuple[str, Answer]]:
        yield "controllers", self._standbys

    async def registered(self) -> list[cluster_reader.ControllerInfo]:
        """The controllers in ZooKeeper, as of a moment ago; none while it does not answer."""
        session, now_s = self._daemon.session, time.monotonic()
        if session is not None and now_s - self._read_at_s >= EVERY_S:
            self._read_at_s = now_s
            try:
                async with asyncio.timeout(ANSWER_S):
                    self._known = await cluster_reader.controllers(session)
            except (ControllerError, ConnectionLossError, TimeoutError):
                self._known = []
        return self._known

    async def active(self) -> dict[str, Any] | None:
        """The id and the HTTP address of the active controller; None: none is registered."""
        found = next((one for one in await self.registered() if one.active), None)
        return None if found is None else {"id": found.controller_id, "http": found.http}

    async def _standbys(self, request: web.Request) -> list[dict[str, Any]]:
        """What each controller says of itself; ``silent``: why another one says nothing."""
        del request
        own_id = self._daemon.settings.controller_id
        known = await self.registered()
        async with self._lock:
            if time.monotonic() - self._asked_at_s >= EVERY_S:
                others = [one for one in known if one.controller_id != own_id][:ASKED_MAX]
                found = await asyncio.gather(*(self._ask(one.http) for one in others))
                self._answers = {o.controller_id: f for o, f in zip(others, found, strict=True)}
                self._asked_at_s = time.monotonic()
        mine = {own_id: _told(views.state(self._daemon))}
        said = {**self._answers, **mine}
        return [{**row, **said.get(row["id"], {})} for row in views.controllers(known, own_id)]

    async def _ask(self, address: str) -> dict[str, Any]:
        scheme = "http" if self._tls is None else "https"
        try:
            timeout = aiohttp.ClientTimeout(total=ANSWER_S)
            tls: Any = {} if self._tls is None else {"ssl": self._tls.current()}
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as client,
                client.get(f"{scheme}://{address}/ui/api/overview", allow_redirects=False, **tls) as answer,
            ):
                if answer.status != 200:
                    return {"silent": f"it answers {answer.status} to this controller"}
                body = await answer.content.read(ANSWER_BYTES_MAX)
                while len(body) < ANSWER_BYTES_MAX and (more := await answer.content.read(ANSWER_BYTES_MAX)):
                    body += more
            return _told(msgspec.json.decode(body, type=_Overview).state)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, msgspec.MsgspecError) as error:
            return {"silent": f"it does not answer: {type(error).__name__}"}


class _Overview(msgspec.Struct):
    state: dict[str, Any]


def _told(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state.get(name) for name in ("role", "taking_over", "zookeeper_connected", "in_memory")}
