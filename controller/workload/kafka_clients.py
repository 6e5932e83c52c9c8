"""Load on Kafka brokers by librdkafka: idempotent or transactional producers, and a consumer group. Threads.

Needs the package confluent-kafka, which the extra "kafka" brings. ``run`` is a whole workload, as ``load.run`` is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from controller.errors import EnvironmentFault
from controller.workload.history import Begun, Ended, HistoryFile, Line, Noted, Read, content_of, value_of
from controller.workload.load import FLUSH_S, Load
from controller.workload.writers import Progress, now_us

#: Length of an unpadded value; room for the name.
VALUE_BYTES = 100
#: The longest that producers wait for answers at the end, seconds.
DRAIN_S = 120.0
#: A reader has read all when nothing comes for so long, twice as long as a fetch waits at the broker; and the longest
#: that it reads on at the end, seconds.
QUIET_S, READ_ON_S = 1.0, 30.0
#: How long a broker may take to hear of a topic, seconds.
HEARD_S = 15.0
#: What a broker says of a topic or a leader that it has not heard of.
NOT_HEARD_OF = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
#: Records in one transaction.
TRANSACTION = 10


class Writer(threading.Thread):
    """Sends records one after another to all partitions in turn until it is told to stop.

    ``rate``: records a second; ``settings``: librdkafka's, above all bootstrap.servers; ``note`` is called with every
    line of its history, from its thread.
    """

    def __init__(
        self,
        number: int,
        topic: str,
        partitions: int,
        rate: float,
        settings: Mapping[str, Any],
        note: Callable[[Line], None],
        *,
        transactional: bool = False,
    ) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.number, self.topic, self.partitions, self.rate = number, topic, partitions, rate
        self.transactional = transactional
        self._note = note
        #: Monotonic times of acknowledgements.
        self.acknowledged: list[float] = []
        self.errors: list[str] = []
        self.transactions = {"committed": 0, "aborted": 0, "unknown": 0}
        self._open: dict[int, Ended] = {}
        self._stop_asked = threading.Event()
        self._settings = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            # With more, librdkafka may write a record twice when a leader changes (docs/kafka.md).
            "max.in.flight": 1,
            "message.timeout.ms": 120_000,
            "topic.metadata.refresh.interval.ms": 10_000,
            **(
                {"transactional.id": f"{topic}-{number}", "transaction.timeout.ms": 120_000}
                if transactional
                else {}
            ),
            **settings,
        }

    def finish(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        try:
            producer = Producer(self._settings)
            if self.transactional:
                self._transactions(producer)
            else:
                self._records(producer)
        except (KafkaException, BufferError) as error:
            self.errors.append(f"writer {self.number} ended: {error}")

    def _records(self, producer: Producer) -> None:
        sequence, began = 0, time.monotonic()
        while not self._stop_asked.is_set():
            self._send(producer, sequence)
            sequence += 1
            _serve_until(producer, began + sequence / self.rate)
        if left := producer.flush(DRAIN_S):
            self.errors.append(f"writer {self.number}: {left} records without an answer")

    def _transactions(self, producer: Producer) -> None:
        """Transactions of TRANSACTION records, every tenth aborted on purpose."""
        _again(lambda: producer.init_transactions(DRAIN_S))
        sequence, count = 0, 0
        while not self._stop_asked.is_set():
            producer.begin_transaction()
            self._open = {}
            for _ in range(TRANSACTION):
                self._send(producer, sequence)
                sequence += 1
                _serve_until(producer, time.monotonic() + 1 / self.rate)
            count += 1
            outcome = self._end(producer, commit=count % 10 != 0)
            self.transactions[outcome] += 1
            for ended in self._open.values():
                # What was aborted must never be seen; of an unknown outcome, each record may be there once.
                attempts = 0 if outcome == "aborted" else 1
                offset = ended.offset if outcome == "committed" else None
                self._note(Ended(ended.writer, ended.sequence, attempts, ended.at_us, offset, ended.error))

    def _end(self, producer: Producer, *, commit: bool) -> str:
        # What is aborted must have reached the log, else it proves nothing.
        producer.flush(DRAIN_S)
        try:
            if commit:
                _again(lambda: producer.commit_transaction(DRAIN_S))
                return "committed"
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                self.errors.append(f"writer {self.number}: commit: {error}")
                raise
            self.errors.append(f"writer {self.number}: commit refused, aborted: {error}")
        _again(lambda: producer.abort_transaction(DRAIN_S))
        return "aborted"

    def _send(self, producer: Producer, sequence: int) -> None:
        partition = sequence % self.partitions
        value = value_of(self.number, sequence, VALUE_BYTES)
        crc = content_of(value).crc
        self._note(Begun(self.number, sequence, self.topic, partition, crc, now_us()))

        def delivered(error: KafkaError | None, message: Message) -> None:
            at_us = now_us()
            if error is None:
                self.acknowledged.append(time.monotonic())
                ended = Ended(self.number, sequence, 1, at_us, message.offset())
            else:
                self.errors.append(f"record {sequence} of writer {self.number}: {error}")
                ended = Ended(self.number, sequence, 1, at_us, None, str(error))
            if self.transactional:
                self._open[sequence] = ended
            else:
                self._note(ended)

        while True:
            try:
                producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
                return
            except BufferError:
                producer.poll(0.1)


def _serve_until(producer: Producer, due_s: float) -> None:
    """Handle acknowledgements until then, at least once: a poll ends with the first one."""
    producer.poll(0)
    while (left_s := due_s - time.monotonic()) > 0:
        producer.poll(left_s)


def _again(call: Any) -> None:
    """Call until it does not ask to be called again."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            time.sleep(0.1)


