"""Leaders of partitions, from metadata responses; never returns to an older leader epoch."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from broker_stub.client.connection import Connections
from broker_stub.client.errors import ClientError, GaveUpError, RetriableError, UnreachableError, error_of
from proto.addresses import join_address
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.tasks import end_all

REQUEST_TIMEOUT_S = 5.0
#: Metadata older than this is refreshed even without an error.
MAX_AGE_S = 60.0
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 0.5

Key = tuple[str, int]
Result = TypeVar("Result")


class Leader(NamedTuple):
    """The leader of a partition. ``address``: host:port."""

    broker_id: int
    leader_epoch: int
    address: str


class _Known(NamedTuple):
    leader: int
    leader_epoch: int


class ClusterView:
    """The known brokers, topics and leaders. Pure.

    A broker's response may be outdated: the newest leader epoch of each partition is kept, and what a response does
    not contain stays.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, str] = {}
        self._topics: dict[str, str] = {}
        self._partitions: dict[str, dict[int, _Known]] = {}

    def apply(self, response: wire.MetadataResponse) -> None:
        for broker in response.brokers:
            self.brokers[broker.broker_id] = join_address(broker.host, broker.port)
        for topic in response.topics:
            if topic.error_code not in (codes.NONE, codes.LEADER_NOT_AVAILABLE) or not topic.partitions:
                continue
            if topic.topic_id and self._topics.get(topic.topic, topic.topic_id) != topic.topic_id:
                # The topic was deleted and created again: its epochs start again.
                del self._partitions[topic.topic]
            if topic.topic_id:
                self._topics[topic.topic] = topic.topic_id
            for partition in topic.partitions:
                self.notified((topic.topic, partition.partition), partition.leader, partition.leader_epoch)

    def notified(self, key: Key, leader: int, leader_epoch: int) -> None:
        """A broker named a leader (-1: none), in metadata or in an error response."""
        partitions = self._partitions.setdefault(key[0], {})
        known = partitions.get(key[1])
        if known is None or leader_epoch >= known.leader_epoch:
            partitions[key[1]] = _Known(leader, leader_epoch)

    def leader(self, key: Key) -> Leader | None:
        """The leader; None: there is none, or its address is unknown."""
        known = self._partitions.get(key[0], {}).get(key[1])
        if known is None or known.leader not in self.brokers:
            return None
        return Leader(known.leader, known.leader_epoch, self.brokers[known.leader])

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions; empty for an unknown topic."""
        return sorted(self._partitions.get(topic, ()))

    def topics(self) -> list[str]:
        return sorted(self._partitions)


def backoff_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row, with jitter."""
    return min(BACKOFF_FIRST_S * float(1 << min(failures, 10)), BACKOFF_MAX_S) * random.uniform(0.8, 1.2)


class Metadata:
    """The cluster's metadata, refreshed from any broker that responds.

    ``bootstrap``: addresses, host:port, of some brokers. They are tried again when no known broker responds.
    """

    def __init__(self, connections: Connections, bootstrap: Sequence[str]) -> None:
        if not bootstrap:
            raise ValueError("bootstrap: must name at least one host:port")
        self.view = ClusterView()
        self._connections, self._bootstrap = connections, list(bootstrap)
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = time.monotonic()
        self._answered = random.choice(self._bootstrap)

    async def refresh(self) -> None:
        """Refresh; concurrent callers share one request. Raises UnreachableError."""
        await asyncio.shield(self._start_refresh())

    def _start_refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            self._refreshed = time.monotonic()
            self._refreshing = asyncio.create_task(self._refresh())
            # Retrieve the exception: there may be no waiter.
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._refreshing

    async def _refresh(self) -> None:
        known = sorted(self.view.brokers.values())
        # Another broker each time: an isolated one would return the same outdated metadata again and again.
        start = bisect_right(known, self._answered)
        problems: list[str] = []
        for address in dict.fromkeys([*known[start:], *known[:start], *self._bootstrap]):
            try:
                response = await self._connections.call(
                    address, "Metadata", wire.MetadataRequest(), wire.MetadataResponse, REQUEST_TIMEOUT_S
                )
            except ClientError as error:
                problems.append(str(error))
                continue
            if not response.brokers:
                problems.append(f"Metadata at {address}: knows no brokers yet")
                continue
            self.view.apply(response)
            self._answered = address
            return
        raise UnreachableError("Metadata of any broker", "; ".join(problems), sent=False)

    async def leader(self, key: Key) -> Leader:
        """The partition's leader. Raises RetriableError: there is none; UnreachableError: no broker responds."""
        found = self.view.leader(key)
        if found is None:
            await self.refresh()
            found = self.view.leader(key)
        elif time.monotonic() - self._refreshed > MAX_AGE_S:
            self._start_refresh()
        if found is None:
            known = key[1] in self.view.partitions(key[0])
            code = codes.LEADER_NOT_AVAILABLE if known else codes.UNKNOWN_TOPIC_OR_PARTITION
            raise RetriableError(code, f"leader of {key[0]}-{key[1]}")
        return found

    async def partitions_of(self, topic: str, timeout_s: float) -> list[int]:
        """The numbers of a topic's partitions. Raises GaveUpError when no broker knows the topic in time."""

        async def look() -> list[int]:
            if not self.view.partitions(topic):
                await self.refresh()
            if found := self.view.partitions(topic):
                return found
            raise error_of(codes.UNKNOWN_TOPIC_OR_PARTITION, f"partitions of topic {topic!r}")

        return await retry(look, timeout_s)

    def notified(self, key: Key, leader: int, leader_epoch: int) -> None:
        """An error response named the leader (-1: it named none)."""
        if leader >= 0:
            self.view.notified(key, leader, leader_epoch)

    async def try_refresh(self) -> None:
        """Refresh; a failure is ignored, because the next call reports it."""
        try:
            await self.refresh()
        except RetriableError:
            return

    async def close(self) -> None:
        if self._refreshing is not None:
            await end_all([self._refreshing])


async def retry(
    work: Callable[[], Awaitable[Result]],
    timeout_s: float,
    after_failure: Callable[[], Awaitable[None]] | None = None,
) -> Result:
    """Repeat ``work`` after retriable errors, with back-off. Other errors are raised at once.

    Raises GaveUpError with the last error when ``timeout_s`` seconds have passed.
    """
    deadline = time.monotonic() + timeout_s
    failures = 0
    while True:
        try:
            return await work()
        except RetriableError as error:
            pause = backoff_s(failures)
            if time.monotonic() + pause > deadline:
                raise GaveUpError(
                    error.code,
                    error.asked,
                    f"given up after {timeout_s:g} s; {error.detail or 'no reason given'}",
                ) from error
        failures += 1
        await asyncio.sleep(pause)
        if after_failure is not None:
            await after_failure()


def parse_bootstrap(text: str | Iterable[str]) -> list[str]:
    """``host:port,host:port`` as a list. Raises ValueError naming the invalid part."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    for part in parts:
        host, colon, port = part.strip().rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise ValueError(f"bootstrap address {part!r}: must be HOST:PORT, port 1 to 65535")
    return [part.strip() for part in parts]
