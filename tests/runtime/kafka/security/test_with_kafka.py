"""A real Kafka 3.9.1 broker with SASL_SSL, SCRAM, mutual TLS and AclAuthorizer: we log in to it, and it to us."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller.embedded_zookeeper.ensemble import find_java, free_ports
from controller.runtime.config import Settings, load
from controller.runtime.kafka.connection import Connection, ConnectionFailedError
from controller.runtime.kafka.security.scram import ScramMechanism, format_credential, make_credential
from controller.runtime.kafka.security.setup import client_security, server_security
from controller.runtime.kafka.security.users import users_in_zookeeper
from controller.runtime.zookeeper.session import NoNodeError, Session
from proto.gen.kafka.metadata_request import MetadataRequest
from proto.gen.kafka.metadata_response import MetadataResponse
from proto.gen.kafka.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from proto.gen.kafka.update_metadata_response import UpdateMetadataResponse
from proto.kafka.apis import ApiKey
from tests.support.paths import ROOT
from tests.support.runtime.certificates import Authority
from tests.support.runtime.kafka_listener import Listener, listening
from tests.support.runtime.sessions import until

JARS = ROOT / "build" / "kafka-jars"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not list(JARS.glob("kafka_2*.jar")), reason="make kafka-jars fetches Kafka first"),
]

PASSWORD = "controller, of = clüster"
CLUSTER_AUTHORIZATION_FAILED, STALE_CONTROLLER_EPOCH = 31, 11
_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass
class Broker:
    """A running broker. ``sasl`` and ``mutual``: ports of its listeners."""

    folder: Path
    zookeeper: str
    authority: Authority
    sasl: int
    mutual: int
    process: subprocess.Popen[bytes]

    def settings(self, user: str, **changes: str) -> Settings:
        """Settings of a controller that is ``user`` by SCRAM and by certificate."""
        certfile, keyfile = self.folder / f"ca/{user}.pem", self.folder / f"ca/{user}.key"
        if not certfile.exists():
            self.authority.issue(user)
        password = self.folder / f"{user}.password"
        password.write_text(PASSWORD + "\n")
        password.chmod(0o600)
        return load(
            {
                "kafka_security_protocol": "SASL_SSL",
                "kafka_ssl_certfile": str(certfile),
                "kafka_ssl_keyfile": str(keyfile),
                "kafka_ssl_cafile": str(self.authority.cafile),
                "kafka_sasl_username": user,
                "kafka_sasl_password_file": str(password),
                **changes,
            },
            environ={},
        )


def java(folder: Path, main: str, *arguments: str, heap: str = "-Xmx256m") -> list[str]:
    classpath = f"{JARS}/*"
    return [find_java(), heap, f"-Dkafka.logs.dir={folder}", "-cp", classpath, main, *arguments]


def configure_scram(folder: Path, zookeeper: str, user: str) -> None:
    """As an operator does before the first broker starts."""
    subprocess.run(
        java(folder, "kafka.admin.ConfigCommand", "--zookeeper", zookeeper, "--alter", "--entity-type", "users",
             "--entity-name", user, "--add-config",
             f"SCRAM-SHA-256=[password=x],SCRAM-SHA-512=[iterations=8192,password={PASSWORD.replace(',', '')}]"),
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip


def pem(certfile: Path, keyfile: Path, out: Path) -> Path:
    out.write_bytes(keyfile.read_bytes() + certfile.read_bytes())
    return out


@pytest.fixture
def broker(tmp_path: Path, zookeeper: str, zk: KazooClient) -> Iterator[Broker]:
    authority = Authority(tmp_path / "ca")
    sasl, mutual = free_ports(2)
    keystore = pem(*authority.issue("broker1", "ops"), tmp_path / "broker.pem")
    # The brokers' own user is written by us, the others by Kafka's tool.
    credential = format_credential(make_credential(ScramMechanism.SHA_512, PASSWORD))
    config = {"version": 1, "config": {"SCRAM-SHA-512": credential}}
    zk.create("/config/users/broker", json.dumps(config).encode(), makepath=True)
    properties = {
        "broker.id": "1",
        "zookeeper.connect": zookeeper,
        "listeners": f"INTERNAL://127.0.0.1:{sasl},MUTUAL://127.0.0.1:{mutual}",
        "listener.security.protocol.map": "INTERNAL:SASL_SSL,MUTUAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.internal.scram-sha-512.sasl.jaas.config": f'{_JAAS} username="broker" password="{PASSWORD}";',
        "listener.name.internal.scram-sha-256.sasl.jaas.config": f"{_JAAS};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cafile),
        "listener.name.mutual.ssl.client.auth": "required",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:controller;User:CN=controller",
        "log.dirs": str(tmp_path / "logs"),
        "offsets.topic.replication.factor": "1",
        "controlled.shutdown.max.retries": "1",
        "log.cleaner.dedupe.buffer.size": "8388608",
    }
    configuration = tmp_path / "server.properties"
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    configuration.write_text(text, encoding="latin-1", errors="backslashreplace")
    with (tmp_path / "kafka.out").open("wb") as out:
        process = subprocess.Popen(
            java(tmp_path, "kafka.Kafka", str(configuration)),
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    try:
        deadline = time.monotonic() + 90
        while not zk.exists("/brokers/ids/1"):
            assert process.poll() is None, (tmp_path / "kafka.out").read_text()[-3000:]
            assert time.monotonic() < deadline, "the broker did not register"
            time.sleep(0.2)
        yield Broker(tmp_path, zookeeper, authority, sasl, mutual, process)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(tmp_path / "logs", ignore_errors=True)


async def opened(broker: Broker, settings: Settings, port: int) -> Connection:
    """A connection; a broker that has just registered may not listen yet. Raises ConnectionFailedError."""
    connection = Connection("us", client_security(settings), 30)
    await connection.open("127.0.0.1", port)
    return connection


def orders(broker: Broker, *, epoch: int, port: int = 0, broker_epoch: int = -1) -> UpdateMetadataRequest:
    """UpdateMetadata of controller 9001; with ``port`` it is among the live brokers."""
    live = [
        UpdateMetadataBroker(1, endpoints=[UpdateMetadataEndpoint(broker.sasl, "127.0.0.1", "INTERNAL", 3)])
    ]
    if port:
        live.append(
            UpdateMetadataBroker(9001, endpoints=[UpdateMetadataEndpoint(port, "127.0.0.1", "INTERNAL", 3)])
        )
    return UpdateMetadataRequest(
        controller_id=9001, controller_epoch=epoch, broker_epoch=broker_epoch, live_brokers=live
    )


async def test_we_log_in_to_brokers_and_they_to_us(broker: Broker, session: Session, zk: KazooClient) -> None:
    configure_scram(broker.folder, broker.zookeeper, "alice")
    credential = format_credential(make_credential(ScramMechanism.SHA_512, PASSWORD, 8192))
    zk.create("/config/users/controller", json.dumps({"config": {"SCRAM-SHA-512": credential}}).encode())
    ours = broker.settings("controller")

    async def announced() -> bool:
        with suppress(ConnectionFailedError):
            await (await opened(broker, ours, broker.sasl)).close()
            return True
        # The broker learns of users by announcements; this user was written without one.
        zk.create(
            "/config/changes/config_change_", b'{"version":2,"entity_path":"users/controller"}', sequence=True
        )
        return False

    await until(announced, "the broker to know us", 30)
    # SASL_SSL with SCRAM: a super user's order is only too old, another's is not authorised.
    connection = await opened(broker, ours, broker.sasl)
    metadata = await connection.request(MetadataRequest(), 12)
    assert isinstance(metadata, MetadataResponse)
    assert [node.node_id for node in metadata.brokers] == [1]
    assert await ordered(connection, orders(broker, epoch=0)) == STALE_CONTROLLER_EPOCH
    await connection.close()
    # Mutual TLS: principals are subjects.
    by_certificate = broker.settings("controller", kafka_security_protocol="SSL")
    connection = await opened(broker, by_certificate, broker.mutual)
    assert await ordered(connection, orders(broker, epoch=0)) == STALE_CONTROLLER_EPOCH
    await connection.close()
    stranger = await opened(broker, broker.settings("stranger", kafka_security_protocol="SSL"), broker.mutual)
    assert await ordered(stranger, orders(broker, epoch=0)) == CLUSTER_AUTHORIZATION_FAILED
    await stranger.close()
    await refusals(broker)
    await they_log_in(broker, session, zk)


async def ordered(connection: Connection, order: UpdateMetadataRequest) -> int:
    answer = await connection.request(order, 8)
    assert isinstance(answer, UpdateMetadataResponse)
    return answer.error_code


async def refusals(broker: Broker) -> None:
    """What a broker refuses us, said with the broker's address."""
    with pytest.raises(ConnectionFailedError, match="refused us with error 58"):
        await opened(broker, broker.settings("nobody"), broker.sasl)
    with pytest.raises(
        ConnectionFailedError, match="does not offer PLAIN; it offers SCRAM-SHA-256, SCRAM-SHA-512"
    ):
        await opened(broker, broker.settings("controller", kafka_sasl_mechanism="PLAIN"), broker.sasl)
    foreign = Authority(broker.folder / "foreign", "another authority")
    with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
        await opened(broker, broker.settings("controller", kafka_ssl_cafile=str(foreign.cafile)), broker.sasl)


