"""Who we are to ZooKeeper, how we reach it, and who may access the znodes that we create: for both daemons and pctl.

Names of settings are Kafka's (``zookeeper.set.acl``) and our own for PEM files. kazoo would trust the system's
authorities beside ours and look at no host name, so the TLS connection is made here.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from msgspec import Meta

from proto.security.files import FileSettingError, password_in
from proto.security.tls import TlsFiles, client_contexts
from proto.settings import text

#: What others may not read even where they may read everything else (``ZkData.SensitiveRootPaths``).
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
#: Old consumers write below it, so that nobody owns it.
CONSUMERS = "/consumers"
#: Bytes that are asked of the socket at once: the events of some hundred znodes.
READ_AHEAD = 65_536

DIGEST_MD5, GSSAPI = "DIGEST-MD5", "GSSAPI"

Name = Annotated[str, text(r"[^\0\r\n:]{0,1000}", "a name in one line, without colon, or nothing")]


class Login(NamedTuple):
    """A name, and what reads its password, which may change from session to session."""

    name: str
    password: Callable[[], str]


class ZooKeeperAccess(NamedTuple):
    """How a session connects and logs in, and what it lets others do.

    ``sasl``, ``digest``: None: it does not log in so; ``contexts``: None: without TLS; ``mechanism``: of SASL.
    ``set_acl``: only the creator may change the znodes that we create, and nobody else may read the sensitive ones
    (``ZkData.defaultAcls``); else everybody may all.
    """

    sasl: Login | None = None
    digest: Login | None = None
    contexts: Callable[[], ssl.SSLContext] | None = None
    set_acl: bool = False
    mechanism: str = DIGEST_MD5

    @property
    def name(self) -> str:
        """The name by which it logs in, for errors; empty: it does not log in."""
        return self.sasl.name if self.sasl else ""

    def client_options(self) -> dict[str, Any]:
        """For a new kazoo client: the login, with the passwords as they are now."""
        options: dict[str, Any] = {}
        if self.sasl is not None and self.mechanism == GSSAPI:
            options["sasl_options"] = {"mechanism": GSSAPI, "principal": self.sasl.name}
        elif self.sasl is not None:
            name, password = self.sasl.name, self.sasl.password()
            options["sasl_options"] = {"mechanism": DIGEST_MD5, "username": name, "password": password}
        if self.digest is not None:
            options["auth_data"] = [("digest", f"{self.digest.name}:{self.digest.password()}")]
        if self.contexts is not None:
            options["use_ssl"] = True
        return options

    def acl(self, path: str) -> list[Any]:
        """The ACL of a new znode, for kazoo. ``path``: without the chroot."""
        if not self.set_acl or path == CONSUMERS:
            return list(OPEN_ACL_UNSAFE)
        return list(CREATOR_ALL_ACL) if path.startswith(SENSITIVE) else CREATOR_ALL_ACL + READ_ACL_UNSAFE


#: Without login and TLS, and everybody may all.
OPEN_ACCESS = ZooKeeperAccess()


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler for threads, which connects by TLS where ``contexts`` are given.

    The host in the connect string must be in the server's certificate. ``problem``: of the last connection attempt
    by TLS, empty: there was none.
    """

    def __init__(self, contexts: Callable[[], ssl.SSLContext] | None = None) -> None:
        super().__init__()
        self._contexts = contexts
        self.problem = ""

    def create_connection(
        self, address: Any, hostname: str = "", timeout: float = 10.0, **kwargs: Any
    ) -> Any:
        """A socket, as kazoo wants it. Raises OSError."""
        if self._contexts is None:
            plain = super().create_connection(address, hostname=hostname, timeout=timeout, **kwargs)
            return _ReadsAhead(plain)
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._contexts().wrap_socket(plain, server_hostname=hostname)
            # A server that does not like our certificate says so after the handshake, in answer to the first bytes.
            return _ReadsAhead(connection, self._failed)
        except OSError as error:
            plain.close()
            self._failed(error)
            raise

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], _xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As kazoo's, which makes a selector for each call, three for a packet: most of the CPU of its thread. What was
        read ahead is readable.

        No file is in two of the lists. Raises TypeError for a closed one, ValueError for a negative timeout.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        ahead = [f for f in rlist if isinstance(f, _ReadsAhead) and f.pending()]
        if ahead:
            timeout = 0
        poll = select.poll()
        for files, event in ((rlist, select.POLLIN), (wlist, select.POLLOUT)):
            for file in files:
                poll.register(fileobj_to_fd(file), event)
        # Errors and hang-ups are for whoever reads or writes next.
        ready = {fd for fd, _ in poll.poll(None if timeout is None else math.ceil(timeout * 1000))}
        ready.update(f.fileno() for f in ahead)
        if not ready:
            return [], [], []
        readable, writable = ([f for f in files if f.fileno() in ready] for files in (rlist, wlist))
        return readable, writable, []

    def _failed(self, error: OSError) -> None:
        reason = getattr(error, "reason", "") or str(error)
        if verified := getattr(error, "verify_message", ""):
            reason = f"ZooKeeper's certificate: {verified}"
        problem = f"TLS to ZooKeeper failed: {reason}"
        if problem != self.problem:
            # Not imported above: tools start faster.
            import structlog

            log = structlog.get_logger(__name__)
            # A server that starts or dies in the middle of a handshake is no disagreement.
            broken = isinstance(error, ssl.SSLEOFError | ConnectionError | TimeoutError)
            (log.warning if broken else log.error)("zookeeper_tls", problem=problem)
        self.problem = problem


