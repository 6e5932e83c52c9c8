"""Alerts fired by faults of real processes, in a real Prometheus, by the rules that are deployed.

How long a fault must last is promtool's matter (`test_alerts`): here two seconds are enough.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from kazoo.client import KazooClient

from controller.playground.cluster import Member, Playground
from tests.deploy.prometheus import MACHINE, WAIT_S, Prometheus, http_of, scraping, until
from tests.deploy.test_alerts import ALERTS, RULES
from tests.support.cli.operator import pctl
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.runtime.certificates import Authority

pytestmark = pytest.mark.slow

SESSION_MS = 6000
STUCK = "EventQueueStuck"
#: A controller that raises wherever it meets the topic.
POISONED = """
from controller.core.topics import changes
original = changes.add_topic
def planted(context, info, *rest):
    if info.name == "poison":
        raise ZeroDivisionError("planted")
    return original(context, info, *rest)
changes.add_topic = planted
from controller.cli.main import main
main()
"""
#: A broker that acknowledges a topic whose partitions it never takes, however often it is told.
FORGETFUL = """
from broker_stub.control.replicas import Replicas
original = Replicas._step_leader_and_isr
def planted(replicas, item, is_live):
    return None if item.key[0] == "forgotten" else original(replicas, item, is_live)
Replicas._step_leader_and_isr = planted
from broker_stub.cli import main
main()
"""


@dataclass
class Faulty:
    """Controllers 1 and 2, four brokers, and a controller ``other`` with another chroot, which is not started.

    Broker 2 acknowledges the topic ``forgotten`` without taking it; broker 3 keeps its session while it is frozen;
    broker 4 takes nothing from controllers.
    """

    cluster: Playground
    prometheus: Prometheus
    zk: KazooClient

    def pctl(self, *arguments: str) -> None:
        result = pctl(self.cluster.connect, "--timeout", "30", *arguments)
        assert result.exit_code == 0, result.output

    def topic(self, name: str, replicas: str, *more: str) -> None:
        self.pctl("topics", "create", name, "--replica-assignment", replicas, "--yes", *more)

    def wait(self, *names: str) -> None:
        """Until these have fired, now or before."""
        expected = set(names)
        until(lambda: expected <= self.prometheus.fired(), lambda: expected - self.prometheus.fired())

    def wait_for_topics(self, count: int) -> None:
        """Until the active controller knows so many."""
        query = f"max(kafka_controller_kafkacontroller_globaltopiccount) == {count}"
        until(lambda: bool(self.prometheus.ask(query)), lambda: query)

    def active(self) -> Member:
        """The controller that leads, once there is one."""
        query = "kafka_controller_kafkacontroller_activecontrollercount == 1"
        until(lambda: len(self.prometheus.ask(query)) == 1, lambda: self.prometheus.ask(query))
        where = self.prometheus.ask(query)[0]["metric"]["instance"]
        both = [self.cluster.members[f"controller-{n}"] for n in (1, 2)]
        return next(member for member in both if http_of(member.log_path) == where)

    def isr(self, topic: str) -> list[int]:
        found: list[int] = json.loads(self.zk.get(f"/brokers/topics/{topic}/partitions/0/state")[0])["isr"]
        return found


def rules(folder: Path) -> Path:
    """Those that are deployed, with less patience."""
    given = yaml.safe_load(ALERTS.read_text())
    for rule in given["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = "2s"
    path = folder / "alerts.yml"
    path.write_text(yaml.safe_dump(given))
    return path


def prepared(cluster: Playground, folder: Path) -> None:
    """Members as `Faulty` has them."""
    cluster.prepare()
    members = cluster.members
    for name in ("controller-1", "controller-2"):
        member = members[name]
        member.command = [sys.executable, "-c", POISONED, *member.command[1:]]
        member.environment = {
            **member.environment,
            "PYTHONPATH": str(ROOT),
            "PARTITION_CONTROLLER_AUTO_LEADER_REBALANCE_ENABLE": "true",
            "PARTITION_CONTROLLER_AUDIT_INTERVAL_SECONDS": "1",
        }
    forgetful, frozen, deaf = (members[f"broker-{n}"] for n in (2, 3, 4))
    forgetful.command = [sys.executable, "-c", FORGETFUL, *forgetful.command[1:]]
    forgetful.environment = {**forgetful.environment, "PYTHONPATH": str(ROOT)}
    frozen.command = [word.replace(f"ms={SESSION_MS}", "ms=90000") for word in frozen.command]
    nobody = folder / "rules.toml"
    nobody.write_text('controllers = ["User:nobody"]\n')
    deaf.environment = {"BROKER_STUB_AUTHORIZER_FILE": str(nobody)}
    certificate, key = Authority(folder / "tls").issue("other", days=(-1, 3))
    members["other"] = Member(
        "other",
        [
            *(sys.executable, "-m", "controller.cli.main", "run", "--controller-id=3"),
            f"--zookeeper={cluster.connect.removesuffix('/playground')}/other",
            *("--grpc-listen=127.0.0.1:0", f"--http-listen=127.0.0.1:{free_port()}"),
            f"--state-log-dir={folder / 'other-log'}",
        ],
        folder / "other.log",
        {
            "PYTHONPATH": str(ROOT),
            "PARTITION_CONTROLLER_ALLOW_EVERYONE": "true",
            "PARTITION_CONTROLLER_HTTP_SSL": "false",
            "PARTITION_CONTROLLER_SSL_CERTIFICATE": str(certificate),
            "PARTITION_CONTROLLER_SSL_KEY": str(key),
            "PARTITION_CONTROLLER_SSL_CA": str(folder / "tls" / "ca.pem"),
        },
    )


@pytest.fixture
def faulty(prometheus_bin: Path, tmp_path: Path) -> Iterator[Faulty]:
    cluster = Playground(tmp_path / "cluster", controllers=2, brokers=4, session_timeout_ms=SESSION_MS)
    zk = None
    try:
        prepared(cluster, tmp_path)
        for name, member in cluster.members.items():
            if name != "other":
                member.start()
        both = [cluster.members[f"controller-{n}"].log_path for n in (1, 2)]
        until(lambda: all(map(http_of, both)), lambda: both)
        zk = KazooClient(cluster.connect)
        until(lambda: "ready" in "".join(log.read_text() for log in both), lambda: both)
        zk.start(20)
        (listen,) = (w for w in cluster.members["other"].command if w.startswith("--http-listen="))
        targets = [*map(str, map(http_of, both)), listen.partition("=")[2]]
        with scraping(prometheus_bin, tmp_path, targets, rules(tmp_path)) as prometheus:
            until(lambda: len(zk.get_children("/brokers/ids")) == 4, lambda: zk.get_children("/brokers/ids"))
            yield Faulty(cluster, prometheus, zk)
    finally:
        if zk is not None:
            zk.stop()
            zk.close()
        for member in cluster.members.values():
            member.signal(signal.SIGCONT)
        cluster.stop()


@pytest.mark.long
def test_every_alert_is_fired_by_a_fault(faulty: Faulty) -> None:
    """One after the other on one cluster, as they disturb one another least; STUCK below."""
    faulty.active()
    misled(faulty)
    edited(faulty)
    restrained(faulty)
    moved(faulty)
    poisoned(faulty)
    doubled(faulty)
    lost(faulty)
    silenced(faulty)
    assert faulty.prometheus.fired() | {STUCK} == set(RULES)


@pytest.mark.containers_long
def test_events_that_wait_for_zookeeper_fire_an_alert(faulty: Faulty) -> None:
    """By itself: it takes minutes on a busy machine, where a controller now and then loses its lease."""
    faulty.active()
    slowed(faulty)


@contextmanager
def stopped(member: Member) -> Iterator[None]:
    member.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.signal(signal.SIGCONT)


def misled(faulty: Faulty) -> None:
    """Brokers that do not do what they are told; a candidate that is not there."""
    faulty.wait("ControllerDown")
    faulty.topic("forgotten", "1:2", "--no-wait")
    faulty.wait("BrokerStateDiffers")
    # Nobody answers for long: on broker 3, which is frozen, and on 4, which refuses all.
    with stopped(faulty.cluster.members["broker-3"]):
        faulty.topic("frozen", "3:1,4:1", "--no-wait")
        faulty.topic("wiped", "1:2")
        faulty.wait_for_topics(3)
        faulty.zk.delete("/brokers/topics/wiped", recursive=True)
        faulty.wait_for_topics(2)
        # Brokers 1 and 2 have records of a topic with that name and another id.
        faulty.topic("wiped", "1:2", "--no-wait")
        faulty.wait("BrokerRefusesPushes", "BrokerRefusesPartitions", "BrokerNotAcknowledging")


def edited(faulty: Faulty) -> None:
    """Files and znodes in others' hands."""
    active = faulty.active()
    faulty.topic("edited", "1:2")
    path = "/brokers/topics/edited/partitions/0/state"
    state = json.loads(faulty.zk.get(path)[0])
    faulty.zk.set(
        path, json.dumps({**state, "leader": 2, "leader_epoch": state["leader_epoch"] + 1}).encode()
    )
    faulty.zk.create("/brokers/topics/bad", b"[1]")
    (faulty.cluster.state_logs / active.name / "state-change.jsonl").unlink()
    faulty.wait("StateZnodesEdited", "MalformedZnodes", "StateLogDrops")


