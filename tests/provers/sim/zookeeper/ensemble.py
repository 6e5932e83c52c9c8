"""A ZooKeeper ensemble in memory: no threads, no clock, no chance. The time is given with each call, in ms.

One server behaves as the real one does (`contract` compares them request by request).
Several share one sequence of transactions, and each may lag behind, be cut off from its leader, or stop:

- ``hold``: the server applies transactions late, so reads on it are old; a write or sync through it catches up.
- ``cut_off``: as long as it has not noticed, it answers reads and pings by itself, but the leader hears of none
  of its clients, so their sessions expire; writes wait.
- ``stop``: its clients lose their connections. Without a majority nobody is served; when the leader goes, the next
  one begins a new epoch of zxids, and every session's time begins anew.

What a client's network does to requests and replies is the caller's affair: a request that is never handed to
``request`` was lost on its way, a message never taken from ``Connection.outbox`` was lost on its way back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from tests.provers.sim.zookeeper import reads, wire
from tests.provers.sim.zookeeper.messages import (
    CloseSession,
    Code,
    Create,
    Created,
    Delete,
    Event,
    EventKind,
    Message,
    Multi,
    MultiOp,
    MultiRead,
    Operation,
    Perms,
    Ping,
    RemoveWatches,
    Reply,
    Set,
    SetPerms,
    Stat,
    Sync,
    Unknown,
    Value,
    WatchTree,
    Write,
)
from tests.provers.sim.zookeeper.preparation import Preparation, Refused
from tests.provers.sim.zookeeper.tree import Change, NodeCreated, SessionEnded, Transaction, Tree

EPOCH_SHIFT = 32
#: Session ids begin here, so that none looks like a zxid or a broker id.
FIRST_SESSION_ID = 0x1000_0000_0000_0000


@dataclass(frozen=True)
class Options:
    """As in the server's configuration. ``multi_read`` False: a server before 3.6."""

    tick_ms: int = 500
    session_timeout_min_ms: int = 1000
    session_timeout_max_ms: int = 120_000
    #: jute.maxbuffer: a request over it ends the connection.
    request_bytes_max: int = 0xFFFFF
    multi_read: bool = True


@dataclass(slots=True)
class Session:
    id: int
    timeout_ms: int
    expires_ms: int = 0


@dataclass(eq=False, slots=True)
class Connection:
    """A client's connection to one server. Messages leave ``outbox`` in the order in which they were sent.

    ``session_id`` 0: the server refused the session that was asked for, and hung up.
    """

    server: int
    session_id: int
    timeout_ms: int
    password: bytes
    open: bool = True
    outbox: deque[Message] = field(default_factory=deque)
    #: Requests that wait for the leader, in order.
    waiting: deque[Operation] = field(default_factory=deque)

    def notify(self, kind: EventKind, path: str, zxid: int, perms: int) -> None:
        if perms & Perms.READ:
            self.outbox.append(Event(zxid, kind, path))


class Backup(NamedTuple):
    """``sessions``: the timeout of each, ms."""

    tree: Tree
    sessions: Mapping[int, int]


@dataclass(eq=False, slots=True)
class Server:
    number: int
    tree: Tree
    running: bool = True
    held: bool = False
    cut_off: bool = False
    #: Transactions of the ensemble that it has applied.
    applied: int = 0
    connections: dict[int, Connection] = field(default_factory=dict)


def password_of(session_id: int) -> bytes:
    """16 bytes that only the session's client is told."""
    return sha256(session_id.to_bytes(8, "big")).digest()[:16]


