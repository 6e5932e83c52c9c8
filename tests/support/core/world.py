"""The core's world, in memory: planning's store with the operator's hands, and checks of every state that is written.

Tests of the runtime run the same cases on this store and on a real server (``tests/runtime/zookeeper``); where the two
disagree the server is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.core.audit.stored_states import RESERVE
from controller.core.effects import (
    CreateState,
    FeatureAnswer,
    ReassignmentRequest,
    SetState,
    StoredNode,
    TopicInfo,
    Write,
)
from controller.core.events import Event, EventKind
from controller.core.model import EPOCH_MAX, RECOVERED, Broker, Endpoint, LeaderAndIsr, Partition
from controller.core.standby.prepared import Prepared
from controller.core.topics.changes import is_plain, topic_of_info
from controller.core.znode_paths import (
    BROKER_IDS,
    CLUSTER_ID,
    CONFIG_CHANGE,
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    TOPIC_CONFIGS,
    TOPICS,
    broker_path,
    child_of,
    deletion_path,
    topic_config_path,
    topic_path,
)
from controller.core.znode_paths import state_path as path_of_state
from controller.planning.snapshot import Key as Key
from controller.planning.snapshot import Snapshot
from controller.planning.store import Store
from controller.planning.store import key_of as key_of

BROKER_CHANGE = Event(EventKind.BROKER_CHANGE)
TOPIC_CHANGE = Event(EventKind.TOPIC_CHANGE)
RECONNECTED = Event(EventKind.RECONNECTED)
ISR_CHANGE = Event(EventKind.ISR_CHANGE)
LOG_DIR = Event(EventKind.LOG_DIR)
CONFIG_CHANGED = Event(EventKind.CONFIG_CHANGE)
ELECTION_REQUESTED = Event(EventKind.PREFERRED_ELECTION)


def modified(topic: str) -> Event:
    return Event(EventKind.PARTITION_MODIFICATIONS, topic)


def state_path(topic: str, number: int = 0) -> str:
    return path_of_state(topic, number)


def a_broker(
    broker_id: int,
    epoch: int,
    port: int = 9000,
    rack: str | None = None,
    directories: tuple[int, ...] = (),
) -> Broker:
    endpoint = Endpoint("GRPC", "GRPC", f"host{broker_id}", port)
    return Broker(broker_id, epoch, (endpoint,), rack, directories=directories)


def state(
    leader: int,
    isr: Iterable[int],
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    controller_epoch: int = 1,
    recovery: int = RECOVERED,
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, tuple(isr), partition_epoch, controller_epoch, recovery)


class World(Store):
    """The znodes, by hand or by commit. What is ``unreadable`` (path to problem) is stored all the same."""

    nodes: dict[str, StoredNode[Any]]

    def __init__(self, *broker_ids: int) -> None:
        nodes: dict[str, StoredNode[Any]] = {CLUSTER_ID: StoredNode("a-cluster", 0)}
        super().__init__(Snapshot(100, 1, {}, {}, {}, feature=FeatureAnswer(True, 0), nodes=nodes))
        self.zxid = 100
        #: How many ids controllers generated: each is unique, whoever makes it.
        self.generated = 0
        self.unreadable = self.problems
        #: Partitions whose state somebody edited: what is written over it may skip leader epochs.
        self.edited: set[Key] = set()
        #: Those whose newer state ZooKeeper has forgotten: in one leader epoch their version may be raised by steps.
        self.forgotten: set[Key] = set()
        #: Partitions on failed disks, by broker, until it comes back.
        self.lost: dict[int, set[Key]] = {}
        #: Log folders that brokers hold, whether they are up or not.
        self.folders: dict[int, set[Key]] = {}
        #: Commits are of a leader's proposal now: it keeps its leader epoch.
        self.altering = False
        #: Partitions being moved or deleted: a proposal may finish or begin that, with writes of the controller's own.
        self.moving: set[Key] = set()
        #: Every state ever stored, of every incarnation of a topic.
        self.history: dict[Key, list[LeaderAndIsr]] = {}
        #: Who led when: (topic, czxid, partition, leader epoch) to leader.
        self.leaders: dict[tuple[str, int, int, int], int] = {}
        #: A new controller has kept topics and states ready; those for which it says so may have changed since.
        self.warm: Callable[[str], bool] | None = None
        for broker_id in broker_ids:
            self.broker_up(broker_id)

    def numbers(self) -> Iterator[int]:
        while True:
            self.generated += 1
            yield self.generated

    def prepared(self) -> Prepared | None:
        if self.warm is None:
            return None
        prepared, may_differ = Prepared(), self.warm
        for info in self.topics.values():
            if topic_path(info.name) in self.problems or not is_plain(info) or may_differ(info.name):
                continue
            for partition in prepared.put(topic_of_info(info)):
                key = key_of(partition)
                found = self.states.get(key) if state_path(*key) not in self.problems else None
                prepared.keep(partition, found)
        for name in list(prepared.special):
            prepared.withdraw(name)
        every = [p for topic in prepared.topics.values() for p in topic.partitions.values()]
        stale = [p for p in every if may_differ(p.name)]
        for partition in stale:
            prepared.keep(partition, LeaderAndIsr(99, 99, (99,), 99, 1))
        prepared.close(stale)
        self.watches.update(map(topic_path, prepared.topics))
        return prepared

    @property
    def configs(self) -> dict[str, Any]:
        """Settings by topic; to be changed with ``configure``."""
        found = {child_of(TOPIC_CONFIGS, path): node.value for path, node in self.nodes.items()}
        return {name: value for name, value in found.items() if name is not None}

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        self.put_node(topic_config_path(topic), settings)

    @property
    def preferred(self) -> list[Key] | None:
        found = self.watched.get(PREFERRED_ELECTION)
        assert found is None or isinstance(found, list)
        return found

    @property
    def notifications(self) -> list[str]:
        """Notification nodes of brokers and of the controller."""
        return [path for path in self.watched if path not in (PREFERRED_ELECTION, REASSIGN_PARTITIONS)]

    # the operator's hands

    def broker_up(self, broker_id: int, **kwargs: Any) -> None:
        self.zxid += 1
        self.brokers[broker_id] = a_broker(broker_id, self.zxid, **kwargs)
        self._fire(BROKER_IDS)

    def broker_down(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            del self.brokers[broker_id]
            self.lost.pop(broker_id, None)
            self.problems.pop(broker_path(broker_id), None)
        self._fire(BROKER_IDS)

    def bounce(self, *broker_ids: int) -> None:
        """Away and back again before anybody looked."""
        self.broker_down(*broker_ids)
        for broker_id in broker_ids:
            self.broker_up(broker_id)

    def move_broker(self, broker_id: int, port: int) -> None:
        self.brokers[broker_id] = a_broker(broker_id, self.brokers[broker_id].epoch, port)
        self._fire(BROKER_IDS)

    def create_topic(
        self, name: str, partitions: Mapping[int, Sequence[int]], topic_id: str | None = None
    ) -> None:
        self.zxid += 1
        assignment = {n: tuple(ids) for n, ids in partitions.items()}
        given = f"id-{self.zxid}" if topic_id is None else topic_id
        self.topics[name] = TopicInfo(name, given, assignment, {}, {}, self.zxid, 0)
        self._fire(TOPICS)

    def edit_topic(self, name: str, **changes: Any) -> None:
        """Replace fields of the topic znode, as a tool does (version + 1)."""
        old = self.topics[name]
        self.topics[name] = replace(old, **changes, version=old.version + 1)
        self._fire(topic_path(name))

    def expand_topic(self, name: str, partitions: Mapping[int, Sequence[int]]) -> None:
        more = {n: tuple(ids) for n, ids in partitions.items()}
        self.edit_topic(name, partitions={**self.topics[name].partitions, **more})

    def delete_topic(self, name: str) -> None:
        """By hand, recursively: its data watch tells of it, and the child watch."""
        for key in [k for k in self.states if k[0] == name]:
            del self.states[key]
        self._delete(topic_path(name))

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
        for name in names:
            self._changed(deletion_path(name), None, "")

    def ask_preferred(self, *partitions: Key) -> None:
        self.put_watched(PREFERRED_ELECTION, list(partitions))

    def ask_reassignment(self, wanted: Mapping[Key, Sequence[int]]) -> None:
        """The legacy tool writes its znode."""
        entries = tuple((topic, number, tuple(ids)) for (topic, number), ids in wanted.items())
        version = -1 if self.reassignment is None else self.reassignment.version
        self.put_watched(REASSIGN_PARTITIONS, ReassignmentRequest(entries, version + 1) if entries else None)

    def notify_isr(self, *partitions: Key) -> str:
        """A leader that wrote in-sync sets itself tells of it."""
        return self.put_sequential(f"{ISR_NOTIFICATIONS}/isr_change_", list(partitions))

    def notify_log_dir(self, broker_id: int) -> str:
        """A broker lost a disk."""
        return self.put_sequential(f"{LOG_DIR_NOTIFICATIONS}/log_dir_event_", broker_id)

    def notify_config(self, entity: str) -> str:
        """Somebody changed the configuration of an entity below ``/config``."""
        return self.put_sequential(CONFIG_CHANGE, entity)

    def damage(self, path: str, problem: str = "field x: expected int") -> None:
        self.unreadable[path] = problem
        self._touched(path)

    def mend(self, path: str) -> None:
        del self.unreadable[path]
        self._touched(path)

    def _touched(self, path: str) -> None:
        self._fire(BROKER_IDS if child_of(BROKER_IDS, path) is not None else path)

    def lose_watches(self) -> None:
        """The connection was away: every watch is gone, and the runtime says so."""
        self.watches.clear()
        self.events.append(RECONNECTED)

    # commits

    def _apply(self, write: Write) -> None:
        if isinstance(write, SetState | CreateState):
            old = self.states[key_of(write.partition)] if isinstance(write, SetState) else None
            self._check_state(write.partition, old, write.new)
        super()._apply(write)

    def put_state(self, topic: str, number: int, new: LeaderAndIsr) -> None:
        super().put_state(topic, number, new)
        self.history.setdefault((topic, number), []).append(new)

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
                raised = new.leader_epoch - old.leader_epoch
                edited = key_of(partition) in self.edited | self.forgotten
                # Nobody believes an edit that leaves no epoch for elections.
                allowed = (
                    raised >= 1
                    or key_of(partition) in self.forgotten
                    or old.leader_epoch > EPOCH_MAX - RESERVE
                    if edited
                    else raised == 1
                )
                assert allowed, f"{name}: leader epoch {old} -> {new}"
            assert new.partition_epoch == old.partition_epoch + 1, f"{name}: partition epoch {old} -> {new}"
            older = new.controller_epoch < old.controller_epoch
            # No controller had an epoch above the present one: somebody wrote it.
            assert not older or new.controller_epoch == 1, f"{name}: {old} -> {new}"
        term = (info.name, info.czxid, partition.number, new.leader_epoch)
        assert self.leaders.setdefault(term, new.leader) == new.leader, f"{name}: two leaders in {term}"
