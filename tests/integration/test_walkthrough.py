"""The story that the project began from, step by step: topic test, a group of three, and broker 1 fails.

Three brokers; ``test`` has three partitions, one led by each broker; the group's partition of
``__consumer_offsets`` is led by broker 1. Real processes throughout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest

from broker_stub.client.connection import Connections
from broker_stub.client.consumer import Consumer
from broker_stub.client.group import GroupMember
from broker_stub.client.producer import Producer
from broker_stub.group.partitioner import partition_for
from controller.runtime import inspection
from controller.runtime.zookeeper import Session
from controller.workload.replicas import read_logs
from proto import broker_data_pb2 as wire
from proto import common_pb2 as codes
from tests.integration.conftest import StartCluster, create

pytestmark = pytest.mark.slow

TEST = {0: [2, 3, 1], 1: [1, 2, 3], 2: [3, 1, 2]}
OFFSETS = {0: [2, 3, 1], 1: [1, 3, 2], 2: [3, 2, 1]}
GROUP = next(name for n in range(100) if partition_for(name := f"group{n}", len(OFFSETS)) == 1)


async def eventually(what: str, check: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(30):
            while not await check():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"not reached: {what}")


async def addresses(session: Session) -> dict[int, str]:
    seen = await inspection.look(session)
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


async def read(bootstrap: list[str], key: tuple[str, int], offset: int) -> tuple[list[bytes | None], int]:
    """All committed records from an offset on, and the offset after them."""
    async with Consumer(bootstrap) as consumer:
        await consumer.assign({key: offset})
        values = []
        while records := await consumer.poll(1000):
            values += [record.value for record in records]
        return values, consumer.position(key)


async def test_a_group_of_three_survives_the_failure_of_broker_1(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_STUB_GROUP_INITIAL_REBALANCE_DELAY_MS", "300")
    cluster = start_cluster(controllers=1, brokers=3)
    await eventually("three brokers", lambda: _registered(session, 3))
    async with AsyncExitStack() as stack:
        connections = Connections()
        stack.push_async_callback(connections.close)

        # 1. The topics are created: on each broker some partitions lead, the others follow and copy the data.
        await create(session, "test", TEST)
        await create(session, "__consumer_offsets", OFFSETS)
        at = await addresses(session)
        everyone = list(at.values())
        async with Producer(everyone) as producer:
            for partition in TEST:
                await producer.send(
                    "test", partition, [(None, f"{partition}-{n}".encode()) for n in range(10)]
                )
        folders = {broker: cluster.data_dir(broker) for broker in at}

        async def copied() -> bool:
            logs = read_logs(folders, {("test", p): replicas for p, replicas in TEST.items()})
            return all(
                len(replicas) == 3
                and len({tuple(log.batches) for log in replicas.values()}) == 1
                and all(log.batches for log in replicas.values())
                for replicas in logs.values()
            )

        await eventually("every replica has the same bytes", copied)

        # 2. UpdateMetadata went to every broker: each knows the same leaders.
        expected = {("test", p): ids[0] for p, ids in TEST.items()}
        expected |= {("__consumer_offsets", p): ids[0] for p, ids in OFFSETS.items()}
        for address in everyone:
            assert await leaders_by(connections, address) == expected

        # 3. Each member of the group asks any broker for the group's coordinator: broker 1.
        assert [await coordinator_by(connections, address) for address in everyone] == [1, 1, 1]
        members = [GroupMember(everyone, GROUP, ["test"], client_id=f"consumer{n}") for n in (1, 2, 3)]
        for member in members:
            await stack.enter_async_context(member)
        for member in members:
            await member.until(lambda m: len(m.partitions) == 1, 30)
        assigned = {member.membership.partitions[0]: member for member in members}
        assert assigned.keys() == {("test", p) for p in TEST}

        # 4. It takes the partition's leader from the metadata, and fetches from there.
        positions = {}
        for key in assigned:
            values, positions[key] = await read(everyone, key, 0)
            assert values == [f"{key[1]}-{n}".encode() for n in range(10)]

        # 5. It commits offsets, and sends heartbeats, to the coordinator.
        for key, member in assigned.items():
            await member.commit({key: positions[key]})
            assert await heartbeat(connections, at[1], member) == codes.NONE
            assert await heartbeat(connections, at[2], member) == codes.NOT_COORDINATOR

        # 6. Broker 1 fails: the controller elects, and tells the living brokers.
        cluster.members["broker-1"].kill()
        expected |= {("test", 1): 2, ("__consumer_offsets", 1): 3}

        # 7. Their metadata caches follow.
        for broker in (2, 3):
            knows = partial(_knows, connections, at[broker], expected)
            await eventually(f"broker {broker} knows the new leaders", knows)

        # 8. Where broker 1 answers again, it is not the coordinator; everybody names broker 3.
        assert await coordinator_by(connections, at[2]) == 3
        cluster.members["broker-1"].start()
        await eventually("broker 1 is back", lambda: _registered(session, 3))
        at = await addresses(session)
        everyone = list(at.values())
        await eventually("broker 1 names broker 3", lambda: _names(connections, at[1], 3))
        member = assigned["test", 1]
        assert await heartbeat(connections, at[1], member) == codes.NOT_COORDINATOR

        # 9. The consumer of test-1 reads from broker 2, where it stood.
        async with Producer(everyone) as producer:
            await producer.send("test", 1, [(None, b"after the failure")])
        assert (await leaders_by(connections, at[1]))["test", 1] == 2
        values, positions["test", 1] = await read(everyone, ("test", 1), positions["test", 1])
        assert values == [b"after the failure"]

        # 10. Offsets and heartbeats go to the new coordinator, which has what was committed at the old one.
        for key, member in assigned.items():
            await member.until(lambda m: len(m.partitions) == 1, 30)
            assert await member.committed([key]) == {key: 10}
            assert await heartbeat(connections, at[3], member) in (codes.NONE, codes.REBALANCE_IN_PROGRESS)
        mover = assigned["test", 1]
        owned = mover.membership.partitions[0]
        await mover.commit({owned: positions[owned]})
        assert await mover.committed([owned]) == {owned: positions[owned]}


async def _registered(session: Session, count: int) -> bool:
    return len((await inspection.look(session)).brokers) == count


async def _knows(connections: Connections, address: str, expected: dict[tuple[str, int], int]) -> bool:
    return await leaders_by(connections, address) == expected


async def _names(connections: Connections, address: str, broker: int) -> bool:
    return await coordinator_by(connections, address) == broker
