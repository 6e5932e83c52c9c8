"""When a controller counts as leading, and how long it waits between two sessions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.errors import SessionLostError
from controller.runtime import daemon as module
from controller.runtime import lease
from controller.runtime.daemon import Daemon


@pytest.mark.parametrize(
    ("elected", "ready", "lease_s", "active"),
    [
        (True, True, 0.1, True),
        (False, True, 0.1, False),
        (True, False, 0.1, False),
        (True, True, 0.0, False),
        (True, True, -0.1, False),
    ],
)
def test_who_leads_has_done_its_failover_and_has_a_lease(
    elected: bool, ready: bool, lease_s: float, active: bool
) -> None:
    session = SimpleNamespace(lease_remaining_s=lambda: lease_s)
    term = SimpleNamespace(machine=SimpleNamespace(ready=ready), session=session) if elected else None
    assert Daemon.active.fget(SimpleNamespace(term=term)) is active  # type: ignore[attr-defined]


async def test_pauses_between_sessions_grow_until_one_lives_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SESSION_RETRY_FIRST_S", 0.001)
    now_s, lived_s = 0.0, [0.0, 0.0, lease.SESSION_LIVED_S + 1, 0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s))
    daemon: Any = SimpleNamespace(_stopping=asyncio.Event())

    async def one_session() -> None:
        nonlocal now_s
        if not lived_s:
            daemon._stopping.set()
            return
        now_s += lived_s.pop(0)
        raise SessionLostError("over")

    daemon._one_session = one_session
    with capture_logs() as logs:
        await Daemon._sessions(daemon)
    assert [line["next_attempt_in_s"] for line in logs] == [0.001, 0.002, 0.001, 0.002]
