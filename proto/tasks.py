"""How the tasks of an event loop end."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any


async def end_all(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    """Cancel them, and wait until they have ended: what each returned or raised, in order."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    return await asyncio.gather(*ended, return_exceptions=True)


def failures_to(
    tell: Callable[[BaseException], object],
) -> Callable[[asyncio.Future[Any] | concurrent.futures.Future[Any]], None]:
    """For ``add_done_callback``: ``tell`` is called with the exception of a task that raised one."""

    def ended(task: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            tell(error)

    return ended
