"""Pending control requests per broker: bounded queues that collapse to the newest state per partition.

The queues hold partitions, never values: values are read from the leadership cache when a request is built, and the
cache holds durable state only. So a slow broker gets one newest state per partition, however many decisions it missed,
and no broker gets state that is not durable.

Order of requests to one broker (reference, sections 9.1, 9.2; KAFKA-4443, KAFKA-831): the list of live brokers
before anything that depends on it, then all LeaderAndIsr, then UpdateMetadata, then StopReplica. Of LeaderAndIsr, the
partitions that the broker leads come first: nobody can produce to them before it knows.

A new controller, and a broker that registers, begin with the whole state: LeaderAndIsr of every replica, and a full
metadata snapshot. It waits until somebody has compared what the broker holds already (``compared``), and what is equal
is left out; changes do not wait (docs/adr/0018). A new controller's is only listed then: mostly nothing is left of it.

Every broker gets the same metadata, so it is one shared stream with a cursor per broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from controller.core.model import Broker, Partition, Topic

T = TypeVar("T")

#: Partitions that are listed at once.
LISTED_MAX = 5000
#: Positions of the metadata stream whose vanished entries are counted together.
BLOCK = 4096


class PushKind(Enum):
    """The three control requests; the value is the method's name."""

    LEADER_AND_ISR = "LeaderAndIsr"
    UPDATE_METADATA = "UpdateMetadata"
    STOP_REPLICA = "StopReplica"


class Push(msgspec.Struct, gc=False):
    """One request to build and send; the sender returns it if it could not be delivered.

    ``flags`` is parallel to ``partitions``: is_new of LeaderAndIsr, delete_partition of StopReplica; empty for
    UpdateMetadata. ``shared_key`` is equal for pushes whose partition part is the same for several brokers.
    """

    kind: PushKind
    broker: Broker
    partitions: Sequence[Partition]
    flags: Sequence[bool] = ()
    event_id: int = 0
    cause: str = ""
    shared_key: tuple[int, int, int, int] | None = None
    brokers_version: int = 0
    #: UpdateMetadata that completes a full metadata snapshot.
    ends_snapshot: bool = False
    #: With ``ends_snapshot``: the topics that the snapshot is of; None: all.
    snapshot_of: Sequence[str] | None = None
    #: LeaderAndIsr of partitions that the broker leads, which may be without a leader until it knows; and the list of
    #: live brokers, which goes before.
    urgent: bool = False


class Differing(NamedTuple):
    """Names of the topics of which a broker holds other than the cluster state: of what LeaderAndIsr told it, and
    of what UpdateMetadata did. Also topics that only the broker has."""

    leadership: frozenset[str]
    metadata: frozenset[str]


class _Round:
    """Pending LeaderAndIsr and StopReplica of one broker that may be reordered and collapsed."""

    __slots__ = ("deleting", "leader_and_isr", "leading", "stop_replica")

    def __init__(self) -> None:
        #: Names of partitions to delete: a recreated topic has other Partition objects with these names.
        self.deleting: set[str] = set()
        #: Partitions that the broker leads, and the others; none is in both.
        self.leading: dict[Partition, bool] = {}
        self.leader_and_isr: dict[Partition, bool] = {}
        self.stop_replica: dict[Partition, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.leading or self.leader_and_isr or self.stop_replica)

    def __contains__(self, partition: Partition) -> bool:
        """Whether LeaderAndIsr of it is pending."""
        return partition in self.leading or partition in self.leader_and_isr

    def drop(self, partition: Partition) -> bool:
        """Take back LeaderAndIsr of a partition; returns its is_new."""
        if not self.leading and not self.leader_and_isr:
            return False
        return self.leading.pop(partition, False) | self.leader_and_isr.pop(partition, False)


