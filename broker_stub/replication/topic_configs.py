"""``min.insync.replicas`` of topics: read from ZooKeeper when needed, and again after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker_stub.errors import BrokerError

_log = structlog.get_logger("broker_stub.replication.topic_configs")

MIN_ISR = "min.insync.replicas"
#: Pause after a failed read, seconds.
_RETRY_PAUSE_S = 1.0
#: Concurrent reads: one request may make this broker leader of ten thousand topics.
_READS_MAX = 100


class TopicConfigs:
    """Caches ``min.insync.replicas`` by topic. Belongs to one event loop.

    ``read`` returns a topic's own settings or raises BrokerError. ``changed(topic)`` is called after each successful
    read.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[dict[str, str]]],
        min_isr_default: int,
        changed: Callable[[str], None],
    ) -> None:
        self._read, self._default, self._changed = read, min_isr_default, changed
        self._min_isr: dict[str, int] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        #: Topics whose configuration changed during a read: it is repeated.
        self._outdated: set[str] = set()
        self._read_slots = asyncio.Semaphore(_READS_MAX)

    def min_isr(self, topic: str) -> int | None:
        """The value; None: not known yet, a read has been started."""
        found = self._min_isr.get(topic)
        if found is None:
            self._begin(topic)
        return found

    async def known(self, topic: str) -> None:
        """Wait until the topic's settings have been read, or the read was cancelled."""
        if topic not in self._min_isr:
            await asyncio.wait({self._begin(topic)})

    def invalidate(self, topic: str | None) -> None:
        """Read a topic's settings again, or those of all topics (None). The old values are used until then."""
        for name in [*self._min_isr, *self._reading] if topic is None else [topic]:
            if name in self._reading:
                self._outdated.add(name)
            elif name in self._min_isr:
                self._begin(name)

    def forget(self, topic: str) -> None:
        """Drop a topic that this broker no longer hosts: the next topic of that name may have other settings."""
        self._min_isr.pop(topic, None)
        self._outdated.discard(topic)
        reading = self._reading.pop(topic, None)
        if reading is not None:
            reading.cancel()

    def _begin(self, topic: str) -> asyncio.Task[None]:
        task = self._reading.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                self._read_until_done(topic), name=f"config-{topic}"
            )
            self._reading[topic] = task
        return task

    async def _read_until_done(self, topic: str) -> None:
        attempt = 0
        while True:
            self._outdated.discard(topic)
            try:
                async with self._read_slots:
                    settings = await self._read(topic)
                if topic not in self._outdated:
                    break
            except BrokerError as error:
                level = _log.warning if attempt == 0 else _log.debug
                level("topic configuration not read yet", topic=topic, why=str(error))
                attempt += 1
                await asyncio.sleep(_RETRY_PAUSE_S)
        self._min_isr[topic] = self._parse(topic, settings.get(MIN_ISR))
        if self._reading.get(topic) is asyncio.current_task():
            del self._reading[topic]
        self._changed(topic)

    def _parse(self, topic: str, text: str | None) -> int:
        if text is None:
            return self._default
        if text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1:
            return int(text)
        _log.error(
            "topic configuration is invalid: the broker's default is used",
            topic=topic,
            problem=f"{MIN_ISR} is {text[:80]!r}: must be an integer of 1 or more",
            default=self._default,
        )
        return self._default

    async def close(self) -> None:
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
