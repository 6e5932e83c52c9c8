"""Taking /controller from Kafka's brokers and handing it back, with processes of ours on a real ZooKeeper.

The brokers are stood in for by one client that elects itself as Kafka's do: whenever ``/controller`` is absent.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from tests.support.cli.operator import pctl
from tests.support.runtime.programs import Program, program

pytestmark = pytest.mark.slow

BROKER = 1
#: Of the main session; the configured one is the holder's, and twice as long.
SESSION_MS = 2000
HOLDER_S = 2 * SESSION_MS / 1000
#: What an expiry, a claim and a slow machine may take on top.
SLACK_S = 6.0


class Brokers:
    """Elects itself whenever ``/controller`` is absent, as ``KafkaController.elect``; sees every absence it can."""

    def __init__(self, connect: str) -> None:
        self.zk = KazooClient(connect, timeout=30)
        self.zk.start(20)
        self.wins = self.absences = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.zk.ensure_path("/brokers/ids")
        self.zk.create(f"/brokers/ids/{BROKER}", _registration(), ephemeral=True)

    def start(self) -> None:
        self._thread.start()

    def _live(self) -> None:
        while not self._ended.is_set():
            fired = threading.Event()
            if self.zk.exists("/controller", lambda _, fired=fired: fired.set()) is None:
                self.absences += 1
                self.elect()
            # Between two reads of a watch nothing is seen: read on without it, too.
            fired.wait(0.002)

    def elect(self) -> bool:
        with suppress(NoNodeError):
            data, stat = self.zk.get("/controller_epoch")
            transaction = self.zk.transaction()
            transaction.create("/controller", broker_s(BROKER), ephemeral=True)
            transaction.set_data("/controller_epoch", str(int(data) + 1).encode(), version=stat.version)
            if not any(isinstance(result, KazooException) for result in transaction.commit()):
                self.wins += 1
                return True
        return False

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(10)
        self.zk.stop()
        self.zk.close()


def broker_s(broker_id: int, kraft_epoch: int = -1) -> bytes:
    """``/controller`` as Kafka 3.9 writes it."""
    value = {"version": 2, "brokerid": broker_id, "timestamp": "1", "kraftControllerEpoch": kraft_epoch}
    return json.dumps(value).encode()


def _registration() -> bytes:
    value = {
        "version": 5,
        "host": "127.0.0.1",
        "port": 9,
        "endpoints": ["PLAINTEXT://127.0.0.1:9"],
        "timestamp": "1",
    }
    return json.dumps({**value, "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}).encode()


@pytest.fixture
def brokers(zookeeper: str, zk: KazooClient) -> Iterator[Brokers]:
    """A cluster of Kafka brokers with a controller in epoch 7, which is not watching yet."""
    found = Brokers(zookeeper)
    zk.create("/controller_epoch", b"6")
    assert found.elect()
    found.wins = 0
    yield found
    found.close()


Start = Callable[..., AbstractContextManager[Program]]


@pytest.fixture
def start(zookeeper: str, tmp_path: Path) -> Start:
    @contextmanager
    def started(number: int, mode: str = "fallback") -> Iterator[Program]:
        directory = tmp_path / f"c{number}"
        directory.mkdir(exist_ok=True)
        settings = {
            "controller_id": 9000 + number,
            "zookeeper": zookeeper,
            "grpc_listen": "127.0.0.1:0",
            "http_listen": "127.0.0.1:0",
            "session_timeout_ms": 2 * SESSION_MS,
            "kafka_takeover": mode,
            "kafka_listen": "127.0.0.1:0",
            "log_level": "debug",
        }
        given = {f"PARTITION_CONTROLLER_{name.upper()}": str(value) for name, value in settings.items()}
        with program([sys.executable, "-m", "controller.cli.main", "run"], directory, given) as process:
            yield process

    return started


def holder(zk: KazooClient) -> int:
    """The id in ``/controller``; -1: absent."""
    try:
        return int(json.loads(zk.get("/controller")[0])["brokerid"])
    except NoNodeError:
        return -1


def until(reached: Callable[[], bool], what: str, timeout_s: float = 30) -> float:
    """How long it took, seconds."""
    began = time.monotonic()
    while not reached():
        assert time.monotonic() < began + timeout_s, f"waited {timeout_s:g} s in vain for: {what}"
        time.sleep(0.005)
    return time.monotonic() - began


def leads(zk: KazooClient, number: int) -> Callable[[], bool]:
    return lambda: holder(zk) == 9000 + number


def registered(zk: KazooClient, number: int) -> Callable[[], bool]:
    return lambda: zk.exists(f"/controllers/ids/{9000 + number}") is not None


def epoch(zk: KazooClient) -> int:
    return int(zk.get("/controller_epoch")[0])


def test_it_claims_over_a_live_broker_by_one_transaction(
    brokers: Brokers, zk: KazooClient, start: Start
) -> None:
    brokers.start()
    with start(1):
        until(leads(zk, 1), "the claim")
        data, stat = zk.get("/controller")
        assert json.loads(data).keys() >= {"version", "brokerid", "timestamp", "kraftControllerEpoch"}
        assert json.loads(data)["kraftControllerEpoch"] == -1
        assert (epoch(zk), stat.czxid) == (8, zk.exists("/controller_epoch").mzxid)
        # The holder owns it, not the session that registered.
        assert stat.ephemeralOwner not in (0, zk.exists("/controllers/ids/9001").ephemeralOwner)
        until(lambda: zk.get_children("/controllers/kafka_ids") == ["9001"], "its failover")
        assert zk.exists("/controllers/resigned") is None
        time.sleep(0.5)
        assert (brokers.absences, brokers.wins, epoch(zk)) == (0, 0, 8)


def test_a_standby_claims_over_a_killed_leader_before_brokers_can(
    brokers: Brokers, zk: KazooClient, start: Start
) -> None:
    brokers.start()
    with start(1) as first:
        until(leads(zk, 1), "the claim")
        with start(2):
            until(registered(zk, 2), "the standby")
            first.process.kill()
            until(leads(zk, 2), "the standby's claim", SESSION_MS / 1000 + SLACK_S)
            time.sleep(HOLDER_S + 2)
            assert (holder(zk), brokers.absences, brokers.wins, epoch(zk)) == (9002, 0, 0, 9)


def test_brokers_take_over_when_all_of_ours_are_gone(brokers: Brokers, zk: KazooClient, start: Start) -> None:
    brokers.start()
    with start(1) as first, start(2) as second:
        until(registered(zk, 1), "the first")
        until(registered(zk, 2), "the second")
        until(lambda: holder(zk) > 9000, "the claim")
        first.process.kill()
        second.process.kill()
        # Its answer comes to the winner after anybody can read what it wrote.
        took_s = until(lambda: brokers.wins > 0, "Kafka's controller", HOLDER_S + SLACK_S)
        assert took_s > SESSION_MS / 1000
        assert (holder(zk), brokers.wins) == (BROKER, 1)
    with start(1):
        # Another process: it claims back at once.
        until(leads(zk, 1), "the claim back")


def test_exclusive_nobody_else_ever_leads(brokers: Brokers, zk: KazooClient, start: Start) -> None:
    brokers.start()
    with start(1, "exclusive") as first:
        until(leads(zk, 1), "the claim")
        assert zk.exists("/controller").ephemeralOwner == 0
        first.process.kill()
        time.sleep(HOLDER_S + 2)
        assert (holder(zk), brokers.absences) == (9001, 0)
    # On another port, and by SIGTERM, too.
    with start(1, "exclusive") as first:
        until(lambda: epoch(zk) == 9, "the claim over the one that is gone")
        until(registered(zk, 1), "its registration")
        assert first.terminate() == 0
    assert (holder(zk), brokers.absences) == (9001, 0)
    with start(2, "exclusive"):
        until(leads(zk, 2), "another one's claim")
        assert (epoch(zk), brokers.wins) == (10, 0)


def test_one_that_was_stopped_writes_nothing_when_it_goes_on(
    brokers: Brokers, zk: KazooClient, start: Start
) -> None:
    brokers.start()
    with start(1) as first:
        until(leads(zk, 1), "the claim")
        with start(2):
            until(registered(zk, 2), "the standby")
            first.process.send_signal(signal.SIGSTOP)
            until(leads(zk, 2), "the standby's claim", SESSION_MS / 1000 + SLACK_S)
            before = zk.exists("/controller"), zk.exists("/controller_epoch")
            zk.create("/brokers/topics/t", json.dumps({"version": 1, "partitions": {"0": [BROKER]}}).encode())
            until(lambda: zk.exists("/brokers/topics/t/partitions/0/state") is not None, "the topic's state")
            written = zk.get("/brokers/topics/t/partitions/0/state")
            first.process.send_signal(signal.SIGCONT)
            until(registered(zk, 1), "it is a standby")
            time.sleep(2)
            assert (zk.exists("/controller"), zk.exists("/controller_epoch")) == before
            assert zk.get("/brokers/topics/t/partitions/0/state") == written
            assert json.loads(written[0])["controller_epoch"] == epoch(zk) == 9
            assert (brokers.absences, brokers.wins) == (0, 0)


@pytest.mark.long
def test_a_stopped_leader_without_standby_keeps_brokers_out_while_its_holder_lives(
    brokers: Brokers, zk: KazooClient, start: Start
) -> None:
    """Its main session expires, and the holder does not: it claims over itself."""
    brokers.start()
    with start(1) as first:
        until(leads(zk, 1), "the claim")
        first.process.send_signal(signal.SIGSTOP)
        until(lambda: not registered(zk, 1)(), "its main session is over", SESSION_MS / 1000 + SLACK_S)
        first.process.send_signal(signal.SIGCONT)
        until(lambda: epoch(zk) == 9, "it claims over itself")
        assert (holder(zk), brokers.absences, brokers.wins) == (9001, 0, 0)


@pytest.mark.parametrize("standby", [True, pytest.param(False, marks=pytest.mark.long)])
def test_sigterm_hands_over_to_a_standby_else_to_brokers_at_once(
    brokers: Brokers, zk: KazooClient, start: Start, standby: bool
) -> None:
    brokers.start()
    with start(1) as first:
        until(leads(zk, 1), "the claim")
        if standby:
            with start(2):
                until(registered(zk, 2), "the standby")
                assert first.terminate() == 0
                assert until(leads(zk, 2), "the standby's claim") < 1.5
                assert (brokers.absences, brokers.wins) == (0, 0)
            return
        first.process.send_signal(signal.SIGTERM)
        assert until(lambda: brokers.wins > 0, "Kafka's controller") < 1.5
        assert (holder(zk), brokers.wins, first.process.wait(10)) == (BROKER, 1, 0)


def operate(zookeeper: str, *arguments: str) -> Result:
    return pctl(zookeeper, "controllers", *arguments)


def test_resigning_and_claiming(zookeeper: str, brokers: Brokers, zk: KazooClient, start: Start) -> None:
    brokers.start()
    reason = ("--reason=upgrade", "--author=ann", "--yes")
    with start(1) as first:
        until(lambda: '"ready"' in first.said(), "its failover")
        alone = operate(zookeeper, "resign", *reason)
        assert (alone.exit_code, "no other controller" in alone.output) == (3, True), alone.output
        assert leads(zk, 1)()
        with start(2) as second:
            until(registered(zk, 2), "the standby")
            handed = operate(zookeeper, "resign", *reason)
            assert "controller 9002 is the controller, epoch 9" in handed.output, handed.output
            until(registered(zk, 1), "the first is a standby now")
            assert (brokers.absences, brokers.wins) == (0, 0)
            until(lambda: '"ready"' in second.said(), "its failover")

            given = operate(zookeeper, "resign", "--to-kafka", *reason)
            assert (given.exit_code, "broker 1 is the controller" in given.output) == (0, True), given.output
            stored = json.loads(zk.get("/controllers/resigned")[0])
            assert (stored["reason"], stored["author"]) == ("upgrade", "ann")
            assert "handed back to Kafka's brokers by ann: upgrade" in operate(zookeeper).output
            # Nobody claims, not even one that has just come, nor after an absence.
            with start(3):
                until(registered(zk, 3), "another standby")
                time.sleep(2)
                assert (holder(zk), brokers.wins) == (BROKER, 1)
            again = operate(zookeeper, "resign", "--to-kafka", *reason)
            assert (again.exit_code, "broker 1 is the controller" in again.output) == (3, True)

            back = operate(zookeeper, "claim")
            assert (back.exit_code, "is the controller, epoch 11" in back.output) == (0, True), back.output
            assert zk.exists("/controllers/resigned") is None
            assert holder(zk) in (9001, 9002)
            idle = operate(zookeeper, "claim")
            assert (idle.exit_code, "nothing to do" in idle.output) == (0, True)


@pytest.mark.long
def test_exclusive_hands_back_on_request(
    zookeeper: str, brokers: Brokers, zk: KazooClient, start: Start
) -> None:
    brokers.start()
    with start(1, "exclusive") as first:
        until(lambda: '"ready"' in first.said(), "its failover")
        given = operate(zookeeper, "resign", "--to-kafka", "--reason=r", "--author=a", "--yes")
        assert (given.exit_code, "broker 1 is the controller" in given.output) == (0, True), given.output
        assert operate(zookeeper, "claim").exit_code == 0
        assert leads(zk, 1)()


def test_never_over_a_migration_to_kraft(brokers: Brokers, zk: KazooClient, start: Start) -> None:
    zk.set("/controller", broker_s(3000, kraft_epoch=5))
    with start(1) as first:
        until(lambda: "KRaft" in first.said(), "its error")
        time.sleep(1)
        assert (holder(zk), epoch(zk)) == (3000, 7)
        # The migration is called off: the controller is one of brokers again.
        zk.set("/controller", broker_s(BROKER))
        until(leads(zk, 1), "the claim")


def test_never_with_the_id_of_a_broker(brokers: Brokers, zk: KazooClient, start: Start) -> None:
    zk.create("/brokers/ids/9001", _registration())
    with start(1) as first:
        until(lambda: "use another" in first.said(), "its error")
        time.sleep(0.5)
        assert (holder(zk), epoch(zk)) == (BROKER, 7)
        zk.delete("/brokers/ids/9001")
        until(leads(zk, 1), "the claim")


def test_a_broker_that_won_is_claimed_back_later_not_at_once(
    brokers: Brokers, zk: KazooClient, start: Start
) -> None:
    with start(1) as first:
        until(leads(zk, 1), "the claim")
        zk.delete("/controller")
        # Whoever is faster; only a broker's win matters here.
        if brokers.elect():
            at = state(zk)["takeover"]
            assert at["controller_held_by"] in ("a broker", "nobody")
            until(lambda: "next_claim_in_s" in first.said(), "it says when")
            found = state(zk)["takeover"]
            assert 0 < found["next_claim_in_s"] <= 5
            assert (found["controller_held_by"], found["claims_over_brokers"]) == ("a broker", 1)
            assert until(leads(zk, 1), "the claim back") > 2


def state(zk: KazooClient) -> Any:
    endpoint = json.loads(zk.get("/controllers/ids/9001")[0])["http"]
    with urllib.request.urlopen(f"http://{endpoint}/state", timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize("standby", [pytest.param(False, marks=pytest.mark.long), True])
def test_it_stops_while_zookeeper_is_away(tmp_path: Path, standby: bool) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", force_sync=False) as embedded:
        (server,) = embedded.servers
        with ExitStack() as stack:
            programs = [
                stack.enter_context(
                    program(
                        [sys.executable, "-m", "controller.cli.main", "run"],
                        tmp_path,
                        {
                            "PARTITION_CONTROLLER_CONTROLLER_ID": f"900{number}",
                            "PARTITION_CONTROLLER_ZOOKEEPER": embedded.connect_string,
                            "PARTITION_CONTROLLER_GRPC_LISTEN": "127.0.0.1:0",
                            "PARTITION_CONTROLLER_HTTP_LISTEN": "127.0.0.1:0",
                            "PARTITION_CONTROLLER_KAFKA_LISTEN": "127.0.0.1:0",
                            "PARTITION_CONTROLLER_KAFKA_TAKEOVER": "fallback",
                            "PARTITION_CONTROLLER_SESSION_TIMEOUT_MS": "4000",
                            "PARTITION_CONTROLLER_STATE_LOG_DIR": str(tmp_path / f"log-{number}"),
                        },
                        f"controller-{number}",
                    )
                )
                for number in (1, 2)[: 1 + standby]
            ]
            for one in programs:
                one.until(lambda one=one: '"standby"' in one.said() or '"ready"' in one.said())  # type: ignore[misc]
            server.kill()
            for one in programs:
                assert one.terminate() == 0
