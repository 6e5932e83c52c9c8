"""Servers and channels of gRPC by TLS: who is let in, and certificates that change under open channels."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from proto.security.files import FileSettingError
from proto.security.grpc_channels import (
    Channels,
    GrpcTls,
    PemTls,
    add_port,
    daemon_tls,
    details_of,
    open_channel,
)
from proto.security.settings import TlsSettings
from proto.security.tls import ClientAuth, TlsFiles
from tests.support.runtime.certificates import Authority

pytestmark = pytest.mark.slow

METHOD = "/service/method"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "other", "another authority")


def tls(authority: Authority, name: str, **options: Any) -> PemTls:
    return PemTls(TlsFiles(*authority.issue(name, **options), authority.cafile))


class Unchecked:
    """Credentials that ``PemTls`` would not make of these files."""

    def __init__(self, certfile: Path, keyfile: Path, cafile: Path) -> None:
        self._credentials = grpc.ssl_channel_credentials(
            cafile.read_bytes(), keyfile.read_bytes(), certfile.read_bytes()
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return self._credentials

    def server_credentials(self) -> grpc.ServerCredentials:
        raise NotImplementedError


@asynccontextmanager
async def serving(tls: GrpcTls | None, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server that answers with the common name of who asks."""

    async def answer(_: bytes, context: Any) -> bytes:
        await asyncio.sleep(0)
        names = context.auth_context().get("x509_common_name", [b"nobody"])
        return bytes(names[0])

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "method": grpc.unary_unary_rpc_method_handler(answer)
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("service", handlers),))
    port = add_port(server, f"{host}:0", tls)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def ask(channel: grpc.aio.Channel) -> bytes:
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
    return await method(b"", timeout=20)


async def asked(port: int, tls: GrpcTls | None, host: str = "127.0.0.1") -> bytes:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with open_channel(f"{host}:{port}", tls, options) as channel:
        return await ask(channel)


async def refused(port: int, tls: GrpcTls | None, host: str = "127.0.0.1") -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asked(port, tls, host)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    return details_of(raised.value, tls)


async def test_only_certificates_of_the_authority_are_let_in(authority: Authority, other: Authority) -> None:
    async with serving(tls(authority, "server")) as port:
        assert await asked(port, tls(authority, "client")) == b"client"
        assert "called without TLS" in await refused(port, None)
        assert "called by TLS" in await refused(port, PemTls(TlsFiles(None, None, authority.cafile)))
        await refused(port, PemTls(TlsFiles(*other.issue("client"), authority.cafile)))
        expired = authority.issue("expired", days=(-3, -1))
        await refused(port, Unchecked(*expired, authority.cafile))


async def test_a_client_believes_only_its_authorities_and_the_host_that_it_dialled(
    authority: Authority, other: Authority
) -> None:
    client = tls(authority, "client")
    async with serving(tls(authority, "server", hosts=("127.0.0.1",))) as port:
        assert await asked(port, client) == b"client"
        assert "Hostname" in await refused(port, client, "localhost")
        await refused(port, PemTls(TlsFiles(*authority.issue("client"), other.cafile)))
    async with serving(None) as port:
        await refused(port, client)
    # Where nobody listens no TLS was asked for.
    assert "TLS" not in await refused(port, None)


@pytest.mark.parametrize(
    ("auth", "let_in"),
    [(ClientAuth.NONE, True), (ClientAuth.REQUIRED, False)],
)
async def test_clients_without_certificate(authority: Authority, auth: ClientAuth, let_in: bool) -> None:
    server = PemTls(TlsFiles(*authority.issue("server"), authority.cafile), auth)
    without = PemTls(TlsFiles(None, None, authority.cafile))
    async with serving(server) as port:
        if let_in:
            assert await asked(port, without) == b"nobody"
        else:
            await refused(port, without)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
async def test_tls_1_2_is_the_least(authority: Authority, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.cafile)
    context.load_cert_chain(*authority.issue("client"))
    context.set_alpn_protocols(["h2"])
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    async with serving(tls(authority, "server")) as port:
        if version < ssl.TLSVersion.TLSv1_2:
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port, ssl=context)
            return
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        writer.close()


async def test_both_sides_take_new_certificates_while_they_run(
    authority: Authority, other: Authority
) -> None:
    """The authority itself is replaced: whoever still had the former certificate would be refused."""
    server_files = TlsFiles(*authority.issue("server"), authority.cafile)
    client_files = TlsFiles(*authority.issue("client"), authority.cafile)
    former = Unchecked(*authority.issue("former"), authority.cafile)
    channels = Channels(PemTls(client_files), [])
    async with serving(PemTls(server_files)) as port:
        address = f"127.0.0.1:{port}"
        before = channels.to(address)
        assert await ask(before) == b"client"
        assert channels.to(address) is before
        replace(server_files, other, "server")
        replace(client_files, other, "renewed")
        after = channels.to(address)
        assert after is not before
        assert await ask(after) == b"renewed"
        assert await ask(before) == b"client", "a call that has its channel already goes through"
        assert channels.to(address) is after
        await channels.close()
        await refused(port, former)


async def test_channels_that_nobody_uses_are_replaced_too(authority: Authority, other: Authority) -> None:
    """They would go on trying with the former certificate."""
    files = TlsFiles(*authority.issue("client"), authority.cafile)
    channels = Channels(PemTls(files), [])
    unused = channels.to("127.0.0.1:1")
    channels.to("127.0.0.1:2")
    replace(files, other, "renewed")
    channels.to("127.0.0.1:2")
    assert list(channels.addresses) == ["127.0.0.1:2"]
    assert channels.to("127.0.0.1:1") is not unused
    await channels.close()


def replace(files: TlsFiles, authority: Authority, name: str) -> None:
    """Write another authority's certificate over the files."""
    certfile, keyfile = authority.issue(name)
    assert files.certificate is not None
    assert files.key is not None
    assert files.ca is not None
    files.certificate.write_bytes(certfile.read_bytes())
    files.key.write_bytes(keyfile.read_bytes())
    files.ca.write_bytes(authority.cafile.read_bytes())


async def test_files_that_cannot_be_used_change_nothing(authority: Authority) -> None:
    files = TlsFiles(*authority.issue("server"), authority.cafile)
    server = PemTls(files)
    client = tls(authority, "client")
    assert files.key is not None
    async with serving(server) as port:
        files.key.write_text("no key")
        assert await asked(port, client) == b"client"
        with pytest.raises(FileSettingError, match="ssl_key"):
            server.reload()
        assert await asked(port, client) == b"client"


async def test_certificate_and_key_in_one_file(authority: Authority) -> None:
    certfile, keyfile = authority.issue("both")
    certfile.write_bytes(keyfile.read_bytes() + certfile.read_bytes())
    both = PemTls(TlsFiles(certfile, None, authority.cafile))
    async with serving(both) as port:
        assert await asked(port, both) == b"both"


def test_a_daemon_needs_certificate_and_authorities(authority: Authority) -> None:
    certfile, keyfile = authority.issue("server")
    assert daemon_tls(TlsSettings()) is None
    for settings, key in (
        (TlsSettings(ssl_ca=authority.cafile), "ssl_certificate"),
        (TlsSettings(ssl_key=keyfile), "ssl_certificate"),
        (TlsSettings(ssl_certificate=certfile, ssl_key=keyfile), "ssl_ca"),
        (TlsSettings(ssl_certificate=certfile, ssl_ca=authority.cafile), "ssl_key"),
    ):
        with pytest.raises(FileSettingError) as raised:
            daemon_tls(settings)
        assert raised.value.key == key
