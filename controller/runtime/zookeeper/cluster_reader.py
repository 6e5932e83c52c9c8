"""The cluster state in ZooKeeper, read by an operator's tool: without a controller and without watches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from controller.core import znode_paths
from controller.core.brokers.stop_approvals import PATH as APPROVALS
from controller.core.cluster.automatic_maintenance import PATH as MAINTENANCE
from controller.core.cluster.quarantine import PATH as QUARANTINE
from controller.core.cluster.quarantine import Quarantine
from controller.core.config_keys import MIN_ISR
from controller.core.effects import FeatureAnswer, TopicInfo
from controller.core.model import Broker, BrokerIds, Forgotten, LeaderAndIsr, Maintenance, StopApproval
from controller.core.topics.forgotten import PATH as FORGOTTEN
from controller.core.znode_paths import NodePath
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute, single_codecs
from controller.runtime.zookeeper.session import NoNodeError, Session
from controller.runtime.zookeeper.single_codecs import RESIGNATION, Resignation
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess

T = TypeVar("T")


@dataclass(frozen=True)
class ControllerInfo:
    """A controller from its registration. ``active``: /controller names it."""

    controller_id: int
    endpoint: str
    http: str
    active: bool


def min_isr_in(*settings: Mapping[str, str]) -> int:
    """``min.insync.replicas`` by the first settings that say it with a number; 1, Kafka's default, if none do."""
    for found in settings:
        text = found.get(MIN_ISR, "").strip()
        if text.isascii() and text.isdigit() and int(text[:10]) >= 1:
            return int(text[:10])
    return 1


@dataclass(frozen=True)
class PartitionInfo:
    """One partition. ``state`` is None when its znode is absent or unreadable."""

    topic: str
    partition: int
    replicas: BrokerIds
    state: LeaderAndIsr | None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def on_preferred_leader(self) -> bool:
        return self.state is not None and self.state.leader == self.replicas[0]

    def under_replicated(self) -> bool:
        """Whether an assigned replica is not in sync."""
        return self.state is None or not set(self.replicas) <= set(self.state.isr)

    def spare_in_sync(self, min_isr: int) -> int | None:
        """``LeaderAndIsr.spare`` of the partition; None: it has no state."""
        return None if self.state is None else self.state.spare(self.replicas, min_isr)


@dataclass
class ClusterState:
    """The whole cluster, from one read. ``problems`` maps unreadable znodes to what is wrong."""

    controller_id: int = -1
    controller_endpoint: str = ""
    controller_epoch: int = -1
    controllers: list[ControllerInfo] = field(default_factory=list)
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    #: Topics, sorted.
    deleting: list[str] = field(default_factory=list)
    #: None: absent or unreadable.
    feature: FeatureAnswer | None = None
    partitions: list[PartitionInfo] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    #: Pause, maintenance mode and drained brokers.
    maintenance: Maintenance = field(default_factory=Maintenance)
    #: Approvals to stop by broker id, including those that no longer hold.
    approvals: dict[int, StopApproval] = field(default_factory=dict)
    forgotten: dict[int, Forgotten] = field(default_factory=dict)
    #: Empty: absent or unreadable.
    cluster_id: str = ""
    #: Control is handed back to Kafka's brokers.
    resignation: Resignation | None = None
    #: What raised unexpectedly.
    quarantine: Quarantine = field(default_factory=Quarantine)
    #: The topics' own settings, if requested; topics without any are left out.
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    #: The defaults of all brokers, if requested.
    broker_defaults: dict[str, str] = field(default_factory=dict)
    #: The active controller is one of KRaft, which migrates the cluster (KIP-866).
    kraft: bool = False

    @property
    def empty(self) -> bool:
        """There is no cluster, and never was one."""
        there = (self.controllers, self.brokers, self.topics, self.deleting, self.problems)
        return self.controller_id < 0 and self.controller_epoch < 0 and not any(there)

    def is_deleting(self, topic: str) -> bool:
        place = bisect_left(self.deleting, topic)
        return self.deleting[place : place + 1] == [topic]

    def is_led(self, partition: PartitionInfo) -> bool:
        """Whether a registered broker leads it: else it is unavailable."""
        return partition.state is not None and partition.state.leader in self.brokers

    @property
    def gone(self) -> list[int]:
        """Brokers that have replicas and are not registered."""
        return sorted({b for p in self.partitions for b in p.replicas} - self.brokers.keys())

    def min_isr(self, topic: str) -> int:
        """``min.insync.replicas`` of a topic, by its settings or the brokers' defaults in ZooKeeper, which ``look``
        reads with ``configs``; 1, Kafka's default, where they say nothing or no number."""
        return min_isr_in(self.configs.get(topic, {}), self.broker_defaults)


@asynccontextmanager
async def connected(
    connect: str, timeout_ms: int, *, create_chroot: bool = True, access: ZooKeeperAccess = OPEN_ACCESS
) -> AsyncIterator[Session]:
    """A short session. Raises EnvironmentFault when ZooKeeper does not answer, refuses the login, or the chroot does
    not exist."""
    session = Session(connect, timeout_ms, lambda _: None, None, access=access)
    try:
        await session.start(timeout_ms / 1000, create_chroot=create_chroot)
        yield session
    finally:
        await session.close()


