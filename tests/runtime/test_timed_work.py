"""What a term looks at again and again, without a server: what is due gets its event, and nothing else does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.events import Event, EventKind
from controller.runtime import term as terms
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
