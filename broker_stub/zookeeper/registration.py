"""The broker's registration in ZooKeeper: ``/brokers/ids/N``.

One thread, and one kazoo client per session. The client of an expired session is discarded, because kazoo would
repeat calls of the old session in the new one (reference, section 14, point 12).
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from broker_stub.data_identity import random_uuid
from broker_stub.errors import RegistrationFault
from broker_stub.zookeeper import codecs
from broker_stub.zookeeper.cluster_id import make_cluster_id, read_cluster_id
from proto.addresses import join_address
from proto.incarnations import Incarnation
from proto.zookeeper_access import OPEN_ACCESS, Client, ZooKeeperAccess

_log = structlog.get_logger("broker_stub.zookeeper.registration")

LISTENER = "GRPC"
#: Seconds, beyond the session timeout, to wait for the end of another session's registration.
_VANISH_EXTRA_S = 5.0
_RETRY_PAUSE_S = 0.5
_REPORT_INTERVAL_S = 5.0
#: Timeout of one call: without it kazoo waits as long as ZooKeeper is unreachable.
_CALL_TIMEOUT_S = 5.0
#: Between two logins that ZooKeeper refuses.
_REFUSED_PAUSE_S = 5.0
#: Errors of the connection: retried without limit. Any other error is retried a few times.
_TRANSIENT = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
)
#: Ids up to this one are for manual assignment (`reserved.broker.max.id`).
RESERVED_BROKER_ID_MAX = 1000
_REFUSALS_MAX = 5
#: Seconds. A failing disk fails one partition after another: failures within this time become one event.
_BURST_QUIET_S, _BURST_MAX_S = 0.2, 2.0


class Identity(NamedTuple):
    """The content of the registration. ``rack`` None: no rack; ``features``: (name, min version, max version).

    ``incarnation``: of this process, and of its former selves, whose registrations are deleted at once.
    ``directories``, ``previous_broker_epoch``: of its data (`broker_stub.data_identity`); ``cluster_id``: the cluster
    that the data belongs to, empty: none yet.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None
    incarnation: Incarnation
    features: tuple[tuple[str, int, int], ...] = ()
    directories: tuple[str, ...] = ()
    previous_broker_epoch: int = -1
    cluster_id: str = ""

    def encode(self, timestamp_ms: int, session_timeout_ms: int) -> bytes:
        """Registration of version 5 (reference, section 1.1), and our own fields: incarnation, data, the session
        timeout, from which the controller computes the last sign of a broker that is gone, and the cluster."""
        value: dict[str, Any] = {
            "version": 5,
            "host": self.host,
            "port": self.port,
            "endpoints": [f"{LISTENER}://{join_address(self.host, self.port)}"],
            "listener_security_protocol_map": {LISTENER: "PLAINTEXT"},
        }
        if self.rack is not None:
            value["rack"] = self.rack
        features = {name: {"min_version": low, "max_version": high} for name, low, high in self.features}
        value |= {"jmx_port": -1, "timestamp": str(timestamp_ms), "features": features}
        value["incarnation"] = self.incarnation.own
        value["directories"] = self.directories
        value["previous_broker_epoch"] = self.previous_broker_epoch
        value["session_timeout_ms"] = session_timeout_ms
        value["cluster_id"] = self.cluster_id
        return json.dumps(value, separators=(",", ":")).encode()


class Timeouts(NamedTuple):
    """``session_ms``: requested session timeout; ``connection_ms``: limit of the first connection attempt."""

    session_ms: int
    connection_ms: int


class _Lost(Exception):  # noqa: N818  (control flow inside this module)
    """The session is over: register again."""


class _Refused(_Lost):
    """ZooKeeper refused the login; kazoo tries no more with this client."""


class _Stopped(Exception):  # noqa: N818
    """The broker is stopping."""


