"""Whether a change comes from a page of this controller, opened by the caller, and not from elsewhere.

A browser adds to every request what proves its user: a certificate, or that it runs on this machine. So a change takes
more: the origin that the browser names, and a token that only a page of ours could read. The token is bound to a
cookie, to the caller and to a time; nothing is kept for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable

from aiohttp import web

from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.http.access import CALLER
from controller.runtime.http.console.asking import RefusedError
from proto.addresses import is_ip_address

#: The header with the token, how long it counts, and how long the proof of a dry run does.
TOKEN, TOKEN_S, TICKET_S = "Console-Token", 600, 300
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
_SEALED = re.compile(r"(\d{1,12})\.([0-9a-f]{64})")
#: The error in the record of a change that fails these checks.
CROSS_SITE = "CROSS_SITE"


class Sessions:
    """The browser sessions of one process: a restart ends them all."""

    def __init__(self, daemon: Daemon, now_s: Callable[[], float] = time.monotonic) -> None:
        self._daemon, self._now_s = daemon, now_s
        self._key = secrets.token_bytes(32)

    def begin(self, request: web.Request) -> tuple[str, Callable[[web.StreamResponse], None]]:
        """A token for the page that asks, and what sets its cookie. Raises RefusedError for one that is not ours."""
        self._require_own_name(request)
        cookie = self._cookie(request) or secrets.token_urlsafe(32)

        def set_cookie(response: web.StreamResponse) -> None:
            response.set_cookie(
                _name(request),
                cookie,
                path="/ui/api",
                httponly=True,
                samesite="Strict",
                secure=_encrypted(request),
            )

        return self._seal(request, cookie, b"token", TOKEN_S), set_cookie

    def require(self, request: web.Request) -> None:
        """Raises RefusedError for a request that no page of this session has sent; it is recorded as denied."""
        try:
            self._require_own_name(request)
            self._require_own_origin(request)
            cookie, token = self._cookie(request), request.headers.get(TOKEN, "")
            if cookie is None or not self._is_sealed(request, cookie, b"token", token):
                raise _refused("without a valid token of this page's session")
        except RefusedError:
            caller = request[CALLER]
            named = str(caller), caller.host
            self._daemon.audit_log.denied("DryRun", named, CROSS_SITE, None, self._daemon.epoch)
            raise

    def ticket(self, request: web.Request, change: bytes) -> str:
        """Proves that this change was tried in this session."""
        return self._seal(request, self._cookie(request) or "", change, TICKET_S)

    def require_ticket(self, request: web.Request, change: bytes, ticket: str) -> None:
        """Raises RefusedError for a change that was not tried like this, or too long ago."""
        if not self._is_sealed(request, self._cookie(request) or "", change, ticket):
            why = f"ticket: must be of a dry run of the same change, at most {TICKET_S} s ago"
            raise RefusedError(ErrorCode.INVALID_REQUEST, why)

    def _require_own_name(self, request: web.Request) -> None:
        """A name of somebody else may lead here (DNS rebinding): then his pages have our origin. TLS and bearer tokens
        rule that out; else the browser must have come by an address, or by a name that is known to be ours."""
        if len(request.headers.getall("Host", [])) != 1:
            raise _refused("without one Host header")
        if _encrypted(request) or "Authorization" in request.headers:
            return
        host = _host_of(request.headers["Host"])
        if not is_ip_address(host) and host not in ("localhost", _host_of(self._daemon.http_endpoint)):
            raise _refused(f"under a name that is not known to be this controller's, {host[:100]!r}")

    def _require_own_origin(self, request: web.Request) -> None:
        host = request.headers["Host"].lower()
        # A proxy may speak TLS for us.
        schemes = ("https",) if _encrypted(request) else ("http", "https")
        origins = request.headers.getall("Origin", [])
        if len(origins) != 1 or origins[0].lower() not in {f"{scheme}://{host}" for scheme in schemes}:
            raise _refused("from a page of another site")
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise _refused("from a page of another site")

    def _cookie(self, request: web.Request) -> str | None:
        found = request.cookies.get(_name(request), "")
        return found if _COOKIE.fullmatch(found) else None

    def _seal(self, request: web.Request, cookie: str, what: bytes, for_s: int) -> str:
        until_s = int(self._now_s()) + for_s
        return f"{until_s}.{self._mac(request, cookie, what, until_s)}"

    def _is_sealed(self, request: web.Request, cookie: str, what: bytes, given: str) -> bool:
        parts = _SEALED.fullmatch(given)
        if parts is None or int(parts[1]) < self._now_s():
            return False
        return hmac.compare_digest(parts[2], self._mac(request, cookie, what, int(parts[1])))

    def _mac(self, request: web.Request, cookie: str, what: bytes, until_s: int) -> str:
        of = (cookie.encode(), str(request[CALLER]).encode(), str(until_s).encode(), what)
        # Digests are of one length: no two lists of parts look the same.
        text = b"".join(hashlib.sha256(part).digest() for part in of)
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def _refused(why: str) -> RefusedError:
    return RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"refused: the request came {why}")


def _encrypted(request: web.Request) -> bool:
    return request.transport is not None and request.transport.get_extra_info("ssl_object") is not None


def _name(request: web.Request) -> str:
    """The cookie's name, which has the port: browsers send the cookies of all ports of a host."""
    address = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return f"console-{address[1] if address else 0}"


def _host_of(address: str) -> str:
    """``h:1``, ``[::1]:1``, ``h`` without the port, in lower case."""
    return re.sub(r":\d*$", "", address).strip("[]").lower()
