"""How tasks end: all at once, and whom a failure is told."""

from __future__ import annotations

import asyncio

from proto.tasks import end_all, failures_to


async def _fails() -> None:
    raise KeyError(1)


async def _returns() -> int:
    return 7


async def test_all_are_cancelled_before_one_is_awaited() -> None:
    order: list[int] = []

    async def waits(number: int) -> None:
        try:
            await asyncio.sleep(9)
        finally:
            order.append(number)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work) for work in (_fails(), _returns(), waits(1), waits(2))]
    await asyncio.sleep(0)
    raised, returned, *cancelled = await end_all(task for task in tasks)
    assert isinstance(raised, KeyError)
    assert returned == 7
    assert [type(outcome) for outcome in cancelled] == [asyncio.CancelledError] * 2
    assert order == [1, 2]
    assert await end_all([]) == []


async def test_a_task_that_raises_is_told_and_one_that_ends_or_is_cancelled_is_not() -> None:
    told: list[BaseException] = []
    tasks = [asyncio.create_task(work) for work in (_fails(), _returns(), asyncio.sleep(9))]
    for task in tasks:
        task.add_done_callback(failures_to(told.append))
    tasks[2].cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert [type(error) for error in told] == [KeyError]
