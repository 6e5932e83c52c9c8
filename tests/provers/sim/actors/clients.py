"""Clients in the simulator: processes of their own that use the broker's client library as it is.

They keep no history of their own: what they do and are told goes to the run's `History`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, Protocol

from broker_stub.client.connection import Connections
from broker_stub.client.consumer import Consumer, Truncation
from broker_stub.client.errors import ClientError
from broker_stub.client.group import GroupMember, Membership
from broker_stub.client.producer import Producer
from controller.workload.history import Key
from tests.provers.sim.checks.history import History
from tests.provers.sim.environment.loop import OUTSIDE, Process, VirtualTimeLoop
from tests.provers.sim.environment.rpc import tls_here

REQUEST_TIMEOUT_MS, DELIVERY_TIMEOUT_MS = 1000, 20_000
#: Longer than a follower waits for an answer that was lost.
PROBE_TIMEOUT_MS = 20_000
POLL_MS = 1000
#: How often a reader looks whether topics came or went, seconds.
TOPICS_INTERVAL_S = 2.0
PAUSE_S = 0.2


class ClientEnvironment(Protocol):
    """What a client lives in. ``bootstrap``: addresses of brokers; ``topics()``: names, deleted ones left out."""

    @property
    def loop(self) -> VirtualTimeLoop: ...

    @property
    def rng(self) -> Random: ...

    @property
    def history(self) -> History: ...

    @property
    def bootstrap(self) -> Sequence[str]: ...

    def topics(self) -> Sequence[str]: ...


class SimClient:
    """A client's process. ``bugs``: exceptions that its library raised and should not have."""

    kind = "client"

    def __init__(self, environment: ClientEnvironment, number: int) -> None:
        self.name, self.number = f"{self.kind}-{number}", number
        self.environment, self.history = environment, environment.history
        self.process: Process | None = None
        self.bugs: list[Exception] = []
        self._stopping = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> Process:
        assert not self.alive, f"{self.name} is running"
        self.process = process = Process(self.name)
        self._stopping = asyncio.Event()
        self.environment.loop.spawn(process, self._live(process))
        return process

    def stop(self) -> None:
        """It begins nothing more; what is under way goes on."""
        self._stopping.set()

    def kill(self) -> None:
        if self.process is not None:
            self.environment.loop.kill(self.process)

    async def _live(self, process: Process) -> None:
        try:
            await self.run()
        except Exception as error:  # noqa: BLE001  (a finding: whoever looks on reports it)
            if process.alive:
                self.bugs.append(error)
        self.environment.loop.call_soon(self.environment.loop.kill, process, context=OUTSIDE.copy())

    async def run(self) -> None:
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not through the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def begin(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        """A task whose end is looked at."""
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.bugs.append(error)


class SimProducer(SimClient):
    """Writes a record now and then to some partition. ``acks`` -1: what is acknowledged must stay; 1: it may be lost.

    ``interval_s``: mean time between two records.
    """

    kind = "producer"

    def __init__(
        self, environment: ClientEnvironment, number: int, acks: int = -1, interval_s: float = 0.4
    ) -> None:
        super().__init__(environment, number)
        self._acks, self._interval_s = acks, interval_s
        self.given_up = 0

    async def run(self) -> None:
        rng = self.environment.rng
        tasks: set[asyncio.Task[None]] = set()
        producer = Producer(
            self.environment.bootstrap,
            self._acks,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            connections=Connections(tls_here()),
        )
        while not self._stopping.is_set():
            await self._pause(rng.expovariate(1 / self._interval_s))
            topics = self.environment.topics()
            if topics and not self._stopping.is_set():
                topic = rng.choice(topics)
                partitions = producer.metadata.view.partitions(topic)
                if not partitions or rng.random() < 0.05:
                    await producer.metadata.try_refresh()
                    partitions = producer.metadata.view.partitions(topic)
                if partitions:
                    self.begin(self._send(producer, (topic, rng.choice(partitions))), tasks)
        while tasks:
            await asyncio.wait(tasks)
        await producer.close()

    async def _send(self, producer: Producer, key: Key) -> None:
        value = self.history.sending(self.number, key, self._acks)
        try:
            offset = await producer.send(*key, [(None, value)])
        except ClientError:
            self.given_up += 1
        else:
            self.history.sent(value, offset)


class SimProbe(SimClient):
    """At the end: every partition takes one more record. ``refused``: those that did not, and why."""

    kind = "probe"

    def __init__(self, environment: ClientEnvironment, number: int) -> None:
        super().__init__(environment, number)
        self.refused: dict[Key, str] = {}

    async def run(self) -> None:
        producer = Producer(
            self.environment.bootstrap,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=PROBE_TIMEOUT_MS,
            connections=Connections(tls_here()),
        )
        await producer.metadata.try_refresh()
        view = producer.metadata.view
        keys = [(topic, number) for topic in self.environment.topics() for number in view.partitions(topic)]
        await asyncio.gather(*(self._write(producer, key) for key in keys))
        await producer.close()

    async def _write(self, producer: Producer, key: Key) -> None:
        value = self.history.sending(self.number, key, -1)
        try:
            offset = await producer.send(*key, [(None, value)])
        except ClientError as error:
            self.refused[key] = str(error)
        else:
            self.history.sent(value, offset)


class SimConsumer(SimClient):
    """Reads all partitions of all topics from the beginning, and goes on where it was."""

    kind = "consumer"

    async def run(self) -> None:
        consumer = Consumer(
            self.environment.bootstrap,
            max_wait_ms=POLL_MS,
            on_truncation=self._truncated,
            connections=Connections(tls_here()),
        )
        looked_s = -TOPICS_INTERVAL_S
        while not self._stopping.is_set():
            now_s = self.environment.loop.time()
            if now_s >= looked_s + TOPICS_INTERVAL_S:
                looked_s = now_s
                await self._assign(consumer)
            await self._poll(consumer)
        await consumer.close()

    async def _assign(self, consumer: Consumer) -> None:
        await consumer.metadata.try_refresh()
        view, assigned = consumer.metadata.view, consumer.assignment()
        keys = [
            (topic, number)
            for topic in sorted(self.environment.topics())
            for number in view.partitions(topic)
        ]
        if keys != assigned:
            known = {key: consumer.position(key) for key in assigned}
            await consumer.assign({key: known.get(key, 0) for key in keys})

    async def _poll(self, consumer: Consumer) -> None:
        try:
            records = await consumer.poll(POLL_MS)
        except ClientError:
            # Of this moment: a topic that has just been deleted, a position that is not there any more.
            await self._pause(PAUSE_S)
            return
        for r in records:
            self.history.read(self.number, (r.topic, r.partition), r.offset, r.value, r.high_watermark)

    def _truncated(self, truncation: Truncation) -> None:
        key = truncation.topic, truncation.partition
        self.history.truncated(key, truncation.position, truncation.end_offset)


class SimGroupMember(SimClient):
    """One member of a group: commits growing numbers for the partitions it is given, and reads them back."""

    kind = "member"

    def __init__(
        self,
        environment: ClientEnvironment,
        number: int,
        group: str,
        topics: Sequence[str],
        interval_s: float = 1.0,
    ) -> None:
        super().__init__(environment, number)
        self._group, self._topics, self._interval_s = group, topics, interval_s

    async def run(self) -> None:
        member = GroupMember(
            self.environment.bootstrap,
            self._group,
            self._topics,
            client_id=self.name,
            session_timeout_ms=3000,
            rebalance_timeout_ms=3000,
            heartbeat_interval_ms=500,
            connections=Connections(tls_here()),
        )
        member.start()
        while not self._stopping.is_set():
            await self._pause(self.environment.rng.expovariate(1 / self._interval_s))
            membership = member.membership
            if member.failure is not None:
                raise member.failure
            if membership.generation >= 0 and membership.partitions:
                await self._commit_one(member, membership)
        await member.close()

    async def _commit_one(self, member: GroupMember, membership: Membership) -> None:
        key = self.environment.rng.choice(membership.partitions)
        history, group = self.history, self._group
        acknowledged = history.last_acknowledged(group, key)
        try:
            found = await member.committed([key], timeout_s=3.0)
            history.offset_fetched(group, key, found.get(key), acknowledged)
            number = history.committing(group, key)
            await member.commit({key: number}, timeout_s=3.0)
        except ClientError:
            return  # the coordinator moves, or the group is balanced anew
        history.offset_committed(group, key, number)
