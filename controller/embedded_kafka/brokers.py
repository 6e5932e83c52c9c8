"""Unmodified Kafka brokers in ZooKeeper mode, each a process of its own with a small heap. They need Java 17."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.child_processes import launch, release
from controller.embedded_kafka import jars
from controller.embedded_zookeeper.ensemble import LOOPBACK, find_java
from controller.errors import EnvironmentFault

MAIN_CLASS = "kafka.Kafka"
#: Bytes that Kafka's client of ZooKeeper must take for large znodes.
JUTE_MAXBUFFER = 4 * 1024 * 1024
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


@dataclass
class KafkaBroker:
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
        release(self.process)
        self.process = launch(command, self.output)
