"""Who is taken in a crowd, and how long requests may be."""

from __future__ import annotations

import asyncio
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.security.server import FAILURE_DELAY_S, UNAUTHENTICATED_BYTES_MAX
from controller.runtime.kafka_api import admission, server
from controller.runtime.kafka_api.admission import (
    CLUSTER_ACTIONS,
    CONNECTIONS_MAX,
    CROWDED_IDLE_S,
    GROWING_REQUEST_BYTES_MAX,
    IDLE_S,
    PER_ADDRESS_MAX,
    REQUEST_BYTES_MAX,
    UNAUTHENTICATED_MAX,
    Admission,
    Slot,
    request_bytes_max,
)
from controller.runtime.kafka_api.api_table import METHOD_NAMES, SERVED
from controller.runtime.kafka_api.memory_pool import MemoryPool
from proto.gen.kafka.alter_partition_request import AlterPartitionRequest
from proto.gen.kafka.alter_partition_response import AlterPartitionResponse
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.gen.kafka.list_groups_request import ListGroupsRequest
from proto.gen.kafka.metadata_request import MetadataRequest
from proto.gen.kafka.metadata_response import MetadataResponse, MetadataResponseTopic
from proto.kafka.apis import APIS, ApiKey, encode_request, encode_response
from tests.support.runtime.kafka_callers import ANSWER_S, calling, kafka_server
from tests.support.runtime.sessions import until

HUNG_UP = (asyncio.IncompleteReadError, ConnectionError)


def slot(address: str, used_at: float = 0.0, **state: bool) -> Slot:
    return Slot(address, used_at, lambda: None, **state)


def crowd(count: int, addresses: int = 1, **state: bool) -> tuple[Admission, list[Slot]]:
    """Connections from so many addresses; each was used after the one before it."""
    admitted = Admission()
    slots = [slot(f"10.0.0.{n % addresses}", float(n), **state) for n in range(count)]
    assert [closed for each in slots for closed in admitted.enter(each)] == []
    return admitted, slots


def test_an_address_takes_the_place_of_its_own_oldest_only() -> None:
    admitted, slots = crowd(PER_ADDRESS_MAX, authenticated=True)
    other = slot("10.0.0.9", -5.0, authenticated=True)
    assert admitted.enter(other) == []
    slots[0].used_at = 1e6
    assert admitted.enter(slot("10.0.0.0", 1e6, authenticated=True)) == [slots[1]]
    assert len(admitted) == PER_ADDRESS_MAX + 1


def test_who_is_being_answered_makes_room_after_all_others() -> None:
    admitted, slots = crowd(PER_ADDRESS_MAX, authenticated=True)
    slots[0].busy = True
    assert admitted.enter(slot("10.0.0.0", 1e6, authenticated=True)) == [slots[1]]


def test_brokers_count_for_no_address() -> None:
    admitted, _ = crowd(PER_ADDRESS_MAX, authenticated=True)
    for number in range(5):
        slot_ = slot("10.0.0.0", 1e6 + number, authenticated=True)
        admitted.enter(slot_)
        slot_.broker = True
    assert len(admitted) == PER_ADDRESS_MAX + 4
    assert admitted.enter(slot("10.0.0.0", 1e7, authenticated=True)) == []


def test_callers_nobody_knows_displace_each_other_and_nobody_else() -> None:
    admitted, slots = crowd(UNAUTHENTICATED_MAX, 10)
    known = slot("10.0.0.50", -5.0, authenticated=True)
    assert admitted.enter(known) == []
    assert admitted.enter(slot("10.0.0.60", 1e6)) == [slots[0]]
    assert len(admitted) == UNAUTHENTICATED_MAX + 1


def test_a_full_server_closes_the_longest_idle_that_is_no_broker_and_is_not_being_answered() -> None:
    admitted, slots = crowd(CONNECTIONS_MAX, 100, authenticated=True)
    slots[0].broker = slots[1].busy = True
    new = slot("10.1.0.0", 1e6, authenticated=True)
    assert admitted.enter(new) == [slots[2]]
    for each in [*slots, new]:
        each.busy = True
    assert admitted.enter(slot("10.1.0.0", 1e6, authenticated=True, busy=True)) == [slots[1]]
    assert len(admitted) == CONNECTIONS_MAX


