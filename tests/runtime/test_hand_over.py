"""Whoever resigns gives the controller up before it looks after its own affairs; whoever is to stop does."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.runtime import controller_election
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from tests.support.runtime.daemons import running
from tests.support.runtime.proxy import proxied
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


async def test_the_history_s_term_ends_once_the_controller_is_given_up(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    held: list[bool] = []
    monkeypatch.setattr(
        daemon.recent, "end_term", lambda: held.append(bool(zk.exists(znode_paths.CONTROLLER)))
    )
    async with running(daemon):
        await until(lambda: daemon.active, "active")
        assert zk.exists(znode_paths.CONTROLLER)
    assert held == [False]


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
