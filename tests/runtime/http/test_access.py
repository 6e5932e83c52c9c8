"""Who may ask what over HTTP: every path of the application, asked by everybody."""

from __future__ import annotations

import json
import resource
import ssl
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from controller.core.events import EventKind
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from controller.runtime.http import server as http_server
from controller.runtime.http.access import OPEN
from controller.runtime.http.connections import Connections
from controller.runtime.http.console.files import files
from controller.runtime.http.server import application, start_http
from proto.security.access import EVERYONE_MAY
from proto.security.tls import TlsFiles, client_contexts
from proto.security.tokens import line_of, new_token
from tests.support.runtime.certificates import Authority
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

#: Status by caller, of a controller that is not ready and does not lead.
ROWS = {
    "/": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    "/live": {"nobody": 200, "stranger": 200, "reader": 200, "forged": 401},
    "/ready": {"nobody": 503, "stranger": 503, "reader": 503, "forged": 401},
    "/leader": {"nobody": 503, "stranger": 503, "reader": 503, "forged": 401},
    "/metrics": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    "/state": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    **{path: dict.fromkeys(("nobody", "stranger", "reader", "forged"), 200) for path in files()},
    "/ui/api/overview": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    "/ui/api/controllers": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    "/ui/api/events": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    **{
        f"/ui/api/{name}": {"nobody": 401, "stranger": 403, "reader": 503, "forged": 401}
        for name in ("heat", "topics", "topic", "audit", "history", "stoppable", "work", "scale", "moment")
    },
    **{
        f"/ui/api/{name}": {"nobody": 401, "stranger": 403, "reader": 400, "forged": 401}
        for name in ("partition", "broker", "plan", "vacate")
    },
    "/ui/api/session": {"nobody": 401, "stranger": 403, "reader": 200, "forged": 401},
    "/absent": {"nobody": 401, "stranger": 403, "reader": 404, "forged": 401},
}
#: Of paths that are asked by POST; who may change what: ``test_console_changes``.
POSTS = {
    f"/ui/api/{name}": {"nobody": 401, "stranger": 403, "reader": 403, "forged": 401}
    for name in ("try", "change")
}
RULES = """
[[allow]]
principals = ["User:reader", "User:CN=reader"]
operations = ["DESCRIBE"]
resources = ["cluster"]
"""


class Server:
    def __init__(self, daemon: Daemon, port: int, tokens: dict[str, str]) -> None:
        self.daemon, self._port, self._tokens = daemon, port, tokens

    async def get(self, path: str, who: str) -> tuple[int, str]:
        return await self.ask("GET", path, who)

    async def ask(self, method: str, path: str, who: str) -> tuple[int, str]:
        token = self._tokens.get(who)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self._port}", headers=headers) as client,
            client.request(method, path) as answer,
        ):
            assert (answer.status == 401) == ("WWW-Authenticate" in answer.headers)
            endless = answer.content_type == "text/event-stream"
            return answer.status, "" if endless else await answer.text()


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    tokens = {"reader": new_token(), "stranger": new_token()}
    file = tmp_path / "tokens"
    file.write_text("\n".join(line_of(name, token) for name, token in tokens.items()))
    file.chmod(0o600)
    (tmp_path / "rules").write_text(RULES)
    daemon = Daemon(
        Settings(state_log_dir=tmp_path, authorizer_file=tmp_path / "rules", bearer_tokens_file=file)
    )
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        yield Server(daemon, port, {**tokens, "forged": new_token()})
    finally:
        await runner.cleanup()
        daemon.state_log.close()


async def test_who_gets_in(server: Server) -> None:
    routes = [route for route in application(server.daemon, 10).router.routes() if route.resource]
    paths = {
        (route.method, route.resource.canonical)
        for route in routes
        if route.resource and route.method != "HEAD"
    }
    rows = {("GET", path) for path in ROWS if path != "/absent"} | {("POST", path) for path in POSTS}
    assert paths == rows, "add a row for the new path"
    for path, row in POSTS.items():
        assert {who: (await server.ask("POST", path, who))[0] for who in row} == row
        assert (await server.get(path, "reader"))[0] == 405
    found = {path: {who: (await server.get(path, who))[0] for who in row} for path, row in ROWS.items()}
    assert found == ROWS
    assert set(ROWS) > OPEN


