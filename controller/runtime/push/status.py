"""The status of the pushes to one broker: what it has acknowledged, and what it refuses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from controller.core.model import Partition
from controller.core.names import counted
from controller.core.outbox import Push, PushKind


@dataclass
class SenderStatus:
    """The status of the pushes to one broker, for operators.

    A push that the broker refuses as a whole is no acknowledgement: it stays a problem until one of its kind succeeds.
    """

    broker_epoch: int
    acknowledged_requests: int = 0
    acknowledged_partitions: int = 0
    #: When the last acknowledgement came, by the monotonic clock.
    last_acknowledged_s: float | None = None
    #: Why the last attempt to send failed; empty once there is an answer.
    unreachable: str = ""
    #: Attempts since the last answer.
    attempts: int = 0
    #: Why the last push of a kind was refused as a whole.
    refused: dict[PushKind, str] = field(default_factory=dict)
    #: The broker reported KAFKA_STORAGE_ERROR before: from then on its healthy partitions are reported, too.
    disk_failed: bool = False
    #: Partitions of LeaderAndIsr that the broker has not been told, and the error's name.
    not_led: dict[Partition, str] = field(default_factory=dict)
    _sending: frozenset[Partition] = frozenset()

    @property
    def age_s(self) -> float | None:
        """Seconds since the last acknowledgement; None: there was none."""
        return time.monotonic() - self.last_acknowledged_s if self.last_acknowledged_s is not None else None

    @property
    def problem(self) -> str:
        """Why the newest state is not known to the broker; empty: it has acknowledged what it got."""
        return self.unreachable or next(iter(self.refused.values()), "")

    @property
    def refused_partitions(self) -> str:
        """How many partitions it refused, and why; empty: none."""
        counts = Counter(self.not_led.values())
        errors = ", ".join(f"{error} x{count}" for error, count in sorted(counts.items()))
        return (
            f"refuses LeaderAndIsr of {counted(len(self.not_led), 'partition')}: {errors}" if counts else ""
        )

    def begin(self, push: Push) -> None:
        """A push has been taken from the outbox."""
        self._sending = frozenset(push.partitions if push.kind is PushKind.LEADER_AND_ISR else ())

    def answered(self) -> None:
        """Everything taken from the outbox has an answer."""
        self._sending = frozenset()

    def acknowledge(self, kind: PushKind, count: int, now_s: float) -> None:
        self.acknowledged_requests += 1
        self.acknowledged_partitions += count
        self.last_acknowledged_s = now_s
        self.refused.pop(kind, None)

    def refuse(self, push: Push, error: str, known_epoch: int) -> None:
        """``known_epoch``: the controller epoch that the broker names with the error, 0 if it names none."""
        seen = f": it has seen controller epoch {known_epoch}" if known_epoch else ""
        self.refused[push.kind] = f"refuses {push.kind.value}: {error}{seen}"
        if push.kind is PushKind.LEADER_AND_ISR:
            self.not_led.update(dict.fromkeys(push.partitions, error))

    def led(self, acknowledged: Collection[Partition], refused: Mapping[Partition, str]) -> None:
        """The answer to a LeaderAndIsr."""
        if self.not_led:
            for partition in acknowledged:
                self.not_led.pop(partition, None)
        self.not_led.update(refused)

    def forget(self, partitions: Collection[Partition]) -> None:
        """The broker has been told to stop these."""
        for partition in partitions if self.not_led else ():
            self.not_led.pop(partition, None)

    def why_not_led(self, partition: Partition) -> str:
        """Why the broker has not acknowledged LeaderAndIsr of a partition that was taken from the outbox; empty: it
        has."""
        if partition in self._sending:
            return "has not answered yet" + (f" ({self.problem})" if self.problem else "")
        error = self.not_led.get(partition, "")
        return error and f"refused to lead it: {error}"
