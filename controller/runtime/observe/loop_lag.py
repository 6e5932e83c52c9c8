"""Measures how late the event loop runs what is due: while one handler works, nothing else does, nor is the lease
renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controller.runtime.observe.metrics import LoopMetrics

log = structlog.get_logger(__name__)

#: Time between measurements.
INTERVAL_S = 0.05
#: Longer delays are logged, with the event that was processed.
LOGGED_FROM_S = 1.0


async def measure(metrics: LoopMetrics, event: Callable[[], str]) -> None:
    """Measure until cancelled. ``event``: the name of the event that is being processed, empty between events."""
    loop = asyncio.get_running_loop()
    longest_s = 0.0
    while True:
        processed = event()
        due = loop.time() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        lag_s = max(loop.time() - due, 0.0)
        metrics.lag_seconds.observe(lag_s)
        if lag_s > longest_s:
            longest_s = lag_s
            metrics.lag_max_seconds.set(lag_s)
        if lag_s > LOGGED_FROM_S:
            log.warning("event_loop_late", seconds=round(lag_s, 2), handled=event() or processed)
