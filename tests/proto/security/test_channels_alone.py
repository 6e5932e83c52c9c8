"""Which credentials and channels are made, and when anew: without connections."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from proto.security import grpc_channels
from proto.security.files import FileSettingError
from proto.security.grpc_channels import Channels, PemTls, TokenTls, daemon_tls, details_of
from proto.security.tls import ClientAuth, TlsFiles
from tests.support.runtime.certificates import Authority


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = Authority(tmp_path)
    return TlsFiles(*authority.issue("me"), authority.cafile)


@pytest.mark.parametrize(("auth", "required"), [(ClientAuth.NONE, False), (ClientAuth.REQUIRED, True)])
def test_a_daemon_asks_for_certificates_as_it_was_told(
    files: TlsFiles, auth: ClientAuth, required: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda *args: made.append(args[-1]))
    settings: Any = SimpleNamespace(tls_files=files, client_auth=auth)
    tls = daemon_tls(settings)
    assert tls is not None
    tls.server_credentials()
    assert made == [required]


def test_a_daemon_has_a_certificate_or_no_tls(files: TlsFiles) -> None:
    without: Any = SimpleNamespace(tls_files=None, client_auth=ClientAuth.REQUIRED)
    assert daemon_tls(without) is None
    without.tls_files = TlsFiles(None, None, files.ca)
    with pytest.raises(FileSettingError, match="this process's certificate"):
        daemon_tls(without)


def test_a_key_may_be_in_a_file_of_its_own(files: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.certificate is not None
    assert files.key is not None
    assert files.ca is not None
    made: list[tuple[bytes, ...]] = []
    monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda *args: made.append(args))
    PemTls(files)
    assert made == [(files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes())]


class Changing:
    """Credentials that are exchanged."""

    def __init__(self) -> None:
        self.present: Any = "first"

    def channel_credentials(self) -> Any:
        return self.present

    def server_credentials(self) -> Any:
        return self.present


def test_a_token_goes_with_the_certificates_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "composite_channel_credentials", lambda plain, _: [plain])
    plain = Changing()
    tls: Any = TokenTls(plain, "token")
    first = tls.channel_credentials()
    assert first == ["first"]
    assert tls.channel_credentials() is first, "as long as they are the same, so are its channels"
    plain.present = "second"
    assert tls.channel_credentials() == ["second"]


def test_where_nobody_listens_tls_is_not_the_matter() -> None:
    def said(details: str, tls: Any) -> str:
        metadata = grpc.aio.Metadata()
        error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, details)
        return details_of(error, tls)

    for tls in (None, Changing()):
        assert said("Connection refused", tls) == "Connection refused"
    assert said("closed", None).startswith("closed (called without TLS")
    assert said("closed", Changing()).startswith("closed (called by TLS")


class Channel:
    def __init__(self, address: str, credentials: Any) -> None:
        self.made_of, self.closed = (address, credentials), 0

    async def close(self, _grace: float | None = None) -> None:
        self.closed += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    channels: list[Channel] = []

    def opened(address: str, credentials: Any, _: Any) -> Channel:
        channels.append(Channel(address, credentials))
        return channels[-1]

    monkeypatch.setattr(grpc_channels, "_open", opened)
    return channels


async def test_a_channel_stays_until_certificates_change_and_then_all_are_opened_anew(
    made: list[Channel],
) -> None:
    tls = Changing()
    channels = Channels(tls, ())
    first = channels.to("a:1")
    assert channels.to("a:1") is first
    channels.to("b:1")
    tls.present = "second"
    assert channels.to("a:1") is not first
    assert list(channels.addresses) == ["a:1"], "nobody asks for the other"
    assert [channel.made_of for channel in made] == [
        ("a:1", "first"),
        ("b:1", "first"),
        ("a:1", "second"),
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    assert [channel.closed for channel in made] == [0, 0, 0], "their calls may end first"
    await channels.close()
    assert [channel.closed for channel in made] == [1, 1, 1]


async def test_only_channels_to_others_are_closed(made: list[Channel]) -> None:
    channels = Channels(None, ())
    for address in ("a:1", "b:1", "c:1"):
        channels.to(address)
    await channels.retain({"b:1", "d:1"})
    assert (list(channels.addresses), [channel.closed for channel in made]) == (["b:1"], [1, 0, 1])
