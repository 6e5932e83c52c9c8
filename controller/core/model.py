"""What the controller knows: brokers, topics, partitions, replicas and their states.

Compact on purpose: a million partitions must fit in about a gigabyte. Tuples of broker ids are shared
through ``interned``, replica states are one shared tuple parallel to ``Partition.replicas``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache

import msgspec

#: "No leader" in a partition state, and "no epoch known".
NO_LEADER = -1
NO_EPOCH = -1
#: Leader and leader epoch sent for a topic that is being deleted (reference, section 9.1).
LEADER_DURING_DELETE = -2

BrokerIds = tuple[int, ...]


class PartitionState(Enum):
    """The four partition states (reference, section 5)."""

    # Members are single: their identity is their hash, and Enum's own hash is slow where states are keys.
    __hash__ = object.__hash__

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """The seven replica states (reference, section 4)."""

    __hash__ = object.__hash__

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class LeaderRecoveryState(Enum):
    """Whether a leader elected uncleanly still has to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED.value, LeaderRecoveryState.RECOVERING.value

_interned: dict[tuple[object, ...], tuple[object, ...]] = {}
_INTERNED_MAX = 1_000_000


def interned(ids: BrokerIds) -> BrokerIds:
    """The one shared copy of a tuple of broker ids (assignments and ISRs repeat endlessly)."""
    if len(_interned) > _INTERNED_MAX:
        _interned.clear()
    return _interned.setdefault(ids, ids)  # type: ignore[return-value]


class LeaderAndIsr(msgspec.Struct, frozen=True, gc=False):
    """Durable leadership of one partition: what its state znode holds, and that znode's version.

    ``partition_epoch`` is the zkVersion; ``controller_epoch`` that of the decision; ``recovery`` is 0
    RECOVERED or 1 RECOVERING.
    """

    leader: int
    leader_epoch: int
    isr: BrokerIds
    partition_epoch: int
    controller_epoch: int
    recovery: int = RECOVERED

    def successor(self, leader: int, isr: BrokerIds, controller_epoch: int, recovery: int) -> LeaderAndIsr:
        """The next decision about this partition: leader epoch and partition epoch go up by one."""
        return LeaderAndIsr(
            leader, self.leader_epoch + 1, isr, self.partition_epoch + 1, controller_epoch, recovery
        )


class Endpoint(msgspec.Struct, frozen=True):
    """Where a broker listens."""

    listener: str
    security_protocol: str
    host: str
    port: int


