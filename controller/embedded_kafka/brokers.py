"""Unmodified Kafka brokers in ZooKeeper mode, each a process of its own with a small heap. They need Java 17."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.child_processes import launch, release
from controller.core import znode_paths
from controller.embedded_kafka import jars
from controller.embedded_zookeeper.ensemble import LOOPBACK, find_java
from controller.errors import EnvironmentFault
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import NoNodeError, Session

MAIN_CLASS = "kafka.Kafka"
#: Bytes that Kafka's client of ZooKeeper must take for large znodes.
JUTE_MAXBUFFER = 4 * 1024 * 1024
READY_TIMEOUT_S = 90.0
#: A controlled shutdown without a controller takes three tries of 5 s.
STOP_TIMEOUT_S = 40.0
#: Brokers keep their ports over restarts: outside the range of outgoing connections, so that none takes one meanwhile.
PORTS = range(15_000, 32_000)

#: What a broker on a small machine, and a test, need otherwise than Kafka's defaults.
SMALL: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "60000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "1",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "1000",
}

_LOGGERS = {
    "controller": ("kafka.controller", "org.apache.kafka.controller"),
    "state-change": ("state.change.logger",),
    "authorizer": ("kafka.authorizer.logger",),
}


def _log4j(directory: Path) -> str:
    lines = ["log4j.rootLogger=INFO, server"]
    for appender in ("server", *_LOGGERS):
        lines += [
            f"log4j.appender.{appender}=org.apache.log4j.FileAppender",
            f"log4j.appender.{appender}.File={directory / appender}.log",
            f"log4j.appender.{appender}.layout=org.apache.log4j.PatternLayout",
            f"log4j.appender.{appender}.layout.ConversionPattern=[%d{{yyyy-MM-dd HH:mm:ss,SSS}}] %p %m (%c)%n",
        ]
    for appender, loggers in _LOGGERS.items():
        for logger in loggers:
            lines += [f"log4j.logger.{logger}=INFO, {appender}", f"log4j.additivity.{logger}=false"]
    return "\n".join(lines) + "\n"


def lasting_ports(count: int, among: range = PORTS) -> list[int]:
    """TCP ports that are free on loopback now, and that neither an earlier call gave nor one of another process that
    still runs. Raises EnvironmentFault."""
    found: list[int] = []
    for port in random.sample(among, len(among)):
        if len(found) == count:
            return found
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            _reserve(port)
            found.append(port)
    if len(found) == count:
        return found
    raise EnvironmentFault(f"no {count} free TCP ports from {among.start} to {among.stop - 1} on loopback")


def _reserve(port: int) -> None:
    """Who gets a port may bind it much later, or again: until this process ends, it holds the UDP port of that number.
    Raises OSError when somebody does already."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((LOOPBACK, port))
        holder.detach()


