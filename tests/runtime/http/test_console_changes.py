"""Changes through the console that nobody on its page asked for: from other sites, without a token, by others."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from kazoo.client import KazooClient
from yarl import URL

from controller.core import znode_paths
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.http.console.changes import BODY_MAX, NAMED_MAX, SHOWN_MAX, _short
from controller.runtime.http.console.files import HEADERS
from controller.runtime.http.console.sessions import TOKEN
from controller.runtime.http.server import start_http
from controller.runtime.zookeeper import codecs
from proto.security.authorization import AllowAll, AnyBroker, Operation, Principal, Resource
from proto.security.tokens import line_of, new_token
from tests.support.runtime.daemons import running
from tests.support.runtime.inspections import three
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

PAUSE: dict[str, Any] = {"change": {"kind": "pause", "paused": True}, "reason": "a test", "author": "eve"}
RULES = """
[[allow]]
principals = ["User:reader", "User:changer", "User:other"]
operations = ["DESCRIBE"]
resources = ["cluster", "topic:*"]
[[allow]]
principals = ["User:changer", "User:other"]
operations = ["ALTER"]
resources = ["cluster"]
"""
WHO = ("reader", "changer", "other", "stranger")
MARKUP = "<img src=x onerror=alert(1)>"


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class Page:
    """What a page of the console sends; ``token``: of its session."""

    def __init__(self, client: aiohttp.ClientSession, base: str) -> None:
        self.client, self.base = client, base
        self.token = ""

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.send("GET", path, headers=headers or {})

    async def log_in(self) -> Any:
        told = (await self.get("session")).body
        self.token = told.get("token", "")
        return told

    async def post(self, path: str, body: Any, **headers: str | None) -> Answer:
        """``headers``: instead of what the page would send; None: without it. Underscores stand for hyphens."""
        sent = {
            "Origin": self.base,
            "Sec-Fetch-Site": "same-origin",
            TOKEN: self.token,
            "Content-Type": "application/json",
        }
        changed = {**sent, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, {k: v for k, v in changed.items() if v is not None})

    async def send(
        self, method: str, path: str, data: bytes = b"", headers: Mapping[str, str] = {}
    ) -> Answer:
        async with self.client.request(
            method, f"{self.base}/ui/api/{path}", data=data, headers=headers, allow_redirects=False
        ) as answer:
            text = await answer.text()
            body = json.loads(text) if answer.content_type == "application/json" else text
            return Answer(answer.status, body, answer.headers)

    async def tried(self, body: dict[str, Any]) -> dict[str, Any]:
        """The change with the ticket of its dry run."""
        answer = await self.post("try", body)
        assert answer.status == 200, answer.body
        return {**body, "ticket": answer.body["ticket"]}


@asynccontextmanager
async def page(base: str, token: str = "") -> AsyncIterator[Page]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(
        headers=headers, cookie_jar=jar, skip_auto_headers=["Content-Type"]
    ) as client:
        made = Page(client, base)
        await made.log_in()
        yield made


@asynccontextmanager
async def controller(zookeeper: str, folder: Path, number: int = 1, **settings: Any) -> AsyncIterator[str]:
    """The address of one that leads, or has found another that does."""
    daemon = Daemon(
        Settings(
            controller_id=number, zookeeper=zookeeper, state_log_dir=folder / f"log-{number}", **settings
        )
    )
    server, port = await start_http(daemon, "127.0.0.1", 0)
    daemon.http_endpoint = f"127.0.0.1:{port}"
    try:
        async with running(daemon):
            await until(
                lambda: daemon.active or daemon.current_controller not in (-1, number),
                "a leader",
            )
            yield f"http://{daemon.http_endpoint}"
    finally:
        await server.cleanup()


@pytest_asyncio.fixture
async def opened(zookeeper: str, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a controller on loopback where nothing is set."""
    async with controller(zookeeper, tmp_path) as base:
        yield base


class Secured(NamedTuple):
    base: str
    tokens: Mapping[str, str]


@pytest_asyncio.fixture
async def secured(zookeeper: str, tmp_path: Path) -> AsyncIterator[Secured]:
    tokens = {who: new_token() for who in WHO}
    file = tmp_path / "tokens"
    file.write_text("\n".join(line_of(who, token) for who, token in tokens.items()))
    file.chmod(0o600)
    (tmp_path / "rules").write_text(RULES)
    rules = tmp_path / "rules"
    async with controller(zookeeper, tmp_path, authorizer_file=rules, bearer_tokens_file=file) as base:
        yield Secured(base, tokens)


