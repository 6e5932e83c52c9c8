"""How much of what comes as fast as others please is recorded or said one by one."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds of a window.
WINDOW_S = 60.0
#: Of what strangers can cause: denials in the audit log, and lines of one event in a daemon's own log.
STRANGERS_MAX = 100


class RateLimit:
    """Admits ``most`` in a window. The first one of the next window stands for those left out."""

    def __init__(self, most: int = STRANGERS_MAX, now_s: Callable[[], float] = time.monotonic) -> None:
        self._most, self._now_s = most, now_s
        self._ends_s, self._admitted = 0.0, 0
        #: Since the last one that was admitted.
        self.left_out = 0

    def admit(self) -> int:
        """For how many this one stands; 0: it is left out."""
        now_s = self._now_s()
        if now_s >= self._ends_s:
            self._ends_s, self._admitted = now_s + WINDOW_S, 0
        if self._admitted >= self._most:
            self.left_out += 1
            return 0
        self._admitted += 1
        stands_for, self.left_out = 1 + self.left_out, 0
        return stands_for
