"""Digests that are kept up to date, and computed ahead by a standby, are those computed anew."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from controller.core.model import Cluster, LeaderAndIsr, Partition, ReplicaState, Topic
from controller.runtime.audit import expected as expected_module
from controller.runtime.audit.expected import Expected, SharedLook, Totals
from proto.digest import total_of
from tests.support.core.world import a_broker


def cluster_of(topics: int, partitions: int) -> Cluster:
    cluster = Cluster(1)
    cluster.brokers = {id_: a_broker(id_, id_) for id_ in (1, 2, 3)}
    for n in range(topics):
        topic = Topic(f"t{n}", f"id-{n}")
        cluster.add_topic(topic)
        for number in range(partitions):
            topic.partitions[number] = Partition(topic, number, (1, 2, 3))
    return cluster


def change(cluster: Cluster, chance: random.Random) -> None:
    partition = chance.choice(list(cluster.partitions()))
    what = chance.randrange(6)
    if what == 0:
        partition.leadership = None
    elif what == 1:
        partition.assign(tuple(chance.sample([1, 2, 3, 4], 2)))
    elif what == 2:
        failed = cluster.offline_dirs.setdefault(chance.choice([1, 2]), set())
        failed.symmetric_difference_update([partition])
    elif what == 3:
        cluster.know_topic_id(partition.topic, f"id-{chance.random()}")
    else:
        leader = chance.choice([1, 2, 3])
        partition.leadership = LeaderAndIsr(leader, chance.randrange(9), (leader, 4), chance.randrange(9), 1)


@pytest.mark.parametrize("seed", range(5))
async def test_they_are_as_if_computed_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_module, "BLOCK", 4)
    monkeypatch.setattr(expected_module, "PREPARED_PER_S", 10**9)
    chance, cluster = random.Random(seed), cluster_of(3, 10)
    kept = Expected(Cluster(1))
    for step in range(150):
        if step == 100:
            kept.follow(cluster)
        change(cluster, chance)
        if step < 100:
            name = chance.choice(["t0", "t1", "t2", "gone"])
            await kept.prepare(name, cluster.topics.get(name))
        elif step % 5 == 0:
            assert await kept.refresh() == await Expected(cluster).refresh()


@pytest.mark.parametrize("seed", range(5))
async def test_looks_that_cross_each_other_leave_what_a_new_one_computes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While topics change, go and come again amid a look."""
    monkeypatch.setattr(expected_module, "BLOCK", 4)
    chance, cluster = random.Random(seed), cluster_of(4, 10)
    kept = Expected(cluster)

    async def turn() -> None:
        for _ in range(chance.randrange(3)):
            change(cluster, chance)
        if chance.random() < 0.2:
            name = chance.choice(list(cluster.topics))
            old = cluster.topics[name]
            cluster.remove_topic(name)
            if chance.random() < 0.8:
                again = Topic(name, f"id-{chance.random()}")
                cluster.add_topic(again)
                for number in range(chance.choice([3, 10])):
                    again.partitions[number] = Partition(again, number, (1, 2, 3))
                    if (held := old.partitions.get(number)) is not None:
                        again.partitions[number].leadership = held.leadership
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)

    for _ in range(20):
        for topic in cluster_of(4, 10).topics.values():
            if topic.name not in cluster.topics:
                cluster.add_topic(topic)
        await asyncio.gather(*(kept.refresh(turn) for _ in range(3)))
        assert await kept.refresh() == await Expected(cluster).refresh()


async def test_an_unchanged_topic_is_not_added_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(3, 2)
    for partition in cluster.partitions():
        partition.leadership = LeaderAndIsr(1, 1, (1, 2), 1, 1)
    kept, added = Expected(cluster), list[str]()
    real = expected_module._combined

    def counted(topic: Topic, *given: Any) -> expected_module.TopicExpectation:
        added.append(topic.name)
        return real(topic, *given)

    monkeypatch.setattr(expected_module, "_combined", counted)
    await kept.refresh()
    assert added == ["t0", "t1", "t2"]
    cluster.topics["t1"].partitions[0].leadership = LeaderAndIsr(2, 2, (1, 2), 2, 1)
    await kept.refresh()
    assert added == ["t0", "t1", "t2", "t1"]
    # A broker that goes, or is about to, changes what is offline.
    del cluster.brokers[3]
    gone = await kept.refresh()
    assert await kept.refresh() == gone
    assert added == ["t0", "t1", "t2", "t1", "t0", "t1", "t2"]
    cluster.brokers[3] = a_broker(3, 3)
    cluster.shutting_down.add(3)
    assert await kept.refresh() == gone


