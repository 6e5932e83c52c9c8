"""An event loop whose time jumps, and the simulated processes whose code runs on it.

Whenever nothing can run it is the time of the next timer at once. Everything of one process runs in contexts that
name it (``CURRENT``): so a process can be frozen, as by SIGSTOP, and what was due happens when it is thawed; or killed,
as by SIGKILL, and none of its code runs ever again, no handler of an exception and no ``finally`` either.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")

#: Time does not begin at nought, where "never" and "at once" could be taken for each other, seconds.
BEGINNING_S = 1000.0
#: The wall clock at the beginning, seconds since 1970.
BEGINNING_WALL_S = 1_700_000_000.0
CLOSINGS_MAX = 100

#: Of so many tasks of a process those that are done are forgotten.
TASKS_MAX = 100


#: Turns of the loop in one moment: a failover takes some hundred.
TURNS_MAX = 100_000


class StalledError(Exception):
    """Nothing can run and no timer is set: what is awaited will never come. Or time does not pass any more."""


class Process:
    """One incarnation of a simulated process. Made by ``VirtualTimeLoop.spawn``'s caller, ended by its methods."""

    def __init__(self, name: str, wall_clock_skew_s: float = 0.0) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        #: By how much its wall clock is ahead; may jump.
        self.wall_clock_skew_s = wall_clock_skew_s
        #: Called once, at its death, in this order: the network cuts it off, and so on.
        self.on_death: list[Callable[[], None]] = []
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        #: Held back while paused.
        self._held: deque[asyncio.Handle] = deque()
        #: Of a dead process these are kept: destroying them would run their ``finally`` blocks.
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = TASKS_MAX

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def take_held(self) -> deque[asyncio.Handle]:
        held, self._held = self._held, deque()
        return held

    def own(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max and self.alive:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks_max = TASKS_MAX + 2 * len(self._tasks)

    def bury(self) -> list[asyncio.Task[Any]]:
        """At the end of the simulation, when nothing can come of it any more: wind up what its code had open.

        Returns its tasks: they will never be done.
        """
        tasks = []
        # What it asks of the loop meanwhile is a dead process's, too.
        context = OUTSIDE.copy()
        context.run(CURRENT.set, self)
        # Grows meanwhile: ``finally`` blocks may begin more.
        for task in self._tasks:
            if not task.done():
                tasks.append(task)
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                context.run(_wind_up, task.get_coro())
        self._tasks.clear()
        return tasks


def _wind_up(coroutine: Any) -> None:
    """Close it as often as its ``finally`` blocks wait for something."""
    for _ in range(CLOSINGS_MAX):
        try:
            coroutine.close()
            return
        except BaseException:  # noqa: BLE001  (whatever a process says after its death)
            continue


#: The process whose code runs; None: the world around them.
CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)
#: In which nothing of any process runs: what the network and the ensemble do goes on without them.
OUTSIDE: Context = copy_context()


class _NeverWaiting(selectors.SelectSelector):
    """Lets the time pass that it should have waited; there is nothing outside to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = BEGINNING_S
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StalledError("nothing can run, and no timer is set")
        self._turns += 1
        if timeout > 0:
            self.now_s += timeout
            self._turns = 0
        elif self._turns > TURNS_MAX:
            raise StalledError(
                f"{TURNS_MAX} turns and no time has passed: somebody tries again without a pause"
            )
        return []


class _Ready(deque[asyncio.Handle]):
    """The loop's queue of what can run: a frozen process's part waits, a dead one's is thrown away."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._nothing = asyncio.Handle(lambda: None, (), loop)
        self._nothing.cancel()

    def popleft(self) -> asyncio.Handle:
        handle = super().popleft()
        process = handle._context.get(CURRENT)  # type: ignore[attr-defined]
        if process is None or (process.alive and not process.paused):
            return handle
        if process.alive:
            process.hold(handle)
        return self._nothing


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual time; the same program takes the same course each time.

    Nothing in it may wait for another thread or for the outside: that would take no time at all.
    """

    def __init__(self) -> None:
        self._never_waiting = _NeverWaiting()
        super().__init__(self._never_waiting)
        self._clock_resolution = 1e-9
        self._ready: deque[asyncio.Handle] = _Ready(self)
        #: All there ever were, until ``bury``.
        self.processes: dict[Process, None] = {}
        self._dead: list[asyncio.Task[Any]] = []
        self.set_task_factory(_owned_task)

    def time(self) -> float:
        return self._never_waiting.now_s

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        process = CURRENT.get()
        assert process is not None, "only a simulated process gets signals"
        context = copy_context()
        process.signal_handlers[sig] = lambda: self.call_soon(callback, *args, context=context)

    def remove_signal_handler(self, sig: int) -> bool:
        process = CURRENT.get()
        return process is not None and process.signal_handlers.pop(sig, None) is not None

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task of a process. What it calls and begins in its turn is that process's, too."""
        self.processes[process] = None
        context = OUTSIDE.copy()
        context.run(CURRENT.set, process)
        return context.run(self.create_task, work, context=context)

    def pause(self, process: Process) -> None:
        process.paused = True

    def resume(self, process: Process) -> None:
        """What was due meanwhile comes now, in its order."""
        process.paused = False
        self._ready.extend(process.take_held())

    def kill(self, process: Process) -> None:
        """None of its code runs from here on."""
        if not process.alive:
            return
        process.alive = process.paused = False
        process.take_held()
        for tell in process.on_death:
            OUTSIDE.copy().run(tell)

    def bury(self) -> None:
        """The end of the simulation: all processes are killed, and what is left of them is wound up."""
        for process in list(self.processes):
            self.kill(process)
            self._dead.extend(process.bury())
        self.processes.clear()

    def close(self) -> None:
        """Nobody else's tasks are left behind either."""
        self.bury()
        left = asyncio.all_tasks(self).difference(self._dead)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left))
        self.run_until_complete(self.shutdown_asyncgens())
        super().close()


def _owned_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = CURRENT.get()
    if process is not None:
        process.own(task)
    return task


class Clock:
    """Stands for the functions of the ``time`` module."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._as_of_s: float | None = None

    def monotonic(self) -> float:
        return self._loop.time() if self._as_of_s is None else self._as_of_s

    def monotonic_ns(self) -> int:
        return round(self.monotonic() * 1e9)

    def time(self) -> float:
        process = CURRENT.get()
        skew_s = process.wall_clock_skew_s if process else 0.0
        return BEGINNING_WALL_S + self._loop.time() - BEGINNING_S + skew_s

    def time_ns(self) -> int:
        return round(self.time() * 1e9)

    @contextmanager
    def as_of(self, moment_s: float) -> Iterator[None]:
        """Run something later that looked at the clock earlier."""
        self._as_of_s = moment_s
        try:
            yield
        finally:
            self._as_of_s = None


@contextmanager
def clock_of(loop: asyncio.AbstractEventLoop) -> Iterator[Clock]:
    """Within it ``time.time`` and ``time.monotonic`` everywhere tell the loop's time."""
    clock = Clock(loop)
    names = ("monotonic", "monotonic_ns", "time", "time_ns")
    with mock.patch.multiple(time, **{name: getattr(clock, name) for name in names}):
        yield clock


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, in virtual time."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
