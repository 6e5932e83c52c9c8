"""Streams of the console: what is new is told, once for all of them, and now and then that nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.records import BrokerChange, LogBatch, PushAcknowledged
from controller.runtime.http.connections import ANSWERING
from controller.runtime.http.console import events, views
from controller.runtime.http.console.events import Events
from controller.runtime.observe.history import Recent
from tests.provers.sim.environment import loop


def online(broker_id: int) -> LogBatch:
    return LogBatch([BrokerChange(broker_id, "online")], "why", "BrokerChange", 12)


class Stream:
    """A browser that reads the events of one daemon, in virtual time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recent, self.heard, self.state = Recent(1, 1000), list[tuple[float, bytes]](), {"role": "active"}
        monkeypatch.setattr(views, "state", lambda _: self.state)
        monkeypatch.setattr(
            events, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
        )
        self.closing, self.went_on = False, 0
        daemon: Any = SimpleNamespace(recent=self.recent)
        self.events = Events(daemon, 2)
        self.request: Any = {ANSWERING: SimpleNamespace(goes_on=self._goes_on)}

    def _goes_on(self) -> None:
        self.went_on += 1

    async def write(self, data: bytes) -> None:
        self.heard.append((asyncio.get_running_loop().time(), data))

    def listen(self, story: Callable[[], Any], for_s: float) -> None:
        """Ends as the browser leaves."""

        class Request(dict[Any, Any]):
            transport = SimpleNamespace(is_closing=lambda: self.closing)

        async def run() -> None:
            serving = asyncio.create_task(self.events._send(Request(self.request), self))  # type: ignore[arg-type]
            telling = asyncio.create_task(story())
            await asyncio.sleep(for_s)
            self.closing = True
            await asyncio.wait_for(serving, 2)
            await telling

        loop.run(run())

    def told(self, name: bytes) -> list[bytes]:
        return [data for _, data in self.heard if name in data]


def test_a_stream_tells_what_is_new_and_now_and_then_that_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)

    async def story() -> None:
        await asyncio.sleep(25)
        stream.state = {"role": "standby"}
        await asyncio.sleep(5)
        for n in range(30):
            stream.recent.add(online(n), 7, n)
        await asyncio.sleep(5)

    stream.listen(story, 40)
    assert [b"active" in data for data in stream.told(b"event: state")] == [True, False]
    (news,) = stream.told(b"event: records")
    assert news.startswith(b'event: records\ndata: {"total":30,"newest":[{')
    assert news.count(b'"replica"') == events.RECORDS_MAX
    assert b'"replica":29' in news
    assert b'"replica":9,' not in news
    quiet = [at_s for at_s, data in stream.heard if data == b": nothing new\n\n"]
    assert len(quiet) == 2
    assert quiet[1] - quiet[0] >= events.QUIET_S
    assert stream.went_on == len(stream.heard)


def test_what_brokers_acknowledge_is_counted_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a large cluster has a push and an answer for each broker."""
    stream = Stream(monkeypatch)

    async def story() -> None:
        stream.recent.add(online(1), 7, 1)
        stream.recent.add(LogBatch([PushAcknowledged(5, "StopReplica", 1, 1)]), 7, 2)

    stream.listen(story, 6)
    (news,) = stream.told(b"event: records")
    assert (b'"total":2' in news, news.count(b'"kind"'), b'"kind":"broker"' in news) == (True, 1, True)


def test_records_that_come_one_by_one_are_told_of_together(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)

    async def story() -> None:
        for n in range(30):
            await asyncio.sleep(0.1)
            stream.recent.add(online(n), 7, n)

    stream.listen(story, 6)
    told = stream.told(b"event: records")
    assert 5 <= len(told) <= 11
    assert b'"total":30' in told[-1]


def test_one_message_serves_all_streams_and_none_misses_what_came_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, made, read = Stream(monkeypatch), 0, Recent.backwards

    def counted(*given: Any) -> Any:
        nonlocal made
        made += 1
        return read(*given)

    monkeypatch.setattr(Recent, "backwards", counted)

    async def story() -> None:
        other: Any = type(
            "Request", (dict,), {"transport": SimpleNamespace(is_closing=lambda: stream.closing)}
        )
        heard: list[bytes] = []

        async def write(data: bytes) -> None:
            heard.append(data)

        listening: Any = SimpleNamespace(write=write)
        await asyncio.sleep(events.PAUSE_S / 2)
        serving = asyncio.create_task(stream.events._send(other(stream.request), listening))
        await asyncio.sleep(5)
        stream.recent.add(online(1), 7, 1)
        await asyncio.sleep(5)
        assert made == 1
        # Each has heard of the first and then of this one, though it came while no message was made.
        stream.recent.add(online(2), 7, 2)
        await asyncio.sleep(events.PAUSE_S * 0.6)
        before = made
        for n in range(3, 15):
            stream.recent.add(online(n), 7, n)
            await asyncio.sleep(events.PAUSE_S / 4)
        await asyncio.sleep(5)
        for told in (heard, [data for _, data in stream.heard]):
            assert b'"total":14' in b"".join(told)
        # Both streams look in each of the three pauses.
        assert made - before <= 3
        stream.closing = True
        await asyncio.wait_for(serving, 2)

    stream.listen(story, 20)


def test_a_stream_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)

    async def run() -> float:
        request: Any = type("Request", (dict,), {"transport": SimpleNamespace(is_closing=lambda: False)})
        began_s = asyncio.get_running_loop().time()
        await stream.events._send(request(stream.request), stream)  # type: ignore[arg-type]
        return asyncio.get_running_loop().time() - began_s

    assert events.STREAM_S <= loop.run(run()) < events.STREAM_S + 3