def is_paused(zk: KazooClient) -> bool:
    """Whether anybody paused the controller."""
    found = [zk.get(path)[0] for path in every_path(zk, "/") if "maintenance" in path]
    return any(b'"paused":{' in data.replace(b" ", b"") for data in found if data)


def every_path(zk: KazooClient, path: str) -> Iterator[str]:
    yield path
    for child in zk.get_children(path):
        yield from every_path(zk, f"{path.rstrip('/')}/{child}")


async def test_a_change_from_the_page_is_carried_out_and_recorded(opened: str, zk: KazooClient) -> None:
    """The way that the attacks below try to take: else they prove nothing."""
    async with page(opened) as ours:
        asked = await ours.tried(PAUSE)
        assert not is_paused(zk), "a dry run changes nothing"
        done = await ours.post("change", asked)
        assert (done.status, done.body["outcomes"][0]["error"]) == (200, "")
        assert is_paused(zk)
        records = (await ours.get("history?kinds=request")).body["records"]
    assert [(r["to"], r["principal"], r["reason"]) for r in records] == [
        ("SetPause", "User:ANONYMOUS", "a test")
    ]


CROSS_SITE: dict[str, dict[str, str | None]] = {
    "another origin": {"Origin": "http://evil.example"},
    "another port of this machine": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "no origin": {"Origin": None},
    "an opaque origin": {"Origin": "null"},
    "the browser says cross-site": {"Sec-Fetch-Site": "cross-site"},
    "the browser says same-site": {"Sec-Fetch-Site": "same-site"},
    "typed": {"Sec-Fetch-Site": "none"},
    "without the token": {TOKEN: None},
    "a made-up token": {TOKEN: f"99999999999.{'0' * 64}"},
    "a token of words": {TOKEN: "é" * 9},
    "without the cookie": {"Cookie": ""},
    "another session's cookie": {"Cookie": "console-{port}=" + "A" * 43},
    "a name that leads here": {"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"},
}


async def test_other_sites_change_nothing(opened: str, zk: KazooClient) -> None:
    port, found = str(URL(opened).port), {}
    for how, changed in CROSS_SITE.items():
        headers = {k.replace("-", "_"): v.replace("{port}", port) if v else v for k, v in changed.items()}
        async with page(opened) as ours:
            asked = await ours.tried(PAUSE)
            if "Cookie" in headers:
                ours.client.cookie_jar.clear()
            for path in ("try", "change"):
                found[how, path] = (await ours.post(path, asked, **headers)).status
        assert not is_paused(zk), how
    assert found == dict.fromkeys(found, 403)


async def test_a_name_that_leads_here_gets_no_token(opened: str) -> None:
    async with page(opened) as ours:
        told = (await ours.get("session", {"Host": f"evil.example:{URL(opened).port}"})).body
        assert (told["may_change"], "token" in told) == (False, False)
        assert "name that is not known to be this controller's" in told["why"]


async def test_a_form_changes_nothing(opened: str, zk: KazooClient) -> None:
    async with page(opened) as ours:
        asked = await ours.tried(PAUSE)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert (await ours.post("change", asked, Content_Type=kind)).status == 415
    assert not is_paused(zk)


async def test_other_methods_change_nothing(opened: str, zk: KazooClient) -> None:
    async with page(opened) as ours:
        asked = json.dumps(await ours.tried(PAUSE)).encode()
        sent = {"Origin": opened, TOKEN: ours.token, "Content-Type": "application/json"}
        for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            for override in ({}, {"X-HTTP-Method-Override": "POST"}):
                answer = await ours.send(method, "change", asked, {**sent, **override})
                assert answer.status == 405, method
                assert "Access-Control-Allow-Origin" not in answer.headers
        for reading in ("session", "overview", "plan"):
            assert (await ours.send("POST", reading, asked, sent)).status == 405
    assert not is_paused(zk)


