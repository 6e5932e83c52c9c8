"""Features over real gRPC: what is written to /feature, who is left out, and who gets which answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from proto.gen import admin_service_pb2
from proto.gen import features_pb2 as pb
from tests.support.runtime.admins import ask, error_name, errors
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


def register_anew(zk: KazooClient, broker: FakeBroker, **features: tuple[int, int]) -> None:
    """Gone and back: another incarnation, with these features."""
    path = f"/brokers/ids/{broker.id}"
    value = json.loads(zk.get(path)[0])
    value["features"] = {n: {"min_version": low, "max_version": high} for n, (low, high) in features.items()}
    transaction = zk.transaction()
    transaction.delete(path)
    transaction.create(path, json.dumps(value).encode())
    assert not any(isinstance(result, Exception) for result in transaction.commit())
    broker.epoch = zk.exists(path).czxid


def updates(*wanted: tuple[str, int, Any], **fields: Any) -> pb.UpdateFeaturesRequest:
    return pb.UpdateFeaturesRequest(
        updates=[pb.FeatureUpdate(name=n, max_version_level=v, upgrade_type=t) for n, v, t in wanted],
        **fields,
    )


async def supported(active: Active, broker: FakeBroker) -> None:
    await until(
        lambda: (
            (b := active.term.machine.cluster.brokers.get(broker.id)) is not None and b.epoch == broker.epoch
        ),
        "the broker",
    )


async def test_levels_are_judged_written_and_described(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    first, second = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, first, second) as active:
        endpoint = active.daemon.grpc_endpoint
        for broker in (first, second):
            register_anew(zk, broker, f=(1, broker.id + 1))
            await supported(active, broker)
        before = zk.get("/feature")
        assert before[0] == b'{"version":2,"status":1,"features":{}}'
        wanted = [("f", 2, pb.UPGRADE), ("", 1, pb.UPGRADE), ("f2", 1, pb.UPGRADE_TYPE_UNKNOWN), ("x", 1, 77)]
        for validate_only in (True, False):
            answer = await ask(endpoint, "UpdateFeatures", updates(*wanted, validate_only=validate_only))
            assert answer.error_code == 0
            assert [r.name for r in answer.results] == ["f", "", "f2", "x"]
            assert errors(answer.results) == ["NONE", *["INVALID_REQUEST"] * 3]
            assert "upgrade_type" in answer.results[3].error_message
            assert (zk.get("/feature")[0] == before[0]) is validate_only
        assert zk.get("/feature")[0] == b'{"version":2,"status":1,"features":{"f":{"max_version_level":2}}}'
        described = await ask(endpoint, "DescribeFeatures", pb.DescribeFeaturesRequest())
        assert [(f.name, f.max_version_level) for f in described.finalized] == [("f", 2)]
        assert [(f.name, f.min_version_level, f.max_version_level) for f in described.supported] == [
            ("f", 1, 2)
        ]
        assert described.finalized_epoch == before[1].version + 1


async def test_a_broker_without_the_level_is_ignored_and_shown(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    first, second = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, first, second) as active:
        endpoint, cluster = active.daemon.grpc_endpoint, active.term.machine.cluster
        for broker in (first, second):
            register_anew(zk, broker, f=(1, 2))
            await supported(active, broker)
        await ask(endpoint, "UpdateFeatures", updates(("f", 2, pb.UPGRADE)))
        register_anew(zk, second, f=(1, 1))
        await until(lambda: list(cluster.brokers) == [1], "the broker to be ignored")
        answer = await ask(endpoint, "DescribeCluster", admin_service_pb2.DescribeClusterRequest())
        assert [b.broker_id for b in answer.brokers] == [1]
        assert "does not support feature f at level 2" in answer.problems["/brokers/ids/2"]
        await ask(endpoint, "UpdateFeatures", updates(("f", 1, pb.SAFE_DOWNGRADE)))
        await supported(active, second)
        assert "/brokers/ids/2" not in cluster.problems


async def test_who_waits_when_the_controller_resigns_is_answered(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path) as active:
        # Nothing is decided while the loop's only step waits for the store.
        held = asyncio.Event()
        perform = active.term._store.perform

        async def slow(effect: Any) -> Any:
            await held.wait()
            return await perform(effect)

        active.term._store.perform = slow  # type: ignore[method-assign]
        waiting = [
            asyncio.ensure_future(ask(active.daemon.grpc_endpoint, method, request))
            for method, request in (
                ("UpdateFeatures", updates(("f", 1, pb.UPGRADE))),
                ("DescribeFeatures", pb.DescribeFeaturesRequest()),
            )
        ]
        await until(lambda: len(active.term._callers) == 2, "the callers")
        active.daemon.stop()
        answers = await asyncio.gather(*waiting)
    assert [error_name(a.error_code) for a in answers] == ["NOT_CONTROLLER"] * 2
