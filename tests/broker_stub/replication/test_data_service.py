"""What a broker answers to producers, consumers and followers: each error code, each reason to wait or to wake."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_stub.control.requests import EPOCH_DURING_DELETE, PartitionMetadata, StopReplica
from broker_stub.log import batches
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.replication_fakes import (
    FOO,
    Broker,
    ManualWriter,
    batch,
    decoded,
    fetch_request,
    leaping,
    order,
    produce_request,
    run_ready_tasks,
)


async def leading(*, isr: tuple[int, ...] = (0, 1, 2), epoch: int = 3, **options: Any) -> Broker:
    broker = Broker(0, **options)
    broker.manager.start()
    await broker.leader_and_isr(order(0, epoch, isr))
    return broker


async def produce(broker: Broker, *values: str, acks: int = 1) -> wire.ProducedPartition:
    response = await broker.service.produce(produce_request(batch(*values), acks))
    (answer,) = response.partitions
    return answer


async def fetch(broker: Broker, offset: int = 0, **fields: Any) -> wire.FetchedPartition:
    response = await broker.service.fetch(fetch_request(offset, **fields))
    (answer,) = response.partitions
    return answer


async def followers_fetch(
    broker: Broker, offset: int, epoch: int = 3, *, who: tuple[int, ...] = (1, 2)
) -> None:
    for follower in who:
        await broker.service.fetch(fetch_request(offset, replica=follower, epoch=epoch))


# --- producing ---------------------------------------------------------------------------------------------


@leaping
async def test_acks_0_says_nothing_and_stores_all_the_same() -> None:
    broker = await leading()
    assert not (await broker.service.produce(produce_request(batch("a"), acks=0))).partitions
    assert not (await broker.service.produce(produce_request(b"garbage", acks=0))).partitions
    assert broker.log().log_end_offset == 1


@leaping
async def test_acks_1_waits_for_nobody() -> None:
    broker = await leading()
    await produce(broker, "a", "b")
    assert await produce(broker, "c") == wire.ProducedPartition(
        topic="foo", partition=3, base_offset=2, log_start_offset=0, leader=0, leader_epoch=3
    )
    assert broker.partition().high_watermark == 0


@leaping
async def test_acks_all_waits_for_all_in_sync_replicas() -> None:
    broker = await leading()
    waiting = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await run_ready_tasks()
    await followers_fetch(broker, 1, who=(1,))
    await run_ready_tasks()
    assert not waiting.done()
    await followers_fetch(broker, 1, who=(2,))
    assert (await waiting).error_code == codes.NONE
    alone = await leading(isr=(0,))
    assert (await produce(alone, "a", acks=-1)).error_code == codes.NONE


@leaping
async def test_acks_all_gives_up_in_time_and_the_record_stays() -> None:
    broker = await leading()
    answer = await produce(broker, "a", acks=-1)
    assert answer.error_code == codes.REQUEST_TIMED_OUT
    assert broker.loop.time() == pytest.approx(1.0)
    assert broker.log().log_end_offset == 1
    assert not broker.manager.ack_waiters._by_key, "nobody waits any more"


@leaping
async def test_of_a_producer_that_leaves_just_as_its_records_are_appended_nothing_stays_but_them() -> None:
    broker = await leading()
    producing = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await asyncio.sleep(0)
    assert broker.log().log_end_offset == 1
    producing.cancel()
    await run_ready_tasks()
    await followers_fetch(broker, 1)
    await run_ready_tasks()
    assert broker.partition().high_watermark == 1
    assert not broker.manager.ack_waiters._by_key, "nobody waits any more"


@leaping
async def test_acks_all_needs_min_insync_replicas() -> None:
    broker = await leading(isr=(0,), least=2)
    answer = await produce(broker, "a", acks=-1)
    assert answer.error_code == codes.NOT_ENOUGH_REPLICAS
    assert "[0]" in answer.error_message
    assert broker.log().log_end_offset == 0
    assert (await produce(broker, "a", acks=1)).error_code == codes.NONE
    # What is not safe enough is not committed either.
    assert broker.partition().high_watermark == 0


@leaping
async def test_the_isr_shrinks_below_the_minimum_after_the_append() -> None:
    broker = await leading(isr=(0, 1), least=2)
    waiting = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await run_ready_tasks()
    broker.partition().isr = (0,)
    assert (await waiting).error_code == codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@leaping
async def test_min_insync_replicas_is_waited_for_but_not_for_ever() -> None:
    broker = await leading(isr=(0,), least=None)
    answer = await produce(broker, "a", acks=-1)
    assert answer.error_code == codes.NOT_ENOUGH_REPLICAS
    assert broker.loop.time() == pytest.approx(1.0)
    waiting = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await run_ready_tasks()
    broker.topics.least = 1
    broker.topics.read.set()
    assert (await waiting).error_code == codes.NONE


@leaping
async def test_whoever_leads_no_longer_acknowledges_nothing() -> None:
    broker = await leading()
    waiting = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await run_ready_tasks()
    await broker.leader_and_isr(order(1, 4, (0, 1, 2), 1))
    answer = await waiting
    assert (answer.error_code, answer.leader, answer.leader_epoch) == (codes.NOT_LEADER_OR_FOLLOWER, 1, 4)


@leaping
async def test_a_role_that_changes_right_after_the_append() -> None:
    """Another leader's records, not ours, may be what the high watermark passes later."""
    broker = await leading()
    partition = broker.partition()
    appended = broker.manager.append(partition, batch("ours"), -1)
    outcome = broker.manager.committed(partition, appended.next_offset, 1.0)
    await broker.leader_and_isr(order(1, 4, (0, 1, 2), 1))
    partition.truncate(0)
    partition.log.append_as_follower(batches.encode([(None, b"theirs")], 0, 0, 4))
    await broker.leader_and_isr(order(0, 5, (0,), 2))
    assert partition.high_watermark == 1
    assert await outcome == codes.NOT_LEADER_OR_FOLLOWER


