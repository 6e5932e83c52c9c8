"""Answers of the server of Kafka's protocol, without sockets and without ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from controller.core.handlers import not_controller
from controller.core.model import Topic
from controller.core.requests.errors import ErrorCode
from controller.runtime.authorization import Operation, Principal, Resource
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.topic_ids import uuid_bytes, uuid_text
from controller.runtime.kafka_api.api_table import SERVED, SERVED_VERSIONS
from controller.runtime.kafka_api.call import LOGGED_MAX, Call, Controller
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.kafka.apis import APIS, ApiKey
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

SOMEBODY = Principal("User:somebody", "127.0.0.1:1")
ID_OF_T = bytes(range(16))


class Authorizer:
    def __init__(self) -> None:
        self.allowing = True

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        del principal, operation, resource
        return self.allowing


class LookedUp(dict[str, Topic]):
    """Topics that are only looked up by name: to go through all of them is an error."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics are looked at")

    values = items = keys = __iter__  # type: ignore[assignment]


class Asked:
    """A controller that leads a cluster with the topics t and u, and refuses what would change it."""

    def __init__(self, directory: Path) -> None:
        world = World(1, 2)
        world.create_topic("t", {0: [1, 2]}, topic_id=uuid_text(ID_OF_T))
        world.create_topic("u", {0: [2, 1]}, topic_id=uuid_text(b"u" * 16))
        rig = MachineHarness.active(world)
        rig.run()
        self.cluster = rig.cluster
        self.daemon = Daemon(Settings(state_log_dir=directory))
        self.authorizer = self.daemon.authorizer = Authorizer()
        self.daemon.kafka_addresses = {"": ("127.0.0.1", 1)}
        self.controller = Controller(self.daemon, SERVED_VERSIONS)
        self.term = SimpleNamespace(
            machine=rig.machine, kafka=SimpleNamespace(apis={}), brokers_informed=True, ask=self._refuse
        )

    async def _refuse(self, request: Any) -> Any:
        return not_controller(request)

    async def ask(self, request: Any, version: int | None = None) -> Any:
        version = request.VERSIONS[-1] if version is None else version
        return await SERVED[ApiKey(request.API_KEY)].handle(Call(self.controller, version, request, SOMEBODY))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    asked = Asked(tmp_path)
    monkeypatch.setattr(Controller, "term", asked.term)
    yield asked
    asked.daemon.state_log.close()


def by_id(*ids: bytes) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(topic_id=each, name=None) for each in ids]


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


async def test_no_id_makes_the_controller_look_at_all_topics(asked: Asked) -> None:
    asked.cluster.topics = LookedUp(asked.cluster.topics)
    answer = await asked.ask(MetadataRequest(by_id(b"1" * 16, b"2" * 16, ID_OF_T)))
    assert [each.error_code for each in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
    ]


async def test_a_topic_is_answered_once_however_often_it_is_named(asked: Asked) -> None:
    named = await asked.ask(MetadataRequest(by_name("t", "nope", "t", "u", "nope", "t")))
    assert [each.name for each in named.topics] == ["t", "nope", "u"]
    found = await asked.ask(MetadataRequest(by_id(*[ID_OF_T, b"x" * 16] * 100)))
    assert [each.topic_id for each in found.topics] == [ID_OF_T, b"x" * 16]


async def test_few_denials_of_one_request_are_logged(asked: Asked) -> None:
    asked.authorizer.allowing = False
    with structlog.testing.capture_logs() as logged:
        await asked.ask(MetadataRequest(by_name(*[f"n{n}" for n in range(100)])))
        assert len(logged) == LOGGED_MAX
    with structlog.testing.capture_logs() as logged:
        await asked.ask(DeleteTopicsRequest(topic_names=["t", "u"] * 10), 5)
        assert sorted(each["resource"] for each in logged) == ["topic 't'", "topic 'u'"]


@pytest.mark.parametrize("version", [10, 11])
async def test_unknown_ids_are_answered_in_versions_whose_names_are_never_null(
    asked: Asked, version: int
) -> None:
    answer = await asked.ask(MetadataRequest(by_id(b"x" * 16)), version)
    assert [(each.error_code, each.name) for each in answer.topics] == [(ErrorCode.UNKNOWN_TOPIC_ID, "")]
    answer.encode(version)


async def test_topics_whose_deletion_has_begun_are_not_listed(asked: Asked) -> None:
    asked.cluster.topics_deletion_started.add("u")
    assert [each.name for each in (await asked.ask(MetadataRequest(None))).topics] == ["t"]
    asked.cluster.topics["t"].deleted = True
    assert (await asked.ask(MetadataRequest(None))).topics == []
