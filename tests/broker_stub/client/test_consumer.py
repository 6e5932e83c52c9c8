"""The consumer: positions, leaders that move, lost records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker_stub.client import metadata
from broker_stub.client.consumer import EARLIEST, LATEST, Consumer, Reset, Truncation
from broker_stub.client.errors import (
    FatalError,
    GaveUpError,
    OffsetRangeError,
    TruncatedError,
    UnreachableError,
)
from broker_stub.log import batches
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.fake_cluster import TOPIC, FakeCluster, FakePartition, Fault, address

KEY = (TOPIC, 0)
Reading = tuple[Consumer, list[Truncation]]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BACKOFF_FIRST_S", 0.001)


def fill(cluster: FakeCluster, count: int, number: int = 0, size: int = 1, timestamp: int = 1000) -> None:
    partition = cluster.partitions[TOPIC, number]
    for _ in range(count):
        first = partition.log.log_end_offset
        records = [(None, b"%d" % (first + n)) for n in range(size)]
        partition.log.append_as_leader(batches.encode(records, timestamp + first), partition.leader_epoch)


def consumer(cluster: FakeCluster, reset: Reset = "earliest", **more: object) -> Consumer:
    return Consumer(cluster.bootstrap, reset=reset, connections=cluster, max_wait_ms=1, **more)  # type: ignore[arg-type]


async def read(consuming: Consumer, count: int) -> list[int]:
    """Offsets of so many records, over as many polls as it takes."""
    offsets: list[int] = []
    while len(offsets) < count:
        records = await consuming.poll(5000)
        assert records, f"only {offsets}"
        for record in records:
            assert record.value == b"%d" % record.offset
            offsets.append(record.offset)
    return offsets


async def test_everything_from_the_beginning_in_order() -> None:
    cluster = FakeCluster()
    fill(cluster, 5, size=3)
    async with consumer(cluster, max_bytes=100) as consuming:
        await consuming.assign({KEY: EARLIEST})
        assert await read(consuming, 15) == list(range(15))
        assert consuming.position(KEY) == 15
        assert consuming.high_watermark(KEY) == 15
        assert await consuming.poll(1) == []


async def test_the_middle_of_a_batch() -> None:
    cluster = FakeCluster()
    fill(cluster, 2, size=4)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 2})
        assert await read(consuming, 6) == [2, 3, 4, 5, 6, 7]
        consuming.seek(KEY, 5)
        assert await read(consuming, 3) == [5, 6, 7]


async def test_the_end_and_a_time() -> None:
    cluster = FakeCluster()
    fill(cluster, 5)
    async with consumer(cluster) as consuming:
        assert await consuming.list_offset(KEY, LATEST) == 5
        assert await consuming.list_offset(KEY, 1003) == 3
        assert await consuming.list_offset(KEY, 1_000_000) == -1
        await consuming.assign({KEY: LATEST})
        fill(cluster, 1)
        assert await read(consuming, 1) == [5]


async def test_only_what_the_leader_gives_and_its_high_watermark() -> None:
    cluster = FakeCluster()
    fill(cluster, 5)
    cluster.partitions[KEY].water = 2
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: EARLIEST})
        records = await consuming.poll(1000)
        assert [(r.offset, r.high_watermark) for r in records] == [(0, 2), (1, 2)]
        assert await consuming.poll(1) == []


async def test_several_leaders_at_once_and_one_of_them_dead() -> None:
    cluster = FakeCluster(brokers=3, partitions=3)
    for number in range(3):
        fill(cluster, 4, number)
    async with consumer(cluster) as consuming:
        await consuming.assign({(TOPIC, n): 0 for n in range(3)})
        cluster.up[2] = False
        found: list[Any] = []
        while len(found) < 8:
            found += await consuming.poll(20)
        assert sorted((r.partition, r.offset) for r in found) == [(p, o) for p in (0, 2) for o in range(4)]
        cluster.move(1, 3)
        assert await read(consuming, 4) == [0, 1, 2, 3]


async def test_partitions_of_one_leader_are_asked_for_together_whatever_their_leader_epochs() -> None:
    cluster = FakeCluster(partitions=2)
    keys = [(TOPIC, number) for number in range(2)]
    for number, key in enumerate(keys):
        cluster.partitions[key] = FakePartition(1, leader_epoch=number)
        fill(cluster, 1, number)
    async with consumer(cluster) as consuming:
        await consuming.assign(dict.fromkeys(keys, 0))
        assert sorted(record.partition for record in await consuming.poll(5000)) == [0, 1]
        assert cluster.calls.count(("Fetch", address(1))) == 1


async def test_it_follows_the_leader() -> None:
    cluster = FakeCluster()
    fill(cluster, 3)
    notified: list[Truncation] = []
    async with consumer(cluster, on_truncation=notified.append) as consuming:
        await consuming.assign({KEY: EARLIEST})
        assert await read(consuming, 3) == [0, 1, 2]
        cluster.move(0, 2)
        fill(cluster, 3)
        assert await read(consuming, 3) == [3, 4, 5]
        assert cluster.asked("Fetch")[-1] == address(2)
        # Under the new epoch it asked whether what it had read was still there.
        assert cluster.asked("OffsetsForLeaderEpoch") == [address(2)]
    assert notified == []


async def test_a_leader_that_a_refusal_names_is_believed() -> None:
    """No broker's metadata knows of the move yet."""
    cluster = FakeCluster()
    fill(cluster, 3)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: EARLIEST})
        await read(consuming, 3)
        old = cluster.handlers["Metadata"](1, None)
        assert isinstance(old, wire.MetadataResponse)
        cluster.stale = {1: old, 2: old}
        cluster.move(0, 2)
        fill(cluster, 1)
        assert await read(consuming, 1) == [3]