async def test_bodies_are_bounded(opened: str, zk: KazooClient) -> None:
    async with page(opened) as ours:
        large = b'{"change":' + b" " * BODY_MAX
        assert (await ours.post("try", large)).status == 413

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(BODY_MAX // 1000 + 100):
                yield b" " * 1000

        headers = {"Origin": opened, TOKEN: ours.token, "Content-Type": "application/json"}
        async with ours.client.post(f"{opened}/ui/api/try", data=endless(), headers=headers) as found:
            assert found.status == 413
        bomb = gzip.compress(b" " * 50_000_000)
        assert (await ours.post("try", bomb, Content_Encoding="gzip")).status == 400
        for body in (b"[" * 100_000, b'{"change":' * 20_000, b"\xff\xfe", b"", b"null", b'{"change":1}'):
            answer = await ours.post("try", body)
            assert (answer.status, answer.body["error"]) == (400, "INVALID_REQUEST"), body[:20]
        assert (await ours.get("overview")).status == 200
    assert not is_paused(zk)


BAD: dict[str, dict[str, Any]] = {
    "no reason": {**PAUSE, "reason": ""},
    "a reason of blanks": {**PAUSE, "reason": "  "},
    "a long reason": {**PAUSE, "reason": "x" * 1001},
    "nobody": {**PAUSE, "author": ""},
    "an unknown change": {**PAUSE, "change": {"kind": "unclean"}},
    "a field too many": {**PAUSE, "change": {"kind": "pause", "paused": True, "force": True}},
    "a broker that cannot be": {**PAUSE, "change": {"kind": "drain", "broker": 2**31, "drained": True}},
    "a number as text": {**PAUSE, "change": {"kind": "drain", "broker": "1", "drained": True}},
    "too many": {**PAUSE, "change": {"kind": "elect", "partitions": [{"topic": "t", "partition": 0}] * 1001}},
}


async def test_what_is_no_change_is_refused(opened: str) -> None:
    async with page(opened) as ours:
        answers = {what: await ours.post("try", body) for what, body in BAD.items()}
    found = {what: (answer.status, answer.body["error"]) for what, answer in answers.items()}
    assert found == dict.fromkeys(BAD, (400, "INVALID_REQUEST"))


async def test_only_what_was_tried_is_carried_out(opened: str, zk: KazooClient) -> None:
    async with page(opened) as ours, page(opened) as another:
        tried = await ours.tried({**PAUSE, "change": {"kind": "pause", "paused": False}})
        for changed in ({**PAUSE, "ticket": tried["ticket"]}, PAUSE, {**tried, "reason": "another"}):
            answer = await ours.post("change", changed)
            assert (answer.status, answer.body["message"][:7]) == (400, "ticket:")
        assert (await another.post("change", await ours.tried(PAUSE))).status == 400
    assert not is_paused(zk)


async def test_hostile_names_stay_text(opened: str) -> None:
    moves = {"kind": "move", "moves": [{"topic": MARKUP, "partition": 0, "replicas": [1]}]}
    async with page(opened) as ours:
        answer = await ours.post("try", {**PAUSE, "change": moves, "reason": MARKUP})
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        (outcome,) = answer.body["outcomes"]
        assert outcome["refused"][0]["such_as"] == [f"{MARKUP}-0"]


async def test_who_may_not_change_does_not(secured: Secured, zk: KazooClient) -> None:
    """A session of somebody who may, in the hands of somebody who may not."""
    expected = {"reader": 403, "stranger": 403, "nobody": 401, "forged": 401}
    async with page(secured.base, secured.tokens["changer"]) as theirs:
        asked = await theirs.tried(PAUSE)
        cookie = "; ".join(f"{c.key}={c.value}" for c in theirs.client.cookie_jar)
        for who, status in expected.items():
            token = {**secured.tokens, "nobody": "", "forged": new_token()}[who]
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with aiohttp.ClientSession(headers=headers) as client:
                mine = Page(client, secured.base)
                mine.token = theirs.token
                assert (await mine.post("change", asked, Cookie=cookie)).status == status, who
                told = await mine.get("session")
                assert told.status != 200 or not told.body["may_change"]
    assert not is_paused(zk)


async def test_who_may_change_is_named_and_cannot_be_another(secured: Secured, zk: KazooClient) -> None:
    async with page(secured.base, secured.tokens["changer"]) as ours:
        asked = await ours.tried(PAUSE)
        cookie = "; ".join(f"{c.key}={c.value}" for c in ours.client.cookie_jar)
        # Another who may change, too: the session is not his.
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {secured.tokens['other']}"}
        ) as client:
            theirs = Page(client, secured.base)
            theirs.token = ours.token
            assert (await theirs.post("change", asked, Cookie=cookie)).status == 403
        assert not is_paused(zk)
        assert (await ours.post("change", asked)).status == 200
    async with page(secured.base, secured.tokens["reader"]) as reading:
        records = (await reading.get("history?kinds=request")).body["records"]
        told = (await reading.get("overview")).body["cluster"]["maintenance"]["paused"]
    assert told == {"author": "User:changer", "reason": "a test"}
    assert [(r["to"], r["principal"], r.get("reason"), r.get("error")) for r in records] == [
        ("SetPause", "User:changer", "a test", None),
        ("DryRun", "User:other", None, "CROSS_SITE"),
    ]


