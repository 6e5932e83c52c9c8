"""What a process does about /controller when it may not claim it, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from controller.core import znode_paths
from controller.errors import NamesakeError
from controller.runtime import leadership_requests, state
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.election import registration
from controller.runtime.election.claimant import Claimant
from controller.runtime.election.controller_election import Candidate, Lost, Won
from controller.runtime.kafka.endpoints import Addresses
from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.incarnations import Incarnation
from proto.zookeeper_access import OPEN_ACCESS
from tests.support.runtime.daemons import running
from tests.support.runtime.proxy import proxied
from tests.support.runtime.sessions import opened, until

pytestmark = pytest.mark.slow

ID = 9001
ME = Candidate(ID, "h:1", Incarnation("me"))
Mode = Literal["fallback", "exclusive"]
MODES: tuple[Mode, ...] = ("fallback", "exclusive")
BROKER = (
    b'{"version":5,"host":"127.0.0.1","port":9,"endpoints":["PLAINTEXT://127.0.0.1:9"],'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'
)


def heard(_kind: str, _path: str) -> None:
    """Of a watch; tests look by themselves."""


@asynccontextmanager
async def claimant(zookeeper: str, mode: Mode = "fallback") -> AsyncIterator[Claimant]:
    settings = Settings(controller_id=ID, zookeeper=zookeeper, kafka_takeover=mode)
    made = Claimant(settings, ZooKeeperMetrics(CollectorRegistry()), OPEN_ACCESS)
    try:
        yield made
    finally:
        if made.holder is not None:
            await made.holder.close()


async def attempt(claims: Claimant, session: Session, addresses: Addresses | None = None) -> Won | Lost:
    await registration.register(session, ME, "h:2")
    return await claims.attempt(session, ME, heard, addresses or {})


@pytest.mark.parametrize("mode", MODES)
async def test_resigned_its_own_controller_znode_goes(
    zookeeper: str, session: Session, zk: KazooClient, mode: Mode
) -> None:
    async with claimant(zookeeper, mode) as claims:
        assert isinstance(await attempt(claims, session), Won)
        zk.create(znode_paths.RESIGNED, b"{}")
        assert await attempt(claims, session) == Lost(-1)
        assert zk.exists(znode_paths.CONTROLLER) is None
        assert zk.get(znode_paths.CONTROLLER_EPOCH)[0] == b"1"


@pytest.mark.parametrize("mode", MODES)
async def test_resigned_that_of_an_earlier_session_goes_too(
    zookeeper: str, zk: KazooClient, mode: Mode
) -> None:
    """The main session ended, and the holder session did not."""
    async with claimant(zookeeper, mode) as claims:
        async with opened(zookeeper) as (first, _):
            assert isinstance(await attempt(claims, first), Won)
        assert zk.exists(znode_paths.CONTROLLER)
        zk.create(znode_paths.RESIGNED, b"{}")
        async with opened(zookeeper) as (second, _):
            assert await attempt(claims, second) == Lost(-1)
        assert zk.exists(znode_paths.CONTROLLER) is None


@pytest.mark.parametrize("sent", [True, False])
async def test_a_lost_connection_is_no_end_of_it(zookeeper: str, zk: KazooClient, sent: bool) -> None:
    class Cut:
        async def request(self, xid: int, opcode: int, body: bytes) -> bool:
            return opcode != jute.OP_MULTI

        async def answer(self, xid: int) -> bool:
            return True

    async with (
        proxied(zookeeper) as proxy,
        claimant(zookeeper) as claims,
        opened(proxy.connect) as (session, _),
    ):
        assert isinstance(await attempt(claims, session), Won)
        zk.create(znode_paths.RESIGNED, b"{}")
        if sent:
            proxy.lose_answers.append(jute.OP_MULTI)
        else:
            proxy.trap = Cut()
        with pytest.raises(ConnectionLossError):
            await attempt(claims, session)
        assert (zk.exists(znode_paths.CONTROLLER) is None) == sent
        proxy.trap = None
        await until(lambda: session.connected, "the connection")
        assert await attempt(claims, session) == Lost(-1)
        assert zk.exists(znode_paths.CONTROLLER) is None


@pytest.mark.parametrize("mode", MODES)
async def test_a_broker_with_its_id_gets_the_controller_back(
    zookeeper: str, session: Session, zk: KazooClient, mode: Mode
) -> None:
    async with claimant(zookeeper, mode) as claims:
        assert isinstance(await attempt(claims, session), Won)
        zk.create(znode_paths.broker_path(ID), BROKER, makepath=True)
        assert await attempt(claims, session) == Lost(-1)
        assert zk.exists(znode_paths.CONTROLLER) is None


async def test_a_leader_whose_id_a_broker_takes_gives_up_until_the_broker_goes(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    settings = Settings(
        controller_id=ID, zookeeper=zookeeper, state_log_dir=tmp_path, kafka_takeover="fallback"
    )
    async with running(Daemon(settings)) as daemon:
        await until(lambda: daemon.active, "active")
        zk.create(znode_paths.broker_path(ID), BROKER)
        await until(lambda: zk.exists(znode_paths.CONTROLLER) is None, "it gives up")
        resigned = daemon.metrics.resignations.labels(NamesakeError.__name__)
        assert (daemon.active, resigned._value.get()) == (False, 1)
        zk.delete(znode_paths.broker_path(ID))
        await until(lambda: daemon.active, "active again")


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_broker_claimed_while_an_election_is_held_back_is_claimed_afterwards(
    zookeeper: str, zk: KazooClient, tmp_path: Path, mode: Mode
) -> None:
    """After ZooKeeper was restored from a backup, which may have a persistent one, too."""
    settings = Settings(controller_id=ID, zookeeper=zookeeper, state_log_dir=tmp_path, kafka_takeover=mode)
    daemon = Daemon(settings)
    daemon._let_brokers_register(3600.0)
    zk.create(znode_paths.CONTROLLER_EPOCH, b"1")
    zk.create(znode_paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}')
    async with running(daemon):
        await until(lambda: daemon.current_controller == 1, "the look")
        daemon._brokers_first_until = 0.0
        await until(lambda: daemon.active, "the claim")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_brokers_on_other_machines_are_not_told_of_a_loopback_address(
    zookeeper: str, session: Session, zk: KazooClient, host: str
) -> None:
    near = {"": (host, 9192)}
    zk.create(f"{znode_paths.BROKER_IDS}/1", BROKER, makepath=True)
    async with claimant(zookeeper) as claims:
        assert isinstance(await attempt(claims, session, near), Won)
        zk.create(f"{znode_paths.BROKER_IDS}/2", BROKER.replace(b"127.0.0.1", b"10.1.2.3"))
        assert await attempt(claims, session, near) == Lost(-1)
        assert zk.exists(znode_paths.CONTROLLER) is None
        assert isinstance(await attempt(claims, session, {"": ("10.1.2.4", 9192)}), Won)


async def test_registrations_are_looked_at_again_when_they_change(
    zookeeper: str, session: Session, zk: KazooClient
) -> None:
    told: list[str] = []
    zk.create(f"{znode_paths.BROKER_IDS}/1", BROKER.replace(b"127.0.0.1", b"far"), makepath=True)
    zk.create(f"{znode_paths.BROKER_IDS}/2", b"junk")
    async with claimant(zookeeper) as claims:
        await registration.register(session, ME, "h:2")
        addresses = {"": ("127.0.0.1", 1)}
        lost = await claims.attempt(session, ME, lambda _, path: told.append(path), addresses)
        assert lost == Lost(-1)
        zk.delete(f"{znode_paths.BROKER_IDS}/1")
        await until(lambda: znode_paths.BROKER_IDS in told, "the watch")
        assert isinstance(await attempt(claims, session, addresses), Won)


async def test_without_takeover_an_absent_controller_is_left_to_kafka_brokers(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    zk.create(f"{znode_paths.BROKER_IDS}/1", BROKER, makepath=True)
    zk.create(znode_paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}')
    async with running(Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))) as daemon:
        await until(lambda: daemon.current_controller == 1, "a broker is controller")
        zk.delete(znode_paths.CONTROLLER)
        await until(lambda: daemon._followed == Lost(-1, "", (1,)), "it says why")
        await asyncio.sleep(0.3)
        assert (daemon.active, zk.exists(znode_paths.CONTROLLER)) == (False, None)
        zk.delete(f"{znode_paths.BROKER_IDS}/1")
        await until(lambda: daemon.active, "it leads once they are gone")
        assert (await state.state(daemon))["term"]["problems"] == {}
        zk.create(f"{znode_paths.BROKER_IDS}/1", BROKER)

        async def named() -> bool:
            return "/brokers/ids/1" in (await state.state(daemon))["term"]["problems"]

        await until(named, "the problem")


async def test_a_controller_of_ours_that_lives_keeps_it(
    zookeeper: str, session: Session, zk: KazooClient
) -> None:
    async with claimant(zookeeper) as claims, opened(zookeeper) as (other, _):
        theirs = Candidate(9002, "h:3", Incarnation("other"))
        await registration.register(other, theirs, "h:4")
        settings = Settings(controller_id=9002, zookeeper=zookeeper, kafka_takeover="exclusive")
        leader = Claimant(settings, ZooKeeperMetrics(CollectorRegistry()), OPEN_ACCESS)
        assert isinstance(await leader.attempt(other, theirs, heard, {}), Won)
        zk.create(znode_paths.RESIGNED, b"{}")
        zk.create(znode_paths.broker_path(ID), BROKER, makepath=True)
        assert await attempt(claims, session) == Lost(9002, "h:3")
        assert zk.exists(znode_paths.CONTROLLER)


async def test_a_resignation_that_was_written_already_is_carried_out(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """The reply to the first request of the operator was lost."""
    settings = Settings(
        controller_id=ID, zookeeper=zookeeper, state_log_dir=tmp_path, kafka_takeover="exclusive"
    )
    async with running(Daemon(settings)) as daemon:
        await until(lambda: daemon.active, "active")
        zk.create(znode_paths.RESIGNED, b"{}")
        assert await leadership_requests.resign(daemon, "r", "ann", to_kafka=True) == ""
        await until(lambda: zk.exists(znode_paths.CONTROLLER) is None, "it is given up")
        await until(lambda: not daemon.active, "it follows")
