"""How the tasks of an event loop are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_all(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    """Cancel them, and wait until they have ended: what each returned or raised, in order."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    return await asyncio.gather(*ended, return_exceptions=True)
