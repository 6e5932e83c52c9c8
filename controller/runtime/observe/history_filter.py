"""The filter of state-change records: the same for history in memory, log files and live watching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Filter:
    """Conditions, all of which a record must meet. None, 0 or empty: no condition.

    ``brokers``: the record is about any of them. ``since_us`` and ``until_us`` (exclusive): microseconds since 1970.
    """

    topic: str = ""
    partition: int | None = None
    brokers: frozenset[int] = frozenset()
    controller_epoch: int | None = None
    kinds: frozenset[str] = frozenset()
    since_us: int = 0
    until_us: int = 0

    @property
    def takes_all(self) -> bool:
        """Whether every record passes, apart from the conditions on time and epoch."""
        return not (self.topic or self.brokers or self.kinds)

    def covers(self, ts_us: int, controller_epoch: int) -> bool:
        """Whether records of this time and controller epoch can pass."""
        return (
            ts_us >= self.since_us
            and (not self.until_us or ts_us < self.until_us)
            and (self.controller_epoch is None or controller_epoch == self.controller_epoch)
        )

    def names(self, topic: str, partition: int) -> bool:
        """Whether records about this partition can pass."""
        return (not self.topic or topic == self.topic) and (
            self.partition is None or partition == self.partition
        )

    def passes(self, record: Mapping[str, Any]) -> bool:
        """Whether a record passes whose time and epoch ``covers`` has accepted."""
        if self.kinds and record["kind"] not in self.kinds:
            return False
        if self.topic and record.get("topic") != self.topic:
            return False
        if self.partition is not None and record.get("partition") != self.partition:
            return False
        return not self.brokers or not self.brokers.isdisjoint(brokers_of(record))


def brokers_of(record: Mapping[str, Any]) -> set[int]:
    """Ids of the brokers that a record is about: replica, leader and ISR (before and after), and the broker that
    wrote it."""
    found = {record[name] for name in ("replica", "leader") if name in record}
    found.update(record.get("isr", ()))
    if record["kind"] in ("leader", "isr"):
        # Formatted as "1" and "[1,2]".
        for name in ("from", "to"):
            found.update(int(id_) for id_ in str(record.get(name, "")).strip("[]").split(",") if _is_id(id_))
    if record.get("role") == "broker":
        found.add(record["node"])
    return found


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10