def test_who_sends_a_long_request_slowly_makes_room_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "HELD_BYTES_MAX", 30)
    admitted, (broker, busy, slow, short, last) = crowd(5)
    broker.broker = busy.busy = True
    assert admitted.hold(broker, 100, 10.0) == []
    assert [admitted.hold(each, 10, 10.0) for each in (busy, slow, short)] == [[], [], []]
    assert admitted.hold(last, 15, 10.0) == [slow, short]
    assert admitted.hold(last, 20, 10.0) == []
    assert len(admitted) == 3


def test_of_long_requests_the_one_that_began_first_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "HELD_BYTES_MAX", 20)
    admitted, (idle, slow, last) = crowd(3)
    assert admitted.hold(slow, 10, 10.0) == []
    assert admitted.hold(idle, 10, 11.0) == []
    assert admitted.hold(last, 10, 12.0) == [slow]


def test_nobody_takes_a_brokers_place() -> None:
    admitted, _ = crowd(CONNECTIONS_MAX, 100, authenticated=True, broker=True)
    new = slot("10.1.0.0", 1e6)
    assert admitted.enter(new) == [new]
    admitted.leave(new)
    assert len(admitted) == CONNECTIONS_MAX


def test_in_a_crowd_idle_connections_end_sooner_but_for_brokers() -> None:
    few, slots = crowd(CONNECTIONS_MAX // 2, 100, authenticated=True)
    many, others = crowd(CONNECTIONS_MAX // 2 + 1, 100, authenticated=True)
    assert not few.idle_too_long(slots[0], IDLE_S - 1)
    assert few.idle_too_long(slots[0], IDLE_S)
    assert not many.idle_too_long(others[0], CROWDED_IDLE_S - 1)
    assert many.idle_too_long(others[0], CROWDED_IDLE_S)
    others[0].broker = True
    assert not many.idle_too_long(others[0], IDLE_S - 1)


def test_only_requests_about_partitions_may_be_long() -> None:
    long = {key for key in SERVED if request_bytes_max(key) == GROWING_REQUEST_BYTES_MAX}
    assert {key.name for key in long} == {
        "ALTER_PARTITION", "METADATA", "CREATE_TOPICS", "CREATE_PARTITIONS", "DELETE_TOPICS", "ELECT_LEADERS",
        "ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS",
    }  # fmt: skip
    assert {request_bytes_max(key) for key in set(SERVED) - long} == {REQUEST_BYTES_MAX}
    assert request_bytes_max(999) == REQUEST_BYTES_MAX


def test_the_numbers_are_the_documented_ones() -> None:
    """ADR 10: 64 KiB before authentication, then 2 MiB, and 10 MiB; ADR 12: 2,000 connections, and so on; Kafka's
    ``connections.max.idle.ms`` and ``connection.failed.authentication.delay.ms``."""
    assert (UNAUTHENTICATED_BYTES_MAX, REQUEST_BYTES_MAX, GROWING_REQUEST_BYTES_MAX) == (
        64 * 1024,
        2 * 1024 * 1024,
        10 * 1024 * 1024,
    )
    assert (CONNECTIONS_MAX, UNAUTHENTICATED_MAX, PER_ADDRESS_MAX) == (2000, 200, 100)
    assert (IDLE_S, CROWDED_IDLE_S, FAILURE_DELAY_S) == (600.0, 60.0, 0.1)


def test_what_only_brokers_send_makes_a_connection_a_broker_s() -> None:
    assert {key.name for key in CLUSTER_ACTIONS} == {
        "ALTER_PARTITION",
        "CONTROLLED_SHUTDOWN",
        "ALLOCATE_PRODUCER_IDS",
    }


#: docs/kafka.md: what brokers and clients ask of the controller, what a broker answers in the end, and what Kafka's
#: clients ask of any node.
ANSWERED = """
    CreateTopics CreatePartitions DeleteTopics ElectLeaders AlterPartitionReassignments ListPartitionReassignments
    UpdateFeatures AlterUserScramCredentials AlterPartition ControlledShutdown AllocateProducerIds
    DescribeConfigs AlterConfigs IncrementalAlterConfigs DescribeAcls CreateAcls DeleteAcls
    DescribeUserScramCredentials FindCoordinator
    ApiVersions Metadata DescribeCluster DescribeLogDirs ListGroups ListTransactions
"""


def test_every_documented_request_is_answered() -> None:
    assert sorted(METHOD_NAMES.values()) == sorted(ANSWERED.split())


def test_whatever_changes_something_is_recorded() -> None:
    """But for what has records of its own."""
    reading = ("DESCRIBE_", "LIST_", "FIND_", "API_VERSIONS", "METADATA")
    changing = {key for key in SERVED if not key.name.startswith(reading)}
    assert {key for key, served in SERVED.items() if served.recorded} == changing - {ApiKey.ALTER_PARTITION}


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_what_a_bug_stopped_is_not_answered_as_done(key: ApiKey) -> None:
    # Later versions have no error but those of the coordinators.
    version = 3 if key is ApiKey.FIND_COORDINATOR else APIS[key].versions[-1]
    answer = SERVED[key].fail(key, SimpleNamespace(version=version, request=APIS[key].request()))  # type: ignore[arg-type]
    assert type(answer) is APIS[key].response
    assert getattr(answer, "error_code", -1) == -1


def beginning(key: int, size: int) -> bytes:
    return struct.pack("!ihhi", size, key, 0, 7)


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (ApiKey.LIST_GROUPS, REQUEST_BYTES_MAX + 1),
        (ApiKey.METADATA, GROWING_REQUEST_BYTES_MAX + 1),
        (999, 2**30),
    ],
)
async def test_too_long_a_request_is_hung_up_on_before_it_arrives(
    tmp_path: Path, key: int, size: int
) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as caller:
            await caller.send(beginning(key, size))
            with pytest.raises(HUNG_UP):
                await caller.frame()
    finally:
        daemon.state_log.close()