async def they_log_in(broker: Broker, session: Session, zk: KazooClient) -> None:
    """A broker that is told that we are the controller asks us for its shutdown, and is who it says."""

    async def read(path: str) -> bytes | None:
        with suppress(NoNodeError):
            return (await session.get(path))[0]
        return None

    # What Kafka's tool stored for alice is read: another mechanism's password is another.
    find = users_in_zookeeper(read)
    stored = await find(ScramMechanism.SHA_512, "alice")
    assert stored is not None
    assert stored.iterations == 8192
    remade = make_credential(ScramMechanism.SHA_512, PASSWORD.replace(",", ""), 8192, stored.salt)
    assert remade == stored
    async with listening(server_security(broker.settings("controller"), read)) as listener:
        connection = await opened(broker, broker.settings("controller"), broker.sasl)
        epoch = zk.exists("/brokers/ids/1").czxid
        order = orders(broker, epoch=100, port=listener.port, broker_epoch=epoch)
        assert await ordered(connection, order) == 0
        broker.process.send_signal(signal.SIGTERM)
        await until(lambda: ApiKey.CONTROLLED_SHUTDOWN in listener.asked, "the broker to ask us", 60)
        assert {str(caller) for caller in listener.callers} == {"User:broker"}
        await until(lambda: broker.process.poll() is not None, "the broker to end", 60)
        await connection.close()
    said = (broker.folder / "kafka.out").read_text(errors="replace")
    assert "AuthenticationException" not in said, said[-3000:]


