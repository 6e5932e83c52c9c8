"""Rejections in the daemon's own log: some of each kind. All are in the state-change log, and counted in the metric."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import structlog

from controller.core.records import Rejection
from proto.rate_limit import RateLimit

log = structlog.get_logger(__name__)

#: Lines of one error in a window; one broker that shuts down can cause hundreds.
LINES_MAX = 5


class RejectionLog:
    """``LINES_MAX`` lines of one error in a window, then one that says so; ``count``: for how many one stands."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._limits = defaultdict[str, RateLimit](lambda: RateLimit(LINES_MAX, now_s))

    def tell(self, rejections: Sequence[Rejection], event_id: int) -> None:
        for rejection in rejections:
            limit, error = self._limits[rejection.error], rejection.error
            if count := limit.admit():
                several = {"count": count} if count > 1 else {}
                log.warning("rejected", error=error, reason=rejection.reason, event_id=event_id, **several)
            elif limit.left_out == 1:
                log.warning("rejected_more", error=error, others="are in the state-change log only")
