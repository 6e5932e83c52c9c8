"""Rejections in the daemon's own log: some of each kind. All are in the state-change log, and counted in the metric."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from controller.core.records import Rejection

log = structlog.get_logger(__name__)

#: Lines of one error in so many seconds; one broker that shuts down can cause hundreds.
LINES_MAX, WINDOW_S = 5, 60.0


@dataclass
class _Window:
    began_s: float
    told: int = 0
    left_out: int = 0


class RejectionLog:
    """At most ``LINES_MAX`` lines of one error within ``WINDOW_S``; then one that says how many more there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def tell(self, rejections: Sequence[Rejection], event_id: int) -> None:
        for rejection in rejections:
            window = self._window(rejection.error)
            if window.told < LINES_MAX:
                window.told += 1
                log.warning("rejected", error=rejection.error, reason=rejection.reason, event_id=event_id)
                continue
            if not window.left_out:
                log.warning("rejected_more", error=rejection.error, others="are in the state-change log only")
            window.left_out += 1

    def _window(self, error: str) -> _Window:
        now_s = self._clock()
        window = self._windows.get(error)
        if window is None or now_s - window.began_s >= WINDOW_S:
            if window is not None and window.left_out:
                log.warning("rejected_before", error=error, count=window.left_out)
            window = self._windows[error] = _Window(now_s)
        return window
