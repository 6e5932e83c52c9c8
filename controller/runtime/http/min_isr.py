"""Gauges of partitions at and below ``min.insync.replicas``, as brokers of Kafka have them for what they lead.

The settings of topics are read when they are first needed, and again when a notification of ``/config/changes`` says
that some have changed, as brokers do.
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
from controller.runtime.state import instant
from controller.runtime.term import Term
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError

_PREFIX = "kafka_server_replicamanager_"
#: Between two counts.
COUNT_EVERY_S = 10.0
#: Between two looks at what is to be read, for such a look, and between two reads of everything, which see what was
#: written without a notification.
READ_EVERY_S, READ_S, READ_ALL_EVERY_S = 10.0, 5.0, 600.0
#: Topics whose settings are read at once: more would hold up the event loop.
READ_TOPICS = 2_000


class MinIsr:
    """``min.insync.replicas`` of all topics, as of the last ``READ_EVERY_S``; Kafka's default until they are read."""

    def __init__(self) -> None:
        self._configs: cluster_reader.Configs = {}
        self._defaults: dict[str, str] = {}
        self._looked_at = self._forgot_at = -READ_ALL_EVERY_S
        self._epoch = -1
        #: Notifications that are dealt with.
        self._seen: frozenset[str] = frozenset()
        #: The creation zxid of each topic whose settings are up to date.
        self._known: dict[str, int] = {}
        #: Another number when something was read.
        self.reads = 0

    async def refresh(self, term: Term) -> None:
        """Read what may have changed, if it is time. What ZooKeeper does not answer stays as it was, and is read the
        next time."""
        now_s = time.monotonic()
        if now_s - self._looked_at < READ_EVERY_S:
            return
        self._looked_at = now_s
        topics = {name: topic.czxid for name, topic in term.machine.cluster.topics.items()}
        seen = frozenset(term.machine.cluster.config_changes_seen)
        if (
            term.won.epoch != self._epoch
            or not seen <= self._seen
            or now_s - self._forgot_at >= READ_ALL_EVERY_S
        ):
            self._known.clear()
            self._epoch, self._forgot_at = term.won.epoch, now_s
        self._seen = seen
        for name in self._configs.keys() - topics.keys():
            del self._configs[name]
        for name in self._known.keys() - topics.keys():
            del self._known[name]
        fresh = [name for name, czxid in topics.items() if self._known.get(name) != czxid]
        with suppress(ControllerError, ConnectionLossError, TimeoutError):
            async with asyncio.timeout(READ_S):
                for start in range(0, len(fresh), READ_TOPICS):
                    names = fresh[start : start + READ_TOPICS]
                    configs, self._defaults, _ = await cluster_reader.read_configs(term.session, names)
                    self.reads += 1
                    for name in names:
                        self._known[name] = topics[name]
                        self._configs.pop(name, None)
                    self._configs |= configs

    def of(self, topic: str) -> int:
        return cluster_reader.min_isr_in(self._configs.get(topic, {}), self._defaults)


class MinIsrGauges:
    """The last count of one process; 0 while it does not lead."""

    def __init__(self, daemon: Daemon, min_isr: MinIsr) -> None:
        self._daemon, self._min_isr = daemon, min_isr
        self._under = self._at = 0
        self._counted_at = -COUNT_EVERY_S
        self._counted: object = None
        GaugeSource(self._gauges, daemon.registry)

    async def refresh(self) -> None:
        """Count again, if it is time. What ZooKeeper does not answer stays as it was."""
        term, now_s = self._daemon.term, time.monotonic()
        if term is None or not term.machine.ready or now_s - self._counted_at < COUNT_EVERY_S:
            return
        self._counted_at = now_s
        await self._min_isr.refresh(term)
        counted = (instant(term), self._min_isr.reads)
        if counted != self._counted:
            self._under, self._at = await _count(term.machine.cluster, self._min_isr)
            self._counted = counted

    def _gauges(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        leads = self._daemon.active
        under, at = (self._under, self._at) if leads else (0, 0)
        yield f"{_PREFIX}underminisrpartitioncount", "Partitions below min.insync.replicas.", {}, under
        yield f"{_PREFIX}atminisrpartitioncount", "Partitions at min.insync.replicas.", {}, at


async def _count(cluster: Cluster, min_isr: MinIsr) -> tuple[int, int]:
    """The partitions below and at ``min.insync.replicas``."""
    under = at = 0
    async for some in unhurried(cluster.partitions()):
        for topic, group in groupby(some, key=attrgetter("topic.name")):
            wanted = min_isr.of(topic)
            known = [(p.leadership, p.replicas) for p in group if p.leadership is not None]
            # Most topics have more in sync everywhere, which is seen at little cost.
            if min([len(state.isr) for state, _ in known], default=0) <= wanted:
                spare = [state.spare(replicas, wanted) for state, replicas in known]
                under += sum(found < 0 for found in spare)
                at += spare.count(0)
    return under, at
