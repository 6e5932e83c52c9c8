"""New to Online: creates the first durable state of a partition (reference, section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from controller.core.commits import ATTEMPTS_MAX, BATCH_WRITES
from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import Committed, CreateState, Problem, ReadStates
from controller.core.model import (
    RECOVERED,
    LeaderAndIsr,
    Partition,
    PartitionState,
    interned,
    shared_directories,
)
from controller.core.partitions import lost_data
from controller.core.reasons import NoReplicaOnline, NotCreated, Reason, Unreadable
from controller.core.records import LeadershipChange, PartitionTransition

#: A creation writes up to three znodes: the state and its two parents.
BATCH_CREATES = BATCH_WRITES // 2
WINDOW_BATCHES = 4

_First = tuple[Partition, LeaderAndIsr]


def initialise(
    context: EventContext, partitions: Sequence[Partition], failed: dict[Partition, Reason]
) -> Handler[list[Partition]]:
    """Create the state of new partitions: the leader is the first online replica, the ISR all online ones.

    Returns the partitions whose state existed already: they were adopted and need an election. Partitions whose state
    could not be created are put into ``failed`` with the reason.
    """
    creation = _Creation(context, failed)
    source = iter(creation.candidates(partitions))
    in_flight: dict[int, list[_First]] = {}
    while True:
        while len(in_flight) < WINDOW_BATCHES and (batch := list(islice(source, BATCH_CREATES))):
            in_flight[creation.submit(batch)] = batch
            yield Pause.YIELD
        if not in_flight:
            return creation.adopted
        outcome = yield from context.wait_any(in_flight)
        batch = in_flight.pop(outcome.id)
        if isinstance(outcome, Committed):
            creation.landed(batch)
        else:
            yield from creation.settle(batch)


class _Creation:
    """The creations of one event, and their results."""

    def __init__(self, context: EventContext, failed: dict[Partition, Reason]) -> None:
        self.context, self.failed = context, failed
        self.adopted: list[Partition] = []

    def candidates(self, partitions: Sequence[Partition]) -> list[_First]:
        cluster = self.context.cluster
        found = []
        for partition in partitions:
            online = cluster.online_replicas(partition)
            if online:
                drained = cluster.maintenance.drained
                leader = next((b for b in online if b not in drained), online[0])
                isr, directories = interned(online), shared_directories(map(cluster.directory_of, online))
                first = LeaderAndIsr(leader, 0, isr, 0, cluster.controller_epoch, RECOVERED, directories)
                found.append((partition, first))
            else:
                self.failed[partition] = NoReplicaOnline(partition.replicas)
        return found

    def submit(self, batch: Sequence[_First]) -> int:
        return self.context.submit_commit([CreateState(partition, new) for partition, new in batch])

    def landed(self, batch: Sequence[_First]) -> None:
        """A batch is durable: update memory, then queue pushes."""
        context = self.context
        for partition, new in batch:
            partition.leadership = new
            partition.state = PartitionState.ONLINE
            context.solved_state(partition)
        context.push_leadership([(new.isr, p) for p, new in batch], is_new=True)
        context.push_metadata([p for p, _ in batch])
        context.log([LeadershipChange(p, None, new) for p, new in batch], "initial")
        before, after = PartitionState.NEW, PartitionState.ONLINE
        context.log([PartitionTransition(p, before, after, new) for p, new in batch], "initialised")

    def settle(self, batch: Sequence[_First]) -> Handler[None]:
        """Handle an unconfirmed batch: read back and classify existing states, and create the absent ones again.

        The retries go topic by topic: a topic whose znode was deleted meanwhile must not fail the others.
        """
        groups = [(yield from self._sort(batch))]
        by_topic: dict[str, list[_First]] = {}
        for partition, new in groups[0]:
            by_topic.setdefault(partition.topic.name, []).append((partition, new))
        for group in by_topic.values():
            yield from self._insist(group)

    def _insist(self, group: Sequence[_First]) -> Handler[None]:
        reason = ""
        for _ in range(ATTEMPTS_MAX):
            outcome = yield from self.context.commit([CreateState(p, new) for p, new in group])
            if isinstance(outcome, Committed):
                self.landed(group)
                return
            reason = outcome.reason
            group = yield from self._sort(group)
            if not group:
                return
        self.failed.update((p, NotCreated(reason)) for p, _ in group)

    def _sort(self, batch: Sequence[_First]) -> Handler[list[_First]]:
        """Read back: our state is a success, another's is adopted; returns the ones still absent."""
        context = self.context
        stored = yield from context.read(ReadStates([p for p, _ in batch]))
        absent: list[_First] = []
        ours: list[_First] = []
        others: list[Partition] = []
        for (partition, new), found in zip(batch, stored, strict=True):
            if found is None:
                absent.append((partition, new))
            elif isinstance(found, Problem):
                context.problem(found)
                self.failed[partition] = Unreadable(found.path, found.problem)
            elif found == new:
                ours.append((partition, new))
            else:
                partition.leadership = found
                others.append(partition)
        self.landed(ours)
        yield from self._adopt(others)
        return absent

    def _adopt(self, partitions: list[Partition]) -> Handler[None]:
        context = self.context
        before, after = PartitionState.NEW, PartitionState.OFFLINE
        found = [PartitionTransition(p, before, after, p.leadership) for p in partitions]
        for partition in partitions:
            context.reject("CONFLICT", "its state already exists: adopted", partition)
            context.solved_state(partition)
            partition.state = PartitionState.OFFLINE
        context.log(found, "state found in ZooKeeper")
        # It may be an earlier one that somebody wrote back, of disks that are gone since.
        kept = yield from lost_data.take_out(context, partitions)
        # Of a controller epoch above ours nobody is told: the check of stored states puts that right.
        epoch = context.cluster.controller_epoch
        told = [
            p for p in partitions if p not in kept and p.leadership and p.leadership.controller_epoch <= epoch
        ]
        context.push_leadership([(p.replicas, p) for p in told])
        context.push_metadata(told)
        self.adopted.extend(partitions)
