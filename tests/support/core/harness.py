"""Drives the core against a ``World``: steps it, performs what it asks for, keeps what each broker was told.

Steps a Machine (or one handler on a context) the way ``controller.runtime.term`` does, turns the outbox into real
protobuf messages, and checks the invariants of section 16 after every step. The runtime's tests run the same flows on
a real server.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import msgspec

from controller.core.context import CoreSettings, EventContext, Handler, Pause
from controller.core.effects import Answer, Commit, Committed, Effect, Outcome, Read, SetState, Unconfirmed
from controller.core.events import DiskReport, Event, EventKind, Finished, StopReport
from controller.core.handlers import event_of
from controller.core.machine import Machine, Ready
from controller.core.model import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    Broker,
    BrokerIds,
    Cluster,
    LeaderAndIsr,
    Partition,
    PartitionState,
    ReplicaState,
)
from controller.core.outbox import Push, PushKind
from controller.core.records import (
    LeadershipChange,
    LogBatch,
    PartitionTransition,
    R,
    Rejection,
    ReplicaTransition,
)
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.requests.brokers import AlterPartition, Proposal
from controller.core.topics.changes import add_topic
from controller.runtime.push.messages import MessageBuilder
from proto.gen import broker_control_pb2 as pb
from tests.support.core.chronicle import Chronicle
from tests.support.core.sent import Received, Sent
from tests.support.core.world import Key, World, key_of

T = TypeVar("T")


class Fate(Enum):
    """What becomes of a commit."""

    ANSWERED = "performed and answered"
    LANDED = "performed, the answer is lost"
    LOST = "never arrived"
    REFUSED = "refused, though nobody else has written"


def offline_count(cluster: Cluster) -> int:
    return sum(map(cluster.counts_as_offline, cluster.partitions()))


def imbalance_count(cluster: Cluster) -> int:
    return sum(map(cluster.is_imbalanced, cluster.partitions()))


class MachineHarness:
    """Drives a machine against a world; ``run`` goes on until there is nothing left to do."""

    def __init__(self, world: World, epoch: int = 1, settings: CoreSettings | None = None) -> None:
        self.world = world
        self.settings = settings or CoreSettings()
        self._topic_ids = (f"generated-{n}" for n in world.numbers())
        self.machine = Machine(100, epoch, self.settings, self.new_topic_id)
        self.builder = MessageBuilder(self.machine.cluster, 10**6)
        self.outstanding: list[Effect] = []
        #: Every effect there was, every log batch, every finished event, every message sent.
        self.effects: list[Effect] = []
        self.batches: list[LogBatch] = []
        self.chronicle = Chronicle()
        self.finished: list[Finished] = []
        #: What callers were answered, by the serial of their event.
        self.replies: dict[int, ControllerResponse] = {}
        self.sent: list[Sent] = []
        self.received: dict[int, Received] = {}
        self._newest_event: dict[int, int] = {}
        #: Why a broker cannot delete a replica; empty: it does.
        self.stop_error: Callable[[int, Key], str] = lambda *_: ""
        #: Answers to StopReplica on their way; held back on demand.
        self.stops: list[StopReport] = []
        self.hold_stops = False
        #: Brokers that do not take their messages for now.
        self.slow: set[int] = set()
        #: What becomes of each commit; may also change the world, between decision and write.
        self.fate: Callable[[Commit], Fate] = lambda _: Fate.ANSWERED
        #: Which outstanding effect is performed next, of so many.
        self.pick: Callable[[int], int] = lambda _: 0
        #: Whether a lost answer is followed by the reconnection that the runtime would report.
        self.reconnects = False
        self.take_max = 1000
        self.now_us = 0
        self._ids = itertools.count(10**6)

    @classmethod
    def active(cls, world: World, **kwargs: Any) -> MachineHarness:
        """A controller that has finished its failover."""
        rig = cls(world, **kwargs)
        rig.failover()
        return rig

    def failover(self) -> MachineHarness:
        # What watches of former controllers told does not reach this one.
        self.world.events.clear()
        self.world.events.append(Event(EventKind.FAILOVER))
        self.run()
        assert self.machine.ready
        return self

    def new_topic_id(self) -> str:
        return next(self._topic_ids)

    # what a test looks at

    @property
    def cluster(self) -> Cluster:
        return self.machine.cluster

    def partition(self, topic: str = "t", number: int = 0) -> Partition:
        found = self.machine.cluster.partition(topic, number)
        assert found is not None
        return found

    def stored(self, topic: str = "t", number: int = 0) -> tuple[int, int, list[int]]:
        """Leader, leader epoch and ISR in the store."""
        found = self.world.states[(topic, number)]
        return found.leader, found.leader_epoch, list(found.isr)

    def lines(self, *kinds: str) -> list[str]:
        """Everything sent since ``forget``, in order; only some kinds (LISR, UMR, SR) if given."""
        every = [line for sent in self.sent for line in sent.lines()]
        return [line for line in every if not kinds or line.split()[1] in kinds]

    def commits(self) -> list[Commit]:
        return [e for e in self.effects if isinstance(e, Commit)]

    def reads(self) -> list[str]:
        return [type(e.query).__name__ for e in self.effects if isinstance(e, Read)]

    def ask(self, *requests: ControllerRequest) -> list[Any]:
        """Requests that arrive together; what each is answered."""
        serials = [self.send(request) for request in requests]
        self.run()
        return [self.replies[serial] for serial in serials]

    def send(self, request: ControllerRequest) -> int:
        """A request arrives; the serial its reply will have."""
        serial = next(self._ids)
        self.world.events.append(event_of(request, serial))
        return serial

    def alter(self, sender: int, *proposals: Proposal, broker_epoch: int | None = None) -> AlterPartition:
        """A request of a broker's present incarnation, unless another epoch is given."""
        epoch = self.world.brokers[sender].epoch if broker_epoch is None else broker_epoch
        return AlterPartition(sender, epoch, proposals)

    def proposal(self, isr: Sequence[int], topic: str = "t", number: int = 0, **changes: Any) -> Proposal:
        """What the present leader of a partition would propose, with some fields otherwise."""
        held = self.partition(topic, number)
        state = held.leadership
        assert state is not None
        made = Proposal(
            topic,
            held.topic.id,
            number,
            state.leader_epoch,
            tuple(isr),
            state.recovery,
            state.partition_epoch,
        )
        return msgspec.structs.replace(made, **changes)

    def recorded(self, kind: type[R]) -> list[R]:
        """Every record of one class since ``forget``."""
        return [record for batch in self.batches for record in batch.of(kind)]

    def rejects(self) -> list[str]:
        return [rejection.error for rejection in self.recorded(Rejection)]

    def forget(self) -> None:
        """Only what comes from now on is looked at."""
        self.sent.clear()
        self.effects.clear()
        self.batches.clear()
        self.finished.clear()

    # driving

    def run(self) -> None:
        while self.advance():
            pass
        assert self.machine.current_event is None
        assert self.machine.queue_size == 0
        self.chronicle.check(self.cluster)
        for partition in self.machine.cluster.partitions():
            if partition.state is PartitionState.ONLINE:
                assert partition.leadership is not None
                assert partition.leadership.leader >= 0

    def advance(self) -> bool:
        """One stimulus: the oldest event, else the outcome of one request. False when all is quiet."""
        if self.world.events:
            stimulus: Event | Outcome = self.world.events.popleft()
        elif self.outstanding:
            stimulus = self.perform(self.outstanding.pop(self.pick(len(self.outstanding))))
        else:
            return False
        self.step(stimulus)
        return True

    def step(self, stimulus: Event | Outcome | None) -> None:
        ready = self.one_step(stimulus)
        while ready.more:
            ready = self.one_step(None)

    def one_step(self, stimulus: Event | Outcome | None) -> Ready:
        self.now_us += 1000
        ready = self.machine.step(stimulus, self.now_us)
        self.replies.update((reply.serial, reply.value) for reply in ready.replies)
        self._collect(ready.records, ready.effects)
        self.finished.extend(ready.finished)
        return ready

    def drive(self, make: Callable[[EventContext], Handler[T]]) -> T:
        """Run one handler to its end, outside any event."""
        cluster, outbox = self.machine.cluster, self.machine.outbox
        event_id = max(self.machine.event_id, 1)
        context = EventContext(
            cluster=cluster,
            outbox=outbox,
            settings=self.settings,
            new_topic_id=self.new_topic_id,
            effect_ids=self._ids,
            event_id=event_id,
            cause="test",
            now_us=self.now_us,
        )
        procedure = make(context)
        outcome: Outcome | None = None
        while True:
            try:
                pause = procedure.send(outcome)
            except StopIteration as stop:
                self._collect(context.records, context.effects)
                result: T = stop.value
                return result
            self._collect(context.records, context.effects)
            context.records, context.effects = [], []
            outcome = None
            if pause is Pause.WAIT:
                outcome = self.perform(self.outstanding.pop(self.pick(len(self.outstanding))))

    def pauses(self, make: Callable[[EventContext], Handler[T]]) -> list[Pause]:
        """Run one handler as ``drive`` does; what it pauses for, in order."""
        found: list[Pause] = []

        def noting(context: EventContext) -> Handler[None]:
            procedure, outcome = make(context), None
            while True:
                try:
                    found.append(procedure.send(outcome))
                except StopIteration:
                    return
                outcome = yield found[-1]

        self.drive(noting)
        return found

    def do(self, act: Callable[[EventContext], object]) -> None:
        """Run a plain function of a context (memory and pushes only)."""

        def procedure(context: EventContext) -> Handler[None]:
            act(context)
            yield Pause.YIELD

        self.drive(procedure)

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, Read):
            return Answer(effect.id, self.world.answer(effect.query))
        current = self.machine.current_event
        self.world.altering = current is not None and current.kind is EventKind.ALTER_PARTITION
        self.world.moving = {
            key_of(p)
            for p in self.cluster.partitions()
            if p in self.cluster.reassignments.ongoing or self.cluster.is_deleting(p)
        }
        fate = self.fate(effect)
        if fate is Fate.REFUSED:
            return Unconfirmed(effect.id, "ZooKeeper refused a write (an ACL forbids it)", refused=True)
        conflict = None if fate is Fate.LOST else self.world.commit(effect.writes)
        if fate is Fate.ANSWERED:
            return (
                Committed(effect.id) if conflict is None else Unconfirmed(effect.id, conflict, refused=True)
            )
        self.world.edited.update(key_of(w.partition) for w in effect.writes if isinstance(w, SetState))
        if self.reconnects:
            self.world.lose_watches()
        return Unconfirmed(effect.id, "the connection was lost before the answer")

    def _collect(self, batches: Sequence[LogBatch], effects: Sequence[Effect]) -> None:
        self.batches.extend(batches)
        self.chronicle.take(batches)
        assert all(b.reason for b in batches if issubclass(b.kind, _WITH_REASON)), "a change says why"
        for refused in (record for batch in batches for record in batch.of(Rejection)):
            named = (
                refused.error not in _OWN or refused.partition is not None or _NAMED.search(refused.reason)
            )
            assert named, f"of what? {refused}"
        self.outstanding.extend(effects)
        self.effects.extend(effects)
        self.check_memory()
        self.drain()

    # brokers

    def drain(self) -> None:
        for broker_id in sorted(self.machine.outbox.queues):
            while broker_id not in self.slow and self.take_one(broker_id):
                pass

    def take_one(self, broker_id: int) -> bool:
        """Deliver one push to a broker; False when it has everything."""
        outbox = self.machine.outbox
        # Nobody compares what the broker holds.
        queue = outbox.queues[broker_id]
        outbox.compared(queue.broker, None)
        push = outbox.take(broker_id, self.take_max) if queue.is_due(outbox.ends) else None
        if push is None:
            return False
        for message, _ in self.builder.build(push):
            self._deliver(push, _PARSERS[push.kind](message))
        return True

    def _deliver(self, push: Push, message: Any) -> None:
        broker = push.broker
        assert push.cause, "every push says which event it comes from"
        assert message.event_id >= self._newest_event.get(broker.id, 1), "a broker takes it for a late copy"
        self._newest_event[broker.id] = message.event_id
        assert message.broker_epoch == broker.epoch
        received = self.received.get(broker.id)
        if received is None or received.epoch != broker.epoch:
            assert push.kind is PushKind.UPDATE_METADATA, "a new broker hears who is alive first"
            received = self.received[broker.id] = Received(broker.epoch)
        self.sent.append(Sent(broker.id, broker.epoch, push.kind, message))
        if push.kind is PushKind.UPDATE_METADATA:
            received.live = frozenset(b.broker_id for b in message.live_brokers)
        if push.kind is PushKind.STOP_REPLICA:
            self._stopped(received, push, message)
            return
        known = [p for p in push.partitions if p.leadership is not None]
        # Removals come apart from the rest: a topic created anew has partitions of the same names.
        named = {(key_of(p), self.cluster.is_deleting(p)): p for p in known}
        for entry in message.partition_states:
            key = (entry.topic, entry.partition)
            removed = entry.leader == LEADER_DURING_DELETE
            partition = named[(key, removed)] if (key, removed) in named else named[(key, True)]
            self._check_durable(received, partition, entry)
            held = received.metadata if push.kind is PushKind.UPDATE_METADATA else received.replicas
            if held is received.replicas:
                if entry.leader_epoch <= received.stopped.get(key, NO_EPOCH):
                    continue
                received.stopped.pop(key, None)
            held[key] = entry
            if removed:
                del held[key]
            elif held is received.replicas and self._is_up(broker):
                self.world.folders.setdefault(broker.id, set()).add(key)
        if push.kind is PushKind.LEADER_AND_ISR:
            self._answer_of_disks(received, broker.id, known)

    def _is_up(self, broker: Broker) -> bool:
        """Whether this incarnation really is there, whatever the controller believes."""
        present = self.world.brokers.get(broker.id)
        return present is not None and present.epoch == broker.epoch

    def _stopped(self, received: Received, push: Push, message: Any) -> None:
        """A broker stops replicas, deletes their folders, and says so; one that is not there does not."""
        broker = push.broker
        lost = self.world.lost.get(broker.id, set())
        deleted: list[Partition] = []
        failed: list[tuple[Partition, str]] = []
        for partition, entry in zip(push.partitions, message.partition_states, strict=True):
            key = (entry.topic, entry.partition)
            assert key == key_of(partition)
            told = received.replicas.pop(key, None)
            if not entry.delete_partition:
                if told is not None:
                    received.stopped[key] = told.leader_epoch
                continue
            received.stopped.pop(key, None)
            error = "KAFKA_STORAGE_ERROR" if key in lost else self.stop_error(broker.id, key)
            if error:
                failed.append((partition, error))
            else:
                deleted.append(partition)
                if self._is_up(broker):
                    self.world.folders.get(broker.id, set()).discard(key)
        if (deleted or failed) and self._is_up(broker):
            self.stops.append(StopReport(broker.id, broker.epoch, deleted, failed))
        if not self.hold_stops:
            self.answer_stops()

    def answer_stops(self) -> None:
        """What brokers answered to StopReplica reaches the controller."""
        for report in self.stops:
            kind = EventKind.STOP_REPLICA_RESPONSE
            self.world.events.append(Event(kind, body=report, serial=next(self._ids)))
        self.stops.clear()

    def _answer_of_disks(self, received: Received, broker_id: int, partitions: Sequence[Partition]) -> None:
        """What the sender makes of a broker's answer: an event once it has lost a disk."""
        lost = self.world.lost.get(broker_id, set())
        failed = [p for p in partitions if key_of(p) in lost]
        received.disk_failed = received.disk_failed or bool(failed)
        if received.disk_failed:
            report = DiskReport(broker_id, received.epoch, failed, [p for p in partitions if p not in failed])
            kind = EventKind.LEADER_AND_ISR_RESPONSE
            self.world.events.append(Event(kind, body=report, serial=next(self._ids)))

    def _check_durable(self, received: Received, partition: Partition, entry: Any) -> None:
        """A broker hears only what was stored first, and nothing older than what it heard before."""
        if entry.leader == -2:
            return
        pushed = (entry.leader, entry.leader_epoch, tuple(entry.isr), entry.partition_epoch)
        history = self.world.history.get(key_of(partition), ())
        stored = [(s.leader, s.leader_epoch, s.isr, s.partition_epoch) for s in history]
        assert pushed in stored, f"{partition}: pushed {pushed}, never stored: {stored}"
        incarnation = (entry.topic, partition.topic.czxid, entry.partition)
        before = received.newest.get(incarnation, -1)
        assert entry.partition_epoch >= before, f"{partition}: told {before}, and now {pushed}"
        received.newest[incarnation] = entry.partition_epoch

    # invariants

    def check_memory(self) -> None:
        """Memory holds only what is durable."""
        for partition in self.machine.cluster.partitions():
            assert len(partition.replica_states) == len(partition.replicas)
            if partition.leadership is not None:
                held = self.world.history.get(key_of(partition), [])
                assert partition.leadership in held, f"{partition}: not durable, stored: {held}"

    def check_converged(self) -> None:
        """No fault is left: every partition that can has a leader, and everybody agrees with the store."""
        cluster, world = self.machine.cluster, self.world
        live = set(world.brokers)
        assert set(cluster.brokers) == live
        assert set(cluster.topics) == set(world.topics)
        for broker_id in live:
            assert self.received[broker_id].live == live, (
                f"broker {broker_id} believes {self.received[broker_id].live}"
            )
            assert self.machine.outbox.pending(broker_id) == 0
        for name, info in world.topics.items():
            assert cluster.topics[name].id == info.topic_id != ""
            for number, replicas in info.partitions.items():
                self._check_partition(name, number, replicas, live)

    def _check_partition(self, name: str, number: int, replicas: BrokerIds, live: set[int]) -> None:
        partition, stored = self.partition(name, number), self.world.states.get((name, number))
        assert partition.leadership == stored, f"{partition} but stored {stored}"
        healthy = {b for b in live if (name, number) not in self.world.lost.get(b, ())}
        leaving = self.cluster.shutting_down
        if stored is None:
            assert (healthy - leaving).isdisjoint(replicas), f"{partition} was never initialised"
            return
        if not (healthy - leaving).isdisjoint(set(stored.isr) & set(replicas)):
            assert stored.leader in healthy, f"{partition} has no leader, online {healthy}"
            assert partition.state is PartitionState.ONLINE
        elif stored.leader == -1:
            assert partition.state is PartitionState.OFFLINE
        else:
            # Nobody could take over from a broker that is leaving.
            assert stored.leader in healthy & leaving, f"{partition} is led by a dead broker"
        for broker_id in live:
            received = self.received[broker_id]
            entry = received.metadata.get((name, number))
            check_told(entry, stored, f"broker {broker_id} metadata {name}-{number}")
            offline = set(entry.offline_replicas) if entry else set()
            gone = set(replicas) - healthy
            assert gone <= offline <= gone | leaving, f"broker {broker_id} {name}-{number}: {offline} offline"
            if broker_id in (healthy - leaving) & set(replicas):
                assert partition.replica_state(broker_id) is ReplicaState.ONLINE
                held = received.replicas.get((name, number))
                # A leader's own change of the ISR reaches the metadata only: followers need none.
                assert held is not None, f"broker {broker_id} replica {name}-{number}: never told"
                assert (held.leader, held.leader_epoch) == (stored.leader, stored.leader_epoch)


