"""HTTP for probes, Prometheus and operators: /live, /ready, /leader, /metrics, /state.

All of them are behind ``access.guard``.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controller.runtime.daemon import Daemon, Role
from controller.runtime.http.access import MAY_DESCRIBE, guard
from controller.runtime.http.connections import FIRST_REQUEST_S, Connection, Connections, Handler
from controller.runtime.limits import descriptors_share
from controller.runtime.state import attention
from controller.runtime.state import state as controller_state
from proto.security.access import EVERYONE_MAY, Openness
from proto.security.tls import listening

#: A controller whose current event made no step for this long counts as stuck.
STUCK_AFTER_S = 60.0


def application(daemon: Daemon) -> web.Application:
    """The routes of one daemon. Handlers only read, on the daemon's event loop, so they see consistent state."""
    app = web.Application(middlewares=[guard(daemon)])

    async def live(_: web.Request) -> web.Response:
        if is_stuck(daemon):
            return web.Response(status=503, text="stuck: an event makes no progress\n")
        return web.Response(text="live\n")

    async def ready(request: web.Request) -> web.Response:
        connected = daemon.session is not None and daemon.session.connected
        well = daemon.active or (daemon.role is Role.STANDBY and connected)
        lines = ["ready" if well else "not ready"]
        if request[MAY_DESCRIBE]:
            lines[0] += f": {daemon.role.value if well else _why_not_ready(daemon)}"
            if daemon.openness is Openness.BY_DEFAULT:
                lines.append(EVERYONE_MAY)
            if well:
                lines += attention(daemon)
        return web.Response(status=200 if well else 503, text="".join(f"{line}\n" for line in lines))

    async def leader(request: web.Request) -> web.Response:
        if daemon.active:
            return web.Response(text="leader\n")
        if not request[MAY_DESCRIBE]:
            return web.Response(status=503, text="not the leader\n")
        other = daemon.current_controller.controller_id
        return web.Response(status=503, text=f"not the leader: {daemon.role.value}, controller is {other}\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(daemon.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def state(_: web.Request) -> web.Response:
        body = msgspec.json.format(msgspec.json.encode(controller_state(daemon)), indent=2)
        return web.Response(body=body, content_type="application/json")

    app.add_routes(
        [
            web.get("/live", live),
            web.get("/ready", ready),
            web.get("/leader", leader),
            web.get("/metrics", metrics),
            web.get("/state", state),
        ]
    )
    return app


def is_stuck(daemon: Daemon) -> bool:
    """Whether the current event has made no step for too long, although the ZooKeeper connection is up."""
    term = daemon.term
    if term is None or term.machine.current_event is None or not term.session.connected:
        return False
    return time.monotonic() - term.last_progress > STUCK_AFTER_S


def _why_not_ready(daemon: Daemon) -> str:
    if daemon.session is None or not daemon.session.connected:
        return f"no connection to ZooKeeper at {daemon.settings.zookeeper}"
    if daemon.term is not None and not daemon.term.machine.ready:
        return "failover is under way"
    if daemon.term is not None:
        return "the lease is over: ZooKeeper does not answer"
    return f"role is {daemon.role.value}"


class HttpServer:
    """A started server; ``port``: the actual one."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server, watch: asyncio.Task[None]) -> None:
        self._runner, self._server, self._watch = runner, server, watch
        self.port = int(server.sockets[0].getsockname()[1])

    async def cleanup(self) -> None:
        """End it with all connections."""
        self._watch.cancel()
        self._server.close()
        await self._runner.cleanup()


async def start_http(daemon: Daemon, host: str, port: int) -> tuple[HttpServer, int]:
    """Start serving; return the server (to clean up) and the actual port. Raises OSError."""
    context = None if daemon.https is None else listening(daemon.https)
    connections = Connections(descriptors_share(daemon.settings.http_connections_max, 0.25))
    app = application(daemon)

    @web.middleware
    async def measured(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await connections.measured(request, handler)

    app.middlewares.append(measured)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None
    opened = await loop.create_server(
        lambda: Connection(connections, server, loop),
        host,
        port,
        ssl=context,
        ssl_handshake_timeout=FIRST_REQUEST_S if context is not None else None,
    )
    watch = asyncio.create_task(connections.watch(), name="http-connections")
    started = HttpServer(runner, opened, watch)
    return started, started.port