@leaping
async def test_a_replica_that_is_lost_right_after_the_append() -> None:
    broker = await leading()
    appended = broker.manager.append(broker.partition(), batch("a"), -1)
    partition = broker.partition()
    broker.manager.take_offline(FOO)
    assert (
        await broker.manager.committed(partition, appended.next_offset, 60.0) == codes.NOT_LEADER_OR_FOLLOWER
    )
    assert broker.loop.time() == 0.0


@leaping
async def test_produce_is_refused() -> None:
    broker = await leading()
    damaged = bytearray(batch("a"))
    damaged[-1] ^= 1
    cases = {
        b"": codes.INVALID_RECORD,
        b"garbage": codes.CORRUPT_MESSAGE,
        bytes(damaged): codes.CORRUPT_MESSAGE,
        batch("a")[:-1]: codes.CORRUPT_MESSAGE,
        batches.seal(b"\xff\xff", 1, 0, 0): codes.INVALID_RECORD,
        batch("x" * 20_000): codes.MESSAGE_TOO_LARGE,
    }
    for records, expected in cases.items():
        (answer,) = (await broker.service.produce(produce_request(records))).partitions
        assert (answer.error_code, answer.base_offset) == (expected, -1)
        assert answer.error_message
    assert broker.log().log_end_offset == 0
    unknown = await broker.service.produce(produce_request(batch("a"), key=("bar", 7)))
    assert unknown.partitions[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    acks = await broker.service.produce(produce_request(batch("a"), acks=2))
    assert acks.partitions[0].error_code == codes.INVALID_REQUIRED_ACKS
    await broker.leader_and_isr(order(1, 4, (0, 1, 2), 1))
    assert (await produce(broker, "a")).error_code == codes.NOT_LEADER_OR_FOLLOWER


@leaping
async def test_one_bad_partition_does_not_hide_the_others() -> None:
    broker = await leading()
    request = produce_request(batch("a"), acks=1)
    request.partitions.insert(0, wire.ProducePartition(topic="bar", partition=0, records=batch("b")))
    response = await broker.service.produce(request)
    assert [p.error_code for p in response.partitions] == [codes.UNKNOWN_TOPIC_OR_PARTITION, codes.NONE]
    # Nor does one that has nothing yet let it wait.
    read = fetch_request(wait_ms=60_000)
    read.partitions.insert(0, wire.FetchPartition(topic="bar", partition=0))
    fetched = await broker.service.fetch(read)
    assert [p.error_code for p in fetched.partitions] == [codes.UNKNOWN_TOPIC_OR_PARTITION, codes.NONE]
    assert broker.loop.time() == 0.0


# --- fetching ----------------------------------------------------------------------------------------------


@leaping
async def test_of_several_writes_those_are_named_that_were_not_committed() -> None:
    broker = await leading()
    await broker.leader_and_isr(order(0, 3, (0,), key=("foo", 1)))
    request = produce_request(batch("a"), -1, key=("foo", 1))
    request.partitions.append(produce_request(batch("b"), -1).partitions[0])
    request.partitions.insert(0, wire.ProducePartition(topic="foo", partition=9, records=batch("c")))
    request.timeout_ms = 1000
    answers = (await broker.service.produce(request)).partitions
    assert [(a.partition, a.error_code) for a in answers] == [
        (9, codes.UNKNOWN_TOPIC_OR_PARTITION),
        (1, codes.NONE),
        (3, codes.REQUEST_TIMED_OUT),
    ]


@leaping
async def test_of_two_leaders_the_one_of_the_newer_epoch_is_named() -> None:
    broker = await leading(epoch=5)
    for epoch, leader in ((4, 0), (5, 1), (6, 1)):
        broker.know((0, 1, 2), PartitionMetadata(FOO, 1, 1, epoch, (1,), 0, (0, 1, 2), ()))
        answer = await produce(broker, "a", acks=-1)
        assert (answer.leader, answer.leader_epoch) == (leader, max(epoch, 5))


@leaping
async def test_a_partition_twice_in_a_fetch_is_read_twice() -> None:
    broker = await leading(isr=(0,))
    request = fetch_request(0, wait_ms=1000)
    request.partitions.append(request.partitions[0])
    fetching = asyncio.create_task(broker.service.fetch(request))
    await run_ready_tasks()
    await produce(broker, "a")
    answers = (await fetching).partitions
    assert [decoded(answer.records) for answer in answers] == [[(3, "a")]] * 2


@leaping
async def test_consumers_see_what_is_committed_followers_all() -> None:
    broker = await leading()
    await produce(broker, "a")
    await produce(broker, "b")
    assert not (await fetch(broker)).records
    await followers_fetch(broker, 1)
    answer = await fetch(broker)
    assert (decoded(answer.records), answer.high_watermark) == ([(3, "a")], 1)
    assert decoded((await fetch(broker, replica=1, epoch=3)).records) == [(3, "a"), (3, "b")]
    # Between what is committed and the end a consumer waits, it is not refused.
    beyond = await fetch(broker, 2)
    assert (beyond.error_code, beyond.records) == (codes.NONE, b"")


@leaping
async def test_a_waiting_follower_is_woken_by_an_append_a_consumer_by_the_high_watermark() -> None:
    broker = await leading()
    follower = asyncio.ensure_future(fetch(broker, replica=1, epoch=3, wait_ms=60_000))
    consumer = asyncio.ensure_future(fetch(broker, wait_ms=60_000))
    await run_ready_tasks()
    await produce(broker, "a")
    assert decoded((await follower).records) == [(3, "a")]
    assert not consumer.done()
    await followers_fetch(broker, 1)
    assert decoded((await consumer).records) == [(3, "a")]
    assert broker.loop.time() == 0.0


@leaping
async def test_a_fetch_waits_no_longer_than_it_says() -> None:
    broker = await leading()
    answer = await fetch(broker, wait_ms=700)
    assert answer.records == b""
    assert broker.loop.time() == pytest.approx(0.7)
    assert not broker.manager.fetch_waiters._by_key, "nobody waits any more"


@leaping
async def test_what_several_partitions_hold_counts_together_and_only_what_changed_is_read_again() -> None:
    broker = Broker(0)
    keys = [FOO, ("foo", 1), ("foo", 2)]
    await broker.leader_and_isr(*(order(0, 3, key=key) for key in keys))
    size = len(batch("a"))
    request = fetch_request(replica=1, epoch=3, wait_ms=60_000)
    request.partitions.extend(fetch_request(epoch=3, key=key).partitions[0] for key in keys[1:])
    request.min_bytes = 4 * size
    waiting = asyncio.ensure_future(broker.service.fetch(request))
    await run_ready_tasks()
    broker.log(("foo", 2)).refuses.add("read")  # it did not change: nobody looks
    for key, still in ((0, 1), (1, 0), (0, 1), (1, 0)):
        assert not waiting.done()
        broker.log(keys[key]).refuses.clear()
        broker.log(keys[still]).refuses.add("read")
        await broker.service.produce(produce_request(batch("a"), acks=1, key=keys[key]))
        await run_ready_tasks()
    notified = [(p.partition, len(p.records)) for p in (await waiting).partitions]
    assert notified == [(3, 2 * size), (1, 2 * size)]
    assert broker.loop.time() == 0.0


@leaping
async def test_fetches_are_fenced_by_leader_epoch() -> None:
    broker = await leading()
    assert (await fetch(broker, epoch=2)).error_code == codes.FENCED_LEADER_EPOCH
    assert (await fetch(broker, epoch=4)).error_code == codes.UNKNOWN_LEADER_EPOCH
    assert (await fetch(broker, epoch=3)).error_code == codes.NONE
    await broker.leader_and_isr(order(1, 4, (0, 1, 2), 1))
    assert await fetch(broker, epoch=4) == wire.FetchedPartition(
        topic="foo",
        partition=3,
        error_code=codes.NOT_LEADER_OR_FOLLOWER,
        error_message="broker 0 is not the leader; the leader is 1",
        high_watermark=-1,
        log_start_offset=-1,
        leader=1,
        leader_epoch=4,
    )


@leaping
async def test_fetch_is_refused() -> None:
    broker = await leading()
    for offset in (-1, 1):
        refused = await fetch(broker, offset, replica=1, epoch=3)
        assert (refused.error_code, refused.high_watermark) == (codes.OFFSET_OUT_OF_RANGE, -1)
        assert broker.partition().remote[1].log_end_offset == -1, "it says nothing of what the follower has"
    unknown = await fetch(broker, key=("foo", 9))
    assert (unknown.error_code, unknown.leader, unknown.leader_epoch) == (
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
        -1,
    )
    assert (await fetch(broker, replica=7, epoch=3)).error_code == codes.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(broker, partition_max_bytes=-1)).error_code == codes.INVALID_REQUEST
    assert (await fetch(broker, replica=1, epoch=3, last_epoch=9)).error_code == codes.OFFSET_OUT_OF_RANGE
    for field in ("max_wait_ms", "max_bytes"):
        request = fetch_request()
        for value, error in ((-1, codes.INVALID_REQUEST), (0, codes.NONE)):
            setattr(request, field, value)
            assert (await broker.service.fetch(request)).error_code == error


