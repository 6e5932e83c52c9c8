"""The controller's cluster state: brokers, topics, partitions, replicas and their states.

A million partitions must fit in about a gigabyte. So tuples of broker ids are shared through ``interned``, and the
replica states of a partition are one shared tuple parallel to ``Partition.replicas``.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from itertools import islice

import msgspec

from controller.core.reasons import Reason
from controller.core.znode_paths import state_path, topic_config_path

#: "No leader" in a partition state, and "epoch unknown".
NO_LEADER = -1
NO_EPOCH = -1
#: Leader and leader epoch sent for a topic that is being deleted (reference, section 9.1).
LEADER_DURING_DELETE = -2

BrokerIds = tuple[int, ...]
#: Short ids of data directories (docs/adr/0017).
DirectoryIds = tuple[int, ...]
#: The largest broker id: it is an int32 in requests.
BROKER_ID_MAX = 2**31 - 1


class PartitionState(Enum):
    """The four partition states (reference, section 5)."""

    # States are dict keys on hot paths, and Enum's own hash is slow. Each member exists once, so its identity will do.
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
    """Whether an uncleanly elected leader still has to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED.value, LeaderRecoveryState.RECOVERING.value

#: Unreadable znodes that one response names.
PROBLEMS_SHOWN_MAX = 100
#: Replicas of one partition: a znode that names more is malformed, a request for more is refused.
REPLICAS_MAX = 1000
#: Tuples up to this length are shared. Longer ones are too rare to repeat, and would fill the memory for ever.
SHARED_LENGTH_MAX = 16
_interned: dict[tuple[object, ...], tuple[object, ...]] = {}
_INTERNED_MAX = 1_000_000


def interned(ids: BrokerIds) -> BrokerIds:
    """The one shared copy of a tuple of broker ids (assignments and ISRs repeat endlessly)."""
    if len(ids) > SHARED_LENGTH_MAX:
        return ids
    if len(_interned) > _INTERNED_MAX:
        _interned.clear()
    return _interned.setdefault(ids, ids)  # type: ignore[return-value]


def members(ids: BrokerIds) -> Collection[int]:
    """The ids, to be asked for many members: to search a long tuple for each of another is quadratic."""
    return ids if len(ids) <= SHARED_LENGTH_MAX else frozenset(ids)


def shared_directories(ids: Iterable[int]) -> DirectoryIds:
    """The one shared copy of a tuple of directory ids; empty if none is known."""
    known = tuple(ids)
    return interned(known) if any(known) else ()


def of_several(directories: DirectoryIds) -> int:
    """What stands for a replica in one of a broker's directories where it is not known in which: the only one, or all
    of them together. Another set has another number, so it is kept only as long as none is missing. 0: none is known.
    """
    if len(directories) < 2:
        return directories[0] if directories else 0
    return zlib.crc32(b"".join(id_.to_bytes(4) for id_ in sorted(directories))) or 1


class LeaderAndIsr(msgspec.Struct, frozen=True, gc=False):
    """Durable leadership of one partition: the content of its state znode, and the znode's version.

    ``partition_epoch`` is the zkVersion. ``controller_epoch`` is the epoch of the controller that decided.
    ``recovery`` is 0 (RECOVERED) or 1 (RECOVERING). ``directories``: parallel to ``isr``, the data directory with which
    each member got in sync, 0: unknown; empty: none is known (docs/adr/0017).
    """

    leader: int
    leader_epoch: int
    isr: BrokerIds
    partition_epoch: int
    controller_epoch: int
    recovery: int = RECOVERED
    directories: DirectoryIds = ()

    def successor(self, leader: int, isr: BrokerIds, controller_epoch: int, recovery: int) -> LeaderAndIsr:
        """The next decision about this partition: leader epoch and partition epoch go up by one. Members that stay keep
        their directories."""
        return LeaderAndIsr(
            leader,
            self.leader_epoch + 1,
            isr,
            self.partition_epoch + 1,
            controller_epoch,
            recovery,
            self.directories_of(isr),
        )

    def spare(self, replicas: BrokerIds, min_isr: int) -> int:
        """In-sync replicas beyond ``min.insync.replicas``, of which as many count as there are replicas (as in
        ``kafka.cluster.Partition``); below 0, writes with acks=all fail."""
        return len(self.isr) - min(min_isr, len(replicas))

    def directories_of(self, isr: BrokerIds) -> DirectoryIds:
        """The directories of these members, as far as known."""
        if not self.directories or isr == self.isr:
            return self.directories
        known = dict(zip(self.isr, self.directories, strict=True))
        return shared_directories([known.get(b, 0) for b in isr])