async def test_a_standby_refuses_and_says_who_leads(zookeeper: str, tmp_path: Path, zk: KazooClient) -> None:
    async with (
        controller(zookeeper, tmp_path) as leading,
        controller(zookeeper, tmp_path, 2) as waiting,
        page(waiting) as ours,
    ):
        answer = await ours.post("try", PAUSE)
        assert (answer.status, answer.body["error"]) == (503, "NOT_CONTROLLER")
        assert answer.body["active"] == {"id": 1, "http": leading.removeprefix("http://")}
    assert not is_paused(zk)


async def test_each_change_of_the_page_is_what_pctl_would_do(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    signed = {"reason": "a test", "author": "eve"}
    async with three(zookeeper, zk, tmp_path) as (active, _):
        server, port = await start_http(active.daemon, "127.0.0.1", 0)
        cluster = active.term.machine.cluster
        try:
            async with page(f"http://127.0.0.1:{port}") as ours:

                async def done(**change: Any) -> list[tuple[str, str, int, list[Any]]]:
                    """Method, error, number of what was done, and what was refused; a dry run says the same."""
                    asked = await ours.tried({**signed, "change": change})
                    answer = await ours.post("change", asked)
                    assert answer.status == 200, answer.body
                    await until(active.idle, "everybody has heard")
                    return [
                        (o["method"], o["error"], o.get("done", 0), o["refused"])
                        for o in answer.body["outcomes"]
                    ]

                assert await done(kind="drain", broker=3, drained=True) == [("SetDrain", "", 0, [])]
                assert cluster.maintenance.drained.keys() == {3}
                assert await done(kind="drain", broker=3, drained=False) == [("SetDrain", "", 0, [])]
                assert not cluster.maintenance.drained
                (elected,) = await done(kind="elect", topic="t")
                assert elected[:3] == ("ElectLeaders", "", 0)
                assert elected[3] == [
                    {
                        "error": "ELECTION_NOT_NEEDED",
                        "message": elected[3][0]["message"],
                        "count": 2,
                        "such_as": ["t-0", "t-1"],
                    }
                ]
                moves = [
                    {"topic": "u", "partition": 0, "replicas": [1]},
                    {"topic": "absent", "partition": 7, "replicas": [1]},
                ]
                drained, moved = await done(kind="move", drain=3, moves=moves)
                assert drained == ("SetDrain", "", 0, [])
                assert moved[:3] == ("AlterPartitionReassignments", "", 1)
                assert [(r["error"], r["such_as"]) for r in moved[3]] == [
                    ("UNKNOWN_TOPIC_OR_PARTITION", ["absent-7"])
                ]
                assert cluster.maintenance.drained.keys() == {3}
                assert active.partition("u").adding == (1,)
                many = [{"topic": "no", "partition": n, "replicas": [1]} for n in range(NAMED_MAX + 2)]
                ((_, _, none_done, (refused,)),) = await done(kind="move", moves=many)
                assert (none_done, refused["count"], len(refused["such_as"])) == (0, NAMED_MAX + 2, NAMED_MAX)
                cancelled = [{"topic": "u", "partition": 0, "replicas": None}]
                assert (await done(kind="move", moves=cancelled))[0][2] == 1
                assert active.partition("u").adding == ()
                assert await done(kind="maintenance", entered=True) == [("SetMaintenance", "", 0, [])]
                entered = cluster.maintenance.entered
                assert entered is not None
                assert (entered.author, entered.reason) == ("eve", "a test")
                answer = await ours.post("try", {**signed, "change": {"kind": "elect", "topic": "absent"}})
                assert (answer.status, answer.body["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
        finally:
            await server.cleanup()


class RefusesFrom(AnyBroker):
    """Everything may be done until somebody asks for the nth time whether he may change anything."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        del principal, resource
        self._left -= operation is Operation.ALTER
        return self._left > 0


async def test_a_step_that_is_refused_ends_the_change(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """Those before it are told as done; of a change without any, only the refusal is told."""
    move = {"kind": "move", "drain": 3, "moves": [{"topic": "u", "partition": 0, "replicas": [1]}]}
    async with three(zookeeper, zk, tmp_path) as (active, _):
        server, port = await start_http(active.daemon, "127.0.0.1", 0)
        try:
            async with page(f"http://127.0.0.1:{port}") as ours:
                asked = await ours.tried({"reason": "r", "author": "eve", "change": move})
                for nth, status, errors in ((3, 200, ["", "CLUSTER_AUTHORIZATION_FAILED"]), (2, 403, [])):
                    active.daemon.authorizer = RefusesFrom(nth)
                    answer = await ours.post("change", asked)
                    assert answer.status == status, answer.body
                    assert [o["error"] for o in answer.body.get("outcomes", [])] == errors
                    assert active.partition("u").adding == ()
                # The right was taken away from him while his page is open.
                active.daemon.authorizer = RefusesFrom(1)
                answer = await ours.post("try", {**PAUSE, "change": move})
                assert (answer.status, answer.body["message"]) == (
                    403,
                    "User:ANONYMOUS may not ALTER the cluster",
                )
                active.daemon.authorizer = AllowAll()
                last = (await ours.get("history?kinds=request&limit=1")).body["records"][0]
                assert (last["to"], last["error"]) == ("DryRun", "CLUSTER_AUTHORIZATION_FAILED")
        finally:
            await server.cleanup()


@pytest.mark.parametrize(
    ("length", "shown"), [(SHOWN_MAX, SHOWN_MAX), (SHOWN_MAX + 1, SHOWN_MAX + len("..."))]
)
def test_long_values_are_cut(length: int, shown: int) -> None:
    assert len(_short("x" * length)) == shown
    assert _short(10**600) == 10**600


async def test_standbys_say_what_they_have_in_memory_or_why_they_say_nothing(
    zookeeper: str, tmp_path: Path, zk: KazooClient
) -> None:
    (tmp_path / "rules").write_text(RULES)
    async with (
        controller(zookeeper, tmp_path) as leading,
        controller(zookeeper, tmp_path, 2) as following,
        controller(zookeeper, tmp_path, 3, authorizer_file=tmp_path / "rules"),
        page(leading) as ours,
        page(following) as theirs,
    ):
        gone = codecs.encode_standby(4, "127.0.0.1:1", "127.0.0.1:1")
        zk.create(znode_paths.candidate_path(4), gone, ephemeral=True)
        rows = list[dict[str, Any]]()

        async def all_are_known() -> bool:
            rows[:] = (await ours.get("controllers")).body
            return len(rows) == 4 and all(set(row) & {"silent", "role"} for row in rows)

        await until(all_are_known, "four controllers")
        assert [(row["id"], row["this"], row["active"]) for row in rows] == [
            (1, True, True),
            (2, False, False),
            (3, False, False),
            (4, False, False),
        ]
        assert {
            name: rows[0][name] for name in ("role", "taking_over", "zookeeper_connected", "in_memory")
        } == {
            "role": "active",
            "taking_over": False,
            "zookeeper_connected": True,
            "in_memory": None,
        }
        assert (rows[1]["role"], rows[1]["zookeeper_connected"], rows[1]["taking_over"]) == (
            "standby",
            True,
            False,
        )
        assert rows[2]["silent"] == "it answers 401 to this controller"
        assert rows[3]["silent"].startswith("it does not answer: Client")
        overview = (await theirs.get("overview")).body
        assert (overview["cluster"], overview["state"]["current_controller"]) == (None, 1)
        assert [(one["id"], one["this"]) for one in overview["controllers"]][:2] == [(1, False), (2, True)]
