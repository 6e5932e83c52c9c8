"""``pctl history``: the records of all candidates, and what is not among them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cli.common.options import Options
from controller.cli.pctl import history as verbs
from controller.client import admin
from controller.errors import EnvironmentFault
from controller.exit_codes import EXIT_FAILED
from controller.runtime.observe.history_filter import Filter
from controller.runtime.zookeeper.cluster_reader import ClusterState, ControllerInfo
from controller.runtime.zookeeper.session import ConnectionLossError, NoNodeError
from proto.gen import history_pb2 as pb
from tests.support.cli.verbs import Asked, typed
from tests.support.runtime.sessions import until

CLUSTER = ClusterState(100, "a:1", 7, [ControllerInfo(n, f"{n}:1", "", n == 100) for n in (100, 101)])
#: 2026-01-14T10:00:00Z, microseconds.
BEGIN_US = 1_768_384_800_000_000


def kept(*seconds: int, **more: object) -> pb.ListHistoryResponse:
    """Records of these times, and what a controller says beside them."""
    lines = [json.dumps({"ts": f"2026-01-14T10:00:{s:02}.000000Z", "replica": s}) for s in seconds]
    return pb.ListHistoryResponse(records=lines, **more)  # type: ignore[arg-type]


def install(monkeypatch: pytest.MonkeyPatch, *answers: pb.ListHistoryResponse | Exception) -> None:
    """Of the two candidates."""
    given = iter(answers)
    Asked(CLUSTER, ListHistory=lambda _: next(given)).install(monkeypatch)


@pytest.mark.parametrize(("limit", "newest"), [(3, [2, 3, 4]), (4, [1, 2, 3, 4])])
def test_the_newest_records_of_all_candidates_are_shown(
    limit: int, newest: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That others are older is said, also where each candidate told all that it has."""
    install(monkeypatch, kept(1, 4), kept(2, 3))
    shown = typed(f"history --limit {limit}")
    assert [record["replica"] for record in json.loads(shown.stdout)] == newest
    assert ("older records match too: see --limit" in shown.stderr) == (limit == 3)


