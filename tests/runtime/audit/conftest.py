"""Looks of an audit that wait for nothing."""

from __future__ import annotations

import pytest

from controller.runtime.audit import auditor as module


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFIRM_S", 0.0)
    monkeypatch.setattr(module, "PENDING_S", 0.0)
