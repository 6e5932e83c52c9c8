"""What one can see of a controller from outside: HTTP, metrics and the admin service, in each role."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from kazoo.client import KazooClient

from controller.client import admin
from controller.core import znode_paths
from controller.core.events import Event, EventKind
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from controller.runtime.http import min_isr
from controller.runtime.http.server import STUCK_AFTER_S, is_stuck, start_http
from controller.runtime.rpc.server import start_server
from controller.runtime.zookeeper import codecs
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.paths import DOCS
from tests.support.ports import free_port
from tests.support.runtime.daemons import running
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

RUNBOOK = DOCS / "operations.md"
#: Reference 11.1, as far as the runbook promises it: name and value on the active controller of this test.
ON_THE_ACTIVE = {
    "kafka_controller_kafkacontroller_activecontrollercount": 1,
    "kafka_controller_kafkacontroller_globaltopiccount": 1,
    "kafka_controller_kafkacontroller_globalpartitioncount": 2,
    "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 0,
    "kafka_controller_kafkacontroller_activebrokercount": 1,
    "kafka_controller_kafkacontroller_fencedbrokercount": 0,
    "kafka_controller_kafkacontroller_controllerstate": 0,
    "kafka_controller_kafkacontroller_zkmigrationstate": 4,
    "kafka_controller_kafkacontroller_topicstodeletecount": 0,
    "kafka_controller_kafkacontroller_replicastodeletecount": 0,
    "kafka_controller_kafkacontroller_topicsineligibletodeletecount": 0,
    "kafka_controller_kafkacontroller_replicasineligibletodeletecount": 0,
    "kafka_controller_kafkacontroller_malformedznodescount": 1,
    "kafka_controller_controllerstats_uncleanleaderelections_total": 0,
    "kafka_controller_controllereventmanager_eventqueuesize": 0,
    "kafka_controller_controllereventmanager_eventqueueage_seconds": 0,
    "kafka_controller_controllerchannelmanager_totalqueuesize": 0,
    "kafka_server_metadataloader_currentcontrollerid": 1,
    "partition_controller_failovers_total": 1,
}


class ClusterState:
    """A daemon's servers, and what they answer."""

    def __init__(self, daemon: Daemon, client: aiohttp.ClientSession, grpc_port: int) -> None:
        self.daemon, self._client = daemon, client
        self.endpoint = f"127.0.0.1:{grpc_port}"

    async def get(self, path: str) -> tuple[int, str]:
        async with self._client.get(path) as answer:
            return answer.status, await answer.text()

    async def state(self) -> Any:
        async with self._client.get("/state") as answer:
            assert answer.status == 200
            return await answer.json()

    async def metrics(self) -> dict[str, float]:
        """Samples without labels, by name; those with labels summed."""
        found: dict[str, float] = {}
        for line in (await self.get("/metrics"))[1].splitlines():
            if not line.startswith("#"):
                name = re.split(r"[ {]", line)[0]
                found[name] = found.get(name, 0) + float(line.rsplit(" ", 1)[1])
        return found

    async def described(self) -> pb.DescribeClusterResponse:
        answer = await admin.describe_cluster(self.endpoint, 5)
        assert not isinstance(answer, str), answer
        return answer


@asynccontextmanager
async def observed(connect: str, directory: Path, **settings: Any) -> AsyncIterator[ClusterState]:
    daemon = Daemon(Settings(zookeeper=connect, state_log_dir=directory, allow_everyone=True, **settings))
    server, grpc_port = await start_server(daemon, "127.0.0.1", 0)
    runner, http_port = await start_http(daemon, "127.0.0.1", 0)
    daemon.grpc_endpoint = f"127.0.0.1:{grpc_port}"
    try:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{http_port}") as client,
            running(daemon),
        ):
            yield ClusterState(daemon, client, grpc_port)
    finally:
        await runner.cleanup()
        await server.stop(0)


def topic_online(daemon: Daemon, count: int) -> bool:
    term = daemon.term
    return (
        term is not None and sum(p.leadership is not None for p in term.machine.cluster.partitions()) == count
    )


