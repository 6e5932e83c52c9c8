"""Whoever resigns gives the controller up before it looks after its own affairs; whoever is to stop does."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from structlog.testing import capture_logs

from controller.core import znode_paths
from controller.runtime import daemon as daemon_module
from controller.runtime import leadership_requests
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from controller.runtime.election import controller_election, term_history
from controller.runtime.election.controller_election import Won
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.session import Session
from tests.support.runtime.daemons import running
from tests.support.runtime.proxy import proxied
from tests.support.runtime.sessions import client_id, expire, until

pytestmark = pytest.mark.slow


async def test_the_history_s_term_ends_once_the_controller_is_given_up_and_nobody_is_said_to_lead(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    held: list[tuple[bool, int]] = []

    def end_term() -> None:
        held.append((bool(zk.exists(znode_paths.CONTROLLER)), daemon.current_controller))

    monkeypatch.setattr(daemon.recent, "end_term", end_term)
    async with running(daemon):
        await until(lambda: daemon.active, "active")
        assert zk.exists(znode_paths.CONTROLLER)
    assert held == [(False, -1)]


async def test_a_term_whose_end_is_not_recorded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_history, "END_TIMEOUT_S", 0)
    silent: Any = SimpleNamespace(bulk_get=lambda _: asyncio.Event().wait())
    with capture_logs() as logs:
        await term_history.end(silent, Won(1, 1), "stopped", requested=True)
    assert [(line["event"], line["why"]) for line in logs] == [("term_not_recorded", "TimeoutError")]


async def test_a_stop_that_comes_with_the_election_is_heeded(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    elect = controller_election.elect

    async def stopped_meanwhile(
        *given: Any, **options: Any
    ) -> controller_election.Won | controller_election.Lost:
        result = await elect(*given, **options)
        daemon.stop()
        return result

    monkeypatch.setattr(controller_election, "elect", stopped_meanwhile)
    async with running(daemon):
        await until(lambda: daemon.role is Role.STOPPED, "the end")
    assert not zk.exists(znode_paths.CONTROLLER)


async def test_a_term_that_is_over_is_forgotten_although_its_session_goes_on(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    async with running(daemon):
        await until(lambda: daemon.active, "active")
        session, former = daemon.session, weakref.ref(daemon.term)
        zk.delete(znode_paths.CONTROLLER)
        await until(lambda: daemon.active and daemon.term is not former(), "another term")
        assert daemon.session is session

        def collected() -> bool:
            gc.collect()
            return former() is None

        await until(collected, "the former term is collected", 5)


@pytest.fixture
def without_collections() -> Iterator[None]:
    """None but those that are asked for: with many partitions, others come far too rarely."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
async def test_what_former_terms_had_in_memory_is_freed(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "LET_GO_MAX", 1)
    path = znode_paths.topic_path("t")
    zk.create(path, b'{"version":2,"partitions":{"0":[1],"1":[1]}}', makepath=True)
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    async with running(daemon):
        await until(lambda: daemon.active, "active")
        former = weakref.ref(daemon.term)
        zk.delete(znode_paths.CONTROLLER)
        await until(lambda: former() is None, "the former term is freed")


@pytest.mark.usefixtures("without_collections")
async def test_what_a_standby_had_in_memory_is_freed_after_its_session(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "LET_GO_MAX", 1)
    path = znode_paths.topic_path("t")
    zk.create(path, b'{"version":2,"partitions":{"0":[1],"1":[1]}}', makepath=True)
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(9, "127.0.0.1:1"), ephemeral=True)
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    async with running(daemon):
        await until(lambda: daemon.standby is not None and daemon.standby.mirror.size == 2, "a mirror")
        assert daemon.standby is not None
        former = weakref.ref(daemon.standby.mirror)
        assert daemon.session is not None
        await asyncio.to_thread(expire, zookeeper, client_id(daemon.session))
        await until(lambda: former() is None, "the former mirror is freed")


class Silence:
    """A server that takes requests and answers none. ``begun``: there was one."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def request(self, xid: int, opcode: int, body: bytes) -> bool:
        self.begun.set()
        return await asyncio.Event().wait()

    async def answer(self, xid: int) -> bool:
        return True


async def test_a_stop_is_heeded_while_a_silent_server_is_asked_for_the_chroot(
    zookeeper: str, tmp_path: Path
) -> None:
    async with proxied(zookeeper) as proxy:
        proxy.trap = silence = Silence()
        # Far beyond the patience of ``running``.
        settings = Settings(
            zookeeper=f"{proxy.connect}/deeper",
            state_log_dir=tmp_path,
            session_timeout_ms=120_000,
            connection_timeout_ms=120_000,
        )
        daemon = Daemon(settings)
        async with running(daemon):
            await silence.begun.wait()
        assert daemon.role is Role.STOPPED


async def test_the_candidate_that_is_named_takes_over(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """It is the slowest: others see that ``/controller`` is gone long before."""
    async with AsyncExitStack() as stack:
        daemons = [
            await stack.enter_async_context(running(Daemon(an_own(zookeeper, tmp_path, id_))))
            for id_ in (1, 2, 3)
        ]
        await until(lambda: any(d.active and d.term and d.term.machine.ready for d in daemons), "active")
        await until(lambda: len(zk.get_children(znode_paths.CONTROLLER_IDS)) == 3, "candidates")
        first = next(d for d in daemons if d.active)
        standbys = [d for d in daemons if d is not first]
        named = standbys[1]
        attempt = named._attempt

        async def late(session: Session) -> Any:
            await asyncio.sleep(0.5)
            return await attempt(session)

        named._attempt = late  # type: ignore[method-assign]
        own = named.settings.controller_id
        assert "is no standby" in await leadership_requests.resign(first, "test", "ann", successor=9)
        assert "kafka_takeover is off" in await leadership_requests.resign(
            first, "test", "ann", to_kafka=True
        )
        assert await leadership_requests.resign(first, "test", "ann", successor=own) == ""
        await until(lambda: named.active, "the named one to be active", 20)
        await until(lambda: not zk.exists(znode_paths.SUCCESSOR), "its name to be gone")
        assert int(zk.get(znode_paths.CONTROLLER_EPOCH)[0]) == 2


async def test_a_successor_that_does_not_come_is_waited_for_briefly(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    zk.ensure_path(znode_paths.CONTROLLER_IDS)
    zk.create(znode_paths.candidate_path(7), b"{}", ephemeral=True)
    zk.create(znode_paths.SUCCESSOR, b"7")
    async with running(Daemon(an_own(zookeeper, tmp_path, 1))) as daemon:
        await until(lambda: daemon.session is not None and daemon.role is Role.STANDBY, "standby")
        assert not daemon.active
        await until(lambda: daemon.active, "active after a while", 20)
        await until(lambda: not zk.exists(znode_paths.SUCCESSOR), "the name to be gone")


def an_own(zookeeper: str, directory: Path, id_: int) -> Settings:
    return Settings(controller_id=id_, zookeeper=zookeeper, state_log_dir=directory / str(id_))
