"""What a review proved wrong once: each scenario with the guarantee it must keep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from controller.core import znode_paths
from controller.core.effects import (
    Answer,
    BrokersAnswer,
    Problem,
    Read,
    ReadBrokers,
    ReadPreferredElection,
    ReadStates,
    ReadTopicConfigs,
    ReadTopics,
)
from controller.core.events import Event, EventKind
from controller.core.model import Broker, Endpoint
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.runtime.zookeeper.session import NoNodeError, Session, Stat
from controller.runtime.zookeeper.store import Store
from tests.support.runtime.pushes import FakeBroker, sender_harness, topic
from tests.support.runtime.sessions import opened, until

pytestmark = pytest.mark.slow

LOCKED = [ACL(31, Id("digest", "nobody:nothing"))]
GOOD_BROKER = b'{"version":4,"host":"h","port":1}'


@pytest.fixture
def locked(zk: KazooClient) -> KazooClient:
    """Znodes that access rules keep from us, beside one that is fine."""
    for parent in ("/brokers/ids", "/brokers/topics", "/config/topics"):
        zk.ensure_path(parent)
    zk.create("/brokers/ids/1", GOOD_BROKER)
    zk.create("/brokers/ids/7", GOOD_BROKER, acl=LOCKED)
    zk.create("/config/topics/t", b'{"version":1,"config":{}}', acl=LOCKED)
    zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}', acl=LOCKED)
    return zk


async def test_access_rules_are_problems_and_never_absence(locked: KazooClient, zookeeper: str) -> None:
    async with opened(zookeeper) as (session, _):
        store = Store(session, 0, lambda _: None)
        brokers = await store.perform(Read(1, ReadBrokers()))
        config = await store.perform(Read(2, ReadTopicConfigs(["t"])))
        topics = await store.perform(Read(3, ReadTopics(["t"])))
    assert isinstance(brokers, Answer)
    assert isinstance(brokers.value, BrokersAnswer)
    assert set(brokers.value.brokers) == {1}
    assert [p.path for p in brokers.value.problems] == ["/brokers/ids/7"]
    for outcome in (config, topics):
        assert isinstance(outcome, Answer)
        (problem,) = cast(Sequence[object], outcome.value)
        assert isinstance(problem, Problem)
        assert "access rules" in problem.problem


async def test_a_request_deleted_by_someone_else_leaves_nobody_deaf(
    zookeeper: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.create(znode_paths.PREFERRED_ELECTION, b"{}", makepath=True)
    events: list[Event] = []
    async with opened(zookeeper) as (session, _):
        plain_get = Session.get

        async def gone(self: Session, path: str, watch: object = None) -> tuple[bytes, Stat]:
            monkeypatch.setattr(Session, "get", plain_get)
            await asyncio.to_thread(zk.delete, path)
            raise NoNodeError

        monkeypatch.setattr(Session, "get", gone)
        store = Store(session, 0, events.append)
        assert await store.perform(Read(1, ReadPreferredElection())) == Answer(1, None)
        events.clear()
        zk.create(znode_paths.PREFERRED_ELECTION, b"{}")
        await until(lambda: Event(EventKind.PREFERRED_ELECTION) in events, "the next request is seen")


async def test_watches_on_long_names_fit_a_server_nobody_configured(tmp_path: Path) -> None:
    """Ten thousand topics with names of 200 characters are two mebibytes of paths."""
    with EmbeddedZooKeeper(tmp_path, heap_mb=256, force_sync=False) as embedded:
        async with opened(embedded.connect_string) as (session, changes):
            await session.ensure(znode_paths.TOPICS)
            names = [f"{n:05d}-{'x' * 200}" for n in range(10_000)]
            fired: list[str] = []
            last = znode_paths.topic_path(names[-1])
            await session.create(last, b"{}")
            await session.arm_data_watches(
                [znode_paths.topic_path(name) for name in names], lambda _, path: fired.append(path)
            )
            # The absent ones say so at once, each of them.
            await until(lambda: len(fired) == 9_999, "every absent path fired")
            assert last not in fired
            assert [c.value for c in changes] == ["connected"]


async def test_the_loop_goes_on_and_the_lease_ends_while_a_mass_read_is_stuck(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, heap_mb=256, force_sync=False) as embedded:
        async with opened(embedded.connect_string, timeout_ms=4000) as (session, _):
            await session.ping()
            store = Store(session, 0, lambda _: None)
            partitions = topic("t", 10_000)
            embedded.servers[0].kill()
            reads = [asyncio.create_task(store.perform(Read(n, ReadStates(partitions)))) for n in range(60)]
            slowest = 0.0
            while session.lease_remaining_s() > 0:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                slowest = max(slowest, time.monotonic() - began)
            # Blocked on kazoo's wake-up socket the loop would stand still for the whole outage.
            assert slowest < session.negotiated_ms / 1000
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)


async def test_a_corrected_address_gets_the_push_that_was_in_hand() -> None:
    broker = FakeBroker(1)
    partitions = topic("t", 3, (1,))
    async with sender_harness(broker) as rig:
        right = broker.incarnation
        wrong = Broker(1, 1, (Endpoint("GRPC", "PLAINTEXT", "127.0.0.1", 1),))
        rig.outbox.queues[1].broker = rig.cluster.brokers[1] = wrong
        rig.push([1], partitions)
        await until(lambda: rig.senders.status[1].attempts > 0, "the wrong address was tried")
        rig.outbox.queues[1].broker = rig.cluster.brokers[1] = right
        rig.senders.sync(deciding=False)
        await until(lambda: len(broker.states("LeaderAndIsr")) == 3, "what was in hand arrives")


async def test_a_sender_without_a_lease_ends_the_term_and_not_only_itself() -> None:
    broker = FakeBroker(1)
    async with sender_harness(broker) as rig:
        rig.lease = False
        rig.push([1], topic("t", 1, (1,)))
        await until(lambda: bool(rig.bugs), "the term is told")
        assert broker.received == []
