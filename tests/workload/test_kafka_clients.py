"""Load by librdkafka, against the broker that librdkafka has for tests: the rest on real ones is in tests/kafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from controller.errors import EnvironmentFault
from controller.workload import kafka_clients
from controller.workload.history import Begun, Ended, Line, Noted, Read, load, value_of
from controller.workload.kafka_clients import TRANSACTION, Reader, Writer, partitions_of
from controller.workload.load import Load
from tests.support.runtime.sessions import until

TOPIC = "t"
#: This broker answers a fetch no sooner, also when there is something new.
SOON = {"fetch.wait.max.ms": 10}


@dataclass
class Kafka:
    """The broker lives as long as the producer. A topic is made when it is asked for, with four partitions."""

    producer: Producer
    settings: dict[str, Any] = field(default_factory=dict)

    def stored(self, partition: int, **more: Any) -> list[bytes]:
        """What a partition has."""
        wanted = {"group.id": "check", "auto.offset.reset": "earliest", "enable.partition.eof": True, **SOON}
        consumer = Consumer({**self.settings, **wanted, **more})
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        found: list[bytes] = []
        while True:
            message = consumer.poll(10)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return found
            found.append(message.value() or b"")


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(TOPIC, timeout=10).brokers.values()
    yield Kafka(producer, {"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
    producer.flush(10)


class Assigned(Consumer):
    """Has the first partition at once: a group takes three seconds to begin."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__({**settings, **SOON})

    def subscribe(self, topics: list[str], *_: Any, **__: Any) -> None:
        self.assign([TopicPartition(topic, 0, 0) for topic in topics])


