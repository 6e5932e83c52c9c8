"""A ZooKeeper that freezes or drops its clients, seen from one session and one daemon inside the test."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from controller.core import znode_paths
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.errors import LeaseExpiredError, SessionLostError
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from controller.runtime.zookeeper import session as sessions
from controller.runtime.zookeeper.session import IN_FLIGHT_MAX, ConnectionState
from tests.support.runtime.daemons import running
from tests.support.runtime.proxy import proxied
from tests.support.runtime.sessions import client_id, expire, opened, until

pytestmark = pytest.mark.slow

TOPIC = b'{"version":1,"partitions":{"0":[1]}}'


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A server this test may freeze."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper", heap_mb=256, force_sync=False) as embedded:
        yield embedded


async def test_the_lease_ends_while_kazoo_still_says_nothing(own_zookeeper: EmbeddedZooKeeper) -> None:
    async with opened(own_zookeeper.connect_string, 4000) as (session, changes):
        await session.ping()
        own_zookeeper.servers[0].kill(signal.SIGSTOP)
        try:
            before = list(changes)
            # By construction within two thirds of the timeout: what is checked is that it gets there at all,
            # by our clock alone.
            assert session.lease_remaining_s() <= 4.0 * 2 / 3
            await until(lambda: session.lease_remaining_s() < 0, "the end of the lease", 4.0 * 2 / 3 + 1)
            with pytest.raises(LeaseExpiredError, match="4000 ms"):
                session.require_lease()
            assert not session.over
            assert before == [ConnectionState.CONNECTED]
            assert ConnectionState.EXPIRED not in changes
        finally:
            own_zookeeper.servers[0].kill(signal.SIGCONT)
        await until(lambda: session.connected or session.over, "an answer of either kind")


async def test_a_reconnection_within_the_session_keeps_it(zookeeper: str, zk: KazooClient) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, changes):
        await session.create("/mine", b"", ephemeral=True)
        before = session.id
        proxy.drop()
        await until(
            lambda: (
                changes == [ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.CONNECTED]
            ),
            "both",
        )
        assert session.id == before
        assert zk.exists("/mine").ephemeralOwner == before
        await session.ping()
        session.require_lease()


async def test_requests_nobody_waits_for_any_more_count_as_in_flight(zookeeper: str) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, changes):
        proxy.refusing = True
        proxy.drop()
        await until(lambda: ConnectionState.SUSPENDED in changes, "the loss")
        for _ in range(5):
            reads = [asyncio.create_task(session.get("/")) for _ in range(2 * IN_FLIGHT_MAX)]
            await asyncio.sleep(0.01)
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
        assert len(session._client._queue) == IN_FLIGHT_MAX
        proxy.refusing = False
        await until(lambda: session.connected, "the connection")
        await session.get("/")


async def test_what_kazoo_never_answers_ends_with_the_session(zookeeper: str) -> None:
    """Taken from the event loop just when kazoo's thread has ended the session, a request is in no queue."""
    async with opened(zookeeper) as (session, changes):
        session._client._call = lambda *_: None
        asked = asyncio.create_task(session.ping())
        await asyncio.sleep(0)
        expire(zookeeper, client_id(session))
        await until(lambda: ConnectionState.EXPIRED in changes, "expiry")
        with pytest.raises(SessionLostError):
            await asked


