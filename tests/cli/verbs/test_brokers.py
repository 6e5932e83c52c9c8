"""``pctl brokers``: what ZooKeeper has, and what the controller adds, as far as it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli.pctl import brokers
from controller.client import admin
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import admin_service_pb2 as pb
from tests.support.cli.verbs import Asked, refused, typed
from tests.support.core.world import a_broker


def test_who_cannot_tell_what_shuts_down_has_told_of_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = pb.DescribeClusterResponse(brokers=[pb.BrokerDescription(broker_id=1, pending_pushes=4)])

    async def described(*_: Any) -> pb.DescribeClusterResponse:
        return known

    now = ClusterState(100, "c:1", 7, brokers={b: a_broker(b, b) for b in (1, 2)})
    Asked(now, DescribeMaintenance=refused("DescribeMaintenance", "NOT_CONTROLLER", "no")).install(
        monkeypatch, brokers
    )
    monkeypatch.setattr(admin, "describe_cluster", described)
    shown = typed("brokers")
    assert [(row["broker"], row["pending_pushes"]) for row in json.loads(shown.stdout)] == [(1, 4), (2, None)]
    assert "NOT_CONTROLLER" in shown.stderr
