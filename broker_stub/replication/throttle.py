"""The replication throttle (KIP-73): bytes per second that replicas outside the ISR copy at most.

Kafka's ``ReplicationQuotaManager``: a broker has one quota as leader and one as follower. Pure: the clock is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from broker_stub.control.requests import Key

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

#: Kafka's ``replication.quota.window.size.seconds`` and ``replication.quota.window.num``.
SAMPLE_MS, SAMPLES = 1000, 11
#: Partitions of a topic: none, and all of them (``*``).
NO_PARTITIONS: Container[int] = frozenset()
ALL_PARTITIONS: Container[int] = range(2**31)
_LONG_MAX = 2**63 - 1
_QUOTED_MAX = 80


class ConfigError(ValueError):
    """A configured value is wrong; the message names the key, the value and what is allowed."""

    def __init__(self, key: str, value: str, allowed: str) -> None:
        super().__init__(f"{key} is {value[:_QUOTED_MAX]!r}: must be {allowed}")


class Throttled(NamedTuple):
    """Partitions of a topic that are throttled on this broker, as leader and as follower."""

    as_leader: Container[int] = NO_PARTITIONS
    as_follower: Container[int] = NO_PARTITIONS


def throttled(config: Mapping[str, str], broker_id: int) -> Throttled:
    """What a topic's configuration throttles on this broker. Raises ConfigError."""
    return Throttled(*(_partitions(key, config, broker_id) for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)))


def _partitions(key: str, config: Mapping[str, str], broker_id: int) -> Container[int]:
    text = config.get(key, "").strip()
    if text in ("", "*"):
        return ALL_PARTITIONS if text else NO_PARTITIONS
    found = set()
    for item in text.split(","):
        partition, _, replica = item.strip().partition(":")
        if not (_is_number(partition, 10) and _is_number(replica, 10)):
            raise ConfigError(key, text, "* or a list of PARTITION:BROKER")
        if int(replica) == broker_id:
            found.add(int(partition))
    return frozenset(found)


def rate(config: Mapping[str, str], key: str) -> int | None:
    """Bytes per second in a broker's configuration; None: it sets none. Raises ConfigError."""
    text = config.get(key)
    if text is None:
        return None
    if not _is_number(text.strip(), 19) or int(text) > _LONG_MAX:
        raise ConfigError(key, text, f"a whole number from 0 to {_LONG_MAX}")
    return int(text)


def _is_number(text: str, digits_max: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits_max


class ByteRate:
    """Bytes per second over the last samples (Kafka's ``SimpleRate``). Times in ms, of a clock that never goes back."""

    def __init__(self) -> None:
        #: Start and bytes of each sample, oldest first. One that is pushed out is older than all samples together.
        self._samples: deque[list[int]] = deque(maxlen=SAMPLES)

    def record(self, size: int, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size

    def per_second(self, now_ms: int) -> float:
        while self._samples and now_ms - self._samples[0][0] >= SAMPLES * SAMPLE_MS:
            self._samples.popleft()
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], SAMPLE_MS)
        return sum(size for _, size in self._samples) * 1000 / elapsed_ms


class ReplicationQuota:
    """The quota of one broker as leader, or as follower. Belongs to one event loop.

    ``partitions(topic)`` are those throttled on this side; it is asked only while there is a limit.
    """

    def __init__(self, partitions: Callable[[str], Container[int]], now_ms: Callable[[], int]) -> None:
        self._partitions, self._now_ms = partitions, now_ms
        self._copied = ByteRate()
        #: Bytes per second; None: no limit, and nothing is counted.
        self.rate_max: int | None = None

    def is_throttled(self, key: Key) -> bool:
        return self.rate_max is not None and key[1] in self._partitions(key[0])

    def is_exceeded(self) -> bool:
        return self.rate_max is not None and self._copied.per_second(self._now_ms()) > self.rate_max

    def record(self, key: Key, size: int) -> None:
        """Bytes of this partition were copied."""
        if self.is_throttled(key):
            self._copied.record(size, self._now_ms())


class Quotas(NamedTuple):
    """Both quotas of a broker."""

    leader: ReplicationQuota
    follower: ReplicationQuota