async def test_a_long_request_about_partitions_is_answered(tmp_path: Path) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as caller:
            frame = encode_request(AlterPartitionRequest(1, 1), 0, 1, "c")
            frame += bytes(REQUEST_BYTES_MAX)
            await caller.send(struct.pack("!i", len(frame)) + frame)
            assert await caller.frame()
    finally:
        daemon.state_log.close()


@pytest.mark.parametrize("long", [False, True])
async def test_only_long_requests_and_their_responses_are_made_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    threads = []

    def noted(*given: Any) -> bytes:
        threads.append(threading.current_thread())
        return encode_response(*given)

    def decoded(*given: Any, **named: Any) -> AlterPartitionRequest:
        threads.append(threading.current_thread())
        return AlterPartitionRequest.decode_at(*given, **named)

    apis = {ApiKey.ALTER_PARTITION: SimpleNamespace(request=SimpleNamespace(decode_at=decoded))}
    monkeypatch.setattr(server, "APIS", apis)
    monkeypatch.setattr(server, "encode_response", noted)
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as caller:
            frame = encode_request(AlterPartitionRequest(1, 1), 0, 1, "c") + bytes(2**16 if long else 0)
            await caller.send(struct.pack("!i", len(frame)) + frame)
            assert await caller.frame()
    finally:
        daemon.state_log.close()
    assert [thread is threading.main_thread() for thread in threads] == [not long] * 2


@pytest.mark.parametrize("topics", [20, 21])
async def test_only_a_response_about_many_topics_is_made_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    threads = []

    def noted(*given: Any) -> bytes:
        threads.append(threading.current_thread())
        return encode_response(*given)

    async def handle(_: Any) -> Any:
        return MetadataResponse(topics=[MetadataResponseTopic(name="t")] * topics)

    monkeypatch.setattr(server, "encode_response", noted)
    monkeypatch.setitem(SERVED, ApiKey.METADATA, replace(SERVED[ApiKey.METADATA], handle=handle))
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as caller:
            assert len((await caller.call(MetadataRequest(None))).topics) == topics
    finally:
        daemon.state_log.close()
    assert [thread is threading.main_thread() for thread in threads] == [topics == 20]


@pytest.mark.parametrize("what", ["long requests", "everything", "everything, in version 0"])
async def test_what_takes_much_memory_is_answered_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    active, most = 0, 0

    async def handle(call: Any) -> Any:
        nonlocal active, most
        active += 1
        most = max(most, active)
        for _ in range(1000):
            await asyncio.sleep(0)
        active -= 1
        return responses[call.request.API_KEY]

    responses = {ApiKey.ALTER_PARTITION: AlterPartitionResponse(), ApiKey.METADATA: MetadataResponse()}
    for key in responses:
        monkeypatch.setitem(SERVED, key, replace(SERVED[key], handle=handle))
    monkeypatch.setattr(server, "GROWING_REQUEST_BYTES_MAX", 2**17)
    long = encode_request(AlterPartitionRequest(1, 1), 0, 1, "c") + bytes(2**16)
    everything = MetadataRequest([]), 0
    if not what.endswith("0"):
        everything = MetadataRequest(None), 12
    frame = long if what == "long requests" else encode_request(*everything, 1, "c")
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(calling(port)) for _ in range(3)]
            for caller in callers:
                await caller.send(struct.pack("!i", len(frame)) + frame)
            for caller in callers:
                assert await caller.frame()
    finally:
        daemon.state_log.close()
    assert most == 1


