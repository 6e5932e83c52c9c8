"""One story, step by step: topic test, a group of three, and broker 1 fails.

Three brokers; ``test`` has three partitions, one led by each broker; the group's partition of
``__consumer_offsets`` is led by broker 1. Real processes throughout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from broker_stub.client.connection import Connections
from broker_stub.client.consumer import Consumer
from broker_stub.client.group import GroupMember
from broker_stub.client.producer import Producer
from broker_stub.group.partitioner import partition_for
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from controller.workload.replicas import read_logs
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.integration.conftest import StartCluster, create

pytestmark = pytest.mark.slow

TEST = {0: [2, 3, 1], 1: [1, 2, 3], 2: [3, 1, 2]}
OFFSETS = {0: [2, 3, 1], 1: [1, 3, 2], 2: [3, 2, 1]}
GROUP = next(name for n in range(100) if partition_for(name := f"group{n}", len(OFFSETS)) == 1)


Key = tuple[str, int]


async def eventually(what: str, check: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(30):
            while not await check():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"not reached: {what}")


async def addresses(session: Session) -> dict[int, str]:
    seen = await cluster_reader.look(session)
    return {b.id: f"{b.control_endpoint.host}:{b.control_endpoint.port}" for b in seen.brokers.values()}


async def leaders_by(connections: Connections, address: str) -> dict[tuple[str, int], int]:
    """Leaders as one broker's metadata cache has them."""
    answer = await connections.call(address, "Metadata", wire.MetadataRequest(), wire.MetadataResponse, 5.0)
    return {(t.topic, p.partition): p.leader for t in answer.topics for p in t.partitions}


async def coordinator_by(connections: Connections, address: str) -> int:
    request = wire.FindCoordinatorRequest(group_id=GROUP)
    answer = await connections.call(address, "FindCoordinator", request, wire.FindCoordinatorResponse, 5.0)
    return answer.broker_id if answer.error_code == codes.NONE else -1


async def heartbeat(connections: Connections, address: str, member: GroupMember) -> codes.ErrorCode:
    request = wire.HeartbeatRequest(
        group_id=GROUP, generation_id=member.membership.generation, member_id=member.membership.member_id
    )
    answer = await connections.call(address, "Heartbeat", request, wire.HeartbeatResponse, 5.0)
    return answer.error_code


async def read(
    bootstrap: list[str], key: tuple[str, int], offset: int, count: int
) -> tuple[list[bytes | None], int]:
    """All committed records from an offset on, which are so many, and the offset after them."""
    async with Consumer(bootstrap) as consumer:
        await consumer.assign({key: offset})
        values: list[bytes | None] = []
        async with asyncio.timeout(60):
            while len(values) < count:
                values += [record.value for record in await consumer.poll(1000)]
        values += [record.value for record in await consumer.poll(1000)]
        return values, consumer.position(key)


