"""One plan at a time, off the event loop; too many are refused, and nobody's plan goes on for nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from controller.runtime.rpc import plan_queue
from controller.runtime.rpc.plan_queue import WAITING_MAX, AbandonedError, BusyError, PlanQueue
from tests.support.runtime.sessions import until


class Work:
    """Begins, goes on until it is told to end, and counts how many do so at once."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.running = self.most = self.ended = 0

    def __call__(self, give_way: Callable[[], None]) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        try:
            while not self.may_end.is_set():
                give_way()
        finally:
            self.running -= 1
            self.ended += 1
        return "done"


async def planned(queue: PlanQueue, work: Callable[[Callable[[], None]], str], over: bool = False) -> str:
    async with queue.turn():
        return await queue.run(work, lambda: over)


async def begun(work: Work) -> None:
    await until(work.begun.is_set, "the thread")


async def test_one_at_a_time_and_the_rest_is_refused() -> None:
    queue, work = PlanQueue(), Work()
    first = asyncio.create_task(planned(queue, work))
    await begun(work)
    others = [asyncio.create_task(planned(queue, work)) for _ in range(WAITING_MAX)]
    await until(lambda: queue.waiting == WAITING_MAX, "those who wait")
    late = asyncio.create_task(planned(queue, work))
    await asyncio.sleep(0)
    work.may_end.set()
    assert await asyncio.gather(first, *others) == ["done"] * (1 + WAITING_MAX)
    with pytest.raises(
        BusyError, match=f"a plan is being made, and {WAITING_MAX} more wait: ask again later"
    ):
        await late
    assert (work.most, work.ended, queue.waiting) == (1, 1 + WAITING_MAX, 0)


async def test_the_plan_of_a_caller_that_went_away_ends_before_the_next_begins() -> None:
    queue, work, following = PlanQueue(), Work(), Work()
    caller = asyncio.create_task(planned(queue, work))
    await begun(work)
    following.may_end.set()
    after = asyncio.create_task(planned(queue, following))
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (work.running, work.ended) == (0, 1)
    assert await after == "done"


async def test_who_is_cancelled_again_waits_on_for_the_thread() -> None:
    queue, work, may_look = PlanQueue(), Work(), threading.Event()

    def seldom(give_way: Callable[[], None]) -> str:
        def looks() -> None:
            may_look.wait()
            give_way()

        return work(looks)

    caller = asyncio.create_task(planned(queue, seldom))
    await begun(work)
    for _ in range(3):
        caller.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    waited = not caller.done()
    may_look.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert waited
    assert work.running == 0


async def test_one_who_stops_waiting_leaves_his_place() -> None:
    queue, work = PlanQueue(), Work()
    first = asyncio.create_task(planned(queue, work))
    await begun(work)
    impatient = asyncio.create_task(planned(queue, work))
    await until(lambda: queue.waiting == 1, "the one who waits")
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert queue.waiting == 0
    work.may_end.set()
    assert await first == "done"
    assert work.ended == 1


async def test_the_end_of_the_term_ends_it() -> None:
    work = Work()
    with pytest.raises(AbandonedError, match="the term is over"):
        await planned(PlanQueue(), work, over=True)
    assert work.running == 0


async def test_what_the_work_raises_comes_out_and_the_next_may_begin() -> None:
    queue = PlanQueue()

    def fails(give_way: Callable[[], None]) -> str:
        del give_way
        raise ValueError("no such broker")

    with pytest.raises(ValueError, match="no such broker"):
        await planned(queue, fails)
    work = Work()
    work.may_end.set()
    assert await planned(queue, work) == "done"


async def test_the_event_loop_goes_on_meanwhile() -> None:
    queue, work = PlanQueue(), Work()
    task = asyncio.create_task(planned(queue, work))
    await begun(work)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    work.may_end.set()
    assert await task == "done"


async def test_a_plan_gives_way_after_each_run_of_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, pauses = 0.0, list[float]()
    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=pauses.append)
    monkeypatch.setattr(plan_queue, "time", clock)

    def work(give_way: Callable[[], None]) -> str:
        nonlocal now_s
        for _ in range(9):
            now_s += 0.4 * plan_queue.RUN_S
            give_way()
        return "done"

    assert await planned(PlanQueue(), work) == "done"
    assert pauses == [plan_queue.PAUSE_S] * 3
