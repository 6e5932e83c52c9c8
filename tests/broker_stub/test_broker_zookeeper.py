"""What the broker keeps in ZooKeeper, on a real server: answers lost on the way, sessions that end, bad znodes."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from structlog.testing import capture_logs

from broker_stub import registration
from broker_stub.registration import Identity, Registrar, Timeouts
from broker_stub.znodes import MalformedZnode
from broker_stub.zookeeper import ClusterStore, StoreUnavailable
from controller.runtime import znodes
from tests.runtime.proxy import Proxy, proxied
from tests.runtime.sessions import expire

pytestmark = pytest.mark.slow

SET_DATA, MULTI, CREATE = 5, 14, 1
STATE = "/brokers/topics/foo/partitions/0/state"
CHANGES = "/config/changes"


class Opened:
    """A store with a client of its own, as the registrar would hand it over."""

    def __init__(self, store: ClusterStore, client: KazooClient, bugs: list[BaseException]) -> None:
        self.store, self.client, self.bugs = store, client, bugs

    async def disconnected(self) -> None:
        await until(lambda: not self.store._connected.is_set())


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not probe():  # noqa: ASYNC110  (the probes look at other processes)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(connect: str, timeout_s: float = 30.0) -> AsyncIterator[Opened]:
    bugs: list[BaseException] = []
    store = ClusterStore(bugs.append, timeout_s)
    client = KazooClient(connect, timeout=10.0)
    await asyncio.to_thread(client.start, 20)
    store.session(client)
    await until(store._connected.is_set)
    try:
        yield Opened(store, client, bugs)
    finally:
        await store.close()
        await asyncio.to_thread(client.stop)
        client.close()
    assert bugs == []


@pytest.fixture
async def store(zookeeper: str) -> AsyncIterator[ClusterStore]:
    async with opened(zookeeper) as made:
        yield made.store


@pytest.fixture
async def proxy(zookeeper: str) -> AsyncIterator[Proxy]:
    async with proxied(zookeeper) as made:
        yield made


async def put(zk: KazooClient, path: str, data: bytes) -> None:
    """Create, or set, with the parents."""
    await asyncio.to_thread(zk.ensure_path, path)
    await asyncio.to_thread(zk.set, path, data)


# --- the controller ----------------------------------------------------------------------------------------


async def test_the_active_controller(store: ClusterStore, zk: KazooClient) -> None:
    assert await store.controller_endpoint() is None
    await put(zk, "/controller", znodes.encode_controller(100, "[::1]:9191"))
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


async def test_many_at_once(store: ClusterStore, zk: KazooClient) -> None:
    """More than kazoo's pipe takes without a reader."""
    await put(zk, STATE, b"first")
    found = await asyncio.gather(*(store.get_state("foo", 0) for _ in range(2000)))
    assert set(found) == {(b"first", 1)}


# --- connection and session --------------------------------------------------------------------------------


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
            with pytest.raises(StoreUnavailable, match=r"/.*: no answer of ZooKeeper in 0\.3 s"):
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

    under_way = asyncio.create_task(call())
    await until(lambda: store._pending)
    store.session(None)
    with pytest.raises(StoreUnavailable, match=r"^read of /x: SessionExpiredError the session is over$"):
        await under_way
    # What comes too late is for nobody.
    never.set(None)


async def test_an_expired_session_is_not_gone_on_with(zookeeper: str) -> None:
    async with opened(zookeeper) as made:
        await asyncio.to_thread(expire, zookeeper, made.client.client_id)
        await until(lambda: made.store._client is None)
        await until(lambda: made.client.connected)
        with pytest.raises(StoreUnavailable, match="no ZooKeeper session"):
            await made.store.controller_endpoint()


async def test_no_session(zookeeper: str) -> None:
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
    identity, timeouts = Identity(broker_id, "h", 9092, None), Timeouts(4000, 20_000)
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
    store.watch_config_changes(changed.append)
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


# --- configuration -----------------------------------------------------------------------------------------


async def change(zk: KazooClient, data: bytes) -> None:
    await asyncio.to_thread(zk.create, f"{CHANGES}/config_change_", data, sequence=True, makepath=True)


async def test_the_configuration_of_a_topic(store: ClusterStore, zk: KazooClient) -> None:
    assert await store.topic_config("foo") == {}
    await put(zk, "/config/topics/foo", znodes.encode_config({"min.insync.replicas": "2", "x": ""}))
    assert await store.topic_config("foo") == {"min.insync.replicas": "2", "x": ""}
    await put(zk, "/config/topics/foo", b"")
    assert await store.topic_config("foo") == {}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "missing required field `version`"),
        (b'{"version":1}', "missing required field `config`"),
        (b'{"version":2,"config":{}}', r"at `\$.version`"),
        (b'{"version":1,"config":{"a":1}}', r"Expected `str`, got `int` - at `\$.config\[\.\.\.\]`"),
        (b"\xff\xfe", "malformed"),
        (b'{"x":' * 100_000, "recursion"),
    ],
)
async def test_a_malformed_configuration(
    store: ClusterStore, zk: KazooClient, data: bytes, words: str
) -> None:
    await put(zk, "/config/topics/foo", data)
    with pytest.raises(MalformedZnode, match=re.compile(f"^/config/topics/foo: .*{words}", re.I)):
        await store.topic_config("foo")


