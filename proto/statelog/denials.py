"""How many denials are recorded one by one: who is denied can ask again as fast as the network goes."""

from __future__ import annotations

import time
from collections.abc import Callable

#: In one window of as many seconds.
RECORDED_MAX, WINDOW_S = 100, 60.0


class DenialLimit:
    """Admits ``RECORDED_MAX`` denials in a window. The first one of the next window stands for those left out."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends_at, self._recorded, self._left_out = 0.0, 0, 0

    def admit(self) -> int:
        """For how many denials the record of this one stands; 0: it is left out."""
        now = self._now()
        if now >= self._ends_at:
            self._ends_at, self._recorded = now + WINDOW_S, 0
        if self._recorded >= RECORDED_MAX:
            self._left_out += 1
            return 0
        self._recorded += 1
        stands_for, self._left_out = 1 + self._left_out, 0
        return stands_for
