"""Watchers of records at moments that a real daemon does not offer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core.records import BrokerChange, LogBatch, Rejection
from controller.runtime.observe import history
from controller.runtime.observe.history import Recent
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.rpc.history_service import HistoryService
from proto.gen import history_pb2 as pb


async def test_a_watcher_that_is_behind_reads_on_though_a_portion_has_nothing_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "RECORDS_AT_ONCE", 2)
    recent: Any = Recent(1, 1000)
    for _ in range(5):
        recent.add(LogBatch([Rejection("E", "no")], "", "Test", 1), 7, 1)
    recent.add(LogBatch([BrokerChange(1, "offline")], "", "Test", 1), 7, 1)
    term = SimpleNamespace(won=SimpleNamespace(epoch=7), machine=SimpleNamespace(current_event=None))
    daemon: Any = SimpleNamespace(
        recent=recent,
        leading=term,
        term=term,
        settings=SimpleNamespace(controller_id=1),
        metrics=ControllerMetrics(CollectorRegistry()),
    )
    request = pb.WatchRequest(filter=pb.HistoryFilter(kinds=["broker"]), whole_epoch=True)
    answers = HistoryService(daemon).watch(request)
    assert (await anext(answers)).controller_epoch == 7
    told = asyncio.ensure_future(anext(answers))
    for _ in range(99):
        await asyncio.sleep(0)
    assert told.done()
    assert len(told.result().records) == 1
    await answers.aclose()
