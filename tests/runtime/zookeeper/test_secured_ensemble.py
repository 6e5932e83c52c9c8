"""Controllers, brokers and tools at a real ZooKeeper with TLS, logins and ACLs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from prometheus_client import CollectorRegistry

from broker_stub.errors import RegistrationFault
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from controller.cli.main import main
from controller.core.znode_paths import CONTROLLER, CONTROLLER_EPOCH
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper, Security
from controller.errors import EnvironmentFault
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper.session import AccessError, Session
from proto.incarnations import new_incarnation
from proto.security.files import FileSettingError
from proto.zookeeper_access import OPEN_ACCESS, Client, ZooKeeperAccess, ZooKeeperSettings
from tests.support.runtime.certificates import Authority
from tests.support.runtime.daemons import running
from tests.support.runtime.sessions import PATIENCE_S, until

pytestmark = pytest.mark.slow

PASSWORD = "digest-secret"
OPEN = [("world", "anyone", 31)]


def server_certificate(authority: Authority, name: str, *hosts: str) -> Path:
    """One file, as ZooKeeper wants it."""
    certificate, key = authority.issue(name, hosts=hosts or ("127.0.0.1",))
    together = authority.folder / f"{name}-with-key.pem"
    together.write_bytes(certificate.read_bytes() + key.read_bytes())
    return together


@contextmanager
def started(folder: Path, security: Security, servers: int = 1) -> Iterator[str]:
    ensemble = EmbeddedZooKeeper(folder, servers, heap_mb=128, force_sync=False, security=security)
    with ensemble as running_ensemble:
        yield running_ensemble.connect_string


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[str]:
    """An ensemble of three with TLS and client certificates."""
    security = Security(server_certificate(authority, "zookeeper"), authority.cafile)
    with started(tmp_path_factory.mktemp("tls"), security, 3) as connect:
        yield connect


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Without TLS; anybody may log in by digest."""
    with started(tmp_path_factory.mktemp("digest"), Security()) as connect:
        yield connect


def tls(authority: Authority, name: str = "controller", **more: Any) -> ZooKeeperSettings:
    certificate, key = authority.issue(name)
    given: dict[str, Any] = {
        "zookeeper_ssl_client_enable": True,
        "zookeeper_ssl_certificate": certificate,
        "zookeeper_ssl_key": key,
        "zookeeper_ssl_ca": authority.cafile,
        **more,
    }
    return ZooKeeperSettings(**given)


def digest(tmp_path: Path, **more: Any) -> ZooKeeperSettings:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    return ZooKeeperSettings(
        zookeeper_digest_username="kafka", zookeeper_digest_password_file=password, **more
    )


@asynccontextmanager
async def opened(
    connect: str, access: ZooKeeperAccess, patience_s: float = PATIENCE_S
) -> AsyncIterator[Session]:
    session = Session(connect, 20_000, lambda _: None, ZooKeeperMetrics(CollectorRegistry()), access=access)
    try:
        await session.start(patience_s)
        yield session
    finally:
        await session.close()


def acls(connect: str, access: ZooKeeperAccess) -> Mapping[str, list[tuple[str, str, int]]]:
    """Of all znodes but ZooKeeper's own."""
    client = Client(access, hosts=connect)
    client.start(PATIENCE_S)
    found = {}
    try:
        waiting = [f"/{name}" for name in client.get_children("/") if name != "zookeeper"]
        while waiting:
            path = waiting.pop()
            found[path] = [(acl.id.scheme, acl.id.id, acl.perms) for acl in client.get_acls(path)[0]]
            waiting += [f"{path}/{name}" for name in client.get_children(path)]
    finally:
        client.stop()
        client.close()
    return found


def registrar(
    connect: str, access: ZooKeeperAccess, epochs: list[int], failures: list[BaseException]
) -> Registrar:
    identity = Identity(1, "h", 9092, None, new_incarnation())
    timeouts = Timeouts(6000, 3000)
    return Registrar(identity, connect, timeouts, epochs.append, failures.append, access=access)


# --- TLS