async def look(
    session: Session, *, topics: Sequence[str] | None = None, states: bool = True, configs: bool = False
) -> ClusterState:
    """Read the cluster. ``topics``: only these, or none; ``states`` False: without partitions; ``configs``: with the
    settings of topics and broker defaults."""
    cluster_state = ClusterState()
    await _controllers(session, cluster_state)
    await _brokers(session, cluster_state)
    await _feature(session, cluster_state)
    cluster_state.maintenance = await _value(session, cluster_state, MAINTENANCE) or cluster_state.maintenance
    cluster_state.approvals = await _value(session, cluster_state, APPROVALS) or cluster_state.approvals
    cluster_state.forgotten = await _value(session, cluster_state, FORGOTTEN) or cluster_state.forgotten
    cluster_state.cluster_id = await _value(session, cluster_state, znode_paths.CLUSTER_ID) or ""
    cluster_state.resignation = await _value(session, cluster_state, RESIGNATION)
    cluster_state.quarantine = await _value(session, cluster_state, QUARANTINE) or cluster_state.quarantine
    cluster_state.deleting = sorted(await _children(session, znode_paths.DELETE_TOPICS))
    names = sorted(await _children(session, znode_paths.TOPICS)) if topics is None else list(topics)
    paths = [znode_paths.topic_path(name) for name in names]
    for name, node in zip(names, await session.bulk_get(paths), strict=True):
        if isinstance(node, int):
            if problem := single_codecs.unread(znode_paths.topic_path(name), node):
                cluster_state.problems[problem.path] = problem.problem
            continue
        try:
            cluster_state.topics[name] = codecs.decode_topic(name, node.data, node.czxid, node.version)
        except MalformedError as error:
            cluster_state.problems[error.path] = error.problem
    if states:
        await _states(session, cluster_state)
    if configs:
        cluster_state.configs, cluster_state.broker_defaults, problems = await read_configs(
            session, list(cluster_state.topics)
        )
        cluster_state.problems.update(problems)
    return cluster_state


async def _children(session: Session, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNodeError:
        return []


@contextmanager
def _reading(cluster_state: ClusterState) -> Iterator[None]:
    """One znode: one that is absent is left out, one that does not decode is a problem."""
    try:
        yield
    except NoNodeError:
        pass
    except MalformedError as error:
        cluster_state.problems[error.path] = error.problem


async def _controllers(session: Session, cluster_state: ClusterState) -> None:
    with _reading(cluster_state):
        data, _ = await session.get(znode_paths.CONTROLLER)
        cluster_state.controller_id, cluster_state.controller_endpoint = codecs.decode_controller(data)
        cluster_state.kraft = codecs.decode_claim(data).kraft_epoch >= 0
    with _reading(cluster_state):
        data, _ = await session.get(znode_paths.CONTROLLER_EPOCH)
        cluster_state.controller_epoch = codecs.decode_epoch(data)
    for name in sorted(await _children(session, znode_paths.CONTROLLER_IDS)):
        path = f"{znode_paths.CONTROLLER_IDS}/{name}"
        with _reading(cluster_state):
            data, _ = await session.get(path)
            id_, endpoint, http = codecs.decode_standby(path, data)
            active = id_ == cluster_state.controller_id
            cluster_state.controllers.append(ControllerInfo(id_, endpoint, http, active))


async def _brokers(session: Session, cluster_state: ClusterState) -> None:
    for name in await _children(session, znode_paths.BROKER_IDS):
        path = znode_paths.broker_path(name)
        with _reading(cluster_state):
            data, stat = await session.get(path)
            if codecs.is_own_registration(data):
                continue
            broker = codecs.decode_broker(path, data, stat.czxid)
            cluster_state.brokers[broker.id] = broker


async def _value(session: Session, cluster_state: ClusterState, path: NodePath[T]) -> T | None:
    """The value of one znode; None: absent or unreadable."""
    found: T | None = None
    with _reading(cluster_state):
        data, _ = await session.get(path)
        found = single_codecs.decode(path, data)
    return found  # noqa: RET504  (None where `_reading` ended it)


async def _feature(session: Session, cluster_state: ClusterState) -> None:
    with _reading(cluster_state):
        data, stat = await session.get(znode_paths.FEATURE)
        cluster_state.feature = codecs.decode_feature(data, stat.version)


async def _states(session: Session, cluster_state: ClusterState) -> None:
    wanted = [
        (info.name, number, replicas)
        for info in cluster_state.topics.values()
        for number, replicas in sorted(info.partitions.items())
    ]
    paths = [znode_paths.state_path(topic, number) for topic, number, _ in wanted]
    for (topic, number, replicas), node in zip(wanted, await session.bulk_get(paths), strict=True):
        state = None
        if isinstance(node, jute.Node):
            try:
                state = codecs.decode_state(topic, number, node.data, node.version)
            except MalformedError as error:
                cluster_state.problems[error.path] = error.problem
        cluster_state.partitions.append(PartitionInfo(topic, number, replicas, state))


async def controllers(session: Session) -> list[ControllerInfo]:
    """The registered controllers, and which of them /controller names; those that do not decode are left out."""
    found = ClusterState()
    await _controllers(session, found)
    return found.controllers


async def candidates(session: Session) -> list[int]:
    """Ids of the registered controllers."""
    return codecs.ids_of(await _children(session, znode_paths.CONTROLLER_IDS))


Configs = dict[str, dict[str, str]]


async def read_configs(
    session: Session, names: Sequence[str]
) -> tuple[Configs, dict[str, str], dict[str, str]]:
    """(settings by topic, defaults of all brokers, problems by path); topics without settings are left out."""
    configs: Configs = {}
    problems: dict[str, str] = {}
    paths = [*(znode_paths.topic_config_path(name) for name in names), znode_paths.BROKER_DEFAULTS]
    for name, path, node in zip([*names, ""], paths, await session.bulk_get(paths), strict=True):
        if isinstance(node, jute.Node):
            try:
                configs[name] = codecs.decode_config(path, node.data)
            except MalformedError as error:
                problems[error.path] = error.problem
        elif problem := single_codecs.unread(path, node):
            problems[path] = problem.problem
    defaults = configs.pop("", {})
    return configs, defaults, problems