class Endpoint(msgspec.Struct, frozen=True):
    """One listener of a broker."""

    listener: str
    security_protocol: str
    host: str
    port: int


class FeatureRange(msgspec.Struct, frozen=True):
    """A range of versions of a feature, both ends included: supported by a broker, or finalized in the cluster."""

    name: str
    min: int
    max: int


class ControlProtocol(Enum):
    """The protocol in which a broker takes control requests."""

    __hash__ = object.__hash__

    GRPC = "gRPC"
    KAFKA = "Kafka"


class Broker(msgspec.Struct, frozen=True):
    """One incarnation of a broker: identity is (id, epoch). ``epoch`` is its registration's czxid."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()
    #: The version of the registration's format. Kafka brokers write 5 from inter.broker.protocol.version 2.7 on.
    registration: int = 5
    #: Whether the registration maps listeners to security protocols, as those of Kafka brokers do.
    protocol_map: bool = True
    #: Its data directories, by their short ids; empty: the registration does not tell.
    directories: DirectoryIds = ()
    #: The epoch of its former registration, if the broker stopped cleanly after it; else -1.
    previous_epoch: int = NO_EPOCH
    #: Of its ZooKeeper session, as the server granted it; 0: the registration does not tell.
    session_timeout_ms: int = 0

    @property
    def control_protocol(self) -> ControlProtocol:
        """Kafka's own protocol if the registration is a Kafka broker's, without a listener named GRPC; else gRPC."""
        has_grpc = any(e.listener == "GRPC" for e in self.endpoints)
        return ControlProtocol.KAFKA if self.protocol_map and not has_grpc else ControlProtocol.GRPC

    @property
    def knows_topic_ids(self) -> bool:
        """Not a Kafka broker whose inter.broker.protocol.version is below 2.7: as controller it would lose them. 2.7
        cannot be told from 2.8, the first to know them."""
        return self.registration >= 5 or self.control_protocol is ControlProtocol.GRPC

    @property
    def control_endpoint(self) -> Endpoint:
        """Where the broker accepts control requests: its listener GRPC, else its first one."""
        return next((e for e in self.endpoints if e.listener == "GRPC"), self.endpoints[0])


class Topic:
    """A topic and its partitions, by number.

    ``id`` is empty until known. ``czxid`` distinguishes incarnations of the topic. ``deleted``: the deletion is
    complete, and pushes still queued mark the partitions as deleted. ``complete``: the state of every partition is
    known; False where nobody has looked.
    """

    __slots__ = ("complete", "czxid", "deleted", "id", "name", "partitions", "version")

    def __init__(self, name: str, topic_id: str = "", czxid: int = -1, version: int = -1) -> None:
        self.name = name
        self.id = topic_id
        self.czxid = czxid
        self.version = version
        self.deleted = self.complete = False
        self.partitions: dict[int, Partition] = {}

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self.partitions)} partitions)"


#: Shared by all partitions without departing replicas.
_NO_DEPARTING: dict[int, ReplicaState] = {}


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
        #: States of replicas outside the assignment, until they are deleted.
        self.departing: dict[int, ReplicaState] = _NO_DEPARTING

    @property
    def name(self) -> str:
        """``topic-number``, as Kafka prints it."""
        return f"{self.topic.name}-{self.number}"

    def replica_state(self, broker_id: int) -> ReplicaState:
        """State of one replica; NonExistent where the broker holds none."""
        try:
            return self.replica_states[self.replicas.index(broker_id)]
        except ValueError:
            return self.departing.get(broker_id, ReplicaState.NON_EXISTENT)

    def states_by_broker(self) -> dict[int, ReplicaState]:
        """States of all replicas, assigned or departing: for those who ask for many of one partition."""
        return {**self.departing, **dict(zip(self.replicas, self.replica_states, strict=True))}

    def set_departing(self, states: Mapping[int, ReplicaState]) -> None:
        """Set the states of replicas outside the assignment; NonExistent removes them."""
        both = {**self.departing, **states}
        self.departing = {
            b: s for b, s in both.items() if s is not ReplicaState.NON_EXISTENT
        } or _NO_DEPARTING

    def set_states(self, broker_ids: Collection[int], state: ReplicaState) -> None:
        """Set the state of many replicas, assigned or departing."""
        changed = frozenset(broker_ids)
        both = zip(self.replicas, self.replica_states, strict=True)
        self.replica_states = shared_states(tuple([state if b in changed else known for b, known in both]))
        if outside := changed.difference(self.replicas):
            self.set_departing(dict.fromkeys(outside, state))

    def set_replica_state(self, broker_id: int, state: ReplicaState) -> None:
        """Set the state of an assigned replica. Raises ValueError when the broker is not in the assignment."""
        self.replica_states = with_state(self.replica_states, self.replicas.index(broker_id), state)

    def assign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """Replace the assignment. Replicas that stay keep their state, new ones start NonExistent."""
        known = self.states_by_broker()
        states = tuple([known.get(broker_id, ReplicaState.NON_EXISTENT) for broker_id in replicas])
        self.replicas, self.adding, self.removing = interned(replicas), adding, removing
        self.replica_states = shared_states(states)
        if self.departing is not _NO_DEPARTING:
            assigned = frozenset(replicas)
            self.departing = {b: s for b, s in self.departing.items() if b not in assigned} or _NO_DEPARTING

    def reassign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """As ``assign``, but removed replicas keep their state until they are deleted."""
        staying = frozenset(replicas)
        leaving = {b: s for b, s in zip(self.replicas, self.replica_states, strict=True) if b not in staying}
        self.assign(replicas, adding, removing)
        if leaving:
            leaving = {b: s for b, s in leaving.items() if s is not ReplicaState.NON_EXISTENT}
            self.departing = {**self.departing, **leaving} or _NO_DEPARTING

    def __repr__(self) -> str:
        return (
            f"Partition({self.name}, {self.state.value}, replicas={list(self.replicas)}, {self.leadership})"
        )


ReplicaStates = tuple[ReplicaState, ...]
_shared_states: dict[ReplicaStates, ReplicaStates] = {}
_with_state: dict[tuple[ReplicaStates, int, ReplicaState], ReplicaStates] = {}
_SHARED_STATES_MAX = 100_000


def shared_states(states: ReplicaStates) -> ReplicaStates:
    """The one shared copy of a tuple of replica states."""
    if len(states) > SHARED_LENGTH_MAX:
        return states
    if len(_shared_states) >= _SHARED_STATES_MAX:
        _shared_states.clear()
    return _shared_states.setdefault(states, states)


@lru_cache(1000)
def uniform_states(state: ReplicaState, count: int) -> ReplicaStates:
    """The shared tuple of ``count`` times the same state."""
    return shared_states((state,) * count)


def with_state(states: ReplicaStates, index: int, state: ReplicaState) -> ReplicaStates:
    """The shared tuple of ``states`` with one replaced."""
    if len(states) > SHARED_LENGTH_MAX:
        return (*states[:index], state, *states[index + 1 :])
    key = (states, index, state)
    found = _with_state.get(key)
    if found is None:
        if len(_with_state) >= _SHARED_STATES_MAX:
            _with_state.clear()
        found = _with_state[key] = shared_states((*states[:index], state, *states[index + 1 :]))
    return found


class Ineligible(msgspec.Struct, frozen=True):
    """Why a deletion of a topic or a stray replica is *ineligible* (reference, section 7.1).

    ``retry_at_us``: when the deletion is retried, on the driver's clock; None: only once a broker or disk is back.
    """

    reason: Reason
    retry_at_us: int | None = None


class Reassignments:
    """Ongoing and queued reassignments, and stray replicas still to be deleted (KIP-455)."""

    def __init__(self) -> None:
        #: Ongoing reassignments: partition to original replicas, preferred first; empty where unknown.
        self.ongoing: dict[Partition, BrokerIds] = {}
        #: Reassignments that wait for the concurrency limit, oldest first: partition to target replicas.
        self.queued: dict[Partition, BrokerIds] = {}
        #: Why the last step of an ongoing reassignment failed.
        self.problems: dict[Partition, Reason] = {}
        #: Stray replicas, by broker: outside the assignment, and their deletion is not confirmed.
        self.strays: dict[Partition, dict[int, Ineligible]] = {}
        #: Reassignments whose new replicas are in sync, to be finished.
        self.in_sync: dict[Partition, None] = {}
        #: Partitions whose topic znode still names deleted stray replicas, and since when, on the driver's clock.
        self.confirmed: dict[Partition, int] = {}
        #: How often a broker refused to delete a stray replica.
        self.refusals: dict[tuple[Partition, int], int] = {}
        #: Partitions whose topic znode, just read, records a reassignment or stray replicas.
        self.restored: list[Partition] = []
        #: (topic, partition) of reassignments that will not be finished; the legacy znode may still list them.
        self.abandoned: set[tuple[str, int]] = set()

    def strays_of(self, partition: Partition) -> BrokerIds:
        """Brokers that may still hold a stray replica of a partition."""
        return tuple(self.strays.get(partition, ()))

    def keep_stray(self, partition: Partition, broker_id: int, held: Ineligible) -> None:
        self.strays.setdefault(partition, {})[broker_id] = held

    def drop_stray(self, partition: Partition, broker_id: int) -> bool:
        """Remove a stray replica that was deleted or is assigned again; False if it was not known as one."""
        self.refusals.pop((partition, broker_id), None)
        known = self.strays.get(partition, {})
        if known.pop(broker_id, None) is None:
            return False
        if not known:
            del self.strays[partition]
        return True

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions whose topic vanished."""
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
    """Who restricted the controller, and why."""

    reason: str
    author: str


