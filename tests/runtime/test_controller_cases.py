"""The original's rows about terms, events and metrics (``runtime_cases.jsonl``), on a daemon and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.core.events import Event, EventKind
from controller.core.requests.api import ControllerRequest
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    ListPartitionReassignments,
    PartitionReassignment,
)
from controller.runtime import state
from controller.runtime.zookeeper import codecs
from tests.support.reference_rows import load
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

ROWS = load("runtime_cases.jsonl")
#: Rows of this directory that are not run, and why.
ELSEWHERE = {
    "K129": "a histogram of the JVM library that empties itself: Prometheus histograms only count up, and what is "
    "scraped is a rate",
    "K529": "a controller of a KRaft migration registers: we do not migrate; who registers while /controller is held "
    "loses, and the epochs of those who follow count up: runtime/election/test_controller_election.py::"
    "test_of_many_candidates_one_wins_and_the_rest_know_whom",
}


class Busy:
    """The event thread is blocked: no read and no write is performed until ``go``."""

    def __init__(self, active: Active, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        perform = active.term._store.perform

        async def blocked(request: Any) -> Any:
            self.reached.set()
            await self.go.wait()
            return await perform(request)

        monkeypatch.setattr(active.term._store, "perform", blocked)


def _by_tool(row: str) -> bytes:
    action = next(a for a in ROWS[row]["when"]["actions"] if a["op"] == "zk_create")
    return json.dumps(action["value"]).encode()


@pytest.mark.parametrize(
    ("path", "data"),
    [
        pytest.param(znode_paths.PREFERRED_ELECTION, _by_tool("K161"), id="K161-election"),
        pytest.param(znode_paths.REASSIGN_PARTITIONS, _by_tool("K162"), id="K162-reassignment"),
        pytest.param(znode_paths.topic_path("new"), b'{"version":1,"partitions":{"0":[0]}}', id="creation"),
        pytest.param(f"{znode_paths.DELETE_TOPICS}/t", b"", id="deletion"),
    ],
)
async def test_the_controller_moves_while_a_request_is_handled(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, data: bytes
) -> None:
    """K161, K162 and two more: another registers; what the old one decides is refused, and it stands down."""
    async with controller(zookeeper, zk, tmp_path, FakeBroker(0), topics={"t": '{"0":[0]}'}) as active:
        before = active.stored()
        former, busy = active.term, Busy(active, monkeypatch)
        # The watch on /controller would end the term first: the fence alone has to do it.
        monkeypatch.setattr(former, "verify", lambda: None)
        zk.create(path, data)
        await busy.reached.wait()
        zk.delete(znode_paths.CONTROLLER)
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, "other:1"), ephemeral=True)
        zk.set(znode_paths.CONTROLLER_EPOCH, b"2")
        busy.go.set()
        await until(lambda: active.daemon.term is not former, "the end of the term")
        assert not active.daemon.active
        assert (zk.exists(path).version, zk.get_children(path)) == (0, [])
        assert active.stored() == before
    lines = [json.loads(line) for line in (tmp_path / "state-change.jsonl").read_text().splitlines()]
    assert "resigned" in [r["to"] for r in lines if r["kind"] == "controller"]
    assert [r["reason"] for r in lines if r["kind"] == "reject"] == [
        "/controller_epoch was changed by a newer controller: a write was refused"
    ]


async def test_k171_every_queued_caller_is_told(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the original answers an election partition by partition, ours does at the top level."""
    async with controller(
        zookeeper, zk, tmp_path, FakeBroker(0), topics={"t": '{"0":[0],"1":[0]}'}
    ) as active:
        busy = Busy(active, monkeypatch)
        zk.create(znode_paths.PREFERRED_ELECTION, _by_tool("K161"))
        await busy.reached.wait()
        both = [("t", 0), ("t", 1)]
        queued: dict[str, ControllerRequest] = {
            "ReplicaLeaderElection": ElectLeaders(ElectionType.PREFERRED, both),
            "ControlledShutdown": ControlledShutdown(0, None),
            "ApiPartitionReassignment": AlterPartitionReassignments(
                [PartitionReassignment(t, n, (0,)) for t, n in both]
            ),
            "ListPartitionReassignments": ListPartitionReassignments(both),
        }
        callbacks = ROWS["K171"]["then"]["callbacks"]
        assert queued.keys() == callbacks.keys()
        waiting = {name: asyncio.create_task(active.term.ask(asked)) for name, asked in queued.items()}
        await until(lambda: len(active.term._callers) == len(queued), "all requests")
        active.daemon.stop()
        errors = {name: (await task).error.name for name, task in waiting.items()}
        # ControllerMoved travels as this code.
        wire = {"ControllerMoved": "STALE_CONTROLLER_EPOCH"}
        assert errors == {
            name: wire.get(e, e).removesuffix(" per partition") for name, e in callbacks.items()
        }


def _sample(active: Active, name: str, **labels: str) -> float | None:
    return active.daemon.registry.get_sample_value(name, labels)


async def test_k130_an_event_is_counted_once_and_shown_while_it_is_processed(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then, event = ROWS["K130"]["then"], EventKind.LEADER_REBALANCE
    assert event.value == ROWS["K130"]["when"]["put"]
    timer = "kafka_controller_controllerstats_rateandtime_seconds_count"
    async with controller(
        zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics={"t": '{"0":[1,2]}'}
    ) as active:
        elect = ElectLeaders(ElectionType.CHOSEN, [("t", 0)], 2)
        await active.term.ask(elect)
        before = _sample(active, timer, state=event.value) or 0.0
        busy = Busy(active, monkeypatch)
        active.term.enqueue(Event(event))
        await busy.reached.wait()
        assert (await state.state(active.daemon))["term"]["event"] == event.value
        busy.go.set()
        await until(lambda: active.stored()[0] == 1 and active.idle(), "the preferred leader")
        assert (await state.state(active.daemon))["term"]["event"] is None
        counted = (_sample(active, timer, state=event.value) or 0.0) - before
        assert counted == then["processed"] == then["timer_delta"]["AutoLeaderBalanceRateAndTimeMs"]


GAUGES = "kafka_controller_"


@pytest.mark.parametrize("row", ["K126", "K132"])
async def test_metrics_of_a_term_end_with_it(
    zookeeper: str, zk: KazooClient, tmp_path: Path, row: str
) -> None:
    """Those of brokers are gone, those of the cluster are 0; where the original unregisters, ours are computed."""
    area: Callable[[str], bool] = {
        "K126": lambda name: "eventmanager" in name,
        "K132": lambda name: "kafkacontroller_" in name or "channelmanager_" in name,
    }[row]

    def gauges(active: Active) -> dict[str, float]:
        found = [
            sample
            for family in active.daemon.registry.collect()
            if family.type == "gauge" and family.name.startswith(GAUGES) and area(family.name)
            for sample in family.samples
        ]
        return {f"{s.name}{sorted(s.labels.values())}": s.value for s in found}

    async with controller(
        zookeeper, zk, tmp_path, FakeBroker(0), FakeBroker(1), topics={"t": '{"0":[0,1]}'}
    ) as active:
        active.term.enqueue(Event(EventKind.BROKER_CHANGE))
        led = gauges(active)
        assert led
        former = active.term
        active.daemon.stop()
        await until(lambda: active.daemon.term is not former, "the end of the term")
        after = gauges(active)
    assert set(after.values()) == {0.0}
    if row == "K132":
        assert led[f"{GAUGES}kafkacontroller_activecontrollercount[]"] == 1.0
        per_broker = [name for name in led if name.endswith("['0']")]
        assert per_broker
        assert not set(per_broker) & set(after)
