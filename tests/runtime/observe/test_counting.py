"""Counts of all partitions for those who scrape."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.runtime.http.server import Counting

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
