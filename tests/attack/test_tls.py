"""A cluster of controllers and brokers by mutual TLS: strangers get in nowhere, and who belongs there works.

All strangers, at all sockets, with all methods of the services and all paths of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc
import grpc.aio
import pytest
from kazoo.client import KazooClient

from controller.certificates import authority_in
from controller.playground.cluster import ADMIN, Playground
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2, broker_control_pb2, broker_data_pb2, controller_service_pb2
from proto.security.grpc_channels import GrpcTls, PemTls, open_channel
from proto.security.tls import TlsFiles, client_contexts
from tests.support.runtime.certificates import Authority, rotate
from tests.support.runtime.programs import BIN, run_to_end

pytestmark = pytest.mark.slow

TOPIC = "orders"
PATHS = ("/live", "/ready", "/leader", "/metrics", "/state", "/ui", "/")
#: What each gRPC socket serves.
SERVED = {
    "controller": (admin_service_pb2, "AdminService", controller_service_pb2, "ControllerService"),
    "broker": (broker_control_pb2, "BrokerControl", broker_data_pb2, "BrokerData"),
}


def methods(role: str) -> list[str]:
    modules = SERVED[role]
    return [
        f"/{service.full_name}/{method.name}"
        for file, name in zip(modules[::2], modules[1::2], strict=True)
        for service in [file.DESCRIPTOR.services_by_name[name]]
        for method in service.methods
    ]


class Cluster(NamedTuple):
    playground: Playground
    grpc: dict[str, str]
    http: list[str]


def said(path: Path, event: str) -> dict[str, Any]:
    """The last line of a log about an event, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = [
            json.loads(line) for line in path.read_text().splitlines(keepends=True) if line[-2:] == "}\n"
        ]
        if found := [line for line in lines if line.get("event") == event]:
            return dict(found[-1])
        time.sleep(0.05)
    raise AssertionError(f"no {event}: {path.read_text()}")


def listening(playground: Playground) -> Cluster:
    """The addresses of a started cluster, from its members' logs."""
    addresses, https = {}, []
    for name, member in playground.members.items():
        found = said(member.log_path, "listening")
        if name.startswith("controller"):
            addresses[name] = found["grpc"]
            https.append(found["http"])
        else:
            addresses[name] = f"{found['host']}:{found['port']}"
    return Cluster(playground, addresses, https)


@asynccontextmanager
async def session_of(playground: Playground) -> AsyncIterator[Session]:
    async with cluster_reader.connected(playground.connect, 20_000) as session:
        yield session


async def ready(playground: Playground, brokers: int) -> None:
    """Wait for an active controller and its brokers. The chroot is made by the first controller."""
    client = KazooClient(str(playground.zookeeper))
    client.start(20)
    try:
        while client.exists("/playground") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    finally:
        client.stop()
        client.close()
    async with session_of(playground) as session:
        await playground.active(session)
        await playground.until(session, "brokers", lambda found: len(found.brokers) == brokers)


