"""Controllers in the simulator: the real process body (``runtime.process.serve``), without files and HTTP."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from controller.core import handlers
from controller.core.effects import Outcome
from controller.core.events import Event, EventKind
from controller.core.machine import Ready
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.core.standby.prepared import Prepared
from controller.core.topics.changes import is_plain
from controller.core.znode_paths import state_path, topic_path
from controller.errors import DuplicateIdError
from controller.runtime import daemon as daemon_module
from controller.runtime import process as process_module
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.term import Term
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper import standby as standby_module
from controller.runtime.zookeeper.session import WatchCallback
from controller.runtime.zookeeper.state_mirror import StateMirror
from proto.incarnations import Incarnation
from proto.statelog.writer import Record
from tests.provers.sim.environment.loop import CURRENT, OUTSIDE, Process
from tests.provers.sim.environment.node_environment import NodeEnvironment
from tests.provers.sim.environment.rpc import tls_here
from tests.support.core.chronicle import Chronicle

PORT = 9190
#: Added to the ids of controllers that lead Kafka's brokers.
KAFKA_IDS = 9000
#: What they get unless a run says otherwise: short times, as every virtual second costs real ones.
SETTINGS = Settings(
    session_timeout_ms=2000,
    connection_timeout_ms=2000,
    request_timeout_ms=1000,
    audit_interval_seconds=4,
    history_records_max=1000,
    log_level="error",
    # Simulated machines have names, not loopback addresses.
    allow_everyone=True,
    insecure_listen="accepted",
)


#: What may be handled in the midst of another event.
LET_IN = {
    EventKind.ALTER_PARTITION,
    EventKind.TOPIC_CHANGE,
    EventKind.PARTITION_MODIFICATIONS,
    EventKind.CREATE_TOPICS,
    EventKind.CREATE_PARTITIONS,
    EventKind.ALLOCATE_PRODUCER_IDS,
}
#: Why a change of a leader's own is recorded that only the audit has seen.
FOUND = "found_in_zookeeper"


class StateLog:
    """In the place of ``StateLogWriter``: every record is made, so that one that cannot be made is a finding."""

    def __init__(self, *_: object) -> None:
        self.owner_busy = False
        self.written = self.queued = self.dropped = 0

    def append(
        self,
        records: Iterable[Record],
        *,
        cause: str,
        controller_epoch: int = -1,
        event_id: int = 0,
        count: int = 1,
        ts_us: int = 0,
        trace_id: str = "",
    ) -> None:
        for record in records:
            self.written += 1
            if record["kind"] == "reject" and (process := CURRENT.get()) in _DAEMONS:
                _DAEMONS[process].rejected.append(record)
            told = record["kind"] == "audit" or record.get("reason") == FOUND
            if told and (process := CURRENT.get()) in _DAEMONS:
                home = _DAEMONS[process]
                home.on_audit(home.name, {**record, "controller_epoch": controller_epoch})

    def flush(self, timeout_s: float = 0.0) -> bool:
        return True

    def close(self, timeout_s: float = 0.0) -> None:
        pass


class SimController:
    """One controller over its incarnations. ``bugs`` are the exceptions that ended one."""

    def __init__(
        self,
        environment: NodeEnvironment,
        controller_id: int,
        on_audit: Callable[[str, Record], None],
        settings: Settings = SETTINGS,
        name: str = "",
    ) -> None:
        """``name``: of its machine; empty: ``controller-`` and the id. Under another name it has that one's address all
        the same, as a copy of it would."""
        self.name, self.id = name or f"controller-{controller_id}", controller_id
        self._environment, self._loop = environment, environment.loop
        servers = range(1, len(environment.zk.ensemble.servers) + 1)
        connect = ",".join(f"{self.name}:{server}" for server in servers)
        # Kafka's brokers take a controller for a broker: its id must be no other's.
        known_as = controller_id + KAFKA_IDS if settings.leads_kafka else controller_id
        self._settings = replace(
            settings,
            controller_id=known_as,
            zookeeper=connect,
            grpc_listen=f"{self.name}:{PORT}",
            advertised_host=f"controller-{controller_id}",
        )
        self.process: Process | None = None
        self.daemon: Daemon | None = None
        self.bugs: list[BaseException] = []
        #: Hears of each record of its audit, when it is made.
        self.on_audit = on_audit
        self._ended = False
        #: Partition states of its failovers: from memory, and read.
        self.states_loaded = [0, 0]
        #: Records of what was not done, and why.
        self.rejected: list[Record] = []
        #: Events that were handled between two parts of another.
        self.let_in = 0
        #: Incarnations of its processes so far, as its directory remembers them.
        self.incarnations: list[str] = []

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """A new process."""
        assert not self.alive, f"{self.name} is running"
        self._ended = False
        self.process = process = Process(self.name)
        process.on_death.append(self._died)
        self._loop.spawn(process, self._live(process))

    async def _live(self, process: Process) -> None:
        _DAEMONS[process] = self
        try:
            await process_module.serve(self._settings, lambda: self._settings)
        except DuplicateIdError:
            pass  # there are two of this id: one of them ends
        except Exception as error:  # noqa: BLE001  (a finding: whoever looks on reports it)
            if process.alive:
                self.bugs.append(error)
        if process.alive:
            self._ended = True
            self._loop.call_soon(self._loop.kill, process, context=OUTSIDE.copy())

    def _died(self) -> None:
        self.daemon = None
        # What a process that ended by itself has sent is on its way; a killed one's may be lost.
        self._environment.zk.die(self.name, delivered=self._ended or self._environment.rng.random() < 0.5)

    def terminate(self) -> None:
        """SIGTERM."""
        if self.process is not None and self.process.alive:
            handler = self.process.signal_handlers.get(signal.SIGTERM)
            if handler is not None:
                handler()
            else:
                self._loop.kill(self.process)


#: Whose daemon is made in which process.
_DAEMONS: dict[Process, SimController] = {}


def _here() -> SimController:
    """Whose code is running."""
    process = CURRENT.get()
    assert process is not None, "a controller's code runs in its process"
    return _DAEMONS[process]


class _Daemon(Daemon):
    """Known to the simulator, and its dump of a bug is the bug itself."""

    def __init__(self, settings: Settings, incarnation: Incarnation) -> None:
        super().__init__(settings, incarnation)
        self.home = _here()
        self.home.daemon = self
        self._process = self.home.process

    def dump(self, error: BaseException) -> Any:
        if self._process is not None and self._process.alive:
            self.home.bugs.append(error)
        return None


class _Term(Term):
    """Says how warm its failover was. After each event its log and its memory are compared, and after a reconnect its
    memory and ZooKeeper."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._chronicle = Chronicle()
        #: Names of topics that every server had when the present event began, if that reads all of them.
        self._had: frozenset[str] = frozenset()
        #: Events that have given way, and the ids of effects that are under way.
        self._giving_way: list[Event] = []
        self._under_way: set[int] = set()

    def _step(self, stimulus: Event | Outcome | None) -> Ready:
        machine = self.machine
        began = machine.current_event
        if stimulus is not None and not isinstance(stimulus, Event):
            self._under_way.discard(stimulus.id)
        ready = super()._step(stimulus)
        if machine.current_event is not began:
            self._another(began, ready)
            event = machine.current_event
            reads_all = event is not None and event.kind is EventKind.RECONNECTED
            self._had = self._topics_everywhere() if reads_all else frozenset()
        return ready

    def _another(self, before: Event | None, ready: Ready) -> None:
        """Another event is handled than before. One that is not over has given way: nothing of it may be under way, and
        no broker may come or go meanwhile."""
        event, giving_way, home = self.machine.current_event, self._giving_way, _here()
        if before is not None and not ready.finished:
            giving_way.append(before)
            if self._under_way:
                home.bugs.append(AssertionError(f"{before} gave way, and {self._under_way} are under way"))
        if giving_way and event is giving_way[-1]:
            giving_way.pop()
        elif giving_way and event is not None:
            home.let_in += 1
            requests = event.kind is giving_way[-1].kind is EventKind.ALTER_PARTITION
            if event.kind not in LET_IN or (requests and handlers.is_long(event)):
                home.bugs.append(AssertionError(f"{home.name} handled {event} in the midst of {giving_way}"))

    def _perform(self, ready: Ready) -> None:
        self._under_way.update(effect.id for effect in ready.effects)
        cluster, home = self.machine.cluster, _here()
        try:
            self._chronicle.take(ready.records)
            if self.machine.ready and self.machine.current_event is None:
                self._chronicle.check(cluster)
        except AssertionError as wrong:
            home.bugs.append(wrong)
        if any(done.kind is EventKind.RECONNECTED for done in ready.finished):
            known = cluster.topics.keys() | cluster.unreadable_topics
            if missing := (self._had & self._topics_everywhere()) - known:
                home.bugs.append(
                    AssertionError(f"{home.name} has read all, and does not know {sorted(missing)}")
                )
        super()._perform(ready)

    def _topics_everywhere(self) -> frozenset[str]:
        servers = _here()._environment.zk.ensemble.servers
        nodes = [server.tree.node("/brokers/topics") for server in servers]
        names = [frozenset(node.children) if node is not None else frozenset() for node in nodes]
        return frozenset.intersection(*names)

    def _loaded(self) -> None:
        process = CURRENT.get()
        if process in _DAEMONS:
            loaded = _DAEMONS[process].states_loaded
            loaded[0] += self._store.from_memory
            loaded[1] += self._store.from_zookeeper
        super()._loaded()


