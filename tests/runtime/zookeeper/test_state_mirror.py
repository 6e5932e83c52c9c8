"""Partition states in a standby's memory, by a real ZooKeeper: what it gives is what ZooKeeper has, or nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.core.standby.prepared import Prepared
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import codecs, jute, state_mirror
from controller.runtime.zookeeper import standby as standby_module
from controller.runtime.zookeeper.session import Session
from controller.runtime.zookeeper.standby import Standby
from controller.runtime.zookeeper.state_mirror import StateMirror, Warmth
from tests.support.runtime.sessions import opened, until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_module, "DIGESTS_PAUSE_S", 0.01)
    for name in ("PAUSE_S", "PROVE_S", "RETRY_S"):
        monkeypatch.setattr(state_mirror, name, 0.01)


@dataclass
class World:
    """A topic of three partitions, its writer, and a standby."""

    writer: Session
    standby: Session
    mirror: StateMirror
    metrics: StandbyMetrics
    registry: CollectorRegistry
    prepared: Prepared | None = None
    #: Topics whose watch fired since they were handed over.
    told: list[str] = field(default_factory=list)

    def undigested(self) -> float | None:
        return self.registry.get_sample_value("partition_controller_standby_undigested_topics")

    async def write(self, number: int, epoch: int, topic: str = "t") -> None:
        data = codecs.encode_state(LeaderAndIsr(1, epoch, (1, 2), 0, 1))
        op = jute.op_set(self.writer.packed_path(znode_paths.state_path(topic, number)), data, -1)
        await self.writer.multi([op])

    async def create(self, topic: str, partitions: int, first: int = 0) -> None:
        numbers = range(first, first + partitions)
        info = TopicInfo(topic, topic.ljust(22, "A"), dict.fromkeys(numbers, (1, 2)), {}, {}, 0, 0)
        ops = [self.writer.op_create(znode_paths.topic_path(topic), codecs.encode_topic(info))]
        ops.append(self.writer.op_create(znode_paths.partitions_path(topic), b""))
        for number in numbers:
            ops.append(self.writer.op_create(znode_paths.partition_path(topic, number), b""))
            state = codecs.encode_state(LeaderAndIsr(1, 0, (1, 2), 0, 1))
            ops.append(self.writer.op_create(znode_paths.state_path(topic, number), state))
        await self.writer.multi(ops)

    async def edit(self, topic: str, **changes: Any) -> None:
        path = znode_paths.topic_path(topic)
        data, stat = await self.writer.get(path)
        info = replace(codecs.decode_topic(topic, data, stat.czxid, stat.version), **changes)
        await self.writer.multi([jute.op_set(self.writer.packed_path(path), codecs.encode_topic(info), -1)])

    def take(self, topic: str = "t", count: int = 3) -> list[int | None]:
        """Leader epochs; None: to be read."""
        if self.prepared is None:
            self.prepared = self.mirror.hand_over(lambda _, path: self.told.append(path)) or Prepared()
        made = Topic(topic)
        left = self.mirror.take([Partition(made, number, (1, 2)) for number in range(count)])
        held = [self.prepared.partition(topic, number) for number in range(count)]
        states = [p.leadership if p is not None else other for p, other in zip(held, left, strict=True)]
        return [state.leader_epoch if state is not None else None for state in states]


@asynccontextmanager
async def world(connect: str) -> AsyncIterator[World]:
    async with opened(connect) as (writer, _), opened(connect) as (standby, _):
        metrics = StandbyMetrics(registry := CollectorRegistry())
        made = World(writer, standby, StateMirror(standby, metrics), metrics, registry)
        await writer.ensure(znode_paths.TOPICS)
        await made.create("t", 3)
        yield made


@asynccontextmanager
async def following(made: World) -> AsyncIterator[None]:
    """The mirror has read everything, and follows."""
    task = asyncio.create_task(made.mirror.run())
    try:
        await until(lambda: made.mirror.warmth is Warmth.WARM, "all states to be read")
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def chroot(zookeeper: str) -> str:
    return zookeeper


async def test_what_it_gives_is_what_zookeeper_has(chroot: str) -> None:
    async with world(chroot) as made:
        async with following(made):
            await made.write(1, 7)
            await until(lambda: _epoch(made, 1) == 7, "the change to be read")
            await made.create("u", 2)
            await until(lambda: _epoch(made, 1, "u") == 0, "the new topic to be read")
        assert await made.mirror.settle()
        assert made.take() == [0, 7, 0]
        assert made.take("u", 3) == [0, 0, None]
        # Whoever asks again wants to know what is stored now.
        assert not made.mirror.prepared.topics
        await made.mirror.end()


async def test_what_changed_and_is_not_read_again_is_not_given(chroot: str) -> None:
    """Up to the moment of the election: the sync brings every event of before."""
    async with world(chroot) as made:
        async with following(made):
            pass
        await made.write(2, 5)
        await made.writer.delete(znode_paths.state_path("t", 0))
        assert await made.mirror.settle()
        assert made.mirror.behind == 2
        assert made.take() == [None, 0, None]


async def test_a_topic_that_changed_is_read_at_the_failover_and_the_others_are_watched(chroot: str) -> None:
    async with world(chroot) as made:
        await made.create("u", 2)
        await made.create("gone", 1)
        async with following(made):
            await made.create("young", 1)
            await until(lambda: _epoch(made, 0, "young") == 0, "the new topic to be read")
            for path in (
                znode_paths.state_path("gone", 0),
                znode_paths.partition_path("gone", 0),
                znode_paths.partitions_path("gone"),
                znode_paths.topic_path("gone"),
            ):
                await made.writer.delete(path)
            await until(lambda: "gone" not in made.mirror.prepared.topics, "it to be forgotten")
        await made.edit("u", partitions={0: (1, 2), 1: (2, 3)})
        assert await made.mirror.settle()
        assert made.take("t") == [0, 0, 0]
        assert made.take("u", 2) == [0, 0]
        assert made.prepared is not None
        assert sorted(made.prepared.topics) == ["t", "young"]
        await made.edit("t", partitions={0: (1, 2), 1: (1, 2), 2: (1, 2), 3: (1, 2)})
        # What was read at the election may be told of once more.
        await until(lambda: znode_paths.topic_path("t") in made.told, "the watch to fire")
        made.mirror.release()


async def test_a_topic_that_tells_more_than_its_assignment_is_read_at_the_failover(chroot: str) -> None:
    async with world(chroot) as made:
        await made.create("moving", 1)
        await made.edit("moving", adding={0: (2,)})
        async with following(made):
            await until(lambda: _epoch(made, 0, "moving") == 0, "it to be read")
        assert await made.mirror.settle()
        assert made.take("moving", 1) == [0]
        assert made.prepared is not None
        assert list(made.prepared.topics) == ["t"]


async def test_a_topic_that_is_wrong_although_nothing_was_heard_is_found(chroot: str) -> None:
    async with world(chroot) as made, following(made):
        made.mirror.prepared.topics["t"].version += 1
        await until(lambda: made.mirror.proved_wrong == 1, "the proof")


async def test_what_changes_while_it_is_read_is_read_again(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(chroot) as made:
        read = made.standby.bulk_get

        async def slowly(paths: list[str]) -> list[jute.Node | int]:
            found = await read(paths)
            if paths[-1].endswith("state") and not changed:
                changed.append(True)
                await made.write(1, 9)
                await made.standby.ping()  # the event is there before the answer is looked at
                made.mirror._listen()
            return found

        changed: list[bool] = []
        monkeypatch.setattr(made.standby, "bulk_get", slowly)
        async with following(made):
            assert _epoch(made, 1) in (None, 0, 9)
        assert await made.mirror.settle()
        assert made.take()[1] in (None, 9)


async def test_nothing_is_given_after_a_lost_connection(chroot: str) -> None:
    """Watches do not outlive it. All is read again, and then it is warm again."""
    async with world(chroot) as made:
        async with following(made):
            before = made.standby.connections
            made.standby._client._connection._socket.shutdown(socket.SHUT_RDWR)
            await until(lambda: made.standby.connections > before, "another connection")
            assert made.mirror.hand_over(lambda *_: None) is None
            await until(lambda: made.mirror.warmth is Warmth.WARM, "all to be read again")
            await made.write(0, 3)
            await until(lambda: _epoch(made, 0) == 3, "the change to be read")
        assert await made.mirror.settle()
        assert made.take() == [3, 0, 0]


async def test_what_was_known_before_a_lost_connection_is_freed(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics and partitions name each other, and collections of all that there is are rare."""
    monkeypatch.setattr(state_mirror, "LET_GO_MAX", 3)
    gc.collect()
    gc.disable()
    try:
        held = [each for each in gc.get_objects() if isinstance(each, Partition)]
        others = set(map(id, held))
        async with world(chroot) as made, following(made):
            former = weakref.ref(made.mirror.prepared)
            before = made.standby.connections
            made.standby._client._connection._socket.shutdown(socket.SHUT_RDWR)
            await until(lambda: made.standby.connections > before, "another connection")
            await until(lambda: made.mirror.warmth is Warmth.WARM, "all to be read again")
            every = [each for each in gc.get_objects() if isinstance(each, Partition)]
            partitions = [each for each in every if id(each) not in others]
            assert former() is None
            assert len({id(p.topic) for p in partitions}) == 1
    finally:
        gc.enable()