@pytest.mark.parametrize("controller", [100, -1])
def test_all_candidates_are_asked_for_what_is_wanted_also_while_nobody_leads(
    controller: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(replace(CLUSTER, controller_id=controller), ListHistory=kept(1)).install(monkeypatch)
    assert typed("history --topic t --partition 0 --kind leader --broker 3 --limit 7").exit_code == 0
    wanted = pb.HistoryFilter(topic="t", has_partition=True, kinds=["leader"], brokers=[3])
    assert asked.of("ListHistory") == [pb.ListHistoryRequest(filter=wanted, limit=7, standby_too=True)] * 2


@pytest.mark.parametrize("refuses", [False, True])
def test_who_does_not_answer_is_named_and_hides_nobody(
    refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: Exception = admin.NoAnswerError("101:1 is away")
    if refuses:
        away = admin.RefusedError("101:1", "ListHistory", "CLUSTER_AUTHORIZATION_FAILED", "101:1 is away")
    install(monkeypatch, kept(1), away)
    shown = typed("history")
    assert [record["replica"] for record in json.loads(shown.stdout)] == [1]
    assert (shown.exit_code, f"pctl: {away}" in shown.stderr) == (0, True)
    install(monkeypatch, away, away)
    assert typed("history").exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    ("options", "oldest_us", "forgets"),
    [
        ("", BEGIN_US, True),
        ("--since 2026-01-14T10:00:00Z", BEGIN_US, False),
        ("--since 2026-01-14T10:00:00Z", BEGIN_US + 1, True),
    ],
)
def test_what_one_of_them_leaves_out_is_said(
    options: str, oldest_us: int, forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it has forgotten older ones only to who asked for these."""
    gone = kept(1, forgotten=5, oldest_us=oldest_us, controller_id=100)
    install(monkeypatch, gone, kept(2, more=True))
    shown = typed(f"history {options}")
    assert "older records match too: see --limit" in shown.stderr
    assert ("controller 100 has records since" in shown.stderr) == forgets


def test_who_watches_where_there_was_nothing_to_watch_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later failures are waited out."""
    tried: list[None] = []

    @asynccontextmanager
    async def connected(_: Options) -> AsyncIterator[None]:
        tried.append(None)
        if tried:
            raise EnvironmentFault("no ZooKeeper there")
        yield

    monkeypatch.setattr(Options, "connected", connected)
    shown = typed("watch --for 60")
    assert (shown.exit_code, len(tried), "no ZooKeeper there" in shown.stderr) == (EXIT_FAILED, 1, True)


async def test_a_controller_is_replaced_once_its_znode_is_another_or_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while the connection is lost."""
    monkeypatch.setattr(verbs, "CHECK_S", 0)

    class Looks:
        over = False

        def __init__(self, *found: int | Exception) -> None:
            self.found = list(found)

        async def get(self, _: str) -> tuple[bytes, SimpleNamespace]:
            found = self.found.pop(0)
            if isinstance(found, Exception):
                raise found
            return b"", SimpleNamespace(czxid=found)

    for seen in ((5, 5, ConnectionLossError(), 6), (5, NoNodeError()), (NoNodeError(),)):
        session: Any = Looks(*seen, 6)
        async with asyncio.timeout(60):
            await verbs._until_replaced(session)
        assert session.found == [6], "one look beyond what tells"


class Followed(verbs._Watcher):
    """One that is told what the controller's stream does, and when somebody else leads."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, replaced: bool, refused: Exception | None = None
    ) -> None:
        super().__init__(Options("", "json", 1.0), Filter())
        self.refused, self.last = refused, asyncio.Event()
        self.done = list[str]()

        async def until_replaced(_: Any) -> None:
            if not replaced:
                await asyncio.Event().wait()
            self.last.set()

        monkeypatch.setattr(verbs, "_until_replaced", until_replaced)
        monkeypatch.setattr(verbs, "RETRY_S", 0)
        Asked(CLUSTER).install(monkeypatch)

    async def _stream(self, endpoint: str, who: tuple[int, int]) -> None:
        self._controller = who
        self.done.append(f"{endpoint} {who}")
        if self.refused is not None:
            raise self.refused
        await self.last.wait()
        for _ in range(9):
            await asyncio.sleep(0)
        self.done.append("its last records")


async def test_a_controller_that_is_replaced_sends_its_last_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher, session = Followed(monkeypatch, replaced=True), cast(Any, None)
    await watcher._one_controller(session)
    assert watcher.done == ["a:1 (100, 7)", "its last records"]
    assert (
        "controller 100 ended its stream: waiting for the next active controller" in capsys.readouterr().err
    )


async def test_one_session_is_enough_for_one_controller_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watcher, opened = Followed(monkeypatch, replaced=True), list[SimpleNamespace]()

    @asynccontextmanager
    async def connected(_: Options) -> AsyncIterator[SimpleNamespace]:
        opened.append(SimpleNamespace(over=False))
        yield opened[-1]

    monkeypatch.setattr(Options, "connected", connected)
    async with asyncio.timeout(60):
        session = asyncio.create_task(watcher._one_session())
        await until(lambda: len(watcher.done) >= 4 or session.done(), "two controllers")
        opened[0].over = True
        await session
    assert (len(opened), len(watcher.done) >= 4) == (1, True)


async def test_a_stream_that_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    error = admin.RefusedError("a:1", "Watch", "CLUSTER_AUTHORIZATION_FAILED", "no")
    watcher, session = Followed(monkeypatch, replaced=False, refused=error), cast(Any, None)
    with pytest.raises(admin.RefusedError):
        await watcher._one_controller(session)


async def test_while_nobody_leads_zookeeper_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, session, pauses = Followed(monkeypatch, replaced=True), cast(Any, None), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(verbs, "RETRY_S", 0.25)
    Asked(ClusterState()).install(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", pause)
        await watcher._one_controller(session)
    assert (watcher.done, pauses) == ([], [0.25])
