"""The controller's whole state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import msgspec

from controller.core.model.broker_ids import BrokerIds, members, of_several, shared_directories
from controller.core.model.brokers import (
    Broker,
    ControlProtocol,
    Flapping,
    Forgotten,
    StopApproval,
    without_data,
)
from controller.core.model.leadership import LeaderAndIsr
from controller.core.model.maintenance import Maintenance
from controller.core.model.reassignments import Ineligible, Reassignments
from controller.core.model.states import PartitionState
from controller.core.model.topics import Partition, Topic
from controller.core.reasons import Reason
from controller.core.znode_paths import state_path, topic_config_path

#: Unreadable znodes that one response names.
PROBLEMS_SHOWN_MAX = 100


class Cluster:
    """The controller's whole state. Each term starts with a new one: nothing outlives a resignation."""

    def __init__(self, controller_id: int, controller_epoch: int = 0) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        #: Registered brokers, by id.
        self.brokers: dict[int, Broker] = {}
        #: Ids of the brokers that were registered at some time of this term.
        self.registered_before: set[int] = set()
        #: Ids under which controllers of ours have led Kafka brokers, which take them for live brokers.
        self.kafka_ids: frozenset[int] = frozenset()
        #: Brokers in controlled shutdown: registered, but not eligible for leadership.
        self.shutting_down: set[int] = set()
        #: When brokers were last heard: registrations seen, requests, answers. On the driver's clock, by broker id; the
        #: driver keeps it up to date.
        self.heard_us: dict[int, int] = {}
        #: Partitions on failed disks, by broker id.
        self.offline_dirs: dict[int, set[Partition]] = {}
        self.topics: dict[str, Topic] = {}
        self._topics_by_id: dict[str, Topic] = {}
        #: Topics queued for deletion: no elections, no LeaderAndIsr.
        self.topics_to_delete: set[str] = set()
        self.topics_deletion_started: set[str] = set()
        #: Queued topics that are ineligible for deletion.
        self.deletions_ineligible: dict[str, Ineligible] = {}
        #: How often each queued topic became ineligible; the pauses between attempts grow with it.
        self.deletions_ineligible_count: dict[str, int] = {}
        #: Topics with new StopReplica responses: their deletion continues, or becomes ineligible.
        self.deletions_to_resume: set[str] = set()
        #: Topics whose deletion was requested but is not queued yet, and why: they are under reassignment, or their
        #: znode is unreadable.
        self.deletions_waiting: dict[str, Reason] = {}
        self.reassignments = Reassignments()
        #: The dynamic cluster default of unclean.leader.election.enable; None: the controller's own setting holds.
        self.unclean_default: bool | None = None
        #: Dynamic settings that hold for this controller, by name.
        self.dynamic: dict[str, int] = {}
        #: Config change notifications that are processed but not deleted yet: path to the time of the first read, on
        #: the driver's clock.
        self.config_changes_seen: dict[str, int] = {}
        #: Empty until known.
        self.cluster_id = ""
        #: Finalized levels of features, by name; brokers that do not support them are ignored.
        self.features: dict[str, int] = {}
        self.maintenance = Maintenance()
        #: Stop approvals by broker id, including expired ones (see ``stop_approvals.standing``).
        self.approvals: dict[int, StopApproval] = {}
        #: Brokers that will not return, by id; and of those that did, the replicas that they are still to delete.
        self.forgotten: dict[int, Forgotten] = {}
        self.leftovers: dict[int, dict[Partition, None]] = {}
        #: When to record again that such brokers are back, on the driver's clock; None: there is nothing to record.
        self.record_forgotten_us: int | None = None
        #: Brokers that were lost without a clean stop.
        self.flapping: dict[int, Flapping] = {}
        #: Since when few enough brokers are offline to leave maintenance mode, and the time of the next check; on the
        #: driver's clock.
        self.healthy_since_us: int | None = None
        self.maintenance_check_us = 0
        #: Brokers whose preferred leaderships are being returned to them, over several events.
        self.rebalancing: set[int] = set()
        #: Unreadable znodes, path to problem. They are reported, never fatal.
        self.problems: dict[str, str] = {}
        #: Topics whose znode, as it was read last, does not decode or has another topic's id: by name, the name of that
        #: topic or empty. They are read again when the znode changes, or when that topic is gone.
        self.unreadable_topics: dict[str, str] = {}
        #: For the metrics.
        self.unclean_elections = 0

    def some_problems(self) -> dict[str, str]:
        """The first ``PROBLEMS_SHOWN_MAX`` problems, for responses."""
        return dict(islice(self.problems.items(), PROBLEMS_SHOWN_MAX))

    def phantoms(self) -> frozenset[int]:
        """Ids of our controllers that no broker has: they must never hold a replica."""
        return self.kafka_ids - self.brokers.keys()

    def strangers(self, broker_ids: Iterable[int]) -> str:
        """What is wrong with these replicas of one partition, if Kafka brokers and brokers led by gRPC are among them:
        neither can fetch from the other. Empty: nothing, as far as the brokers are registered."""
        kinds: dict[ControlProtocol, list[int]] = {}
        for id_ in broker_ids:
            if (broker := self.brokers.get(id_)) is not None:
                kinds.setdefault(broker.control_protocol, []).append(id_)
        if len(kinds) < 2:
            return ""
        kafka, ours = kinds[ControlProtocol.KAFKA], kinds[ControlProtocol.GRPC]
        return f"Kafka brokers {kafka} and brokers led by gRPC {ours} cannot replicate from each other"

    @property
    def topic_ids_known(self) -> bool:
        """Whether topics get ids (KIP-516): only if all brokers may know them."""
        return all(b.knows_topic_ids for b in self.brokers.values())

    def live_ids(self) -> frozenset[int]:
        """Brokers eligible to lead: registered and not shutting down."""
        return frozenset(self.brokers.keys() - self.shutting_down)

    def all_live(self, broker_ids: frozenset[int]) -> bool:
        """Whether all of them are eligible to lead."""
        return broker_ids <= self.brokers.keys() and self.shutting_down.isdisjoint(broker_ids)

    def is_online(self, partition: Partition, broker_id: int) -> bool:
        """Whether a replica is on a live broker and on a healthy disk."""
        if broker_id not in self.brokers or broker_id in self.shutting_down:
            return False
        failed = self.offline_dirs.get(broker_id)
        return failed is None or partition not in failed

    def without_data(self, state: LeaderAndIsr) -> frozenset[int]:
        """Members of the ISR that came back with less than they had."""
        return without_data(self.brokers, state)

    def directory_of(self, broker_id: int) -> int:
        """What stands for a broker's replica: its only directory, or all of them together; 0: it does not tell."""
        broker = self.brokers.get(broker_id)
        return of_several(broker.directories) if broker is not None else 0

    def with_directories(self, new: LeaderAndIsr, before: BrokerIds) -> LeaderAndIsr:
        """With the registered directories of its leader and of members of the ISR before, where none is known."""
        known = new.directories
        if known and 0 not in known:
            return new
        kept = members((*before, new.leader))
        told = shared_directories(
            d or (self.directory_of(b) if b in kept else 0)
            for b, d in zip(new.isr, known or (0,) * len(new.isr), strict=True)
        )
        return new if told == known else msgspec.structs.replace(new, directories=told)

    def more_exactly(self, broker_id: int, known: int, told: int) -> int:
        """The directory of a member of an ISR: ``told`` is where its replica is now. It is believed as long as what is
        known is there, too, so that nothing was lost since. Then it was not known exactly: an unclean election takes
        the only directory that is registered, and the replica may be in one that fails just then."""
        broker = self.brokers.get(broker_id)
        if broker is None or told not in broker.directories:
            return known
        kept = known in (0, of_several(broker.directories)) or known in broker.directories
        return told if kept else known

    def online_replicas(self, partition: Partition) -> BrokerIds:
        """Online replicas in assignment order."""
        return tuple(b for b in partition.replicas if self.is_online(partition, b))

    def online_set(self, partition: Partition, live: frozenset[int]) -> frozenset[int]:
        """``live`` without the brokers on which this partition's disk failed."""
        if not self.offline_dirs:
            return live
        return frozenset(b for b in live if partition not in self.offline_dirs.get(b, ()))

    def partitions(self) -> Iterator[Partition]:
        """All, also while topics change: those that come meanwhile may be missing, those that go may be there."""
        topics = list(self.topics.values())
        return chain.from_iterable(list(topic.partitions.values()) for topic in topics)

    def lacks_state(self) -> bool:
        """Whether the state of a partition is not known, of topics that are not queued for deletion."""
        for topic in self.topics.values():
            if topic.complete or topic.name in self.topics_to_delete or topic.deleted:
                continue
            if any(p.leadership is None for p in topic.partitions.values()):
                return True
            topic.complete = True
        return False

    def partition(self, topic: str, number: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions.get(number) if found else None

    def is_deleting(self, partition: Partition) -> bool:
        return partition.topic.name in self.topics_to_delete or partition.topic.deleted

    def deletion_requested(self, name: str) -> bool:
        """Whether a topic is queued for deletion, or waits to be queued."""
        return name in self.topics_to_delete or name in self.deletions_waiting

    def reassigning(self, name: str) -> list[Partition]:
        """Partitions of a topic that are under reassignment."""
        topic = self.topics.get(name)
        return [p for p in topic.partitions.values() if p.adding or p.removing] if topic else []

    def is_reachable(self, partition: Partition, broker_id: int) -> bool:
        """Whether a broker can delete its replica: it is registered, shutting down or not, and the disk is healthy."""
        return broker_id in self.brokers and partition not in self.offline_dirs.get(broker_id, ())

    def held_back(self) -> list[int]:
        """Registered brokers that get no leaderships back for now."""
        return [b for b, known in self.flapping.items() if known.hold_us and b in self.brokers]

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.know_topic_id(topic, topic.id)

    def adopt(self, topics: dict[str, Topic], by_id: dict[str, Topic]) -> None:
        """Take over topics that were prepared, and their ids."""
        topics.update(self.topics)
        by_id.update(self._topics_by_id)
        self.topics, self._topics_by_id = topics, by_id

    def know_topic_id(self, topic: Topic, topic_id: str) -> None:
        """Give a topic its id; empty: it has none."""
        if self._topics_by_id.get(topic.id) is topic:
            del self._topics_by_id[topic.id]
        topic.id = topic_id
        if topic_id:
            self._topics_by_id[topic_id] = topic

    def topic_by_id(self, topic_id: str) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def remove_topic(self, name: str) -> list[Partition]:
        """Remove a topic and all state kept for it; the partitions it had."""
        self.topics_to_delete.discard(name)
        self.topics_deletion_started.discard(name)
        self.deletions_ineligible.pop(name, None)
        self.deletions_ineligible_count.pop(name, None)
        self.problems.pop(topic_config_path(name), None)
        self.unreadable_topics.pop(name, None)
        self.deletions_to_resume.discard(name)
        topic = self.topics.pop(name, None)
        if topic is None:
            return []
        if self._topics_by_id.get(topic.id) is topic:
            del self._topics_by_id[topic.id]
        removed = topic.let_go()
        self.reassignments.forget(removed)
        for partition in removed if self.problems else ():
            self.problems.pop(state_path(name, partition.number), None)
        for failed in self.offline_dirs.values():
            failed.difference_update(removed)
        return removed

    def counts_as_offline(self, partition: Partition) -> bool:
        """Whether a partition is in state Offline; not of a topic whose deletion started (reference, section 11.1)."""
        started = self.topics_deletion_started
        return partition.state is PartitionState.OFFLINE and partition.topic.name not in started

    def is_imbalanced(self, partition: Partition) -> bool:
        """Whether a partition is not led by its preferred replica (reference, section 11.1).

        A preferred replica that is still being added counts once it is in the ISR.
        """
        state = partition.leadership
        if state is None or not partition.replicas or state.leader == (preferred := partition.replicas[0]):
            return False
        if self.is_deleting(partition):
            return False
        return preferred not in partition.adding or preferred in state.isr
