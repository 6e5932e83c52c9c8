"""Configurations of topics and brokers as they are read, read again, wrong, or gone."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from broker_stub.errors import BrokerError
from broker_stub.replication.dynamic_configs import ThrottleRates, TopicConfigs
from broker_stub.replication.throttle import ALL_PARTITIONS, Quotas, ReplicationQuota
from tests.support.broker.replication_fakes import leaping, run_ready_tasks


class Store:
    """Topics' settings; each read waits until the test lets it go on, and sees what was there when it began."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, str]] = {}
        self.reads: list[asyncio.Future[None]] = []
        self.changed: list[str] = []
        self.configs = TopicConfigs(self.read, 0, 1, self.changed.append)

    async def read(self, topic: str) -> dict[str, str]:
        found = dict(self.settings.get(topic, {}))
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reads.append(answered)
        await answered
        return found

    def set(self, least: str, topic: str = "foo") -> None:
        self.settings[topic] = {"min.insync.replicas": least}

    async def answer(self, error: BrokerError | None = None) -> None:
        """Answer the oldest read."""
        future = self.reads.pop(0)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        await run_ready_tasks()


async def known(store: Store, topic: str = "foo") -> int | None:
    if store.configs.min_isr(topic) is None:
        await run_ready_tasks()
        await store.answer()
    return store.configs.min_isr(topic)


@leaping
async def test_it_is_unknown_until_it_was_read() -> None:
    store = Store()
    store.set("2")
    assert store.configs.min_isr("foo") is None
    assert store.configs.min_isr("foo") is None
    waiting = asyncio.ensure_future(store.configs.known("foo"))
    await run_ready_tasks()
    assert len(store.reads) == 1
    assert not waiting.done()
    await store.answer()
    assert waiting.done()
    assert (store.configs.min_isr("foo"), store.changed) == (2, ["foo"])
    await store.configs.known("foo")


@pytest.mark.parametrize(
    ("text", "least"), [("3", 3), ("0", 1), ("-1", 1), ("many", 1), ("", 1), ("９", 1), ("1" * 10, 1)]
)
@leaping
async def test_what_is_wrong_leaves_the_default(text: str, least: int) -> None:
    store = Store()
    store.set(text)
    assert await known(store) == least


@leaping
async def test_it_is_read_again_until_somebody_answers() -> None:
    store = Store()
    store.set("2")
    store.configs.min_isr("foo")
    with capture_logs() as logs:
        for _ in range(3):
            await run_ready_tasks()
            await store.answer(BrokerError("ZooKeeper is away"))
            assert store.configs.min_isr("foo") is None
            await asyncio.sleep(1.0)
    assert [entry["log_level"] for entry in logs] == ["warning", "debug", "debug"]
    await store.answer()
    assert store.configs.min_isr("foo") == 2


@pytest.mark.parametrize("topic", ["foo", None])
@leaping
async def test_a_change_is_read_and_the_old_value_holds_until_then(topic: str | None) -> None:
    store = Store()
    store.set("2")
    await known(store)
    store.set("3")
    store.configs.invalidate(topic)
    await run_ready_tasks()
    assert store.configs.min_isr("foo") == 2
    await store.answer()
    assert (store.configs.min_isr("foo"), store.changed) == (3, ["foo", "foo"])
    store.configs.invalidate("unasked")
    assert not store.reads


@pytest.mark.parametrize("topic", ["foo", None])
@pytest.mark.parametrize("first", [True, False])
@leaping
async def test_a_change_during_a_read_is_not_lost(first: bool, topic: str | None) -> None:
    """What was read may be from before the change."""
    store = Store()
    store.set("2")
    if not first:
        await known(store)
        store.configs.invalidate("foo")
    store.configs.min_isr("foo")
    await run_ready_tasks()
    store.set("3")
    store.configs.invalidate(topic)
    await run_ready_tasks()
    await store.answer()
    await store.answer()
    assert store.configs.min_isr("foo") == 3
    assert not store.reads


