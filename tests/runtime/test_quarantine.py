"""What is noted of a term that raised, and what is read at the next one's beginning; the znode is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.core.cluster.quarantine import Quarantine, Subject, SubjectKind, Suspect
from controller.core.events import Event, EventKind
from controller.runtime import quarantine
from controller.runtime.election.controller_election import Won
from controller.runtime.zookeeper.session import ConnectionLossError, Session

SESSION: Any = SimpleNamespace()
WON = Won(7, 3)
EVENT = Event(EventKind.BROKER_CHANGE)


class Node:
    def __init__(self) -> None:
        self.value, self.version, self.away = Quarantine(), 5, False

    async def read(self, _: Session) -> tuple[Quarantine, int]:
        if self.away:
            raise ConnectionLossError
        return self.value, self.version

    async def write(self, _: Session, epoch_version: int, value: Quarantine, version: int) -> None:
        assert (epoch_version, version) == (WON.epoch_version, self.version)
        self.value, self.version = value, version + 1


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()
    monkeypatch.setattr(quarantine, "_NODE", made)
    subject = Subject(SubjectKind.EVENT, "BrokerChange")
    found = SimpleNamespace(
        subject=subject, event="BrokerChange", error="KeyError: 'x'", digest="d", detail="t-0"
    )
    monkeypatch.setattr(quarantine, "blame", lambda *_: found)
    monkeypatch.setattr(quarantine, "time", SimpleNamespace(time_ns=lambda: 1_700_000_000_123_456_789))
    return made


async def noted(epoch: int = 7) -> Suspect | None:
    return await quarantine.remember(SESSION, Won(epoch, 3), 1, KeyError("x"), EVENT)


async def test_what_raised_is_noted_with_its_event_error_and_time(node: Node) -> None:
    suspect = await noted()
    assert suspect is not None
    assert (suspect.event, suspect.error, suspect.at_ms) == (
        "BrokerChange",
        "KeyError: 'x'",
        1_700_000_000_123,
    )
    assert (suspect.controller_id, suspect.controller_epoch, suspect.detail) == (1, 7, "t-0")
    assert list(node.value.suspects.values()) == [suspect]


async def test_only_what_raised_again_is_told_as_left_out(node: Node) -> None:
    told = []
    for epoch in (7, 8):
        await noted(epoch)
        with capture_logs() as logs:
            assert await quarantine.read(SESSION) is node.value
        told.append([line["name"] for line in logs])
    assert told == [[], ["event/BrokerChange"]]


async def test_what_cannot_be_noted_ends_no_more_than_the_term(node: Node) -> None:
    node.away = True
    with capture_logs() as logs:
        assert await noted() is None
    assert [line["event"] for line in logs] == ["not_remembered"]
