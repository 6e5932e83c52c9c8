"""Where a controller's records go: the state-change log, and what is remembered of it."""

from __future__ import annotations

import time

from controller.core.records import LogBatch
from controller.runtime.observe import records
from controller.runtime.observe.history import Recent
from proto.statelog.writer import StateLogWriter


class Journal:
    """One batch, one time: the line in the file and the one told to watchers are the same."""

    def __init__(self, log: StateLogWriter, recent: Recent) -> None:
        self.log, self.recent = log, recent

    def record(self, batch: LogBatch, controller_epoch: int) -> None:
        """Neither blocks nor raises. The batch must not change any more."""
        ts_us = time.time_ns() // 1000
        self.log.append(
            records.expand(batch),
            cause=batch.cause,
            controller_epoch=controller_epoch,
            event_id=batch.event_id,
            count=records.count_of(batch),
            ts_us=ts_us,
        )
        self.recent.add(batch, controller_epoch, ts_us)
