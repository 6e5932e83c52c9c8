"""HTTP for probes, Prometheus and operators: /live, /ready, /leader, /metrics, /state."""

from __future__ import annotations

import time

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controller.runtime.daemon import Daemon, Role
from controller.runtime.state import attention
from controller.runtime.state import state as controller_state

#: A controller whose current event made no step for this long counts as stuck.
STUCK_AFTER_S = 60.0


def application(daemon: Daemon) -> web.Application:
    """The routes of one daemon. Handlers only read, on the daemon's event loop, so they see consistent state."""
    app = web.Application()

    async def live(_: web.Request) -> web.Response:
        if is_stuck(daemon):
            return web.Response(status=503, text="stuck: an event makes no progress\n")
        return web.Response(text="live\n")

    async def ready(_: web.Request) -> web.Response:
        connected = daemon.session is not None and daemon.session.connected
        if daemon.active or (daemon.role is Role.STANDBY and connected):
            lines = [f"ready: {daemon.role.value}", *attention(daemon)]
            return web.Response(text="".join(f"{line}\n" for line in lines))
        return web.Response(status=503, text=f"not ready: {_why_not_ready(daemon)}\n")

    async def leader(_: web.Request) -> web.Response:
        if daemon.active:
            return web.Response(text="leader\n")
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


async def start_http(daemon: Daemon, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Start serving; return the runner (to clean up) and the actual port. Raises OSError."""
    runner = web.AppRunner(application(daemon), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    return runner, int(runner.addresses[0][1])
