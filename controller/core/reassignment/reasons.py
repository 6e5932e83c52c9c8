"""Reasons why a reassignment is not complete yet (KIP-455; reference, section 8.2), or a stray replica not deleted."""

from __future__ import annotations

from enum import Enum

from controller.core.model import BrokerIds, Suspension
from controller.core.names import counted, counted_are, ids_shown
from controller.core.reasons import Reason

# --- stray replicas ------------------------------------------------------------------------------------------


class Notified(Reason, frozen=True):
    """StopReplica was queued; the broker's response is awaited."""

    def __str__(self) -> str:
        return "it was told to delete it and has not answered yet"


class NotifiedEarlier(Reason, frozen=True):
    """A topic znode read at failover records the stray replica."""

    def __str__(self) -> str:
        return "it was told to delete it by an earlier controller"


class BrokerAbsent(Reason, frozen=True):
    """The replica's broker is not registered."""

    def __str__(self) -> str:
        return "its broker is not registered"


class AloneInSync(Reason, frozen=True):
    """It left the assignment, and nobody who is assigned is in the ISR."""

    def __str__(self) -> str:
        return "none of those assigned is in sync: to go on, assign it again, or elect one of them uncleanly"


class StrayLeft(Reason, frozen=True):
    """The reassignment is complete except for this stray replica."""

    broker_id: int
    why: Reason

    def __str__(self) -> str:
        return f"replica {self.broker_id} is not known to be deleted: {self.why}"


# --- concurrency limits --------------------------------------------------------------------------------------


class TotalLimit(Reason, frozen=True):
    """The total limit of ongoing reassignments is reached."""

    moves: int
    limit: int

    def __str__(self) -> str:
        ongoing = counted_are(self.moves, "move")
        return f"{ongoing} ongoing, and reassignment_concurrent_moves_max is {self.limit}"


class BrokerLimit(Reason, frozen=True):
    """The limit of ongoing reassignments of one broker is reached."""

    broker_id: int
    moves: int
    limit: int

    def __str__(self) -> str:
        return (
            f"broker {self.broker_id} takes part in {counted(self.moves, 'move')}, and "
            f"reassignment_concurrent_moves_per_broker_max is {self.limit}"
        )


class NextInLine(Reason, frozen=True):
    """No limit applies: it begins with the next event that starts queued reassignments."""

    def __str__(self) -> str:
        return "it is next in line"


class Queued(Reason, frozen=True):
    """A queued reassignment."""

    target: BrokerIds
    why: Suspension | TotalLimit | BrokerLimit | NextInLine

    def __str__(self) -> str:
        return f"the move to {ids_shown(self.target)} waits: {self.why}"


# --- ongoing moves -------------------------------------------------------------------------------------------


class NeverLed(Reason, frozen=True):
    """The partition has no state, so there is nothing to copy."""

    def __str__(self) -> str:
        return "the partition has no durable state yet: none of its replicas was ever online"


class NoTarget(Reason, frozen=True):
    """Every replica is to be removed."""

    def __str__(self) -> str:
        return "all of its replicas are being removed: reassign it again, or cancel"


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
        return f"target {self.broker_id} is not in the ISR {ids_shown(self.isr)}: {self.why}"


class NoSource(Reason, frozen=True):
    """The partition has no leader."""

    def __str__(self) -> str:
        return "no leader to copy from"


class NoTargetOnline(Reason, frozen=True):
    """All targets are in sync, but none of them is online."""

    targets: BrokerIds

    def __str__(self) -> str:
        return f"no target of {list(self.targets)} is online to lead"


class ElectionsSuspended(Reason, frozen=True):
    """The reassignment needs another leader, and elections are paused."""

    by: Suspension

    def __str__(self) -> str:
        return f"it needs another leader, and elections are {self.by}"


class EpochNotRaised(Reason, frozen=True):
    """The new leader epoch, with which new replicas begin to copy, could not be written."""

    why: Reason

    def __str__(self) -> str:
        return f"its leader epoch could not be raised: {self.why}"


class InSyncLeftOut(Reason, frozen=True):
    """The ISR has shrunk to replicas that were to go."""

    why: str

    def __str__(self) -> str:
        return self.why


class TargetLeftIsr(Reason, frozen=True):
    """A target left the ISR when the reassignment was about to finish."""

    isr: BrokerIds

    def __str__(self) -> str:
        return f"a target left the ISR {ids_shown(self.isr)} meanwhile"


# --- topic znodes --------------------------------------------------------------------------------------------


class TopicGone(Reason, frozen=True):
    """The topic znode was deleted. ``another``: a new topic has the name."""

    another: bool

    def __str__(self) -> str:
        return "its topic's znode is gone" + (", and a new topic has that name" if self.another else "")


class NotInTopic(Reason, frozen=True):
    """Another process removed the partition from the topic znode."""

    def __str__(self) -> str:
        return "it was removed from its topic's znode"


class TooLarge(Reason, frozen=True):
    """The topic znode would be too large; ``size`` and ``limit`` in bytes."""

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
    """All attempts to write the topic znode failed; ``last``: the last error of ZooKeeper or the session."""

    attempts: int
    last: str

    def __str__(self) -> str:
        return f"its topic's znode could not be written in {self.attempts} attempts; the last: {self.last}"
