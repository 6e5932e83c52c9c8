"""Takes ``/controller`` of a cluster of Kafka brokers for one process, and hands it over (``takeover`` has the rules).

The holder session outlives the main sessions of the process: an expired one is no reason to let brokers elect.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import structlog

from controller.core import znode_paths
from controller.errors import ControllerError, MalformedError
from controller.runtime.config import Settings, Takeover
from controller.runtime.election import controller_election, takeover
from controller.runtime.election.controller_election import Candidate, Found, Lost, Won
from controller.runtime.election.takeover import Held
from controller.runtime.kafka import own_registration, registrations
from controller.runtime.kafka.endpoints import Addresses, listeners_of
from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper import single_codecs
from controller.runtime.zookeeper.session import ConnectionLossError, ConnectionState, NoNodeError, Session
from controller.runtime.zookeeper.single_codecs import RESIGNATION, Resignation
from proto.zookeeper_access import ZooKeeperAccess

log = structlog.get_logger(__name__)

OnChange = Callable[[str, str], None]


class Claimant:
    """What a process remembers of its claims, and its holder session."""

    def __init__(self, settings: Settings, metrics: ZooKeeperMetrics, access: ZooKeeperAccess) -> None:
        self.mode = Takeover(settings.kafka_takeover)
        self._settings, self._metrics, self._access = settings, metrics, access
        self.holder: Session | None = None
        #: When it claimed over a broker.
        self.claims: deque[float] = deque(maxlen=takeover.CLAIMS_KEPT)
        self.held = Held.NOBODY
        self.resignation: Resignation | None = None
        #: When it will claim over the broker that holds ``/controller``; None: not by itself.
        self.next_claim_at_s: float | None = None
        self._reported: object = None

    @property
    def main_timeout_ms(self) -> int:
        """The timeout to request for the main session."""
        return takeover.main_timeout_ms(self.mode, self._settings.session_timeout_ms)

    async def attempt(
        self, session: Session, me: Candidate, on_change: OnChange, addresses: Addresses
    ) -> Won | Lost:
        """Claim ``/controller`` if the rules say so, and Kafka brokers can reach us at ``addresses``.

        Raises as ``controller_election.claim``.
        """
        holder = await self._holder_beside(session, on_change)
        await own_registration.withdraw(session, self._settings.controller_id)
        while True:
            self.resignation = await _resignation(session, on_change)
            found = await controller_election.find_holder(session, on_change)
            ours = found.held in (Held.THIS_SESSION, Held.GONE)
            if await session.exists(znode_paths.broker_path(self._settings.controller_id), on_change):
                ours = ours and found.controller_id == self._settings.controller_id
                found = replace(found, held=Held.NAMESAKE)
            now_s = time.monotonic()
            verdict = takeover.verdict(found.held, self.resignation is not None, self.claims, now_s)
            self.held, self.next_claim_at_s = found.held, verdict.again_at_s
            far = registrations.out_of_reach(
                await registrations.kafka_brokers(session, on_change) if addresses else (),
                listeners_of(self._settings),
                addresses,
            )
            may_claim = verdict.claim and not far
            if not may_claim and ours:
                # Its holder session may live on, or it is persistent: brokers would never elect.
                await controller_election.release(session, found)
                log.info("gave_up", controller=found.controller_id, epoch=found.epoch[0])
                continue
            if not may_claim:
                self._report(found, now_s, far)
                return Lost(found.controller_id, found.endpoint)
            if found.held is Held.BROKER:
                # Before the attempt: one whose outcome nobody learns counts, too.
                self.claims.append(now_s)
            won = await controller_election.claim(session, holder, me, found)
            if won is not None:
                log.info("claimed", over=found.held.value, controller=found.controller_id, epoch=won.epoch)
                self._reported = None
                return won

    def wait_s(self) -> float | None:
        """How long to wait for a change in ZooKeeper before the next attempt; None: any time."""
        return None if self.next_claim_at_s is None else max(self.next_claim_at_s - time.monotonic(), 0.0)

    def forget_claims(self) -> None:
        """An operator asks to claim at once."""
        self.claims.clear()

    def _report(self, found: Found, now_s: float, far: list[int]) -> None:
        """Log once why nothing is claimed. ``far``: brokers that could not reach us."""
        report = (found.held, found.controller_id, self.resignation, self.next_claim_at_s, far)
        if report == self._reported:
            return
        self._reported = report
        if found.held is Held.KRAFT:
            log.error("cannot_claim", why="a migration to KRaft is under way", controller=found.controller_id)
        elif found.held is Held.NAMESAKE:
            log.error("cannot_claim", why="a broker is registered with this controller's id: use another")
        elif self.resignation is not None:
            log.info("handed_back", by=self.resignation.author, reason=self.resignation.reason)
        elif self.next_claim_at_s is not None:
            in_s = round(self.next_claim_at_s - now_s, 1)
            log.warning("broker_is_controller", broker=found.controller_id, next_claim_in_s=in_s)
        elif far:
            why = "brokers on other machines cannot reach a loopback address: set kafka_advertised_host"
            log.error("cannot_claim", why=why, brokers=far)

    async def _holder_beside(self, session: Session, on_change: OnChange) -> Session | None:
        """The live holder session; None in exclusive mode."""
        if self.mode is Takeover.EXCLUSIVE:
            return None
        if self.holder is not None and not self.holder.over:
            return self.holder
        main_ms = session.negotiated_ms

        def changed(change: ConnectionState) -> None:
            log.info("zookeeper", connection=change.value, session="holder")
            if change is ConnectionState.EXPIRED:
                on_change("EXPIRED", znode_paths.CONTROLLER)

        holder = Session(
            self._settings.zookeeper,
            self._settings.session_timeout_ms,
            changed,
            self._metrics,
            access=self._access,
        )
        try:
            await holder.start(self._settings.connection_timeout_ms / 1000)
        except BaseException:
            await holder.close()
            raise
        self.holder = holder
        holder.report_timeout()
        if not takeover.outlives(holder.negotiated_ms, main_ms):
            log.warning(
                "holder_session_short",
                why="a standby may not claim in time: "
                + takeover.remedy(holder.negotiated_ms, self._settings.session_timeout_ms),
                session_timeout_ms=main_ms,
                holder_timeout_ms=holder.negotiated_ms,
            )
        return holder

    # giving up

    async def hand_over(self, session: Session, won: Won) -> None:
        """Let a standby of ours claim: our registration goes, which is what it waits for."""
        with suppress(NoNodeError):
            await session.delete(znode_paths.candidate_path(self._settings.controller_id))
        await self._wait_for_claim(session, won.owner or 0)

    async def close(self) -> None:
        """The process ends, its registration is gone: leave ``/controller`` to a standby, else to the brokers."""
        holder, self.holder = self.holder, None
        if holder is None:
            return
        if holder.connected:
            with suppress(ControllerError, ConnectionLossError):
                await self._wait_for_claim(holder, holder.id)
        await holder.close()

    async def _wait_for_claim(self, session: Session, owner: int) -> None:
        """Until ``/controller`` is another's, or there is no standby that could claim it, or time is up."""
        changed = asyncio.Event()
        timeout_ms = self.holder.negotiated_ms if self.holder else session.negotiated_ms

        def on_change(_kind: str, _path: str) -> None:
            changed.set()

        # The first request, too: without a connection it would wait for as long as ZooKeeper is away.
        with suppress(TimeoutError):
            async with asyncio.timeout(takeover.hand_over_s(timeout_ms)):
                first = stat = await session.exists(znode_paths.CONTROLLER, on_change)
                while stat is not None and first is not None and stat.owner == owner:
                    if stat.czxid != first.czxid or not await self.standbys(session, on_change):
                        return
                    await changed.wait()
                    changed.clear()
                    stat = await session.exists(znode_paths.CONTROLLER, on_change)

    async def standbys(self, session: Session, on_change: OnChange | None = None) -> list[str]:
        """Ids of the other controllers of ours that are registered."""
        found = await session.children(znode_paths.CONTROLLER_IDS, on_change)
        return sorted(set(found) - {str(self._settings.controller_id)})


async def _resignation(session: Session, on_change: OnChange) -> Resignation | None:
    if await session.exists(RESIGNATION, on_change) is None:
        return None
    try:
        data, _ = await session.get(RESIGNATION)
        return single_codecs.decode(RESIGNATION, data)
    except NoNodeError:
        return None
    except MalformedError as error:
        return Resignation(str(error), "", 0)
