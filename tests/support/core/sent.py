"""What brokers were sent, and what they hold after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controller.core.outbox import PushKind
from tests.support.core.world import Key


@dataclass(frozen=True)
class Sent:
    """One message a broker received, parsed."""

    broker: int
    broker_epoch: int
    kind: PushKind
    message: Any

    def lines(self) -> list[str]:
        """``<broker> <LISR|UMR|SR> <what>``, one line a partition, for comparing with what a reader expects."""
        if self.kind is PushKind.STOP_REPLICA:
            return [
                f"{self.broker} SR {e.topic}-{e.partition} epoch {e.leader_epoch}{' delete' * e.delete_partition}"
                for e in self.message.partition_states
            ]
        lines = [
            f"{self.broker} {'LISR' if self.kind is PushKind.LEADER_AND_ISR else 'UMR'} {e.topic}-{e.partition} "
            f"leader {e.leader} epoch {e.leader_epoch} isr {list(e.isr)}"
            + (" new" if self.kind is PushKind.LEADER_AND_ISR and e.is_new else "")
            for e in self.message.partition_states
        ]
        if not lines and self.kind is PushKind.UPDATE_METADATA:
            lines.append(
                f"{self.broker} UMR brokers {sorted(b.broker_id for b in self.message.live_brokers)}"
            )
        return lines


@dataclass
class Received:
    """What one broker incarnation holds after everything it was sent."""

    epoch: int
    live: frozenset[int] = frozenset()
    metadata: dict[Key, Any] = field(default_factory=dict)
    replicas: dict[Key, Any] = field(default_factory=dict)
    #: Leader epochs of replicas that were told to stop: brokers take LeaderAndIsr only at a higher one.
    stopped: dict[Key, int] = field(default_factory=dict)
    #: Newest partition epoch per topic incarnation: what is pushed never goes back.
    newest: dict[tuple[str, int, int], int] = field(default_factory=dict)
    #: It has answered with a storage error once.
    disk_failed: bool = False