@leaping
async def test_a_waiting_fetch_of_an_earlier_term_is_fenced_at_once() -> None:
    broker = await leading()
    waiting = asyncio.ensure_future(fetch(broker, replica=1, epoch=3, wait_ms=60_000))
    await run_ready_tasks()
    await broker.leader_and_isr(order(0, 4, (0, 1, 2), 1))
    assert (await waiting).error_code == codes.FENCED_LEADER_EPOCH
    assert broker.loop.time() == 0.0


@leaping
async def test_only_asking_counts_as_a_fetch_not_being_woken() -> None:
    broker = await leading()
    request = fetch_request(replica=1, epoch=3, wait_ms=5_000)
    request.min_bytes = 1000
    waiting = asyncio.ensure_future(broker.service.fetch(request))
    await asyncio.sleep(1.0)
    await produce(broker, "a")
    await waiting
    remote = broker.partition().remote[1]
    assert (remote.fetched_ms, remote.leader_end_at_fetch) == (0, 0)


@leaping
async def test_a_log_that_parted_is_answered_with_where() -> None:
    broker = await leading()
    await produce(broker, "a")
    await broker.leader_and_isr(order(0, 5, (0, 1, 2), 1))
    answer = await fetch(broker, 3, replica=1, epoch=5, last_epoch=4, wait_ms=60_000)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (3, 1)
    assert broker.partition().remote[1].log_end_offset == -1
    assert broker.loop.time() == 0.0


