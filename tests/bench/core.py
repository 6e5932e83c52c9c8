"""Processor time of what a controller does, in this process alone: no server, no broker, no other thread.

So it may be measured beside other work. The machine decides on ``planning``'s store; its messages and its writes are
made as for real and dropped, its records become lines of the log.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

import msgspec
from rich.table import Table

from controller.core.context import CoreSettings
from controller.core.effects import (
    Answer,
    Commit,
    Committed,
    Effect,
    FeatureAnswer,
    Outcome,
    SetState,
    TopicInfo,
    Write,
)
from controller.core.events import Event, EventKind, StopReport
from controller.core.handlers import event_of
from controller.core.machine import Machine
from controller.core.model import Broker, Endpoint, LeaderAndIsr
from controller.core.outbox import PushKind
from controller.core.records import LogBatch
from controller.core.requests.brokers import AlterPartition, Proposal
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import DeleteTopics, TopicRef
from controller.planning.snapshot import Snapshot
from controller.planning.store import Store
from controller.runtime.observe import records
from controller.runtime.push.messages import MessageBuilder
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import Session
from controller.runtime.zookeeper.store import Store as ZooKeeperStore
from proto.statelog.writer import envelope
from tests.bench.cluster import BROKERS, replicas_of

#: Topics that stay, and topics that are changed.
TOPICS, CHANGED, PARTITIONS = 400, 200, 50
TAKE_PARTITIONS, SMALL_PARTITIONS = 1000, 100
WORK = ("decisions", "control requests", "writes", "state-change log")


class _Session:
    """Packs paths, and sends nothing."""

    def packed_path(self, path: str) -> bytes:
        return path.encode()

    def op_create(self, path: str, data: bytes) -> bytes:
        return jute.op_create(path.encode(), data)


class Bench:
    """A controller that leads, and a cluster that does what it says at once."""

    def __init__(self) -> None:
        topics: dict[str, TopicInfo] = {}
        states: dict[tuple[str, int], LeaderAndIsr] = {}
        names = [*(f"a-{n:05d}" for n in range(TOPICS)), *(f"gone-{n:05d}" for n in range(CHANGED))]
        for index, name in enumerate(names):
            assignment = {n: replicas_of(index * PARTITIONS + n) for n in range(PARTITIONS)}
            topics[name] = TopicInfo(name, f"{index:021d}A", assignment, {}, {}, index + 10, 0)
            for number, replicas in assignment.items():
                states[name, number] = LeaderAndIsr(replicas[0], (index * 7 + number) % 50, replicas, 0, 1)
        endpoint = Endpoint("GRPC", "GRPC", "localhost", 9000)
        brokers = {b: Broker(b, b + 1, (endpoint,), None) for b in range(BROKERS)}
        self.store = Store(Snapshot(1, 1, brokers, topics, states, feature=FeatureAnswer(True, 0)))
        self.machine = Machine(1, 1, CoreSettings(), lambda: "x" * 22)
        self._packer = ZooKeeperStore(cast(Session, _Session()), 1, lambda _: None)
        self._builder = MessageBuilder(self.machine.cluster, 10**6)
        self._effects: list[Effect] = []
        self._batches: list[LogBatch] = []
        self._stops: list[Event] = []
        self._serials = count(1)
        self.cpu_s: dict[str, float] = defaultdict(float)

    @contextmanager
    def _timed(self, work: str) -> Iterator[None]:
        began_s = time.thread_time()
        yield
        self.cpu_s[work] += time.thread_time() - began_s

    def ask(self, *bodies: Any) -> None:
        self.run(*(event_of(body, next(self._serials)) for body in bodies))

    def run(self, *events: Event) -> None:
        """Until nothing is left to do."""
        waiting = list(events)
        while True:
            busy = self.machine.current_event is not None
            self._drain(wait=busy)
            waiting += [*self.store.events, *self._stops]
            self.store.events.clear()
            self._stops.clear()
            if self._effects and busy:
                self._step(self._perform(self._effects.pop(0)))
            elif waiting:
                self._step(waiting.pop(0))
            elif not self._effects:
                break
        with self._timed("state-change log"):
            encode = msgspec.json.Encoder().encode
            for batch in self._batches:
                head = envelope("controller", 1, 1, 1, batch.event_id, batch.cause)
                for record in records.expand(batch):
                    encode({**head, **record})
        self._batches.clear()

    def _step(self, stimulus: Event | Outcome | None) -> None:
        more = True
        while more:
            with self._timed("decisions"):
                ready = self.machine.step(stimulus, time.monotonic_ns() // 1000)
            self._batches += ready.records
            self._effects += ready.effects
            self._drain(wait=True)
            stimulus, more = None, ready.more

    def _perform(self, effect: Effect) -> Outcome:
        if not isinstance(effect, Commit):
            return Answer(effect.id, self.store.answer(effect.query))
        with self._timed("writes"):
            self._pack(effect.writes)
        conflict = self.store.commit(effect.writes)
        assert conflict is None, conflict
        self.store.changes.clear()
        return Committed(effect.id)

    def _pack(self, writes: Sequence[Write]) -> None:
        packer = self._packer
        for batch in packer._bounded(writes):
            if isinstance(batch[0], SetState):
                packer._pack_states(batch)
            else:
                for write in batch:
                    packer._pack_one(write)

    def _drain(self, *, wait: bool) -> None:
        """Brokers take what may be sent. ``wait``: as while an event is handled, much that is not urgent waits."""
        outbox = self.machine.outbox
        for broker_id, queue in outbox.queues.items():
            outbox.compared(queue.broker, None)
            while not (wait and outbox.can_wait(broker_id, SMALL_PARTITIONS)):
                with self._timed("control requests"):
                    push = outbox.take(broker_id, TAKE_PARTITIONS)
                    sent = list(self._builder.build(push)) if push is not None else []
                if push is None:
                    break
                assert sent
                if push.kind is PushKind.STOP_REPLICA:
                    deleted = [p for p, delete in zip(push.partitions, push.flags, strict=True) if delete]
                    report = StopReport(broker_id, queue.broker.epoch, deleted)
                    self._stops.append(event_of(report, next(self._serials)))


def _failover(bench: Bench) -> None:
    bench.run(Event(EventKind.FAILOVER))


def _failure(bench: Bench) -> None:
    del bench.store.brokers[0]
    bench.run(Event(EventKind.BROKER_CHANGE))


def _deletion(bench: Bench) -> None:
    bench.ask(DeleteTopics([TopicRef(f"gone-{n:05d}") for n in range(CHANGED)]))
    assert len(bench.store.topics) == TOPICS
    assert not bench.store.deletions


def _reassignment(bench: Bench) -> None:
    """One replica of each partition goes elsewhere, as ``changes.reassignment``."""
    cluster = bench.machine.cluster
    moving = [cluster.topics[f"a-{n:05d}"].partitions[p] for n in range(CHANGED) for p in range(PARTITIONS)]
    targets = {p: (*p.replicas[:-1], next(b for b in range(BROKERS) if b not in p.replicas)) for p in moving}
    bench.ask(
        AlterPartitionReassignments(
            [PartitionReassignment(p.topic.name, p.number, target) for p, target in targets.items()]
        )
    )
    proposals: dict[int, list[Proposal]] = defaultdict(list)
    for partition, target in targets.items():
        state = partition.leadership
        assert state is not None
        isr = tuple(dict.fromkeys((*state.isr, *target)))
        proposals[state.leader].append(
            Proposal(
                partition.topic.name,
                partition.topic.id,
                partition.number,
                state.leader_epoch,
                isr,
                state.recovery,
                state.partition_epoch,
            )
        )
    bench.ask(*(AlterPartition(b, cluster.brokers[b].epoch, asked) for b, asked in proposals.items()))
    assert all(p.replicas == target for p, target in targets.items())
    assert not cluster.reassignments.ongoing


FIGURES: dict[str, Callable[[Bench], None]] = {
    "failover": _failover,
    "broker failure": _failure,
    "deletion": _deletion,
    "reassignment": _reassignment,
}


def measure(rows: Table, runs: int) -> None:
    for figure, act in FIGURES.items():
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(runs):
            bench = Bench()
            if act is not _failover:
                _failover(bench)
                bench.cpu_s.clear()
            gc.collect()
            gc.disable()
            act(bench)
            gc.enable()
            for work in WORK:
                found[work].append(bench.cpu_s[work])
        for work in WORK:
            rows.add_row(f"{figure}: {work}", f"{statistics.median(found[work]):.3f} s of CPU", "", "", "")
