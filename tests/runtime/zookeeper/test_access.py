"""Znodes with ACLs and logins by SASL, on a real ZooKeeper that knows users as brokers' clusters do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from broker_stub.zookeeper import registration
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from controller.core.znode_paths import CONTROLLER, CONTROLLER_EPOCH
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper, Security
from controller.errors import EnvironmentFault
from controller.runtime.config import load
from controller.runtime.daemon import Daemon
from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper.session import AccessError, Session
from proto.incarnations import new_incarnation
from proto.zookeeper_access import OPEN_ACCESS, Login, ZooKeeperAccess
from tests.support.runtime.daemons import running
from tests.support.runtime.secured_zookeeper import access, secured_zookeeper
from tests.support.runtime.sessions import PATIENCE_S, until

pytestmark = pytest.mark.slow

KAFKA = access("kafka", set_acl=True)
PRIVATE = [("sasl", "kafka", 31)]
READABLE = [*PRIVATE, ("world", "anyone", 1)]
OPEN = [("world", "anyone", 31)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a server with SASL DIGEST-MD5."""
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper-sasl")) as connect:
        yield connect


@asynccontextmanager
async def opened(
    connect: str, login: ZooKeeperAccess, patience_s: float = PATIENCE_S
) -> AsyncIterator[Session]:
    metrics = ZooKeeperMetrics(CollectorRegistry())
    session = Session(connect, 20_000, lambda _: None, metrics, access=login)
    try:
        await session.start(patience_s)
        yield session
    finally:
        await session.close()


def acls(connect: str, path: str) -> list[tuple[str, str, int]]:
    client = KazooClient(connect, **KAFKA.client_options())
    client.start(PATIENCE_S)
    try:
        found: list[Any] = client.get_acls(path)[0]
        return [(acl.id.scheme, acl.id.id, acl.perms) for acl in found]
    finally:
        client.stop()
        client.close()


async def test_znodes_are_made_with_the_brokers_acls(secured: str) -> None:
    connect = f"{secured}/kafka/one"
    async with opened(connect, KAFKA) as session:
        for path in ("/config/users", "/config/brokers", "/brokers/topics", "/consumers"):
            await session.ensure(path)
        await session.create(CONTROLLER_EPOCH, b"1")
        await session.register_controller(CONTROLLER, b"{}", CONTROLLER_EPOCH, 2, 0)
        await session.multi(
            [
                session.op_create("/brokers/topics/t", b""),
                session.op_create("/config/brokers/1", b""),
                session.op_create_sequential("/config/change_", b""),
            ]
        )
        for path, expected in {
            "/config": READABLE,
            "/config/users": PRIVATE,
            "/config/brokers": PRIVATE,
            "/config/brokers/1": PRIVATE,
            "/brokers/topics": READABLE,
            "/brokers/topics/t": READABLE,
            "/config/change_0000000002": READABLE,
            "/consumers": OPEN,
            CONTROLLER: READABLE,
            CONTROLLER_EPOCH: READABLE,
        }.items():
            assert (path, acls(connect, path)) == (path, expected)


@pytest.mark.parametrize("login", [OPEN_ACCESS, access("other")], ids=["nobody", "other"])
async def test_others_may_read_but_not_change(secured: str, login: ZooKeeperAccess) -> None:
    connect = f"{secured}/kafka/two{login.name}"
    async with opened(connect, KAFKA) as ours, opened(connect, login) as theirs:
        for path in ("/config/users/alice", "/brokers/topics/t"):
            await ours.ensure(path)
        assert (await theirs.get("/brokers/topics/t"))[0] == b""
        with pytest.raises(AccessError):
            await theirs.get("/config/users/alice")
        with pytest.raises(AccessError):
            await theirs.create("/brokers/topics/u", b"")
        with pytest.raises(AccessError):
            await theirs.delete("/brokers/topics/t")
        assert (await ours.get("/config/users/alice"))[0] == b""


async def test_without_set_acl_everybody_may_all(secured: str) -> None:
    connect = f"{secured}/open"
    async with opened(connect, KAFKA._replace(set_acl=False)) as session:
        await session.ensure("/config/users")
        assert acls(connect, "/config/users") == OPEN


async def test_a_controller_leads_with_the_brokers_identity(secured: str, tmp_path: Path) -> None:
    connect = f"{secured}/kafka/three"
    password = tmp_path / "password"
    password.write_text("kafka-secret\n")
    password.chmod(0o600)
    settings = load(
        {
            "zookeeper": connect,
            "state_log_dir": str(tmp_path / "log"),
            "zookeeper_sasl_username": "kafka",
            "zookeeper_sasl_password_file": str(password),
            "zookeeper_set_acl": True,
        },
        environ={},
    )
    async with running(Daemon(settings)) as daemon:
        await until(lambda: daemon.active, "the controller to lead")
        for path, expected in {
            CONTROLLER: READABLE,
            "/brokers/topics": READABLE,
            "/controllers/ids/1": READABLE,
            "/feature": READABLE,
            "/config/users": PRIVATE,
            "/consumers": OPEN,
        }.items():
            assert (path, acls(connect, path)) == (path, expected)


async def test_a_wrong_password_is_said(secured: str) -> None:
    with pytest.raises(EnvironmentFault, match="refused the login of 'kafka'"):
        async with opened(secured, access("kafka", "wrong"), 10):
            pass


async def test_a_broker_logs_in_or_says_why_not(secured: str) -> None:
    epochs: list[int] = []
    failures: list[BaseException] = []

    def registrar(login: ZooKeeperAccess) -> Registrar:
        identity, timeouts = Identity(1, "h", 9092, None, new_incarnation()), Timeouts(6000, 30_000)
        connect = f"{secured}/kafka/brokers"
        return Registrar(identity, connect, timeouts, epochs.append, failures.append, access=login)

    wrong = registrar(access("kafka", "wrong"))
    wrong.start()
    await until(lambda: bool(failures), "the refusal")
    assert "refused the login of 'kafka' by SASL DIGEST-MD5" in str(failures.pop())
    right = registrar(KAFKA)
    right.start()
    await until(lambda: bool(epochs), "the registration")
    assert acls(f"{secured}/kafka/brokers", "/brokers/ids/1") == READABLE
    assert acls(f"{secured}/kafka/brokers", "/config/users") == PRIVATE
    right.stop(20)
    assert failures == []


async def test_a_broker_outlives_a_change_of_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session logs in again with the former one, when its server comes back with the new one."""
    monkeypatch.setattr(registration, "_REFUSED_PAUSE_S", 0.1)
    epochs: list[int] = []
    failures: list[BaseException] = []
    password = "former"
    security = Security(users={"kafka": password})
    with EmbeddedZooKeeper(tmp_path, heap_mb=256, force_sync=False, security=security) as ensemble:
        registrar = Registrar(
            Identity(1, "h", 9092, None, new_incarnation()),
            ensemble.connect_string,
            Timeouts(20_000, 30_000),
            epochs.append,
            failures.append,
            access=ZooKeeperAccess(Login("kafka", lambda: password)),
        )
        registrar.start()
        await until(lambda: bool(epochs), "the registration")
        ensemble.stop()
        password = "new"
        ensemble.servers[0].security = Security(users={"kafka": password})
        ensemble.start()
        await until(lambda: bool(failures) or len(epochs) == 2, "the next registration")
        registrar.stop(20)
    assert failures == []


def test_a_password_is_not_shown() -> None:
    assert "kafka-secret" not in repr(KAFKA)
