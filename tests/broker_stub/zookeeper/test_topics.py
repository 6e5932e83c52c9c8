"""Topics, their configuration and their ISRs, as the broker reads and writes them on a real server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from kazoo.client import KazooClient
from structlog.testing import capture_logs

from broker_stub.zookeeper import codecs as broker_codecs
from broker_stub.zookeeper.client import ClusterStore, StoreUnavailable
from broker_stub.zookeeper.codecs import ConfigChange, ConfigKind, MalformedZnode
from controller.runtime.zookeeper import codecs
from tests.support.broker.store_harness import CHANGES, change, opened, put, until
from tests.support.runtime.proxy import Proxy, proxied

MULTI, CREATE = 14, 1


@pytest.fixture
async def store(zookeeper: str) -> AsyncIterator[ClusterStore]:
    async with opened(zookeeper) as made:
        yield made.store


@pytest.fixture
async def proxy(zookeeper: str) -> AsyncIterator[Proxy]:
    async with proxied(zookeeper) as made:
        yield made


# --- configuration -----------------------------------------------------------------------------------------


async def test_the_configuration_of_a_topic(store: ClusterStore, zk: KazooClient) -> None:
    assert await store.topic_config("foo") == {}
    await put(zk, "/config/topics/foo", codecs.encode_config({"min.insync.replicas": "2", "x": ""}))
    assert await store.topic_config("foo") == {"min.insync.replicas": "2", "x": ""}
    await put(zk, "/config/topics/foo", b"")
    assert await store.topic_config("foo") == {}


async def test_the_configuration_of_a_broker(store: ClusterStore, zk: KazooClient) -> None:
    assert await store.broker_config("7") == {}
    await put(zk, "/config/brokers/7", codecs.encode_config({"leader.replication.throttled.rate": "9"}))
    await put(zk, "/config/brokers/<default>", codecs.encode_config({"x": "y"}))
    assert await store.broker_config("7") == {"leader.replication.throttled.rate": "9"}
    assert await store.broker_config("<default>") == {"x": "y"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"version":1}', "missing required field `config`"),
        (b'{"version":1,"config":{"a":1}}', r"Expected `str`, got `int` - at `\$.config\[\.\.\.\]`"),
        (b"\xff\xfe", "malformed"),
        (b'{"x":' * 100_000, "nested too deeply"),
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
    store.watch_config_changes({ConfigKind.TOPIC: changed.append})
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
    store.watch_config_changes({ConfigKind.TOPIC: changed.append})
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
    brokers: list[str | None] = []
    store.watch_config_changes({ConfigKind.TOPIC: changed.append, ConfigKind.BROKER: brokers.append})
    await until(lambda: changed)
    with capture_logs() as logs:
        for data in BAD_CHANGES:
            await change(zk, data)
        await change(zk, b'{"version":2,"entity_path":"brokers/1"}')
        await change(zk, b'{"version":1,"entity_type":"users","entity_name":"u"}')
        await change(zk, b'{"version":2,"entity_path":"topics/good"}')
        await until(lambda: len(changed) == 2)
    assert changed == [None, "good"]
    assert brokers == [None, "1"]
    skipped = [line["problem"] for line in logs if line["event"] == "notification skipped"]
    assert len(skipped) == len(BAD_CHANGES)
    assert all(text.startswith(f"{CHANGES}/config_change_00000000") for text in skipped)


async def test_changes_made_while_disconnected_are_found(proxy: Proxy, zk: KazooClient) -> None:
    changed: list[str | None] = []
    async with opened(proxy.connect) as made:
        made.store.watch_config_changes({ConfigKind.TOPIC: changed.append})
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
    assert await store._read_changes(frozenset(names)) == [ConfigChange(ConfigKind.TOPIC, "foo"), None]


async def test_the_parent_of_changes_is_removed(store: ClusterStore, zk: KazooClient) -> None:
    changed: list[str | None] = []
    store.watch_config_changes({ConfigKind.TOPIC: changed.append})
    await until(lambda: changed)
    await asyncio.to_thread(zk.delete, CHANGES, recursive=True)
    await until(lambda: len(changed) == 2)
    await change(zk, b'{"version":2,"entity_path":"topics/foo"}')
    await until(lambda: len(changed) == 3)
    assert changed == [None, None, "foo"]


async def test_the_same_name_under_another_parent_is_another_change(
    store: ClusterStore, zk: KazooClient
) -> None:
    changed: list[str | None] = []
    store.watch_config_changes({ConfigKind.TOPIC: changed.append})
    await until(lambda: changed)
    await change(zk, b'{"version":2,"entity_path":"topics/foo"}')
    await until(lambda: len(changed) == 2)
    (name,) = await asyncio.to_thread(zk.get_children, CHANGES)
    transaction = zk.transaction()
    transaction.delete(f"{CHANGES}/{name}")
    transaction.delete(CHANGES)
    transaction.create(CHANGES)
    transaction.create(f"{CHANGES}/{name}", b'{"version":2,"entity_path":"topics/bar"}')
    assert not any(isinstance(result, Exception) for result in await asyncio.to_thread(transaction.commit))
    await until(lambda: len(changed) == 3)
    assert changed == [None, "foo", None]


async def test_a_bug_in_the_callback_is_reported(zookeeper: str) -> None:
    bugs: list[BaseException] = []
    store = ClusterStore(bugs.append)
    client = KazooClient(zookeeper)
    await asyncio.to_thread(client.start, 20)

    def broken(_topic: str | None) -> None:
        raise RuntimeError("a bug")

    store.watch_config_changes({ConfigKind.TOPIC: broken})
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
    notified = [codecs.decode_partition_list("", zk.get(f"{parent}/{name}")[0]) for name in names[1:]]
    assert [key for part in notified for key in part] == [("big", n) for n in range(3001)]


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
    info = codecs.decode_topic("__consumer_offsets", data, stat.czxid, stat.version)
    assert info.partitions == {0: (1, 2), 1: (2, 1)}
    assert len(info.topic_id) == 22
    assert data == codecs.encode_topic(info)
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


def test_a_topic_s_replicas_keep_their_order() -> None:
    """The first one is the preferred leader."""
    data = broker_codecs.encode_topic("A" * 22, {1: (3, 1, 2), 0: (2, 1)})
    assert list(codecs.decode_topic("t", data, 1, 0).partitions.items()) == [(0, (2, 1)), (1, (3, 1, 2))]


@pytest.mark.parametrize("name", ["7", "<default>"])
def test_a_change_may_be_of_one_broker_s_configuration(name: str) -> None:
    first = json.dumps({"version": 1, "entity_type": "brokers", "entity_name": name})
    second = json.dumps({"version": 2, "entity_path": f"brokers/{name}"})
    for data in (first, second):
        assert broker_codecs.decode_change("/c", data.encode()) == ConfigChange(ConfigKind.BROKER, name)
