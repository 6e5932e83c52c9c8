"""Brokers in the simulator: the real `broker_stub.daemon.Broker`, over its incarnations, on a disk in memory.

The registrar runs as it is, on a thread that takes turns with the loop (``threads``), with kazoo's own client
on the ensemble in memory. Control requests are carried out on the loop, one after the other, each after its time.
"""

from __future__ import annotations

import asyncio
import queue
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn
from unittest import mock

from kazoo.handlers import utils
from kazoo.handlers.threading import KazooTimeoutError

from broker_stub import daemon, data_dirs, shutdown
from broker_stub import settings as broker_settings
from broker_stub.control.replicas import Transition
from broker_stub.control.requests import Key
from broker_stub.daemon import Broker
from broker_stub.data_plane import RoleBridge
from broker_stub.errors import BrokerError
from broker_stub.settings import Settings
from broker_stub.zookeeper import registration
from tests.provers.sim.environment.disk import Disk, Folder, SimDataDir, log_directories_on
from tests.provers.sim.environment.loop import CURRENT, OUTSIDE, Process
from tests.provers.sim.environment.node_environment import NodeEnvironment
from tests.provers.sim.environment.rpc import tls_here
from tests.provers.sim.environment.threads import (
    Condition,
    Event,
    LoopExecutor,
    SerialExecutor,
    SimpleQueue,
    Thread,
)
from tests.provers.sim.zookeeper import session
from tests.provers.sim.zookeeper.network import Network

PORT = 9092
#: How long a control request takes beside the loop, seconds: up to this, and now and then up to that.
CONTROL_MAX_S, CONTROL_SLOW_S, CONTROL_SLOW_SHARE = 0.002, 0.1, 0.02
#: What a broker gives to other threads and waits for something there.
WAITING = frozenset({"Registrar.stop", "SerialExecutor.shutdown"})
#: Short times, as every virtual second costs real ones. Kafka's names, as `broker_stub.settings` reads them.
SETTINGS: Mapping[str, str] = {
    # Simulated machines have names, not loopback addresses.
    "allow_everyone": "true",
    "insecure_listen": "accepted",
    "session_timeout_ms": "2000",
    "connection_timeout_ms": "10000",
    "replica_lag_time_max_ms": "1500",
    "replica_fetch_wait_max_ms": "500",
    "replica_fetch_backoff_ms": "200",
    "replica_high_watermark_checkpoint_interval_ms": "2000",
    "controlled_shutdown_retry_backoff_ms": "500",
    "offsets_topic_num_partitions": "2",
    "offsets_commit_timeout_ms": "2000",
    "group_min_session_timeout_ms": "500",
    "group_initial_rebalance_delay_ms": "100",
}


#: What a broker knows that has no such replica.
NOTHING = -1, -1, -1


class Entry(NamedTuple):
    """One record of a broker's state-change log. ``at_s``: loop time; ``record``: its fields, in their order."""

    at_s: float
    incarnation: int
    cause: str
    controller_epoch: int
    event_id: int
    record: tuple[tuple[str, Any], ...]


