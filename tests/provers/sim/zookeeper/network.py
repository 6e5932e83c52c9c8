"""Connections between clients and the ensemble in memory, in the time of an event loop; and what goes wrong on them.

Messages of one connection keep their order, as on TCP. Clients go by name; the ensemble's servers by number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from tests.provers.sim.environment.loop import OUTSIDE, Clock
from tests.provers.sim.zookeeper.ensemble import Backup, Connection, Ensemble
from tests.provers.sim.zookeeper.messages import Closed, Message, Operation, Reply


class Loss(Enum):
    """What is lost, and the connection with it: the client cannot tell one from the other."""

    REQUEST = "request"
    REPLY = "reply"


class Channel:
    """One connection, as the client has it. ``arrived`` holds what has reached it; Closed is the last."""

    def __init__(
        self, network: Network, client: str, connection: Connection, wake: Callable[[], None]
    ) -> None:
        self.client, self.connection = client, connection
        self.arrived: deque[Message] = deque()
        self.lost = False
        self._network, self._wake = network, wake
        #: With the time of their arrival.
        self._requests: deque[tuple[float, Operation]] = deque()
        self._messages: deque[tuple[float, Message]] = deque()
        self._unanswered: deque[Operation] = deque()
        self._hung_up = False

    def send(self, op: Operation) -> None:
        network = self._network
        if self.lost:
            return
        if network.loses(self.client, Loss.REQUEST, op):
            self.drop()
            return
        last_s = self._requests[-1][0] if self._requests else 0.0
        self._requests.append((max(last_s, network.now_s + network.delay_s(self.client)), op))
        network.loop.call_at(self._requests[-1][0], self.pump, context=OUTSIDE)

    def pump(self) -> None:
        """Deliver what has arrived by now, unless the way is blocked."""
        network, way = self._network, (self.client, self.connection.server)
        while self._requests and self._requests[0][0] <= network.now_s and way not in network.blocked:
            op = self._requests.popleft()[1]
            self._unanswered.append(op)
            network.deliver(self, op)
        if way in network.blocked_back:
            return
        before = len(self.arrived)
        while self._messages and self._messages[0][0] <= network.now_s:
            self.arrived.append(self._messages.popleft()[1])
        if len(self.arrived) > before:
            self._wake()

    def take_answers(self) -> None:
        """What the server has said goes on its way."""
        network, connection = self._network, self.connection
        said: list[Message] = list(connection.outbox)
        connection.outbox.clear()
        if not connection.open and not self._hung_up:
            self._hung_up = True
            said.append(Closed())
        for message in said:
            if self.lost:
                return
            if isinstance(message, Reply) and network.loses(
                self.client, Loss.REPLY, self._unanswered.popleft()
            ):
                self.drop()
                return
            last_s = self._messages[-1][0] if self._messages else 0.0
            self._messages.append((max(last_s, network.now_s + network.delay_s(self.client)), message))
            network.loop.call_at(self._messages[-1][0], self.pump, context=OUTSIDE)

    def drop(self) -> None:
        """The connection breaks; both ends notice at once, and what was on its way is gone."""
        if not self.lost:
            self.close()
            self.arrived.append(Closed())
            self._wake()

    def deliver_all(self) -> None:
        """What the client has sent arrives: its end does not take it back."""
        while self._requests and not self.lost:
            op = self._requests.popleft()[1]
            self._unanswered.append(op)
            self._network.deliver(self, op)

    def close(self) -> None:
        """The client hangs up."""
        self.lost = True
        self._requests.clear()
        self._messages.clear()
        self._network.hang_up(self)


class Network:
    """The ensemble and who is connected to it. Use it in the loop it was made in."""

    def __init__(self, ensemble: Ensemble, delay_s: Callable[[str], float] = lambda client: 0.001) -> None:
        """``delay_s``: how long the next message from or to a client takes, seconds."""
        self.loop = asyncio.get_running_loop()
        self.clock = Clock(self.loop)
        self.ensemble, self.delay_s = ensemble, delay_s
        #: Ways to servers, and back from them, on which nothing gets through, by client and server; what was sent
        #: waits there until ``unblock``.
        self.blocked: set[tuple[str, int]] = set()
        self.blocked_back: set[tuple[str, int]] = set()
        #: What each client will lose next: of the next operation of that kind.
        self._losses: dict[str, tuple[Loss, type]] = {}
        self.channels: list[Channel] = []
        #: Told of each client's request, before it is carried out and after.
        self.on_arrival: Callable[[str, Operation], None] = lambda _client, _op: None
        self.on_served: Callable[[str, Operation], None] = lambda _client, _op: None
        #: Whose sessions they are.
        self.clients: dict[int, str] = {}
        #: Clients that a server refused, as they had seen more than it, since ZooKeeper was restored.
        self.ahead: set[str] = set()
        self._began_s = self.loop.time()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def now_ms(self) -> int:
        """The ensemble's time."""
        return int((self.now_s - self._began_s) * 1000)

    async def connect(
        self,
        client: str,
        server: int,
        timeout_ms: int,
        session: tuple[int, bytes],
        last_zxid: int,
        wake: Callable[[], None],
    ) -> Channel | None:
        """A connection, refused ones included (session id 0); None when nobody answers."""
        await asyncio.sleep(self.delay_s(client))
        if not self.reaches(client, server):
            return None
        connection = self.ensemble.connect(server, timeout_ms, self.now_ms, *session, last_zxid)
        self.deliver_answers()
        if connection is None:
            if last_zxid > self.ensemble.servers[server].tree.zxid:
                self.ahead.add(client)
            return None
        channel = Channel(self, client, connection, wake)
        if connection.open:
            self.channels.append(channel)
            self.clients[connection.session_id] = client
        await asyncio.sleep(self.delay_s(client))
        return channel

    def reaches(self, client: str, server: int) -> bool:
        """Whether the way there and back is free, be the server up or not."""
        return (client, server) not in self.blocked | self.blocked_back

    def begins_sessions(self, server: int, timeout_ms: int) -> bool:
        """Whether it begins one of somebody who has seen nothing, and leaves it at that."""
        connection = self.ensemble.connect(server, timeout_ms, self.now_ms)
        self.deliver_answers()
        if connection is not None:
            self.ensemble.disconnect(connection)
        return connection is not None

    def block(self, client: str, servers: Sequence[int], *, there: bool = True, back: bool = True) -> None:
        """Nothing gets through ``there``, to the servers, or ``back``, and nobody is told."""
        ways = {(client, server) for server in servers}
        if there:
            self.blocked |= ways
        if back:
            self.blocked_back |= ways

    def unblock(self, client: str) -> None:
        self.blocked = {way for way in self.blocked if way[0] != client}
        self.blocked_back = {way for way in self.blocked_back if way[0] != client}
        for channel in self._channels_of(client):
            channel.pump()

    def lose(self, client: str, loss: Loss, kind: type = object) -> None:
        """The client's next request of a kind (``Multi``, ...), or its reply, is lost with the connection."""
        self._losses[client] = (loss, kind)

    def loses(self, client: str, loss: Loss, op: Operation) -> bool:
        expected, kind = self._losses.get(client, (None, object))
        if expected is not loss or not isinstance(op, kind):
            return False
        del self._losses[client]
        return True

    def forget_losses(self, client: str) -> None:
        self._losses.pop(client, None)

    def stop_server(self, server: int) -> None:
        self.ensemble.stop(server, self.now_ms)
        self.deliver_answers()

    def start_server(self, server: int) -> None:
        self.ensemble.start(server, self.now_ms)
        self.deliver_answers()

    def release_server(self, server: int) -> None:
        self.ensemble.release(server)
        self.deliver_answers()

    def heal_server(self, server: int) -> None:
        self.ensemble.advance(self.now_ms)
        self.ensemble.heal(server)
        self.deliver_answers()

    def expire(self, session_id: int) -> None:
        """The ensemble gives the session up before its time."""
        self.ensemble.end_session(session_id)
        self.deliver_answers()

    def restore(self, backup: Backup) -> None:
        """All servers, which are stopped, have what the backup has, and are started."""
        self.ensemble.restore(backup)
        self.ahead.clear()
        for server in self.ensemble.servers:
            self.start_server(server.number)

    def drop(self, client: str) -> None:
        """The client's connection breaks."""
        for channel in self._channels_of(client):
            channel.drop()

    def die(self, client: str, *, delivered: bool) -> None:
        """The client's process died. ``delivered``: what it has sent arrives, unless the way is blocked."""
        for channel in self._channels_of(client):
            if delivered and (client, channel.connection.server) not in self.blocked:
                channel.deliver_all()
            channel.close()

    def _channels_of(self, client: str) -> list[Channel]:
        return [channel for channel in self.channels if channel.client == client]

    def deliver(self, channel: Channel, op: Operation) -> None:
        self.on_arrival(channel.client, op)
        self.ensemble.request(channel.connection, op, self.now_ms)
        self.on_served(channel.client, op)
        self.deliver_answers()

    def hang_up(self, channel: Channel) -> None:
        if channel in self.channels:
            self.channels.remove(channel)
        self.ensemble.disconnect(channel.connection)

    def deliver_answers(self) -> None:
        """After anything that was done to the ensemble: answers go on their way, expiry is seen to."""
        for channel in list(self.channels):
            channel.take_answers()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        due_ms = self.ensemble.next_expiry_ms()
        if due_ms is not None:
            due_s = self._began_s + due_ms / 1000 + 1e-6
            self._expiry = self.loop.call_at(due_s, self._expire, context=OUTSIDE)

    def _expire(self) -> None:
        self._expiry = None
        self.ensemble.advance(self.now_ms)
        self.deliver_answers()