async def test_who_is_denied_is_recorded(server: Server) -> None:
    for path, who in (
        ("/state", "stranger"),
        ("/metrics", "forged"),
        ("/live", "stranger"),
        ("/state", "reader"),
    ):
        await server.get(path, who)
    await server.ask("POST", "/ui/api/change", "stranger")
    log = server.daemon.state_log
    assert log.flush()
    rows = [json.loads(line) for line in (log.directory / "state-change.jsonl").read_text().splitlines()]
    assert [
        (row["to"], row["subject"], row["principal"], row["address"], row["error"])
        for row in rows
        if row["kind"] == "request"
    ] == [
        ("HTTP", "GET /state", "User:stranger", "127.0.0.1", "CLUSTER_AUTHORIZATION_FAILED"),
        ("HTTP", "GET /metrics", "User:ANONYMOUS", "127.0.0.1", "UNAUTHENTICATED"),
        ("HTTP", "POST /ui/api/change", "User:stranger", "127.0.0.1", "CLUSTER_AUTHORIZATION_FAILED"),
    ]


async def test_the_page_of_metrics_is_written_beside_the_event_loop(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it tells is read before, on the event loop: of one moment."""
    threads: list[int] = []
    read_by: list[int] = []
    writer, content_type = choose_encoder("")

    class Reads(Collector):
        def collect(self) -> Iterable[Metric]:
            read_by.append(threading.get_ident())
            return ()

    def noted(registry: Collector) -> bytes:
        threads.append(threading.get_ident())
        return writer(registry)

    monkeypatch.setattr(http_server, "choose_encoder", lambda _: (noted, content_type))
    server.daemon.registry.register(Reads())
    status, page = await server.get("/metrics", "reader")
    named = {family.name for family in text_string_to_metric_families(page)}
    assert status == 200
    assert named > {family.name for family in server.daemon.registry.collect()}
    assert threads
    assert threading.get_ident() not in threads
    assert set(read_by) == {threading.get_ident()}


class SecuredServer:
    """By TLS; whoever asks has a certificate under his name, or none (``nobody``)."""

    def __init__(self, port: int, contexts: dict[str, ssl.SSLContext], token: str) -> None:
        self._port, self._contexts, self._token = port, contexts, token

    async def get(self, path: str, who: str) -> int:
        """The status. Raises ClientError where there is no connection. ``who`` with ``+token``: the reader's, too."""
        name, _, token = who.partition("+")
        headers = {"Authorization": f"Bearer {self._token}"} if token else {}
        async with (
            aiohttp.ClientSession(f"https://127.0.0.1:{self._port}", headers=headers) as client,
            client.get(path, ssl=self._contexts[name]) as answer,
        ):
            return answer.status


@asynccontextmanager
async def secured_server(tmp_path: Path, auth: str) -> AsyncIterator[SecuredServer]:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "another authority")
    certificate, key = authority.issue("controller-1")
    tokens, token = tmp_path / "tokens", new_token()
    tokens.write_text(line_of("reader", token))
    tokens.chmod(0o600)
    (tmp_path / "rules").write_text(RULES)
    settings = Settings(
        state_log_dir=tmp_path,
        authorizer_file=tmp_path / "rules",
        bearer_tokens_file=tokens,
        ssl_certificate=certificate,
        ssl_key=key,
        ssl_ca=authority.cafile,
        http_ssl_client_auth=cast(Any, auth),
    )
    shown: dict[str, tuple[Path, Path] | tuple[None, None]] = {
        "nobody": (None, None),
        "stranger": authority.issue("stranger"),
        "reader": authority.issue("reader"),
        "foreign": other.issue("reader"),
    }
    contexts = {
        name: client_contexts(TlsFiles(certfile, keyfile, authority.cafile)).current()
        for name, (certfile, keyfile) in shown.items()
    }
    daemon = Daemon(settings)
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        yield SecuredServer(port, contexts, token)
    finally:
        await runner.cleanup()
        daemon.state_log.close()


@pytest.mark.parametrize("auth", ["", "required", "requested", "none"])
async def test_who_gets_in_by_certificate(tmp_path: Path, auth: str) -> None:
    """Every path; "" is as gRPC has it: required. Only where a certificate is asked for does one count."""
    async with secured_server(tmp_path, auth) as server:
        for path, row in ROWS.items():
            for who in ("nobody", "foreign"):
                refused = auth in ("", "required") or (auth == "requested" and who == "foreign")
                if refused:
                    with pytest.raises(aiohttp.ClientError):
                        await server.get(path, who)
                else:
                    assert await server.get(path, who) == row["nobody"], (path, who)
            for who in ("stranger", "reader"):
                known = who if auth != "none" else "nobody"
                assert await server.get(path, who) == row[known], (path, who)
            assert await server.get(path, "stranger+token") == row["reader"], path


async def test_strangers_hear_no_more_than_yes_or_no(server: Server) -> None:
    assert (await server.get("/ready", "nobody"))[1] == "not ready\n"
    assert (await server.get("/leader", "nobody"))[1] == "not the leader\n"
    assert "ZooKeeper" in (await server.get("/ready", "reader"))[1]
    assert "controller is" in (await server.get("/leader", "reader"))[1]


