"""The group requests on the wire: every field there and back, and who is the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker_stub.group.partitioner import OFFSETS_TOPIC
from broker_stub.group.ports import CoordinatorAddress
from broker_stub.group.service import GroupService
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.group_fakes import (
    GROUP,
    NEIGHBOUR,
    OTHER,
    PARTITIONS,
    CoordinatorHarness,
    Refused,
    begin,
)
from tests.support.runtime.sessions import until


class Finder:
    """Partition 1 is led by broker 7; 2 has no leader. The topic is created when told."""

    def __init__(self) -> None:
        self.count: int | None = PARTITIONS
        self.created = 0
        self.ended = False
        self.may_create = asyncio.Event()
        self.failure: Exception | None = None

    def partition_count(self) -> int | None:
        return self.count

    async def find(self, partition: int) -> CoordinatorAddress | codes.ErrorCode:
        return CoordinatorAddress(7, "host", 9092) if partition == 1 else codes.LEADER_NOT_AVAILABLE

    async def create_topic(self) -> None:
        self.created += 1
        try:
            await self.may_create.wait()
        finally:
            self.ended = True
        if self.failure is not None:
            raise self.failure
        self.count = PARTITIONS


class Served(CoordinatorHarness):
    """A coordinator of partition 1 behind its service. Topic ``t`` has the partitions 0 to 9."""

    def __init__(self) -> None:
        super().__init__()
        self.finder = Finder()
        self.service = GroupService(
            self.coordinator,
            self.finder,
            lambda topic, partition: topic == "t" and partition < 10,
            self.bugs.append,
        )


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.elect(1)
    yield served
    await served.service.close()
    await served.coordinator.stop()
    assert served.bugs == []


def ask(group: str = GROUP) -> wire.FindCoordinatorRequest:
    return wire.FindCoordinatorRequest(group_id=group)


async def test_find_coordinator(served: Served) -> None:
    find = served.service.find_coordinator
    assert await find(ask()) == wire.FindCoordinatorResponse(broker_id=7, host="host", port=9092)
    none = await find(ask(OTHER))
    assert (none.error_code, none.broker_id) == (codes.COORDINATOR_NOT_AVAILABLE, -1)
    assert none.error_message == f"{OFFSETS_TOPIC}-2 has no coordinator: LEADER_NOT_AVAILABLE"
    assert (await find(ask(""))).error_code == codes.INVALID_GROUP_ID


async def test_the_offsets_topic_is_created_once_while_all_ask(served: Served) -> None:
    served.finder.count = None
    answers = await asyncio.gather(*(served.service.find_coordinator(ask()) for _ in range(3)))
    assert {a.error_code for a in answers} == {codes.COORDINATOR_NOT_AVAILABLE}
    assert {a.error_message for a in answers} == {f"{OFFSETS_TOPIC} is being created"}
    await asyncio.sleep(0)
    assert served.finder.created == 1
    served.finder.may_create.set()
    await until(lambda: served.finder.count == PARTITIONS, "the topic")
    assert (await served.service.find_coordinator(ask())).error_code == codes.NONE


async def test_a_failed_creation_is_told_and_tried_again(served: Served) -> None:
    served.finder.count, served.finder.failure = None, Refused("too few brokers")
    served.finder.may_create.set()
    await served.service.find_coordinator(ask())
    await until(lambda: served.service._creating is None, "the end of the try")
    answer = await served.service.find_coordinator(ask())
    assert answer.error_message == f"{OFFSETS_TOPIC} is being created; the last try failed: too few brokers"
    served.finder.failure = ZeroDivisionError()
    await until(lambda: served.service._creating is None, "the end of the next")
    assert served.finder.created == 2
    assert [type(bug) for bug in served.bugs] == [ZeroDivisionError]
    served.bugs.clear()


async def test_closing_ends_a_creation(served: Served) -> None:
    served.finder.count = None
    await served.service.find_coordinator(ask())
    await asyncio.sleep(0)
    await served.service.close()
    assert served.finder.ended, "the end is waited for"
    served.finder.may_create.set()
    await asyncio.sleep(0.001)
    assert served.finder.count is None


async def test_a_membership_from_join_to_leave(served: Served) -> None:
    service = served.service
    request = wire.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[wire.GroupProtocol(name="range", metadata=b"\x01"), wire.GroupProtocol(name="sticky")],
        client_id="reader",
    )
    join = await begin(service.join_group(request))
    await served.pass_ms(3_000)
    joined = await join
    member = "reader-1"
    assert joined == wire.JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=member,
        member_id=member,
        members=[wire.GroupMember(member_id=member, metadata=b"\x01")],
    )
    assert served.group()["members"][member]["rebalance_timeout_ms"] == 60_000
    synced = await service.sync_group(
        wire.SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id=member,
            assignments=[wire.GroupAssignment(member_id=member, assignment=b"\x02")],
        )
    )
    assert synced == wire.SyncGroupResponse(assignment=b"\x02")
    beat = wire.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member)
    assert (await service.heartbeat(beat)).error_code == codes.NONE
    left = await service.leave_group(wire.LeaveGroupRequest(group_id=GROUP, member_id=member))
    assert left.error_code == codes.NONE
    assert (await service.heartbeat(beat)).error_code == codes.UNKNOWN_MEMBER_ID


def commit(topic: str, partition: int, offset: int, metadata: str = "") -> wire.CommittedOffset:
    return wire.CommittedOffset(
        topic=topic, partition=partition, offset=offset, leader_epoch=4, metadata=metadata
    )


async def test_offsets_there_and_back(served: Served) -> None:
    request = wire.OffsetCommitRequest(
        group_id=GROUP,
        generation_id=-1,
        offsets=[
            commit("t", 0, 5, "note"),
            commit("x", 0, 1),
            commit("t", 10, 1),
            commit("t", 1, 1),
            commit("t", 1, 2),
            commit("t", 2, -1),
        ],
    )
    assert await served.service.offset_commit(request) == wire.OffsetCommitResponse(
        partition_errors=[
            codes.PartitionError(topic="t", partition=0),
            codes.PartitionError(topic="x", partition=0, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION),
            codes.PartitionError(topic="t", partition=10, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION),
            codes.PartitionError(topic="t", partition=1),
            codes.PartitionError(topic="t", partition=2, error_code=codes.INVALID_REQUEST),
        ]
    )
    fetch = served.service.offset_fetch
    assert await fetch(wire.OffsetFetchRequest(group_id=GROUP)) == wire.OffsetFetchResponse(
        offsets=[commit("t", 0, 5, "note"), commit("t", 1, 2)]
    )
    asked = [wire.TopicPartition(topic="t", partition=2), wire.TopicPartition(topic="t", partition=1)]
    assert await fetch(wire.OffsetFetchRequest(group_id=GROUP, partitions=asked)) == wire.OffsetFetchResponse(
        offsets=[
            wire.CommittedOffset(topic="t", partition=2, offset=-1, leader_epoch=-1),
            commit("t", 1, 2),
        ]
    )
    refused = await fetch(wire.OffsetFetchRequest(group_id=OTHER, partitions=asked))
    assert refused == wire.OffsetFetchResponse(error_code=codes.NOT_COORDINATOR)


async def test_an_error_of_the_whole_commit_stands_at_each_partition(served: Served) -> None:
    request = wire.OffsetCommitRequest(group_id=NEIGHBOUR, generation_id=3, offsets=[commit("t", 0, 5)])
    answer = await served.service.offset_commit(request)
    assert answer.error_code == codes.ILLEGAL_GENERATION
    assert [e.error_code for e in answer.partition_errors] == [codes.ILLEGAL_GENERATION]


async def test_a_refused_join_says_so(served: Served) -> None:
    asked = wire.JoinGroupRequest(group_id=GROUP, member_id="nobody", session_timeout_ms=10_000)
    asked.protocol_type = "consumer"
    asked.protocols.add(name="range", metadata=b"m")
    assert (await served.service.join_group(asked)).error_code == codes.UNKNOWN_MEMBER_ID


async def test_who_is_no_member_is_told_so(served: Served) -> None:
    service, group, who = served.service, GROUP, "nobody"
    errors = [
        (await service.sync_group(wire.SyncGroupRequest(group_id=group, member_id=who))).error_code,
        (await service.heartbeat(wire.HeartbeatRequest(group_id=group, member_id=who))).error_code,
        (await service.leave_group(wire.LeaveGroupRequest(group_id=group, member_id=who))).error_code,
    ]
    assert errors == [codes.UNKNOWN_MEMBER_ID] * 3