class Ensemble:
    """Servers, sessions and the agreed sequence of transactions. Server 0 leads at first.

    ``first_zxid``: the last transaction before the first one here. ``now_ms`` never goes back.
    """

    def __init__(
        self, servers: int = 1, options: Options | None = None, first_zxid: int | None = None
    ) -> None:
        self.options = options or Options()
        if first_zxid is None:
            first_zxid = 1 << EPOCH_SHIFT if servers > 1 else 0
        self.servers = [Server(number, Tree(first_zxid)) for number in range(servers)]
        self.sessions: dict[int, Session] = {}
        self.leader: int | None = 0
        self.now_ms = 0
        self._zxid = first_zxid
        self._session_ids = FIRST_SESSION_ID
        self._agreed: list[Transaction] = []
        #: Told of each transaction after the leader has applied it: who looks on from outside sees it there.
        self.on_agreed: Callable[[Transaction], None] = lambda _: None
        #: Whose request is being carried out.
        self.serving: Connection | None = None
        #: Transactions that every server has applied, and that are forgotten.
        self._forgotten = 0

    # clients

    def connect(
        self,
        server: int,
        timeout_ms: int,
        now_ms: int,
        session_id: int = 0,
        password: bytes = b"",
        last_zxid: int = 0,
    ) -> Connection | None:
        """A connection of a new session (id 0) or of a known one; None when the server hangs up at once.

        It does so when it is not serving, and when the client has seen a later transaction (``last_zxid``) than it.
        """
        self.advance(now_ms)
        at = self.servers[server]
        if not self._serving(at) or at.cut_off or last_zxid > at.tree.zxid:
            return None
        options = self.options
        timeout_ms = min(max(timeout_ms, options.session_timeout_min_ms), options.session_timeout_max_ms)
        if session_id == 0:
            self._session_ids += 1
            session_id, password = self._session_ids, password_of(self._session_ids)
            self.sessions[session_id] = Session(session_id, timeout_ms)
            self._agree((), at)
        else:
            self._disconnect_session(session_id)
        if session_id not in self.sessions or password != password_of(session_id):
            return Connection(server, 0, 0, bytes(16), open=False)
        connection = Connection(server, session_id, timeout_ms, password)
        at.connections[session_id] = connection
        self._touch(connection)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """The connection is gone, whoever ended it; its watches go with it, the session stays."""
        if not connection.open:
            return
        connection.open = False
        connection.waiting.clear()
        server = self.servers[connection.server]
        del server.connections[connection.session_id]
        server.tree.forget(connection)

    def request(self, connection: Connection, op: Operation, now_ms: int) -> None:
        """A request arrives; what there is to say goes to the outbox. Nothing happens on a closed connection."""
        self.advance(now_ms)
        if not connection.open:
            return
        server = self.servers[connection.server]
        if not server.cut_off:
            self._touch(connection)
        if not wire.surely_below(op, self.options.request_bytes_max) and (
            wire.packet_size(op) > self.options.request_bytes_max
        ):
            self.disconnect(connection)
        elif server.cut_off and (connection.waiting or _needs_leader(op)):
            connection.waiting.append(op)
        else:
            self._answer(connection, op)

    def advance(self, now_ms: int) -> None:
        """Time passes: sessions that nobody heard of end, the earliest first."""
        assert now_ms >= self.now_ms, f"time went back from {self.now_ms} to {now_ms}"
        self.now_ms = now_ms
        if self.leader is None:
            return
        due = [session for session in self.sessions.values() if session.expires_ms <= now_ms]
        for session in sorted(due, key=lambda session: (session.expires_ms, session.id)):
            self.end_session(session.id)

    def next_expiry_ms(self) -> int | None:
        """When the next session ends if nothing is heard; None without one, or without a leader."""
        if self.leader is None:
            return None
        return min((session.expires_ms for session in self.sessions.values()), default=None)

    def end_session(self, session_id: int) -> None:
        """The session's time is over: its ephemerals go in one transaction, then its connection."""
        del self.sessions[session_id]
        self._agree((SessionEnded(session_id),))
        self._disconnect_session(session_id)

    # servers

    def hold(self, server: int) -> None:
        """The server applies transactions only when it must, until ``release``."""
        self.servers[server].held = True

    def release(self, server: int) -> None:
        self.servers[server].held = False
        self._catch_up(self.servers[server])

    def cut_off(self, server: int) -> None:
        """The server does not hear its leader, and has not noticed. Not for the leader itself: stop that."""
        if server == self.leader:
            raise ValueError(f"server {server} leads: stop it instead")
        self.servers[server].cut_off = True

    def heal(self, server: int) -> None:
        """The server hears its leader again: what waited is asked now."""
        at = self.servers[server]
        at.cut_off = False
        self._catch_up(at)
        for connection in list(at.connections.values()):
            self._touch(connection)
            while connection.open and connection.waiting:
                self._answer(connection, connection.waiting.popleft())

    def stop(self, server: int, now_ms: int) -> None:
        """The server's clients lose their connections; those of all servers when the leader changes or goes."""
        self.advance(now_ms)
        at = self.servers[server]
        at.running = False
        self._drop_clients(at)
        if self.leader == server or not self._majority():
            self._elect()

    def start(self, server: int, now_ms: int) -> None:
        """The server is back with the others."""
        self.advance(now_ms)
        at = self.servers[server]
        at.running, at.held, at.cut_off = True, False, False
        if self.leader is None:
            self._elect()
        else:
            self._catch_up(at)

    def backup(self, *, sessions: bool) -> Backup:
        """What the leader has: with sessions and their ephemeral znodes, as a server's snapshot, or without, as an
        export."""
        assert self.leader is not None
        known = {session.id: session.timeout_ms for session in self.sessions.values()} if sessions else {}
        return Backup(self.servers[self.leader].tree.copy(known), known)

    def restore(self, backup: Backup) -> None:
        """Every server has what the backup has; its sessions begin their time again. While none is running."""
        assert self.leader is None
        for server in self.servers:
            server.tree, server.applied = backup.tree.copy(backup.sessions), 0
        self.sessions = {id_: Session(id_, timeout_ms) for id_, timeout_ms in backup.sessions.items()}
        self._agreed.clear()
        self._zxid, self._forgotten = backup.tree.zxid, 0

    def is_connected(self, session_id: int) -> bool:
        return any(session_id in server.connections for server in self.servers)

    def _majority(self) -> bool:
        return 2 * sum(server.running for server in self.servers) > len(self.servers)

    def _serving(self, server: Server) -> bool:
        return server.running and self.leader is not None

    def _drop_clients(self, server: Server) -> None:
        for connection in list(server.connections.values()):
            self.disconnect(connection)

    def _elect(self) -> None:
        """The most advanced server leads; ties go to the highest number, as in ZooKeeper."""
        for server in self.servers:
            self._drop_clients(server)
            server.cut_off = False
        self.leader = None
        if not self._majority():
            return
        # Every agreed transaction is on a majority, so some running server has it: none is lost.
        running = [server for server in self.servers if server.running]
        self.leader = max(running, key=lambda server: (server.applied, server.number)).number
        for server in running:
            self._catch_up(server)
        if len(self.servers) > 1:
            self._zxid = ((self._zxid >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT
        for session in self.sessions.values():
            self._renew(session, session.timeout_ms)

    # sessions

    def _touch(self, connection: Connection) -> None:
        session = self.sessions.get(connection.session_id)
        if session is not None:
            self._renew(session, connection.timeout_ms)

    def _renew(self, session: Session, timeout_ms: int) -> None:
        tick_ms = self.options.tick_ms
        session.expires_ms = ((self.now_ms + timeout_ms) // tick_ms + 1) * tick_ms

    def _disconnect_session(self, session_id: int) -> None:
        for server in self.servers:
            if (connection := server.connections.get(session_id)) is not None:
                self.disconnect(connection)

    # transactions

    def _agree(self, changes: tuple[Change, ...], asked: Server | None = None) -> list[Stat | None]:
        """One more transaction; what it did on the server that was asked (or on the leader)."""
        assert self.leader is not None
        self._zxid += 1
        leader = self.servers[self.leader]
        asked = asked or leader
        results: list[Stat | None] = []
        transaction = Transaction(self._zxid, self.now_ms, changes)
        self._agreed.append(transaction)
        # The leader first, as everything is prepared on its tree.
        for server in (leader, *(other for other in self.servers if other is not leader)):
            behind = (server.held or server.cut_off) and server is not leader and server is not asked
            if server.running and not behind:
                applied = self._catch_up(server)
                if server is asked:
                    results = applied
        self._forget()
        self.on_agreed(transaction)
        return results

    def _catch_up(self, server: Server) -> list[Stat | None]:
        """Apply all that is agreed on; results of the last transaction."""
        results: list[Stat | None] = []
        for transaction in self._agreed[server.applied - self._forgotten :]:
            results = server.tree.apply(transaction)
            server.applied += 1
        return results

    def _forget(self) -> None:
        everywhere = min(server.applied for server in self.servers) - self._forgotten
        if everywhere:
            del self._agreed[:everywhere]
            self._forgotten += everywhere

    # requests

    def _answer(self, connection: Connection, op: Operation) -> None:
        server = self.servers[connection.server]
        code, value = Code.OK, None
        self.serving = connection
        try:
            value = self._carry_out(connection, op, server)
        except Refused as refused:
            code = refused.code
        finally:
            self.serving = None
        unknown = code is Code.UNIMPLEMENTED
        connection.outbox.append(Reply(reads.NO_ZXID if unknown else server.tree.zxid, code, value))
        if isinstance(op, CloseSession) or unknown:
            self.disconnect(connection)

    def _carry_out(self, connection: Connection, op: Operation, server: Server) -> Value:
        """Raises Refused."""
        match op:
            case Multi(ops):
                return self._multi(connection, ops, server)
            case Create() | Delete() | Set() | SetPerms():
                return self._write(connection, op, server)
            case CloseSession():
                self.sessions.pop(connection.session_id, None)
                self._agree((SessionEnded(connection.session_id),), server)
                return None
            case Sync(path):
                self._catch_up(server)
                return path
            case Ping():
                return None
            case Unknown():
                raise Refused(Code.UNIMPLEMENTED)
            case MultiRead() | WatchTree() | RemoveWatches() if not self.options.multi_read:
                raise Refused(Code.UNIMPLEMENTED)
            case _:
                return reads.read(server.tree, connection, op)

    def _write(self, connection: Connection, op: Write, server: Server) -> Value:
        try:
            change = self._preparation(connection).prepare(op)
        except Refused:
            self._agree((), server)
            raise
        return _result(change, self._agree((change,), server)[0])

    def _multi(self, connection: Connection, ops: tuple[MultiOp, ...], server: Server) -> Value:
        preparation = self._preparation(connection)
        changes: list[Change] = []
        for number, op in enumerate(ops):
            try:
                changes.append(preparation.prepare(op))
            except Refused as refused:
                self._agree((), server)
                after = len(ops) - number - 1
                return (Code.OK,) * number + (refused.code,) + (Code.RUNTIME_INCONSISTENCY,) * after
        stats = self._agree(tuple(changes), server)
        return tuple(_result(change, stat) for change, stat in zip(changes, stats, strict=True))

    def _preparation(self, connection: Connection) -> Preparation:
        assert self.leader is not None
        return Preparation(self.servers[self.leader].tree, connection.session_id)


def _needs_leader(op: Operation) -> bool:
    return isinstance(op, Create | Delete | Set | SetPerms | Multi | Sync | CloseSession)


def _result(change: Change, stat: Stat | None) -> Value:
    if isinstance(change, NodeCreated):
        return Created(change.path, stat)
    return stat
