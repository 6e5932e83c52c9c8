"""Brokers that have seen a higher controller epoch than the one that leads: when to exceed it.

``/controller_epoch`` goes back when it is deleted, or restored from a backup. Brokers then refuse every request of
whoever is elected, until a controller has a higher epoch than they have seen. Each process remembers what brokers
said, and how often it has exceeded that: a broker that lies must not keep all of them electing.
"""

from __future__ import annotations

from collections import deque

from controller.core.model import EPOCH_MAX

#: Times that a process exceeds what brokers have seen, in this many seconds.
TIMES_MAX, WINDOW_S = 3, 600.0
#: Epochs that are left for elections when a broker's epoch is believed.
RESERVE = 1_000_000


class Outranked:
    """The highest controller epoch that brokers named to this process, 0: none."""

    def __init__(self) -> None:
        self.epoch = 0
        self._exceeded: deque[float] = deque(maxlen=TIMES_MAX)

    def seen(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)

    def may_exceed(self, ours: int, now_s: float) -> bool:
        """Whether a controller of epoch ``ours`` is to give up for one of a higher epoch; True counts as one time."""
        if self.problem(ours, now_s) or self.epoch <= ours:
            return False
        self._exceeded.append(now_s)
        return True

    def problem(self, ours: int, now_s: float) -> str:
        """Why the epoch that brokers have seen is not exceeded, as text; empty: it is, or there is none."""
        if self.epoch <= ours:
            return ""
        if self.epoch > EPOCH_MAX - RESERVE:
            return f"brokers have seen controller epoch {self.epoch}, which leaves none to exceed it: restart them"
        if len(self._exceeded) == TIMES_MAX and now_s - self._exceeded[0] < WINDOW_S:
            return (
                f"brokers have seen controller epoch {self.epoch}, ours is {ours}: exceeded {TIMES_MAX} times in"
                f" {WINDOW_S:g} s, a broker may be naming epochs that no controller had"
            )
        return ""