@pytest.mark.parametrize(
    "code", [codes.NOT_LEADER_OR_FOLLOWER, codes.UNKNOWN_LEADER_EPOCH, codes.KAFKA_STORAGE_ERROR, codes.NONE]
)
async def test_what_passes_is_waited_out(code: int) -> None:
    cluster = FakeCluster()
    fill(cluster, 2)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: EARLIEST})
        cluster.fail("Fetch", Fault(code), Fault(code))
        assert await read(consuming, 2) == [0, 1]


def truncate(cluster: FakeCluster, end: int) -> None:
    """An unclean election: the new leader never had what lies behind ``end``, and writes on there."""
    cluster.partitions[KEY].log.truncate_to(end)
    cluster.move(0, 2)
    fill(cluster, 1)


@asynccontextmanager
async def five_read(cluster: FakeCluster, reset: Reset = "earliest") -> AsyncIterator[Reading]:
    """A consumer that has read offsets 0 to 4, and what it is notified of."""
    fill(cluster, 5)
    notified: list[Truncation] = []
    async with consumer(cluster, reset, on_truncation=notified.append) as consuming:
        await consuming.assign({KEY: EARLIEST})
        await read(consuming, 5)
        yield consuming, notified


async def test_records_that_are_gone_are_told_and_read_anew() -> None:
    cluster = FakeCluster()
    async with five_read(cluster) as (consuming, notified):
        truncate(cluster, 2)
        assert await read(consuming, 1) == [2]
        assert notified == [Truncation(TOPIC, 0, 5, 2)]


async def test_records_that_are_gone_are_told_though_the_first_question_fails() -> None:
    cluster = FakeCluster()
    async with five_read(cluster) as (consuming, notified):
        truncate(cluster, 2)
        cluster.fail("OffsetsForLeaderEpoch", Fault(codes.UNKNOWN_LEADER_EPOCH))
        assert await read(consuming, 1) == [2]
        assert notified == [Truncation(TOPIC, 0, 5, 2)]


async def test_records_that_are_gone_again_before_one_more_was_read_are_told_again() -> None:
    cluster = FakeCluster()
    async with five_read(cluster) as (consuming, notified):
        cluster.partitions[KEY].log.truncate_to(3)
        cluster.move(0, 2)
        while not notified:
            assert await consuming.poll(1) == []
        truncate(cluster, 1)
        assert await read(consuming, 1) == [1]
        assert notified == [Truncation(TOPIC, 0, 5, 3), Truncation(TOPIC, 0, 3, 1)]


async def test_records_that_are_gone_are_told_where_the_leader_epoch_stayed() -> None:
    """A leader that came back with less."""
    cluster = FakeCluster()
    async with five_read(cluster) as (consuming, notified):
        cluster.partitions[KEY].log.truncate_to(2)
        assert await read(consuming, 2) == [0, 1]
        assert notified == [Truncation(TOPIC, 0, 5, 2)]


async def test_the_epoch_of_the_last_record_is_asked_for() -> None:
    cluster = FakeCluster()
    fill(cluster, 2)
    cluster.move(0, 2)
    fill(cluster, 2)
    asked: list[int] = []
    end_of_epoch = cluster.handlers["OffsetsForLeaderEpoch"]
    cluster.handlers["OffsetsForLeaderEpoch"] = lambda broker, request: (
        asked.extend(item.leader_epoch for item in request.partitions) or end_of_epoch(broker, request)  # type: ignore[func-returns-value]
    )
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: EARLIEST})
        assert len(await consuming.poll(5000)) == 4
        cluster.move(0, 1)
        fill(cluster, 1)
        assert await read(consuming, 1) == [4]
    assert asked == [1]


