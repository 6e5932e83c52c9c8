"""The context of one event: what its handler may use, and how it waits.

A handler is a generator: sequential code in the reference's order of steps, which yields where it needs an outcome
from outside. It does no I/O. Only ``Machine.step`` drives it (docs/adr/0001).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import TypeVar, cast

from controller.core.effects import (
    AnyQuery,
    Commit,
    Committed,
    Effect,
    Outcome,
    Problem,
    Query,
    Read,
    Unconfirmed,
    Write,
    answer_of,
)
from controller.core.events import EventKind
from controller.core.model import Broker, Cluster, Partition
from controller.core.outbox import Outbox
from controller.core.records import LogBatch, Rejection, StateRecord
from controller.core.requests.api import ControllerResponse, Reply
from controller.core.znode_paths import TOPICS, is_below, state_path


class Pause(Enum):
    """Why a handler yields."""

    WAIT = "wait"  #: an outcome is needed
    YIELD = "yield"  #: let the driver perform effects and run other tasks, then step again at once
    #: As YIELD, between two parts of a long event: prompt events may be handled before the next (docs/adr/0022).
    GIVE_WAY = "give way"


#: Partitions, replicas or entries that a handler looks at between yields: what takes so long delays all other tasks.
SLICE_MAX = 5000
#: The same, of partitions of which most are only passed over.
PASSED_MAX = 20_000
#: Replicas of a part of a long event; and partitions that wait for a leader: they go first, and a part ends with the
#: answer to its last write.
PART_MAX = 2000
ELECTED_PART_MAX = 20_000


class FollowUp(Enum):
    """Deferred work, queued as its own event so that several triggers are handled in one batch."""

    REASSIGNMENTS = "reassignments"  #: finish reassignments whose new replicas are in sync
    DELETIONS = "deletions"  #: record replicas deleted so far, and continue topic deletions


T = TypeVar("T")
Handler = Generator[Pause, Outcome | None, T]


@dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """The settings that decisions depend on, under the controller's names (reference, section 11.3).

    A controller gives all of them: ``runtime.config`` has its defaults. Those here are for plans made from ZooKeeper
    alone, in which nothing is paced and no maintenance mode begins.
    """

    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    #: Partitions that may be reassigned at once, in all and per broker involved; 0: no limit.
    reassignment_concurrent_moves_max: int = 0
    reassignment_concurrent_moves_per_broker_max: int = 0
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    #: Ours: leaderships that rebalancing may return in one run; runs follow each second. 0: all at once.
    leader_rebalance_leaders_per_second: int = 0
    #: Ours: how long the second loss of a broker in a row keeps leaderships from returning to it; 0: not at all.
    broker_flapping_hold_seconds: int = 300
    #: Ours: maintenance mode is entered once this share of the known brokers (0: never), and at least this number, is
    #: offline. It is left after this many seconds with less than half as many offline.
    maintenance_offline_brokers_percentage: int = 0
    maintenance_offline_brokers_min: int = 3
    maintenance_healthy_seconds: int = 30
    #: Ours: brokers of Kafka take this controller for one of them, and may give it replicas.
    leads_kafka: bool = False


def slices(partitions: Iterable[T], size: int | None = None) -> Iterator[list[T]]:
    """Lists of at most so many (None: PASSED_MAX), between which a handler yields. Between yields alone no other event
    adds topics or partitions; over a ``give_way`` it may, and what it adds may be missing."""
    rest = iter(partitions)
    while some := list(islice(rest, size or PASSED_MAX)):
        yield some


def replicas_on(context: EventContext, ids: Collection[int]) -> Handler[list[tuple[Partition, int]]]:
    """Replicas on brokers as (partition, broker id), of topics that are not queued for deletion. Those of partitions
    that are new since it gave way may be missing."""
    cluster, wanted = context.cluster, frozenset(ids)
    found: list[tuple[Partition, int]] = []
    for some in slices(cluster.partitions()):
        found += [
            (partition, broker_id)
            for partition in some
            if not wanted.isdisjoint(partition.replicas)
            and partition.topic.name not in cluster.topics_to_delete
            for broker_id in partition.replicas
            if broker_id in wanted
        ]
        yield from context.give_way()
    return found


def with_dynamic(settings: CoreSettings, cluster: Cluster) -> CoreSettings:
    """``settings`` are static; a dynamic value has its field's type."""
    return replace(settings, **cluster.dynamic) if cluster.dynamic else settings  # type: ignore[arg-type]


def unclean_default(settings: CoreSettings, cluster: Cluster) -> bool:
    """Whether topics without an own setting may elect a leader from outside the ISR."""
    dynamic = cluster.unclean_default
    return settings.unclean_leader_election_enable if dynamic is None else dynamic


