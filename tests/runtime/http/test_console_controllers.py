"""What the console shows of the other controllers: who is registered, and what standbys answer."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, make_mocked_request

from controller.runtime.http.console import controllers, views
from controller.runtime.http.console.controllers import Controllers
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ControllerInfo
from controller.runtime.zookeeper.session import ConnectionLossError
from tests.provers.sim.environment import loop


def controllers_of(session: Any) -> Controllers:
    daemon: Any = SimpleNamespace(
        session=session, settings=SimpleNamespace(tls_files=None, https=False, controller_id=1)
    )
    return Controllers(daemon)


def test_who_is_registered_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reads = [ControllerInfo(2, "h:1", "h:2", False)], 0

    async def read(_: Any) -> list[ControllerInfo]:
        nonlocal reads
        reads += 1
        return found

    async def run() -> None:
        monkeypatch.setattr(controllers, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        monkeypatch.setattr(cluster_reader, "controllers", read)
        assert await controllers_of(None).registered() == []
        known = controllers_of(object())
        for pause_s, expected in ((controllers.EVERY_S * 0.9, 1), (controllers.EVERY_S * 0.2, 1), (0.0, 2)):
            assert await known.registered() == found
            assert reads == expected
            await asyncio.sleep(pause_s)
        monkeypatch.setattr(cluster_reader, "controllers", lost)
        await asyncio.sleep(controllers.EVERY_S)
        assert await known.registered() == [], "who was registered may be so no more"

    async def lost(_: Any) -> list[ControllerInfo]:
        raise ConnectionLossError

    loop.run(run())


def test_pages_do_not_wait_for_a_zookeeper_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(_: Any) -> list[ControllerInfo]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def run() -> None:
        now_s = asyncio.get_running_loop().time
        monkeypatch.setattr(controllers, "time", SimpleNamespace(monotonic=now_s))
        monkeypatch.setattr(cluster_reader, "controllers", read)
        began_s = now_s()
        assert await controllers_of(object()).registered() == []
        assert now_s() - began_s == controllers.ANSWER_S

    loop.run(run())


OVERVIEW = b'{"state":{"role":"standby","taking_over":false,"zookeeper_connected":true,"in_memory":null}}'


@pytest.mark.parametrize(
    ("body", "encoding", "silent"),
    [
        (OVERVIEW, "", None),
        # More than arrives at once.
        (b" " * 900_000 + OVERVIEW, "", None),
        (OVERVIEW + b" " * 2_000_000 + b"{", "", None),
        (OVERVIEW[:-1], "", "it does not answer: DecodeError"),
        (b"{}", "", "it does not answer: ValidationError"),
        # It could become a thousand times as long.
        (gzip.compress(OVERVIEW, mtime=0), "gzip", "it does not answer: DecodeError"),
    ],
    ids=["whole", "in parts", "beyond the limit", "half", "empty", "compressed"],
)
async def test_what_a_standby_answers_is_read_to_a_limit(
    body: bytes, encoding: str, silent: str | None
) -> None:
    async def overview(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": encoding} if encoding else {}
        return web.Response(body=body, headers=headers)

    app = web.Application()
    app.router.add_get("/ui/api/overview", overview)
    async with TestServer(app) as server:
        found = await controllers_of(None)._ask(f"{server.host}:{server.port}")
    if silent is None:
        assert found == {
            "role": "standby",
            "taking_over": False,
            "zookeeper_connected": True,
            "in_memory": None,
        }
    else:
        assert found == {"silent": silent}


@pytest.mark.parametrize("active", [None, 2])
async def test_the_active_controller_is_the_one_that_says_so(
    active: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [SimpleNamespace(controller_id=id_, http=f"h:{id_}", active=id_ == active) for id_ in (1, 2, 3)]

    async def registered() -> Any:
        return known

    made = controllers_of(None)
    monkeypatch.setattr(made, "registered", registered)
    assert await made.active() == (None if active is None else {"id": 2, "http": "h:2"})


async def test_where_a_standby_sends_elsewhere_nobody_goes() -> None:
    asked = []

    async def overview(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/{path:.*}", overview)
    async with TestServer(app) as server:
        found = await controllers_of(None)._ask(f"{server.host}:{server.port}")
    assert (found, asked) == ({"silent": "it answers 302 to this controller"}, ["/ui/api/overview"])


def test_standbys_are_asked_once_in_a_while_for_all_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def read(_: Any) -> list[ControllerInfo]:
        return [ControllerInfo(1, "h:1", "h:2", True), ControllerInfo(2, "h:3", "h:4", False)]

    async def ask(address: str) -> dict[str, Any]:
        asked.append(address)
        return {"role": "standby"}

    async def run() -> None:
        monkeypatch.setattr(controllers, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        monkeypatch.setattr(cluster_reader, "controllers", read)
        monkeypatch.setattr(views, "state", lambda _: {"role": "active"})
        known = controllers_of(object())
        monkeypatch.setattr(known, "_ask", ask)
        (_, standbys), request = next(known.answers()), make_mocked_request("GET", "/")
        for pause_s, expected in ((controllers.EVERY_S * 0.9, 1), (controllers.EVERY_S * 0.2, 1), (0.0, 2)):
            rows: Any = await standbys(request)
            assert [(row["id"], row["role"]) for row in rows] == [(1, "active"), (2, "standby")]
            assert asked == ["h:4"] * expected
            await asyncio.sleep(pause_s)

    loop.run(run())
