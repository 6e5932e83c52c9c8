"""Runs the core's machine on a store in memory, and records what would be written and sent to brokers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from controller.core.effects import (
    Answer,
    Committed,
    Effect,
    Outcome,
    Read,
    ReadPendingDeletions,
    Unconfirmed,
)
from controller.core.events import Event, EventKind, StopReport
from controller.core.handlers import event_of
from controller.core.machine import Machine
from controller.core.model import Broker, Partition
from controller.core.outbox import PushKind
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.znode_paths import PREFERRED_ELECTION
from controller.planning.snapshot import Key, Snapshot
from controller.planning.store import Change, Store

#: Partitions taken from the outbox at once.
PUSH_PARTITIONS = 1000
#: Placeholder of a new topic's id, which is random.
TOPIC_ID = "(drawn at creation)"

#: Partitions sent, by broker and kind of push; 0: a push with only the list of live brokers.
Pushes = dict[int, dict[str, int]]


class Executor:
    """A controller on a snapshot, after its failover, ready for events.

    ``settling``: what the failover wrote; on a healthy, quiet cluster nothing. Unlike a newly elected controller, it
    knows of failed disks and of brokers that are shutting down, if the snapshot does. ``give_way`` is called between
    any two steps of the machine, and may raise to abandon the run.
    """

    def __init__(self, snapshot: Snapshot, give_way: Callable[[], None] = lambda: None) -> None:
        self.snapshot, self._give_way = snapshot, give_way
        self.store = Store(snapshot)
        self.machine = Machine(
            snapshot.controller_id,
            snapshot.controller_epoch,
            snapshot.settings,
            lambda: TOPIC_ID,
        )
        self._serials = count(1)
        self._replies: dict[int, ControllerResponse] = {}
        self._pushes: Pushes = {}
        #: Partitions that StopReplica asked brokers to delete, without a response yet, by broker id.
        self._deleting: dict[int, list[Partition]] = {}
        self._handle(Event(EventKind.FAILOVER))
        # Not before: the failover would treat the partitions that such a broker still leads as offline.
        self.machine.cluster.shutting_down.update(snapshot.shutting_down & snapshot.brokers.keys())
        self.settling: list[Change] = self.store.take_changes()
        self._pushes.clear()
        self._deleting.clear()

    # what may happen

    def lose(self, broker_ids: Sequence[int]) -> None:
        """Brokers go offline, all in one event."""
        for broker_id in broker_ids:
            del self.store.brokers[broker_id]
        self._handle(Event(EventKind.BROKER_CHANGE))

    def bring_back(self, brokers: Sequence[Broker]) -> None:
        """Brokers register again, as new incarnations."""
        for broker in brokers:
            self.store.register(broker)
        self._handle(Event(EventKind.BROKER_CHANGE))

    def elect_preferred(self, partitions: Sequence[Key]) -> None:
        """A preferred election through ``/admin/preferred_replica_election``."""
        self.store.watched[PREFERRED_ELECTION] = list(partitions)
        self._handle(Event(EventKind.PREFERRED_ELECTION))

    def ask(self, request: ControllerRequest) -> ControllerResponse:
        """Send a request to the controller; return its response."""
        serial = next(self._serials)
        self._handle(event_of(request, serial))
        return self._replies.pop(serial)

    def delete_replicas(self) -> bool:
        """Brokers delete the requested replicas and respond; False: none was requested."""
        notified, self._deleting = self._deleting, {}
        for broker_id, partitions in notified.items():
            report = StopReport(broker_id, self.store.brokers[broker_id].epoch, partitions)
            self._handle(event_of(report, next(self._serials)))
        return bool(notified)

    def take_pushes(self) -> Pushes:
        """What was sent since the last call."""
        taken, self._pushes = self._pushes, {}
        return taken

    # driving

    def _handle(self, event: Event) -> None:
        """Handle one event completely, then the events that its writes trigger."""
        self._process(event)
        while self.store.events:
            self._process(self.store.events.popleft())

    def _process(self, event: Event) -> None:
        """Handle one event; pushes are delivered once all is decided."""
        stimuli: deque[Event | Outcome | None] = deque([event])
        effects: deque[Effect] = deque()
        while stimuli or effects:
            stimulus = stimuli.popleft() if stimuli else self._perform(effects.popleft())
            self._give_way()
            # No plan depends on how long it takes.
            ready = self.machine.step(stimulus, 0)
            effects.extend(ready.effects)
            self._replies.update((reply.serial, reply.value) for reply in ready.replies)
            if ready.more:
                stimuli.append(None)
        assert self.machine.current_event is None, f"{event} did not end"
        self._deliver()

    def _perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, Read):
            if isinstance(effect.query, ReadPendingDeletions) and not self.machine.ready:
                self._lose_disks()
            return Answer(effect.id, self.store.answer(effect.query))
        conflict = self.store.commit(effect.writes, self.machine.cluster.controller_epoch)
        return Committed(effect.id) if conflict is None else Unconfirmed(effect.id, conflict)

    def _lose_disks(self) -> None:
        """Set failed disks before the failover elects leaders: at this read it has loaded all partitions."""
        cluster = self.machine.cluster
        for broker_id, keys in self.store.offline_dirs.items():
            lost = {p for key in keys if (p := cluster.partition(*key)) is not None}
            if lost and broker_id in cluster.brokers:
                cluster.offline_dirs[broker_id] = lost

    def _deliver(self) -> None:
        outbox = self.machine.outbox
        for broker_id in outbox.queues:
            while (push := outbox.take(broker_id, PUSH_PARTITIONS)) is not None:
                notified = self._pushes.setdefault(broker_id, {})
                notified[push.kind.value] = notified.get(push.kind.value, 0) + len(push.partitions)
                if push.kind is PushKind.STOP_REPLICA:
                    going = [p for p, delete in zip(push.partitions, push.flags, strict=True) if delete]
                    if going:
                        self._deleting.setdefault(broker_id, []).extend(going)