class Story:
    """One cluster and one group; each step is a method, in the order of the story."""

    def __init__(self, cluster: Playground, session: Session, connections: Connections) -> None:
        self.cluster, self.session, self.connections = cluster, session, connections
        self.at: dict[int, str] = {}
        self.leaders = {("test", p): ids[0] for p, ids in TEST.items()}
        self.leaders |= {("__consumer_offsets", p): ids[0] for p, ids in OFFSETS.items()}
        self.member_of: dict[Key, GroupMember] = {}
        self.positions: dict[Key, int] = {}

    @property
    def everyone(self) -> list[str]:
        return list(self.at.values())

    async def step_1_the_topics_are_created(self) -> None:
        """On each broker some partitions lead, the others follow and copy the data."""
        await create(self.session, "test", TEST)
        await create(self.session, "__consumer_offsets", OFFSETS)
        self.at = await addresses(self.session)
        async with Producer(self.everyone) as producer:
            for partition in TEST:
                records = [(None, f"{partition}-{n}".encode()) for n in range(10)]
                await producer.send("test", partition, records)
        folders = {broker: self.cluster.data_dir(broker) for broker in self.at}

        async def copied() -> bool:
            logs = read_logs(folders, {("test", p): replicas for p, replicas in TEST.items()})
            return all(
                len(replicas) == 3
                and len({tuple(log.batches) for log in replicas.values()}) == 1
                and all(log.batches for log in replicas.values())
                for replicas in logs.values()
            )

        await eventually("every replica has the same bytes", copied)

    async def step_2_every_broker_knows_the_leaders(self) -> None:
        """UpdateMetadata went to all of them."""
        for broker in self.at:
            await self._knows_the_leaders(broker)

    async def _knows_the_leaders(self, broker: int) -> None:
        async def knows() -> bool:
            return await leaders_by(self.connections, self.at[broker]) == self.leaders

        await eventually(f"broker {broker} knows the leaders", knows)

    async def step_3_members_find_the_coordinator_and_join(self) -> list[GroupMember]:
        """Any broker tells: it is broker 1. The members share the partitions out."""
        for address in self.everyone:
            assert await coordinator_by(self.connections, address) == 1
        members = [GroupMember(self.everyone, GROUP, ["test"], client_id=f"consumer{n}") for n in (1, 2, 3)]
        for member in members:
            member.start()
        for member in members:
            await member.until(lambda m: len(m.partitions) == 1, 30)
        self.member_of = {member.membership.partitions[0]: member for member in members}
        assert self.member_of.keys() == {("test", p) for p in TEST}
        return members

    async def step_4_each_reads_from_its_partition_s_leader(self) -> None:
        for key in self.member_of:
            values, self.positions[key] = await read(self.everyone, key, 0, 10)
            assert values == [f"{key[1]}-{n}".encode() for n in range(10)]

    async def step_5_offsets_and_heartbeats_go_to_the_coordinator(self) -> None:
        for key, member in self.member_of.items():
            await member.commit({key: self.positions[key]})
            assert await heartbeat(self.connections, self.at[1], member) == codes.NONE
            assert await heartbeat(self.connections, self.at[2], member) == codes.NOT_COORDINATOR

    async def step_6_broker_1_fails(self) -> None:
        """The controller elects leaders for what it led, and tells the living brokers."""
        self.cluster.members["broker-1"].kill()
        self.leaders |= {("test", 1): 2, ("__consumer_offsets", 1): 3}

    async def step_7_metadata_caches_follow(self) -> None:
        for broker in (2, 3):
            await self._knows_the_leaders(broker)

    async def step_8_broker_1_is_not_the_coordinator_any_more(self) -> None:
        """Where it answers again it says so, and names broker 3 like everybody."""
        assert await coordinator_by(self.connections, self.at[2]) == 3
        self.cluster.members["broker-1"].start()
        await self.cluster.until(self.session, "broker 1 is back", lambda seen: len(seen.brokers) == 3)
        self.at = await addresses(self.session)

        async def names_broker_3() -> bool:
            return await coordinator_by(self.connections, self.at[1]) == 3

        await eventually("broker 1 names broker 3", names_broker_3)
        member = self.member_of["test", 1]
        assert await heartbeat(self.connections, self.at[1], member) == codes.NOT_COORDINATOR

    async def step_9_the_consumer_of_test_1_reads_from_broker_2(self) -> None:
        """From where it stood."""
        key = ("test", 1)
        async with Producer(self.everyone) as producer:
            await producer.send(*key, [(None, b"after the failure")])
        assert (await leaders_by(self.connections, self.at[1]))[key] == 2
        values, self.positions[key] = await read(self.everyone, key, self.positions[key], 1)
        assert values == [b"after the failure"]

    async def step_10_the_new_coordinator_has_and_takes_offsets(self) -> None:
        """What was committed at the old one is there; commits and heartbeats go to the new one."""
        for key, member in self.member_of.items():
            await member.until(lambda m: len(m.partitions) == 1, 30)
            assert await member.committed([key]) == {key: 10}
            answer = await heartbeat(self.connections, self.at[3], member)
            assert answer in (codes.NONE, codes.REBALANCE_IN_PROGRESS)
        member = self.member_of["test", 1]
        owned = member.membership.partitions[0]
        await member.commit({owned: self.positions[owned]})
        assert await member.committed([owned]) == {owned: self.positions[owned]}


async def test_a_group_of_three_survives_the_failure_of_broker_1(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_STUB_GROUP_INITIAL_REBALANCE_DELAY_MS", "300")
    cluster = start_cluster(controllers=1, brokers=3)
    await cluster.until(session, "three brokers", lambda seen: len(seen.brokers) == 3)
    async with AsyncExitStack() as stack:
        connections = Connections()
        stack.push_async_callback(connections.close)
        story = Story(cluster, session, connections)
        await story.step_1_the_topics_are_created()
        await story.step_2_every_broker_knows_the_leaders()
        for member in await story.step_3_members_find_the_coordinator_and_join():
            stack.push_async_callback(member.close)
        await story.step_4_each_reads_from_its_partition_s_leader()
        await story.step_5_offsets_and_heartbeats_go_to_the_coordinator()
        await story.step_6_broker_1_fails()
        await story.step_7_metadata_caches_follow()
        await story.step_8_broker_1_is_not_the_coordinator_any_more()
        await story.step_9_the_consumer_of_test_1_reads_from_broker_2()
        await story.step_10_the_new_coordinator_has_and_takes_offsets()