@pytest.fixture(scope="module")
def cluster(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    chroot = f"/attack-tls-{os.getpid()}"
    client = KazooClient(zookeeper_server)
    client.start(20)
    client.ensure_path(chroot)
    client.stop()
    client.close()
    playground = Playground(
        tmp_path_factory.mktemp("secured"), 2, 2, f"{zookeeper_server}{chroot}", secure=True
    )
    try:
        playground.start()
        asyncio.run(ready(playground, 2))
        yield listening(playground)
    finally:
        playground.stop()


def issued(playground: Playground, name: str, ca: Path | None = None) -> TlsFiles:
    folder = playground.certificates
    return TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", ca or folder / "ca.pem")


class Unchecked:
    """Credentials of any files: ``PemTls`` would refuse expired ones."""

    def __init__(self, files: TlsFiles) -> None:
        assert files.ca is not None
        chain, key = (path and path.read_bytes() for path in (files.certificate, files.key))
        self._credentials = grpc.ssl_channel_credentials(files.ca.read_bytes(), key or None, chain or None)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return self._credentials

    def server_credentials(self) -> grpc.ServerCredentials:
        raise NotImplementedError


def strangers(playground: Playground, folder: Path) -> dict[str, TlsFiles | None]:
    """By what is wrong with them. None: without TLS."""
    ca = playground.certificates / "ca.pem"
    other = Authority(folder / "other", "another authority")
    # Of the cluster's own authority, whose key lies beside the certificates.
    ours = authority_in(playground.certificates)
    expired = Authority(folder / "expired", signs=ours)
    early = Authority(folder / "early", signs=ours)
    return {
        "without TLS": None,
        "without certificate": TlsFiles(None, None, ca),
        "of another authority": TlsFiles(*other.issue("controller-1"), ca),
        "expired": TlsFiles(*expired.issue("controller-1", days=(-3, -1)), ca),
        "not yet valid": TlsFiles(*early.issue("controller-1", days=(1, 3)), ca),
        "signed by itself": TlsFiles(other.cafile, other.ca_keyfile, ca),
        "that believes another authority": issued(playground, ADMIN, other.cafile),
    }


async def called(address: str, method: str, tls: GrpcTls | None, *, patient: bool = False) -> grpc.StatusCode:
    """The status of a call with an empty request. ``patient``: connects first, however often it has to try."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with open_channel(address, tls, options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        try:
            if patient:
                async with asyncio.timeout(20):
                    await channel.channel_ready()
            await call(b"", timeout=5 if patient else 20)
        except TimeoutError:
            return grpc.StatusCode.UNAVAILABLE
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def test_strangers_reach_no_method(cluster: Cluster, tmp_path: Path) -> None:
    tried, got_in = 0, []
    for who, files in strangers(cluster.playground, tmp_path).items():
        tls = None if files is None else Unchecked(files)
        for name, address in cluster.grpc.items():
            for method in methods(name.partition("-")[0]):
                tried += 1
                status = await called(address, method, tls)
                if status is not grpc.StatusCode.UNAVAILABLE:
                    got_in.append((who, name, method, status))
    assert got_in == []
    assert tried > 300
    for member in cluster.playground.members.values():
        for line in member.log_path.read_text().splitlines():
            json.loads(line)


async def test_strangers_see_no_page(cluster: Cluster, tmp_path: Path) -> None:
    for who, files in strangers(cluster.playground, tmp_path).items():
        for address in cluster.http:
            for path in PATHS:
                with pytest.raises((aiohttp.ClientError, OSError)):
                    assert (await page(address, path, files, checked=False)) is None, (who, path)


async def page(address: str, path: str, files: TlsFiles | None, *, checked: bool = True) -> int:
    """The status of a page. Raises ClientError, OSError."""
    context: Any = False
    scheme = "http"
    if files is not None:
        scheme = "https"
        if checked:
            context = client_contexts(files).current()
        else:
            context = ssl.create_default_context(cafile=str(files.ca))
            if files.certificate is not None:
                context.load_cert_chain(files.certificate, files.key)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as client,
        client.get(f"{scheme}://{address}{path}", ssl=context) as response,
    ):
        return response.status


async def test_who_belongs_there_is_answered(cluster: Cluster) -> None:
    """The same calls and pages as above, all calls at once."""
    files = issued(cluster.playground, ADMIN)
    calls = [(a, method) for name, a in cluster.grpc.items() for method in methods(name.partition("-")[0])]
    statuses = await asyncio.gather(*(called(*call, PemTls(files), patient=True) for call in calls))
    refused = grpc.StatusCode.UNAVAILABLE
    assert [call for call, status in zip(calls, statuses, strict=True) if status is refused] == []
    for address in cluster.http:
        assert await page(address, "/live", files) == 200
        assert await page(address, "/state", files) == 200


@pytest.mark.long
async def test_bursts_of_connections_while_certificates_change(cluster: Cluster) -> None:
    """As when hundreds of brokers and clients connect again after a failover."""
    tls = PemTls(issued(cluster.playground, ADMIN))
    for round_ in range(20):
        for name in cluster.grpc:
            if round_ % 4 == 3:
                (cluster.playground.certificates / f"{name}.pem").touch()
        waits = [connected(a, tls) for name, a in cluster.grpc.items() for _ in range(60)]
        assert all(await asyncio.gather(*waits)), round_
    for member in cluster.playground.members.values():
        member.check()


async def connected(address: str, tls: GrpcTls) -> bool:
    """Whether a connection of its own is ready before gRPC would give up the attempt."""
    async with open_channel(address, tls, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            async with asyncio.timeout(20):
                await channel.channel_ready()
        except TimeoutError:
            return False
    return True


async def test_a_server_under_another_name_is_not_believed(cluster: Cluster, tmp_path: Path) -> None:
    """A stranger with a certificate of the right authority, for another host, takes a broker's address."""
    playground = cluster.playground
    ours = Authority(tmp_path, signs=authority_in(playground.certificates))
    certfile, keyfile = ours.issue("broker-1", hosts=("elsewhere.example",))
    server = grpc.aio.server()
    pair = keyfile.read_bytes(), certfile.read_bytes()
    credentials = grpc.ssl_server_credentials([pair], ours.cafile.read_bytes(), True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        tls = PemTls(issued(playground, ADMIN))
        assert await called(f"127.0.0.1:{port}", "/any/method", tls) is grpc.StatusCode.UNAVAILABLE
    finally:
        await server.stop(None)


def test_pctl_says_what_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    playground = cluster.playground
    pctl = [str(BIN / "pctl"), f"--zookeeper={playground.connect}"]
    done = run_to_end([*pctl, "topics", "create", "t", "--partitions=1", "--replication-factor=1"], tmp_path)
    assert done.returncode == 1
    assert "called without TLS: does the server want it?" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    done = run_to_end(
        [*pctl, "topics", "create", "t", "--partitions=1", "--replication-factor=1"],
        tmp_path,
        {"PCTL_SSL_CA": str(playground.certificates / "ca.pem")},
    )
    assert done.returncode == 1
    assert "called by TLS: does the server speak it, and accept this certificate?" in done.stderr


def test_records_and_verbs_with_a_certificate(cluster: Cluster, tmp_path: Path) -> None:
    playground = cluster.playground
    pctl = [str(BIN / "pctl"), f"--zookeeper={playground.connect}", "--timeout=60"]
    for arguments in (
        ["topics", "create", "letters", "--partitions=2", "--replication-factor=2"],
        ["produce", "letters", "a", "b"],
        ["consume", "letters", "--from-beginning", "--max-messages=2"],
        ["cluster"],
        ["brokers"],
        ["topics", "describe", "letters"],
    ):
        done = run_to_end([*pctl, *arguments], tmp_path, playground.operator_environment)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)


@pytest.mark.long
async def test_certificates_and_authority_are_replaced_under_load(zookeeper: str, tmp_path: Path) -> None:
    """First everybody believes both authorities, then has a certificate of the new one, then believes only that.

    Nothing is restarted meanwhile. Then a controller and a broker are killed, so that all connect anew.
    """
    playground = Playground(tmp_path / "cluster", 2, 3, zookeeper, secure=True)
    try:
        playground.start()
        await ready(playground, 3)
        former = issued(playground, ADMIN)
        kept = [tmp_path / f"former-{number}" for number in range(3)]
        for path, kept_as in zip(former.present, kept, strict=True):
            kept_as.write_bytes(path.read_bytes())
        async with session_of(playground) as session:
            await playground.create_topic(session, TOPIC, (6, 3))
            load = WorkloadCheck(playground, TOPIC, 6)
            await load.start()
            await rotate(playground.certificates, Authority(tmp_path / "other", "the next authority"), 1)
            await asyncio.sleep(3)
            active, _ = await playground.active(session)
            playground.members[f"controller-{active}"].kill()
            await playground.active(session, other_than=active)
            playground.members[f"controller-{active}"].start()
            playground.members["broker-1"].signal(signal.SIGKILL)
            playground.members["broker-1"].stop()
            await playground.until(
                session, "broker 1 is gone", lambda found: 1 not in found.brokers, ["broker-1"]
            )
            playground.members["broker-1"].start()
            await playground.until(
                session,
                "broker 1 is back in every ISR",
                lambda found: all(p.state is not None and 1 in p.state.isr for p in found.partitions),
            )
            # Who had a channel to broker 1 uses it again.
            elect = [str(BIN / "pctl"), f"--zookeeper={playground.connect}", "--timeout=60", "elect", "--all"]
            done = await asyncio.to_thread(run_to_end, elect, tmp_path, playground.operator_environment)
            assert done.returncode == 0, done.stderr
            await load.wait_for_writes(time.time_ns() // 1000, "the election of preferred leaders")
            verdict = await load.verdict(session)
            assert verdict.acknowledged > 100
            assert verdict.unacknowledged == 0
        members = listening(playground)
        for name, address in members.grpc.items():
            method = methods(name.partition("-")[0])[0]
            assert await called(address, method, PemTls(former)) is not grpc.StatusCode.UNAVAILABLE
            old = Unchecked(TlsFiles(kept[0], kept[1], former.ca))
            assert await called(address, method, old) is grpc.StatusCode.UNAVAILABLE, name
    finally:
        playground.stop()


@pytest.mark.parametrize("days", [(-3, -1), (1, 3)], ids=["expired", "not yet valid"])
@pytest.mark.parametrize("daemon", ["controller", "broker"])
def test_a_daemon_does_not_start_with_such_a_certificate(
    tmp_path: Path, daemon: str, days: tuple[float, float]
) -> None:
    authority = Authority(tmp_path / "ca")
    certfile, keyfile = authority.issue("own", days=days)
    files = {"CERTIFICATE": certfile, "KEY": keyfile, "CA": authority.cafile}
    own = f"--state-log-dir={tmp_path / 'log'}"
    if daemon == "controller":
        prefix, command = "PARTITION_CONTROLLER_", ["partition-controller", "run", own]
    else:
        prefix = "BROKER_STUB_"
        command = [
            "broker-stub",
            "run",
            "--broker-id=1",
            "--zookeeper=127.0.0.1:1",
            "--listen=127.0.0.1:0",
            own,
        ]
        command += [f"--data-dir={tmp_path / 'data'}"]
    changes = {f"{prefix}SSL_{name}": str(path) for name, path in files.items()}
    done = run_to_end([str(BIN / command[0]), *command[1:]], tmp_path, changes)
    assert done.returncode == 2, done.stderr
    assert f"ssl_certificate = '{certfile}'" in done.stderr
    assert "a certificate that is valid now: it is" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
