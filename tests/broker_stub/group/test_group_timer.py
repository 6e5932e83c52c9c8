"""One timer, many deadlines."""

from __future__ import annotations

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_stub.group.timer import DeadlineTimer

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.none() | st.integers(0, 30)),
        st.tuples(st.just("pass"), st.just(""), st.integers(0, 10)),
    ),
    max_size=40,
)


@given(STEPS)
@example([("set", "a", 20), ("set", "b", 22), ("set", "a", 5), ("pass", "", 25)])
@settings(deadline=None)
def test_items_are_due_when_their_last_deadline_is(steps: list[tuple[str, str, int | None]]) -> None:
    """Each once for each deadline set, never early, never for a deadline that was replaced; each in one heap place."""

    async def run() -> None:
        now_ms = 0
        due: list[str] = []
        timer: DeadlineTimer[str] = DeadlineTimer(lambda: now_ms, due.append)
        deadlines: dict[str, int] = {}
        for what, item, number in steps:
            if what == "pass":
                now_ms += number or 0
                timer.run_due()
                expected = sorted(item for item, at_ms in deadlines.items() if at_ms <= now_ms)
                assert sorted(due) == expected
                due.clear()
                deadlines = {item: at_ms for item, at_ms in deadlines.items() if at_ms > now_ms}
            else:
                timer.set(item, None if number is None else now_ms + number)
                deadlines.pop(item, None)
                if number is not None:
                    deadlines[item] = now_ms + number
        now_ms += 1_000
        timer.run_due()
        assert sorted(due) == sorted(deadlines)
        timer.close()

    asyncio.run(run())


async def test_deadlines_that_only_move_to_later_cost_nothing() -> None:
    """As those of groups do, with every heartbeat."""
    timer: DeadlineTimer[str] = DeadlineTimer(lambda: 0, lambda item: None)
    for deadline_ms in range(1_000):
        timer.set("a", 1_000_000 + deadline_ms)
    assert len(timer._heap) == 1
    timer.close()


async def test_it_fires_by_itself_and_again() -> None:
    loop = asyncio.get_running_loop()
    fired: asyncio.Queue[str] = asyncio.Queue()
    timer: DeadlineTimer[str] = DeadlineTimer(lambda: int(loop.time() * 1000), fired.put_nowait)
    timer.set("late", int(loop.time() * 1000) + 40)
    timer.set("soon", int(loop.time() * 1000) + 5)
    async with asyncio.timeout(30):
        assert [await fired.get(), await fired.get()] == ["soon", "late"]
        timer.set("again", 0)
        assert await fired.get() == "again"
    timer.close()
