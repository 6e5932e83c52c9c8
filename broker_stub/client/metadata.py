"""Who leads which partition, as brokers tell it; never back to an older leader epoch."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from broker_stub.client.connection import Connections
from broker_stub.client.errors import ClientError, GaveUpError, RetriableError, UnreachableError, error_of
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes

REQUEST_TIMEOUT_S = 5.0
#: Metadata this old is refreshed though nothing failed: brokers move, and nobody tells clients that are content.
MAX_AGE_S = 60.0
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 0.5

Key = tuple[str, int]
Result = TypeVar("Result")


class Leader(NamedTuple):
    """Whom to ask about a partition. ``address``: host:port."""

    broker_id: int
    leader_epoch: int
    address: str


class _Known(NamedTuple):
    leader: int
    leader_epoch: int


class ClusterView:
    """What is known of the cluster. Pure.

    Answers come from brokers whose own knowledge may be old: of each partition the newest leader epoch counts, and
    what an answer does not mention stays known.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, str] = {}
        self._topics: dict[str, str] = {}
        self._partitions: dict[str, dict[int, _Known]] = {}

    def apply(self, response: wire.MetadataResponse) -> None:
        for broker in response.brokers:
            self.brokers[broker.broker_id] = address_of(broker.host, broker.port)
        for topic in response.topics:
            if topic.error_code not in (codes.NONE, codes.LEADER_NOT_AVAILABLE) or not topic.partitions:
                continue
            if topic.topic_id and self._topics.get(topic.topic, topic.topic_id) != topic.topic_id:
                # Deleted and created anew: epochs begin again.
                del self._partitions[topic.topic]
            if topic.topic_id:
                self._topics[topic.topic] = topic.topic_id
            for partition in topic.partitions:
                self.notified((topic.topic, partition.partition), partition.leader, partition.leader_epoch)

    def notified(self, key: Key, leader: int, leader_epoch: int) -> None:
        """A broker names a leader (-1: none), in metadata or in a refusal."""
        partitions = self._partitions.setdefault(key[0], {})
        known = partitions.get(key[1])
        if known is None or leader_epoch >= known.leader_epoch:
            partitions[key[1]] = _Known(leader, leader_epoch)

    def leader(self, key: Key) -> Leader | None:
        """None while nobody leads, or nobody we have the address of."""
        known = self._partitions.get(key[0], {}).get(key[1])
        if known is None or known.leader not in self.brokers:
            return None
        return Leader(known.leader, known.leader_epoch, self.brokers[known.leader])

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions; empty for an unknown topic."""
        return sorted(self._partitions.get(topic, ()))

    def topics(self) -> list[str]:
        return sorted(self._partitions)


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def backoff_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row, with jitter so that clients do not march in step."""
    return min(BACKOFF_FIRST_S * float(1 << min(failures, 10)), BACKOFF_MAX_S) * random.uniform(0.8, 1.2)


class Metadata:
    """The cluster's metadata, refreshed from any broker that answers.

    ``bootstrap``: addresses, host:port, of some brokers. They are asked again whenever no known broker answers.
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
        """Ask anew; who asks while somebody does waits for that answer. Raises UnreachableError."""
        await asyncio.shield(self._start_refresh())

    def _start_refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            self._refreshed = time.monotonic()
            self._refreshing = asyncio.create_task(self._refresh())
            # Nobody may be waiting for it.
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._refreshing

    async def _refresh(self) -> None:
        known = sorted(self.view.brokers.values())
        # Another broker each time: one that is cut off would tell the same old story again and again.
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
        """The leader to ask. Raises RetriableError while there is none; UnreachableError when nobody tells."""
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

        return await persist(look, timeout_s)

    def notified(self, key: Key, leader: int, leader_epoch: int) -> None:
        """A refusal named the leader."""
        if leader >= 0:
            self.view.notified(key, leader, leader_epoch)

    async def try_refresh(self) -> None:
        """Refresh where a failure changes nothing: the next call will show it."""
        try:
            await self.refresh()
        except RetriableError:
            return

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)


async def persist(
    work: Callable[[], Awaitable[Result]],
    timeout_s: float,
    after_failure: Callable[[], Awaitable[None]] | None = None,
) -> Result:
    """Do ``work`` again after retriable errors, with back-off, until ``timeout_s`` seconds have passed.

    Raises GaveUpError then, with the last error in words; other errors at once.
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
                    f"given up after {timeout_s:g} s; {error.detail or 'no reason notified'}",
                ) from error
        failures += 1
        await asyncio.sleep(pause)
        if after_failure is not None:
            await after_failure()


def parse_bootstrap(text: str | Iterable[str]) -> list[str]:
    """``host:port,host:port`` as a list. Raises ValueError naming the part that is none."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    for part in parts:
        host, colon, port = part.strip().rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise ValueError(f"bootstrap address {part!r}: must be HOST:PORT, port 1 to 65535")
    return [part.strip() for part in parts]
