"""A standby's memory at moments that a real server does not offer: in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from controller.core import znode_paths
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.runtime.zookeeper import codecs, jute, state_mirror
from controller.runtime.zookeeper.state_mirror import Warmth
from tests.provers.sim.zookeeper.contract.in_memory import CHROOT, CONNECT, a_session, told_in
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.messages import MultiRead, Operation, Sync
from tests.provers.sim.zookeeper.network import Channel, Network
from tests.runtime.zookeeper.test_state_mirror import World, _epoch, following, world
from tests.support.runtime.sessions import until


@asynccontextmanager
async def place() -> AsyncIterator[tuple[Network, World]]:
    """With a topic of three partitions."""
    with pytest.MonkeyPatch.context() as patch:
        async with a_session() as (network, _, _), world(CONNECT) as made:
            patch.setattr(state_mirror, "time", network.clock)
            yield network, made


told = told_in(place, "network", "made")


async def handed_over(made: World, avoided: tuple[str, ...] = ()) -> None:
    assert await made.mirror.settle()
    made.prepared = made.mirror.hand_over(lambda _, path: made.told.append(path), avoided)


def taken(made: World, topic: str, partitions: int) -> list[int | None]:
    """Leader epochs of what is left out; None: to be read."""
    states = made.mirror.take([Partition(Topic(topic), number, (1, 2)) for number in range(partitions)])
    return [state.leader_epoch if state is not None else None for state in states]


async def special(made: World) -> None:
    """A topic that the failover has to read itself."""
    await made.create("moving", 2)
    await made.edit("moving", adding={0: (2,)})


@told
async def test_it_is_behind_since_the_oldest_change(network: Network, made: World) -> None:
    async with following(made):
        pass
    for number in (0, 1, 0):
        await made.write(number, 5)
        await made.standby.ping()
        made.mirror._listen()
        await asyncio.sleep(10)
    assert made.mirror.behind == 2
    assert made.mirror.behind_s(network.clock.monotonic()) == pytest.approx(30, abs=1)


@told
async def test_a_topic_that_the_failover_avoids_is_not_handed_over_but_its_states_are_known(
    made: World,
) -> None:
    async with following(made):
        pass
    await handed_over(made, (znode_paths.topic_path("t"),))
    assert made.prepared is not None
    assert not made.prepared.topics
    assert taken(made, "t", 3) == [0, 0, 0]
    assert taken(made, "t", 3) == [None] * 3, "whoever asks again wants it from ZooKeeper"


@told
async def test_of_a_topic_left_out_only_states_are_given_that_did_not_change(made: World) -> None:
    await special(made)
    async with following(made):
        await until(lambda: _epoch(made, 1, "moving") == 0, "it to be read")
    await made.write(0, 4, "moving")
    await handed_over(made)
    assert taken(made, "moving", 2) == [None, 0]


@told
async def test_of_a_topic_left_out_a_state_is_given_as_it_was_at_the_hand_over(made: World) -> None:
    """As of one that is handed over: who writes it finds that it has another version by now."""
    await special(made)
    async with following(made):
        await until(lambda: _epoch(made, 1, "moving") == 0, "it to be read")
    await handed_over(made)
    await made.write(1, 4, "moving")
    await made.standby.ping()
    assert taken(made, "moving", 2) == [0, 0]


@told
async def test_the_highest_partition_number_is_heard_of_too(made: World) -> None:
    highest = 2**31 - 1
    await made.create("far", 1, first=highest)
    async with following(made):
        await until(lambda: _epoch(made, highest, "far") == 0, "it to be read")
    await made.write(highest, 4, "far")
    await handed_over(made)
    assert made.prepared is not None
    assert [p.name for p in made.prepared.unread()] == [f"far-{highest}"]


@told
async def test_after_the_hand_over_it_hears_of_nothing(made: World) -> None:
    """A leader would be told of each of its own writes."""
    async with following(made):
        await until(lambda: _epoch(made, 1) == 0, "it to be read")
    await handed_over(made)
    heard: list[str] = []
    made.standby._client._connection._read_watch_event = lambda *_: heard.append("an event")
    await made.mirror.unwatch()
    await made.write(1, 4)
    await made.standby.ping()
    assert heard == []


@told
async def test_after_a_proof_that_fails_all_is_read_again(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_mirror, "PROVED_MAX", 1)
    async with following(made):
        for partition in made.mirror.prepared.topics["t"].partitions.values():
            partition.leadership = LeaderAndIsr(2, 99, (2,), 3, 1)
        await asyncio.sleep(30)
        assert made.mirror.proved_wrong == 1
        assert [_epoch(made, number) for number in range(3)] == [0, 0, 0]


@told
async def test_what_changes_while_it_is_proved_is_no_defect(network: Network, made: World) -> None:
    zk, deliver = Hands(network, CHROOT), network.deliver
    epochs = count(1)

    def changing(channel: Channel, op: Operation) -> None:
        if isinstance(op, MultiRead) and not made.mirror.behind:
            epoch = next(epochs)
            state = codecs.encode_state(LeaderAndIsr(1, epoch, (1, 2), epoch, 1))
            zk.set(znode_paths.state_path("t", epoch % 3), state)
        deliver(channel, op)

    async with following(made):
        network.deliver = changing  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert next(epochs) > 5
        assert made.mirror.proved_wrong == 0


@told
async def test_partitions_that_a_topic_gets_are_read_and_counted(network: Network, made: World) -> None:
    zk = Hands(network, CHROOT)
    async with following(made):
        path = znode_paths.state_path("t", 3)
        zk.create(path, codecs.encode_state(LeaderAndIsr(1, 8, (1, 2), 0, 1)), makepath=True)
        await asyncio.sleep(5)
        await made.edit("t", partitions=dict.fromkeys(range(4), (1, 2)))
        await until(lambda: _epoch(made, 3) == 8, "it to be read")
        assert (made.mirror.size, made.mirror.proved_wrong) == (4, 0)


@told
async def test_after_the_term_no_topic_tells_it(made: World) -> None:
    async with following(made):
        pass
    await handed_over(made)
    made.mirror.release()
    await made.edit("t", partitions={0: (1, 2)})
    await asyncio.sleep(1)
    assert made.told == []


@told
async def test_a_topic_that_is_made_again_as_its_absence_is_answered_is_read(
    network: Network, made: World
) -> None:
    zk, deliver = Hands(network, CHROOT), network.deliver
    path, data = znode_paths.topic_path("u"), b'{"version":1,"partitions":{"0":[1]}}'
    zk.create(path, data)
    again = iter([True])

    def making(channel: Channel, op: Operation) -> None:
        deliver(channel, op)
        if isinstance(op, MultiRead) and not zk.exists(path) and next(again, False):
            zk.create(path, data)

    async with following(made):
        network.deliver = making  # type: ignore[method-assign]
        zk.delete(path)
        await asyncio.sleep(5)
        assert zk.exists(path)
        assert "u" in made.mirror.prepared.topics


@told
async def test_a_topic_that_may_not_be_read_does_not_stay_behind(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, path = made.standby.bulk_get, znode_paths.topic_path("t")

    async def said(paths: Any) -> list[jute.Node | int]:
        return [jute.NO_AUTH if p == path else n for p, n in zip(paths, await read(paths), strict=True)]

    async with following(made):
        monkeypatch.setattr(made.standby, "bulk_get", said)
        await made.edit("t", partitions={0: (2, 1)})
        await asyncio.sleep(5)
        assert (made.mirror.behind, list(made.mirror.prepared.topics)) == (0, [])


@told
async def test_what_is_heard_of_between_the_sync_and_the_hand_over_is_left_out(made: World) -> None:
    async with following(made):
        pass
    assert await made.mirror.settle()
    await made.edit("t", partitions={0: (2, 1)})
    await made.standby.ping()
    prepared = made.mirror.hand_over(lambda *_: None)
    assert prepared is not None
    assert list(prepared.topics) == []


@told
async def test_what_was_written_before_the_election_is_heard_of_before_anything_is_believed(
    network: Network, made: World
) -> None:
    async with following(made):
        pass
    deliver = network.deliver

    def last_moment(channel: Channel, op: Operation) -> None:
        if isinstance(op, Sync):
            network.deliver = deliver  # type: ignore[method-assign]
            zk = Hands(network, CHROOT)
            zk.set(znode_paths.state_path("t", 1), codecs.encode_state(LeaderAndIsr(2, 8, (2,), 9, 1)))
        deliver(channel, op)

    network.deliver = last_moment  # type: ignore[method-assign]
    await handed_over(made)
    assert made.take() == [0, None, 0]


@told
async def test_with_its_connection_a_standby_is_cold_and_gives_nothing(network: Network, made: World) -> None:
    await special(made)
    async with following(made):
        pass
    await handed_over(made)
    connections = made.standby.connections
    network.drop("one")
    await until(lambda: made.standby.connections > connections, "another connection")
    assert made.mirror.warmth is Warmth.COLD
    assert taken(made, "moving", 2) == [None, None]


def test_of_which_partition_a_state_is() -> None:
    assert state_mirror._place_of(znode_paths.state_path("t", 123)) == ("t", 123)
    assert state_mirror._place_of(znode_paths.topic_path("t")) == "t"
    assert state_mirror._place_of(znode_paths.partition_path("t", 0)) is None


@told
async def test_states_are_read_in_parts_and_none_is_left_out(
    network: Network, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_mirror, "READ_MAX", 2)
    monkeypatch.setattr(state_mirror, "TOPICS_MAX", 1)
    await made.create("u", 4)
    await made.create("v", 1)
    assert (made.mirror.behind, made.mirror.behind_s(5.0)) == (0, 0.0)
    async with following(made):
        await handed_over(made)
    assert made.mirror.size == 3 + 4 + 1
