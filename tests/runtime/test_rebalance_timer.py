"""The timer of automatic rebalancing, on a real ZooKeeper."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core.events import EventKind
from controller.core.requests.elections import ElectionType, ElectLeaders, ElectLeadersReply
from controller.core.requests.errors import ErrorCode
from controller.runtime import term
from controller.runtime.daemon import Daemon
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

TOPIC = '{"0":[1,2],"1":[1,2],"2":[1,2]}'


def with_settings(**changes: Any) -> Any:
    def change(daemon: Daemon) -> None:
        daemon.settings = dataclasses.replace(daemon.settings, **changes)

    return change


async def lead(active: Active, leader: int) -> None:
    """A broker that an operator chooses leads everything."""
    request = ElectLeaders(ElectionType.CHOSEN, [("t", n) for n in range(3)], leader)
    reply = await active.term.ask(request)
    assert isinstance(reply, ElectLeadersReply)
    assert [a.error for a in reply.partitions] == [ErrorCode.NONE] * 3


def leaders(active: Active) -> list[int]:
    return [active.stored("t", n)[0] for n in range(3)]


def records_in(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "state-change.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


async def test_leadership_returns_by_itself_and_again(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pace of one, each partition takes a run of its own; the next time comes by the interval."""
    monkeypatch.setattr(term, "PACED_REBALANCE_S", 0.05)
    before = with_settings(
        leader_imbalance_check_interval_seconds=1,
        leader_rebalance_leaders_per_second=1,
        # These brokers tell nobody what they hold: they are waited for once.
        audit_interval_seconds=1,
    )
    brokers = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, *brokers, topics={"t": TOPIC}, before=before) as active:
        for _ in range(2):
            await lead(active, 2)
            await until(lambda: leaders(active) == [1, 1, 1] and active.idle(), "the preferred leaders")
    moved = [
        r for r in records_in(tmp_path) if r.get("reason") == "preferred_automatic" and r["kind"] == "leader"
    ]
    assert len(moved) == 6
    assert len({r["event_id"] for r in moved}) == 6
    assert {r["cause"] for r in moved} == {EventKind.LEADER_REBALANCE.value}
