"""One timer for many deadlines, on a loop whose time leaps."""

from __future__ import annotations

import asyncio

from broker_stub.group.timer import DeadlineTimer
from tests.support.broker.replication_fakes import leaping


@leaping
async def test_each_is_due_once_at_its_last_deadline() -> None:
    loop = asyncio.get_running_loop()
    due: list[tuple[str, float]] = []
    timer = DeadlineTimer[str](
        lambda: round(loop.time() * 1000), lambda item: due.append((item, loop.time()))
    )
    timer.set("later", 4000)
    timer.set("later", 5000)
    timer.set("sooner", 3000)
    timer.set("sooner", 2000)
    timer.set("removed", 500)
    timer.set("removed", None)
    await asyncio.sleep(20)
    assert [(item, round(at_s)) for item, at_s in due] == [("sooner", 2), ("later", 5)]
    timer.set("sooner", 25_000)
    timer.close()
    await asyncio.sleep(20)
    assert len(due) == 2


@leaping
async def test_an_earlier_deadline_than_many_others_is_kept() -> None:
    loop = asyncio.get_running_loop()
    due: list[tuple[str, float]] = []
    timer = DeadlineTimer[str](
        lambda: round(loop.time() * 1000), lambda item: due.append((item, loop.time()))
    )
    for number in range(100):
        timer.set(f"{number}", 50)
    timer.set("early", 10)
    await asyncio.sleep(0.02)
    assert due == [("early", 0.01)]
