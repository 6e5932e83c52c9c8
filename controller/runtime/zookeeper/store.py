"""Performs the core's reads and commits on a ZooKeeper session; every commit is a multi fenced by the epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, TypeVar

import structlog

from controller.core import znode_paths
from controller.core.effects import (
    Answer,
    AnyQuery,
    BrokersAnswer,
    Commit,
    Committed,
    CreateNode,
    CreateState,
    CreateTopic,
    DeleteNode,
    Effect,
    FeatureAnswer,
    NotifyConfig,
    Outcome,
    Problem,
    PutFeature,
    Read,
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
    SetReassignment,
    SetState,
    SetTopic,
    TopicInfo,
    Unconfirmed,
    Write,
    WriteNode,
)
from controller.core.events import Event, change_of
from controller.core.model import Broker, LeaderAndIsr, Partition
from controller.core.standby.prepared import Prepared
from controller.core.znode_paths import state_path
from controller.errors import FencedError, MalformedError, TooLargeError
from controller.runtime.zookeeper import codecs, jute, single_codecs, topic_trees
from controller.runtime.zookeeper.session import (
    DELETED,
    AccessError,
    ConnectionLossError,
    NoNodeError,
    Session,
)
from controller.runtime.zookeeper.single_codecs import decode_watched, value_or_problem
from controller.runtime.zookeeper.state_cache import StateCache
from controller.runtime.zookeeper.state_mirror import StateMirror
from controller.runtime.zookeeper.topic_cache import TopicCache

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Registrations in flight; each may take a megabyte.
_BROKERS_TOGETHER = 100
#: Size at which writes of topic znodes are split into several multis, bytes; jute.maxbuffer is 1 MiB by default.
MULTI_BYTES_MAX = 700_000


class Store:
    """One term's access to ZooKeeper. ``epoch_version``: the zkVersion of ``/controller_epoch`` from the election.
    ``quarantined``: znodes of topics and brokers that count as unreadable, and why. ``mirror``: what was in
    memory when this controller was elected, settled."""

    def __init__(
        self,
        session: Session,
        epoch_version: int,
        enqueue: Callable[[Event], None],
        quarantined: Mapping[str, str] = {},
        mirror: StateMirror | None = None,
    ) -> None:
        self._session = session
        self._epoch_version = epoch_version
        self._quarantined = quarantined
        self._enqueue = enqueue
        self._fence = jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), epoch_version)
        self._states = StateCache()
        #: Until the failover is done; and whoever has armed the watches of topics.
        self._mirror = self._prepared_by = mirror
        #: How many partition states came from where.
        self.from_memory = self.from_zookeeper = 0
        self.topics_from_memory = 0
        self._topics = TopicCache()

    async def perform(self, effect: Effect) -> Outcome:
        """Perform one effect.

        Raises FencedError, SessionLostError or LeaseExpiredError when this term is over. After a connection loss
        within a live session, a read is retried and a commit is Unconfirmed.
        """
        if isinstance(effect, Read):
            return await self._read(effect)
        return await self._commit(effect)

    async def _read(self, read: Read) -> Outcome:
        attempt = 0
        while True:
            self._session.require_lease()
            try:
                return Answer(read.id, await self._answer(read.query))
            except ConnectionLossError:
                attempt += 1
                log.warning(
                    "read_again",
                    why="the connection was lost",
                    query=type(read.query).__name__,
                    attempt=attempt,
                )
                await asyncio.sleep(min(0.05 * 2**attempt, 1.0))

    # reads

    async def _answer(self, query: AnyQuery) -> object:
        match query:
            case ReadStates(partitions):
                return await self._read_states(partitions)
            case ReadBrokers():
                return await self._read_brokers()
            case ReadTopics(names):
                return await self._read_topics(names)
            case ReadTopicConfigs(names):
                return await self._read_configs(names)
            case ReadTopicTrees(names, thorough, expected):
                return await topic_trees.topic_trees(self._session, names, expected, thorough=thorough)
            case ReadWatchedNode():
                return await self._read_watched(query.path)
            case ReadWatchedNames():
                return await self._children(query.path)
            case ReadWatchedChildren():
                return await self._decoded(await self._paths_below(query.path))
            case ReadNotifications():
                parents = (znode_paths.LOG_DIR_NOTIFICATIONS, znode_paths.ISR_NOTIFICATIONS)
                return [path for parent in parents for path in await self._paths_below(parent)]
            case ReadFeature() | ReadKafkaIds() | ReadPrepared():
                return await self._read_for_a_failover(query)
            case ReadNodes(paths):
                return await single_codecs.read_nodes(self._session, paths)

    async def _read_for_a_failover(self, query: ReadFeature | ReadKafkaIds | ReadPrepared) -> object:
        if isinstance(query, ReadPrepared):
            return await self._take_prepared()
        return await (self._read_kafka_ids() if isinstance(query, ReadKafkaIds) else self._read_feature())

    async def _take_prepared(self) -> Prepared | None:
        if self._mirror is None:
            return None
        prepared = self._mirror.hand_over(self._changed, self._quarantined)
        await self._mirror.unwatch()
        if prepared is not None:
            self.topics_from_memory = len(prepared.topics)
            held = sum(len(topic.partitions) for topic in prepared.topics.values())
            self.from_memory += held - len(prepared.unread())
        return prepared

    async def _read_kafka_ids(self) -> list[int]:
        try:
            names = await self._session.children(znode_paths.KAFKA_IDS)
        except NoNodeError:
            return []
        # Nobody else writes there.
        return codecs.ids_of(names)

    async def _children(self, path: str) -> list[str]:
        """Names of the children; arms the child watch."""
        try:
            return await self._session.children(path, self._changed)
        except NoNodeError:
            # A persistent parent was deleted: create it again, because its watch needs it.
            await self._session.ensure(path)
            return await self._session.children(path, self._changed)

    async def _paths_below(self, parent: str) -> list[str]:
        """Paths of the children, in the order of their sequence numbers; arms the child watch."""
        return [f"{parent}/{name}" for name in sorted(await self._children(parent))]

    async def _decoded(self, paths: Sequence[str]) -> list[tuple[str, object]]:
        """(path, value or Problem) of each node; absent ones are left out."""
        nodes = await self._session.bulk_get(paths)
        return [
            (path, value_or_problem(path, node, lambda p, n: decode_watched(p, n.data, n.version)))
            for path, node in zip(paths, nodes, strict=True)
            if node != jute.NO_NODE
        ]

    async def _read_states(self, partitions: Sequence[Partition]) -> list[LeaderAndIsr | Problem | None]:
        if self._mirror is None:
            self.from_zookeeper += len(partitions)
            return await self._read_states_again(partitions)
        known = self._mirror.take(partitions)
        missing = [p for p, state in zip(partitions, known, strict=True) if state is None]
        self.from_memory += len(known) - len(missing)
        self.from_zookeeper += len(missing)
        if not missing:
            return list(known)
        read = iter(await self._read_states_again(missing))
        return [next(read) if state is None else state for state in known]

    async def _read_states_again(
        self, partitions: Sequence[Partition]
    ) -> list[LeaderAndIsr | Problem | None]:
        prefix = self._session.packed_path(znode_paths.TOPICS).decode()
        packed = [state_path(p.topic.name, p.number, prefix).encode() for p in partitions]
        found: list[LeaderAndIsr | Problem | None] = []
        async for nodes in self._session.bulk_get_chunks(packed):
            self._decode_states(partitions, nodes, found)
        return found

    def _decode_states(
        self,
        partitions: Sequence[Partition],
        nodes: Sequence[jute.Node | int],
        found: list[LeaderAndIsr | Problem | None],
    ) -> None:
        start = len(found)
        decode, append = self._states.decode, found.append
        for partition, node in zip(partitions[start : start + len(nodes)], nodes, strict=True):
            name, number = partition.topic.name, partition.number
            if isinstance(node, int):
                append(single_codecs.unread(znode_paths.state_path(name, number), node))
            else:
                append(decode(name, number, node))

    async def _read_brokers(self) -> BrokersAnswer:
        ids = await self._children(znode_paths.BROKER_IDS)
        brokers = {}
        problems = []
        for start in range(0, len(ids), _BROKERS_TOGETHER):
            group = ids[start : start + _BROKERS_TOGETHER]
            for found in await asyncio.gather(*map(self._read_broker, map(znode_paths.broker_path, group))):
                if isinstance(found, Broker):
                    brokers[found.id] = found
                elif found is not None:
                    problems.append(found)
        return BrokersAnswer(brokers, tuple(problems))

    async def _read_broker(self, path: str) -> Broker | Problem | None:
        """A registration; None where it is a controller's own, or was deleted since: the child watch has fired."""
        try:
            data, stat = await self._session.get(path, self._changed)
        except NoNodeError:
            return None
        except AccessError:
            return Problem(path, single_codecs.NOT_PERMITTED)
        if (why := self._quarantined.get(path)) is not None:
            return Problem(path, why)
        if codecs.is_own_registration(data):
            return None
        try:
            return codecs.decode_broker(path, data, stat.czxid)
        except MalformedError as error:
            return Problem(error.path, error.problem, stat.czxid)

    async def _read_topics(self, names: Sequence[str]) -> list[TopicInfo | Problem | None]:
        # No name is empty: ZooKeeper has no such names, and one would make the whole bulk read fail.
        paths = [znode_paths.topic_path(name) for name in names]
        await self._session.arm_data_watches(paths, self._changed)
        nodes = await self._session.bulk_get(paths)
        gone = [path for path, node in zip(paths, nodes, strict=True) if node == jute.NO_NODE]
        self._session.forget_data_watches(gone, self._changed)
        found: list[TopicInfo | Problem | None] = []
        for name, path, node in zip(names, paths, nodes, strict=True):
            if isinstance(node, int):
                found.append(single_codecs.unread(path, node))
                continue
            if (why := self._quarantined.get(path)) is not None:
                found.append(Problem(path, why))
                continue
            try:
                found.append(self._topics.decode(name, node))
            except MalformedError as error:
                found.append(Problem(error.path, error.problem))
        return found

    async def _read_configs(self, names: Sequence[str]) -> list[dict[str, str] | Problem]:
        paths = [znode_paths.topic_config_path(name) for name in names]
        nodes = await self._session.bulk_get(paths)
        return [
            value_or_problem(path, node, lambda p, n: codecs.decode_config(p, n.data)) or {}
            for path, node in zip(paths, nodes, strict=True)
        ]

    async def _read_watched(self, path: str) -> object:
        while await self._session.exists(path, self._changed) is not None:
            try:
                data, stat = await self._session.get(path)
                return decode_watched(path, data, stat.version)
            except NoNodeError:
                continue  # deleted in between, which fired the watch: arm it again
            except MalformedError as error:
                return Problem(error.path, error.problem, version=stat.version)
            except AccessError:
                return Problem(path, single_codecs.NOT_PERMITTED)
        return None

    async def _read_feature(self) -> FeatureAnswer | Problem | None:
        try:
            data, stat = await self._session.get(znode_paths.FEATURE)
            return codecs.decode_feature(data, stat.version)
        except NoNodeError:
            return None
        except MalformedError as error:
            return Problem(error.path, error.problem)
        except AccessError:
            return Problem(znode_paths.FEATURE, single_codecs.NOT_PERMITTED)

    async def forget_mirror(self) -> None:
        """The failover is done: read everything from now on."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            await mirror.end()

    def close(self) -> None:
        """Hear of no more changes."""
        self._session.forget(self._changed)
        if self._prepared_by is not None:
            self._prepared_by.release()

    def _changed(self, kind: str, path: str) -> None:
        """Every watch queues the event that reads the path again; a deletion, too, because it removes the watch. But
        that of a registration changes the list of brokers: one event is enough."""
        if not (kind == DELETED and znode_paths.is_below(znode_paths.BROKER_IDS, path)):
            self._enqueue(change_of(path))

    # commits

    async def _commit(self, commit: Commit) -> Outcome:
        self._session.require_lease()
        written = False
        try:
            for batch in self._bounded(commit.writes):
                await self._commit_batch(batch)
                written = True
        except jute.MultiError as error:
            self._raise_if_fenced(error)
            return Unconfirmed(commit.id, error.happened, not written)
        except TooLargeError as error:
            return Unconfirmed(commit.id, str(error))
        except ConnectionLossError:
            # The core reads back whether the commit succeeded; that read waits for the connection.
            self._session.require_lease()
            return Unconfirmed(commit.id, "the connection was lost before the response")
        return Committed(commit.id)

    @staticmethod
    def _raise_if_fenced(error: jute.MultiError) -> None:
        if error.index == 0 and error.code in (jute.BAD_VERSION, jute.NO_NODE):
            raise FencedError(
                f"{znode_paths.CONTROLLER_EPOCH} was changed by a newer controller: a write was refused"
            )

    def _bounded(self, writes: Sequence[Write]) -> list[list[Write]]:
        """The writes, split by size when they include topic znodes, which can be large."""
        if not any(isinstance(write, SetTopic) for write in writes):
            return [list(writes)]
        batches: list[list[Write]] = [[]]
        size = 0
        for write in writes:
            cost = len(self._topics.encode(write.info)) + 400 if isinstance(write, SetTopic) else 400
            if batches[-1] and size + cost > MULTI_BYTES_MAX:
                batches.append([])
                size = 0
            batches[-1].append(write)
            size += cost
        return batches

    async def _commit_batch(self, writes: Sequence[Write]) -> None:
        first = writes[0]
        if isinstance(first, SetState):
            await self._session.multi(self._pack_states(writes))
        elif isinstance(first, CreateState):
            await self._create_states([w for w in writes if isinstance(w, CreateState)])
        else:
            await self._commit_mixed(writes)

    def _pack_states(self, writes: Sequence[Write]) -> list[bytes]:
        prefix = self._session.packed_path(znode_paths.TOPICS).decode()
        ops = [self._fence]
        append, op_set, encode_state = ops.append, jute.op_set, codecs.encode_state
        for write in writes:
            assert isinstance(write, SetState)
            partition, new = write.partition, write.new
            path = state_path(partition.topic.name, partition.number, prefix)
            append(op_set(path.encode(), encode_state(new), new.partition_epoch - 1))
        return ops

    async def _create_states(self, writes: Sequence[CreateState]) -> None:
        """Create states with their parents. Only if a parent exists, a read finds out which ones do."""
        try:
            await self._session.multi(self._pack_creates(writes, frozenset()))
        except jute.MultiError as error:
            if error.code != jute.NODE_EXISTS:
                raise
            parents = sorted({path for w in writes for path in _parents(w.partition)})
            nodes = await self._session.bulk_get(parents)
            existing = frozenset(p for p, n in zip(parents, nodes, strict=True) if not isinstance(n, int))
            await self._session.multi(self._pack_creates(writes, existing))

    def _pack_creates(self, writes: Sequence[CreateState], existing: frozenset[str]) -> list[bytes]:
        ops = [self._fence]
        made: set[str] = set()
        for write in writes:
            for parent in _parents(write.partition):
                if parent not in existing and parent not in made:
                    made.add(parent)
                    ops.append(self._session.op_create(parent, b""))
            path = znode_paths.state_path(write.partition.topic.name, write.partition.number)
            ops.append(self._session.op_create(path, codecs.encode_state(write.new)))
        return ops

    async def _commit_mixed(self, writes: Sequence[Write]) -> None:
        """Commit writes other than bulk state writes. Deleting an absent node and creating an existing one count as
        done: such writes are left out and the rest is committed."""
        remaining = list(writes)
        while remaining:
            try:
                await self._session.multi([self._fence, *(self._pack_one(write) for write in remaining)])
            except jute.MultiError as error:
                failed = remaining[error.index - 1] if error.index > 0 else None
                parent = _parent_to_put_back(failed) if error.code == jute.NO_NODE else None
                if parent is not None and await self._put_back(parent):
                    continue
                if not _is_done(failed, error.code):
                    raise
                # There may be hundreds of such writes: check all at once, or each would cost an attempt.
                remaining.remove(failed)
                remaining = await self._without_done(remaining)
                continue
            return

    async def _put_back(self, path: str) -> bool:
        """Create what is missing of a persistent path; False: nothing is. Fails as a commit does."""
        names = path.split("/")
        paths = ["/".join(names[:end]) for end in range(2, len(names) + 1)]
        missing = [each for each in paths if await self._session.exists(each) is None]
        await self._session.multi([self._fence, *(self._session.op_create(each, b"") for each in missing)])
        return bool(missing)

    async def _without_done(self, writes: Sequence[Write]) -> list[Write]:
        simple = [write for write in writes if isinstance(write, DeleteNode | CreateNode)]
        nodes = await self._session.bulk_get([write.path for write in simple])
        present = {w.path for w, n in zip(simple, nodes, strict=True) if not isinstance(n, int)}
        absent = {w.path for w, n in zip(simple, nodes, strict=True) if n == jute.NO_NODE}
        return [
            write
            for write in writes
            if not (isinstance(write, DeleteNode) and write.path in absent)
            and not (isinstance(write, CreateNode) and write.path in present)
        ]

    def _pack_one(self, write: Write) -> bytes:
        pack = self._session.packed_path
        match write:
            case CreateTopic(info):
                return self._session.op_create(znode_paths.topic_path(info.name), codecs.encode_topic(info))
            case SetTopic(info):
                return jute.op_set(
                    pack(znode_paths.topic_path(info.name)), self._topics.encode(info), info.version
                )
            case SetReassignment([], version):
                return jute.op_delete(pack(znode_paths.REASSIGN_PARTITIONS), version)
            case SetReassignment(entries, version):
                data = codecs.encode_reassignments(entries)
                return jute.op_set(pack(znode_paths.REASSIGN_PARTITIONS), data, version)
            case DeleteNode(path):
                return jute.op_delete(pack(path), -1)
            case CreateNode(path):
                return self._session.op_create(path, b"")
            case WriteNode() | NotifyConfig():
                return single_codecs.pack(self._session, write)
            case PutFeature(None, levels):
                return self._session.op_create(znode_paths.FEATURE, codecs.encode_feature(levels))
            case PutFeature(version, levels):
                assert version is not None
                return jute.op_set(pack(znode_paths.FEATURE), codecs.encode_feature(levels), version)
            case _:
                raise AssertionError(f"{write!r} belongs in a bulk batch")


def _is_done(write: Write | None, code: int) -> TypeGuard[DeleteNode | CreateNode]:
    """Whether an error means that the write's result exists already."""
    absent = code == jute.NO_NODE and isinstance(write, DeleteNode)
    return absent or (code == jute.NODE_EXISTS and isinstance(write, CreateNode))


def _parent_to_put_back(write: Write | None) -> str | None:
    """The persistent parent of a znode that could not be created because somebody deleted the parent."""
    match write:
        case CreateTopic():
            return znode_paths.TOPICS
        case NotifyConfig():
            return znode_paths.CONFIG_CHANGES
        case CreateNode(path) | WriteNode(path, version=None):
            parent = path.rpartition("/")[0]
            return parent if parent in znode_paths.PERSISTENT else None
    return None


def _parents(partition: Partition) -> tuple[str, str]:
    topic = partition.topic.name
    return znode_paths.partitions_path(topic), znode_paths.partition_path(topic, partition.number)
