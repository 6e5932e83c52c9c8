"""Counts of all partitions for those who scrape."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.http.server import Counting, start_http

FOREVER_S = 60.0
APP: Any = None


class Count:
    """Counts once it is let, and how often."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> None:
        self.begun += 1
        await self.may_end.wait()


async def test_those_who_scrape_together_are_counted_for_once() -> None:
    count = Count()
    counting = Counting(count)
    scrapes = [asyncio.create_task(counting.refresh(FOREVER_S)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(scrape.done() for scrape in scrapes)
    count.may_end.set()
    await asyncio.gather(*scrapes)
    assert count.begun == 1
    await counting.refresh(FOREVER_S)
    assert count.begun == 2


async def test_a_count_that_takes_long_goes_on_without_the_scrape() -> None:
    count = Count()
    counting = Counting(count)
    await counting.refresh(0.01)
    await counting.refresh(0.01)
    assert count.begun == 1
    await counting.stop(APP)
    assert counting._task is not None
    assert counting._task.cancelled()


async def test_a_count_that_fails_is_an_error_of_the_scrape() -> None:
    async def fails() -> None:
        raise ValueError("what is wrong")

    with pytest.raises(ValueError, match="what is wrong"):
        await Counting(fails).refresh(FOREVER_S)


async def test_those_who_scrape_together_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(Settings(state_log_dir=tmp_path))
    collect, reading, may_end = daemon.registry.collect, asyncio.Semaphore(0), asyncio.Event()
    read = 0

    def collected() -> Any:
        nonlocal read
        read += 1
        return collect()

    async def to_thread(encode: Any, families: Any) -> bytes:
        reading.release()
        await may_end.wait()
        return bytes(encode(families))

    monkeypatch.setattr(daemon.registry, "collect", collected)
    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    http, port = await start_http(daemon, "127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session, asyncio.TaskGroup() as scrapes:
        for _ in range(3):
            scrapes.create_task(session.get("/metrics"))
        await reading.acquire()
        async with session.get("/live") as answer:
            assert answer.status == 200
        assert read == 1
        may_end.set()
    assert read == 3
    await http.cleanup()
    daemon.state_log.close()