def restrained(faulty: Faulty) -> None:
    """Operators who forget what they began."""
    faulty.pctl("maintenance", "pause", "--reason", "a test", "--yes")
    faulty.pctl("freeze", "--for", "1m", "--reason", "a test", "--yes")
    path = "/controllers/maintenance"
    given, stat = faulty.zk.get(path)
    began: Any = json.loads(given)
    # The minute is over.
    began["freeze"]["until_ms"] -= 120_000
    faulty.zk.set(path, json.dumps(began).encode(), stat.version)
    faulty.wait("InMaintenance", "FreezeForgotten")
    faulty.pctl("unfreeze", "--yes")
    faulty.pctl("maintenance", "resume", "--yes")


def moved(faulty: Faulty) -> None:
    """Terms that end again and again, and one whose process stood still."""
    deadline = time.monotonic() + 60
    while "ControllerFlapping" not in faulty.prometheus.fired():
        assert time.monotonic() < deadline
        faulty.active()
        faulty.pctl("controllers", "resign", "--reason", "a test", "--yes")
        time.sleep(1.0)
    with stopped(faulty.active()):
        time.sleep(2.0)
    faulty.wait("EventLoopLate")


def poisoned(faulty: Faulty) -> None:
    data = {"version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": {"0": [1]}}
    faulty.zk.create("/brokers/topics/poison", json.dumps(data).encode())
    faulty.wait("ControllerBug", "Quarantined")