class SimBroker:
    """One broker over its incarnations. Its name is ``broker-<id>``, on the network as in ZooKeeper.

    ``exit``: how the last incarnation ended by itself: 0, the BrokerError, or another exception, which is a bug; None
    while it runs, and when it was killed. ``bugs``: those of all incarnations.
    """

    def __init__(
        self,
        environment: NodeEnvironment,
        broker_id: int,
        settings: Mapping[str, str] | None = None,
        disks: int = 1,
    ) -> None:
        """``settings`` go before `SETTINGS`. With several disks each has a data directory. Raises SettingError."""
        self.name, self.id = f"broker-{broker_id}", broker_id
        self._environment = environment
        self.disks = tuple(Disk() for _ in range(disks))
        self.settings = self._load(settings or {})
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.exit: int | Exception | None = None
        self.bugs: list[Exception] = []
        #: Called when the broker asks the controller to let it go; what comes of that is called when it may.
        self.on_leaving: Callable[[], Callable[[], None]] = lambda: lambda: None
        self.incarnations = 0
        #: Told to end, and has not ended yet.
        self.stopping = False
        self.state_log: list[Entry] = []

    def _load(self, chosen: Mapping[str, str]) -> Settings:
        servers = range(1, len(self._environment.zk.ensemble.servers) + 1)
        flags = {
            **SETTINGS,
            "broker_id": str(self.id),
            "zookeeper": ",".join(f"{self.name}:{server}" for server in servers),
            "listen": f"{self.name}:{PORT}",
            "data_dirs": ",".join(
                [f"/{self.name}", *(f"/{self.name}-{n}" for n in range(2, len(self.disks) + 1))]
            ),
            **chosen,
        }
        return broker_settings.load(flags, {})

    @property
    def disk(self) -> Disk:
        """That of a broker with only one, the first of several."""
        return self.disks[0]

    def disk_at(self, path: Path) -> Disk:
        return self.disks[self.settings.data_dirs.index(path)]

    @property
    def folders(self) -> dict[Key, Folder]:
        """All replicas, on whichever disk."""
        return {key: folder for disk in self.disks for key, folder in disk.folders.items()}

    def remembered(self, key: Key) -> tuple[int, int, int]:
        """Leader epoch, leader and partition epoch that it has of a replica."""
        if self.broker is not None:
            data = self.broker._bridge._data
            led = data.manager.get(key) if data is not None else None
            if led is not None and led.is_leader:
                return led.leader_epoch, self.id, led.partition_epoch
            known = self.broker._handlers.replicas.get(*key)
        else:
            known = next((d.states[key] for d in self.disks if key in d.states), None)
        return (known.leader_epoch, known.leader, known.partition_epoch) if known is not None else NOTHING

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self, on_death: Iterable[Callable[[], None]] = ()) -> Process:
        """A new process; ``on_death`` comes after what the broker's own machine does."""
        assert not self.alive, f"{self.name} is running"
        self.incarnations += 1
        self.stopping = False
        self.exit = None
        self.process = process = Process(self.name)
        process.on_death += [self._died, *on_death]
        self._environment.loop.spawn(process, self._live(process))
        return process

    async def _live(self, process: Process) -> None:
        _BROKERS[process] = self
        end: int | Exception = 0
        try:
            self.broker = Broker(self.settings)
            await self.broker.run()
        except Exception as error:  # noqa: BLE001  (a finding, unless a BrokerError: whoever looks on reports it)
            end = error
        # Not so when Python destroys what is left of a dead process.
        if process.alive:
            self._end(process, end)

    def _end(self, process: Process, end: int | Exception) -> None:
        self.exit = end
        if isinstance(end, Exception) and not isinstance(end, BrokerError):
            self.bugs.append(end)
        self._environment.loop.call_soon(self._environment.loop.kill, process, context=OUTSIDE.copy())

    def _died(self) -> None:
        assert self.process is not None
        # What a process that ended by itself has sent is on its way; a killed one's may be lost.
        delivered = self.exit is not None or self._environment.rng.random() < 0.5
        self._environment.zk.die(self.name, delivered=delivered)
        for disk in self.disks:
            disk.process_killed()
        self.broker = None
        _BROKERS.pop(self.process, None)

    def terminate(self) -> None:
        """SIGTERM: it hands over what it leads, and ends."""
        if self.process is None or not self.process.alive:
            return
        handler = self.process.signal_handlers.get(signal.SIGTERM)
        if handler is None:
            self.kill()
        else:
            self.stopping = True
            handler()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self._environment.loop.kill(self.process)

    def control_delay_s(self) -> float:
        rng = self._environment.rng
        slow = rng.random() < CONTROL_SLOW_SHARE
        return rng.uniform(0.0, CONTROL_SLOW_S if slow else CONTROL_MAX_S)

    def record(self, entry: Entry) -> None:
        self.state_log.append(entry)


#: Who runs in which process.
_BROKERS: dict[Process, SimBroker] = {}


def _here() -> SimBroker:
    """Whose code is running."""
    process = CURRENT.get()
    assert process is not None, "a broker's code runs in its process"
    return _BROKERS[process]