async def test_changes_are_followed(store: ClusterStore, zk: KazooClient) -> None:
    await change(zk, b'{"version":2,"entity_path":"topics/before"}')
    changed: list[str | None] = []
    store.watch_config_changes(changed.append)
    await until(lambda: changed)
    assert changed == [None]
    await change(zk, b'{"version":2,"entity_path":"topics/foo"}')
    await until(lambda: len(changed) == 2)
    await change(zk, b'{"version":1,"entity_type":"topics","entity_name":"bar"}')
    await until(lambda: len(changed) == 3)
    assert changed == [None, "foo", "bar"]


async def test_changes_come_in_order_and_each_topic_once(store: ClusterStore, zk: KazooClient) -> None:
    await put(zk, CHANGES, b"")
    changed: list[str | None] = []
    store.watch_config_changes(changed.append)
    await until(lambda: changed)
    transaction = zk.transaction()
    for topic in ("c", "a", "c", "b"):
        data = json.dumps({"version": 2, "entity_path": f"topics/{topic}"}).encode()
        transaction.create(f"{CHANGES}/config_change_", data, sequence=True)
    assert all(isinstance(name, str) for name in transaction.commit())
    await until(lambda: len(changed) >= 4)
    assert changed == [None, "c", "a", "b"]


BAD_CHANGES = [
    b"",
    b"\xff",
    b"{}",
    b'{"version":3,"entity_path":"topics/foo"}',
    b'{"version":2}',
    b'{"version":2,"entity_path":"topics"}',
    b'{"version":2,"entity_path":"topics/"}',
    b'{"version":2,"entity_path":"topics/foo/../../x"}',
    b'{"version":2,"entity_path":["topics"]}',
    b'{"version":1,"entity_path":"topics/foo"}',
    b'{"version":1,"entity_type":"topics","entity_name":"."}',
]


async def test_bad_notifications_are_reported_and_hide_no_others(
    store: ClusterStore, zk: KazooClient
) -> None:
    changed: list[str | None] = []
    store.watch_config_changes(changed.append)
    await until(lambda: changed)
    with capture_logs() as logs:
        for data in BAD_CHANGES:
            await change(zk, data)
        await change(zk, b'{"version":2,"entity_path":"brokers/1"}')
        await change(zk, b'{"version":1,"entity_type":"users","entity_name":"u"}')
        await change(zk, b'{"version":2,"entity_path":"topics/good"}')
        await until(lambda: len(changed) == 2)
    assert changed == [None, "good"]
    skipped = [line["problem"] for line in logs if line["event"] == "notification skipped"]
    assert len(skipped) == len(BAD_CHANGES)
    assert all(text.startswith(f"{CHANGES}/config_change_00000000") for text in skipped)


async def test_changes_made_while_disconnected_are_found(proxy: Proxy, zk: KazooClient) -> None:
    changed: list[str | None] = []
    async with opened(proxy.connect) as made:
        made.store.watch_config_changes(changed.append)
        await until(lambda: changed)
        proxy.refusing = True
        proxy.drop()
        await made.disconnected()
        await change(zk, b'{"version":2,"entity_path":"topics/foo"}')
        proxy.refusing = False
        await until(lambda: len(changed) == 2)
    assert changed == [None, "foo"]


async def test_a_notification_that_is_gone_stands_for_all(store: ClusterStore, zk: KazooClient) -> None:
    await change(zk, b'{"version":2,"entity_path":"topics/foo"}')
    names = {"config_change_0000000000", "config_change_0000000001"}
    assert await store._read_changes(frozenset(names)) == ["foo", None]


async def test_the_parent_of_changes_is_removed_and_numbers_start_again(
    store: ClusterStore, zk: KazooClient
) -> None:
    changed: list[str | None] = []
    store.watch_config_changes(changed.append)
    await until(lambda: changed)
    for topic in ("a", "b"):
        await change(zk, json.dumps({"version": 2, "entity_path": f"topics/{topic}"}).encode())
    await until(lambda: changed == [None, "a", "b"])
    seen = await asyncio.to_thread(zk.get_children, CHANGES)
    await asyncio.to_thread(zk.delete, CHANGES, recursive=True)
    await until(lambda: zk.exists(CHANGES))
    await change(zk, b'{"version":2,"entity_path":"topics/c"}')
    await until(lambda: "c" in changed)
    assert (await asyncio.to_thread(zk.get_children, CHANGES))[0] in seen


