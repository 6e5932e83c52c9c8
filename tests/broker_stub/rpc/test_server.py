"""The gRPC server and the process around it, in this process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from broker_stub import daemon, settings
from broker_stub.control.gates import ControllerTerm
from broker_stub.control.handlers import ControlHandlers
from broker_stub.rpc.access import Guard
from broker_stub.rpc.server import BrokerServer
from broker_stub.rpc.terms import Terms, TermUnavailable
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.security.access import AuthorizerSettings, access_of
from tests.support.broker.builders import BrokerHarness, leader_state

#: Everyone may do everything.
OPEN = Guard(access_of(AuthorizerSettings(), []))
METHOD = "/partition_controller.v1.BrokerControl/LeaderAndIsr"


@pytest.fixture
def control_worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as worker:
        yield worker


async def call(port: int, message: bytes) -> wire.LeaderAndIsrResponse:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        invoke: Any = channel.unary_unary(METHOD)
        return wire.LeaderAndIsrResponse.FromString(await invoke(message, timeout=60))


def registered() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def terms(*epochs: int) -> Terms:
    """Each look finds the next of these epochs, the last one for ever; 0 if there are none."""
    left = [*epochs] or [0]

    async def read(look: int) -> ControllerTerm:
        epoch = left.pop(0) if len(left) > 1 else left[0]
        return ControllerTerm(look, epoch, epoch, 0)

    return Terms(read)


async def test_orders_for_a_former_process_of_the_broker_wait_and_are_refused(
    control_worker: ThreadPoolExecutor,
) -> None:
    """Until its own registration is there, a controller believes that the former process is alive."""
    broker, known = BrokerHarness(), asyncio.Event()
    broker.handlers.gate.broker_epoch = -1
    server = BrokerServer(broker.handlers, control_worker, {}, lambda bug: None, known, terms(), OPEN, None)
    port = await server.start("127.0.0.1", 0)
    former = wire.LeaderAndIsrRequest(broker_epoch=5, partition_states=[leader_state(partition=0)])
    try:
        asked = asyncio.create_task(call(port, former.SerializeToString()))
        await asyncio.wait([asked], timeout=0.3)
        assert not asked.done()
        assert broker.handlers.replicas.get("foo", 0) is None
        broker.handlers.registered(9)
        known.set()
        assert (await asked).error_code == codes.STALE_BROKER_EPOCH
    finally:
        await server.stop(0)


async def test_a_bug_in_a_handler_is_answered_and_reported(
    monkeypatch: pytest.MonkeyPatch, control_worker: ThreadPoolExecutor
) -> None:
    handlers = BrokerHarness().handlers

    def broken(*_: object) -> wire.LeaderAndIsrResponse:
        raise RuntimeError("a bug")

    monkeypatch.setattr(handlers, "leader_and_isr", broken)
    bugs: list[BaseException] = []
    server = BrokerServer(handlers, control_worker, {}, bugs.append, registered(), terms(), OPEN, None)
    port = await server.start("127.0.0.1", 0)
    try:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(port, b"")
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        assert [str(bug) for bug in bugs] == ["a bug"]
    finally:
        await server.stop(0)


async def test_garbage_and_strangers_are_refused_and_end_nothing(
    monkeypatch: pytest.MonkeyPatch, control_worker: ThreadPoolExecutor
) -> None:
    broker, bugs = BrokerHarness(), list[BaseException]()
    server = BrokerServer(broker.handlers, control_worker, {}, bugs.append, registered(), terms(), OPEN, None)
    port = await server.start("127.0.0.1", 0)
    order = wire.LeaderAndIsrRequest(partition_states=[leader_state()]).SerializeToString()
    try:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(port, b"\xff")
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with monkeypatch.context() as patch:
            patch.setattr(Guard, "may_control", lambda *_: False)
            assert (await call(port, order)).error_code == codes.CLUSTER_AUTHORIZATION_FAILED
        assert not broker.hosts("foo", 0)
        assert (await call(port, order)).error_code == codes.NONE
    finally:
        await server.stop(0)
    assert (broker.hosts("foo", 0), bugs) == (True, [])


async def test_a_made_up_controller_epoch_is_looked_up_and_refused(
    control_worker: ThreadPoolExecutor,
) -> None:
    broker = BrokerHarness()
    server = BrokerServer(
        broker.handlers, control_worker, {}, lambda bug: None, registered(), terms(1, 1, 2), OPEN, None
    )
    port = await server.start("127.0.0.1", 0)

    async def lead(epoch: int) -> int:
        request = wire.LeaderAndIsrRequest(controller_epoch=epoch, partition_states=[leader_state()])
        return (await call(port, request.SerializeToString())).error_code

    try:
        assert [await lead(1), await lead(2**31 - 1)] == [codes.NONE, codes.STALE_CONTROLLER_EPOCH]
        assert broker.handlers.gate.controller_epoch == 1
        # The next controller is not locked out.
        assert [await lead(2), await lead(1)] == [codes.NONE, codes.STALE_CONTROLLER_EPOCH]
    finally:
        await server.stop(0)


async def test_control_requests_are_handled_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that wait for a look at who the controller is."""
    handlers, threads = BrokerHarness().handlers, list[str]()
    handle = handlers.leader_and_isr

    def noted(*asked: Any) -> wire.LeaderAndIsrResponse:
        threads.append(threading.current_thread().name)
        return handle(*asked)

    monkeypatch.setattr(handlers, "leader_and_isr", noted)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="control") as worker:
        server = BrokerServer(handlers, worker, {}, lambda bug: None, registered(), terms(1), OPEN, None)
        port = await server.start("127.0.0.1", 0)
        try:
            await call(port, wire.LeaderAndIsrRequest(controller_epoch=1).SerializeToString())
        finally:
            await server.stop(0)
    assert threads == ["control_0"] * 2


