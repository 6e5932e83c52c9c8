"""Topics and partition states in a standby's memory, kept up to date by a persistent recursive watch (docs/adr/0019).

What has changed is *stale* until it is read again. Events and replies of one connection come in the order in which the
server carried out what they tell of, and ``Session`` keeps that order. So after a sync, what is not stale is as the
leader of the ensemble had it at that moment.

They are kept as the failover wants them (``Prepared``), and it takes the objects over. Brokers and configurations are
not kept: they are few, or not needed by a failover.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice

import structlog

from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.core.standby.prepared import Prepared
from controller.core.topics.changes import is_plain, topic_of_info
from controller.core.znode_paths import state_path
from controller.errors import LeadershipError, MalformedError
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import (
    ConnectionLossError,
    NoNodeError,
    Session,
    WatchCallback,
)
from controller.runtime.zookeeper.state_cache import StateCache

log = structlog.get_logger(__name__)

#: The watch is here, and not on /brokers/topics, because nobody else watches this path.
TREE = znode_paths.BROKERS
#: Parts of ``/brokers/topics/T``, and of ``/brokers/topics/T/partitions/N/state``, divided at the slashes.
_TOPIC_PARTS, _STATE_PARTS = 4, 7
#: States in one read, and the pause after it: at most 20,000 a second, so that brokers are served, too.
READ_MAX, PAUSE_S = 1000, 0.05
#: Changes that are noted at once.
HEARD_MAX = 2000
#: Topic znodes in one read: each may be large.
TOPICS_MAX = 100
#: States, and topics, read again each second although nothing was heard of them, to prove the mirror right.
PROVED_MAX, TOPICS_PROVED_MAX, PROVE_S = 200, 10, 1.0
#: A full collection is due once so many partitions were let go: they and their topics name each other, and Python's
#: own full collections are made very rare (``controller.runtime.process.run``).
LET_GO_MAX = 50_000
#: Before a new attempt after a lost connection.
RETRY_S = 1.0
Key = tuple[str, int]
#: A topic by name, or a partition state.
Place = str | Key


class Warmth(Enum):
    """Whether a failover can use the mirror."""

    COLD = "cold"  #: not read yet, or the connection was lost
    WARM = "warm"
    OFF = "off"  #: the server is older than 3.6


class StateMirror:
    """Topics and states of one session. Use ``run`` while another controller leads, then ``settle`` and ``hand_over``
    once, and ``take`` for what that left out."""

    def __init__(self, session: Session, metrics: StandbyMetrics) -> None:
        self._session, self._metrics = session, metrics
        self._decoder = StateCache()
        self.prepared = Prepared()
        #: Topics that were left out of what was handed over, for the sake of their states.
        self._left_out: dict[str, Topic] = {}
        #: Changed since they were read, and when that was heard of; the oldest first.
        self._stale_topics: dict[str, float] = {}
        self._stale: dict[Key, float] = {}
        #: Heard of since the read that is under way was sent.
        self._meanwhile: set[Place] = set()
        #: Paths that were heard of, and are not looked at yet.
        self._unheard: deque[str] = deque()
        self._connection = -1
        self._complete = False
        self._off = False
        self._proof: Iterator[Key] = iter(())
        self._topics_proof: Iterator[str] = iter(())
        #: Who is told when the watch of a topic fires; None: nobody leads.
        self._changed: WatchCallback | None = None
        #: Names of topics that were read, or a state of them was, since somebody asked last.
        self.news: dict[str, None] = {}
        self.proved_wrong = 0
        #: States in memory, and those that were let go since the last full collection.
        self.size = self.let_go = 0

    @property
    def warmth(self) -> Warmth:
        if self._off:
            return Warmth.OFF
        return Warmth.WARM if self._complete and self._valid else Warmth.COLD

    @property
    def _valid(self) -> bool:
        return self._connection == self._session.connections

    @property
    def behind(self) -> int:
        """Topics and states that changed and were not read again yet."""
        return len(self._stale) + len(self._stale_topics)

    def behind_s(self, now_s: float) -> float:
        """How long ago the oldest of these changes was heard of."""
        return now_s - min(
            next(iter(self._stale.values()), now_s), next(iter(self._stale_topics.values()), now_s)
        )

    # reading

    async def run(self) -> None:
        """Read and follow, until cancelled, the session is over, or the server turns out to be too old."""
        while not self._session.over:
            try:
                if not await self._begin():
                    return
                while self._valid:
                    await self._follow()
            except (ConnectionLossError, LeadershipError):
                log.debug("standby_reads_again")
            await asyncio.sleep(RETRY_S)

    async def _begin(self) -> bool:
        """Arm the watch, then read everything: what changes from then on is heard of."""
        self._drop()
        if self.let_go >= LET_GO_MAX:
            self.let_go = 0
            gc.collect()
        self._connection = self._session.connections
        if not await self._session.watch_tree(TREE):
            self._off = True
            log.info("standby_stays_cold", why="ZooKeeper before 3.6 has no persistent watches")
            return False
        await self._read_all()
        self._complete = self._valid
        return True

    async def _read_all(self) -> None:
        names, keys = sorted(await self._names()), list[Key]()
        for start in range(0, len(names), TOPICS_MAX):
            keys += await self._read_topics(names[start : start + TOPICS_MAX])
            while len(keys) >= READ_MAX:
                await self._read(keys[:READ_MAX])
                del keys[:READ_MAX]
        if keys:
            await self._read(keys)

    async def _names(self) -> list[str]:
        try:
            return await self._session.children(znode_paths.TOPICS)
        except NoNodeError:
            return []

    async def _read_topics(self, names: Sequence[str]) -> list[Key]:
        """Read topics, and arm their watches for the failover; those that change meanwhile stay stale. Returns the
        partitions whose states are to be read."""
        paths = [znode_paths.topic_path(name) for name in names]
        await self._hear()
        self._meanwhile.clear()
        await self._session.arm_data_watches(paths, self._topic_changed)
        nodes = await self._session.bulk_get(paths)
        await self._hear()
        keys: list[Key] = []
        for name, node in zip(names, nodes, strict=True):
            if name not in self._meanwhile:
                keys += self._keep_topic(name, _decoded(name, node))
        self._measure()
        return keys

    def _keep_topic(self, name: str, info: TopicInfo | None) -> list[Key]:
        self._stale_topics.pop(name, None)
        self.news[name] = None
        before = self.prepared.topics.get(name)
        self.size -= len(before.partitions) if before is not None else 0
        if info is None:
            self.prepared.withdraw(name)
            return []
        unknown = self.prepared.put(topic := topic_of_info(info))
        self.size += len(topic.partitions)
        if not is_plain(info):
            self.prepared.special.add(name)
        return [(name, partition.number) for partition in unknown]

    def _topic_changed(self, kind: str, path: str) -> None:
        if self._changed is not None:
            self._changed(kind, path)

    async def _read(self, keys: Sequence[Key]) -> list[LeaderAndIsr | None]:
        """Read states; those that change meanwhile stay stale. What was found, None: nothing that makes sense."""
        await self._hear()
        self._meanwhile.clear()
        nodes = await self._session.bulk_get([state_path(*key) for key in keys])
        await self._hear()
        found: list[LeaderAndIsr | None] = []
        for key, node in zip(keys, nodes, strict=True):
            state = self._decoder.decode(*key, node) if isinstance(node, jute.Node) else None
            found.append(state if isinstance(state, LeaderAndIsr) else None)
            if key not in self._meanwhile:
                self._stale.pop(key, None)
                # Of a partition that no topic has yet, the topic's change is heard of, too.
                if (partition := self.prepared.partition(*key)) is not None:
                    self.news[key[0]] = None
                    self.prepared.keep(partition, found[-1])
        self._measure()
        await asyncio.sleep(PAUSE_S * len(keys) / READ_MAX)
        return found

    async def _hear(self) -> None:
        """As ``_listen``, in slices: many states change at once when a broker dies. What is heard of meanwhile follows
        from changes after those of the first slice, and is stale from the next call on."""
        self._unheard.extend(self._session.heard())
        while len(self._unheard) > HEARD_MAX:
            self._note(HEARD_MAX)
            await asyncio.sleep(0)
        self._note(HEARD_MAX)

    def _listen(self) -> None:
        """What was heard of is stale."""
        self._unheard.extend(self._session.heard())
        self._note(len(self._unheard))

    def _note(self, count_max: int) -> None:
        now_s = time.monotonic()
        for _ in range(min(count_max, len(self._unheard))):
            path = self._unheard.popleft()
            place = _place_of(path)
            if isinstance(place, str):
                self._stale_topics.setdefault(place, now_s)
            elif place is not None:
                self._stale.setdefault(place, now_s)
            if place is not None:
                self._meanwhile.add(place)

    async def _follow(self) -> None:
        """Read again what is stale, topics first: they say which states there are. Then prove some of the rest."""
        await self._hear()
        if not self.behind:
            await self._prove()
            await asyncio.sleep(PROVE_S)
            return
        if names := list(islice(self._stale_topics, TOPICS_MAX)):
            now_s = time.monotonic()
            for key in await self._read_topics(await self._present(names)):
                self._stale.setdefault(key, now_s)
            await asyncio.sleep(PAUSE_S * len(names) / TOPICS_MAX)
        if stale := list(islice(self._stale, READ_MAX)):
            await self._read(stale)

    async def _present(self, names: Sequence[str]) -> list[str]:
        """Those that exist; the others are forgotten. To arm the watch of one that does not makes it fire at once."""
        await self._hear()
        self._meanwhile.clear()
        nodes = await self._session.bulk_get([znode_paths.topic_path(name) for name in names])
        await self._hear()
        for name, node in zip(names, nodes, strict=True):
            if node == jute.NO_NODE and name not in self._meanwhile:
                self._keep_topic(name, None)
        return [name for name, node in zip(names, nodes, strict=True) if node != jute.NO_NODE]

    async def _prove(self) -> None:
        """While nothing is stale, some states and topics are read: a difference is a defect, and all is read anew."""
        known = self.prepared
        names = [n for n in self._some_topics() if n in known.topics]
        keys = [k for k in self._some_states() if known.partition(*k) is not None]
        before = [(p := known.partition(*key)) and p.leadership for key in keys]
        after = await self._read(keys)
        wrong: list[Place] = [
            key
            for key, old, new in zip(keys, before, after, strict=True)
            if old != new and key not in self._meanwhile
        ]
        nodes = await self._session.bulk_get([znode_paths.topic_path(name) for name in names])
        await self._hear()
        for name, node in zip(names, nodes, strict=True):
            if name not in self._meanwhile and _differs(known.topics.get(name), _decoded(name, node)):
                wrong.append(name)
        if wrong and self._valid:
            self.proved_wrong += len(wrong)
            self._metrics.wrong.inc(len(wrong))
            log.error("standby_was_wrong", places=len(wrong), one=str(wrong[0]))
            self._connection = -1

    def _some_states(self) -> list[Key]:
        """The next ones, round and round."""
        if not (keys := list(islice(self._proof, PROVED_MAX))):
            topics = self.prepared.topics
            self._proof = (
                (name, number)
                for name in list(topics)
                if (topic := topics.get(name)) is not None
                for number in list(topic.partitions)
            )
        return keys

    def _some_topics(self) -> list[str]:
        if not (names := list(islice(self._topics_proof, TOPICS_PROVED_MAX))):
            self._topics_proof = iter(list(self.prepared.topics))
        return names

    def _drop(self) -> None:
        self.let_go += self.size
        self._complete, self._connection, self.size = False, -1, 0
        self.news.update(dict.fromkeys(self.prepared.topics))
        self.prepared, self._left_out = Prepared(), {}
        self._stale_topics, self._stale = {}, {}
        self._unheard.clear()
        self._proof, self._topics_proof = iter(()), iter(())

    def _measure(self) -> None:
        self._metrics.states.set(self.size)
        self._metrics.behind.set(self.behind)
        self._metrics.behind_seconds.set(self.behind_s(time.monotonic()))

    # the failover

    async def settle(self) -> bool:
        """After the election, before ``hand_over``. False: the mirror proves nothing. Raises ConnectionLossError,
        LeadershipError."""
        if self.warmth is not Warmth.WARM:
            return False
        await self._session.ping()
        self._listen()
        return self._valid

    def hand_over(self, changed: WatchCallback, avoided: Collection[str] = ()) -> Prepared | None:
        """All that is known as it is, for good; None: nothing is. ``changed`` is told when a topic's watch fires;
        ``avoided``: paths of topics that the failover is to read itself."""
        self._changed = changed
        self._listen()
        if not self._valid:
            return None
        prepared, self.prepared = self.prepared, Prepared()
        mine = (name for path in avoided if isinstance(name := _place_of(path), str))
        for name in {*prepared.special, *self._stale_topics, *mine}:
            if (topic := prepared.withdraw(name)) is not None:
                self._left_out[name] = topic
        prepared.close([p for key in self._stale if (p := prepared.partition(*key)) is not None])
        return prepared

    async def unwatch(self) -> None:
        """After ``hand_over``, before anything is written: a leader hears of each of its own writes otherwise, and an
        election of a hundred thousand leaders would wait for what it is told of them."""
        with suppress(ConnectionLossError, LeadershipError):
            await self._session.forget_tree(TREE)

    def take(self, partitions: Sequence[Partition]) -> list[LeaderAndIsr | None]:
        """The states of partitions whose topics were not handed over, as they were then, in order; None: to be
        read. Each is given once: whoever asks again, wants it from ZooKeeper."""
        if not self._valid or not self._left_out:
            return [None] * len(partitions)
        stale = self._stale
        found: list[LeaderAndIsr | None] = []
        for partition in partitions:
            name, number = partition.topic.name, partition.number
            topic = self._left_out.get(name)
            held = topic.partitions.pop(number, None) if topic is not None else None
            state = held.leadership if held is not None else None
            found.append(None if stale and (name, number) in stale else state)
        return found

    async def end(self) -> None:
        """Watch no more and forget everything."""
        self._drop()
        await self.unwatch()

    def release(self) -> None:
        """The term is over: nobody is told of topics."""
        self._changed = None


def _decoded(name: str, node: jute.Node | int) -> TopicInfo | None:
    """None: it is absent, or cannot be read. Then the failover says so."""
    if isinstance(node, jute.Node):
        with suppress(MalformedError):
            return codecs.decode_topic(name, node.data, node.czxid, node.version)
    return None


def _differs(topic: Topic | None, info: TopicInfo | None) -> bool:
    if topic is None or info is None:
        return (topic is None) != (info is None)
    known = {number: partition.replicas for number, partition in topic.partitions.items()}
    return (topic.czxid, topic.version, topic.id, known) != (
        info.czxid,
        info.version,
        info.topic_id,
        info.partitions,
    )


def _place_of(path: str) -> Place | None:
    """The topic or the partition of which this is the znode, or the state znode; None: another znode."""
    parts = path.split("/")
    if not path.startswith(znode_paths.TOPICS + "/"):
        return None
    if len(parts) == _TOPIC_PARTS:
        return parts[-1]
    if len(parts) != _STATE_PARTS or parts[-1] != "state":
        return None
    number = parts[-2]
    return (parts[-4], int(number)) if number.isascii() and number.isdigit() and len(number) <= 10 else None