@leaping
async def test_what_others_host_is_led_elsewhere_what_nobody_hosts_is_unknown() -> None:
    broker = Broker(0)
    assert (await fetch(broker)).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    broker.know((0, 1, 2), PartitionMetadata(FOO, 1, 1, 6, (1,), 0, (1, 2), ()))
    refused = await fetch(broker)
    assert (refused.error_code, refused.leader, refused.leader_epoch) == (codes.NOT_LEADER_OR_FOLLOWER, 1, 6)
    assert (await produce(broker, "a")).error_code == codes.NOT_LEADER_OR_FOLLOWER


@leaping
async def test_a_waiting_fetch_ends_with_the_replica() -> None:
    broker = await leading()
    waiting = asyncio.ensure_future(fetch(broker, wait_ms=60_000))
    await run_ready_tasks()
    await broker.stopped(StopReplica(FOO, EPOCH_DURING_DELETE, True))
    assert (await waiting).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.loop.time() == 0.0


@leaping
async def test_waiting_goes_on_while_the_broker_hands_over_and_ends_with_it() -> None:
    broker = await leading()
    await broker.manager.stop_fetching()
    waiting = asyncio.ensure_future(fetch(broker, wait_ms=60_000))
    producing = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await run_ready_tasks()
    assert not waiting.done(), "followers that are told nothing at once would ask again at once"
    assert (await producing).error_code == codes.NOT_LEADER_OR_FOLLOWER
    await broker.manager.stop()
    assert (await waiting).error_code == codes.NONE
    assert (await fetch(broker, wait_ms=60_000)).error_code == codes.NONE
    assert broker.loop.time() == 0.0


