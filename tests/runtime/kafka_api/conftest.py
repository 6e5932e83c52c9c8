"""A controller of Kafka's protocol without sockets and without ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.handlers import not_controller
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.topic_ids import uuid_text
from controller.runtime.kafka_api.api_table import SERVED, SERVED_VERSIONS
from controller.runtime.kafka_api.call import Call, Controller
from proto.kafka.apis import ApiKey
from proto.security.authorization import Operation, Principal, Resource
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

SOMEBODY = Principal("User:somebody", "127.0.0.1:1")
ID_OF_T = bytes(range(16))
HUNG_UP = (asyncio.IncompleteReadError, ConnectionError)


class Authorizer:
    def __init__(self) -> None:
        self.allowing, self.brokers_only = True, False
        self.denied: set[Operation] = set()

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        del principal, resource
        return self.allowing and operation not in self.denied

    def speaks_for(self, principal: Principal, broker_id: int) -> bool:
        del principal, broker_id
        return not self.brokers_only

    def is_controller(self, principal: Principal) -> bool:
        del principal
        return True


class Asked:
    """A controller that leads a cluster with the topics t and u. ``leads``: whether its core thinks so too."""

    def __init__(self, directory: Path) -> None:
        world = World(1, 2)
        world.create_topic("t", {0: [1, 2]}, topic_id=uuid_text(ID_OF_T))
        world.create_topic("u", {0: [2, 1]}, topic_id=uuid_text(b"u" * 16))
        rig = MachineHarness.active(world)
        rig.run()
        self.cluster, self.rig, self.leads = rig.cluster, rig, True
        #: What happens once a request is carried out.
        self.change: Callable[[], None] = lambda: None
        self.daemon = Daemon(Settings(state_log_dir=directory))
        self.authorizer = Authorizer()
        self.daemon.authorizer = self.authorizer
        self.requests: list[Any] = []
        self.daemon.kafka_addresses = {"": ("127.0.0.1", 1)}
        self.controller = Controller(self.daemon, SERVED_VERSIONS)
        self.term = SimpleNamespace(
            machine=rig.machine, kafka=SimpleNamespace(apis={}), brokers_informed=True, ask=self._core
        )

    async def _core(self, request: Any) -> Any:
        self.requests.append(request)
        if not self.leads:
            return not_controller(request)
        (answer,) = self.rig.ask(request)
        self.change()
        return answer

    def call(self, request: Any, version: int | None = None) -> Call[Any]:
        return Call(self.controller, request.VERSIONS[-1] if version is None else version, request, SOMEBODY)

    async def ask(self, request: Any, version: int | None = None) -> Any:
        return await SERVED[ApiKey(request.API_KEY)].handle(self.call(request, version))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    asked = Asked(tmp_path)
    monkeypatch.setattr(Controller, "term", asked.term)
    yield asked
    asked.daemon.state_log.close()
