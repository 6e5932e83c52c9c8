"""Brokers that refuse the controller: it is told, nothing counts as done, and an epoch that went back is exceeded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2
from tests.support.cli.operator import pctl
from tests.support.runtime.clusters import controller, http, lines
from tests.support.runtime.pushes import FakeBroker

pytestmark = pytest.mark.slow


async def test_an_epoch_that_brokers_have_seen_is_exceeded(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """As after the restoration of an old backup, with brokers that go on refusing what is older."""

    async def answer(kind: str, request: Any) -> bytes:
        if request.controller_epoch > 41:
            return b""
        error = common_pb2.STALE_CONTROLLER_EPOCH
        return pb.UpdateMetadataResponse(error_code=error, controller_epoch=41).SerializeToString()

    broker = FakeBroker(1)
    broker.answer = answer
    await broker.start()
    register(zk, broker)
    zk.create("/controller_epoch", b"2")

    def attack() -> None:
        with controller(zookeeper, tmp_path) as running:
            # The first term may end before it is ready.
            running.until(lambda: any(line["controller_epoch"] == 42 for line in lines(running, "ready")))
            assert zk.get("/controller_epoch")[0] == b"42"
            (raised,) = lines(running, "epoch_raised")
            assert raised["to"] == 41
            created = pctl(zookeeper, "--timeout", "20", "topics", "create", "after")
            assert created.exit_code == 0, created.output

    try:
        await asyncio.to_thread(attack)
    finally:
        await broker.stop()


def register(zk: KazooClient, broker: FakeBroker) -> None:
    zk.ensure_path("/brokers/ids")
    registration = {
        "version": 5,
        "endpoints": [f"GRPC://127.0.0.1:{broker.port}"],
        "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
    }
    zk.create(f"/brokers/ids/{broker.id}", json.dumps(registration).encode(), ephemeral=True)


async def test_a_refusal_is_told_everywhere_and_no_topic_is_done(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    refusing = True

    async def answer(kind: str, request: Any) -> bytes:
        if kind != "LeaderAndIsr" or not refusing:
            return b""
        error = common_pb2.CLUSTER_AUTHORIZATION_FAILED
        return pb.LeaderAndIsrResponse(error_code=error).SerializeToString()

    broker = FakeBroker(1)
    broker.answer = answer
    await broker.start()
    register(zk, broker)

    def attack() -> None:
        nonlocal refusing
        with controller(zookeeper, tmp_path) as running:
            created = pctl(zookeeper, "--timeout", "3", "topics", "create", "t")
            assert created.exit_code == 1, created.output
            assert "t-0 (broker 1 refused to lead it: CLUSTER_AUTHORIZATION_FAILED)" in created.output
            (row,) = json.loads(pctl(zookeeper, "-o", "json", "brokers").stdout)
            assert row["push_problem"] == "refuses LeaderAndIsr: CLUSTER_AUTHORIZATION_FAILED"
            assert json.loads(pctl(zookeeper, "-o", "json", "cluster").stdout)["brokers_refusing_pushes"] == [
                1
            ]
            assert "broker 1 refuses LeaderAndIsr: CLUSTER_AUTHORIZATION_FAILED" in http(running, "/ready")
            assert 'partition_controller_broker_refuses_pushes{broker_id="1"} 1.0' in http(
                running, "/metrics"
            )
            assert json.loads(http(running, "/state"))["term"]["brokers"]["1"]["refuses"]

            refusing = False
            created = pctl(zookeeper, "--timeout", "20", "topics", "create", "u")
            assert created.exit_code == 0, created.output
            ready = http(running, "/ready")
            assert "refuses LeaderAndIsr: CLUSTER" not in ready
            # Nobody told the broker of the first topic again: this one cannot be audited.
            assert "broker 1 refuses LeaderAndIsr of 1 partition: CLUSTER_AUTHORIZATION_FAILED x1" in ready

    try:
        await asyncio.to_thread(attack)
    finally:
        await broker.stop()
