"""The guard of HTTP by itself: which paths are open, what it asks of the authorizer, and what an RPC is told.

Over real connections: ``test_access``.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from controller.runtime.http.access import CALLER, MAY_DESCRIBE, AsRpc, guard
from controller.runtime.http.server import STUCK_AFTER_S, is_stuck
from proto.security.authorization import CLUSTER, AnyBroker, Operation, Principal, Resource
from proto.security.callers import Callers
from proto.security.principals import PrincipalRules
from tests.support.runtime.certificates import Authority


class Authorizer(AnyBroker):
    def __init__(self, may: bool) -> None:
        self._may = may
        self.asked: list[tuple[str, Operation, Resource]] = []

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        self.asked.append((principal.name, operation, resource))
        return self._may


class Transport:
    """A connection; ``certificate``: the client's, over TLS. None: it has none; plain text without ``encrypted``."""

    def __init__(self, certificate: bytes | None = None, *, encrypted: bool = True) -> None:
        tls = SimpleNamespace(getpeercert=lambda binary_form: certificate) if encrypted else None
        self._extra = {"peername": ("192.0.2.1", 4), "ssl_object": tls, "sslcontext": tls}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    def is_closing(self) -> bool:
        return False


def request(path: str, transport: Transport, **headers: str) -> web.Request:
    return make_mocked_request("GET", path, headers=headers, transport=transport)


async def handler(asked: web.Request) -> web.Response:
    return web.Response(text=f"{asked[CALLER].name} {asked[MAY_DESCRIBE]}")


@pytest.fixture
def certificate(tmp_path: Path) -> bytes:
    certfile, _ = Authority(tmp_path).issue("reader")
    return ssl.PEM_cert_to_DER_cert(certfile.read_text())


def guarded(may: bool) -> tuple[Any, Authorizer]:
    authorizer = Authorizer(may)
    audit_log = SimpleNamespace(denied=lambda *_: None)
    callers = Callers(PrincipalRules())
    daemon: Any = SimpleNamespace(authorizer=authorizer, callers=callers, audit_log=audit_log, epoch=-1)
    return guard(daemon, {"/ui/main.js"}), authorizer


@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize(
    "path",
    ["/state", "/metrics", "/live", "/ready", "/leader", "/live2", "/leader/x", "/absent", "/ui/main.js/x"],
)
async def test_only_open_paths_take_no_right_on_the_cluster(path: str, may: bool, certificate: bytes) -> None:
    middleware, authorizer = guarded(may)
    answer = await middleware(request(path, Transport(certificate)), handler)
    assert answer.status == (200 if may or path in ("/live", "/ready", "/leader") else 403)
    assert authorizer.asked == [("CN=reader", Operation.DESCRIBE, CLUSTER)]
    if answer.status == 200:
        assert answer.text == f"CN=reader {may}"


async def test_who_has_no_name_is_told_to_prove_one() -> None:
    middleware, _ = guarded(False)
    answer = await middleware(request("/state", Transport()), handler)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_published_files_ask_for_nothing() -> None:
    async def file(_: web.Request) -> web.Response:
        return web.Response()

    middleware, authorizer = guarded(False)
    forged = request("/ui/main.js", Transport(), Authorization="Bearer nobody's")
    assert ((await middleware(forged, file)).status, authorizer.asked) == (200, [])


async def test_a_token_from_another_machine_is_believed_over_tls_only() -> None:
    middleware, _ = guarded(True)
    answer = await middleware(
        request("/state", Transport(encrypted=False), Authorization="Bearer x"), handler
    )
    assert (answer.status, answer.text) == (401, "tokens are accepted over TLS only\n")


def test_the_guard_of_rpcs_is_told_what_the_connection_proved(certificate: bytes) -> None:
    callers = Callers(PrincipalRules())
    assert callers.of_rpc(AsRpc(request("/", Transport(certificate)))) == ("CN=reader", "ipv4:192.0.2.1:4")
    assert callers.of_rpc(AsRpc(request("/", Transport()))).name == "ANONYMOUS"
    token = {"Authorization": "Bearer x"}
    for encrypted in (True, False):
        told = AsRpc(request("/", Transport(encrypted=encrypted), **token))
        assert told.auth_context() == ({"transport_security_type": [b"ssl"]} if encrypted else {})
        assert list(told.invocation_metadata()) == [("authorization", "Bearer x")]


@pytest.mark.parametrize(
    ("silent_s", "handles", "connected", "stuck"),
    [
        (STUCK_AFTER_S + 1, True, True, True),
        (STUCK_AFTER_S - 1, True, True, False),
        (STUCK_AFTER_S + 1, False, True, False),
        (STUCK_AFTER_S + 1, True, False, False),
    ],
)
def test_a_controller_is_stuck_whose_event_makes_no_step(
    silent_s: float, handles: bool, connected: bool, stuck: bool
) -> None:
    machine = SimpleNamespace(current_event=object() if handles else None)
    session = SimpleNamespace(connected=connected)
    term = SimpleNamespace(machine=machine, session=session, last_progress=time.monotonic() - silent_s)
    daemon: Any = SimpleNamespace(term=term)
    assert is_stuck(daemon) is stuck