async def test_while_nothing_is_set_readiness_says_so(tmp_path: Path) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        assert EVERYONE_MAY in (await Server(daemon, port, {}).get("/ready", "nobody"))[1]
        assert (await Server(daemon, port, {}).get("/state", "nobody"))[0] == 200
    finally:
        await runner.cleanup()
        daemon.state_log.close()


class Term:
    """Of a controller that is elected; ``event``: one that is under way, since the beginning of time."""

    def __init__(self, session: Any, *, ready: bool = True, event: bool = False) -> None:
        current = SimpleNamespace(kind=EventKind.TOPIC_CHANGE) if event else None
        self.machine = SimpleNamespace(ready=ready, current_event=current)
        self.session, self.last_progress = session, 0.0


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (
            Role.STARTING,
            (503, "not ready: role is starting; no controller can be elected: /epoch: no number\n"),
        ),
        (Role.STANDBY, (200, "ready: standby\nno controller can be elected: /epoch: no number\n")),
    ],
)
async def test_a_candidate_says_why_nobody_can_be_elected(
    tmp_path: Path, role: Role, said: tuple[int, str]
) -> None:
    daemon: Any = Daemon(Settings(zookeeper="127.0.0.1:1", state_log_dir=tmp_path, allow_everyone=True))
    daemon.role, daemon.session, daemon.cannot_elect = (
        role,
        SimpleNamespace(connected=True),
        "/epoch: no number",
    )
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        assert await Server(daemon, port, {}).get("/ready", "nobody") == said
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("role", "connected", "elected", "lease_s", "ready", "leads"),
    [
        (Role.STARTING, None, None, 0.0, "not ready: no connection to ZooKeeper at 127.0.0.1:1", False),
        (Role.STANDBY, False, None, 0.0, "not ready: no connection to ZooKeeper at 127.0.0.1:1", False),
        (Role.STANDBY, True, None, 0.0, "ready: standby", False),
        (Role.STARTING, True, None, 0.0, "not ready: role is starting", False),
        (Role.ACTIVE, True, {"ready": False}, 9.0, "not ready: failover is under way", False),
        (Role.ACTIVE, True, {}, -1.0, "not ready: the lease is over: ZooKeeper does not answer", False),
        (Role.ACTIVE, True, {}, 9.0, "ready: active", True),
        # Its lease holds for a while.
        (Role.ACTIVE, False, {}, 9.0, "ready: active", True),
    ],
)
async def test_what_probes_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    role: Role,
    connected: bool | None,
    elected: dict[str, bool] | None,
    lease_s: float,
    ready: str,
    leads: bool,
) -> None:
    monkeypatch.setattr(http_server, "attention", lambda _: [])
    daemon: Any = Daemon(Settings(zookeeper="127.0.0.1:1", state_log_dir=tmp_path, allow_everyone=True))
    session = SimpleNamespace(connected=connected, lease_remaining_s=lambda: lease_s)
    daemon.role, daemon.session = role, None if connected is None else session
    daemon.term = None if elected is None else Term(session, **elected)
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        server = Server(daemon, port, {})
        status, text = await server.get("/ready", "nobody")
        assert (status, text.splitlines()[0]) == (200 if ready.startswith("ready") else 503, ready)
        assert (await server.get("/leader", "nobody"))[0] == (200 if leads else 503)
        assert (await server.get("/live", "nobody"))[0] == 200
        if elected is not None:
            daemon.term = Term(session, event=True)
            # Without a connection it waits for ZooKeeper.
            assert (await server.get("/live", "nobody"))[0] == (503 if connected else 200)
    finally:
        daemon.term = None
        await runner.cleanup()
        daemon.state_log.close()


async def test_http_takes_a_quarter_of_the_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, soft = list[int](), 1000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))

    class Known(Connections):
        def __init__(self, limit: int) -> None:
            limits.append(limit)
            super().__init__(limit)

    monkeypatch.setattr(http_server, "Connections", Known)
    for wanted in (100_000, 40):
        daemon = Daemon(Settings(state_log_dir=tmp_path / str(wanted), http_connections_max=wanted))
        runner, _ = await start_http(daemon, "127.0.0.1", 0)
        await runner.cleanup()
        daemon.state_log.close()
    assert limits == [soft // 4, 40]


async def test_half_of_the_connections_are_left_to_probes_and_who_leaves_is_forgotten(tmp_path: Path) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path, http_connections_max=8))
    runner, port = await start_http(daemon, "127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            streams = [await client.get("/ui/api/events") for _ in range(5)]
            assert [stream.status for stream in streams] == [200] * 4 + [503]
            for stream in streams:
                stream.close()
        known = runner._runner.server
        assert known is not None
        await until(lambda: not known.connections, "no connection is left")
    finally:
        await runner.cleanup()
        daemon.state_log.close()