class Freeze(Attribution, frozen=True):
    """A freeze of changes: who, why, and until when it was meant to last (ms since 1970). It ends only by request."""

    until_ms: int


class SuspensionKind(Enum):
    """What stops the controller's automatic work."""

    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    FROZEN = "frozen"


class Suspension(Reason, frozen=True):
    """``by``: who suspended automatic work, and why. ``automatic``: the controller itself did, and ends it."""

    kind: SuspensionKind
    by: Attribution
    automatic: bool = False

    def __str__(self) -> str:
        who = f"{self.by.author}: {self.by.reason}"
        if self.kind is SuspensionKind.PAUSED:
            return f"paused by {who} (pctl maintenance resume ends that)"
        if self.kind is SuspensionKind.FROZEN:
            return f"frozen by {who} (pctl unfreeze ends that)"
        ends = "pctl maintenance leave ends that"
        if self.automatic:
            ends = f"it ends automatically once enough brokers are back; {ends}, too"
        return f"in maintenance, entered by {who} ({ends})"


class Maintenance(msgspec.Struct, frozen=True):
    """Restrictions of the controller's automatic work.

    ``paused``: no automatic work at all, elections included. ``drained``: these brokers get no leadership.
    ``entered``: maintenance mode, no automatic work but clean elections. ``automatic``: the controller entered the
    mode automatically, and leaves it so. ``accepted``: brokers that were offline when an operator left the mode;
    until they return they do not cause it again. ``freeze``: elections go on; nothing else begins, reassignments that
    are requested included.
    """

    paused: Attribution | None = None
    drained: dict[int, Attribution] = {}
    entered: Attribution | None = None
    automatic: bool = False
    accepted: tuple[int, ...] = ()
    freeze: Freeze | None = None

    @property
    def suspension(self) -> Suspension | None:
        """Why automatic work is suspended; None: it is not."""
        if self.paused is not None:
            return Suspension(SuspensionKind.PAUSED, self.paused)
        if self.entered is not None:
            return Suspension(SuspensionKind.MAINTENANCE, self.entered, self.automatic)
        return self.frozen

    @property
    def frozen(self) -> Suspension | None:
        """The freeze alone: also where a pause or maintenance mode suspends more."""
        return None if self.freeze is None else Suspension(SuspensionKind.FROZEN, self.freeze)


