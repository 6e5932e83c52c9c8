"""The controller process: candidate, active, candidate again, until it is stopped.

One ZooKeeper session follows another; within a session, one term follows another. No state is carried over.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from controller.core.cluster.quarantine import Quarantine
from controller.core.model import Cluster, Topic
from controller.core.records import ControllerChange, FailoverPhase, LogBatch, Rejection
from controller.errors import (
    ControllerError,
    DuplicateIdError,
    LeadershipError,
    MalformedError,
    OutrankedError,
    SessionLostError,
    reason_of,
)
from controller.runtime import crash_files, lease, quarantine
from controller.runtime.audit.expected import Expected
from controller.runtime.config import Settings, Takeover, config_errors
from controller.runtime.election import controller_election, succession, term_history
from controller.runtime.election.claimant import Claimant
from controller.runtime.election.controller_election import Candidate, Lost, Won
from controller.runtime.election.higher_epochs import Outranked
from controller.runtime.election.registration import Registration
from controller.runtime.election.succession import Succession
from controller.runtime.election.term_history import Patience
from controller.runtime.kafka.asking import BrokerQuestions
from controller.runtime.kafka.endpoints import Addresses, listeners_of
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.kafka.security.setup import (
    access,
    acl_authorizer,
    client_security,
    kafka_tls_files,
    zookeeper_access,
)
from controller.runtime.observe import records
from controller.runtime.observe.audit_log import AuditLog
from controller.runtime.observe.history import Journal, Recent
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.observe.trace_ids import NOT_TRACED, trace_ids
from controller.runtime.observe.traces import open_traces
from controller.runtime.push.kafka_transport import KafkaSide
from controller.runtime.term import Term
from controller.runtime.zookeeper.session import (
    AccessError,
    ConnectionLossError,
    ConnectionState,
    NoNodeError,
    Session,
)
from controller.runtime.zookeeper.standby import Standby
from controller.runtime.zookeeper.state_mirror import LET_GO_MAX
from proto.incarnations import Incarnation, new_incarnation
from proto.reload import Reloads
from proto.security.authorization import Authorizer
from proto.security.expiry import Certificates
from proto.security.files import FromFiles
from proto.security.grpc_channels import PemTls, daemon_tls
from proto.security.tls import server_contexts
from proto.statelog.writer import Rotation, StateLogWriter
from proto.tasks import end_all, failures_to

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Pause after a term that ended with a bug: it doubles with each one, until none has for this long.
BUG_PAUSE_S, BUG_PAUSE_MAX_S, BUGS_FORGOTTEN_S = 0.5, 30.0, 600.0


class Role(Enum):
    STARTING = "starting"
    STANDBY = "standby"
    ACTIVE = "active"
    STOPPED = "stopped"


class StopRequested(LeadershipError):  # noqa: N818  (a request, not a fault)
    """The process was asked to stop (SIGTERM, SIGINT)."""


class Resigned(LeadershipError):  # noqa: N818  (a request, not a fault)
    """An operator asked to resign. ``to_kafka``: a broker shall take over, else a standby of ours; ``successor``:
    which one, if it was named."""

    def __init__(self, to_kafka: bool, author: str, successor: int | None = None) -> None:
        favoured = "Kafka's brokers" if to_kafka else "" if successor is None else f"controller {successor}"
        super().__init__(f"{author} asked to resign" + (f" in favour of {favoured}" if favoured else ""))
        self.to_kafka = to_kafka


class Released(LeadershipError):  # noqa: N818  (a request, not a fault)
    """An operator let a suspect out of quarantine: the next term reads everything again."""


class Daemon:
    """The state of the process, which servers read, and its main loop."""

    def __init__(self, settings: Settings, incarnation: Incarnation | None = None) -> None:
        """``incarnation``: None: one that has no former selves."""
        self.settings = settings
        self._incarnation = incarnation or new_incarnation()
        self.registry = CollectorRegistry()
        #: What SIGHUP reads again.
        self.reloads = Reloads()
        self.metrics = ControllerMetrics(self.registry)
        self.role = Role.STARTING
        self.term: Term | None = None
        self.session: Session | None = None
        #: Id of the last controller seen in /controller; -1: none.
        self.current_controller = -1
        #: Why nobody can be elected, as this candidate has found; empty: nothing is in the way.
        self.cannot_elect = ""
        #: Whom this standby has said that it follows.
        self._followed: Lost | None = None
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
        self._read_certificates()
        self._open_records()
        #: Kafka's ACLs; None: they are not followed.
        self.acls = acl_authorizer(settings)
        access_ = access(settings, self.acls)
        #: Called before each RPC, and before each request of Kafka's protocol unless the ACLs are.
        self.authorizer: Authorizer = access_.authorizer
        self.callers, self.openness = access_.callers, access_.openness
        #: Asks Kafka brokers what only they know.
        self.questions = BrokerQuestions(
            str(settings.controller_id), listeners_of(settings), self.kafka_security
        )
        #: Partitions that former terms and sessions had in memory, since the last full collection.
        self._let_go = 0
        #: What this candidate keeps in memory for its next term.
        self.standby: Standby | None = None
        #: What brokers should hold at the beginning of its next term.
        self._expected = Expected(Cluster(settings.controller_id))
        self._succession = Succession(settings.controller_id)
        self._patience = Patience(settings.controller_id)
        #: Without ``kafka_takeover``: a broker has been controller, so an absent /controller is left to brokers.
        self._seen_kafkas_controller = False
        #: Until then no election is held: ZooKeeper has older data than before, and brokers register again.
        self._brokers_first_until = 0.0
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._suspended = False
        #: Terms in a row that ended with a bug, and when the last one did.
        self._bugs, self._last_bug_s = 0, -BUGS_FORGOTTEN_S
        #: Of the session, and what ended the keeping of it.
        self._registration: Registration | None = None
        self._fatal: BaseException | None = None

    def _open_records(self) -> None:
        """Raises OSError, ConfigError."""
        settings = self.settings
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
        ids = trace_ids(self._incarnation.own) if settings.otlp_endpoint else NOT_TRACED
        #: None: nobody is told of events.
        self.traces = open_traces(settings, self.tls, ids) if settings.otlp_endpoint else None
        #: Records of all terms of this process.
        self.recent = Recent(settings.controller_id, settings.history_records_max, ids)
        self._journal = Journal(self.state_log, self.recent, self.traces)
        self.audit_log = AuditLog(self._journal)

    def _read_certificates(self) -> None:
        """Raises ConfigError."""
        settings = self.settings
        own = settings.tls_files
        #: TLS of the HTTP server; None: it has none.
        self.https: FromFiles[ssl.SSLContext] | None = None
        with config_errors(settings.sources):
            #: TLS of gRPC, in both directions; None: without.
            self.tls: PemTls | None = daemon_tls(settings)
            if settings.https and own is not None:
                self.https = server_contexts(own, settings.http_client_auth)
            #: Of all that this process uses it warns before they end.
            self.certificates = Certificates(own, kafka_tls_files(settings), settings.zookeeper_tls_files)
        if self.tls is not None:
            self.reloads.on_reload("certificates", self.tls.reload)
        if self.https is not None:
            self.reloads.on_reload("certificates of HTTP", self.https.reload)

    @property
    def epoch(self) -> int:
        """The controller epoch that this controller leads under; -1: it does not lead."""
        return self.term.won.epoch if self.term is not None else -1

    @property
    def kafka_authorizer(self) -> Authorizer:
        """Called before each request of Kafka's protocol."""
        return self.acls or self.authorizer

    @property
    def active(self) -> bool:
        """Whether this controller leads: elected, failover completed, and its lease holds."""
        term = self.term
        return term is not None and term.machine.ready and term.session.lease_remaining_s() > 0

    @property
    def leading(self) -> Term | None:
        """The term while this controller leads."""
        return self.term if self.active else None

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
        """Run until stopped. A bug raises its exception; expected errors are handled here, except DuplicateIdError."""
        self._life(Role.STARTING, "started")
        try:
            await self._sessions()
            if self._fatal is not None:
                raise self._fatal
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
            except DuplicateIdError:
                raise
            except (ControllerError, ConnectionLossError) as error:
                if self._stopping.is_set():
                    break
                if time.monotonic() - began > lease.SESSION_LIVED_S:
                    retry_s = lease.SESSION_RETRY_FIRST_S
                log.warning("session_over", why=reason_of(error), next_attempt_in_s=retry_s)
                with suppress(TimeoutError):
                    async with asyncio.timeout(retry_s):
                        await self._stopping.wait()
                retry_s = lease.session_retry_s(retry_s)

    def _collect(self) -> None:
        """Free what a former term or session had in memory: nothing else does, see ``LET_GO_MAX``. Takes 0.1 s for
        300,000 partitions, in which this process leads nothing."""
        if self._let_go >= LET_GO_MAX:
            self._let_go = 0
            gc.collect()

    async def _one_session(self) -> None:
        settings = self.settings
        session = Session(
            settings.zookeeper,
            self.claimant.main_timeout_ms,
            self._connection_changed,
            self.metrics.zookeeper,
            access=self.zookeeper_access,
        )
        beside: list[asyncio.Task[None]] = []
        standby = Standby(session, self.metrics.standby, self._digest) if settings.warm_standby else None
        self.standby = standby
        try:
            await self._unless_stopping(session.start(settings.connection_timeout_ms / 1000))
            if self._stopping.is_set():
                return
            session.report_timeout()
            self.session, self._suspended = session, False
            # Not before: the connection of the session before this one may have held on to it for a moment.
            self._collect()
            if self.acls is not None:
                beside.append(asyncio.create_task(self.acls.follow(session)))
            registration = self._registration = Registration(session, self._me, self.http_endpoint)
            await self._unless_stopping(registration.create())
            if self._stopping.is_set():
                return
            keeping = asyncio.create_task(registration.keep())
            keeping.add_done_callback(failures_to(self._not_registered))
            beside.append(keeping)
            await self._candidate(session)
        finally:
            self.session = self.standby = self._registration = None
            if standby is not None:
                await standby.pause()
                self._let_go += standby.mirror.size + standby.mirror.let_go
            for task in beside:
                task.cancel()
            if session.went_back:
                self._let_brokers_register(session.negotiated_ms / 1000)
            await session.close()

    def _let_brokers_register(self, wait_s: float) -> None:
        """Who was elected before they have would lead by the older data, under leader epochs that were others'."""
        self._brokers_first_until = time.monotonic() + wait_s
        todo = "see the runbook 'ZooKeeper was restored from a backup'"
        log.error("zookeeper_went_back", no_election_for_s=wait_s, todo=todo)

    @property
    def _me(self) -> Candidate:
        id_, host = self.settings.controller_id, socket.gethostname()
        return Candidate(id_, self.grpc_endpoint, self._incarnation, host)

    def _not_registered(self, error: BaseException) -> None:
        """There is another process with our id, or a bug."""
        self._fatal = error
        self.stop()

    def _connection_changed(self, change: ConnectionState) -> None:
        log.info("zookeeper", connection=change.value)
        if change is ConnectionState.SUSPENDED:
            self._suspended = True
        elif change is ConnectionState.CONNECTED and self._suspended:
            self._suspended = False
            if self.acls is not None:
                self.acls.reconnected()
            if self.term is not None:
                self.term.reconnected()
        elif change is ConnectionState.EXPIRED and self.term is not None:
            self.term.end(SessionLostError("the ZooKeeper session expired"))
        self._changed.set()
        if self._registration is not None:
            self._registration.look()

    def _controller_changed(self, kind: str, path: str) -> None:
        """The watch on /controller fired."""
        log.debug("controller_znode", change=kind, path=path)
        self._changed.set()

    async def _candidate(self, session: Session) -> None:
        """Take part in elections, and lead or wait, while the session lives."""
        self.cannot_elect = ""
        with suppress(ConnectionLossError):
            await self._unless_stopping(self._patience.learn(session))
        while not self._stopping.is_set():
            self._changed.clear()
            if session.over:
                return
            began = time.monotonic()
            held_back = began < self._brokers_first_until
            try:
                result = await self._unless_stopping(self._attempt(session))
            except ConnectionLossError:
                await self._wait_for_change(lease.ELECTION_RETRY_S)
                continue
            except (MalformedError, AccessError) as error:
                # Without a readable epoch no controller can be fenced, so none may lead until it is repaired.
                if self.cannot_elect != str(error):
                    self.cannot_elect = str(error)
                    log.error("cannot_elect", why=self.cannot_elect)
                    self._reject(
                        "MALFORMED" if isinstance(error, MalformedError) else "DENIED", self.cannot_elect
                    )
                await self._wait_for_change(lease.ELECTION_RETRY_S)
                continue
            self.cannot_elect = ""
            if result is None:
                return
            if isinstance(result, Won):
                last_bug_s = self._last_bug_s
                await self._lead(session, result, time.monotonic() - began)
                self._collect()
                if self._last_bug_s != last_bug_s:
                    await self._pause_after_bug()
                registration = self._registration
                if registration is not None and registration.withdrawn:
                    await self._unless_stopping(registration.create())
            else:
                if self.standby is not None:
                    self.standby.follow()
                self._follow(result)
                # No known leader: /controller was deleted meanwhile, or cannot be read. Whose it is while we hold back
                # says nothing: we may have to claim it then.
                known = result.controller_id >= 0 and not held_back
                await self._wait_for_change(self.claimant.wait_s() if known else lease.ELECTION_RETRY_S)

    async def _attempt(self, session: Session) -> Won | Lost:
        if time.monotonic() < self._brokers_first_until:
            return await controller_election.look(session, self._controller_changed)
        if self.claimant.mode is Takeover.OFF:
            if await self._succession.leaves_to_another(session) or await self._patience.leaves_to_another(
                session
            ):
                return await controller_election.look(session, self._controller_changed)
            result = await controller_election.elect(
                session,
                self._me,
                self._controller_changed,
                leave_to_brokers=self._seen_kafkas_controller,
            )
            if isinstance(result, Lost) and result.controller_id >= 0 and not result.endpoint:
                self._seen_kafkas_controller = True
            if isinstance(result, Won):
                await succession.end_quietly(session)
            return result
        return await self.claimant.attempt(session, self._me, self._controller_changed, self.kafka_addresses)

    async def _unless_stopping(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result, or None when a stop comes first: kazoo keeps a request for as long as ZooKeeper is away."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await end_all([task, stopping])

    async def _wait_for_change(self, timeout_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _follow(self, result: Lost) -> None:
        if self.role is not Role.STANDBY or result != self._followed:
            self.current_controller, self._followed = result.controller_id, result
            if result.kafka_brokers:
                known = f"kafka_takeover is off, and brokers {list(result.kafka_brokers)} are Kafka's"
            elif result.controller_id >= 0:
                known = f"controller {result.controller_id} is active"
            else:
                known = "no controller is active"
            self._life(Role.STANDBY, known)

    async def _digest(self, name: str, topic: Topic | None) -> None:
        await self._expected.prepare(name, topic)

    async def _lead(self, session: Session, won: Won, election_s: float) -> None:
        # Before anything is said of this term: the session may end meanwhile.
        left_out = await self._quarantine(session)
        prepared = await self.standby.settled() if self.standby is not None else None
        structlog.contextvars.bind_contextvars(controller_epoch=won.epoch)
        self.current_controller = self.settings.controller_id
        expected, self._expected = self._expected, Expected(Cluster(self.settings.controller_id))
        kafka = KafkaSide(listeners_of(self.settings), self.kafka_security, self.kafka_addresses)
        term = self.term = Term(
            session,
            won,
            self.settings,
            self._journal,
            self.metrics,
            kafka=kafka,
            questions=self.questions,
            outranked=self.outranked,
            tls=self.tls,
            quarantine=left_out,
            mirror=prepared,
            expected=expected,
            on_ready=lambda: log.info("ready", why="failover completed"),
        )
        if self._stopping.is_set():
            # The stop came before the election's response, when there was no term to end.
            term.end(StopRequested("stop requested"))
        self._life(Role.ACTIVE, f"elected at controller epoch {won.epoch}")
        phase = FailoverPhase("election", 1, int(election_s * 1e6))
        self._journal.record(LogBatch([phase], "", "ControllerFailover", 1), won.epoch)
        reason, ended, bug = "bug", None, None
        failed: Exception | None = None
        recorded = asyncio.create_task(term_history.begin(session, won, self.settings.controller_id))
        try:
            await term.run()
        except LeadershipError as error:
            reason, ended, failed = type(error).__name__, error, error
            log.warning("resigned", why=str(error))
            self._life(Role.STANDBY, str(error), "resigned")
        except (ControllerError, MemoryError) as error:
            failed = error
            raise
        except Exception as error:  # noqa: BLE001  (remembered; the next term has fresh state)
            bug = failed = error
            self._note_bug(term, bug)
        finally:
            self._let_go += sum(len(topic.partitions) for topic in term.machine.cluster.topics.values())
            self.term, self.current_controller, self._followed = None, -1, None
            self.metrics.resignations.labels(reason).inc()
            structlog.contextvars.unbind_contextvars("controller_epoch")
            recorded.cancel()
            # Without a connection the next attempt sees to /controller, or the session's end does.
            if session.connected:
                with suppress(LeadershipError, TimeoutError):
                    async with asyncio.timeout(lease.resign_timeout_s(self.settings.session_timeout_ms)):
                        if bug is not None:
                            await self._remember(term, bug)
                        await self._end_term_record(session, won, failed)
                        await self._give_up(session, won, ended)
            self.recent.end_term()

    async def _end_term_record(self, session: Session, won: Won, ended: Exception | None) -> None:
        requested = isinstance(ended, StopRequested | Resigned | Released)
        if not requested:
            self._patience.failed()
        await term_history.end(session, won, str(ended) or type(ended).__name__, requested=requested)

    async def _quarantine(self, session: Session) -> Quarantine:
        """What the next term leaves out. Raises LeadershipError."""
        while True:
            try:
                return await self._unless_stopping(quarantine.read(session)) or Quarantine()
            except ConnectionLossError:
                await asyncio.sleep(lease.ELECTION_RETRY_S)
                session.require_lease()

    def _note_bug(self, term: Term, bug: Exception) -> None:
        """A term ended with an unexpected exception: write a crash file."""
        dump = crash_files.write(bug, self.settings, self.role.value, term)
        log.error("bug", dump=dump and str(dump), error=repr(bug), epoch=term.won.epoch, exc_info=bug)
        self._life(Role.STANDBY, f"unexpected {type(bug).__name__}", "resigned")
        before, self._last_bug_s = self._last_bug_s, time.monotonic()
        self._bugs = self._bugs + 1 if self._last_bug_s - before < BUGS_FORGOTTEN_S else 1

    async def _remember(self, term: Term, bug: Exception) -> None:
        """Let the next term know what raised."""
        event = term.machine.current_event
        noted = await quarantine.remember(term.session, term.won, self.settings.controller_id, bug, event)
        if noted is not None:
            log.error(
                "quarantined" if noted.quarantined else "suspected",
                name=str(noted.subject),
                why=str(noted),
                count=noted.count,
            )

    async def _pause_after_bug(self) -> None:
        """Leave the next attempt to others: they may not meet what raised here."""
        pause_s = min(BUG_PAUSE_S * 2 ** (self._bugs - 1), BUG_PAUSE_MAX_S)
        log.warning("pause_after_bug", seconds=pause_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    async def _give_up(self, session: Session, won: Won, ended: LeadershipError | None) -> None:
        """With ``kafka_takeover``, ``/controller`` stays: this process claims over its own, the end of its sessions
        hands it over, or the next attempt finds that it may not claim, and deletes it (``Claimant.attempt``)."""
        if isinstance(ended, OutrankedError):
            await controller_election.raise_epoch(session, won, ended.epoch)
        if self.claimant.mode is Takeover.OFF:
            await controller_election.resign(session)
        elif isinstance(ended, Resigned) and not ended.to_kafka:
            # It begins with the end of our registration.
            if self._registration is not None:
                self._registration.withdrawn = True
            with suppress(ConnectionLossError):
                await self.claimant.hand_over(session, won)

    def try_again(self) -> None:
        """Make the next attempt to be elected at once."""
        self._changed.set()

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