async def test_what_was_prepared_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_module, "PREPARED_PER_S", 10**9)
    cluster = cluster_of(2, 3)
    state = LeaderAndIsr(1, 1, (1, 2), 1, 1)
    for partition in cluster.partitions():
        partition.leadership = state
    kept = Expected(Cluster(1))
    for name, topic in cluster.topics.items():
        await kept.prepare(name, topic)
    kept.follow(cluster)
    hashed: list[str] = []
    real = expected_module._metadata_item

    def counted(partition: Partition, held: LeaderAndIsr) -> int:
        hashed.append(partition.name)
        return real(partition, held)

    monkeypatch.setattr(expected_module, "_metadata_item", counted)
    await kept.refresh()
    assert not hashed
    cluster.topics["t1"].partitions[2].leadership = state.successor(2, (1, 2), 2, 0)
    await kept.refresh()
    assert hashed == ["t1-2", "t1-2"]


async def test_each_slice_waits_for_its_turn() -> None:
    cluster = cluster_of(3, 2 * expected_module.BLOCK)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    for partition in cluster.partitions():
        partition.leadership = LeaderAndIsr(1, 1, (1, 2), 1, 1)
    kept = Expected(cluster)
    assert await kept.refresh(turn) == await Expected(cluster).refresh()
    assert turns >= 6


async def test_the_totals_are_those_of_all_topics_together() -> None:
    cluster = cluster_of(3, 2)
    for number, partition in enumerate(cluster.partitions()):
        partition.leadership = LeaderAndIsr(1, number, (1, 2), 1, 1)
        for broker_id in (1, 2, 3):
            partition.set_states([broker_id], ReplicaState.ONLINE)
    expected = Expected(cluster)
    each = [await expected.topic(topic) for topic in cluster.topics.values()]
    found = await expected.refresh()
    assert found.metadata == total_of(one.metadata for one in each)
    assert found.hosted == {id_: total_of(one.hosted[id_] for one in each) for id_ in (1, 2, 3)}


class Looks:
    """Looks at a cluster whose version is set here, and how many of them look at the topics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version: int | None = 1
        self.changing: int | None = None
        self.count, self.cut_off = 0, False
        self.look = SharedLook(Expected(cluster_of(1, 1)), version=lambda: self.version)
        monkeypatch.setattr(Expected, "refresh", self.refresh)

    async def refresh(self, *_: object) -> Totals:
        self.count += 1
        if self.changing is not None:
            self.version, self.changing = self.changing, None
        if self.cut_off:
            raise TimeoutError
        return Totals(self.count, 0, {})

    async def found(self) -> int:
        return (await self.look.totals()).metadata


async def test_while_nothing_changes_the_last_look_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert [await looks.found(), await looks.found()] == [1, 1]
    looks.version = 2
    assert [await looks.found(), await looks.found()] == [2, 2]
    looks.version = None
    assert [await looks.found(), await looks.found()] == [3, 4], "it may be changing"
    looks.version = 2
    assert await looks.found() == 5, "what was seen of a change is of no version"
    looks.version, looks.changing = 3, 4
    assert [await looks.found(), await looks.found(), await looks.found()] == [6, 7, 7]


async def test_a_look_that_was_cut_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert await looks.found() == 1
    looks.version, looks.cut_off = 2, True
    with pytest.raises(TimeoutError):
        await looks.found()
    looks.cut_off = False
    assert await looks.found() == 3


async def test_who_does_not_know_whether_anything_changes_looks_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = Looks(monkeypatch)
    looks.look = SharedLook(Expected(cluster_of(1, 1)))
    assert [await looks.found(), await looks.found()] == [1, 2]
