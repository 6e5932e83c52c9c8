"""Gauges of partitions at and below ``min.insync.replicas``, as brokers of Kafka have them for what they lead.

The controller keeps no settings of topics in memory: they are read from ZooKeeper at a scrape, but not at each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from controller.core.model import Cluster
from controller.errors import ControllerError
from controller.runtime.daemon import Daemon
from controller.runtime.observe.metrics import GaugeSource
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError

_PREFIX = "kafka_server_replicamanager_"
#: Between two counts, and for the read of the settings.
COUNT_EVERY_S, READ_S = 10.0, 5.0
#: Partitions counted between two pauses for other work.
_AT_ONCE = 5000


class MinIsrGauges:
    """The last count of one process; 0 while it does not lead."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._under = self._at = 0
        self._counted_at = -COUNT_EVERY_S
        GaugeSource(self._gauges, daemon.registry)

    async def refresh(self) -> None:
        """Count again, if it is time. What ZooKeeper does not answer stays as it was."""
        term, now_s = self._daemon.term, time.monotonic()
        if term is None or not term.machine.ready or now_s - self._counted_at < COUNT_EVERY_S:
            return
        self._counted_at = now_s
        cluster = term.machine.cluster
        try:
            async with asyncio.timeout(READ_S):
                configs, defaults, _ = await cluster_reader.read_configs(term.session, list(cluster.topics))
        except (ControllerError, ConnectionLossError, TimeoutError):
            return
        self._under, self._at = await _count(cluster, configs, defaults)

    def _gauges(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        leads = self._daemon.active
        under, at = (self._under, self._at) if leads else (0, 0)
        yield f"{_PREFIX}underminisrpartitioncount", "Partitions below min.insync.replicas.", {}, under
        yield f"{_PREFIX}atminisrpartitioncount", "Partitions at min.insync.replicas.", {}, at


async def _count(
    cluster: Cluster, configs: cluster_reader.Configs, defaults: dict[str, str]
) -> tuple[int, int]:
    """The partitions below and at ``min.insync.replicas``."""
    under = at = counted = 0
    for topic in list(cluster.topics.values()):
        wanted = cluster_reader.min_isr_in(configs.get(topic.name, {}), defaults)
        for partition in list(topic.partitions.values()):
            state = partition.leadership
            spare = None if state is None else state.spare(partition.replicas, wanted)
            under += spare is not None and spare < 0
            at += spare == 0
        counted += len(topic.partitions)
        if counted >= _AT_ONCE:
            counted = 0
            await asyncio.sleep(0)
    return under, at
