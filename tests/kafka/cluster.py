"""A cluster of real Kafka brokers, and controllers of ours where a test asks for them, as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from controller.embedded_kafka import jars
from controller.embedded_kafka.brokers import PORTS, lasting_ports
from controller.runtime.config import ENV_PREFIX
from tests.support.kafka.brokers import Broker, Process, await_registrations, start_all
from tests.support.kafka.tools import KafkaTools
from tests.support.runtime.programs import environment

WAIT_S = 60.0
#: Where our controllers' ids begin: above what brokers may have.
FIRST_CONTROLLER_ID = 9001
#: Ports to draw from, as FIRST-LAST; several runs on one machine each take their own.
PORTS_VARIABLE = "KAFKA_TEST_PORTS"


def ports(count: int) -> list[int]:
    first, _, last = os.environ.get(PORTS_VARIABLE, "").partition("-")
    return lasting_ports(count, range(int(first), int(last) + 1) if first else PORTS)


class State(NamedTuple):
    """What a partition's state znode says."""

    leader: int
    isr: list[int]
    leader_epoch: int
    controller_epoch: int


@dataclass
class Controller(Process):
    """A controller of ours: this tree's code as a process. ``settings``: by name in lower case."""

    controller_id: int
    directory: Path
    settings: Mapping[str, object]
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory / "controller.out"

    @property
    def state_log(self) -> Path:
        return self.directory / "state-log"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        changes = {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in self.settings.items()}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controller.cli.main", "run"],
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env=environment(changes),
            )

    def check(self) -> None:
        """Fails if the process has ended by itself."""
        if self.process is not None and (code := self.process.poll()) is not None:
            raise AssertionError(
                f"controller {self.controller_id} ended with {code}: {self.log.read_text()[-1500:]}"
            )