@leaping
async def test_stop_fails_what_waits_to_be_committed() -> None:
    broker = await leading()
    waiting = asyncio.ensure_future(produce(broker, "a", acks=-1))
    await run_ready_tasks()
    await broker.manager.stop()
    assert (await waiting).error_code == codes.NOT_LEADER_OR_FOLLOWER
    assert not broker.manager.ack_waiters._by_key


@leaping
async def test_the_least_that_is_asked_for_is_one_batch() -> None:
    broker = await leading(isr=(0,))
    await produce(broker, "a")
    for fields in ({"max_bytes": 1}, {"partition_max_bytes": 1}):
        assert decoded((await fetch(broker, **fields)).records) == [(3, "a")]


@leaping
async def test_answers_say_where_the_log_begins() -> None:
    broker = await leading(isr=(0,), high_watermarks={FOO: 9})
    broker.log().truncate_fully_and_start_at(5)
    assert (await produce(broker, "a")).log_start_offset == 5
    answer = await fetch(broker, 5)
    assert answer == wire.FetchedPartition(
        topic="foo", partition=3, high_watermark=6, log_start_offset=5, records=answer.records
    )
    assert decoded(answer.records) == [(3, "a")]


@leaping
async def test_the_size_of_an_answer_is_bounded_and_no_partition_starves() -> None:
    broker = Broker(0)
    keys = [FOO, ("foo", 1), ("foo", 2)]
    await broker.leader_and_isr(*(order(0, 3, (0,), replicas=(0,), key=key) for key in keys))
    for key in keys:
        await broker.service.produce(produce_request(batch("x" * 1000), key=key))
    request = fetch_request(max_bytes=1500)
    request.partitions.extend(fetch_request(key=key).partitions[0] for key in keys[1:])
    answers = (await broker.service.fetch(request)).partitions
    assert [bool(answer.records) for answer in answers] == [True, True, False]
    assert all(answer.error_code == codes.NONE for answer in answers)