async def test_closing_ends_what_kazoo_never_answers(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CLOSE_WAIT_S", 0.1)
    async with opened(zookeeper) as (session, _):
        call, session._client._call = session._client._call, lambda *_: None
        end, session._close_client = session._close_client, lambda closed: None  # type: ignore[method-assign]
        asked = asyncio.create_task(session.ping())
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(SessionLostError):
            await asked
        session._client._call = call
        end(asyncio.Event())


async def test_the_lease_does_not_wait_for_single_reads(zookeeper: str) -> None:
    async with opened(zookeeper, use_multi_read=False) as (session, _):
        done: list[str] = []
        reading = asyncio.create_task(session.bulk_get(["/"] * 5000))
        reading.add_done_callback(lambda _: done.append("reads"))
        await asyncio.sleep(0)
        await until(lambda: len(session._outstanding) > 0, "the first reads")
        await session.ping()
        done.append("ping")
        await reading
        assert done == ["ping", "reads"]


async def test_watchers_are_added_while_the_connection_goes(zookeeper: str) -> None:
    """kazoo's thread walks through them then, and would end with the session."""
    async with opened(zookeeper) as (session, _):
        client = session._client
        ended = threading.Event()
        faults: list[BaseException] = []

        def resets() -> None:
            try:
                while not ended.is_set():
                    client._reset_watchers()
            except RuntimeError as fault:
                faults.append(fault)

        resetting = threading.Thread(target=resets)
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            resetting.start()
            for _ in range(8):
                client.know_data_watcher([b"/%d" % n for n in range(20_000)], lambda _: None)
        finally:
            ended.set()
            resetting.join()
            sys.setswitchinterval(usual)
        assert faults == []


async def test_the_lease_counts_from_the_sending_of_what_was_answered(zookeeper: str) -> None:
    async with opened(zookeeper, 4000) as (session, _):
        full = 4.0 * 2 / 3
        await session.ping()
        session._answered_at -= 2  # as if that had been sent two seconds ago
        remaining = session.lease_remaining_s()
        assert remaining <= full - 2
        await session.ping()
        assert full >= session.lease_remaining_s() > remaining


async def test_watches_lost_with_the_connection_are_armed_again(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """The daemon reads everything again: also what changed while nobody watched."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(proxied(zookeeper))
        settings = Settings(zookeeper=proxy.connect, state_log_dir=tmp_path)
        daemon = await stack.enter_async_context(running(Daemon(settings)))
        await until(lambda: daemon.active, "the failover")
        term = daemon.term
        assert term is not None
        cluster = term.machine.cluster
        zk.create("/brokers/ids/1", b'{"version":4,"host":"127.0.0.1","port":1}')
        zk.create("/brokers/topics/before", TOPIC)
        await until(lambda: term.machine.ready and "before" in cluster.topics, "the first topic")
        proxy.refusing = True
        proxy.drop()
        zk.create("/brokers/topics/meanwhile", TOPIC)
        zk.set("/brokers/topics/before", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        proxy.refusing = False
        await until(lambda: "meanwhile" in cluster.topics, "what was created meanwhile")
        await until(lambda: len(cluster.topics["before"].partitions) == 2, "what was changed meanwhile")
        zk.create("/brokers/topics/after", TOPIC)
        await until(lambda: "after" in cluster.topics, "the child watch armed again")
        zk.set("/brokers/topics/meanwhile", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        await until(lambda: len(cluster.topics["meanwhile"].partitions) == 2, "a data watch armed again")
        zk.create("/brokers/ids/2", b'{"version":4,"host":"127.0.0.1","port":1}')
        await until(lambda: 2 in cluster.brokers, "the broker watch armed again")
        assert daemon.term is term  # one term all along: nobody resigned over it
        zk.delete(znode_paths.CONTROLLER)
        await until(lambda: daemon.term is not term and daemon.active, "the watch on /controller")


async def test_of_a_zookeeper_that_went_back_another_session_begins_and_brokers_register_first(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses every session that has seen more than it has."""
    waits: list[float] = []
    monkeypatch.setattr(Daemon, "_let_brokers_register", lambda _, wait_s: waits.append(wait_s))
    server = own_zookeeper.servers[0]
    server.stop()
    shutil.copytree(server.data_dir, tmp_path / "backup")
    server.start()
    settings = Settings(
        zookeeper=own_zookeeper.connect_string, state_log_dir=tmp_path, session_timeout_ms=2000
    )
    async with running(Daemon(settings)) as daemon:
        await until(lambda: daemon.active, "the first term")
        server.stop()
        shutil.rmtree(server.data_dir)
        shutil.copytree(tmp_path / "backup", server.data_dir)
        server.start()
        await until(lambda: bool(waits) and daemon.active, "a term of the next session")
    assert waits == [2.0]


async def test_no_election_is_held_until_brokers_have_had_time_to_register(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    daemon._let_brokers_register(3600.0)
    async with running(daemon):
        await until(lambda: daemon.session is not None and daemon.role is Role.STANDBY, "the look")
        assert zk.exists(znode_paths.CONTROLLER) is None
        daemon._brokers_first_until = 0.0
        await until(lambda: daemon.active, "the election")


async def test_a_znode_of_the_controller_that_may_not_be_made_is_said_and_tried_again(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    daemon._let_brokers_register(3600.0)
    async with running(daemon):
        await until(lambda: daemon.role is Role.STANDBY, "the look")
        zk.create(znode_paths.CONTROLLER_EPOCH, b"0")
        (open_to_all,) = zk.get_acls("/")[0]
        zk.set_acls("/", [make_acl("world", "anyone", read=True, write=True, admin=True)])
        daemon._brokers_first_until = 0.0
        await until(lambda: bool(daemon.cannot_elect), "the attempt")
        assert daemon.cannot_elect == "/controller could not be created: an ACL forbids it"
        zk.set_acls("/", [open_to_all])
        await until(lambda: daemon.active, "the next attempt")
