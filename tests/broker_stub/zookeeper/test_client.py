"""What the broker keeps in ZooKeeper, on a real server: answers lost on the way, sessions that end, bad znodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from broker_stub.control.gates import ControllerTerm
from broker_stub.zookeeper import registration
from broker_stub.zookeeper.client import ClusterStore, StoreUnavailable
from broker_stub.zookeeper.codecs import ConfigKind, MalformedZnode
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from controller.runtime.zookeeper import codecs
from proto.incarnations import new_incarnation
from tests.broker_stub.test_cases import CASES
from tests.support.broker.store_harness import change, opened, put, until
from tests.support.runtime.proxy import Proxy, proxied
from tests.support.runtime.sessions import expire

pytestmark = pytest.mark.slow

SET_DATA = 5
STATE = "/brokers/topics/foo/partitions/0/state"


@pytest.fixture
async def store(zookeeper: str) -> AsyncIterator[ClusterStore]:
    async with opened(zookeeper) as made:
        yield made.store


@pytest.fixture
async def proxy(zookeeper: str) -> AsyncIterator[Proxy]:
    async with proxied(zookeeper) as made:
        yield made


# --- the controller ----------------------------------------------------------------------------------------


async def test_the_active_controller(store: ClusterStore, zk: KazooClient) -> None:
    assert await store.controller_endpoint() is None
    await put(zk, "/controller", codecs.encode_controller(100, "[::1]:9191"))
    assert await store.controller_endpoint() == ("::1", 9191)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "data begins"),
        (b"\xff{", "malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"brokerid":1,"endpoint":7}', r"Expected `str`, got `int` - at `\$.endpoint`"),
        (b'{"version":2,"brokerid":1,"timestamp":"1"}', "endpoint = '': must be HOST:PORT"),
        (b'{"brokerid":1,"endpoint":"host"}', "endpoint = 'host': must be HOST:PORT"),
        (b'{"brokerid":1,"endpoint":"host:0"}', "endpoint = 'host:0': must be HOST:PORT"),
    ],
)
async def test_a_malformed_controller(store: ClusterStore, zk: KazooClient, data: bytes, words: str) -> None:
    await put(zk, "/controller", data)
    with pytest.raises(MalformedZnode, match=f"^/controller: .*{words}"):
        await store.controller_endpoint()


async def test_the_controller_s_term(store: ClusterStore, zk: KazooClient) -> None:
    with pytest.raises(StoreUnavailable, match=r"^/controller_epoch does not exist"):
        await store.controller_term(1)
    await put(zk, "/controller_epoch", b"7")
    written = zk.exists("/controller_epoch").mzxid
    assert await store.controller_term(2) == ControllerTerm(2, 7, written, -1)
    await put(zk, "/controller", codecs.encode_controller(3, "h:1"))
    assert await store.controller_term(3) == ControllerTerm(3, 7, written, 3)
    await put(zk, "/controller", b"?")
    assert (await store.controller_term(4)).controller_id == -1


@pytest.mark.parametrize("data", [b"", b"-1", b"2147483648", b"9" * 5000, b"1.0", b"\xff"])
async def test_a_malformed_controller_epoch(store: ClusterStore, zk: KazooClient, data: bytes) -> None:
    await put(zk, "/controller_epoch", data)
    with pytest.raises(MalformedZnode, match=r"^/controller_epoch: .*must be a decimal number from 0 to"):
        await store.controller_term(1)


# --- partition states --------------------------------------------------------------------------------------


async def test_state_by_version(store: ClusterStore, zk: KazooClient) -> None:
    assert await store.get_state("foo", 0) is None
    assert await store.set_state("foo", 0, b"a", 0) is None
    await put(zk, STATE, b"first")
    assert await store.get_state("foo", 0) == (b"first", 1)
    assert await store.set_state("foo", 0, b"second", 1) == 2
    assert await store.set_state("foo", 0, b"third", 1) is None
    assert await store.set_state("foo", 0, b"second", 1) is None
    assert await store.get_state("foo", 0) == (b"second", 2)


async def test_a_write_whose_answer_is_lost_counts_once(proxy: Proxy, zk: KazooClient) -> None:
    await put(zk, STATE, b"first")
    async with opened(proxy.connect) as made:
        proxy.lose_answers.append(SET_DATA)
        assert await made.store.set_state("foo", 0, b"second", 1) == 2
    assert proxy.lose_answers == []
    assert zk.get(STATE)[1].version == 2


async def test_a_conflict_whose_answer_is_lost_stays_one(proxy: Proxy, zk: KazooClient) -> None:
    await put(zk, STATE, b"first")
    async with opened(proxy.connect) as made:
        proxy.lose_answers.append(SET_DATA)
        assert await made.store.set_state("foo", 0, b"second", 0) is None
        proxy.lose_answers.append(SET_DATA)
        assert await made.store.set_state("foo", 0, b"first", 7) is None
    assert proxy.lose_answers == []
    assert zk.get(STATE)[0] == b"first"


async def test_thousands_of_reads_at_once_do_not_block(store: ClusterStore, zk: KazooClient) -> None:
    """More than kazoo's pipe takes without a reader."""
    await put(zk, STATE, b"first")
    found = await asyncio.gather(*(store.get_state("foo", 0) for _ in range(2000)))
    assert set(found) == {(b"first", 1)}


