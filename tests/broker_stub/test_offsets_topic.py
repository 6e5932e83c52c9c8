"""The number of partitions of ``__consumer_offsets`` maps groups to partitions: it must not be guessed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_stub import offsets_topic
from broker_stub.errors import BrokerError
from broker_stub.offsets_topic import OffsetsTopic
from broker_stub.replication.service import OFFSETS_TOPIC
from tests.support.broker.builders import Harness, metadata_state


class Rig:
    """A broker's metadata, and ZooKeeper's answers to come: a number, None, or an error."""

    def __init__(self, *answers: int | BrokerError | None) -> None:
        self.broker = Harness()
        self._answers = list(answers)
        self.asked: list[str] = []
        unused: Any = None
        self.topic = OffsetsTopic(unused, self.broker.handlers.metadata, unused, self._count, 1.0, 50, 3)

    async def _count(self, topic: str) -> int | None:
        self.asked.append(topic)
        answer = self._answers.pop(0)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def tell(self, *numbers: int) -> None:
        states = [metadata_state(topic=OFFSETS_TOPIC, partition=number) for number in numbers]
        assert self.broker.update(*states) == "NONE"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_topic, "_RETRY_S", 0.0)


async def test_metadata_that_has_come_in_part_says_nothing_of_the_number() -> None:
    rig = Rig(5)
    rig.tell(0)
    assert rig.topic.partition_count() is None
    await rig.topic.learn()
    assert rig.topic.partition_count() == 5
    rig.tell(*range(1, 7))
    await rig.topic.learn()
    assert rig.topic.partition_count() == 5
    assert rig.asked == [OFFSETS_TOPIC]


async def test_it_is_asked_for_until_there_is_an_answer() -> None:
    rig = Rig(BrokerError("away"), None, 7)
    rig.tell(0)
    await asyncio.gather(rig.topic.learn(), rig.topic.learn())
    assert rig.topic.partition_count() == 7
    assert len(rig.asked) == 3


async def test_nothing_is_asked_of_a_topic_that_nobody_knows() -> None:
    rig = Rig()
    await rig.topic.learn()
    assert rig.topic.partition_count() is None
    assert not rig.asked


async def test_the_next_topic_of_the_name_may_have_another_number() -> None:
    rig = Rig(5, 9)
    rig.tell(0)
    await rig.topic.learn()
    rig.topic.forget()
    assert rig.topic.partition_count() is None
    await rig.topic.learn()
    assert rig.topic.partition_count() == 9
