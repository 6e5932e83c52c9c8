"""The history of leadership in ZooKeeper: written at the begin and end of a term, fenced; nothing waits for it."""

from __future__ import annotations

import asyncio
import time

import structlog

from controller.core import znode_paths
from controller.core.cluster import term_history
from controller.core.cluster.term_history import PATH, TermRecord
from controller.errors import LeadershipError, reason_of
from controller.runtime.election.controller_election import Won
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.fenced_node import FencedNode
from controller.runtime.zookeeper.session import ConnectionLossError, Session

log = structlog.get_logger(__name__)
END_TIMEOUT_S = 0.5
#: What a write may fail with; the history then lacks a line.
_FAILURES = (jute.MultiError, ConnectionLossError, LeadershipError)

_NODE: FencedNode[tuple[TermRecord, ...]] = FencedNode(PATH, ())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def begin(session: Session, won: Won, controller_id: int) -> None:
    """Record that this term has begun."""
    try:
        before, version = await _NODE.read(session)
        await _NODE.write(
            session,
            won.epoch_version,
            term_history.begun(before, controller_id, won.epoch, _now_ms()),
            version,
        )
    except _FAILURES as failure:
        log.warning("term_not_recorded", why=reason_of(failure))


async def end(session: Session, won: Won, why: str, *, requested: bool) -> None:
    """Record that this term has ended; given up after a moment, as the successor waits for ``/controller``."""
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            before, version = await _NODE.read(session)
            after = term_history.ended(before, won.epoch, _now_ms(), why, requested=requested)
            await _NODE.write(session, won.epoch_version, after, version)
    except (*_FAILURES, TimeoutError) as failure:
        log.warning("term_not_recorded", why=reason_of(failure))


class Patience:
    """Whether one candidate leaves the present election to others, because its last terms failed."""

    def __init__(self, controller_id: int) -> None:
        self._own_id = controller_id
        self._failures = 0
        self._vacant_since: float | None = None

    async def learn(self, session: Session) -> None:
        """Read its own last terms, before it is a candidate. Raises ConnectionLossError."""
        found, _ = await _NODE.read(session)
        self._failures = term_history.failures(found, self._own_id, _now_ms())
        if yields_us := term_history.yields_us(self._failures):
            log.warning("flapping", failures=self._failures, leaves_elections_to_others_s=yields_us / 1e6)

    def failed(self) -> None:
        self._failures += 1

    async def leaves_to_another(self, session: Session) -> bool:
        """Whether it waits with ``/controller`` absent, while another candidate is registered. Raises
        ConnectionLossError."""
        wait_s = term_history.yields_us(self._failures) / 1e6
        if not wait_s or await session.exists(znode_paths.CONTROLLER) is not None:
            self._vacant_since = None
            return False
        now_s = time.monotonic()
        if self._vacant_since is None:
            self._vacant_since = now_s
        if now_s - self._vacant_since >= wait_s:
            return False
        names = await session.children(znode_paths.CONTROLLER_IDS)
        return any(name != str(self._own_id) for name in names)