class Reader(threading.Thread):
    """A member of a consumer group that notes all it gets, until it is told to stop and nothing comes any more.
    Arguments: as Writer's."""

    def __init__(
        self, number: int, topic: str, settings: Mapping[str, Any], note: Callable[[Line], None]
    ) -> None:
        super().__init__(name=f"reader-{number}", daemon=True)
        self.number, self.topic = number, topic
        self._note = note
        self.seen: set[tuple[int, int]] = set()
        self._stop_asked = threading.Event()
        self._settings = {
            "group.id": f"{topic}-group",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            **settings,
        }

    def finish(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self.topic])
        try:
            while not self._stop_asked.is_set():
                self._poll(consumer, 0.1)
            ends = time.monotonic() + READ_ON_S
            while self._poll(consumer, QUIET_S) and time.monotonic() < ends:
                pass
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer, timeout_s: float) -> bool:
        """Whether there was anything."""
        message = consumer.poll(timeout_s)
        if message is None:
            return False
        if error := message.error():
            self._note(Noted(f"reader {self.number}: {error}", now_us()))
        else:
            self._got(message)
        return True

    def _got(self, message: Message) -> None:
        content = content_of(message.value())
        offset = message.offset() or 0
        self.seen.add((content.writer, content.sequence))
        # A client is not told the high watermark: the record is taken to be below it.
        self._note(
            Read(self.number, self.topic, message.partition() or 0, offset, *content, offset + 1, now_us())
        )


async def run(load: Load, stop: asyncio.Event) -> Progress:
    """Idempotent producers and a group until ``stop`` is set and all sends have ended; then the group ends.

    The history must not exist yet. Raises EnvironmentFault if no broker tells of the topic, and OSError.
    """
    settings = {"bootstrap.servers": ",".join(load.bootstrap)}
    partitions = await asyncio.to_thread(partitions_of, settings, load.topic)
    history, lock, progress = HistoryFile(load.history), threading.Lock(), Progress()

    def note(line: Line) -> None:
        with lock:
            history.add(line)
            match line:
                case Begun():
                    progress.begun += 1
                case Ended():
                    progress.given_up += line.offset is None
                    progress.acknowledged += line.offset is not None
                case Read():
                    progress.read += 1

    writers = [
        Writer(number, load.topic, partitions, load.rate / load.writers, settings, note)
        for number in range(load.writers)
    ]
    readers = [Reader(number, load.topic, settings, note) for number in range(load.readers)]
    threads: list[Writer | Reader] = [*writers, *readers]
    try:
        for thread in threads:
            thread.start()
        while not stop.is_set():
            await asyncio.sleep(FLUSH_S)
            with lock:
                history.flush()
    finally:
        # Readers end last: they must see the last records.
        for thread in threads:
            thread.finish()
            await asyncio.to_thread(thread.join)
        history.close()
    if errors := [error for writer in writers for error in writer.errors]:
        raise EnvironmentFault(f"errors of producers: {len(errors)}, the first: {errors[0]}")
    return progress


def partitions_of(settings: Mapping[str, Any], topic: str) -> int:
    """How many there are, as soon as the broker that is asked has heard of the topic. Raises EnvironmentFault."""
    producer, ends = Producer(dict(settings)), time.monotonic() + HEARD_S
    while True:
        try:
            found = producer.list_topics(topic, timeout=DRAIN_S).topics[topic]
        except KafkaException as error:
            raise EnvironmentFault(f"no broker of {settings['bootstrap.servers']} answers: {error}") from None
        if found.error is None:
            return len(found.partitions)
        if found.error.code() not in NOT_HEARD_OF or time.monotonic() > ends:
            raise EnvironmentFault(f"topic {topic}: {found.error}")
        time.sleep(0.1)
