"""Threads that take turns with the event loop: one runs only while the loop waits for it, until it waits itself.

So code that blocks runs as it is, in virtual time and in one order: `Thread`, `Event`, `Condition`, `SimpleQueue` are
for the names that it takes from ``threading`` and ``queue``. The turns of a frozen process's threads wait like all else
of it. When it is killed its threads unwind at once: whatever their ``finally`` blocks ask of the loop, or send, is
a dead process's and goes nowhere.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from tests.provers.sim.environment.loop import CURRENT, VirtualTimeLoop

T = TypeVar("T")


class _Killed(BaseException):
    """Unwinds a thread whose process is dead."""


class _Wait:
    """One wait of one thread: ended once, by what was waited for or by time."""

    __slots__ = ("_thread", "over", "woken")

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.over = self.woken = False

    def wake(self) -> None:
        if not self.over:
            self.over = self.woken = True
            self._thread.schedule()

    def time_is_up(self) -> None:
        if not self.over:
            self.over = True
            self._thread.turn()


class Thread:
    """In the place of ``threading.Thread``, but for the loop. Belongs to the process that starts it."""

    #: Whose turn it is; None: the loop's.
    running: Thread | None = None

    def __init__(
        self,
        loop: VirtualTimeLoop,
        target: Callable[..., object],
        args: Iterable[Any] = (),
        name: str = "",
        daemon: bool = True,
    ) -> None:
        self._loop, self._target, self._args, self.name = loop, target, tuple(args), name
        self._real: threading.Thread | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self._error: BaseException | None = None
        self._ended = Event()

    def start(self) -> None:
        self._context = copy_context()
        process = CURRENT.get()
        assert process is not None, "only simulated processes have threads"
        self._process = process
        process.on_death.append(self._kill)
        self.schedule()

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def schedule(self) -> None:
        self._loop.call_soon(self.turn, context=self._context.copy())

    def turn(self) -> None:
        """On the loop: let it run until it waits or ends."""
        assert Thread.running is None
        Thread.running = self
        if self._real is None:
            self._real = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._real.start()
        else:
            self._go.release()
        self._back.acquire()
        Thread.running = None
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._context.run(self._target, *self._args)
        except _Killed:
            pass
        except BaseException as error:  # noqa: BLE001  (raised on the loop)
            self._error = error
        finally:
            if not self._killed:
                self._process.on_death.remove(self._kill)
                self._ended.set()
            self._back.release()

    def wait(self, waits: deque[_Wait], timeout_s: float | None) -> bool:
        """In the thread: wait for ``_Wait.wake`` of what is appended to ``waits``; False when time was up first."""
        wait = _Wait(self)
        waits.append(wait)
        timer = None if timeout_s is None else self._loop.call_later(max(timeout_s, 0.0), wait.time_is_up)
        if not self._killed:
            self._back.release()
            self._go.acquire()
        if self._killed:
            raise _Killed
        if timer is not None:
            timer.cancel()
        return wait.woken

    def _kill(self) -> None:
        self._killed = True
        if self._real is not None and not self._ended.is_set():
            self.turn()


def _wait(waits: deque[_Wait], timeout_s: float | None) -> bool:
    thread = Thread.running
    if thread is None:
        raise RuntimeError("the loop itself must not wait for a thread")
    return thread.wait(waits, timeout_s)


def _wake_all(waits: deque[_Wait]) -> None:
    while waits:
        waits.popleft().wake()


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waits: deque[_Wait] = deque()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        _wake_all(self._waits)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            _wait(self._waits, timeout)
        return self._set


class Lock:
    """Who holds it never waits meanwhile: nobody finds it taken."""

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Condition(Lock):
    def __init__(self) -> None:
        self._waits: deque[_Wait] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        return _wait(self._waits, timeout)

    def notify_all(self) -> None:
        _wake_all(self._waits)


class SimpleQueue(Generic[T]):
    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waits: deque[_Wait] = deque()

    def put(self, item: T) -> None:
        self._items.append(item)
        _wake_all(self._waits)

    def get(self, timeout: float | None = None) -> T:
        """For one taker. Raises queue.Empty."""
        if not self._items:
            _wait(self._waits, timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class LoopExecutor(Executor):
    """In the place of the loop's threads, for ``asyncio.to_thread``: jobs are done on the loop itself, in order.

    Only those of ``waiting`` (their qualified names) wait for something, and get a thread. A new one that waits fails
    loudly, and belongs among them.
    """

    def __init__(self, loop: VirtualTimeLoop, waiting: Collection[str]) -> None:
        self._loop, self._waiting = loop, waiting

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        job = partial(carry_out, future, partial(fn, *args, **kwargs))
        # asyncio.to_thread runs it in a context.
        work = fn.args[0] if isinstance(fn, partial) and fn.args else fn
        if getattr(work, "__qualname__", "") in self._waiting:
            Thread(self._loop, job).start()
        else:
            self._loop.call_soon(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Its jobs end with their processes."""


class SerialExecutor(Executor):
    """One job after the other, on the loop, each after its time (``delay_s()``): jobs must not wait."""

    def __init__(self, loop: VirtualTimeLoop, delay_s: Callable[[], float]) -> None:
        self._loop, self._delay_s = loop, delay_s
        self._jobs: deque[Callable[[], None]] = deque()
        self._idle = Event()
        self._idle.set()
        self._down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._jobs.append(partial(carry_out, future, partial(fn, *args, **kwargs)))
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_later(self._delay_s(), self._work)
        return future

    def _work(self) -> None:
        self._jobs.popleft()()
        if self._jobs:
            self._loop.call_later(self._delay_s(), self._work)
        else:
            self._idle.set()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._down = True
        if wait:
            self._idle.wait()


def carry_out(future: Future[T], work: Callable[[], T]) -> None:
    """Do the work of a future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except Exception as error:  # noqa: BLE001  (raised to whoever waits for it)
        future.set_exception(error)
    else:
        future.set_result(result)