async def test_a_bug_in_the_callback_is_reported(zookeeper: str) -> None:
    bugs: list[BaseException] = []
    store = ClusterStore(bugs.append)
    client = KazooClient(zookeeper)
    await asyncio.to_thread(client.start, 20)

    def broken(_topic: str | None) -> None:
        raise RuntimeError("a bug")

    store.watch_config_changes(broken)
    store.session(client)
    await until(lambda: bugs)
    assert str(bugs[0]) == "a bug"
    await store.close()
    client.stop()
    client.close()


# --- notifications of the ISR, and topics ------------------------------------------------------------------


async def test_isr_notifications(store: ClusterStore, zk: KazooClient) -> None:
    await store.notify_isr_changes([("foo", 0), ("bar", 7)])
    await store.notify_isr_changes([])
    await store.notify_isr_changes([("big", n) for n in range(3001)])
    parent = "/isr_change_notification"
    names = sorted(zk.get_children(parent))
    assert names == [f"isr_change_{n:010}" for n in range(3)]
    assert zk.get(f"{parent}/{names[0]}")[0] == (
        b'{"version":1,"partitions":[{"topic":"foo","partition":0},{"topic":"bar","partition":7}]}'
    )
    told = [znodes.decode_partition_list("", zk.get(f"{parent}/{name}")[0]) for name in names[1:]]
    assert [key for part in told for key in part] == [("big", n) for n in range(3001)]


async def test_a_notification_whose_answer_is_lost_is_made(proxy: Proxy, zk: KazooClient) -> None:
    await put(zk, "/isr_change_notification", b"")
    async with opened(proxy.connect) as made:
        proxy.lose_answers.append(CREATE)
        await made.store.notify_isr_changes([("foo", 0)])
    assert proxy.lose_answers == []
    assert zk.get_children("/isr_change_notification")


OFFSETS = {0: [1, 2], 1: [2, 1]}


async def with_parents(zk: KazooClient) -> None:
    for path in ("/brokers/topics", "/config/topics"):
        await asyncio.to_thread(zk.ensure_path, path)


async def test_a_topic_is_created(store: ClusterStore, zk: KazooClient) -> None:
    await with_parents(zk)
    await store.create_topic("__consumer_offsets", OFFSETS, {"cleanup.policy": "compact"})
    data, stat = zk.get("/brokers/topics/__consumer_offsets")
    info = znodes.decode_topic("__consumer_offsets", data, stat.czxid, stat.version)
    assert info.partitions == {0: (1, 2), 1: (2, 1)}
    assert len(info.topic_id) == 22
    assert data == znodes.encode_topic(info)
    config = zk.get("/config/topics/__consumer_offsets")[0]
    assert config == b'{"version":1,"config":{"cleanup.policy":"compact"}}'


async def test_a_topic_that_exists_is_left_alone(store: ClusterStore, zk: KazooClient) -> None:
    await with_parents(zk)
    await store.create_topic("foo", OFFSETS, {"a": "1"})
    before = zk.get("/brokers/topics/foo"), zk.get("/config/topics/foo")
    await store.create_topic("foo", {0: [9]}, {"a": "2"})
    assert (zk.get("/brokers/topics/foo"), zk.get("/config/topics/foo")) == before


async def test_a_configuration_left_behind_is_replaced(store: ClusterStore, zk: KazooClient) -> None:
    await with_parents(zk)
    await put(zk, "/config/topics/foo", b'{"version":1,"config":{"old":"1"}}')
    await store.create_topic("foo", OFFSETS, {})
    assert zk.get("/config/topics/foo")[0] == b'{"version":1,"config":{}}'
    assert zk.exists("/brokers/topics/foo")


async def test_many_create_the_same_topic(zookeeper: str, store: ClusterStore, zk: KazooClient) -> None:
    await with_parents(zk)
    async with opened(zookeeper) as other:
        for round_ in range(5):
            name = f"t{round_}"
            await asyncio.gather(*(s.create_topic(name, OFFSETS, {}) for s in (store, other.store) * 4))
            assert zk.get(f"/brokers/topics/{name}")[1].version == 0
            assert zk.get(f"/config/topics/{name}")[1].version == 0


async def test_a_creation_whose_answer_is_lost(proxy: Proxy, zk: KazooClient) -> None:
    await with_parents(zk)
    async with opened(proxy.connect) as made:
        proxy.lose_answers.append(MULTI)
        await made.store.create_topic("foo", OFFSETS, {})
    assert proxy.lose_answers == []
    assert zk.get("/brokers/topics/foo")[1].version == 0


async def test_a_topic_without_a_place(store: ClusterStore, zk: KazooClient) -> None:
    with pytest.raises(StoreUnavailable, match=r"^creation of /brokers/topics/foo: NoNodeError"):
        await store.create_topic("foo", OFFSETS, {})


async def test_a_loop_that_is_closed(store: ClusterStore) -> None:
    """What kazoo's threads say after the loop has ended is dropped, and does not raise there."""
    loop = asyncio.new_event_loop()
    loop.close()
    store._loop, kept = loop, store._loop
    thread = threading.Thread(target=store.session, args=(None,))
    thread.start()
    await asyncio.to_thread(thread.join)
    store._loop = kept