class Process:
    """A process that can be started again. ``process``: None while it does not run."""

    process: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, signum: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signum)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end: what it registered stays until its session times out."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self._release()

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self.signal(signal.SIGCONT)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Send SIGTERM, which begins a broker's controlled shutdown, and SIGKILL when the time is up.

        Returns whether the process ended by itself.
        """
        if self.process is None:
            return True
        self.thaw()
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._release()
        return True

    def _release(self) -> None:
        release(self.process)
        self.process = None


@dataclass
class KafkaBroker(Process):
    """One broker and its process.

    ``zookeeper``: connect string with chroot. ``directory``: for its configuration, logs and data; must be absolute.
    ``listeners``: port by listener name, in order; names that are no security protocol need
    listener.security.protocol.map among ``properties``, which override everything else; a name in ``SMALL`` too.
    ``log_dirs``: how many folders of data it has.
    """

    broker_id: int
    zookeeper: str
    directory: Path
    listeners: Mapping[str, int]
    version: str = jars.NEWEST
    properties: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 256
    log_dirs: int = 1
    jvm_options: Sequence[str] = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data_dirs(self) -> list[Path]:
        return [self.directory / f"data-{n}" for n in range(1, self.log_dirs + 1)]

    @property
    def server_log(self) -> Path:
        return self.directory / "server.log"

    @property
    def controller_log(self) -> Path:
        return self.directory / "controller.log"

    @property
    def state_change_log(self) -> Path:
        return self.directory / "state-change.log"

    @property
    def output(self) -> Path:
        """What the process printed itself, such as why it could not begin."""
        return self.directory / "kafka.out"

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener."""
        return f"{LOOPBACK}:{next(iter(self.listeners.values()))}"

    def effective_properties(self) -> dict[str, str]:
        """What is written to server.properties."""
        listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in self.listeners.items())
        return {
            **SMALL,
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": ",".join(map(str, self.data_dirs)),
            **self.properties,
        }

    def start(self) -> None:
        """Write the configuration and launch. Raises EnvironmentFault without Java or jars."""
        command = [
            find_java(),
            f"-Xmx{self.heap_mb}m",
            *self.jvm_options,
            "-Djava.awt.headless=true",
            f"-Djute.maxbuffer={JUTE_MAXBUFFER}",
            f"-Dlog4j.configuration=file:{self.directory / 'log4j.properties'}",
            "-cp",
            jars.KAFKA.class_path(self.version),
            MAIN_CLASS,
            str(self.directory / "server.properties"),
        ]
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j.properties").write_text(_log4j(self.directory))
        lines = [f"{name}={value}" for name, value in self.effective_properties().items()]
        (self.directory / "server.properties").write_text("\n".join(lines) + "\n")
        self._release()
        self.process = launch(command, self.output)

    def listening(self) -> bool:
        """Whether every listener accepts connections, which a broker begins to do after its registration."""
        for port in self.listeners.values():
            try:
                socket.create_connection((LOOPBACK, port), timeout=1.0).close()
            except OSError:
                return False
        return True

    def check(self) -> None:
        """Raises EnvironmentFault with the end of its logs if the process has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            logs = [path for path in (self.output, self.server_log) if path.exists()]
            ends = "\n".join(path.read_text(errors="replace")[-1500:] for path in logs)
            raise EnvironmentFault(
                f"broker {self.broker_id} (Kafka {self.version}) ended with {self.process.returncode}; "
                f"its logs in {self.directory} end: {ends}"
            )


def start_all(brokers: Sequence[KafkaBroker], timeout_s: float = READY_TIMEOUT_S) -> None:
    """Start brokers of one cluster at once and wait until all are registered and accept connections.

    A registration that an earlier process of a broker left has to go first: Kafka refuses to start beside it.
    Not to be called inside an event loop (use a thread). Raises EnvironmentFault when one ends or is not registered in
    time.
    """
    asyncio.run(_start_all(brokers, time.monotonic() + timeout_s))


def await_registrations(
    brokers: Iterable[KafkaBroker], *, present: bool, timeout_s: float = READY_TIMEOUT_S
) -> None:
    """Wait until all these brokers are registered, or none is. As ``start_all``."""
    asyncio.run(_await(list(brokers), present, time.monotonic() + timeout_s))


async def _start_all(brokers: Sequence[KafkaBroker], deadline: float) -> None:
    await _await(brokers, False, deadline)
    for broker in brokers:
        broker.start()
    await _await(brokers, True, deadline)
    while not all(broker.listening() for broker in brokers):
        for broker in brokers:
            broker.check()
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"not all brokers listen; logs are in {brokers[0].directory.parent}")
        await asyncio.sleep(0.05)


async def _await(brokers: Sequence[KafkaBroker], present: bool, deadline: float) -> None:
    if not brokers:
        return
    reached: Callable[[set[int]], bool]
    ids = {broker.broker_id for broker in brokers}
    reached = ids.issubset if present else ids.isdisjoint
    async with cluster_reader.connected(brokers[0].zookeeper, 10_000) as session:
        while not reached(found := await _registered(session)):
            for broker in brokers:
                broker.check()
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"brokers {sorted(ids - found if present else ids & found)} are "
                    f"{'not' if present else 'still'} registered; logs are in {brokers[0].directory.parent}"
                )
            await asyncio.sleep(0.05)


async def _registered(session: Session) -> set[int]:
    try:
        return {int(name) for name in await session.children(znode_paths.BROKER_IDS) if name.isdigit()}
    except NoNodeError:
        return set()
