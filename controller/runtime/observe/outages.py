"""How long partitions were without a leader, for the metric."""

from __future__ import annotations

from collections.abc import Sequence

from controller.core.model import PartitionState
from controller.core.records import PartitionTransition
from controller.runtime.observe.metrics import ControllerMetrics


class Outages:
    """The outages of one term. An outage begins with the last sign of the broker that led, or, where that is not known,
    when it was noticed. One that the failover found began at an unknown time, and is not measured."""

    def __init__(self, metrics: ControllerMetrics) -> None:
        self._seconds = metrics.leaderless_seconds
        self._since_us: dict[tuple[str, int], int] = {}

    def take(self, transitions: Sequence[PartitionTransition], now_us: int) -> None:
        if not transitions or (not self._since_us and transitions[0].after is PartitionState.ONLINE):
            return
        for moved in transitions:
            key = moved.partition.topic.name, moved.partition.number
            if moved.after is PartitionState.OFFLINE:
                if moved.before is PartitionState.ONLINE:
                    self._since_us[key] = now_us - (moved.silent_us or 0)
                continue
            since_us = self._since_us.pop(key, None)
            if since_us is not None and moved.after is PartitionState.ONLINE:
                self._seconds.observe((now_us - since_us) / 1e6)
