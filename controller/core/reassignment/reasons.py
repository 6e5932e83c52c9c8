"""Why a reassignment is not done yet (KIP-455; reference, section 8.2), and why a stray replica is not deleted yet."""

from __future__ import annotations

from enum import Enum

from controller.core.model import BrokerIds, Suspension
from controller.core.reasons import Reason

# --- stray replicas ------------------------------------------------------------------------------------------


class Notified(Reason, frozen=True):
    """The broker will answer."""

    def __str__(self) -> str:
        return "it was told to delete it and has not answered yet"


class NotifiedEarlier(Reason, frozen=True):
    """The topic znode names the replica: the broker is asked again."""

    def __str__(self) -> str:
        return "it was told to delete it by an earlier controller"


class BrokerAbsent(Reason, frozen=True):
    """Nobody is there to delete it."""

    def __str__(self) -> str:
        return "its broker is not registered"


class StrayLeft(Reason, frozen=True):
    """The move is complete but for this replica."""

    broker_id: int
    why: Reason

    def __str__(self) -> str:
        return f"replica {self.broker_id} is not known to be deleted: {self.why}"


# --- concurrency limits --------------------------------------------------------------------------------------


class TotalLimit(Reason, frozen=True):
    """As many moves as may be are ongoing."""

    moves: int
    limit: int

    def __str__(self) -> str:
        return f"{self.moves} moves are under way, and reassignment_concurrent_moves_max is {self.limit}"


class BrokerLimit(Reason, frozen=True):
    """A broker takes part in as many moves as may be."""

    broker_id: int
    moves: int
    limit: int

    def __str__(self) -> str:
        return (
            f"broker {self.broker_id} takes part in {self.moves} moves, and "
            f"reassignment_concurrent_moves_per_broker_max is {self.limit}"
        )


class NextInLine(Reason, frozen=True):
    """It begins with the next event that looks."""

    def __str__(self) -> str:
        return "it is next in line"


class Queued(Reason, frozen=True):
    """A move that has not begun."""

    target: BrokerIds
    why: Suspension | TotalLimit | BrokerLimit | NextInLine

    def __str__(self) -> str:
        return f"the move to {list(self.target)} waits: {self.why}"


# --- ongoing moves -------------------------------------------------------------------------------------------


class NeverLed(Reason, frozen=True):
    """There is nothing to copy, and nobody to copy from."""

    def __str__(self) -> str:
        return "the partition has no durable state yet: none of its replicas was ever online"


class NoTarget(Reason, frozen=True):
    """Every replica is to be removed."""

    def __str__(self) -> str:
        return "its removing replicas leave nobody: reassign it again, or cancel"


class OutOfSync(Enum):
    """Why a target is not in the ISR."""

    BROKER_ABSENT = "its broker is not registered"
    SHUTTING_DOWN = "its broker is shutting down"
    DISK_FAILED = "its disk failed"
    COPYING = "it is still copying"

    def __str__(self) -> str:
        return self.value


class TargetOutOfSync(Reason, frozen=True):
    broker_id: int
    isr: BrokerIds
    why: OutOfSync

    def __str__(self) -> str:
        return f"target {self.broker_id} is not in the ISR {list(self.isr)}: {self.why}"


class NoSource(Reason, frozen=True):
    """The partition has no leader."""

    def __str__(self) -> str:
        return "no leader to copy from"


class NoTargetOnline(Reason, frozen=True):
    """All targets are in sync, and none of them could lead."""

    targets: BrokerIds

    def __str__(self) -> str:
        return f"no target of {list(self.targets)} is online to lead"


class ElectionsSuspended(Reason, frozen=True):
    """The move would end with another leader."""

    by: Suspension

    def __str__(self) -> str:
        return f"it needs another leader, and elections are {self.by}"


class EpochNotRaised(Reason, frozen=True):
    """The new replicas could not be told to copy under a new leader epoch."""

    why: Reason

    def __str__(self) -> str:
        return f"its leader epoch could not be raised: {self.why}"


class TargetLeftIsr(Reason, frozen=True):
    """Found when the move was about to end."""

    isr: BrokerIds

    def __str__(self) -> str:
        return f"a target left the ISR {list(self.isr)} meanwhile"


# --- topic znodes --------------------------------------------------------------------------------------------


class TopicGone(Reason, frozen=True):
    """There is nothing to write to. ``another``: a new topic has the name."""

    another: bool

    def __str__(self) -> str:
        return "its topic's znode is gone" + (", another topic of that name is there" if self.another else "")


class NotInTopic(Reason, frozen=True):
    """Somebody edited the topic znode."""

    def __str__(self) -> str:
        return "it was taken out of its topic's znode"


class TooLarge(Reason, frozen=True):
    """The topic znode would not fit; ``size`` and ``limit`` in bytes."""

    topic: str
    partitions: int
    size: int
    limit: int

    def __str__(self) -> str:
        return (
            f"its topic's znode would take {self.size} bytes, must take at most {self.limit}: "
            f"move fewer of the {self.partitions} partitions of {self.topic} at once"
        )


class TopicNotWritten(Reason, frozen=True):
    """Others were faster each time; ``last``: what ZooKeeper, or the session, said last."""

    attempts: int
    last: str

    def __str__(self) -> str:
        return f"its topic's znode could not be written in {self.attempts} attempts; the last: {self.last}"