async def test_room_is_for_who_came_first() -> None:
    pool, entered, leave = MemoryPool(10), list[int](), {size: asyncio.Event() for size in (6, 5, 4)}

    async def stay(size: int) -> None:
        async with pool.taken(size):
            entered.append(size)
            await leave[size].wait()

    async with asyncio.TaskGroup() as group:
        first, second, _ = [group.create_task(stay(size)) for size in leave]
        await until(lambda: entered == [6], "the first")
        second.cancel()
        await until(lambda: entered == [6, 4], "the third, in the place of the second")
        again = group.create_task(stay(5))
        leave[6].set()
        await first
        await until(lambda: entered == [6, 4, 5], "another one, in the place of the first")
        assert not again.done()
        for event in leave.values():
            event.set()


async def test_room_is_there_once_it_is_enough() -> None:
    pool, leave, entered = MemoryPool(10), [asyncio.Event() for _ in range(2)], asyncio.Event()

    async def stay(size: int, until_: asyncio.Event) -> None:
        async with pool.taken(size):
            await until_.wait()

    async def wait() -> None:
        async with pool.taken(8):
            entered.set()

    async with asyncio.TaskGroup() as group:
        small, large = (
            group.create_task(stay(size, event)) for size, event in zip((4, 6), leave, strict=True)
        )
        group.create_task(wait())
        await until(lambda: pool._left == 0, "both")
        leave[0].set()
        await small
        for _ in range(9):
            await asyncio.sleep(0)
        assert (pool._left, entered.is_set()) == (4, False)
        leave[1].set()
        await large
        await entered.wait()


async def test_long_requests_take_no_thread_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def decoded(*given: Any, **named: Any) -> AlterPartitionRequest:
        begun.set()
        goes_on.wait()
        return AlterPartitionRequest.decode_at(*given, **named)

    apis = {ApiKey.ALTER_PARTITION: SimpleNamespace(request=SimpleNamespace(decode_at=decoded))}
    monkeypatch.setattr(server, "APIS", apis)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as caller:
            frame = encode_request(AlterPartitionRequest(1, 1), 0, 1, "c") + bytes(2**16)
            await caller.send(struct.pack("!i", len(frame)) + frame)
            await until(begun.is_set, "a long request to be decoded")
            async with asyncio.timeout(ANSWER_S):
                await asyncio.to_thread(int)
    finally:
        goes_on.set()
        daemon.state_log.close()


async def test_who_has_left_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admitted = Admission()
    monkeypatch.setattr(server, "Admission", lambda: admitted)
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as caller:
            await caller.call(ApiVersionsRequest("x", "1"))
            assert len(admitted) == 1
    finally:
        daemon.state_log.close()
    assert len(admitted) == 0


async def test_a_crowd_of_clients_leaves_the_brokers_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "PER_ADDRESS_MAX", 2)
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        async with kafka_server(daemon) as port, calling(port) as broker:
            await broker.call(AlterPartitionRequest(1, 1))
            async with calling(port) as first, calling(port) as second:
                for client in (first, second):
                    await client.call(ApiVersionsRequest("x", "1"))
                async with calling(port) as third:
                    await third.call(ListGroupsRequest())
                    with pytest.raises(HUNG_UP):
                        await first.call(ListGroupsRequest())
                    await second.call(ListGroupsRequest())
                    await broker.call(AlterPartitionRequest(1, 1))
    finally:
        daemon.state_log.close()


async def test_long_requests_that_arrive_slowly_take_so_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HELD_BYTES_MAX", 1000)
    monkeypatch.setattr(server, "AT_ONCE_BYTES_MAX", 500)
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    whole = encode_request(ListGroupsRequest(), 0, 1, "c") + bytes(900)
    half = struct.pack("!ihhi", 900, ApiKey.METADATA, 1, 1)
    try:
        async with kafka_server(daemon) as port, calling(port) as slow, calling(port) as another:
            for each in (slow, another, slow):
                await each.send(struct.pack("!i", len(whole)) + whole)
                await each.frame()
            await slow.send(half)
            await another.call(ListGroupsRequest())
            await another.send(half)
            with pytest.raises(HUNG_UP):
                await slow.frame()
    finally:
        daemon.state_log.close()
