"""Handlers in virtual time: nothing waits, and what is never answered is found at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from tests.provers.sim.environment.loop import VirtualTimeLoop

T = TypeVar("T")
#: Virtual seconds in which tasks must end.
END_S = 7200.0


class Loop(VirtualTimeLoop):
    """Work for other threads is done at once, in this one."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  (whoever waits for it is told)
            future.set_exception(error)
        return future

    def end_tasks(self) -> None:
        """Cancel whatever is under way, and see it end."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks, timeout=END_S))


class FuzzedProcess(Protocol):
    @property
    def worn(self) -> bool:
        """Something has happened in it: the next input is to have another world."""
        ...

    def problems(self) -> list[str]:
        """What is wrong with what it holds now."""
        ...

    def call(self, method: str, request: bytes) -> Any: ...

    def close(self) -> None:
        """End orderly. Raises what it fails with."""
        ...

    def discard(self) -> None:
        """As it is."""
        ...


W = TypeVar("W", bound=FuzzedProcess)


class FreshProcess(Generic[W]):
    """The world that is in use; a new one once something has happened in it: an input does the same each time."""

    def __init__(self, make: Callable[[], W]) -> None:
        self._make = make
        self._process: W | None = None

    def call(self, method: str, request: bytes) -> Any:
        process = self._process = self._process or self._make()
        try:
            answer = process.call(method, request)
            if process.worn:
                assert (problems := process.problems()) == [], problems
                self.end()
        except BaseException:
            if self._process is not None:
                self._process = None
                with suppress(Exception):
                    process.discard()
            raise
        return answer

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()
