"""A term beside the events that it handles: timers, the lease, callers and its end; in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller.core import znode_paths
from controller.core.cluster.quarantine import Quarantine
from controller.core.events import Event, EventKind, Finished
from controller.core.machine import Ready
from controller.core.model import (
    Attribution,
    Cluster,
    Ineligible,
    LeaderAndIsr,
    Maintenance,
    Partition,
    Topic,
)
from controller.core.records import LeadershipChange, LogBatch
from controller.core.requests.brokers import AllocateProducerIds
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetPause
from controller.errors import FencedError, LeaseExpiredError
from controller.runtime import term as module
from controller.runtime.audit.expected import Expected
from controller.runtime.config import Settings
from controller.runtime.daemon import StopRequested
from controller.runtime.election.controller_election import Won
from controller.runtime.election.higher_epochs import Outranked
from controller.runtime.kafka.asking import BrokerQuestions
from controller.runtime.observe.history import Journal, Recent
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.kafka_transport import KafkaSide
from controller.runtime.term import Term
from controller.runtime.zookeeper.session import Session
from tests.provers.sim.actors.controllers import StateLog
from tests.provers.sim.zookeeper.contract.in_memory import a_session, told_in
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.network import Network
from tests.runtime.election.test_controller_election import elect

CHROOT = "/test"
TIMEOUT_MS = 9000
BROKER = b'{"version":4,"host":"h","port":9}'


class Place:
    """An elected controller whose term has not begun. ``handled``: kinds of events, as they end."""

    def __init__(self, network: Network, session: Session, zk: Hands, won: Won) -> None:
        self.network, self.session, self.zk = network, session, zk
        self.registry = CollectorRegistry()
        self.outranked = Outranked()
        recent: Any = Recent(1, 1000)
        log: Any = StateLog()
        kafka: Any = KafkaSide({}, None, {})  # type: ignore[arg-type]
        self.term = Term(
            session,
            won,
            Settings(controller_id=1, audit_interval_seconds=10**6),
            Journal(log, recent),
            ControllerMetrics(self.registry),
            kafka=kafka,
            questions=BrokerQuestions("1", kafka.listeners, kafka.security),
            outranked=self.outranked,
            tls=None,
            quarantine=Quarantine(),
            mirror=None,
            expected=Expected(Cluster(1)),
            on_ready=lambda: None,
        )
        self.handled: list[tuple[float, EventKind]] = []
        finished = self.term._finished

        def noting(done: Finished) -> None:
            self.handled.append((self.now_s, done.kind))
            finished(done)

        self.term._finished = noting  # type: ignore[method-assign]
        self.running: asyncio.Task[None] | None = None

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def begin(self) -> None:
        self.running = asyncio.create_task(self.term.run())
        while not self.term.machine.ready:
            assert not self.running.done(), self.running
            await asyncio.sleep(0.01)
        self.handled.clear()

    def count(self, kind: EventKind) -> int:
        return sum(found is kind for _, found in self.handled)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    async def ended(self) -> BaseException | None:
        assert self.running is not None
        (found,) = await asyncio.gather(self.running, return_exceptions=True)
        return found


@asynccontextmanager
async def elected() -> AsyncIterator[tuple[Place]]:
    with pytest.MonkeyPatch.context() as patch:
        async with a_session(TIMEOUT_MS) as (network, session, zk):
            clock = network.clock
            known = {"monotonic": clock.monotonic, "thread_time": lambda: 0.0, "time_ns": lambda: 0}
            known["monotonic_ns"] = lambda: int(clock.monotonic() * 1e9)
            patch.setattr(module, "time", SimpleNamespace(**known))
            for path in znode_paths.PERSISTENT:
                zk.ensure_path(path)
            won = await elect(session)
            assert isinstance(won, Won)
            place = Place(network, session, zk, won)
            try:
                yield (place,)
            finally:
                place.term.end(StopRequested("the test is over"))
                if place.running is not None:
                    await place.ended()


told = told_in(elected, "place")


def asked(place: Place) -> AllocateProducerIds:
    return AllocateProducerIds(7, place.term.machine.cluster.brokers[7].epoch)


# --- callers -------------------------------------------------------------------------------------------------


@told
async def test_whoever_asks_before_the_failover_or_after_the_end_is_sent_away(place: Place) -> None:
    request = SetPause(True, "r", "ann")
    assert (await place.term.ask(request)).error is ErrorCode.NOT_CONTROLLER
    await place.begin()
    assert (await place.term.ask(request)).error is ErrorCode.NONE
    place.network.block("one", [0])
    waiting = asyncio.create_task(place.term.ask(request))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    place.term.end(StopRequested("stop"))
    assert isinstance(await place.ended(), StopRequested)
    assert (await waiting).error is ErrorCode.NOT_CONTROLLER
    assert (await place.term.ask(request)).error is ErrorCode.NOT_CONTROLLER


@told
async def test_a_request_of_a_broker_s_present_process_is_a_sign_of_it(place: Place) -> None:
    place.zk.create(znode_paths.broker_path(7), BROKER)
    await place.begin()
    heard = place.term.machine.cluster.heard_us
    heard.clear()
    request = asked(place)
    await place.term.ask(AllocateProducerIds(7, request.broker_epoch - 1))
    assert 7 not in heard
    await place.term.ask(request)
    assert 7 in heard


@told
async def test_what_is_recorded_is_there_before_the_answer(place: Place) -> None:
    await place.begin()
    order: list[str] = []
    record, reply = place.term._record, place.term._reply

    def recording(batch: LogBatch) -> None:
        order.append("record")
        record(batch)

    def replying(*given: Any) -> None:
        order.append("reply")
        reply(*given)

    place.term._record = recording  # type: ignore[method-assign]
    place.term._reply = replying  # type: ignore[method-assign, assignment]
    assert (await place.term.ask(SetPause(True, "r", "ann"))).error is ErrorCode.NONE
    assert (order[-1], order.count("reply"), "record" in order) == ("reply", 1, True)


# --- what is due ---------------------------------------------------------------------------------------------


@told
async def test_timed_work_is_looked_for_each_second_once_the_failover_is_done(place: Place) -> None:
    machine = place.term.machine
    topic = Topic("t")
    machine.cluster.reassignments.strays[Partition(topic, 0, (1,))] = {2: Ineligible(None, 0)}  # type: ignore[arg-type]
    queued: list[Event] = []
    place.term.enqueue = queued.append  # type: ignore[method-assign, assignment]
    looking = asyncio.create_task(place.term._look_again())
    await asyncio.sleep(2.5)
    assert queued == []
    machine.ready = True
    await asyncio.sleep(1.0)
    assert [event.kind for event in queued] == [EventKind.TOPIC_DELETION_RETRY]
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@told
async def test_maintenance_is_looked_at_while_somebody_is_drained(place: Place) -> None:
    await place.begin()
    await asyncio.sleep(10)
    assert place.count(EventKind.MAINTENANCE_CHECK) == 0
    place.term.machine.cluster.maintenance = Maintenance(drained={7: Attribution("r", "ann")})
    await asyncio.sleep(11)
    assert place.count(EventKind.MAINTENANCE_CHECK) in (2, 3)


@told
async def test_states_are_compared_while_nothing_waits(place: Place) -> None:
    place.zk.create(znode_paths.broker_path(7), BROKER)
    place.zk.create(znode_paths.topic_path("t"), b'{"version":1,"partitions":{"0":[7]}}')
    await place.begin()
    await asyncio.sleep(5)
    compared = place.count(EventKind.STORED_STATES)
    assert compared
    queue = type(place.term.machine).queue_size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(place.term.machine), "queue_size", property(lambda _: 1))
        await asyncio.sleep(5)
        assert place.count(EventKind.STORED_STATES) == compared
    assert type(place.term.machine).queue_size is queue


@told
async def test_the_next_rebalance_counts_from_the_end_of_the_last_and_a_paced_one_follows_soon(
    place: Place,
) -> None:
    await place.begin()
    await asyncio.sleep(module.FIRST_REBALANCE_S + 1)
    assert place.count(EventKind.LEADER_REBALANCE) == 1
    place.term.machine.cluster.rebalancing = True  # type: ignore[assignment]
    place.term._rebalanced.clear()
    await asyncio.sleep(400)
    runs = place.count(EventKind.LEADER_REBALANCE)
    assert runs > 3
    # One that does not end is not followed by another.
    enqueue, queued = place.term.enqueue, list[Any]()

    def holding(stimulus: Any) -> None:
        rebalance = isinstance(stimulus, Event) and stimulus.kind is EventKind.LEADER_REBALANCE
        (queued.append if rebalance else enqueue)(stimulus)

    place.term.enqueue = holding  # type: ignore[method-assign]
    await asyncio.sleep(700)
    assert len(queued) == 1


@told
async def test_leaders_do_not_return_before_brokers_were_compared_or_a_round_is_over(place: Place) -> None:
    auditor, uncompared = place.term.auditor, frozenset({7})
    auditor._interval_s = 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(auditor), "uncompared", property(lambda _: uncompared))
        await place.begin()
        await asyncio.sleep(module.FIRST_REBALANCE_S + 16)
        assert place.count(EventKind.LEADER_REBALANCE) == 0
        await asyncio.sleep(4)
        assert place.count(EventKind.LEADER_REBALANCE) == 1
        await asyncio.sleep(303)
        assert place.count(EventKind.LEADER_REBALANCE) == 2, "it is waited for once"
        uncompared = frozenset({8})
        await asyncio.sleep(303)
        assert place.count(EventKind.LEADER_REBALANCE) == 2
        uncompared = frozenset()
        await asyncio.sleep(2)
        assert place.count(EventKind.LEADER_REBALANCE) == 3


@told
async def test_leaders_do_not_return_by_states_older_than_what_brokers_were_told(place: Place) -> None:
    auditor, newer = place.term.auditor, True
    auditor._interval_s = 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(auditor), "newer_somewhere", property(lambda _: newer))
        await place.begin()
        with capture_logs() as logs:
            await asyncio.sleep(400)
        assert place.count(EventKind.LEADER_REBALANCE) == 0
        assert [line["event"] for line in logs].count("leaders_not_rebalanced") == 1
        newer = False
        await asyncio.sleep(2)
        assert place.count(EventKind.LEADER_REBALANCE) == 1


# --- the lease and the end -----------------------------------------------------------------------------------


@told
async def test_an_idle_term_keeps_its_lease(place: Place) -> None:
    await place.begin()
    for _ in range(20):
        await asyncio.sleep(3)
        assert place.session.lease_remaining_s() > 0


@told
async def test_a_term_ends_with_its_lease_while_a_sync_hangs(place: Place) -> None:
    await place.begin()
    began_s, left_s = place.now_s, place.session.lease_remaining_s()
    place.network.block("one", [0])
    found = await place.ended()
    assert isinstance(found, LeaseExpiredError)
    assert place.now_s - began_s <= left_s + 0.5


@told
async def test_a_term_ends_when_controller_is_another_s(place: Place) -> None:
    await place.begin()
    place.zk.delete(znode_paths.CONTROLLER)
    assert isinstance(await place.ended(), FencedError)
    # What comes later changes nothing, and nobody is told.
    place.term.end(StopRequested("later"))
    assert isinstance(place.term._failure, FencedError)
    place.zk.create(znode_paths.CONTROLLER, b"{}")
    tasks = len(place.term._tasks)
    await place.session.ping()
    assert (tasks, len(place.term._tasks), place.term.senders._tasks) == (0, 0, {})


@told
async def test_a_step_that_goes_on_ends_with_the_lease(place: Place) -> None:
    await place.begin()
    steps = 0

    def step(_stimulus: object, _now_us: int) -> Any:
        nonlocal steps
        steps += 1
        place.session._answered_at = float("-inf")
        return Ready(more=steps < 5)

    place.term.machine.step = step  # type: ignore[method-assign, assignment]
    place.term.enqueue(Event(EventKind.BROKER_CHANGE))
    assert isinstance(await place.ended(), LeaseExpiredError)
    assert steps == 1


@pytest.mark.parametrize(("known_epoch", "seen"), [(0, 0), (1, 0), (5, 5)])
@told
async def test_only_a_higher_epoch_that_a_broker_knows_is_remembered(
    place: Place, known_epoch: int, seen: int
) -> None:
    place.term._suspect("a broker says so", known_epoch)
    assert place.outranked.epoch == seen


# --- figures -------------------------------------------------------------------------------------------------


@told
async def test_times_are_told_in_seconds_and_isrs_by_what_became_of_them(place: Place) -> None:
    await place.begin()
    place.term._finished(Finished(EventKind.TOPIC_CHANGE, 9, 2_000_000, 3_000_000, 5_000_000))
    rate = "kafka_controller_controllerstats_rateandtime_seconds_sum"
    assert place.value(rate, state=EventKind.TOPIC_CHANGE.value) == 3
    assert place.value("kafka_controller_controllereventmanager_eventqueuetime_seconds_sum") == pytest.approx(
        2, abs=0.1
    )
    partition = Partition(Topic("t"), 0, (1, 2, 3))

    def change(old: tuple[int, ...], new: tuple[int, ...]) -> LeadershipChange:
        return LeadershipChange(partition, LeaderAndIsr(1, 1, old, 1, 1), LeaderAndIsr(1, 1, new, 2, 1))

    place.term._count_isr_changes(
        [change((1, 2), (1,)), change((1, 2, 3), (1,)), change((1,), (1, 2)), change((1, 2), (1, 3))]
    )
    found = {
        s.labels["direction"]: s.value
        for m in place.registry.collect()
        for s in m.samples
        if "isr_changes_total" in s.name
    }
    assert found == {"shrink": 3, "expand": 2}


@told
async def test_brokers_are_informed_once_nothing_is_decided_or_on_its_way(place: Place) -> None:
    await place.begin()
    assert [place.term.brokers_informed] == [True]
    place.term._stimuli.append(Event(EventKind.BROKER_CHANGE))
    assert [place.term.brokers_informed] == [False]
    place.term._stimuli.clear()
    place.term.senders._busy.add(7)
    assert [place.term.brokers_informed] == [False]
    assert not place.term._is_settled(7)
    place.term.senders._busy.clear()
    assert place.term._is_settled(7)
    place.term._stimuli.append(Event(EventKind.BROKER_CHANGE))
    assert not place.term._is_settled(7)
    place.term._stimuli.clear()


@told
async def test_after_a_reconnect_all_is_read_again_and_controller_is_looked_at(place: Place) -> None:
    await place.begin()
    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1

    place.term.verify = look  # type: ignore[method-assign]
    place.term.reconnected()
    await asyncio.sleep(1)
    assert (place.count(EventKind.RECONNECTED), looked) == (1, 1)


@told
async def test_the_senders_of_a_term_end_with_it(place: Place) -> None:
    await place.begin()
    senders, ended = place.term.senders, list[bool]()
    stop = senders.stop

    async def noting() -> None:
        await stop()
        ended.append(True)

    senders.stop = noting  # type: ignore[method-assign]
    place.term.end(StopRequested("the test is over"))
    await place.ended()
    assert ended == [True]
