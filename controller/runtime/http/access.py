"""Authorization of HTTP: every path but those in ``OPEN`` takes the right to DESCRIBE the cluster."""

from __future__ import annotations

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.runtime.daemon import Daemon
from proto.security.authorization import ANONYMOUS, CLUSTER, Operation, Principal, is_allowed, peer_of
from proto.security.callers import BEARER, UnauthenticatedError

log = structlog.get_logger(__name__)

#: Paths that everyone may ask, and that tell strangers no more than yes or no: probes and load balancers do.
OPEN = frozenset({"/live", "/ready", "/leader"})
#: Of a path in the log, characters.
PATH_SHOWN = 200
#: Of a request: whether the caller may DESCRIBE the cluster.
MAY_DESCRIBE = web.RequestKey("may_describe", bool)


def guard(daemon: Daemon) -> Middleware:
    """Names the caller of each request, and lets those pass who may."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            caller = _caller(daemon, request)
        except UnauthenticatedError as error:
            log.warning("not_authenticated", peer=_peer(request), why=str(error))
            return _challenge(str(error))
        may_describe = is_allowed(daemon.authorizer, caller, Operation.DESCRIBE, CLUSTER)
        if not may_describe and request.path not in OPEN:
            log.warning("denied", principal=str(caller), peer=caller.peer, path=request.path[:PATH_SHOWN])
            if caller.name == ANONYMOUS:
                return _challenge("a certificate or a token is needed")
            return web.Response(status=403, text=f"{caller} may not DESCRIBE the cluster\n")
        request[MAY_DESCRIBE] = may_describe
        return await handler(request)

    return guarded


def _peer(request: web.Request) -> str:
    found = request.transport.get_extra_info("peername") if request.transport is not None else None
    return peer_of(found[0], found[1]) if isinstance(found, tuple) else "unix:"


def _caller(daemon: Daemon, request: web.Request) -> Principal:
    """Raises UnauthenticatedError."""
    tls = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    certificate = tls.getpeercert(binary_form=True) if tls is not None else None
    header = request.headers.get("Authorization")
    return daemon.callers.of_connection(_peer(request), certificate, header, encrypted=tls is not None)


def _challenge(why: str) -> web.Response:
    return web.Response(status=401, headers={"WWW-Authenticate": BEARER}, text=f"{why}\n")
