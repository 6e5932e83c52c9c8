"""ZooKeeper in memory, as far as the controller uses it: typed znodes, versions, fenced batches of writes.

Every change is kept, with the path and what was there before. What the controller itself writes where it watches is
kept, too (``unheard``); who changes a znode from outside says so to the machine himself.
"""

from __future__ import annotations

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
    ReadConfigChanges,
    ReadFeature,
    ReadIsrNotifications,
    ReadLogDirEvents,
    ReadNodes,
    ReadNotifications,
    ReadPendingDeletions,
    ReadPreferredElection,
    ReadReassignment,
    ReadStates,
    ReadTopicConfigs,
    ReadTopicNames,
    ReadTopics,
    ReadTopicTrees,
    ReassignmentRequest,
    SetReassignment,
    SetState,
    SetTopic,
    StoredNode,
    TopicInfo,
    Write,
    WriteNode,
)
from controller.core.model import Broker, FeatureRange, LeaderAndIsr, Maintenance, Partition
from controller.core.znode_paths import (
    APPROVALS,
    BROKER_DEFAULTS,
    BROKER_IDS,
    CLUSTER_ID,
    CONFIG_CHANGE,
    CONFIG_CHANGES,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    FEATURE,
    MAINTENANCE,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    state_path,
    topic_config_path,
    topic_path,
)
from controller.errors import FencedError
from controller.planning.snapshot import Key, Snapshot

T = TypeVar("T")

#: What a znode holds; a bare string is for those whose being there is all they say.
Stored = LeaderAndIsr | TopicInfo | ReassignmentRequest | FeatureAnswer | StoredNode[object] | str


class Change(NamedTuple):
    """One write: what the znode held, and what it holds now; None: it is absent."""

    path: str
    old: Stored | None
    new: Stored | None