async def test_a_client_certificate_opens_the_door_and_owns_znodes(
    secured: str, authority: Authority
) -> None:
    access = tls(authority, zookeeper_set_acl=True).zookeeper_access()
    async with opened(f"{secured}/one", access) as session:
        await session.ensure("/brokers/topics")
    owners = acls(f"{secured}/one", access)["/brokers/topics"]
    assert ("x509", "CN=controller", 31) in owners
    assert ("world", "anyone", 1) in owners


async def refused(connect: str, access: ZooKeeperAccess) -> tuple[str, list[Any]]:
    """Why a session does not start, and what was logged meanwhile."""
    with structlog.testing.capture_logs() as logs, pytest.raises(EnvironmentFault) as caught:
        async with opened(connect, access, 3):
            pass
    return str(caught.value), [entry for entry in logs if entry["event"] == "zookeeper_tls"]


async def test_a_wrong_authority_is_said_once(secured: str, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "another authority")
    access = tls(authority, zookeeper_ssl_ca=other.cafile).zookeeper_access()
    why, logs = await refused(secured, access)
    assert "TLS to ZooKeeper failed: ZooKeeper's certificate: unable to get local issuer certificate" in why
    assert len(logs) == 1


async def test_a_certificate_of_another_authority_is_refused_by_the_server(
    secured: str, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = Authority(tmp_path / "other", "another authority").issue("controller")
    access = tls(authority, zookeeper_ssl_certificate=certificate, zookeeper_ssl_key=key).zookeeper_access()
    why, logs = await refused(secured, access)
    assert "TLS to ZooKeeper failed" in why
    assert len(logs) <= 2


async def test_who_has_no_certificate_is_refused(secured: str, authority: Authority) -> None:
    access = ZooKeeperSettings(
        zookeeper_ssl_client_enable=True, zookeeper_ssl_ca=authority.cafile
    ).zookeeper_access()
    why, _ = await refused(secured, access)
    assert "TLS to ZooKeeper failed" in why


async def test_without_tls_nobody_gets_in(secured: str) -> None:
    why, _ = await refused(secured, OPEN_ACCESS)
    assert "no ZooKeeper at" in why


async def test_a_server_of_another_host_is_not_believed(authority: Authority, tmp_path: Path) -> None:
    security = Security(server_certificate(authority, "elsewhere", "elsewhere.example"), authority.cafile)
    with started(tmp_path / "elsewhere", security) as connect:
        why, logs = await refused(connect, tls(authority).zookeeper_access())
        assert "IP address mismatch" in why
        assert len(logs) == 1
        epochs: list[int] = []
        failures: list[BaseException] = []
        broker = registrar(connect, tls(authority).zookeeper_access(), epochs, failures)
        broker.start()
        await until(lambda: bool(failures), "the broker's end")
        assert isinstance(failures[0], RegistrationFault)
        assert "IP address mismatch" in str(failures[0])


def test_an_expired_certificate_is_said_at_the_start(authority: Authority) -> None:
    certificate, key = authority.issue("expired", days=(-10, -1))
    settings = tls(authority, zookeeper_ssl_certificate=certificate, zookeeper_ssl_key=key)
    with pytest.raises(FileSettingError, match=r"zookeeper_ssl_certificate = .*it is expired"):
        settings.zookeeper_access()


async def test_a_broker_and_a_controller_of_a_tls_ensemble(
    secured: str, authority: Authority, tmp_path: Path
) -> None:
    files = tls(authority, zookeeper_set_acl=True)
    connect = f"{secured}/both"
    settings = Settings(zookeeper=connect, state_log_dir=tmp_path / "log", **vars(files))
    epochs: list[int] = []
    failures: list[BaseException] = []
    broker = registrar(connect, files.zookeeper_access(), epochs, failures)
    broker.start()
    try:
        async with running(Daemon(settings)) as daemon:
            await until(lambda: daemon.active and bool(epochs), "both")
            found = acls(connect, files.zookeeper_access())
            assert {path for path, acl in found.items() if acl == OPEN} == {"/consumers"}
            assert {CONTROLLER, CONTROLLER_EPOCH, "/brokers/ids/1"} <= found.keys()
    finally:
        broker.stop(20)
    assert failures == []


# --- digest, and the migration


def migrate(connect: str, kind: str, password: Path, *more: str) -> Result:
    return CliRunner().invoke(
        main,
        [
            "zookeeper-security-migration",
            f"--acl={kind}",
            f"--zookeeper={connect}",
            "--zookeeper-digest-username=kafka",
            f"--zookeeper-digest-password-file={password}",
            *more,
        ],
    )


async def test_a_tree_is_secured_and_opened_while_a_controller_leads(plain: str, tmp_path: Path) -> None:
    connect = f"{plain}/kafka"
    login = digest(tmp_path)
    access = login.zookeeper_access()
    settings = Settings(zookeeper=connect, state_log_dir=tmp_path / "log", **vars(login))
    async with running(Daemon(settings)) as daemon:
        await until(lambda: daemon.active, "the controller")
        async with opened(connect, access) as session:
            for number in range(120):
                await session.ensure(f"/brokers/topics/t{number}/partitions/0/state")
            await session.ensure("/config/users/alice")
        term = daemon.term
        password = login.zookeeper_digest_password_file
        done = await asyncio.to_thread(migrate, connect, "secure", password, "--enable-path-check")
        assert done.exit_code == 0, done.output
        found = acls(connect, access)
        assert f"{len(found) - 1} znodes changed, 0 failed" in done.output
        assert {path for path, acl in found.items() if acl == OPEN} == {"/consumers"}
        async with opened(connect, OPEN_ACCESS) as stranger:
            assert (await stranger.get("/brokers/topics/t0"))[0] == b""
            for work in (
                stranger.get("/config/users/alice"),
                stranger.delete("/brokers/topics/t0/partitions/0/state"),
                stranger.create("/brokers/topics/evil", b""),
            ):
                with pytest.raises(AccessError):
                    await work
        again = await asyncio.to_thread(migrate, connect, "unsecure", password)
        assert again.exit_code == 0, again.output
        assert {tuple(acl) for acl in acls(connect, access).values()} == {tuple(OPEN)}
        assert daemon.active
        assert daemon.term is term


async def test_what_cannot_be_changed_is_named(plain: str, tmp_path: Path) -> None:
    password = digest(tmp_path).zookeeper_digest_password_file
    zk = KazooClient(plain, auth_data=[("digest", "other:theirs")])
    zk.start(20)
    try:
        zk.create("/owned/brokers/topics/t", makepath=True)
        zk.set_acls("/owned/brokers/topics", [make_digest_acl("other", "theirs", all=True)])
        done = await asyncio.to_thread(migrate, f"{plain}/owned", "secure", password)
        assert done.exit_code == 1
        assert "not changed, ZooKeeper's ACLs deny it: /brokers/topics" in done.output
        checked = await asyncio.to_thread(
            migrate, f"{plain}/owned", "secure", password, "--enable-path-check"
        )
        assert checked.exit_code == 1
        assert "not there, is the chroot right? /config, /controller_epoch" in checked.output
    finally:
        zk.stop()
        zk.close()


def test_a_migration_needs_a_login(plain: str) -> None:
    done = CliRunner().invoke(main, ["zookeeper-security-migration", "--acl=secure", f"--zookeeper={plain}"])
    assert done.exit_code == 2
    assert "nobody would own them" in done.output


# --- settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"zookeeper_ssl_ca": Path("x")}, "left out, or zookeeper_ssl_client_enable be true"),
        ({"zookeeper_sasl_password_file": Path("x")}, "left out, or zookeeper_sasl_username be given"),
        ({"zookeeper_digest_password_file": Path("x")}, "left out, or zookeeper_digest_username be given"),
        ({"zookeeper_sasl_username": "a", "zookeeper_sasl_mechanism": "GSSAPI"}, "package kerberos"),
        ({"zookeeper_digest_username": "a"}, "zookeeper_digest_password_file"),
        ({"zookeeper_set_acl": True}, "nobody would own them"),
        ({"zookeeper_set_acl": True, "zookeeper_ssl_client_enable": True}, "nobody would own them"),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], why: str) -> None:
    with pytest.raises(FileSettingError, match=why):
        ZooKeeperSettings(**given).zookeeper_access()


def test_passwords_are_in_no_text(tmp_path: Path) -> None:
    settings = digest(tmp_path)
    access = settings.zookeeper_access()
    assert PASSWORD not in repr(access)
    assert PASSWORD not in json.dumps([str(value) for value in vars(settings).values()])
