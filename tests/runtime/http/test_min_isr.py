"""Partitions at and below ``min.insync.replicas``: what is counted, and how often anybody looks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core.model import Cluster, LeaderAndIsr, Partition, Topic
from controller.runtime.http import min_isr as module
from controller.runtime.http.min_isr import COUNT_EVERY_S, READ_EVERY_S, MinIsr, MinIsrGauges
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
        self.machine = SimpleNamespace(cluster=cluster, ready=True)
        term = SimpleNamespace(machine=self.machine, session=None)
        daemon: Any = SimpleNamespace(active=True, term=term, registry=CollectorRegistry())
        self.daemon = daemon
        self.now_s, self.reads = 1.0, 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(cluster_reader, "read_configs", self.read)
        self.gauges = MinIsrGauges(daemon, MinIsr())

    async def read(self, _session: object, names: list[str]) -> tuple[object, object, object]:
        assert names == list(self.machine.cluster.topics)
        self.reads += 1
        return {"t": {"min.insync.replicas": "2"}}, {"min.insync.replicas": "3"}, {}

    def shown(self) -> tuple[float | None, float | None]:
        registry = self.daemon.registry
        return registry.get_sample_value(UNDER), registry.get_sample_value(AT)


async def test_each_is_counted_once_and_only_while_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch)
    leading.machine.ready = False
    await leading.gauges.refresh()
    assert (leading.shown(), leading.reads) == ((0, 0), 0)
    leading.machine.ready = True
    await leading.gauges.refresh()
    assert leading.shown() == (1, 1)
    leading.daemon.active = False
    assert leading.shown() == (0, 0)


async def test_settings_are_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    leading, settings = Leading(monkeypatch), MinIsr()
    assert settings.of("t") == 1
    for now_s, reads in ((0, 1), (READ_EVERY_S - 1, 1), (READ_EVERY_S, 2), (READ_EVERY_S + 1, 2)):
        leading.now_s = now_s
        leading.machine.cluster.add_topic(Topic(f"made at {now_s}"))
        await settings.refresh(leading.daemon.term)
        assert leading.reads == reads
    assert (settings.of("t"), settings.of("u")) == (2, 3), "a topic's own setting goes before the default"
    assert COUNT_EVERY_S <= READ_EVERY_S


async def test_settings_that_zookeeper_does_not_tell_in_time_stay_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading, settings = Leading(monkeypatch), MinIsr()
    await settings.refresh(leading.daemon.term)
    monkeypatch.setattr(module, "READ_S", 0.0)
    monkeypatch.setattr(cluster_reader, "read_configs", lambda *_: asyncio.Event().wait())
    leading.now_s = READ_EVERY_S
    await settings.refresh(leading.daemon.term)
    assert settings.of("t") == 2
