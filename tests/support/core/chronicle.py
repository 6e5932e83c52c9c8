"""What the state-change log says of each partition and replica, from its records alone: who reads the log later knows
no more. It must be what the controller holds in memory, and each record must begin where the one before ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.core.model import Cluster, LeaderAndIsr, PartitionState, ReplicaState
from controller.core.records import (
    BrokerChange,
    LeadershipChange,
    LogBatch,
    NamedPartition,
    PartitionTransition,
    ReassignmentStep,
    ReplicaTransition,
    TopicChange,
)
from controller.core.topics.deletion_status import recorded_as

#: What a broker may become, and from what; of the rest no state before is said.
_BROKERS = {
    "online": ("offline", "shutting_down"),
    "bounced": ("online",),
    "modified": ("online",),
    "offline": ("online",),
    "shutting_down": ("online",),
    "released": ("held_back",),
    "rebalancing": ("imbalanced",),
}
_REGISTERED, _ABSENT = ("found", "online", "bounced", "modified", "shutting_down"), ("offline",)
#: Another topic of the same name may come, or the deletion goes on.
_GONE = ("deleted", "vanished")


@dataclass
class Said:
    """Of one partition; None, or not in it: nothing was said since it was last looked at by hand."""

    partition: NamedPartition
    state: PartitionState | None = None
    leadership: LeaderAndIsr | None = None
    replicas: dict[int, ReplicaState] = field(default_factory=dict)
    #: Whether a reassignment of it goes on, and whether one waits.
    ongoing: bool | None = None
    queued: bool | None = None


class Chronicle:
    def __init__(self) -> None:
        #: By identity: a topic created anew has other partitions of the same names.
        self._said: dict[int, Said] = {}
        #: Of topics, by name.
        self._topics: dict[str, str] = {}
        #: Whether each broker is registered.
        self._brokers: dict[int, bool] = {}
        #: What a controller finds as it takes over goes without saying.
        self._taken_over = False

    def forget(self) -> None:
        """A test has changed memory by hand."""
        self._said.clear()
        self._topics.clear()
        self._brokers.clear()
        self._taken_over = False

    def take(self, batches: Iterable[LogBatch]) -> None:
        for batch in batches:
            for record in batch.of(PartitionTransition):
                said = self._of(record.partition)
                assert said.state in (None, record.before), f"{record}: it was {said.state}"
                said.state = record.after
                if record.leadership is not None:
                    said.leadership = record.leadership
            for moved in batch.of(ReplicaTransition):
                said = self._of(moved.partition)
                before = said.replicas.get(moved.broker_id, moved.before)
                assert before is moved.before, f"{moved}: it was {before}"
                said.replicas[moved.broker_id] = moved.after
            for change in batch.of(LeadershipChange):
                said, old = self._of(change.partition), change.old
                # What a newer controller has written is its own to record.
                foreign = old is not None and old.controller_epoch > change.new.controller_epoch
                assert foreign or said.leadership in (None, old), f"{change}: it was {said.leadership}"
                said.leadership = change.new
            for broker in batch.of(BrokerChange):
                self._take_broker(broker)
            for topic in batch.of(TopicChange):
                known = self._topics.pop(topic.topic, topic.before)
                assert known == topic.before, f"{topic}: it was {known}"
                if topic.after not in _GONE:
                    self._topics[topic.topic] = topic.after
            for step in batch.of(ReassignmentStep):
                said = self._of(step.partition)
                if step.to in ("moving", "settling", "moved"):
                    said.ongoing = step.to != "moved"
                if step.to in ("queued", "moving", "settling", "cancelled"):
                    said.queued = step.to == "queued"

    def _take_broker(self, change: BrokerChange) -> None:
        assert change.before in _BROKERS.get(change.to, ("",)), change
        known = self._brokers.get(change.broker_id)
        if change.before in ("online", "offline", "shutting_down"):
            assert known in (None, change.before != "offline"), f"{change}: it was {known}"
        if change.to in _REGISTERED + _ABSENT:
            self._brokers[change.broker_id] = change.to in _REGISTERED

    def check(self, cluster: Cluster) -> None:
        """What was said is so, and what was not said has not changed since the last check."""
        # Nothing was said of one that came since the last check: nothing has begun.
        reassignments = cluster.reassignments
        unsaid = PartitionState.NON_EXISTENT if self._taken_over else None
        present = {id(p): p for p in cluster.partitions()}
        for gone in self._said.keys() - present.keys():
            del self._said[gone]
        for key, held in present.items():
            known = held.leadership
            said = self._said.get(key) or Said(held, unsaid)
            assert said.state in (None, held.state), f"{held}: the log says {said.state}"
            if known is not None and known.controller_epoch <= cluster.controller_epoch:
                assert said.leadership in (None, known), f"{held}: the log says {said.leadership}"
            for broker_id, state in held.states_by_broker().items():
                assert said.replicas.get(broker_id, state) is state, (
                    f"{held}: the log says {said.replicas[broker_id]} of {broker_id}"
                )
            ongoing, queued = held in reassignments.ongoing, held in reassignments.queued
            assert said.ongoing in (None, ongoing), f"{held}: the log says that it is moving: {said.ongoing}"
            assert said.queued in (None, queued), f"{held}: the log says that a move waits: {said.queued}"
            self._said[key] = Said(held, held.state, known, held.states_by_broker(), ongoing, queued)
        for id_, registered in self._brokers.items():
            assert registered == (id_ in cluster.brokers), f"broker {id_}: the log says {registered}"
        self._brokers = {**dict.fromkeys(self._brokers, False), **dict.fromkeys(cluster.brokers, True)}
        for name, so in self._topics.items():
            assert so == recorded_as(cluster, name), (
                f"{name} is {recorded_as(cluster, name)}, the log says {so}"
            )
        self._topics = {
            name: recorded_as(cluster, name) for name in {*cluster.topics, *cluster.deletions_waiting}
        }
        self._taken_over = True

    def _of(self, partition: NamedPartition) -> Said:
        return self._said.setdefault(id(partition), Said(partition))