class Registrar:
    """Keeps broker ``identity`` registered until stopped.

    The callbacks run on the registrar's thread and must not block. ``on_cluster`` is told once in which cluster the
    broker is, before it registers. ``on_session`` is called with the client of a
    session after the registration, before ``on_registered(broker_epoch)``, and with None when the session is over. The
    client may be used from any thread and must not be stopped. After ``on_failed(error)`` the registrar does nothing
    more.
    """

    def __init__(
        self,
        identity: Identity,
        connect: str,
        timeouts: Timeouts,
        on_registered: Callable[[int], None],
        on_failed: Callable[[BaseException], None],
        on_session: Callable[[KazooClient | None], None] = lambda _client: None,
        access: ZooKeeperAccess = OPEN_ACCESS,
        on_cluster: Callable[[str], None] = lambda _cluster_id: None,
    ) -> None:
        self._identity, self._connect, self._timeouts = identity, connect, timeouts
        self._on_cluster, self._joined = on_cluster, False
        self._on_registered, self._on_failed, self._on_session = on_registered, on_failed, on_session
        self._access = access
        self._path = f"{codecs.BROKER_IDS}/{identity.broker_id}"
        self._servers, _, chroot = connect.partition("/")
        self._chroot = f"/{chroot}" if chroot else ""
        #: ``stop``, ``storage_lost`` from outside; (``lost``, client), (``look``, client) from the client.
        self._events: queue.SimpleQueue[tuple[str, KazooClient | None]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        #: It was not registered yet.
        self._starting = True
        self._storage_lost = False
        #: The client whose login was refused last.
        self._refused: KazooClient | None = None
        #: Our registration may have changed.
        self._look = True
        self._thread = threading.Thread(target=self._run, name="registrar", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Close the session; if ZooKeeper is reachable, this deletes the registration."""
        self._stopping.set()
        self._events.put(("stop", None))
        self._thread.join(timeout_s)

    def storage_lost(self) -> None:
        """Notify the controller that a log directory failed (reference, sections 1.1 and 8.5).

        Call it at every failure, from any thread: failures close together become one event.
        """
        self._events.put(("storage_lost", None))

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._session()
                except _Refused:
                    self._login_refused()
                except _Lost:
                    _log.warning("ZooKeeper session expired: registering again")
        except _Stopped:
            return
        except Exception as error:  # noqa: BLE001  (reported, and the process ends)
            self._on_failed(error)

    def _session(self) -> None:
        """Run one session from connection to end. Raises _Lost, _Stopped or RegistrationFault."""
        client = Client(
            self._access,
            hosts=self._servers,
            timeout=self._timeouts.session_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
            command_retry=KazooRetry(max_tries=0),
        )
        client.add_listener(lambda state: self._listen(client, state))
        handed_over = False
        try:
            self._await_connection(client)
            session_id = _session_of(client)
            epoch = self._register(client, session_id)
            self._starting = False
            handed_over = True
            self._on_session(client)
            while True:
                _log.info("registered", broker_epoch=epoch, path=self._path)
                self._on_registered(epoch)
                self._serve_events(client, epoch)
                _log.warning("our registration was removed by another: registering again", path=self._path)
                epoch = self._register(client, session_id)
        finally:
            if handed_over:
                self._on_session(None)
            _dispose(client)

    def _listen(self, client: KazooClient, state: str) -> None:
        """Called by kazoo's own thread: must not block."""
        if state == KazooState.LOST:
            if client._state == KeeperState.AUTH_FAILED:
                self._refused = client
            self._events.put(("lost", client))
        elif state == KazooState.CONNECTED:
            # A watch may be lost with its connection.
            self._events.put(("look", client))
        elif state == KazooState.SUSPENDED:
            _log.warning("connection to ZooKeeper lost: reconnecting")

    def _next_event(self, client: KazooClient, timeout_s: float) -> str | None:
        """The next event; None after the timeout. Raises _Lost, _Stopped."""
        if self._stopping.is_set():
            raise _Stopped
        try:
            name, source = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if name == "stop":
            raise _Stopped
        if name == "lost" and source is client:
            raise _Refused if self._refused is client else _Lost
        if name == "storage_lost":
            self._storage_lost = True
        if name == "look":
            self._look = True
        return name

    def _await_connection(self, client: KazooClient) -> None:
        """Wait until connected, at the start at most the connection timeout, and log why not."""
        started = time.monotonic()
        report_at = started + min(1.0, self._timeouts.connection_ms / 2000)
        connected = client.start_async()
        while not connected.wait(0.1):
            if self._stopping.is_set():
                raise _Stopped
            now = time.monotonic()
            if self._refused is client:
                raise _Refused
            if self._starting and now - started > self._timeouts.connection_ms / 1000:
                why = client.problem or why_unreachable(self._connect)
                limit = f"{self._timeouts.connection_ms} ms (connection_timeout_ms)"
                raise RegistrationFault(f"no connection to ZooKeeper {self._connect} within {limit}: {why}")
            if now >= report_at:
                _log.warning(
                    "waiting for ZooKeeper",
                    connect=self._connect,
                    why=client.problem or why_unreachable(self._connect),
                )
                report_at = time.monotonic() + _REPORT_INTERVAL_S

    def _login_refused(self) -> None:
        """Raises RegistrationFault at the start; later a password may be about to change on both sides."""
        why = f"ZooKeeper {self._connect} refused the login of {self._access.name!r} by SASL {self._access.mechanism}"
        if self._starting:
            raise RegistrationFault(why)
        _log.error("login refused: trying again", why=why, pause_s=_REFUSED_PAUSE_S)
        self._stopping.wait(_REFUSED_PAUSE_S)

    def _register(self, client: KazooClient, session_id: int) -> int:
        """Create the paths and the registration. Returns the broker epoch. Retries after connection losses."""
        vanish_by: float | None = None
        reported, refusals = False, 0
        while True:
            try:
                if not self._joined:
                    self._join_cluster(client)
                self._enter_chroot(client)
                _make_paths(client)
                epoch, other = self._try_register(client, session_id)
                if epoch is not None:
                    return epoch
            except (KazooException, KazooTimeoutError) as error:
                why = f"{type(error).__name__}: {error}"
                refusals = 0 if isinstance(error, _TRANSIENT) else refusals + 1
                if refusals == _REFUSALS_MAX:
                    raise RegistrationFault(f"ZooKeeper refuses to register {self._path}: {why}") from error
                _log.warning("registration interrupted: trying again", why=why)
                self._next_event(client, _RETRY_PAUSE_S)
                continue
            patience_s = self._timeouts.session_ms / 1000 + _VANISH_EXTRA_S
            vanish_by = vanish_by or time.monotonic() + patience_s
            if time.monotonic() > vanish_by:
                raise RegistrationFault(
                    f"{self._path} is another process's and did not end within {patience_s:g} s: another broker with"
                    f" id {self._identity.broker_id} is running on {other}"
                )
            if not reported:
                _log.warning(
                    "our id is registered by another process: waiting for the end of that registration",
                    path=self._path,
                    host=other,
                    patience_s=patience_s,
                )
                reported = True
            self._next_event(client, _RETRY_PAUSE_S / 2)

    def _join_cluster(self, client: KazooClient) -> None:
        """As Kafka's brokers do, once in a process: a ZooKeeper that lost all while brokers run does not end them.

        Raises RegistrationFault when the data belongs to another cluster.
        """
        known = self._identity.cluster_id
        try:
            found = read_cluster_id(client, self._chroot, known, _CALL_TIMEOUT_S)
            if not found:
                self._enter_chroot(client)
                found = make_cluster_id(client, known or random_uuid(), _CALL_TIMEOUT_S)
        except codecs.MalformedZnode as error:
            _log.error("it is not known in which cluster this broker is: registering", why=str(error))
        else:
            self._identity = self._identity._replace(cluster_id=found)
            self._on_cluster(found)
        self._joined = True

    def _enter_chroot(self, client: KazooClient) -> None:
        """Create the chroot, which kazoo expects to exist, and use it from here on."""
        if self._chroot and not client.chroot:
            client.ensure_path_async(self._chroot).get(timeout=_CALL_TIMEOUT_S)
            client.chroot = self._chroot

    def _try_register(self, client: KazooClient, session_id: int) -> tuple[int | None, str]:
        """(broker epoch, ""), or (None, the host of the stranger that has our broker id). Raises _Lost.

        Create and set in one multi, because the response to the set contains the czxid (reference, section 1.1).
        """
        transaction = client.transaction()
        transaction.create(self._path, b"", ephemeral=True)
        value = self._identity.encode(time.time_ns() // 1_000_000, client.negotiated_ms)
        transaction.set_data(self._path, value, 0)
        results = transaction.commit_async().get(timeout=_CALL_TIMEOUT_S)
        if not any(isinstance(result, Exception) for result in results):
            return int(results[1].czxid), ""
        if not isinstance(results[0], NodeExistsError):
            raise next(result for result in results if isinstance(result, Exception))
        try:
            data, stat = client.get_async(self._path).get(timeout=_CALL_TIMEOUT_S)
        except NoNodeError:
            return self._try_register(client, session_id)
        if _session_of(client) != session_id:
            raise _Lost
        if stat.ephemeralOwner == session_id:
            return int(stat.czxid), ""  # the create succeeded; its response was lost
        host, incarnation = codecs.decode_registrant(data)
        if self._identity.incarnation.includes(incarnation):
            try:
                client.delete_async(self._path, stat.version).get(timeout=_CALL_TIMEOUT_S)
            except NoNodeError:
                _log.debug("the registration of our former session has ended already")
            return self._try_register(client, session_id)
        return None, host

    def _is_registered(self, client: KazooClient, epoch: int) -> bool:
        """Whether the registration of this epoch is there, or nobody knows; arms a watch on it."""
        try:
            stat = client.exists_async(self._path, self._changed).get(timeout=_CALL_TIMEOUT_S)
        except (KazooException, KazooTimeoutError) as error:
            # The next connection, or the end of the session, is an event of its own.
            _log.debug("registration not looked at", why=f"{type(error).__name__}: {error}")
            return True
        return stat is not None and int(stat.czxid) == epoch

    def _changed(self, _event: object) -> None:
        """Called by kazoo. Always the same method: kazoo registers an equal watcher only once."""
        self._events.put(("look", None))

    def _serve_events(self, client: KazooClient, epoch: int) -> None:
        """Until the registration of this epoch is gone although the session goes on."""
        self._look = True
        while True:
            if self._look:
                self._look = False
                if not self._is_registered(client, epoch):
                    return
            if self._storage_lost:
                self._await_burst_end(client)
                try:
                    event = {"version": 1, "broker": self._identity.broker_id, "event": 1}
                    data = json.dumps(event, separators=(",", ":")).encode()
                    created = client.create_async(codecs.LOG_DIR_EVENT, data, sequence=True)
                    created.get(timeout=_CALL_TIMEOUT_S)
                    self._storage_lost = False
                except (KazooException, KazooTimeoutError) as error:
                    _log.warning(
                        "log directory event not written yet", why=f"{type(error).__name__}: {error}"
                    )
            # What was told while a burst ended is not waited for.
            if not self._look:
                self._next_event(client, _RETRY_PAUSE_S if self._storage_lost else 3600.0)

    def _await_burst_end(self, client: KazooClient) -> None:
        end = time.monotonic() + _BURST_MAX_S
        while (left_s := end - time.monotonic()) > 0:
            if self._next_event(client, min(_BURST_QUIET_S, left_s)) is None:
                return


def _session_of(client: KazooClient) -> int:
    """The session id. Raises _Lost when kazoo has none, between an expired session and the next one."""
    identity = client.client_id
    if identity is None:
        raise _Lost
    return int(identity[0])


def _make_paths(client: KazooClient) -> None:
    pending = [client.ensure_path_async(path) for path in codecs.PERSISTENT_PATHS]
    for result in pending:
        result.get(timeout=_CALL_TIMEOUT_S)


def _dispose(client: KazooClient) -> None:
    try:
        client.stop()
        client.close()
    except Exception as error:  # noqa: BLE001  (the session then expires in ZooKeeper)
        _log.warning("ZooKeeper client did not close", why=f"{type(error).__name__}: {error}")


def why_unreachable(connect: str) -> str:
    """The result of a plain TCP connection to each server, as text; kazoo reports no reason."""
    hosts, _ = collect_hosts(connect)
    reasons = []
    for host, port in hosts:
        try:
            with socket.create_connection((host, port), timeout=1.0):
                reasons.append(f"{host}:{port} accepts connections but no session was granted")
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
    return "; ".join(reasons)


def generate_broker_id(connect: str, timeout_ms: int, access: ZooKeeperAccess = OPEN_ACCESS) -> int:
    """A new broker id: `RESERVED_BROKER_ID_MAX` plus the version of ``/brokers/seqid`` after writing it (reference,
    section 1.1). Raises RegistrationFault."""
    servers, _, chroot = connect.partition("/")
    client = Client(access, hosts=servers, timeout=timeout_ms / 1000)
    prefix = f"/{chroot}" if chroot else ""
    try:
        client.start(timeout_ms / 1000)
        client.ensure_path(f"{prefix}{codecs.BROKER_SEQUENCE}")
        return int(client.set(f"{prefix}{codecs.BROKER_SEQUENCE}", b"").version) + RESERVED_BROKER_ID_MAX
    except (KazooException, KazooTimeoutError) as error:
        unreachable = isinstance(error, KazooTimeoutError)
        why = client.problem or (why_unreachable(connect) if unreachable else f"{type(error).__name__}")
        raise RegistrationFault(f"no broker id could be had from ZooKeeper {connect}: {why}") from error
    finally:
        _dispose(client)
