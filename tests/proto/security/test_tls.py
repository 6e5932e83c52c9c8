"""TLS contexts: what is wrong with files is said, and files that change are used."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proto.security import grpc_channels
from proto.security.files import FileSettingError, FromFiles
from proto.security.principals import distinguished_name
from proto.security.settings import TlsSettings
from proto.security.tls import (
    ClientAuth,
    TlsFiles,
    client_contexts,
    listening,
    server_contexts,
)
from tests.provers.sim.environment import loop
from tests.support.runtime.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def files(authority: Authority, name: str = "controller", unit: str = "", **options: object) -> TlsFiles:
    return TlsFiles(*authority.issue(name, unit, **options), authority.cafile)  # type: ignore[arg-type]


async def handshake(
    server: FromFiles[ssl.SSLContext], client: FromFiles[ssl.SSLContext], name: str = "127.0.0.1"
) -> tuple[str | None, str | None]:
    """Subjects that the server saw of the client, and the client of the server. Raises OSError (SSLError is one)."""
    seen: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await writer.start_tls(server.current())
            seen.set_result(subject(writer))
            writer.write(b"x")
            await writer.drain()
        except (OSError, ConnectionError) as error:
            if not seen.done():
                seen.set_exception(error)
        finally:
            writer.close()

    listening = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client.current(), server_hostname=name
        )
        theirs = subject(writer)
        with suppress(OSError):
            await reader.read(1)  # TLS 1.3 tells a refused client only now
        writer.close()
        return await seen, theirs
    finally:
        listening.close()
        if seen.done():
            seen.exception()


def subject(writer: asyncio.StreamWriter) -> str | None:
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return distinguished_name(certificate) if certificate else None


async def test_both_sides_know_each_other(authority: Authority) -> None:
    server = server_contexts(files(authority, "controller"), ClientAuth.REQUIRED)
    client = client_contexts(files(authority, "broker1", "ops"))
    assert await handshake(server, client) == ("CN=broker1,OU=ops", "CN=controller")


async def test_a_client_without_certificate(authority: Authority) -> None:
    own = files(authority)
    without = client_contexts(TlsFiles(None, None, authority.cafile))
    with pytest.raises(OSError, match=r"(?i)peer did not return a certificate"):
        await handshake(server_contexts(own, ClientAuth.REQUIRED), without)
    for lenient in (ClientAuth.REQUESTED, ClientAuth.NONE):
        assert await handshake(server_contexts(own, lenient), without) == (None, "CN=controller")


@pytest.mark.parametrize("auth", [ClientAuth.REQUIRED, ClientAuth.REQUESTED])
async def test_a_client_of_another_authority(authority: Authority, tmp_path: Path, auth: ClientAuth) -> None:
    other = Authority(tmp_path / "other", "another authority")
    stranger = client_contexts(TlsFiles(*other.issue("broker1"), authority.cafile))
    with pytest.raises(OSError, match=r"(?i)certificate verify failed"):
        await handshake(server_contexts(files(authority), auth), stranger)


async def test_a_broker_must_be_who_was_dialled(authority: Authority, tmp_path: Path) -> None:
    client = client_contexts(TlsFiles(None, None, authority.cafile))
    named = server_contexts(files(authority, hosts=("broker1.example",)), ClientAuth.NONE)
    await handshake(named, client, "broker1.example")
    for wrong in ("127.0.0.1", "broker2.example"):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)mismatch"):
            await handshake(named, client, wrong)
    stranger = Authority(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server_contexts(files(stranger), ClientAuth.NONE), client)


async def test_tls_1_1_is_refused(authority: Authority) -> None:
    server = server_contexts(files(authority), ClientAuth.NONE)
    client = client_contexts(TlsFiles(None, None, authority.cafile))
    for context in (server.current(), client.current()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert client.current().check_hostname
    assert client.current().verify_mode is ssl.CERT_REQUIRED


async def test_new_connections_use_new_files(authority: Authority, tmp_path: Path) -> None:
    own = files(authority)
    server = server_contexts(own, ClientAuth.REQUIRED)
    client = client_contexts(files(authority, "broker1"))
    assert server.current() is server.current()
    await handshake(server, client)
    # A new authority: the old one's certificates count no longer, in either direction.
    other = Authority(tmp_path / "other", "another authority")
    certfile, keyfile = other.issue("controller", "new")
    assert own.certificate
    assert own.key
    assert own.ca
    os.replace(certfile, own.certificate)
    with capture_logs() as logs:
        before = server.current()  # certificate and key do not match now
    assert [entry["event"] for entry in logs] == ["security_files_not_usable"]
    assert str(own.key) in logs[0]["why"]
    os.replace(keyfile, own.key)
    own.ca.write_bytes(other.cafile.read_bytes())
    assert server.current() is not before
    with pytest.raises(OSError, match=r"(?i)certificate verify failed"):
        await handshake(server, client)
    renewed = client_contexts(TlsFiles(*other.issue("broker1"), other.cafile))
    assert await handshake(server, renewed) == ("CN=broker1", "CN=controller,OU=new")


def refused(own: TlsFiles, auth: ClientAuth = ClientAuth.NONE) -> FileSettingError:
    with pytest.raises(FileSettingError) as caught:
        server_contexts(own, auth)
    return caught.value


def test_what_is_wrong_with_files_is_said(authority: Authority, tmp_path: Path) -> None:
    certfile, keyfile = authority.issue("controller")
    _, other_key = authority.issue("other")
    missing, garbage, empty = tmp_path / "missing.pem", tmp_path / "garbage.pem", tmp_path / "empty.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    empty.write_text("")
    ca = authority.cafile

    def names(own: TlsFiles, key: str, path: Path, words: str) -> None:
        error = refused(own)
        assert (error.key, error.value) == (key, str(path))
        assert words in error.allowed

    names(TlsFiles(missing, keyfile, ca), "ssl_certificate", missing, "No such file")
    names(TlsFiles(certfile, missing, ca), "ssl_key", missing, "No such file")
    names(TlsFiles(certfile, keyfile, missing), "ssl_ca", missing, "No such file")
    names(TlsFiles(certfile, other_key, ca), "ssl_key", other_key, "the key of the certificate in")
    for bad in (garbage, empty):
        names(TlsFiles(bad, keyfile, ca), "ssl_certificate", bad, "with a certificate")
        names(TlsFiles(certfile, bad, ca), "ssl_key", bad, "with a private key")
        names(TlsFiles(certfile, keyfile, bad), "ssl_ca", bad, "certificates of authorities")
    names(TlsFiles(certfile, None, ca), "ssl_key", certfile, "with a private key")
    assert refused(TlsFiles(None, None, ca)).key == "ssl_certificate"
    for asking in (ClientAuth.REQUESTED, ClientAuth.REQUIRED):
        assert refused(TlsFiles(certfile, keyfile, None), asking).key == "ssl_ca"


@pytest.mark.parametrize(("days", "state"), [((-3, -1), "expired"), ((1, 3), "not yet valid")])
def test_a_certificate_must_be_valid_now(authority: Authority, days: tuple[float, float], state: str) -> None:
    own = files(authority, days=days)
    error = refused(own)
    assert (error.key, error.value) == ("ssl_certificate", str(own.certificate))
    assert error.allowed.endswith(state)


def test_a_key_with_a_password_is_refused_without_asking_for_it(authority: Authority) -> None:
    own = files(authority, password=b"secret")
    error = refused(own)
    assert (error.key, error.value) == ("ssl_key", str(own.key))
    assert "no password" in error.allowed


def test_a_key_that_others_can_read_is_reported(authority: Authority) -> None:
    own = files(authority)
    assert own.key
    with capture_logs() as logs:
        server_contexts(own, ClientAuth.NONE)
        assert not logs
        own.key.chmod(0o644)
        server_contexts(own, ClientAuth.NONE)
    assert [entry["event"] for entry in logs] == ["secret_readable_by_others"]


def test_no_session_is_resumed(authority: Authority) -> None:
    """It would skip the check of a certificate against files that changed since."""
    context = server_contexts(files(authority), ClientAuth.REQUIRED).current()
    assert (context.num_tickets, bool(context.options & ssl.OP_NO_TICKET)) == (0, True)


def certificate_of(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes | None:
    """What the server shows, in a handshake without a network."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialling = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (dialling, answering, dialling, answering):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return dialling.getpeercert(binary_form=True)


