"""Which connections and which sizes of requests the server takes, so that nobody keeps brokers out.

Pure: who has the connections gives the time, closes what it is told to, and obeys the sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proto.kafka.apis import ApiKey

#: All connections.
CONNECTIONS_MAX = 2000
#: Connections whose caller is not known yet.
UNAUTHENTICATED_MAX = 200
#: Connections of one address, without those of brokers.
PER_ADDRESS_MAX = 100
#: Seconds: the default of connections.max.idle.ms of brokers.
IDLE_S = 600.0
#: The same for connections that are no broker's, while more than half of all are taken.
CROWDED_IDLE_S = 60.0

#: Requests are decoded before their callers are authorised. What is decoded takes up to 50 bytes of memory for each
#: byte received (docs/adr/0010), and entries of two bytes take 0.25 s for each MiB of a thread.
REQUEST_BYTES_MAX = 2 * 2**20
#: For requests that grow with the number of partitions: AlterPartition has some 55 bytes for each that a broker leads,
#: CreateTopics some 30 for each with three replicas. So 190,000 and 350,000 partitions fit.
GROWING_REQUEST_BYTES_MAX = 10 * 2**20
#: Bytes of all long requests that have begun to arrive and are not answered yet, and of long responses that have not
#: left, without those of brokers.
HELD_BYTES_MAX = 256 * 2**20
_GROWING = frozenset(
    {
        ApiKey.ALTER_PARTITION,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.METADATA,
    }
)
#: What only brokers send: operation CLUSTER_ACTION.
CLUSTER_ACTIONS = frozenset(
    {ApiKey.ALTER_PARTITION, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALLOCATE_PRODUCER_IDS}
)


def request_bytes_max(api_key: int) -> int:
    """How long a request of an authenticated caller may be, without its size."""
    return GROWING_REQUEST_BYTES_MAX if api_key in _GROWING else REQUEST_BYTES_MAX


@dataclass(eq=False)
class Slot:
    """One connection. ``used_at``: when its last request began or ended, seconds. ``broker``: it sent a cluster action
    that was authorised. ``busy``: a request is being answered. ``held``: the bytes of a long request that has begun
    to arrive, until it is answered, then of a long response, until it has left."""

    address: str
    used_at: float
    close: Callable[[], None]
    authenticated: bool = False
    broker: bool = False
    busy: bool = False
    held: int = 0


class Admission:
    """The connections. In a crowd the one that is idle for longest makes room, and never a broker's."""

    def __init__(self) -> None:
        self._slots: dict[Slot, None] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def enter(self, slot: Slot) -> list[Slot]:
        """The connections to close for a new one, which are forgotten; the new one itself if nothing else may be."""
        self._slots[slot] = None
        closed: list[Slot] = []
        crowds: tuple[tuple[int, Callable[[Slot], bool]], ...] = (
            (PER_ADDRESS_MAX, lambda s: s.address == slot.address and not s.broker),
            (UNAUTHENTICATED_MAX, lambda s: not s.authenticated),
            (CONNECTIONS_MAX, lambda _: True),
        )
        for limit, counts in crowds:
            crowd = [s for s in self._slots if counts(s)]
            if len(crowd) <= limit:
                continue
            others = (s for s in crowd if s is not slot and not s.broker)
            longest_idle = min(others, key=lambda s: (s.busy, s.used_at), default=slot)
            del self._slots[longest_idle]
            closed.append(longest_idle)
            if longest_idle is slot:
                break
        return closed

    def hold(self, slot: Slot, size: int, now: float) -> list[Slot]:
        """The connections to close for a long request or response, which are forgotten: those whose own began first."""
        slot.held, slot.used_at = size, now
        holding = [s for s in self._slots if s.held and not s.broker]
        excess = sum(s.held for s in holding) - HELD_BYTES_MAX
        closed: list[Slot] = []
        for other in sorted((s for s in holding if s is not slot), key=lambda s: (s.busy, s.used_at)):
            if excess <= 0:
                break
            excess -= other.held
            del self._slots[other]
            closed.append(other)
        return closed

    def leave(self, slot: Slot) -> None:
        """Also for one that was forgotten already."""
        self._slots.pop(slot, None)

    def idle_too_long(self, slot: Slot, now: float) -> bool:
        crowded = len(self._slots) > CONNECTIONS_MAX // 2 and not slot.broker
        return now - slot.used_at >= (CROWDED_IDLE_S if crowded else IDLE_S)