#: Of Kafka's tool that asks a broker for its versions: settings of its client, and as whom we know it.
TOOLS = {
    "scram": ("SASL_SSL", "SCRAM-SHA-512", "User:alice"),
    "mutual": ("SSL", "", "User:CN=alice,OU=ops"),
}


@pytest.mark.parametrize("tool", TOOLS)
async def test_java_clients_log_in_to_us(tool: str, tmp_path: Path) -> None:
    protocol, mechanism, caller = TOOLS[tool]
    authority = Authority(tmp_path / "ca")
    credential = make_credential(ScramMechanism.SHA_512, PASSWORD)

    async def read(path: str) -> bytes | None:
        config = {"SCRAM-SHA-512": format_credential(credential)}
        return json.dumps({"config": config}).encode() if path == "/config/users/alice" else None

    certfile, keyfile = authority.issue("controller")
    settings = load(
        {
            "kafka_security_protocol": protocol,
            "kafka_ssl_certfile": str(certfile),
            "kafka_ssl_keyfile": str(keyfile),
            "kafka_ssl_cafile": str(authority.cafile),
        },
        environ={},
    )
    keystore = pem(*authority.issue("alice", "ops"), tmp_path / "alice-keystore.pem")
    async with listening(server_security(settings, read)) as listener:
        said = await ask_by_tool(tmp_path, listener, protocol, mechanism, PASSWORD, keystore, authority)
        assert {str(principal) for principal in listener.callers} == {caller}, said
        listener.callers.clear()
        if mechanism:
            said = await ask_by_tool(tmp_path, listener, protocol, mechanism, "wrong", keystore, authority)
            assert "SaslAuthenticationException" in said
            assert f"invalid credentials with SASL mechanism {mechanism}" in said
            assert listener.callers == []


async def ask_by_tool(
    folder: Path, listener: Listener, protocol: str, mechanism: str, password: str, keystore: Path, authority: Authority
) -> str:  # fmt: skip
    properties = {
        "security.protocol": protocol,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cafile),
        "default.api.timeout.ms": "90000",
        "request.timeout.ms": "60000",
    }
    if mechanism:
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = f'{_JAAS} username="alice" password="{password}";'
    path = folder / "client.properties"
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    path.write_text(text, encoding="latin-1")
    command = java(
        folder,
        "kafka.admin.BrokerApiVersionsCommand",
        "--bootstrap-server", f"127.0.0.1:{listener.port}",
        "--command-config", str(path),
    )  # fmt: skip
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=200, check=False)
    return (ran.stdout + ran.stderr).decode(errors="replace")
