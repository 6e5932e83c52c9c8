"""Who asks a cluster in which nothing else goes wrong, and what he can do to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from tests.provers.sim.cluster import SimulatedCluster
from tests.provers.sim.odd.asking import DONE, Asker, Case, Codes
from tests.provers.sim.odd.topics import UNKNOWN, creation, deletion, lists, topic
from tests.provers.sim.plans.plan import VICTIM, WRITE
from tests.provers.sim.zookeeper.messages import Set

#: What may be said where somebody else writes, too.
UNWRITTEN: Codes = (codes.UNKNOWN_SERVER_ERROR,)
#: As often as a write is tried, and more.
_TIMES = (1, 12, 12)
#: Who writes what a request is about and leaves its content as it is.
HARMLESS = ("touched", "busy", "unanswered")
_LOOK_S = 0.05


class Calm(Asker):
    """``session_s``: after so long without a sign a broker is gone for certain."""

    cluster: SimulatedCluster

    def __init__(self, cluster: SimulatedCluster, serial: int, rng: Random) -> None:
        super().__init__(cluster, cluster.oddities.operator, cluster.oddities.edits, serial, rng, calm=True)
        self.session_s = cluster.plan.options.session_timeout_ms / 1000

    # topics of an episode's own

    def name(self, suffix: str = "") -> str:
        """Of a topic that nobody else knows; it may be removed by hand."""
        return f"{VICTIM}-{self.serial}{suffix}"

    async def made(self, name: str, *replicas: Iterable[int]) -> bool:
        """Whether it was created, with a list of replicas for each partition."""
        wanted = topic(name, assignments=lists(*map(list, replicas)))
        answer = await self.ask(creation(wanted, parts=[(*DONE, *UNWRITTEN)]))
        return answer is not None and not answer.topics[0].error_code

    async def delete(self, name: str) -> None:
        await self.ask(deletion(pb.DeletableTopic(name=name), parts=[(*DONE, *UNKNOWN, *UNWRITTEN)]))

    async def granted(self, case: Case) -> bool:
        """Whether a request of one part was."""
        answer = await self.ask(case)
        parts = [] if answer is None else list(answer.ListFields()[-1][1])
        return answer is not None and not answer.error_code and not any(p.error_code for p in parts)

    # who comes in between

    def thwart(self, kinds: Collection[str], rivals: Collection[str] = HARMLESS) -> str:
        """Somebody else writes what is written next, or some time later; who."""
        # The audit finds what somebody has written.
        self.cluster.tampered |= "state" in kinds
        rival, kind = self.rng.choice(sorted(rivals)), self.rng.choice(sorted(kinds))
        self.cluster.conflicts.wait_for(
            WRITE, kind, self.rng.choice((1, 1, 1, 2, 3)), self.rng.choice(_TIMES), rival
        )
        return rival

    # brokers

    @contextmanager
    def held_back(self, id_: int) -> Iterator[None]:
        """Nothing of what a broker sends to others arrives: it follows nobody."""
        ways = [(f"broker-{id_}", f"broker-{other}") for other in self.ids if other != id_]
        for way in ways:
            self.cluster.rpc.close(*way)
        try:
            yield
        finally:
            for way in ways:
                self.cluster.rpc.open(*way)

    @contextmanager
    def gone(self, id_: int) -> Iterator[None]:
        self.cluster.brokers[id_].kill()
        try:
            yield
        finally:
            self.start(id_)

    def start(self, id_: int) -> None:
        if not self.cluster.brokers[id_].alive:
            self.cluster.brokers[id_].start()

    async def until(self, what: str, limit_s: float, is_so: Callable[[], bool]) -> None:
        """It comes to be so within a time."""
        end_s = self.cluster.loop.time() + limit_s
        while not is_so():
            if self.cluster.loop.time() > end_s:
                self.cluster.violated(f"{limit_s:g} s, and still not so: {what}")
                return
            await self.pass_s(_LOOK_S)

    # what is stored

    def partitions(self, name: str) -> dict[int, tuple[int, ...]]:
        known = self.cluster.ledger.topics.get(name)
        return dict(known.partitions) if known is not None else {}

    def stored_topic(self, name: str) -> dict[str, Any]:
        """As its znode has it; empty: it is not there, or is to be deleted."""
        deleted = name in self.cluster.nodes_below("/admin/delete_topics")
        data = None if deleted else self.cluster.stored(f"/brokers/topics/{name}")
        found: dict[str, Any] = json.loads(data) if data else {}
        return found

    def edit(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        """By hand, whatever its version is."""
        value = json.loads(self.cluster.stored(path) or b"{}")
        change(value)
        self.cluster.ask_zookeeper(Set(path, json.dumps(value).encode(), -1))