class StopApproval(msgspec.Struct, frozen=True):
    """Permission for one incarnation of a broker to stop: why, for whom, and when (ms since 1970).

    ``overridden``: texts of the objections that were overridden.
    """

    broker_epoch: int
    reason: str
    author: str
    at_ms: int
    overridden: tuple[str, ...] = ()


_NOBODY: frozenset[int] = frozenset()


def without_data(brokers: Mapping[int, Broker], state: LeaderAndIsr) -> frozenset[int]:
    """Members of the ISR that are registered without the directory with which they got in sync (docs/adr/0017). What is
    not told counts as kept, as in Kafka."""
    if not state.directories:
        return _NOBODY
    lacking = [
        broker_id
        for broker_id, directory in zip(state.isr, state.directories, strict=True)
        if lacks_directory(brokers.get(broker_id), directory)
    ]
    return frozenset(lacking) if lacking else _NOBODY


def lacks_directory(broker: Broker | None, directory: int) -> bool:
    """Whether a broker is registered without the directory with which it got in sync; 0: it is not known."""
    return bool(
        directory
        and broker is not None
        and broker.directories
        and directory not in broker.directories
        and (len(broker.directories) == 1 or directory != of_several(broker.directories))
    )


class Flapping(msgspec.Struct, frozen=True):
    """A broker that was lost without a clean stop: how often in a row, and while it is back since when, on the driver's
    clock. ``hold_us``: leaderships return to it only once it is up for so long; 0: it is not held back."""

    losses: int
    up_us: int | None = None
    hold_us: int = 0

    def __str__(self) -> str:
        text = f"lost {self.losses} times without a clean stop"
        if not self.hold_us:
            return text
        return (
            f"{text}: leaderships return to it by themselves once it is up for {self.hold_us // 1_000_000} s"
        )


