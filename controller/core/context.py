"""One event being processed: what its handler may use, and how it waits.

A handler is a generator: plain sequential code that yields where the outside has to answer. It reads like
the reference's order of steps, does no I/O, and is driven by ``Machine.step`` alone (docs/adr/0001).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
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
from controller.core.model import Broker, Cluster, Partition
from controller.core.outbox import Outbox
from controller.core.records import LogBatch, Rejection, StateRecord
from controller.core.requests.api import ControllerResponse, Reply
from controller.core.znode_paths import TOPICS, is_below, state_path


class Pause(Enum):
    """Why a handler yields."""

    WAIT = "wait"  #: an outcome is needed
    YIELD = "breathe"  #: let effects go out and others run, then call again at once


class FollowUp(Enum):
    """Work that events leave to one of its own, after those that wait already: what several leave is done together."""

    REASSIGNMENTS = "reassignments"  #: reassignments whose new replicas came into sync are finished
    DELETIONS = "deletions"  #: what brokers have deleted by now is recorded, and deletions of topics go on


T = TypeVar("T")
Handler = Generator[Pause, Outcome | None, T]


@dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """The settings that decisions depend on, under the controller's names for them (reference, section 11.3)."""

    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    #: Partitions that may be copying at once, in all and per broker that takes part; 0: any number.
    reassignment_concurrent_moves_max: int = 0
    reassignment_concurrent_moves_per_broker_max: int = 0
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    #: Ours: leaderships that rebalancing may return in one run, of which one a second follows; 0: all at once.
    leader_rebalance_leaders_per_second: int = 0
    #: Ours: maintenance mode is entered once so many of the known brokers are gone, in percent (0: never) and at least
    #: in number, and left after so many seconds with less than half as many gone.
    maintenance_offline_brokers_percentage: int = 0
    maintenance_offline_brokers_min: int = 3
    maintenance_healthy_seconds: int = 30


