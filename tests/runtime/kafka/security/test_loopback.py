"""Our connection to brokers against our listener, over real sockets with TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.runtime.config import load
from controller.runtime.kafka.connection import Connection, ConnectionFailedError
from controller.runtime.kafka.security.scram import ScramMechanism, format_credential, make_credential
from controller.runtime.kafka.security.setup import client_security, server_security
from controller.runtime.kafka.security.users import PLAIN_MECHANISM, user_path
from proto.gen.kafka.metadata_request import MetadataRequest
from proto.security.authorization import ANONYMOUS
from tests.support.runtime.certificates import Authority
from tests.support.runtime.kafka_listener import Listener, listening

PASSWORD = "sécret, with = and ,"


async def users(path: str) -> bytes | None:
    if path != user_path("controller"):
        return None
    credentials = ",".join(
        f'"{m.value}":"{format_credential(make_credential(m, PASSWORD))}"' for m in ScramMechanism
    )
    return b'{"version":1,"config":{%s}}' % credentials.encode()


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, object]:
    """Settings of all protocols; the certificate is of ``CN=controller``."""
    authority = Authority(tmp_path / "ca")
    certfile, keyfile = authority.issue("controller")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    credential = format_credential(make_credential(PLAIN_MECHANISM, PASSWORD))
    (tmp_path / "users.toml").write_text(f'[users]\ncontroller = "{credential}"\n')
    for secret in ("password", "users.toml"):
        (tmp_path / secret).chmod(0o600)
    return {
        "kafka_ssl_certificate": str(certfile),
        "kafka_ssl_key": str(keyfile),
        "kafka_ssl_ca": str(authority.cafile),
        "kafka_sasl_username": "controller",
        "kafka_sasl_password_file": str(tmp_path / "password"),
        "kafka_sasl_users_file": str(tmp_path / "users.toml"),
    }


async def ask(listener: Listener, settings: dict[str, object]) -> None:
    """One request over a new connection. Raises ConnectionFailedError."""
    connection = Connection("us", client_security(load(settings, environ={})), 20)
    try:
        await connection.open("127.0.0.1", listener.port)
        await connection.request(MetadataRequest(), 12)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("protocol", "mechanism", "caller"),
    [
        ("PLAINTEXT", "", ANONYMOUS),
        ("SSL", "", "CN=controller"),
        ("SASL_PLAINTEXT", "PLAIN", "controller"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", "controller"),
        ("SASL_SSL", "PLAIN", "controller"),
        ("SASL_SSL", "SCRAM-SHA-512", "controller"),
    ],
)
async def test_each_protocol(settings: dict[str, object], protocol: str, mechanism: str, caller: str) -> None:
    chosen = {**settings, "kafka_security_protocol": protocol}
    if mechanism:
        chosen["kafka_sasl_mechanism"] = mechanism
    async with listening(server_security(load(chosen, environ={}), users)) as listener:
        await ask(listener, chosen)
        assert [principal.name for principal in listener.callers] == [caller]
        assert listener.callers[0].host == "127.0.0.1"


async def test_who_cannot_prove_who_it_is_gets_nothing(settings: dict[str, object], tmp_path: Path) -> None:
    others = {"kafka_sasl_enabled_mechanisms": "PLAIN"}
    chosen = {**settings, **others, "kafka_security_protocol": "SASL_SSL"}
    (tmp_path / "wrong").write_text("wrong\n")
    (tmp_path / "wrong").chmod(0o600)
    async with listening(server_security(load(chosen, environ={}), users)) as listener:
        for change in (
            {"kafka_sasl_username": "stranger"},
            {"kafka_sasl_password_file": str(tmp_path / "wrong")},
            {"kafka_sasl_mechanism": "PLAIN", "kafka_sasl_password_file": str(tmp_path / "wrong")},
        ):
            with pytest.raises(ConnectionFailedError, match="refused us with error 58"):
                await ask(listener, {**chosen, **change})
        with pytest.raises(ConnectionFailedError):
            await ask(listener, {**chosen, "kafka_security_protocol": "SSL"})
        with pytest.raises(ConnectionFailedError):
            await asyncio.wait_for(ask(listener, {**chosen, "kafka_security_protocol": "PLAINTEXT"}), 25)
        assert listener.callers == []


async def test_a_stranger_s_certificate_is_refused(settings: dict[str, object], tmp_path: Path) -> None:
    chosen = {**settings, "kafka_security_protocol": "SSL"}
    certfile, keyfile = Authority(tmp_path / "other", "another authority").issue("controller")
    stranger = {**chosen, "kafka_ssl_certificate": str(certfile), "kafka_ssl_key": str(keyfile)}
    async with listening(server_security(load(chosen, environ={}), users)) as listener:
        with pytest.raises(ConnectionFailedError):
            await ask(listener, stranger)
        without = {k: v for k, v in chosen.items() if k not in ("kafka_ssl_certificate", "kafka_ssl_key")}
        with pytest.raises(ConnectionFailedError):
            await ask(listener, without)
        assert listener.callers == []
        await ask(listener, chosen)
