"""A whole cluster of real processes on this machine: starts and stops its members, and waits for conditions."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rich.console import Console

from controller.child_processes import launch, release
from controller.client import admin
from controller.embedded_kafka import jars
from controller.embedded_kafka.brokers import KafkaBroker, lasting_ports
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.errors import ControllerError, EnvironmentFault
from controller.runtime.config import ENV_PREFIX
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from proto.security.grpc_channels import GrpcTls, PemTls
from proto.security.tls import TlsFiles

#: Short, so that a watching user sees soon that a killed process is noticed.
SESSION_TIMEOUT_MS = 3000
WAIT_S = 60.0
#: Whose certificate ``pctl`` and the workload use.
ADMIN = "admin"
#: Who may do what on a cluster with certificates; ADMIN is a super user.
RULES = """brokers = ["User:CN=broker-{id}"]
controllers = ["User:CN=controller-*"]

# The active controller asks the standbys for its console.
[[allow]]
principals = ["User:CN=controller-*"]
operations = ["DESCRIBE"]
resources = ["cluster"]
"""
#: Controllers' ids where brokers are Kafka's: above reserved.broker.max.id.
FIRST_ID_BESIDE_KAFKA = 9001

console = Console(highlight=False, soft_wrap=True)


class PlaygroundError(ControllerError):
    """A condition that the script waits for did not come true; the message names it and the logs."""


def shell_with(given: Mapping[str, str]) -> dict[str, str]:
    """The environment with what is given, without what it tells ``pctl`` of another cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PCTL_")} | dict(given)


@dataclass
class Member:
    """One process of the cluster, and the command that starts it."""

    name: str
    command: list[str]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        release(self.process)
        self.process = launch(self.command, self.log_path, shell_with(self.environment))

    def signal(self, signum: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signum)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self.signal(signal.SIGKILL)
        self.stop()

    def stop(self, timeout_s: float = 15.0) -> None:
        if self.process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        release(self.process)
        self.process = None

    @property
    def ended(self) -> bool:
        """Whether it was started, and has ended though nobody stopped it here."""
        return self.process is not None and self.process.poll() is not None

    def check(self) -> None:
        """Raises PlaygroundError if the process has ended unexpectedly."""
        if self.process is not None and self.ended:
            log_end = self.log_path.read_text(errors="replace")[-1500:]
            raise PlaygroundError(
                f"{self.name} ended with {self.process.returncode}; {self.log_path} ends: {log_end}"
            )


@dataclass
class KafkaMember(Member):
    """A real Kafka broker."""

    broker: KafkaBroker | None = None

    def start(self) -> None:
        assert self.broker is not None
        self.broker.start()
        self.process = self.broker.process


