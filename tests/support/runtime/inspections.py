"""A controller of three brokers to be asked about, and the questions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from proto.gen import inspection_pb2 as pb
from tests.support.runtime.admins import ask, error_name
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.pushes import FakeBroker

TOPICS = {"t": '{"0":[1,2,3],"1":[2,3,1]}', "u": '{"0":[3]}'}
SIGNED: dict[str, Any] = {"reason": "kernel", "author": "ann"}


@asynccontextmanager
async def three(
    connect: str, zk: KazooClient, directory: Path, **settings: Any
) -> AsyncIterator[tuple[Active, str]]:
    """A controller of three brokers, topic t with two partitions on all of them, and u on 3 alone."""

    def before(daemon: Daemon) -> None:
        daemon.settings = Settings(zookeeper=connect, state_log_dir=directory, **settings)

    brokers = [FakeBroker(id_) for id_ in (1, 2, 3)]
    async with controller(connect, zk, directory, *brokers, topics=TOPICS, before=before) as active:
        yield active, active.daemon.grpc_endpoint


def planned(answer: Any) -> Any:
    assert error_name(answer.error_code) == "NONE", answer.error_message
    return json.loads(answer.plan)


async def explained(endpoint: str, **subject: Any) -> dict[str, Any]:
    answer = await ask(endpoint, "Explain", pb.ExplainRequest(**subject))
    assert error_name(answer.error_code) == "NONE", answer.error_message
    found: dict[str, Any] = json.loads(answer.explanation)
    return found


def plan_of(**fields: Any) -> pb.PlanRequest:
    return pb.PlanRequest(**fields)


def check(*ids: int, **fields: Any) -> pb.CheckStoppableRequest:
    return pb.CheckStoppableRequest(broker_ids=ids, **fields)
