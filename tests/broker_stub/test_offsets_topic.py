"""The number of partitions of ``__consumer_offsets`` maps groups to partitions: it must not be guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_stub import offsets_topic
from broker_stub.errors import BrokerError
from broker_stub.offsets_topic import OffsetsTopic
from broker_stub.replication.service import OFFSETS_TOPIC
from proto.gen import common_pb2 as codes
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness, metadata_state
from tests.support.broker.replication_fakes import Broker, batch, content, decoded, leaping, log_of, order


class OffsetsTopicHarness:
    """A broker's metadata, and ZooKeeper's answers to come: a number, None, or an error."""

    def __init__(self, *answers: int | BrokerError | None) -> None:
        self.broker = BrokerHarness()
        self._answers = list(answers)
        self.asked: list[str] = []
        #: Called once, after ZooKeeper has answered and before the answer is there.
        self.while_asked: Callable[[], None] | None = None
        unused: Any = None
        self.topic = OffsetsTopic(unused, self.broker.handlers.metadata, unused, self._count, 1.0, 50, 3)

    async def _count(self, topic: str) -> int | None:
        self.asked.append(topic)
        answer = self._answers.pop(0)
        if isinstance(answer, BrokerError):
            raise answer
        happening, self.while_asked = self.while_asked, None
        if happening is not None:
            happening()
        return answer

    def update_metadata(self, *numbers: int, topic_id: str = "") -> None:
        states = [metadata_state(topic=OFFSETS_TOPIC, partition=number) for number in numbers]
        topic_ids = {OFFSETS_TOPIC: topic_id} if topic_id else {}
        assert self.broker.update(*states, topic_ids=topic_ids) == "NONE"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_topic, "_RETRY_S", 0.0)


async def test_metadata_that_has_come_in_part_says_nothing_of_the_number() -> None:
    harness = OffsetsTopicHarness(5)
    harness.update_metadata(0)
    assert harness.topic.partition_count() is None
    await harness.topic.learn()
    assert harness.topic.partition_count() == 5
    harness.update_metadata(*range(1, 7))
    await harness.topic.learn()
    assert harness.topic.partition_count() == 5
    assert harness.asked == [OFFSETS_TOPIC]


async def test_it_is_asked_for_until_there_is_an_answer() -> None:
    harness = OffsetsTopicHarness(BrokerError("away"), None, 7)
    harness.update_metadata(0)
    await asyncio.gather(harness.topic.learn(), harness.topic.learn())
    assert harness.topic.partition_count() == 7
    assert len(harness.asked) == 3


async def test_nothing_is_asked_of_a_topic_that_nobody_knows() -> None:
    harness = OffsetsTopicHarness()
    await harness.topic.learn()
    assert harness.topic.partition_count() is None
    assert not harness.asked


async def test_the_next_topic_of_the_name_may_have_another_number() -> None:
    harness = OffsetsTopicHarness(5, 9)
    harness.update_metadata(0)
    await harness.topic.learn()
    harness.topic.metadata_changed([(OFFSETS_TOPIC, 0)])
    assert harness.topic.partition_count() is None
    await harness.topic.learn()
    assert harness.topic.partition_count() == 9


async def test_who_missed_that_the_topic_was_deleted_asks_for_the_number_of_the_next() -> None:
    harness = OffsetsTopicHarness(5, 9)
    for topic_id, count in ((ID_X, 5), (ID_Y, 9)):
        harness.update_metadata(0, topic_id=topic_id)
        harness.topic.metadata_changed([])
        await harness.topic.learn()
        assert harness.topic.partition_count() == count
    harness.update_metadata(0, topic_id=ID_Y)
    harness.topic.metadata_changed([("foo", 0)])
    assert harness.topic.partition_count() == 9


async def test_an_answer_about_the_former_topic_is_not_that_of_the_next() -> None:
    harness = OffsetsTopicHarness(5, 9)
    harness.update_metadata(0)
    learning = asyncio.create_task(harness.topic.learn())
    harness.while_asked = lambda: harness.topic.metadata_changed([(OFFSETS_TOPIC, 0)])
    await learning
    assert harness.topic.partition_count() == 9


@leaping
async def test_a_new_coordinator_reads_what_is_not_committed_yet_too() -> None:
    """It will be: the new leader has it. Read up to the high watermark only, the newest offsets would be lost."""
    key = (OFFSETS_TOPIC, 0)
    broker = Broker(0, high_watermarks={key: 1})
    source = log_of((3, ["committed", "newest"]))
    broker.logs.open(key).append_as_follower(source.read(0, 2**31, source.log_end_offset))
    await broker.leader_and_isr(order(0, 7, key=key))
    unused: Any = None
    topic = OffsetsTopic(broker.manager, broker.metadata, unused, unused, 1.0, 50, 3)
    assert broker.partition(key).high_watermark == 1
    assert decoded(topic.read(0, 0)) == [(3, "committed"), (3, "newest")]
    broker.manager.append(broker.partition(key), batch("later"), 1)
    assert decoded(topic.read(0, 2)) == [(7, "later")]
    assert topic.read(0, 3) == b""
    assert broker.partition(key).high_watermark == 1
    assert len(content(broker.log(key))) == 3


@leaping
async def test_offsets_that_too_few_would_have_are_not_written() -> None:
    key = (OFFSETS_TOPIC, 0)
    broker = Broker(0, least=2)
    await broker.leader_and_isr(order(0, 3, (0,), key=key))
    unused: Any = None
    topic = OffsetsTopic(broker.manager, broker.metadata, unused, unused, 1.0, 50, 3)
    assert await topic.append(0, batch("a")) == codes.NOT_ENOUGH_REPLICAS
    assert broker.log(key).log_end_offset == 0