@leaping
async def test_a_topic_that_comes_again_is_read_again() -> None:
    store = Store()
    store.set("2")
    await known(store)
    store.configs.forget("foo")
    store.set("3")
    assert await known(store) == 3


@leaping
async def test_forgetting_lets_nobody_wait_and_the_old_answer_does_not_count() -> None:
    store = Store()
    store.set("2")
    waiting = asyncio.ensure_future(store.configs.known("foo"))
    await run_ready_tasks()
    store.configs.forget("foo")
    await run_ready_tasks()
    assert waiting.done()
    await waiting
    store.reads.clear()
    store.set("3")
    assert await known(store) == 3


@leaping
async def test_close_lets_nobody_wait() -> None:
    store = Store()
    waiting = asyncio.ensure_future(store.configs.known("foo"))
    await run_ready_tasks()
    assert not waiting.done()
    await store.configs.close()
    await run_ready_tasks()
    assert waiting.done()
    await waiting


@leaping
async def test_many_topics_are_read_a_few_at_a_time() -> None:
    store = Store()
    for number in range(250):
        store.configs.min_isr(f"topic-{number}")
    await run_ready_tasks()
    assert len(store.reads) == 100
    while store.reads:
        await store.answer()
    assert len(store.changed) == 250


@leaping
async def test_throttled_replicas_are_read_with_the_rest() -> None:
    store = Store()
    store.settings["foo"] = {"leader.replication.throttled.replicas": "1:0,2:9"}
    assert 1 not in store.configs.throttled_as_leader("foo")
    await run_ready_tasks()
    await store.answer()
    assert [n for n in range(4) if n in store.configs.throttled_as_leader("foo")] == [1]
    assert [n for n in range(4) if n in store.configs.throttled_as_follower("foo")] == []
    store.settings["foo"] = {"follower.replication.throttled.replicas": "*"}
    store.configs.invalidate("foo")
    await run_ready_tasks()
    await store.answer()
    assert [n for n in range(4) if n in store.configs.throttled_as_leader("foo")] == []
    assert [n for n in range(4) if n in store.configs.throttled_as_follower("foo")] == [0, 1, 2, 3]


@leaping
async def test_what_is_wrong_with_one_setting_does_not_hide_the_other() -> None:
    store = Store()
    store.settings["foo"] = {
        "min.insync.replicas": "2",
        "leader.replication.throttled.replicas": "all",
        "follower.replication.throttled.replicas": "*",
    }
    assert await known(store) == 2
    assert 0 not in store.configs.throttled_as_leader("foo")


class Rates:
    """Dynamic settings of brokers, and the quotas of broker 7 that follow them."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, str]] = {}
        quota = ReplicationQuota(lambda _topic: ALL_PARTITIONS, lambda: 0)
        self.quotas = Quotas(quota, ReplicationQuota(lambda _topic: ALL_PARTITIONS, lambda: 0))
        self.rates = ThrottleRates(self.read, 7, self.quotas)

    async def read(self, broker: str) -> dict[str, str]:
        return dict(self.settings.get(broker, {}))

    async def set(self, broker: str, leader: str | None, follower: str | None) -> list[int | None]:
        given = {"leader.replication.throttled.rate": leader, "follower.replication.throttled.rate": follower}
        self.settings[broker] = {key: value for key, value in given.items() if value is not None}
        self.rates.changed(broker)
        await run_ready_tasks()
        return [quota.rate_max for quota in self.quotas]


@leaping
async def test_rates_are_those_of_the_broker_else_those_of_all() -> None:
    rates = Rates()
    rates.settings["7"] = {"leader.replication.throttled.rate": "5"}
    rates.rates.changed(None)
    await run_ready_tasks()
    assert [quota.rate_max for quota in rates.quotas] == [5, None]
    assert await rates.set("<default>", "100", "200") == [5, 200]
    assert await rates.set("7", None, "6") == [100, 6]
    assert await rates.set("8", "1", "1") == [100, 6], "another broker's"
    assert await rates.set("7", "many", "-1") == [100, 200]
    assert await rates.set("<default>", None, None) == [None, None]