async def test_what_was_skipped_counts_as_not_read() -> None:
    """The next leader is not asked about records that lie before the position, and were never read."""
    cluster = FakeCluster()
    fill(cluster, 3)
    notified: list[Truncation] = []
    async with consumer(cluster, "latest", on_truncation=notified.append) as consuming:
        await consuming.assign({KEY: 0})
        await read(consuming, 3)
        cluster.move(0, 2)
        assert await consuming.poll(1) == []
        cluster.partitions[KEY].log.truncate_fully_and_start_at(5)
        fill(cluster, 3)
        while consuming.position(KEY) == 3:
            assert await consuming.poll(1) == []
        cluster.move(0, 1)
        fill(cluster, 1)
        assert await read(consuming, 1) == [8]
    assert notified == []


async def test_records_that_are_gone_under_the_policy_error() -> None:
    cluster = FakeCluster()
    async with five_read(cluster, "error") as (consuming, _):
        truncate(cluster, 2)
        with pytest.raises(TruncatedError, match="read up to 5, but the log now ends at 2") as raised:
            await consuming.poll(5000)
        assert (raised.value.position, raised.value.end_offset) == (5, 2)


async def test_a_position_outside_the_log_begins_anew() -> None:
    cluster = FakeCluster()
    fill(cluster, 3)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 17})
        assert await read(consuming, 3) == [0, 1, 2]