# --- connection and session --------------------------------------------------------------------------------


async def test_k504_isr_changes_are_notified_in_sequence(store: ClusterStore, zk: KazooClient) -> None:
    row = CASES["K504"]
    await asyncio.to_thread(zk.ensure_path, "/isr_change_notification")
    for names in row["when"]["propagate"]:
        await store.notify_isr_changes([(name[:-2], int(name[-1])) for name in names])
    for path, value in row["then"]["zk"].items():
        listed = [{"topic": name[:-2], "partition": int(name[-1])} for name in value["partitions"]]
        assert json.loads(zk.get(path)[0]) == {"version": value["version"], "partitions": listed}


async def test_a_short_disconnection_is_waited_out(proxy: Proxy, zk: KazooClient) -> None:
    await put(zk, STATE, b"first")
    async with opened(proxy.connect) as made:
        proxy.refusing = True
        proxy.drop()
        await made.disconnected()
        reads = [asyncio.create_task(made.store.get_state("foo", 0)) for _ in range(1000)]
        await asyncio.sleep(0.1)
        assert not any(read.done() for read in reads)
        proxy.refusing = False
        assert set(await asyncio.gather(*reads)) == {(b"first", 1)}


async def test_a_long_disconnection_is_not(proxy: Proxy) -> None:
    async with opened(proxy.connect, timeout_s=0.3) as made:
        proxy.refusing = True
        proxy.drop()
        await made.disconnected()
        calls: list[Any] = [
            made.store.controller_endpoint(),
            made.store.topic_config("foo"),
            made.store.get_state("foo", 0),
            made.store.set_state("foo", 0, b"", 0),
            made.store.notify_isr_changes([("foo", 0)]),
            made.store.create_topic("foo", {0: [1]}, {}),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match=r"/.*: no response of ZooKeeper in 0\.3 s"):
                await call
        assert proxy.requests.get(SET_DATA, 0) == 0


