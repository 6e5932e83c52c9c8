"""Partition states in the memory of a standby, kept up to date by a persistent recursive watch (docs/adr/0019).

What has changed is *stale* until it is read again. Events and replies of one connection come in the order in which the
server carried out what they tell of, and ``Session`` keeps that order. So after a sync, what is not stale is as the
leader of the ensemble had it at that moment.

Topics, assignments, brokers and configurations are not kept: they are few, and are read at each failover.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice

import structlog

from controller.core import znode_paths
from controller.core.model import LeaderAndIsr, Partition
from controller.core.znode_paths import state_path
from controller.errors import LeadershipError, MalformedError
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import ConnectionLossError, NoNodeError, Session
from controller.runtime.zookeeper.state_cache import StateCache

log = structlog.get_logger(__name__)

#: The watch is here, and not on /brokers/topics, because nobody else watches this path.
TREE = znode_paths.BROKERS
_PARTS = znode_paths.TOPICS.count("/") + 4
#: States in one read, and the pause after it: at most 20,000 a second, so that brokers are served, too.
READ_MAX, PAUSE_S = 1000, 0.05
#: Topic znodes in one read: each may be large.
TOPICS_MAX = 100
#: States read again each second although nothing was heard of them, to prove the mirror right.
PROVED_MAX, PROVE_S = 200, 1.0
#: Before a new attempt after a lost connection.
RETRY_S = 1.0
Key = tuple[str, int]


class Warmth(Enum):
    """Whether a failover can use the mirror."""

    COLD = "cold"  #: not read yet, or the connection was lost
    WARM = "warm"
    OFF = "off"  #: the server is older than 3.6


class StateMirror:
    """The states of one session. Use ``run`` while another controller leads, then ``settle`` once and ``take``."""

    def __init__(self, session: Session, metrics: StandbyMetrics) -> None:
        self._session, self._metrics = session, metrics
        self._decoder = StateCache()
        self._states: dict[str, dict[int, LeaderAndIsr]] = {}
        #: Changed since they were read, and when that was heard of; the oldest first.
        self._stale: dict[Key, float] = {}
        #: Heard of since the read that is under way was sent.
        self._meanwhile: set[Key] = set()
        self._connection = -1
        self._complete = False
        self._off = False
        self._proof: Iterator[Key] = iter(())
        self.proved_wrong = 0

    @property
    def warmth(self) -> Warmth:
        if self._off:
            return Warmth.OFF
        return Warmth.WARM if self._complete and self._valid else Warmth.COLD

    @property
    def _valid(self) -> bool:
        return self._connection == self._session.connections

    @property
    def size(self) -> int:
        """States in memory."""
        return sum(map(len, self._states.values()))

    @property
    def behind(self) -> int:
        """States that changed and were not read again yet."""
        return len(self._stale)

    def behind_s(self, now_s: float) -> float:
        """For how long the oldest of them is known."""
        return now_s - next(iter(self._stale.values()), now_s)

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
        self._connection = self._session.connections
        if not await self._session.watch_tree(TREE):
            self._off = True
            log.info("standby_stays_cold", why="ZooKeeper before 3.6 has no persistent watches")
            return False
        await self._read_all()
        self._complete = self._valid
        return True

    async def _read_all(self) -> None:
        names, keys = sorted(await self._topics()), list[Key]()
        for start in range(0, len(names), TOPICS_MAX):
            keys += await self._partitions(names[start : start + TOPICS_MAX])
            while len(keys) >= READ_MAX:
                await self._read(keys[:READ_MAX])
                del keys[:READ_MAX]
        if keys:
            await self._read(keys)

    async def _topics(self) -> list[str]:
        try:
            return await self._session.children(znode_paths.TOPICS)
        except NoNodeError:
            return []

    async def _partitions(self, names: Sequence[str]) -> list[Key]:
        """Of topics as they are now; the states of later partitions are heard of."""
        keys: list[Key] = []
        paths = map(znode_paths.topic_path, names)
        for name, node in zip(names, await self._session.bulk_get(list(paths)), strict=True):
            if isinstance(node, jute.Node):
                with suppress(MalformedError):  # its states are read at the failover, if it can be read then
                    info = codecs.decode_topic(name, node.data, node.czxid, node.version)
                    keys.extend((name, number) for number in info.partitions)
        return keys

    async def _read(self, keys: Sequence[Key]) -> list[LeaderAndIsr | None]:
        """Read states; those that change meanwhile stay stale. What was found, None: nothing that makes sense."""
        self._listen()
        self._meanwhile.clear()
        nodes = await self._session.bulk_get([state_path(*key) for key in keys])
        self._listen()
        found: list[LeaderAndIsr | None] = []
        for key, node in zip(keys, nodes, strict=True):
            state = self._decoder.decode(*key, node) if isinstance(node, jute.Node) else None
            found.append(state if isinstance(state, LeaderAndIsr) else None)
            if key not in self._meanwhile:
                self._keep(key, found[-1])
        self._measure()
        await asyncio.sleep(PAUSE_S * len(keys) / READ_MAX)
        return found

    def _keep(self, key: Key, state: LeaderAndIsr | None) -> None:
        self._stale.pop(key, None)
        topic, number = key
        if state is not None:
            self._states.setdefault(topic, {})[number] = state
        elif (known := self._states.get(topic)) is not None:
            known.pop(number, None)
            if not known:
                del self._states[topic]

    def _listen(self) -> None:
        """What was heard of is stale."""
        now_s = time.monotonic()
        for path in self._session.heard():
            if (key := _key_of(path)) is not None:
                self._stale.setdefault(key, now_s)
                self._meanwhile.add(key)

    async def _follow(self) -> None:
        """Read again what is stale; prove some of the rest."""
        self._listen()
        if stale := list(islice(self._stale, READ_MAX)):
            await self._read(stale)
            return
        await self._prove()
        await asyncio.sleep(PROVE_S)

    async def _prove(self) -> None:
        """Some states are read although nothing was heard of them: a difference is a defect, and all is read anew."""
        keys = [key for key in islice(self._proof, PROVED_MAX) if key not in self._stale]
        if not keys:
            self._proof = iter([(topic, number) for topic, known in self._states.items() for number in known])
            return
        before = [self._states.get(topic, {}).get(number) for topic, number in keys]
        after = await self._read(keys)
        wrong = [
            key
            for key, old, new in zip(keys, before, after, strict=True)
            if old != new and key not in self._meanwhile
        ]
        if wrong and self._valid:
            self.proved_wrong += len(wrong)
            self._metrics.wrong.inc(len(wrong))
            log.error("standby_was_wrong", states=len(wrong), one=str(wrong[0]))
            self._connection = -1

    def _drop(self) -> None:
        self._complete, self._connection = False, -1
        self._states, self._stale, self._proof = {}, {}, iter(())

    def _measure(self) -> None:
        self._metrics.states.set(self.size)
        self._metrics.behind.set(self.behind)
        self._metrics.behind_seconds.set(self.behind_s(time.monotonic()))

    # the failover

    async def settle(self) -> bool:
        """After the election, before the first ``take``. False: the mirror proves nothing. Raises ConnectionLossError,
        LeadershipError."""
        if self.warmth is not Warmth.WARM:
            return False
        await self._session.ping()
        self._listen()
        return self._valid

    def take(self, partitions: Sequence[Partition]) -> list[LeaderAndIsr | None]:
        """The states that are known as they are, in order; None: to be read. Each is given once: whoever asks again,
        wants it from ZooKeeper."""
        self._listen()
        if not self._valid:
            return [None] * len(partitions)
        states, stale, nothing = self._states, self._stale, dict[int, LeaderAndIsr]()
        found: list[LeaderAndIsr | None] = []
        for partition in partitions:
            name, number = partition.topic.name, partition.number
            state = states.get(name, nothing).pop(number, None)
            found.append(None if stale and (name, number) in stale else state)
        return found

    async def end(self) -> None:
        """Watch no more and forget everything: a leader hears of its own writes otherwise."""
        self._drop()
        with suppress(ConnectionLossError, LeadershipError):
            await self._session.forget_tree(TREE)


def _key_of(path: str) -> Key | None:
    """The partition whose state znode this is; None: another znode."""
    parts = path.split("/")
    if len(parts) != _PARTS + 1 or parts[-1] != "state" or not path.startswith(znode_paths.TOPICS + "/"):
        return None
    number = parts[-2]
    return (parts[-4], int(number)) if number.isascii() and number.isdigit() and len(number) < 10 else None
