"""One ZooKeeper session, for asyncio. Only this module, ``kazoo_client`` and ``access`` use kazoo.

A ``Session`` lives exactly as long as its ZooKeeper session and is never reused: kazoo would replay calls on
its next session, and it runs callbacks on three threads without a common order (reference, section 14,
point 12). Here every callback is passed to the event loop together with its session, and a session that is over
refuses every call.

The lease (``runtime.lease``) tells, by the local clock, whether the session can still be alive at the server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo import exceptions as zk_errors
from kazoo.client import KazooState
from kazoo.protocol.states import EventType, WatchedEvent

from controller.errors import ControllerError, EnvironmentFault, LeaseExpiredError, SessionLostError
from controller.runtime import lease
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.access import packed_acl
from controller.runtime.zookeeper.kazoo_client import Client
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess

if TYPE_CHECKING:
    # A tool's session measures and logs nothing, and a tool shall start fast.
    from controller.runtime.observe.metrics import ZooKeeperMetrics

ROUNDING_MS = 2
#: kazoo logs each connection attempt; ``on_connection`` reports the changes instead.
_kazoo_log = logging.getLogger("kazoo.silent")
_kazoo_log.setLevel(logging.CRITICAL + 1)

#: How long ending a session may take; otherwise the server lets it expire.
CLOSE_WAIT_S = 3.0
#: A tool without connection asks this often whether anybody listens.
REFUSED_AFTER_S = 0.5
#: What a server without a majority answers to `srvr`.
_NOT_SERVING = b"not currently serving requests"
#: Paths in one bulk read, and operations in one bulk write.
BULK_PATHS = 1000
#: Bulk requests in flight.
BULK_WINDOW = 32
#: Requests of one session without a response yet, including those whose caller was cancelled.
IN_FLIGHT_MAX = 100
#: Of these, single reads in place of a bulk read: the lease's syncs must not queue behind thousands.
SINGLE_WINDOW = 50
#: How often a group of single reads is retried: a server without multiRead drops the connection.
FALLBACK_TRIES = 3
#: Changes of a watched tree that wait to be taken; beyond, it has to be read again.
HEARD_MAX = 2_000_000


def _log() -> Any:
    # Not imported above: tools, which log nothing here, start faster.
    import structlog

    return structlog.get_logger(__name__)


class ConnectionState(Enum):
    """A change of the connection; EXPIRED is final."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class ConnectionLossError(Exception):
    """The response to a request is lost: it may or may not have been executed. The session may still be alive."""


class NoNodeError(Exception):
    """The znode does not exist."""


class NodeExistsError(Exception):
    """The znode exists already."""


class BadVersionError(Exception):
    """A conditional write found another version."""


class AccessError(ControllerError):
    """ZooKeeper's ACLs deny access to a znode."""

    def __init__(
        self, message: str = "ZooKeeper's ACLs deny access to a znode: log in as brokers do"
    ) -> None:
        super().__init__(message)


_TRANSLATED: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (zk_errors.NoNodeError, NoNodeError),
    (zk_errors.NodeExistsError, NodeExistsError),
    (zk_errors.BadVersionError, BadVersionError),
    (zk_errors.NoAuthError, AccessError),
    (zk_errors.SessionExpiredError, SessionLostError),
    (zk_errors.ConnectionClosedError, SessionLostError),
    (zk_errors.ConnectionLoss, ConnectionLossError),
)


@dataclass(frozen=True)
class Stat:
    """The used part of a znode's Stat. ``owner``: the session id of an ephemeral znode, 0 otherwise."""

    version: int
    czxid: int
    owner: int


#: What happened, and to which path.
WatchCallback = Callable[[str, str], None]
DELETED: str = EventType.DELETED