async def test_active(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    broker = await FakeBroker(1).start()
    async with observed(zookeeper, tmp_path) as cluster_state:
        daemon = cluster_state.daemon
        await until(lambda: daemon.active, "the failover")
        zk.create(
            "/brokers/ids/1",
            f'{{"version":4,"endpoints":["GRPC://127.0.0.1:{broker.port}"],"rack":"r"}}'.encode(),
        )
        zk.create("/brokers/ids/9", b"junk")
        zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        await until(lambda: topic_online(daemon, 2), "the topic")
        term = daemon.term
        assert term is not None
        await until(
            lambda: term.machine.current_event is None and term.machine.outbox.pending(1) == 0, "idle"
        )
        await until(lambda: term.senders.status[1].acknowledged_partitions == 4, "acks")

        assert await cluster_state.get("/live") == (200, "live\n")
        assert await cluster_state.get("/ready") == (200, "ready: active\n")
        assert await cluster_state.get("/leader") == (200, "leader\n")
        assert (await cluster_state.get("/nowhere"))[0] == 404

        metrics = await cluster_state.metrics()
        assert {name: metrics.get(name) for name in ON_THE_ACTIVE} == ON_THE_ACTIVE
        assert 0 < metrics["partition_controller_lease_remaining_seconds"] <= 12.1
        assert metrics["partition_controller_state_log_dropped"] == 0
        assert metrics["kafka_controller_controllerchannelmanager_queuesize"] == 0
        assert metrics["kafka_controller_controllerstats_rateandtime_seconds_count"] >= 3
        assert metrics["kafka_controller_controllerchannelmanager_requestrateandqueuetime_seconds_count"] >= 3
        assert metrics["kafka_server_zookeeperclientmetrics_zookeeperrequestlatency_seconds_count"] > 5

        state = await cluster_state.state()
        assert (state["controller_id"], state["role"], state["active"]) == (1, "active", True)
        assert state["zookeeper"]["connected"]
        assert state["zookeeper"]["session_timeout_ms"] == 18_000
        term_view = state["term"]
        assert (term_view["controller_epoch"], term_view["failover_completed"]) == (1, True)
        assert (term_view["topics"], term_view["partitions"], term_view["partitions_not_online"]) == (1, 2, 0)
        assert list(term_view["problems"]) == ["/brokers/ids/9"]
        assert term_view["brokers"]["1"]["acknowledged_partitions"] == 4
        assert term_view["brokers"]["1"]["problem"] == ""

        answer = await cluster_state.described()
        assert (answer.error_code, answer.controller_id, answer.controller_epoch) == (common_pb2.NONE, 1, 1)
        assert (answer.topic_count, answer.partition_count, answer.offline_partition_count) == (1, 2, 0)
        (described,) = answer.brokers
        assert (described.broker_id, described.rack) == (1, "r")
        assert (described.leader_count, described.replica_count, described.pending_pushes) == (2, 2, 0)
        assert described.broker_epoch == zk.exists("/brokers/ids/1").czxid
        assert list(answer.problems) == ["/brokers/ids/9"]
    await broker.stop()


async def test_standby(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(7, "h:7"), ephemeral=True)
    async with observed(zookeeper, tmp_path) as cluster_state:
        await until(lambda: cluster_state.daemon.role is Role.STANDBY, "standby")
        assert await cluster_state.get("/live") == (200, "live\n")
        assert await cluster_state.get("/ready") == (200, "ready: standby\n")
        assert await cluster_state.get("/leader") == (503, "not the leader: standby, controller is 7\n")
        metrics = await cluster_state.metrics()
        expected: dict[str, float] = dict.fromkeys(ON_THE_ACTIVE, 0)
        expected["kafka_server_metadataloader_currentcontrollerid"] = 7
        assert {name: metrics.get(name) for name in expected} == expected
        state = await cluster_state.state()
        assert (state["active"], state["current_controller"], "term" in state) == (False, 7, False)
        answer = await cluster_state.described()
        assert (answer.error_code, answer.controller_id) == (common_pb2.NOT_CONTROLLER, 7)
        assert len(answer.brokers) == 0


async def test_not_connected(tmp_path: Path) -> None:
    connect = f"127.0.0.1:{free_port()}"
    async with observed(connect, tmp_path) as cluster_state:
        assert await cluster_state.get("/live") == (200, "live\n")
        assert await cluster_state.get("/ready") == (
            503,
            f"not ready: no connection to ZooKeeper at {connect}\n",
        )
        assert (await cluster_state.get("/leader"))[0] == 503
        metrics = await cluster_state.metrics()
        expected: dict[str, float] = dict.fromkeys(ON_THE_ACTIVE, 0)
        expected["kafka_server_metadataloader_currentcontrollerid"] = -1
        assert {name: metrics.get(name) for name in expected} == expected
        assert (await cluster_state.state())["zookeeper"]["session_timeout_ms"] is None
        answer = await cluster_state.described()
        assert (answer.error_code, answer.controller_id) == (common_pb2.NOT_CONTROLLER, -1)


def test_the_runbook_promises_every_metric_checked_here() -> None:
    promised = set(re.findall(r"^\| `(\w+)`", RUNBOOK.read_text(), re.MULTILINE))
    assert set(ON_THE_ACTIVE) - promised == set()


async def test_an_event_that_makes_no_progress_is_stuck(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with observed(zookeeper, tmp_path) as cluster_state:
        daemon = cluster_state.daemon
        await until(lambda: daemon.active, "the failover")
        term = daemon.term
        assert term is not None
        answer = asyncio.Event()
        perform = term._store.perform

        async def hanging(request: Any) -> Any:
            await answer.wait()
            return await perform(request)

        monkeypatch.setattr(term._store, "perform", hanging)
        term.last_progress = time.monotonic() - STUCK_AFTER_S - 1
        assert not is_stuck(daemon)  # idle for long is not stuck
        term.enqueue(Event(EventKind.BROKER_CHANGE))
        await until(lambda: term.machine.current_event is not None, "the event")
        assert not is_stuck(daemon)
        term.last_progress = time.monotonic() - STUCK_AFTER_S - 1
        assert is_stuck(daemon)
        assert await cluster_state.get("/live") == (503, "stuck: an event makes no progress\n")
        answer.set()
        await until(lambda: term.machine.current_event is None, "the end of the event")
        assert await cluster_state.get("/live") == (200, "live\n")


async def test_a_log_that_cannot_be_written_is_told(zookeeper: str, tmp_path: Path) -> None:
    async with observed(zookeeper, tmp_path) as cluster_state:
        await until(lambda: cluster_state.daemon.active, "the failover")
        log = cluster_state.daemon.state_log
        assert log.flush()
        (tmp_path / "state-change.jsonl").unlink()
        (tmp_path / "state-change.jsonl").mkdir()
        log.append([{"kind": "log", "to": "lost"}], cause="A")
        assert log.flush()
        answer = await cluster_state.described()
        assert (answer.state_log_problem, answer.state_log_dropped) == ("not a regular file", log.dropped)
        assert log.dropped


# --- the admin service's other ends ------------------------------------------------------------------------


async def test_a_dead_endpoint_is_answered_in_words() -> None:
    answer = await admin.describe_cluster(f"127.0.0.1:{free_port()}", 2)
    assert isinstance(answer, str)
    assert answer.startswith("UNAVAILABLE: ")


@pytest.mark.parametrize("endpoint", ["", "nonsense", "h:p:1", "[::1"])
async def test_a_nonsense_endpoint_is_answered_in_words(endpoint: str) -> None:
    assert isinstance(await admin.describe_cluster(endpoint, 1), str)


async def test_garbage_requests_and_unknown_methods_hurt_nobody(zookeeper: str, tmp_path: Path) -> None:
    async with observed(zookeeper, tmp_path) as cluster_state:
        await until(lambda: cluster_state.daemon.active, "the failover")
        async with grpc.aio.insecure_channel(cluster_state.endpoint) as channel:
            service = "/partition_controller.v1.AdminService"
            call: Any = channel.unary_unary(f"{service}/DescribeCluster")
            answer = pb.DescribeClusterResponse.FromString(await call(b"\xff\xff\xff garbage", timeout=5))
            assert answer.error_code == common_pb2.INVALID_REQUEST
            call = channel.unary_unary(f"{service}/DropEverything")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"", timeout=5)
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (await cluster_state.described()).error_code == common_pb2.NONE


async def test_an_occupied_grpc_port_is_an_os_error(tmp_path: Path) -> None:
    broker = await FakeBroker(1).start()
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    try:
        with pytest.raises(OSError, match=str(broker.port)):
            await start_server(daemon, "127.0.0.1", broker.port)
    finally:
        daemon.state_log.close()
        await broker.stop()


async def test_min_isr_and_the_list_of_paths(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(min_isr, "COUNT_EVERY_S", 0.0)
    monkeypatch.setattr(min_isr, "READ_EVERY_S", 0.0)
    broker = await FakeBroker(1).start()
    zk.create("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}', makepath=True)
    zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[1]}}', makepath=True)
    async with observed(zookeeper, tmp_path) as cluster_state:
        daemon = cluster_state.daemon
        status, text = await cluster_state.get("/")
        paths = [line.split()[0] for line in text.splitlines()]
        assert (status, paths) == (200, ["/live", "/ready", "/leader", "/metrics", "/state", "/ui"])
        endpoint = f'{{"version":4,"endpoints":["GRPC://127.0.0.1:{broker.port}"]}}'.encode()
        zk.create("/brokers/ids/1", endpoint, makepath=True)
        await until(lambda: daemon.active and topic_online(daemon, 2), "the topic")
        samples = await cluster_state.metrics()
        prefix = "kafka_server_replicamanager_"
        assert samples[f"{prefix}underminisrpartitioncount"] == 1
        assert samples[f"{prefix}atminisrpartitioncount"] == 1
        zk.set("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"1"}}')
        note = b'{"version":2,"entity_path":"topics/t"}'
        path = zk.create("/config/changes/config_change_", note, sequence=True)
        assert daemon.term is not None
        cluster = daemon.term.machine.cluster
        await until(lambda: path in cluster.config_changes_seen, "the notification")
        samples = await cluster_state.metrics()
        assert samples[f"{prefix}underminisrpartitioncount"] == 0
        assert samples[f"{prefix}atminisrpartitioncount"] == 2
    await broker.stop()