class _Mirror(StateMirror):
    """What a failover takes from memory is compared with the ensemble."""

    _settled_zxid = 0

    async def settle(self) -> bool:
        settled = await super().settle()
        self._settled_zxid = self._session._client.last_zxid
        return settled

    def hand_over(self, changed: WatchCallback, avoided: Collection[str] = ()) -> Prepared | None:
        prepared = super().hand_over(changed, avoided)
        for topic in prepared.topics.values() if prepared is not None else ():
            self._compare_topic(topic)
            self._compare([(p, p.leadership) for p in topic.partitions.values()])
        return prepared

    def take(self, partitions: Sequence[Partition]) -> list[LeaderAndIsr | None]:
        found = super().take(partitions)
        self._compare(zip(partitions, found, strict=True))
        return found

    def _compare(self, taken: Iterable[tuple[Partition, LeaderAndIsr | None]]) -> None:
        for partition, state in taken:
            node = self._node(state_path(partition.topic.name, partition.number))
            if state is None or (node is not None and node.mzxid > self._settled_zxid):
                continue  # read, or changed by somebody since
            if node is None or node.version != state.partition_epoch:
                self._wrong(f"{partition.name} from memory: {state}, not {node}")

    def _compare_topic(self, topic: Topic) -> None:
        node = self._node(topic_path(topic.name))
        if node is not None and node.mzxid > self._settled_zxid:
            return
        known = (topic.czxid, topic.version, {n: p.replicas for n, p in topic.partitions.items()})
        if node is None:
            self._wrong(f"{topic} from memory, which is gone")
            return
        info = codecs.decode_topic(topic.name, node.data, node.czxid, node.version)
        if known != (info.czxid, info.version, info.partitions) or topic.id != info.topic_id:
            self._wrong(f"{topic} from memory: {known}, not {info}")
        if not is_plain(info):
            self._wrong(f"{topic} from memory, which tells more: {info}")

    def _node(self, path: str) -> Any:
        ensemble = _here()._environment.zk.ensemble
        return ensemble.servers[ensemble.leader or 0].tree.node(path)

    def _wrong(self, what: str) -> None:
        _here().bugs.append(AssertionError(f"{_here().name} took {what}"))


