"""The broker as a process: real ZooKeeper, real gRPC, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError

from broker_stub.zookeeper import registration as registrations
from broker_stub.zookeeper.codecs import PERSISTENT_PATHS
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from proto.gen import broker_control_pb2 as wire
from proto.gen import broker_control_pb2_grpc as services
from proto.gen import common_pb2 as codes
from proto.incarnations import new_incarnation
from tests.support.broker.builders import ID_X, leader_state, live, stop_state
from tests.support.paths import ROOT, take_away

pytestmark = pytest.mark.slow

#: Long enough that a stall of this machine ends nobody's session.
SESSION_TIMEOUT_MS = 6000
METHOD = "/partition_controller.v1.BrokerControl/LeaderAndIsr"
#: A broker epoch that no registration of a test's broker gets to.
NEWEST = 2**62
_Value = TypeVar("_Value")


def eventually(what: str, probe: Callable[[], _Value | None], timeout_s: float = 60.0) -> _Value:
    """The first answer of ``probe`` that is not None or False."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = probe()
        if answer is not None and answer is not False:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s: {what}")


class BrokerProcess:
    """One ``broker-stub run``; its log goes to ``<data dir>.log``."""

    def __init__(self, connect: str, data_dir: Path, broker_id: int = 1, **settings: str) -> None:
        self.data_dir, self.broker_id = data_dir, broker_id
        self.log_path = data_dir.with_suffix(f".{time.monotonic_ns()}.log")
        command = [sys.executable, "-c", "from broker_stub.cli import main; main()", "run"]
        options = {
            "broker-id": str(broker_id),
            "zookeeper": connect,
            "listen": "127.0.0.1:0",
            "data-dir": str(data_dir),
            "session-timeout-ms": str(SESSION_TIMEOUT_MS),
            # Mostly there is no controller to ask.
            "controlled-shutdown-retry-backoff-ms": "50",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        for name, value in options.items():
            command += [f"--{name}", value]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    @property
    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    def records(self) -> list[dict[str, Any]]:
        path = self.data_dir / "state-log" / "state-change.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def wait(self, timeout_s: float = 60.0) -> int:
        return self.process.wait(timeout_s)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


Starter = Callable[..., BrokerProcess]


@pytest.fixture
def start(zookeeper: str, zk: KazooClient, tmp_path: Path) -> Iterator[Starter]:
    """Starts brokers in this test's chroot, where controller epoch 0 is the last; ends those that still run."""
    started: list[BrokerProcess] = []
    zk.create("/controller_epoch", b"0")

    def starter(
        connect: str = zookeeper, data: str = "data", broker_id: int = 1, **more: str
    ) -> BrokerProcess:
        started.append(BrokerProcess(connect, tmp_path / data, broker_id, **more))
        return started[-1]

    yield starter
    for broker in started:
        broker.end()


def registration(zk: KazooClient, other_than: int = -1, broker_id: int = 1) -> tuple[dict[str, Any], int]:
    """What is registered and its czxid, once there is a registration ``other_than`` that epoch."""

    def probe() -> tuple[dict[str, Any], int] | None:
        try:
            data, stat = zk.get(f"/brokers/ids/{broker_id}")
        except NoNodeError:
            return None
        return (json.loads(data), stat.czxid) if stat.czxid != other_than else None

    return eventually("broker is registered", probe)


class Channel:
    """A controller's connection to a broker."""

    def __init__(self, port: int) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        self.control = services.BrokerControlStub(self.channel)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.channel.close()

    def lead(self, *states: wire.LeaderAndIsrPartitionState, **header: Any) -> list[str]:
        request = wire.LeaderAndIsrRequest(partition_states=states, **{"broker_epoch": NEWEST, **header})
        response = self.control.LeaderAndIsr(request, timeout=60, wait_for_ready=True)
        if response.error_code != codes.NONE:
            return [codes.ErrorCode.Name(response.error_code)]
        return [codes.ErrorCode.Name(e.error_code) for e in response.partition_errors]

    def stop(self, *states: wire.StopReplicaPartitionState) -> list[str]:
        request = wire.StopReplicaRequest(partition_states=states, broker_epoch=NEWEST)
        response = self.control.StopReplica(request, timeout=60)
        return [codes.ErrorCode.Name(e.error_code) for e in response.partition_errors]


def test_a_broker_registers_as_kafkas_do(start: Starter, zk: KazooClient) -> None:
    broker = start(rack="r1", session_timeout_ms="7000")
    value, epoch = registration(zk)
    port = value["port"]
    assert int(value.pop("timestamp")) > 1_700_000_000_000
    assert value.pop("cluster_id") == json.loads(zk.get("/cluster/id")[0])["id"]
    assert value.pop("session_timeout_ms") == 7000
    assert value == {
        "version": 5,
        "host": "127.0.0.1",
        "port": port,
        "endpoints": [f"GRPC://127.0.0.1:{port}"],
        "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
        "rack": "r1",
        "jmx_port": -1,
        "features": {},
        "incarnation": (broker.data_dir / ".incarnations").read_text().strip(),
        "directories": re.findall(
            r"^directory\.id=(.+)$", (broker.data_dir / "meta.properties").read_text(), re.M
        ),
        "previous_broker_epoch": -1,
    }
    for path in PERSISTENT_PATHS:
        stat = zk.exists(path)
        assert stat is not None, path
        assert stat.ephemeralOwner == 0
    with Channel(port) as channel:
        eventually("epoch is known", lambda: f'"broker_epoch": {epoch}' in broker.log)
        assert channel.lead(leader_state(), broker_epoch=epoch - 1) == ["STALE_BROKER_EPOCH"]
        response = channel.control.UpdateMetadata(
            wire.UpdateMetadataRequest(broker_epoch=epoch, live_brokers=live(1, 2))
        )
        assert response.error_code == codes.NONE
        zk.set("/controller_epoch", b"4")
        states = [leader_state(leader=1, replicas=[1, 2]), leader_state("bar", leader=2, replicas=[1, 2])]
        assert channel.lead(*states, broker_epoch=epoch, controller_epoch=4, event_id=9) == ["NONE", "NONE"]
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait() == 0
    became = [r for r in broker.records() if r["kind"] == "replica"]
    assert [(r["topic"], r["from"], r["to"], r["event_id"], r["controller_epoch"]) for r in became] == [
        ("foo", "none", "leader", 9, 4),
        ("bar", "none", "follower", 9, 4),
    ]


def test_ids_out_of_zookeeper(start: Starter, zk: KazooClient) -> None:
    """Above those that people choose, each given once, and kept by the data directory."""
    one = start(broker_id=-1, data="one")
    assert registration(zk, broker_id=1001)[0]["host"] == "127.0.0.1"
    start(broker_id=-1, data="two")
    registration(zk, broker_id=1002)
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() == 0
    start(broker_id=-1, data="one")
    registration(zk, broker_id=1001)
    assert zk.get("/brokers/seqid")[1].version == 2
    refused = start(connect="127.0.0.1:1", broker_id=-1, data="three", connection_timeout_ms="500")
    assert refused.wait() == 1
    assert "no broker id could be had from ZooKeeper 127.0.0.1:1: " in refused.log


def test_the_chroot_is_made(start: Starter, zookeeper: str, zk: KazooClient) -> None:
    start(connect=f"{zookeeper}/deeper/still")
    eventually("registered below", lambda: zk.exists("/deeper/still/brokers/ids/1"))


def test_kill_and_restart(start: Starter, zk: KazooClient) -> None:
    first = start()
    value, epoch = registration(zk)
    with Channel(value["port"]) as channel:
        states = [leader_state("foo", n, leader=1, replicas=[1]) for n in range(5)]
        assert channel.lead(*states, topic_ids={"foo": ID_X}) == ["NONE"] * 5
        assert channel.stop(stop_state("foo", 4, leader_epoch=-2, delete=True)) == ["NONE"]
    first.process.kill()
    first.wait()
    second = start()
    value, new_epoch = registration(zk, other_than=epoch)
    assert new_epoch > epoch
    (started,) = [line for line in second.log_lines if line["event"] == "started"]
    assert started["partitions_found"] == 4
    with Channel(value["port"]) as channel:
        eventually("epoch is known", lambda: f'"broker_epoch": {new_epoch}' in second.log)
        assert channel.lead(leader_state(), broker_epoch=epoch) == ["STALE_BROKER_EPOCH"]
        other_topic = leader_state(leader=1, replicas=[1], leader_epoch=1)
        assert channel.lead(other_topic, topic_ids={"foo": "y" * 22}) == ["INCONSISTENT_TOPIC_ID"]
        assert channel.lead(other_topic, topic_ids={"foo": ID_X}) == ["NONE"]


def test_an_expired_session_is_followed_by_a_new_registration(start: Starter, zk: KazooClient) -> None:
    broker = start(session_timeout_ms="2000")
    value, epoch = registration(zk)
    with Channel(value["port"]) as channel:
        assert channel.lead(leader_state(leader=1, replicas=[1], leader_epoch=3)) == ["NONE"]
        broker.process.send_signal(signal.SIGSTOP)
        eventually("registration vanished", lambda: zk.exists("/brokers/ids/1") is None)
        broker.process.send_signal(signal.SIGCONT)
        again, new_epoch = registration(zk, other_than=epoch)
        assert again["port"] == value["port"]
        eventually("epoch is known", lambda: f'"broker_epoch": {new_epoch}' in broker.log)
        assert channel.lead(leader_state(leader_epoch=4), broker_epoch=epoch) == ["STALE_BROKER_EPOCH"]
        kept = leader_state(leader=1, replicas=[1], leader_epoch=3)
        assert channel.lead(kept, broker_epoch=new_epoch) == ["STALE_CONTROLLER_EPOCH"]

    def registered() -> list[str]:
        return [r["reason"] for r in broker.records() if r.get("to") == "registered"]

    # The log is written by a thread of its own.
    eventually("the second record", lambda: len(registered()) > 1)
    assert registered() == [f"broker epoch {epoch}", f"broker epoch {new_epoch}"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop(start: Starter, zk: KazooClient, signum: signal.Signals) -> None:
    broker = start()
    _, epoch = registration(zk)
    broker.process.send_signal(signum)
    assert broker.wait() == 0
    assert zk.exists("/brokers/ids/1") is None
    lifecycle = [(r["to"], r["replica"]) for r in broker.records() if r["kind"] == "broker"]
    assert lifecycle == [("started", 1), ("registered", 1), ("stopped", 1)]
    assert {line["broker"] for line in broker.log_lines} == {1}
    start()
    assert registration(zk)[1] > epoch


def test_garbage_and_oversized_messages(start: Starter, zk: KazooClient) -> None:
    broker = start()
    value, _ = registration(zk)
    with Channel(value["port"]) as channel:
        raw: Any = channel.channel.unary_unary(METHOD)
        for garbage in (b"\xff" * 100, b"\x2a\x05\x0a\x03\xff\xfe\xfd", os.urandom(10_000) + b"\x07"):
            with pytest.raises(grpc.RpcError) as caught:
                raw(garbage, timeout=60)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            raw(bytes(64 * 1024 * 1024 + 1), timeout=120)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        unknown: Any = channel.channel.unary_unary("/partition_controller.v1.BrokerControl/Nothing")
        with pytest.raises(grpc.RpcError) as caught:
            unknown(b"", timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert channel.lead(leader_state(leader=1, replicas=[1])) == ["NONE"]
    assert broker.process.poll() is None


def test_two_brokers_on_one_data_directory(start: Starter, zk: KazooClient) -> None:
    first = start()
    registration(zk)
    second = start(broker_id=2)
    assert second.wait() == 1
    assert f"is in use by another broker (process {first.process.pid})" in second.log
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 0
    third = start(broker_id=2)
    assert third.wait() == 2
    assert "broker_id = 2: must be 1" in third.log


def test_a_second_broker_with_our_id_gives_up(start: Starter, zk: KazooClient) -> None:
    """K514: the registration of another session stands."""
    start()
    _, epoch = registration(zk)
    second = start(data="other")
    assert second.wait() == 1
    assert "our id is registered by another process" in second.log
    assert "another broker with id 1 is running on '127.0.0.1'" in second.log
    assert registration(zk)[1] == epoch


def test_a_restart_does_not_wait_for_its_former_session(start: Starter, zk: KazooClient) -> None:
    first = start(session_timeout_ms="60000")
    _, epoch = registration(zk)
    first.process.kill()
    first.wait()
    second = start(session_timeout_ms="60000")
    registration(zk, other_than=epoch)
    assert "waiting for the end" not in second.log


@pytest.mark.parametrize("removed", ["/brokers/ids/1", "/brokers"])
def test_a_registration_that_was_removed_comes_back(start: Starter, zk: KazooClient, removed: str) -> None:
    broker = start()
    value, epoch = registration(zk)
    # It may be back before all is gone.
    with suppress(NotEmptyError):
        zk.delete(removed, recursive=True)
    again, new_epoch = registration(zk, other_than=epoch)
    assert again["port"] == value["port"]
    assert "our registration was removed by another: registering again" in broker.log
    eventually("epoch is known", lambda: f'"broker_epoch": {new_epoch}' in broker.log)
    with Channel(value["port"]) as channel:
        assert channel.lead(leader_state(), broker_epoch=epoch) == ["STALE_BROKER_EPOCH"]


def test_zookeeper_unreachable(start: Starter) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        broker = start(connect=f"127.0.0.1:{port}", connection_timeout_ms="6000")
        assert broker.wait() == 1
    assert "waiting for ZooKeeper" in broker.log
    assert f"no connection to ZooKeeper 127.0.0.1:{port} within 6000 ms" in broker.log
    assert "Connection refused" in broker.log


def test_an_unusable_state_log_directory(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broker = start(state_log_dir=str(tmp_path / "file"))
    assert broker.wait() == 1
    assert "state log directory" in broker.log


def test_a_taken_port(start: Starter) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = start(listen=address)
        assert broker.wait() == 1
    assert f"cannot listen on {address}" in broker.log


def test_sigterm_while_zookeeper_is_away(start: Starter, tmp_path: Path) -> None:
    """K250: without ZooKeeper nobody can be told, and it ends cleanly all the same."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper", force_sync=False) as server:
        broker = start(connect=server.connect_string)
        eventually("registered", lambda: '"event": "registered"' in broker.log)
        server.stop()
        eventually("noticed", lambda: "connection to ZooKeeper lost" in broker.log)
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait() == 0


def test_a_lost_data_directory_is_reported_to_the_controller(
    start: Starter, zk: KazooClient, state_log_dir: Path
) -> None:
    """K507: by a notification of these bytes."""
    broker = start(state_log_dir=str(state_log_dir))
    value, _ = registration(zk)
    take_away(broker.data_dir)
    with Channel(value["port"]) as channel:
        assert channel.lead(leader_state(leader=1, replicas=[1])) == ["KAFKA_STORAGE_ERROR"]
    parent = "/log_dir_event_notification"
    (name,) = eventually("event is written", lambda: zk.get_children(parent) or None)
    assert name == "log_dir_event_0000000000"
    assert json.loads(zk.get(f"{parent}/{name}")[0]) == {"version": 1, "broker": 1, "event": 1}


def test_a_session_that_ends_while_its_broker_registers_is_lost(
    zookeeper: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo has no session between one that has expired and the next."""
    registrar = Registrar(
        Identity(1, "h", 1, None, new_incarnation()),
        zookeeper,
        Timeouts(2000, 2000),
        lambda _: None,
        lambda _: None,
    )
    session_id, _ = zk.client_id
    zk.create("/brokers/ids/1", b"", ephemeral=True, makepath=True)
    for ended in (None, (session_id + 1, b"")):
        monkeypatch.setattr(KazooClient, "client_id", ended)
        with pytest.raises(registrations._Lost):
            registrar._try_register(zk, session_id)


def test_a_broker_with_data_does_not_follow_a_mistyped_chroot(
    start: Starter, zookeeper: str, zk: KazooClient
) -> None:
    first = start()
    value, epoch = registration(zk)
    first.end()
    mistyped = start(f"{zookeeper}-mistyped")
    assert mistyped.wait() == 1
    assert f"belongs to cluster {value['cluster_id']} (cluster.id in meta.properties), but" in mistyped.log
    zk.set("/cluster/id", b'{"version":"1","id":"another"}')
    other = start()
    assert other.wait() == 1
    assert "holds cluster another" in other.log
    meta = first.data_dir / "meta.properties"
    directory_id = re.findall(r"^directory\.id=.+$", meta.read_text(), re.M)
    meta.write_text(re.sub(r"cluster\.id=.*\n", "", meta.read_text()))
    start()
    value, _ = registration(zk, epoch)
    assert value["cluster_id"] == "another"
    assert f"{directory_id[0]}\ncluster.id=another\n" in meta.read_text()


def test_own_registration_counts(zookeeper: str, zk: KazooClient) -> None:
    """K514: the reply to a create may be lost: what our session owns is a success, and is kept as it is."""
    first = Registrar(
        Identity(1, "h", 1, None, new_incarnation()),
        zookeeper,
        Timeouts(2000, 2000),
        lambda _: None,
        lambda _: None,
    )
    zk.ensure_path("/brokers/ids")
    epoch, _ = first._try_register(zk, zk.client_id[0])
    assert epoch == zk.exists("/brokers/ids/1").czxid
    other = Registrar(
        Identity(1, "h", 2, None, new_incarnation()),
        zookeeper,
        Timeouts(2000, 2000),
        lambda _: None,
        lambda _: None,
    )
    assert other._try_register(zk, zk.client_id[0]) == (epoch, "")
    assert json.loads(zk.get("/brokers/ids/1")[0])["port"] == 1