class _StateLog:
    """In the place of ``StateLogWriter``: what is written is there at once, and stays."""

    def __init__(self, directory: Path, role: str, node: int) -> None:
        self._home = _here()
        self._incarnation = self._home.incarnations
        self._loop = asyncio.get_running_loop()

    def append(
        self,
        records: Iterable[Mapping[str, Any]],
        *,
        cause: str,
        controller_epoch: int = -1,
        event_id: int = 0,
        count: int = 1,
    ) -> None:
        at_s = self._loop.time()
        for record in records:
            fields = tuple(record.items())
            self._home.record(Entry(at_s, self._incarnation, cause, controller_epoch, event_id, fields))

    def close(self, timeout_s: float = 0.0) -> None:
        pass


async def _controlled_shutdown(*arguments: Any, **options: Any) -> bool:
    let_go = _here().on_leaving()
    done = await shutdown.controlled_shutdown(*arguments, **options)
    if done:
        let_go()
    return done


class _Bridge(RoleBridge):
    """On the loop already: what is to be done there is done at once."""

    def apply(self, cause: str, transitions: Sequence[Transition]) -> dict[Key, str]:
        data = self._data
        return {} if data is None else _drive(data.apply(cause, transitions))


def _drive(work: Coroutine[Any, Any, dict[Key, str]]) -> dict[Key, str]:
    """To its end; it lets others have a turn now and then, and waits for nothing."""
    while True:
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            result: dict[Key, str] = end.value
            return result
        assert waits_for is None, f"a role waits for {waits_for}"


# ZooKeeper


class _BlockingHandler(session._Handler):
    """What the registrar waits for, it waits for in virtual time."""

    def event_object(self) -> Event:
        return Event()

    def async_result(self) -> utils.AsyncResult:
        return utils.AsyncResult(self, Condition, KazooTimeoutError)


class _BlockingConnection(session._Connection):
    def stop(self, timeout: float | None = None) -> bool:
        """As kazoo's own."""
        self.connection_stopped.wait(timeout)
        stopped: bool = self.connection_stopped.is_set()
        return stopped


class _BlockingClient(session._Client):
    def _make_handler(self, network: Network) -> _BlockingHandler:
        return _BlockingHandler(network.loop)

    def _make_connection(self, network: Network) -> _BlockingConnection:
        return _BlockingConnection(self, network)


def _no_connection(address: object, timeout: float) -> NoReturn:
    raise ConnectionRefusedError("no sockets in the simulator")


@contextmanager
def brokers_on(environment: NodeEnvironment) -> Iterator[None]:
    """Within it brokers can be started."""
    loop = environment.loop

    def data_dir(
        path: Path, broker_id: int, _ignored: Sequence[str], *, synced: bool, incarnation: str
    ) -> SimDataDir:
        disk = _here().disk_at(path)
        return SimDataDir(disk, path, broker_id, synced=synced, incarnation=incarnation)

    def worker(**_: object) -> SerialExecutor:
        return SerialExecutor(loop, _here().control_delay_s)

    with ExitStack() as stack:
        for module, name, value in (
            (data_dirs, "DataDir", data_dir),
            (daemon, "StateLogWriter", _StateLog),
            (daemon, "daemon_tls", lambda _settings: tls_here()),
            (daemon, "ThreadPoolExecutor", worker),
            (daemon, "RoleBridge", _Bridge),
            (daemon, "controlled_shutdown", _controlled_shutdown),
            (registration, "Client", partial(_BlockingClient, environment.zk)),
            (registration, "threading", SimpleNamespace(Thread=partial(Thread, loop), Event=Event)),
            (registration, "queue", SimpleNamespace(SimpleQueue=SimpleQueue, Empty=queue.Empty)),
            (registration, "socket", SimpleNamespace(create_connection=_no_connection)),
            (loop, "_default_executor", LoopExecutor(loop, WAITING)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(log_directories_on(lambda path: _here().disk_at(path)))
        stack.callback(_BROKERS.clear)
        yield
