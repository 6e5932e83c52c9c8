"""What the console answers, without a cluster: statuses, headers, files, and which changes a page may ask for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from controller.core.requests.errors import ErrorCode
from controller.planning import scenarios
from controller.planning.cluster_health import Wrong
from controller.planning.scenarios import Terms
from controller.runtime.http.console import (
    asking,
    changes,
    files,
    whatif,
)
from controller.runtime.http.console.api import Api
from controller.runtime.http.console.asking import RefusedError
from controller.runtime.http.console.survey import Surveyor
from controller.runtime.rpc.translate.plan_data import plan_data
from tests.runtime.http.test_console_alone import Settings, cluster_of, term_of
from tests.support.core.world import state
from tests.support.planning.clusters import Small


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ErrorCode.INVALID_REQUEST, 400),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 403),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 403),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404),
        (ErrorCode.NOT_CONTROLLER, 503),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 503),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 500),
    ],
)
async def test_a_refusal_has_its_status_and_says_why(error: ErrorCode, status: int) -> None:
    """docs/console.md. 503: ask another controller, or later."""

    async def refuse(_: web.Request) -> Any:
        raise RefusedError(error, "why not", active=None)

    answer: Any = await asking.answering(refuse)(make_mocked_request("GET", "/ui/api/x"))
    assert (answer.status, answer.content_type, answer.headers["Cache-Control"]) == (
        status,
        "application/json",
        "no-store",
    )
    assert msgspec.json.decode(answer.body) == {"error": error.name, "message": "why not", "active": None}
    refused_elsewhere(answer)


#: By path, what a browser must take a file of the pages for: it is told not to guess.
TYPES = {
    "/ui": "text/html",
    "/ui/": "text/html",
    "/ui/console.css": "text/css",
    "/ui/main.js": "text/javascript",
    "/ui/icon.svg": "image/svg+xml",
}


@pytest.mark.parametrize("path", TYPES)
async def test_a_file_says_what_it_is_and_what_a_browser_may_not_do_with_it(path: str) -> None:
    answer: Any = await files.sender(files.files()[path])(make_mocked_request("GET", path))
    assert (answer.content_type, answer.charset) == (TYPES[path], "utf-8")
    refused_elsewhere(answer)


def refused_elsewhere(answer: Any) -> None:
    """docs/console.md; no frame of another site, no guess of a type, no address told to others."""
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert {name: answer.headers[name] for name in PROTECTIONS} == PROTECTIONS


PROTECTIONS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def asked(change: dict[str, Any], **given: Any) -> bytes:
    return msgspec.json.encode({"reason": "r", "author": "a", "ticket": "t", "change": change} | given)


PARTITION = {"topic": "t", "partition": 0}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (asked({"kind": "elect"}), asked({"kind": "elections"})),
        (asked({"kind": "elect", "topic": "t" * 249}), asked({"kind": "elect", "topic": "t" * 250})),
        (
            asked({"kind": "elect", "partitions": [PARTITION] * 1000}),
            asked({"kind": "elect", "partitions": [PARTITION] * 1001}),
        ),
        (asked({"kind": "drain", "broker": 0, "drained": True}), asked({"kind": "drain", "broker": 0})),
        (
            asked({"kind": "drain", "broker": 2**31 - 1, "drained": False}),
            asked({"kind": "drain", "broker": 2**31, "drained": False}),
        ),
        (
            asked({"kind": "move", "moves": [PARTITION | {"replicas": [1] * 100}] * 1000}),
            asked({"kind": "move", "moves": [PARTITION | {"replicas": [1]}] * 1001}),
        ),
        (
            asked({"kind": "move", "moves": [PARTITION | {"replicas": None}], "drain": 1}),
            asked({"kind": "move", "moves": [PARTITION | {"replicas": []}]}),
        ),
        (
            asked({"kind": "move", "moves": [{"topic": "t", "partition": 2**31 - 1, "replicas": [0]}]}),
            asked({"kind": "move", "moves": [{"topic": "", "partition": 0, "replicas": [0]}]}),
        ),
        (
            asked({"kind": "move", "moves": [{"topic": "t", "partition": 0, "replicas": [0]}]}),
            asked({"kind": "move", "moves": [{"topic": "t", "partition": -1, "replicas": [0]}]}),
        ),
        (
            asked({"kind": "move", "moves": [PARTITION | {"replicas": [1] * 100}]}),
            asked({"kind": "move", "moves": [PARTITION | {"replicas": [1] * 101}]}),
        ),
        (
            asked({"kind": "move", "moves": [PARTITION | {"replicas": [1]}]}),
            asked({"kind": "move", "moves": []}),
        ),
        (
            asked({"kind": "maintenance", "entered": True}),
            asked({"kind": "maintenance", "entered": True, "force": True}),
        ),
        (asked({"kind": "pause", "paused": True}), asked({"kind": "pause", "paused": True}, force=True)),
        (asked({"kind": "elect"}, reason="r" * 1000), asked({"kind": "elect"}, reason="r" * 1001)),
        (asked({"kind": "elect"}, author="a" * 200), asked({"kind": "elect"}, author="a" * 201)),
        (asked({"kind": "elect"}, author=""), asked({"kind": "elect"}, reason="")),
        (asked({"kind": "elect"}, ticket="t" * 100), asked({"kind": "elect"}, ticket="t" * 101)),
    ],
)
def test_a_change_is_one_of_the_page_s_and_bounded(body: bytes, wrong: bytes) -> None:
    """docs/console.md: at most 1,000 partitions, no field too many; Kafka: 249 characters, 31 bits."""
    assert msgspec.to_builtins(changes._DECODER.decode(body))["change"] is not None
    with pytest.raises(msgspec.ValidationError):
        changes._DECODER.decode(wrong)


@pytest.mark.parametrize("kind", ["elect", "drain", "move", "maintenance", "pause"])
def test_the_page_asks_for_changes_by_these_names(kind: str) -> None:
    static = Path(changes.__file__).parent / "static"
    assert any(f'kind: "{kind}"' in file.read_text() for file in static.glob("*.js"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("match=ORD", ["Orders", "orders"]),
        ("match=ord", ["Orders", "orders"]),
        ("match=ers&after=Orders", ["orders"]),
        ("match=x", []),
    ],
)
async def test_a_topic_is_found_in_any_case(query: str, found: list[str]) -> None:
    term = term_of(cluster_of("Orders", "orders", "payments"))
    asked = Api.__new__(Api)
    asked._asking = SimpleNamespace(leading=lambda: term, may_see=lambda *_: True)  # type: ignore[assignment]
    asked._surveyor = Surveyor(Settings())
    rows = (await asked._topics(make_mocked_request("GET", f"/?{query}")))["topics"]
    assert [row["name"] for row in rows] == found


async def test_who_asks_for_one_topic_first_is_answered_by_its_settings() -> None:
    """Nobody may have looked at the overview since this controller leads."""

    class Read(Settings):
        known = 1

        async def refresh(self, term: Any) -> None:
            assert term is not None
            self.known = 2

        def of(self, topic: str) -> int:
            assert topic == "t"
            return self.known

    cluster = cluster_of("t", partitions=1)
    cluster.topics["t"].partitions[0].leadership = state(1, (1,), 3, 5)
    term, why = term_of(cluster), SimpleNamespace(explanation="{}")

    async def rpc(*_: Any) -> Any:
        return why

    def api() -> Any:
        asked = Api.__new__(Api)
        asked._min_isr = Read()
        asked._asking = SimpleNamespace(  # type: ignore[assignment]
            leading=lambda: term, named=lambda _request, _term, name: cluster.topics[name], rpc=rpc
        )
        return asked

    (tile,) = (await api()._heat(make_mocked_request("GET", "/?topic=t")))["tiles"]
    assert (tile["under_min_isr"], tile["under_replicated"]) == (1, 0)
    shown = await api()._partition(make_mocked_request("GET", "/?topic=t&partition=0"))
    assert (shown["min_isr"], shown["row"]["worst"]) == (2, Wrong.UNDER_MIN_ISR.value)


def test_every_list_of_a_plan_is_cut() -> None:
    small = Small((1, 2), {("t", 0): ((1, 2), 1, (1, 2))}).snapshot()
    (step,) = plan_data(scenarios.broker_loss(small, [1], Terms()), False)["steps"]
    lists = {name for name, found in step.items() if isinstance(found, list | tuple)}
    assert whatif._cut(step)["counts"].keys() == lists - {"brokers"}
