"""HTTP for probes, Prometheus and operators: /live, /ready, /leader, /metrics, /state, /ui.

All of them are behind ``access.guard``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
from aiohttp import web
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.runtime.daemon import Daemon, Role
from controller.runtime.http.access import MAY_DESCRIBE, guard
from controller.runtime.http.connections import Connection, Connections, Handler, TlsHandshake
from controller.runtime.http.console.api import Api
from controller.runtime.http.console.changes import BODY_MAX
from controller.runtime.http.console.events import STREAMS_MAX
from controller.runtime.http.console.files import files, sender
from controller.runtime.http.min_isr import MinIsr, MinIsrGauges
from controller.runtime.state import Gauges, attention
from controller.runtime.state import state as controller_state
from proto.limits import descriptors_share
from proto.security.access import EVERYONE_MAY, Openness
from proto.security.tls import listening

#: A controller whose current event made no step for this long counts as stuck.
STUCK_AFTER_S = 60.0
#: A scrape waits so long for counts of all partitions; then it tells the last ones. Prometheus gives up after 10 s.
COUNTED_S = 5.0


def application(daemon: Daemon, connections_max: int) -> web.Application:
    """The routes of one daemon. Handlers only read, on the daemon's event loop, so they see consistent state."""
    pages = files()
    app = web.Application(middlewares=[guard(daemon, pages)], client_max_size=BODY_MAX)

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
        other = daemon.current_controller
        return web.Response(status=503, text=f"not the leader: {daemon.role.value}, controller is {other}\n")

    min_isr = MinIsr()
    counts = Counting(Gauges(daemon).refresh, MinIsrGauges(daemon, min_isr).refresh)
    app.on_cleanup.append(counts.stop)
    scraping = asyncio.Lock()

    async def metrics(request: web.Request) -> web.Response:
        await counts.refresh(COUNTED_S)
        # OpenMetrics, for those that ask for it, has exemplars.
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # With a hundred brokers there are thousands of lines: they are written in a thread, once all is read. Those who
        # waited for the counts together would else read in one turn of the loop.
        async with scraping:
            body = await asyncio.to_thread(encode, _Families(daemon.registry.collect()))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def state(_: web.Request) -> web.Response:
        body = msgspec.json.format(msgspec.json.encode(await controller_state(daemon)), indent=2)
        return web.Response(body=body, content_type="application/json")

    routes = {
        "/live": (live, "whether this process makes progress"),
        "/ready": (ready, "whether it is active or could take over"),
        "/leader": (leader, "whether it is the active controller"),
        "/metrics": (metrics, "for Prometheus"),
        "/state": (state, "the cluster as the active controller knows it"),
    }

    index = _index({**{path: words for path, (_, words) in routes.items()}, "/ui": "the console"})
    app.add_routes([web.get("/", index), *(web.get(path, handler) for path, (handler, _) in routes.items())])
    app.add_routes([web.get(path, sender(file)) for path, file in pages.items()])
    # Half of the connections are left to probes and Prometheus.
    api = Api(daemon, min_isr, streams_max=min(STREAMS_MAX, connections_max // 2))
    app.add_routes([web.route(method, path, handler) for method, path, handler in api.routes()])
    app.on_shutdown.append(api.events.end)
    return app


def _index(paths: Mapping[str, str]) -> Handler:
    async def index(_: web.Request) -> web.StreamResponse:
        return web.Response(text="".join(f"{path}  {words}\n" for path, words in paths.items()))

    return index


class _Families(Collector):
    """What a registry told at one moment."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


class Counting:
    """Counts again for whoever scrapes: once for all that ask meanwhile."""

    def __init__(self, *refreshed: Callable[[], Awaitable[None]]) -> None:
        self._refreshed = refreshed
        self._task: asyncio.Task[None] | None = None

    async def refresh(self, wait_s: float) -> None:
        """Return once it is counted, or after ``wait_s``: then the count goes on, for those who ask later."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._refresh(), name="count-partitions")
        done, _ = await asyncio.wait([self._task], timeout=wait_s)
        for task in done:
            await task

    async def _refresh(self) -> None:
        for refresh in self._refreshed:
            await refresh()

    async def stop(self, _: web.Application) -> None:
        """Count no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


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
    return "; ".join([f"role is {daemon.role.value}", *attention(daemon)])


class HttpServer:
    """A started server; ``port``: the actual one."""

    def __init__(
        self,
        runner: web.AppRunner,
        server: asyncio.Server,
        connections: Connections,
        watch: asyncio.Task[None],
    ) -> None:
        self._runner, self._server, self._connections, self._watch = runner, server, connections, watch
        self.port = int(server.sockets[0].getsockname()[1])

    async def cleanup(self) -> None:
        """End it with all connections."""
        self._watch.cancel()
        self._server.close()
        await self._runner.cleanup()
        # Those in their handshakes.
        self._connections.end_all()


async def start_http(daemon: Daemon, host: str, port: int) -> tuple[HttpServer, int]:
    """Start serving; return the server (to clean up) and the actual port. Raises OSError."""
    context = None if daemon.https is None else listening(daemon.https)
    connections_max = descriptors_share(daemon.settings.http_connections_max)
    connections = Connections(connections_max)
    app = application(daemon, connections_max)

    @web.middleware
    async def measured(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await connections.measured(request, handler)

    app.middlewares.append(measured)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None

    def accepted() -> asyncio.Protocol:
        made = Connection(connections, server, loop)
        return made if context is None else TlsHandshake(connections, context, made)

    opened = await loop.create_server(accepted, host, port)
    watch = asyncio.create_task(connections.watch(), name="http-connections")
    started = HttpServer(runner, opened, connections, watch)
    return started, started.port
