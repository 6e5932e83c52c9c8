"""A whole daemon inside the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.runtime.daemon import Daemon


@asynccontextmanager
async def running(daemon: Daemon) -> AsyncIterator[Daemon]:
    """Runs it, and lets it resign and end. A bug in it fails the test."""
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon
    finally:
        daemon.stop()
        await asyncio.wait_for(task, 30)
        daemon.state_log.close()
