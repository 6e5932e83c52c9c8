"""Configurations of topics and brokers: read from ZooKeeper when needed, and again after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Generic, NamedTuple, TypeVar

import structlog

from broker_stub.errors import BrokerError
from broker_stub.replication import throttle
from broker_stub.replication.throttle import ConfigError, Quotas, Throttled
from proto.tasks import end_all

_log = structlog.get_logger("broker_stub.replication.dynamic_configs")

MIN_ISR = "min.insync.replicas"
#: Settings of all brokers that have none of their own (Kafka's ``ZooKeeperInternals.DEFAULT_STRING``).
EVERY_BROKER = "<default>"
#: Pause after a failed read, seconds.
_RETRY_PAUSE_S = 1.0
#: Concurrent reads: one request may make this broker leader of ten thousand topics.
_READS_MAX = 100
_T = TypeVar("_T")
#: Returns the settings of a topic or broker, name to text, or raises BrokerError.
Read = Callable[[str], Awaitable[dict[str, str]]]


class Configs(Generic[_T]):
    """Caches what ``parse(name, settings)`` makes of each configuration. Belongs to one event loop.

    ``changed(name)`` is called after each successful read.
    """

    def __init__(
        self,
        read: Read,
        parse: Callable[[str, Mapping[str, str]], _T],
        changed: Callable[[str], None],
    ) -> None:
        self._read, self._parse, self._changed = read, parse, changed
        self._parsed: dict[str, _T] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        #: Those that changed during a read: it is repeated.
        self._outdated: set[str] = set()
        self._read_slots = asyncio.Semaphore(_READS_MAX)

    def get(self, name: str) -> _T | None:
        """What was read; None: not known yet, a read has been started."""
        found = self._parsed.get(name)
        if found is None:
            self._begin(name)
        return found

    async def known(self, name: str) -> None:
        """Wait until it has been read, or the read was cancelled."""
        if name not in self._parsed:
            await asyncio.wait({self._begin(name)})

    def invalidate(self, name: str | None) -> None:
        """Read one again that is known, or all of them (None). The old values are used until then."""
        for one in [*self._parsed, *self._reading] if name is None else [name]:
            if one in self._reading or one in self._parsed:
                self.refresh(one)

    def refresh(self, name: str) -> None:
        """Read it again, or for the first time."""
        if name in self._reading:
            self._outdated.add(name)
        else:
            self._begin(name)

    def forget(self, name: str) -> None:
        """Drop what this broker no longer uses: the next of that name may have other settings."""
        self._parsed.pop(name, None)
        self._outdated.discard(name)
        reading = self._reading.pop(name, None)
        if reading is not None:
            reading.cancel()

    def _begin(self, name: str) -> asyncio.Task[None]:
        task = self._reading.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read_until_done(name), name=f"config-{name}")
            self._reading[name] = task
        return task

    async def _read_until_done(self, name: str) -> None:
        attempt = 0
        while True:
            self._outdated.discard(name)
            try:
                async with self._read_slots:
                    settings = await self._read(name)
                if name not in self._outdated:
                    break
            except BrokerError as error:
                level = _log.warning if attempt == 0 else _log.debug
                level("configuration not read yet", name=name, why=str(error))
                attempt += 1
                await asyncio.sleep(_RETRY_PAUSE_S)
        self._parsed[name] = self._parse(name, settings)
        del self._reading[name]
        self._changed(name)

    async def close(self) -> None:
        await end_all(self._reading.values())


class TopicConfig(NamedTuple):
    """What replication uses of a topic's configuration."""

    min_isr: int
    throttled: Throttled


class TopicConfigs(Configs[TopicConfig]):
    """Configurations of topics. A wrong value is reported, and the default holds in its place."""

    def __init__(
        self, read: Read, broker_id: int, min_isr_default: int, changed: Callable[[str], None]
    ) -> None:
        super().__init__(read, self._topic, changed)
        self._broker_id, self._default = broker_id, min_isr_default

    def min_isr(self, topic: str) -> int | None:
        """``min.insync.replicas``; None: not known yet, a read has been started."""
        found = self.get(topic)
        return None if found is None else found.min_isr

    def throttled_as_leader(self, topic: str) -> Container[int]:
        """Partitions throttled on their leader; none while the configuration is not known: a read was started."""
        found = self.get(topic)
        return throttle.NO_PARTITIONS if found is None else found.throttled.as_leader

    def throttled_as_follower(self, topic: str) -> Container[int]:
        """Partitions throttled on their followers; else as `throttled_as_leader`."""
        found = self.get(topic)
        return throttle.NO_PARTITIONS if found is None else found.throttled.as_follower

    def _topic(self, topic: str, settings: Mapping[str, str]) -> TopicConfig:
        least, limited = self._default, Throttled()
        try:
            least = self._least(settings.get(MIN_ISR))
        except ConfigError as error:
            _log.error(
                "topic configuration is invalid: the broker's default is used",
                topic=topic,
                problem=str(error),
                default=self._default,
            )
        try:
            limited = throttle.throttled(settings, self._broker_id)
        except ConfigError as error:
            _log.error(
                "topic configuration is invalid: its replicas are not throttled",
                topic=topic,
                problem=str(error),
            )
        return TopicConfig(least, limited)

    def _least(self, text: str | None) -> int:
        if text is None:
            return self._default
        if text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1:
            return int(text)
        raise ConfigError(MIN_ISR, text, "an integer of 1 or more")


class ThrottleRates:
    """Keeps the limits of both quotas at what this broker's configuration says, else that of all brokers (KIP-226)."""

    def __init__(self, read: Read, broker_id: int, quotas: Quotas) -> None:
        self._names = (str(broker_id), EVERY_BROKER)
        self._quotas = quotas
        self._configs = Configs(read, _rates, self._changed)

    def changed(self, broker: str | None) -> None:
        """The configuration of a broker changed, or any may have (None)."""
        for name in self._names:
            if broker in (name, None):
                self._configs.refresh(name)

    def _changed(self, _name: str) -> None:
        known = [found for name in self._names if (found := self._configs.get(name)) is not None]
        if len(known) < len(self._names):
            return
        own, every = known
        limits = [mine if mine is not None else theirs for mine, theirs in zip(own, every, strict=True)]
        if limits == [quota.rate_max for quota in self._quotas]:
            return
        for quota, limit in zip(self._quotas, limits, strict=True):
            quota.rate_max = limit
        _log.info(
            "replication throttle changed", leader_bytes_per_s=limits[0], follower_bytes_per_s=limits[1]
        )

    async def close(self) -> None:
        await self._configs.close()


def _rates(broker: str, settings: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Limits as leader and as follower; None: not set, or wrong."""
    found: list[int | None] = []
    for key in (throttle.LEADER_RATE, throttle.FOLLOWER_RATE):
        try:
            found.append(throttle.rate(settings, key))
        except ConfigError as error:
            _log.error(
                "broker configuration is invalid: nothing is throttled", broker=broker, problem=str(error)
            )
            found.append(None)
    return found[0], found[1]
