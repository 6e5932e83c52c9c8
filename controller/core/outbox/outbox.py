"""The queues of all brokers: the core fills them, senders take from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import ge

from controller.core.model import Broker, Partition, Topic
from controller.core.outbox.metadata_stream import MetadataStream
from controller.core.outbox.pushes import Push, PushKind
from controller.core.outbox.queues import BrokerQueue, Round, pop_items
from controller.core.outbox.whole_state import Differing, Everything, Snapshot

#: A change of so few partitions is small: it goes before the others, which may be of hundreds of thousands.
SMALL_MAX = 100
#: Requests of small changes, LeaderAndIsr and metadata, before it is the turn of large ones.
SMALL_IN_ROW_MAX = 2
#: Indices of the metadata streams.
SMALL, LARGE = 0, 1


class Outbox:
    """The queues of all brokers. Single-threaded: the core adds and the senders take on one event loop."""

    def __init__(self, small_max: int = SMALL_MAX) -> None:
        self._small_max = small_max
        self.queues: dict[int, BrokerQueue] = {}
        #: Metadata of small changes, and of others. A partition is in one of them at most.
        self.metadata = (MetadataStream(), MetadataStream())
        self.brokers_version = 0
        self._snapshots = 0
        #: The newest event that queued anything.
        self._newest_event_id = 0
        #: Brokers that receive a snapshot which must not be marked complete yet.
        self.snapshotting: set[int] = set()

    def add_broker(self, broker: Broker, event_id: int, cause: str) -> None:
        """Open a queue for an incarnation of a broker; the queue of an older incarnation is dropped."""
        self._note(event_id)
        self.remove_broker(broker.id)
        # The same process may have been told of an event that a long one gave way to (`caused_by`).
        self.queues[broker.id] = BrokerQueue(broker, self.ends, self._newest_event_id, cause)

    @property
    def ends(self) -> list[int]:
        """Positions after the newest change, of each metadata stream."""
        return [stream.end for stream in self.metadata]

    def _note(self, event_id: int) -> None:
        """This event queues something."""
        self._newest_event_id = max(self._newest_event_id, event_id)

    def remove_broker(self, broker_id: int) -> None:
        self.queues.pop(broker_id, None)

    def brokers_changed(self, event_id: int, cause: str) -> None:
        """Queue the changed list of live brokers for every broker, even without partitions (KAFKA-13225)."""
        self.brokers_version += 1
        self._note(event_id)
        for queue in self.queues.values():
            queue.refresh = True
            queue.caused_by(event_id, cause)

    def leader_and_isr(
        self, told: Iterable[tuple[Iterable[int], Partition]], is_new: bool, event_id: int, cause: str
    ) -> None:
        """Queue LeaderAndIsr, of each partition for some brokers; unknown ones are skipped. Metadata is added by the
        caller."""
        told = list(told)
        small = len(told) <= self._small_max
        for queue, partitions in self._each_queue(told, event_id, cause):
            queue.add_leader_and_isr(partitions, is_new, small)

    def _each_queue(
        self, told: Iterable[tuple[Iterable[int], Partition]], event_id: int, cause: str
    ) -> Iterator[tuple[BrokerQueue, list[Partition]]]:
        """Each known broker's queue, which from now on names this event, with its partitions."""
        self._note(event_id)
        by_broker: dict[int, list[Partition]] = {}
        for broker_ids, partition in told:
            for broker_id in broker_ids:
                try:
                    by_broker[broker_id].append(partition)
                except KeyError:
                    by_broker[broker_id] = [partition]
        for broker_id, partitions in by_broker.items():
            queue = self.queues.get(broker_id)
            if queue is not None:
                queue.caused_by(event_id, cause)
                yield queue, partitions

    def leader_and_isr_all(
        self, broker_id: int, partitions: Sequence[Partition], event_id: int, cause: str
    ) -> None:
        """Queue LeaderAndIsr of many existing partitions for one broker."""
        self._note(event_id)
        queue = self.queues.get(broker_id)
        if queue is not None:
            queue.add_all_leader_and_isr(partitions)
            queue.caused_by(event_id, cause)

    def stop_replica(
        self, replicas: Iterable[tuple[Partition, int]], delete: bool, event_id: int, cause: str
    ) -> None:
        """Queue StopReplica for replicas, given as (partition, broker id); those of unknown brokers are skipped."""
        told = (((broker_id,), partition) for partition, broker_id in replicas)
        for queue, partitions in self._each_queue(told, event_id, cause):
            queue.add_stop_replica(partitions, delete, self.ends)

    def update_metadata(self, partitions: Iterable[Partition], event_id: int, cause: str) -> None:
        """Queue metadata of partitions for every broker."""
        self._note(event_id)
        partitions = list(partitions)
        number = SMALL if len(partitions) <= self._small_max else LARGE
        stream = self.metadata[number]
        stream.add(partitions)
        self.metadata[LARGE - number].forget(partitions)
        self._leave_out(partitions)
        queues = self.queues.values()
        for queue in queues:
            queue.caused_by(event_id, cause)
        moved = stream.compacted(position for queue in queues for position in queue.positions(number))
        if moved is not None:
            for queue in queues:
                queue.move(number, moved)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Drop partitions of a vanished topic: they must not be sent as those of a new topic with the same name."""
        gone = frozenset(partitions)
        for stream in self.metadata:
            stream.forget(gone)
        self._leave_out(gone)
        for queue in self.queues.values():
            queue.forget(gone)

    def _leave_out(self, partitions: Collection[Partition]) -> None:
        for snapshot in {q.snapshot for q in self.queues.values() if q.snapshot is not None}:
            snapshot.left_out.update(partitions)

    def end_snapshots(self) -> None:
        """Let the last queued metadata of brokers that receive a snapshot mark it complete."""
        for broker_id in self.snapshotting & self.queues.keys():
            self.queues[broker_id].snapshot_open = True
        self.snapshotting.clear()

    def whole_leadership(self, broker_id: int, partitions: Iterable[Partition]) -> None:
        """Queue LeaderAndIsr of all replicas of a broker, as part of the whole state."""
        queue = self.queues.get(broker_id)
        if queue is not None:
            queue.add_whole(partitions)

    def snapshot_to(
        self,
        broker_ids: Iterable[int],
        topics: Mapping[str, Topic],
        deleting: Collection[str],
    ) -> None:
        """Queue a full metadata snapshot for brokers that have registered, as part of the whole state and before all
        else of it (reference, section 6, Startup step 3), replacing an earlier one; it is listed as in
        ``everything_to``."""
        self._snapshots += 1
        everything = Everything(topics, deleting, list(topics), told_deleting=False)
        snapshot = Snapshot(self._snapshots, [], everything)
        for broker_id in broker_ids:
            queue = self.queues.get(broker_id)
            if queue is not None:
                queue.snapshot, queue.snapshot_position = snapshot, 0
                queue.snapshot_first, queue.snapshot_of = True, None
                queue.comparing = True

    def everything_to(
        self, broker_ids: Iterable[int], topics: Mapping[str, Topic], deleting: Collection[str]
    ) -> None:
        """Queue the whole state; only these collections are kept, and looked at when it is known what a broker holds.
        What is queued until then is left out. ``deleting``: names of topics under deletion."""
        everything = Everything(topics, deleting, list(topics))
        self._snapshots += 1
        snapshot = Snapshot(self._snapshots, [], everything)
        for queue in (q for id_ in broker_ids if (q := self.queues.get(id_)) is not None):
            queue.add_everything(everything)
            queue.snapshot, queue.snapshot_position = snapshot, 0
            queue.snapshot_first, queue.snapshot_of = False, None

    def list_some(self, broker: Broker) -> bool:
        """Do a part of what ``compared`` does for a broker that is told everything; whether there is more of it."""
        queue = self.queues.get(broker.id)
        if queue is None or queue.broker.epoch != broker.epoch or not queue.comparing:
            return False
        return queue.list_some() or (queue.snapshot is not None and queue.snapshot.list_some())

    def compared(self, broker: Broker, differing: Differing | None) -> None:
        """The broker holds all of the whole state but these topics; None: that is not known, so it is told everything.

        The caller has fenced earlier controllers first, and each partition of the other topics was equal at some moment
        since the whole state was queued: what has changed since is queued by itself.
        """
        queue = self.queues.get(broker.id)
        if queue is None or queue.broker.epoch != broker.epoch or not queue.comparing:
            return
        queue.comparing = False
        queue.list_whole(differing.leadership if differing is not None else None)
        snapshot = queue.snapshot
        if differing is None:
            while snapshot is not None and snapshot.list_some():
                pass
            return
        queue.snapshot_of = sorted(differing.metadata)
        if snapshot is not None:
            self._snapshots += 1
            kept = snapshot.of(differing.metadata)
            queue.snapshot = Snapshot(self._snapshots, kept) if kept else None

    def take(self, broker_id: int, count_max: int) -> Push | None:
        """The next request for a broker, at most ``count_max`` partitions; None when nothing is pending."""
        queue = self.queues.get(broker_id)
        if queue is None:
            return None
        push = self._take_brokers(queue, count_max) or self._take_from_rounds(queue, count_max)
        if push is not None:
            push.event_id, push.cause = queue.event_id, queue.cause
            push.brokers_version = self.brokers_version
        return push

    def _take_brokers(self, queue: BrokerQueue, count_max: int) -> Push | None:
        """What names the live brokers before anything depends on them."""
        if queue.snapshot_first and queue.snapshot is not None and not queue.comparing:
            return self._take_snapshot(queue, queue.snapshot, count_max)
        if queue.refresh:
            queue.refresh = False
            push = self._metadata_push(queue, ())
            push.urgent = True
            return push
        return None

    def _take_snapshot(self, queue: BrokerQueue, snapshot: Snapshot, count_max: int) -> Push:
        start = queue.snapshot_position
        stop = min(start + count_max, len(snapshot.partitions))
        taken = [p for p in snapshot.partitions[start:stop] if p not in snapshot.left_out]
        queue.snapshot_position = stop
        if stop == len(snapshot.partitions):
            queue.snapshot = None
        queue.refresh = False
        # Negative, so that it differs from every key of the stream.
        key = (-snapshot.number, 0, start, stop, len(taken))
        return self._metadata_push(queue, taken, key)

    def _metadata_push(
        self, queue: BrokerQueue, taken: Sequence[Partition], key: tuple[int, ...] | None = None
    ) -> Push:
        told = queue.snapshot is None and not queue.comparing and queue.cursors == self.ends
        ends = queue.snapshot_open and told
        queue.snapshot_open = queue.snapshot_open and not ends
        return Push(
            PushKind.UPDATE_METADATA,
            queue.broker,
            taken,
            shared_key=key,
            ends_snapshot=ends,
            snapshot_of=queue.snapshot_of if ends else None,
        )

    def _take_from_rounds(self, queue: BrokerQueue, count_max: int) -> Push | None:
        round_ = queue.rounds[0]
        while not round_ and len(queue.rounds) > 1:
            queue.rounds.popleft()
            round_ = queue.rounds[0]
        # In turn, so that neither waits for as long as there is something of the other.
        turns = [self._take_small, self._take_large]
        if queue.small_in_row >= SMALL_IN_ROW_MAX:
            turns.reverse()
        return turns[0](queue, round_, count_max) or turns[1](queue, round_, count_max)

    def _take_small(self, queue: BrokerQueue, round_: Round, count_max: int) -> Push | None:
        """The next of small changes: LeaderAndIsr, then metadata."""
        queue.small_in_row += 1
        if queue.small_in_row == SMALL_IN_ROW_MAX:
            # Of the change whose LeaderAndIsr was the last request: of what came since, LeaderAndIsr goes first.
            push = self._take_changed(queue, SMALL, count_max, queue.leaders_told[SMALL])
            if push is not None:
                return push
        small = round_.take_small(queue.broker.id, count_max)
        whole = 0 if queue.comparing else len(queue.whole)
        if len(small) + len(round_) - len(round_.stop_replica) + whole <= self._small_max:
            push = self._take_leadership(queue, round_, count_max, small)
        else:
            push = self._leadership_push(queue, small)
        if push is not None and not round_.small:
            queue.leaders_told[SMALL] = self.metadata[SMALL].end
        return push or self._take_changed(queue, SMALL, count_max)

    def _take_large(self, queue: BrokerQueue, round_: Round, count_max: int) -> Push | None:
        """The next of all else."""
        queue.small_in_row = 0
        push = self._take_leadership(queue, round_, count_max) or self._take_changed(queue, LARGE, count_max)
        if push is not None:
            return push
        if queue.snapshot is not None and not queue.comparing:
            return self._take_snapshot(queue, queue.snapshot, count_max)
        if queue.snapshot_open and not queue.comparing and queue.cursors == self.ends:
            # The partitions of its last push have changed or vanished since.
            return self._metadata_push(queue, ())
        if round_.stop_replica and all(map(ge, queue.cursors, queue.stops_after)):
            partitions, flags = zip(*pop_items(round_.stop_replica, count_max), strict=True)
            if not round_.stop_replica:
                # What is queued from now on is sent later.
                round_.deleting.clear()
            return Push(PushKind.STOP_REPLICA, queue.broker, partitions, flags)
        return None

    def _take_changed(
        self, queue: BrokerQueue, number: int, count_max: int, until: int | None = None
    ) -> Push | None:
        """The next metadata of a stream; ``until``: but for that from this position on."""
        stream = self.metadata[number]
        end = stream.end if until is None else min(until, stream.end)
        while (start := queue.cursors[number]) < end:
            # Chunks end at fixed positions, so that brokers at the same position share one serialisation.
            changed, stop = stream.slice(start, min(count_max - start % count_max, end - start))
            queue.cursors[number] = stop
            self._forget_passed(number, stop)
            if changed:
                # A slice only ever loses entries, so their number shows whether it changed.
                key = (number, stream.generation, start, stop, len(changed))
                return self._metadata_push(queue, changed, key)
        return None

    def _forget_passed(self, number: int, position: int) -> None:
        """Forget what every broker has passed, once one has passed a position."""
        stream = self.metadata[number]
        due = stream.forget_from
        # Brokers are sent to in order: the last one tells soonest that not all have.
        if position >= due and all(q.cursors[number] >= due for q in reversed(self.queues.values())):
            stream.forget_before(min(q.cursors[number] for q in self.queues.values()))

    def _take_leadership(
        self, queue: BrokerQueue, round_: Round, count_max: int, small: Sequence[tuple[Partition, bool]] = ()
    ) -> Push | None:
        """LeaderAndIsr: after small changes, of those that the broker leads, of others, of the whole state."""
        taken = list(small)
        taken += pop_items(round_.leading, count_max - len(taken))
        urgent = bool(taken)
        taken += pop_items(round_.leader_and_isr, count_max - len(taken))
        if not queue.comparing:
            whole = pop_items(queue.whole, count_max - len(taken), in_order=False)
            taken += [(p, False) for p, _ in whole]
        return self._leadership_push(queue, taken, urgent)

    def _leadership_push(
        self, queue: BrokerQueue, taken: Sequence[tuple[Partition, bool]], urgent: bool = True
    ) -> Push | None:
        if not taken:
            return None
        partitions, flags = zip(*taken, strict=True)
        return Push(PushKind.LEADER_AND_ISR, queue.broker, partitions, flags, urgent=urgent)

    def is_urgent(self, broker_id: int) -> bool:
        """Whether the next request for a broker is an urgent one."""
        queue = self.queues.get(broker_id)
        if queue is None:
            return False
        round_ = next(filter(None, queue.rounds), queue.rounds[0])
        return queue.refresh or bool(round_.small or round_.leading)

    def can_wait(self, broker_id: int, few: int) -> bool:
        """Whether more than ``few`` partitions are pending for a broker, and neither urgent nor small changes."""
        queue = self.queues.get(broker_id)
        if queue is None or self.is_urgent(broker_id) or queue.cursors[SMALL] < self.metadata[SMALL].end:
            return False
        return self.pending_max(broker_id) > few

    def pending_max(self, broker_id: int) -> int:
        """Partitions that may be sent to a broker now, at most."""
        queue = self.queues.get(broker_id)
        return queue.size_max(self.ends) if queue is not None else 0

    def owes_leadership(self, broker_id: int, partition: Partition) -> bool:
        """Whether LeaderAndIsr of a partition is still to be sent to a broker."""
        queue = self.queues.get(broker_id)
        return queue is not None and queue.owes(partition)

    def pending(self, broker_id: int) -> int:
        """Partitions (counted once per request kind) still pending for a broker."""
        queue = self.queues.get(broker_id)
        if queue is None:
            return 0
        rounds = sum(map(len, queue.rounds))
        snapshot = len(queue.snapshot.partitions) - queue.snapshot_position if queue.snapshot else 0
        whole = len(queue.whole) + snapshot + queue.comparing
        changed = sum(
            stream.live_after(cursor) for stream, cursor in zip(self.metadata, queue.cursors, strict=True)
        )
        return whole + rounds + changed + queue.refresh + queue.snapshot_open
