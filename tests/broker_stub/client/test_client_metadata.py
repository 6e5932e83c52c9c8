"""Client metadata from brokers that may be outdated; partitions of keys; error codes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.client import metadata
from broker_stub.client.errors import (
    COORDINATOR_MOVED,
    NOT_APPENDED,
    RETRIABLE,
    FatalError,
    GaveUpError,
    MemberError,
    OffsetRangeError,
    RetriableError,
    UnreachableError,
    error_of,
)
from broker_stub.client.metadata import ClusterView, Leader, Metadata, parse_bootstrap, retry
from broker_stub.client.partitioner import StickyPartitioner, murmur2, partition_for_key
from proto.error_names import error_name
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.fake_cluster import TOPIC, FakeCluster, address

KEY = (TOPIC, 0)


def metadata_response(
    leader: int, epoch: int, topic_id: str = "", partitions: int = 1
) -> wire.MetadataResponse:
    return wire.MetadataResponse(
        brokers=[wire.MetadataBroker(broker_id=n, host="h", port=9000 + n) for n in (1, 2, 3)],
        topics=[
            wire.MetadataTopic(
                topic=TOPIC,
                topic_id=topic_id,
                partitions=[
                    wire.MetadataPartition(partition=n, leader=leader, leader_epoch=epoch)
                    for n in range(partitions)
                ],
            )
        ],
    )


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1))
def test_the_newest_leader_epoch_counts_in_whatever_order(answers: list[tuple[int, int]]) -> None:
    view = ClusterView()
    newest = -1
    for leader, epoch in answers:
        view.apply(metadata_response(leader, epoch))
        newest = max(newest, epoch)
        found = view.leader(KEY)
        assert found is not None
        assert found.leader_epoch == newest


def test_a_topic_created_anew_begins_at_epoch_0() -> None:
    view = ClusterView()
    view.apply(metadata_response(1, 7, "a", partitions=3))
    view.apply(metadata_response(2, 0, "a"))
    assert view.leader(KEY) == Leader(1, 7, "h:9001")
    view.apply(metadata_response(2, 0, "b"))
    assert view.leader(KEY) == Leader(2, 0, "h:9002")
    assert view.partitions(TOPIC) == [0]


def test_what_an_answer_leaves_out_stays_known() -> None:
    view = ClusterView()
    view.apply(metadata_response(1, 7, partitions=2))
    view.apply(wire.MetadataResponse())
    error = wire.MetadataTopic(topic=TOPIC, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
    view.apply(wire.MetadataResponse(topics=[error]))
    assert view.partitions(TOPIC) == [0, 1]
    assert view.topics() == [TOPIC]


def test_nobody_leads_or_nobody_knows_where() -> None:
    view = ClusterView()
    view.apply(metadata_response(-1, 3))
    assert view.leader(KEY) is None
    view.apply(metadata_response(9, 4))
    assert view.leader(KEY) is None
    view.apply(metadata_response(1, 5))
    view.apply(metadata_response(-1, 5))
    assert view.leader(KEY) is None
    view.apply(metadata_response(9, 6))
    assert view.leader(("other", 0)) is None
    view.brokers[9] = "h:1"
    assert view.leader(KEY) == Leader(9, 6, "h:1")


async def test_a_refusal_that_names_no_leader_unseats_nobody() -> None:
    cluster = FakeCluster()
    found = Metadata(cluster, cluster.bootstrap)
    await found.refresh()
    found.notified(KEY, -1, 9)
    assert (await found.leader(KEY)).broker_id == 1
    found.notified(KEY, 2, 9)
    assert (await found.leader(KEY)).broker_id == 2


async def test_any_broker_that_answers_will_do() -> None:
    cluster = FakeCluster(brokers=3)
    cluster.up[1] = cluster.up[3] = False
    found = Metadata(cluster, cluster.bootstrap)
    with pytest.raises(RetriableError) as raised:
        await found.leader(("other", 0))
    assert raised.value.code == codes.UNKNOWN_TOPIC_OR_PARTITION
    cluster.move(0, 2)
    await found.refresh()
    assert (await found.leader(KEY)).address == address(2)


async def test_who_gives_up_a_refresh_leaves_it_to_the_others() -> None:
    cluster = FakeCluster()
    found = Metadata(cluster, cluster.bootstrap)
    gives_up, waits = (asyncio.create_task(found.refresh()) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    await waits
    assert gives_up.cancelled()
    assert len(cluster.asked("Metadata")) == 1


async def test_brokers_take_turns_so_that_one_left_behind_cannot_hide_the_leader() -> None:
    cluster = FakeCluster(brokers=2)
    found = Metadata(cluster, cluster.bootstrap)
    await found.refresh()
    cluster.stale[1] = metadata_response(1, 0)
    cluster.move(0, 2)
    for _ in range(2):
        await found.refresh()
    assert (await found.leader(KEY)).broker_id == 2


async def test_old_metadata_is_refreshed_though_nothing_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    found = Metadata(cluster, cluster.bootstrap)
    await found.leader(KEY)
    await found.leader(KEY)
    assert len(cluster.asked("Metadata")) == 1
    monkeypatch.setattr(metadata, "MAX_AGE_S", 0.0)
    cluster.up[2] = False
    cluster.up[1] = False
    # The refresh fails in the background and raises nothing.
    assert (await found.leader(KEY)).address == address(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(cluster.asked("Metadata")) > 1
    await found.close()


async def test_bootstrap_addresses_are_tried_when_no_known_broker_answers() -> None:
    cluster = FakeCluster(brokers=3)
    cluster.stale[3] = metadata_response(1, 0)
    del cluster.stale[3].brokers[2]
    found = Metadata(cluster, [address(3)])
    await found.refresh()
    assert sorted(found.view.brokers) == [1, 2]
    cluster.up[1] = cluster.up[2] = False
    await found.refresh()
    assert cluster.asked("Metadata")[-1] == address(3)


async def test_nobody_answers() -> None:
    cluster = FakeCluster()
    cluster.up = dict.fromkeys(cluster.up, False)
    with pytest.raises(UnreachableError, match=r"h:9001.*connection refused.*h:9002"):
        await Metadata(cluster, ["h:9001", "h:9002"]).refresh()


async def test_a_broker_that_knows_nothing_yet_is_passed_over() -> None:
    cluster = FakeCluster()
    cluster.stale[1] = wire.MetadataResponse()
    found = Metadata(cluster, cluster.bootstrap)
    await found.refresh()
    assert found.view.partitions(TOPIC) == [0]


async def test_persisting_ends_with_success_a_refusal_or_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BACKOFF_FIRST_S", 0.0)
    errors = [RetriableError(codes.LEADER_NOT_AVAILABLE, "x")] * 3
    refreshed = []

    async def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    async def refresh() -> None:
        refreshed.append(1)

    assert await retry(work, 10, refresh) == "done"
    assert len(refreshed) == 3
    errors = [RetriableError(codes.LEADER_NOT_AVAILABLE, "x", "why")]
    with pytest.raises(GaveUpError, match=r"x: LEADER_NOT_AVAILABLE \(given up after 0 s; why\)"):
        await retry(work, 0)
    errors = [RetriableError(codes.LEADER_NOT_AVAILABLE, "x", "why")]
    monkeypatch.setattr(metadata, "BACKOFF_FIRST_S", 100.0)
    monkeypatch.setattr(metadata, "BACKOFF_MAX_S", 100.0)
    with pytest.raises(GaveUpError, match="given up after 5 s"):
        await retry(work, 5)


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:1,", "h:²"])
def test_bad_bootstrap_addresses_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_bootstrap(text)


def test_good_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == ["a:1", "[::1]:2"]
    assert parse_bootstrap(["a:1"]) == ["a:1"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


@given(st.binary(), st.integers(1, 20))
def test_every_key_has_one_partition(key: bytes, count: int) -> None:
    partitions = list(range(count))
    found = partition_for_key(key, partitions)
    assert found in partitions
    assert StickyPartitioner().choose(key, 1, partitions) == found


#: Those of Kafka's RetriableException that a broker of ours may answer, and a broker that is gone.
KAFKAS_RETRIABLE = {
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_ID",
    "BROKER_NOT_AVAILABLE",
}


def test_what_is_tried_again_is_what_kafka_s_clients_try_again() -> None:
    assert {error_name(code) for code in RETRIABLE} == KAFKAS_RETRIABLE
    # Both are answers of a broker that is not, or no longer, the group's.
    assert {error_name(code) for code in COORDINATOR_MOVED} == {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
    }
    # After these the records may be there.
    assert {error_name(code) for code in RETRIABLE - NOT_APPENDED} >= {
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_LEADER_OR_FOLLOWER",
    }


def test_error_codes_say_whether_to_ask_again() -> None:
    assert isinstance(error_of(codes.NOT_LEADER_OR_FOLLOWER, "x"), RetriableError)
    assert isinstance(error_of(codes.ILLEGAL_GENERATION, "x"), MemberError)
    assert isinstance(error_of(codes.OFFSET_OUT_OF_RANGE, "x"), OffsetRangeError)
    assert isinstance(error_of(codes.UNKNOWN_SERVER_ERROR, "x"), FatalError)
    assert str(error_of(codes.INVALID_REQUEST, "asked", "why")) == "asked: INVALID_REQUEST (why)"
    assert error_name(-77) == "error -77"
