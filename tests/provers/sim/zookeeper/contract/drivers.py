"""One port to both ZooKeepers, the real server and the one in memory: connections, requests and answers as data."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import NamedTuple, Protocol

from tests.provers.sim.zookeeper import wire
from tests.provers.sim.zookeeper.ensemble import Connection, Ensemble
from tests.provers.sim.zookeeper.messages import Closed, Code, Event, Message, Operation, Ping, Reply

#: How long the real server may take to answer, seconds; a test that reaches it has failed.
ANSWER_MAX_S = 20.0


class Credentials(NamedTuple):
    """What a client shows to have its session back."""

    session_id: int
    password: bytes


class Link(Protocol):
    """One connection of a session."""

    #: Session id 0: the server does not know the session, or not with that password.
    credentials: Credentials
    #: As negotiated.
    timeout_ms: int

    def ask(self, *ops: Operation) -> list[Message]:
        """Send all at once, then read until each is answered or the server has ended the connection."""

    def drop(self) -> None:
        """The network takes the connection away; the session lives on."""


class Driver(Protocol):
    def connect(
        self, timeout_ms: int, credentials: Credentials | None = None, last_zxid: int = 0
    ) -> Link | None:
        """A connection of a new session, or of an earlier one; None when the server hangs up at once."""


# the real one


class RealLink:
    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._received = b""
        self._xid = 0
        self._open = True
        self.credentials = Credentials(0, b"")
        self.timeout_ms = 0

    def greet(self, timeout_ms: int, credentials: Credentials, last_zxid: int) -> bool:
        """The first packets; False when there was no answer."""
        body = struct.pack(">iqiq", 0, last_zxid, timeout_ms, credentials.session_id)
        self._send(wire.pack_buffer(body + wire.pack_buffer(credentials.password) + b"\0"))
        packet = self._packet()
        if packet is None:
            self.drop()
            return False
        reader = wire.Reader(packet)
        reader.number()
        self.timeout_ms = reader.number()
        self.credentials = Credentials(reader.long_number(), reader.buffer() or b"")
        return True

    def ask(self, *ops: Operation) -> list[Message]:
        if not self._open:
            return [Closed()]
        asked: list[tuple[int, Operation]] = []
        for op in ops:
            self._xid += not isinstance(op, Ping)
            asked.append((wire.XID_PING if isinstance(op, Ping) else self._xid, op))
        self._send(b"".join(wire.packet(xid, op) for xid, op in asked))
        messages: list[Message] = []
        while asked:
            packet = self._packet()
            if packet is None:
                self.drop()
                return [*messages, Closed()]
            reader = wire.Reader(packet)
            xid, zxid, error = reader.number(), reader.long_number(), reader.number()
            if xid == wire.XID_EVENT:
                messages.append(wire.unpack_event(reader, zxid))
                continue
            expected, op = asked.pop(0)
            assert xid == expected, f"reply {xid} instead of {expected} to {op}"
            value = wire.unpack_result(op, reader) if error == 0 else None
            assert reader.exhausted, f"more than expected in the reply to {op}"
            messages.append(Reply(zxid, Code(error), value))
        return messages

    def _send(self, raw: bytes) -> None:
        with suppress(ConnectionError):  # what the server said before it hung up can still be read
            self._stream.sendall(raw)

    def _packet(self) -> bytes | None:
        """The next packet, without its length; None at the connection's end."""
        while True:
            if len(self._received) >= 4:
                (length,) = struct.unpack_from(">i", self._received)
                if len(self._received) >= 4 + length:
                    packet = self._received[4 : 4 + length]
                    self._received = self._received[4 + length :]
                    return packet
            try:
                more = self._stream.recv(1 << 20)
            except ConnectionError:
                return None
            if not more:
                return None
            self._received += more

    def drop(self) -> None:
        self._open = False
        self._stream.close()


class RealZooKeeper:
    """A server on loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(
        self, timeout_ms: int, credentials: Credentials | None = None, last_zxid: int = 0
    ) -> RealLink | None:
        stream = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_MAX_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = RealLink(stream)
        return link if link.greet(timeout_ms, credentials or Credentials(0, bytes(16)), last_zxid) else None


# the one in memory


class MemoryLink:
    def __init__(self, zookeeper: MemoryZooKeeper, connection: Connection) -> None:
        self._zookeeper, self._connection = zookeeper, connection
        self._dropped = False
        self.credentials = Credentials(connection.session_id, connection.password)
        self.timeout_ms = connection.timeout_ms

    def ask(self, *ops: Operation) -> list[Message]:
        zookeeper, connection = self._zookeeper, self._connection
        ensemble = zookeeper.ensemble
        if self._dropped:
            return [Closed()]
        for op in ops:
            ensemble.request(connection, op, max(zookeeper.now_ms, ensemble.now_ms))
        messages: list[Message] = list(connection.outbox)
        connection.outbox.clear()
        replies = sum(not isinstance(message, Event) for message in messages)
        if replies < len(ops):
            assert not connection.open, f"{len(ops)} requests, {replies} replies"
            self._dropped = True
            messages.append(Closed())
        return messages

    def drop(self) -> None:
        self._dropped = True
        self._zookeeper.ensemble.disconnect(self._connection)


class MemoryZooKeeper:
    """An ensemble in memory behind the port; a client is on ``server`` of it, not before ``now_ms``."""

    def __init__(self, ensemble: Ensemble, server: int = 0) -> None:
        self.ensemble, self.server = ensemble, server
        self.now_ms = 0

    def connect(
        self, timeout_ms: int, credentials: Credentials | None = None, last_zxid: int = 0
    ) -> MemoryLink | None:
        session_id, password = credentials or (0, b"")
        now_ms = max(self.now_ms, self.ensemble.now_ms)
        connection = self.ensemble.connect(self.server, timeout_ms, now_ms, session_id, password, last_zxid)
        return None if connection is None else MemoryLink(self, connection)
