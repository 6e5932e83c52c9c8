"""Calls that kazoo's threads leave to the event loop."""

from __future__ import annotations

import asyncio
import threading

from controller.runtime.zookeeper.session import Session


async def test_calls_of_several_threads_are_all_made_each_threads_in_order() -> None:
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    made: list[tuple[int, int]] = []
    everything = asyncio.Event()

    def make(thread: int, number: int) -> None:
        made.append((thread, number))
        if len(made) == 3000:
            everything.set()

    def leave(thread: int) -> None:
        for number in range(1000):
            session._post(make, thread, number)

    threads = [threading.Thread(target=leave, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(everything.wait(), 60)
    for thread in threads:
        thread.join()
    assert all([n for of, n in made if of == thread] == list(range(1000)) for thread in range(3))


async def test_a_call_that_fails_keeps_none_from_being_made() -> None:
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(str(what["exception"])))
    made = asyncio.Event()

    def fail() -> None:
        raise ValueError("a bug")

    session._post(fail)
    session._post(made.set)
    await asyncio.wait_for(made.wait(), 60)
    assert failures == ["a bug"]