class Session:
    """One session. ``on_connection`` and watch callbacks run on the event loop, and never after ``close``.

    ``timeout_ms`` is the requested session timeout; ``negotiated_ms`` is the one that the server granted.
    ``metrics`` None: the session of a tool, which is not measured.
    """

    def __init__(
        self,
        connect: str,
        timeout_ms: int,
        on_connection: Callable[[ConnectionState], None],
        metrics: ZooKeeperMetrics | None,
        *,
        access: ZooKeeperAccess = OPEN_ACCESS,
        use_multi_read: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_connection = on_connection
        self._metrics = metrics
        self._access = access
        self._closed = False
        self._id = 0
        self._in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._single_window = asyncio.Semaphore(SINGLE_WINDOW)
        self._name_lists = jute.NameLists()
        #: Requests without a response; a dict for its order.
        self._outstanding: dict[asyncio.Future[Any], None] = {}
        #: Calls of kazoo's threads that the event loop is to make, in their order; whether it will.
        self._posted: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._posting = False
        self._requested_ms = timeout_ms
        self.negotiated_ms = timeout_ms
        self.multi_read, self._multi_read_known = use_multi_read, not use_multi_read
        self._multi_read_tried = asyncio.Lock()
        self.over = False
        self._answered_at = float("-inf")
        self._client = Client(
            hosts=connect,
            timeout=timeout_ms / 1000,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0},
            command_retry={"max_tries": 0},
            access=access,
            logger=_kazoo_log,
        )
        self._chroot = self._client.chroot or ""
        #: Number of this connection: watches do not outlive it.
        self.connections = 0
        #: Paths below a watched tree that changed, in the order of events; None: nobody listens.
        self._heard: deque[str] | None = None
        self._learn_negotiated_timeout()
        self._hear_before_replies()
        self._client.add_listener(self._listener)
        self._watchers: dict[WatchCallback, _Watcher] = {}

    # life

    async def start(self, timeout_s: float, *, create_chroot: bool = True) -> None:
        """Connect.

        Raises EnvironmentFault when no server answers in time, naming the servers and why none does, as far as that is
        known, and when the login is refused. With ``create_chroot`` False, as in tools, also when the chroot is missing
        and as soon as no server is known to listen.
        """
        began = time.monotonic()
        deadline, refused_at = began + timeout_s, began + REFUSED_AFTER_S
        live = self._client.start_async()
        while not live.is_set():
            self._require_login()
            if not create_chroot and time.monotonic() > refused_at:
                if why := await self._unreachable():
                    raise EnvironmentFault(f"no ZooKeeper listens at {self._hosts}: {why}")
                refused_at = time.monotonic() + REFUSED_AFTER_S
            if time.monotonic() > deadline:
                why = self._client.problem or await self._unreachable() or await self._without_majority()
                late = f"no ZooKeeper at {self._hosts} answered within {timeout_s:g} s"
                raise EnvironmentFault(f"{late}: {why}" if why else late)
            await asyncio.sleep(0.02)  # kazoo's own thread sets it: there is nothing to await
        try:
            async with asyncio.timeout(timeout_s):
                if self._access.name:
                    await self.ping()  # kazoo is connected before it has logged in
                if self._chroot:
                    await self._make_chroot(create_chroot)
        except TimeoutError:
            raise EnvironmentFault(f"ZooKeeper did not answer within {timeout_s:g} s") from None
        except SessionLostError:
            self._require_login()
            raise

    @property
    def _hosts(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._client.hosts)

    async def _unreachable(self) -> str:
        """Why no server can be reached, where kazoo would try on: all refuse the connection; empty: one may be."""
        reasons = dict[str, None]()
        for host, port in self._client.hosts:
            try:
                async with asyncio.timeout(REFUSED_AFTER_S):
                    _, writer = await asyncio.open_connection(host, port)
            except ConnectionRefusedError:
                reasons["the connection is refused"] = None
            except socket.gaierror as error:
                if error.errno != socket.EAI_NONAME:
                    return ""
                reasons[f"{host}: {error.strerror}"] = None
            except (OSError, TimeoutError):
                return ""
            else:
                writer.close()
                return ""
        return ", ".join(reasons)

    async def _without_majority(self) -> str:
        """Which servers say that they do not serve, as they do without a majority; empty: none does. Where TLS is
        used, none is asked: it would be in clear."""
        found = []
        for host, port in self._client.hosts if self._access.contexts is None else ():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(REFUSED_AFTER_S):
                    reader, writer = await asyncio.open_connection(host, port)
                    with closing(writer):
                        writer.write(b"srvr")
                        if _NOT_SERVING in await reader.read(1000):
                            found.append(f"{host}:{port}")
        return f"not serving requests, as without a majority: {', '.join(found)}" if found else ""

    def _require_login(self) -> None:
        """At the start a session ends by itself only when its login is refused. Raises EnvironmentFault."""
        if self.over and self._access.name and not self._closed:
            raise EnvironmentFault(
                f"ZooKeeper refused the login of {self._access.name!r} by SASL {self._access.mechanism}"
            )

    async def _make_chroot(self, may_create: bool) -> None:
        """Create all components of the chroot; kazoo would create only the last one."""
        if await self.exists("/") is not None:
            return
        if not may_create:
            raise EnvironmentFault(f"there is no cluster: the chroot {self._chroot} does not exist")
        path, refused = "", None
        for name in self._chroot.strip("/").split("/"):
            path += f"/{name}"
            try:
                await self.multi([jute.op_create(path.encode(), b"", packed_acl(self._access, path))])
            except jute.MultiError as error:
                # Where nothing may be created this comes before whether it is there.
                refused = error
        if refused is not None and await self.exists("/") is None:
            raise EnvironmentFault(f"the chroot {self._chroot} could not be created: {refused.why}")

    async def close(self) -> None:
        """End the session at the server, so that its ephemeral znodes are deleted at once. Safe to call twice."""
        self.over = self._closed = True
        self._fail_outstanding()
        closed = asyncio.Event()
        # Without a server, kazoo waits long for its threads, so it closes on a thread of its own.
        threading.Thread(target=self._close_client, args=(closed,), daemon=True, name="zk-close").start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await closed.wait()

    def _close_client(self, closed: asyncio.Event) -> None:
        with suppress(Exception):
            self._client.stop()
        with suppress(Exception):
            self._client.close()
        self._post(closed.set)

    @property
    def id(self) -> int:
        """Session id, as in ``ephemeralOwner``; 0 before the first connection."""
        return self._id

    @property
    def went_back(self) -> bool:
        """Whether it is over because the servers have older data than it has seen."""
        return bool(self._client.went_back)

    @property
    def connected(self) -> bool:
        return not self.over and bool(self._client.connected)

    def lease_remaining_s(self) -> float:
        """Seconds until the lease ends, by the local clock; negative: stop acting."""
        if self.over:
            return float("-inf")
        return lease.remaining_s(self._answered_at, self.negotiated_ms, time.monotonic())

    def report_timeout(self) -> None:
        """Log it if the servers granted another timeout than was requested."""
        # kazoo's own rounding to whole milliseconds and back.
        if abs(self.negotiated_ms - self._requested_ms) > ROUNDING_MS:
            _log().warning(
                "session_timeout_clamped",
                requested_ms=self._requested_ms,
                granted_ms=self.negotiated_ms,
                why="minSessionTimeout and maxSessionTimeout of ZooKeeper; failovers go by what is granted",
            )

    def require_lease(self) -> None:
        """Raises SessionLostError or LeaseExpiredError when this session may no longer act."""
        if self.over:
            raise SessionLostError("the ZooKeeper session is over")
        if self.lease_remaining_s() < 0:
            raise LeaseExpiredError(
                f"ZooKeeper has not answered within {lease.FRACTION:.0%} of the session timeout "
                f"of {self.negotiated_ms} ms: the session may have expired"
            )

    def _learn_negotiated_timeout(self) -> None:
        """Wrap kazoo's connect: kazoo exposes the negotiated timeout only as a read timeout of two thirds of it."""
        connection = self._client._connection
        connect = connection._connect

        def learning(*args: Any) -> Any:
            sent_at = time.monotonic()
            read_timeout_ms, connect_timeout_ms = connect(*args)
            self.negotiated_ms = round(read_timeout_ms * 3 / 2)
            self.connections += 1
            # Kept, because kazoo has the session id only while it is connected.
            self._id = self._id or int(self._client._session_id)
            self._answered_at = max(self._answered_at, sent_at)
            return read_timeout_ms, connect_timeout_ms

        connection._connect = learning

    def _hear_before_replies(self) -> None:
        """Wrap kazoo's reading of events: it would hand them to another thread than replies, and their order be lost.

        Here an event is noted on the thread that reads replies. Who has seen a reply finds every earlier event noted.
        Most come by the watch on the whole tree alone, of which kazoo knows nothing.
        """
        client, connection = self._client, self._client._connection
        read = connection._read_watch_event

        def hearing(buffer: bytes, offset: int) -> None:
            heard = self._heard
            if heard is not None:
                path = jute.event_path(buffer, offset)
                if len(heard) < HEARD_MAX:
                    heard.append(path)
                else:
                    self.connections += 1  # as good as lost
                if path not in client._data_watchers and path not in client._child_watchers:
                    return
            read(buffer, offset)

        connection._read_watch_event = hearing

    def _listener(self, state: str) -> None:
        # Runs on kazoo's connection thread. ``over`` is set here, so that nothing acts on a lost session.
        self._multi_read_known = not self.multi_read  # the next server of the ensemble may be an older one
        if state == KazooState.LOST:
            self.over = True
            change = ConnectionState.EXPIRED
        else:
            change = ConnectionState.CONNECTED if state == KazooState.CONNECTED else ConnectionState.SUSPENDED
        if self._metrics is not None:
            self._metrics.state(change.value)
        self._post(self._notify, change)

    def _notify(self, change: ConnectionState) -> None:
        if change is ConnectionState.EXPIRED:
            self._fail_outstanding()
        # When no server can be reached, kazoo still reports changes for a while after the close.
        if not self._closed:
            self._on_connection(change)

    def _fail_outstanding(self) -> None:
        """Fail all outstanding requests: kazoo answers none that it accepted while its thread ended the session."""
        for answered in list(self._outstanding):
            if not answered.done():
                answered.set_exception(SessionLostError("the ZooKeeper session is over"))

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Call back on the event loop. To wake it is dear, and hundreds of watches fire at once."""
        self._posted.append((callback, args))
        if not self._posting:
            self._posting = True
            with suppress(RuntimeError):  # the loop is closed: the process is ending
                self._loop.call_soon_threadsafe(self._call_back)

    def _call_back(self) -> None:
        # First of all: whoever adds a call from now on may find that all others are done.
        self._posting = False
        try:
            while self._posted:
                callback, args = self._posted.popleft()
                callback(*args)
        finally:
            if self._posted:  # this call has failed, the others have not
                self._loop.call_soon(self._call_back)

    # single requests

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Data and Stat. Raises NoNodeError."""
        data, stat = await self._call(partial(self._client.get_async, path, watch=self._watcher(watch)))
        return data, Stat(stat.version, stat.czxid, stat.ephemeralOwner)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        stat = await self._call(partial(self._client.exists_async, path, watch=self._watcher(watch)))
        return Stat(stat.version, stat.czxid, stat.ephemeralOwner) if stat else None

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Names, unordered. Raises NoNodeError."""
        packed = await self._call(partial(self._client.packed_children, path, self._watcher(watch)))
        return self._name_lists.decode(packed)

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Raises NodeExistsError, NoNodeError (no parent)."""
        await self._call(partial(self._client.create_async, path, data, ephemeral=ephemeral), quorum=True)

    async def delete(self, path: str, version: int = -1) -> None:
        """Raises NoNodeError, BadVersionError."""
        await self._call(partial(self._client.delete_async, path, version), quorum=True)

    async def give_acl(self, path: str) -> None:
        """Give a znode the ACL that this session gives to new ones. Raises NoNodeError, AccessError."""
        acl = self._access.acl(path)
        await self._call(partial(self._client.set_acls_async, path, acl), quorum=True)

    async def ensure(self, path: str) -> None:
        """Create a persistent path with its parents, where missing; each with its own ACL."""
        if await self.exists(path) is not None:
            return
        parent = path.rpartition("/")[0]
        if parent:
            await self.ensure(parent)
        with suppress(NodeExistsError):
            await self.create(path, b"")

    async def register_controller(
        self, path: str, data: bytes, epoch_path: str, epoch: int, version: int
    ) -> int:
        """The election's multi (reference, section 2.1): create the ephemeral znode, and set the epoch at ``version``.

        Returns the new version of the epoch znode. Raises MultiError, ConnectionLossError.
        """
        transaction = self._client.transaction()
        transaction.create(path, data, ephemeral=True)
        transaction.set_data(epoch_path, str(epoch).encode(), version=version)
        results = await self._call(transaction.commit_async, quorum=True)
        if any(isinstance(r, Exception) for r in results):
            raise jute.MultiError([getattr(r, "code", 0) for r in results])
        return int(results[1].version)

    async def ping(self) -> None:
        """Send a sync, which renews the lease: a follower that is cut off from its leader cannot answer it."""
        await self._call(partial(self._client.sync_async, "/"), quorum=True)

    # bulk requests

    async def multi(self, ops: Sequence[bytes]) -> None:
        """Execute operations packed by ``jute`` atomically. Raises MultiError, ConnectionLossError, TooLargeError."""
        jute.require_multi_fits(ops)
        answer = await self._call(
            partial(self._client.raw, jute.BulkRequest(jute.OP_MULTI, ops)), quorum=True
        )
        if codes := jute.parse_multi(answer[0], len(ops)):
            raise jute.MultiError(codes)

    async def bulk_get(self, paths: Sequence[str]) -> list[jute.Node | int]:
        """Many znodes, in order; an error code (such as ``jute.NO_NODE``) for each that cannot be read.

        One multiRead per thousand paths, or pipelined single reads if the server has no multiRead.
        """
        nodes: list[jute.Node | int] = []
        async for chunk in self.bulk_get_chunks([self.packed_path(path) for path in paths]):
            nodes.extend(chunk)
        return nodes

    def packed_path(self, path: str) -> bytes:
        """A path in UTF-8, chroot included."""
        return (self._chroot + path).encode()

    def op_create(self, path: str, data: bytes) -> bytes:
        """The packed operation that creates a persistent znode, for ``multi``."""
        return jute.op_create(self.packed_path(path), data, packed_acl(self._access, path))

    def op_create_ephemeral(self, path: str, data: bytes) -> bytes:
        """The same, of a znode that this session owns."""
        return jute.op_create_ephemeral(self.packed_path(path), data, packed_acl(self._access, path))

    def op_create_sequential(self, path: str, data: bytes) -> bytes:
        """The same, and ZooKeeper appends a number of ten digits to its name."""
        return jute.op_create_sequential(self.packed_path(path), data, packed_acl(self._access, path))

    async def bulk_get_chunks(self, packed: Sequence[bytes]) -> AsyncIterator[list[jute.Node | int]]:
        """``bulk_get`` as an async iterator of lists, in order, as the responses arrive."""
        chunks = [packed[n : n + BULK_PATHS] for n in range(0, len(packed), BULK_PATHS)]
        pending: list[asyncio.Task[list[jute.Node | int]]] = []
        try:
            for chunk in chunks:
                pending.append(asyncio.ensure_future(self._get_chunk(chunk)))
                if len(pending) >= BULK_WINDOW:
                    yield await pending.pop(0)
            while pending:
                yield await pending.pop(0)
        finally:
            for task in pending:
                task.cancel()

    async def _get_chunk(self, packed: Sequence[bytes]) -> list[jute.Node | int]:
        if await self._has_multi_read(packed[0]):
            with suppress(zk_errors.UnimplementedError):
                answer = await self._multi_read(packed)
                return jute.parse_multi_read(answer[0], len(packed))
            self._lacks_multi_read()
        for _ in range(FALLBACK_TRIES):
            with suppress(ConnectionLossError):
                return await self._get_singly(packed)
        return await self._get_singly(packed)

    async def _has_multi_read(self, path: bytes) -> bool:
        """Whether the server has multiRead: tested with one small request on each connection.

        Servers before 3.6 answer that they do not know it and drop the connection. If more requests were sent after
        that one, the reset could overtake the response.
        """
        async with self._multi_read_tried:
            if not self._multi_read_known:
                try:
                    await self._multi_read([path])
                except zk_errors.UnimplementedError:
                    self._lacks_multi_read()
                self._multi_read_known = True
        return self.multi_read

    def _lacks_multi_read(self) -> None:
        if self.multi_read and self._metrics is not None:
            _log().info("bulk_read_unsupported", why="the server has no multiRead: single reads instead")
        self.multi_read = False

    async def _multi_read(self, packed: Sequence[bytes]) -> Any:
        request = jute.BulkRequest(jute.OP_MULTI_READ, [jute.op_get(path) for path in packed])
        return await self._call(partial(self._client.raw, request))

    async def _get_singly(self, packed: Sequence[bytes]) -> list[jute.Node | int]:
        async def one(path: bytes) -> jute.Node | int:
            async with self._single_window:
                try:
                    data, stat = await self.get(path.decode()[len(self._chroot) :])
                except NoNodeError:
                    return jute.NO_NODE
                except AccessError:
                    return jute.NO_AUTH
                return jute.Node(data, stat.version, stat.czxid)

        reads = [asyncio.ensure_future(one(path)) for path in packed]
        try:
            return list(await asyncio.gather(*reads))
        finally:
            for read in reads:
                read.cancel()

    async def arm_data_watches(self, paths: Sequence[str], watch: WatchCallback) -> None:
        """Arm one-shot data watches on many existing znodes; those changed since the last response fire at once.

        Read the znodes *after* this call, so that no change is missed.
        """
        watcher = self._watcher(watch)
        for packed in jute.watchable([self.packed_path(path) for path in paths]):
            request = jute.SetWatchesRequest(self._client.last_zxid, packed)
            # kazoo drops events of paths without a watcher, so it must know the watcher before events can come;
            # and again afterwards, because an event of an earlier watch removes the watcher.
            self._client.know_data_watcher(packed, watcher)
            await self._call(partial(self._client.raw, request))
            self._client.know_data_watcher(packed, watcher)

    def forget_data_watches(self, paths: Sequence[str], watch: WatchCallback) -> None:
        """Keep nothing of data watches that were armed on znodes which a later read did not find."""
        self._client.forget_data_watcher([self.packed_path(path) for path in paths], self._watcher(watch))

    async def watch_tree(self, path: str) -> bool:
        """Note changes of a znode and all below it, until this connection or ``forget_tree`` ends it. False: the server
        cannot. Nothing else may watch this very path. Raises ConnectionLossError."""
        packed = self.packed_path(path)
        # Both came with ZooKeeper 3.6, and a server that does not know a request drops the connection.
        if not await self._has_multi_read(packed):
            return False
        self._heard = deque()
        await self._call(partial(self._client.raw, jute.TreeWatchRequest(packed, arm=True)))
        return True

    def heard(self) -> list[str]:
        """The paths that changed, chroot left out, since the last call: all whose events came before any reply that the
        caller has seen."""
        found: list[str] = []
        heard, start = self._heard, len(self._chroot)
        while heard:
            found.append(heard.popleft()[start:])
        return found

    async def forget_tree(self, path: str) -> None:
        """Remove every watch on this path. Raises ConnectionLossError."""
        if self._heard is not None:
            self._heard = None
            with suppress(zk_errors.KazooException):
                await self._call(
                    partial(self._client.raw, jute.TreeWatchRequest(self.packed_path(path), arm=False))
                )

    # plumbing

    async def _call(self, submit: Callable[[], Any], *, quorum: bool = False) -> Any:
        """Submit to kazoo and wait on the event loop.

        ``quorum``: only the leader of the ensemble can answer this request, so a response renews the lease, counted
        from the time of sending.
        """
        await self._in_flight.acquire()
        answered: asyncio.Future[Any] = self._loop.create_future()
        self._outstanding[answered] = None
        answered.add_done_callback(self._done_with)
        try:
            if self.over:
                raise SessionLostError("the ZooKeeper session is over")
            sent_at = time.monotonic()
            submit().rawlink(lambda result: self._post(_complete, answered, result))
        except BaseException:
            answered.cancel()
            raise
        try:
            # The caller may be cancelled; the request stays outstanding until kazoo answers.
            answer = await asyncio.shield(answered)
        except Exception as error:
            self._measure(sent_at)
            for kazoo_error, translated in _TRANSLATED:
                if isinstance(error, kazoo_error):
                    if quorum and translated in (NoNodeError, NodeExistsError, BadVersionError):
                        self._answered_at = max(self._answered_at, sent_at)
                    raise translated(*error.args) from None
            raise
        if quorum:
            self._answered_at = max(self._answered_at, sent_at)
        self._measure(sent_at)
        return answer

    def _measure(self, sent_at: float) -> None:
        if self._metrics is not None:
            self._metrics.observe(time.monotonic() - sent_at)

    def _done_with(self, answered: asyncio.Future[Any]) -> None:
        self._in_flight.release()
        self._outstanding.pop(answered)
        if not answered.cancelled():
            answered.exception()  # marks it as retrieved: the caller may have been cancelled

    def forget(self, *callbacks: WatchCallback) -> None:
        """Never call these again: their watches may stay armed for as long as the session lives."""
        for callback in callbacks:
            if (watcher := self._watchers.pop(callback, None)) is not None:
                watcher.callback = None

    def _watcher(self, callback: WatchCallback | None) -> _Watcher | None:
        if callback is None:
            return None
        known = self._watchers.get(callback)
        if known is None:
            known = self._watchers[callback] = _Watcher(callback, self)
        return known

    def _deliver(self, watcher: _Watcher, kind: str, path: str) -> None:
        if not self.over and path and watcher.callback is not None:
            watcher.callback(kind, path)


class _Watcher:
    """What kazoo keeps of a callback."""

    def __init__(self, callback: WatchCallback, session: Session) -> None:
        self.callback: WatchCallback | None = callback
        self._session = session

    def __call__(self, event: WatchedEvent) -> None:
        # Runs on kazoo's watch thread.
        self._session._post(self._session._deliver, self, event.type, event.path)


def _complete(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)
