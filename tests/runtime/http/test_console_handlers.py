"""Handlers of the console by themselves: what they ask for the caller, and whom they answer."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from controller.core.records import BrokerChange, LogBatch
from controller.core.requests.errors import ErrorCode
from controller.planning import scenarios
from controller.planning.scenarios import Terms
from controller.runtime.http.access import CALLER
from controller.runtime.http.console import changes, replay, views, whatif, work
from controller.runtime.http.console.api import Api
from controller.runtime.http.console.asking import ROWS_MAX, Asking, RefusedError, as_dict
from controller.runtime.http.console.events import Events
from controller.runtime.http.console.survey import Survey
from controller.runtime.http.console.work import Work
from controller.runtime.rpc.translate.plan_data import plan_data
from proto.gen import admin_service_pb2, inspection_pb2
from proto.security.authorization import ANONYMOUS, Principal
from tests.runtime.http.test_console_alone import Browser, Settings, cluster_of, term_of
from tests.support.core.world import a_broker
from tests.support.planning.clusters import Small

GET = make_mocked_request("GET", "/?topic=t&id=2")


def api(answer: Any = None, **more: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """And what it asks RPCs for."""
    asked: list[tuple[str, Any]] = []
    cluster = cluster_of("t", partitions=2)
    term = term_of(cluster)

    async def rpc(_request: Any, method: str, message: Any) -> Any:
        asked.append((method, message))
        return answer

    made: Any = Api.__new__(Api)
    made._min_isr = Settings()
    made._asking = SimpleNamespace(
        leading=lambda: term, named=lambda _request, _term, name: cluster.topics[name], rpc=rpc
    )
    vars(made).update(more)
    return made, asked


async def test_only_who_leads_shows_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def registered() -> list[Any]:
        return []

    monkeypatch.setattr(views, "state", lambda _: {"role": "standby"})
    # A term that was lost is still there for a moment.
    daemon: Any = SimpleNamespace(
        leading=None, term=term_of(cluster_of("t")), settings=SimpleNamespace(controller_id=1)
    )
    made, _ = api(_daemon=daemon, _controllers=SimpleNamespace(registered=registered))
    known = await made._overview(GET)
    assert (known["cluster"], known["state"]) == (None, {"role": "standby"})


async def test_a_topic_that_is_to_be_deleted_is_shown_as_such() -> None:
    made, _ = api()
    assert (await made._topic(GET))["deleting"] is False
    made._asking.leading().machine.cluster.topics_to_delete.add("t")
    assert (await made._topic(GET))["deleting"] is True


async def test_an_explanation_has_many_lines_and_an_audit_asks_nobody_anew() -> None:
    explanation = json.dumps({"words": [f"line {n}" for n in range(ROWS_MAX + 9)]})
    made, asked = api(SimpleNamespace(explanation=explanation))
    assert len((await made._broker(GET))["words"]) == ROWS_MAX + 1
    made, asked = api(inspection_pb2.AuditResponse())
    await made._audit(GET)
    assert asked == [("Audit", inspection_pb2.AuditRequest(recorded=True))]


def test_who_no_longer_leads_says_who_does() -> None:
    daemon: Any = SimpleNamespace(leading=object(), term=object(), current_controller=4)
    asking: Any = Asking.__new__(Asking)
    asking.daemon = daemon
    assert asking.leading() is daemon.leading
    daemon.leading = None
    with pytest.raises(RefusedError, match="this controller is not active; controller 4 is") as refused:
        asking.leading()
    assert refused.value.error is ErrorCode.NOT_CONTROLLER


def test_what_is_nought_is_told() -> None:
    shown = as_dict(inspection_pb2.ReplicaProblem(topic="t"))
    assert (shown["partition"], shown["broker_id"]) == (0, 0)


@pytest.mark.parametrize(
    ("change", "method", "fields"),
    [
        (changes.Drain(3, True), "SetDrain", {"broker_id": 3, "drained": True}),
        (changes.Drain(3, False), "SetDrain", {"broker_id": 3, "drained": False}),
        (changes.Maintenance(True), "SetMaintenance", {"entered": True}),
        (changes.Maintenance(False), "SetMaintenance", {"entered": False}),
        (changes.Pause(True), "SetPause", {"paused": True}),
        (changes.Pause(False), "SetPause", {"paused": False}),
        (changes.Elect(), "ElectLeaders", {"election_type": admin_service_pb2.PREFERRED}),
    ],
)
@pytest.mark.parametrize("name", ["ann", ANONYMOUS])
def test_a_change_is_asked_for_as_it_is_and_by_whom(
    change: Any, method: str, fields: dict[str, Any], name: str
) -> None:
    request = make_mocked_request("POST", "/")
    request[CALLER] = Principal(name, "ipv4:192.0.2.1:4")
    made = changes.Changes(SimpleNamespace(daemon=None), None)  # type: ignore[arg-type]
    ((asked, body),) = made._steps(request, changes.Asked(change, " why ", "bob"))
    assert asked == method
    assert {field: getattr(body, field) for field in fields} == fields
    if method != "ElectLeaders":
        assert (body.author, body.reason) == ("User:ann" if name == "ann" else "bob", "why")
    else:
        assert body.reason == ("why" if name == "ann" else "bob: why")


async def test_a_browser_that_leaves_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(web.StreamResponse, "prepare", gone)
    streams = Events(SimpleNamespace(recent=None), 1)  # type: ignore[arg-type]
    for _ in range(3):
        assert (await streams.serve(GET)).status == 200


async def test_streams_end_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    served = asyncio.Event()

    async def prepare(*_: Any) -> None:
        served.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(web.StreamResponse, "prepare", prepare)
    streams = Events(SimpleNamespace(recent=None), 1)  # type: ignore[arg-type]
    serving = asyncio.create_task(streams.serve(GET))
    await served.wait()
    await streams.end(web.Application())
    with pytest.raises(asyncio.CancelledError):
        await serving


@pytest.mark.parametrize(
    ("record", "then"),
    [
        (BrokerChange(3, "online", "shutting_down"), {1, 2, 3}),
        (BrokerChange(3, "online", "offline"), {1, 2}),
        (BrokerChange(4, "offline", "online"), {1, 2, 3, 4}),
        (BrokerChange(3, "shutting_down", "online"), {1, 2, 3}),
        (BrokerChange(3, "bounced", "online"), {1, 2, 3}),
    ],
)
def test_brokers_that_were_registered_before(record: BrokerChange, then: set[int]) -> None:
    registered = {1, 2, 3}
    replay._undo(LogBatch([record]), {}, set(), registered)
    assert registered == then


@pytest.mark.parametrize("tls", [False, True])
def test_a_session_goes_on_and_its_cookie_is_of_its_connection(tls: bool) -> None:
    browser = Browser()

    def begun(**headers: str) -> Any:
        _, set_cookie = browser.sessions.begin(browser.request(tls=tls, **headers))
        response = web.Response()
        set_cookie(response)
        ((name, cookie),) = response.cookies.items()
        assert bool(cookie["secure"]) is tls
        return f"{name}={cookie.value}"

    first = begun()
    assert begun(Cookie=first) == first
    assert begun() != first


@pytest.mark.parametrize(("adding", "removing"), [((), ()), ((2,), ()), ((), (2,))])
def test_a_partition_is_moved_while_replicas_come_or_go(
    adding: tuple[int, ...], removing: tuple[int, ...]
) -> None:
    (partition,) = cluster_of("t", partitions=1).topics["t"].partitions.values()
    partition.assign((1, 2), adding, removing)
    assert Survey({1, 2}).count(partition, 1).moving == int(bool(adding or removing))


def test_a_controller_that_follows_nobody_has_nothing_in_memory() -> None:
    assert views._in_memory(SimpleNamespace(standby=None)) is None  # type: ignore[arg-type]


async def test_a_plan_counts_all_its_steps() -> None:
    small = Small((1, 2), {("t", 0): ((1, 2), 1, (1, 2))}).snapshot()
    (step,) = plan_data(scenarios.broker_loss(small, [1], Terms()), False)["steps"]
    plan = {"plan": "x", "steps": [step] * (whatif.STEPS_MAX + 3)}

    async def rpc(*_: Any) -> Any:
        return SimpleNamespace(plan=msgspec.json.encode(plan).decode())

    asking: Any = SimpleNamespace(rpc=rpc)
    request = make_mocked_request("GET", "/?scenario=broker-loss&brokers=1")
    found = await whatif.WhatIf(asking)._plan(request)
    assert (len(found["steps"]), found["steps_count"]) == (whatif.STEPS_MAX, whatif.STEPS_MAX + 3)


@pytest.mark.parametrize(("counted", "current"), [(3, True), (2, False)])
def test_a_count_of_before_a_change_is_not_current(
    counted: int, current: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "attention", lambda _: [])
    monkeypatch.setattr(views, "_brokers", lambda *_: [])
    term = term_of(cluster_of("t"))
    term.machine.outbox = SimpleNamespace(queues={}, pending=lambda _: 0)
    term.machine.queue_size = 0
    term.quarantine = SimpleNamespace(paths=dict, quarantined=list)
    term.senders = SimpleNamespace(status={})
    term.auditor = SimpleNamespace(newer_states=lambda _: (0, ""))
    log = SimpleNamespace(not_written="", dropped=0)
    daemon: Any = SimpleNamespace(settings=SimpleNamespace(controller_id=1), state_log=log)
    shown = views.overview(daemon, term, Survey({1, 2}, counted))
    assert (term.changes, shown["current"], shown["well"]) == (3, current, True)


async def test_moves_that_are_not_shown_are_counted() -> None:
    moves = [
        admin_service_pb2.OngoingPartitionReassignment(topic="t", partition=n) for n in range(ROWS_MAX + 2)
    ]
    term = term_of(cluster_of("t"))

    async def rpc(_request: Any, method: str, _asked: Any) -> Any:
        return (
            SimpleNamespace(partitions=moves, topics=[])
            if method == "ListPartitionReassignments"
            else (SimpleNamespace(topics=[]))
        )

    asking: Any = SimpleNamespace(rpc=rpc, leading=lambda: term)
    found = await Work(asking)._work(GET)
    assert (len(found["reassignments"]), found["reassignments_count"]) == (ROWS_MAX, ROWS_MAX + 2)


async def test_objections_that_are_not_shown_are_counted() -> None:
    async def rpc(*_: Any) -> Any:
        return SimpleNamespace(answer=msgspec.json.encode({"reasons": ["r"] * (ROWS_MAX + 2)}).decode())

    asking: Any = SimpleNamespace(rpc=rpc)
    found = await whatif.WhatIf(asking)._stoppable(make_mocked_request("GET", "/?brokers=1"))
    assert (len(found["reasons"]), found["reasons_count"]) == (ROWS_MAX, ROWS_MAX + 2)


async def test_of_a_deletion_it_is_told_how_much_is_left() -> None:
    term = term_of(cluster_of("t"))
    deletions = [admin_service_pb2.TopicDeletion(name="t", pending_reason="why", replicas_left=3)]

    async def rpc(*_: Any) -> Any:
        return SimpleNamespace(partitions=[], topics=deletions)

    asking: Any = SimpleNamespace(rpc=rpc, leading=lambda: term)
    found = await Work(asking)._work(GET)
    assert found["deletions"] == [
        {"topic": "t", "phase": "deleted", "why": "why", "replicas_left": 3, "replicas": 4}
    ]


async def test_what_leaves_a_broker_goes_elsewhere_in_changes_that_the_controller_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is to be deleted stays."""
    monkeypatch.setattr(work, "PARTITIONS_MAX", 2)
    cluster = cluster_of("gone", "t", partitions=3)
    cluster.brokers[3] = a_broker(3, 53)
    cluster.topics_to_delete.add("gone")
    asking: Any = SimpleNamespace(leading=lambda: term_of(cluster), may_see=lambda *_: True)
    found = await Work(asking)._vacate(make_mocked_request("GET", "/?broker=1"))
    assert found["of"] == 3
    assert [(m["topic"], m["partition"]) for m in found["moves"]] == [("t", 0), ("t", 1)]
    assert all(1 not in m["replicas"] for m in found["moves"])
    del cluster.brokers[3]
    with pytest.raises(RefusedError):
        await Work(asking)._vacate(make_mocked_request("GET", "/?broker=1"))
