"""Partitions at and below ``min.insync.replicas``: what is counted, and how often anybody looks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core.model import Cluster, LeaderAndIsr, Partition, Topic
from controller.runtime.http import min_isr as module
from controller.runtime.http.min_isr import (
    COUNT_EVERY_S,
    READ_ALL_EVERY_S,
    READ_EVERY_S,
    MinIsr,
    MinIsrGauges,
)
from controller.runtime.zookeeper import cluster_reader

UNDER, AT = (f"kafka_server_replicamanager_{name}minisrpartitioncount" for name in ("under", "at"))


class Leading:
    """A controller with a topic that wants two in sync, of partitions with three, two, one and no member."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster, topic = Cluster(100), Topic("t", "id")
        cluster.add_topic(topic)
        for number, isr in enumerate([(1, 2, 3), (1, 2), (1,), None]):
            partition = topic.partitions[number] = Partition(topic, number, (1, 2, 3))
            partition.leadership = LeaderAndIsr(1, 1, isr, 1, 1) if isr else None
        self.machine = SimpleNamespace(cluster=cluster, ready=True, current_event=None)
        won = SimpleNamespace(epoch=7)
        self.term = term = SimpleNamespace(machine=self.machine, session=None, won=won, changes=0)
        daemon: Any = SimpleNamespace(active=True, term=term, registry=CollectorRegistry())
        self.daemon = daemon
        self.now_s, self.reads, self.wants = 1.0, list[list[str]](), "2"
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(cluster_reader, "read_configs", self.read)
        self.gauges = MinIsrGauges(daemon, MinIsr())

    async def read(self, _session: object, names: list[str]) -> tuple[object, object, object]:
        self.reads.append(names)
        own = {name: {"min.insync.replicas": self.wants} for name in names if name == "t" and self.wants}
        return own, {"min.insync.replicas": "3"}, {}

    def shown(self) -> tuple[float | None, float | None]:
        registry = self.daemon.registry
        return registry.get_sample_value(UNDER), registry.get_sample_value(AT)


async def test_each_is_counted_once_and_only_while_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch)
    leading.machine.ready = False
    await leading.gauges.refresh()
    assert (leading.shown(), leading.reads) == ((0, 0), [])
    leading.machine.ready = True
    await leading.gauges.refresh()
    assert leading.shown() == (1, 1)
    leading.daemon.active = False
    assert leading.shown() == (0, 0)


async def test_a_topic_none_of_whose_partitions_has_one_to_spare_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = Leading(monkeypatch)
    del leading.machine.cluster.topics["t"].partitions[2]
    await leading.gauges.refresh()
    assert leading.shown() == (0, 1)


@pytest.mark.parametrize(
    ("changed", "began", "ended"), [(0, None, None), (1, None, None), (0, "event", None)]
)
async def test_all_is_counted_again_when_an_event_may_have_changed_it(
    monkeypatch: pytest.MonkeyPatch, changed: int, began: str | None, ended: str | None
) -> None:
    """Also by one during which it was counted."""
    leading = Leading(monkeypatch)
    leading.machine.current_event = began
    await leading.gauges.refresh()
    leading.machine.current_event = ended
    partition = leading.machine.cluster.topics["t"].partitions[1]
    partition.leadership = LeaderAndIsr(1, 1, (1,), 2, 1)
    leading.now_s += COUNT_EVERY_S
    leading.term.changes += changed
    await leading.gauges.refresh()
    assert leading.shown() == ((2, 0) if changed or began != ended else (1, 1))


async def test_partitions_are_counted_by_settings_that_changed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch)
    await leading.gauges.refresh()
    leading.wants = "3"
    leading.machine.cluster.config_changes_seen["/config/changes/config_change_1"] = 0
    leading.now_s += COUNT_EVERY_S
    await leading.gauges.refresh()
    assert leading.shown() == (2, 1)


async def test_settings_are_read_once_and_again_when_a_notification_or_a_topic_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading, settings = Leading(monkeypatch), MinIsr()
    cluster = leading.machine.cluster
    assert settings.of("t") == 1

    async def read(after_s: float) -> list[list[str]]:
        leading.reads.clear()
        leading.now_s += after_s
        await settings.refresh(leading.daemon.term)
        return list(leading.reads)

    assert await read(0) == [["t"]]
    assert (settings.of("t"), settings.of("u")) == (2, 3), "a topic's own setting goes before the default"
    assert await read(READ_EVERY_S) == [], "nothing has changed"
    cluster.add_topic(Topic("u", czxid=5))
    assert await read(READ_EVERY_S / 2) == [], "it is not time yet"
    assert await read(READ_EVERY_S / 2) == [["u"]]
    cluster.topics["u"].czxid = 6
    assert await read(READ_EVERY_S) == [["u"]], "it was created again"
    cluster.config_changes_seen["/config/changes/config_change_1"] = 0
    leading.wants = ""
    assert await read(READ_EVERY_S) == [["t", "u"]]
    assert settings.of("t") == 3, "it has no setting of its own any more"
    cluster.config_changes_seen.clear()
    assert await read(READ_EVERY_S) == [], "a notification was deleted, none came"
    cluster.config_changes_seen["/config/changes/config_change_1"] = 0
    leading.wants = "2"
    assert await read(READ_EVERY_S) == [["t", "u"]], "one of the same name: its folder was made anew"
    assert await read(READ_ALL_EVERY_S) == [["t", "u"]]
    del cluster.topics["t"]
    assert await read(READ_EVERY_S) == []
    assert settings.of("t") == 3, "nothing is kept of a topic that is gone"
    assert settings._known == {"u": 6}
    leading.term.won = SimpleNamespace(epoch=8)
    assert await read(READ_EVERY_S) == [["u"]], "another term may have missed notifications"
    assert COUNT_EVERY_S <= READ_EVERY_S


async def test_many_topics_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    leading, settings = Leading(monkeypatch), MinIsr()
    monkeypatch.setattr(module, "READ_TOPICS", 2)
    for name in "uvwx":
        leading.machine.cluster.add_topic(Topic(name))
    await settings.refresh(leading.daemon.term)
    assert leading.reads == [["t", "u"], ["v", "w"], ["x"]]


async def test_settings_that_zookeeper_does_not_tell_in_time_stay_as_they_were_and_are_read_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading, settings = Leading(monkeypatch), MinIsr()
    await settings.refresh(leading.daemon.term)
    leading.machine.cluster.config_changes_seen["/config/changes/config_change_1"] = 0
    leading.now_s += READ_EVERY_S
    with monkeypatch.context() as hanging:
        hanging.setattr(module, "READ_S", 0.0)
        hanging.setattr(cluster_reader, "read_configs", lambda *_: asyncio.Event().wait())
        await settings.refresh(leading.daemon.term)
    assert settings.of("t") == 2
    leading.now_s += READ_EVERY_S
    leading.reads.clear()
    await settings.refresh(leading.daemon.term)
    assert leading.reads == [["t"]]