class Store:
    """The znodes of one snapshot, and what became of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.controller_epoch = snapshot.controller_epoch
        self.brokers: dict[int, Broker] = dict(snapshot.brokers)
        self.topics: dict[str, TopicInfo] = dict(snapshot.topics)
        self.states: dict[Key, LeaderAndIsr] = dict(snapshot.states)
        #: Topics that have states.
        self._led = {topic for topic, _ in self.states}
        #: What ``ReadNodes`` reads, and the topics' settings.
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
        #: Not stored: which replicas brokers lost with a disk, until they are gone or back.
        self.offline_dirs = dict(snapshot.offline_dirs)
        self.deletions: list[str] = list(snapshot.deleting)
        #: Notifications of changed configuration: path and entity.
        self.notifications: list[tuple[str, str]] = []
        #: Parents whose children changed since somebody asked.
        self.unheard: dict[str, None] = {}
        self.preferred: list[Key] | None = None
        self.reassignment: ReassignmentRequest | None = None
        self.feature = snapshot.feature
        self.problems = dict(snapshot.problems)
        self.changes: list[Change] = []
        self._zxid = max(
            [0, *(b.epoch for b in self.brokers.values()), *(t.czxid for t in self.topics.values())]
        )

    def register(self, broker: Broker) -> None:
        """A broker comes (back): a new incarnation."""
        self._zxid += 1
        self.offline_dirs.pop(broker.id, None)
        self.brokers[broker.id] = msgspec.structs.replace(broker, epoch=self._zxid)

    def is_online(self, key: Key, broker_id: int) -> bool:
        """Whether a broker is registered, and has not lost this partition with a disk."""
        return broker_id in self.brokers and key not in self.offline_dirs.get(broker_id, ())

    def take_changes(self) -> list[Change]:
        """All writes since the last time."""
        taken, self.changes = self.changes, []
        return taken

    # reads

    def answer(self, query: AnyQuery) -> object:  # noqa: C901  (a table)
        """What ZooKeeper would, of the query's type."""
        match query:
            case ReadBrokers():
                prefix = f"{BROKER_IDS}/"
                bad = [Problem(p, text) for p, text in self.problems.items() if p.startswith(prefix)]
                return BrokersAnswer(dict(self.brokers), tuple(bad))
            case ReadTopicNames():
                return list(self.topics)
            case ReadTopics(names):
                return [self._or_problem(topic_path(name), self.topics.get(name)) for name in names]
            case ReadStates(partitions):
                keys = [key_of(p) for p in partitions]
                return [self._or_problem(state_path(*key), self.states.get(key)) for key in keys]
            case ReadTopicConfigs(names):
                found = [self._node(topic_config_path(name)) for name in names]
                return [{} if f is None else f.value if isinstance(f, StoredNode) else f for f in found]
            case ReadPendingDeletions():
                return list(self.deletions)
            case ReadTopicTrees(names):
                return [self._tree(name) for name in names]
            case ReadPreferredElection():
                return None if self.preferred is None else list(self.preferred)
            case ReadReassignment():
                return self.reassignment
            case ReadNotifications() | ReadIsrNotifications() | ReadLogDirEvents():
                return []
            case ReadConfigChanges():
                return list(self.notifications)
            case ReadNodes(paths):
                return [self._node(path) for path in paths]
            case ReadFeature():
                return self.feature
            case _:
                assert_never(query)

    def _node(self, path: str) -> StoredNode[object] | Problem | None:
        return self._or_problem(path, self.nodes.get(path))

    def _or_problem(self, path: str, value: T) -> T | Problem:
        problem = self.problems.get(path)
        return value if problem is None else Problem(path, problem)

    def _tree(self, name: str) -> list[str]:
        config = topic_config_path(name)
        configs: list[str] = [config] if config in self.nodes else []
        if name not in self.topics:
            return configs
        numbers = [number for number in self.topics[name].partitions if (name, number) in self.states]
        base = f"{topic_path(name)}/partitions"
        nodes = [f"{base}/{number}" for number in numbers]
        below = [*(f"{node}/state" for node in nodes), *nodes, *([base] if nodes else [])]
        return [*below, topic_path(name), *configs]

    # writes

    def commit(self, controller_epoch: int, writes: Sequence[Write]) -> str | None:
        """All or none. The first conflict in words, None when it landed. Raises FencedError under another epoch."""
        if controller_epoch != self.controller_epoch:
            raise FencedError(f"{CONTROLLER_EPOCH} is {self.controller_epoch}, not {controller_epoch}")
        gone = {write.path for write in writes if isinstance(write, DeleteNode)}
        for write in writes:
            if (conflict := self._conflict(write, gone)) is not None:
                return conflict
        for write in writes:
            self._apply(write)
        return None

    def _conflict(self, write: Write, gone: set[str]) -> str | None:
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
                return _version_conflict(listed, version)
            case PutFeature(version):
                feature = self.feature
                return _version_conflict(None if feature is None else feature.version, version)
            case DeleteNode(path):
                name = path.removeprefix(f"{TOPICS}/")
                return "NOTEMPTY" if name in self.topics and not gone.issuperset(self._tree(name)) else None
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
                self._changed(state_path(*key), self.states.get(key), new)
                self.states[key] = new
            case CreateTopic(info):
                self._zxid += 1
                self._changed(topic_path(info.name), None, info)
                self.topics[info.name] = replace(info, czxid=self._zxid)
            case SetTopic(info):
                stored = replace(info, version=info.version + 1)
                self._changed(topic_path(info.name), self.topics[info.name], stored)
                self.topics[info.name] = stored
            case SetReassignment(entries, version):
                request = ReassignmentRequest(tuple(entries), version + 1) if entries else None
                self._changed(REASSIGN_PARTITIONS, self.reassignment, request)
                self.reassignment = request
            case WriteNode(path, value, version):
                node = StoredNode(value, 0 if version is None else version + 1)
                self._changed(path, self.nodes.get(path), node)
                self.nodes[path] = node
            case NotifyConfig(entity):
                self.notifications.append((f"{CONFIG_CHANGE}{len(self.notifications)}", entity))
                self.unheard[CONFIG_CHANGES] = None
                self._changed(CONFIG_CHANGE, None, entity)
            case PutFeature(version, levels):
                finalized = tuple(FeatureRange(name, level, level) for name, level in levels.items())
                feature = FeatureAnswer(True, 0 if version is None else version + 1, finalized)
                self._changed(FEATURE, self.feature, feature)
                self.feature = feature
            case DeleteNode(path):
                self._delete(path)
            case CreateNode(path):
                name = path.removeprefix(f"{DELETE_TOPICS}/")
                if name != path and name not in self.deletions:
                    self.deletions.append(name)
                    self.unheard[DELETE_TOPICS] = None
                    self._changed(path, None, "")
            case _:
                assert_never(write)

    def _make_parents(self, key: Key) -> None:
        """What is above a partition's first state."""
        base = f"{topic_path(key[0])}/partitions"
        if key[0] not in self._led:
            self._led.add(key[0])
            self._changed(base, None, "")
        self._changed(f"{base}/{key[1]}", None, "")

    def _delete(self, path: str) -> None:
        """Whatever is there; an absent node is fine."""
        old: Stored | None = None
        parent, _, name = path.rpartition("/")
        if path == PREFERRED_ELECTION:
            old, self.preferred = None if self.preferred is None else "", None
        elif path == REASSIGN_PARTITIONS:
            old, self.reassignment = self.reassignment, None
        elif parent == DELETE_TOPICS and name in self.deletions:
            self.deletions.remove(name)
            old = ""
        elif path in self.nodes:
            old = self.nodes.pop(path)
        elif parent == TOPICS:
            old = self.topics.pop(name, None)
            self._led.discard(name)
        elif path.startswith(f"{TOPICS}/") and name == "state":
            parts = path.split("/")
            old = self.states.pop((parts[3], int(parts[5])), None)
        elif path.startswith(f"{TOPICS}/"):
            old = ""
        if old is not None:
            self._changed(path, old, None)

    def _changed(self, path: str, old: Stored | None, new: Stored | None) -> None:
        self.changes.append(Change(path, old, new))


def key_of(partition: Partition) -> Key:
    return partition.topic.name, partition.number


def _version_conflict(found: int | None, expected: int | None) -> str | None:
    if found is None and expected is not None:
        return "NONODE"
    return None if found == expected else "BADVERSION"