class MetadataStream:
    """Changed partitions that every broker must receive, oldest first, each at most once (at its last change)."""

    def __init__(self) -> None:
        self._log: list[Partition | None] = []
        self._latest: dict[Partition, int] = {}
        self._base = 0
        #: How many of the log are None, by block of positions.
        self._gone: dict[int, int] = {}
        #: Incremented when positions are renumbered: (generation, positions) always identifies one slice.
        self.generation = 0

    @property
    def end(self) -> int:
        """Position after the newest change."""
        return self._base + len(self._log)

    def add(self, partitions: Iterable[Partition]) -> None:
        log, latest, base = self._log, self._latest, self._base
        for partition in partitions:
            previous = latest.get(partition)
            if previous is not None:
                self._drop(previous)
            latest[partition] = base + len(log)
            log.append(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions from the stream."""
        for partition in partitions:
            position = self._latest.pop(partition, None)
            if position is not None:
                self._drop(position)

    def _drop(self, position: int) -> None:
        self._log[position - self._base] = None
        block = position // BLOCK
        self._gone[block] = self._gone.get(block, 0) + 1

    def slice(self, start: int, count_max: int) -> tuple[list[Partition], int]:
        """The next changes from a position, and the position after them."""
        stop = min(start + count_max, self.end)
        window = self._log[start - self._base : stop - self._base]
        return [p for p in window if p is not None], stop

    def forget_before(self, position: int) -> None:
        """Drop entries before a position that every broker has passed."""
        count = position - self._base
        if count == len(self._log) or count > 100_000:
            for partition in islice(self._log, count):
                if partition is not None:
                    del self._latest[partition]
            del self._log[:count]
            self._base = position
            self._gone = {block: gone for block, gone in self._gone.items() if block >= position // BLOCK}

    def compacted(self, cursors: Iterable[int]) -> dict[int, int] | None:
        """Remove collapsed entries when they outnumber the live ones; returns old to new cursors, None if not needed.

        This bounds the stream by the number of partitions.
        """
        if len(self._log) < 10_000 or len(self._log) < 2 * len(self._latest):
            return None
        moved: dict[int, int] = {}
        live: list[Partition | None] = []
        start = 0
        for cursor in sorted(set(cursors) | {self.end}):
            stop = max(cursor - self._base, 0)
            live.extend(p for p in self._log[start:stop] if p is not None)
            moved[cursor] = self._base + len(live)
            start = stop
        self._log = live
        self.generation += 1
        self._gone = {}
        self._latest = {p: self._base + n for n, p in enumerate(live) if p is not None}
        return moved

    def live_after(self, position: int) -> int:
        """Number of changes after this position."""
        if position <= self._base:
            return len(self._latest)
        if len(self._latest) == len(self._log):
            return self.end - position
        # Each scrape asks that for each broker, and the log is as long as there are partitions.
        block_end = (position // BLOCK + 1) * BLOCK
        gone = self._log[position - self._base : block_end - self._base].count(None)
        gone += sum(count for block, count in self._gone.items() if block * BLOCK >= block_end)
        return self.end - position - gone


class _Everything(NamedTuple):
    """The whole state of all brokers, not listed yet. ``topics`` and ``deleting`` are the cluster state's own, and
    change with it; ``names``: the topics that there were; ``told_deleting``: metadata is also told of topics under
    deletion."""

    topics: Mapping[str, Topic]
    deleting: Collection[str]
    names: Sequence[str]
    told_deleting: bool = True

    def some(self, start: int) -> tuple[list[Partition], int]:
        """The partitions with a state of the next topics from a position on, and the position after them."""
        found: list[Partition] = []
        while start < len(self.names) and len(found) < LISTED_MAX:
            found += self.partitions([self.names[start]])
            start += 1
        return found, start

    def is_told(self, partition: Partition, broker_id: int) -> bool:
        """Whether the broker has a replica, and the topic is not under deletion."""
        topic = partition.topic
        return broker_id in partition.replicas and topic.name not in self.deleting and not topic.deleted

    def partitions(self, names: Collection[str]) -> Iterator[Partition]:
        """Those with a state, of these topics."""
        topics, left_out = self.topics, () if self.told_deleting else self.deleting
        # In an order that is the same in each run.
        chosen = (topics[n] for n in sorted(names) if n in topics and n not in left_out)
        return (p for topic in chosen for p in topic.partitions.values() if p.leadership is not None)

    def leadership(self, broker_id: int, names: Collection[str]) -> Iterator[Partition]:
        """Those of which a broker has a replica, without topics under deletion."""
        return (p for p in self.partitions(names) if self.is_told(p, broker_id))


class _Snapshot:
    """The partitions of a full metadata snapshot, shared by the brokers that receive it; until it is listed, none.

    ``left_out``: those that vanished since, and those that changed: the stream has them, and it may be sent before.
    """

    def __init__(
        self, number: int, partitions: list[Partition], everything: _Everything | None = None
    ) -> None:
        self.number = number
        self.partitions, self._everything = partitions, everything
        self._listed = 0
        self.left_out: set[Partition] = set()

    def list_some(self) -> bool:
        """For a broker that gets all of it: list the next topics. Whether there are more."""
        everything = self._everything
        if everything is None:
            return False
        found, self._listed = everything.some(self._listed)
        self.partitions += [p for p in found if p not in self.left_out]
        if self._listed >= len(everything.names):
            self._everything = None
        return self._everything is not None

    def of(self, names: Collection[str]) -> list[Partition]:
        """The partitions of these topics."""
        if not names:
            return []
        if self._everything is not None:
            found: Iterable[Partition] = self._everything.partitions(names)
        else:
            found = (p for p in self.partitions if p.topic.name in names)
        return [p for p in found if p not in self.left_out]


class BrokerQueue:
    """Pending requests for one incarnation of a broker."""

    def __init__(self, broker: Broker, cursor: int, event_id: int, cause: str) -> None:
        self.broker = broker
        self.cursor = cursor
        self.rounds: deque[_Round] = deque([_Round()])
        #: The event that opened it: no request to an earlier incarnation has this number or a higher one.
        self.opened_by = event_id
        #: The whole state waits until it is known what of it the broker holds already.
        self.comparing = False
        #: Of the whole state: replicas still to be told by LeaderAndIsr.
        self.whole: dict[Partition, None] = {}
        #: The same, while they are not listed: all but those that were queued by themselves.
        self.unlisted: _Everything | None = None
        self.listed = 0
        self.left_out: set[Partition] = set()
        #: Of the whole state: a full metadata snapshot, and this broker's position in it.
        self.snapshot: _Snapshot | None = None
        self.snapshot_position = 0
        #: The broker knows no metadata yet, so the snapshot goes before all else.
        self.snapshot_first = False
        #: The topics that the snapshot is of; None: all.
        self.snapshot_of: Sequence[str] | None = None
        #: The broker's next push that leaves no metadata pending must be marked as the end of its snapshot.
        self.snapshot_open = False
        self.refresh = True
        self.event_id, self.cause = event_id, cause

    def caused_by(self, event_id: int, cause: str) -> None:
        """Something is queued by an event. Brokers refuse an older event's request after a newer one's, and a long
        event may queue after those that it gave way to."""
        if event_id >= self.event_id:
            self.event_id, self.cause = event_id, cause

    def add_leader_and_isr(self, partitions: Collection[Partition], is_new: bool) -> None:
        round_ = self.rounds[-1]
        deleting, stopping = round_.deleting, round_.stop_replica
        if (
            self.whole
            or self.unlisted is not None
            or (deleting and any(p.name in deleting for p in partitions))
        ):
            for partition in partitions:
                self._add_one(partition, is_new)
            return
        # There may be thousands.
        id_, leading, others = self.broker.id, round_.leading, round_.leader_and_isr
        for partition in partitions:
            if stopping:
                stopping.pop(partition, None)
            new = is_new
            if partition in leading:
                new |= leading.pop(partition)
            elif partition in others:
                new |= others.pop(partition)
            state = partition.leadership
            (leading if state is not None and state.leader == id_ else others)[partition] = new

    def _add_one(self, partition: Partition, is_new: bool) -> None:
        round_ = self.rounds[-1]
        if round_.deleting and partition.name in round_.deleting:
            # The old incarnation must be deleted before the new one is created.
            round_ = _Round()
            self.rounds.append(round_)
        elif round_.stop_replica:
            round_.stop_replica.pop(partition, None)
        is_new |= round_.drop(partition)
        self._leave_out(partition)
        state = partition.leadership
        leads = state is not None and state.leader == self.broker.id
        (round_.leading if leads else round_.leader_and_isr)[partition] = is_new

    def add_all_leader_and_isr(self, partitions: Sequence[Partition]) -> None:
        """Queue LeaderAndIsr of many existing partitions."""
        round_ = self.rounds[-1]
        if round_ or self.whole or self.unlisted is not None:
            self.add_leader_and_isr(partitions, False)
        else:
            round_.leader_and_isr = dict.fromkeys(partitions, False)

    def add_stop_replica(self, partitions: Collection[Partition], delete: bool) -> None:
        round_ = self.rounds[-1]
        stopping = round_.stop_replica
        # The whole state may be told later than this.
        affected = bool(round_.leading or round_.leader_and_isr or self.whole or self.unlisted is not None)
        for partition in partitions:
            if affected:
                round_.drop(partition)
                self._leave_out(partition)
            if delete:
                stopping[partition] = True
            else:
                stopping.setdefault(partition, False)
        if delete:
            round_.deleting.update([p.name for p in partitions])

    def add_whole(self, partitions: Iterable[Partition]) -> None:
        """Queue LeaderAndIsr of existing partitions that the broker may know already."""
        self.comparing = True
        rounds = [round_ for round_ in self.rounds if round_]
        self.whole.update(
            dict.fromkeys(p for p in partitions if not any(p in r or p in r.stop_replica for r in rounds))
        )

    def add_everything(self, everything: _Everything) -> None:
        """As ``add_whole``, of all replicas that the broker has; they are listed once it is known what it holds."""
        self.comparing, self.unlisted, self.listed = True, everything, 0
        self.whole = {}
        self.left_out = {
            p
            for r in self.rounds
            for pending in (r.leading, r.leader_and_isr, r.stop_replica)
            for p in pending
        }

    def list_some(self) -> bool:
        """The broker is to be told of all topics: list the next ones. Whether there are more."""
        everything = self.unlisted
        if everything is None:
            return False
        found, self.listed = everything.some(self.listed)
        id_, left_out = self.broker.id, self.left_out
        self.whole.update({p: None for p in found if p not in left_out and everything.is_told(p, id_)})
        if self.listed >= len(everything.names):
            self.unlisted, self.left_out = None, set()
        return self.unlisted is not None

    def list_whole(self, names: Collection[str] | None) -> None:
        """The broker is to be told of these topics; None: of all."""
        while names is None and self.list_some():
            pass
        everything, self.unlisted = self.unlisted, None
        if names is None:
            return
        if everything is not None:
            listed = everything.leadership(self.broker.id, names)
            self.whole = {p: None for p in listed if p not in self.left_out}
            self.left_out = set()
        else:
            self.whole = {p: None for p in self.whole if p.topic.name in names} if names else {}

    def is_due(self, end: int) -> bool:
        """Whether something may be sent now. ``end``: of the metadata stream. Brokers are many, so it is no count."""
        if self.refresh or self.cursor < end or self.rounds[0] or len(self.rounds) > 1:
            return True
        return not self.comparing and bool(self.whole or self.snapshot is not None or self.snapshot_open)

    def size_max(self, end: int) -> int:
        """Partitions that may be sent now, at most."""
        size = (
            end
            - self.cursor
            + sum(len(r.leading) + len(r.leader_and_isr) + len(r.stop_replica) for r in self.rounds)
        )
        if self.comparing:
            return size
        return size + len(self.whole) + (len(self.snapshot.partitions) if self.snapshot is not None else 0)

    def owes(self, partition: Partition) -> bool:
        """Whether LeaderAndIsr of a partition is still to be sent."""
        if partition in self.whole or any(partition in round_ for round_ in self.rounds):
            return True
        unlisted = self.unlisted is not None and partition not in self.left_out
        return unlisted and self.broker.id in partition.replicas

    def _leave_out(self, partition: Partition) -> None:
        if self.whole:
            self.whole.pop(partition, None)
        if self.unlisted is not None:
            self.left_out.add(partition)

    def forget(self, partitions: frozenset[Partition]) -> None:
        """Drop requests about vanished partitions; StopReplica with delete stays."""
        for partition in partitions & self.whole.keys():
            del self.whole[partition]
        for round_ in self.rounds:
            for pending in (round_.leading, round_.leader_and_isr):
                for partition in partitions & pending.keys():
                    del pending[partition]
            for partition in partitions & round_.stop_replica.keys():
                if not round_.stop_replica[partition]:
                    del round_.stop_replica[partition]


class Outbox:
    """The queues of all brokers. Single-threaded: the core adds and the senders take on one event loop."""

    def __init__(self) -> None:
        self.queues: dict[int, BrokerQueue] = {}
        self.metadata = MetadataStream()
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
        self.queues[broker.id] = BrokerQueue(broker, self.metadata.end, self._newest_event_id, cause)

    def _note(self, event_id: int) -> None:
        """This event queues something."""
        self._newest_event_id = max(self._newest_event_id, event_id)

    def remove_broker(self, broker_id: int) -> None:
        self.queues.pop(broker_id, None)
        self.snapshotting.discard(broker_id)

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
        for queue, partitions in self._each_queue(told, event_id, cause):
            queue.add_leader_and_isr(partitions, is_new)

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
            queue.add_stop_replica(partitions, delete)

    def update_metadata(self, partitions: Iterable[Partition], event_id: int, cause: str) -> None:
        """Queue metadata of partitions for every broker."""
        self._note(event_id)
        partitions = list(partitions)
        self.metadata.add(partitions)
        self._leave_out(partitions)
        for queue in self.queues.values():
            queue.caused_by(event_id, cause)
        moved = self.metadata.compacted(queue.cursor for queue in self.queues.values())
        if moved is not None:
            for queue in self.queues.values():
                queue.cursor = moved[queue.cursor]

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Drop partitions of a vanished topic: they must not be sent as those of a new topic with the same name."""
        gone = frozenset(partitions)
        self.metadata.forget(gone)
        self._leave_out(gone)
        for queue in self.queues.values():
            queue.forget(gone)

    def _leave_out(self, partitions: Collection[Partition]) -> None:
        for snapshot in {id(s): s for q in self.queues.values() if (s := q.snapshot) is not None}.values():
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
        first: bool = False,
    ) -> None:
        """Queue a full metadata snapshot, as part of the whole state, replacing an earlier one; it is listed as in
        ``everything_to``. ``first``: before all else, for brokers that have registered (reference, section 6, Startup
        step 3)."""
        self._snapshots += 1
        everything = _Everything(topics, deleting, list(topics), told_deleting=False)
        snapshot = _Snapshot(self._snapshots, [], everything)
        for broker_id in broker_ids:
            queue = self.queues.get(broker_id)
            if queue is not None:
                queue.snapshot, queue.snapshot_position = snapshot, 0
                queue.snapshot_first, queue.snapshot_of = first, None
                queue.comparing = True

    def everything_to(
        self, broker_ids: Iterable[int], topics: Mapping[str, Topic], deleting: Collection[str]
    ) -> None:
        """Queue the whole state; only these collections are kept, and looked at when it is known what a broker holds.
        What is queued until then is left out. ``deleting``: names of topics under deletion."""
        everything = _Everything(topics, deleting, list(topics))
        self._snapshots += 1
        snapshot = _Snapshot(self._snapshots, [], everything)
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
            queue.snapshot = _Snapshot(self._snapshots, kept) if kept else None

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

    def _take_snapshot(self, queue: BrokerQueue, snapshot: _Snapshot, count_max: int) -> Push:
        start = queue.snapshot_position
        stop = min(start + count_max, len(snapshot.partitions))
        taken = [p for p in snapshot.partitions[start:stop] if p not in snapshot.left_out]
        queue.snapshot_position = stop
        if stop == len(snapshot.partitions):
            queue.snapshot = None
        queue.refresh = False
        # Negative, so that it differs from every key of the stream.
        key = (-snapshot.number, start, stop, len(taken))
        return self._metadata_push(queue, taken, key)

    def _metadata_push(
        self, queue: BrokerQueue, taken: Sequence[Partition], key: tuple[int, int, int, int] | None = None
    ) -> Push:
        told = queue.snapshot is None and not queue.comparing and queue.cursor == self.metadata.end
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
        if (leadership := self._take_leadership(queue, round_, count_max)) is not None:
            return leadership
        while queue.cursor < self.metadata.end:
            start = queue.cursor
            # Chunks end at fixed positions, so that brokers at the same position share one serialisation.
            changed, stop = self.metadata.slice(start, count_max - start % count_max)
            queue.cursor = stop
            self.metadata.forget_before(min(q.cursor for q in self.queues.values()))
            if changed:
                # A slice only ever loses entries, so their number shows whether it changed.
                key = (self.metadata.generation, start, stop, len(changed))
                return self._metadata_push(queue, changed, key)
        if queue.snapshot is not None and not queue.comparing:
            return self._take_snapshot(queue, queue.snapshot, count_max)
        if queue.snapshot_open and not queue.comparing:
            # The partitions of its last push have changed or vanished since.
            return self._metadata_push(queue, ())
        if round_.stop_replica:
            partitions, flags = _pop_items(round_.stop_replica, count_max)
            if not round_.stop_replica:
                # What is queued from now on is sent later.
                round_.deleting.clear()
            return Push(PushKind.STOP_REPLICA, queue.broker, partitions, flags)
        return None

    def _take_leadership(self, queue: BrokerQueue, round_: _Round, count_max: int) -> Push | None:
        """LeaderAndIsr: of changes that the broker leads, of other changes, of the whole state."""
        partitions, flags = _pop_items(round_.leading, count_max)
        urgent = bool(partitions)
        others, their_flags = _pop_items(round_.leader_and_isr, count_max - len(partitions))
        partitions += others
        flags += their_flags
        if not queue.comparing:
            known, _ = _pop_items(queue.whole, count_max - len(partitions))
            partitions += known
            flags += [False] * len(known)
        if not partitions:
            return None
        return Push(PushKind.LEADER_AND_ISR, queue.broker, partitions, flags, urgent=urgent)

    def is_urgent(self, broker_id: int) -> bool:
        """Whether the next request for a broker is an urgent one."""
        queue = self.queues.get(broker_id)
        if queue is None:
            return False
        return queue.refresh or bool(next(filter(None, queue.rounds), queue.rounds[0]).leading)

    def can_wait(self, broker_id: int, small: int) -> bool:
        """Whether more than ``small`` partitions are pending for a broker, and none that is urgent."""
        queue = self.queues.get(broker_id)
        if queue is None or self.is_urgent(broker_id):
            return False
        return queue.size_max(self.metadata.end) > small

    def owes_leadership(self, broker_id: int, partition: Partition) -> bool:
        """Whether LeaderAndIsr of a partition is still to be sent to a broker."""
        queue = self.queues.get(broker_id)
        return queue is not None and queue.owes(partition)

    def pending(self, broker_id: int) -> int:
        """Partitions (counted once per request kind) still pending for a broker."""
        queue = self.queues.get(broker_id)
        if queue is None:
            return 0
        rounds = sum(len(r.leading) + len(r.leader_and_isr) + len(r.stop_replica) for r in queue.rounds)
        snapshot = len(queue.snapshot.partitions) - queue.snapshot_position if queue.snapshot else 0
        whole = len(queue.whole) + snapshot + queue.comparing
        changed = rounds + self.metadata.live_after(queue.cursor)
        return whole + changed + queue.refresh + queue.snapshot_open


def _pop_items(pending: dict[Partition, T], count_max: int) -> tuple[list[Partition], list[T]]:
    if len(pending) <= count_max:
        items = list(pending.items())
        # Emptied entry by entry, a dictionary stays as large, and each look at it passes over all places.
        pending.clear()
    else:
        items = list(islice(pending.items(), count_max))
        for partition, _ in items:
            del pending[partition]
    return [partition for partition, _ in items], [flag for _, flag in items]