#: What the controller fails at by itself; no request says of what it is. It names its partition, a znode, or brokers.
_OWN = frozenset({"CONFLICT", "ELECTION_FAILED", "ILLEGAL_TRANSITION", "REASSIGNMENT_HELD_UP"})
_NAMED = re.compile(r"/|: \[\d")
#: Records that have their reason from their batch.
_WITH_REASON = (PartitionTransition, ReplicaTransition, LeadershipChange)
_PARSERS: dict[PushKind, Callable[[bytes], Any]] = {
    PushKind.LEADER_AND_ISR: pb.LeaderAndIsrRequest.FromString,
    PushKind.UPDATE_METADATA: pb.UpdateMetadataRequest.FromString,
    PushKind.STOP_REPLICA: pb.StopReplicaRequest.FromString,
}


def check_told(entry: Any, stored: LeaderAndIsr, who: str) -> None:
    assert entry is not None, f"{who}: never told"
    received = (entry.leader, entry.leader_epoch, tuple(entry.isr), entry.partition_epoch)
    assert received == (stored.leader, stored.leader_epoch, stored.isr, stored.partition_epoch), (
        f"{who}: {received}"
    )


def bare(
    brokers: Iterable[int],
    assignment: Mapping[Key, Sequence[int]],
    states: Mapping[Key, LeaderAndIsr] | None = None,
    epoch: int = 1,
    settings: CoreSettings | None = None,
) -> MachineHarness:
    """A context put together by hand, no failover: every partition and replica NonExistent, all brokers told."""
    world = World(*brokers)
    for name in dict.fromkeys(t for t, _ in assignment):
        world.create_topic(name, {n: ids for (t, n), ids in assignment.items() if t == name})
    rig = MachineHarness(world, epoch, settings)
    rig.cluster.brokers.update(world.brokers)
    for broker in world.brokers.values():
        rig.machine.outbox.add_broker(broker, 1, "Test")
    rig.do(lambda context: [add_topic(context, info) for info in world.topics.values()])
    for key, known in (states or {}).items():
        world.put_state(*key, known)
        rig.partition(*key).leadership = known
    rig.forget()
    return rig


def set_states(rig: MachineHarness, partition_state: PartitionState, replica_state: ReplicaState) -> None:
    """Put every partition and replica into one state, by hand."""
    for partition in rig.machine.cluster.partitions():
        partition.state = partition_state
        for broker_id in partition.replicas:
            partition.set_states([broker_id], replica_state)