class Forgotten(msgspec.Struct, frozen=True):
    """An operator declared that a broker will not return: why, who, and when (ms since 1970).

    ``replicas``: partitions of deleted topics that it may still hold, by topic.
    """

    reason: str
    author: str
    at_ms: int
    replicas: dict[str, tuple[int, ...]] = {}


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
        for topic in self.topics.values():
            yield from topic.partitions.values()

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

    def remove_topic(self, name: str) -> Topic | None:
        """Remove a topic and all state kept for it; None if it was unknown."""
        self.topics_to_delete.discard(name)
        self.topics_deletion_started.discard(name)
        self.deletions_ineligible.pop(name, None)
        self.deletions_ineligible_count.pop(name, None)
        self.problems.pop(topic_config_path(name), None)
        self.deletions_to_resume.discard(name)
        topic = self.topics.pop(name, None)
        if topic is not None:
            if self._topics_by_id.get(topic.id) is topic:
                del self._topics_by_id[topic.id]
            self.reassignments.forget(topic.partitions.values())
            for number in topic.partitions if self.problems else ():
                self.problems.pop(state_path(name, number), None)
            for failed in self.offline_dirs.values():
                failed.difference_update(topic.partitions.values())
        return topic

    def counts_as_offline(self, partition: Partition) -> bool:
        """Whether a partition is in state Offline; not of a topic whose deletion started (reference, section 11.1)."""
        started = self.topics_deletion_started
        return partition.state is PartitionState.OFFLINE and partition.topic.name not in started

    def is_imbalanced(self, partition: Partition) -> bool:
        """Whether a partition is not led by its preferred replica (reference, section 11.1).

        A preferred replica that is still being added counts only while it is outside the ISR.
        """
        state = partition.leadership
        if state is None or not partition.replicas or state.leader == (preferred := partition.replicas[0]):
            return False
        if self.is_deleting(partition):
            return False
        return preferred not in partition.adding or preferred not in state.isr

    def offline_partitions_count(self) -> int:
        return sum(map(self.counts_as_offline, self.partitions()))

    def preferred_replica_imbalance_count(self) -> int:
        return sum(map(self.is_imbalanced, self.partitions()))
