"""The real server and the one in memory side by side: each request goes to both, and the answers must be the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import count
from typing import Any

from tests.provers.sim.zookeeper.contract.drivers import (
    Credentials,
    Driver,
    Link,
    MemoryZooKeeper,
    RealLink,
    RealZooKeeper,
)
from tests.provers.sim.zookeeper.ensemble import Ensemble, Options
from tests.provers.sim.zookeeper.messages import (
    Children,
    Closed,
    CloseSession,
    Create,
    Event,
    Message,
    Names,
    Operation,
    Ping,
    Reply,
    Stat,
)

#: Stands for the directory that a comparison has for itself.
BASE = "~"
#: What is asked for when the test's length must not matter.
LONG_MS = 60_000

_directories = count(1)


@dataclass
class Client:
    """A session on both sides."""

    name: str
    links: list[Link]
    credentials: list[Credentials]
    timeout_ms: int
    #: As far as the client knows.
    connected: bool = True
    over: bool = False


class Pair:
    """``real`` and ``memory`` with the same history; see ``paired``."""

    def __init__(self, real: RealZooKeeper, memory: MemoryZooKeeper, base: str) -> None:
        self.real, self.memory = real, memory
        self._base = base
        self._names: dict[int, str] = {}
        self.clients: list[Client] = []

    @property
    def zxid(self) -> int:
        return self.memory.ensemble.servers[0].tree.zxid

    def _drivers(self) -> tuple[Driver, Driver]:
        return self.real, self.memory

    def open(self, timeout_ms: int = LONG_MS) -> Client:
        """A new session."""
        name = f"session {len(self.clients)}"
        links: list[Link] = []
        for driver in self._drivers():
            link = driver.connect(timeout_ms)
            assert link is not None
            links.append(link)
            self._names[link.credentials.session_id] = name
        assert links[0].timeout_ms == links[1].timeout_ms
        client = Client(name, links, [link.credentials for link in links], timeout_ms)
        self.clients.append(client)
        return client

    def attach(
        self,
        client: Client,
        *,
        forget_password: bool = False,
        last_zxid: int = 0,
    ) -> str:
        """Connect again with the session's id. What came of it: "attached", "refused" or "no answer"."""
        outcomes = []
        found: list[Link] = []
        for driver, known in zip(self._drivers(), client.credentials, strict=True):
            shown = known._replace(password=bytes(16)) if forget_password else known
            link = driver.connect(client.timeout_ms, shown, last_zxid)
            if link is None:
                outcomes.append(("no answer", 0))
                continue
            found.append(link)
            known_there = link.credentials == known
            assert known_there or link.credentials == Credentials(0, bytes(16))
            outcomes.append(("attached" if known_there else "refused", link.timeout_ms))
        assert outcomes[0] == outcomes[1], f"real: {outcomes[0]}, in memory: {outcomes[1]}"
        outcome = outcomes[0][0]
        if outcome == "attached":
            self.drop(client)  # the server has hung up on it
            client.links, client.connected = found, True
        else:
            for link in found:
                link.drop()
        return outcome

    def ask(self, client: Client, *ops: Operation) -> list[Message]:
        """Send all at once; the messages that came until all were answered, the same from both."""
        ops = tuple(rebased(op, self._base) for op in ops)
        real, memory = ([self._comparable(m) for m in link.ask(*ops)] for link in client.links)
        assert real == memory, self._difference(client, ops, real, memory)
        if any(isinstance(message, Closed) for message in real):
            client.connected = False
        elif any(isinstance(op, CloseSession) for op in ops):
            client.over = True
        return real

    def drop(self, client: Client) -> None:
        client.connected = False
        for link in client.links:
            link.drop()

    def compare_what_is_left(self) -> None:
        """Events that nobody has asked for yet."""
        for client in self.clients:
            self.ask(client, Ping())

    def _comparable(self, message: Message) -> Message:
        return _mapped(message, self._without_chance)  # type: ignore[no-any-return]

    def _without_chance(self, value: Any) -> Any:
        """Times aside; owners by the session's name."""
        if isinstance(value, Stat):
            owner = self._names.get(value.owner, value.owner)
            return value._replace(ctime_ms=0, mtime_ms=0, owner=owner)  # type: ignore[arg-type]
        return value

    @staticmethod
    def _difference(
        client: Client, ops: tuple[Operation, ...], real: list[Message], memory: list[Message]
    ) -> str:
        lines = [f"{client.name}: {ops}"]
        for side, messages in (("real", real), ("in memory", memory)):
            lines.append(f"{side}:")
            lines += [f"    {message}" for message in messages]
        return "\n".join(lines)


@contextmanager
def paired(port: int, options: Options) -> Iterator[Pair]:
    """Both with a directory of their own, and the same zxid. No other client may be on the real server.

    All sessions end with it, so that none of them ends in the midst of the next one.
    """
    real = RealZooKeeper(port)
    base = f"/x{next(_directories)}"
    witness = real.connect(LONG_MS)
    assert isinstance(witness, RealLink)
    pair = Pair(real, MemoryZooKeeper(_as_seen_by(witness, options)), base)
    try:
        maker = pair.open()
        pair.ask(maker, Create(base))
        yield pair
    finally:
        witness.ask(CloseSession())
        witness.drop()
        for client in pair.clients:
            _end(real, client)


def _as_seen_by(witness: RealLink, options: Options) -> Ensemble:
    """An ensemble at the real one's zxid, and with as much below its root: earlier comparisons left that behind."""
    (seen,) = witness.ask(Children("/", with_stat=True))
    assert isinstance(seen, Reply)
    assert isinstance(seen.value, Names)
    names, stat = seen.value
    assert stat is not None
    ensemble = Ensemble(1, options, seen.zxid)
    root = ensemble.servers[0].tree.node("/")
    assert root is not None
    root.children = dict.fromkeys(names)
    root.creations = (stat.cversion + len(names)) // 2
    root.pzxid = stat.pzxid
    return ensemble


def _end(real: RealZooKeeper, client: Client) -> None:
    client.links[0].drop()
    if client.over:
        return
    link = real.connect(LONG_MS, client.credentials[0])
    assert link is not None
    link.ask(CloseSession())
    link.drop()


def rebased(op: Operation, base: str) -> Operation:
    """With the directory's name for ``BASE``."""
    return _mapped(op, lambda value: value.replace(BASE, base) if isinstance(value, str) else value)  # type: ignore[no-any-return]


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy with each value in it changed, the innermost first."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _mapped(getattr(value, field.name), change) for field in fields(value)}
        return change(replace(value, **parts))
    if isinstance(value, tuple):
        parts_list = [_mapped(part, change) for part in value]
        return change(type(value)(*parts_list) if hasattr(value, "_fields") else tuple(parts_list))
    return change(value)


def events(messages: list[Message]) -> list[Event]:
    return [message for message in messages if isinstance(message, Event)]
