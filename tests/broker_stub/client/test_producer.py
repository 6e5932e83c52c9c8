"""The producer against brokers that refuse, fall silent and move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
import pytest_asyncio

from broker_stub.client import metadata
from broker_stub.client import producer as producer_module
from broker_stub.client.errors import DeliveryError, GaveUpError
from broker_stub.client.producer import Delivery, Producer
from broker_stub.log import batches
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.fake_cluster import TOPIC, FakeCluster, Fault, address
from tests.support.runtime.sessions import until

SILENT, LOST_ANSWER = Fault(), Fault(applied=True)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BACKOFF_FIRST_S", 0.0)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest_asyncio.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap, connections=cluster, delivery_timeout_ms=20_000) as made:
        yield made


def values(cluster: FakeCluster, number: int = 0) -> list[bytes | None]:
    log = cluster.partitions[TOPIC, number].log
    data = log.read(0, 1 << 30, log.log_end_offset)
    return [record.value for record in batches.decode(data)]


async def test_offsets_are_those_of_the_log(cluster: FakeCluster, producer: Producer) -> None:
    assert await producer.send(TOPIC, 0, [(None, b"a"), (b"k", b"b")]) == 0
    assert await producer.send(TOPIC, 0, [(None, b"c")]) == 2
    assert values(cluster) == [b"a", b"b", b"c"]
    assert cluster.asked("Produce") == [address(1)] * 2


async def test_sends_of_several_records_that_share_a_request_each_get_their_own_first_offset(
    cluster: FakeCluster, producer: Producer
) -> None:
    asked_ms: list[int] = []
    produce = cluster.handlers["Produce"]
    cluster.handlers["Produce"] = lambda broker, request: (
        asked_ms.append(request.timeout_ms) or produce(broker, request)  # type: ignore[func-returns-value]
    )
    records = [[(None, b"%d" % n)] * (n + 1) for n in range(4)]
    sends = [asyncio.create_task(producer.send(TOPIC, 0, some)) for some in records]
    assert await asyncio.gather(*sends) == [0, 1, 3, 6]
    assert asked_ms == [5000], "how long brokers may take"


@pytest.mark.parametrize(
    ("fault", "attempts", "copies"),
    [
        (Fault(codes.NOT_LEADER_OR_FOLLOWER), 2, 1),
        (Fault(codes.NOT_LEADER_OR_FOLLOWER, applied=True), 2, 2),
        (Fault(codes.REQUEST_TIMED_OUT, applied=True), 2, 2),
        (Fault(codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND, applied=True), 2, 2),
        (Fault(codes.KAFKA_STORAGE_ERROR), 2, 1),
        (Fault(codes.NOT_ENOUGH_REPLICAS), 1, 1),
        (Fault(codes.LEADER_NOT_AVAILABLE), 1, 1),
        (Fault(codes.UNKNOWN_TOPIC_OR_PARTITION), 1, 1),
        (SILENT, 2, 1),
        (LOST_ANSWER, 2, 2),
    ],
)
async def test_a_retry_counts_what_may_have_landed(
    cluster: FakeCluster, producer: Producer, fault: Fault, attempts: int, copies: int
) -> None:
    cluster.fail("Produce", fault)
    delivery = await producer.deliver(TOPIC, 0, [(None, b"v")])
    assert delivery == Delivery(copies - 1, attempts)
    assert values(cluster) == [b"v"] * copies
    assert attempts >= copies


async def test_a_refusal_that_names_the_leader_is_believed(cluster: FakeCluster, producer: Producer) -> None:
    """No broker's metadata knows of the move yet."""
    await producer.send(TOPIC, 0, [(None, b"a")])
    old = cluster.handlers["Metadata"](1, None)
    assert isinstance(old, wire.MetadataResponse)
    cluster.stale = {1: old, 2: old}
    cluster.move(0, 2)
    assert await producer.deliver(TOPIC, 0, [(None, b"b")]) == Delivery(1, 2)


async def test_a_refused_connection_counts_as_nothing(cluster: FakeCluster, producer: Producer) -> None:
    await producer.send(TOPIC, 0, [(None, b"first")])
    cluster.up[1] = False
    sending = asyncio.create_task(producer.deliver(TOPIC, 0, [(None, b"v")]))
    await asyncio.sleep(0.01)
    assert not sending.done()
    cluster.move(0, 2)
    assert (await sending).attempts == 1
    assert cluster.asked("Produce")[-1] == address(2)


async def test_sends_to_one_partition_stay_in_order_through_retries(
    cluster: FakeCluster, producer: Producer
) -> None:
    refused = Fault(codes.NOT_ENOUGH_REPLICAS)
    cluster.fail("Produce", refused, refused, refused)
    sends = [asyncio.create_task(producer.send(TOPIC, 0, [(None, b"%d" % n)])) for n in range(20)]
    assert await asyncio.gather(*sends) == list(range(20))
    assert values(cluster) == [b"%d" % n for n in range(20)]
    assert len(cluster.asked("Produce")) == 3 + 1


async def test_partitions_do_not_wait_for_each_other() -> None:
    cluster = FakeCluster(brokers=2, partitions=2)
    async with Producer(cluster.bootstrap, connections=cluster, delivery_timeout_ms=20_000) as producer:
        cluster.up[1] = False
        stuck = asyncio.create_task(producer.send(TOPIC, 0, [(None, b"a")]))
        assert await producer.send(TOPIC, 1, [(None, b"b")]) == 0
        assert not stuck.done()
        cluster.up[1] = True
        assert await stuck == 0


