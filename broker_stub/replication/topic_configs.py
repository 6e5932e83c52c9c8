"""What topics' configurations say, read when a partition is led and again when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker_stub.errors import BrokerError

_log = structlog.get_logger("broker_stub.replication.topic_configs")

MIN_ISR = "min.insync.replicas"
#: Pause after a configuration that could not be read, seconds.
_RETRY_PAUSE_S = 1.0
#: Configurations read at once: a broker may come to lead ten thousand topics in one request.
_READS_MAX = 100


class TopicConfigs:
    """``min.insync.replicas`` of the topics that are asked about. Belongs to one event loop.

    ``read`` gives a topic's own settings and raises BrokerError; ``changed`` is told when a value is known, or
    known anew.
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
        #: What changed while it was being read.
        self._outdated: set[str] = set()
        self._room = asyncio.Semaphore(_READS_MAX)

    def min_isr(self, topic: str) -> int | None:
        """None while unknown; it is being read then."""
        found = self._min_isr.get(topic)
        if found is None:
            self._begin(topic)
        return found

    async def known(self, topic: str) -> None:
        """Wait until the topic's settings were read, or until nobody reads them any more."""
        if topic not in self._min_isr:
            await asyncio.wait({self._begin(topic)})

    def invalidate(self, topic: str | None) -> None:
        """A topic's settings changed, or (None) any may have: read them again; the old ones hold until then."""
        for name in [*self._min_isr, *self._reading] if topic is None else [topic]:
            if name in self._reading:
                self._outdated.add(name)
            elif name in self._min_isr:
                self._begin(name)

    def forget(self, topic: str) -> None:
        """None of it is here any more: the next topic of this name may have other settings."""
        self._min_isr.pop(topic, None)
        self._outdated.discard(topic)
        reading = self._reading.pop(topic, None)
        if reading is not None:
            reading.cancel()

    def _begin(self, topic: str) -> asyncio.Task[None]:
        task = self._reading.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._learn(topic), name=f"config-{topic}")
            self._reading[topic] = task
        return task

    async def _learn(self, topic: str) -> None:
        attempt = 0
        while True:
            self._outdated.discard(topic)
            try:
                async with self._room:
                    settings = await self._read(topic)
                if topic not in self._outdated:
                    break
            except BrokerError as error:
                level = _log.warning if attempt == 0 else _log.debug
                level("topic's configuration not read yet", topic=topic, why=str(error))
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
            "topic's configuration is wrong: the broker's default counts",
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