def test_a_whole_listener_shows_the_newest_certificate(authority: Authority) -> None:
    own = files(authority)
    listener = listening(server_contexts(own, ClientAuth.NONE))
    client = client_contexts(TlsFiles(None, None, authority.cafile)).current()
    certfile, keyfile = authority.issue("controller", "new")
    assert own.certificate
    assert own.key
    os.replace(certfile, own.certificate)
    os.replace(keyfile, own.key)
    shown = certificate_of(listener, client)
    assert shown is not None
    assert distinguished_name(shown) == "CN=controller,OU=new"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_listener_goes_on_with_new_files(authority: Authority, tmp_path: Path, name: str) -> None:
    """With a server name from the client, and without one: an address is not sent as a name."""
    own = files(authority, hosts=("127.0.0.1", "localhost"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        with suppress(OSError):
            await reader.read()
        writer.close()

    async def ask(contexts: FromFiles[ssl.SSLContext]) -> bytes:
        """Empty: refused."""
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=contexts.current(), server_hostname=name
            )
        except OSError:
            return b""
        try:
            return await reader.read(5)
        except OSError:
            return b""
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    context = listening(server_contexts(own, ClientAuth.REQUIRED))
    other = Authority(tmp_path / "other", "another authority")
    client = client_contexts(files(authority, "broker1"))
    # It believes the server's new certificate, and has one of the former authority.
    former = client_contexts(TlsFiles(*authority.issue("broker2"), other.cafile))
    renewed = client_contexts(TlsFiles(*other.issue("broker1"), other.cafile))
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        assert [await ask(each) for each in (client, former, renewed)] == [b"hello", b"", b""]
        assert own.certificate
        assert own.key
        assert own.ca
        certfile, keyfile = other.issue("controller", hosts=("127.0.0.1", "localhost"))
        for new, file in ((certfile, own.certificate), (keyfile, own.key), (other.cafile, own.ca)):
            file.write_bytes(new.read_bytes())
        assert [await ask(each) for each in (client, former, renewed)] == [b"", b"", b"hello"]


@pytest.mark.parametrize(
    ("of_grpc", "own", "effective"),
    [
        ("required", "", ClientAuth.REQUIRED),
        ("none", "", ClientAuth.NONE),
        ("required", "requested", ClientAuth.REQUESTED),
        ("none", "required", ClientAuth.REQUIRED),
    ],
)
def test_http_asks_for_certificates_as_grpc_does_where_nothing_else_is_set(
    of_grpc: Any, own: Any, effective: ClientAuth
) -> None:
    settings = TlsSettings(ssl_client_auth=of_grpc, http_ssl_client_auth=own)
    assert (settings.client_auth, settings.http_client_auth) == (ClientAuth(of_grpc), effective)


def test_a_port_presents_a_certificate_from_its_change_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    tls = grpc_channels.PemTls(TlsFiles(certificate, key, authority.cafile))
    presented = tls._presented()
    changed, another = tls._when_changed(presented), object()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert changed() is None
    monkeypatch.setattr(tls, "_presented", lambda: another)
    assert [changed(), changed()] == [another, None]


def test_a_replaced_channel_takes_calls_for_a_while_and_lets_them_finish() -> None:
    closed: list[tuple[float, float | None]] = []

    async def run() -> None:
        clock = asyncio.get_running_loop()
        began_s = clock.time()

        class Channel:
            async def close(self, grace_s: float | None = None) -> None:
                closed.append((round(clock.time() - began_s, 3), grace_s))

        await grpc_channels._end(Channel())  # type: ignore[arg-type]

    loop.run(run())
    assert closed == [
        (grpc_channels._HANDED_OUT_S, grpc_channels._FINISH_S),
        (grpc_channels._HANDED_OUT_S, None),
    ]
