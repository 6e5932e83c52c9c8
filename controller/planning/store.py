"""ZooKeeper in memory, as far as the controller uses it: typed znodes, versions, one-shot watches, fenced batches of
writes. Plans run on it, and so do the tests of the core (``tests/support/core/world.py``).

Every change is recorded with its path and the previous value. If a watch is armed, it also queues an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar, assert_never

import msgspec

from controller.core.effects import (
    AnyQuery,
    BrokersAnswer,
    CreateNode,
    CreateState,
    CreateTopic,
    DeleteNode,
    FeatureAnswer,
    NotifyConfig,
    Problem,
    PutFeature,
    ReadBrokers,
    ReadFeature,
    ReadKafkaIds,
    ReadNodes,
    ReadNotifications,
    ReadPrepared,
    ReadStates,
    ReadTopicConfigs,
    ReadTopics,
    ReadTopicTrees,
    ReadWatchedChildren,
    ReadWatchedNames,
    ReadWatchedNode,
    ReassignmentRequest,
    SetReassignment,
    SetState,
    SetTopic,
    StoredNode,
    TopicInfo,
    Write,
    WriteNode,
)
from controller.core.events import WATCHED, Event, change_of
from controller.core.model import Broker, FeatureRange, LeaderAndIsr, Maintenance, Partition
from controller.core.standby.prepared import Prepared
from controller.core.znode_paths import (
    APPROVALS,
    BROKER_DEFAULTS,
    BROKER_IDS,
    CLUSTER_ID,
    CONFIG_CHANGE,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    FEATURE,
    ISR_NOTIFICATIONS,
    KAFKA_IDS,
    LOG_DIR_NOTIFICATIONS,
    MAINTENANCE,
    REASSIGN_PARTITIONS,
    TOPICS,
    child_of,
    is_below,
    kafka_id_path,
    partition_of,
    partition_path,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)
from controller.errors import FencedError
from controller.planning.snapshot import Key, Snapshot

T = TypeVar("T")


class Change(NamedTuple):
    """One write: the old and the new value of the znode. None: absent; a string: the znode's text or, in a config
    notification, its entity."""

    path: str
    old: object
    new: object


class Store:
    """The znodes of one snapshot, and the changes to them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.controller_epoch = snapshot.controller_epoch
        self.brokers: dict[int, Broker] = dict(snapshot.brokers)
        self.topics: dict[str, TopicInfo] = dict(snapshot.topics)
        self.states: dict[Key, LeaderAndIsr] = dict(snapshot.states)
        #: Topics that have states.
        self._led = {topic for topic, _ in self.states}
        #: The nodes that ``ReadNodes`` and ``ReadTopicConfigs`` read.
        self.nodes: dict[str, StoredNode[object]] = {
            topic_config_path(n): StoredNode(dict(c), 0) for n, c in snapshot.configs.items()
        }
        self.nodes[CLUSTER_ID] = StoredNode("planned", 0)
        if snapshot.broker_defaults:
            self.nodes[BROKER_DEFAULTS] = StoredNode(dict(snapshot.broker_defaults), 0)
        if snapshot.maintenance != Maintenance():
            self.nodes[MAINTENANCE] = StoredNode(snapshot.maintenance, 0)
        if snapshot.approvals:
            self.nodes[APPROVALS] = StoredNode(dict(snapshot.approvals), 0)
        self.nodes.update(snapshot.nodes)
        #: Not in ZooKeeper: replicas on failed disks by broker, until the broker goes offline or restarts.
        self.offline_dirs = dict(snapshot.offline_dirs)
        self.deletions: list[str] = list(snapshot.deleting)
        #: Watched nodes with contents, by path; notifications of ISRs, log directories and configs below their parents.
        self.watched: dict[str, object] = {}
        self.feature = snapshot.feature
        self.kafka_ids: set[int] = set()
        self.problems = dict(snapshot.problems)
        self.changes: list[Change] = []
        #: Paths with an armed watch, and the events of watches that fired.
        self.watches: set[str] = set()
        self.events: deque[Event] = deque()
        self.zxid = max(
            [0, *(b.epoch for b in self.brokers.values()), *(t.czxid for t in self.topics.values())]
        )

    @property
    def reassignment(self) -> ReassignmentRequest | None:
        """The content of ``/admin/reassign_partitions``."""
        found = self.watched.get(REASSIGN_PARTITIONS)
        assert found is None or isinstance(found, ReassignmentRequest)
        return found

    def register(self, broker: Broker) -> None:
        """Register a broker as a new incarnation."""
        self.zxid += 1
        self.offline_dirs.pop(broker.id, None)
        self.brokers[broker.id] = msgspec.structs.replace(broker, epoch=self.zxid)

    def is_online(self, key: Key, broker_id: int) -> bool:
        """Whether a broker is registered, and its replica of this partition is not on a failed disk."""
        return broker_id in self.brokers and key not in self.offline_dirs.get(broker_id, ())

    def take_changes(self) -> list[Change]:
        """All writes since the last call."""
        taken, self.changes = self.changes, []
        return taken

    # reads

    def answer(self, query: AnyQuery) -> object:
        """ZooKeeper's answer, of the query's type."""
        match query:
            case ReadBrokers():
                self.watches.add(BROKER_IDS)
                return self._registrations()
            case ReadTopics(names):
                self.watches.update(topic_path(name) for name in names if name in self.topics)
                return [self._or_problem(topic_path(name), self.topics.get(name)) for name in names]
            case ReadStates(partitions):
                keys = [key_of(p) for p in partitions]
                return [self._or_problem(state_path(*key), self.states.get(key)) for key in keys]
            case ReadTopicConfigs(names):
                found = [self._node(topic_config_path(name)) for name in names]
                return [{} if f is None else f.value if isinstance(f, StoredNode) else f for f in found]
            case ReadTopicTrees(names):
                return [self._tree(name) for name in names]
            case ReadWatchedNode():
                self.watches.add(query.path)
                node = self.nodes.get(query.path)
                return self._or_problem(query.path, node.value if node else self.watched.get(query.path))
            case ReadWatchedNames():
                self.watches.add(query.path)
                return list(self.topics if query.path == TOPICS else self.deletions)
            case ReadWatchedChildren():
                return [
                    (path, self._or_problem(path, self.watched[path])) for path in self._below(query.path)
                ]
            case ReadNotifications():
                return [*self._below(LOG_DIR_NOTIFICATIONS), *self._below(ISR_NOTIFICATIONS)]
            case ReadNodes(paths):
                return [self._node(node) for node in paths]
            case ReadFeature() | ReadKafkaIds() | ReadPrepared():
                return self._of_a_failover(query)
            case _:
                assert_never(query)

    def _of_a_failover(self, query: ReadFeature | ReadKafkaIds | ReadPrepared) -> object:
        if isinstance(query, ReadFeature):
            return self._or_problem(FEATURE, self.feature)
        return sorted(self.kafka_ids) if isinstance(query, ReadKafkaIds) else self.prepared()

    def prepared(self) -> Prepared | None:
        """What a standby would have kept ready."""
        return None

    def _registrations(self) -> BrokersAnswer:
        """The registrations. An unreadable one has the broker's epoch if the broker is known, else -1."""
        bad = {
            name: Problem(path, text, -1)
            for path, text in self.problems.items()
            if (name := child_of(BROKER_IDS, path)) is not None
        }
        for id_, broker in self.brokers.items() if bad else ():
            if (problem := bad.get(str(id_))) is not None:
                bad[str(id_)] = replace(problem, czxid=broker.epoch)
        readable = {id_: broker for id_, broker in self.brokers.items() if str(id_) not in bad}
        return BrokersAnswer(readable, tuple(bad.values()))

    def _below(self, parent: str) -> list[str]:
        """Watched nodes below a parent, in the order of creation."""
        self.watches.add(parent)
        return [path for path in self.watched if child_of(parent, path) is not None]

    def _node(self, path: str) -> StoredNode[object] | Problem | None:
        return self._or_problem(path, self.nodes.get(path))

    def _or_problem(self, path: str, value: T) -> T | Problem:
        problem = self.problems.get(path)
        if problem is None:
            return value
        return Problem(path, problem, version=_version_of(value))

    def _tree(self, name: str) -> list[str]:
        config = str(topic_config_path(name))
        configs = [config] if config in self.nodes else []
        if name not in self.topics:
            return configs
        numbers = [number for number in self.topics[name].partitions if (name, number) in self.states]
        states = [state_path(name, number) for number in numbers]
        parents = (
            [*(partition_path(name, number) for number in numbers), partitions_path(name)] if numbers else []
        )
        return [*states, *parents, topic_path(name), *configs]

    # writes

    def commit(self, writes: Sequence[Write], controller_epoch: int | None = None) -> str | None:
        """Apply all writes or none; return the first conflict as text, None on success. Raises FencedError if
        ``controller_epoch`` is not the current one; None: writes of another client, which are not fenced."""
        if controller_epoch not in (None, self.controller_epoch):
            raise FencedError(f"{CONTROLLER_EPOCH} is {self.controller_epoch}, not {controller_epoch}")
        deleted = {write.path for write in writes if isinstance(write, DeleteNode)}
        for write in writes:
            if (conflict := self._conflict(write, deleted)) is not None:
                return conflict
        for write in writes:
            self._apply(write)
        return None

    def _conflict(self, write: Write, deleted: set[str]) -> str | None:
        match write:
            case SetState(partition, new):
                state = self.states.get(key_of(partition))
                return _version_conflict(
                    None if state is None else state.partition_epoch, new.partition_epoch - 1
                )
            case CreateState(partition, _):
                if partition.topic.name not in self.topics:
                    return "NONODE"
                key = key_of(partition)
                there = key in self.states or state_path(*key) in self.problems
                return "NODEEXISTS" if there else None
            case CreateTopic(info):
                return "NODEEXISTS" if info.name in self.topics else None
            case SetTopic(info):
                topic = self.topics.get(info.name)
                return _version_conflict(None if topic is None else topic.version, info.version)
            case SetReassignment(_, version):
                listed = None if self.reassignment is None else self.reassignment.version
                return _version_conflict(listed, version) if version >= 0 else None
            case PutFeature(version):
                feature = self.feature
                return _version_conflict(None if feature is None else feature.version, version)
            case DeleteNode(path):
                name = child_of(TOPICS, path) or ""
                return (
                    "NOTEMPTY" if name in self.topics and not deleted.issuperset(self._tree(name)) else None
                )
            case WriteNode(path, _, version):
                node = self.nodes.get(path)
                return _version_conflict(None if node is None else node.version, version)
            case CreateNode() | NotifyConfig():
                return None
            case _:
                assert_never(write)

    def _apply(self, write: Write) -> None:
        match write:
            case SetState(partition, new) | CreateState(partition, new):
                key = key_of(partition)
                if isinstance(write, CreateState):
                    self._make_parents(key)
                self.problems.pop(state_path(*key), None)
                self.put_state(*key, new)
            case CreateTopic(info):
                self.zxid += 1
                self._changed(topic_path(info.name), None, info)
                self.topics[info.name] = replace(info, czxid=self.zxid)
            case SetTopic(info):
                stored = replace(info, version=info.version + 1)
                self._changed(topic_path(info.name), self.topics[info.name], stored)
                self.topics[info.name] = stored
            case SetReassignment(entries, version):
                request = ReassignmentRequest(tuple(entries), version + 1) if entries else None
                self.put_watched(REASSIGN_PARTITIONS, request)
            case WriteNode(path, value, _):
                self.put_node(path, value)
            case NotifyConfig(entity):
                self.put_sequential(CONFIG_CHANGE, entity)
            case PutFeature(version, levels):
                finalized = tuple(FeatureRange(name, level, level) for name, level in levels.items())
                feature = FeatureAnswer(True, 0 if version is None else version + 1, finalized)
                self._changed(FEATURE, self.feature, feature)
                self.feature = feature
            case DeleteNode(path):
                self.kafka_ids = {id_ for id_ in self.kafka_ids if kafka_id_path(id_) != path}
                self._delete(path)
            case CreateNode(path):
                self._create(path)
            case _:
                assert_never(write)

    def _create(self, path: str) -> None:
        if (id_ := child_of(KAFKA_IDS, path)) is not None:
            self.kafka_ids.add(int(id_))
        name = child_of(DELETE_TOPICS, path)
        if name is not None and name not in self.deletions:
            self.deletions.append(name)
            self._changed(path, None, "")

    def put_state(self, topic: str, number: int, new: LeaderAndIsr) -> None:
        """Store a partition state."""
        self._changed(state_path(topic, number), self.states.get((topic, number)), new)
        self.states[(topic, number)] = new

    def put_node(self, path: str, value: object) -> None:
        """Store the next version of a node that ``ReadNodes`` reads."""
        old = self.nodes.get(path)
        node = self.nodes[path] = StoredNode(value, 0 if old is None else old.version + 1)
        self._changed(path, old, node)

    def put_watched(self, path: str, value: object) -> None:
        """Store a watched node; ``value`` None deletes it."""
        old = self.watched.pop(path, None)
        self.problems.pop(path, None)
        if value is not None:
            self.watched[path] = value
        self._changed(path, old, value)

    def put_sequential(self, prefix: str, value: object) -> str:
        """Create a sequential node; return its path."""
        self.zxid += 1
        path = f"{prefix}{self.zxid:010}"
        self.watched[path] = value
        self._changed(prefix, None, value)
        return path

    def _make_parents(self, key: Key) -> None:
        """Record the creation of a partition state's parents."""
        if key[0] not in self._led:
            self._led.add(key[0])
            self._changed(partitions_path(key[0]), None, "")
        self._changed(partition_path(*key), None, "")

    def _delete(self, path: str) -> None:
        """Delete a node, if it exists."""
        old: object = None
        if (key := partition_of(path)) is not None:
            old = self.states.pop(key, None)
        elif (name := child_of(TOPICS, path)) is not None:
            old = self.topics.pop(name, None)
            self._led.discard(name)
        elif is_below(TOPICS, path):
            old = ""
        elif (name := child_of(DELETE_TOPICS, path)) is not None:
            if name in self.deletions:
                self.deletions.remove(name)
                old = ""
        elif path in self.nodes:
            old = self.nodes.pop(path)
        else:
            old = self.watched.pop(path, None)
        unreadable = self.problems.pop(path, None)
        if old is not None or unreadable is not None:
            self._changed(path, old, None)

    def _changed(self, path: str, old: object, new: object) -> None:
        """Record a change and fire watches. ``path``: of a sequential node without its number."""
        self.changes.append(Change(path, old, new))
        self._fire(path)
        # A topic znode has a data watch only, no child watch.
        parent = path.rpartition("/")[0]
        if (old is None) is not (new is None) and parent in WATCHED:
            self._fire(parent)

    def _fire(self, path: str) -> None:
        """Fire the one-shot watch of a path, if armed."""
        if path in self.watches:
            self.watches.discard(path)
            self.events.append(change_of(path))


def key_of(partition: Partition) -> Key:
    return partition.topic.name, partition.number


def _version_of(value: object) -> int:
    """That of what is stored; -1: it is not known."""
    match value:
        case LeaderAndIsr():
            return value.partition_epoch
        case ReassignmentRequest() | StoredNode():
            return value.version
    return -1


def _version_conflict(found: int | None, expected: int | None) -> str | None:
    if found is None and expected is not None:
        return "NONODE"
    return None if found == expected else "BADVERSION"