class EventContext:
    """Context of one event.

    ``now_us`` is the driver's monotonic clock at the last step; ``skipped``: kinds of events in quarantine;
    ``gives_way``: prompt events may be handled between two parts of this one.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        outbox: Outbox,
        settings: CoreSettings,
        new_topic_id: Callable[[], str],
        effect_ids: Iterator[int],
        event_id: int,
        cause: str,
        now_us: int,
        skipped: Collection[EventKind] = (),
        gives_way: bool = False,
    ) -> None:
        self.cluster, self.outbox = cluster, outbox
        #: What flags, environment and file say.
        self.static_settings = settings
        self.new_topic_id = new_topic_id
        self.event_id, self.cause, self.now_us = event_id, cause, now_us
        self.skipped = skipped
        #: False while the cluster state shows what is not so.
        self.gives_way = gives_way
        self.records: list[LogBatch] = []
        self.effects: list[Effect] = []
        self.replies: list[Reply] = []
        self.follow_ups: list[FollowUp] = []
        self._effect_ids = effect_ids
        self._arrived: dict[int, Outcome] = {}
        self._under_way: set[int] = set()
        #: Partitions whose metadata this event queued since its last broker or disk failure; all that have a state.
        self.notified: set[Partition] = set()
        self.notified_all = False

    @property
    def settings(self) -> CoreSettings:
        """What decisions are made by: dynamic settings hold before static ones."""
        return with_dynamic(self.static_settings, self.cluster)

    @property
    def unclean_default(self) -> bool:
        return unclean_default(self.settings, self.cluster)

    # effects

    def submit_read(self, query: Query[object]) -> int:
        # Every query is a member of AnyQuery; the union lets mypy check that a store answers all of them.
        return self._submit(Read(next(self._effect_ids), cast(AnyQuery, query)))

    def submit_commit(self, writes: Sequence[Write]) -> int:
        return self._submit(Commit(next(self._effect_ids), writes))

    def _submit(self, effect: Effect) -> int:
        self.effects.append(effect)
        self._under_way.add(effect.id)
        return effect.id

    def wait_any(self, ids: Iterable[int]) -> Handler[Outcome]:
        """The outcome of any one of these effects."""
        wanted = set(ids)
        while True:
            for found in wanted & self._arrived.keys():
                return self._arrived.pop(found)
            outcome = yield Pause.WAIT
            if outcome is not None:
                self._arrived[outcome.id] = outcome
                self._under_way.discard(outcome.id)

    def read(self, query: Query[T]) -> Handler[T]:
        """Submit one query and wait for its answer."""
        outcome = yield from self.wait_any([self.submit_read(query)])
        return answer_of(query, outcome)

    def commit(self, writes: Sequence[Write]) -> Handler[Committed | Unconfirmed]:
        """Submit one batch of writes and wait for its outcome."""
        outcome = yield from self.wait_any([self.submit_commit(writes)])
        assert isinstance(outcome, Committed | Unconfirmed)
        return outcome

    def reply(self, serial: int, value: ControllerResponse) -> None:
        """Send a response to a caller. It is sent at once, so everything in it must be durable."""
        self.replies.append(Reply(serial, value))

    def later(self, follow_up: FollowUp) -> None:
        """Defer work to its own event."""
        self.follow_ups.append(follow_up)

    def parts(self, found: Sequence[T], *, elected: bool = False) -> Iterator[Sequence[T]]:
        """What a long event handles part by part, followed by ``give_way``: each part decides, writes and tells by the
        state at its time. Of what was found before, a part must leave out what is no more (``is_present``)."""
        size = ELECTED_PART_MAX if elected else PART_MAX
        return slices(found, size) if self.gives_way else iter([found] if found else [])

    @contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """Within it, nobody is let in."""
        gives_way = self.gives_way
        self.gives_way = False
        yield
        self.gives_way = gives_way

    def give_way(self) -> Handler[None]:
        """Let prompt events be handled. What they change is all that may have changed meanwhile."""
        assert not self._under_way, "a part has ended, and not all of its effects have"
        yield Pause.GIVE_WAY if self.gives_way else Pause.YIELD

    # records

    def log(self, records: Sequence[StateRecord], reason: str = "") -> None:
        """Log records of one class."""
        if records:
            self.records.append(LogBatch(records, reason, self.cause, self.event_id))

    def reject(
        self,
        error: str,
        reason: str,
        partition: Partition | None = None,
        before: str = "",
        after: str = "",
    ) -> None:
        rejection = Rejection(error, reason, partition, before, after)
        # One request can be refused for thousands of partitions: they are one batch.
        if self.records and self.records[-1].kind is Rejection and isinstance(self.records[-1].records, list):
            self.records[-1].records.append(rejection)
        else:
            self.log([rejection])

    def problem(self, problem: Problem) -> None:
        """Remember and report an unreadable znode, once per distinct problem."""
        if self.cluster.problems.get(problem.path) != problem.problem:
            self.cluster.problems[problem.path] = problem.problem
            self.reject(problem.error, f"{problem.path}: {problem.problem}")

    def solved(self, path: str) -> None:
        self.cluster.problems.pop(path, None)

    def solved_state(self, partition: Partition) -> None:
        """The partition's state znode decodes again."""
        if self.cluster.problems:
            self.solved(state_path(partition.topic.name, partition.number))

    def is_present(self, partition: Partition) -> bool:
        """Whether this very partition exists: not one of a former topic of the name, nor of one under deletion."""
        known = self.cluster.partition(partition.topic.name, partition.number)
        return known is partition and not self.cluster.is_deleting(partition)

    # pushes

    def push_leadership(self, told: Iterable[tuple[Iterable[int], Partition]], is_new: bool = False) -> None:
        """Queue LeaderAndIsr, of each partition for some brokers. Callers batch UpdateMetadata in ``push_metadata``.

        Nothing is queued for topics under deletion (reference, section 7.1), nor for a state written by a newer
        controller, which sends it itself (section 2.4).
        """
        epoch, is_deleting = self.cluster.controller_epoch, self.cluster.is_deleting
        due = [
            (recipients, p)
            for recipients, p in told
            if not is_deleting(p) and ((known := p.leadership) is None or known.controller_epoch <= epoch)
        ]
        self.outbox.leader_and_isr(due, is_new, self.event_id, self.cause)

    def push_leadership_all(self, broker_id: int, partitions: Sequence[Partition]) -> None:
        """Queue LeaderAndIsr of many existing partitions for one broker."""
        self.outbox.leader_and_isr_all(broker_id, partitions, self.event_id, self.cause)

    def push_whole_leadership(self, broker_id: int, partitions: Sequence[Partition]) -> None:
        """Queue LeaderAndIsr of all of a broker's replicas, of which it may know some: as part of the whole state."""
        self.outbox.whole_leadership(broker_id, partitions)

    def push_metadata(self, partitions: Iterable[Partition]) -> None:
        """Queue UpdateMetadata for every broker. Partitions without leadership, or written by a newer controller, are
        skipped."""
        epoch = self.cluster.controller_epoch
        self._notify(
            [p for p in partitions if (held := p.leadership) is not None and held.controller_epoch <= epoch]
        )

    def push_everything(self) -> None:
        """Queue the whole state for every broker: LeaderAndIsr of its replicas, and a full metadata snapshot.

        Also what has a newer controller epoch: that does not prove a newer controller, as ``/controller_epoch`` can
        have been lost.
        """
        self.notified_all = True
        ids = list(self.outbox.queues)
        self.outbox.everything_to(ids, self.cluster.topics, self.cluster.topics_to_delete)
        self.outbox.snapshotting.update(ids)
        self.end_snapshots()

    def unnotified(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those whose metadata this event has not queued since its last broker or disk failure."""
        notified, everything = self.notified, self.notified_all
        return [p for p in partitions if p not in notified and not (everything and p.leadership is not None)]

    def forget_notified(self) -> None:
        self.notified.clear()
        self.notified_all = False

    def push_snapshot(self, broker_ids: Collection[int]) -> None:
        """Queue a full metadata snapshot for new brokers, without topics under deletion."""
        self.outbox.snapshot_to(broker_ids, self.cluster.topics, self.cluster.topics_to_delete)
        self.outbox.snapshotting.update(broker_ids)
        self.end_snapshots()

    def end_snapshots(self) -> None:
        """Mark snapshots complete once every partition is read: brokers then drop partitions that are not in them."""
        if self.outbox.snapshotting and not self._unread():
            self.outbox.end_snapshots()

    def _unread(self) -> bool:
        """Whether partitions may be missing from the snapshot: a znode is unreadable, or a state is not known."""
        cluster = self.cluster
        if any(is_below(TOPICS, path) for path in cluster.problems):
            return True
        return cluster.lacks_state()

    def _notify(self, known: list[Partition]) -> None:
        if known:
            self.notified.update(known)
            self.outbox.update_metadata(known, self.event_id, self.cause)

    def push_stop(self, replicas: Iterable[tuple[Partition, int]], *, delete: bool) -> None:
        """Queue StopReplica for replicas, given as (partition, broker id)."""
        self.outbox.stop_replica(replicas, delete, self.event_id, self.cause)

    def add_broker(self, broker: Broker) -> None:
        """Open a push queue for an incarnation of a broker."""
        self.outbox.add_broker(broker, self.event_id, self.cause)

    def push_brokers(self) -> None:
        """Queue the list of live brokers for every broker (UpdateMetadata without partitions)."""
        self.outbox.brokers_changed(self.event_id, self.cause)