def _claim_directory(_directory: Path, _stack: AsyncExitStack) -> Incarnation:
    home = _here()
    incarnation = Incarnation(f"{home.name}-{len(home.incarnations)}", frozenset(home.incarnations))
    home.incarnations.append(incarnation.own)
    return incarnation


class _Runner:
    async def cleanup(self) -> None:
        pass


class _NoKafkaServer:
    """Brokers of the simulator speak gRPC: nobody asks by Kafka's protocol."""

    def __init__(self, _controller: object, _security: object) -> None:
        pass

    async def start(self, _host: str, port: int, _listener: str = "") -> int:
        return port

    async def stop(self) -> None:
        pass


async def _no_http(_daemon: Daemon, _host: str, port: int) -> tuple[_Runner, int]:
    return _Runner(), port


@contextmanager
def controllers() -> Iterator[None]:
    """Within it controllers can be started."""
    with ExitStack() as stack:
        for module, name, value in (
            (daemon_module, "StateLogWriter", StateLog),
            (daemon_module, "daemon_tls", lambda _settings: tls_here()),
            (daemon_module, "Term", _Term),
            (standby_module, "StateMirror", _Mirror),
            (process_module, "Daemon", _Daemon),
            (process_module, "_claim_directory", _claim_directory),
            (process_module, "start_http", _no_http),
            (process_module, "KafkaServer", _NoKafkaServer),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.callback(_DAEMONS.clear)
        yield
