"""Channels and ports of gRPC, by TLS or without: the one place that makes them.

gRPC speaks TLS 1.2 or newer, and its clients check that the certificate is of the host that they dialled. Python's gRPC
cannot ask for a client's certificate without requiring one: there is no ``ClientAuth.REQUESTED`` here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

import grpc
import grpc.aio

from proto.security.files import FromFiles, read_file
from proto.security.settings import TlsSettings
from proto.security.tls import ClientAuth, TlsFiles, check

Options = Sequence[tuple[str, Any]]

#: A replaced channel takes part in calls that its user is about to begin, seconds; then its calls may finish.
_HANDED_OUT_S, _FINISH_S = 10.0, 600.0
#: What one attempt to connect may take with its handshake, milliseconds, whatever gRPC calls it. Hundreds that
#: connect at once, as after a failover, wait for one another.
CONNECT_ATTEMPT = ("grpc.min_reconnect_backoff_ms", 5_000)
#: A thread that asked for a port's certificate has begun its handshake by then, seconds: it takes microseconds.
_HANDSHAKE_BEGINS_S = 0.2


class GrpcTls(Protocol):
    """What servers and channels of one process present and trust."""

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel opened now: another object when the certificates have changed."""

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port of a server; its later connections use later certificates."""


class _Pem(NamedTuple):
    server: grpc.ServerCertificateConfiguration | None
    channel: grpc.ChannelCredentials


class PemTls:
    """From PEM files, read again when they change; what cannot be used is logged, and the former stays in use.

    Connections that exist go on. Raises FileSettingError. gRPC asks from threads of its own. Never
    ``ClientAuth.REQUESTED``.
    """

    def __init__(self, files: TlsFiles, client_auth: ClientAuth = ClientAuth.REQUIRED) -> None:
        if files.ca is None:
            raise files.unusable("ca", None, "a PEM file: the authorities of the others' certificates")
        assert client_auth is not ClientAuth.REQUESTED
        self._files, self._client_auth = files, client_auth
        self._lock = Lock()
        self._pem = FromFiles(files.present, lambda: _read(files))

    def _current(self) -> _Pem:
        with self._lock:
            return self._pem.current()

    def reload(self) -> None:
        """Read the files now. Raises FileSettingError: the former certificates stay in use."""
        with self._lock:
            self._pem.reload()

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return self._current().channel

    def server_credentials(self) -> grpc.ServerCredentials:
        """Raises FileSettingError without a certificate."""
        required = self._client_auth is not ClientAuth.NONE
        return grpc.dynamic_ssl_server_credentials(
            presented := self._presented(), self._when_changed(presented), required
        )

    def _when_changed(self, presented: grpc.ServerCertificateConfiguration) -> Callable[[], Any]:
        """What gRPC calls at each new connection of a port, one call at a time: the configuration if it is another than
        before, else None.

        gRPC frees what it made of the former one as soon as it has another, although a thread that was here just before
        may be about to begin a handshake with it (grpc/grpc#22489): then the process hangs or dies. So others are
        answered None, and a real change first waits for those threads.
        """

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal presented
            found = self._presented()
            if found is presented:
                return None
            time.sleep(_HANDSHAKE_BEGINS_S)
            presented = found
            return found

        return changed

    def _presented(self) -> grpc.ServerCertificateConfiguration:
        found = self._current().server
        if found is None:
            raise self._files.unusable("certificate", None, "a PEM file: this server's certificate")
        return found


class TokenTls:
    """TLS as ``tls`` has it, with a bearer token in each call."""

    def __init__(self, tls: GrpcTls, token: str) -> None:
        self._tls, self._token = tls, grpc.access_token_call_credentials(token)
        #: Made of the first one; another object only when that is another.
        self._made: tuple[grpc.ChannelCredentials, grpc.ChannelCredentials] | None = None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        plain = self._tls.channel_credentials()
        if self._made is None or self._made[0] is not plain:
            self._made = plain, grpc.composite_channel_credentials(plain, self._token)
        return self._made[1]

    def server_credentials(self) -> grpc.ServerCredentials:
        return self._tls.server_credentials()


def _read(files: TlsFiles) -> _Pem:
    check(files)
    assert files.ca is not None
    ca = read_file(files.prefix + "ca", files.ca, "a PEM file", secret=False)
    if files.certificate is None:
        return _Pem(None, grpc.ssl_channel_credentials(ca))
    keyfile = files.key or files.certificate
    chain = read_file(files.prefix + "certificate", files.certificate, "a PEM file", secret=False)
    key = read_file(files.prefix + "key", keyfile, "a PEM file", secret=False)
    return _Pem(
        grpc.ssl_server_certificate_configuration([(key, chain)], ca),
        grpc.ssl_channel_credentials(ca, key, chain),
    )


def daemon_tls(settings: TlsSettings) -> PemTls | None:
    """None: TLS is off. Raises FileSettingError, also without a certificate, because a daemon serves."""
    files = settings.tls_files
    if files is None:
        return None
    if files.certificate is None:
        raise files.unusable("certificate", None, "a PEM file: this process's certificate")
    return PemTls(files, settings.client_auth)


def open_channel(address: str, tls: GrpcTls | None, options: Options = ()) -> grpc.aio.Channel:
    """A channel to ``host:port``; ``tls`` None: plaintext."""
    return _open(address, None if tls is None else tls.channel_credentials(), options)


def _open(address: str, credentials: grpc.ChannelCredentials | None, options: Options) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def add_port(server: grpc.aio.Server, address: str, tls: GrpcTls | None) -> int:
    """Have the server listen on ``host:port``; return the port. Raises RuntimeError, FileSettingError."""
    if tls is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, tls.server_credentials())


def details_of(error: grpc.aio.AioRpcError, tls: GrpcTls | None) -> str:
    """Why a call failed, for people. An unavailable server may have ended the connection because the two sides disagree
    about TLS; gRPC does not tell, but where nobody listens."""
    said = error.details() or "no details"
    if error.code() is not grpc.StatusCode.UNAVAILABLE or "Connection refused" in said:
        return said
    if tls is None:
        return f"{said} (called without TLS: does the server want it?)"
    return f"{said} (called by TLS: does the server speak it, and accept this certificate?)"


class Channels:
    """A channel for each address, opened at the first call; when the certificates have changed, all are opened anew.

    Belongs to one event loop. A replaced channel ends when its calls have ended.
    """

    def __init__(self, tls: GrpcTls | None, options: Options) -> None:
        self.tls, self._options = tls, options
        self._open: dict[str, grpc.aio.Channel] = {}
        #: The credentials with which all open channels were made.
        self._credentials: grpc.ChannelCredentials | None = None
        #: A dict: the order of a set of tasks differs from run to run.
        self._ending: dict[asyncio.Task[None], None] = {}

    @property
    def addresses(self) -> Collection[str]:
        """Those with an open channel."""
        return self._open.keys()

    def to(self, address: str) -> grpc.aio.Channel:
        """The channel to ``host:port``. Begin the call soon: a replaced channel takes new ones only for seconds."""
        credentials = None if self.tls is None else self.tls.channel_credentials()
        if credentials is not self._credentials:
            self._credentials = credentials
            # Also those that nobody uses now: they would try to connect with the former certificate for ever.
            for former in self._open.values():
                task = asyncio.get_running_loop().create_task(_end(former))
                self._ending[task] = None
                task.add_done_callback(lambda done: self._ending.pop(done, None))
            self._open.clear()
        channel = self._open.get(address)
        if channel is None:
            channel = self._open[address] = _open(address, credentials, self._options)
        return channel

    async def retain(self, addresses: Collection[str]) -> None:
        """Close the channels to all other addresses; their calls fail."""
        closed = [self._open.pop(address) for address in list(self._open) if address not in addresses]
        for channel in closed:
            await channel.close()

    async def close(self) -> None:
        """Close all channels; their calls fail."""
        await self.retain(())
        ending = list(self._ending)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _end(channel: grpc.aio.Channel) -> None:
    try:
        await asyncio.sleep(_HANDED_OUT_S)
        await channel.close(_FINISH_S)
    finally:
        await channel.close()
