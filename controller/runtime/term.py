"""One term of leadership: it drives the core's machine and performs the effects that the machine returns.

A term ends with a LeadershipError (fenced, session lost, lease over, stop requested). The next term starts with
empty state (KAFKA-5310).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import count
from typing import Any

import structlog

from controller.core.cluster import maintenance
from controller.core.cluster.configs import purge_due
from controller.core.cluster.quarantine import Quarantine, Suspect
from controller.core.context import CoreSettings
from controller.core.effects import Effect, Outcome, described
from controller.core.events import DiskReport, Event, EventKind, Finished, StatesCheck, StopReport, TellAgain
from controller.core.handlers import answer_with, event_of, not_controller
from controller.core.machine import Machine, Ready
from controller.core.model import ControlProtocol
from controller.core.reassignment import stray_replicas
from controller.core.reassignment.phases import stalled_due
from controller.core.records import (
    AuditFinding,
    FailoverPhase,
    LeadershipChange,
    LogBatch,
    PartitionTransition,
    Rejection,
)
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.requests.brokers import BrokerRequest
from controller.core.requests.errors import ErrorCode
from controller.core.topics import forgotten
from controller.core.topics.deletion import retry_due
from controller.core.znode_paths import CONTROLLER
from controller.errors import FencedError, NamesakeError, OutrankedError
from controller.runtime import lease
from controller.runtime.audit.auditor import Auditor
from controller.runtime.audit.expected import Expected
from controller.runtime.audit.state_rounds import StateRounds
from controller.runtime.audit.transport import LeasedTransport, StateTransport
from controller.runtime.audit.whole_state import Comparisons
from controller.runtime.blame import request_digest
from controller.runtime.config import Settings
from controller.runtime.election import controller_election
from controller.runtime.election.controller_election import Won
from controller.runtime.election.higher_epochs import Outranked
from controller.runtime.kafka import delegation_tokens
from controller.runtime.kafka.asking import BrokerQuestions
from controller.runtime.kafka.own_registration import OwnRegistration
from controller.runtime.kafka.topic_ids import uuid_text
from controller.runtime.observe.history import Journal
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.observe.outages import Outages
from controller.runtime.observe.rejection_log import RejectionLog
from controller.runtime.push.grpc_transport import GrpcTransports
from controller.runtime.push.kafka_transport import KafkaSide, KafkaTransports
from controller.runtime.push.sender import Senders
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from controller.runtime.zookeeper.state_mirror import StateMirror
from controller.runtime.zookeeper.store import Store
from proto.security.grpc_channels import GrpcTls
from proto.tasks import end_all, failures_to

log = structlog.get_logger(__name__)

#: How often the term checks whether deletions are to be retried, and whether maintenance may end.
RETRY_LOOK_S = 1.0
#: Between two comparisons of some state znodes with the cluster state.
STATES_PAUSE_S = 1.0
#: Time from a failover to the first leader rebalance, and between the batches of a rate-limited one.
FIRST_REBALANCE_S, PACED_REBALANCE_S = 5.0, 1.0


def new_topic_id() -> str:
    """A random UUID as Kafka prints it: 22 characters of URL-safe base64, never beginning with a dash."""
    while True:
        topic_id = uuid_text(uuid.uuid4().bytes)
        if not topic_id.startswith("-"):
            return topic_id


def now_us() -> int:
    return time.monotonic_ns() // 1000


def core_settings(settings: Settings) -> CoreSettings:
    """The settings that the core's decisions depend on."""
    return CoreSettings(**{field.name: getattr(settings, field.name) for field in fields(CoreSettings)})