async def test_many_changes_are_noted_in_slices_and_none_is_lost(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_mirror, "HEARD_MAX", 1)
    async with world(chroot) as made:
        async with following(made):
            for number in range(3):
                await made.write(number, 5 + number)
            for number in range(3):
                await until(lambda n=number: _epoch(made, n) == 5 + n, "the change to be read")  # type: ignore[misc]
        # Heard of, and not looked at yet, when the election ended the reading.
        made.mirror._unheard.append(znode_paths.state_path("t", 1))
        assert await made.mirror.settle()
        assert made.take() == [5, None, 7]


async def test_nothing_is_given_before_all_is_read(chroot: str) -> None:
    async with world(chroot) as made:
        assert not await made.mirror.settle()
        assert made.take() == [None] * 3
        digested: list[str] = []
        left: list[float | None] = []

        async def digest(name: str, _: Topic | None) -> None:
            digested.append(name)
            left.append(made.undigested())

        standby = Standby(made.standby, made.metrics, digest)
        assert await standby.settled() is None
        standby.follow()
        await until(lambda: standby.mirror.warmth is Warmth.WARM, "all states to be read")
        await until(lambda: digested == ["t"], "its digests")
        assert left == [1]
        await until(lambda: made.undigested() == 0, "all digests")
        assert await standby.settled() is standby.mirror


