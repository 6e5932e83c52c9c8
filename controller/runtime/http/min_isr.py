"""Gauges of partitions at and below ``min.insync.replicas``, as brokers of Kafka have them for what they lead.

The controller keeps no settings of topics in memory: they are read from ZooKeeper at a scrape, but not at each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from operator import attrgetter

from controller.core.model import Cluster
from controller.errors import ControllerError
from controller.runtime.daemon import Daemon
from controller.runtime.observe.loop_lag import unhurried
from controller.runtime.observe.metrics import GaugeSource
from controller.runtime.term import Term
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError

_PREFIX = "kafka_server_replicamanager_"
#: Between two counts, between two reads of the settings, and for such a read.
COUNT_EVERY_S, READ_EVERY_S, READ_S = 10.0, 10.0, 5.0


class MinIsr:
    """``min.insync.replicas`` of all topics, as of the last ``READ_EVERY_S``; Kafka's default until they are read."""

    def __init__(self) -> None:
        self._configs: cluster_reader.Configs = {}
        self._defaults: dict[str, str] = {}
        self._read_at = -READ_EVERY_S

    async def refresh(self, term: Term) -> None:
        """Read them again, if it is time. What ZooKeeper does not answer stays as it was."""
        now_s = time.monotonic()
        if now_s - self._read_at < READ_EVERY_S:
            return
        self._read_at = now_s
        names = list(term.machine.cluster.topics)
        with suppress(ControllerError, ConnectionLossError, TimeoutError):
            async with asyncio.timeout(READ_S):
                self._configs, self._defaults, _ = await cluster_reader.read_configs(term.session, names)

    def of(self, topic: str) -> int:
        return cluster_reader.min_isr_in(self._configs.get(topic, {}), self._defaults)


class MinIsrGauges:
    """The last count of one process; 0 while it does not lead."""

    def __init__(self, daemon: Daemon, min_isr: MinIsr) -> None:
        self._daemon, self._min_isr = daemon, min_isr
        self._under = self._at = 0
        self._counted_at = -COUNT_EVERY_S
        GaugeSource(self._gauges, daemon.registry)

    async def refresh(self) -> None:
        """Count again, if it is time. What ZooKeeper does not answer stays as it was."""
        term, now_s = self._daemon.term, time.monotonic()
        if term is None or not term.machine.ready or now_s - self._counted_at < COUNT_EVERY_S:
            return
        self._counted_at = now_s
        await self._min_isr.refresh(term)
        self._under, self._at = await _count(term.machine.cluster, self._min_isr)

    def _gauges(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        leads = self._daemon.active
        under, at = (self._under, self._at) if leads else (0, 0)
        yield f"{_PREFIX}underminisrpartitioncount", "Partitions below min.insync.replicas.", {}, under
        yield f"{_PREFIX}atminisrpartitioncount", "Partitions at min.insync.replicas.", {}, at


async def _count(cluster: Cluster, min_isr: MinIsr) -> tuple[int, int]:
    """The partitions below and at ``min.insync.replicas``."""
    under = at = 0
    async for some in unhurried(cluster.partitions()):
        for topic, partitions in groupby(some, key=attrgetter("topic.name")):
            wanted = min_isr.of(topic)
            for partition in partitions:
                state = partition.leadership
                spare = None if state is None else state.spare(partition.replicas, wanted)
                under += spare is not None and spare < 0
                at += spare == 0
    return under, at