class Broker(msgspec.Struct, frozen=True):
    """One incarnation of a broker: identity is (id, epoch). ``epoch`` is its registration's czxid."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    @property
    def control_endpoint(self) -> Endpoint:
        """Where it takes control requests: its listener GRPC, else its first one."""
        return next((e for e in self.endpoints if e.listener == "GRPC"), self.endpoints[0])


class Topic:
    """A topic and its partitions, by number. ``id`` is empty until known; ``czxid`` tells incarnations."""

    __slots__ = ("czxid", "id", "name", "partitions", "version")

    def __init__(self, name: str, topic_id: str = "", czxid: int = -1, version: int = -1) -> None:
        self.name = name
        self.id = topic_id
        self.czxid = czxid
        self.version = version
        self.partitions: dict[int, Partition] = {}

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self.partitions)} partitions)"


class Partition:
    """One partition. ``replica_states`` is parallel to ``replicas``; ``leadership`` is None until durable."""

    __slots__ = ("adding", "leadership", "number", "removing", "replica_states", "replicas", "state", "topic")

    def __init__(
        self,
        topic: Topic,
        number: int,
        replicas: BrokerIds,
        adding: BrokerIds = (),
        removing: BrokerIds = (),
    ) -> None:
        self.topic = topic
        self.number = number
        self.replicas = interned(replicas)
        self.adding = adding
        self.removing = removing
        self.state = PartitionState.NON_EXISTENT
        self.replica_states = uniform_states(ReplicaState.NON_EXISTENT, len(replicas))
        self.leadership: LeaderAndIsr | None = None

    @property
    def name(self) -> str:
        """``topic-number``, as Kafka prints it."""
        return f"{self.topic.name}-{self.number}"

    def replica_state(self, broker_id: int) -> ReplicaState:
        """State of one replica; untracked ones are NonExistent."""
        try:
            return self.replica_states[self.replicas.index(broker_id)]
        except ValueError:
            return ReplicaState.NON_EXISTENT

    def set_replica_state(self, broker_id: int, state: ReplicaState) -> None:
        """Raises ValueError when the broker holds no replica of this partition."""
        self.replica_states = with_state(self.replica_states, self.replicas.index(broker_id), state)

    def assign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """Replace the assignment; states of replicas that stay are kept, the rest start NonExistent."""
        states = tuple(self.replica_state(broker_id) for broker_id in replicas)
        self.replicas, self.adding, self.removing = interned(replicas), adding, removing
        self.replica_states = shared_states(states)

    def __repr__(self) -> str:
        return (
            f"Partition({self.name}, {self.state.value}, replicas={list(self.replicas)}, {self.leadership})"
        )


ReplicaStates = tuple[ReplicaState, ...]
_shared_states: dict[ReplicaStates, ReplicaStates] = {}
_with_state: dict[tuple[ReplicaStates, int, ReplicaState], ReplicaStates] = {}


def shared_states(states: ReplicaStates) -> ReplicaStates:
    """The one shared copy of a tuple of replica states."""
    return _shared_states.setdefault(states, states)


@cache
def uniform_states(state: ReplicaState, count: int) -> ReplicaStates:
    """``count`` times the same state, shared."""
    return shared_states((state,) * count)


def with_state(states: ReplicaStates, index: int, state: ReplicaState) -> ReplicaStates:
    """``states`` with one replaced, shared."""
    key = (states, index, state)
    found = _with_state.get(key)
    if found is None:
        found = _with_state[key] = shared_states((*states[:index], state, *states[index + 1 :]))
    return found


class Cluster:
    """The controller's whole context. Reset by making a new one: nothing outlives a resignation."""

    def __init__(self, controller_id: int, controller_epoch: int = 0) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        #: Registered brokers that answer for themselves, by id.
        self.brokers: dict[int, Broker] = {}
        #: Brokers in controlled shutdown: registered, but not eligible for leadership.
        self.shutting_down: set[int] = set()
        #: Partitions on failed disks, by broker id.
        self.offline_dirs: dict[int, set[Partition]] = {}
        self.topics: dict[str, Topic] = {}
        #: Topics queued for deletion: no elections, no pushes of leadership.
        self.topics_to_delete: set[str] = set()
        self.topics_deletion_started: set[str] = set()
        #: Unreadable znodes, path to problem: shown, never fatal.
        self.problems: dict[str, str] = {}
        #: Topic configuration problems and unclean elections, for the metrics.
        self.unclean_elections = 0

    def live_ids(self) -> frozenset[int]:
        """Brokers eligible to lead: registered and not shutting down."""
        return frozenset(self.brokers.keys() - self.shutting_down)

    def is_online(self, partition: Partition, broker_id: int) -> bool:
        """Whether a replica is on a live broker and on a healthy disk."""
        if broker_id not in self.brokers or broker_id in self.shutting_down:
            return False
        failed = self.offline_dirs.get(broker_id)
        return failed is None or partition not in failed

    def online_replicas(self, partition: Partition) -> BrokerIds:
        """Online replicas in assignment order."""
        return tuple(b for b in partition.replicas if self.is_online(partition, b))

    def online_set(self, partition: Partition, live: frozenset[int]) -> frozenset[int]:
        """``live`` without the brokers whose disk with this partition failed."""
        if not self.offline_dirs:
            return live
        return frozenset(b for b in live if partition not in self.offline_dirs.get(b, ()))

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partition(self, topic: str, number: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions.get(number) if found else None

    def is_deleting(self, partition: Partition) -> bool:
        return partition.topic.name in self.topics_to_delete

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic

    def remove_topic(self, name: str) -> Topic | None:
        """Forget a topic and every trace of it; None if it was unknown."""
        self.topics_to_delete.discard(name)
        self.topics_deletion_started.discard(name)
        topic = self.topics.pop(name, None)
        if topic is not None:
            for failed in self.offline_dirs.values():
                failed.difference_update(topic.partitions.values())
        return topic

    def offline_partitions_count(self) -> int:
        """Partitions in state Offline, topics whose deletion started excluded (reference, section 11.1)."""
        started = self.topics_deletion_started
        return sum(
            p.state is PartitionState.OFFLINE and p.topic.name not in started for p in self.partitions()
        )

    def preferred_replica_imbalance_count(self) -> int:
        """Partitions not led by their preferred replica (reference, section 11.1).

        A preferred replica that is still being added counts only while it is outside the ISR.
        """
        count = 0
        for p in self.partitions():
            if p.leadership is None or not p.replicas or self.is_deleting(p):
                continue
            preferred = p.replicas[0]
            if p.leadership.leader != preferred:
                count += preferred not in p.adding or preferred not in p.leadership.isr
        return count