async def test_a_send_too_large_fails_alone(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, connections=cluster, batch_bytes=1 << 23) as producer:
        items = [b"w", b"x", b"y" * (1 << 21), b"z"]
        sends = [asyncio.create_task(producer.send(TOPIC, 0, [(None, value)])) for value in items]
        assert list(await asyncio.gather(sends[0], sends[1], sends[3])) == [0, 1, 2]
        with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE") as raised:
            await sends[2]
    assert raised.value.attempts == 0
    assert values(cluster) == [b"w", b"x", b"z"]
    assert len(cluster.asked("Produce")) == 1 + 4


async def test_sends_share_a_request_up_to_its_limit(cluster: FakeCluster) -> None:
    """Each is 116 bytes with what a record costs."""
    async with Producer(cluster.bootstrap, connections=cluster, batch_bytes=240) as producer:
        sends = [asyncio.create_task(producer.send(TOPIC, 0, [(None, b"v" * 100)])) for _ in range(5)]
        assert await asyncio.gather(*sends) == [0, 1, 2, 3, 4]
    assert len(cluster.asked("Produce")) == 3


async def test_two_sends_that_are_too_large_together_are_sent_one_by_one(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, connections=cluster, batch_bytes=1 << 23) as producer:
        sends = [asyncio.create_task(producer.send(TOPIC, 0, [(None, b"v" * 600_000)])) for _ in range(2)]
        assert await asyncio.gather(*sends) == [0, 1]
    assert len(cluster.asked("Produce")) == 1 + 2


async def test_an_answer_that_does_not_name_the_partition_leaves_open_what_became_of_it(
    cluster: FakeCluster, producer: Producer
) -> None:
    produce = cluster.handlers["Produce"]

    def nameless(broker: int, request: wire.ProduceRequest) -> wire.ProduceResponse:
        produce(broker, request)
        cluster.handlers["Produce"] = produce
        return wire.ProduceResponse()

    cluster.handlers["Produce"] = nameless
    assert await producer.deliver(TOPIC, 0, [(None, b"v")]) == Delivery(1, 2)


async def test_a_request_is_given_up_at_the_deadline_of_its_first_send(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 50))
    fifty_s_a_look = SimpleNamespace(monotonic=lambda: float(next(clock)), time_ns=time.time_ns)
    monkeypatch.setattr(producer_module, "time", fifty_s_a_look)
    async with Producer(cluster.bootstrap, connections=cluster, delivery_timeout_ms=120_000) as producer:
        await producer.metadata.refresh()
        cluster.fail("Produce", Fault(codes.NOT_ENOUGH_REPLICAS))
        sends = [asyncio.create_task(producer.send(TOPIC, 0, [(None, b"v")])) for _ in range(2)]
        refused = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(error) for error in refused] == [DeliveryError, DeliveryError]
    assert len(cluster.asked("Produce")) == 1


async def test_it_gives_up_in_time_and_says_what_may_exist(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, connections=cluster, delivery_timeout_ms=500) as producer:
        cluster.fail("Produce", Fault(codes.REQUEST_TIMED_OUT, applied=True))
        cluster.lasting_faults["Produce"] = Fault(codes.NOT_ENOUGH_REPLICAS)
        with pytest.raises(
            DeliveryError, match=r"Produce t-0 of broker 1 at h:9001: NOT_ENOUGH_REPLICAS"
        ) as raised:
            await producer.send(TOPIC, 0, [(None, b"v")])
        assert raised.value.attempts == 1
        assert raised.value.code == codes.NOT_ENOUGH_REPLICAS


async def test_closing_fails_what_is_under_way(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap, connections=cluster, delivery_timeout_ms=20_000)
    cluster.lasting_faults["Produce"] = Fault(codes.NOT_ENOUGH_REPLICAS)
    sends = [asyncio.create_task(producer.send(TOPIC, 0, [(None, b"v")])) for _ in range(2)]
    await until(lambda: len(cluster.asked("Produce")) > 1, "a refusal")
    await producer.close()
    for send in sends:
        with pytest.raises(DeliveryError, match=r"closed; last error: .*NOT_ENOUGH_REPLICAS"):
            await send
    assert cluster.calls[-1][0] == "close"


async def test_nobody_is_waited_for_with_acks_0(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, 0, connections=cluster) as producer:
        assert await producer.deliver(TOPIC, 0, [(None, b"v")]) == Delivery(-1, 1)
    assert values(cluster) == [b"v"]


async def test_bad_arguments(cluster: FakeCluster, producer: Producer) -> None:
    with pytest.raises(ValueError, match="acks = 2: must be one of -1, 0, 1"):
        Producer(cluster.bootstrap, 2, connections=cluster)
    with pytest.raises(ValueError, match="records: must be at least one"):
        await producer.send(TOPIC, 0, [])
    with pytest.raises(ValueError, match="bootstrap"):
        Producer([], connections=cluster)


async def test_keys_have_their_partition_and_others_any() -> None:
    cluster = FakeCluster(partitions=3)
    async with Producer(
        cluster.bootstrap, connections=cluster, batch_bytes=10, delivery_timeout_ms=20
    ) as producer:
        assert {await producer.choose_partition(TOPIC, b"21", 1) for _ in range(5)} == {
            (-973932308 & 0x7FFFFFFF) % 3
        }
        assert [await producer.choose_partition(TOPIC, None, 5) for _ in range(5)] == [0, 0, 1, 1, 2]
        with pytest.raises(GaveUpError, match="partitions of topic 'nope': UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.choose_partition("nope", None, 1)