class _ReadsAhead:
    """kazoo's socket. kazoo reads each packet in two parts, and waits for the socket before both, but not where bytes
    are ``pending``: to wait takes most of its thread's time while thousands of watch events arrive.

    ``failed`` is told of what fails by TLS.
    """

    def __init__(self, connection: socket.socket, failed: Callable[[OSError], None] = lambda _: None) -> None:
        self._connection, self._failed = connection, failed
        #: What was read, and from where on nobody has got it.
        self._read, self._at = b"", 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def pending(self) -> int:
        """Bytes that ``recv`` returns without waiting."""
        if ahead := len(self._read) - self._at:
            return ahead
        return self._connection.pending() if isinstance(self._connection, ssl.SSLSocket) else 0

    def recv(self, size: int) -> bytes:
        """At most ``size`` bytes; none: the connection has ended. Raises OSError."""
        if self._at == len(self._read):
            self._read, self._at = self._received(max(size, READ_AHEAD)), 0
        part = self._read[self._at : self._at + size]
        self._at += len(part)
        if self._at == len(self._read):  # a large one is not kept
            self._read, self._at = b"", 0
        return part

    def _received(self, size: int) -> bytes:
        try:
            return self._connection.recv(size)
        except ssl.SSLError as error:
            if not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
                self._failed(error)
            raise


class _Transaction(TransactionRequest):  # type: ignore[misc]
    """Each znode with its own ACL."""

    def create(self, path: str, value: bytes = b"", acl: Any = None, **flags: bool) -> None:
        super().create(path, value, acl or self.client.access.acl(path), **flags)


class Client(KazooClient):  # type: ignore[misc]
    """kazoo's client with our access: each znode that it creates, parents too, has its own ACL.

    ``negotiated_ms``: the session timeout that the server granted; 0: there is no session yet.
    """

    def __init__(self, access: ZooKeeperAccess = OPEN_ACCESS, **settings: Any) -> None:
        self.access = access
        self.negotiated_ms = 0
        #: Whether the servers have older data than this client has seen, so that its session was given up.
        self.went_back = False
        super().__init__(**{"handler": Handler(access.contexts), **access.client_options(), **settings})
        self._refused_at: float | None = None
        self._learn_from(self._connection)

    def _learn_from(self, connection: ConnectionHandler) -> None:
        connect = connection._connect

        def learning(*address: Any) -> Any:
            try:
                timeouts = connect(*address)
            except ConnectionDropped:
                if not self._only_ours_is_refused(*address):
                    raise
                try:
                    # It may have begun to serve after it refused ours.
                    timeouts = connect(*address)
                except ConnectionDropped:
                    raise self._given_up(*address) from None
            self._refused_at = None
            # kazoo tells it only as a read timeout of two thirds of it.
            self.negotiated_ms = round(timeouts[0] * 3 / 2)
            return timeouts

        connection._connect = learning

    def _only_ours_is_refused(self, host: str, ip: str, port: int) -> bool:
        """Whether our session has been refused for as long as it lasts without a connection, and this server begins
        new ones. A server does that whose data are older than what we have seen: after ZooKeeper was restored from a
        backup kazoo would try for ever."""
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
        if not self._session_id or now - self._refused_at < self.negotiated_ms / 1000:
            return False
        return self._begins_sessions(host, ip, port)

    def _given_up(self, host: str, _ip: str, port: int) -> SessionExpiredError:
        # Not imported above: tools start faster.
        import structlog

        why = "it begins new ones: it has older data than we have seen, was ZooKeeper restored from a backup?"
        structlog.get_logger(__name__).warning("session_refused", by=f"{host}:{port}", why=why)
        self.went_back, self.last_zxid = True, 0
        return SessionExpiredError(f"{host}:{port} refuses the session")

    def _begins_sessions(self, host: str, ip: str, port: int) -> bool:
        """Whether a server begins a session of somebody who has seen nothing."""
        connection, timeout_ms = self._connection, self._session_timeout
        if connection._socket is not None:
            connection._socket.close()
        try:
            with connection._socket_error_handling():
                connection._socket = self.handler.create_connection(
                    (ip, port), hostname=host, timeout=timeout_ms / 1000
                )
            connection._socket.setblocking(0)
            connect = Connect(0, 0, timeout_ms, 0, bytes(16), False)
            answer, _ = connection._invoke(timeout_ms / 1000 / len(self.hosts), connect)
        except (ConnectionDropped, self.handler.timeout_exception):
            return False
        finally:
            if connection._socket is not None:
                connection._socket.close()
        return bool(answer.time_out > 0)

    @property
    def problem(self) -> str:
        """Why TLS failed; empty: it did not."""
        return str(getattr(self.handler, "problem", ""))

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, *flags: Any, **more: Any) -> Any:
        return super().create_async(path, value, acl or self.access.acl(path), *flags, **more)

    def transaction(self) -> _Transaction:
        return _Transaction(self)