def test_a_reader_that_is_told_to_stop_reads_what_was_written_before(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is busy with the first record while the last ones are acknowledged."""
    monkeypatch.setattr(kafka_clients, "Consumer", Assigned)
    got, goes_on = threading.Event(), threading.Event()
    lines: list[Line] = []

    def note(line: Line) -> None:
        lines.append(line)
        got.set()
        assert goes_on.wait(20)

    reader = Reader(3, TOPIC, {**kafka.settings, "enable.partition.eof": True}, note)
    for sequence in range(5):
        kafka.producer.produce(TOPIC, value_of(1, sequence, 20), partition=0)
        if sequence == 0:
            kafka.producer.flush(10)
            reader.start()
            assert got.wait(20)
    kafka.producer.flush(10)
    reader.finish()
    goes_on.set()
    reader.join(30)
    assert not reader.is_alive()
    reads = [line for line in lines if isinstance(line, Read)]
    assert [(r.reader, r.topic, r.partition, r.offset, r.writer, r.sequence) for r in reads] == [
        (3, TOPIC, 0, n, 1, n) for n in range(5)
    ]
    assert all(read.high_watermark == read.offset + 1 for read in reads), "a client is not told"
    # What it is told as an error is noted: that nothing is left, for example.
    notes = [line.text for line in lines if isinstance(line, Noted)]
    assert "_PARTITION_EOF" in notes[-1]
    assert reader.seen == {(1, n) for n in range(5)}


def writing(kafka: Kafka, records: int, **more: Any) -> tuple[Writer, list[Line]]:
    """A writer that was told to stop as it began so many records, and its history."""
    lines: list[Line] = []

    def note(line: Line) -> None:
        lines.append(line)
        if sum(isinstance(one, Begun) for one in lines) == records:
            writer.finish()

    writer = Writer(7, TOPIC, 3, 1000, {**kafka.settings, **more.pop("settings", {})}, note, **more)
    writer.start()
    writer.join(60)
    assert not writer.is_alive()
    return writer, lines


def test_what_is_set_counts_more_than_what_is_usual() -> None:
    given = {"acks": "1", "linger.ms": 7, "bootstrap.servers": "h:1"}
    settings = Writer(7, TOPIC, 3, 1000, given, lambda _: None)._settings
    assert given.items() <= settings.items()
    assert settings["enable.idempotence"] is True


def test_each_record_is_where_its_acknowledgement_says(kafka: Kafka) -> None:
    writer, lines = writing(kafka, 7)
    begun = [line for line in lines if isinstance(line, Begun)]
    assert [(b.writer, b.sequence, b.partition) for b in begun] == [(7, n, n % 3) for n in range(7)]
    stored = {partition: kafka.stored(partition) for partition in range(3)}
    assert {partition: len(found) for partition, found in stored.items()} == {0: 3, 1: 2, 2: 2}
    ended = [line for line in lines if isinstance(line, Ended)]
    assert sorted((e.sequence, e.attempts, e.error) for e in ended) == [(n, 1, "") for n in range(7)]
    for one in ended:
        assert one.offset is not None
        assert stored[one.sequence % 3][one.offset] == value_of(7, one.sequence, 100)
    assert (len(writer.acknowledged), writer.errors) == (7, [])


def test_a_record_that_was_given_up_is_an_error_and_may_have_landed(kafka: Kafka) -> None:
    slow = {"test.mock.num.brokers": 1, "test.mock.broker.rtt": 3000, "message.timeout.ms": 50}
    writer, lines = writing(kafka, 2, settings=slow)
    ended = [line for line in lines if isinstance(line, Ended)]
    assert sorted((e.sequence, e.attempts, e.offset) for e in ended) == [(0, 1, None), (1, 1, None)]
    assert all("timed out" in e.error for e in ended)
    assert len(writer.errors) == 2
    assert writer.acknowledged == []


def test_every_tenth_transaction_is_aborted_and_its_records_must_not_be_there(kafka: Kafka) -> None:
    writer, lines = writing(kafka, 10 * TRANSACTION, transactional=True)
    assert (writer.transactions, writer.errors) == ({"committed": 9, "aborted": 1, "unknown": 0}, [])
    ended = {line.sequence: line for line in lines if isinstance(line, Ended)}
    assert len(ended) == 10 * TRANSACTION
    aborted = range(9 * TRANSACTION, 10 * TRANSACTION)
    assert {n for n, one in ended.items() if one.attempts == 0} == set(aborted)
    assert {n for n, one in ended.items() if one.offset is None} == set(aborted)
    # They have reached the log: else a reader that gets none of them proves nothing.
    assert sum(len(kafka.stored(p, **{"isolation.level": "read_uncommitted"})) for p in range(3)) == 100


async def test_a_whole_workload_reads_what_was_acknowledged_last(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_clients, "Consumer", Assigned)
    plan = Load((kafka.settings["bootstrap.servers"],), TOPIC, tmp_path / "history", 2, 1, 200.0)
    stop = asyncio.Event()
    running = asyncio.create_task(kafka_clients.run(plan, stop))
    await until(lambda: plan.history.exists() and bool(load(plan.history).reads), "a record is read")
    stop.set()
    progress, history = await running, load(plan.history)
    assert (progress.begun, progress.acknowledged, progress.read) == (
        len(history.writes), len(history.writes), len(history.reads),
    )  # fmt: skip
    assert progress.given_up == 0
    assert {write.writer for write in history.writes} == {0, 1}
    assert {write.partition for write in history.writes} == {0, 1, 2, 3}
    first = {(write.writer, write.sequence) for write in history.writes if write.partition == 0}
    assert {(read.writer, read.sequence) for read in history.reads} == first


async def test_a_workload_whose_producers_met_errors_says_so(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[Writer] = []

    class Sharing(Writer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            writers.append(self)

    monkeypatch.setattr(kafka_clients, "Writer", Sharing)
    monkeypatch.setattr(kafka_clients, "VALUE_BYTES", 2_000_000)
    plan = Load((kafka.settings["bootstrap.servers"],), TOPIC, tmp_path / "history", 2, 0)
    stop = asyncio.Event()
    running = asyncio.create_task(kafka_clients.run(plan, stop))
    await until(lambda: len(writers) == 2 and all(writer.errors for writer in writers), "both failed")
    stop.set()
    with pytest.raises(EnvironmentFault, match=r"errors of producers: 2, the first: writer 0 ended: .*SIZE"):
        await running
    assert [writer.rate for writer in writers] == [100.0, 100.0], "they share the rate"


def test_a_topic_has_its_partitions_and_a_broker_that_does_not_answer_is_named(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert partitions_of(kafka.settings, TOPIC) == 4
    monkeypatch.setattr(kafka_clients, "DRAIN_S", 0.1)
    with pytest.raises(EnvironmentFault, match=r"no broker of 127.0.0.1:1 answers"):
        partitions_of({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, TOPIC)


class Asked:
    """A producer that is told this of the topic, one after the other; the last for ever."""

    def __init__(self, *errors: int | None) -> None:
        self.errors = list(errors)

    def __call__(self, _: Any) -> Asked:
        return self

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        code = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        found = SimpleNamespace(error=None if code is None else KafkaError(code), partitions={0: 0, 1: 0})
        return SimpleNamespace(topics={topic: found})


def test_only_a_topic_that_a_broker_has_not_heard_of_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of librdkafka has heard of every topic."""
    for heard in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
        monkeypatch.setattr(kafka_clients, "Producer", Asked(heard, None))
        assert partitions_of({}, TOPIC) == 2
    refused = Asked(KafkaError.TOPIC_AUTHORIZATION_FAILED, None)
    monkeypatch.setattr(kafka_clients, "Producer", refused)
    with pytest.raises(EnvironmentFault, match=r"topic t: .*AUTHORIZATION"):
        partitions_of({}, TOPIC)
    monkeypatch.setattr(kafka_clients, "Producer", Asked(KafkaError.UNKNOWN_TOPIC_OR_PART))
    monkeypatch.setattr(kafka_clients, "HEARD_S", 0.0)
    with pytest.raises(EnvironmentFault, match=r"topic t: .*UNKNOWN_TOPIC"):
        partitions_of({}, TOPIC)


def test_what_may_be_called_again_is_and_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "time", SimpleNamespace(sleep=lambda _: None))
    answers = [True, True, None, False]

    def call() -> None:
        if (again := answers.pop(0)) is not None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "late", False, again))

    kafka_clients._again(call)
    assert answers == [False]
    with pytest.raises(KafkaException):
        kafka_clients._again(call)


def test_acknowledgements_are_served_until_the_next_record_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll ends with the first one, here after 0.3 s each."""
    now_s, polls = 10.0, list[float]()

    def poll(timeout_s: float) -> None:
        nonlocal now_s
        polls.append(round(timeout_s, 1))
        now_s += min(timeout_s, 0.3)

    monkeypatch.setattr(kafka_clients, "time", SimpleNamespace(monotonic=lambda: now_s))
    producer: Any = SimpleNamespace(poll=poll)
    kafka_clients._serve_until(producer, 10.8)
    assert polls == [0, 0.8, 0.5, 0.2]
    kafka_clients._serve_until(producer, 10.0)
    assert polls[4:] == [0]
