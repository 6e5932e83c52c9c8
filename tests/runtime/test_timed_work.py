"""What a term looks at again and again, without a server: what is due gets its event, and nothing else does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.events import Event, EventKind
from controller.core.handlers import not_controller
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import OperatorReply, SetPause
from controller.errors import FencedError, LeadershipError, OutrankedError
from controller.runtime import term as terms
from controller.runtime.election import controller_election
from controller.runtime.term import Term

RETRY = EventKind.TOPIC_DELETION_RETRY
KINDS = {
    "retry_due": RETRY,
    "forgotten.record_due": RETRY,
    "stray_replicas.due": RETRY,
    "stalled_due": RETRY,
    "purge_due": EventKind.CONFIG_CHANGE,
    "maintenance.due": EventKind.MAINTENANCE_CHECK,
}


async def looks(
    monkeypatch: pytest.MonkeyPatch, *due: str, ready: bool = True, known_epoch: int = 7
) -> list[Any]:
    """What one look queues or does where this is due; the own controller epoch is 7."""
    found: list[Any] = []
    turns = 0

    async def one_turn(_: float) -> None:
        nonlocal turns
        turns += 1
        if turns > 1:
            raise asyncio.CancelledError

    monkeypatch.setattr(terms, "asyncio", SimpleNamespace(sleep=one_turn))
    for name in KINDS:
        room, _, function = name.rpartition(".")
        place = getattr(terms, room) if room else terms
        monkeypatch.setattr(place, function, lambda _cluster, _now, answer=name in due: answer)
    term: Any = SimpleNamespace(
        machine=SimpleNamespace(cluster=None, ready=ready),
        won=SimpleNamespace(epoch=7),
        _outranked=SimpleNamespace(epoch=known_epoch),
        verify=lambda: found.append("verify"),
        enqueue=found.append,
    )
    with suppress(asyncio.CancelledError):
        await Term._look_again(term)
    return found


@pytest.mark.parametrize(("due", "kind"), KINDS.items(), ids=KINDS)
async def test_each_work_that_is_due_has_its_event(
    monkeypatch: pytest.MonkeyPatch, due: str, kind: EventKind
) -> None:
    assert await looks(monkeypatch, due) == [Event(kind)]
    assert await looks(monkeypatch, due, ready=False) == [], "the failover does all of it"


async def test_nothing_is_queued_twice_and_nothing_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await looks(monkeypatch) == []
    assert await looks(monkeypatch, *KINDS) == [Event(kind) for kind in dict.fromkeys(KINDS.values())]


@pytest.mark.parametrize(("known_epoch", "found"), [(6, []), (7, []), (8, ["verify"])])
async def test_a_higher_controller_epoch_is_looked_after(
    monkeypatch: pytest.MonkeyPatch, known_epoch: int, found: list[str]
) -> None:
    for ready in (True, False):
        assert await looks(monkeypatch, ready=ready, known_epoch=known_epoch) == found


@pytest.mark.parametrize(("known_epoch", "seen"), [(0, []), (7, []), (8, [8])])
def test_what_a_broker_knows_of_a_higher_epoch_is_kept_and_looked_into(
    known_epoch: int, seen: list[int]
) -> None:
    found: list[Any] = []
    term: Any = SimpleNamespace(
        won=SimpleNamespace(epoch=7),
        _outranked=SimpleNamespace(seen=found.append),
        verify=lambda: found.append("verify"),
    )
    Term._suspect(term, "a broker refused", known_epoch)
    assert found == [*seen, "verify"]


@pytest.mark.parametrize(
    ("ours", "exceeds", "ended"),
    [
        (False, False, [FencedError]),
        (False, True, [FencedError]),
        (True, True, [OutrankedError]),
        (True, False, []),
    ],
)
async def test_a_term_ends_that_is_another_s_or_is_to_exceed_an_epoch(
    monkeypatch: pytest.MonkeyPatch, ours: bool, exceeds: bool, ended: list[type[LeadershipError]]
) -> None:
    async def still_ours(*_: object) -> bool:
        return ours

    monkeypatch.setattr(controller_election, "still_ours", still_ours)
    found: list[type[LeadershipError]] = []
    term: Any = SimpleNamespace(
        session=None,
        won=SimpleNamespace(epoch=7),
        _outranked=SimpleNamespace(epoch=9, may_exceed=lambda *_: exceeds),
        _controller_changed=None,
        end=lambda error: found.append(type(error)),
    )
    await Term._verify(term)
    assert found == ended


async def test_who_asks_a_term_that_is_over_is_told_and_who_has_given_up_is_not() -> None:
    request = SetPause(True, "r", "ann")
    over: Any = SimpleNamespace(_ended=True, machine=SimpleNamespace(ready=True))
    assert await Term.ask(over, request) == not_controller(request)
    given_up = asyncio.get_running_loop().create_future()
    given_up.cancel()
    term: Any = SimpleNamespace(_callers={3: (request, given_up)})
    Term._reply(term, 3, OperatorReply(ErrorCode.NONE))
    assert term._callers == {}