@dataclass
class Playground:
    """The cluster. ``directory``: for all data and logs; ``zookeeper`` None: use the embedded server; ``kafka``: the
    brokers are Kafka's; ``secure``: gRPC and HTTP by mutual TLS."""

    directory: Path
    controllers: int = 2
    brokers: int = 3
    zookeeper: str | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    embedded: EmbeddedZooKeeper | None = None
    members: dict[str, Member] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    kafka: bool = False
    #: Every member has a certificate, and whoever talks to it must have one.
    secure: bool = False
    #: Names and addresses in those certificates; empty: this machine's.
    hosts: tuple[str, ...] = ()

    def say(self, text: str, style: str = "") -> None:
        """Print a line with the time since the start."""
        console.print(f"[dim]{time.monotonic() - self.began:6.2f} s[/dim]  {text}", style=style)

    @property
    def connect(self) -> str:
        base = self.zookeeper or (self.embedded.connect_string if self.embedded else "")
        return f"{base}/playground"

    @property
    def state_logs(self) -> Path:
        return self.directory / "state-logs"

    def data_dir(self, broker_id: int) -> Path:
        name = f"broker-{broker_id}"
        member = self.members.get(name)
        if isinstance(member, KafkaMember) and member.broker is not None:
            return member.broker.data_dirs[0]
        return self.directory / name

    @property
    def certificates(self) -> Path:
        """Where those of a secured cluster are: ``ca.pem``, and ``NAME.pem`` and ``NAME.key`` of members and admin."""
        return self.directory.absolute() / "certificates"

    def _ssl(self, prefix: str, name: str) -> dict[str, str]:
        """Variables that give a process its certificate."""
        if not self.secure:
            return {}
        base = self.certificates / name
        files = {"CERTIFICATE": f"{base}.pem", "KEY": f"{base}.key", "CA": str(self.certificates / "ca.pem")}
        return {f"{prefix}SSL_{which}": path for which, path in files.items()}

    @property
    def _rules(self) -> Path:
        return self.certificates / "authorizer.toml"

    def _access(self, prefix: str) -> dict[str, str]:
        """Who may do what: with certificates their holders by rules. Kafka's brokers have none here."""
        if not self.secure or self.kafka:
            return {f"{prefix}ALLOW_EVERYONE": "true"}
        return {f"{prefix}AUTHORIZER_FILE": str(self._rules), f"{prefix}SUPER_USERS": f"User:CN={ADMIN}"}

    @property
    def operator_environment(self) -> dict[str, str]:
        """Variables that ``pctl`` and the workload need on this cluster."""
        return self._ssl("PCTL_", ADMIN)

    @cached_property
    def tls(self) -> GrpcTls | None:
        """The operator's. Of a started cluster."""
        if not self.secure:
            return None
        folder = self.certificates
        return PemTls(TlsFiles(folder / f"{ADMIN}.pem", folder / f"{ADMIN}.key", folder / "ca.pem"))

    def workload_flags(self) -> list[str]:
        """How the workload finds the brokers."""
        kafka = [m.broker.address for m in self.members.values() if isinstance(m, KafkaMember) and m.broker]
        return (
            ["--kafka", f"--bootstrap={','.join(kafka)}"] if self.kafka else [f"--zookeeper={self.connect}"]
        )

    def start(self) -> None:
        """Start ZooKeeper, controllers and brokers."""
        self.prepare()
        for member in self.members.values():
            member.start()

    def prepare(self) -> None:
        """Start ZooKeeper and create all members; their commands may be changed before they start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.zookeeper is None:
            self.embedded = EmbeddedZooKeeper(self.directory / "zookeeper", heap_mb=512)
            self.embedded.start()
        self.say(f"ZooKeeper serves at {self.connect}")
        if self.secure:
            # Imported here: nothing else needs it.
            from controller.certificates import HOSTS, make

            controllers = [f"controller-{id_}" for id_ in self._controller_ids]
            brokers = [f"broker-{id_}" for id_ in range(1, self.brokers + 1)]
            make(self.certificates, [*controllers, *brokers, ADMIN], self.hosts or HOSTS)
            self._rules.write_text(RULES)
        self._add_controllers(Path(sys.executable).parent)
        if self.kafka:
            self._add_kafka_brokers()
        else:
            self._add_brokers(Path(sys.executable).parent)

    @property
    def _controller_ids(self) -> range:
        first = FIRST_ID_BESIDE_KAFKA if self.kafka else 1
        return range(first, first + self.controllers)

    def _add_controllers(self, bin_dir: Path) -> None:
        for id_ in self._controller_ids:
            name = f"controller-{id_}"
            self._add(
                name,
                [
                    str(bin_dir / "partition-controller"),
                    "run",
                    f"--controller-id={id_}",
                    f"--zookeeper={self.connect}",
                    "--grpc-listen=127.0.0.1:0",
                    "--http-listen=127.0.0.1:0",
                    f"--session-timeout-ms={self.session_timeout_ms}",
                    f"--state-log-dir={self.state_logs / name}",
                ],
                # The scripts run preferred elections; the controller must not do so before them.
                {
                    f"{ENV_PREFIX}AUTO_LEADER_REBALANCE_ENABLE": "false",
                    **self._access(ENV_PREFIX),
                    **(self._takeover() if self.kafka else {}),
                    **self._ssl(ENV_PREFIX, name),
                },
            )

    def _takeover(self) -> dict[str, str]:
        (port,) = lasting_ports(1)
        return {f"{ENV_PREFIX}KAFKA_TAKEOVER": "fallback", f"{ENV_PREFIX}KAFKA_LISTEN": f"127.0.0.1:{port}"}

    def _add_brokers(self, bin_dir: Path) -> None:
        for id_, port in enumerate(lasting_ports(self.brokers), 1):
            name = f"broker-{id_}"
            self._add(
                name,
                [
                    str(bin_dir / "broker-stub"),
                    "run",
                    f"--broker-id={id_}",
                    f"--zookeeper={self.connect}",
                    f"--listen=127.0.0.1:{port}",
                    f"--data-dir={self.data_dir(id_)}",
                    f"--session-timeout-ms={self.session_timeout_ms}",
                    f"--state-log-dir={self.state_logs / name}",
                    # When all brokers stop at once, none can take over: retries would only cost time.
                    "--controlled-shutdown-retry-backoff-ms=200",
                ],
                {**self._access("BROKER_STUB_"), **self._ssl("BROKER_STUB_", name)},
            )

    def _add_kafka_brokers(self) -> None:
        """Raises EnvironmentFault without Kafka's jars or librdkafka."""
        if importlib.util.find_spec("confluent_kafka") is None:
            raise EnvironmentFault(
                "confluent-kafka is missing: install partition-controller with the extra kafka"
            )
        jars.KAFKA.fetch(jars.NEWEST)
        properties = {"zookeeper.session.timeout.ms": str(self.session_timeout_ms)}
        for id_, port in enumerate(lasting_ports(self.brokers), 1):
            name = f"broker-{id_}"
            directory = self.directory.absolute() / name
            broker = KafkaBroker(id_, self.connect, directory, {"PLAINTEXT": port}, properties=properties)
            self.members[name] = KafkaMember(name, [], broker.server_log, broker=broker)

    def _add(self, name: str, command: list[str], environment: Mapping[str, str] = {}) -> None:
        self.members[name] = Member(name, command, self.directory / f"{name}.log", environment)

    def stop(self) -> None:
        for member in reversed(self.members.values()):
            member.signal(signal.SIGTERM)
        for member in reversed(self.members.values()):
            member.stop()
        if self.embedded is not None:
            self.embedded.stop()

    async def look(
        self, session: Session, topics: Sequence[str] | None = None, *, states: bool = True
    ) -> ClusterState:
        """Read the cluster, again where an answer is lost. Raises PlaygroundError when that lasts for WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return await cluster_reader.look(session, topics=topics, states=states)
            except ConnectionLossError:
                if time.monotonic() > deadline:
                    raise PlaygroundError(
                        f"ZooKeeper at {self.connect} gave no answer for {WAIT_S:g} s; logs are in {self.directory}"
                    ) from None
                await asyncio.sleep(0.02)

    async def until(
        self, session: Session, what: str, reached: Callable[[ClusterState], bool], ignore: Iterable[str] = ()
    ) -> tuple[ClusterState, float]:
        """Read ZooKeeper until a condition holds. Returns the cluster state and the seconds that it took.

        Raises PlaygroundError after WAIT_S, or when a process that is not in ``ignore`` has ended.
        """
        started = time.monotonic()
        while True:
            cluster_state = await self.look(session)
            if reached(cluster_state):
                return cluster_state, time.monotonic() - started
            for name, member in self.members.items():
                if name not in ignore:
                    member.check()
            if time.monotonic() - started > WAIT_S:
                raise PlaygroundError(f"waited {WAIT_S:g} s for: {what}; logs are in {self.directory}")
            await asyncio.sleep(0.02)

    async def create_topic(
        self,
        session: Session,
        name: str,
        placement: Mapping[int, Sequence[int]] | tuple[int, int],
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic through the active controller. ``placement``: broker ids by partition, or (partitions,
        replication factor). Raises PlaygroundError if it is refused, or if no controller answers within WAIT_S."""
        topic = pb.CreatableTopic(name=name, configs=configs)
        if isinstance(placement, tuple):
            topic.num_partitions, topic.replication_factor = placement
        else:
            topic.num_partitions = topic.replication_factor = -1
            for number, ids in placement.items():
                topic.assignments[number].broker_ids.extend(ids)
        request = pb.CreateTopicsRequest(topics=[topic])
        began, attempts = time.monotonic(), 0
        while True:
            cluster_state = await self.look(session, topics=())
            attempts += 1
            try:
                (answer,) = (
                    await admin.ask(
                        cluster_state.controller_endpoint, "CreateTopics", request, WAIT_S, self.tls
                    )
                ).topics
            except admin.RequestFailedError as error:
                if time.monotonic() - began > WAIT_S:
                    raise PlaygroundError(f"topic {name}: {error}; logs are in {self.directory}") from None
                await asyncio.sleep(0.05)
                continue
            # An earlier attempt without a response may have created the topic.
            if answer.error_code and not (
                attempts > 1 and answer.error_code == common_pb2.TOPIC_ALREADY_EXISTS
            ):
                raise PlaygroundError(f"topic {name}: {answer.error_message}")
            return

    async def active(self, session: Session, other_than: int = -1) -> tuple[int, float]:
        """Wait for a controller that has completed its failover. Returns its id and the seconds that it took.

        Raises PlaygroundError after WAIT_S, or when all controllers have ended.
        """
        started = time.monotonic()
        controllers = [self.members[name] for name in self.members if name.startswith("controller-")]
        while True:
            cluster_state = await self.look(session, topics=())
            if cluster_state.controller_endpoint and cluster_state.controller_id != other_than:
                answer = await admin.describe_cluster(cluster_state.controller_endpoint, 1.0, self.tls)
                if not isinstance(answer, str) and answer.error_code == 0:
                    return cluster_state.controller_id, time.monotonic() - started
            if all(member.ended for member in controllers):
                for member in controllers:
                    member.check()
            if time.monotonic() - started > WAIT_S:
                raise PlaygroundError(
                    f"no active controller within {WAIT_S:g} s; logs are in {self.directory}"
                )
            await asyncio.sleep(0.02)


def healthy(cluster_state: ClusterState) -> bool:
    """Every partition is led by a registered broker."""
    return bool(cluster_state.partitions) and all(map(cluster_state.is_led, cluster_state.partitions))