async def test_a_bug_of_the_digests_ends_the_following(chroot: str) -> None:
    async with world(chroot) as made:

        async def digest(_name: str, _topic: Topic | None) -> None:
            raise RuntimeError("planted")

        standby = Standby(made.standby, made.metrics, digest)
        standby.follow()
        await until(lambda: isinstance(standby.bug, RuntimeError), "the bug to be noticed")
        assert await standby.settled() is None


async def test_a_server_without_persistent_watches_leaves_it_cold(chroot: str) -> None:
    async with world(chroot) as made, opened(chroot, use_multi_read=False) as (old, _):
        mirror = StateMirror(old, made.metrics)
        await asyncio.wait_for(mirror.run(), 30)
        assert mirror.warmth is Warmth.OFF
        assert not await mirror.settle()


async def test_a_state_that_is_wrong_although_nothing_was_heard_is_found(chroot: str) -> None:
    """A defect: it is counted, and all is read again."""
    async with world(chroot) as made, following(made):
        partition = made.mirror.prepared.partition("t", 1)
        assert partition is not None
        partition.leadership = LeaderAndIsr(2, 99, (2,), 3, 1)
        await until(lambda: made.mirror.proved_wrong == 1, "the proof")
        await until(lambda: _epoch(made, 1) == 0, "all to be read again")


async def test_its_end_is_the_end_of_the_watch(chroot: str) -> None:
    async with world(chroot) as made:
        async with following(made):
            pass
        await made.mirror.end()
        await made.write(0, 4)
        await made.standby.ping()
        assert made.standby.heard() == []
        async with following(made):  # the next term of another controller
            assert _epoch(made, 0) == 4


def _epoch(made: World, number: int, topic: str = "t") -> int | None:
    partition = made.mirror.prepared.partition(topic, number)
    known = partition.leadership if partition is not None else None
    stale = (topic, number) in made.mirror._stale
    return known.leader_epoch if known is not None and not stale else None
