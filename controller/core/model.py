"""What the controller knows: brokers, topics, partitions, replicas and their states.

Compact on purpose: a million partitions must fit in about a gigabyte. Tuples of broker ids are shared
through ``interned``, replica states are one shared tuple parallel to ``Partition.replicas``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from functools import cache

import msgspec

from controller.core.reasons import Reason
from controller.core.znode_paths import topic_config_path

#: "No leader" in a partition state, and "no epoch known".
NO_LEADER = -1
NO_EPOCH = -1
#: Leader and leader epoch sent for a topic that is being deleted (reference, section 9.1).
LEADER_DURING_DELETE = -2

BrokerIds = tuple[int, ...]
#: What fits into a broker's id on the wire.
BROKER_ID_MAX = 2**31 - 1


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


class FeatureRange(msgspec.Struct, frozen=True):
    """Versions of a feature, both included: those that brokers support, or those that the cluster has finalized."""

    name: str
    min: int
    max: int


class Broker(msgspec.Struct, frozen=True):
    """One incarnation of a broker: identity is (id, epoch). ``epoch`` is its registration's czxid."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()

    @property
    def control_endpoint(self) -> Endpoint:
        """Where it takes control requests: its listener GRPC, else its first one."""
        return next((e for e in self.endpoints if e.listener == "GRPC"), self.endpoints[0])


class Topic:
    """A topic and its partitions, by number. ``id`` is empty until known; ``czxid`` tells incarnations.

    ``deleted``: its deletion is complete, and what is still to be said of it says so.
    """

    __slots__ = ("czxid", "deleted", "id", "name", "partitions", "version")

    def __init__(self, name: str, topic_id: str = "", czxid: int = -1, version: int = -1) -> None:
        self.name = name
        self.id = topic_id
        self.czxid = czxid
        self.version = version
        self.deleted = False
        self.partitions: dict[int, Partition] = {}

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self.partitions)} partitions)"


#: Shared by all partitions that no replica is leaving.
_NOBODY: dict[int, ReplicaState] = {}


class Partition:
    """One partition. ``replica_states`` is parallel to ``replicas``; ``leadership`` is None until durable."""

    __slots__ = (
        "adding",
        "departing",
        "leadership",
        "number",
        "removing",
        "replica_states",
        "replicas",
        "state",
        "topic",
    )

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
        #: States of replicas that are not assigned any more, until they are gone.
        self.departing: dict[int, ReplicaState] = _NOBODY

    @property
    def name(self) -> str:
        """``topic-number``, as Kafka prints it."""
        return f"{self.topic.name}-{self.number}"

    def replica_state(self, broker_id: int) -> ReplicaState:
        """State of one replica; untracked ones are NonExistent."""
        try:
            return self.replica_states[self.replicas.index(broker_id)]
        except ValueError:
            return self.departing.get(broker_id, ReplicaState.NON_EXISTENT)

    def set_departing(self, broker_id: int, state: ReplicaState) -> None:
        """State of a replica outside the assignment; NonExistent forgets it."""
        others = {b: s for b, s in self.departing.items() if b != broker_id}
        if state is not ReplicaState.NON_EXISTENT:
            others[broker_id] = state
        self.departing = others or _NOBODY

    def set_replica_state(self, broker_id: int, state: ReplicaState) -> None:
        """Raises ValueError when the broker holds no replica of this partition."""
        self.replica_states = with_state(self.replica_states, self.replicas.index(broker_id), state)

    def assign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """Replace the assignment; states of replicas that stay are kept, the rest start NonExistent."""
        states = tuple([self.replica_state(broker_id) for broker_id in replicas])
        self.replicas, self.adding, self.removing = interned(replicas), adding, removing
        self.replica_states = shared_states(states)
        if self.departing is not _NOBODY:
            self.departing = {b: s for b, s in self.departing.items() if b not in replicas} or _NOBODY

    def reassign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """As ``assign``, but replicas that leave keep their state until they are gone."""
        leaving = {b: s for b, s in zip(self.replicas, self.replica_states, strict=True) if b not in replicas}
        self.assign(replicas, adding, removing)
        if leaving:
            leaving = {b: s for b, s in leaving.items() if s is not ReplicaState.NON_EXISTENT}
            self.departing = {**self.departing, **leaving} or _NOBODY

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


