"""Authorization of HTTP: every path but those in ``OPEN`` takes the right to DESCRIBE the cluster."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterable, Mapping

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.runtime.daemon import Daemon
from proto.security.authorization import ANONYMOUS, CLUSTER, Operation, Principal, is_allowed, peer_of
from proto.security.callers import AUTHORIZATION, BEARER, UnauthenticatedError

log = structlog.get_logger(__name__)

#: Paths that everyone may ask, and that tell strangers no more than yes or no: probes and load balancers do.
OPEN = frozenset({"/live", "/ready", "/leader"})
#: Characters of a path that the log shows.
PATH_SHOWN = 200
#: Keys of a request under which the caller is kept, and whether it may DESCRIBE the cluster.
CALLER = web.RequestKey("caller", Principal)
MAY_DESCRIBE = web.RequestKey("may_describe", bool)


def guard(daemon: Daemon, published: Collection[str]) -> Middleware:
    """Names the caller of each request, and lets those pass who may. ``published``: paths of files that say nothing of
    the cluster: everyone may read them, also with a token that proves nothing."""

    def denied(request: web.Request, caller: Principal, error: str) -> None:
        """The record of a request that is refused for who asks."""
        asked = f"{request.method} {request.path}"[:PATH_SHOWN]
        daemon.audit_log.denied("HTTP", (str(caller), caller.host), error, None, daemon.epoch, asked)

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in published:
            return await handler(request)
        try:
            caller = _caller(daemon, request)
        except UnauthenticatedError as error:
            log.warning("not_authenticated", peer=_peer(request), why=str(error))
            denied(request, Principal(ANONYMOUS, _peer(request)), "UNAUTHENTICATED")
            return _challenge(str(error))
        may_describe = is_allowed(daemon.authorizer, caller, Operation.DESCRIBE, CLUSTER)
        if not may_describe and request.path not in OPEN:
            log.warning("denied", principal=str(caller), peer=caller.peer, path=request.path[:PATH_SHOWN])
            denied(request, caller, "CLUSTER_AUTHORIZATION_FAILED")
            if caller.name == ANONYMOUS:
                return _challenge("a certificate or a token is needed")
            return web.Response(status=403, text=f"{caller} may not DESCRIBE the cluster\n")
        request[CALLER], request[MAY_DESCRIBE] = caller, may_describe
        return await handler(request)

    return guarded


def _peer(request: web.Request) -> str:
    found = request.transport.get_extra_info("peername") if request.transport is not None else None
    return peer_of(found[0], found[1]) if isinstance(found, tuple) else "unix:"


def _tls(request: web.Request) -> tuple[bytes | None, bool]:
    """The caller's certificate in DER, and whether the connection is encrypted."""
    tls = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    return (tls.getpeercert(binary_form=True), True) if tls is not None else (None, False)


def _caller(daemon: Daemon, request: web.Request) -> Principal:
    """Raises UnauthenticatedError."""
    certificate, encrypted = _tls(request)
    header = request.headers.get("Authorization")
    return daemon.callers.of_connection(_peer(request), certificate, header, encrypted=encrypted)


def _challenge(why: str) -> web.Response:
    return web.Response(status=401, headers={"WWW-Authenticate": BEARER}, text=f"{why}\n")


class AsRpc:
    """A request over HTTP as the context of an RPC, so that the guard of the RPCs lets it in or not."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def peer(self) -> str:
        return _peer(self._request)

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        certificate, encrypted = _tls(self._request)
        proved = {"transport_security_type": [b"ssl"]} if encrypted else {}
        if certificate is not None:
            proved["x509_pem_cert"] = [ssl.DER_cert_to_PEM_cert(certificate).encode()]
        return proved

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        header = self._request.headers.get("Authorization")
        return [] if header is None else [(AUTHORIZATION, header)]
