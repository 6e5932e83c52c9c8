"""Maintenance over real gRPC and a real ZooKeeper: every error, what is written, the timer, metrics and /state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.client import admin
from controller.core.model import Maintenance
from controller.runtime import state
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.rpc.server import start_server
from proto.gen import maintenance_pb2 as pb
from tests.support.runtime.admins import ask, error_name
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.daemons import running
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

PATH = "/controllers/maintenance"
TOPICS = {"t": '{"0":[1,2],"1":[2,1]}'}
WHY: dict[str, Any] = {"reason": "new disks", "author": "ann"}
ENDED: dict[str, Any] = {
    "SetPause": pb.SetPauseRequest(author="bob"),
    "SetMaintenance": pb.SetMaintenanceRequest(author="bob"),
    "SetDrain": pb.SetDrainRequest(broker_id=1, author="bob"),
}
REQUESTS: dict[str, Any] = {
    "SetPause": pb.SetPauseRequest(paused=True, **WHY),
    "SetMaintenance": pb.SetMaintenanceRequest(entered=True, **WHY),
    "SetDrain": pb.SetDrainRequest(broker_id=1, drained=True, **WHY),
}


async def put(active: Active, method: str, request: Any) -> Any:
    return await ask(active.daemon.grpc_endpoint, method, request)


async def describe(active: Active) -> Any:
    return await put(active, "DescribeMaintenance", pb.DescribeMaintenanceRequest())


def gauge(active: Active, name: str) -> float:
    found = active.daemon.registry.get_sample_value(f"partition_controller_{name}")
    assert found is not None
    return found


#: Several things are wrong with some: the first one in this order is told.
REFUSED = [
    ("SetPause", pb.SetPauseRequest(paused=True, author="a"), "INVALID_REQUEST"),
    ("SetMaintenance", pb.SetMaintenanceRequest(entered=True, reason="r"), "INVALID_REQUEST"),
    ("SetDrain", pb.SetDrainRequest(broker_id=-1, drained=True), "INVALID_REQUEST"),
    ("SetDrain", pb.SetDrainRequest(broker_id=9, drained=True, author="a"), "INVALID_REQUEST"),
    ("SetDrain", pb.SetDrainRequest(broker_id=9, drained=True, **WHY), "BROKER_NOT_AVAILABLE"),
    ("SetDrain", pb.SetDrainRequest(broker_id=1, drained=True, **WHY), "POLICY_VIOLATION"),
    ("CancelShutdown", pb.CancelShutdownRequest(broker_id=-1, broker_epoch=-1), "INVALID_REQUEST"),
    ("CancelShutdown", pb.CancelShutdownRequest(broker_id=1, broker_epoch=-2), "INVALID_REQUEST"),
    ("CancelShutdown", pb.CancelShutdownRequest(broker_id=9, broker_epoch=1), "BROKER_NOT_AVAILABLE"),
    ("CancelShutdown", pb.CancelShutdownRequest(broker_id=1, broker_epoch=1), "STALE_BROKER_EPOCH"),
]


async def test_every_error_in_its_precedence(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1)) as active:
        for method, request, error in REFUSED:
            answer = await put(active, method, request)
            assert (error_name(answer.error_code), bool(answer.error_message)) == (error, True), request
            if getattr(request, "broker_id", 0) < 0:
                assert answer.error_message == "broker_id = -1: must not be negative"
        assert not zk.exists(PATH)
        with pytest.raises(admin.RefusedError, match="refused SetDrain: POLICY_VIOLATION") as refused:
            await admin.ask(active.daemon.grpc_endpoint, "SetDrain", REQUESTS["SetDrain"], 5)
        assert refused.value.error == "POLICY_VIOLATION"
        assert not isinstance(refused.value, admin.NoAnswerError)
        # UNKNOWN_SERVER_ERROR: what is there cannot be read, and is not overwritten.
        zk.create(PATH, b"[]", makepath=True)
        answer = await put(active, "SetPause", REQUESTS["SetPause"])
        assert error_name(answer.error_code) == "UNKNOWN_SERVER_ERROR"
        assert PATH in answer.error_message
        assert zk.get(PATH)[0] == b"[]"


async def test_what_is_asked_is_stored_shown_and_outlives_the_controller(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    brokers = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, *brokers, topics=TOPICS) as active:
        for method in ("SetPause", "SetMaintenance", "SetDrain"):
            assert error_name((await put(active, method, REQUESTS[method])).error_code) == "NONE"
        assert (active.stored("t", 0)[0], active.stored("t", 1)[0]) == (2, 2)
        described = await describe(active)
        mark = pb.Attribution(**WHY)
        assert (described.paused, described.maintenance, described.drained[1]) == (mark, mark, mark)
        assert (described.entered_automatically, described.known_brokers, described.offline_limit) == (
            False,
            2,
            3,
        )
        names = ("paused", "in_maintenance", "maintenance_automatic", "drained_brokers")
        assert [gauge(active, name) for name in names] == [1, 1, 0, 1]
        assert (await state.state(active.daemon))["term"]["maintenance"]["entered"]["author"] == "ann"
        epoch = active.term.machine.cluster.brokers[2].epoch
        await active.caller.shut_down(2, epoch)
        assert list((await describe(active)).shutting_down) == [2]
        await put(active, "CancelShutdown", pb.CancelShutdownRequest(broker_id=2, broker_epoch=epoch))
        assert list((await describe(active)).shutting_down) == []
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path / "next"))
    server, port = await start_server(daemon, "127.0.0.1", 0)
    try:
        async with running(daemon):
            await until(lambda: daemon.active, "the failover")
            described = await ask(f"127.0.0.1:{port}", "DescribeMaintenance", pb.DescribeMaintenanceRequest())
            assert (described.paused, described.maintenance, described.drained[1]) == (mark, mark, mark)
            for method, request in ENDED.items():
                answer = await ask(f"127.0.0.1:{port}", method, request)
                assert error_name(answer.error_code) == "NONE"
            assert daemon.term is not None
            assert daemon.term.machine.cluster.maintenance == Maintenance()
    finally:
        await server.stop(0)
    assert json.loads(zk.get(PATH)[0])["drained"] == {}


async def test_it_is_entered_and_left_by_itself(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """The timer of the term looks whether it may end."""
    settings = Settings(
        zookeeper=zookeeper,
        state_log_dir=tmp_path,
        maintenance_offline_brokers_percentage=50,
        maintenance_offline_brokers_min=1,
        maintenance_healthy_seconds=0,
    )
    # What one topic alone names are no lost brokers.
    for name, letter in (("t", "A"), ("u", "Q")):
        data = f'{{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAA{letter}","partitions":{{"0":[1,2]}}}}'
        zk.create(f"/brokers/topics/{name}", data.encode(), makepath=True)
    zk.ensure_path("/brokers/ids")
    daemon = Daemon(settings)
    async with running(daemon):
        await until(lambda: daemon.active, "the failover")
        stored = await asyncio.to_thread(zk.get, PATH)
        found = json.loads(stored[0])
        assert (found["automatic"], found["entered"]["author"]) == (True, "controller 1")
        assert "2 of 2 brokers are gone (1, 2)" in found["entered"]["reason"]
        for broker_id in (1, 2):
            data = f'{{"version":4,"endpoints":["GRPC://127.0.0.1:{9000 + broker_id}"]}}'
            zk.create(f"/brokers/ids/{broker_id}", data.encode())
        assert daemon.term is not None
        cluster = daemon.term.machine.cluster
        await until(lambda: not cluster.maintenance.automatic, "the end of maintenance")
        assert json.loads(zk.get(PATH)[0])["entered"] is None
