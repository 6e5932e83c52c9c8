"""Our Session and kazoo's client as they are, on connections in memory and in virtual time.

Replaced are only kazoo's threads and sockets: its callbacks run on the event loop, and its connection to a server is a
``Channel``. How it connects, pings, notices silence, and what it does to requests and watches then, follows
kazoo/protocol/connection.py. A connect string names the client as the host, and servers from 1 on as ports:
``controller-1:1,controller-1:2/chroot``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kazoo import client
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import ReplyHeader
from kazoo.protocol.states import KeeperState

from controller.runtime.zookeeper import session as session_module
from controller.runtime.zookeeper.kazoo_client import Client
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from tests.provers.sim.zookeeper import wire
from tests.provers.sim.zookeeper.messages import Closed, Event, Operation, Ping, Reply
from tests.provers.sim.zookeeper.network import Channel, Network

#: kazoo draws up to 0.4 s by which it pings earlier.
PING_EARLIER_S = 0.2
WAIT_MIN_S = 0.01
RETRY_FIRST_S, RETRY_MAX_S = 0.05, 1.0


class _InOrder(dict[Any, None]):
    """As much of a set as kazoo needs of its watches and listeners: sets of functions have another order each run."""

    def add(self, heard_by: Callable[[Any], object]) -> None:
        self[heard_by] = None

    def discard(self, heard_by: Callable[[Any], object]) -> None:
        self.pop(heard_by, None)


def _watches(_: object) -> defaultdict[str, _InOrder]:
    """In the place of kazoo's sets."""
    return defaultdict(_InOrder)


