"""A member of a group against a coordinator that is scripted, refusal by refusal."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from google.protobuf.message import Message

from broker_stub.client import assignor, metadata
from broker_stub.client.connection import Answer
from broker_stub.client.errors import FatalError, GaveUpError, MemberError, UnreachableError
from broker_stub.client.group import Coordinator, GroupMember, Membership, commit_offsets
from broker_stub.client.metadata import Metadata
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.fake_cluster import TOPIC, FakeCluster, FakePartition, address

KEY = (TOPIC, 0)


class FakeGroup(FakeCluster):
    """One group with one member. ``refusals``: codes for the next requests of a method; None: silence."""

    def __init__(self) -> None:
        super().__init__(brokers=2, partitions=2)
        self.coordinator, self.generation, self.member = 1, 0, ""
        self.refusals: dict[str, deque[int | None]] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        #: Member and generation of each commit, and the code that the next one gets for each partition.
        self.commits: list[tuple[str, int]] = []
        self.offset_codes: deque[int] = deque()
        self.joins: list[str] = []
        self.served_calls: list[tuple[str, str]] = []
        self.news = asyncio.Condition()

    def refuse(self, method: str, *refused: int | None) -> None:
        self.refusals.setdefault(method, deque()).extend(refused)

    async def served(self, broker: int, method: str) -> None:
        """Wait until this broker was asked this and answered as the coordinator."""
        async with self.news:
            await self.news.wait_for(lambda: (method, address(broker)) in self.served_calls)

    async def call(
        self, address: str, method: str, request: Message, answer: type[Answer], timeout_s: float
    ) -> Answer:
        broker = int(address.rpartition(":")[2]) - 9000
        if method in ("Metadata",) or not self.up[broker]:
            return await super().call(address, method, request, answer, timeout_s)
        self.calls.append((method, address))
        await asyncio.sleep(0)
        code: int | None = codes.NONE
        if self.refusals.get(method):
            code = self.refusals[method].popleft()
        elif method != "FindCoordinator" and broker != self.coordinator:
            code = codes.NOT_COORDINATOR
        if code is None:
            raise UnreachableError(f"{method} at {address}", "deadline exceeded", sent=True)
        response = answer(error_code=code) if code else self._serve(request)
        if not code:
            self.served_calls.append((method, address))
            async with self.news:
                self.news.notify_all()
        assert isinstance(response, answer)
        return response

    def _serve(self, request: Message) -> Message:
        match request:
            case wire.FindCoordinatorRequest():
                return wire.FindCoordinatorResponse(host="h", port=9000 + self.coordinator)
            case wire.JoinGroupRequest():
                self.joins.append(request.member_id)
                self.generation += 1
                self.member = request.member_id or f"m{self.generation}"
                member = wire.GroupMember(member_id=self.member, metadata=request.protocols[0].metadata)
                return wire.JoinGroupResponse(
                    generation_id=self.generation, leader=self.member, member_id=self.member, members=[member]
                )
            case wire.SyncGroupRequest():
                assert [a.member_id for a in request.assignments] == [self.member]
                return wire.SyncGroupResponse(assignment=request.assignments[0].assignment)
            case wire.HeartbeatRequest():
                right = (request.member_id, request.generation_id) == (self.member, self.generation)
                return wire.HeartbeatResponse(error_code=codes.NONE if right else codes.UNKNOWN_MEMBER_ID)
            case wire.OffsetCommitRequest():
                self.commits.append((request.member_id, request.generation_id))
                if code := self.offset_codes.popleft() if self.offset_codes else codes.NONE:
                    refused = [
                        codes.PartitionError(topic=o.topic, partition=o.partition, error_code=code)  # type: ignore[arg-type]
                        for o in request.offsets
                    ]
                    return wire.OffsetCommitResponse(partition_errors=refused)
                self.offsets.update({(o.topic, o.partition): o.offset for o in request.offsets})
                return wire.OffsetCommitResponse()
            case wire.OffsetFetchRequest():
                return wire.OffsetFetchResponse(
                    offsets=[
                        wire.CommittedOffset(
                            topic=p.topic,
                            partition=p.partition,
                            offset=self.offsets.get((p.topic, p.partition), -1),
                        )
                        for p in request.partitions
                    ]
                )
        assert isinstance(request, wire.LeaveGroupRequest)
        self.member = ""
        return wire.LeaveGroupResponse()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BACKOFF_FIRST_S", 0.001)


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup()


def member(group: FakeGroup, session_timeout_ms: int = 60_000) -> GroupMember:
    return GroupMember(
        group.bootstrap,
        "g",
        [TOPIC],
        connections=group,
        heartbeat_interval_ms=1,
        session_timeout_ms=session_timeout_ms,
    )


async def test_it_joins_is_assigned_commits_and_leaves(group: FakeGroup) -> None:
    async with member(group) as one:
        membership = await one.joined()
        assert membership == Membership("m1", 1, True, ((TOPIC, 0), (TOPIC, 1)))
        await one.commit({KEY: 7})
        assert await one.committed([KEY, (TOPIC, 1)]) == {KEY: 7}
        await one.commit({KEY: 0})
        assert await one.committed([KEY, (TOPIC, 1)]) == {KEY: 0}
        assert group.commits == [("m1", 1)] * 2
    assert group.asked("LeaveGroup") == [address(1)]
    assert group.member == ""
    assert one.membership == Membership()


@pytest.mark.parametrize(
    ("code", "joins"),
    [
        (codes.REBALANCE_IN_PROGRESS, ["", "m1"]),
        (codes.ILLEGAL_GENERATION, ["", "m1"]),
        (codes.UNKNOWN_MEMBER_ID, ["", ""]),
    ],
)
@pytest.mark.parametrize("method", ["Heartbeat", "SyncGroup"])
async def test_it_joins_again_when_its_generation_is_over(
    group: FakeGroup, method: str, code: int, joins: list[str]
) -> None:
    lost: list[Membership] = []

    async def on_lost(membership: Membership) -> None:
        lost.append(membership)

    group.refuse(method, code)
    one = GroupMember(
        group.bootstrap, "g", [TOPIC], connections=group, heartbeat_interval_ms=1, on_lost=on_lost
    )
    async with one:
        await one.until(lambda m: m.generation == 2, 20)
        assert group.joins == joins
        # on_lost is called only for partitions that the member had.
        assert [m.generation for m in lost] == ([1] if method == "Heartbeat" else [])


@pytest.mark.parametrize("code", [codes.UNKNOWN_MEMBER_ID, codes.INVALID_GROUP_ID])
async def test_a_commit_of_lost_partitions_may_be_refused(group: FakeGroup, code: int) -> None:
    """It joins again where the generation is over, and ends with any other error."""

    async def on_lost(_: Membership) -> None:
        await one.commit({KEY: 7})

    group.refuse("Heartbeat", codes.REBALANCE_IN_PROGRESS)
    group.refuse("OffsetCommit", code)
    one = GroupMember(
        group.bootstrap, "g", [TOPIC], connections=group, heartbeat_interval_ms=1, on_lost=on_lost
    )
    async with one:
        if code == codes.UNKNOWN_MEMBER_ID:
            assert (await one.until(lambda m: m.generation == 2, 20)).partitions
        else:
            with pytest.raises(FatalError, match="INVALID_GROUP_ID"):
                await one.until(lambda m: m.generation == 2, 20)
            assert one.membership == Membership()


@pytest.mark.parametrize("code", [codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE, None])
async def test_it_looks_for_a_coordinator_that_moved_and_stays(group: FakeGroup, code: int | None) -> None:
    async with member(group) as one:
        await one.joined()
        group.coordinator = 2
        group.refuse("Heartbeat", code)
        await group.served(2, "Heartbeat")
        assert one.membership.generation == 1
        assert group.joins == [""]


async def test_it_finds_the_coordinator_that_another_broker_became(group: FakeGroup) -> None:
    async with member(group) as one:
        await one.joined()
        group.up[1], group.coordinator = False, 2
        await group.served(2, "Heartbeat")
        assert one.membership.generation == 1


async def test_loading_is_waited_out(group: FakeGroup) -> None:
    loading = codes.COORDINATOR_LOAD_IN_PROGRESS
    group.refuse("JoinGroup", loading, loading)
    group.refuse("FindCoordinator", codes.COORDINATOR_NOT_AVAILABLE)
    async with member(group) as one:
        assert (await one.joined()).generation == 1
        group.refuse("OffsetCommit", loading, codes.NOT_COORDINATOR)
        await one.commit({KEY: 3})
        assert group.offsets == {KEY: 3}


async def test_a_session_that_must_have_ended_is_given_up(group: FakeGroup) -> None:
    async with member(group, session_timeout_ms=20) as one:
        await one.joined()
        group.up = {1: False, 2: False}
        await one.until(lambda m: m.generation < 0, 20)
        group.up = {1: True, 2: True}
        await one.until(lambda m: m.generation == 2, 20)
        assert group.joins == ["", ""]


async def test_a_commit_in_a_generation_that_is_over_is_refused_and_joins_again(group: FakeGroup) -> None:
    async with member(group) as one:
        await one.joined()
        group.refuse("OffsetCommit", codes.ILLEGAL_GENERATION)
        with pytest.raises(MemberError, match="ILLEGAL_GENERATION"):
            await one.commit({KEY: 3})
        await one.until(lambda m: m.generation == 2, 20)
        assert group.offsets == {}


async def test_a_refusal_that_stays_ends_the_membership(group: FakeGroup) -> None:
    group.refuse("JoinGroup", codes.INVALID_GROUP_ID)
    async with member(group) as one:
        with pytest.raises(FatalError, match="JoinGroup of group 'g' at h:9001: INVALID_GROUP_ID"):
            await one.joined()
        with pytest.raises(MemberError, match="not joined"):
            await one.commit({KEY: 1})
    assert group.asked("LeaveGroup") == []


async def test_a_commit_is_done_once_each_partition_is(group: FakeGroup) -> None:
    async with member(group) as one:
        await one.joined()
        group.offset_codes.append(codes.COORDINATOR_LOAD_IN_PROGRESS)
        await one.commit({KEY: 3})
        assert group.offsets == {KEY: 3}
        group.offset_codes.append(codes.OFFSET_METADATA_TOO_LARGE)
        with pytest.raises(FatalError, match="OffsetCommit of t-0: OFFSET_METADATA_TOO_LARGE"):
            await one.commit({KEY: 4})
        assert group.offsets == {KEY: 3}


async def test_partitions_may_be_read_before_the_generation_is_told(group: FakeGroup) -> None:
    """Who waits for the membership finds the partitions ready."""
    told: list[int] = []

    async def on_assigned(membership: Membership) -> None:
        assert membership.generation == 1
        await asyncio.sleep(0)
        told.append(one.membership.generation)

    one = GroupMember(group.bootstrap, "g", [TOPIC], connections=group, on_assigned=on_assigned)
    async with one:
        await one.joined()
    assert told == [-1]


async def test_partitions_that_a_topic_got_are_given_out_in_the_next_generation(group: FakeGroup) -> None:
    async with member(group) as one:
        assert len((await one.joined()).partitions) == 2
        group.partitions[TOPIC, 2] = FakePartition(1)
        group.refuse("Heartbeat", codes.REBALANCE_IN_PROGRESS)
        assert len((await one.until(lambda m: m.generation == 2, 20)).partitions) == 3


async def test_a_coordinator_that_does_not_answer_is_looked_for_again(group: FakeGroup) -> None:
    coordinator = Coordinator(group, Metadata(group, group.bootstrap), "g")
    await coordinator.ask("Heartbeat", wire.HeartbeatRequest(), wire.HeartbeatResponse)
    group.up[1], group.coordinator = False, 2
    with pytest.raises(UnreachableError):
        await coordinator.ask("LeaveGroup", wire.LeaveGroupRequest(), wire.LeaveGroupResponse)
    await coordinator.ask("LeaveGroup", wire.LeaveGroupRequest(), wire.LeaveGroupResponse)
    assert group.asked("LeaveGroup") == [address(1), address(2)]


async def test_offsets_without_a_generation(group: FakeGroup) -> None:
    coordinator = Coordinator(group, Metadata(group, group.bootstrap), "g")
    await commit_offsets(coordinator, Membership(), {KEY: 5}, 5)
    assert group.offsets == {KEY: 5}
    assert group.commits == [("", -1)]
    group.refuse("OffsetCommit", *[codes.NOT_COORDINATOR] * 1000)
    with pytest.raises(GaveUpError, match="NOT_COORDINATOR"):
        await commit_offsets(coordinator, Membership(), {KEY: 6}, 0.05)


async def test_a_member_that_speaks_nonsense_ends_the_leader_in_words(
    group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignor, "encode_subscription", lambda _: b"nonsense")
    async with member(group) as one:
        with pytest.raises(FatalError, match="subscription b'nonsense'"):
            await one.joined()