class Ineligible(msgspec.Struct, frozen=True):
    """Why the deletion of a topic does not go on by itself (reference, section 7.1: *ineligible*);
    ``retry_at_us``: when it is tried again all the same, on the driver's clock; None: only once a broker or
    disk is back."""

    reason: Reason
    retry_at_us: int | None = None


class Reassignments:
    """Reassignments: what is under way, what waits, and what is left to clean up (KIP-455)."""

    def __init__(self) -> None:
        #: Partitions being reassigned, with their replicas before that, preferred first; empty where unknown.
        self.ongoing: dict[Partition, BrokerIds] = {}
        #: Wanted replicas of partitions whose move waits for room, oldest first.
        self.queued: dict[Partition, BrokerIds] = {}
        #: Why a move under way failed to go on when it last tried.
        self.problems: dict[Partition, Reason] = {}
        #: By broker, the replicas outside their assignment whose deletion was not confirmed.
        self.strays: dict[Partition, dict[int, Ineligible]] = {}
        #: Moves whose new replicas came into sync, to be finished.
        self.in_sync: dict[Partition, None] = {}
        #: Partitions whose topic znode still names deleted replicas, and since when, on the driver's clock.
        self.confirmed: dict[Partition, int] = {}
        #: How often a broker refused to delete one of those.
        self.refusals: dict[tuple[Partition, int], int] = {}
        #: Partitions of which a topic znode read just now records something of all that.
        self.restored: list[Partition] = []
        #: (topic, partition) of moves that nothing will come of any more: the legacy znode may still list them.
        self.abandoned: set[tuple[str, int]] = set()

    def strays_of(self, partition: Partition) -> BrokerIds:
        """Brokers that may still hold a replica of a partition they are not assigned any more."""
        return tuple(self.strays.get(partition, ()))

    def keep_stray(self, partition: Partition, broker_id: int, held: Ineligible) -> None:
        self.strays.setdefault(partition, {})[broker_id] = held

    def drop_stray(self, partition: Partition, broker_id: int) -> bool:
        """It is deleted, or assigned again; False if it was not known as left over."""
        self.refusals.pop((partition, broker_id), None)
        known = self.strays.get(partition, {})
        if known.pop(broker_id, None) is None:
            return False
        if not known:
            del self.strays[partition]
        return True

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Their topic is gone."""
        gone = set(partitions)
        moving = gone & (self.ongoing.keys() | self.queued.keys())
        self.abandoned.update((p.topic.name, p.number) for p in moving)
        for by_partition in (
            self.ongoing,
            self.queued,
            self.problems,
            self.strays,
            self.in_sync,
            self.confirmed,
        ):
            for partition in gone & by_partition.keys():
                del by_partition[partition]
        for replica in [r for r in self.refusals if r[0] in gone]:
            del self.refusals[replica]


class Attribution(msgspec.Struct, frozen=True):
    """Why somebody keeps the controller from something, and who."""

    reason: str
    author: str


class SuspensionKind(Enum):
    """What keeps the controller from beginning anything of its own accord."""

    PAUSED = "paused"
    MAINTENANCE = "maintenance"


class Suspension(Reason, frozen=True):
    """``by``: who did it, and why. ``automatic``: the controller itself did, and ends it."""

    kind: SuspensionKind
    by: Attribution
    automatic: bool = False

    def __str__(self) -> str:
        who = f"{self.by.author}: {self.by.reason}"
        if self.kind is SuspensionKind.PAUSED:
            return f"paused by {who} (pctl maintenance resume ends that)"
        ends = "pctl maintenance leave ends that"
        if self.automatic:
            ends = f"it ends by itself once enough brokers are back; {ends}, too"
        return f"in maintenance, entered by {who} ({ends})"


class Maintenance(msgspec.Struct, frozen=True):
    """What the controller is kept from. ``paused``: all it would do of its own accord, elections too; ``drained``:
    leadership of these brokers; ``entered``: maintenance mode, what it would begin of its own accord but for clean
    elections. ``automatic``: it entered that mode by itself, and leaves it so. ``accepted``: brokers that were gone
    when an operator left the mode; until they return they do not bring it back."""

    paused: Attribution | None = None
    drained: dict[int, Attribution] = {}
    entered: Attribution | None = None
    automatic: bool = False
    accepted: tuple[int, ...] = ()

    @property
    def suspension(self) -> Suspension | None:
        """Why the controller begins nothing of its own accord; None: it does."""
        if self.paused is not None:
            return Suspension(SuspensionKind.PAUSED, self.paused)
        if self.entered is not None:
            return Suspension(SuspensionKind.MAINTENANCE, self.entered, self.automatic)
        return None


class StopApproval(msgspec.Struct, frozen=True):
    """One incarnation of a broker was told that it may stop: why, to whom, and when (ms since 1970). ``overridden``:
    the reasons against it that were overridden, in words; empty: there were none."""

    broker_epoch: int
    reason: str
    author: str
    at_ms: int
    overridden: tuple[str, ...] = ()


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
        #: Queued topics that are ineligible for deletion.
        self.deletions_ineligible: dict[str, Ineligible] = {}
        #: How often each queued topic was held; makes the pauses between attempts longer.
        self.deletions_ineligible_count: dict[str, int] = {}
        #: Topics whose deletion goes on, or is held, for what brokers have answered.
        self.deletions_to_resume: set[str] = set()
        #: Topics asked to be deleted but not queued yet, and why: they are being reassigned, and live on until that is
        #: done; or they are unreadable.
        self.deletions_waiting: dict[str, Reason] = {}
        self.reassignments = Reassignments()
        #: The brokers' dynamic default of unclean elections; None: the controller's own setting holds.
        self.unclean_default: bool | None = None
        #: Notifications of changes of configuration that were acted on and are still there, by path, and when they
        #: were first seen, on the driver's clock.
        self.config_changes_seen: dict[str, int] = {}
        #: Empty until known.
        self.cluster_id = ""
        #: Finalized levels of features, by name: what does not support them is ignored.
        self.features: dict[str, int] = {}
        self.maintenance = Maintenance()
        #: By broker id, also those that are void since (see ``approvals.standing``).
        self.approvals: dict[int, StopApproval] = {}
        #: Since when few enough brokers are gone to leave the maintenance mode, and when somebody looks again; on the
        #: driver's clock.
        self.healthy_since_us: int | None = None
        self.maintenance_check_us = 0
        #: Brokers whose leaderships are being returned to them, some of them in the seconds to come.
        self.rebalancing: set[int] = set()
        #: Unreadable znodes, path to problem: shown, never fatal.
        self.problems: dict[str, str] = {}
        #: One of the partitions without a state, so that it need not be looked for again and again.
        self.stateless: Partition | None = None
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

    def replicas_on(self, ids: Collection[int]) -> list[tuple[Partition, int]]:
        """Replicas on brokers as (partition, broker id), of topics that are not queued for deletion."""
        wanted = frozenset(ids)
        return [
            (partition, broker_id)
            for partition in self.partitions()
            if partition.topic.name not in self.topics_to_delete
            for broker_id in partition.replicas
            if broker_id in wanted
        ]

    def partition(self, topic: str, number: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions.get(number) if found else None

    def is_deleting(self, partition: Partition) -> bool:
        return partition.topic.name in self.topics_to_delete or partition.topic.deleted

    def deletion_requested(self, name: str) -> bool:
        """Whether a topic is queued for deletion, or will be once its reassignment is done."""
        return name in self.topics_to_delete or name in self.deletions_waiting

    def reassigning(self, name: str) -> list[Partition]:
        """Partitions of a topic that are under reassignment."""
        topic = self.topics.get(name)
        return [p for p in topic.partitions.values() if p.adding or p.removing] if topic else []

    def is_reachable(self, partition: Partition, broker_id: int) -> bool:
        """Whether a replica's broker, leaving or not, can be asked to delete it: registered, disk healthy."""
        return broker_id in self.brokers and partition not in self.offline_dirs.get(broker_id, ())

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic

    def remove_topic(self, name: str) -> Topic | None:
        """Forget a topic and every trace of it; None if it was unknown."""
        self.topics_to_delete.discard(name)
        self.topics_deletion_started.discard(name)
        self.deletions_ineligible.pop(name, None)
        self.deletions_ineligible_count.pop(name, None)
        self.problems.pop(topic_config_path(name), None)
        self.deletions_to_resume.discard(name)
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.reassignments.forget(topic.partitions.values())
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