# --- disks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["append", "read", "search"])
@leaping
async def test_a_refusing_disk_takes_the_replica_offline(what: str) -> None:
    broker = await leading()
    await produce(broker, "a")
    waiting = asyncio.ensure_future(produce(broker, "b", acks=-1))
    await run_ready_tasks()
    broker.log().refuses.add(what)
    if what == "append":
        error = (await produce(broker, "c")).error_code
    elif what == "read":
        error = (await fetch(broker, replica=1, epoch=3)).error_code
    else:
        asked = [wire.ListOffsetsPartition(topic="foo", partition=3, timestamp=0)]
        error = (
            (await broker.service.list_offsets(wire.ListOffsetsRequest(replica_id=1, partitions=asked)))
            .partitions[0]
            .error_code
        )
    assert error == codes.KAFKA_STORAGE_ERROR
    assert [key for key, _ in broker.failures] == [FOO]
    assert broker.manager.get(FOO) is None
    assert (await waiting).error_code == codes.KAFKA_STORAGE_ERROR
    assert (await produce(broker, "d")).error_code == codes.KAFKA_STORAGE_ERROR
    # An order that was on its way does not bring it back.
    assert [a.error for a in await broker.leader_and_isr(order(0, 4, (0, 1, 2), 1))] == [
        codes.KAFKA_STORAGE_ERROR
    ]
    assert broker.manager.get(FOO) is None


# --- offsets and metadata ----------------------------------------------------------------------------------


async def listed(broker: Broker, timestamp: int, replica: int | None = None, epoch: int | None = None) -> Any:
    item = wire.ListOffsetsPartition(
        topic="foo", partition=3, timestamp=timestamp, current_leader_epoch=epoch
    )
    response = await broker.service.list_offsets(
        wire.ListOffsetsRequest(replica_id=replica, partitions=[item])
    )
    (answer,) = response.partitions
    return answer


@leaping
async def test_offsets_are_listed_by_timestamp_up_to_the_high_watermark() -> None:
    broker = await leading()
    for timestamp, value in ((100, "a"), (200, "b")):
        await broker.service.produce(produce_request(batch(value, timestamp_ms=timestamp), acks=1))
    await followers_fetch(broker, 1)
    assert [(await listed(broker, t)).offset for t in (-2, -1, 50, 150)] == [0, 1, 0, -1]
    assert [(await listed(broker, t, replica=1)).offset for t in (-1, 150, 201)] == [2, 1, -1]
    assert (await listed(broker, -3)).error_code == codes.INVALID_REQUEST
    assert (await listed(broker, -1, epoch=2)).error_code == codes.FENCED_LEADER_EPOCH
    # A new leader's high watermark may be below what was committed: it says nothing until it knows.
    await broker.leader_and_isr(order(0, 4, (0, 1, 2), 1))
    assert (await listed(broker, -1)).error_code == codes.OFFSET_NOT_AVAILABLE
    assert (await listed(broker, -2)).offset == 0
    await followers_fetch(broker, 2, epoch=4)
    assert (await listed(broker, -1)).offset == 2
    await broker.leader_and_isr(order(1, 5, (0, 1, 2), 2))
    assert (await listed(broker, -1)).error_code == codes.NOT_LEADER_OR_FOLLOWER


@leaping
async def test_offsets_for_leader_epoch() -> None:
    broker = await leading()
    await produce(broker, "a")
    await broker.leader_and_isr(order(0, 6, (0, 1, 2), 1))
    await produce(broker, "b")

    async def asked(epoch: int, replica: int | None = 1, current: int = 6) -> tuple[int, int, int]:
        item = wire.OffsetForLeaderEpochPartition(
            topic="foo", partition=3, leader_epoch=epoch, current_leader_epoch=current
        )
        request = wire.OffsetsForLeaderEpochRequest(replica_id=replica, partitions=[item])
        (answer,) = (await broker.service.offsets_for_leader_epoch(request)).partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert await asked(3) == await asked(5) == (codes.NONE, 3, 1)
    assert await asked(6) == (codes.NONE, 6, 2)
    assert await asked(7) == (codes.NONE, -1, -1)
    assert await asked(3, current=5) == (codes.FENCED_LEADER_EPOCH, -1, -1)
    # To a consumer that has read the first record a lower end would say that it is gone.
    assert (await listed(broker, -1)).error_code == codes.OFFSET_NOT_AVAILABLE
    assert await asked(3, replica=None) == (codes.NONE, 3, 1)