@dataclass
class KafkaCluster:
    """``versions``: Kafka's version by broker id. ``properties``: of all brokers; ``per_broker``: of one, on top.

    ``listeners``: names, in order; each broker gets a port for each. ``bootstrap_listener``: the one that clients use.
    ``controller_settings``: of each controller of ours, on top of ids, addresses and the takeover. ``client``: of
    librdkafka, ``tools_client``: of Kafka's own tools. ``jvm_options``: of brokers, on top of the small ones.
    ``zookeeper_login``: this class's own to ZooKeeper, as kazoo's SASL options.
    """

    directory: Path
    zookeeper: str
    versions: Mapping[int, str] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), jars.NEWEST))
    properties: Mapping[str, str] = field(default_factory=dict)
    per_broker: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    listeners: Sequence[str] = ("PLAINTEXT",)
    bootstrap_listener: str = ""
    log_dirs: int = 1
    heap_mb: int = 256
    controllers_wanted: int = 0
    controller_settings: Mapping[str, object] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    tools_client: Mapping[str, str] = field(default_factory=dict)
    jvm_options: Sequence[str] = ()
    zookeeper_login: Mapping[str, str] | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    controllers: dict[int, Controller] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for id_, version in self.versions.items():
            self.brokers[id_] = Broker(
                id_,
                self.zookeeper,
                self.directory / f"broker-{id_}",
                dict(zip(self.listeners, ports(len(self.listeners)), strict=True)),
                version,
                {**self.properties, **self.per_broker.get(id_, {})},
                self.heap_mb,
                self.log_dirs,
                (*Broker.jvm_options, *self.jvm_options),
            )
        self.zk = KazooClient(self.zookeeper, sasl_options=self.zookeeper_login)

    def make_controller(self, id_: int, **settings: object) -> Controller:
        kafka, grpc, http = ports(3)
        directory = self.directory / f"controller-{id_}"
        base = {
            "controller_id": id_,
            "zookeeper": self.zookeeper,
            "grpc_listen": f"127.0.0.1:{grpc}",
            "http_listen": f"127.0.0.1:{http}",
            "session_timeout_ms": 6000,
            "state_log_dir": directory / "state-log",
            "kafka_takeover": "fallback",
            "kafka_listen": f"127.0.0.1:{kafka}",
        }
        return Controller(id_, directory, {**base, **self.controller_settings, **settings})

    @property
    def bootstrap(self) -> str:
        name = self.bootstrap_listener or self.listeners[0]
        return ",".join(f"127.0.0.1:{broker.listeners[name]}" for broker in self.brokers.values())

    @property
    def tools(self) -> KafkaTools:
        return KafkaTools(self.bootstrap, self.directory / "tools", self.tools_client)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **self.client})

    def admin_that_knows_the_controller(self) -> AdminClient:
        """For requests to the controller: without one in its first metadata, librdkafka waits for one until the request
        times out. A controller of ours in metadata has done its failover."""
        admin = self.admin()
        self.until(
            "a controller in clients' metadata",
            lambda: -1 < admin.list_topics(timeout=10).controller_id == self.controller_id(),
        )
        return admin

    def start(self) -> None:
        """All brokers, then our controllers; returns when clients see all brokers and a controller."""
        # This first: it creates the chroot.
        start_all(list(self.brokers.values()))
        self.zk.start(20)
        self.until("metadata of all brokers", self._known_by_clients)
        if self.controllers_wanted:
            self.add_controllers(self.controllers_wanted)

    def add_controllers(self, count: int, **settings: object) -> list[Controller]:
        """Start controllers of ours; if they may lead, wait until one of them does and all are registered."""
        first = FIRST_CONTROLLER_ID + len(self.controllers)
        added = [self.make_controller(id_, **settings) for id_ in range(first, first + count)]
        for controller in added:
            self.controllers[controller.controller_id] = controller
            controller.start()
        if any(controller.settings["kafka_takeover"] != "off" for controller in added):
            self.until("a controller of ours", lambda: self.controller_id() in self.controllers)
            self.until(
                "their registrations",
                lambda: all(self.zk.exists(f"/controllers/ids/{c.controller_id}") for c in added),
            )
        return added

    def _known_by_clients(self) -> bool:
        admin = self.admin()
        try:
            found = admin.list_topics(timeout=10)
        except KafkaException:
            return False
        return found.controller_id >= 0 and self.brokers.keys() <= found.brokers.keys()

    def stop(self) -> None:
        """End everything; brokers by SIGKILL, which is quick."""
        for controller in self.controllers.values():
            controller.kill()
        for broker in self.brokers.values():
            broker.kill()
        self.zk.stop()
        self.zk.close()

    def restart(self, *ids: int) -> None:
        """Start brokers that were killed or stopped, and wait until they are registered."""
        start_all([self.brokers[id_] for id_ in ids])

    def await_gone(self, *ids: int) -> float:
        """Wait until ZooKeeper has dropped the brokers' registrations. Returns the seconds that it took."""
        began = time.monotonic()
        await_registrations([self.brokers[id_] for id_ in ids], present=False)
        return time.monotonic() - began

    def until(self, what: str, reached: Callable[[], object], timeout_s: float = WAIT_S) -> float:
        """Look again and again. Returns the seconds that it took; fails when a member of ours ended, or in the end."""
        began = time.monotonic()
        while not reached():
            for broker in self.brokers.values():
                broker.check()
            for controller in self.controllers.values():
                controller.check()
            took = time.monotonic() - began
            assert took < timeout_s, f"waited {took:.0f} s in vain for {what}; logs are in {self.directory}"
            time.sleep(0.05)
        return time.monotonic() - began

    # What ZooKeeper says

    def json(self, path: str) -> Any:
        """A znode's JSON; None: there is no such znode."""
        try:
            return json.loads(self.zk.get(path)[0])
        except NoNodeError:
            return None

    def controller_id(self) -> int:
        """Who is controller; -1: nobody."""
        found = self.json("/controller")
        return -1 if found is None else int(found["brokerid"])

    def controller_epoch(self) -> int:
        return int(self.json("/controller_epoch") or 0)

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """Replicas by partition, from the topic's znode."""
        found = self.json(f"/brokers/topics/{topic}") or {"partitions": {}}
        return {int(number): replicas for number, replicas in found["partitions"].items()}

    def states(self, *topics: str) -> dict[tuple[str, int], State | None]:
        """The states of all partitions of these topics, or of all topics; None: no state znode."""
        found: dict[tuple[str, int], State | None] = {}
        for topic in topics or sorted(self.zk.get_children("/brokers/topics")):
            for number in sorted(self.assignment(topic)):
                state = self.json(f"/brokers/topics/{topic}/partitions/{number}/state")
                found[topic, number] = state and State(
                    state["leader"], state["isr"], state["leader_epoch"], state["controller_epoch"]
                )
        return found

    def led(self, *topics: str, without: Iterable[int] = ()) -> bool:
        """Whether every partition has a leader that is none of these brokers."""
        excluded = {-1, *without}
        found = self.states(*topics)
        return bool(found) and all(s is not None and s.leader not in excluded for s in found.values())

    def in_sync(self, *topics: str) -> bool:
        """Whether every partition's ISR holds all its replicas."""
        assigned = {
            (t, n): set(r)
            for t in {t for t, _ in self.states(*topics)}
            for n, r in self.assignment(t).items()
        }
        return all(s is not None and set(s.isr) == assigned[key] for key, s in self.states(*topics).items())

    def create_topic(
        self,
        name: str,
        partitions: int = 3,
        replication: int = 3,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic by librdkafka's admin client, and wait until all replicas are in sync."""
        if assignment is None:
            topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        else:
            topic = NewTopic(
                name,
                len(assignment),
                replica_assignment=[list(replicas) for replicas in assignment],
                config=dict(config or {}),
            )
        self.until(f"creation of topic {name}", lambda: self._created(topic, name))
        self.until(f"topic {name}", lambda: self.states(name) and self.in_sync(name))

    def _created(self, topic: NewTopic, name: str) -> bool:
        """False where the controller hung up: on a busy machine its lease may be over just then."""
        admin = self.admin_that_knows_the_controller()
        try:
            admin.create_topics([topic], operation_timeout=30, request_timeout=40)[name].result(60)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError._TRANSPORT:
                return False
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    # What logs say

    def elections_by_brokers(self) -> list[str]:
        """Lines of the brokers' own controllers that tell of an election won."""
        lines: list[str] = []
        for broker in self.brokers.values():
            if broker.controller_log.exists():
                text = broker.controller_log.read_text(errors="replace")
                lines += [
                    line for line in text.splitlines() if "successfully elected as the controller" in line
                ]
        return sorted(lines)