class _LoopQueue:
    """In the place of a queue that a thread works off."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, work: Callable[[], object]) -> None:
        self._loop.call_soon(work)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Watches and completions run on the loop, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = _LoopQueue(loop)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, with a task instead of a thread and a channel instead of a socket."""

    def __init__(self, client: KazooClient, network: Network) -> None:
        super().__init__(client, retry_sleeper=None)
        self._network = network
        self._wake = asyncio.Event()
        self._write_sock = SimpleNamespace(send=lambda _: self._wake.set())
        self._asked: list[Operation] = []
        #: Just made; None: the server has hung up.
        self._channel: Channel | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.connection_stopped.clear()
        self.task = self._network.loop.create_task(self._run())

    def stop(self, timeout: float | None = None) -> bool:
        """The task ends by itself: nothing can be waited for here."""
        return True

    def close(self) -> None:
        pass

    async def _run(self) -> None:
        client = self.client
        retry_s = RETRY_FIRST_S
        try:
            while not client._stopped.is_set():
                for name, port in client.hosts:
                    if client._stopped.is_set():
                        return
                    outcome = await self._attempt(name, port - 1)
                    if outcome == CLOSE_RESPONSE:
                        return
                    if outcome:
                        retry_s = RETRY_FIRST_S
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)
        finally:
            self.connection_stopped.set()
            client._session_callback(KeeperState.CLOSED)

    async def _attempt(self, name: str, server: int) -> object:
        """One connection from its beginning to its end. Whether a server answered, or CLOSE_RESPONSE."""
        client, network = self.client, self._network
        if client._state != KeeperState.CONNECTING:
            client._session_callback(KeeperState.CONNECTING)
        asked_at_s = network.now_s
        session = (client._session_id or 0, client._session_passwd)
        channel = self._channel = await network.connect(
            name, server, client._session_timeout, session, client.last_zxid, self._wake.set
        )
        if channel is None and not network.reaches(name, server):
            return False
        self._xid = 0
        self.ping_outstanding.clear()
        self._asked.clear()
        try:
            # Our Session looks at the clock when the request is sent, not when the answer is there.
            with network.clock.as_of(asked_at_s):
                read_timeout_ms, _ = self._connect(name, name, server)
        except ConnectionDropped:
            return False
        except SessionExpiredError:
            client._session_callback(KeeperState.EXPIRED_SESSION)
            return True
        assert channel is not None
        try:
            if await self._serve(channel, read_timeout_ms / 1000) == CLOSE_RESPONSE:
                client._session_callback(KeeperState.CLOSED)
                return CLOSE_RESPONSE
        finally:
            channel.close()
        if client._state != KeeperState.CONNECTING:
            client._session_callback(KeeperState.CONNECTING)
        return True

    def _connect(self, _host: str, _ip: str, _port: int) -> tuple[float, float]:
        """On the channel that has just been made. Raises ConnectionDropped, SessionExpiredError."""
        if self._channel is None:
            raise ConnectionDropped("the server has hung up")
        client, connection = self.client, self._channel.connection
        if connection.session_id == 0:
            raise SessionExpiredError("Session has expired")
        client._session_id, client._session_passwd = connection.session_id, connection.password
        client._session_callback(KeeperState.CONNECTED)
        return connection.timeout_ms * 2 / 3, connection.timeout_ms / len(client.hosts)

    async def _serve(self, channel: Channel, read_timeout_s: float) -> object:
        """Until the connection breaks, is silent for too long, or is closed as we asked."""
        network = self._network
        sent_at_s = network.now_s
        while True:
            deadline_s = sent_at_s + read_timeout_s / 2 - PING_EARLIER_S
            heard = await self._wait(max(deadline_s, network.now_s + WAIT_MIN_S))
            if not heard and self.ping_outstanding.is_set():
                return None
            while channel.arrived:
                response = self._receive(channel)
                if response is not None:
                    return response
            if self._send_all(channel):
                sent_at_s = network.now_s
            elif network.now_s >= deadline_s:
                self.ping_outstanding.set()
                self._asked.append(Ping())
                channel.send(Ping())
                sent_at_s = network.now_s

    async def _wait(self, until_s: float) -> bool:
        try:
            async with asyncio.timeout_at(until_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    def _send_all(self, channel: Channel) -> bool:
        client = self.client
        sent = False
        while client._queue:
            request, result = client._queue.popleft()
            self._xid += 1
            op = wire.unpack_request(request.type, bytes(request.serialize()))
            client._pending.append((request, result, self._xid))
            self._asked.append(op)
            channel.send(op)
            sent = True
        return sent

    def _receive(self, channel: Channel) -> object:
        """One message; what ends the connection, or None."""
        match channel.arrived.popleft():
            case Closed():
                return Closed()
            case Event(_, kind, path):
                self._read_watch_event(wire.pack_event(kind, path), 0)
            case Reply(zxid, code, value):
                op = self._asked.pop(0)
                if isinstance(op, Ping):
                    self.ping_outstanding.clear()
                    return None
                header = ReplyHeader(self.client._pending[0][2], zxid, int(code))
                body = b"" if code else wire.pack_result(op, value)
                return self._read_response(header, body, 0)
        return None


class _Client(Client):
    def __init__(self, network: Network, access: ZooKeeperAccess = OPEN_ACCESS, **settings: Any) -> None:
        super().__init__(access, **{**settings, "handler": self._make_handler(network)})
        self.state_listeners = _InOrder()
        self._network = network
        self._connection = self._make_connection(network)
        self._learn_from(self._connection)

    def _make_handler(self, network: Network) -> _Handler:
        return _Handler(network.loop)

    def _make_connection(self, network: Network) -> _Connection:
        return _Connection(self, network)

    def _begins_sessions(self, host: str, ip: str, port: int) -> bool:
        return self._network.begins_sessions(port, round(self._session_timeout))


class _Closer:
    """In the place of the thread that ends a session: what it waits for happens on the loop."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **_: object) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        client: _Client = self._target.__self__._client  # type: ignore[attr-defined]
        task = client._connection.task
        if task is None or task.done():
            self._target(*self._args)
            return
        client.stop()
        task.add_done_callback(lambda _: self._target(*self._args))


@contextmanager
def sessions_on(network: Network) -> Iterator[None]:
    """Within it every ``controller.runtime.zookeeper.session.Session`` is on this network and in the loop's time."""
    with (
        mock.patch.object(session_module, "Client", partial(_Client, network)),
        mock.patch.object(session_module, "time", network.clock),
        mock.patch.object(session_module, "threading", SimpleNamespace(Thread=_Closer)),
        mock.patch.object(client, "defaultdict", _watches),
    ):
        yield