class EventContext:
    """Context of one event. ``now_us`` is the driver's monotonic clock at the last step."""

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
    ) -> None:
        self.cluster, self.outbox, self.settings = cluster, outbox, settings
        self.new_topic_id = new_topic_id
        self.event_id, self.cause, self.now_us = event_id, cause, now_us
        self.records: list[LogBatch] = []
        self.effects: list[Effect] = []
        self.replies: list[Reply] = []
        self.follow_ups: list[FollowUp] = []
        self._effect_ids = effect_ids
        self._arrived: dict[int, Outcome] = {}
        #: Partitions whose metadata was queued in this event, since brokers or disks last failed in it.
        self.notified: set[Partition] = set()

    @property
    def unclean_default(self) -> bool:
        """Whether topics that say nothing themselves may get a leader that is out of sync."""
        dynamic = self.cluster.unclean_default
        return self.settings.unclean_leader_election_enable if dynamic is None else dynamic

    # effects

    def submit_read(self, query: Query[object]) -> int:
        # Every query is one of them; the union lets mypy see that a store answers all.
        effect = Read(next(self._effect_ids), cast(AnyQuery, query))
        self.effects.append(effect)
        return effect.id

    def submit_commit(self, writes: Sequence[Write]) -> int:
        effect = Commit(next(self._effect_ids), writes)
        self.effects.append(effect)
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

    def read(self, query: Query[T]) -> Handler[T]:
        """The answer to one query."""
        outcome = yield from self.wait_any([self.submit_read(query)])
        return answer_of(query, outcome)

    def commit(self, writes: Sequence[Write]) -> Handler[Committed | Unconfirmed]:
        """One batch of writes, waited for."""
        outcome = yield from self.wait_any([self.submit_commit(writes)])
        assert isinstance(outcome, Committed | Unconfirmed)
        return outcome

    def reply(self, serial: int, value: ControllerResponse) -> None:
        """Answer a caller. It goes out at once: everything it says must be durable."""
        self.replies.append(Reply(serial, value))

    def later(self, follow_up: FollowUp) -> None:
        """Leave this to an event of its own."""
        self.follow_ups.append(follow_up)

    # records

    def log(self, records: Sequence[StateRecord], reason: str = "") -> None:
        """Records of one class."""
        if records:
            self.records.append(LogBatch(records, reason, self.cause, self.event_id))

    def reject(
        self,
        error: str,
        reason: str,
        partition: Partition | None = None,
        from_state: str = "",
        to_state: str = "",
    ) -> None:
        rejection = Rejection(error, reason, partition, from_state, to_state)
        # One request can be refused in thousands of parts: they are one batch.
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
        """Its state znode decodes (again)."""
        if self.cluster.problems:
            self.solved(state_path(partition.topic.name, partition.number))

    # pushes

    def push_leadership(self, recipients: Iterable[int], partition: Partition, is_new: bool = False) -> None:
        """Queue LeaderAndIsr for some brokers. Metadata for all is ``push_metadata``, batched by callers.

        Replicas of a topic that is being deleted hear of no leadership any more (reference, section 7.1), and what a
        newer controller wrote is for that one to tell (section 2.4).
        """
        known = partition.leadership
        superseded = known is not None and known.controller_epoch > self.cluster.controller_epoch
        if superseded or self.cluster.is_deleting(partition):
            return
        self.outbox.leader_and_isr(recipients, partition, is_new, self.event_id, self.cause)

    def push_leadership_all(self, broker_id: int, partitions: Sequence[Partition]) -> None:
        """Queue LeaderAndIsr of many existing partitions for one broker."""
        self.outbox.leader_and_isr_all(broker_id, partitions, self.event_id, self.cause)

    def push_metadata(self, partitions: Iterable[Partition]) -> None:
        """Queue UpdateMetadata for every broker; partitions without leadership have nothing to tell, those of a newer
        controller it tells itself."""
        epoch = self.cluster.controller_epoch
        self._notify(
            [p for p in partitions if (held := p.leadership) is not None and held.controller_epoch <= epoch]
        )

    def push_metadata_all(self, partitions: Iterable[Partition]) -> None:
        """Queue UpdateMetadata of what a failover found, whoever wrote it: there a newer epoch is no sign of a newer
        controller, as ``/controller_epoch`` can have been lost."""
        self._notify([p for p in partitions if p.leadership is not None])
        self.outbox.snapshotting.update(self.outbox.queues)
        self.end_snapshots()

    def push_snapshot(self, broker_ids: Collection[int], partitions: list[Partition]) -> None:
        """Queue all there is for new brokers."""
        self.outbox.snapshot_to(broker_ids, partitions)
        self.outbox.snapshotting.update(broker_ids)
        self.end_snapshots()

    def end_snapshots(self) -> None:
        """Brokers may forget what they are not told of, once all there is has been read."""
        if self.outbox.snapshotting and not self._unread():
            self.outbox.end_snapshots()

    def _unread(self) -> bool:
        """Whether there may be partitions that nobody was told of: unreadable, or not known to have a state."""
        cluster = self.cluster
        if any(is_below(TOPICS, path) for path in cluster.problems):
            return True
        if cluster.stateless is None or not self._is_stateless(cluster.stateless):
            cluster.stateless = next(filter(self._is_stateless, cluster.partitions()), None)
        return cluster.stateless is not None

    def _is_stateless(self, partition: Partition) -> bool:
        cluster = self.cluster
        known = cluster.partition(partition.topic.name, partition.number) is partition
        return known and partition.leadership is None and not cluster.is_deleting(partition)

    def _notify(self, known: list[Partition]) -> None:
        if known:
            self.notified.update(known)
            self.outbox.update_metadata(known, self.event_id, self.cause)

    def push_stop(self, broker_id: int, partition: Partition, delete: bool) -> None:
        self.outbox.stop_replica(broker_id, partition, delete, self.event_id, self.cause)

    def add_broker(self, broker: Broker) -> None:
        """Open a queue of pushes for an incarnation of a broker."""
        self.outbox.add_broker(broker, self.event_id, self.cause)

    def push_brokers(self) -> None:
        """Tell everyone who is alive (an UpdateMetadata without partitions)."""
        self.outbox.brokers_changed(self.event_id, self.cause)