async def test_calls_of_an_outage_are_not_left_to_kazoo(proxy: Proxy) -> None:
    """Each would leave a byte in its pipe, and the write that finds the pipe full blocks the loop."""
    async with opened(proxy.connect, timeout_s=0.05) as made:
        proxy.refusing = True
        proxy.drop()
        await made.disconnected()
        calls = [made.store.get_state("foo", 0) for _ in range(100)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert len(made.client._queue) == 0


async def test_calls_under_way_end_with_the_session(store: ClusterStore) -> None:
    never = store._client.handler.async_result()  # type: ignore[union-attr]

    async def call() -> None:
        async with store._bounded("read of /x"):
            await store._once(lambda _client: never)

    ongoing = asyncio.create_task(call())
    await until(lambda: store._pending)
    store.session(None)
    with pytest.raises(StoreUnavailable, match=r"^read of /x: SessionExpiredError the session is over$"):
        await ongoing
    # What comes too late is for nobody.
    never.set(None)


async def test_an_expired_session_is_not_gone_on_with(zookeeper: str) -> None:
    async with opened(zookeeper) as made:
        await asyncio.to_thread(expire, zookeeper, made.client.client_id)
        await until(lambda: made.store._client is None)
        await until(lambda: made.client.connected)
        with pytest.raises(StoreUnavailable, match="no ZooKeeper session"):
            await made.store.controller_endpoint()


async def test_without_a_session_reads_fail_until_there_is_one(zookeeper: str) -> None:
    store = ClusterStore(lambda _error: None)
    with pytest.raises(StoreUnavailable, match=r"^read of /controller: no ZooKeeper session$"):
        await store.controller_endpoint()
    client = KazooClient(zookeeper)
    await asyncio.to_thread(client.start, 20)
    store.session(client)
    await until(store._connected.is_set)
    assert await store.controller_endpoint() is None
    store.session(None)
    await until(lambda: not store._connected.is_set())
    with pytest.raises(StoreUnavailable, match="no ZooKeeper session"):
        await store.controller_endpoint()
    client.stop()
    client.close()
    await store.close()


# --- with the registrar ------------------------------------------------------------------------------------


@asynccontextmanager
async def registered(
    connect: str, on_session: Callable[[KazooClient | None], None], broker_id: int = 1
) -> AsyncIterator[tuple[Registrar, list[int]]]:
    """A registrar and the broker epochs it got."""
    epochs: list[int] = []
    failures: list[BaseException] = []
    identity, timeouts = Identity(broker_id, "h", 9092, None, new_incarnation()), Timeouts(4000, 20_000)
    registrar = Registrar(identity, connect, timeouts, epochs.append, failures.append, on_session)
    registrar.start()
    await until(lambda: epochs)
    try:
        yield registrar, epochs
    finally:
        await asyncio.to_thread(registrar.stop, 20)
    assert failures == []


async def test_from_session_to_session(zookeeper: str, zk: KazooClient) -> None:
    store = ClusterStore(lambda _error: None, 30.0)
    clients: list[KazooClient | None] = []

    def hand_over(client: KazooClient | None) -> None:
        clients.append(client)
        store.session(client)

    changed: list[str | None] = []
    store.watch_config_changes({ConfigKind.TOPIC: changed.append})
    async with registered(zookeeper, hand_over) as (_, epochs):
        await until(lambda: changed == [None])
        await put(zk, STATE, b"first")
        assert await store.get_state("foo", 0) == (b"first", 1)
        assert clients[0] is not None
        await asyncio.to_thread(expire, zookeeper, clients[0].client_id)
        await until(lambda: len(epochs) == 2)
        await until(lambda: changed == [None, None])
        assert await store.set_state("foo", 0, b"second", 1) == 2
        await change(zk, b'{"version":2,"entity_path":"topics/foo"}')
        await until(lambda: len(changed) > 2)
    assert changed == [None, None, "foo"]
    assert epochs[1] > epochs[0]
    assert [client is None for client in clients] == [False, True, False, True]
    assert clients[0] is not clients[2]
    await until(lambda: store._client is None)
    await store.close()


async def test_failures_that_come_together_are_one_event(zookeeper: str, zk: KazooClient) -> None:
    parent = "/log_dir_event_notification"
    async with registered(zookeeper, lambda _client: None) as (registrar, _):
        for count in (1, 2, 3):
            for _ in range(50):
                registrar.storage_lost()
            await until(lambda count=count: len(zk.get_children(parent)) == count)  # type: ignore[misc]
    for name in zk.get_children(parent):
        assert json.loads(zk.get(f"{parent}/{name}")[0]) == {"version": 1, "broker": 1, "event": 1}
    assert len(zk.get_children(parent)) == 3


async def test_a_stream_of_failures_is_not_waited_out(
    zookeeper: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_BURST_QUIET_S", 3600.0)
    monkeypatch.setattr(registration, "_BURST_MAX_S", 0.2)
    async with registered(zookeeper, lambda _client: None) as (registrar, _):
        registrar.storage_lost()
        await until(lambda: zk.get_children("/log_dir_event_notification"))


async def test_a_loop_that_is_closed(store: ClusterStore) -> None:
    """What kazoo's threads say after the loop has ended is dropped, and does not raise there."""
    loop = asyncio.new_event_loop()
    loop.close()
    store._loop, kept = loop, store._loop
    await asyncio.to_thread(store.session, None)  # raises what it raises there
    store._loop = kept
    await asyncio.sleep(0)
    assert store._client is not None, "it was dropped"
