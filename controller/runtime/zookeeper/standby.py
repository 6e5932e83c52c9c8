"""What a candidate does while another controller leads: it keeps topics, partition states and their digests in memory,
and acts on nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from controller.core.model import Topic
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from controller.runtime.zookeeper.state_mirror import StateMirror, Warmth
from proto.tasks import end_all, failures_to

log = structlog.get_logger(__name__)

#: Between two looks for topics that changed.
DIGESTS_PAUSE_S = 1.0


class Standby:
    """The standby of one session. ``follow`` while somebody else leads; ``settled`` once elected."""

    def __init__(
        self,
        session: Session,
        metrics: StandbyMetrics,
        digest: Callable[[str, Topic | None], Awaitable[None]],
    ) -> None:
        """``digest`` computes ahead what brokers should hold of a topic; None: it is gone."""
        self.mirror, self._digest, self._metrics = StateMirror(session, metrics), digest, metrics
        #: The bug that ended the reading: then all is read at the failover.
        self.bug: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Begin to keep states in memory, unless that is under way, or of no use."""
        if self._task is None and self.bug is None and self.mirror.warmth is not Warmth.OFF:
            self._task = asyncio.create_task(self._run(), name="standby")
            self._task.add_done_callback(failures_to(self._failed))

    async def _run(self) -> None:
        digests = asyncio.create_task(self._digests())
        try:
            await asyncio.wait(
                [digests, mirror := asyncio.create_task(self.mirror.run())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            ended = await end_all([digests, mirror])
        for bug in ended:
            if isinstance(bug, Exception):
                raise bug

    async def _digests(self) -> None:
        """Keep the digests of all topics up to date, once their states are read."""
        mirror = self.mirror
        while True:
            await asyncio.sleep(DIGESTS_PAUSE_S)
            while mirror.warmth is Warmth.WARM and mirror.news:
                self._metrics.undigested.set(len(mirror.news))
                name = next(iter(mirror.news))
                del mirror.news[name]
                await self._digest(name, mirror.prepared.topics.get(name))
            self._metrics.undigested.set(len(mirror.news))

    def _failed(self, bug: BaseException) -> None:
        self.bug = bug
        log.error("standby_failed", why=repr(bug), exc_info=bug)

    async def settled(self) -> StateMirror | None:
        """After the election: the states in memory, if they are proved to be as they are in ZooKeeper."""
        if self._task is None:
            return None
        await self.pause()
        if self.bug is None:
            with suppress(ConnectionLossError):
                if await self.mirror.settle():
                    return self.mirror
        log.info("states_not_in_memory", warmth=self.mirror.warmth.value)
        await self.mirror.end()
        return None

    async def pause(self) -> None:
        """Read no more."""
        task, self._task = self._task, None
        if task is not None:
            await end_all([task])