class Term:
    """One term, from the election to the resignation."""

    def __init__(
        self,
        session: Session,
        won: Won,
        settings: Settings,
        journal: Journal,
        metrics: ControllerMetrics,
        *,
        kafka: KafkaSide,
        questions: BrokerQuestions,
        outranked: Outranked,
        tls: GrpcTls | None,
        quarantine: Quarantine,
        mirror: StateMirror | None,
        expected: Expected,
        on_ready: Callable[[], None],
    ) -> None:
        """``mirror``: topics and partition states in memory, settled; None: all are read. ``expected``: digests, as far
        as they were computed ahead."""
        self.session, self.won = session, won
        self._journal, self._state_log, self._metrics = journal, journal.log, metrics
        self._on_ready = on_ready
        self._outranked = outranked
        #: What this term leaves out.
        self.quarantine = quarantine
        self.machine = Machine(
            settings.controller_id, won.epoch, core_settings(settings), new_topic_id, quarantine.events()
        )
        #: Whether Kafka's brokers find this controller.
        self.leads_kafka = settings.leads_kafka
        self._token_interval_s = settings.delegation_token_expiry_check_interval_ms / 1000
        self._failover_done, self._rebalanced = asyncio.Event(), asyncio.Event()
        #: Epochs of brokers that could not be compared: leaders return without waiting for them again.
        self._waited_for: frozenset[int] = frozenset()
        self._store = Store(session, won.epoch_version, self.enqueue, quarantine.paths(), mirror)
        cluster, bytes_max = self.machine.cluster, settings.message_bytes_max
        timeout_s = settings.request_timeout_ms / 1000
        #: Transports to Kafka brokers, which know their APIs.
        self.kafka = KafkaTransports(cluster, bytes_max, timeout_s, kafka)
        self._grpc = GrpcTransports(cluster, bytes_max, timeout_s, tls)
        self.senders = Senders(
            self.machine.outbox,
            {ControlProtocol.GRPC: self._grpc, ControlProtocol.KAFKA: self.kafka},
            metrics,
            require_lease=session.require_lease,
            record=self._record,
            suspect=self._suspect,
            report=self._report,
            heard=self._heard,
            on_bug=self.end,
            on_idle=self._rest,
        )
        expected.follow(cluster)
        self.auditor = self._new_auditor(expected, metrics, settings, questions)
        self._comparisons = self._new_comparisons(expected, metrics)
        self._state_rounds = StateRounds(cluster, settings.audit_interval_seconds)
        self._traces = journal.traces
        self._outages, self._rejections = Outages(metrics), RejectionLog()
        #: Callers that wait for a response, by the serial of their event. Each of them gets one.
        self._callers: dict[int, tuple[ControllerRequest, asyncio.Future[ControllerResponse]]] = {}
        self._serials = count(1)
        self._ended = False
        self._stimuli: deque[Event | Outcome] = deque()
        self._arrived = asyncio.Event()
        self._failure: BaseException | None = None
        #: A dict, because the order of a set of tasks differs from run to run.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.last_progress = time.monotonic()
        #: Checks of state znodes that found nothing: events that changed nothing.
        self._idle_checks, self._recorded = 0, False

    def _new_auditor(
        self,
        expected: Expected,
        metrics: ControllerMetrics,
        settings: Settings,
        questions: BrokerQuestions,
    ) -> Auditor:
        """Compares what brokers hold with what they were told, all the time."""
        return Auditor(
            self.machine.cluster,
            expected,
            metrics,
            settings.audit_interval_seconds,
            settled=self._is_settled,
            open_transport=self.open_transport,
            ask_kafka=questions.ask,
            tell=self._report,
            record=self._record_findings,
            heard=self._heard,
            version=lambda: self.version,
        )

    def _new_comparisons(self, expected: Expected, metrics: ControllerMetrics) -> Comparisons:
        """Compares it before they are told everything."""
        return Comparisons(
            self.machine.cluster,
            self.machine.outbox,
            expected,
            metrics,
            open_transport=self.open_transport,
            loaded=self._failover_done,
            wake=self.senders.wake,
            on_bug=self.end,
        )

    def open_transport(self) -> StateTransport:
        """A transport to a broker that is led by gRPC; nothing is asked by it once the lease is over."""
        return LeasedTransport(self._grpc.open(), self.session.require_lease)

    @property
    def changes(self) -> int:
        """A number that is another one after every event that may have changed the cluster state."""
        return self.machine.event_id - self._idle_checks

    @property
    def version(self) -> int | None:
        """As ``changes``; None in the midst of an event, which may be changing the cluster state."""
        return self.changes if self.machine.current_event is None else None

    def enqueue(self, stimulus: Event | Outcome) -> None:
        """Queue an event or outcome for ``run``. Callbacks do nothing else."""
        self._stimuli.append(stimulus)
        self._arrived.set()

    async def ask(self, request: ControllerRequest) -> ControllerResponse:
        """Handle a request of a broker or an operator as one event, in order, and wait for its response.

        NOT_CONTROLLER (STALE_CONTROLLER_EPOCH for a controlled shutdown) before the failover is complete, and when
        the term ends before the response is known. The request is handled even if the caller is cancelled.
        """
        if self._ended or not self.machine.ready:
            return not_controller(request)
        if isinstance(request, BrokerRequest):
            known = self.machine.cluster.brokers.get(request.broker_id)
            if known is not None and request.broker_epoch == known.epoch:
                self._heard(request.broker_id)
        if self.refuses(request) is not None:
            return answer_with(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        serial = next(self._serials)
        answer: asyncio.Future[ControllerResponse] = asyncio.get_running_loop().create_future()
        self._callers[serial] = (request, answer)
        self.enqueue(event_of(request, serial))
        return await answer

    def refuses(self, request: ControllerRequest) -> Suspect | None:
        """Why a request is refused: it, or its kind, is in quarantine."""
        return self.quarantine.refuses(event_of(request, 0).kind, partial(request_digest, request))

    def _reply(self, serial: int, value: ControllerResponse) -> None:
        _, answer = self._callers.pop(serial)
        if not answer.done():
            answer.set_result(value)

    def _heard(self, broker_id: int) -> None:
        """A broker gave a sign: the begin of an outage, should it be the last one."""
        self.machine.cluster.heard_us[broker_id] = now_us()

    def _report(self, report: DiskReport | StopReport | TellAgain | StatesCheck) -> None:
        """Queue what nobody waits for: an answer of a broker, or what an audit found."""
        self.enqueue(event_of(report, next(self._serials)))

    def _is_settled(self, broker_id: int) -> bool:
        """Whether nothing is being decided, and a broker has answered all that was to be sent. Raises LeadershipError:
        who may not push any more compares nothing either."""
        self.session.require_lease()
        return self.machine.current_event is None and not self._stimuli and self.senders.settled(broker_id)

    def _record_findings(self, findings: Sequence[AuditFinding]) -> None:
        self._record(LogBatch(findings, "", EventKind.STATE_DIFFERENCE.value, self.machine.event_id))

    async def _audit(self) -> None:
        """Compare brokers with the cluster state, from the failover on."""
        await self._failover_done.wait()
        await self.auditor.run()

    async def _check_states(self) -> None:
        """Compare state znodes with the cluster state, some each second, while nothing else waits."""
        await self._failover_done.wait()
        while True:
            await asyncio.sleep(STATES_PAUSE_S)
            machine = self.machine
            idle = self.session.connected and machine.current_event is None and not machine.queue_size
            if idle and (partitions := self._state_rounds.next()):
                self._metrics.audit.states_checked.inc(len(partitions))
                self._report(StatesCheck(partitions))

    async def _look_again(self) -> None:
        """Queue the events of timed work that is due: deletion retries, old notifications, maintenance checks."""
        while True:
            await asyncio.sleep(RETRY_LOOK_S)
            cluster, now = self.machine.cluster, now_us()
            if self._outranked.epoch > self.won.epoch:
                self.verify()
            if not self.machine.ready:
                continue
            due = retry_due(cluster, now) or forgotten.record_due(cluster, now)
            if due or stray_replicas.due(cluster, now) or stalled_due(cluster, now):
                self.enqueue(Event(EventKind.TOPIC_DELETION_RETRY))
            if purge_due(cluster, now):
                self.enqueue(Event(EventKind.CONFIG_CHANGE))
            if maintenance.due(cluster, now):
                self.enqueue(Event(EventKind.MAINTENANCE_CHECK))

    async def _expire_tokens(self) -> None:
        """Delete expired delegation tokens of Kafka brokers, first after the failover and then at intervals."""
        await self._failover_done.wait()
        while True:
            with suppress(ConnectionLossError):
                await delegation_tokens.delete_expired(self.session, self.won.epoch_version)
            await asyncio.sleep(self._token_interval_s)

    async def _keep_own_registration(self) -> None:
        """Be registered as a broker while a broker needs it to find its controller (``OwnRegistration``)."""
        cluster = self.machine.cluster
        registration = OwnRegistration(self.session, cluster.controller_id, self.won.epoch_version)
        while True:
            with suppress(ConnectionLossError):
                await registration.update(*self.kafka.own_registration())
            await asyncio.sleep(RETRY_LOOK_S)

    async def _rebalance(self) -> None:
        """Queue leader rebalances: the first soon after the failover, the next an interval after each one's end."""
        await self._failover_done.wait()
        machine = self.machine
        delay_s = min(FIRST_REBALANCE_S, machine.settings.leader_imbalance_check_interval_seconds)
        while True:
            began_s = time.monotonic()
            # In portions: the interval is a dynamic setting.
            while (left_s := began_s + delay_s - time.monotonic()) > 0:
                await asyncio.sleep(min(left_s, FIRST_REBALANCE_S))
                if not machine.cluster.rebalancing:
                    delay_s = min(delay_s, machine.settings.leader_imbalance_check_interval_seconds)
            await self._nothing_newer()
            self._rebalanced.clear()
            self.enqueue(Event(EventKind.LEADER_REBALANCE))
            await self._rebalanced.wait()
            interval_s = machine.settings.leader_imbalance_check_interval_seconds
            delay_s = PACED_REBALANCE_S if machine.cluster.rebalancing else interval_s

    async def _nothing_newer(self) -> None:
        """Until no broker is known that was told newer states than ZooKeeper has: who is elected by the older ones may
        lack what was acknowledged since (ADR 23). Each broker is compared first, if it can be in one round."""
        began_s, told, auditor = time.monotonic(), False, self.auditor
        while (newer := auditor.newer_somewhere) or (
            auditor.uncompared - self._waited_for and time.monotonic() - began_s < auditor.round_s
        ):
            if newer and not told and self.machine.settings.auto_leader_rebalance_enable:
                told = True
                log.warning(
                    "leaders_not_rebalanced", reason="brokers were told newer states than ZooKeeper has"
                )
            await asyncio.sleep(RETRY_LOOK_S)
        self._waited_for = auditor.uncompared

    @property
    def brokers_informed(self) -> bool:
        """Whether nothing is being decided, and every broker has answered all that was to be sent."""
        machine = self.machine
        return (
            machine.current_event is None
            and not self._stimuli
            and not machine.queue_size
            and not self.senders.busy
            and not any(machine.outbox.pending(broker_id) for broker_id in machine.outbox.queues)
        )

    def reconnected(self) -> None:
        """The connection was lost and is back in the same session: all watches are lost, so read everything again."""
        self.enqueue(Event(EventKind.RECONNECTED))
        self.verify()

    def verify(self) -> None:
        """Check whether ``/controller`` still belongs to this term; if not, the term ends."""
        self._spawn(self._verify())

    def end(self, failure: BaseException) -> None:
        """End the term from outside."""
        self._failure = self._failure or failure
        self._arrived.set()

    async def run(self) -> None:
        """Lead until the term ends. Always raises: LeadershipError, or a bug's exception."""
        self.enqueue(Event(EventKind.FAILOVER))
        # The election's watch fired when this controller created /controller: this arms the next one.
        self.verify()
        self._spawn(self._keep_lease())
        self._spawn(self._look_again())
        self._spawn(self._rebalance())
        self._spawn(self._audit())
        self._spawn(self._check_states())
        if self.leads_kafka:
            self._spawn(self._expire_tokens())
            self._spawn(self._keep_own_registration())
        try:
            while True:
                if self._failure is None and not self._stimuli:
                    self._rest()
                    self._arrived.clear()
                    await self._arrived.wait()
                self._raise_if_over()
                if self._stimuli:
                    await self._step_through(self._stimuli.popleft())
        finally:
            self._state_log.owner_busy = False
            self._ended = True
            for serial, (request, _) in list(self._callers.items()):
                self._reply(serial, not_controller(request))
            await end_all(self._tasks)
            self.session.forget(self._controller_changed)
            self._store.close()
            await self._store.forget_mirror()
            await self._comparisons.stop()
            await self.senders.stop()

    def _rest(self) -> None:
        """Leave the processor to the writer of the log, unless something is being decided or told to brokers: both
        share one interpreter, and the log can wait."""
        busy = self.machine.current_event is not None or self.senders.busy
        self._state_log.owner_busy = busy and not self._ended

    def _raise_if_over(self) -> None:
        if self._failure is not None:
            raise self._failure
        self.session.require_lease()

    async def _step_through(self, stimulus: Event | Outcome) -> None:
        self._state_log.owner_busy = True
        ready = self._step(stimulus)
        while ready.more:
            # Effects and senders run before the machine decides the next batch.
            await asyncio.sleep(0)
            self._raise_if_over()
            self._queue_events()
            ready = self._step(None)
        self.last_progress = time.monotonic()

    def _queue_events(self) -> None:
        """Let the machine know what it may give way to."""
        arrived, self._stimuli = self._stimuli, deque()
        for stimulus in arrived:
            if isinstance(stimulus, Event):
                self.machine.enqueue(stimulus, now_us())
            else:
                self._stimuli.append(stimulus)

    def _step(self, stimulus: Event | Outcome | None) -> Ready:
        began_s = time.thread_time()
        ready = self.machine.step(stimulus, now_us())
        self._metrics.decision_cpu.inc(time.thread_time() - began_s)
        cluster = self.machine.cluster
        if self.leads_kafka and cluster.controller_id in cluster.brokers:
            raise NamesakeError(f"broker {cluster.controller_id} has this controller's id: use another")
        self._perform(ready)
        return ready

    def _perform(self, ready: Ready) -> None:
        for batch in ready.records:
            self._record(batch)
        for reply in ready.replies:
            self._reply(reply.serial, reply.value)
        for effect in ready.effects:
            self._spawn(self._carry_out(effect))
        for done in ready.finished:
            self._finished(done)
        self.senders.sync(deciding=self.machine.current_event is not None)
        self._comparisons.sync(deciding=self.machine.current_event is not None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        # An exception in one of its tasks ends the term.
        task.add_done_callback(failures_to(self.end))

    async def _carry_out(self, effect: Effect) -> None:
        event_id, began_us = self.machine.current_event_id, now_us()
        try:
            self.enqueue(await self._store.perform(effect))
            if self._traces is not None:
                name, size = described(effect)
                took_us = now_us() - began_us
                self._traces.performed(name, size, self.won.epoch, event_id, took_us)
        except FencedError as fenced:
            rejection = Rejection("FENCED_WRITE", str(fenced))
            self._record(LogBatch([rejection], "", self._cause(), self.machine.event_id))
            self.end(fenced)

    def _cause(self) -> str:
        event = self.machine.current_event
        return event.kind.value if event else "None"

    def _record(self, batch: LogBatch) -> None:
        self._recorded = True
        rejections = batch.of(Rejection)
        self._rejections.tell(rejections, batch.event_id)
        for error, count_ in Counter(rejection.error for rejection in rejections).items():
            self._metrics.rejects.labels(error).inc(count_)
        self._count_isr_changes(batch.of(LeadershipChange))
        self._outages.take(batch.of(PartitionTransition), now_us())
        for finding in batch.of(AuditFinding):
            if finding.broker_id is None:
                self._metrics.audit.states_edited.labels(finding.to).inc()
        self._journal.record(batch, self.won.epoch)
        for done in batch.of(FailoverPhase):
            self._metrics.failover_seconds.labels(done.phase).set(done.duration_us / 1e6)

    def _count_isr_changes(self, changes: Sequence[LeadershipChange]) -> None:
        # ISRs are shared tuples: an unchanged one is usually the same object. Thousands change alike.
        changed = Counter(
            (c.old.isr, c.new.isr) for c in changes if c.old is not None and c.old.isr is not c.new.isr
        )
        if changed:
            shrunk = sum(n for (before, after), n in changed.items() if not set(before) <= set(after))
            expanded = sum(n for (before, after), n in changed.items() if not set(after) <= set(before))
            self._metrics.isr_changes.labels("shrink").inc(shrunk)
            self._metrics.isr_changes.labels("expand").inc(expanded)

    def _finished(self, done: Finished) -> None:
        trace_id = self._journal.recent.trace_ids.of(self.won.epoch, done.event_id)
        exemplar = {"trace_id": trace_id} if trace_id else {}
        self._metrics.event_seconds.labels(done.kind.value).observe(done.took_us / 1e6, exemplar)
        self._metrics.queue_seconds.observe(done.queued_us / 1e6, exemplar)
        # One comes each second.
        tell = log.debug if done.kind is EventKind.STORED_STATES else log.info
        tell(
            "event_processed",
            handled=done.kind.value,
            event_id=done.event_id,
            queued_ms=round(done.queued_us / 1000, 1),
            took_ms=round(done.took_us / 1000, 1),
            **exemplar,
        )
        idle = done.kind is EventKind.STORED_STATES and not self._recorded
        if self._traces is not None and not idle:
            self._traces.finished(done, self.won.epoch)
        self._idle_checks += idle
        self._recorded = False
        if done.kind is EventKind.LEADER_REBALANCE:
            self._rebalanced.set()
        if done.kind is EventKind.FAILOVER:
            self._failover_done.set()
            self._metrics.failovers.inc()
            self._loaded()
            self._on_ready()

    def _loaded(self) -> None:
        """The failover is done: say where its states came from, and let go of those in memory."""
        store, used = self._store, self._metrics.standby.used
        used.labels("memory").set(store.from_memory)
        used.labels("zookeeper").set(store.from_zookeeper)
        log.info(
            "states_loaded",
            from_memory=store.from_memory,
            from_zookeeper=store.from_zookeeper,
            topics_from_memory=store.topics_from_memory,
        )
        self._spawn(store.forget_mirror())

    # leadership

    def _suspect(self, why: str, known_epoch: int) -> None:
        log.warning("suspect_superseded", why=why, known_epoch=known_epoch or None)
        if known_epoch > self.won.epoch:
            self._outranked.seen(known_epoch)
        self.verify()

    def _controller_changed(self, kind: str, path: str) -> None:
        log.debug("controller_znode", change=kind, path=path)
        self.verify()

    async def _verify(self) -> None:
        with suppress(ConnectionLossError):
            if not await controller_election.still_ours(self.session, self.won, self._controller_changed):
                self.end(
                    FencedError(f"{CONTROLLER} does not belong to this session any more, or was written over")
                )
            elif self._outranked.may_exceed(self.won.epoch, time.monotonic()):
                self.end(OutrankedError(self._outranked.epoch, self.won.epoch))

    async def _keep_lease(self) -> None:
        """Renew the lease often enough that an outage is noticed before the session can have expired."""
        while True:
            self.session.require_lease()
            timeout_s = lease.renewal_timeout_s(self.session.lease_remaining_s())
            with suppress(ConnectionLossError, TimeoutError):
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the result.
                async with asyncio.timeout(timeout_s):
                    await self.session.ping()
            await asyncio.sleep(
                lease.renewal_pause_s(self.session.negotiated_ms, self.session.lease_remaining_s())
            )