@leaping
async def test_metadata_names_brokers_leaders_and_errors() -> None:
    broker = Broker(0)
    broker.know((0, 1), PartitionMetadata(FOO, 1, 1, 6, (1,), 0, (1, 2), (2,)))
    broker.know((0, 1), PartitionMetadata(("foo", 1), 1, 2, 7, (2,), 0, (2,), ()))
    broker.know((0, 1), PartitionMetadata(("__consumer_offsets", 0), 1, 1, 6, (1,), 0, (1,), ()))
    response = await broker.service.metadata(wire.MetadataRequest())
    led = wire.MetadataPartition(
        partition=3, leader=1, leader_epoch=6, replicas=[1, 2], isr=[1], offline_replicas=[2]
    )
    not_led = wire.MetadataPartition(
        error_code=codes.LEADER_NOT_AVAILABLE,
        partition=1,
        leader=-1,
        leader_epoch=7,
        replicas=[2],
        isr=[2],
    )
    offsets = wire.MetadataPartition(leader=1, leader_epoch=6, replicas=[1], isr=[1])
    assert response == wire.MetadataResponse(
        controller_id=9,
        brokers=[
            wire.MetadataBroker(broker_id=0, host="h", port=0),
            wire.MetadataBroker(broker_id=1, host="h", port=1),
        ],
        topics=[
            wire.MetadataTopic(topic="__consumer_offsets", is_internal=True, partitions=[offsets]),
            wire.MetadataTopic(topic="foo", partitions=[not_led, led]),
        ],
    )
    named = await broker.service.metadata(wire.MetadataRequest(topics=["bar", "../x"]))
    assert list(named.topics) == [
        wire.MetadataTopic(topic="bar", error_code=codes.UNKNOWN_TOPIC_OR_PARTITION),
        wire.MetadataTopic(topic="../x", error_code=codes.INVALID_TOPIC_EXCEPTION),
    ]


# --- the throttle ------------------------------------------------------------------------------------------


async def copied(broker: Broker, offset: int, follower: int | None) -> int:
    """Bytes of the records in an answer."""
    request = fetch_request(offset, replica=follower, epoch=3 if follower is not None else None)
    response = await broker.service.fetch(request)
    return sum(len(answer.records) for answer in response.partitions)


@leaping
async def test_a_follower_outside_the_isr_gets_nothing_while_the_quota_is_exceeded() -> None:
    broker = await leading(isr=(0, 1))
    await produce(broker, *(f"{n:04}" for n in range(50)))
    await copied(broker, 50, 1)
    broker.quotas.leader.rate_max = 10
    first = await copied(broker, 0, 2)
    assert first > 400
    assert await copied(broker, 0, 2) == 0
    assert await copied(broker, 0, 1) == first, "it is in sync"
    assert await copied(broker, 0, None) == first, "a consumer"
    await asyncio.sleep(11.0)
    assert await copied(broker, 0, 2) == first


@leaping
async def test_what_consumers_read_does_not_count_what_followers_in_sync_copy_does() -> None:
    broker = await leading(isr=(0, 1))
    await produce(broker, *(f"{n:04}" for n in range(50)))
    await copied(broker, 50, 1)
    broker.quotas.leader.rate_max = 10
    assert await copied(broker, 0, None) > 0
    assert not broker.quotas.leader.is_exceeded()
    await copied(broker, 0, 1)
    assert broker.quotas.leader.is_exceeded()


@leaping
async def test_a_throttled_fetch_still_tells_where_the_follower_is() -> None:
    writer = ManualWriter()
    broker = await leading(isr=(0,), writer=writer)
    await produce(broker, "a")
    broker.quotas.leader.rate_max = 0
    broker.quotas.leader.record(FOO, 1)
    await copied(broker, 1, 2)
    await run_ready_tasks()
    (proposals,) = writer.asked
    assert proposals[0].isr == (0, 2)


@leaping
async def test_nothing_is_no_answer_before_the_time_whatever_is_enough() -> None:
    broker = await leading()
    request = fetch_request(replica=1, epoch=3, wait_ms=5_000)
    request.min_bytes = 0
    await broker.service.fetch(request)
    assert broker.loop.time() == pytest.approx(5.0)
