"""ZooKeeper and the operator's hands, in memory: what the core reads and writes, and one-shot watches.

A test fake, kept small on purpose: it knows only the rules that the core relies on (a commit is all or none and
conditional on versions, a watch fires once). Tests of the runtime run the same flows on a real server; where the
two disagree the server is right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from controller.core.events import Event, EventKind
from controller.core.model import (
    RECOVERED,
    Broker,
    BrokerIds,
    Endpoint,
    FeatureRange,
    LeaderAndIsr,
    Partition,
)

Key = tuple[str, int]

BROKER_CHANGE = Event(EventKind.BROKER_CHANGE)
TOPIC_CHANGE = Event(EventKind.TOPIC_CHANGE)
PREFERRED_ELECTION = Event(EventKind.PREFERRED_ELECTION)
RECONNECTED = Event(EventKind.RECONNECTED)
ISR_CHANGE = Event(EventKind.ISR_CHANGE)
LOG_DIR = Event(EventKind.LOG_DIR)
TOPIC_DELETION = Event(EventKind.TOPIC_DELETION)
PREFERRED_PATH = "/admin/preferred_replica_election"
ISR_PATH = "/isr_change_notification"
LOG_DIR_PATH = "/log_dir_event_notification"
CONFIG_CHANGES_PATH = "/config/changes"
CONFIG_CHANGE = Event(EventKind.CONFIG_CHANGE)
_NOTIFICATIONS = {ISR_PATH: ISR_CHANGE, LOG_DIR_PATH: LOG_DIR, CONFIG_CHANGES_PATH: CONFIG_CHANGE}
REASSIGNMENT = Event(EventKind.REASSIGNMENT)
REASSIGNMENT_PATH = "/admin/reassign_partitions"
DELETIONS_PATH = "/admin/delete_topics"


def modified(topic: str) -> Event:
    return Event(EventKind.PARTITION_MODIFICATIONS, topic)


def topic_path(topic: str) -> str:
    return f"/brokers/topics/{topic}"


def state_path(topic: str, number: int = 0) -> str:
    return f"/brokers/topics/{topic}/partitions/{number}/state"


def a_broker(broker_id: int, epoch: int, port: int = 9000, rack: str | None = None) -> Broker:
    return Broker(broker_id, epoch, (Endpoint("GRPC", "GRPC", f"host{broker_id}", port),), rack)


def state(
    leader: int,
    isr: Iterable[int],
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    controller_epoch: int = 1,
    recovery: int = RECOVERED,
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, tuple(isr), partition_epoch, controller_epoch, recovery)


class World:
    """The znodes, by hand or by commit. What is ``unreadable`` (path to problem) is stored all the same."""

    def __init__(self, *broker_ids: int) -> None:
        self.zxid = 100
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.states: dict[Key, LeaderAndIsr] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.deletions: list[str] = []
        #: Notification nodes of brokers, by path: partitions of an ISR change, or the broker that lost a disk.
        self.notifications: dict[str, list[Key] | int | str | None] = {}
        #: Partitions on failed disks, by broker, until it comes back.
        self.lost: dict[int, set[Key]] = {}
        #: Log folders that brokers hold, whether they are up or not.
        self.folders: dict[int, set[Key]] = {}
        self.preferred: list[Key] | None = None
        self.reassignment: ReassignmentRequest | None = None
        self.feature: FeatureAnswer | None = FeatureAnswer(True, 0)
        #: What ``ReadNodes`` reads, by path: value and version.
        self.nodes: dict[str, StoredNode[Any]] = {"/cluster/id": StoredNode("a-cluster", 0)}
        self.unreadable: dict[str, str] = {}
        #: Commits are of a leader's proposal now: it keeps its leader epoch.
        self.altering = False
        #: Partitions being moved or deleted: a proposal may finish or begin that, with writes of the controller's own.
        self.moving: set[Key] = set()
        #: Paths whose next change is an event.
        self.watches: set[str] = set()
        self.events: deque[Event] = deque()
        #: Every state ever stored, of every incarnation of a topic.
        self.history: dict[Key, list[LeaderAndIsr]] = {}
        #: Who led when: (topic, czxid, partition, leader epoch) to leader.
        self.leaders: dict[tuple[str, int, int, int], int] = {}
        for broker_id in broker_ids:
            self.broker_up(broker_id)

    # the operator's hands

    def _fire(self, path: str, event: Event) -> None:
        if path in self.watches:
            self.watches.discard(path)
            self.events.append(event)

    def broker_up(self, broker_id: int, **kwargs: Any) -> None:
        self.zxid += 1
        self.brokers[broker_id] = a_broker(broker_id, self.zxid, **kwargs)
        self._fire("/brokers/ids", BROKER_CHANGE)

    def broker_down(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            del self.brokers[broker_id]
            self.lost.pop(broker_id, None)
        self._fire("/brokers/ids", BROKER_CHANGE)

    def bounce(self, *broker_ids: int) -> None:
        """Away and back again before anybody looked."""
        self.broker_down(*broker_ids)
        for broker_id in broker_ids:
            self.broker_up(broker_id)

    def move_broker(self, broker_id: int, port: int) -> None:
        self.brokers[broker_id] = a_broker(broker_id, self.brokers[broker_id].epoch, port)
        self._fire("/brokers/ids", BROKER_CHANGE)

    def create_topic(
        self, name: str, partitions: Mapping[int, Sequence[int]], topic_id: str | None = None
    ) -> None:
        self.zxid += 1
        assignment = {n: tuple(ids) for n, ids in partitions.items()}
        given = f"id-{self.zxid}" if topic_id is None else topic_id
        self.topics[name] = TopicInfo(name, given, assignment, {}, {}, self.zxid, 0)
        self._fire("/brokers/topics", TOPIC_CHANGE)

    def edit_topic(self, name: str, **changes: Any) -> None:
        """Replace fields of the topic znode, as a tool does (version + 1)."""
        old = self.topics[name]
        fields = {f: getattr(old, f) for f in TopicInfo.__dataclass_fields__}
        self.topics[name] = TopicInfo(**{**fields, **changes, "version": old.version + 1})
        self._fire(topic_path(name), modified(name))

    def expand_topic(self, name: str, partitions: Mapping[int, Sequence[int]]) -> None:
        more = {n: tuple(ids) for n, ids in partitions.items()}
        self.edit_topic(name, partitions={**self.topics[name].partitions, **more})

    def delete_topic(self, name: str) -> None:
        """By hand, recursively: its data watch tells of it, and the child watch."""
        del self.topics[name]
        for key in [k for k in self.states if k[0] == name]:
            del self.states[key]
        self._fire(topic_path(name), modified(name))
        self._fire("/brokers/topics", TOPIC_CHANGE)

    def put_state(self, topic: str, number: int, new: LeaderAndIsr) -> None:
        self.states[(topic, number)] = new
        self.history.setdefault((topic, number), []).append(new)

    def shrink_or_grow(self, topic: str, number: int, isr: Sequence[int], leader: int | None = None) -> None:
        """An outside writer (a partition leader of old) changes the ISR; nobody is told."""
        old = self.states[(topic, number)]
        self.put_state(
            topic,
            number,
            LeaderAndIsr(
                old.leader if leader is None else leader,
                old.leader_epoch,
                tuple(isr),
                old.partition_epoch + 1,
                old.controller_epoch,
                old.recovery,
            ),
        )

    def mark_for_deletion(self, *names: str) -> None:
        self.deletions.extend(names)
        self._fire(DELETIONS_PATH, TOPIC_DELETION)

    def ask_preferred(self, *partitions: Key) -> None:
        self.preferred = list(partitions)
        self._fire(PREFERRED_PATH, PREFERRED_ELECTION)

    def ask_reassignment(self, wanted: Mapping[Key, Sequence[int]]) -> None:
        """The legacy tool writes its znode."""
        entries = tuple((topic, number, tuple(ids)) for (topic, number), ids in wanted.items())
        version = -1 if self.reassignment is None else self.reassignment.version
        self._list_reassignments(entries, version + 1)

    def _list_reassignments(self, entries: Sequence[tuple[str, int, BrokerIds]], version: int) -> None:
        self.reassignment = ReassignmentRequest(tuple(entries), version) if entries else None
        self._fire(REASSIGNMENT_PATH, REASSIGNMENT)

    def notify_isr(self, *partitions: Key) -> str:
        """A leader that wrote in-sync sets itself tells of it."""
        return self._notify(f"{ISR_PATH}/isr_change_", list(partitions))

    def notify_log_dir(self, broker_id: int) -> str:
        """A broker lost a disk."""
        return self._notify(f"{LOG_DIR_PATH}/log_dir_event_", broker_id)

    def _notify(self, prefix: str, value: list[Key] | int | str) -> str:
        self.zxid += 1
        path = f"{prefix}{self.zxid:010}"
        self.notifications[path] = value
        self._notified(path)
        return path

    def notify_config(self, entity: str) -> str:
        """Somebody changed the configuration of an entity below ``/config``."""
        return self._notify(f"{CONFIG_CHANGES_PATH}/config_change_", entity)

    def put_node(self, path: str, value: Any, version: int | None = None) -> None:
        """A znode by hand; ``version`` None counts on."""
        old = self.nodes.get(path)
        following = 0 if old is None else old.version + 1
        self.nodes[path] = StoredNode(value, following if version is None else version)
        if path.startswith("/config/topics/"):
            self.configs[path.rsplit("/", 1)[1]] = value

    def _notified(self, path: str) -> None:
        for parent, event in _NOTIFICATIONS.items():
            if path.startswith(parent):
                self._fire(parent, event)

    def damage(self, path: str, problem: str = "field x: expected int") -> None:
        self.unreadable[path] = problem
        self._touched(path)

    def mend(self, path: str) -> None:
        del self.unreadable[path]
        self._touched(path)

    def _touched(self, path: str) -> None:
        parts = path.split("/")
        if path.startswith("/brokers/ids/"):
            self._fire("/brokers/ids", BROKER_CHANGE)
        elif path.startswith("/brokers/topics/") and len(parts) == 4:
            self._fire(path, modified(parts[3]))

    def lose_watches(self) -> None:
        """The connection was away: every watch is gone, and the runtime says so."""
        self.watches.clear()
        self.events.append(RECONNECTED)

    # reads

    def answer(self, query: AnyQuery) -> object:  # noqa: C901  (a table)
        match query:
            case ReadBrokers():
                self.watches.add("/brokers/ids")
                paths = {b: f"/brokers/ids/{b}" for b in self.brokers}
                readable = {b: v for b, v in self.brokers.items() if paths[b] not in self.unreadable}
                return BrokersAnswer(readable, self._problems(p for p in paths.values()))
            case ReadTopicNames():
                self.watches.add("/brokers/topics")
                return list(self.topics)
            case ReadTopics(names):
                self.watches.update(topic_path(n) for n in names if n in self.topics)
                return [self._or_problem(topic_path(n), self.topics.get(n)) for n in names]
            case ReadStates(partitions):
                keys = [(p.topic.name, p.number) for p in partitions]
                return [self._or_problem(state_path(*k), self.states.get(k)) for k in keys]
            case ReadTopicConfigs(names):
                return [self._or_problem(f"/config/topics/{n}", self.configs.get(n, {})) for n in names]
            case ReadPendingDeletions():
                self.watches.add(DELETIONS_PATH)
                return list(self.deletions)
            case ReadTopicTrees(names):
                return [self._tree(n) for n in names]
            case ReadPreferredElection():
                self.watches.add(PREFERRED_PATH)
                return self._or_problem(PREFERRED_PATH, self.preferred)
            case ReadReassignment():
                self.watches.add(REASSIGNMENT_PATH)
                return self._or_problem(REASSIGNMENT_PATH, self.reassignment)
            case ReadNotifications():
                self.watches.update((ISR_PATH, LOG_DIR_PATH))
                return [p for p in self.notifications if not p.startswith(CONFIG_CHANGES_PATH)]
            case ReadIsrNotifications():
                return self._below(ISR_PATH)
            case ReadLogDirEvents():
                return self._below(LOG_DIR_PATH)
            case ReadFeature():
                return self._or_problem("/feature", self.feature)
            case ReadNodes(paths):
                return [self._or_problem(path, self.nodes.get(path)) for path in paths]
            case ReadConfigChanges():
                return self._below(CONFIG_CHANGES_PATH)

    def _tree(self, name: str) -> list[str]:
        topic = [*(state_path(*k) for k in self.states if k[0] == name), topic_path(name)]
        config = [f"/config/topics/{name}"] if name in self.configs else []
        return [*(topic if name in self.topics else []), *config]

    def _below(self, parent: str) -> list[tuple[str, Any]]:
        self.watches.add(parent)
        nodes = [(p, v) for p, v in self.notifications.items() if p.startswith(parent)]
        return [(path, self._or_problem(path, value)) for path, value in nodes]

    def _problems(self, paths: Iterable[str]) -> tuple[Problem, ...]:
        """Unreadable registrations; their Stat, and so their incarnation, is known all the same."""
        epochs = {f"/brokers/ids/{id_}": broker.epoch for id_, broker in self.brokers.items()}
        return tuple(Problem(p, self.unreadable[p], epochs.get(p, -1)) for p in paths if p in self.unreadable)

    def _or_problem(self, path: str, value: Any) -> Any:
        if value is not None and path in self.unreadable:
            return Problem(path, self.unreadable[path])
        return value

    # commits

    def commit(self, writes: Sequence[Write]) -> str | None:
        """All or none; the first conflict in words, None when it landed."""
        deleted = {write.path for write in writes if isinstance(write, DeleteNode)}
        for path in deleted & {topic_path(name) for name in self.topics}:
            if not deleted.issuperset(self._tree(path.rsplit("/", 1)[1])):
                return "NOTEMPTY"
        for write in writes:
            if (conflict := self._conflict(write)) is not None:
                return conflict
        for write in writes:
            self._apply(write)
        return None

    def _conflict(self, write: Write) -> str | None:  # noqa: C901  (a table)
        match write:
            case SetState(partition, new):
                found = self.states.get(key_of(partition))
                if found is None:
                    return "NONODE"
                return None if found.partition_epoch == new.partition_epoch - 1 else "BADVERSION"
            case CreateState(partition, _):
                if partition.topic.name not in self.topics:
                    return "NONODE"
                return "NODEEXISTS" if key_of(partition) in self.states else None
            case CreateTopic(info):
                return "NODEEXISTS" if info.name in self.topics else None
            case SetTopic(info):
                stored = self.topics.get(info.name)
                if stored is None:
                    return "NONODE"
                return None if stored.version == info.version else "BADVERSION"
            case SetReassignment(_, version):
                listed = self.reassignment
                return None if listed is not None and listed.version == version else "BADVERSION"
            case WriteNode(path, _, version):
                node = self.nodes.get(path)
                held = None if node is None else node.version
                return None if held == version else "BADVERSION"
            case NotifyConfig():
                return None
            case PutFeature(version):
                stored_version = None if self.feature is None else self.feature.version
                return None if stored_version == version else "BADVERSION"
            case DeleteNode() | CreateNode():
                return None

    def _apply(self, write: Write) -> None:
        match write:
            case SetState(partition, new):
                self._check_state(partition, self.states[key_of(partition)], new)
                self.put_state(partition.topic.name, partition.number, new)
            case CreateState(partition, new):
                self._check_state(partition, None, new)
                self.put_state(partition.topic.name, partition.number, new)
            case CreateTopic(info):
                self.create_topic(info.name, info.partitions, info.topic_id)
            case SetTopic(info):
                fields = {
                    f: getattr(info, f) for f in TopicInfo.__dataclass_fields__ if f not in ("name", "czxid")
                }
                self.edit_topic(info.name, **fields)
            case WriteNode(path, value, version):
                self.put_node(path, value, 0 if version is None else version + 1)
            case NotifyConfig(entity):
                self.notify_config(entity)
            case PutFeature(version, levels):
                stored = tuple(FeatureRange(name, level, level) for name, level in levels.items())
                self.feature = FeatureAnswer(True, 0 if version is None else version + 1, stored)
            case SetReassignment(entries, version):
                self._list_reassignments(entries, version + 1)
            case DeleteNode(path):
                self._delete(path)
            case CreateNode(path):
                name = path.removeprefix(f"{DELETIONS_PATH}/")
                if name not in self.deletions:
                    self.mark_for_deletion(name)

    def _delete(self, path: str) -> None:
        if path == PREFERRED_PATH:
            self.preferred = None
            # An exists watch fires on DELETED too, and is gone; the runtime enqueues creations only.
            self.watches.discard(path)
        elif path == REASSIGNMENT_PATH:
            self.unreadable.pop(path, None)
            self._list_reassignments((), 0)
        elif path.startswith(DELETIONS_PATH):
            name = path.rsplit("/", 1)[1]
            if name in self.deletions:
                self.deletions.remove(name)
                self._fire(DELETIONS_PATH, TOPIC_DELETION)
        elif path.startswith("/config/topics/"):
            self.configs.pop(path.rsplit("/", 1)[1], None)
            self.nodes.pop(path, None)
        elif path.startswith("/brokers/topics/"):
            self._delete_below_topics(path.split("/")[3:])
        elif path in self.notifications:
            del self.notifications[path]
            self._notified(path)

    def _delete_below_topics(self, parts: Sequence[str]) -> None:
        if len(parts) > 1:
            self.states.pop((parts[0], int(parts[2])), None)
        elif parts[0] in self.topics:
            self.delete_topic(parts[0])

    def _check_state(self, partition: Partition, old: LeaderAndIsr | None, new: LeaderAndIsr) -> None:
        """The invariants of a state that the controller writes."""
        name, info = partition.name, self.topics[partition.topic.name]
        assigned = info.partitions[partition.number]
        assert new.isr, f"{name}: an empty ISR"
        assert len(set(new.isr)) == len(new.isr), f"{name}: {new.isr} names a broker twice"
        assert new.leader == -1 or new.leader in new.isr, f"{name}: leader {new.leader} not in {new.isr}"
        if old is None:
            assert (new.leader_epoch, new.partition_epoch) == (0, 0), f"{name}: starts at {new}"
            assert set(new.isr) <= set(assigned), f"{name}: ISR {new.isr} outside {assigned}"
        else:
            assert set(new.isr) <= set(assigned) | set(old.isr), f"{name}: ISR {new.isr} outside {assigned}"
            finishing = key_of(partition) in self.moving and new.leader_epoch != old.leader_epoch
            if self.altering and not finishing:
                kept = (new.leader, new.leader_epoch) == (old.leader, old.leader_epoch)
                assert kept, f"{name}: only its ISR may change: {old} -> {new}"
            else:
                assert new.leader_epoch == old.leader_epoch + 1, f"{name}: leader epoch {old} -> {new}"
            assert new.partition_epoch == old.partition_epoch + 1, f"{name}: partition epoch {old} -> {new}"
            assert new.controller_epoch >= old.controller_epoch, f"{name}: controller epoch {old} -> {new}"
        term = (info.name, info.czxid, partition.number, new.leader_epoch)
        assert self.leaders.setdefault(term, new.leader) == new.leader, f"{name}: two leaders in {term}"


def key_of(partition: Partition) -> Key:
    return partition.topic.name, partition.number