@dataclass(frozen=True, kw_only=True)
class ZooKeeperSettings:
    """How a process gets to ZooKeeper."""

    # fmt: off
    zookeeper_ssl_client_enable: Annotated[bool, Meta(description="connect to ZooKeeper by TLS"
        " (zookeeper.ssl.client.enable)")] = False
    zookeeper_ssl_certificate: Annotated[Path, Meta(description="PEM file: the certificate and its chain to show to"
        " ZooKeeper")] = Path()
    zookeeper_ssl_key: Annotated[Path, Meta(description="PEM file: its key, without password; if not in the same"
        " file")] = Path()
    zookeeper_ssl_ca: Annotated[Path, Meta(description="PEM file: authorities of ZooKeeper's certificates; if not the"
        " system's")] = Path()
    zookeeper_sasl_username: Annotated[Name, Meta(description="as whom to log in to ZooKeeper by SASL; empty: not"
        " by SASL")] = ""
    zookeeper_sasl_password_file: Annotated[Path, Meta(description="file whose first line is the password for it"
        )] = Path()
    zookeeper_sasl_mechanism: Annotated[Literal["DIGEST-MD5", "GSSAPI"], Meta(description="of that login; GSSAPI"
        " takes the ticket of the environment, and needs the package kerberos")] = "DIGEST-MD5"
    zookeeper_digest_username: Annotated[Name, Meta(description="as whom to log in to ZooKeeper by its scheme digest;"
        " empty: not so")] = ""
    zookeeper_digest_password_file: Annotated[Path, Meta(description="file whose first line is the password for it"
        )] = Path()
    zookeeper_set_acl: Annotated[bool, Meta(description="only who logs in as this process does may change the znodes"
        " it creates (zookeeper.set.acl)")] = False
    # fmt: on

    def zookeeper_access(self) -> ZooKeeperAccess:
        """How sessions connect. Raises FileSettingError."""
        files = self.zookeeper_tls_files
        contexts = client_contexts(files).current if files is not None else None
        sasl = digest = None
        for kind in ("sasl", "digest"):
            path = getattr(self, f"zookeeper_{kind}_password_file")
            if path != Path() and not getattr(self, f"zookeeper_{kind}_username"):
                allowed = f"left out, or zookeeper_{kind}_username be given"
                raise FileSettingError(f"zookeeper_{kind}_password_file", str(path), allowed)
        if self.zookeeper_sasl_username and self.zookeeper_sasl_mechanism == GSSAPI:
            if not (find_spec("kerberos") or find_spec("winkerberos")):
                allowed = "DIGEST-MD5, because the package kerberos is not installed"
                raise FileSettingError("zookeeper_sasl_mechanism", GSSAPI, allowed)
            sasl = Login(self.zookeeper_sasl_username, str)
        elif self.zookeeper_sasl_username:
            path = self.zookeeper_sasl_password_file
            sasl = Login(self.zookeeper_sasl_username, _password("zookeeper_sasl_password_file", path))
        if self.zookeeper_digest_username:
            path = self.zookeeper_digest_password_file
            digest = Login(self.zookeeper_digest_username, _password("zookeeper_digest_password_file", path))
        certified = contexts is not None and self.zookeeper_ssl_certificate != Path()
        if self.zookeeper_set_acl and not (sasl or digest or certified):
            allowed = "false without a login or a certificate for ZooKeeper: nobody would own them"
            raise FileSettingError("zookeeper_set_acl", "true", allowed)
        return ZooKeeperAccess(sasl, digest, contexts, self.zookeeper_set_acl, self.zookeeper_sasl_mechanism)

    @property
    def zookeeper_tls_files(self) -> TlsFiles | None:
        """None: without TLS. Raises FileSettingError."""
        paths = self.zookeeper_ssl_certificate, self.zookeeper_ssl_key, self.zookeeper_ssl_ca
        if not self.zookeeper_ssl_client_enable:
            for name, path in zip(("certificate", "key", "ca"), paths, strict=True):
                if path != Path():
                    allowed = "left out, or zookeeper_ssl_client_enable be true"
                    raise FileSettingError(f"zookeeper_ssl_{name}", str(path), allowed)
            return None
        certificate, key, ca = (None if path == Path() else path for path in paths)
        return TlsFiles(certificate, key, ca, "zookeeper_ssl_")


def _password(setting: str, path: Path) -> Callable[[], str]:
    if path == Path():
        raise FileSettingError(setting, "", "a file with the password in its first line")
    return password_in(setting, path).current