def doubled(faulty: Faulty) -> None:
    """A controller of another chroot is asked beside ours; its certificate ends in three days."""
    other = faulty.cluster.members["other"]
    other.start()
    faulty.wait("SeveralActiveControllers", "CertificateExpires", "CertificateExpiresSoon")
    other.stop()


def slowed(faulty: Faulty) -> None:
    """ZooKeeper answers late, and always before the lease is short: events wait for those before them."""
    faulty.active()
    assert faulty.cluster.embedded is not None
    (server,) = faulty.cluster.embedded.servers
    partition = json.dumps({"version": 3, "partitions": {"0": [1]}}).encode()
    deadline = time.monotonic() + WAIT_S
    for number in count():
        for name in "abc":
            faulty.zk.create_async(f"/brokers/topics/late-{name}{number}", partition)
        if number:
            faulty.zk.create_async(f"/admin/delete_topics/late-a{number - 1}")
        server.kill(signal.SIGSTOP)
        try:
            time.sleep(2.0)
            if STUCK in faulty.prometheus.fired():
                return
            assert time.monotonic() < deadline
        finally:
            server.kill(signal.SIGCONT)
        # As long as one answer takes.
        faulty.zk.get("/")


def lost(faulty: Faulty) -> None:
    """Broker 2 comes and goes; then nobody is left who is in sync."""
    faulty.active()
    first, second = (faulty.cluster.members[f"broker-{n}"] for n in (1, 2))
    faulty.topic("loose", "1:2", "--config", "unclean.leader.election.enable=true")
    faulty.topic("tight", "1:2", "--config", "min.insync.replicas=2")
    for _ in range(2):
        second.kill()
        until(lambda: 2 not in faulty.isr("loose"), lambda: faulty.isr("loose"))
        second.start()
        until(lambda: 2 in faulty.isr("loose"), lambda: faulty.isr("loose"))
    faulty.wait("BrokerFlapping")
    second.kill()
    until(lambda: faulty.isr("loose") == [1], lambda: faulty.isr("loose"))
    faulty.wait("UnderMinIsrPartitions")
    first.kill()
    faulty.wait("OfflinePartitions")
    second.start()
    faulty.wait("UncleanLeaderElection")
    first.start()


def silenced(faulty: Faulty) -> None:
    """ZooKeeper does not answer: first the lease is short, then it is over, then nobody leads."""
    assert faulty.cluster.embedded is not None
    (server,) = faulty.cluster.embedded.servers
    for _ in range(5):
        faulty.active()
        server.kill(signal.SIGSTOP)
        try:
            until(
                lambda: "NoActiveController" in faulty.prometheus.alerts("firing"), lambda: "somebody leads"
            )
        finally:
            server.kill(signal.SIGCONT)
        faulty.wait("LeaseExpired")
        # It lasts for a second only: Prometheus may have looked the other way.
        if "LeaseRunningOut" in faulty.prometheus.fired():
            return
    pytest.fail(f"{MACHINE}: never seen to run out")