async def test_who_cannot_look_asks_the_controller_to_send_again(control_worker: ThreadPoolExecutor) -> None:
    async def away(_look: int) -> ControllerTerm:
        raise TermUnavailable("no ZooKeeper session")

    server = BrokerServer(
        BrokerHarness().handlers, control_worker, {}, lambda bug: None, registered(), Terms(away), OPEN, None
    )
    port = await server.start("127.0.0.1", 0)
    try:
        with pytest.raises(grpc.aio.AioRpcError, match="no ZooKeeper session") as caught:
            await call(port, wire.LeaderAndIsrRequest(controller_epoch=5).SerializeToString())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    finally:
        await server.stop(0)


async def test_requests_of_many_callers_are_served_one_at_a_time(
    control_worker: ThreadPoolExecutor,
) -> None:
    """Each new leader epoch is answered NONE exactly once, however the calls interleave."""
    broker = BrokerHarness()
    server = BrokerServer(
        broker.handlers, control_worker, {}, lambda bug: None, registered(), terms(), OPEN, None
    )
    port = await server.start("127.0.0.1", 0)
    request = wire.LeaderAndIsrRequest(
        partition_states=[leader_state(partition=n) for n in range(200)]
    ).SerializeToString()
    try:
        responses = await asyncio.gather(*(call(port, request) for _ in range(10)))
    finally:
        await server.stop(0)
    for at in range(200):
        assert sorted(r.partition_errors[at].error_code for r in responses) == [0, *[11] * 9]


def test_an_unexpected_error_dumps_the_state_and_exits_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_self: ControlHandlers, to: str, cause: str, reason: str) -> None:
        if to == "started":
            raise RuntimeError("a bug")

    monkeypatch.setattr(ControlHandlers, "lifecycle", broken)
    monkeypatch.setattr(daemon, "configure_logging", lambda *_, **__: None)
    flags = {"broker_id": "1", "zookeeper": "127.0.0.1:1", "listen": "127.0.0.1:0", "data_dir": str(tmp_path)}
    assert daemon.run(settings.load(flags, {})) == 1
    (dump,) = (tmp_path / "state-log").glob("crash-*.txt")
    text = dump.read_text()
    assert "RuntimeError: a bug" in text
    state = json.loads(text[text.index("\n{") :])
    assert (state["broker_id"], state["replication"]["partitions"], state["groups"]["groups"]) == (1, [], {})


@pytest.mark.slow
def test_fifty_thousand_partitions_in_one_request() -> None:
    broker = BrokerHarness(broker_id=1)
    states = [
        leader_state(f"t{n % 1000}", n // 1000, leader=n % 3, replicas=[0, 1, 2]) for n in range(50_000)
    ]
    assert set(broker.lead(*states)) == {"NONE"}
    assert set(broker.lead(*states)) == {"STALE_CONTROLLER_EPOCH"}
    assert len(broker.handlers.replicas) == 50_000