async def test_a_position_outside_the_log_is_looked_for_as_long_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what is lost is told once."""
    monkeypatch.setattr(Consumer.list_offset, "__defaults__", (0.001,))
    cluster, told, asked = FakeCluster(), list[Truncation](), list[int]()
    fill(cluster, 9)
    answer = cluster.handlers["ListOffsets"]

    def unsteady(broker: int, request: wire.ListOffsetsRequest) -> Any:
        asked.append(request.partitions[0].timestamp)
        if len(asked) < 5 and asked[-1] == EARLIEST:
            raise UnreachableError("ListOffsets", "deadline exceeded", sent=True)
        return answer(broker, request)

    cluster.handlers["ListOffsets"] = unsteady
    async with consumer(cluster, on_truncation=told.append) as consuming:
        await consuming.assign({KEY: 0})
        await read(consuming, 9)
        cluster.partitions[KEY].log.truncate_to(3)
        assert await read(consuming, 3) == [0, 1, 2]
    assert asked == [LATEST, EARLIEST] * 3
    assert told == [Truncation(TOPIC, 0, 9, 3)]


async def test_a_position_outside_the_log_goes_to_the_end() -> None:
    cluster = FakeCluster()
    fill(cluster, 3)
    async with consumer(cluster, "latest") as consuming:
        await consuming.assign({KEY: 17})
        while consuming.position(KEY) == 17:
            assert await consuming.poll(10) == []
        fill(cluster, 1)
        assert await read(consuming, 1) == [3]


async def test_a_position_outside_the_log_under_the_policy_error() -> None:
    cluster = FakeCluster()
    fill(cluster, 3)
    async with consumer(cluster, "error") as consuming:
        await consuming.assign({KEY: 17})
        with pytest.raises(OffsetRangeError, match="offset 17"):
            await consuming.poll(5000)


async def test_what_came_with_a_refusal_is_handed_over_before_it_is_told() -> None:
    cluster = FakeCluster(brokers=1, partitions=2)
    fill(cluster, 3)
    fill(cluster, 3, number=1)
    async with consumer(cluster, "error") as consuming:
        await consuming.assign({KEY: 0, (TOPIC, 1): 17})
        assert await read(consuming, 3) == [0, 1, 2]
        with pytest.raises(OffsetRangeError, match="offset 17"):
            await consuming.poll(5000)


async def test_a_position_moves_on_when_its_records_are_handed_over() -> None:
    """A position may be committed: it must not include records that poll has not returned."""
    cluster = FakeCluster(partitions=2)
    fill(cluster, 2)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0, (TOPIC, 1): 0})
        cluster.gate.clear()
        assert await consuming.poll(1) == []
        cluster.gate.set()
        await asyncio.gather(*consuming._fetches.values())
        assert consuming.position(KEY) == 0
        assert await read(consuming, 2) == [0, 1]
        assert consuming.position(KEY) == 2


async def test_what_was_fetched_before_a_seek_is_not_handed_over() -> None:
    cluster = FakeCluster()
    fill(cluster, 4)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0})
        cluster.gate.clear()
        assert await consuming.poll(1) == []
        cluster.gate.set()
        await asyncio.gather(*consuming._fetches.values())
        consuming.seek(KEY, 2)
        assert await read(consuming, 2) == [2, 3]


async def test_a_refusal_of_the_former_position_does_not_move_the_new_one() -> None:
    cluster = FakeCluster()
    fill(cluster, 4)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 17})
        cluster.gate.clear()
        assert await consuming.poll(1) == []
        consuming.seek(KEY, 3)
        cluster.gate.set()
        assert await read(consuming, 1) == [3]


async def refused_beside_records(cluster: FakeCluster, consuming: Consumer) -> None:
    """Broker 1 refuses partition 0 for good, and broker 2 gives the records of partition 1, in one poll."""
    fill(cluster, 1, number=1)
    await consuming.assign({KEY: 0, (TOPIC, 1): 0})
    cluster.gate.clear()
    cluster.fail("Fetch", Fault(codes.INVALID_REQUEST))
    assert await consuming.poll(1) == []
    cluster.gate.set()
    await asyncio.gather(*consuming._fetches.values())
    assert [(r.partition, r.offset) for r in await consuming.poll(5000)] == [(1, 0)]


async def test_a_refusal_is_raised_after_the_records_of_another_broker() -> None:
    cluster = FakeCluster(partitions=2)
    async with consumer(cluster) as consuming:
        await refused_beside_records(cluster, consuming)
        with pytest.raises(FatalError, match="Fetch t-0 of broker 1 at h:9001: INVALID_REQUEST"):
            await consuming.poll(5000)


async def test_a_refusal_of_what_is_not_assigned_any_more_is_not_raised() -> None:
    cluster = FakeCluster(partitions=2)
    async with consumer(cluster) as consuming:
        await refused_beside_records(cluster, consuming)
        await consuming.assign({(TOPIC, 1): 0})
        assert await read(consuming, 1) == [0]


async def test_a_batch_that_is_damaged_is_raised() -> None:
    cluster = FakeCluster()
    damaged = wire.FetchedPartition(topic=TOPIC, partition=0, records=b"no batch" * 20)
    cluster.handlers["Fetch"] = lambda _, __: wire.FetchResponse(partitions=[damaged])
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0})
        with pytest.raises(FatalError, match="Fetch t-0 of broker 1 at h:9001: CORRUPT_MESSAGE"):
            await consuming.poll(5000)


async def test_a_partition_that_an_answer_names_twice_is_read_once() -> None:
    cluster = FakeCluster()
    fill(cluster, 2)
    fetch = cluster.handlers["Fetch"]

    def twice(broker: int, request: wire.FetchRequest) -> wire.FetchResponse:
        answer = fetch(broker, request)
        assert isinstance(answer, wire.FetchResponse)
        return wire.FetchResponse(partitions=[*answer.partitions, *answer.partitions])

    cluster.handlers["Fetch"] = twice
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0})
        assert [r.offset for r in await consuming.poll(5000)] == [0, 1]


async def test_a_refusal_that_stays_is_raised() -> None:
    cluster = FakeCluster()
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0})
        cluster.fail("Fetch", Fault(codes.INVALID_REQUEST))
        with pytest.raises(FatalError, match="Fetch t-0 of broker 1 at h:9001: INVALID_REQUEST"):
            await consuming.poll(5000)


async def test_an_unknown_partition_is_given_up() -> None:
    cluster = FakeCluster()
    async with consumer(cluster) as consuming:
        with pytest.raises(GaveUpError, match="leader of t-9: UNKNOWN_TOPIC_OR_PARTITION"):
            await consuming.assign({(TOPIC, 9): LATEST}, timeout_s=0.5)
        assert consuming.assignment() == []


async def test_partitions_taken_away_while_a_poll_waits() -> None:
    cluster = FakeCluster(partitions=2)
    fill(cluster, 1, 1)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0})
        polling = asyncio.create_task(consuming.poll(5000))
        await asyncio.sleep(0.005)
        await consuming.assign({(TOPIC, 1): 0})
        assert [(r.partition, r.offset) for r in await polling] == [(1, 0)]


async def test_the_answer_to_a_question_that_no_longer_counts_is_dropped() -> None:
    cluster = FakeCluster()
    fill(cluster, 5)
    async with consumer(cluster) as consuming:
        await consuming.assign({KEY: 0})
        cluster.gate.clear()
        assert await consuming.poll(10) == []
        assert len(cluster.asked("Fetch")) == 1
        consuming.seek(KEY, 3)
        cluster.gate.set()
        assert await read(consuming, 2) == [3, 4]
