"""The controller process: candidate, active, candidate again, until it is stopped.

One ZooKeeper session follows another; within a session, one term follows another. No state is carried over.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from controller.core import znode_paths
from controller.core.records import ControllerChange, FailoverPhase, LogBatch, Rejection
from controller.errors import (
    ControllerError,
    LeadershipError,
    MalformedError,
    OutrankedError,
    SessionLostError,
)
from controller.runtime import controller_election, lease
from controller.runtime.claimant import Claimant
from controller.runtime.config import Settings, describe
from controller.runtime.controller_election import Lost, Won
from controller.runtime.higher_epochs import Outranked
from controller.runtime.kafka.connection import ClientSecurity
from controller.runtime.kafka.endpoints import Addresses, listeners_of
from controller.runtime.kafka.security.acls import AclAuthorizer
from controller.runtime.kafka.security.setup import authorizer, client_security, zookeeper_access
from controller.runtime.observe import records
from controller.runtime.observe.history import Journal, Recent
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.kafka_transport import KafkaSide
from controller.runtime.takeover import Takeover
from controller.runtime.term import Term
from controller.runtime.zookeeper import jute, single_codecs
from controller.runtime.zookeeper.session import Connection, ConnectionLossError, NoNodeError, Session
from controller.runtime.zookeeper.single_codecs import RESIGNATION, Resignation
from proto.reload import Reloads
from proto.security.authorization import Authorizer
from proto.statelog.writer import Rotation, StateLogWriter

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Characters of the current event in a crash file: a request can name tens of thousands of partitions.
EVENT_CHARS_MAX = 100_000


class Role(Enum):
    STARTING = "starting"
    STANDBY = "standby"
    ACTIVE = "active"
    STOPPED = "stopped"


class StopRequested(LeadershipError):  # noqa: N818  (a request, not a fault)
    """The process was asked to stop (SIGTERM, SIGINT)."""


class Resigned(LeadershipError):  # noqa: N818  (a request, not a fault)
    """An operator asked to resign. ``to_kafka``: a broker shall take over, else a standby of ours."""

    def __init__(self, to_kafka: bool, author: str) -> None:
        super().__init__(f"{author} asked to resign" + (" in favour of Kafka's brokers" if to_kafka else ""))
        self.to_kafka = to_kafka


class Daemon:
    """The state of the process, which servers read, and its main loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        #: What SIGHUP reads again.
        self.reloads = Reloads()
        self.metrics = ControllerMetrics(self.registry)
        self.state_log = StateLogWriter(
            settings.state_log_dir,
            "controller",
            settings.controller_id,
            Rotation(
                settings.state_log_rotate_bytes,
                settings.state_log_rotate_seconds,
                settings.state_log_files_kept,
            ),
        )
        #: Records of all terms of this process.
        self.recent = Recent(settings.controller_id, settings.history_records_max)
        self._journal = Journal(self.state_log, self.recent)
        self.role = Role.STARTING
        self.term: Term | None = None
        self.session: Session | None = None
        #: Last controller seen in /controller: id and gRPC address.
        self.current_controller: Lost = Lost(-1)
        #: How far brokers are ahead of the controller epoch, and how often that was put right.
        self.outranked = Outranked()
        #: How sessions log in to ZooKeeper.
        self.zookeeper_access = zookeeper_access(settings)
        self.claimant = Claimant(settings, self.metrics.zookeeper, self.zookeeper_access)
        self.grpc_endpoint = settings.grpc_listen
        self.http_endpoint = settings.http_listen
        #: Under which Kafka brokers and clients reach this controller; empty: they are not told.
        self.kafka_addresses: Addresses = {}
        #: Secures the connections to Kafka brokers.
        self.kafka_security: ClientSecurity = client_security(settings)
        #: Called before each RPC and each request of Kafka's protocol.
        self.authorizer: Authorizer = authorizer(settings)
        #: Without ``kafka_takeover``: a broker has been controller, so an absent /controller is left to brokers.
        self._seen_kafkas_controller = False
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._suspended = False

    @property
    def active(self) -> bool:
        """Whether this controller leads: elected, failover completed, and its lease holds."""
        term = self.term
        return term is not None and term.machine.ready and term.session.lease_remaining_s() > 0

    async def read_node(self, path: str) -> bytes | None:
        """The content of a znode, None if it does not exist. Raises ControllerError while ZooKeeper is away."""
        if self.session is None:
            raise SessionLostError("ZooKeeper does not answer")
        try:
            data, _ = await self.session.get(path)
        except NoNodeError:
            return None
        except ConnectionLossError:
            raise SessionLostError("ZooKeeper does not answer") from None
        return data

    def stop(self) -> None:
        """Resign and end (SIGTERM)."""
        self._stopping.set()
        self._changed.set()
        if self.term is not None:
            self.term.end(StopRequested("stop requested"))

    async def run(self) -> None:
        """Run until stopped. A bug raises its exception; expected errors are handled here."""
        self._life(Role.STARTING, "started")
        try:
            await self._sessions()
        finally:
            await self.claimant.close()
        self._life(Role.STOPPED, "stop requested")

    async def _sessions(self) -> None:
        """One session after the other."""
        retry_s = lease.SESSION_RETRY_FIRST_S
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                await self._one_session()
            except (ControllerError, ConnectionLossError) as error:
                if self._stopping.is_set():
                    break
                if time.monotonic() - began > lease.SESSION_LIVED_S:
                    retry_s = lease.SESSION_RETRY_FIRST_S
                log.warning("session_over", why=str(error), next_attempt_in_s=retry_s)
                with suppress(TimeoutError):
                    async with asyncio.timeout(retry_s):
                        await self._stopping.wait()
                retry_s = lease.session_retry_s(retry_s)

    async def _one_session(self) -> None:
        settings = self.settings
        session = Session(
            settings.zookeeper,
            self.claimant.main_timeout_ms,
            self._connection_changed,
            self.metrics.zookeeper,
            access=self.zookeeper_access,
        )
        following: asyncio.Task[None] | None = None
        try:
            await self._unless_stopping(session.start(settings.connection_timeout_ms / 1000))
            if self._stopping.is_set():
                return
            self.session, self._suspended = session, False
            if isinstance(self.authorizer, AclAuthorizer):
                following = asyncio.create_task(self.authorizer.follow(session))
            await self._unless_stopping(self._register(session))
            await self._candidate(session)
        finally:
            self.session = None
            if following is not None:
                following.cancel()
            await session.close()

    async def _register(self, session: Session) -> None:
        await controller_election.ensure_paths(
            session, self.settings.controller_id, self.grpc_endpoint, self.http_endpoint
        )

    def _connection_changed(self, change: Connection) -> None:
        log.info("zookeeper", connection=change.value)
        if change is Connection.SUSPENDED:
            self._suspended = True
        elif change is Connection.CONNECTED and self._suspended:
            self._suspended = False
            if isinstance(self.authorizer, AclAuthorizer):
                self.authorizer.reconnected()
            if self.term is not None:
                self.term.reconnected()
        elif change is Connection.EXPIRED and self.term is not None:
            self.term.end(SessionLostError("the ZooKeeper session expired"))
        self._changed.set()

    def _controller_changed(self, kind: str, path: str) -> None:
        """The watch on /controller fired."""
        log.debug("controller_znode", change=kind, path=path)
        self._changed.set()

    async def _candidate(self, session: Session) -> None:
        """Take part in elections, and lead or wait, while the session lives."""
        malformed: str | None = None
        while not self._stopping.is_set():
            self._changed.clear()
            if session.over:
                return
            began = time.monotonic()
            try:
                result = await self._unless_stopping(self._attempt(session))
            except ConnectionLossError:
                await self._wait_for_change(lease.ELECTION_RETRY_S)
                continue
            except MalformedError as error:
                # Without a readable epoch no controller can be fenced, so none may lead until it is repaired.
                if malformed != str(error):
                    malformed = str(error)
                    log.error("cannot_elect", path=error.path, problem=error.problem)
                    self._reject("MALFORMED", malformed)
                await self._wait_for_change(lease.ELECTION_RETRY_S)
                continue
            malformed = None
            if result is None:
                return
            if isinstance(result, Won):
                await self._lead(session, result, time.monotonic() - began)
                if self.claimant.mode is not Takeover.OFF:
                    # A hand-over begins with the end of the registration.
                    await self._unless_stopping(self._register(session))
            else:
                self._follow(result)
                # No known leader: /controller was deleted meanwhile, or cannot be read.
                known = result.controller_id >= 0
                await self._wait_for_change(self.claimant.wait_s() if known else lease.ELECTION_RETRY_S)

    async def _attempt(self, session: Session) -> Won | Lost:
        if self.claimant.mode is Takeover.OFF:
            result = await controller_election.elect(
                session,
                self.settings.controller_id,
                self.grpc_endpoint,
                self._controller_changed,
                leave_to_brokers=self._seen_kafkas_controller,
            )
            if isinstance(result, Lost) and result.controller_id >= 0 and not result.endpoint:
                self._seen_kafkas_controller = True
            return result
        return await self.claimant.attempt(
            session, self.grpc_endpoint, self._controller_changed, self.kafka_addresses
        )

    async def _unless_stopping(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result, or None when a stop comes first: kazoo keeps a request for as long as ZooKeeper is away."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for future in (task, stopping):
                future.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _wait_for_change(self, timeout_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _follow(self, result: Lost) -> None:
        if self.role is not Role.STANDBY or result != self.current_controller:
            self.current_controller = result
            if result.kafka_brokers:
                known = f"kafka_takeover is off, and brokers {list(result.kafka_brokers)} are Kafka's"
            elif result.controller_id >= 0:
                known = f"controller {result.controller_id} is active"
            else:
                known = "no controller is active"
            self._life(Role.STANDBY, known)

    async def _lead(self, session: Session, won: Won, election_s: float) -> None:
        structlog.contextvars.bind_contextvars(controller_epoch=won.epoch)
        self.current_controller = Lost(self.settings.controller_id, self.grpc_endpoint)
        kafka = KafkaSide(listeners_of(self.settings), self.kafka_security, self.kafka_addresses)
        term = self.term = Term(
            session, won, self.settings, self._journal, self.metrics, self._ready, kafka, self.outranked
        )
        if self._stopping.is_set():
            # The stop came before the election's response, when there was no term to end.
            term.end(StopRequested("stop requested"))
        self._life(Role.ACTIVE, f"elected at controller epoch {won.epoch}")
        phase = FailoverPhase("election", 1, int(election_s * 1e6))
        self._journal.record(LogBatch([phase], "", "ControllerFailover", 1), won.epoch)
        reason, ended = "bug", None
        try:
            await term.run()
        except LeadershipError as error:
            reason, ended = type(error).__name__, error
            log.warning("resigned", why=str(error))
            self._life(Role.STANDBY, str(error), "resigned")
        finally:
            self.term = None
            self.metrics.resignations.labels(reason).inc()
            structlog.contextvars.unbind_contextvars("controller_epoch")
            # Without a connection the next attempt sees to /controller, or the session's end does.
            if session.connected:
                with suppress(LeadershipError, TimeoutError):
                    async with asyncio.timeout(lease.resign_timeout_s(self.settings.session_timeout_ms)):
                        await self._give_up(session, won, ended)
            self.recent.end_term()

    async def _give_up(self, session: Session, won: Won, ended: LeadershipError | None) -> None:
        """With ``kafka_takeover``, ``/controller`` stays: this process claims over its own, the end of its sessions
        hands it over, or the next attempt finds that it may not claim, and deletes it (``Claimant.attempt``)."""
        if isinstance(ended, OutrankedError):
            await controller_election.raise_epoch(session, won, ended.epoch)
        if self.claimant.mode is Takeover.OFF:
            await controller_election.resign(session)
        elif isinstance(ended, Resigned) and not ended.to_kafka:
            with suppress(ConnectionLossError):
                await self.claimant.hand_over(session, won)

    # requests of operators about who leads

    async def resign(self, reason: str, author: str, *, to_kafka: bool) -> str:
        """Resign in favour of a standby, or of Kafka's brokers until ``claim_again``; why not, empty: it does.

        Call it only while active. Raises ConnectionLossError, LeadershipError.
        """
        term = self.term
        assert term is not None
        session = term.session
        if self.claimant.mode is Takeover.OFF:
            return "kafka_takeover is off"
        if to_kafka:
            value = Resignation(reason, author, time.time_ns() // 1_000_000)
            data = single_codecs.encode(RESIGNATION, value)
            fence = jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), term.won.epoch_version)
            try:
                await session.multi([fence, session.op_create(RESIGNATION, data)])
            except jute.MultiError as error:
                # One that exists is of a request whose reply was lost, or of another controller's.
                if error.code != jute.NODE_EXISTS:
                    return f"{RESIGNATION} could not be written: {error}"
        elif not await self.claimant.standbys(session):
            return "no other controller is registered that could take over"
        term.end(Resigned(to_kafka, author))
        return ""

    async def claim_again(self) -> str:
        """Undo a resignation in favour of Kafka's brokers, and claim at once; why not, empty: it does.

        Raises ConnectionLossError, LeadershipError.
        """
        if self.claimant.mode is Takeover.OFF:
            return "kafka_takeover is off"
        if self.session is None:
            return "ZooKeeper does not answer"
        self.claimant.forget_claims()
        with suppress(NoNodeError):
            await self.session.delete(RESIGNATION)
        self._changed.set()
        return ""

    def _ready(self) -> None:
        log.info("ready", why="failover completed")

    # records

    def _life(self, role: Role, reason: str, to: str | None = None) -> None:
        before, self.role = self.role, role
        change = ControllerChange(to or role.value, reason, before.value)
        if role is Role.STARTING:
            change = ControllerChange("started", reason)
        batch = LogBatch([change], "", "Controller")
        for line in records.expand(batch):
            log.info("controller", **{field: value for field, value in line.items() if field != "kind"})
        self._append(batch)

    def _reject(self, error: str, reason: str) -> None:
        self._append(LogBatch([Rejection(error, reason)], "", "Controller"))

    def _append(self, batch: LogBatch) -> None:
        self._journal.record(batch, self.term.won.epoch if self.term else -1)

    def dump(self, error: BaseException) -> Path:
        """Write the state at a bug to a crash file; return its path."""
        path = self.settings.state_log_dir / f"crash-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
        term = self.term
        state = {
            "error": "".join(traceback.format_exception(error)),
            "role": self.role.value,
            "settings": {name: value for name, value, _ in describe(self.settings)},
            "controller_epoch": term.won.epoch if term else -1,
            "event": str(term.machine.current_event)[:EVENT_CHARS_MAX] if term else "",
            "brokers": {str(b.id): b.epoch for b in term.machine.cluster.brokers.values()} if term else {},
            "problems": term.machine.cluster.problems if term else {},
            "python": sys.version,
        }
        path.write_text(json.dumps(state, indent=1))
        return path
